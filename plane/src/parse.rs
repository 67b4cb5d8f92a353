//! From a packet's bytes to its flow key.
//!
//! Reads Ethernet, up to two VLAN tags, IPv4 or IPv6 and the ports of TCP, UDP and SCTP, as
//! `docs/contract.md` says. Never panics, whatever the bytes. What is inside of tunnels is for
//! [`tunnel`] to read; what the network put before the IP header is for
//! [`carrier`](crate::carrier) to take away first.

pub mod detail;
pub(crate) mod ipv6;
pub mod tunnel;

use calumma_sketch::{BURST, FlowKey};

/// Bytes of an IPv6 flow's key.
pub const KEY6: usize = 37;

/// An IPv6 flow's key, in the contract's order.
pub type Key6 = [u8; KEY6];

/// What a packet is to the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// An IPv4 packet whose headers could be read to the ports.
    Flow {
        /// Its flow.
        key: FlowKey,
        /// Where its outermost IP header begins, in bytes; the whole header follows, 20 bytes of
        /// IPv4 or 40 of IPv6.
        ip_offset: usize,
    },
    /// An IPv6 packet whose headers could be read to the ports.
    Flow6 {
        /// Its flow: source address (16), destination address (16), source port (2), destination
        /// port (2), protocol (1), all big-endian.
        key: Key6,
        /// As for [`Flow`](Self::Flow).
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
    /// IPv6, well-formed.
    Ipv6,
    /// Neither IPv4 nor IPv6: ARP, LLDP, MPLS, more than two VLAN tags, ...
    NotIp,
    /// IP, but the carrier has no place in it: IPv4 where the flow label carries marks, or no room
    /// for a shim.
    NoCarrier,
    /// IPv4 where the identification carries marks, that may be fragmented and is longer than the
    /// fabric's links are known to take: it enters without a mark.
    AboveFabricMtu,
    /// Bears a shim that a host made, or that no edge of this version did.
    ForeignShim,
}

impl Unmeasured {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Ipv6, Self::NotIp, Self::NoCarrier, Self::AboveFabricMtu, Self::ForeignShim];

    /// The kind's name in counters and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv6 => "ipv6",
            Self::NotIp => "not_ip",
            Self::NoCarrier => "no_carrier",
            Self::AboveFabricMtu => "above_fabric_mtu",
            Self::ForeignShim => "foreign_shim",
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
    /// Ends within the IPv6 header.
    Ipv6Truncated,
    /// IPv6 by its EtherType, but of another version by its first four bits.
    Ipv6Version,
    /// An IPv6 payload length beyond the packet's end.
    Ipv6PayloadLength,
    /// Ends within an IPv6 extension header, or has more than eight of them.
    Ipv6Extensions,
    /// Ends before the ports of TCP, UDP or SCTP.
    PortsTruncated,
}

impl Malformed {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::EthernetTruncated,
        Self::VlanTruncated,
        Self::Ipv4Truncated,
        Self::Ipv4Version,
        Self::Ipv4HeaderLength,
        Self::Ipv4TotalLength,
        Self::Ipv6Truncated,
        Self::Ipv6Version,
        Self::Ipv6PayloadLength,
        Self::Ipv6Extensions,
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
            Self::Ipv6Truncated => "ipv6_truncated",
            Self::Ipv6Version => "ipv6_version",
            Self::Ipv6PayloadLength => "ipv6_payload_length",
            Self::Ipv6Extensions => "ipv6_extensions",
            Self::PortsTruncated => "ports_truncated",
        }
    }
}

const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;
pub(crate) const IPV4: usize = 20;
const PORTS: usize = 4;

pub(crate) const TYPE_IPV4: u16 = 0x0800;
pub(crate) const TYPE_IPV6: u16 = 0x86DD;
const TYPE_VLAN: u16 = 0x8100;
const TYPE_QINQ: u16 = 0x88A8;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const SCTP: u8 = 132;

/// Reads a packet. `bytes` are those at hand, from the Ethernet header on; `wire_len` is how long
/// the packet was on the wire (a capture may have cut it), at least `bytes.len()`.
///
/// Touches the first cache line only, unless there are IPv4 options or it is IPv6. Always inlined:
/// the result is as long as an IPv6 key, and would go through memory.
#[inline(always)]
pub fn parse(bytes: &[u8], wire_len: usize) -> Parsed {
    match plain(bytes, wire_len) {
        Some((key, ip_offset)) => Parsed::Flow { key, ip_offset },
        None => header_by_header(bytes, wire_len),
    }
}

/// The flow of an untagged packet of TCP or UDP over IPv4 without options that is no later
/// fragment, and where its IP header begins: what most packets are, told by few comparisons. `None`
/// for any other, which [`header_by_header`] reads.
#[inline(always)]
pub(crate) fn plain(bytes: &[u8], wire_len: usize) -> Option<(FlowKey, usize)> {
    let head = bytes.first_chunk::<{ ETHERNET + IPV4 + PORTS }>()?;
    let ipv4 = head[12..15] == [0x08, 0x00, 0x45];
    let total_len = usize::from(u16::from_be_bytes([head[16], head[17]]));
    let whole = IPV4 + PORTS <= total_len && ETHERNET + total_len <= wire_len;
    let first_fragment = [head[20] & 0x1F, head[21]] == [0, 0];
    let protocol = head[23];
    // No branch between the two: which one comes next no CPU foresees.
    let has_plain_ports = (protocol == TCP) | (protocol == UDP);
    if !(ipv4 & whole & first_fragment & has_plain_ports) {
        return None;
    }
    // Addresses and ports lie side by side, in the key's order. In a register: a key that was put
    // together in memory could not be read back at once.
    let addresses_and_ports = u128::from_le_bytes(*head[22..].first_chunk()?) >> 32;
    let key = FlowKey::from_le(addresses_and_ports | u128::from(protocol) << 96);
    Some((key, ETHERNET))
}

/// The flows of a burst's plain packets, which whoever routes them has read: they are not read a
/// second time to be measured. Of other packets nothing is known but whether their TTL was lowered.
#[derive(Clone, Debug)]
pub struct PlainFlows {
    keys: [FlowKey; BURST],
    /// Bit i: the flow of the packet at position i is known.
    known: u32,
    /// Bit i: routing has taken one off the TTL of the packet at position i.
    lowered: u32,
    /// Whether the packets were recorded at this switch before, and have waited here since.
    recorded: bool,
}

impl PlainFlows {
    /// Nothing is known.
    pub const NONE: Self =
        Self { keys: [FlowKey::ZERO; BURST], known: 0, lowered: 0, recorded: false };

    /// Where a plain packet's IP header begins, in bytes.
    pub(crate) const IP_OFFSET: usize = ETHERNET;

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        (self.known, self.lowered, self.recorded) = (0, 0, false);
    }

    /// Notes that routing has taken one off the TTL of the packets at these positions.
    #[inline]
    pub fn lower(&mut self, positions: u32) {
        self.lowered = positions;
    }

    /// Notes that all packets of the burst were recorded at this switch before, as leaving the
    /// network or passing, and have waited for their next hop since.
    #[inline]
    pub fn note_recorded(&mut self) {
        self.recorded = true;
    }

    /// Whether that is so.
    #[inline]
    pub(crate) fn were_recorded(&self) -> bool {
        self.recorded
    }

    /// The positions of packets whose TTL is one less than they were received with.
    #[inline]
    pub(crate) fn lowered(&self) -> u32 {
        self.lowered
    }

    /// Reads the packet at position `at` of a burst; gives its flow if it is plain: untagged TCP or
    /// UDP over IPv4 without options, and no later fragment.
    ///
    /// # Panics
    /// When `at` is no position in a burst.
    #[inline(always)]
    pub fn read(&mut self, at: usize, bytes: &[u8], wire_len: usize) -> Option<FlowKey> {
        let (key, _) = plain(bytes, wire_len)?;
        self.keys[at] = key;
        self.known |= 1 << at;
        Some(key)
    }

    /// Forgets the packets at these positions, whose headers have been moved.
    #[inline]
    pub fn forget(&mut self, positions: u32) {
        self.known &= !positions;
    }

    /// The positions of packets whose flow is known.
    #[inline]
    pub(crate) fn known(&self) -> u32 {
        self.known
    }

    /// The flows by position, of the [known](Self::known) packets.
    #[inline]
    pub(crate) fn keys(&self) -> &[FlowKey; BURST] {
        &self.keys
    }
}

/// What any packet is, one header after the other.
#[inline(always)]
pub(crate) fn header_by_header(bytes: &[u8], wire_len: usize) -> Parsed {
    match ether_type(bytes) {
        Ok((TYPE_IPV4, ip_offset)) => match ipv4(bytes, ip_offset, wire_len) {
            Ok(key) => Parsed::Flow { key, ip_offset },
            Err(malformed) => Parsed::Malformed(malformed),
        },
        Ok((TYPE_IPV6, ip_offset)) => match ipv6::key(bytes, ip_offset, wire_len) {
            Ok(key) => Parsed::Flow6 { key, ip_offset },
            Err(malformed) => Parsed::Malformed(malformed),
        },
        Ok(_) => Parsed::Unmeasured(Unmeasured::NotIp),
        Err(malformed) => Parsed::Malformed(malformed),
    }
}

/// The EtherType behind up to two VLAN tags, and where what it names begins.
#[inline]
pub(crate) fn ether_type(bytes: &[u8]) -> Result<(u16, usize), Malformed> {
    let mut ether_type = u16_at(bytes, ETHERNET - 2).ok_or(Malformed::EthernetTruncated)?;
    let mut end = ETHERNET;
    for _ in 0..2 {
        if ether_type != TYPE_VLAN && ether_type != TYPE_QINQ {
            break;
        }
        end += VLAN_TAG;
        ether_type = u16_at(bytes, end - 2).ok_or(Malformed::VlanTruncated)?;
    }
    Ok((ether_type, end))
}

#[inline(always)]
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
    let ports = if first_fragment && has_ports(protocol) {
        let payload = &datagram[header_len..total_len.min(datagram.len())];
        u32::from_be_bytes(*payload.first_chunk().ok_or(Malformed::PortsTruncated)?)
    } else {
        0
    };
    let src = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
    let dst = u32::from_be_bytes([header[16], header[17], header[18], header[19]]);
    Ok(FlowKey::from_words(src, dst, ports, protocol))
}

/// Whether a protocol's header begins with two ports.
#[inline]
pub(crate) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | SCTP)
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
    fn what_is_not_ip_is_told_by_kind() {
        let with_type = |ether_type: u16| {
            let mut frame = udp(0, 4);
            frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
            whole(&frame)
        };
        assert_eq!(with_type(0x86DD), Parsed::Malformed(Malformed::Ipv6Truncated));
        assert_eq!(with_type(0x0806), Parsed::Unmeasured(Unmeasured::NotIp));
        assert_eq!(with_type(0x0040), Parsed::Unmeasured(Unmeasured::NotIp));
    }

    proptest! {
        #[test]
        fn the_short_way_ends_where_the_long_one_does(
            tags in 0usize..3,
            payload in 0usize..40,
            changes in prop::collection::vec((12usize..40, any::<u8>()), 0..3),
            cut in 0usize..60,
            more in 0usize..30,
        ) {
            let mut frame = udp(tags, payload);
            for (at, byte) in changes {
                frame[at] = byte;
            }
            frame.truncate(80 - cut);
            let wire_len = frame.len() + more;
            prop_assert_eq!(parse(&frame, wire_len), header_by_header(&frame, wire_len));
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200), more in 0usize..100, ip in 0u8..3,
        ) {
            if ip > 0 && bytes.len() > 14 {
                let (ether_type, version) = [(TYPE_IPV4, 0x40), (TYPE_IPV6, 0x60)][usize::from(ip - 1)];
                bytes[12..14].copy_from_slice(&ether_type.to_be_bytes());
                bytes[14] = bytes[14] & 0xF | version;
            }
            let wire_len = bytes.len() + more;
            for parsed in [parse(&bytes, wire_len), tunnel::parse(&bytes, wire_len).0] {
                if let Parsed::Flow { ip_offset, .. } | Parsed::Flow6 { ip_offset, .. } = parsed {
                    let header = if bytes[ip_offset] >> 4 == 6 { 40 } else { IPV4 };
                    prop_assert!(bytes.len() >= ip_offset + header);
                }
            }
        }
    }
}
