//! Packets that are routed like most others, recognised by few comparisons: untagged, to the
//! switch's own Ethernet address, whole, with a TTL left, between unicast addresses that go over
//! links. All others are for [`decide`](super::decide) to read header by header.

use calumma_sketch::BURST;

use super::address::Mac;
use super::header::{ETHERNET, IPV4, IPV6};

const IPV4_END: usize = ETHERNET + IPV4;
const IPV6_END: usize = ETHERNET + IPV6;

/// A plain packet: where to, and the length of its IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// IPv4: the destination as a number.
    V4(u32, u16),
    /// IPv6: the destination as on the wire.
    V6([u8; 16], u16),
}

/// Plain packets of one family in a burst: for each its position, the length of its IP packet, and
/// where to.
#[derive(Debug)]
pub struct Batch<A> {
    at: [u8; BURST],
    total_lens: [u16; BURST],
    addresses: [A; BURST],
    len: usize,
}

impl<A: Copy> Batch<A> {
    /// An empty batch, its memory filled with `zero`.
    pub fn new(zero: A) -> Self {
        Self { at: [0; BURST], total_lens: [0; BURST], addresses: [zero; BURST], len: 0 }
    }

    /// Empties it.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds the packet at position `at`.
    #[inline(always)]
    pub fn push(&mut self, at: usize, address: A, total_len: u16) {
        self.at[self.len] = at as u8;
        self.total_lens[self.len] = total_len;
        self.addresses[self.len] = address;
        self.len += 1;
    }

    /// Where all packets go.
    #[inline(always)]
    pub fn addresses(&self) -> &[A] {
        &self.addresses[..self.len]
    }

    /// The length of the longest.
    #[inline(always)]
    pub fn longest(&self) -> u16 {
        self.total_lens[..self.len].iter().fold(0, |longest, &len| longest.max(len))
    }

    /// Each packet's position, length and address.
    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = (usize, u16, A)> {
        let all = self.at[..self.len].iter().zip(&self.total_lens).zip(&self.addresses);
        all.map(|((&at, &total_len), &address)| (usize::from(at), total_len, address))
    }
}

/// What plain packets of a port look like.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// The port's Ethernet address in the lower six bytes, as read from a frame.
    to: u64,
}

impl Template {
    /// No packet is plain.
    pub const NONE: Self = Self { to: u64::MAX };

    /// Packets to this Ethernet address.
    pub fn new(mac: Mac) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        Self { to: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) }
    }

    /// Gives the length of an untagged IPv4 packet without options, whose headers are whole, if it
    /// is plain. Its checksum is right then.
    #[inline(always)]
    pub fn total_len(self, bytes: &[u8]) -> Option<u16> {
        let header = bytes.first_chunk::<IPV4_END>()?;
        let (ttl, from, to) = (header[22], header[26], header[30]);
        let to_us = u64_at(header, 0) & 0xFFFF_FFFF_FFFF == self.to;
        let plain = to_us & (ttl > 1) & unicast4(from) & unicast4(to) & checksum_fits(header);
        plain.then(|| u16::from_be_bytes([header[16], header[17]]))
    }

    /// Gives a packet's destination if it is plain. Its IPv4 header's checksum is right then.
    #[inline(always)]
    pub fn read(self, bytes: &[u8], wire_len: usize) -> Option<Plain> {
        let header = bytes.first_chunk::<IPV4_END>()?;
        if u64_at(header, 0) & 0xFFFF_FFFF_FFFF != self.to {
            return None;
        }
        // EtherType, version and, of IPv4, the length of the header.
        let kind = u32_at(header, 12);
        if kind & 0xFF_FFFF == u32::from_le_bytes([8, 0, 0x45, 0]) {
            plain4(header, wire_len)
        } else if kind & 0xF0_FFFF == u32::from_le_bytes([0x86, 0xDD, 0x60, 0]) {
            plain6(bytes.first_chunk()?, wire_len)
        } else {
            None
        }
    }
}

#[inline(always)]
fn plain4(header: &[u8; IPV4_END], wire_len: usize) -> Option<Plain> {
    let total_len = u16::from_be_bytes([header[16], header[17]]);
    let whole = usize::from(total_len) >= IPV4 && usize::from(total_len) + ETHERNET <= wire_len;
    let (ttl, from, to) = (header[22], header[26], header[30]);
    let plain = whole && ttl > 1 && unicast4(from) && unicast4(to) && checksum_fits(header);
    plain.then(|| Plain::V4(u32_at(header, 30).swap_bytes(), total_len))
}

/// Whether the IPv4 header's words sum up to zero in one's complement, whatever the order of their
/// bytes. Such a sum is one modulo 2^16 - 1, as is one of 64-bit words with the carry added; it is
/// not zero, as the first byte is not.
#[inline(always)]
fn checksum_fits(header: &[u8; IPV4_END]) -> bool {
    let (sum, carry) = u64_at(header, 14).overflowing_add(u64_at(header, 22));
    let (sum, again) = sum.overflowing_add(u64::from(u32_at(header, 30)) + u64::from(carry));
    // The last number is small, so that this can't overflow any more.
    (sum + u64::from(again)).is_multiple_of(0xFFFF)
}

#[inline(always)]
fn plain6(header: &[u8; IPV6_END], wire_len: usize) -> Option<Plain> {
    let total_len = IPV6 + usize::from(u16::from_be_bytes([header[18], header[19]]));
    let (hop_limit, from, to) = (header[21], header[22], header[38]);
    let whole = total_len + ETHERNET <= wire_len;
    let plain = whole && hop_limit > 1 && unicast6(from) && unicast6(to);
    let total_len = u16::try_from(total_len).ok().filter(|_| plain)?;
    header.last_chunk().map(|to| Plain::V6(*to, total_len))
}

/// Whether an IPv4 address goes beyond links to one station, by its first byte: not 0, 127, 169,
/// which some are link-local of, or 224 and above.
#[inline(always)]
fn unicast4(first: u8) -> bool {
    first.wrapping_sub(1) < 223 && first != 127 && first != 169
}

/// Whether an IPv6 address is a global or a unique local one (2000::/3, fc00::/7), by its first
/// byte.
#[inline(always)]
fn unicast6(first: u8) -> bool {
    first >> 5 == 1 || first >> 1 == 0x7E
}

#[inline(always)]
fn u32_at(header: &[u8; IPV4_END], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[inline(always)]
fn u64_at(header: &[u8; IPV4_END], at: usize) -> u64 {
    header[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::header;
    use super::*;
    use calumma_plane::checksum::checksum;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn v4() -> Vec<u8> {
        let mut frame = MAC.to_vec();
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 1, 8, 0]);
        let mut ip = [0x45, 3, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 3];
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend_from_slice(&ip);
        frame.resize(14 + 28, 0);
        frame
    }

    fn v6() -> Vec<u8> {
        let mut frame = MAC.to_vec();
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 1, 0x86, 0xDD, 0x60, 1, 2, 3, 0, 8, 17, 64]);
        for last in [1, 2] {
            frame.extend_from_slice(&[0xFD, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        frame.resize(14 + 48, 0);
        frame
    }

    fn read(frame: &[u8]) -> Option<Plain> {
        Template::new(Mac(MAC)).read(frame, frame.len())
    }

    #[test]
    fn plain_packets_are_recognised() {
        assert_eq!(read(&v4()), Some(Plain::V4(0x0A02_0003, 28)));
        let to = *v6().get(38..).and_then(|rest| rest.first_chunk()).unwrap();
        assert_eq!(read(&v6()), Some(Plain::V6(to, 48)));
    }

    #[test]
    fn all_others_are_not() {
        // Station, EtherType, version, length of the header, of the packet, TTL, checksum, either
        // address.
        let v4_changes = [(0, 3), (5, 8), (13, 6), (14, 0x65), (14, 0x46), (17, 29), (22, 1)];
        let more =
            [(22, 63), (26, 0), (26, 127), (26, 169), (26, 224), (30, 127), (30, 169), (30, 255)];
        for (at, value) in v4_changes.into_iter().chain(more) {
            let mut frame = v4();
            frame[at] = value;
            if at != 22 || value == 1 {
                frame[24..26].fill(0);
                let sum = checksum(&frame[14..34]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            assert_eq!(read(&frame), None, "byte {at}: {value}");
        }
        for (at, value) in [(0, 3), (13, 6), (14, 0x40), (19, 9), (21, 1), (22, 0xFE), (38, 0xFF)] {
            let mut frame = v6();
            frame[at] = value;
            assert_eq!(read(&frame), None, "byte {at}: {value}");
        }
        assert_eq!((read(&v4()[..41]), read(&v6()[..53]), read(&[])), (None, None, None));
    }

    proptest! {
        #[test]
        fn plain_packets_are_what_their_headers_say(
            version6: bool,
            changes in prop::collection::vec((0usize..54, any::<u8>()), 0..3),
            right_checksum: bool,
            cut in 0usize..30,
            more in 0usize..30,
        ) {
            let mut frame = if version6 { v6() } else { v4() };
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            if right_checksum && !version6 {
                frame[24..26].fill(0);
                let sum = checksum(&frame[14..34]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            frame.truncate(frame.len() - cut);
            let wire_len = frame.len() + more;
            let link = header::link(&frame, None);
            match Template::new(Mac(MAC)).read(&frame, wire_len) {
                Some(Plain::V4(to, total_len)) => {
                    let ip = header::v4(&frame, 14, wire_len).unwrap();
                    prop_assert_eq!((to, usize::from(total_len)), (ip.to.into(), ip.total_len));
                    prop_assert!(ip.ttl > 1 && ip.header_len == 20);
                    prop_assert_eq!(link.unwrap().ether_type, 0x0800);
                }
                Some(Plain::V6(to, total_len)) => {
                    let ip = header::v6(&frame, 14, wire_len).unwrap();
                    prop_assert_eq!((to, usize::from(total_len)), (ip.to.octets(), ip.total_len));
                    prop_assert!(ip.hop_limit > 1);
                    prop_assert!(!ip.from.is_unicast_link_local() && !ip.to.is_multicast());
                    prop_assert_eq!(link.unwrap().ether_type, 0x86DD);
                }
                None => {}
            }
        }
    }
}
