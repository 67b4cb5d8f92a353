//! The modelled switch with its table, and the twin beside it: every packet goes through both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use calumma_edge::parse::{Parsed, parse};
use calumma_sketch::grade::HopRule;
use calumma_sketch::{FlowKey, HashFamily, HashKey, KeyKind};
use calumma_switchd::hashes;
use calumma_switchd::notices::FRONT;
use calumma_tna::{Entry, MirrorSession, Program, Switch};

use super::guard::Said;
use super::twin::{COLUMNS, First, Seen, Side, Twin, Window, event};
use crate::switch::{FABRIC, HOST, add, checksum};

/// Packets and bytes of a flow that came in a window.
pub(super) type Came = BTreeMap<FlowKey, [u64; 2]>;

/// Ports of an edge: of hosts whose packets stay here, and of those whose packets have no way; of
/// the fabric for the fabric, and without a way.
pub(super) const LOCAL: u16 = 3;
pub(super) const NO_WAY: u16 = 4;
pub(super) const THROUGH: u16 = 5;
pub(super) const LOST: u16 = 6;

/// The CPU's port, and the mirror session that notices reach it by.
const CPU: u16 = 64;
const SESSION: u16 = 2;

/// The guard's registers, which are of no group. It has few cells here, so that flows share them.
const GUARD: &str = "Egress.guard.";
const CELL_BITS: u32 = 6;

/// What packets for hosts are given back: of the byte, the upper three bits of the DSCP, and the
/// bit that is a claim's in the network.
const GIVEN_BACK: u8 = 0b1010_1000;
const MARK: u8 = 0b1110_0000;
const CLAIM: u8 = 0b1000;

/// A transit of two ports, or an edge of six.
pub(super) struct Rig {
    pub(super) switch: Switch,
    pub(super) twin: Twin,
    /// By timestamp bit.
    pub(super) windows: [Option<Window>; 2],
    pub(super) came: [Came; 2],
    /// An edge's timestamp bit.
    stamp: Option<usize>,
    /// Packets for the network that hosts had set the bit of a claim in.
    taken: u64,
    /// Packets of the network that came when their window was over.
    pub(super) late: u64,
    /// Notices of which the CPU gets a copy, by stream.
    notices: [u32; 2],
}

/// What may have a mark: a flow that has a key, or a packet of IPv6, and where its header is.
enum Header {
    Flow(FlowKey, usize),
    Ipv6(usize),
}

impl Header {
    fn of(bytes: &[u8]) -> Option<Self> {
        if let Parsed::Flow { key, ip_offset } = parse(bytes, usize::MAX) {
            return Some(Self::Flow(key, ip_offset));
        }
        let mut at = 12;
        let mut ether_type = || {
            at += 2;
            Some(u16::from_be_bytes([*bytes.get(at - 2)?, *bytes.get(at - 1)?]))
        };
        let mut kind = ether_type();
        let mut tags = 0;
        while matches!(kind, Some(0x8100)) && tags < 2 || kind == Some(0x88A8) && tags == 0 {
            ether_type();
            kind = ether_type();
            tags += 1;
        }
        let is_ipv6 = kind == Some(0x86DD) && bytes.len() >= at + 40;
        is_ipv6.then_some(Self::Ipv6(at))
    }

    /// The ToS byte or the traffic class.
    fn byte(&self, bytes: &[u8]) -> u8 {
        match *self {
            Self::Flow(_, ip) => bytes[ip + 1],
            Self::Ipv6(ip) => bytes[ip] << 4 | bytes[ip + 1] >> 4,
        }
    }

    /// The packet with another such byte; a wrong checksum stays as wrong.
    fn with_byte(&self, bytes: &[u8], byte: u8) -> Vec<u8> {
        let mut out = bytes.to_vec();
        match *self {
            Self::Flow(_, ip) => {
                out[ip + 1] = byte;
                if out[ip + 1] != bytes[ip + 1] {
                    follow(bytes, &mut out, ip);
                }
            }
            Self::Ipv6(ip) => {
                out[ip] = bytes[ip] & 0xF0 | byte >> 4;
                out[ip + 1] = bytes[ip + 1] & 0xF | byte << 4;
            }
        }
        out
    }
}

/// Lets the checksum of a changed header follow.
fn follow(bytes: &[u8], out: &mut [u8], ip: usize) {
    // RFC 1624: both headers, without the checksum in them, differ by what the checksum does.
    let header = usize::from(bytes[ip] & 0xF) * 4;
    let sum = |bytes: &[u8]| {
        let mut header = bytes[ip..ip + header].to_vec();
        header[10..12].fill(0);
        u32::from(checksum(&header))
    };
    let there = u32::from(u16::from_be_bytes([bytes[ip + 10], bytes[ip + 11]]));
    let new = (!there & 0xFFFF) + sum(bytes) + (!sum(out) & 0xFFFF);
    let new = (new & 0xFFFF) + (new >> 16);
    let new = !((new & 0xFFFF) + (new >> 16)) as u16;
    out[ip + 10..ip + 12].copy_from_slice(&new.to_be_bytes());
}

/// A packet's way through the switch.
#[derive(Clone, Copy)]
struct Way {
    to: Option<u16>,
    /// The timestamp bit of one that a host sends.
    from_host: Option<usize>,
    to_host: bool,
}

impl Way {
    /// The packet as it goes on, if it does: where its window has claims, with this one.
    fn sent(
        &self,
        bytes: &[u8],
        header: Option<&Header>,
        claim: Option<bool>,
    ) -> Option<(u16, Vec<u8>)> {
        let to = self.to?;
        let Some(header) = header else { return Some((to, bytes.to_vec())) };
        if matches!(header, Header::Flow(..)) && !whole(bytes) {
            return None;
        }
        // What goes from host to host is never in the network.
        if self.from_host.is_some() && self.to_host {
            return Some((to, bytes.to_vec()));
        }
        let mut byte = header.byte(bytes);
        if let Some(claim) = claim {
            byte = byte & !CLAIM | if claim { CLAIM } else { 0 };
        }
        if let Some(bit) = self.from_host {
            byte = byte & !MARK | (bit as u8) << 7;
            if claim.is_none() {
                byte &= !CLAIM;
            }
        }
        if self.to_host {
            byte = byte & !(MARK | CLAIM) | GIVEN_BACK;
        }
        Some((to, header.with_byte(bytes, byte)))
    }
}

impl Rig {
    pub(super) fn new(row_bits: u32) -> Self {
        Self::with_keys(KeyKind::Ipv4, row_bits)
    }

    /// In a network whose switches hash such keys.
    pub(super) fn with_keys(keys: KeyKind, row_bits: u32) -> Self {
        Self::with_columns(keys, row_bits, COLUMNS)
    }

    /// Whose rows have so many places.
    pub(super) fn with_columns(keys: KeyKind, row_bits: u32, columns: usize) -> Self {
        Self::with_cells(keys, (row_bits, CELL_BITS), columns)
    }

    /// Whose guard has so many cells.
    pub(super) fn with_cells(
        keys: KeyKind,
        (row_bits, cell_bits): (u32, u32),
        columns: usize,
    ) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4src/cfs.p4");
        let mut defines = vec![("ROW_BITS".to_owned(), row_bits.to_string())];
        defines.push(("COLUMNS".to_owned(), columns.to_string()));
        defines.push(("CELL_BITS".to_owned(), cell_bits.to_string()));
        let mut units = ["hash_x", "hash_y"];
        if keys == KeyKind::Dual {
            defines.push(("WIDE_KEYS".to_owned(), "1".to_owned()));
            units = ["wide_x", "wide_y"];
        }
        let mut switch = Switch::new(&Program::load(path, &defines).unwrap());
        let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
        for entry in hashes::secrets_of_lanes(&family, &[units]) {
            add(&mut switch, &entry);
        }
        for (port, peer) in [(HOST, FABRIC), (FABRIC, HOST)] {
            let send = Entry::new("send").exact("ingress_port", port).arg("port", peer);
            switch.add_entry("port_pair", &send).unwrap();
        }
        for ttl in 0..=u8::MAX {
            let action = match HopRule::default().number(ttl) {
                0 => "unfolded".to_owned(),
                hop => format!("fold{}", (hop - 1) % 16),
            };
            switch.add_entry("hops", &Entry::new(&action).exact("ttl", ttl)).unwrap();
        }
        let twin = Twin::new((family, keys), (row_bits, cell_bits), columns);
        let (came, stamp, taken, late, notices) = Default::default();
        Self { switch, twin, windows: [None; 2], came, stamp, taken, late, notices }
    }

    /// An edge of a network that measures IPv6 as well, and whose packets carry claims. What hosts
    /// send is stamped with bit 0.
    pub(super) fn edge(row_bits: u32) -> Self {
        let mut rig = Self::new(row_bits);
        for (port, peer) in [(LOCAL, HOST), (THROUGH, FABRIC)] {
            let send = Entry::new("send").exact("ingress_port", port).arg("port", peer);
            rig.switch.add_entry("port_pair", &send).unwrap();
        }
        for port in [HOST, LOCAL, NO_WAY] {
            let host = Entry::new("host").exact("ingress_port", port);
            rig.switch.add_entry("Ingress.host_ports", &host).unwrap();
            let host = Entry::new("host").exact("egress_port", port);
            let host = host.arg("dscp", GIVEN_BACK >> 5);
            rig.switch.add_entry("Egress.host_ports", &host).unwrap();
            let host = Entry::new("host").exact("port", port).arg("claim", 1u8);
            rig.switch.add_entry("leaves.ports", &host).unwrap();
        }
        rig.switch.set_default_action("families", "both", &[("with_claims", 1)]).unwrap();
        rig.stamp(0);
        rig
    }

    /// What hosts send is of that timestamp bit from now on.
    pub(super) fn stamp(&mut self, bit: usize) {
        let value = [("value", bit as u128)];
        self.switch.set_default_action("timestamp", "set_timestamp", &value).unwrap();
        self.stamp = Some(bit);
    }

    /// Packets of that timestamp bit are recorded so from now on.
    pub(super) fn open(&mut self, bit: usize, window: Window) {
        self.close(bit);
        // A limit of 2^32 is above all grades, and so is its predecessor.
        let limit = window.claimed_below.map_or(u32::MAX, |below| !(below.min(0xFFFF_FFFF) as u32));
        for ipv6 in [0u8, 1] {
            let entry = Entry::new("record_in")
                .exact("ipv6", ipv6)
                .exact("timestamp_there", bit as u8)
                .arg("group", window.group())
                .arg("number", window.number & 0xFFFF)
                .arg("seed_high", window.seed >> 16)
                .arg("seed_low", window.seed & 0xFFFF)
                .arg("limit", limit)
                .arg("claims", u8::from(window.claimed_below.is_some()));
            self.switch.add_entry("windows", &entry).unwrap();
        }
        self.windows[bit] = Some(window);
    }

    pub(super) fn close(&mut self, bit: usize) {
        if self.windows[bit].take().is_some() {
            for ipv6 in [0u8, 1] {
                let entry = Entry::new("").exact("ipv6", ipv6).exact("timestamp_there", bit as u8);
                self.switch.delete_entry("windows", &entry).unwrap();
            }
        }
    }

    /// Pins flows in a group, and no others.
    pub(super) fn pin(&mut self, group: usize, flows: BTreeSet<FlowKey>) {
        let entry = |key: &FlowKey| {
            Entry::new("pin")
                .exact("window.group", group as u8)
                .exact("hdr.ipv4.src", key.src_word())
                .exact("hdr.ipv4.dst", key.dst_word())
                .exact("meta.ports", key.ports_word())
                .exact("hdr.ipv4.protocol", key.protocol())
        };
        for key in &self.twin.pinned[group] {
            self.switch.delete_entry("pins", &entry(key)).unwrap();
        }
        for key in &flows {
            self.switch.add_entry("pins", &entry(key)).unwrap();
        }
        self.twin.pinned[group] = flows;
    }

    /// The way of a packet that comes by a port.
    fn way(&self, port: u16) -> Way {
        let to = match port {
            HOST | THROUGH => Some(FABRIC),
            FABRIC | LOCAL => Some(HOST),
            _ => None,
        };
        let from_host = self.stamp.filter(|_| matches!(port, HOST | LOCAL | NO_WAY));
        Way { to, from_host, to_host: self.stamp.is_some() && to == Some(HOST) }
    }

    /// What the table sees of a packet.
    fn seen(key: FlowKey, way: Way, ip: &[u8]) -> Seen {
        Seen {
            key,
            ttl: ip[8],
            len: u16::from_be_bytes([ip[2], ip[3]]),
            claimed: way.from_host.is_none() && ip[1] & CLAIM != 0,
            side: match way {
                Way { from_host: Some(_), .. } => Side::Entered,
                Way { to_host: true, .. } => Side::Left,
                _ => Side::Passed,
            },
            single: way.from_host.is_some() && way.to_host,
        }
    }

    /// Packets that come so fast behind each other that all are through the first pass before one
    /// is in the second. The switch must send them as they came, their claims aside.
    pub(super) fn burst(&mut self, packets: &[Vec<u8>]) {
        let packets: Vec<_> = packets.iter().map(|bytes| (HOST, bytes.clone())).collect();
        self.burst_at(&packets);
    }

    /// The same of packets that come by these ports.
    pub(super) fn burst_at(&mut self, packets: &[(u16, Vec<u8>)]) {
        self.burst_flipping(packets, None);
    }

    /// The same where what hosts send is stamped with another bit, if any, once all are through the
    /// first pass: the second one is by the old bit.
    pub(super) fn burst_flipping(&mut self, packets: &[(u16, Vec<u8>)], to: Option<usize>) {
        let (mut wanted, mut later) = (Vec::new(), Vec::new());
        for (port, bytes) in packets {
            self.switch.offer(*port, bytes);
            let (way, header) = (self.way(*port), Header::of(bytes));
            let byte = header.as_ref().map_or(0, |header| header.byte(bytes));
            let enters = way.from_host.is_some() && way.to == Some(FABRIC);
            self.taken += u64::from(enters && byte & CLAIM != 0);
            let carried = self.windows[way.from_host.unwrap_or(usize::from(byte >> 7))];
            let may_be_late = self.stamp.is_some() && way.from_host.is_none();
            self.late += u64::from(may_be_late && header.is_some() && carried.is_none());
            // What a host sends and has no way to go on enters nowhere.
            let window = carried.filter(|_| way.from_host.is_none() || way.to.is_some());
            match (&header, window) {
                (Some(Header::Flow(key, ip)), Some(window)) => {
                    let seen = Self::seen(*key, way, &bytes[*ip..]);
                    let of_flow = self.came[window.group() as usize].entry(seen.key).or_default();
                    *of_flow = [of_flow[0] + 1, of_flow[1] + u64::from(seen.len)];
                    match self.twin.first(&window, &seen) {
                        First::Done(claimed) => {
                            if way.to.is_some() {
                                self.twin.leave(&window, &seen);
                            }
                            let claim = window.claimed_below.map(|_| claimed);
                            wanted.push(way.sent(bytes, header.as_ref(), claim));
                        }
                        First::Again { second, aim } => {
                            later.push((bytes, way, header, window, seen, (second, aim)));
                        }
                    }
                    continue;
                }
                (Some(Header::Ipv6(_)), Some(window)) => self.twin.other(&window),
                _ => {}
            }
            wanted.push(way.sent(bytes, header.as_ref(), None));
        }
        for (bytes, way, header, window, seen, aim) in later {
            let claimed = self.twin.again(&window, &seen, aim);
            if way.to.is_some() {
                self.twin.leave(&window, &seen);
            }
            let claim = window.claimed_below.map(|_| claimed);
            wanted.push(way.sent(bytes, header.as_ref(), claim));
        }
        let mut out = Vec::new();
        if let Some(bit) = to {
            self.switch.run(packets.len(), |port, bytes| out.push((port, bytes.to_vec())));
            self.stamp(bit);
        }
        self.switch.run(usize::MAX, |port, bytes| out.push((port, bytes.to_vec())));
        let wanted: Vec<_> = wanted.into_iter().flatten().collect();
        let (notices, out): (Vec<_>, Vec<_>) = out.into_iter().partition(|(port, _)| *port == CPU);
        assert_eq!(out, wanted);
        let said = self.twin.guard.take().into_iter();
        let said = said.filter(|(stream, number, ..)| *number < self.notices[usize::from(*stream)]);
        let said: Vec<_> = said.collect();
        assert_eq!(notices.len(), said.len());
        for ((_, notice), said) in notices.iter().zip(said) {
            assert_eq!(notice[12..34], body(said), "{said:?}");
        }
        if self.stamp.is_some() {
            let taken = self.switch.read_counter("Ingress.taken", 0).unwrap().packets;
            assert_eq!(taken, self.taken);
            let late = self.switch.read_counter("Ingress.late", 0).unwrap().packets;
            assert_eq!(late, self.late);
        }
    }

    /// Lets the CPU get so many notices of each stream.
    pub(super) fn notify(&mut self, most: [u32; 2]) {
        self.switch.set_mirror(SESSION, Some(MirrorSession { port: CPU, max_length: FRONT }));
        for (stream, up_to) in (0_u8..).zip(most) {
            let entry = Entry::new("allow").exact("stream", stream);
            let entry = entry.arg("up_to", up_to).arg("by", SESSION);
            self.switch.add_entry("Egress.guard.notices.budgets", &entry).unwrap();
        }
        self.notices = most;
    }

    /// Every word of every register is the twin's.
    pub(super) fn compare(&self) {
        let mut twin = self.twin.words();
        twin.extend(self.twin.guard.words());
        for register in self.switch.program().registers() {
            let of = register.name.strip_prefix(GUARD);
            let name = of.unwrap_or_else(|| register.name.split_once(".rows.").unwrap().1);
            let lanes = self.switch.read_register_lanes(&register.name).unwrap();
            for (number, lane) in lanes.into_iter().enumerate() {
                let there = lane.iter().copied().enumerate().filter(|(_, word)| *word != 0);
                let there: BTreeMap<usize, u32> = there.collect();
                let wanted = twin.get(&(name.to_owned(), number)).cloned().unwrap_or_default();
                assert_eq!(there, wanted, "{name}, lane {number}");
            }
        }
        assert_eq!(self.switch.statistics().out_of_range, 0);
    }

    /// What must be true of a group, whatever came: each packet is counted once, and a flow that is
    /// not doubted has one entry, with all its packets.
    pub(super) fn is_right(&self, group: usize) {
        let of = &self.twin.groups[group];
        let mut entries: BTreeMap<FlowKey, Vec<[u64; 2]>> = BTreeMap::new();
        for place in of.rows.values().flatten().flatten() {
            let counted = [place.packets.into(), place.bytes];
            entries.entry(place.key).or_default().push(counted);
        }
        for (key, counted) in &entries {
            let all = self.came[group][key];
            match &counted[..] {
                _ if self.twin.doubts(group, key) => {
                    let packets: u64 = counted.iter().map(|it| it[0]).sum();
                    assert!(packets <= all[0], "{key}: at least so many came");
                }
                [one] => assert_eq!(*one, all, "{key}"),
                many => panic!("{key} has {} entries", many.len()),
            }
        }
        let e = |event: usize| u64::from(of.events[event]);
        let kept: u64 = entries.values().flatten().map(|it| it[0]).sum();
        let counted = [event::FOUND, event::PLACED, event::REPLACED, event::MET];
        let counted: u64 = counted.map(e).iter().sum();
        assert_eq!(kept + u64::from(of.evicted_packets), counted);
        let refused =
            [event::REFUSED, event::REFUSED_AGAIN, event::FILTERED, event::CROWDED_OUT].map(e);
        let all: u64 = self.came[group].values().map(|it| it[0]).sum();
        assert_eq!(counted + refused.iter().sum::<u64>(), all);
    }

    /// Empties a group.
    pub(super) fn clear(&mut self, group: usize) {
        for register in self.switch.program().registers() {
            if register.name.starts_with(GUARD) {
                continue;
            }
            let half = register.size / 2;
            let lanes = self.switch.read_register_lanes(&register.name).unwrap().len();
            for at in group * half..(group + 1) * half {
                self.switch.write_register(&register.name, at, &[0, 0][..lanes]).unwrap();
            }
        }
        self.twin.groups[group] = Default::default();
        self.came[group].clear();
    }
}

/// A notice from its EtherType on, up to the packet.
fn body((stream, number, key, ttl): Said) -> Vec<u8> {
    let mut out = vec![0x88, 0xB5, 0x80, stream];
    out.extend(number.to_be_bytes());
    for word in [key.src_word(), key.dst_word(), key.ports_word()] {
        out.extend(word.to_be_bytes());
    }
    out.extend([key.protocol(), ttl]);
    out
}

/// Whether a packet is as long as its IP header says; the egress drops others.
fn whole(bytes: &[u8]) -> bool {
    matches!(parse(bytes, bytes.len()), Parsed::Flow { .. })
}

/// The packet with another claim bit; a wrong checksum stays as wrong.
pub(super) fn with_claim(bytes: &[u8], claimed: bool) -> Vec<u8> {
    let Some(header @ Header::Flow(..)) = Header::of(bytes) else { return bytes.to_vec() };
    let byte = header.byte(bytes) & !CLAIM | if claimed { CLAIM } else { 0 };
    header.with_byte(bytes, byte)
}
