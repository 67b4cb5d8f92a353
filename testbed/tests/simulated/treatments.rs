//! What routers do to a packet between two edges, and whether the far edge still reads the flow and
//! the mark that the near edge recorded: where it does, such a packet is neither lost nor too many.
//! `docs/networks.md` has a row for each.

use std::net::Ipv4Addr;

use calumma_edge::carrier::{Mark, PlainTos};
use calumma_edge::parse::{Parsed, parse};
use calumma_plane::Hierarchy;
use calumma_sketch::WideKey;
use calumma_testbed::workload::frame;

const ETHERNET: usize = 14;

fn mark() -> Mark {
    Mark::plain(1, Hierarchy::HlCandidate)
}

fn key() -> WideKey {
    WideKey::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 1), 4660, 443, 6)
}

/// A TCP packet on its way between two edges.
fn marked() -> Vec<u8> {
    let mut bytes = frame(&key(), 1000).to_vec();
    PlainTos::default().write(&mut bytes, ETHERNET, mark());
    // All of its payload is at hand.
    bytes.resize(1000, 7);
    bytes
}

/// What the far edge makes of a packet: its flow and its mark, where it is one of IPv4 that it
/// measures.
fn read(bytes: &[u8]) -> Option<(WideKey, Mark)> {
    match parse(bytes, bytes.len()) {
        Parsed::Flow { key, ip_offset } => {
            Some((key.into(), PlainTos::default().read(bytes, ip_offset)?))
        }
        _ => None,
    }
}

/// Puts bytes in front of the IP header, after an EtherType that says so.
fn put_on(bytes: &[u8], ether_type: [u8; 2], header: &[u8]) -> Vec<u8> {
    [&bytes[..12], &ether_type, header, &bytes[ETHERNET..]].concat()
}

#[test]
fn what_leaves_addresses_ports_and_dscp_alone_is_no_loss() {
    let mut lower_ttl = marked();
    lower_ttl[ETHERNET + 8] -= 1;
    let mut congested = marked();
    congested[ETHERNET + 1] |= 3;
    // The VLAN that a port puts packets into; the IP header's EtherType goes behind the tag.
    let tagged = put_on(&marked(), [0x81, 0], &[0, 42, 8, 0]);
    let mut retagged = tagged.clone();
    retagged[ETHERNET + 1] = 43;
    let mut clamped = marked();
    clamped[ETHERNET + 20 + 13] = 2;
    clamped[ETHERNET + 20 + 15] = 0x42;
    let mut other_ethernet = marked();
    other_ethernet[..12].copy_from_slice(&[0xEE; 12]);
    for packet in [lower_ttl, congested, tagged, retagged, clamped, other_ethernet] {
        assert_eq!(read(&packet), Some((key(), mark())), "{packet:?}");
    }
}

#[test]
fn a_later_fragment_is_of_a_flow_without_ports() {
    let whole = marked();
    let fragment = |more: u8, units: u8, payload: &[u8]| {
        let mut bytes = whole[..ETHERNET + 20].to_vec();
        let length = 20 + payload.len() as u16;
        bytes[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&length.to_be_bytes());
        bytes[ETHERNET + 6..ETHERNET + 8].copy_from_slice(&[more << 5, units]);
        bytes.extend_from_slice(payload);
        bytes
    };
    let (head, tail) = whole[ETHERNET + 20..].split_at(480);
    let [first, later] = [fragment(1, 0, head), fragment(0, 60, tail)];
    assert_eq!(read(&first), Some((key(), mark())));
    let without_ports =
        WideKey::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 1), 0, 0, 6);
    assert_eq!(read(&later), Some((without_ports, mark())));
}

/// An IPv4 header of 20 bytes in front of `len` bytes, between two routers.
fn outer(protocol: u8, len: usize) -> Vec<u8> {
    let key = WideKey::v4([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 0, 0, 0);
    let mut bytes = frame(&key, 60)[ETHERNET..ETHERNET + 20].to_vec();
    bytes[2..4].copy_from_slice(&(20 + len as u16).to_be_bytes());
    bytes[9] = protocol;
    bytes
}

/// A tunnel or a label stack between two routers: what the first puts in front of a packet, the
/// way in between does what it likes with it, and the second takes off again.
#[test]
fn what_is_put_in_front_and_taken_off_again_is_the_flow_that_entered() {
    let inner = marked()[ETHERNET..].to_vec();
    let udp_to = |port: u16, len: usize| {
        let [high, low] = port.to_be_bytes();
        let [long, short] = (8 + len as u16).to_be_bytes();
        vec![0xC0, 0, high, low, long, short, 0, 0]
    };
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &marked()].concat();
    let gre = [&[0, 0, 8, 0][..], &inner].concat();
    let mpls = [&[0, 1, 0x00, 64, 0, 2, 0x01, 64][..], &inner].concat();
    // Each with the number of bytes up to the packet's IP header.
    let tunnels = [
        ("MPLS", [0x88, 0x47], mpls, 8),
        ("GRE", [8, 0], [outer(47, gre.len()), gre].concat(), 24),
        (
            "VXLAN",
            [8, 0],
            [outer(17, 8 + vxlan.len()), udp_to(4789, vxlan.len()), vxlan].concat(),
            20 + 8 + 8 + ETHERNET,
        ),
    ];
    for (name, ether_type, mut packet, len) in tunnels {
        let mut on_the_way = [&marked()[..12], &ether_type, &packet].concat();
        let seen = read(&on_the_way).map(|(key, _)| key);
        assert_ne!(seen, Some(key()), "{name}: the flow is not to be seen inside");
        // Re-marked and marked for congestion, with a lower TTL: outside, all of it.
        if packet[0] >> 4 == 4 {
            (on_the_way[ETHERNET + 1], on_the_way[ETHERNET + 8]) = (0x03, 7);
        }
        packet = on_the_way[ETHERNET + len..].to_vec();
        // The second router counts as a hop, and its copy of a congestion mark is no mark's bit.
        (packet[1], packet[8]) = (packet[1] | 3, packet[8] - 1);
        let left = [&[0xEE; 12][..], &[8, 0], &packet].concat();
        assert_eq!(read(&left), Some((key(), mark())), "{name}");
        // A router that copies the outer DSCP into the packet (RFC 2983, uniform) rewrites it.
        let mut uniform = left.clone();
        uniform[ETHERNET + 1] = 0x03;
        assert_eq!(read(&uniform), Some((key(), Mark::from_bits(0))), "{name}");
    }
}

#[test]
fn what_is_put_in_front_and_not_taken_off_again_is_another_packet() {
    let mpls = put_on(&marked(), [0x88, 0x47], &[0, 1, 0x01, 64]);
    assert_eq!(read(&mpls), None, "not measured: a loss at this edge");
    let inner = &marked()[ETHERNET..];
    let outer = [outer(47, 4 + inner.len()), vec![0, 0, 8, 0]].concat();
    let gre = [&marked()[..ETHERNET], &outer, inner].concat();
    let outside = WideKey::v4([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 0, 0, 47);
    let unmarked = Mark::from_bits(0);
    assert_eq!(read(&gre), Some((outside, unmarked)), "the tunnel is the flow that leaves here");
}
