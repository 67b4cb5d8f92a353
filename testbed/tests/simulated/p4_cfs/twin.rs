//! The table of rows as `p4src/cfs.p4` has it, in plain code: lists and maps, packet by packet.
//! Which words lie in which register, the last function says; nothing else here knows.

use std::collections::{BTreeMap, BTreeSet};

use calumma_sketch::grade::{self, HopRule};
use calumma_sketch::{FlowKey, HashFamily, Hashes, HyperLogLog, KeyKind, WideKey};

use super::guard::Guard;

/// Of the program as it is, and as it may be built for a Tofino 2.
pub(super) const COLUMNS: usize = 4;
pub(super) const MOST_COLUMNS: usize = 6;

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
    /// Of the window. Its lowest bit is the group.
    pub(super) number: u32,
    pub(super) seed: u32,
    /// The grade from which on flows are not claimed; `None` where packets carry no claims.
    pub(super) claimed_below: Option<u64>,
}

impl Window {
    pub(super) fn group(&self) -> u32 {
        self.number & 1
    }
}

/// A packet as the table sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) key: FlowKey,
    pub(super) ttl: u8,
    pub(super) len: u16,
    pub(super) claimed: bool,
    pub(super) side: Side,
    /// Whether it goes from host to host of this switch.
    pub(super) single: bool,
}

/// On which side a packet is, by the numbers of `p4src/include/cfs/types.p4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Passed,
    Entered,
    Left,
}

/// Why flows are doubted, by the same numbers.
const DOUBTED: u32 = 1;
const STRAYED: u32 = 2;

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
    /// The places of each row that has any.
    pub(super) rows: BTreeMap<u32, Vec<Option<Place>>>,
    filter: BTreeSet<u32>,
    pending: BTreeMap<u32, u32>,
    doubted: BTreeMap<u32, u32>,
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
            doubted: BTreeMap::new(),
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
    /// It is resubmitted, for a place from that column on, and another was on its way already.
    Again { second: bool, aim: Aim },
}

/// Where a packet seeks a place: that of the worst flow of its row, or a free one from there on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    column: usize,
    free: bool,
}

/// Both groups.
#[derive(Clone, Debug)]
pub(super) struct Twin {
    family: HashFamily,
    /// Of which kind switches hash the keys of flows.
    keys: KeyKind,
    row_bits: u32,
    columns: usize,
    pub(super) groups: [Group; 2],
    /// Flows that come before all others, by group.
    pub(super) pinned: [BTreeSet<FlowKey>; 2],
    pub(super) guard: Guard,
    /// Whether loops are looked for by the packet that was recorded last.
    is_watched: bool,
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
    /// One with so many rows, cells and columns.
    pub(super) fn new(
        (family, keys): (HashFamily, KeyKind),
        (row_bits, cell_bits): (u32, u32),
        columns: usize,
    ) -> Self {
        let (groups, pinned, is_watched) = Default::default();
        let guard = Guard::new(cell_bits);
        Self { family, keys, row_bits, columns, groups, pinned, guard, is_watched }
    }

    /// The packet that was recorded last leaves the switch.
    pub(super) fn leave(&mut self, window: &Window, seen: &Seen) {
        if self.is_watched {
            let hashes = self.hash(&seen.key);
            self.guard.see((seen.key, &hashes), window.number, seen.ttl);
        }
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
        // Better than a claimed flow is one that is not, 1, than that one of this switch alone, 2,
        // and than that one that is pinned, 3; better than that a smaller grade.
        let class = if self.pinned[window.group() as usize].contains(&seen.key) {
            3
        } else if seen.single {
            2
        } else {
            u32::from(!claimed)
        };
        let side = seen.side as u32;
        Belongs {
            row: self.row(&hashes),
            note: hashes.array_word(2) % FILTER,
            pending: hashes.array_word(2) % PENDING,
            standing: class << 28 | (!grade >> 14) << 10 | side << 8 | u32::from(seen.ttl),
            // Claims end where the network does.
            goes_on: seen.side != Side::Left
                && !seen.single
                && (claimed || window.claimed_below.is_some_and(|below| u64::from(grade) < below)),
        }
    }

    /// The standing, row and note of a flow whose first packet this is.
    pub(super) fn chosen_by(&self, window: &Window, seen: &Seen) -> (u32, u32, u32) {
        let Belongs { standing, row, note, .. } = self.belongs(window, seen);
        (standing, row, note)
    }

    pub(super) fn first(&mut self, window: &Window, seen: &Seen) -> First {
        let (of, hashes) = (self.belongs(window, seen), self.hash(&seen.key));
        let group = &mut self.groups[window.group() as usize];
        group.flows.insert(&hashes);
        let row = group.rows.entry(of.row).or_insert_with(|| vec![None; self.columns]);
        let waiting = group.pending.get(&of.pending).copied().unwrap_or_default();
        let stands = |place: &Option<Place>| place.map_or(0, |place| place.standing);
        let (column, worst) = (0..).zip(row.iter().map(stands)).min_by_key(|it| it.1).unwrap();
        let mut places = row.iter_mut().flatten();
        self.is_watched = true;
        let happened = if let Some(place) = places.find(|place| place.key == seen.key) {
            place.add(seen);
            self.is_watched = place.has_another_ttl(seen);
            doubt(&mut group.doubted, of.pending, place.strays(seen));
            event::FOUND
        } else if of.standing <= worst {
            match group.filter.insert(of.note) {
                true => event::REFUSED,
                false => event::REFUSED_AGAIN,
            }
        } else if group.filter.contains(&of.note) {
            event::FILTERED
        } else {
            *group.pending.entry(of.pending).or_default() += 1;
            group.events[event::SENT] += 1;
            let aim = Aim { column, free: worst == 0 };
            return First::Again { second: waiting > 0, aim };
        };
        if happened != event::FOUND && waiting > 0 {
            doubt(&mut group.doubted, of.pending, DOUBTED);
        }
        group.finish(happened, window, seen, of.goes_on);
        First::Done(of.goes_on)
    }

    /// The claim bit with which a resubmitted packet goes on.
    pub(super) fn again(
        &mut self,
        window: &Window,
        seen: &Seen,
        (second, Aim { column, free }): (bool, Aim),
    ) -> bool {
        let of = self.belongs(window, seen);
        let group = &mut self.groups[window.group() as usize];
        let row = group.rows.entry(of.row).or_insert_with(|| vec![None; self.columns]);
        if let Some(waiting) = group.pending.get_mut(&of.pending) {
            *waiting -= 1;
        }
        let takes = if free {
            // It goes no further than to where another packet of its flow was put.
            let mut from = (column..).zip(&row[column..]);
            let stops =
                |place: &Option<Place>| place.is_none_or(|place| place.standing == of.standing);
            from.find(|(_, place)| stops(place)).filter(|(_, place)| place.is_none())
        } else {
            let worse = row[column].is_none_or(|place| place.standing < of.standing);
            worse.then_some((column, &row[column]))
        };
        let takes = takes.map(|(column, _)| column);
        let mut places = (0..).zip(row.iter_mut()).filter(|(at, _)| Some(*at) != takes);
        let found = places.find_map(|(at, place)| {
            Some((at, place.as_mut().filter(|place| place.key == seen.key)?))
        });
        let happened = match (takes, found) {
            (None, Some((_, place))) => {
                place.add(seen);
                self.is_watched = place.has_another_ttl(seen);
                doubt(&mut group.doubted, of.pending, place.strays(seen));
                event::MET
            }
            (None, None) => {
                self.is_watched = true;
                group.filter.insert(of.note);
                event::CROWDED_OUT
            }
            (Some(column), found) => {
                self.is_watched = false;
                let (standing, key, note) = (of.standing, seen.key, of.note);
                let mut place = Place { standing, key, note, packets: 0, bytes: 0, sixteenths: 0 };
                // What has passed another entry of its flow is counted in that one.
                match found {
                    Some((at, found)) if at < column => found.add(seen),
                    _ => place.add(seen),
                }
                if second {
                    doubt(&mut group.doubted, of.pending, DOUBTED);
                }
                match row[column].replace(place) {
                    Some(evicted) => {
                        group.filter.insert(evicted.note);
                        group.evicted_packets += evicted.packets;
                        event::REPLACED
                    }
                    None => event::PLACED,
                }
            }
        };
        group.finish(happened, window, seen, of.goes_on);
        of.goes_on
    }

    /// A packet of no flow that the table could hold.
    pub(super) fn other(&mut self, window: &Window) {
        self.groups[window.group() as usize].events[event::OTHER] += 1;
    }

    /// Whether a flow may lack a packet.
    pub(super) fn doubts(&self, group: usize, key: &FlowKey) -> bool {
        let at = self.hash(key).array_word(2) % PENDING;
        self.groups[group].doubted.contains_key(&at)
    }

    /// The words of every register of the table, by its name within `rows` and by lane, that are
    /// not 0.
    pub(super) fn words(&self) -> BTreeMap<(String, usize), BTreeMap<usize, u32>> {
        let mut out: BTreeMap<(String, usize), BTreeMap<usize, u32>> = BTreeMap::new();
        let mut put = |register: (String, usize), at: usize, word: u32| {
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
                    let Some(place) = place else { continue };
                    let (src, protocol) = (place.key.src_word(), u32::from(place.key.protocol()));
                    let noted = 1 << 31 | (src & 0x1FF) << 22 | note(place.note) as u32;
                    let words = [
                        ("standing.words", 0, place.standing),
                        ("ends.words", 0, 1 << 31 | protocol << 23 | src >> 9),
                        ("ends.words", 1, place.key.dst_word()),
                        ("ports.words", 0, noted),
                        ("ports.words", 1, place.key.ports_word()),
                        ("counts.sums", 0, place.packets),
                        ("counts.sums", 1, place.bytes as u32),
                        ("sixteenths.sums", 0, place.sixteenths),
                    ];
                    for (name, lane, word) in words {
                        put((format!("column{column}.{name}"), lane), at, word);
                    }
                }
            }
            let single = |name: &str| (name.to_owned(), 0);
            let pending = |at: u32| (number << 12 | at) as usize;
            group.filter.iter().for_each(|at| put(single("filter.bits"), note(*at), 1));
            for (at, kinds) in &group.doubted {
                put(single("doubts.kinds"), pending(*at), *kinds);
            }
            for (at, packets) in &group.pending {
                put(single("pending.packets"), pending(*at), *packets);
            }
            let number = number as usize;
            for (at, count) in group.events.iter().enumerate() {
                put(single("events.sums"), number * 16 + at, *count);
            }
            for (at, count) in group.claims.iter().enumerate() {
                put(single("claims.sums"), number * 4 + at, *count);
            }
            for (at, run) in group.flows.registers().iter().enumerate() {
                put(single("flows.runs"), number << 12 | at, (*run).into());
            }
            put(single("evicted.sums"), number, group.evicted_packets);
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

    fn has_another_ttl(&self, seen: &Seen) -> bool {
        self.standing as u8 != seen.ttl
    }

    /// How a packet differs from the flow's first one.
    fn strays(&self, seen: &Seen) -> u32 {
        let by_ttl = if self.has_another_ttl(seen) { DOUBTED } else { 0 };
        let by_side = if self.standing >> 8 & 3 == seen.side as u32 { 0 } else { STRAYED };
        by_ttl | by_side
    }
}

fn doubt(doubted: &mut BTreeMap<u32, u32>, at: u32, kinds: u32) {
    if kinds != 0 {
        *doubted.entry(at).or_default() |= kinds;
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
