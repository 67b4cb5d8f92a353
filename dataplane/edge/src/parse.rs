//! From a packet's bytes to its flow key.
//!
//! Reads Ethernet, up to two VLAN tags, IPv4 and the ports of TCP, UDP and SCTP, as
//! `docs/contract.md` says. Never panics, whatever the bytes.

use calumma_sketch::FlowKey;

/// What a packet is to the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// An IPv4 packet whose headers could be read to the ports.
    Flow {
        /// Its flow.
        key: FlowKey,
        /// Where its IPv4 header begins, in bytes; at least 20 bytes follow.
        ip_offset: usize,
    },
    /// Nothing that is measured.
    Unmeasured(Unmeasured),
    /// Headers that can't be read to the ports.
    Malformed(Malformed),
}

/// Why a well-formed packet is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unmeasured {
    /// IPv6.
    Ipv6,
    /// Neither IPv4 nor IPv6: ARP, LLDP, MPLS, more than two VLAN tags, ...
    NotIp,
}

impl Unmeasured {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Ipv6, Self::NotIp];

    /// The kind's name in counters and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv6 => "ipv6",
            Self::NotIp => "not_ip",
        }
    }
}

/// How a packet's headers are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Malformed {
    /// Shorter than an Ethernet header.
    EthernetTruncated,
    /// Ends within a VLAN tag.
    VlanTruncated,
    /// Ends within the IPv4 header.
    Ipv4Truncated,
    /// IPv4 by its EtherType, but of another version by its first four bits.
    Ipv4Version,
    /// An IPv4 header length below 20 bytes.
    Ipv4HeaderLength,
    /// An IPv4 total length below the header's, or beyond the packet's end.
    Ipv4TotalLength,
    /// Ends before the ports of TCP, UDP or SCTP.
    PortsTruncated,
}

impl Malformed {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::EthernetTruncated,
        Self::VlanTruncated,
        Self::Ipv4Truncated,
        Self::Ipv4Version,
        Self::Ipv4HeaderLength,
        Self::Ipv4TotalLength,
        Self::PortsTruncated,
    ];

    /// The kind's name in counters and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::EthernetTruncated => "ethernet_truncated",
            Self::VlanTruncated => "vlan_truncated",
            Self::Ipv4Truncated => "ipv4_truncated",
            Self::Ipv4Version => "ipv4_version",
            Self::Ipv4HeaderLength => "ipv4_header_length",
            Self::Ipv4TotalLength => "ipv4_total_length",
            Self::PortsTruncated => "ports_truncated",
        }
    }
}

const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;
const IPV4: usize = 20;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86DD;
const TYPE_VLAN: u16 = 0x8100;
const TYPE_QINQ: u16 = 0x88A8;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Reads a packet. `bytes` are those at hand, from the Ethernet header on; `wire_len` is how long
/// the packet was on the wire (a capture may have cut it), at least `bytes.len()`.
///
/// Touches the first cache line only, unless there are IPv4 options.
#[inline]
pub fn parse(bytes: &[u8], wire_len: usize) -> Parsed {
    let Some(mut ether_type) = u16_at(bytes, ETHERNET - 2) else {
        return Parsed::Malformed(Malformed::EthernetTruncated);
    };
    let mut ip_offset = ETHERNET;
    for _ in 0..2 {
        if ether_type != TYPE_VLAN && ether_type != TYPE_QINQ {
            break;
        }
        ip_offset += VLAN_TAG;
        match u16_at(bytes, ip_offset - 2) {
            Some(inner) => ether_type = inner,
            None => return Parsed::Malformed(Malformed::VlanTruncated),
        }
    }
    match ether_type {
        TYPE_IPV4 => match ipv4(bytes, ip_offset, wire_len) {
            Ok(key) => Parsed::Flow { key, ip_offset },
            Err(malformed) => Parsed::Malformed(malformed),
        },
        TYPE_IPV6 => Parsed::Unmeasured(Unmeasured::Ipv6),
        _ => Parsed::Unmeasured(Unmeasured::NotIp),
    }
}

#[inline]
fn ipv4(bytes: &[u8], ip_offset: usize, wire_len: usize) -> Result<FlowKey, Malformed> {
    let datagram = bytes.get(ip_offset..).unwrap_or_default();
    let header = datagram.first_chunk::<IPV4>().ok_or(Malformed::Ipv4Truncated)?;
    if header[0] >> 4 != 4 {
        return Err(Malformed::Ipv4Version);
    }
    let header_len = usize::from(header[0] & 0xF) * 4;
    if header_len < IPV4 {
        return Err(Malformed::Ipv4HeaderLength);
    }
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total_len < header_len || total_len > wire_len.saturating_sub(ip_offset) {
        return Err(Malformed::Ipv4TotalLength);
    }
    if datagram.len() < header_len {
        return Err(Malformed::Ipv4Truncated);
    }
    let protocol = header[9];
    let first_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1FFF == 0;
    let ports = if first_fragment && matches!(protocol, TCP | UDP | SCTP) {
        let payload = &datagram[header_len..total_len.min(datagram.len())];
        u32::from_be_bytes(*payload.first_chunk().ok_or(Malformed::PortsTruncated)?)
    } else {
        0
    };
    let src = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
    let dst = u32::from_be_bytes([header[16], header[17], header[18], header[19]]);
    Ok(FlowKey::from_words(src, dst, ports, protocol))
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An Ethernet frame with `tags` VLAN tags around an IPv4/UDP packet.
    pub(crate) fn udp(tags: usize, payload: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for tag in 0..tags {
            let tpid = if tag + 1 < tags { TYPE_QINQ } else { TYPE_VLAN };
            frame.extend_from_slice(&tpid.to_be_bytes());
            frame.extend_from_slice(&[0, 5]);
        }
        frame.extend_from_slice(&TYPE_IPV4.to_be_bytes());
        let total = (IPV4 + 8 + payload) as u16;
        let [high, low] = total.to_be_bytes();
        let mut header =
            [0x45, 0x03, high, low, 0, 1, 0x40, 0, 64, UDP, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2];
        let checksum = checksum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend_from_slice(&header);
        frame.extend_from_slice(&[0x9C, 0x40, 0x14, 0x51, 0, 8, 0, 0]);
        frame.resize(frame.len() + payload, 0xAB);
        frame
    }

    /// The Internet checksum (RFC 1071) of a header whose checksum field is zero, or zero where the
    /// field is right.
    pub(crate) fn checksum(header: &[u8]) -> u16 {
        let mut sum: u32 =
            header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn the_flow() -> FlowKey {
        FlowKey::v4([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), 40_000, 5_201, UDP)
    }

    fn whole(frame: &[u8]) -> Parsed {
        parse(frame, frame.len())
    }

    #[test]
    fn plain_and_tagged_packets_give_their_flow() {
        for (tags, ip_offset) in [(0, 14), (1, 18), (2, 22)] {
            let flow = Parsed::Flow { key: the_flow(), ip_offset };
            assert_eq!(whole(&udp(tags, 20)), flow);
        }
        assert_eq!(whole(&udp(3, 20)), Parsed::Unmeasured(Unmeasured::NotIp));
    }

    #[test]
    fn every_truncation_is_malformed_and_says_where() {
        let frame = udp(1, 0);
        for len in 0..frame.len() {
            let wanted = match len {
                0..14 => Malformed::EthernetTruncated,
                14..18 => Malformed::VlanTruncated,
                18..38 => Malformed::Ipv4Truncated,
                _ => Malformed::Ipv4TotalLength,
            };
            assert_eq!(whole(&frame[..len]), Parsed::Malformed(wanted), "{len} bytes");
        }
    }

    #[test]
    fn a_capture_that_cut_the_payload_still_gives_the_flow() {
        let frame = udp(0, 1000);
        let flow = Parsed::Flow { key: the_flow(), ip_offset: 14 };
        assert_eq!(parse(&frame[..38], frame.len()), flow);
        let cut = Parsed::Malformed(Malformed::PortsTruncated);
        assert_eq!(parse(&frame[..37], frame.len()), cut);
    }

    #[test]
    fn broken_ipv4_headers_are_told_apart() {
        let with = |offset: usize, value: u8| {
            let mut frame = udp(0, 4);
            frame[14 + offset] = value;
            whole(&frame)
        };
        assert_eq!(with(0, 0x65), Parsed::Malformed(Malformed::Ipv4Version));
        assert_eq!(with(0, 0x44), Parsed::Malformed(Malformed::Ipv4HeaderLength));
        assert_eq!(with(0, 0x4F), Parsed::Malformed(Malformed::Ipv4TotalLength));
        assert_eq!(with(3, 19), Parsed::Malformed(Malformed::Ipv4TotalLength));
        assert_eq!(with(3, 200), Parsed::Malformed(Malformed::Ipv4TotalLength));
        assert_eq!(with(3, 23), Parsed::Malformed(Malformed::PortsTruncated));
    }

    #[test]
    fn ports_are_zero_without_them_and_in_later_fragments() {
        let mut icmp = udp(0, 4);
        icmp[14 + 9] = 1;
        let mut fragment = udp(0, 4);
        fragment[14 + 7] = 100;
        for (frame, protocol) in [(icmp, 1), (fragment, UDP)] {
            let key = FlowKey::v4([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), 0, 0, protocol);
            assert_eq!(whole(&frame), Parsed::Flow { key, ip_offset: 14 });
        }
    }

    #[test]
    fn what_is_not_ipv4_is_told_by_kind() {
        let with_type = |ether_type: u16| {
            let mut frame = udp(0, 4);
            frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
            whole(&frame)
        };
        assert_eq!(with_type(0x86DD), Parsed::Unmeasured(Unmeasured::Ipv6));
        assert_eq!(with_type(0x0806), Parsed::Unmeasured(Unmeasured::NotIp));
        assert_eq!(with_type(0x0040), Parsed::Unmeasured(Unmeasured::NotIp));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..100), more in 0usize..100, ip: bool,
        ) {
            if ip && bytes.len() > 14 {
                bytes[12..14].copy_from_slice(&TYPE_IPV4.to_be_bytes());
                bytes[14] = bytes[14] & 0xF | 0x40;
            }
            if let Parsed::Flow { ip_offset, .. } = parse(&bytes, bytes.len() + more) {
                prop_assert!(bytes.len() >= ip_offset + IPV4);
            }
        }
    }
}
