//! Whatever packet takes a stack that a UDP port marks: what is put in is taken out, and the flow
//! is known in between.

use std::num::NonZeroU16;

use proptest::prelude::*;

use super::super::header::{HEADERS, Original, Seen, could_be_taken, look};
use super::super::push::{self, NotCarried, Pushed};
use super::super::strip::{Goes, read, strip};
use super::super::tests::{Segment, Shape, Sum, frame, hops, insertion, segments, shapes, sums};
use super::super::{Domains, Hop, Insertion, Instructions, MARKER, Stack, plain};
use super::*;
use crate::carrier::set_tos_bits;
use crate::packet::{Frame, Packet};
use crate::parse::ipv6::tests::packet as ipv6_packet;
use crate::parse::tests::checksum;
use crate::parse::{Parsed, parse};

const PORT: u16 = 41_000;
const ETHERNET: usize = 14;

fn marking(hops: u8) -> Insertion {
    Insertion { udp_port: NonZeroU16::new(PORT), ..insertion(Instructions::DEFAULT, hops) }
}

fn ours() -> Domains {
    let mut domains = Domains::default();
    domains.learn(marking(1).domain, marking(1).udp_port);
    domains
}

fn other_segments() -> impl Strategy<Value = Segment> {
    let protocols = prop_oneof![Just(1u8), Just(47), Just(50), Just(58), Just(132), any::<u8>()];
    // Neither TCP and UDP nor what IPv6 has for headers of its own.
    let protocols = protocols.prop_filter("its own", |of| ![0, 6, 17, 43, 44, 51, 60].contains(of));
    (protocols, prop::collection::vec(any::<u8>(), 20..80))
        .prop_map(|(protocol, bytes)| Segment { protocol, bytes })
}

/// A frame of any protocol, whose segment is not looked at where it is neither TCP nor UDP.
fn any_frames() -> impl Strategy<Value = (Vec<u8>, usize, u8)> {
    let known = (shapes(), segments(), sums()).prop_map(|(shape, segment, sum)| {
        let (bytes, ip) = frame(&shape, &segment, sum);
        (bytes, ip, segment.protocol)
    });
    let others = (shapes(), other_segments()).prop_map(|(shape, segment)| {
        let (bytes, ip) = frame(&Shape { more: shape.more % 3, ..shape }, &segment, Sum::None);
        (bytes, ip, segment.protocol)
    });
    prop_oneof![known, others]
}

/// Ports and protocol by which a packet is measured that has no stack.
fn flow(bytes: &[u8]) -> Option<(u32, u8)> {
    match parse(bytes, bytes.len()) {
        Parsed::Flow { key, .. } => {
            let ports = u32::from(key.sport()) << 16 | u32::from(key.dport());
            Some((ports, key.protocol()))
        }
        Parsed::Flow6 { key, .. } => {
            Some((u32::from_be_bytes([key[32], key[33], key[34], key[35]]), key[36]))
        }
        _ => None,
    }
}

fn header_sum(bytes: &[u8], ip: usize) -> u16 {
    if bytes[ip] >> 4 == 6 {
        return 0;
    }
    checksum(&bytes[ip..ip + usize::from(bytes[ip] & 0xF) * 4])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn stripping_undoes_pushing(
        (before, ip, protocol) in any_frames(),
        hops in hops(),
        most in 1u8..=16,
        mtu in 60usize..600,
        ecn in 0u8..4,
    ) {
        let mut packet = Frame::with_headroom(1024, &before);
        set_tos_bits(packet.bytes_mut(), ip, MARKER, 0);
        let cleared = packet.clone();
        let asked = marking(most);
        let (len, dscp) = (before.len() - ETHERNET, 46);
        // What is marked by a port, the short way leaves to the long one.
        prop_assert!(protocol == 6 || !plain::source(&mut packet, (&asked, &hops[0]), dscp, mtu));
        let before_flow = flow(&before);
        let mut pushed = match push::source(&mut packet, ip, (&asked, &hops[0]), dscp, mtu) {
            Err(why) => {
                prop_assert_eq!(&packet, &cleared, "{:?}", why);
                let own = if matches!(protocol, 6 | 17) { 0 } else { UDP_HEADER };
                let fits = len + own + HEADERS <= mtu;
                prop_assert!(why != NotCarried::Mtu || !fits);
                prop_assert!(why == NotCarried::Mtu || fits || why == NotCarried::Protocol);
                return Ok(());
            }
            Ok(pushed) => usize::from(pushed == Pushed::Hop),
        };
        for hop in &hops[1..] {
            let Seen::Stack(found) = look(&packet, ip, ours()) else { panic!("no stack") };
            pushed += usize::from(push::transit(&mut packet, &found, hop, mtu) == Pushed::Hop);
            prop_assert!(packet.bytes().len() - ETHERNET <= mtu.max(len));
            prop_assert_eq!(header_sum(packet.bytes(), ip), 0);
        }
        set_tos_bits(packet.bytes_mut(), ip, 0b11, ecn);
        prop_assert!(could_be_taken(&packet, ip));
        let Seen::Stack(found) = look(&packet, ip, ours()) else { panic!("no stack") };
        let by_port = match protocol {
            6 => false,
            17 => matches!(found.header.original, Original::Port(_)),
            _ => found.header.original == Original::Protocol(protocol),
        };
        prop_assert_eq!(by_port, protocol != 6);
        if by_port {
            let to = flow(packet.bytes()).map(|(ports, protocol)| (ports as u16, protocol));
            prop_assert_eq!(to, Some((PORT, 17)));
            prop_assert_eq!(found.original_flow(&packet), before_flow);
        } else {
            prop_assert_eq!(found.original_flow(&packet), None);
        }
        let mut stack = Stack::EMPTY;
        read(&packet, &found, &mut stack);
        prop_assert_eq!(stack.len(), pushed);
        let goes = if by_port { Goes::ToHost } else { Goes::On };
        prop_assert_eq!(found.added(), packet.bytes().len() - before.len());
        prop_assert!(strip(&mut packet, ip, &found, goes));
        let mut wanted = cleared;
        set_tos_bits(wanted.bytes_mut(), ip, 0b11, ecn);
        prop_assert_eq!(packet.bytes(), wanted.bytes());
    }

    /// Whatever the bytes: nothing panics, and what is found can be extended and taken out.
    #[test]
    fn arbitrary_bytes_never_panic(
        (before, ip, _) in any_frames(),
        changes in prop::collection::vec((0usize..140, any::<u8>()), 0..6),
        cut in 0usize..140,
        more in 0usize..40,
        mtu in 0usize..300,
    ) {
        let mut packet = Frame::with_headroom(128, &before);
        let _ = push::source(&mut packet, ip, (&marking(2), &Hop::UNKNOWN), 0, 9000);
        let mut bytes = packet.bytes().to_vec();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(bytes.len().saturating_sub(cut / 4));
        let packet = Frame::with_headroom(64, &bytes).cut_from(bytes.len() + more);
        let _ = push::source(&mut packet.clone(), ip, (&marking(2), &Hop::UNKNOWN), 0, mtu);
        for domains in [Domains::ANY, ours()] {
            let Seen::Stack(found) = look(&packet, ip, domains) else { continue };
            let _ = found.original_flow(&packet);
            let mut extended = packet.clone();
            let pushed = push::transit(&mut extended, &found, &Hop::UNKNOWN, mtu);
            prop_assert!(pushed != Pushed::Nothing || extended.bytes() == packet.bytes());
            strip(&mut packet.clone(), ip, &found, Goes::ToHost);
        }
    }
}

/// Of a frame that begins with its IP header at 14.
fn of(bytes: &[u8]) -> Detail {
    crate::parse::detail::detail(bytes, ETHERNET, bytes.len()).unwrap()
}

#[test]
fn a_flow_has_one_port_to_come_from_and_flows_have_many() {
    let ports = |protocol: u8, first: u32| {
        let upper = [&first.to_be_bytes()[..], &[0; 16]].concat();
        let bytes = ipv6_packet(&[], protocol, &upper);
        source_port(&bytes, ETHERNET, &of(&bytes))
    };
    assert_eq!(ports(132, 7), ports(132, 7));
    // An echo's number is no part of its flow.
    assert_eq!(ports(58, 7), ports(58, 8));
    let mut of_flows: Vec<u16> = (0..1_000).map(|number| ports(132, number)).collect();
    assert!(of_flows.iter().all(|port| *port >= 49_152));
    of_flows.sort_unstable();
    of_flows.dedup();
    assert!(of_flows.len() > 900, "{}", of_flows.len());
}

#[test]
fn a_switch_knows_the_port_of_its_network_and_the_one_before() {
    let [a, b] = [1, 2].map(|number| NonZeroU16::new(number).unwrap());
    let port = NonZeroU16::new;
    let mut domains = Domains::ANY;
    assert!(!domains.have_ports() && domains.has_port(9, 5) && !domains.has_port(9, 0));
    domains.learn(a, None);
    assert!(!domains.have_ports() && !domains.mark_by_port(1) && !domains.has_port(1, 5));
    domains.learn(a, port(5));
    domains.learn(a, port(6));
    assert!(domains.has_port(1, 5) && domains.has_port(1, 6) && !domains.has_port(2, 6));
    domains.learn(b, None);
    assert!(domains.has(1) && domains.has(2) && !domains.mark_by_port(2));
    assert!(domains.has_port(1, 6) && !domains.has_port(1, 5) && !domains.has_port(2, 0));
}
