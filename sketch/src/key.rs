//! Flow keys: the bytes by which packets belong together.
//!
//! The order of the bytes is part of the contract between switches (`docs/contract.md`). How a key
//! is read from a packet is the data plane's business, not this module's.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::Ipv4Addr;

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
