//! What one lcore keeps of a window.

use std::sync::Arc;

use calumma_epoch::EpochClock;
use calumma_plane::carrier::Way;
use calumma_plane::parse::detail::IpFields;
use calumma_plane::{FlowSet, Record};
use calumma_sketch::grade::{self, Claims};
use calumma_sketch::simd::Isa;
use calumma_sketch::table::{BoundedTable, Capacity, Rank};
use calumma_sketch::{Arena, HashColumns, HashFamily, Hashes, HyperLogLog, Key};

use super::cache::RefusedCache;
use super::counted::Counted;
use super::ends::Ends;
use super::guard::Guard;
use super::notices::Noticing;
use super::recording::{Ahead, Recording};
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
    pub(super) fn grade(&self, isa: impl Isa, by: Graded, of: (&Hashes, u32), way: Way) -> u32 {
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
    /// Those without a mark that says their window, which may be this one.
    pub(super) unmarked: u64,
    /// Those of them that another window has noted as well.
    pub(super) unmarked_again: u64,
    /// Those that came claimed, all that were recorded.
    pub(super) claimed_in: u64,
    /// Those that went on claimed.
    pub(super) claimed_out: u64,
}

/// One lcore's table of a window.
#[derive(Clone, Debug)]
pub(super) struct Share<K: Key> {
    pub(super) table: BoundedTable<K, Counted>,
    /// Flows that the table refused lately.
    pub(super) cache: RefusedCache<K>,
    pub(super) ahead: Ahead,
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
    pub(super) seed: u32,
    pub(super) start_ns: u64,
    /// The same for the whole window.
    pub(super) plan: Plan,
    /// By which rule its flows are graded, and whether they are claimed.
    pub(super) grade: Graded,
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
        let cache = RefusedCache::new();
        let (ahead, sums) = (Ahead::default(), Sums::default());
        let share = Share { table, cache, ahead, sums, claims: None, ends };
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
        filter + of_both + self.flows.registers().len() + guard + ends + self.share.cache.bytes()
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
    /// residual for one without an entry. One whose flow was refused lately takes a line alone, of
    /// the cache. Gives a bit for each packet: whether it goes on claimed.
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
        let Share { table, cache, ahead, sums, claims, ends } = &mut self.share;
        table.clear();
        cache.clear();
        *ahead = Ahead::default();
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
