//! The switches of a network: their tables, claims, residuals, and what all of them make of a
//! window.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use calumma_baselines::CSamp;
use calumma_cfs_analysis::alpha::{self, Alpha, Fared};
use calumma_sketch::grade::{self, Chosen, Claims, HopRule};
use calumma_sketch::residual::{ARRAYS, AnyResidual, Counts, Residual as _, Shape, network};
use calumma_sketch::table::{self, BITS_OF_A_FLOW, BoundedTable, Capacity, Rank, RowTable, Sink};
use calumma_sketch::{Beyond, FlowKey, HashFamily, Hashes, HyperLogLog};

use super::algorithm::{At, Kind};
use super::{Algorithm, Share, Trial};

/// Hosts send all packets with this time to live.
const TTL: u8 = 64;

/// The logarithm of HyperLogLog registers.
const HLL_BITS: u8 = 12;

/// Adds packets to a residual, and whether the flow was not there before, as far as the filter
/// knows.
fn put(to: &mut AnyResidual<FlowKey>, key: &FlowKey, hashes: &Hashes, counts: Counts) -> bool {
    let is_new = !to.may_hold(hashes);
    to.insert(key, hashes, counts);
    is_new
}

/// A switch's table: of the flows of smallest rank, or of those of each row.
enum Table {
    Bounded(Box<BoundedTable<FlowKey, Counts>>),
    Rows(RowTable<FlowKey, Counts>),
}

impl Table {
    /// One of so many entries, in rows of `columns` where there are any.
    fn new(columns: Option<u8>, entries: u32, filter_bits: usize) -> Self {
        let Some(columns) = columns else {
            let table = BoundedTable::new(Capacity { entries, filter_bits });
            return Self::Bounded(Box::new(table));
        };
        let rows = entries / u32::from(columns.max(1));
        Self::Rows(RowTable::new(table::Shape { rows, columns, filter_bits }))
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Bounded(table) => table.bytes(),
            Self::Rows(table) => table.bytes(),
        }
    }

    fn entries(&self) -> usize {
        match self {
            Self::Bounded(table) => table.capacity().entries as usize,
            Self::Rows(table) => table.shape().entries(),
        }
    }

    fn flows(&self) -> Box<dyn Iterator<Item = (&FlowKey, Rank, &Counts)> + '_> {
        match self {
            Self::Bounded(table) => Box::new(table.iter()),
            Self::Rows(table) => Box::new(table.iter()),
        }
    }

    /// The largest rank in it, where it is full.
    fn worst(&self) -> Option<Rank> {
        let mut ranks = self.flows().map(|(_, rank, _)| rank);
        let first = ranks.next()?;
        let (number, worst) =
            ranks.fold((1, first), |(number, worst), rank| (number + 1, worst.max(rank)));
        (number == self.entries()).then_some(worst)
    }

    fn record_run(
        &mut self,
        family: &HashFamily,
        key: &FlowKey,
        ranked: (&Hashes, Rank),
        packets: usize,
        sink: &mut Recorder<'_>,
    ) {
        match self {
            Self::Bounded(table) => table.record_run(family, key, ranked, packets, sink),
            Self::Rows(table) => table.record_run(key, ranked, packets, sink),
        }
    }

    fn finish(&mut self, family: &HashFamily, sink: &mut Recorder<'_>) {
        if let Self::Bounded(table) = self {
            table.finish(family, sink);
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Bounded(table) => table.clear(),
            Self::Rows(table) => table.clear(),
        }
    }
}

/// A switch, its claims and its residual.
struct Switch {
    table: Table,
    distinct: HyperLogLog,
    claims: Claims,
    residual: Option<AnyResidual<FlowKey>>,
    /// Buckets of each of its arrays.
    buckets: usize,
    /// Flows that this window's residual was given.
    put_in: usize,
    /// Entries of table and residual, and flows that are to pass in a window.
    room: (u32, usize),
}

/// A packet, or some of one flow.
pub(super) struct Packets<'a> {
    pub(super) key: &'a FlowKey,
    pub(super) hashes: &'a Hashes,
    /// What the flow is graded by.
    pub(super) word: u32,
    pub(super) counts: Counts,
}

/// What is true of a flow.
pub(super) struct Truth {
    pub(super) counts: Counts,
    /// The switches between which it would go round, if it did.
    pub(super) looped: Option<[usize; 2]>,
}

/// All switches of a network.
pub(super) struct Switches<'a> {
    all: Vec<Switch>,
    /// What their residuals are, where they have any.
    kind: Option<Kind>,
    trial: &'a Trial,
    family: &'a HashFamily,
    /// The table's share, where it moves.
    alpha: Option<Alpha>,
    /// Who counts what, by the flows of the last window.
    ranges: CSamp,
    /// Numbers of the flows that all switches count.
    pinned: HashSet<u32>,
    /// Whether counts of all windows are looked at, and not of the last one only.
    pub(super) looks: bool,
}

/// What came of a window: how often each flow was counted, and what of it was wrong.
#[derive(Default)]
pub(super) struct Counted {
    /// Tables that have the flow.
    pub(super) tables: Vec<u8>,
    /// Whether a residual that came out complete has it.
    pub(super) decoded: Vec<bool>,
    /// Whether a table that would see the flow go round has it.
    pub(super) loops: Vec<bool>,
    /// Counts that differ from the truth.
    pub(super) wrong: u64,
    /// Residuals that came out complete.
    pub(super) complete: usize,
    /// The registers of the flows that were counted.
    known: Option<HyperLogLog>,
}

impl Counted {
    /// Flows that tables have.
    pub(super) fn in_tables(&self) -> usize {
        self.tables.iter().filter(|&&entries| entries > 0).count()
    }

    /// Flows that came out of residuals only.
    pub(super) fn decoded_only(&self) -> usize {
        let both = self.tables.iter().zip(&self.decoded);
        both.filter(|&(&entries, &decoded)| entries == 0 && decoded).count()
    }

    /// Flows of a window, by the merged HyperLogLog sketches and the flows that were counted.
    pub(super) fn estimate(&self, merged: &HyperLogLog) -> Beyond {
        let counted = (self.in_tables() + self.decoded_only()) as f64;
        let beyond = self.known.as_ref().and_then(|known| merged.beyond(known));
        let of = |beyond: f64| counted + beyond;
        beyond.map_or(Beyond { value: counted, low: counted, high: f64::INFINITY }, |beyond| {
            Beyond { value: of(beyond.value), low: of(beyond.low), high: of(beyond.high) }
        })
    }
}

/// Bits of the filter of a table that so many flows pass.
fn filter_bits(flows: usize) -> usize {
    (flows * BITS_OF_A_FLOW).max(256)
}

impl<'a> Switches<'a> {
    /// Switches with so many entries, each of which so many flows pass.
    pub(super) fn new(
        trial: &'a Trial,
        family: &'a HashFamily,
        entries: &[u32],
        flows: &[usize],
    ) -> Self {
        let algorithm = trial.algorithm;
        let (table, beside) = match algorithm {
            Algorithm::Flowradar => (0.0, 1.0),
            _ if algorithm.has_residual() => match trial.alpha {
                Share::Fixed(alpha) => (alpha, 1.0 - alpha),
                Share::Auto => (1.0, 1.0),
            },
            _ => (1.0, 0.0),
        };
        let share = |share: f64, entries: u32| ((share * f64::from(entries)).round() as u32).max(1);
        let moves = algorithm.has_residual() && trial.alpha == Share::Auto;
        let claims = if algorithm.claims() { Claims::ALL } else { Claims::NONE };
        let switch = |(&entries, &flows): (&u32, &usize)| Switch {
            table: Table::new(trial.columns, share(table, entries), filter_bits(flows)),
            distinct: HyperLogLog::new(HLL_BITS),
            claims,
            residual: None,
            buckets: (share(beside, entries) as usize).div_ceil(ARRAYS),
            put_in: flows,
            room: (entries, flows),
        };
        let all = entries.iter().zip(flows).map(switch).collect();
        let kind = algorithm.residual(trial.residual);
        let (ranges, pinned) = (CSamp::default(), HashSet::new());
        let alpha = moves.then(Alpha::default);
        let looks = moves || trial.pins > 0;
        let mut switches = Self { all, kind, trial, family, alpha, ranges, pinned, looks };
        switches.share_out();
        switches.renew_residuals();
        switches
    }

    /// The table's share of this window.
    pub(super) fn alpha(&self) -> f64 {
        match (&self.alpha, self.trial.alpha) {
            (Some(alpha), _) => alpha.share(),
            (None, Share::Fixed(share)) => share,
            (None, Share::Auto) => 1.0,
        }
    }

    /// Empty tables and sizes of residuals, by a share that moves.
    fn share_out(&mut self) {
        let Some(alpha) = &self.alpha else { return };
        for Switch { table, buckets, room: (entries, flows), .. } in &mut self.all {
            let (of_table, of_residual) = alpha::shared(*entries, alpha.share());
            *table = Table::new(self.trial.columns, of_table, filter_bits(*flows));
            *buckets = of_residual / ARRAYS;
        }
    }

    /// Takes how residuals fared, and moves the share for the window to come.
    fn move_share(&mut self, counted: &Counted) {
        let merged = self.merged();
        let Some(alpha) = &mut self.alpha else { return };
        let before = alpha.share();
        let in_tables = counted.in_tables() as f64;
        let counted_at_all = in_tables + counted.decoded_only() as f64;
        let flows = counted.estimate(&merged).value;
        alpha.learn(Fared {
            decoded: counted.complete == self.all.len(),
            flows,
            counted: counted_at_all,
            in_tables,
        });
        if alpha.share() != before {
            self.share_out();
        }
    }

    /// Empty residuals, with filters for the flows that were put into the last ones.
    fn renew_residuals(&mut self) {
        let Some(kind) = self.kind else { return };
        let bits = self.trial.algorithm.filter_bits(kind);
        for switch in &mut self.all {
            let flows = std::mem::take(&mut switch.put_in);
            let filter_bits = (flows + flows / 20) * bits;
            let shape = Shape { buckets: switch.buckets, filter_bits };
            switch.residual = Some(AnyResidual::new(kind.kept(), shape));
        }
    }

    /// Packets of a flow pass the switches of its way.
    pub(super) fn pass(&mut self, packets: &Packets<'_>, way: &[usize]) {
        let Packets { key, hashes, word, counts } = *packets;
        let algorithm = self.trial.algorithm;
        let chosen = match way.len() {
            _ if self.pinned.contains(&key.src_word()) => Chosen::Pinned,
            1 => Chosen::Single,
            _ => Chosen::Shared,
        };
        let counting = (algorithm == Algorithm::Csamp).then(|| {
            let mut class = way.to_vec();
            class.sort_unstable();
            self.ranges.counts(&class, word)
        });
        let (mut ttl, mut is_claimed) = (TTL - self.routers_before(key), false);
        for &number in way {
            let hop = HopRule::default().number(ttl);
            let at = At { switch: number, hop, hops: way.len() as u8 };
            let grade = algorithm.grade(self.family, word, at);
            let switch = &mut self.all[number];
            let ranked = switch.claims.rank(chosen, is_claimed, grade);
            switch.distinct.insert(hashes);
            let mut sink = Recorder {
                family: self.family,
                packets,
                residual: switch.residual.as_mut(),
                put_in: &mut switch.put_in,
                is_left_out: is_claimed && !self.trial.residual_claimed,
                claimed_too: self.trial.residual_claimed,
            };
            if algorithm == Algorithm::Flowradar {
                sink.refuse(0..1);
            } else if counting.is_none_or(|counts| counts == Some(number)) {
                let ranked = (hashes, ranked.rank);
                switch.table.record_run(
                    self.family,
                    key,
                    ranked,
                    counts.packets as usize,
                    &mut sink,
                );
            }
            ttl -= 1;
            is_claimed = ranked.is_claimed && algorithm.claims();
        }
    }

    /// Routers that a flow passes before its first switch, which follow from its number.
    fn routers_before(&self, key: &FlowKey) -> u8 {
        let mixed = key.src_word().wrapping_mul(0x9E37_79B9) >> 8;
        (mixed % (u32::from(self.trial.routers_before) + 1)) as u8
    }

    /// Ends a window in which these flows took these ways, and begins the next one. `truth` is what
    /// each flow had, by its number; `places` where a flow can have passed.
    pub(super) fn finish(
        &mut self,
        truth: &[Truth],
        ways: &BTreeMap<Vec<usize>, u64>,
        places: impl Fn(&FlowKey, &mut Vec<usize>),
        is_last: bool,
    ) -> Counted {
        self.finish_tables();
        let mut counted = Counted::default();
        if is_last || self.looks {
            counted.tables = vec![0; truth.len()];
            counted.decoded = vec![false; truth.len()];
            counted.loops = vec![false; truth.len()];
            let mut known = HyperLogLog::new(HLL_BITS);
            for (at, switch) in self.all.iter().enumerate() {
                for (key, _, counts) in switch.table.flows() {
                    let flow = key.src_word() as usize;
                    counted.tables[flow] += 1;
                    counted.loops[flow] |= truth[flow].looped.is_some_and(|of| of.contains(&at));
                    counted.wrong += u64::from(*counts != truth[flow].counts);
                    known.insert(&self.family.hash(key));
                }
            }
            counted.known = Some(known);
            self.decode(truth, places, &mut counted);
        }
        if is_last {
            return counted;
        }
        self.pin(truth, &counted);
        if self.trial.algorithm == Algorithm::Csamp {
            let room = |switch: &Switch| switch.table.entries() as u64;
            let room: Vec<u64> = self.all.iter().map(room).collect();
            self.ranges = CSamp::new(ways, &room);
        }
        for Switch { table, claims, .. } in &mut self.all {
            if self.trial.algorithm.claims() {
                *claims = claims.next(table.worst());
            }
            table.clear();
        }
        self.move_share(&counted);
        self.all.iter_mut().for_each(|switch| switch.distinct.clear());
        self.renew_residuals();
        counted
    }

    /// Pins the largest flows that were counted.
    fn pin(&mut self, truth: &[Truth], counted: &Counted) {
        if self.trial.pins == 0 {
            return;
        }
        let flows = counted.tables.iter().zip(&counted.decoded).zip(0_u32..);
        let is_counted = |&((&entries, &decoded), _): &((&u8, &bool), u32)| entries > 0 || decoded;
        // A count that is right is the flow's size.
        let packets = |flow: u32| truth[flow as usize].counts.packets;
        let is_large = |flow: &u32| packets(*flow) >= self.trial.pinned_from.into();
        let flows = flows.filter(is_counted).map(|(_, flow)| flow).filter(is_large);
        let mut flows: Vec<u32> = flows.collect();
        flows.sort_by_key(|&flow| Reverse(packets(flow)));
        flows.truncate(self.trial.pins as usize);
        self.pinned = flows.into_iter().collect();
    }

    /// Evicts what tables have too much, to the residuals.
    fn finish_tables(&mut self) {
        let (key, hashes) = (FlowKey::default(), Hashes::default());
        let none = Packets { key: &key, hashes: &hashes, word: 0, counts: Counts::default() };
        for switch in &mut self.all {
            let mut sink = Recorder {
                family: self.family,
                packets: &none,
                residual: switch.residual.as_mut(),
                put_in: &mut switch.put_in,
                is_left_out: true,
                claimed_too: self.trial.residual_claimed,
            };
            switch.table.finish(self.family, &mut sink);
        }
    }

    /// Decodes the residuals.
    fn decode(
        &mut self,
        truth: &[Truth],
        places: impl Fn(&FlowKey, &mut Vec<usize>),
        counted: &mut Counted,
    ) {
        if self.kind.is_none() {
            return;
        }
        let held = |(at, switch): (usize, &Switch)| {
            switch.table.flows().map(|(key, _, counts)| (at, *key, *counts)).collect::<Vec<_>>()
        };
        let known: Vec<_> = self.all.iter().enumerate().flat_map(held).collect();
        let residuals = self.all.iter_mut().map(|switch| switch.residual.take());
        let decoded = network::decode(self.family, residuals.collect(), &known, places);
        for node in decoded.into_iter().flatten().filter(|node| node.is_complete) {
            counted.complete += 1;
            for (key, counts) in node.flows {
                let flow = key.src_word() as usize;
                match truth.get(flow) {
                    Some(truth) if truth.counts == counts => counted.decoded[flow] = true,
                    _ => counted.wrong += 1,
                }
                counted.known.iter_mut().for_each(|known| known.insert(&self.family.hash(&key)));
            }
        }
    }

    /// The merged HyperLogLog sketches of all switches.
    pub(super) fn merged(&self) -> HyperLogLog {
        let mut merged = HyperLogLog::new(HLL_BITS);
        for switch in &self.all {
            // All have as many registers.
            let _ = merged.merge(&switch.distinct);
        }
        merged
    }

    /// Bytes of all tables, filters, registers, ranges and residuals. To be asked before the last
    /// window is finished.
    pub(super) fn bytes(&self) -> usize {
        const REGISTERS: usize = (6 << HLL_BITS) / 8;
        let has_table = self.trial.algorithm != Algorithm::Flowradar;
        let of = |(at, switch): (usize, &Switch)| {
            let table = if has_table { switch.table.bytes() } else { 0 };
            let residual = switch.residual.as_ref().map_or(0, |residual| residual.bytes());
            table + residual + REGISTERS + self.ranges.bytes(at)
        };
        self.all.iter().enumerate().map(of).sum()
    }
}

/// Counts packets, and puts those without an entry into the residual.
struct Recorder<'a> {
    family: &'a HashFamily,
    packets: &'a Packets<'a>,
    residual: Option<&'a mut AnyResidual<FlowKey>>,
    put_in: &'a mut usize,
    /// The residual is not given these packets: whoever has claimed the flow has it in its own
    /// table or residual.
    is_left_out: bool,
    /// The residual is given flows that came claimed.
    claimed_too: bool,
}

impl Sink<FlowKey, Counts> for Recorder<'_> {
    fn count(&mut self, value: &mut Counts, _: Range<usize>) {
        value.packets += self.packets.counts.packets;
        value.bytes += self.packets.counts.bytes;
    }

    fn refuse(&mut self, _: Range<usize>) {
        let Packets { key, hashes, counts, .. } = self.packets;
        if let Some(residual) = self.residual.as_mut().filter(|_| !self.is_left_out) {
            *self.put_in += usize::from(put(residual, key, hashes, *counts));
        }
    }

    fn evict(&mut self, key: &FlowKey, rank: Rank, value: &Counts) {
        if let Some(residual) = self.residual.as_mut()
            && (self.claimed_too || !grade::is_claimed(rank))
        {
            let hashes = self.family.hash(key);
            *self.put_in += usize::from(put(residual, key, &hashes, *value));
        }
    }
}
