//! The table of rows as `p4src/cfs.p4` has it, in plain code: sorted lists and maps, packet by
//! packet. Which words lie in which register, the last function says; nothing else here knows.

use std::collections::{BTreeMap, BTreeSet};

use calumma_sketch::grade::{self, HopRule};
use calumma_sketch::{FlowKey, HashFamily, Hashes, HyperLogLog, KeyKind, WideKey};

pub(super) const COLUMNS: usize = 3;

/// Bits of the filter, and places for packets on their way, of one group.
const FILTER: u32 = 1 << 15;
const PENDING: u32 = 1 << 12;

/// What became of packets, by the numbers of `p4src/include/cfs/types.p4`.
pub(super) mod event {
    pub(crate) const FOUND: usize = 0;
    pub(crate) const SENT: usize = 1;
    pub(crate) const REFUSED: usize = 2;
    pub(crate) const REFUSED_AGAIN: usize = 3;
    pub(crate) const FILTERED: usize = 4;
    pub(crate) const PLACED: usize = 5;
    pub(crate) const REPLACED: usize = 6;
    pub(crate) const MET: usize = 7;
    pub(crate) const CROWDED_OUT: usize = 8;
    pub(crate) const OTHER: usize = 9;
}

/// How packets of a timestamp bit are recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) group: u32,
    pub(super) seed: u32,
    /// The grade from which on flows are not claimed; `None` where packets carry no claims.
    pub(super) claimed_below: Option<u64>,
}

/// A packet as the table sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) key: FlowKey,
    pub(super) ttl: u8,
    pub(super) len: u16,
    pub(super) claimed: bool,
}

/// An entry, in the order of a column's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) standing: u32,
    pub(super) key: FlowKey,
    pub(super) note: u32,
    pub(super) packets: u32,
    pub(super) bytes: u64,
    sixteenths: u32,
}

/// What one group holds.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) rows: BTreeMap<u32, Vec<Place>>,
    filter: BTreeSet<u32>,
    pending: BTreeMap<u32, u32>,
    doubted: BTreeSet<u32>,
    pub(super) events: [u32; 16],
    pub(super) evicted_packets: u32,
    claims: [u32; 4],
    flows: HyperLogLog,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            filter: BTreeSet::new(),
            pending: BTreeMap::new(),
            doubted: BTreeSet::new(),
            events: [0; 16],
            evicted_packets: 0,
            claims: [0; 4],
            flows: HyperLogLog::new(12),
        }
    }
}

/// What follows from a packet's first pass.
#[derive(Clone, Copy, Debug)]
pub(super) enum First {
    /// It is done with; its claim bit as it goes on.
    Done(bool),
    /// It is resubmitted, and another was on its way already.
    Again { second: bool },
}

/// Both groups.
#[derive(Clone, Debug)]
pub(super) struct Twin {
    family: HashFamily,
    /// Of which kind switches hash the keys of flows.
    keys: KeyKind,
    row_bits: u32,
    pub(super) groups: [Group; 2],
}

/// Where a packet's flow belongs.
struct Belongs {
    row: u32,
    note: u32,
    pending: u32,
    standing: u32,
    goes_on: bool,
}

impl Twin {
    pub(super) fn new(family: HashFamily, keys: KeyKind, row_bits: u32) -> Self {
        Self { family, keys, row_bits, groups: Default::default() }
    }

    fn hash(&self, key: &FlowKey) -> Hashes {
        match self.keys {
            KeyKind::Ipv4 => self.family.hash(key),
            KeyKind::Dual => self.family.hash(&WideKey::from(*key)),
        }
    }

    fn row(&self, hashes: &Hashes) -> u32 {
        (hashes.array_word(0) & 0xFFFF) >> (16 - self.row_bits)
    }

    fn belongs(&self, window: &Window, seen: &Seen) -> Belongs {
        let hashes = self.hash(&seen.key);
        let word = grade::word(&hashes, window.seed);
        let grade = grade::fold(word, HopRule::default().number(seen.ttl));
        let claims = window.claimed_below.is_some();
        let claimed = claims && seen.claimed;
        // Better than a claimed flow is one that is not, 1; better than that a smaller grade.
        let class = u32::from(!claimed);
        Belongs {
            row: self.row(&hashes),
            note: hashes.array_word(2) % FILTER,
            pending: hashes.array_word(2) % PENDING,
            standing: class << 29 | (!grade >> 11) << 8 | u32::from(seen.ttl),
            goes_on: claimed || window.claimed_below.is_some_and(|below| u64::from(grade) < below),
        }
    }

    /// The standing, row and note of a flow whose first packet this is.
    pub(super) fn chosen_by(&self, window: &Window, seen: &Seen) -> (u32, u32, u32) {
        let Belongs { standing, row, note, .. } = self.belongs(window, seen);
        (standing, row, note)
    }

    pub(super) fn first(&mut self, window: &Window, seen: &Seen) -> First {
        let (of, hashes) = (self.belongs(window, seen), self.hash(&seen.key));
        let group = &mut self.groups[window.group as usize];
        group.flows.insert(&hashes);
        let row = group.rows.entry(of.row).or_default();
        let waiting = group.pending.get(&of.pending).copied().unwrap_or_default();
        let happened = if let Some(place) = row.iter_mut().find(|place| place.key == seen.key) {
            place.add(seen);
            if place.standing as u8 != seen.ttl {
                group.doubted.insert(of.pending);
            }
            event::FOUND
        } else if row.len() == COLUMNS && of.standing <= row[COLUMNS - 1].standing {
            match group.filter.insert(of.note) {
                true => event::REFUSED,
                false => event::REFUSED_AGAIN,
            }
        } else if group.filter.contains(&of.note) {
            event::FILTERED
        } else {
            *group.pending.entry(of.pending).or_default() += 1;
            group.events[event::SENT] += 1;
            return First::Again { second: waiting > 0 };
        };
        if happened != event::FOUND && waiting > 0 {
            group.doubted.insert(of.pending);
        }
        group.finish(happened, window, seen, of.goes_on);
        First::Done(of.goes_on)
    }

    /// The claim bit with which a resubmitted packet goes on.
    pub(super) fn again(&mut self, window: &Window, seen: &Seen, second: bool) -> bool {
        let of = self.belongs(window, seen);
        let group = &mut self.groups[window.group as usize];
        let row = group.rows.entry(of.row).or_default();
        if let Some(waiting) = group.pending.get_mut(&of.pending) {
            *waiting -= 1;
        }
        let at = row.partition_point(|place| place.standing >= of.standing);
        let happened = if let Some(place) = row[..at].iter_mut().find(|it| it.key == seen.key) {
            place.add(seen);
            if place.standing as u8 != seen.ttl {
                group.doubted.insert(of.pending);
            }
            event::MET
        } else if at == COLUMNS {
            group.filter.insert(of.note);
            event::CROWDED_OUT
        } else {
            let (standing, key, note) = (of.standing, seen.key, of.note);
            let mut place = Place { standing, key, note, packets: 0, bytes: 0, sixteenths: 0 };
            place.add(seen);
            row.insert(at, place);
            if second {
                group.doubted.insert(of.pending);
            }
            match (row.len() > COLUMNS).then(|| row.pop()).flatten() {
                Some(evicted) => {
                    group.filter.insert(evicted.note);
                    group.evicted_packets += evicted.packets;
                    event::REPLACED
                }
                None => event::PLACED,
            }
        };
        group.finish(happened, window, seen, of.goes_on);
        of.goes_on
    }

    /// A packet of no flow that the table could hold.
    pub(super) fn other(&mut self, window: &Window) {
        self.groups[window.group as usize].events[event::OTHER] += 1;
    }

    /// Whether a flow may lack a packet.
    pub(super) fn doubts(&self, group: usize, key: &FlowKey) -> bool {
        let at = self.hash(key).array_word(2) % PENDING;
        self.groups[group].doubted.contains(&at)
    }

    /// The words of every register, by its name within `rows`, that are not 0.
    pub(super) fn words(&self) -> BTreeMap<String, BTreeMap<usize, u32>> {
        let mut out: BTreeMap<String, BTreeMap<usize, u32>> = BTreeMap::new();
        let mut put = |register: String, at: usize, word: u32| {
            let words = out.entry(register).or_default();
            if word != 0 {
                words.insert(at, word);
            }
        };
        for (number, group) in (0..).zip(&self.groups) {
            let note = |note: u32| (number << 15 | note) as usize;
            for (row, places) in &group.rows {
                let at = (number << self.row_bits | row) as usize;
                for (column, place) in places.iter().enumerate() {
                    let rest =
                        u32::from(place.key.protocol()) << 24 | 1 << 16 | note(place.note) as u32;
                    let words = [
                        ("standing", place.standing),
                        ("src", place.key.src_word()),
                        ("dst", place.key.dst_word()),
                        ("ports", place.key.ports_word()),
                        ("rest", rest),
                        ("packets", place.packets),
                        ("bytes", place.bytes as u32),
                        ("sixteenths", place.sixteenths),
                    ];
                    for (name, word) in words {
                        put(format!("column{column}.{name}.words"), at, word);
                    }
                }
            }
            let pending = |at: u32| (number << 12 | at) as usize;
            group.filter.iter().for_each(|at| put("filter.bits".to_owned(), note(*at), 1));
            group.doubted.iter().for_each(|at| put("doubts.bits".to_owned(), pending(*at), 1));
            for (at, packets) in &group.pending {
                put("pending.packets".to_owned(), pending(*at), *packets);
            }
            let number = number as usize;
            for (at, count) in group.events.iter().enumerate() {
                put("events.sums".to_owned(), number * 16 + at, *count);
            }
            for (at, count) in group.claims.iter().enumerate() {
                put("claims.sums".to_owned(), number * 4 + at, *count);
            }
            for (at, run) in group.flows.registers().iter().enumerate() {
                put("flows.runs".to_owned(), number << 12 | at, (*run).into());
            }
            put("evicted.sums".to_owned(), number, group.evicted_packets);
        }
        out
    }
}

impl Place {
    fn add(&mut self, seen: &Seen) {
        self.packets += 1;
        self.bytes += u64::from(seen.len);
        self.sixteenths += u32::from(seen.len / 16);
    }
}

impl Group {
    fn finish(&mut self, happened: usize, window: &Window, seen: &Seen, goes_on: bool) {
        self.events[happened] += 1;
        if window.claimed_below.is_some() {
            self.claims[usize::from(goes_on) * 2 + usize::from(seen.claimed)] += 1;
        }
    }
}
