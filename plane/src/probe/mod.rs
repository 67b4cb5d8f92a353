//! Probes: packets that edges send each other through the network, to see what it does to marks and
//! how long it takes (docs/probes.md).
//!
//! A probe has the Ethernet and IP header of a packet that a host has sent, protocol 253, and a
//! mark like any other packet's. Its payload says which mark that was and when it was sent, under a
//! tag keyed by the deployment's secret, by which the egress edge knows it and takes it out. No
//! system records it. [`LcoreProbes`] is what an lcore has to do with them; what is sent when, and
//! what comes of it, is for the control thread.

mod lcore;
mod tag;

use std::net::IpAddr;

use calumma_epoch::timestamp_bit;

use crate::carrier::Mark;
use crate::checksum::checksum;
use crate::mark::Hierarchy;
use crate::parse::ipv6::IPV6;
use crate::parse::{IPV4, TYPE_IPV4, TYPE_IPV6, ether_type};

pub use self::lcore::{FromLcore, LcoreProbes, ProbeLine, Sample, Seen};
pub use self::tag::ProbeKey;

/// The number for experiments and tests (RFC 3692, RFC 4727).
pub const PROTOCOL: u8 = 253;

/// Bytes of a probe behind its IP header.
pub const PAYLOAD: usize = 40;

/// Longest headers that a probe is given: Ethernet, two VLAN tags, IPv6.
pub const HEADERS: usize = 14 + 2 * 4 + IPV6;

/// The longest probe.
pub const LONGEST: usize = HEADERS + PAYLOAD;

const MAGIC: [u8; 4] = *b"CaPr";
const VERSION: u8 = 1;

/// What a probe says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Number of the edge that sent it, never 0.
    pub sender: u16,
    /// No other probe of the sender has it; of 48 bits.
    pub number: u64,
    /// The epoch that its mark says.
    pub epoch: u64,
    /// The hierarchy of its mark.
    pub hierarchy: Hierarchy,
    /// When it was sent, in nanoseconds since the Unix epoch by the sender's clock.
    pub sent_ns: u64,
}

impl Probe {
    /// The mark that it was sent with.
    pub fn mark(&self) -> Mark {
        Mark::of_epoch(self.epoch, self.hierarchy)
    }

    /// The three bits of it that every carrier has.
    pub fn mark_bits(&self) -> u8 {
        (timestamp_bit(self.epoch) as u8) << 2 | self.hierarchy.bits()
    }

    /// Its payload.
    pub fn payload(&self, key: &ProbeKey) -> [u8; PAYLOAD] {
        let mut bytes = [0; PAYLOAD];
        bytes[..4].copy_from_slice(&MAGIC);
        (bytes[4], bytes[5]) = (VERSION, self.hierarchy.bits());
        let number = u64::from(self.sender) << 48 | self.number & 0xFFFF_FFFF_FFFF;
        for (at, word) in [(8, number), (16, self.epoch), (24, self.sent_ns)] {
            bytes[at..at + 8].copy_from_slice(&word.to_be_bytes());
        }
        let tag = key.tag(number, &bytes[..PAYLOAD - 8]);
        bytes[PAYLOAD - 8..].copy_from_slice(&tag.to_be_bytes());
        bytes
    }

    /// What a payload says; `None` where it is none, or was made without the key.
    pub fn read(payload: &[u8], key: &ProbeKey) -> Option<Self> {
        let bytes = payload.first_chunk::<PAYLOAD>().filter(|bytes| is_like_one(*bytes))?;
        let word =
            |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
        let number = word(8);
        if key.tag(number, &bytes[..PAYLOAD - 8]) != word(PAYLOAD - 8) {
            return None;
        }
        Some(Self {
            sender: (number >> 48) as u16,
            number: number & 0xFFFF_FFFF_FFFF,
            epoch: word(16),
            hierarchy: Hierarchy::from_bits(bytes[5]),
            sent_ns: word(24),
        })
    }
}

/// Whether a payload begins as that of a probe does.
fn is_like_one(payload: &[u8]) -> bool {
    payload.len() >= PAYLOAD && payload[..4] == MAGIC && payload[4] == VERSION
}

/// What is behind the IP header of a packet of [`PROTOCOL`], where that has neither options nor
/// extension headers and the packet is no fragment.
pub(crate) fn payload_of(bytes: &[u8], ip_offset: usize) -> Option<&[u8]> {
    let ip = bytes.get(ip_offset..)?;
    match ip.first()? >> 4 {
        4 if ip.len() >= IPV4 && ip[0] == 0x45 && ip[9] == PROTOCOL => {
            let whole = u16::from_be_bytes([ip[6], ip[7]]) & 0x3FFF == 0;
            whole.then(|| &ip[IPV4..])
        }
        6 if ip.len() >= IPV6 && ip[6] == PROTOCOL => Some(&ip[IPV6..]),
        _ => None,
    }
}

/// The headers of a packet that a host has sent, for probes that go the same way: Ethernet, VLAN
/// tags, IP without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    bytes: [u8; HEADERS],
    len: usize,
    ip_offset: usize,
}

impl Headers {
    /// The headers of a packet; `None` where it is no IP packet, or for a group.
    pub fn of(packet: &[u8]) -> Option<Self> {
        let (ether_type, ip_offset) = ether_type(packet).ok()?;
        let (len, version) = match ether_type {
            TYPE_IPV4 => (IPV4, 4),
            TYPE_IPV6 => (IPV6, 6),
            _ => return None,
        };
        let len = ip_offset + len;
        let header = packet.get(..len)?;
        if header[0] & 1 == 1 || header[ip_offset] >> 4 != version {
            return None;
        }
        let mut bytes = [0; HEADERS];
        bytes[..len].copy_from_slice(header);
        let headers = Self { bytes, len, ip_offset };
        let (source, destination) = headers.addresses();
        let usual = |address: IpAddr| !address.is_multicast() && !address.is_unspecified();
        (usual(source) && usual(destination)).then_some(headers)
    }

    /// Source and destination.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        addresses(&self.bytes[self.ip_offset..self.len])
    }

    /// A probe with these headers, its mark aside; and where its IP header begins.
    pub fn with(&self, probe: &Probe, key: &ProbeKey) -> ([u8; LONGEST], usize, usize) {
        let mut frame = [0; LONGEST];
        frame[..self.len].copy_from_slice(&self.bytes[..self.len]);
        let len = self.len + PAYLOAD;
        frame[self.len..len].copy_from_slice(&probe.payload(key));
        let ip = &mut frame[self.ip_offset..self.len];
        if ip.len() == IPV4 {
            let kept = [ip[12], ip[13], ip[14], ip[15], ip[16], ip[17], ip[18], ip[19]];
            ip.fill(0);
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&((IPV4 + PAYLOAD) as u16).to_be_bytes());
            // Not to be fragmented.
            ip[6] = 0x40;
            (ip[8], ip[9]) = (64, PROTOCOL);
            ip[12..].copy_from_slice(&kept);
            let sum = checksum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            ip[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, PAYLOAD as u8, PROTOCOL, 64]);
        }
        (frame, len, self.ip_offset)
    }
}

/// Source and destination of an IP header.
fn addresses(ip: &[u8]) -> (IpAddr, IpAddr) {
    fn at<const N: usize>(ip: &[u8], from: usize) -> [u8; N] {
        ip.get(from..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
    }
    if ip.first().is_some_and(|first| first >> 4 == 4) {
        (at::<4>(ip, 12).into(), at::<4>(ip, 16).into())
    } else {
        (at::<16>(ip, 8).into(), at::<16>(ip, 24).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_wire::Secret;

    use crate::parse::ipv6::tests::packet as ipv6_packet;
    use crate::parse::tests::{checksum, udp};
    use crate::parse::{Parsed, parse};

    fn probe() -> Probe {
        Probe {
            sender: 7,
            number: 0x1234_5678_9ABC,
            epoch: 1005,
            hierarchy: Hierarchy::HlCandidate,
            sent_ns: 50_250_000_000,
        }
    }

    fn key(number: u8) -> ProbeKey {
        ProbeKey::new(Secret::new([number; 32]))
    }

    #[test]
    fn a_probe_is_known_by_who_has_the_secret_and_nobody_else() {
        let payload = probe().payload(&key(1));
        assert_eq!(Probe::read(&payload, &key(1)), Some(probe()));
        assert_eq!(Probe::read(&payload, &key(2)), None);
        assert_eq!(Probe::read(&payload[..PAYLOAD - 1], &key(1)), None);
        for bit in 0..8 * PAYLOAD {
            let mut changed = payload;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Probe::read(&changed, &key(1)), None, "bit {bit}");
        }
        assert_eq!((probe().mark_bits(), probe().mark().bits()), (0b110, 0b110));
    }

    /// The bytes of docs/probes.md.
    #[test]
    fn its_bytes_are_those_of_the_page() {
        let bytes: [u8; 32] = std::array::from_fn(|at| at as u8);
        let key = ProbeKey::new(Secret::new(bytes));
        let hex: String = probe().payload(&key).iter().map(|byte| format!("{byte:02x}")).collect();
        let page = include_str!("../../../docs/probes.md");
        assert!(page.contains(&hex), "{hex}");
    }

    #[test]
    fn headers_of_any_ip_packet_make_a_right_probe() {
        let frames =
            [udp(0, 9).to_vec(), udp(2, 9).to_vec(), ipv6_packet(&[], 6, &[0; 20]).to_vec()];
        for mut frame in frames {
            frame[0] &= 0xFE;
            let headers = Headers::of(&frame).unwrap();
            let (bytes, len, ip_offset) = headers.with(&probe(), &key(3));
            let bytes = &bytes[..len];
            assert_eq!(bytes[..ip_offset], frame[..ip_offset]);
            assert_eq!(Headers::of(bytes).unwrap().addresses(), headers.addresses());
            let protocol = match parse(bytes, len) {
                Parsed::Flow { key, .. } => {
                    assert_eq!(checksum(&bytes[ip_offset..ip_offset + 20]), 0);
                    calumma_sketch::Key::protocol(&key)
                }
                Parsed::Flow6 { key, .. } => key[36],
                other => panic!("{other:?}"),
            };
            assert_eq!(protocol, PROTOCOL);
            let payload = payload_of(bytes, ip_offset).unwrap();
            assert_eq!(Probe::read(payload, &key(3)), Some(probe()));
        }
    }

    #[test]
    fn packets_for_groups_and_what_is_not_ip_give_no_headers() {
        let mut group = udp(0, 0).to_vec();
        group[0] |= 1;
        assert_eq!(Headers::of(&group), None);
        let mut arp = udp(0, 0).to_vec();
        arp[0] &= 0xFE;
        arp[12..14].copy_from_slice(&[8, 6]);
        assert_eq!(Headers::of(&arp), None);
        assert_eq!(Headers::of(&arp[..20]), None);
    }
}
