//! Marks that the program gives packets of hosts, and takes out of what leaves for hosts.

use calumma_edge::parse::{Parsed, parse};
use calumma_tna::Entry;

use super::packets::is_read;
use super::{CPU, DOMAIN, FABRIC, HOST, Rig};
use crate::captures::{LONGEST, captured};
use crate::switch::{Numbers, checksum, packet};

/// The upper three bits of the DSCP that packets without a stack leave with.
const GIVEN_BACK: u8 = 5;

/// A switch that puts stacks into what hosts send, and marks it.
fn source() -> Rig {
    let mut rig = Rig::new(false);
    rig.switch.set_default_action("Ingress.sources", "mark_both", &[]).unwrap();
    for bit in [0u8, 1] {
        let source = Entry::new("source_as")
            .exact("enters", 1u8)
            .exact("hdr.bridge.timestamp", bit)
            .arg("number", 7u32)
            .arg("of_domain", DOMAIN.get())
            .arg("hops", 6u8);
        rig.switch.add_entry("Egress.push.source.insertion", &source).unwrap();
    }
    rig.switch.set_default_action("Egress.push.source.sourcing", "allow", &[]).unwrap();
    let limit = Entry::new("limit").exact("port", FABRIC).arg("mtu", 1500u16);
    rig.switch.add_entry("mtus", &limit).unwrap();
    rig
}

/// One that takes both out, and records what it knows the window of.
fn sink() -> Rig {
    let mut rig = Rig::new(false);
    let host = |dscp| Entry::new("host").exact("egress_port", HOST).arg("dscp", dscp);
    rig.switch.delete_entry("Egress.host_ports", &host(0)).unwrap();
    rig.switch.add_entry("Egress.host_ports", &host(GIVEN_BACK)).unwrap();
    rig.switch.set_default_action("Egress.sinks", "take_back_both", &[]).unwrap();
    rig
}

/// What leaves of a packet, notices aside.
fn sent(rig: &mut Rig, from: u16, to: u16, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut sent = rig.switch.inject(from, bytes);
    sent.retain(|(port, _)| *port != CPU);
    match &sent[..] {
        [] => None,
        [(port, sent)] if *port == to => Some(sent.clone()),
        other => panic!("{other:?}"),
    }
}

/// Hosts get what hosts sent, but for the ToS byte of what went without a stack. Gives how many
/// went with one, and marked without one.
fn cross(packets: impl Iterator<Item = Vec<u8>>) -> [usize; 2] {
    let (mut source, mut sink) = (source(), sink());
    sink.open(1, Some(0));
    let mut counts = [0; 2];
    let mut recorded = 0;
    for (at, bytes) in packets.enumerate() {
        let bit = at % 2;
        source.flip(bit);
        let Some(went) = sent(&mut source, HOST, FABRIC, &bytes) else { continue };
        let flow = parse(&bytes, bytes.len());
        let Parsed::Flow { ip_offset: ip, .. } = flow else { continue };
        // The source reads it as one without the marker.
        let mut plain = bytes.clone();
        plain[ip + 1] &= !0x10;
        if !is_read(&plain, ip) || !is_read(&bytes, ip) {
            continue;
        }
        assert_eq!(went[ip + 1] >> 5, (bit as u8) << 2, "{bytes:02x?}");
        let Some(came) = sent(&mut sink, FABRIC, HOST, &went) else {
            panic!("{bytes:02x?} went as {went:02x?}");
        };
        recorded += bit as u64;
        if went.len() > bytes.len() {
            counts[0] += 1;
            assert_eq!(came, bytes);
            continue;
        }
        counts[1] += 1;
        let header = ip..ip + 4 * usize::from(bytes[ip] & 0xF);
        assert_eq!(checksum(&came[header.clone()]), checksum(&bytes[header]), "{came:02x?}");
        let mut wanted = bytes.clone();
        wanted[ip + 1] = GIVEN_BACK << 5 | bytes[ip + 1] & 0xF;
        wanted[ip + 10..ip + 12].copy_from_slice(&came[ip + 10..ip + 12]);
        assert_eq!(came, wanted);
    }
    assert_eq!(sink.switch.read_counter("Egress.packets", 1).unwrap().packets, recorded);
    counts
}

#[test]
fn what_hosts_send_is_marked_and_what_they_receive_is_not() {
    let mut numbers = Numbers(11);
    let fuzzed = std::iter::repeat_with(move || packet(&mut numbers).bytes).take(3_000);
    let [with_stack, without] = cross(fuzzed);
    assert!(with_stack > 100 && without > 100, "{with_stack} {without}");
    if let Some(frames) = captured("mixed-captures.pcap", LONGEST) {
        cross(frames.into_iter().take(3_000));
    }
}

/// What hosts send by IPv6 is marked, and what they receive is not: with a stack they get their
/// whole DSCP back, without one what the port has.
#[test]
fn marks_of_ipv6_are_taken_out_as_those_of_ipv4() {
    let (mut source, mut sink) = (source(), sink());
    for (next_header, class) in [(17, 0xB8), (17, 0x0A), (58, 0x4D)] {
        let mut bytes = vec![2; 12];
        bytes.extend_from_slice(&[0x86, 0xDD, 0x60 | class >> 4, class << 4, 0, 0, 0, 24]);
        bytes.extend_from_slice(&[next_header, 64]);
        bytes.extend_from_slice(&[9; 32]);
        bytes.extend_from_slice(&[1, 2, 3, 4, 0, 24, 5, 6]);
        bytes.resize(14 + 40 + 24, 7);
        for bit in [1, 0] {
            source.flip(bit);
            let went = sent(&mut source, HOST, FABRIC, &bytes).unwrap();
            assert_eq!(went.len() > bytes.len(), next_header == 17);
            assert_eq!(went[14] << 4 >> 5, (bit as u8) << 2, "{went:02x?}");
            let came = sent(&mut sink, FABRIC, HOST, &went).unwrap();
            let mut wanted = bytes.clone();
            if next_header != 17 {
                wanted[14] = 0x60 | GIVEN_BACK << 1 | class >> 4 & 1;
                // The marker is the network's.
                wanted[15] = class << 4;
                wanted[14] &= !1;
            }
            assert_eq!(came, wanted, "{class:02x}, {bit}");
        }
    }
    // Of a network that leaves IPv6 alone, they stay as they are.
    sink.switch.set_default_action("Egress.sinks", "take_back", &[]).unwrap();
    source.switch.set_default_action("Ingress.sources", "mark", &[]).unwrap();
    let mut bytes = vec![2; 12];
    bytes.extend_from_slice(&[0x86, 0xDD, 0x6C, 0, 0, 0, 0, 0, 59, 64]);
    bytes.extend_from_slice(&[9; 32]);
    let went = sent(&mut source, HOST, FABRIC, &bytes).unwrap();
    assert_eq!(went, bytes);
    assert_eq!(sent(&mut sink, FABRIC, HOST, &went), Some(went));
}
