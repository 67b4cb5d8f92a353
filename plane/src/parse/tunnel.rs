//! Packets in tunnels, measured by the inner header: VXLAN (RFC 7348) and Geneve (RFC 8926).
//!
//! One level deep: a tunnel in a tunnel is the inner packet's payload. The offset stays that of the
//! outer IP header, since that is where the network looks and where marks are carried.

use super::{Malformed, Parsed, TYPE_IPV4, TYPE_IPV6, UDP, Unmeasured, ipv4, ipv6, u16_at};

const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;

/// UDP's header; VXLAN's is as long, and so is Geneve's without options.
const HEADER: usize = 8;

/// EtherType of Ethernet in Geneve.
const TYPE_ETHERNET: u16 = 0x6558;

/// By which header packets in tunnels are measured. All edges of a network must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tunnels {
    /// The outer one, like every other packet.
    #[default]
    Outer,
    /// That of the packet inside, where it can be read.
    Inner,
}

impl Tunnels {
    /// The header's name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Outer => "outer",
            Self::Inner => "inner",
        }
    }
}

/// What became of a packet in a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Inside {
    /// Measured by its inner header.
    Inner,
    /// Measured by its outer header, since there is no IP inside.
    NotIp,
    /// Measured by its outer header, since what is inside can't be read.
    Malformed,
}

impl Inside {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Inner, Self::NotIp, Self::Malformed];

    /// The kind's name in counters and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inner => "inner",
            Self::NotIp => "outer_not_ip",
            Self::Malformed => "outer_malformed",
        }
    }
}

/// Reads a packet as [`parse`](super::parse) does and, where it is a tunnel's, gives the flow
/// inside.
///
/// Fragments of a tunnel's packets are measured by their outer header and are no tunnel's, since
/// all but the first have no more than that.
pub fn parse(bytes: &[u8], wire_len: usize) -> (Parsed, Option<Inside>) {
    let outer = super::parse(bytes, wire_len);
    let (protocol, port) = match &outer {
        Parsed::Flow { key, .. } => (key.protocol(), key.dport()),
        Parsed::Flow6 { key, .. } => (key[36], u16::from_be_bytes([key[34], key[35]])),
        Parsed::Unmeasured(_) | Parsed::Malformed(_) => return (outer, None),
    };
    if protocol == UDP && matches!(port, VXLAN_PORT | GENEVE_PORT) {
        within(bytes, wire_len, outer, port)
    } else {
        (outer, None)
    }
}

#[inline(never)]
fn within(bytes: &[u8], wire_len: usize, outer: Parsed, port: u16) -> (Parsed, Option<Inside>) {
    let (Parsed::Flow { ip_offset, .. } | Parsed::Flow6 { ip_offset, .. }) = outer else {
        return (outer, None);
    };
    let Some((udp, end)) = datagram(bytes, ip_offset, wire_len) else { return (outer, None) };
    let payload = bytes.get(udp + HEADER..end.min(bytes.len())).unwrap_or_default();
    let payload_len = end.saturating_sub(udp + HEADER);
    let inner =
        if port == VXLAN_PORT { vxlan(payload, payload_len) } else { geneve(payload, payload_len) };
    match inner {
        Parsed::Flow { key, .. } => (Parsed::Flow { key, ip_offset }, Some(Inside::Inner)),
        Parsed::Flow6 { key, .. } => (Parsed::Flow6 { key, ip_offset }, Some(Inside::Inner)),
        Parsed::Unmeasured(_) => (outer, Some(Inside::NotIp)),
        Parsed::Malformed(_) => (outer, Some(Inside::Malformed)),
    }
}

/// Where the UDP header of a packet begins and where its IP packet ends; `None` for fragments.
fn datagram(bytes: &[u8], ip_offset: usize, wire_len: usize) -> Option<(usize, usize)> {
    let header = bytes.get(ip_offset..)?;
    if header.first()? >> 4 == 6 {
        let upper = ipv6::upper(bytes, ip_offset, wire_len).ok()?;
        return (!upper.fragment).then_some((upper.offset, upper.end));
    }
    let header = header.first_chunk::<20>()?;
    // Offset, and "more fragments".
    if u16::from_be_bytes([header[6], header[7]]) & 0x3FFF != 0 {
        return None;
    }
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    Some((ip_offset + usize::from(header[0] & 0xF) * 4, ip_offset + total_len))
}

/// Ethernet behind eight bytes that begin with a flag: there is a network identifier.
fn vxlan(payload: &[u8], wire_len: usize) -> Parsed {
    const IDENTIFIED: u8 = 0x08;
    match payload.first() {
        Some(flags) if flags & IDENTIFIED != 0 => behind(payload, HEADER, wire_len),
        _ => Parsed::Malformed(Malformed::EthernetTruncated),
    }
}

/// Whatever its protocol type says, behind eight bytes and the options.
fn geneve(payload: &[u8], wire_len: usize) -> Parsed {
    let (Some(&first), Some(protocol)) = (payload.first(), u16_at(payload, 2)) else {
        return Parsed::Malformed(Malformed::EthernetTruncated);
    };
    let (version, offset) = (first >> 6, HEADER + usize::from(first & 0x3F) * 4);
    match (version, protocol) {
        (0, TYPE_ETHERNET) => behind(payload, offset, wire_len),
        (0, TYPE_IPV4) => match ipv4(payload, offset, wire_len) {
            Ok(key) => Parsed::Flow { key, ip_offset: offset },
            Err(malformed) => Parsed::Malformed(malformed),
        },
        (0, TYPE_IPV6) => match ipv6::key(payload, offset, wire_len) {
            Ok(key) => Parsed::Flow6 { key, ip_offset: offset },
            Err(malformed) => Parsed::Malformed(malformed),
        },
        _ => Parsed::Unmeasured(Unmeasured::NotIp),
    }
}

#[inline(never)]
fn behind(payload: &[u8], offset: usize, wire_len: usize) -> Parsed {
    super::parse(payload.get(offset..).unwrap_or_default(), wire_len.saturating_sub(offset))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::parse::ipv6::tests::packet as ipv6_packet;
    use crate::parse::tests::udp;
    use calumma_sketch::FlowKey;

    const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 42, 0];
    const GENEVE: [u8; 12] = [1, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 4];

    /// An IPv4 packet from 192.0.2.1 to 192.0.2.2 with these bytes in UDP.
    pub(crate) fn outer(port: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = udp(0, payload.len());
        frame[26..34].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame[42..].copy_from_slice(payload);
        frame
    }

    fn whole(frame: &[u8]) -> (Parsed, Option<Inside>) {
        parse(frame, frame.len())
    }

    fn inner_flow() -> Parsed {
        let key = FlowKey::v4([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), 40_000, 5_201, UDP);
        Parsed::Flow { key, ip_offset: 14 }
    }

    #[test]
    fn the_flow_inside_is_found_and_the_offset_is_the_outer_headers() {
        let inside = Some(Inside::Inner);
        let vxlan = outer(VXLAN_PORT, &[&VXLAN[..], &udp(1, 20)].concat());
        assert_eq!(whole(&vxlan), (inner_flow(), inside));
        let geneve = outer(GENEVE_PORT, &[&GENEVE[..], &udp(0, 20)].concat());
        assert_eq!(whole(&geneve), (inner_flow(), inside));
        let plain_ip = [&[0, 0, 8, 0, 0, 0, 42, 0], &udp(0, 20)[14..]].concat();
        assert_eq!(whole(&outer(GENEVE_PORT, &plain_ip)), (inner_flow(), inside));
        let over_ipv6 = [&[0x9C, 0x40, 0x12, 0xB5, 0, 0, 0, 0], &VXLAN[..], &udp(0, 4)].concat();
        assert_eq!(whole(&ipv6_packet(&[], UDP, &over_ipv6)), (inner_flow(), inside));

        let ipv6 = ipv6_packet(&[], 58, &[128, 0, 0, 0]);
        let (parsed, found) = whole(&outer(VXLAN_PORT, &[&VXLAN[..], &ipv6].concat()));
        assert_eq!(found, inside);
        assert!(matches!(parsed, Parsed::Flow6 { key, ip_offset: 14 } if key[36] == 58));
    }

    #[test]
    fn what_can_not_be_read_inside_is_measured_by_the_outer_header() {
        let mut arp = udp(0, 20);
        arp[12..14].copy_from_slice(&[8, 6]);
        let no_identifier = [0; 8];
        let version_1 = [&[0x40, 0, 0x65, 0x58, 0, 0, 42, 0], &udp(0, 20)[..]].concat();
        for (port, payload, found) in [
            (VXLAN_PORT, [&VXLAN[..], &arp].concat(), Inside::NotIp),
            (VXLAN_PORT, [&VXLAN[..], &udp(0, 20)[..30]].concat(), Inside::Malformed),
            (VXLAN_PORT, [&no_identifier[..], &udp(0, 20)].concat(), Inside::Malformed),
            (VXLAN_PORT, vec![], Inside::Malformed),
            (GENEVE_PORT, vec![0x3F, 0, 0x65, 0x58], Inside::Malformed),
            (GENEVE_PORT, version_1, Inside::NotIp),
        ] {
            let frame = outer(port, &payload);
            assert_eq!(whole(&frame), (super::super::parse(&frame, frame.len()), Some(found)));
        }
    }

    #[test]
    fn fragments_and_other_ports_are_no_tunnels() {
        let payload = [&VXLAN[..], &udp(0, 20)].concat();
        let mut fragment = outer(VXLAN_PORT, &payload);
        fragment[20] = 0x20;
        for frame in [fragment, outer(4790, &payload)] {
            assert_eq!(whole(&frame), (super::super::parse(&frame, frame.len()), None));
        }
    }
}
