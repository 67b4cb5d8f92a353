//! Packets for hosts leave a Tofino without their stacks, with the bytes that a software sink gives
//! back, or are dropped or passed on for the same reason.

use calumma_plane::Packet;
use calumma_plane::int::header::{Found, Seen, look, set_marker};
use calumma_plane::int::strip::{Goes, strip};
use calumma_plane::int::{Domains, Hop, Instructions, push};
use calumma_plane::packet::Frame;
use calumma_tna::{Entry, Switch};
use proptest::prelude::*;

use crate::host::{Host, hosts};
use crate::{DOMAIN, between, insertion, sent_by};

/// Cells of the program's counter.
const STRIPPED: usize = 1;
const DISCARDED: usize = 2;
const MALFORMED: usize = 3;
const FRAGMENT: usize = 4;
const FOREIGN: usize = 5;

/// Most words of header and stack that it takes out.
const MOST_WORDS: u8 = 3 + 16 * 2;

fn tofino() -> Switch {
    let mut switch = between(1, 2);
    let host = Entry::new("host").exact("egress_port", 2u16).arg("dscp", 0u8);
    switch.add_entry("Egress.host_ports", &host).unwrap();
    let sink = Entry::new("sink").exact("port", 2u16);
    switch.add_entry("Ingress.sink.ports", &sink).unwrap();
    let known = Entry::new("known")
        .exact("hdr.telemetry.version", 2u8)
        .exact("hdr.telemetry.reserved", 0u16)
        .ternary("hdr.telemetry.domain", DOMAIN.get(), 0xFFFFu16)
        .exact("hdr.telemetry.own_instructions", 0u16)
        .exact("hdr.telemetry.own_flags", 0u16);
    switch.add_entry("Ingress.sink.domains", &known).unwrap();
    switch
}

/// What becomes of a packet with the marker.
fn by_software(host: &Host, bytes: &[u8]) -> (Option<Vec<u8>>, usize, Option<Found>) {
    let mut packet = Frame::with_headroom(64, bytes);
    let mut domains = Domains::ANY;
    domains.learn(DOMAIN, None);
    match look(&packet, host.ip_offset(), domains) {
        Seen::Stack(found) if found.header.is_discarded() => (None, DISCARDED, Some(found)),
        Seen::Stack(found) => {
            assert!(strip(&mut packet, host.ip_offset(), &found, Goes::ToHost));
            (Some(packet.bytes().to_vec()), STRIPPED, Some(found))
        }
        Seen::Fragment => (None, FRAGMENT, None),
        Seen::Malformed => (None, MALFORMED, None),
        Seen::Foreign => (Some(bytes.to_vec()), FOREIGN, None),
    }
}

/// What happens to a packet on its way: bytes from its IP header on that are changed.
#[derive(Clone, Debug)]
enum Damage {
    Nothing,
    /// Of shim and header, counted from the shim.
    Stack(usize, u8),
    /// Lengths and flags of the headers in front.
    Length(i8),
    UdpLength(i8),
    MoreFragments,
    Offset(u8),
}

fn damages() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => Just(Damage::Nothing),
        4 => (0_usize..16, any::<u8>()).prop_map(|(at, by)| Damage::Stack(at, by)),
        2 => (0_u32..8).prop_map(|bit| Damage::Stack(1, 1 << bit)),
        1 => (-90_i8..0).prop_map(Damage::Length),
        1 => (-90_i8..9).prop_map(Damage::UdpLength),
        1 => Just(Damage::MoreFragments),
        1 => (0_u8..16).prop_map(Damage::Offset),
    ]
}

fn damage(host: &Host, bytes: &mut [u8], by: &Damage) {
    let ip = host.ip_offset();
    let l4 = ip + if host.ipv6 { 40 } else { 20 + 4 * host.options };
    let mut add = |at: usize, by: i8| {
        let word = u16::from_be_bytes([bytes[at], bytes[at + 1]]).wrapping_add_signed(by.into());
        bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
    };
    match *by {
        Damage::Nothing => {}
        Damage::Stack(at, by) => bytes[l4 + if host.protocol == 6 { 20 } else { 8 } + at] ^= by,
        Damage::Length(by) => add(ip + if host.ipv6 { 4 } else { 2 }, by),
        Damage::UdpLength(by) if host.protocol == 17 => add(l4 + 4, by),
        Damage::MoreFragments if !host.ipv6 => bytes[ip + 6] |= 0x20,
        Damage::Offset(words) if host.protocol == 6 => bytes[l4 + 12] = words << 4,
        Damage::UdpLength(_) | Damage::MoreFragments | Damage::Offset(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 6000,
        failure_persistence: None,
        max_global_rejects: 1 << 20,
        ..Default::default()
    })]

    #[test]
    fn packets_leave_either_switch_for_hosts_with_the_same_bytes(
        host in hosts(),
        latencies in prop::collection::vec(any::<u32>(), 0..17),
        by in damages(),
    ) {
        // From the source on, each switch with a number and latency of its own.
        let mut packet = Frame::with_headroom(256, &host.bytes());
        let hop = |node, latency_ns| Hop { node, latency_ns, ..Hop::UNKNOWN };
        let insertion = insertion(3, 16);
        let mtu = if latencies.is_empty() { packet.bytes().len() - 14 + 16 } else { 1500 };
        let of_source = hop(3, latencies.first().copied().unwrap_or(0));
        set_marker(&mut packet, host.ip_offset(), false);
        let dscp = host.tos >> 2;
        let went = push::source(&mut packet, host.ip_offset(), (&insertion, &of_source), dscp, mtu);
        prop_assume!(went.is_ok());
        for (node, latency_ns) in (4..).zip(latencies.into_iter().skip(1)) {
            let Seen::Stack(found) = look(&packet, host.ip_offset(), Domains::ANY) else {
                panic!("a stack");
            };
            push::transit(&mut packet, &found, &hop(node, latency_ns), 1500);
        }
        let mut bytes = packet.bytes().to_vec();
        damage(&host, &mut bytes, &by);
        let (wanted, cell, found) = by_software(&host, &bytes);
        prop_assert!(!matches!(by, Damage::Nothing) || cell == STRIPPED);
        let mut tofino = tofino();
        let went = sent_by(&mut tofino, 0, &bytes);
        let count = |counter, cell| tofino.read_counter(counter, cell).unwrap().packets;
        let mut counts: Vec<u64> = (0..6).map(|cell| count("Ingress.sink.packets", cell)).collect();
        counts[STRIPPED] += count("Egress.stripped", 0) + count("Egress.stripped", 2);
        // Only the egress knows how long a frame is.
        counts[MALFORMED] += count("Egress.stripped", 1);
        // Stacks of this network that it would not put in reach no host.
        let is_other = found.is_some_and(|of| {
            of.header.instructions != Instructions::DEFAULT || of.header.words > MOST_WORDS
        });
        let (wanted, cell) = if is_other { (None, MALFORMED) } else { (wanted, cell) };
        prop_assert_eq!(went, wanted, "{:?}", by);
        let wanted: Vec<u64> = (0..6).map(|at| u64::from(cell == at)).collect();
        prop_assert_eq!(counts, wanted, "{:?}", by);
    }
}
