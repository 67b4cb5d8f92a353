//! `p4src/sketchint.p4` on the model of a Tofino, beside the sketches of a software sink: the same
//! packets for hosts, real ones and fuzzed ones, with INT and without, leave the same words in
//! every register, window by window.
//!
//! Real captures are read from the directory that `CALUMMA_DATA` names, or from `../shared/data`
//! beside the repository.

use std::num::NonZeroU16;
use std::path::Path;

use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::{Parsed, parse};
use calumma_plane::int::{Hop, Insertion, Instructions, header, push};
use calumma_sketch::sketchint::{Shape, Sink};
use calumma_sketch::{FlowKey, HashFamily, HashKey};
use calumma_switchd::hashes;
use calumma_tna::{Entry, Program, Switch};

use crate::captures::{LONGEST, captured};
use crate::switch::{FABRIC, HOST, Numbers, add, checksum, packet};

/// A second host, whose packets for the first one cross no other switch.
const LOCAL: u16 = 3;
const CPU: u16 = 64;
const RECIRCULATION: u16 = 68;
/// Room for what is put into a packet.
const STACK: usize = 416;
const DOMAIN: NonZeroU16 = NonZeroU16::new(0xBEEF).unwrap();

/// The program's arrays among the five of a software sink: which one, and counters of a group.
const ARRAYS: [(&str, usize, usize); 3] =
    [("level8", 2, 1 << 16), ("level16", 3, 1 << 15), ("level32", 4, 1 << 14)];

/// What became of packets for hosts, as the program's counter has it.
#[derive(Clone, Copy, Debug)]
enum Became {
    NoFlow,
    Recorded,
    Late,
}

/// A sink of a host port and a fabric port, and for each group what a software sink would keep.
struct Rig {
    switch: Switch,
    family: HashFamily,
    groups: [Sink<FlowKey>; 2],
    /// The group of each timestamp bit.
    windows: [Option<usize>; 2],
    /// The bit of packets from hosts.
    timestamp: usize,
    became: [u64; 3],
}

/// Shape of a software sink whose widest arrays are those of the program.
fn shape() -> Shape {
    Shape { tower_words: 1 << 14, pair_buckets: 16, row_sets: 0, ..Shape::default() }
}

impl Rig {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4src/sketchint.p4");
        let program = Program::load(path, &[]).unwrap_or_else(|error| panic!("{error}"));
        let mut switch = Switch::new(&program);
        let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
        for entry in hashes::secrets(&family) {
            add(&mut switch, &entry);
        }
        for (port, to) in [(FABRIC, HOST), (LOCAL, HOST), (HOST, FABRIC)] {
            let send = Entry::new("send").exact("ingress_port", port).arg("port", to);
            switch.add_entry("port_pair", &send).unwrap();
        }
        for port in [HOST, LOCAL] {
            let host = Entry::new("host").exact("ingress_port", port);
            switch.add_entry("Ingress.host_ports", &host).unwrap();
            let host = Entry::new("host").exact("egress_port", port).arg("dscp", 0u8);
            switch.add_entry("Egress.host_ports", &host).unwrap();
            let sink = Entry::new("sink").exact("port", port);
            switch.add_entry("Ingress.sink.ports", &sink).unwrap();
        }
        switch.set_default_action("Ingress.clearing", "clear", &[]).unwrap();
        let known = Entry::new("known")
            .exact("hdr.telemetry.version", 2u8)
            .exact("hdr.telemetry.reserved", 0u16)
            .ternary("hdr.telemetry.domain", DOMAIN.get(), 0xFFFFu16)
            .exact("hdr.telemetry.own_instructions", 0u16)
            .exact("hdr.telemetry.own_flags", 0u16);
        switch.add_entry("Ingress.sink.domains", &known).unwrap();
        let groups = [(); 2].map(|()| Sink::new(shape(), Some(1), u32::MAX, 500).unwrap());
        let (windows, became) = ([None; 2], [0; 3]);
        Self { switch, family, groups, windows, timestamp: 0, became }
    }

    /// Packets with that timestamp bit are recorded in that group from now on, or in none.
    fn open(&mut self, bit: usize, group: Option<usize>) {
        let entry = |name| Entry::new(name).exact("hdr.bridge.timestamp", bit as u8);
        if self.windows[bit].is_some() {
            self.switch.delete_entry("Egress.windows", &entry("")).unwrap();
        }
        if let Some(group) = group {
            let entry = entry("record_in").arg("group", group as u8);
            self.switch.add_entry("Egress.windows", &entry).unwrap();
        }
        self.windows[bit] = group;
    }

    /// Packets of hosts have that timestamp bit from now on.
    fn flip(&mut self, bit: usize) {
        self.timestamp = bit;
        let value = [("value", bit as u128)];
        self.switch.set_default_action("Ingress.timestamp", "set_timestamp", &value).unwrap();
    }

    /// A packet comes by that port.
    fn pass(&mut self, port: u16, bytes: &[u8]) {
        let mut sent = Vec::new();
        self.switch.inject_with(port, bytes, |port, bytes| sent.push((port, bytes.to_vec())));
        let sent = match &sent[..] {
            [] => return,
            [(HOST, sent)] => sent,
            other => panic!("{bytes:?}: {other:?}"),
        };
        let became = match parse(sent, sent.len()) {
            Parsed::Flow { key, ip_offset } if is_read(bytes, ip_offset) => {
                let bit = match port {
                    LOCAL => self.timestamp,
                    _ => usize::from(bytes[ip_offset + 1] >> 7),
                };
                match self.windows[bit] {
                    None => Became::Late,
                    Some(group) => {
                        let hashes = self.family.hash(&key);
                        self.groups[group].record(&hashes, &key, None, 0);
                        Became::Recorded
                    }
                }
            }
            _ => Became::NoFlow,
        };
        self.became[became as usize] += 1;
    }

    /// Every word of every register is the software sink's.
    fn compare(&self) {
        assert_eq!(self.switch.program().registers().len(), ARRAYS.len());
        for (name, level, counters) in ARRAYS {
            let register = format!("Egress.sizes.{name}.counters");
            let [words] = self.switch.read_register_lanes(&register).unwrap()[..] else {
                panic!("{register} has one lane");
            };
            assert_eq!(words.len(), 2 * counters);
            for (group, (sink, words)) in self.groups.iter().zip(words.chunks(counters)).enumerate()
            {
                let most = shape().tower()[level].max();
                let wanted = sink.sizes().counters(level).map(|count| count.min(most));
                let differs = wanted.zip(words).position(|(wanted, word)| wanted != *word);
                assert_eq!(differs, None, "{register}, group {group}");
            }
        }
        assert_eq!(self.switch.statistics().out_of_range, 0);
        let counted =
            [0, 1, 2].map(|cell| self.switch.read_counter("Egress.packets", cell).unwrap().packets);
        assert_eq!(counted, self.became);
    }

    fn clear(&mut self, group: usize) {
        for (name, _, counters) in ARRAYS {
            let register = format!("Egress.sizes.{name}.counters");
            for at in group * counters..(group + 1) * counters {
                self.switch.write_register(&register, at, &[0]).unwrap();
            }
        }
        self.groups[group].clear();
    }
}

/// Whether the program's parser can read a packet that software reads to the ports: it looks at all
/// of TCP's and UDP's headers, and behind the marker for the two of a stack.
fn is_read(bytes: &[u8], ip: usize) -> bool {
    let header = ip + 4 * usize::from(bytes[ip] & 0xF);
    let fragment = u16::from_be_bytes([bytes[ip + 6], bytes[ip + 7]]);
    let (is_marked, is_cut) = (bytes[ip + 1] & 0x10 != 0, fragment & 0x2000 != 0);
    let l4 = match bytes[ip + 9] {
        6 => 20,
        17 => 8,
        _ => return true,
    };
    if fragment & 0x1FFF != 0 || is_cut && !is_marked {
        return true;
    }
    if !is_marked {
        return bytes.len() >= header + l4;
    }
    match bytes.get(header + l4..header + l4 + 4) {
        Some(&[0x10, _, 0, last]) if last & 3 == 0 => bytes.len() >= header + l4 + 16,
        shim => shim.is_some(),
    }
}

/// The packet with this timestamp bit and the marker cleared, its checksum right.
fn stamped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let Parsed::Flow { ip_offset: ip, .. } = parse(&bytes, usize::MAX) else { return bytes };
    bytes[ip + 1] = bytes[ip + 1] & 0x6F | (bit as u8) << 7;
    bytes[ip + 10..ip + 12].fill(0);
    let sum = checksum(&bytes[ip..ip + usize::from(bytes[ip] & 0xF) * 4]);
    bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The packet as it comes to the sink over so many switches, where it can carry a stack.
fn with_stack(bytes: &[u8], hops: u16) -> Vec<u8> {
    let Parsed::Flow { ip_offset: ip, .. } = parse(bytes, bytes.len()) else {
        return bytes.to_vec();
    };
    let mut packet = Frame::with_headroom(256, bytes);
    for node in (3..).take(hops.into()) {
        let insertion = Insertion {
            domain: DOMAIN,
            node: NonZeroU16::new(node).unwrap(),
            instructions: Instructions::DEFAULT,
            hops: 16,
        };
        let hop = Hop { node: node.into(), latency_ns: 1000, ..Hop::UNKNOWN };
        match header::look(&packet, ip, calumma_plane::int::Domains::ANY) {
            header::Seen::Stack(found) if node > 3 => {
                push::transit(&mut packet, &found, &hop, 9000);
            }
            _ if node == 3 => {
                let dscp = bytes[ip + 1] >> 2;
                let _ = push::source(&mut packet, ip, (&insertion, &hop), dscp, 9000);
            }
            _ => {}
        }
    }
    packet.bytes().to_vec()
}

/// Damage on the way, to some packets.
fn damaged(mut bytes: Vec<u8>, numbers: &mut Numbers) -> Vec<u8> {
    match numbers.below(8) {
        0 => {
            for _ in 0..=numbers.below(4) {
                let at = 12 + numbers.below(bytes.len().min(90) as u64 - 12) as usize;
                bytes[at] = numbers.below(256) as u8;
            }
        }
        1 => bytes.truncate(14 + numbers.below(80) as usize),
        _ => {}
    }
    bytes
}

/// All the packets, in windows of two epochs of `epoch` packets, some of which come late. Those
/// that are late by a window come where none is open, now and then.
fn play(packets: impl Iterator<Item = Vec<u8>>, epoch: usize, damages: bool, seed: u64) -> Rig {
    let (mut rig, mut numbers) = (Rig::new(), Numbers(seed));
    let mut packets = packets.peekable();
    let (mut late, mut number): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
    while packets.peek().is_some() {
        let (bit, group) = (number & 1, (number / 2) & 1);
        rig.open(bit, Some(group));
        rig.flip(bit);
        for bytes in packets.by_ref().take(epoch) {
            let bytes = stamped(&bytes, bit);
            let mut bytes = match numbers.below(4) {
                0 => bytes,
                hops => with_stack(&bytes, [1, 3, 16][hops as usize - 1]),
            };
            if damages {
                bytes = damaged(bytes, &mut numbers);
            }
            let port = if numbers.below(10) == 0 { LOCAL } else { FABRIC };
            rig.pass(port, &bytes);
            if numbers.below(30) == 0 {
                late.push(bytes);
            }
            if numbers.below(60) == 0
                && let Some(bytes) = late.pop()
            {
                rig.pass(FABRIC, &bytes);
            }
        }
        rig.compare();
        if bit == 1 {
            // The window is over, and all bits are of the next one.
            rig.open(0, None);
            late.drain(..).for_each(|bytes| rig.pass(FABRIC, &bytes));
            rig.clear(group ^ 1);
            rig.compare();
        }
        number += 1;
    }
    let [no_flow, recorded, late] = rig.became;
    assert!(number > 4 && recorded > 0 && late > 0, "{number} epochs: {:?}", rig.became);
    assert!(!damages || no_flow > 0);
    rig
}

#[test]
fn captured_packets_leave_the_words_of_a_software_sink() {
    for name in ["mixed-captures.pcap", "backbone-65k.pcap"] {
        if let Some(frames) = captured(name, LONGEST - STACK) {
            play(frames.into_iter().take(6_000), 1_000, false, 3);
        }
    }
}

#[test]
fn fuzzed_packets_leave_the_words_of_a_software_sink() {
    let mut numbers = Numbers(42);
    let frames = std::iter::repeat_with(move || packet(&mut numbers).bytes).take(6_000);
    play(frames, 1_000, true, 5);
}

#[test]
#[ignore = "400,000 packets"]
fn many_packets_leave_the_words_of_a_software_sink() {
    for name in ["mixed-captures.pcap", "backbone-65k.pcap"] {
        if let Some(frames) = captured(name, LONGEST - STACK) {
            play(frames.into_iter().take(140_000), 12_500, false, 7);
        }
    }
    let mut numbers = Numbers(43);
    let frames = std::iter::repeat_with(move || packet(&mut numbers).bytes).take(200_000);
    play(frames, 25_000, true, 9);
}

/// A packet of one flow.
fn of_one_flow() -> Vec<u8> {
    stamped(&packet(&mut Numbers(1)).bytes, 0)
}

#[test]
fn a_counter_at_its_maximum_stays() {
    let mut rig = Rig::new();
    rig.open(0, Some(1));
    (0..300).for_each(|_| rig.pass(FABRIC, &of_one_flow()));
    rig.compare();
    for (packets, (name, level, counters)) in [300, 302, 304].into_iter().zip(ARRAYS) {
        let register = format!("Egress.sizes.{name}.counters");
        let words = rig.switch.read_register_lanes(&register).unwrap()[0];
        let [(at, count)] = words.iter().enumerate().filter(|it| *it.1 > 0).collect::<Vec<_>>()[..]
        else {
            panic!("one counter of {name}");
        };
        assert!(at >= counters, "of group 1");
        let most = shape().tower()[level].max();
        assert_eq!(*count, most.min(packets));
        rig.switch.write_register(&register, at, &[most - 1]).unwrap();
        for _ in 0..2 {
            rig.pass(FABRIC, &of_one_flow());
            assert_eq!(rig.switch.read_register(&register, at).unwrap(), [most]);
        }
    }
}

/// The elements that a collection packet brings of a source, from `next` on, or that it clears.
fn collected(rig: &mut Rig, (source, access): (u8, u8), next: u16, left: u16) -> Vec<u32> {
    let mut request = vec![2; 12];
    request.extend_from_slice(&[0x88, 0xB5, source, access]);
    for field in [next, left, 300, 300, 0, 7] {
        request.extend_from_slice(&field.to_be_bytes());
    }
    let sent = rig.switch.inject(CPU, &request);
    let [(CPU, report)] = &sent[..] else { panic!("{} reports", sent.len()) };
    let words =
        report[28..].chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
    // The newest comes first.
    words
        .take(if access == 2 { left.into() } else { 0 })
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect()
}

#[test]
fn each_array_of_each_group_is_collected_and_cleared() {
    let mut rig = Rig::new();
    for port in [CPU, RECIRCULATION] {
        let entry = Entry::new("accept")
            .exact("ingress_port", port)
            .arg("report_port", CPU)
            .arg("recirculation_port", RECIRCULATION)
            .arg("session", 5u16);
        rig.switch.add_entry("collectors", &entry).unwrap();
    }
    for (array, (name, _, counters)) in (0_u8..).zip(ARRAYS) {
        let register = format!("Egress.sizes.{name}.counters");
        for (group, first) in [(0, 0), (1, counters)] {
            let source = 2 * array + group;
            for (from, left) in [(0, 5), (counters - 7, 7)] {
                let wanted: Vec<u32> = (1..=left as u32).map(|n| n + u32::from(source)).collect();
                for (at, word) in (first + from..).zip(&wanted) {
                    rig.switch.write_register(&register, at, &[*word]).unwrap();
                }
                let (next, left) = (from as u16, left as u16);
                assert_eq!(collected(&mut rig, (source, 2), next, left), wanted, "{register}");
                collected(&mut rig, (source, 4), next, left);
            }
        }
        let words = rig.switch.read_register_lanes(&register).unwrap()[0];
        assert!(words.iter().all(|word| *word == 0), "{register}");
    }
    rig.compare();
}
