//! A modelled switch with one host port and one fabric port, and packets for it.

// Each test file is a program of its own and uses its part of this one.
#![allow(dead_code)]

pub(crate) mod transit;

use std::path::Path;

use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_sketch::{Arithmetic, FlowKey, HashFamily, HashKey};
use calumma_switchd::chamelemon::{entries, program};
use calumma_switchd::config::CarrierKind;
use calumma_switchd::hashes;
use calumma_switchd::marks::{self, Marks};
use calumma_switchd::system::Target;
use calumma_switchd::tables::{Match, TableEntry};
use calumma_tna::{Entry, FieldMatch, Program, Switch};
use calumma_wire::DEFAULT_FABRIC_MTU;

pub(crate) const HOST: u16 = 1;
pub(crate) const FABRIC: u16 = 2;

/// Both chips, for which programs may be built otherwise.
pub(crate) const CHIPS: [Target<'static>; 2] = [Target::Tofino, Target::Tofino2];

/// A modelled switch with one host port and one fabric port, and what a software edge has.
pub(crate) struct Pair {
    pub(crate) layout: Layout,
    pub(crate) hash_key: HashKey,
    pub(crate) family: HashFamily,
    pub(crate) attention: Attention,
    pub(crate) switch: Switch,
    pub(crate) carrier: CarrierKind,
    marks: Option<Marks>,
}

impl Pair {
    pub(crate) fn new(arithmetic: Arithmetic, attention: Attention) -> Pair {
        Pair::with_marks(CarrierKind::Tos, arithmetic, attention)
    }

    /// A switch whose program was compiled for that carrier.
    pub(crate) fn with_marks(
        carrier: CarrierKind,
        arithmetic: Arithmetic,
        attention: Attention,
    ) -> Pair {
        let layout = Layout { arithmetic, ..Layout::default() };
        attention.validate(&layout).unwrap();
        // Tests of other packages include this file, too.
        let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let path =
            folders.find_map(|folder| folder.join("p4src/edge.p4").canonicalize().ok()).unwrap();
        let mut defines = program::defines(&layout);
        let hash_key = HashKey::from_bytes([7; 32]);
        let marks = (carrier == CarrierKind::IpId)
            .then(|| Marks::new(*hash_key.as_bytes(), DEFAULT_FABRIC_MTU));
        defines.extend(marks.iter().map(|_| (marks::DEFINE.to_owned(), "1".to_owned())));
        let program = Program::load(path, &defines).unwrap_or_else(|error| panic!("{error}"));
        let mut switch = Switch::new(&program);
        let family = HashFamily::new(&hash_key);
        for entry in marks.iter().flat_map(Marks::secrets) {
            add(&mut switch, &entry);
        }
        for entry in hashes::secrets(&family) {
            add(&mut switch, &entry);
        }
        let port = |port: u16| Entry::new("send").exact("ingress_port", port);
        switch.add_entry("port_pair", &port(HOST).arg("port", FABRIC)).unwrap();
        switch.add_entry("port_pair", &port(FABRIC).arg("port", HOST)).unwrap();
        let host = Entry::new("host").exact("ingress_port", HOST);
        switch.add_entry("Ingress.host_ports", &host).unwrap();
        let host = Entry::new("host").exact("egress_port", HOST).arg("dscp", 0b101u8);
        switch.add_entry("Egress.host_ports", &host).unwrap();
        Pair { layout, hash_key, family, attention, switch, carrier, marks }
    }

    /// Entries for the epoch, and its timestamp bit.
    pub(crate) fn begin(&mut self, epoch: u64) {
        let armed = self.marks.iter().flat_map(|marks| marks.armed(epoch));
        let entries = entries::epoch(&self.layout, &self.attention, epoch);
        for entry in armed.chain(entries) {
            let entry_there = modelled(&entry);
            if self.switch.add_entry(&entry.table, &entry_there).is_err() {
                self.switch.modify_entry(&entry.table, &entry_there).unwrap();
            }
        }
        let stamp = marks::stamp(epoch, self.carrier).into_iter();
        let args: Vec<_> = stamp.map(|(name, value)| (name, u128::from(value))).collect();
        self.switch.set_default_action("timestamp", "set_timestamp", &args).unwrap();
    }

    /// The words of an encoder's group, in wire order.
    pub(crate) fn encoder(&self, name: &str, bit: usize, buckets: u32) -> Vec<u32> {
        let buckets = buckets as usize;
        let mut words = Vec::new();
        for array in 0..3 {
            let lanes: Vec<&[u32]> = registers(self.layout.arithmetic, name, array)
                .iter()
                .flat_map(|register| self.switch.read_register_lanes(register).unwrap())
                .collect();
            for at in bit * buckets..(bit + 1) * buckets {
                words.extend(lanes.iter().map(|lane| lane[at]));
            }
        }
        words
    }

    /// Empties the sketches of a timestamp bit.
    pub(crate) fn clear(&mut self, bit: usize) {
        let mut clear = |register: &str, elements: u32| {
            let lanes = self.switch.read_register_lanes(register).unwrap().len();
            let elements = elements as usize;
            for at in bit * elements..(bit + 1) * elements {
                self.switch.write_register(register, at, &[0, 0][..lanes]).unwrap();
            }
        };
        for (level, shape) in self.layout.classifier.iter().enumerate() {
            clear(&format!("classifier.level{level}.counters"), shape.counters);
        }
        let encoders = [
            ("upstream", self.layout.upstream_buckets),
            ("downstream", self.layout.downstream_buckets),
        ];
        for (encoder, buckets) in encoders {
            for array in 0..3 {
                for register in registers(self.layout.arithmetic, encoder, array) {
                    clear(&register, buckets);
                }
            }
        }
    }

    pub(crate) fn counters(&self, level: usize, bit: usize) -> Vec<u32> {
        let counters = self.layout.classifier[level].counters as usize;
        let name = format!("classifier.level{level}.counters");
        let lanes = self.switch.read_register_lanes(&name).unwrap();
        lanes[0][bit * counters..(bit + 1) * counters].to_vec()
    }
}

/// The registers of an encoder's array.
fn registers(arithmetic: Arithmetic, encoder: &str, array: usize) -> Vec<String> {
    let registers: &[&str] = match arithmetic {
        Arithmetic::Prime => {
            &["fragment0.sums", "fragment1.sums", "fragment2.sums", "fragment3.sums", "counts"]
        }
        Arithmetic::Wrapping => {
            &["fragments01.sums", "fragments23.sums", "fragments45.sums", "fragment6_count.sums"]
        }
    };
    registers.iter().map(|register| format!("{encoder}.array{array}.{register}")).collect()
}

/// Adds an entry, or sets what a table does on a miss.
pub(crate) fn add(switch: &mut Switch, entry: &TableEntry) {
    if entry.keys.is_empty() {
        let args: Vec<_> = entry.args.iter().map(|&(name, value)| (name, value.into())).collect();
        switch.set_default_action(&entry.table, entry.action, &args).unwrap();
    } else {
        switch.add_entry(&entry.table, &modelled(entry)).unwrap();
    }
}

pub(crate) fn modelled(entry: &TableEntry) -> Entry {
    let mut out = Entry::new(entry.action);
    for (key, field) in &entry.keys {
        out = out.field(
            key,
            match *field {
                Match::Exact(value) => FieldMatch::Exact(value.into()),
                Match::Range(low, high) => FieldMatch::Range { low: low.into(), high: high.into() },
                Match::Ternary(value, mask) => {
                    FieldMatch::Ternary { value: value.into(), mask: mask.into() }
                }
            },
        );
    }
    for (name, value) in &entry.args {
        out = out.arg(name, *value);
    }
    out
}

pub(crate) fn attention() -> Attention {
    Attention {
        t_h: 30,
        t_l: 3,
        sample_rate: SampleRate::new(0.4).unwrap(),
        partition: Partition { hh: 1024, hl: 2500, ll: 572 },
    }
}

/// Pseudo-random numbers that every run sees alike.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// A packet, its flow, and where its IPv4 header begins.
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) key: FlowKey,
    pub(crate) ip: usize,
}

/// Any kind of IPv4 packet: tags, options, fragments, protocols.
pub(crate) fn packet(numbers: &mut Numbers) -> Packet {
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
    Packet { bytes, key: FlowKey::from_words(src, dst, ports, protocol), ip }
}

/// The Internet checksum (RFC 1071).
pub(crate) fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xFFFF) + (sum >> 16);
    !((sum & 0xFFFF) + (sum >> 16)) as u16
}

/// The packet with its three mark bits set and its checksum right.
pub(crate) fn marked(packet: &Packet, mark: u8) -> Vec<u8> {
    let mut bytes = packet.bytes.clone();
    let ip = packet.ip;
    bytes[ip + 1] = bytes[ip + 1] & 0x1F | mark << 5;
    bytes[ip + 10..ip + 12].fill(0);
    let header = usize::from(bytes[ip] & 0xF) * 4;
    let sum = checksum(&bytes[ip..ip + header]);
    bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    bytes
}
