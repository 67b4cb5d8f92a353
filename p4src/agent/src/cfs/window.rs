//! A session's windows: the entries that their packets are recorded by, and what is sent of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use calumma_cfs::Sums;
use calumma_cfs::frames::{self, Entry, Graded as Rule, Hop, OFFER, Totals};
use calumma_epoch::EpochClock;
use calumma_sketch::grade::Claims;
use calumma_sketch::{FlowKey, HashFamily, HashKey, HyperLogLog, KeyKind};
use calumma_wire::{Role, Side, SideKind};

use super::claims::Claimed;
use super::guard::{self, Watch};
use super::pins::{self, Pinned, Pinning};
use super::rows::{DOUBTS, FILTER, Graded, Held, REGISTERS, WORDS};
use super::{COLUMNS, HLL_BITS, LEAST_COLUMNS, MOST_ROW_BITS};
use crate::collection::{Groups, Record, Source};
use crate::hashes;
use crate::system::{Closed, EpochEntries, Needs, Parts, Setup, Total, side_at_take};
use crate::tables::{Match, TableEntry};

/// The number of the first source beside the columns.
const BESIDE: usize = 8;

/// Sources beside the columns: those that are read, and those that are only cleared.
const READ: usize = 5;
const CLEARED: usize = 2;

/// What became of packets, by their numbers in `p4src/include/cfs/types.p4`.
#[derive(Clone, Copy)]
enum Event {
    Found,
    Sent,
    Refused,
    RefusedAgain,
    Filtered,
    Placed,
    Replaced,
    Met,
    CrowdedOut,
    Other,
}

/// Events that there is room for.
const EVENTS: u32 = 16;

/// Packets by whether they went on claimed, and whether they came so.
const CLAIMS: u32 = 4;

/// Why a setup with a residual is declined.
const NO_RESIDUAL: &str = "a Tofino keeps no residual of flows without an entry: set [cfs] \
                           residual = \"none\", or run software switches";

/// Why a setup with hops by port is declined.
const NO_PORTS: &str = "hop = \"port\": a Tofino numbers hops by times to live; set [cfs] hop = \
                        \"ttl\", or run software switches";

/// The same of one with hops by mark.
const NO_MARKS: &str = "hop = \"mark\": a Tofino numbers hops by times to live; set [cfs] hop = \
                        \"ttl\", or run software switches";

/// Which packets have marks, and which of those for hosts lose them.
const FAMILIES: &str = "Ingress.families";
const SINKS: &str = "Egress.sinks";

/// Where a switch is in a network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stands {
    pub(crate) role: Role,
    /// Whether edges mark and measure IPv6 packets as well.
    pub(crate) ipv6: bool,
    /// Places of a row.
    pub(crate) columns: u32,
}

/// What windows of a session are measured by.
pub(crate) struct Windows {
    setup: frames::Setup,
    stands: Stands,
    hash_key: u64,
    family: HashFamily,
    row_bits: u32,
    /// Columns, then what is read beside them, then what is only cleared.
    sources: Vec<Source>,
    /// Where windows have a length in time.
    clock: Option<EpochClock>,
    pinning: Pinning,
    claims: Mutex<Claimed>,
    sums: Mutex<Sums>,
    /// Flows that go round, for a controller that reads notices.
    watch: Option<Mutex<Watch>>,
    /// Flows of IPv6 that were pinned, and had no entry for that, by windows.
    pins_ipv6: AtomicU64,
}

impl Windows {
    /// # Errors
    /// What the program is not made for, in words.
    pub(crate) fn new(
        setup: frames::Setup,
        stands: Stands,
        key: &HashKey,
        clock: Option<EpochClock>,
    ) -> Result<Self, String> {
        if setup.grade != Rule::Fold {
            return Err(format!(
                "grade = {:?}: a Tofino grades by \"fold\" alone; set that, or run software switches",
                setup.grade.name()
            ));
        }
        if setup.hll_bits != HLL_BITS {
            return Err(format!(
                "hll_bits = {}: a Tofino has {HLL_BITS}; set that, or run software switches",
                setup.hll_bits
            ));
        }
        match setup.hop {
            Hop::Port(_) => return Err(NO_PORTS.to_owned()),
            Hop::Mark { .. } => return Err(NO_MARKS.to_owned()),
            Hop::Ttl(_) | Hop::None => {}
        }
        if setup.residual.is_some() {
            return Err(NO_RESIDUAL.to_owned());
        }
        let columns = stands.columns;
        let rows = setup.entries / columns;
        if rows < 2 {
            return Err(format!(
                "entries = {}: this Tofino has at least {}",
                setup.entries,
                2 * columns
            ));
        }
        let row_bits = rows.ilog2().min(MOST_ROW_BITS);
        let source = |number: usize, elements: u32, names: &[String], record| Source {
            number: number as u8,
            registers: names.iter().map(|name| format!("Ingress.rows.{name}")).collect(),
            elements,
            groups: Groups::ByElement,
            record,
        };
        let mut sources: Vec<Source> = (0..columns as usize)
            .map(|column| {
                let names = REGISTERS.map(|name| format!("column{column}.{name}"));
                source(column, 1 << row_bits, &names, Record::Pairs(WORDS / 2))
            })
            .collect();
        let beside: [(&str, u32); READ + CLEARED] = [
            ("doubts.kinds", DOUBTS),
            ("events.sums", EVENTS),
            ("evicted.sums", 1),
            ("claims.sums", CLAIMS),
            ("flows.runs", 1 << HLL_BITS),
            ("filter.bits", FILTER),
            ("pending.packets", DOUBTS),
        ];
        for (number, (name, elements)) in (BESIDE..).zip(beside) {
            sources.push(source(number, elements, &[name.to_owned()], Record::Words(1)));
        }
        let first = if setup.claim { Claims::ALL } else { Claims::NONE };
        let claims = Mutex::new(Claimed::new(first));
        let (hash_key, family) = (key.id(), HashFamily::new(key));
        let (pinning, sums, watch, pins_ipv6) = Default::default();
        Ok(Self {
            setup,
            stands,
            hash_key,
            family,
            row_bits,
            sources,
            clock,
            pinning,
            claims,
            sums,
            watch,
            pins_ipv6,
        })
    }

    /// The same in a session where flows may be pinned, and where the controller may read
    /// notices.
    pub(super) fn by(self, pinning: Pinning, reports: bool) -> Self {
        let watch = (reports && self.setup.guard).then(Mutex::default);
        Self { pinning, watch, ..self }
    }

    /// Macros that the program is compiled with.
    pub(crate) fn defines(&self) -> Vec<(String, String)> {
        let of_columns = (self.stands.columns != LEAST_COLUMNS).then_some(self.stands.columns);
        let of_columns = of_columns.map(|columns| ("COLUMNS", columns));
        let all = [("ROW_BITS", self.row_bits), ("WIDE_KEYS", 1)].into_iter().chain(of_columns);
        all.map(|(name, value)| (name.to_owned(), value.to_string())).collect()
    }

    fn number(&self, epoch: u64) -> u64 {
        epoch / self.window()
    }

    /// The number of the window that a packet was recorded in, in that group, and said at that
    /// time: the one under way, or that before or behind it, whichever is nearer.
    fn window_at(&self, clock: &EpochClock, group: u64, now_ns: u64) -> u64 {
        let epoch = clock.epoch_at(now_ns);
        let now = self.number(epoch);
        if now & 1 == group {
            return now;
        }
        let is_early = 2 * (epoch % self.window()) < self.window();
        if is_early && now > 0 { now - 1 } else { now + 1 }
    }

    /// What follows from a window for those whose entries are not written yet: the next one runs.
    fn learn(&self, window: u64, held: &Held) {
        if !self.setup.claim {
            return;
        }
        // Each row has a worst flow of its own: what stands before that of three full rows out of
        // four is in the table for the most part.
        let mut worst = held.worst.clone();
        worst.sort_unstable();
        let is_full = worst.len() * 2 > 1 << self.row_bits;
        let limit = is_full.then(|| worst.get(worst.len() / 4).copied()).flatten();
        locked(&self.claims).learn(window, limit);
    }

    /// The entries by which packets of an epoch are recorded.
    fn recorded_in(&self, epoch: u64) -> Vec<TableEntry> {
        let window = self.number(epoch);
        let seed = self.setup.seed(window);
        // Below 2^32 are all grades, and the complement of the limit is what the program has.
        let limit = !locked(&self.claims).used(window).limit().unwrap_or(u32::MAX);
        let entry = |ipv6: u32| TableEntry {
            table: "Ingress.windows".to_owned(),
            keys: vec![
                ("ipv6", Match::Exact(ipv6)),
                ("timestamp_there", Match::Exact((epoch & 1) as u32)),
            ],
            action: "record_in",
            args: vec![
                ("group", (window & 1) as u32),
                ("number", (window & 0xFFFF) as u32),
                ("seed_high", seed >> 16),
                ("seed_low", seed & 0xFFFF),
                ("limit", limit),
                ("claims", self.setup.claim.into()),
            ],
        };
        (0..=u32::from(self.stands.ipv6)).map(entry).collect()
    }

    /// Which packets have marks.
    fn marks(&self) -> [TableEntry; 2] {
        let (families, sinks) = match self.stands.ipv6 {
            true => ("both", "take_back_both"),
            false => ("ipv4_alone", "take_back"),
        };
        let on_miss = |table: &str, action, args| TableEntry {
            table: table.to_owned(),
            keys: Vec::new(),
            action,
            args,
        };
        let claims = vec![("with_claims", self.setup.claim.into())];
        [on_miss(FAMILIES, families, claims), on_miss(SINKS, sinks, Vec::new())]
    }

    fn hops(&self) -> impl Iterator<Item = TableEntry> {
        const FOLDS: [&str; 16] = [
            "fold0", "fold1", "fold2", "fold3", "fold4", "fold5", "fold6", "fold7", "fold8",
            "fold9", "fold10", "fold11", "fold12", "fold13", "fold14", "fold15",
        ];
        (0..=u8::MAX).map(|ttl| TableEntry {
            table: "Ingress.standing_of.hops".to_owned(),
            keys: vec![("ttl", Match::Exact(ttl.into()))],
            action: match self.setup.hop_of(ttl).checked_sub(1) {
                Some(folds) => FOLDS[usize::from(folds) % FOLDS.len()],
                None => "unfolded",
            },
            args: Vec::new(),
        })
    }

    /// What the words of a window say.
    fn frame(
        &self,
        window: u64,
        (words, pinned): (&[Vec<u32>], &Pinned),
        closed: &Closed,
    ) -> Result<frames::Window, String> {
        use Event::{CrowdedOut, Filtered, Found, Met, Other, Placed, Refused, RefusedAgain};
        use Event::{Replaced, Sent};
        let columns = self.stands.columns as usize;
        let (Some(of_columns), Some([doubts, events, evicted, claims, runs])) =
            (words.get(..columns), words.get(columns..))
        else {
            return Err(format!("words of {} sources", words.len()));
        };
        let graded = Graded {
            family: &self.family,
            setup: &self.setup,
            seed: self.setup.seed(window),
            row_bits: self.row_bits,
            is_edge: self.stands.role == Role::Edge,
            pinned: &pinned.flows,
        };
        let held = graded.held(of_columns, doubts)?;
        let watched = closed.notices.get((window & 1) as usize).cloned().unwrap_or_default();
        let happened = |event: Event| u64::from(events.get(event as usize).copied().unwrap_or(0));
        let sum = |of: &[Event]| of.iter().map(|event| happened(*event)).sum::<u64>();
        if events.iter().chain(evicted).chain(claims).any(|sum| *sum == u32::MAX) {
            return Err("a sum that has come to its end".to_owned());
        }
        let evicted_packets = evicted.iter().map(|sum| u64::from(*sum)).sum::<u64>();
        let counted = sum(&[Found, Placed, Replaced, Met]);
        if held.fits && counted != held.packets + evicted_packets {
            return Err(format!(
                "{counted} packets were counted, {} are in entries and {evicted_packets} in evicted \
                 ones",
                held.packets
            ));
        }
        // Those that were lost between the passes had no entry, or that is not known.
        let again = sum(&[Placed, Replaced, Met, CrowdedOut]);
        let lost = happened(Sent).abs_diff(again);
        let refused_packets = sum(&[Refused, RefusedAgain, Filtered, CrowdedOut, Other])
            + happened(Sent).saturating_sub(again);
        let mut entries: Vec<Entry> = held.entries.values().copied().collect();
        let length_us = self.clock.map_or(0, |clock| clock.length_ns() * self.window() / 1000);
        for entry in &mut entries {
            entry.exact &= lost == 0;
            entry.last_us = u32::try_from(length_us).unwrap_or(u32::MAX);
        }
        let claims_of = |bit: usize| {
            let of = claims.iter().enumerate().filter(|(at, _)| at & bit != 0);
            of.map(|(_, sum)| u64::from(*sum)).sum::<u64>()
        };
        let registers = runs.iter().map(|run| u8::try_from(*run).unwrap_or(u8::MAX)).collect();
        let flows = HyperLogLog::from_registers(registers);
        let flows = flows.ok_or("a run of zeros that no hash has")?;
        let totals = Totals {
            packets: held.packets + refused_packets + evicted_packets,
            refused_packets,
            evicted_packets,
            admitted: sum(&[Placed, Replaced]),
            evicted: happened(Replaced),
            // Of IPv6 packets are counted, and no flows.
            refused: sum(&[Refused, CrowdedOut]),
            filtered: happened(Filtered),
            claimed_in: claims_of(1),
            claimed_out: claims_of(2),
            memory: self.memory(),
            ..Totals::default()
        };
        let all_full = held.worst.len() == 1 << self.row_bits;
        let theta = locked(&self.claims).of(window).limit();
        self.learn(window, &held);
        Ok(frames::Window {
            keys: KeyKind::Dual,
            hash_key: self.hash_key,
            routes_changed: closed.routes_changed,
            limit: all_full.then(|| held.worst.iter().copied().max()).flatten(),
            theta,
            alpha: None,
            overrides: None,
            totals,
            flows,
            entries,
            uncounted: None,
            suspects: self.setup.guard.then(|| guard::suspects(&watched)),
            ends: None,
        })
    }

    /// What is read of a group.
    fn read(&self) -> &[Source] {
        &self.sources[..self.stands.columns as usize + READ]
    }

    /// Bytes of a group's registers.
    fn memory(&self) -> u64 {
        let words: u64 = self
            .read()
            .iter()
            .map(|source| u64::from(source.elements) * 4 * words_of(source))
            .sum();
        words + u64::from(FILTER) / 8
    }
}

impl Setup for Windows {
    fn window(&self) -> u64 {
        self.setup.window_epochs.into()
    }

    fn is_ahead(&self) -> bool {
        true
    }

    /// Edges record all packets in one table.
    fn ingress_at_take(&self) -> bool {
        self.stands.role == Role::Edge
    }

    fn needs(&self) -> Needs {
        let pin = pins::entry(0, &FlowKey::ZERO);
        let entries = self.fixed().into_iter().chain(self.recorded_in(0)).chain([pin]);
        Needs {
            program: "cfs.p4".to_owned(),
            remedy: "build cfs.p4 with -DROW_BITS for the entries of [cfs]",
            parts: Some(Parts { number: self.stands.columns, ..COLUMNS }),
            sources: self.sources.clone(),
            epoch_tables: vec!["Ingress.windows".to_owned(), pins::TABLE.to_owned()],
            entries: entries.collect(),
            totals: vec![Total { name: "cfs.bit_taken", counter: "Ingress.taken", cell: 0 }],
            entered: None,
            notices: self.setup.guard.then_some(guard::STREAMS),
            stopped: Vec::new(),
        }
    }

    fn sources(&self, side: SideKind) -> &[Source] {
        match side {
            SideKind::Transit | SideKind::Egress => self.read(),
            SideKind::Ingress | SideKind::Host => &[],
        }
    }

    fn fixed(&self) -> Vec<TableEntry> {
        let mut out = hashes::secrets_of_lanes(&self.family, &[["wide_x", "wide_y"]]);
        out.extend(self.hops());
        out.extend(self.marks());
        out
    }

    fn epoch(&self, epoch: u64, plan: &[u8]) -> Result<EpochEntries, String> {
        self.check(plan)?;
        Ok(EpochEntries { gate: self.recorded_in(epoch), rest: Vec::new() })
    }

    fn of_window(&self, epoch: u64, plan: &[u8]) -> Result<Vec<TableEntry>, String> {
        let group = (self.number(epoch) & 1) as u32;
        let pinned = self.pinning.of(plan)?;
        Ok(pinned.flows.iter().map(|key| pins::entry(group, key)).collect())
    }

    fn writing_ns(&self) -> u64 {
        self.pinning.writing_ns()
    }

    fn noticed(&self, now_ns: u64, stream: u8, body: &[u8]) {
        if let (Some(watch), Some(clock)) = (&self.watch, &self.clock) {
            let window = self.window_at(clock, stream.into(), now_ns);
            locked(watch).see(window, body);
        }
    }

    fn notice(&self, now_ns: u64) -> Option<(u64, Vec<u8>)> {
        let pause_ns = self.clock?.length_ns();
        let (window, notice) = locked(self.watch.as_ref()?).take(now_ns, pause_ns)?;
        Some((window * self.window(), notice.encode()))
    }

    fn check(&self, plan: &[u8]) -> Result<(), String> {
        self.pinning.read(plan).map(drop)
    }

    fn holding(&self, plan: &[u8], epoch: u64) -> Option<Vec<u8>> {
        self.pinning.holding(plan, epoch)
    }

    fn side(&self, closed: &Closed, words: &[Vec<u32>]) -> Result<Side, String> {
        let Closed { epoch, side, stall_ns, .. } = *closed;
        let system = OFFER.system;
        if side != side_at_take(self.stands.role) {
            // What entered is in the one table.
            let (packets, counters, body) = (0, Vec::new(), Vec::new());
            return Ok(Side { system, epoch, side, stall_ns, packets, counters, body });
        }
        let pinned = self.pinning.of(&closed.plan)?;
        let window = self.frame(self.number(epoch), (words, &pinned), closed)?;
        let mut sums = locked(&self.sums);
        sums.add(&window);
        let pins_ipv6 = self.pins_ipv6.fetch_add(pinned.ipv6, Ordering::Relaxed) + pinned.ipv6;
        let sums = sums.named().into_iter().chain([("cfs.pins_ipv6", pins_ipv6)]);
        let counters = sums.map(|(name, sum)| (name.to_owned(), sum)).collect();
        let packets = window.totals.packets;
        Ok(Side { system, epoch, side, stall_ns, packets, counters, body: window.encode() })
    }
}

/// Words of an element of a source.
fn words_of(source: &Source) -> u64 {
    match source.record {
        Record::Pairs(pairs) => 2 * pairs as u64,
        Record::Words(words) => words as u64,
        Record::Counter => 1,
    }
}

/// What is in there, whatever became of a thread that held it.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
