//! Whose packets a deployment measures.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Most prefixes of a domain.
pub const MAX_PREFIXES: usize = 256;

/// The longest IPv4 packets that no link of a fabric cuts unless a domain says otherwise, in bytes:
/// what every link must take that IPv6 goes over (RFC 8200, section 5).
pub const DEFAULT_FABRIC_MTU: u16 = 1280;

/// What every link takes that IPv4 goes over, in bytes (RFC 791).
pub const LEAST_FABRIC_MTU: u16 = 68;

/// Addresses that have their first bits in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// The addresses that have the first `length` bits of `address`; its others must be 0.
    ///
    /// # Errors
    /// What does not fit.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, String> {
        let (bits, all) = bits_of(address);
        if length > all {
            return Err(format!("{address}/{length}: at most {all} bits"));
        }
        if bits & !mask(length) != 0 {
            return Err(format!("{address}/{length}: bits beyond the first {length} are set"));
        }
        Ok(Self { address, length })
    }

    /// The first of its addresses.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits its addresses have in common.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether it contains an address.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        let ((bits, all), (mine, of_mine)) = (bits_of(address), bits_of(self.address));
        all == of_mine && (bits ^ mine) & mask(self.length) == 0
    }
}

/// An address's bits, from the top down, and how many they are.
#[inline]
fn bits_of(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// The uppermost bits.
#[inline]
fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = String;

    /// As in `10.0.0.0/8` and `2001:db8::/32`.
    fn from_str(text: &str) -> Result<Self, String> {
        let problem = || format!("{text:?} is no prefix as 10.0.0.0/8 or 2001:db8::/32 are");
        let (address, length) = text.split_once('/').ok_or_else(problem)?;
        let address = address.parse().map_err(|_| problem())?;
        Self::new(address, length.parse().map_err(|_| problem())?)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// The packets that a deployment measures: of hosts with an address in one of its prefixes, through
/// a fabric of links with a least MTU.
///
/// Packets from or to other hosts are no one's, and are measured nowhere. Without prefixes all
/// hosts are the deployment's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    prefixes: Vec<Prefix>,
    fabric_mtu: u16,
}

impl Default for Domain {
    fn default() -> Self {
        Self { prefixes: Vec::new(), fabric_mtu: DEFAULT_FABRIC_MTU }
    }
}

impl Domain {
    /// The domain of these prefixes.
    ///
    /// # Errors
    /// Where they are too many.
    pub fn new(prefixes: Vec<Prefix>) -> Result<Self, String> {
        if prefixes.len() > MAX_PREFIXES {
            return Err(format!("{} prefixes: at most {MAX_PREFIXES}", prefixes.len()));
        }
        Ok(Self { prefixes, ..Self::default() })
    }

    /// This domain with a fabric that cuts no IPv4 packet of this total length, in bytes, or less.
    ///
    /// # Errors
    /// Where links of IPv4 take as much anyway.
    pub fn with_fabric_mtu(self, fabric_mtu: u16) -> Result<Self, String> {
        if fabric_mtu < LEAST_FABRIC_MTU {
            return Err(format!("{fabric_mtu} bytes: every link of IPv4 takes {LEAST_FABRIC_MTU}"));
        }
        Ok(Self { fabric_mtu, ..self })
    }

    /// The longest IPv4 packets that no link of the fabric cuts, in bytes of their total length.
    /// Longer ones that may be fragmented carry no mark in their identification.
    #[inline]
    pub fn fabric_mtu(&self) -> u16 {
        self.fabric_mtu
    }

    /// Its prefixes.
    pub fn prefixes(&self) -> &[Prefix] {
        &self.prefixes
    }

    /// Whether all hosts are in it.
    #[inline]
    pub fn is_everything(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Whether both ends of a packet are in it.
    #[inline]
    pub fn contains(&self, (source, destination): (IpAddr, IpAddr)) -> bool {
        let known = |address| self.prefixes.iter().any(|prefix| prefix.contains(address));
        self.is_everything() || known(source) && known(destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_is_read_as_it_is_written_and_nothing_else_is_one() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "10.1.2.3/32", "2001:db8::/32", "::/0"] {
            assert_eq!(prefix(text).to_string(), text);
        }
        for text in ["10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "::/129", "x/3", "10.0.0.0/-1"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn both_ends_must_be_in_the_domain() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let prefixes = ["10.0.0.0/8", "2001:db8::/32"].map(prefix).to_vec();
        let domain = Domain::new(prefixes).unwrap();
        let within = |source, destination| domain.contains((address(source), address(destination)));
        assert!(within("10.1.0.1", "10.255.255.255") && within("2001:db8::1", "2001:db8:9::"));
        assert!(!within("10.1.0.1", "11.0.0.1") && !within("192.0.2.1", "10.0.0.1"));
        assert!(!within("2001:db9::1", "2001:db8::1"));
        assert!(Domain::default().contains((address("192.0.2.1"), address("::1"))));
    }

    proptest! {
        #[test]
        fn a_prefix_contains_what_begins_with_its_bits(address: u32, other: u32, length in 0u8..=32) {
            let first = if length == 0 { 0 } else { u32::MAX << (32 - length) };
            let prefix = Prefix::new(IpAddr::V4((address & first).into()), length).unwrap();
            let begins = (address ^ other) & first == 0;
            prop_assert_eq!(prefix.contains(IpAddr::V4(other.into())), begins);
            prop_assert!(prefix.contains(IpAddr::V4(address.into())));
            prop_assert!(!prefix.contains(IpAddr::V6(0.into())));
        }
    }
}
