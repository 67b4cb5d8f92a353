//! What one lcore keeps of a window.

use std::ops::Range;
use std::sync::Arc;

use calumma_epoch::EpochClock;
use calumma_plane::carrier::Way;
use calumma_plane::parse::detail::IpFields;
use calumma_plane::{FlowSet, Record};
use calumma_sketch::burst::ones;
use calumma_sketch::grade::{self, Chosen, Claims};
use calumma_sketch::residual::{Counts, Residual as _};
use calumma_sketch::simd::{Isa, Work};
use calumma_sketch::sketchint::flow_word;
use calumma_sketch::table::{BoundedTable, Capacity, Rank, Sink};
use calumma_sketch::{
    Arena, BURST, HashColumns, HashFamily, Hashes, HyperLogLog, Key, KeyKind, WideKey,
};

use super::counted::Counted;
use super::ends::Ends;
use super::guard::{Guard, Lives};
use super::notices::Noticing;
use crate::frames::{Graded, Overrides, Residual, Setup, Sizes, even};

/// What all of a switch's records have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) setup: Setup,
    pub(super) family: HashFamily,
    /// By which random grades differ from those of other switches.
    pub(super) salt: u32,
    /// Whether it is an edge.
    pub(super) is_edge: bool,
    /// Whether flows are graded and counted by the hashes of their wide keys, whichever keys the
    /// switch measures by.
    pub(super) by_wide: bool,
    pub(super) clock: EpochClock,
}

impl Common {
    /// The grade by a rule of a flow whose first packet had come so far: [`Setup::grade_at`],
    /// within work that already runs on `isa`.
    #[inline(always)]
    fn grade(&self, isa: impl Isa, by: Graded, of: (&Hashes, u32), way: Way) -> u32 {
        let (hashes, seed) = of;
        let word = grade::word(hashes, seed);
        match by {
            Graded::Fold => grade::fold(word, way.hop),
            Graded::Greedy => grade::greedy(word, way.hop),
            Graded::Even => even(word, way),
            Graded::Random => grade::random_with(isa, &self.family, word, self.salt),
        }
    }
}

/// What holds for a window and may be otherwise in the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Flows that come before all others.
    pub(super) pins: FlowSet,
    /// As [`frames::Plan::alpha`](crate::frames::Plan::alpha).
    pub(super) alpha: u8,
    /// As [`frames::Plan::overrides`](crate::frames::Plan::overrides).
    pub(super) overrides: Overrides,
}

/// Sums over the packets of a window that its table does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Those of flows that had no entry when they came.
    pub(super) refused: u64,
    /// Those that evicted entries had counted.
    pub(super) evicted: u64,
    /// Those without a mark that says their window.
    pub(super) unmarked: u64,
    /// Those that came claimed, all that were recorded.
    pub(super) claimed_in: u64,
    /// Those that went on claimed.
    pub(super) claimed_out: u64,
}

/// One lcore's table of a window.
#[derive(Clone, Debug)]
pub(super) struct Share<K: Key> {
    pub(super) table: BoundedTable<K, Counted>,
    pub(super) sums: Sums,
    /// Which flows' packets go on claimed; `None` before the first packet.
    pub(super) claims: Option<Claims>,
    /// Where flows without an entry entered and left, where edges say it.
    pub(super) ends: Option<Ends>,
}

/// What one lcore keeps of a window; once others' are merged into it, what all of them do.
#[derive(Clone, Debug)]
pub(super) struct Window<K: Key> {
    pub(super) common: Arc<Common>,
    /// The window's first epoch.
    pub(super) epoch: u64,
    seed: u32,
    start_ns: u64,
    /// The same for the whole window.
    pub(super) plan: Plan,
    /// By which rule its flows are graded, and whether they are claimed.
    grade: Graded,
    pub(super) claim: bool,
    /// How many lcores share the switch's entries.
    lcores: usize,
    /// What the table lies in, where plans say how large it is, and the residual beside it, where
    /// they say its share.
    arena: Option<Arena>,
    pub(super) share: Share<K>,
    /// All flows that were seen.
    pub(super) flows: HyperLogLog,
    /// Other lcores' tables.
    pub(super) others: Vec<Share<K>>,
    /// Packets of flows without an entry, where they are wanted.
    pub(super) residual: Option<Residual<K>>,
    /// Loops of flows without an entry, where they are looked for.
    pub(super) guard: Option<Guard<K>>,
}

/// Packets of one window and side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packets<'a, K> {
    /// Each packet's key.
    pub(super) keys: &'a [K],
    /// Their hashes, where they are at hand.
    pub(super) hashes: Option<&'a HashColumns>,
    /// What each packet's IP header says.
    pub(super) ip: &'a [IpFields],
    /// When they were found, in nanoseconds since the Unix epoch.
    pub(super) polled_ns: u64,
    /// Which port received them.
    pub(super) port: u16,
    /// As [`Entry::sides`](crate::frames::Entry::sides).
    pub(super) side: u8,
    /// Whether this is the only switch on their way.
    pub(super) single: bool,
    /// A bit for each packet: whether it came claimed.
    pub(super) claimed: u32,
}

impl<K: Key> Window<K> {
    /// An empty record for one of so many lcores. It takes its memory now.
    pub(super) fn new(common: Arc<Common>, lcores: usize) -> Self {
        let Setup { entries, filter_bits, hll_bits, residual, .. } = common.setup;
        let filter_bits = part(filter_bits, lcores).max(256) as usize;
        let Setup { alpha_moves, overrides, grade, claim, .. } = common.setup;
        let is_planned = alpha_moves || overrides;
        let table = if is_planned {
            BoundedTable::without_memory(filter_bits)
        } else {
            BoundedTable::new(Capacity { entries: part(entries, lcores), filter_bits })
        };
        let residual = residual.filter(|_| !alpha_moves);
        let empty = |buckets| Residual::new(&common.setup, buckets, common.is_edge);
        let residual = residual.map(empty);
        let arena = is_planned.then(|| Arena::new(most_lines::<K>(&common, lcores)));
        let ends = common.setup.ends.then(|| Ends::new(filter_bits as u32));
        let share = Share { table, sums: Sums::default(), claims: None, ends };
        let (flows, others) = (HyperLogLog::new(hll_bits), Vec::new());
        let guard = common.setup.guard.then(Guard::new);
        Self {
            common,
            epoch: 0,
            seed: 0,
            start_ns: 0,
            plan: Plan::default(),
            grade,
            claim,
            lcores,
            arena,
            share,
            flows,
            others,
            residual,
            guard,
        }
    }

    /// Bytes of memory that the lcore's table and what belongs to it take.
    pub(super) fn bytes(&self) -> usize {
        let table = &self.share.table;
        let residual = self.residual.as_ref().map_or(0, Residual::bytes);
        let in_arena = self.arena.as_ref().map(Arena::bytes);
        let of_both = match in_arena {
            Some(bytes) if self.common.setup.alpha_moves => bytes,
            bytes => bytes.unwrap_or(table.bytes_of_entries()) + residual,
        };
        let guard = self.guard.as_ref().map_or(0, Guard::bytes);
        let filter = table.bytes() - table.bytes_of_entries();
        let ends = self.share.ends.as_ref().map_or(0, Ends::bytes);
        filter + of_both + self.flows.registers().len() + guard + ends
    }

    /// About the largest rank that will be in the table when the window is over, without a pass
    /// over it; `None` where it will not be full.
    pub(super) fn worst(&self) -> Option<Rank> {
        let table = &self.share.table;
        let limit = table.limit()?;
        // Those beyond the wanted ones will go, and grades are spread evenly.
        let (wanted, there) = (u64::from(table.capacity().entries), table.len().max(1) as u64);
        let grade = u64::from(limit.grade()) * wanted.min(there) / there;
        Some(Rank::new(limit.class(), grade as u32))
    }

    /// Records packets, at most [`BURST`]: a line of the index and one of the entries for each that
    /// has an entry, one of the index and one of the filter for another, and a register; six of the
    /// residual for one without an entry. Gives a bit for each packet: whether it goes on claimed.
    #[inline]
    pub(super) fn record(
        &mut self,
        common: &Common,
        packets: &Packets<'_, K>,
        noticing: &mut Noticing,
    ) -> u32 {
        common.family.engine().run(Recording { window: self, common, packets, noticing })
    }
}

/// An lcore's part of so many.
fn part(all: u32, lcores: usize) -> u32 {
    (all / lcores.max(1) as u32).max(1)
}

/// Cache lines that an lcore's table takes at most, whatever a plan says, and the residual beside
/// it.
fn most_lines<K: Key>(common: &Common, lcores: usize) -> usize {
    let lines = |alpha| {
        let Sizes { entries, residual } = common.setup.sizes(alpha);
        let residual = residual.filter(|_| common.setup.alpha_moves);
        let residual = residual.map_or(0, |it| Residual::<K>::lines(it, common.is_edge));
        BoundedTable::<K, Counted>::lines(part(entries, lcores)) + residual
    };
    let shares = Setup::ALPHA.filter(|_| common.setup.alpha_moves);
    shares.map(lines).fold(lines(0), usize::max)
}

impl<K: Key> Record for Window<K> {
    type Plan = Plan;

    /// Divides the memory by the plan, which takes and touches none.
    fn begin(&mut self, plan: &Plan, epoch: u64) {
        self.plan.clone_from(plan);
        let Common { setup, clock, is_edge, .. } = &*self.common;
        if let Some(arena) = &mut self.arena {
            let Sizes { entries, residual } = setup.with(plan.overrides).sizes(plan.alpha);
            self.share.table.lie_in(arena, part(entries, self.lcores));
            if setup.alpha_moves {
                // Lcores' residuals are added up: all are as large as the switch's.
                self.residual = residual.map(|buckets| Residual::new_in(arena, buckets, *is_edge));
            }
        }
        let Setup { grade, claim, .. } = setup.with(plan.overrides);
        (self.grade, self.claim) = (grade, claim);
        self.epoch = epoch;
        self.seed = setup.seed(epoch / u64::from(setup.window_epochs));
        self.start_ns = clock.start_of(epoch);
    }

    fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Keeps a copy of the other's table: which counts are exact depends on all of them. Takes
    /// memory, until the record is cleared.
    fn merge(&mut self, other: &Self) {
        // Where the flows' number can't be added, which is of a switch of this setup, it is not.
        let _ = self.flows.merge(&other.flows);
        self.others.push(other.share.clone());
        self.others.extend_from_slice(&other.others);
        if let (Some(residual), Some(of_other)) = (&mut self.residual, &other.residual) {
            residual.merge(of_other);
        }
        if let (Some(guard), Some(of_other)) = (&mut self.guard, &other.guard) {
            guard.merge(of_other);
        }
    }

    fn clear(&mut self) {
        let Share { table, sums, claims, ends } = &mut self.share;
        table.clear();
        ends.iter_mut().for_each(Ends::clear);
        (*sums, *claims) = (Sums::default(), None);
        self.flows.clear();
        self.others.clear();
        if self.common.setup.alpha_moves {
            self.residual = None;
        }
        if let Some(arena) = &mut self.arena {
            table.give_back();
            arena.reset();
        }
        self.residual.iter_mut().for_each(Residual::clear);
        self.guard.iter_mut().for_each(Guard::clear);
    }
}

/// Keeps nothing of packets that enter but what holds in their window: they are recorded by the bit
/// that they are stamped with.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entering(Plan);

impl Record for Entering {
    type Plan = Plan;

    fn begin(&mut self, plan: &Plan, _epoch: u64) {
        self.0.clone_from(plan);
    }

    fn plan(&self) -> &Plan {
        &self.0
    }

    fn merge(&mut self, _other: &Self) {}

    fn clear(&mut self) {}
}

struct Recording<'a, 'b, K: Key> {
    window: &'a mut Window<K>,
    common: &'a Common,
    packets: &'a Packets<'b, K>,
    noticing: &'a mut Noticing,
}

impl<K: Key> Work for Recording<'_, '_, K> {
    type Output = u32;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> u32 {
        let Recording { window, common, packets, noticing } = self;
        let Packets { keys, hashes, ip, polled_ns, port, side, single, claimed } = *packets;
        let computed;
        let hashes = match hashes {
            Some(hashes) => hashes,
            None => {
                computed = hash_keys(isa, &common.family, keys);
                &computed
            }
        };
        let of_wide;
        let words = if common.by_wide && K::KIND == KeyKind::Ipv4 {
            of_wide = hash_wide(isa, &common.family, keys);
            &of_wide
        } else {
            hashes
        };
        let claims = window.share.claims.unwrap_or(Claims::NONE);
        let unpinned = if single { Chosen::Single } else { Chosen::Shared };
        let pins = &window.plan.pins;
        let has_pins = !pins.is_empty(K::KIND);
        let mut chosen = unpinned;
        let (mut ranks, mut goes_on) = ([Rank::default(); BURST], 0);
        let (mut grade, graded) = (0, window.grade);
        for (at, key) in keys.iter().enumerate().take(BURST) {
            // Packets of one flow back to back are graded as the first of them.
            if at == 0 || keys[at - 1] != *key {
                let of = words.of(at);
                let fields = ip.get(at).copied().unwrap_or_default();
                let way = common.setup.way_at(fields.ttl, port, fields.way);
                grade = common.grade(isa, graded, (&of, window.seed), way);
                let is_pinned = has_pins && pins.has(K::KIND, flow_word(&hashes.of(at)));
                chosen = if is_pinned { Chosen::Pinned } else { unpinned };
                window.flows.insert(&of);
            }
            let ranked = claims.rank(chosen, claimed >> at & 1 == 1, grade);
            ranks[at] = ranked.rank;
            goes_on |= u32::from(ranked.is_claimed) << at;
        }
        let us = u32::try_from(polled_ns.saturating_sub(window.start_ns) / 1000);
        let us = us.unwrap_or(u32::MAX);
        let epoch = window.epoch;
        let Share { table, sums, ends, .. } = &mut window.share;
        sums.claimed_in += u64::from(claimed.count_ones());
        let (residual, family) = (window.residual.as_mut(), &common.family);
        let guard = window.guard.as_mut();
        let of = (keys, hashes, epoch);
        let side_counted = if single { side | Counted::LOCAL } else { side };
        let mut counting = Counting {
            ip,
            us,
            side: side_counted,
            sums,
            residual,
            guard,
            ends: ends.as_mut(),
            family,
            of,
            noticing,
            refused: 0,
        };
        table.record(isa, keys, hashes, &ranks[..keys.len().min(BURST)], &mut counting);
        let refused = counting.refused;
        // Its lines come while the residual's are written.
        if let Some(guard) = &window.guard {
            ones(refused).for_each(|at| guard.prefetch(isa, &hashes.of(at)));
        }
        if refused != 0
            && let Some(ends) = ends
        {
            ends.note_burst(keys, hashes, refused, (side, single));
        }
        if refused != 0
            && let Some(residual) = &mut window.residual
        {
            let lengths = ip.iter().map(|fields| fields.len);
            let mut bytes = [0; BURST];
            bytes.iter_mut().zip(lengths).for_each(|(bytes, length)| *bytes = length);
            let part = residual.part(side, refused.count_ones().into());
            part.insert_burst(isa, keys, hashes, &bytes, refused);
        }
        if refused != 0
            && let Some(guard) = &mut window.guard
        {
            for at in ones(refused) {
                let (Some(key), Some(fields)) = (keys.get(at), ip.get(at)) else { break };
                let hashes = &hashes.of(at);
                if let Some(lives) = guard.see(key, hashes, fields.ttl) {
                    noticing.see(epoch, (key, hashes), lives, fields.ttl);
                }
            }
        }
        goes_on
    }
}

/// The hashes of these IPv4 flows by their wide keys, at most [`BURST`].
#[inline(always)]
fn hash_wide<K: Key>(isa: impl Isa, family: &HashFamily, keys: &[K]) -> HashColumns {
    let mut wide = [WideKey::default(); BURST];
    for (wide, key) in wide.iter_mut().zip(keys) {
        let [src, dst, ports] = [0, 1, 2].map(|at| key.word(at));
        let words = [0, 0, 0xFFFF, src, 0, 0, 0xFFFF, dst, ports];
        *wide = WideKey::from_words(words, key.protocol());
    }
    hash_keys(isa, family, &wide[..keys.len().min(BURST)])
}

#[inline(always)]
fn hash_keys<K: Key>(isa: impl Isa, family: &HashFamily, keys: &[K]) -> HashColumns {
    family.hash_keys::<K>(isa, &K::burst(isa, keys))
}

/// Puts what an entry counted into a residual.
#[inline(always)]
pub(super) fn put<K: Key>(to: &mut Residual<K>, key: &K, hashes: &Hashes, counted: &Counted) {
    let Counted { packets, bytes, .. } = *counted;
    to.part(counted.sides(), packets).insert(key, hashes, Counts { packets, bytes });
}

/// Counts the packets of a burst.
struct Counting<'a, K: Key> {
    ip: &'a [IpFields],
    us: u32,
    /// As [`Counted::sides`].
    side: u8,
    sums: &'a mut Sums,
    residual: Option<&'a mut Residual<K>>,
    guard: Option<&'a mut Guard<K>>,
    ends: Option<&'a mut Ends>,
    family: &'a HashFamily,
    /// Their keys and hashes, and the window's first epoch.
    of: (&'a [K], &'a HashColumns, u64),
    noticing: &'a mut Noticing,
    /// A bit for each packet of a flow without an entry.
    refused: u32,
}

impl<K: Key> Counting<'_, K> {
    /// A flow with an entry, whose packets came with several times to live, has come again.
    #[cold]
    fn notice(&mut self, value: &Counted, first: usize, all: &[IpFields]) {
        let (keys, hashes, epoch) = self.of;
        if let (Some(key), Some(ttl)) = (keys.get(first), all.iter().map(|of| of.ttl).min()) {
            self.noticing.see(epoch, (key, &hashes.of(first)), Lives::from(value), ttl);
        }
    }
}

impl<K: Key> Sink<K, Counted> for Counting<'_, K> {
    #[inline(always)]
    fn count(&mut self, value: &mut Counted, packets: Range<usize>) {
        let first = packets.start;
        let all = self.ip.get(packets).unwrap_or_default();
        for fields in all {
            value.add(*fields, self.us, self.side);
        }
        if value.differences != 0 {
            self.notice(value, first, all);
        }
    }

    #[inline(always)]
    fn refuse(&mut self, packets: Range<usize>) {
        self.sums.refused += packets.len() as u64;
        self.refused |= packets.fold(0, |bits, packet| bits | 1 << packet);
    }

    #[inline(always)]
    fn evict(&mut self, key: &K, _: Rank, value: &Counted) {
        self.sums.evicted += value.packets;
        if let Some(residual) = &mut self.residual {
            put(residual, key, &self.family.hash(key), value);
        }
        if let Some(ends) = &mut self.ends {
            let side = (value.sides(), value.is_local());
            ends.note(&self.family.hash(key), side, value.packets);
        }
        if value.differences != 0
            && let Some(guard) = &mut self.guard
        {
            guard.see_entry(key, &self.family.hash(key), Lives::from(value));
        }
    }
}
