//! Where a UDP port marks packets with stacks: hosts are sent the MTU that leaves room for what
//! each of their packets gets, a UDP header of its own included.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use calumma_edge::packet::Frame;
use calumma_plane::checksum::checksum;
use calumma_plane::int::header::{Seen, look};
use calumma_plane::int::push::{Pushed, transit};
use calumma_plane::int::{Domains, Hop, Insertion};

use crate::edge::{H0, mac};
use crate::frames::{body, ether_type, ethernet, station};
use crate::inserter::insertion;
use crate::int::{lasting, router_of, sent_ns, taken};
use crate::traffic::icmp;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;
const ESP: u8 = 50;
const ICMPV6: u8 = 58;
const OSPF: u8 = 89;
const SCTP: u8 = 132;

/// Expedited forwarding, whose DSCP has the bit of stacks.
const TOS: u8 = 0xB8;

/// A host's IP packet of so many bytes that no router may fragment; `first` is the first byte
/// behind its IP header where that is looked at.
fn packet((from, to): (&str, &str), (protocol, first): (u8, u8), len: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..len).map(|at| (at * 31) as u8).collect();
    let length = |len: usize| (len as u16).to_be_bytes();
    let l4 = match (from.parse().unwrap(), to.parse().unwrap()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            packet[..4].copy_from_slice(&[0x45, TOS, 0, 0]);
            packet[2..4].copy_from_slice(&length(len));
            packet[4..12].copy_from_slice(&[0, 7, 0x40, 0, 64, protocol, 0, 0]);
            packet[12..16].copy_from_slice(&from.octets());
            packet[16..20].copy_from_slice(&to.octets());
            let sum = checksum(&packet[..20]).to_be_bytes();
            packet[10..12].copy_from_slice(&sum);
            20
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet[..4].copy_from_slice(&[0x60 | TOS >> 4, TOS << 4, 0, 0]);
            packet[4..6].copy_from_slice(&length(len - 40));
            packet[6..8].copy_from_slice(&[protocol, 64]);
            packet[8..24].copy_from_slice(&from.octets());
            packet[24..40].copy_from_slice(&to.octets());
            40
        }
        _ => panic!("{from} and {to}"),
    };
    match protocol {
        UDP => packet[l4 + 4..l4 + 6].copy_from_slice(&length(len - l4)),
        TCP => packet[l4 + 12] = 5 << 4,
        _ => packet[l4] = first,
    }
    packet
}

/// Hops that a frame with a stack has in the end, where all links take so many bytes behind the
/// Ethernet header.
fn hops(frame: &[u8], mtu: usize) -> usize {
    let ip = frame.len() - body(frame).len();
    let mut packet = Frame::with_headroom(64, frame);
    let mut pushed = taken(frame).0.map_or(0, |stack| stack.len());
    while let Seen::Stack(found) = look(&packet, ip, Domains::ANY)
        && transit(&mut packet, &found, &Hop::UNKNOWN, mtu) == Pushed::Hop
    {
        pushed += 1;
    }
    pushed
}

/// The same without the ToS byte, in which a mark is.
fn unmarked(packet: &[u8]) -> Vec<u8> {
    let mut packet = lasting(packet);
    if packet[0] >> 4 == 4 {
        packet[1] = 0;
    } else {
        packet[..2].copy_from_slice(&[0x60, 0]);
    }
    packet
}

/// Whether a frame is an ICMP error, and not one by which neighbours are found.
fn is_error(frame: &[u8]) -> bool {
    let packet = body(frame);
    match ether_type(frame) {
        0x0800 => packet[9] == ICMP,
        0x86DD => packet[6] == ICMPV6 && packet[40] < 128,
        _ => false,
    }
}

/// Six hops of two words and the header are 64 bytes, and a UDP header is eight.
#[test]
fn hosts_are_sent_the_mtu_that_leaves_room_for_a_udp_header_as_well() {
    let insertion = Insertion { udp_port: NonZeroU16::new(41_000), ..insertion(1, 6) };
    let advertise = "[sketchint]\npmtu = \"advertise\"\n\n[forwarding]\n";
    let changes = [("[forwarding]\n", advertise)];
    let (mut edge, _node) = router_of("int port pmtu", insertion, &changes);
    edge.now_ns = sent_ns();
    // What it announces by itself.
    edge.slow_path(0.0);
    let (v4, v6) = (("10.1.0.2", "10.2.0.1"), ("fd00:1::2", "fd00:2::1"));
    // The second link is behind a VLAN tag.
    let cases = [
        (v4, (ICMP, 8), 1400, 1328),
        (v4, (SCTP, 0), 1400, 1328),
        (v4, (ESP, 0), 1400, 1328),
        (v4, (GRE, 0), 1400, 1328),
        (v4, (UDP, 0), 1400, 1336),
        (v4, (TCP, 0), 1400, 1336),
        (v6, (ICMPV6, 128), 1500, 1424),
        (v6, (SCTP, 0), 1500, 1424),
        (v6, (ESP, 0), 1500, 1424),
        (v6, (UDP, 0), 1500, 1432),
        (v6, (TCP, 0), 1500, 1432),
    ];
    let mut advised = 0;
    for (addresses, of, port_mtu, mtu) in cases {
        let is_v4 = addresses == v4;
        for (len, wanted) in [(mtu, None), (mtu + 1, Some(mtu)), (port_mtu - 4, Some(mtu))] {
            // More than between two errors.
            std::thread::sleep(Duration::from_millis(10));
            let what = format!("{} bytes of {of:?} from {}", len, addresses.0);
            let sent = packet(addresses, of, len);
            let kind = if is_v4 { 0x0800 } else { 0x86DD };
            let frame = ethernet(mac(H0), station(H0 as u8), None, kind, &sent);
            let on = edge.receive(H0, &[frame]);
            let [(_, frame)] = &on[..] else { panic!("{what}: {} frames", on.len()) };
            assert_eq!(unmarked(body(&taken(frame).1)), unmarked(&sent), "{what}");
            assert_eq!(hops(frame, port_mtu) == 6, wanted.is_none(), "{what}");
            let mut errors = edge.slow_path(0.0);
            errors.retain(|(port, frame)| *port == H0 && is_error(frame));
            let found: Vec<_> = errors.iter().map(|(_, frame)| icmp(frame)).collect();
            let error = |mtu| if is_v4 { (3, 4, mtu as u32) } else { (2, 0, mtu as u32) };
            assert_eq!(found, wanted.map(error).into_iter().collect::<Vec<_>>(), "{what}");
            if let [(_, frame)] = &errors[..] {
                let quote = &body(frame)[if is_v4 { 28 } else { 48 }..];
                assert!(quote.len() > 500, "{what}");
                assert!(lasting(&sent).starts_with(&lasting(quote)), "{what}: as it was sent");
            }
            advised += u64::from(wanted.is_some());
            assert_eq!(edge.total("sketchint.mtu_advised"), advised, "{what}");
        }
    }
    // What has no place for a stack, and an error itself.
    for of in [(OSPF, 0), (ICMP, 3)] {
        std::thread::sleep(Duration::from_millis(10));
        let sent = packet(v4, of, 1400);
        let frame = ethernet(mac(H0), station(H0 as u8), None, 0x0800, &sent);
        assert_eq!(edge.receive(H0, &[frame]).len(), 1);
        let errors = edge.slow_path(0.0);
        assert!(!errors.iter().any(|(_, frame)| is_error(frame)), "{of:?}");
    }
    edge.stop();
}
