//! `p4src/sketchint.p4`: what a switch between others pushes into stacks, byte by byte.
//!
//! Frames are put together here as INT-MD's specification (version 2.1) has them, with checksums
//! computed from nothing, so what the program must send is the frame with one more hop.

use std::sync::LazyLock;

use calumma_tna::{Entry, Program, Switch};
use proptest::prelude::*;

const IN: u16 = 1;
const OUT: u16 = 2;
const NODE: u32 = 7;
const DOMAIN: u16 = 0xC0DE;
const MTU: u16 = 1500;
const INSTRUCTIONS: u16 = 0xA000;

/// A packet that may carry a stack.
#[derive(Clone, Debug)]
struct Frame {
    tags: usize,
    ipv6: bool,
    tcp: bool,
    /// Words of IPv4 options.
    options: usize,
    /// A UDP datagram without a checksum.
    unchecked: bool,
    /// What is added to the checksum on the way.
    damage: u16,
    tos: u8,
    payload: Vec<u8>,
    stack: Stack,
}

#[derive(Clone, Debug)]
struct Stack {
    version: u8,
    domain: u16,
    instructions: u16,
    words: u8,
    discard: bool,
    exceeded: bool,
    too_long: bool,
    left: u8,
    /// As the shim says it; else as it is.
    length: Option<u8>,
    /// The newest first.
    hops: Vec<[u32; 2]>,
}

impl Stack {
    fn bytes(&self) -> Vec<u8> {
        let length = 3 + 2 * self.hops.len() as u8;
        let mut bytes = vec![0x10, self.length.unwrap_or(length), 0, 46 << 2];
        let bit = |is: bool, at: u32| u32::from(is) << at;
        let flags = bit(self.discard, 27) | bit(self.exceeded, 26) | bit(self.too_long, 25);
        let first = u32::from(self.version) << 28
            | flags
            | u32::from(self.words) << 8
            | u32::from(self.left);
        bytes.extend_from_slice(&first.to_be_bytes());
        bytes.extend_from_slice(&self.instructions.to_be_bytes());
        bytes.extend_from_slice(&self.domain.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for hop in self.hops.iter().flatten() {
            bytes.extend_from_slice(&hop.to_be_bytes());
        }
        bytes
    }
}

/// The sum of RFC 1071.
fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum
}

impl Frame {
    fn bytes(&self) -> Vec<u8> {
        let mut l4 = vec![0x12, 0x34, 0x56, 0x78];
        if self.tcp {
            l4.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0x18, 9, 9, 0, 0, 0, 0]);
        } else {
            l4.extend_from_slice(&[0; 4]);
        }
        l4.extend(self.stack.bytes());
        l4.extend_from_slice(&self.payload);
        let len = l4.len() as u16;
        if !self.tcp {
            l4[4..6].copy_from_slice(&len.to_be_bytes());
        }
        let addresses: Vec<u8> = (1..=if self.ipv6 { 32 } else { 8 }).collect();
        let protocol = if self.tcp { 6 } else { 17 };
        let pseudo = [&addresses[..], &[0, protocol], &len.to_be_bytes(), &l4].concat();
        let mut checksum = !sum(&pseudo) as u16;
        if self.damage != 0 {
            let damaged = [(!checksum).to_be_bytes(), self.damage.to_be_bytes()].concat();
            checksum = !sum(&damaged) as u16;
        }
        if !self.tcp && checksum == 0 {
            checksum = 0xFFFF;
        }
        if !self.tcp && self.unchecked {
            checksum = 0;
        }
        let at = if self.tcp { 16 } else { 6 };
        l4[at..at + 2].copy_from_slice(&checksum.to_be_bytes());

        let mut frame = vec![0xAB; 12];
        for tag in 0..self.tags {
            frame.extend_from_slice(&[if tag == 0 { 0x88 } else { 0x81 }, [0xA8, 0][tag], 0, 5]);
        }
        if self.tags == 1 {
            frame[12..14].copy_from_slice(&[0x81, 0]);
        }
        if self.ipv6 {
            frame.extend_from_slice(&[0x86, 0xDD, 0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
            frame.extend_from_slice(&len.to_be_bytes());
            frame.extend_from_slice(&[protocol, 64]);
            frame.extend_from_slice(&addresses);
        } else {
            let total = 20 + 4 * self.options as u16 + len;
            let mut ip = vec![0x45 + self.options as u8, self.tos];
            ip.extend_from_slice(&total.to_be_bytes());
            ip.extend_from_slice(&[0xAA, 0xBB, 0x40, 0, 64, protocol, 0, 0]);
            ip.extend_from_slice(&addresses);
            ip.resize(20 + 4 * self.options, 1);
            let checksum = !sum(&ip) as u16;
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend_from_slice(&[8, 0]);
            frame.extend(ip);
        }
        frame.extend(l4);
        frame
    }

    /// How long its datagram is.
    fn datagram(&self) -> usize {
        self.bytes().len() - 14 - 4 * self.tags
    }

    /// As it leaves a switch in which it was for so long, by the specification.
    fn after(&self, latency: u32) -> Self {
        let mut after = self.clone();
        let Stack { version, domain, instructions, words, length, .. } = self.stack;
        let of_domain = self.tos & 0x10 != 0 && version == 2 && domain == DOMAIN;
        if !of_domain || (instructions, words) != (INSTRUCTIONS, 2) || length.is_some() {
            return after;
        }
        let stack = &mut after.stack;
        if stack.left == 0 {
            stack.exceeded = true;
        } else if self.datagram() + 8 > usize::from(MTU) {
            stack.too_long = true;
        } else {
            stack.left -= 1;
            stack.hops.insert(0, [NODE, latency]);
        }
        after
    }
}

fn switch() -> Switch {
    static PROGRAM: LazyLock<Program> = LazyLock::new(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../sketchint.p4");
        Program::load(path, &[]).unwrap_or_else(|error| panic!("{error}"))
    });
    let mut switch = Switch::new(&PROGRAM);
    let send = Entry::new("send").exact("ingress_port", IN).arg("port", OUT);
    switch.add_entry("port_pair", &send).unwrap();
    let limit = Entry::new("limit").exact("port", OUT).arg("mtu", MTU);
    switch.add_entry("mtus", &limit).unwrap();
    let push = Entry::new("push_as")
        .exact("hdr.telemetry.version", 2u8)
        .exact("hdr.telemetry.reserved", 0u16)
        .exact("hdr.telemetry.words", 2u8)
        .exact("hdr.telemetry.instructions", INSTRUCTIONS)
        .exact("hdr.telemetry.domain", DOMAIN)
        .exact("hdr.telemetry.own_instructions", 0u16)
        .exact("hdr.telemetry.own_flags", 0u16)
        .exact("hdr.shim.length[0:0]", 1u8)
        .arg("number", NODE);
    switch.add_entry("domain", &push).unwrap();
    switch
}

/// What the switch makes of a packet that is in it from one time to another.
fn passed(switch: &mut Switch, from: u64, to: u64, bytes: &[u8]) -> Vec<u8> {
    let mut sent = Vec::new();
    switch.set_time(from);
    switch.offer(IN, bytes);
    switch.run_ingress();
    switch.set_time(to);
    switch.run(4, |port, bytes| sent.push((port, bytes.to_vec())));
    let [(OUT, bytes)] = &sent[..] else { panic!("one packet, not {sent:?}") };
    bytes.clone()
}

fn stacks() -> impl Strategy<Value = Stack> {
    fn odd<T: Clone + std::fmt::Debug>(usual: T, other: T) -> impl Strategy<Value = T> {
        prop_oneof![9 => Just(usual), 1 => Just(other)]
    }
    let hops = prop::collection::vec(any::<[u32; 2]>(), 0..9);
    let left = prop_oneof![Just(0u8), Just(1), any::<u8>()];
    let which = (odd(2u8, 1), odd(DOMAIN, 0xC0DF), odd(INSTRUCTIONS, 0x8000), odd(2u8, 1));
    (which, any::<[bool; 3]>(), left, odd(None, Some(1)), hops).prop_map(
        |(
            (version, domain, instructions, words),
            [discard, exceeded, too_long],
            left,
            length,
            hops,
        )| {
            Stack {
                version,
                domain,
                instructions,
                words,
                discard,
                exceeded,
                too_long,
                left,
                length,
                hops,
            }
        },
    )
}

fn frames() -> impl Strategy<Value = Frame> {
    let payload = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..90),
        // About as long as the port lets through.
        1 => (1380usize..1500).prop_map(|len| vec![7; len]),
    ];
    let kind = (0usize..3, any::<[bool; 3]>(), 0usize..11);
    let damage = prop_oneof![Just(0u16), any::<u16>()];
    let tos = prop_oneof![9 => Just(0xB0u8), 1 => Just(0xA0)];
    (kind, damage, tos, payload, stacks()).prop_map(
        |((tags, [ipv6, tcp, unchecked], options), damage, tos, payload, stack)| {
            let options = if ipv6 { 0 } else { options };
            Frame { tags, ipv6, tcp, options, unchecked, damage, tos, payload, stack }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_packet_leaves_with_one_more_hop_or_says_why_not(
        frame in frames(),
        from in 0u64..1 << 48,
        (latency, says) in prop_oneof![
            any::<u32>().prop_map(|latency| (u64::from(latency), latency.min(0xFFFF_FFFE))),
            ((1u64 << 32)..(1 << 40)).prop_map(|latency| (latency, 0xFFFF_FFFE)),
            Just((u64::from(u32::MAX), 0xFFFF_FFFE)),
        ],
    ) {
        let to = (from + latency) & 0xFFFF_FFFF_FFFF;
        let sent = passed(&mut switch(), from, to, &frame.bytes());
        prop_assert_eq!(sent, frame.after(says).bytes());
    }

    /// Whatever comes in comes out, once, and grows by a hop at most.
    #[test]
    fn any_bytes_pass(frame in frames(), at in any::<prop::sample::Index>(), byte: u8, cut in 0usize..60) {
        let mut bytes = frame.bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut.min(bytes.len() - 14));
        let mut switch = switch();
        let sent = switch.inject(IN, &bytes);
        // A datagram that says to be longer than it came is dropped.
        prop_assert!(sent.len() <= 1);
        for (_, sent) in sent {
            prop_assert!(sent.len() == bytes.len() || sent.len() == bytes.len() + 8);
        }
    }
}

#[test]
fn what_became_of_stacks_is_counted() {
    let stack = Stack {
        version: 2,
        domain: DOMAIN,
        instructions: INSTRUCTIONS,
        words: 2,
        discard: false,
        exceeded: false,
        too_long: false,
        left: 4,
        length: None,
        hops: vec![[1, 5]],
    };
    let frame = Frame {
        tags: 0,
        ipv6: false,
        tcp: true,
        options: 0,
        unchecked: false,
        damage: 0,
        tos: 0x10,
        payload: vec![1; 40],
        stack,
    };
    let with = |change: fn(&mut Frame)| {
        let mut frame = frame.clone();
        change(&mut frame);
        frame.bytes()
    };
    let mut switch = switch();
    for bytes in [
        with(|_| ()),
        with(|frame| frame.stack.left = 0),
        with(|frame| frame.payload.resize(1440, 0)),
        with(|frame| frame.stack.domain = 1),
        with(|frame| frame.tos = 0),
    ] {
        switch.inject(IN, &bytes);
    }
    let counted = |index| switch.read_counter("Egress.push.packets", index).unwrap().packets;
    assert_eq!([0, 1, 2, 3, 4].map(counted), [0, 1, 1, 1, 1]);
}
