//! The headers that forwarding reads and writes: Ethernet, one VLAN tag, IPv4 and IPv6. Never
//! panics, whatever the bytes.

use calumma_plane::checksum::checksum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::Mac;
use super::tables::Adjacency;
use crate::carrier::Shim;
use crate::packet::Packet;

/// Bytes of an Ethernet header without tags.
pub const ETHERNET: usize = 14;
/// Bytes of a VLAN tag.
const VLAN_TAG: usize = 4;
/// Bytes of an IPv4 header without options.
pub const IPV4: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6: usize = 40;

const TYPE_VLAN: u16 = 0x8100;
const VLAN_ID: u16 = 0x0FFF;

/// IP protocol numbers.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
}

/// EtherTypes.
pub mod ether_type {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86DD;
}

/// An Ethernet header, and where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where to.
    pub to: Mac,
    /// Where from.
    pub from: Mac,
    /// VLAN of the tag, if there is one; 0: a priority only.
    pub vlan: Option<u16>,
    /// What follows.
    pub ether_type: u16,
    /// Where that begins, in bytes.
    pub end: usize,
}

/// Reads the Ethernet header with up to one VLAN tag, and past a mark in a header of EtherType
/// `shim` where packets carry it there; none where the packet is too short for it.
#[inline]
pub fn link(bytes: &[u8], shim: Option<u16>) -> Option<Link> {
    let mut link = untagged_or_tagged(bytes)?;
    if shim == Some(link.ether_type)
        && let Some(behind) = Shim::ether_type_behind(bytes, link.end)
    {
        (link.ether_type, link.end) = behind;
    }
    Some(link)
}

#[inline]
fn untagged_or_tagged(bytes: &[u8]) -> Option<Link> {
    let header = bytes.first_chunk::<ETHERNET>()?;
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
    let (to, from) = (Mac([a, b, c, d, e, f]), Mac([g, h, i, j, k, l]));
    let ether_type = u16::from_be_bytes([header[12], header[13]]);
    if ether_type != TYPE_VLAN {
        return Some(Link { to, from, vlan: None, ether_type, end: ETHERNET });
    }
    let &[tag_high, tag_low, type_high, type_low] = bytes[ETHERNET..].first_chunk::<VLAN_TAG>()?;
    let vlan = Some(u16::from_be_bytes([tag_high, tag_low]) & VLAN_ID);
    let ether_type = u16::from_be_bytes([type_high, type_low]);
    Some(Link { to, from, vlan, ether_type, end: ETHERNET + VLAN_TAG })
}

/// What forwarding needs of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V4 {
    /// Source address.
    pub from: Ipv4Addr,
    /// Destination address.
    pub to: Ipv4Addr,
    /// Routers it may still pass.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Bytes of the header.
    pub header_len: usize,
    /// Bytes of the whole packet.
    pub total_len: usize,
    /// Whether it is part of a packet that was cut.
    pub is_fragment: bool,
    /// Whether it is such a part, and not the first one.
    pub is_later_fragment: bool,
}

/// Reads an IPv4 header at `at`; none where it is cut, contradicts itself or the length of the
/// packet, or its checksum is wrong (RFC 1812, section 5.2.2).
#[inline]
pub fn v4(bytes: &[u8], at: usize, wire_len: usize) -> Option<V4> {
    let datagram = bytes.get(at..)?;
    let header = datagram.first_chunk::<IPV4>()?;
    let header_len = usize::from(header[0] & 0xF) * 4;
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] >> 4 != 4
        || header_len < IPV4
        || total_len < header_len
        || total_len > wire_len.saturating_sub(at)
        || checksum(datagram.get(..header_len)?) != 0
    {
        return None;
    }
    let [.., a, b, c, d, e, f, g, h] = *header;
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    Some(V4 {
        from: Ipv4Addr::new(a, b, c, d),
        to: Ipv4Addr::new(e, f, g, h),
        ttl: header[8],
        protocol: header[9],
        header_len,
        total_len,
        is_fragment: fragment & 0x3FFF != 0,
        is_later_fragment: fragment & 0x1FFF != 0,
    })
}

/// What forwarding needs of an IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V6 {
    /// Source address.
    pub from: Ipv6Addr,
    /// Destination address.
    pub to: Ipv6Addr,
    /// Routers it may still pass.
    pub hop_limit: u8,
    /// What follows the header.
    pub next_header: u8,
    /// Bytes of the whole packet.
    pub total_len: usize,
}

/// Reads an IPv6 header at `at`; none where it is cut or contradicts the length of the packet.
#[inline]
pub fn v6(bytes: &[u8], at: usize, wire_len: usize) -> Option<V6> {
    let header = bytes.get(at..)?.first_chunk::<IPV6>()?;
    let total_len = IPV6 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if header[0] >> 4 != 6 || total_len > wire_len.saturating_sub(at) {
        return None;
    }
    let [head @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = header;
    let (from, to) = (head.last_chunk::<16>()?, header.last_chunk::<16>()?);
    Some(V6 {
        from: Ipv6Addr::from(*from),
        to: Ipv6Addr::from(*to),
        hop_limit: header[7],
        next_header: header[6],
        total_len,
    })
}

/// Whether the packet to `to` whose IP header is at `at` may not go beyond its link: it comes from
/// a link-local address (RFC 4291, section 2.5.6) or, in IPv4, goes to one (RFC 3927, section 7).
#[inline]
pub fn stays_on_link(bytes: &[u8], at: usize, to: IpAddr) -> bool {
    match to {
        IpAddr::V4(to) => to.is_link_local() || bytes.get(at + 12..at + 14) == Some(&[169, 254]),
        IpAddr::V6(_) => {
            let from = bytes.get(at + 8..at + 10);
            matches!(from, Some(&[0xFE, second]) if second & 0xC0 == 0x80)
        }
    }
}

/// Takes one off the TTL of the IPv4 header at `at`; the checksum follows (RFC 1624).
#[inline]
pub fn decrement_ttl(bytes: &mut [u8], at: usize) {
    let word = bytes.get_mut(at + 8..).and_then(|rest| rest.first_chunk_mut::<4>());
    let Some(word) = word else { return };
    // TTL, protocol and checksum, the TTL in the lowest byte. One less in the TTL, which is the
    // upper byte of its 16-bit word, is one more in the upper byte of the checksum, and a carry
    // comes back in at the lowest. All ones are written as zero, which is the same sum.
    let before = u32::from_le_bytes(*word);
    if before & 0xFF > 0 {
        let (after, carry) = (before - 1).overflowing_add(1 << 16);
        let carry = carry || after >> 16 == 0xFFFF;
        *word = after.wrapping_add(u32::from(carry) << 16).to_le_bytes();
    }
}

/// Takes one off the hop limit of the IPv6 header at `at`.
#[inline]
pub fn decrement_hop_limit(bytes: &mut [u8], at: usize) {
    if let Some(hop_limit) = bytes.get_mut(at + 7) {
        *hop_limit = hop_limit.saturating_sub(1);
    }
}

/// Rewrites the Ethernet header for the neighbour `to`, with the VLAN tag of its link or without
/// one. `tagged` says whether there is a tag now, whose priority is kept. What follows the header
/// is not touched. Gives whether the packet had room for a tag.
#[inline]
pub fn rewrite_link<P: Packet>(packet: &mut P, tagged: bool, to: &Adjacency) -> bool {
    let has_room = match (tagged, to.vlan) {
        (false, Some(_)) => packet.prepend(VLAN_TAG),
        (true, None) => packet.adj(VLAN_TAG),
        _ => true,
    };
    if !has_room {
        return false;
    }
    let Some(header) = packet.bytes_mut().first_chunk_mut::<{ ETHERNET + 2 }>() else {
        return false;
    };
    header[..12].copy_from_slice(&to.addresses);
    if let Some(vlan) = to.vlan {
        let priority = if tagged { header[14] & 0xE0 } else { 0 };
        header[12..14].copy_from_slice(&TYPE_VLAN.to_be_bytes());
        header[14..16].copy_from_slice(&(vlan | u16::from(priority) << 8).to_be_bytes());
    }
    true
}

/// A number that is the same for all packets of a flow: of its addresses, protocol and, where it is
/// not cut into fragments, ports. `at` is where the IP header is, which has been read before. Not
/// the sketches' hash, and another one on every switch: routers in a row must not choose alike.
#[inline]
pub fn flow_hash(seed: u64, bytes: &[u8], at: usize) -> u32 {
    let packet = bytes.get(at..).unwrap_or_default();
    let word = |at: usize| match packet.get(at..).and_then(<[u8]>::first_chunk) {
        Some(word) => u64::from_be_bytes(*word),
        None => 0,
    };
    let version = packet.first().map_or(0, |first| first >> 4);
    let (mut hash, protocol, payload) = if version == 4 {
        let whole = word(6) >> 48 & 0x3FFF == 0;
        let header_len = usize::from(packet[0] & 0xF) * 4;
        let payload = if whole { header_len } else { usize::MAX };
        (mix(seed ^ word(12), 0x9E37_79B9_7F4A_7C15), word(8) >> 48 & 0xFF, payload)
    } else {
        let from = mix(seed ^ word(8), word(16) ^ 0x9E37_79B9_7F4A_7C15);
        let both = mix(from ^ word(24), word(32) ^ 0xD1B5_4A32_D192_ED03);
        (both, word(6) >> 56, IPV6)
    };
    let ports = match protocol as u8 {
        protocol::TCP | protocol::UDP | protocol::SCTP if payload < packet.len() => {
            packet[payload..].first_chunk::<4>().map_or(0, |ports| u32::from_be_bytes(*ports))
        }
        _ => 0,
    };
    hash = mix(hash ^ u64::from(ports), protocol ^ 0x8CB9_2BA7_2F3D_8DD7);
    (hash >> 32) as u32
}

#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Role;
    use crate::packet::Frame;
    use proptest::prelude::*;

    fn neighbour(vlan: Option<u16>) -> Adjacency {
        let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9];
        Adjacency { addresses, vlan, role: Role::Host, ..Adjacency::NONE }
    }

    proptest! {
        #[test]
        fn the_checksum_stays_right_whatever_the_header(
            mut header: [u8; 20],
            ttl in 1u8..,
            falls_to_zero: bool,
        ) {
            header[8] = ttl;
            header[10..12].fill(0);
            if falls_to_zero {
                // What makes the checksum 0xFEFF, which grows by 0x0100.
                header[4..6].fill(0);
                let sum = u32::from(checksum(&header)) + 0x0100;
                let sum = (sum & 0xFFFF) + (sum >> 16);
                header[4..6].copy_from_slice(&(sum as u16).to_be_bytes());
            }
            let right = checksum(&header);
            header[10..12].copy_from_slice(&right.to_be_bytes());
            decrement_ttl(&mut header, 0);
            prop_assert_eq!(header[8], ttl - 1);
            prop_assert_eq!(checksum(&header), 0);
            // Nobody writes zero as all ones.
            prop_assert_ne!(&header[10..12], [0xFF; 2]);
            prop_assert!(!falls_to_zero || header[10..12] == [0; 2]);
        }

        #[test]
        fn a_frame_gets_the_tag_of_its_next_link_and_keeps_what_follows(
            from in prop::option::of(1u16..4095), to in prop::option::of(1u16..4095),
            priority in 0u8..8, body in prop::collection::vec(any::<u8>(), 20..80),
        ) {
            let mut bytes = vec![7; 12];
            if let Some(vlan) = from {
                bytes.extend_from_slice(&TYPE_VLAN.to_be_bytes());
                bytes.extend_from_slice(&(vlan | u16::from(priority) << 13).to_be_bytes());
            }
            bytes.extend_from_slice(&[8, 0]);
            bytes.extend_from_slice(&body);
            let mut frame = Frame::with_headroom(128, &bytes);
            prop_assert!(rewrite_link(&mut frame, from.is_some(), &neighbour(to)));
            let link = link(frame.bytes(), None).unwrap();
            let (to_mac, from_mac) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 9]));
            prop_assert_eq!((link.to, link.from, link.vlan), (to_mac, from_mac, to));
            prop_assert_eq!((link.ether_type, &frame.bytes()[link.end..]), (0x0800, &body[..]));
            if from.is_some() && to.is_some() {
                prop_assert_eq!(frame.bytes()[14] >> 5, priority);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..100), at in 0usize..120, more in 0usize..9,
        ) {
            if let Some(link) = link(&bytes, Some(0x0800)) {
                prop_assert!(link.end <= bytes.len());
            }
            if let Some(ip) = v4(&bytes, at, bytes.len() + more) {
                prop_assert!(at + ip.header_len <= bytes.len());
            }
            if v6(&bytes, at, bytes.len() + more).is_some() {
                prop_assert!(at + IPV6 <= bytes.len());
            }
            flow_hash(1, &bytes, at);
            let mut written = bytes.clone();
            decrement_ttl(&mut written, at);
            decrement_hop_limit(&mut written, at);
            let mut frame = Frame::with_headroom(2, &bytes);
            rewrite_link(&mut frame, at % 2 == 0, &neighbour(Some(5)));
        }
    }

    #[test]
    fn without_room_a_frame_gets_no_tag() {
        let mut frame = Frame::with_headroom(3, &[0; 60]);
        assert!(!rewrite_link(&mut frame, false, &neighbour(Some(5))));
    }
}
