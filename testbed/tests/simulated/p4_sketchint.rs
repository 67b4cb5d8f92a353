//! `p4src/sketchint.p4` on the model of a Tofino, beside the sketches of a software sink: the same
//! packets for hosts, real ones and fuzzed ones, with INT and without, leave the same words in
//! every register, window by window.
//!
//! Real captures are read from the directory that `CALUMMA_DATA` names, or from `../shared/data`
//! beside the repository.

mod collecting;
mod inflated;
mod large;
mod marks;
mod packets;

use std::num::NonZeroU16;
use std::path::Path;

use calumma_plane::int::{Hop, MOST_HOPS, Stack};
use calumma_sketch::sketchint::{Met, PairLevel, Pairs, Shape, Sink, flow_word};
use calumma_sketch::{HashFamily, HashKey, WideKey};
use calumma_switchd::hashes;
use calumma_switchd::sketchint::HASH_UNITS;
use calumma_tna::{Entry, Program, Switch};

use self::inflated::Inflated;
use self::large::{Key, Large};
use self::packets::{
    class_of_ipv6, damaged, flow, is_read, latency, packet6, stamped, taken, tos, transport,
    with_stack,
};
use crate::captures::{LONGEST, captured};
use crate::switch::{FABRIC, HOST, Numbers, add, packet};

/// A second host, whose packets for the first one cross no other switch.
const LOCAL: u16 = 3;
const CPU: u16 = 64;
/// Room for what is put into a packet.
const STACK: usize = 416;
const DOMAIN: NonZeroU16 = NonZeroU16::new(0xBEEF).unwrap();

/// The program's arrays among the five of a software sink: which one, and counters of a group.
const ARRAYS: [(&str, usize, usize); 3] =
    [("level8", 2, 1 << 15), ("level16", 3, 1 << 14), ("level32", 4, 1 << 13)];

/// The program's towers of pairs: of the first five switches of a path, and of itself.
const PLACES: [&str; 6] = ["place0", "place1", "place2", "place3", "place4", "own"];
/// Pairs of a group in each of their arrays.
const PAIRS: [usize; Pairs::LEVELS] = [1 << 14, 1 << 13, 1 << 12];
/// The switch's own number.
const OWN: u32 = 0x1234;

/// Sums of what became of packets, and how many a group has.
const TOTALS: &str = "Egress.totals.sums";
const EVENTS: usize = 128;
/// Packets of IPv6 for hosts that no flow is known of.
const UNCLASSIFIED: usize = 10;
/// More for packets of large flows whose key is not there.
const KEYLESS: usize = 32;

/// More for packets with a stack by which their flow's key came there.
const KEPT: usize = 8;

/// More for packets with an inflated latency.
const INFLATED: usize = 64;

/// What is said of a packet that is recorded, the flow aside.
fn said(port: u16, bytes: &[u8], ip: usize, stack: Option<&Stack>) -> usize {
    let Some(stack) = stack.filter(|_| port == FABRIC) else {
        return if port == LOCAL { 9 } else { 8 };
    };
    let (protocol, header) = transport(bytes, ip);
    let l4 = if protocol == 6 { 20 } else { 8 };
    // E and M in the first bytes of the metadata.
    let flags = u16::from_be_bytes([bytes[header + l4 + 4], bytes[header + l4 + 5]]);
    let is_beyond = stack.len() > PLACES.len() - 1;
    16 + 4 * usize::from(is_beyond) + usize::from(flags >> 9 & 3)
}

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
    groups: [Sink<WideKey>; 2],
    /// Of each group, what was met at each place, in counters of 32 bits.
    places: [[Pairs; PLACES.len()]; 2],
    /// Whether the program counts by ACU.
    acu: bool,
    /// Of each group, sizes by the program's own three arrays, and the keys of large flows.
    large: [Large; 2],
    /// Packets of large flows: those whose key is there, and the others.
    kept: [u64; 2],
    /// What notices have said of inflated latencies.
    inflated: Inflated,
    /// Stacks taken out: of hops that all have a place, and of more.
    stacks: [u64; 2],
    /// Of each group, what was said of packets.
    said: [[u32; EVENTS]; 2],
    now: u64,
    /// The group of each timestamp bit.
    windows: [Option<usize>; 2],
    /// The bit of packets from hosts.
    timestamp: usize,
    became: [u64; 3],
}

/// Shape of a software sink whose widest arrays are those of the program.
fn shape() -> Shape {
    Shape { tower_words: 1 << 13, row_sets: 0, ..Shape::default() }
}

/// In units of 64 ns.
fn units(latency_ns: u32) -> u32 {
    if latency_ns == u32::MAX { 0 } else { latency_ns.div_ceil(64) }
}

impl Rig {
    fn new(acu: bool) -> Self {
        let defines = acu.then(|| ("ACU".to_owned(), "1".to_owned()));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4src/sketchint.p4");
        let program =
            Program::load(path, defines.as_slice()).unwrap_or_else(|error| panic!("{error}"));
        let mut switch = Switch::new(&program);
        let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
        for entry in hashes::secrets_of_lanes(&family, &HASH_UNITS) {
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
        let above = ["most8", "most16", "most32"].map(|name| (name, large::MOST.into()));
        switch.set_default_action("Egress.large.threshold", "above", &above).unwrap();
        for number in packets::EXTENSIONS {
            let hide = Entry::new("hide").exact("hdr.ipv6.next_header", number);
            switch.add_entry("Ingress.sink.unread", &hide).unwrap();
        }
        inflated::watch(&mut switch);
        let number = [("number", OWN.into())];
        switch.set_default_action("Egress.own", "number_as", &number).unwrap();
        let known = Entry::new("known")
            .exact("hdr.telemetry.version", 2u8)
            .exact("hdr.telemetry.reserved", 0u16)
            .ternary("hdr.telemetry.domain", DOMAIN.get(), 0xFFFFu16)
            .exact("hdr.telemetry.own_instructions", 0u16)
            .exact("hdr.telemetry.own_flags", 0u16);
        switch.add_entry("Ingress.sink.domains", &known).unwrap();
        let groups = [(); 2].map(|()| Sink::new(shape(), Some(OWN), u32::MAX, 500).unwrap());
        let places = [(); 2].map(|()| PLACES.map(|_| Pairs::new(wide_pairs())));
        let (windows, became, stacks) = ([None; 2], [0; 3], [0; 2]);
        let (timestamp, now) = (0, 1 << 33);
        let (large, kept) = ([Large::new(acu), Large::new(acu)], [0; 2]);
        Self {
            switch,
            family,
            groups,
            places,
            acu,
            large,
            kept,
            inflated: Inflated::new(),
            stacks,
            said: [[0; EVENTS]; 2],
            now,
            windows,
            timestamp,
            became,
        }
    }

    /// Packets with that timestamp bit are recorded in that group from now on, or in none.
    fn open(&mut self, bit: usize, group: Option<usize>) {
        let entry = |name| Entry::new(name).exact("hdr.bridge.timestamp", bit as u8);
        if self.windows[bit].is_some() {
            self.switch.delete_entry("Egress.windows", &entry("")).unwrap();
        }
        if let Some(group) = group {
            let entry = entry("record_in").arg("group", group as u8);
            let entry = entry.arg("of_turn", self.inflated.turns[group]);
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

    /// A packet comes by that port, and is in the switch for so long.
    fn pass(&mut self, port: u16, bytes: &[u8], own_ns: u32) {
        let mut sent = Vec::new();
        self.switch.set_time(self.now);
        self.switch.offer(port, bytes);
        self.switch.run_ingress();
        self.now += u64::from(own_ns);
        self.switch.set_time(self.now);
        self.switch.run(4, |port, bytes| sent.push((port, bytes.to_vec())));
        let notice = sent.iter().position(|&(port, _)| port == CPU).map(|at| sent.remove(at).1);
        let sent = match &sent[..] {
            [] => return,
            [(HOST, sent)] => sent,
            other => panic!("{bytes:?}: {other:?}"),
        };
        let stack = taken(port, bytes);
        if let Some(stack) = &stack {
            self.stacks[usize::from(stack.len() > 5)] += 1;
        }
        let group = |tos: u8| match port {
            LOCAL => self.windows[self.timestamp],
            _ => self.windows[usize::from(tos >> 7)],
        };
        let became = match flow(sent) {
            Some((key, ip)) if is_read(bytes, ip) => match group(tos(bytes, ip)) {
                None => Became::Late,
                Some(group) => {
                    let met = self.met(group, &key, stack.as_ref(), own_ns);
                    let of_key = self.record(group, &key, stack.as_ref(), own_ns);
                    let mut event = said(port, bytes, ip, stack.as_ref());
                    let is_first = of_key == Key::New && event >= 16;
                    match of_key {
                        Key::Refused => event += KEYLESS,
                        Key::New if is_first => event += KEPT,
                        _ => {}
                    }
                    let of_path =
                        notice.as_ref().is_some_and(|notice| inflated::is_of_path(notice));
                    if self.inflated.check(&met, notice.is_some() && !of_path) {
                        event += INFLATED;
                    }
                    self.said[group][event] += 1;
                    let number = self.said[group][event];
                    assert_eq!(of_path, is_first && event < INFLATED, "{key}: {event}");
                    let numbered = (group * EVENTS + event, number);
                    match (notice, &stack) {
                        (Some(notice), Some(stack)) if of_path => {
                            self.inflated.take_path(&notice, numbered, (&key, stack));
                        }
                        (Some(notice), _) => self.inflated.take(&notice, numbered, (&key, &met)),
                        (None, _) => {}
                    }
                    Became::Recorded
                }
            },
            _ => {
                if let Some(group) = class_of_ipv6(bytes).and_then(group) {
                    self.said[group][UNCLASSIFIED] += 1;
                }
                Became::NoFlow
            }
        };
        self.became[became as usize] += 1;
    }

    /// What software does with a packet for a host. Gives what becomes of its key.
    fn record(&mut self, group: usize, key: &WideKey, stack: Option<&Stack>, own_ns: u32) -> Key {
        let hashes = self.family.hash(key);
        let hops: Vec<Hop> =
            stack.into_iter().flat_map(Stack::hops).take(PLACES.len() - 1).collect();
        let (mut nodes, mut latencies) = ([0; MOST_HOPS], [0; MOST_HOPS]);
        nodes.iter_mut().zip(&hops).for_each(|(place, hop)| *place = hop.node);
        latencies.iter_mut().zip(&hops).for_each(|(place, hop)| *place = hop.latency_ns);
        let met = Met::new((&nodes, hops.len()), (&latencies, None), false);
        let sink = &mut self.groups[group];
        sink.record(&hashes, key, stack.map(|_| met), 0);
        sink.record_own(&hashes, key, own_ns, 0);
        let of_key = self.large[group].record(&hashes, key);
        match of_key {
            Key::Small => {}
            Key::There | Key::New => self.kept[0] += 1,
            Key::Refused => self.kept[1] += 1,
        }
        let word = flow_word(&hashes);
        let [places @ .., own] = &mut self.places[group];
        for (place, hop) in places.iter_mut().zip(hops) {
            place.insert(word, hop.node, units(hop.latency_ns), 1);
        }
        own.insert(word, OWN, units(own_ns), 1);
        of_key
    }

    /// What a packet meets at each place, and what is known there of the packets before it.
    fn met(
        &self,
        group: usize,
        key: &WideKey,
        stack: Option<&Stack>,
        own_ns: u32,
    ) -> [Option<inflated::Met>; PLACES.len()] {
        let word = flow_word(&self.family.hash(key));
        let hops: Vec<Hop> = stack.into_iter().flat_map(Stack::hops).collect();
        std::array::from_fn(|at| {
            let (node, latency_ns) = match hops.get(at) {
                _ if at == PLACES.len() - 1 => (OWN, own_ns),
                Some(hop) => (hop.node, hop.latency_ns),
                None => return None,
            };
            let pairs = &self.places[group][at];
            Some(inflated::Met::new(pairs, word, node, latency_ns))
        })
    }

    /// Every pair of every register is what was met at its place, and all places together are the
    /// software sink's towers, once counters are no wider than these have them.
    fn compare_pairs(&self) {
        for (level, buckets) in PAIRS.into_iter().enumerate() {
            let PairLevel { latency_bits, packet_bits, .. } = shape().pairs()[level];
            let most = [latency_bits, packet_bits].map(|bits| u32::MAX >> (32 - bits));
            let mut sums = [vec![[0_u32; 2]; buckets], vec![[0; 2]; buckets]];
            for (at, name) in PLACES.into_iter().enumerate() {
                let register = format!("Egress.places.{name}.level{level}.pairs");
                let [latencies, packets] = &self.switch.read_register_lanes(&register).unwrap()[..]
                else {
                    panic!("{register} has two lanes");
                };
                assert_eq!(latencies.len(), 2 * buckets);
                for (group, sums) in sums.iter_mut().enumerate() {
                    let wanted = self.places[group][at].buckets(level);
                    let of_group = group * buckets..(group + 1) * buckets;
                    let found = latencies[of_group.clone()].iter().zip(&packets[of_group]);
                    let found = found.map(|(&latency, &packets)| [latency, packets]);
                    let both = found.clone().zip(wanted.iter().copied()).enumerate();
                    let differs = both.into_iter().find(|(_, (found, of))| found != of);
                    assert_eq!(differs, None, "{register}, group {group}");
                    for (sum, found) in sums.iter_mut().zip(found) {
                        *sum = [0, 1].map(|of| sum[of].saturating_add(found[of]).min(most[of]));
                    }
                }
            }
            for (sink, sums) in self.groups.iter().zip(sums) {
                assert_eq!(sink.pairs().buckets(level), sums, "level {level}");
            }
        }
        let stacks = [0, 2].map(|at| self.switch.read_counter("Egress.stripped", at).unwrap());
        assert_eq!(stacks.map(|of| of.packets), self.stacks);
    }

    /// Every word of every register is the software sink's.
    fn compare(&self) {
        let registers = ARRAYS.len() + PLACES.len() * PAIRS.len() + large::REGISTERS.len() + 1;
        assert_eq!(self.switch.program().registers().len(), registers);
        let sums = self.switch.read_register_lanes(TOTALS).unwrap()[0];
        for (group, (sums, said)) in sums.chunks(EVENTS).zip(&self.said).enumerate() {
            assert_eq!(sums, said, "what became of packets, group {group}");
        }
        self.compare_pairs();
        for (group, large) in self.large.iter().enumerate() {
            large.compare(&self.switch, &self.family, group);
        }
        let kept = [0, 1].map(|at| self.switch.read_counter("Egress.large.packets", at).unwrap());
        assert_eq!(kept.map(|of| of.packets), self.kept);
        for (name, level, counters) in ARRAYS {
            let register = format!("Egress.sizes.{name}.counters");
            let [words] = self.switch.read_register_lanes(&register).unwrap()[..] else {
                panic!("{register} has one lane");
            };
            assert_eq!(words.len(), 2 * counters);
            for (group, (sink, words)) in self.groups.iter().zip(words.chunks(counters)).enumerate()
            {
                let counted = &self.large[group].sizes[level - 2];
                assert!(counted == words, "{register}, group {group}");
                if self.acu {
                    // A software sink's narrower arrays come before these.
                    continue;
                }
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
        for (name, (level, buckets)) in
            PLACES.iter().flat_map(|name| PAIRS.into_iter().enumerate().map(move |of| (name, of)))
        {
            let register = format!("Egress.places.{name}.level{level}.pairs");
            for at in group * buckets..(group + 1) * buckets {
                self.switch.write_register(&register, at, &[0, 0]).unwrap();
            }
        }
        for at in group * EVENTS..(group + 1) * EVENTS {
            self.switch.write_register(TOTALS, at, &[0]).unwrap();
        }
        self.said[group] = [0; EVENTS];
        self.inflated.turns[group] += 1;
        self.places[group].iter_mut().for_each(Pairs::clear);
        Large::clear_on(&mut self.switch, group);
        self.large[group].clear();
        self.groups[group].clear();
    }
}

fn wide_pairs() -> [PairLevel; Pairs::LEVELS] {
    PAIRS.map(|buckets| PairLevel { latency_bits: 32, packet_bits: 32, buckets: buckets as u32 })
}

/// All the packets, in windows of two epochs of `epoch` packets, some of which come late. Those
/// that are late by a window come where none is open, now and then.
fn play(
    acu: bool,
    packets: impl Iterator<Item = Vec<u8>>,
    epoch: usize,
    damages: bool,
    seed: u64,
) -> Rig {
    let (mut rig, mut numbers) = (Rig::new(acu), Numbers(seed));
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
                hops => {
                    let most = [1, 5, 16][hops as usize - 1];
                    with_stack(&bytes, 1 + numbers.below(most) as u16, &mut numbers)
                }
            };
            if damages {
                bytes = damaged(bytes, &mut numbers);
            }
            let port = if numbers.below(10) == 0 { LOCAL } else { FABRIC };
            rig.pass(port, &bytes, latency(&mut numbers).min(u32::MAX - 1));
            if numbers.below(30) == 0 {
                late.push(bytes);
            }
            if numbers.below(60) == 0
                && let Some(bytes) = late.pop()
            {
                rig.pass(FABRIC, &bytes, 7);
            }
        }
        rig.compare();
        if bit == 1 {
            // The window is over, and all bits are of the next one.
            rig.open(0, None);
            late.drain(..).for_each(|bytes| rig.pass(FABRIC, &bytes, 7));
            rig.clear(group ^ 1);
            rig.compare();
        }
        number += 1;
    }
    let [no_flow, recorded, late] = rig.became;
    assert!(number > 4 && recorded > 0 && late > 0, "{number} epochs: {:?}", rig.became);
    assert!(rig.kept[0] > 0, "no flow is large");
    assert!(rig.inflated.has_seen_any(), "no latency is inflated");
    assert!(!damages || no_flow > 0);
    rig
}

#[test]
fn captured_packets_leave_the_words_of_a_software_sink() {
    for name in ["mixed-captures.pcap", "backbone-65k.pcap"] {
        if let Some(frames) = captured(name, LONGEST - STACK) {
            play(false, frames.iter().take(6_000).cloned(), 1_000, false, 3);
            play(true, frames.into_iter().take(6_000), 1_000, false, 3);
        }
    }
}

#[test]
fn fuzzed_packets_leave_the_words_of_a_software_sink() {
    for acu in [false, true] {
        let rig = play(acu, fuzzed(42).take(6_000), 1_000, true, 5);
        let unclassified = rig.said.iter().map(|said| said[UNCLASSIFIED]).sum::<u32>();
        assert!(unclassified > 20, "{unclassified}");
    }
}

/// Any kind of packet, of either family.
fn fuzzed(seed: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut numbers = Numbers(seed);
    std::iter::repeat_with(move || match numbers.below(3) {
        0 => packet6(&mut numbers),
        _ => packet(&mut numbers).bytes,
    })
}

#[test]
#[ignore = "400,000 packets"]
fn many_packets_leave_the_words_of_a_software_sink() {
    for name in ["mixed-captures.pcap", "backbone-65k.pcap"] {
        if let Some(frames) = captured(name, LONGEST - STACK) {
            play(false, frames.iter().take(140_000).cloned(), 12_500, false, 7);
            play(true, frames.into_iter().take(140_000), 12_500, false, 7);
        }
    }
    for acu in [false, true] {
        play(acu, fuzzed(43).take(200_000), 25_000, true, 9);
    }
}

/// A packet of one flow.
fn of_one_flow() -> Vec<u8> {
    stamped(&packet(&mut Numbers(1)).bytes, 0)
}

#[test]
fn a_counter_at_its_maximum_stays() {
    for (acu, packets) in [(false, [300, 302, 304]), (true, [300, 301, 303])] {
        counters_stay_at_their_maximum(acu, packets);
    }
}

/// Sizes by each array at first, and after two packets for each of those before.
fn counters_stay_at_their_maximum(acu: bool, packets: [u32; 3]) {
    let mut rig = Rig::new(acu);
    inflated::look_away(&mut rig.switch);
    rig.open(0, Some(1));
    (0..300).for_each(|_| rig.pass(FABRIC, &of_one_flow(), 64));
    rig.compare();
    for (packets, (name, level, counters)) in packets.into_iter().zip(ARRAYS) {
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
            rig.pass(FABRIC, &of_one_flow(), 64);
            assert_eq!(rig.switch.read_register(&register, at).unwrap(), [most]);
        }
    }
    for level in 0..PAIRS.len() {
        let register = format!("Egress.places.own.level{level}.pairs");
        let packets = rig.switch.read_register_lanes(&register).unwrap()[1];
        let at = packets.iter().position(|&packets| packets > 0).unwrap();
        rig.switch.write_register(&register, at, &[u32::MAX - 4, u32::MAX - 1]).unwrap();
        for latency in [u32::MAX - 1, u32::MAX] {
            rig.pass(FABRIC, &of_one_flow(), 2 * 64 + 1);
            assert_eq!(rig.switch.read_register(&register, at).unwrap(), [latency, u32::MAX]);
        }
    }
}
