//! The key that holds IPv4 and IPv6 alike.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{AnyKey, Keyed};
use super::{FlowKey, Key, KeyKind};

/// The 5-tuple of an IPv4 or IPv6 flow: 37 bytes, big-endian, in the order source address (16),
/// destination address (16), source port (2), destination port (2), protocol (1). IPv4 addresses
/// are those that RFC 4291 maps them to, `::ffff:a.b.c.d`, so one set of sketches holds both.
///
/// Kept padded with zeros to 40 bytes, since that is what the hashes read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C, align(8))]
pub struct WideKey([u8; 40]);

impl WideKey {
    /// Length of the key on the wire, in bytes.
    pub const LEN: usize = 37;

    /// The key of an IPv6 flow. Ports are 0 for protocols that have none and for non-first
    /// fragments.
    #[inline]
    pub fn v6(src: Ipv6Addr, dst: Ipv6Addr, sport: u16, dport: u16, protocol: u8) -> Self {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&src.octets());
        bytes[16..32].copy_from_slice(&dst.octets());
        bytes[32..34].copy_from_slice(&sport.to_be_bytes());
        bytes[34..36].copy_from_slice(&dport.to_be_bytes());
        bytes[36] = protocol;
        Self(bytes)
    }

    /// The key of an IPv4 flow; the ports as for [`v6`](Self::v6).
    #[inline]
    pub fn v4(src: Ipv4Addr, dst: Ipv4Addr, sport: u16, dport: u16, protocol: u8) -> Self {
        Self::v6(src.to_ipv6_mapped(), dst.to_ipv6_mapped(), sport, dport, protocol)
    }

    /// The key from its 37 bytes in contract order.
    #[inline]
    pub fn from_bytes(key: [u8; Self::LEN]) -> Self {
        let mut bytes = [0; 40];
        bytes[..Self::LEN].copy_from_slice(&key);
        Self(bytes)
    }

    /// The 37 bytes in contract order.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0[..Self::LEN]
    }

    /// The 37 bytes followed by three zeros: what the CRCs are taken over.
    #[inline]
    pub fn padded(&self) -> &[u8; 40] {
        &self.0
    }

    /// The nine 32-bit words of addresses (most significant first) and ports (source port on top).
    #[inline(always)]
    pub fn words(&self) -> [u32; 9] {
        let mut words = [0; 9];
        for (word, bytes) in words.iter_mut().zip(self.0.as_chunks().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        words
    }

    /// The key from its [`words`](Self::words) and the protocol.
    #[inline(always)]
    pub fn from_words(words: [u32; 9], protocol: u8) -> Self {
        let mut bytes = [0; 40];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_be_bytes();
        }
        bytes[36] = protocol;
        Self(bytes)
    }

    /// Source address; an IPv4 one mapped.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        self.address(0)
    }

    /// Destination address; an IPv4 one mapped.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        self.address(1)
    }

    #[inline]
    fn address(&self, at: usize) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.0[16 * at..16 * at + 16]);
        octets.into()
    }

    /// Source port, 0 where the protocol has none.
    #[inline]
    pub fn sport(&self) -> u16 {
        u16::from_be_bytes([self.0[32], self.0[33]])
    }

    /// Destination port, 0 where the protocol has none.
    #[inline]
    pub fn dport(&self) -> u16 {
        u16::from_be_bytes([self.0[34], self.0[35]])
    }

    /// IP protocol number.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.0[36]
    }
}

impl Default for WideKey {
    fn default() -> Self {
        Self([0; 40])
    }
}

impl From<FlowKey> for WideKey {
    #[inline]
    fn from(key: FlowKey) -> Self {
        Self::v4(key.src(), key.dst(), key.sport(), key.dport(), key.protocol())
    }
}

impl Key for WideKey {
    const KIND: KeyKind = KeyKind::Dual;

    fn new(src: IpAddr, dst: IpAddr, sport: u16, dport: u16, protocol: u8) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Self::v4(src, dst, sport, dport, protocol)),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Self::v6(src, dst, sport, dport, protocol)),
            _ => None,
        }
    }

    /// IPv4 addresses as such where both are mapped ones.
    #[inline]
    fn addresses(&self) -> (IpAddr, IpAddr) {
        let (src, dst) = (self.src(), self.dst());
        match (src.to_ipv4_mapped(), dst.to_ipv4_mapped()) {
            (Some(src), Some(dst)) => (src.into(), dst.into()),
            _ => (src.into(), dst.into()),
        }
    }

    #[inline]
    fn ports(&self) -> (u16, u16) {
        (self.sport(), self.dport())
    }

    #[inline]
    fn protocol(&self) -> u8 {
        self.protocol()
    }

    const WORDS: usize = 9;

    fn word(&self, at: usize) -> u32 {
        self.words()[at]
    }

    fn from_word_fn(word: impl Fn(usize) -> u32, protocol: u8) -> Self {
        Self::from_words(std::array::from_fn(word), protocol)
    }

    fn any<T: Keyed>(value: T::Of<Self>) -> AnyKey<T> {
        AnyKey::Dual(value)
    }

    #[inline]
    fn of<T: Keyed>(any: &AnyKey<T>) -> Option<&T::Of<Self>> {
        if let AnyKey::Dual(value) = any { Some(value) } else { None }
    }

    #[inline]
    fn of_mut<T: Keyed>(any: &mut AnyKey<T>) -> Option<&mut T::Of<Self>> {
        if let AnyKey::Dual(value) = any { Some(value) } else { None }
    }
}

impl Hash for WideKey {
    /// Five words, which costs less than 40 bytes and their number.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        for word in self.0.as_chunks().0 {
            state.write_u64(u64::from_ne_bytes(*word));
        }
    }
}

impl fmt::Display for WideKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (src, dst) = self.addresses();
        let end = |address: IpAddr, port: u16| std::net::SocketAddr::new(address, port);
        write!(
            f,
            "{} -> {} proto {}",
            end(src, self.sport()),
            end(dst, self.dport()),
            self.protocol()
        )
    }
}

impl fmt::Debug for WideKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_have_keys_of_their_own() {
        let (src, dst): (Ipv6Addr, Ipv6Addr) =
            ("2001:db8::1".parse().unwrap(), "2001:db8:0:2::7".parse().unwrap());
        let key = WideKey::v6(src, dst, 0x1234, 443, 17);
        assert_eq!(key.as_bytes()[..4], [0x20, 1, 0xD, 0xB8]);
        assert_eq!(key.as_bytes()[32..], [0x12, 0x34, 1, 187, 17]);
        assert_eq!(key.padded()[37..], [0; 3]);
        assert_eq!(WideKey::from_bytes(key.as_bytes().try_into().unwrap()), key);
        assert_eq!(WideKey::from_words(key.words(), key.protocol()), key);
        assert_eq!(key.addresses(), (src.into(), dst.into()));
        assert_eq!(key.to_string(), "[2001:db8::1]:4660 -> [2001:db8:0:2::7]:443 proto 17");

        let narrow = FlowKey::v4([192, 0, 2, 1].into(), [198, 51, 100, 7].into(), 9, 443, 6);
        let wide = WideKey::from(narrow);
        assert_eq!((wide.addresses(), wide.ports()), (narrow.addresses(), narrow.ports()));
        assert_eq!(wide.src(), Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        assert_eq!(wide.to_string(), narrow.to_string());
    }

    #[test]
    fn a_flow_has_addresses_of_one_family_that_its_key_can_hold() {
        let (v4, v6) = (IpAddr::V4([10, 0, 0, 1].into()), IpAddr::V6(Ipv6Addr::LOCALHOST));
        assert!(<WideKey as Key>::new(v4, v6, 1, 2, 6).is_none());
        assert!(<FlowKey as Key>::new(v6, v6, 1, 2, 6).is_none());
        for address in [v4, v6] {
            let key = <WideKey as Key>::new(address, address, 1, 2, 6).unwrap();
            assert_eq!(key.addresses(), (address, address));
        }
    }
}
