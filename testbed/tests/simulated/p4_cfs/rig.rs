//! The modelled switch with its table, and the twin beside it: every packet goes through both.

use std::collections::BTreeMap;
use std::path::Path;

use calumma_edge::parse::{Parsed, parse};
use calumma_sketch::grade::HopRule;
use calumma_sketch::{FlowKey, HashFamily, HashKey, KeyKind};
use calumma_switchd::hashes;
use calumma_tna::{Entry, Program, Switch};

use super::twin::{COLUMNS, First, Seen, Twin, Window, event};
use crate::switch::{FABRIC, HOST, add, checksum};

/// Packets and bytes of a flow that came in a window.
pub(super) type Came = BTreeMap<FlowKey, [u64; 2]>;

/// A transit of two ports.
pub(super) struct Rig {
    pub(super) switch: Switch,
    pub(super) twin: Twin,
    /// By timestamp bit.
    pub(super) windows: [Option<Window>; 2],
    pub(super) came: [Came; 2],
}

/// What a packet is to the switch.
enum Kind {
    /// Recorded.
    Seen(usize, Seen),
    /// Of IPv6, with its timestamp bit.
    Ipv6(usize),
    /// Neither marked nor recorded.
    Unmeasured,
}

impl Rig {
    pub(super) fn new(row_bits: u32) -> Self {
        Self::with_keys(KeyKind::Ipv4, row_bits)
    }

    /// In a network whose switches hash such keys.
    pub(super) fn with_keys(keys: KeyKind, row_bits: u32) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4src/cfs.p4");
        let mut defines = vec![("ROW_BITS".to_owned(), row_bits.to_string())];
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
        let twin = Twin::new(family, keys, row_bits);
        Self { switch, twin, windows: [None; 2], came: Default::default() }
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
                .arg("group", window.group)
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

    fn kind(bytes: &[u8]) -> Kind {
        let Parsed::Flow { key, ip_offset: ip } = parse(bytes, usize::MAX) else {
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
            return match bytes.get(at..at + 40) {
                Some(ipv6) if kind == Some(0x86DD) => Kind::Ipv6(usize::from(ipv6[0] >> 3 & 1)),
                _ => Kind::Unmeasured,
            };
        };
        let seen = Seen {
            key,
            ttl: bytes[ip + 8],
            len: u16::from_be_bytes([bytes[ip + 2], bytes[ip + 3]]),
            claimed: bytes[ip + 1] >> 3 & 1 == 1,
        };
        Kind::Seen(usize::from(bytes[ip + 1] >> 7), seen)
    }

    /// Packets that come so fast behind each other that all are through the first pass before one
    /// is in the second. The switch must send them as they came, their claims aside.
    pub(super) fn burst(&mut self, packets: &[Vec<u8>]) {
        let (mut wanted, mut later) = (Vec::new(), Vec::new());
        for bytes in packets {
            self.switch.offer(HOST, bytes);
            match Self::kind(bytes) {
                Kind::Seen(bit, seen) if self.windows[bit].is_some() => {
                    let window = self.windows[bit].unwrap();
                    let of_flow = self.came[window.group as usize].entry(seen.key).or_default();
                    *of_flow = [of_flow[0] + 1, of_flow[1] + u64::from(seen.len)];
                    match self.twin.first(&window, &seen) {
                        First::Done(claimed) => wanted.push(sent(bytes, &window, claimed)),
                        First::Again { second } => later.push((bytes, window, seen, second)),
                    }
                }
                Kind::Ipv6(bit) if self.windows[bit].is_some() => {
                    self.twin.other(&self.windows[bit].unwrap());
                    wanted.push(Some(bytes.clone()));
                }
                Kind::Seen(..) => wanted.push(whole(bytes).then(|| bytes.clone())),
                _ => wanted.push(Some(bytes.clone())),
            }
        }
        for (bytes, window, seen, second) in later {
            let claimed = self.twin.again(&window, &seen, second);
            wanted.push(sent(bytes, &window, claimed));
        }
        let mut out = Vec::new();
        self.switch.run(usize::MAX, |port, bytes| out.push((port, bytes.to_vec())));
        let wanted: Vec<_> = wanted.into_iter().flatten().map(|bytes| (FABRIC, bytes)).collect();
        assert_eq!(out, wanted);
    }

    /// Every word of every register is the twin's.
    pub(super) fn compare(&self) {
        let twin = self.twin.words();
        for register in self.switch.program().registers() {
            let name = register.name.split_once(".rows.").unwrap().1;
            let lanes = self.switch.read_register_lanes(&register.name).unwrap();
            let [lane] = lanes[..] else { panic!("{name} has words") };
            let there = lane.iter().copied().enumerate().filter(|(_, word)| *word != 0);
            let there: BTreeMap<usize, u32> = there.collect();
            assert_eq!(there, twin.get(name).cloned().unwrap_or_default(), "{name}");
        }
        assert_eq!(self.switch.statistics().out_of_range, 0);
    }

    /// What must be true of a group, whatever came: each packet is counted once, and a flow that is
    /// not doubted has one entry, with all its packets.
    pub(super) fn is_right(&self, group: usize) {
        let of = &self.twin.groups[group];
        let mut entries: BTreeMap<FlowKey, Vec<[u64; 2]>> = BTreeMap::new();
        for place in of.rows.values().flatten() {
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
        assert!(of.rows.values().all(|row| row.len() <= COLUMNS));
    }

    /// Empties a group.
    pub(super) fn clear(&mut self, group: usize) {
        for register in self.switch.program().registers() {
            let half = register.size / 2;
            for at in group * half..(group + 1) * half {
                self.switch.write_register(&register.name, at, &[0]).unwrap();
            }
        }
        self.twin.groups[group] = Default::default();
        self.came[group].clear();
    }
}

/// Whether a packet is as long as its IP header says; the egress drops others.
fn whole(bytes: &[u8]) -> bool {
    matches!(parse(bytes, bytes.len()), Parsed::Flow { .. })
}

/// The packet as it goes on.
fn sent(bytes: &[u8], window: &Window, claimed: bool) -> Option<Vec<u8>> {
    if !whole(bytes) {
        return None;
    }
    if window.claimed_below.is_none() {
        return Some(bytes.to_vec());
    }
    Some(with_claim(bytes, claimed))
}

/// The packet with another claim bit; a wrong checksum stays as wrong.
pub(super) fn with_claim(bytes: &[u8], claimed: bool) -> Vec<u8> {
    let Parsed::Flow { ip_offset: ip, .. } = parse(bytes, usize::MAX) else {
        return bytes.to_vec();
    };
    let mut out = bytes.to_vec();
    out[ip + 1] = out[ip + 1] & !8 | u8::from(claimed) << 3;
    if out[ip + 1] != bytes[ip + 1] {
        // RFC 1624: both headers, without the checksum in them, differ by what the checksum does.
        let header = usize::from(bytes[ip] & 0xF) * 4;
        let sum = |bytes: &[u8]| {
            let mut header = bytes[ip..ip + header].to_vec();
            header[10..12].fill(0);
            u32::from(checksum(&header))
        };
        let there = u32::from(u16::from_be_bytes([bytes[ip + 10], bytes[ip + 11]]));
        let new = (!there & 0xFFFF) + sum(bytes) + (!sum(&out) & 0xFFFF);
        let new = (new & 0xFFFF) + (new >> 16);
        let new = !((new & 0xFFFF) + (new >> 16)) as u16;
        out[ip + 10..ip + 12].copy_from_slice(&new.to_be_bytes());
    }
    out
}
