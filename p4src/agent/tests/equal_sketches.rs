//! The P4 program and the software edge's sketches agree: same packets, same registers, same marks.

use std::path::Path;

use calumma_sketch::{
    Arithmetic, Attention, EgressGroup, FlowKey, HashFamily, HashKey, Hierarchy, IngressGroup,
    Layout, Partition, SampleRate,
};
use calumma_switchd::entries::{self, Match, TableEntry};
use calumma_switchd::program;
use calumma_tna::{Entry, FieldMatch, Program, Switch};

const HOST: u16 = 1;
const FABRIC: u16 = 2;

/// A modelled switch with one host port and one fabric port, and what a software edge has.
struct Pair {
    layout: Layout,
    family: HashFamily,
    attention: Attention,
    switch: Switch,
}

impl Pair {
    fn new(arithmetic: Arithmetic, attention: Attention) -> Pair {
        let layout = Layout { arithmetic, ..Layout::default() };
        attention.validate(&layout).unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../edge.p4");
        let program = Program::load(path, &program::defines(&layout)).unwrap();
        let mut switch = Switch::new(&program);
        let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
        for entry in entries::secrets(&family) {
            switch.add_entry(&entry.table, &modelled(&entry)).unwrap();
        }
        let port = |port: u16| Entry::new("send").exact("ingress_port", port);
        switch.add_entry("port_pair", &port(HOST).arg("port", FABRIC)).unwrap();
        switch.add_entry("port_pair", &port(FABRIC).arg("port", HOST)).unwrap();
        let host = Entry::new("host").exact("ingress_port", HOST);
        switch.add_entry("Ingress.host_ports", &host).unwrap();
        let host = Entry::new("host").exact("egress_port", HOST).arg("dscp", 0b101u8);
        switch.add_entry("Egress.host_ports", &host).unwrap();
        Pair { layout, family, attention, switch }
    }

    /// Entries for the epoch, and its timestamp bit.
    fn begin(&mut self, epoch: u64) {
        for entry in entries::epoch(&self.layout, &self.attention, epoch) {
            let entry_there = modelled(&entry);
            if self.switch.add_entry(&entry.table, &entry_there).is_err() {
                self.switch.modify_entry(&entry.table, &entry_there).unwrap();
            }
        }
        let bit = u128::from(epoch & 1);
        self.switch.set_default_action("timestamp", "set_timestamp", &[("value", bit)]).unwrap();
    }

    /// The words of an encoder's group, in wire order.
    fn encoder(&self, name: &str, bit: usize, buckets: u32) -> Vec<u32> {
        let registers: &[&str] = match self.layout.arithmetic {
            Arithmetic::Prime => {
                &["fragment0.sums", "fragment1.sums", "fragment2.sums", "fragment3.sums", "counts"]
            }
            Arithmetic::Wrapping => &[
                "fragments01.sums",
                "fragments23.sums",
                "fragments45.sums",
                "fragment6_count.sums",
            ],
        };
        let buckets = buckets as usize;
        let mut words = Vec::new();
        for array in 0..3 {
            let lanes: Vec<&[u32]> = registers
                .iter()
                .flat_map(|register| {
                    let name = format!("{name}.array{array}.{register}");
                    self.switch.read_register_lanes(&name).unwrap()
                })
                .collect();
            for at in bit * buckets..(bit + 1) * buckets {
                words.extend(lanes.iter().map(|lane| lane[at]));
            }
        }
        words
    }

    fn counters(&self, level: usize, bit: usize) -> Vec<u32> {
        let counters = self.layout.classifier[level].counters as usize;
        let name = format!("classifier.level{level}.counters");
        let lanes = self.switch.read_register_lanes(&name).unwrap();
        lanes[0][bit * counters..(bit + 1) * counters].to_vec()
    }

    /// Both ingress registers equal the software group.
    fn assert_ingress_equal(&self, group: &IngressGroup, bit: usize) {
        for (level, shape) in self.layout.classifier.iter().enumerate() {
            let wanted = group.classifier().counters(level).map(|count| count.min(shape.max()));
            assert!(wanted.eq(self.counters(level, bit)), "classifier array {level}");
        }
        let words = self.encoder("upstream", bit, self.layout.upstream_buckets);
        assert!(group.upstream().words().eq(words), "upstream encoder");
    }

    fn assert_egress_equal(&self, group: &EgressGroup, bit: usize) {
        let words = self.encoder("downstream", bit, self.layout.downstream_buckets);
        assert!(group.downstream().words().eq(words), "downstream encoder");
    }
}

fn modelled(entry: &TableEntry) -> Entry {
    let mut out = Entry::new(entry.action);
    for (key, field) in &entry.keys {
        out = out.field(
            key,
            match *field {
                Match::Exact(value) => FieldMatch::Exact(value.into()),
                Match::Range(low, high) => FieldMatch::Range { low: low.into(), high: high.into() },
            },
        );
    }
    for (name, value) in &entry.args {
        out = out.arg(name, *value);
    }
    out
}

fn attention() -> Attention {
    Attention {
        t_h: 30,
        t_l: 3,
        sample_rate: SampleRate::new(0.4).unwrap(),
        partition: Partition { hh: 1024, hl: 2500, ll: 572 },
    }
}

/// Pseudo-random numbers that every run sees alike.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// A packet and the flow that it belongs to, if it is measured.
struct Packet {
    bytes: Vec<u8>,
    key: Option<FlowKey>,
    ip: usize,
}

/// Any kind of IPv4 packet: tags, options, fragments, protocols.
fn packet(numbers: &mut Numbers) -> Packet {
    // Small flows are many, large ones few.
    let flow = numbers.below(3000).min(numbers.below(3000)).min(numbers.below(3000)) as u32;
    let (src, dst) = (0x0A00_0000 + flow, 0xC0A8_0000 + flow % 7);
    let protocol = [6, 17, 132, 1][flow as usize % 4];
    let ports = (0x8000_0050_u32).rotate_left(flow % 32);
    let tags = flow as usize % 3;
    let options = if flow.is_multiple_of(11) { flow as usize % 10 + 1 } else { 0 };
    let fragment = if flow.is_multiple_of(13) { 5 } else { 0 };
    let payload = 8 + numbers.below(20) as usize;
    let mut bytes = vec![2; 12];
    for tag in 0..tags {
        bytes.extend_from_slice(if tag == 0 && tags == 2 { &[0x88, 0xa8] } else { &[0x81, 0] });
        bytes.extend_from_slice(&[0, 9]);
    }
    bytes.extend_from_slice(&[8, 0]);
    let ip = bytes.len();
    let total = (20 + 4 * options + payload) as u16;
    bytes.extend_from_slice(&[0x45 + options as u8, 0x03]);
    bytes.extend_from_slice(&total.to_be_bytes());
    bytes.extend_from_slice(&[0, 1, 0, fragment, 64, protocol, 0, 0]);
    bytes.extend_from_slice(&src.to_be_bytes());
    bytes.extend_from_slice(&dst.to_be_bytes());
    bytes.resize(bytes.len() + 4 * options, 1);
    let sum = checksum(&bytes[ip..]);
    bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(&ports.to_be_bytes());
    bytes.resize(ip + usize::from(total), 0x55);
    let ports = if fragment == 0 && protocol != 1 { ports } else { 0 };
    Packet { bytes, key: Some(FlowKey::from_words(src, dst, ports, protocol)), ip }
}

/// The Internet checksum (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xFFFF) + (sum >> 16);
    !((sum & 0xFFFF) + (sum >> 16)) as u16
}

/// The packet with its three mark bits set and its checksum right.
fn marked(packet: &Packet, mark: u8) -> Vec<u8> {
    let mut bytes = packet.bytes.clone();
    let ip = packet.ip;
    bytes[ip + 1] = bytes[ip + 1] & 0x1F | mark << 5;
    bytes[ip + 10..ip + 12].fill(0);
    let header = usize::from(bytes[ip] & 0xF) * 4;
    let sum = checksum(&bytes[ip..ip + header]);
    bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn two_epochs_agree(arithmetic: Arithmetic) {
    let mut pair = Pair::new(arithmetic, attention());
    let mut numbers = Numbers(1);
    for epoch in [1000_u64, 1001] {
        pair.begin(epoch);
        let bit = (epoch & 1) as usize;
        let mut ingress = IngressGroup::new(&pair.layout, pair.attention, epoch).unwrap();
        let mut egress = EgressGroup::new(&pair.layout, pair.attention).unwrap();
        let mut seen = [0; 4];
        for _ in 0..40_000 {
            let packet = packet(&mut numbers);
            let key = packet.key.unwrap();
            let hashes = pair.family.hash(&key);
            let hierarchy = ingress.record(&key, &hashes);
            seen[usize::from(hierarchy.bits())] += 1;
            let wanted = marked(&packet, (bit as u8) << 2 | hierarchy.bits());
            let sent = pair.switch.inject(HOST, &packet.bytes);
            assert_eq!(sent, [(FABRIC, wanted.clone())], "{key}");
            // Every third packet is lost on its way; the others come back to this switch.
            if numbers.below(3) > 0 {
                assert!(egress.record(&key, &hashes, hierarchy));
                let sent = pair.switch.inject(FABRIC, &wanted);
                assert_eq!(sent, [(HOST, marked(&packet, 0b101))], "{key}");
            }
        }
        assert!(seen.iter().all(|&packets| packets > 500), "all hierarchies: {seen:?}");
        pair.assert_ingress_equal(&ingress, bit);
        pair.assert_egress_equal(&egress, bit);
    }
    // The second epoch left the first one's group alone.
    assert!(pair.counters(0, 0).iter().any(|&count| count > 0));
}

#[test]
fn prime_registers_equal_the_software_sketches_group_by_group() {
    two_epochs_agree(Arithmetic::Prime);
}

#[test]
fn wrapping_registers_equal_the_software_sketches_group_by_group() {
    two_epochs_agree(Arithmetic::Wrapping);
}

#[test]
fn counters_stop_at_infinity_on_both_sides() {
    let attention = Attention { t_h: 70_000, t_l: 60_000, ..attention() };
    let mut pair = Pair::new(Arithmetic::Prime, attention);
    pair.begin(4);
    let mut ingress = IngressGroup::new(&pair.layout, attention, 4).unwrap();
    let packet = packet(&mut Numbers(3));
    let key = packet.key.unwrap();
    let hashes = pair.family.hash(&key);
    let mut last = Hierarchy::NonSampledLl;
    for _ in 0..66_000 {
        last = ingress.record(&key, &hashes);
        let mark = last.bits() << 5;
        pair.switch.inject_with(HOST, &packet.bytes, |_, sent| {
            assert_eq!(sent[packet.ip + 1] & 0xE0, mark);
        });
    }
    assert_eq!(last, Hierarchy::HhCandidate, "infinity is above every threshold");
    pair.assert_ingress_equal(&ingress, 0);
}

#[test]
fn what_can_not_be_read_to_the_ports_passes_unmeasured_and_unmarked() {
    let mut pair = Pair::new(Arithmetic::Prime, attention());
    pair.begin(7);
    let whole = packet(&mut Numbers(5));
    let mut broken: Vec<Vec<u8>> =
        (14..whole.ip + 24).map(|len| whole.bytes[..len].to_vec()).collect();
    let mut with = |offset: usize, value: u8| {
        let mut bytes = whole.bytes.clone();
        bytes[whole.ip + offset] = value;
        broken.push(bytes);
    };
    with(0, 0x65);
    with(0, 0x44);
    with(2, 0);
    broken.last_mut().unwrap()[whole.ip + 3] = 19;
    broken.push([vec![2; 12], vec![0x08, 0x06], vec![1; 28]].concat());
    broken.push([vec![2; 12], vec![0x86, 0xdd], vec![0x60; 40]].concat());
    for bytes in broken {
        let sent = pair.switch.inject(HOST, &bytes);
        assert_eq!(sent, [(FABRIC, bytes.clone())], "{} bytes", bytes.len());
    }
    assert!(pair.counters(0, 1).iter().all(|&count| count == 0));
}

#[test]
fn a_mark_of_a_part_without_buckets_is_restored_and_not_recorded() {
    let attention =
        Attention { t_l: 1, partition: Partition { hh: 1024, hl: 3072, ll: 0 }, ..attention() };
    let mut pair = Pair::new(Arithmetic::Prime, attention);
    pair.begin(0);
    let packet = packet(&mut Numbers(9));
    let sent = pair.switch.inject(FABRIC, &marked(&packet, 0b001));
    assert_eq!(sent, [(HOST, marked(&packet, 0b101))]);
    assert!(pair.encoder("downstream", 0, 3072).iter().all(|&word| word == 0));
    let foreign = pair.switch.read_counter("Egress.packets", 0).unwrap();
    assert_eq!(foreign.packets, 1);
}
