//! Flow keys: the bytes by which packets belong together.
//!
//! A deployment measures either by [`FlowKey`], the IPv4 5-tuple, or by [`WideKey`], which holds
//! IPv6 as well; its layout says which ([`KeyKind`]), and sketches are made for one of
//! them. The order of the bytes is part of the contract between switches (`docs/contract.md`). How
//! a key is read from a packet is the data plane's business, not this module's.

mod any;
mod wide;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::burst::InBursts;
use crate::fermat::Summed;

pub use self::any::{AnyKey, Encoders, Keyed};
pub use self::wide::WideKey;

/// Which packets a deployment measures, and by what key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// IPv4 by its 5-tuple: [`FlowKey`].
    #[default]
    Ipv4,
    /// IPv4 and IPv6 by their 5-tuples: [`WideKey`]. Buckets are twice as large.
    Dual,
}

impl KeyKind {
    /// The kind's name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Dual => "dual",
        }
    }
}

/// A kind of flow key that sketches can be made for: [`FlowKey`] or [`WideKey`], no others.
pub trait Key:
    InBursts + Summed + Default + Eq + Ord + Hash + fmt::Debug + fmt::Display + Send + Sync + 'static
{
    /// The kind.
    const KIND: KeyKind;

    /// The key of a flow, `None` where keys of this kind can't tell it: IPv6 for [`FlowKey`], and
    /// addresses of two families for both. Ports are 0 for protocols that have none.
    fn new(src: IpAddr, dst: IpAddr, sport: u16, dport: u16, protocol: u8) -> Option<Self>;

    /// Source and destination address.
    fn addresses(&self) -> (IpAddr, IpAddr);

    /// Source and destination port, 0 where the protocol has none.
    fn ports(&self) -> (u16, u16);

    /// IP protocol number.
    fn protocol(&self) -> u8;

    /// 32-bit words of addresses and ports: three or nine.
    const WORDS: usize;

    /// Word `at`, counted from 0, the most significant byte first, in the order of the key's bytes.
    fn word(&self, at: usize) -> u32;

    /// The key of these words and this protocol.
    fn from_word_fn(word: impl Fn(usize) -> u32, protocol: u8) -> Self;

    /// A value for keys of this kind as one for any.
    fn any<T: Keyed>(value: T::Of<Self>) -> AnyKey<T>;

    /// The opposite; `None` where the value is for keys of the other kind.
    fn of<T: Keyed>(any: &AnyKey<T>) -> Option<&T::Of<Self>>;

    /// The same, to change.
    fn of_mut<T: Keyed>(any: &mut AnyKey<T>) -> Option<&mut T::Of<Self>>;
}

impl Key for FlowKey {
    const KIND: KeyKind = KeyKind::Ipv4;

    fn new(src: IpAddr, dst: IpAddr, sport: u16, dport: u16, protocol: u8) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Self::v4(src, dst, sport, dport, protocol)),
            _ => None,
        }
    }

    fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.src().into(), self.dst().into())
    }

    fn ports(&self) -> (u16, u16) {
        (self.sport(), self.dport())
    }

    fn protocol(&self) -> u8 {
        self.protocol()
    }

    const WORDS: usize = 3;

    fn word(&self, at: usize) -> u32 {
        [self.src_word(), self.dst_word(), self.ports_word()][at]
    }

    fn from_word_fn(word: impl Fn(usize) -> u32, protocol: u8) -> Self {
        Self::from_words(word(0), word(1), word(2), protocol)
    }

    fn any<T: Keyed>(value: T::Of<Self>) -> AnyKey<T> {
        AnyKey::Ipv4(value)
    }

    #[inline]
    fn of<T: Keyed>(any: &AnyKey<T>) -> Option<&T::Of<Self>> {
        if let AnyKey::Ipv4(value) = any { Some(value) } else { None }
    }

    #[inline]
    fn of_mut<T: Keyed>(any: &mut AnyKey<T>) -> Option<&mut T::Of<Self>> {
        if let AnyKey::Ipv4(value) = any { Some(value) } else { None }
    }
}

/// The IPv4 5-tuple: 13 bytes, big-endian, in the order source address, destination address,
/// source port, destination port, protocol.
///
/// Kept padded with zeros to 16 aligned bytes, since that is what the hashes read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(C, align(16))]
pub struct FlowKey([u8; 16]);

impl FlowKey {
    /// Length of the key on the wire and in a packet, in bytes.
    pub const LEN: usize = 13;

    /// All fields zero.
    pub const ZERO: Self = Self([0; 16]);

    /// The key of an IPv4 flow. Ports are 0 for protocols that have none and for non-first
    /// fragments.
    #[inline]
    pub fn v4(src: Ipv4Addr, dst: Ipv4Addr, sport: u16, dport: u16, protocol: u8) -> Self {
        Self::from_words(
            src.to_bits(),
            dst.to_bits(),
            (sport as u32) << 16 | dport as u32,
            protocol,
        )
    }

    /// The key from its three 32-bit words (addresses, and both ports with the source port on top)
    /// and the protocol.
    #[inline]
    pub fn from_words(src: u32, dst: u32, ports: u32, protocol: u8) -> Self {
        let mut bytes = [0; 16];
        bytes[0..4].copy_from_slice(&src.to_be_bytes());
        bytes[4..8].copy_from_slice(&dst.to_be_bytes());
        bytes[8..12].copy_from_slice(&ports.to_be_bytes());
        bytes[12] = protocol;
        Self(bytes)
    }

    /// The key from its 13 bytes in contract order.
    #[inline]
    pub fn from_bytes(key: [u8; Self::LEN]) -> Self {
        let mut bytes = [0; 16];
        bytes[..Self::LEN].copy_from_slice(&key);
        Self(bytes)
    }

    /// The key from its 13 bytes as a little-endian number; what is above them does not count.
    #[inline(always)]
    pub fn from_le(key: u128) -> Self {
        Self((key & (u128::MAX >> (128 - 8 * Self::LEN))).to_le_bytes())
    }

    /// The 13 bytes in contract order.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0[..Self::LEN]
    }

    /// The 13 bytes followed by three zeros: what the CRCs are taken over.
    #[inline]
    pub fn padded(&self) -> &[u8; 16] {
        &self.0
    }

    /// The padded bytes as four little-endian words.
    #[inline(always)]
    pub(crate) fn padded_words(&self) -> [u32; 4] {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(self.0.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        words
    }

    /// The key from its padded bytes as four little-endian words.
    #[inline(always)]
    pub(crate) fn from_padded_words(words: [u32; 4]) -> Self {
        let mut bytes = [0; 16];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        Self(bytes)
    }

    /// Source address as a number.
    #[inline]
    pub fn src_word(&self) -> u32 {
        u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }

    /// Destination address as a number.
    #[inline]
    pub fn dst_word(&self) -> u32 {
        u32::from_be_bytes([self.0[4], self.0[5], self.0[6], self.0[7]])
    }

    /// Both ports, the source port in the upper half.
    #[inline]
    pub fn ports_word(&self) -> u32 {
        u32::from_be_bytes([self.0[8], self.0[9], self.0[10], self.0[11]])
    }

    /// Source address.
    pub fn src(&self) -> Ipv4Addr {
        self.src_word().into()
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv4Addr {
        self.dst_word().into()
    }

    /// Source port, 0 where the protocol has none.
    pub fn sport(&self) -> u16 {
        (self.ports_word() >> 16) as u16
    }

    /// Destination port, 0 where the protocol has none.
    pub fn dport(&self) -> u16 {
        self.ports_word() as u16
    }

    /// IP protocol number.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.0[12]
    }
}

impl Hash for FlowKey {
    /// Two words, which costs a third less than 16 bytes and their number.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let words = u128::from_ne_bytes(self.0);
        state.write_u64(words as u64);
        state.write_u64((words >> 64) as u64);
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{} -> {}:{} proto {}",
            self.src(),
            self.sport(),
            self.dst(),
            self.dport(),
            self.protocol()
        )
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_lays_its_fields_out_in_contract_order() {
        let key = FlowKey::v4([192, 0, 2, 1].into(), [198, 51, 100, 7].into(), 0x1234, 443, 17);
        assert_eq!(key.as_bytes(), [192, 0, 2, 1, 198, 51, 100, 7, 0x12, 0x34, 1, 187, 17]);
        assert_eq!(key.padded()[13..], [0; 3]);
        assert_eq!(FlowKey::from_bytes(key.as_bytes().try_into().unwrap()), key);
        assert_eq!((key.sport(), key.dport(), key.protocol()), (0x1234, 443, 17));
        assert_eq!(key.to_string(), "192.0.2.1:4660 -> 198.51.100.7:443 proto 17");
    }
}
