//! Packets as bytes.

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};

use calumma_plane::carrier::{Carrier, Shim};
use calumma_plane::int::header::ip_offset;
use calumma_sketch::{Key, WideKey};

/// The least that Ethernet carries, without the checksum at its end.
const SHORTEST: usize = 60;
/// The longest headers that are made: Ethernet, IPv6, TCP.
const LONGEST: usize = ETHERNET + IPV6 + TCP_HEADER;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

const TCP: u8 = 6;
const SCTP: u8 = 132;

/// The beginning of a made-up packet: all of its headers, and at least what Ethernet asks for.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Frame {
    /// Sets the ECN field to "congestion experienced".
    pub fn mark_congestion(&mut self) {
        if self[ETHERNET] >> 4 == 6 {
            self[ETHERNET + 1] |= 3 << 4;
            return;
        }
        self[ETHERNET + 1] |= 3;
        // The sum of the header grew by 3, so its complement shrinks by as much (RFC 1624).
        let at = ETHERNET + 10;
        let sum = u32::from(!u16::from_be_bytes([self[at], self[at + 1]])) + 3;
        let sum = !(((sum & 0xFFFF) + (sum >> 16)) as u16);
        self[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// A made-up packet from its IP header on, which may be behind a mark's shim.
fn ip_of(bytes: &mut [u8]) -> &mut [u8] {
    let at = ip_offset(bytes, Carrier::Shim(Shim::default())).unwrap_or(ETHERNET);
    &mut bytes[at..]
}

/// Sets the DSCP of a made-up packet, as a router does at a boundary of trust.
pub fn set_dscp(bytes: &mut [u8], dscp: u8) {
    let ip = ip_of(bytes);
    if ip[0] >> 4 == 6 {
        ip[0] = 0x60 | dscp >> 2;
        ip[1] = ip[1] & 0x3F | dscp << 6;
        return;
    }
    ip[1] = ip[1] & 3 | dscp << 2;
    sum_up(ip);
}

/// Sets the time to live, or the hop limit, of a made-up packet.
pub fn set_ttl(bytes: &mut [u8], ttl: u8) {
    let ip = ip_of(bytes);
    if ip[0] >> 4 == 6 {
        ip[7] = ttl;
        return;
    }
    ip[8] = ttl;
    sum_up(ip);
}

/// Gives a made-up packet an identification, the lower 16 bits of `number`, and says whether it may
/// not be fragmented. One of IPv6 gets the lower 20 bits for its flow label.
pub fn identify(bytes: &mut [u8], number: u64, dont_fragment: bool) {
    let ip = &mut bytes[ETHERNET..];
    if ip[0] >> 4 == 6 {
        let [.., high, middle, low] = number.to_be_bytes();
        ip[1] = ip[1] & 0xF0 | high & 0x0F;
        ip[2..4].copy_from_slice(&[middle, low]);
        return;
    }
    ip[4..6].copy_from_slice(&(number as u16).to_be_bytes());
    ip[6..8].copy_from_slice(&[if dont_fragment { 0x40 } else { 0 }, 0]);
    sum_up(ip);
}

/// The same with what another packet of the same IP version has.
pub fn identify_as(bytes: &mut [u8], other: &[u8]) {
    let of = &other[ETHERNET..];
    if of[0] >> 4 == 6 {
        identify(bytes, u32::from_be_bytes([0, of[1], of[2], of[3]]).into(), false);
    } else {
        identify(bytes, u16::from_be_bytes([of[4], of[5]]).into(), of[6] & 0x40 != 0);
    }
}

/// Lets a made-up packet be of flow `key`, which is of the same IP version and protocol, as a
/// router does that translates addresses. All that is neither address nor port stays as it is.
pub fn translate(bytes: &mut [u8], key: &WideKey) {
    let translated = frame(key, 60);
    let (ip, translated) = (ip_of(bytes), &translated[ETHERNET..]);
    let header = if ip[0] >> 4 == 6 { IPV6 } else { IPV4 };
    let addresses = if header == IPV6 { 8..IPV6 } else { 12..IPV4 };
    ip[addresses.clone()].copy_from_slice(&translated[addresses]);
    ip[header..].copy_from_slice(&translated[header..]);
    if header == IPV4 {
        sum_up(ip);
    }
}

/// Writes the checksum of an IPv4 header.
fn sum_up(ip: &mut [u8]) {
    ip[10..12].fill(0);
    let sum = checksum(&ip[..IPV4], 0);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Frame {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// The beginning of a packet of flow `key` that is `wire_len` bytes long, or as long as its headers
/// are at least; what is not at hand of it is zeros. Checksums are right, but for that of SCTP,
/// which is over all that it carries and that nobody on the way looks at: it is 0.
pub fn frame(key: &WideKey, wire_len: u16) -> Frame {
    let (src, dst) = key.addresses();
    let header = if src.is_ipv4() { IPV4 } else { IPV6 };
    let transport = if key.protocol() == TCP { TCP_HEADER } else { UDP_HEADER };
    let len = SHORTEST.max(ETHERNET + header + transport);
    let ip_len = wire_len.max(len as u16) - ETHERNET as u16;
    let mut frame = Frame { bytes: [0; LONGEST], len };
    // Locally administered addresses that say which host it is.
    for (at, address) in [(0, dst), (6, src)] {
        frame[at] = 2;
        frame[at + 2..at + 6].copy_from_slice(&host(address));
    }
    let addresses = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
            let ip = &mut frame[ETHERNET..ETHERNET + IPV4];
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
            ip[8] = 64;
            ip[9] = key.protocol();
            ip[12..16].copy_from_slice(&src.octets());
            ip[16..20].copy_from_slice(&dst.octets());
            let sum = checksum(ip, 0);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            ETHERNET + 12..ETHERNET + IPV4
        }
        _ => {
            frame[12..14].copy_from_slice(&0x86DD_u16.to_be_bytes());
            let ip = &mut frame[ETHERNET..ETHERNET + IPV6];
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&(ip_len - IPV6 as u16).to_be_bytes());
            ip[6] = key.protocol();
            ip[7] = 64;
            ip[8..24].copy_from_slice(&key.src().octets());
            ip[24..40].copy_from_slice(&key.dst().octets());
            ETHERNET + 8..ETHERNET + IPV6
        }
    };
    let payload_len = ip_len - header as u16;
    // The pseudo header's addresses, protocol and length.
    let sum = u32::from(!checksum(&frame[addresses], 0));
    let sum = sum + u32::from(key.protocol()) + u32::from(payload_len);
    let transport = &mut frame[ETHERNET + header..];
    transport[0..2].copy_from_slice(&key.sport().to_be_bytes());
    transport[2..4].copy_from_slice(&key.dport().to_be_bytes());
    if key.protocol() == SCTP {
        return frame;
    }
    let at = if key.protocol() == TCP {
        // A header of five words, ACK, and some window.
        transport[12] = 5 << 4;
        transport[13] = 0x10;
        transport[14] = 0xFF;
        16
    } else {
        transport[4..6].copy_from_slice(&payload_len.to_be_bytes());
        6
    };
    let sum = checksum(transport, sum);
    transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Four bytes by which hosts differ.
fn host(address: IpAddr) -> [u8; 4] {
    match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let [.., a, b, _, _, _, _, _, _, c, d] = address.octets();
            [a, b, c, d]
        }
    }
}

/// The Internet checksum of `bytes`, an even number, on top of `sum`.
fn checksum(bytes: &[u8], sum: u32) -> u16 {
    let pairs = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum = sum + pairs.sum::<u32>();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{host_address, host_address6};
    use calumma_edge::parse::{Parsed, parse};

    #[test]
    fn a_frame_is_read_as_the_flow_it_was_made_for() {
        for (protocol, wire_len) in [(TCP, 60), (17, 60), (17, 1514), (TCP, 1514)] {
            let key = WideKey::v4(host_address(1, 1), host_address(3, 0), 4660, 443, protocol);
            let frame = frame(&key, wire_len);
            let Parsed::Flow { key: read, ip_offset: 14 } = parse(&frame, wire_len.into()) else {
                panic!("{frame:?}");
            };
            assert_eq!((WideKey::from(read), frame.len()), (key, 60));
            assert_eq!(checksum(&frame[14..34], 0), 0);
            let mut marked = frame;
            marked.mark_congestion();
            assert_eq!((marked[15], checksum(&marked[14..34], 0)), (3, 0));
            let pseudo = 0x0A00 + 0x0102 + 0x0A00 + 0x0301 + u32::from(protocol);
            let payload_len = u32::from(wire_len) - 34;
            assert_eq!(checksum(&frame[34..], pseudo + payload_len), 0);
        }
    }

    #[test]
    fn a_router_changes_what_it_says_and_nothing_else() {
        let v4 = WideKey::v4(host_address(1, 1), host_address(3, 0), 4660, 443, 17);
        let other_v4 = WideKey::v4(host_address(1, 1), host_address(9, 9), 4660, 8080, 17);
        let v6 = WideKey::v6(host_address6(1, 1), host_address6(3, 0), 4660, 443, TCP);
        let other_v6 = WideKey::v6(host_address6(7, 7), host_address6(3, 0), 9, 443, TCP);
        for (key, other) in [(v4, other_v4), (v6, other_v6)] {
            let mut bytes = frame(&key, 60);
            bytes.mark_congestion();
            set_dscp(&mut bytes, 46);
            translate(&mut bytes, &other);
            set_dscp(&mut bytes, 0);
            let mut expected = frame(&other, 60);
            expected.mark_congestion();
            // Ethernet addresses stay.
            assert_eq!(bytes[12..], expected[12..]);
            set_dscp(&mut bytes, 46);
            let tos = if key == v4 { bytes[15] } else { bytes[14] << 4 | bytes[15] >> 4 };
            assert_eq!(tos, 46 << 2 | 3);
        }
    }

    #[test]
    fn so_is_one_of_ipv6_which_is_as_long_as_its_headers() {
        for (protocol, wire_len, shortest) in [(TCP, 60, 74), (17, 60, 62), (17, 1514, 62)] {
            let key = WideKey::v6(host_address6(1, 1), host_address6(3, 0), 4660, 443, protocol);
            let frame = frame(&key, wire_len);
            let wire_len = wire_len.max(shortest);
            let Parsed::Flow6 { key: read, ip_offset: 14 } = parse(&frame, wire_len.into()) else {
                panic!("{frame:?}");
            };
            let read = WideKey::from_bytes(read);
            assert_eq!((read, frame.len()), (key, usize::from(shortest)));
            let mut marked = frame;
            marked.mark_congestion();
            assert_eq!(marked[14..16], [0x60, 3 << 4]);
            let pseudo = 2 * 0xFD00 + 1 + 2 + 3 + 1 + u32::from(protocol);
            let payload_len = u32::from(wire_len) - 54;
            assert_eq!(checksum(&frame[54..], pseudo + payload_len), 0);
        }
    }
}
