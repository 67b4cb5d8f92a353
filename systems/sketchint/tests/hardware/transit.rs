//! A Tofino between others pushes what a software switch does, to the byte, onto stacks of software
//! sources.

use calumma_plane::Packet;
use calumma_plane::int::header::{Seen, look};
use calumma_plane::int::{Domains, Hop, Instructions, push};
use calumma_plane::packet::Frame;
use calumma_tna::{Entry, Switch};
use proptest::prelude::*;

use crate::{DOMAIN, MTU, NODE, between, insertion, sent_by};

fn tofino() -> Switch {
    let mut switch = between(1, 2);
    let push = Entry::new("push_as")
        .exact("hdr.telemetry.version", 2u8)
        .exact("hdr.telemetry.reserved", 0u16)
        .exact("hdr.telemetry.words", Instructions::DEFAULT.words() as u8)
        .exact("hdr.telemetry.instructions", Instructions::DEFAULT.bits())
        .exact("hdr.telemetry.domain", DOMAIN.get())
        .exact("hdr.telemetry.own_instructions", 0u16)
        .exact("hdr.telemetry.own_flags", 0u16)
        .exact("hdr.shim.length[0:0]", 1u8)
        .arg("number", NODE);
    switch.add_entry("domain", &push).unwrap();
    switch
}

/// What a software switch sends of it.
fn by_software(latency_ns: u32, bytes: &[u8]) -> Vec<u8> {
    let mut packet = Frame::with_headroom(64, bytes);
    if let Seen::Stack(found) = look(&packet, 14, Domains::ANY)
        && bytes[15] & 0x10 != 0
    {
        let hop = Hop { node: NODE.into(), latency_ns, ..Hop::UNKNOWN };
        push::transit(&mut packet, &found, &hop, MTU.into());
    }
    packet.bytes().to_vec()
}

/// An IPv4 packet as a host sends it, with options and a checksum of any value.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..64),
        1 => (480usize..560).prop_map(|len| vec![3; len]),
    ];
    (any::<bool>(), 0usize..4, any::<[u8; 12]>(), 1u16.., payload).prop_map(
        |(tcp, options, random, checksum, payload)| {
            let l4 = if tcp { 20 } else { 8 };
            let ip = 20 + 4 * options;
            let mut bytes = vec![7; 12];
            bytes.extend_from_slice(&[8, 0, 0x45 + options as u8, 0x20]);
            bytes.extend_from_slice(&((ip + l4 + payload.len()) as u16).to_be_bytes());
            bytes.extend_from_slice(&[0, 1, 0x40, 0, 60, if tcp { 6 } else { 17 }]);
            bytes.extend_from_slice(&random[..10]);
            bytes.resize(14 + ip, 1);
            let mut transport = vec![5; l4];
            if tcp {
                transport[12] = 0x50;
                transport[16..18].copy_from_slice(&checksum.min(0xFFFE).to_be_bytes());
            } else {
                transport[4..6].copy_from_slice(&((l4 + payload.len()) as u16).to_be_bytes());
                transport[6..8].copy_from_slice(&checksum.to_be_bytes());
            }
            bytes.extend(transport);
            bytes.extend(payload);
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn packets_pass_either_switch_to_the_same_bytes(
        packet in packets(),
        hops in 1u8..6,
        latencies in prop::collection::vec(any::<u32>(), 1..8),
    ) {
        let mut frame = Frame::with_headroom(64, &packet);
        let hop = Hop { node: 3, latency_ns: 8, ..Hop::UNKNOWN };
        let pushed = push::source(&mut frame, 14, (&insertion(3, hops), &hop), 8, MTU.into());
        prop_assume!(pushed.is_ok());
        let mut bytes = frame.bytes().to_vec();
        let mut tofino = tofino();
        for latency_ns in latencies {
            let latency_ns = latency_ns.min(u32::MAX - 1);
            let sent = sent_by(&mut tofino, latency_ns, &bytes).unwrap();
            prop_assert_eq!(&sent, &by_software(latency_ns, &bytes));
            bytes = sent;
        }
    }
}
