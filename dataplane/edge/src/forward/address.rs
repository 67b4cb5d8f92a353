//! Ethernet addresses.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Everybody on the link.
    pub const BROADCAST: Self = Self([0xFF; 6]);

    /// Whether it stands for a group of stations, everybody included.
    #[inline]
    pub fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// The link-local address made of it (RFC 4291, appendix A).
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        let word = |high, low| u16::from_be_bytes([high, low]);
        Ipv6Addr::new(0xFE80, 0, 0, 0, word(a ^ 2, b), word(c, 0xFF), word(0xFE, d), word(e, f))
    }

    /// The group address that IPv6 packets to a multicast address go to (RFC 2464, section 7).
    pub fn of_multicast(to: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = to.octets();
        Self([0x33, 0x33, a, b, c, d])
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?} is no Ethernet address, as 02:00:00:00:00:01 is");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wanted)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wanted())?;
        }
        if parts.next().is_some() { Err(wanted()) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_written_and_made_into_link_local_ones() {
        let mac: Mac = "02:00:5e:10:00:ff".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:5e:10:00:ff");
        assert_eq!(mac.link_local(), "fe80::5eff:fe10:ff".parse::<Ipv6Addr>().unwrap());
        assert!(!mac.is_group() && Mac::BROADCAST.is_group());
        let all_nodes = Mac::of_multicast("ff02::1".parse().unwrap());
        assert_eq!(all_nodes.to_string(), "33:33:00:00:00:01");
        for wrong in ["", "02:00:5e:10:00", "02:00:5e:10:00:ff:00", "02:00:5e:10:0:0ff", "02-00"] {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }
}
