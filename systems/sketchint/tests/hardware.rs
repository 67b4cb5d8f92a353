//! A Tofino between others pushes what a software switch does, to the byte: `p4src/sketchint.p4` on
//! the model beside `calumma_plane::int`, on packets that software sources have put stacks into.

use std::num::NonZeroU16;
use std::sync::LazyLock;

use calumma_plane::Packet;
use calumma_plane::int::header::{Seen, look};
use calumma_plane::int::{Domains, Hop, Insertion, Instructions, push};
use calumma_plane::packet::Frame;
use calumma_tna::{Entry, Program, Switch};
use proptest::prelude::*;

const MTU: u16 = 600;
const NODE: u16 = 9;
const DOMAIN: NonZeroU16 = NonZeroU16::new(0xBEEF).unwrap();

fn insertion(node: u16, hops: u8) -> Insertion {
    let node = NonZeroU16::new(node).unwrap();
    Insertion { domain: DOMAIN, node, instructions: Instructions::DEFAULT, hops }
}

fn tofino() -> Switch {
    static PROGRAM: LazyLock<Program> = LazyLock::new(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4src/sketchint.p4");
        Program::load(path, &[]).unwrap_or_else(|error| panic!("{error}"))
    });
    let mut switch = Switch::new(&PROGRAM);
    let send = Entry::new("send").exact("ingress_port", 1u16).arg("port", 2u16);
    switch.add_entry("port_pair", &send).unwrap();
    let limit = Entry::new("limit").exact("port", 2u16).arg("mtu", MTU);
    switch.add_entry("mtus", &limit).unwrap();
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

/// What the Tofino sends of a packet that is in it for so long.
fn by_tofino(switch: &mut Switch, latency_ns: u32, bytes: &[u8]) -> Vec<u8> {
    let mut sent = Vec::new();
    switch.set_time(5_000);
    switch.offer(1, bytes);
    switch.run_ingress();
    switch.set_time(5_000 + u64::from(latency_ns));
    switch.run(4, |_, bytes| sent.push(bytes.to_vec()));
    assert_eq!(sent.len(), 1, "one packet");
    sent.remove(0)
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
            let sent = by_tofino(&mut tofino, latency_ns, &bytes);
            prop_assert_eq!(&sent, &by_software(latency_ns, &bytes));
            bytes = sent;
        }
    }
}
