//! SketchINT on an lcore: which packets get stacks, and which window a packet for a host belongs
//! to.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use calumma_epoch::EpochClock;
use calumma_plane::int::around::Queued;
use calumma_plane::int::means::Means;
use calumma_plane::int::push::NotCarried;
use calumma_plane::int::{Hop, Insertion, Stack};
use calumma_plane::outlet::{Fronts, Outlet};
use calumma_plane::slots::AnySlots;
use calumma_plane::system::LcoreSystem;
use calumma_plane::worker::Sent;
use calumma_plane::{Counters, Flows, MarkedRun, Record, Run, Slots};
use calumma_sketch::burst::ones;
use calumma_sketch::sketchint::{Words, flow_word, packet_word};
use calumma_sketch::{BURST, HashColumns, HashFamily, Key, grade};

use super::attended::LcorePlan;
use super::record::{Leaving, SinkWindow};
use super::report::{Recorded, Reporter};
use crate::frames::{Entered, Setup, Step};

/// IP protocols that stacks have a place in. Where a UDP port marks packets, which packets of
/// others have none is seen when they depart.
const TCP_AND_UDP: [u8; 2] = [6, 17];

/// Mixed with an epoch's seed, so that a packet's draw has nothing to do with what other systems do
/// by the same hashes.
const SHARE_SALT: u64 = 0x5EED_1217_CAB1_0D0E;

/// What all lcores have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) setup: Setup,
    pub(super) insertion: Insertion,
    pub(super) family: HashFamily,
    pub(super) clock: EpochClock,
    /// Windows before this epoch get no stacks; all bits set where none do.
    pub(super) source_from: AtomicU64,
}

impl Common {
    /// How many packets waited where those of a burst came, where stacks say that.
    #[inline]
    fn queued<K: Key>(&self, flows: &Flows<K>) -> Option<Queued> {
        flows.queued().filter(|_| self.setup.instructions.has_queue())
    }
}

/// What holds in a window, what a source did in it, and how well a switch between edges knew when
/// its packets arrived. No packets are kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Held {
    plan: LcorePlan,
    epoch: u64,
    pub(super) entered: Entered,
    pub(super) arrival_error_ns: u64,
    /// By what means such a switch knows what it puts into stacks.
    pub(super) means: Means,
}

impl Held {
    pub(super) fn new() -> Self {
        let (plan, entered) = (LcorePlan::default(), Entered::default());
        Self { plan, epoch: 0, entered, arrival_error_ns: 0, means: Means::default() }
    }
}

impl Record for Held {
    type Plan = LcorePlan;

    fn begin(&mut self, plan: &LcorePlan, epoch: u64) {
        (self.plan, self.epoch) = (plan.clone(), epoch);
    }

    fn plan(&self) -> &LcorePlan {
        &self.plan
    }

    fn merge(&mut self, other: &Self) {
        self.entered.add(&other.entered);
        self.arrival_error_ns = self.arrival_error_ns.max(other.arrival_error_ns);
        self.means.add(other.means);
    }

    fn clear(&mut self) {
        (self.entered, self.arrival_error_ns) = (Entered::default(), 0);
        self.means = Means::default();
    }
}

/// Its half on an lcore of an edge, a source and a sink, or of an end host, a sink alone.
#[derive(Debug)]
pub(super) struct OnEdge<K: Key> {
    common: Arc<Common>,
    /// Whether it is on an end host, which is no hop.
    is_host: bool,
    slots: Slots<Held, SinkWindow<K, LcorePlan>>,
    /// Positions in the burst under way of packets for hosts that a window has.
    left: u32,
    /// A word of the flow of each, by position.
    words: Words,
    /// Whether flows have their hashes with them.
    shared: bool,
    /// What the counters said when they were last looked at, and the window then.
    counted: Entered,
    counted_in: u64,
    /// Packets that have been drawn from.
    draws: u64,
    /// Hands packets on to be reported, where any are.
    reporter: Option<Box<Reporter>>,
}

impl<K: Key> OnEdge<K> {
    /// No records yet. What is remarkable about packets is reported by `outlet`.
    pub(super) fn new(
        common: Arc<Common>,
        is_host: bool,
        first_epoch: u64,
        plan: LcorePlan,
        outlet: Option<Outlet>,
    ) -> Self {
        let slots = Slots::new(first_epoch, common.setup.window_epochs.into(), plan);
        let (words, counted) = ([0; BURST], Entered::default());
        let (left, shared, counted_in, draws) = (0, false, 0, 0);
        let reporter = |outlet| Box::new(Reporter::new(outlet, common.insertion, is_host));
        let reporter = outlet.map(reporter);
        Self { common, is_host, slots, left, words, shared, counted, counted_in, draws, reporter }
    }

    /// What [`sent`](LcoreSystem::sent) does beside its counters where packets are reported.
    #[inline(never)]
    fn sent_reporting(&mut self, flows: &Flows<K>, sent: Sent, departed_ns: u64) {
        let Self { reporter: Some(reporter), slots, left, words, common, .. } = self else {
            return;
        };
        let has_left = |at: usize| {
            let position = usize::from(flows.places().get(at)?.0) % BURST;
            (*left >> position & 1 == 1 && flows.is_marked(at)).then_some(position)
        };
        for (at, position) in ones(sent.accepted).filter_map(|at| Some((at, has_left(at)?))) {
            let own = Hop::met(common.insertion.node, flows.arrival(at), departed_ns);
            let window = slots.by_bit(flows.mark(at).bit);
            let inflated = window.and_then(|window| {
                let (word, key) = (words[position], &flows.keys()[at]);
                window.group.record_own_noting(word, key, own.latency_ns, flows.polled_ns())
            });
            reporter.took(position, &own, inflated);
        }
        for bit in 0..2 {
            let which = sent.accepted & flows.at_positions(*left) & flows.marked_with(bit);
            if let Some(window) = slots.by_bit(bit) {
                window.group.note_means(flows.arrival_means(which));
                if let Some(queued) = common.queued(flows) {
                    window.group.record_own_queue(queued, which.count_ones());
                }
            }
        }
        ones(sent.refused).filter_map(has_left).for_each(|position| reporter.refused(position));
    }

    /// Notes how well it is known when packets arrived that go on with a stack.
    #[inline]
    fn pass_on(&mut self, flows: &Flows<K>) {
        self.left &= !Self::positions(flows);
        if self.common.setup.instructions.has_times() {
            let slots = &mut self.slots;
            arrival_errors(flows, |bit, packets, error_ns| {
                if let Some(window) = slots.by_bit(bit) {
                    window.group.note_arrivals(error_ns);
                } else {
                    slots.late(bit, packets);
                }
            });
        }
    }

    /// Notes in the window what has been done with packets since this was last called. What became
    /// of packets of another window that no queue was handed is in none.
    #[inline]
    fn note_entered(&mut self, counters: &Counters) {
        let now = Entered::of(&counters.int);
        let since = now.since(&self.counted);
        self.counted = now;
        if let Some(record) = self.slots.ingress() {
            let held = &mut record.group;
            if self.counted_in == held.epoch {
                held.entered.add(&since);
            }
            self.counted_in = held.epoch;
        }
    }

    /// Whether packets that enter now are given stacks.
    #[inline]
    fn is_source(&mut self) -> bool {
        let from = self.common.source_from.load(Ordering::Relaxed);
        let held = self.slots.ingress().map(|record| &record.group);
        held.is_some_and(|held| held.plan.step == Step::Sources && held.epoch >= from)
    }

    /// Positions of these packets in the burst.
    #[inline]
    fn positions(flows: &Flows<K>) -> u32 {
        flows.places().iter().fold(0, |all, &(at, _)| all | 1_u32.unbounded_shl(at.into()))
    }

    /// Those of the packets whose flows are on the watch list.
    #[inline]
    fn watched(&self, flows: &Flows<K>) -> u32 {
        let watch = &self.common.setup.watch;
        if watch.is_everything() {
            return all(flows.len());
        }
        let (mut watched, mut last) = (0, None);
        for (at, key) in flows.keys().iter().enumerate() {
            // Packets of a flow often come one after the other.
            let has = match last {
                Some((of, has)) if of == key => has,
                _ => watch.has(key),
            };
            last = Some((key, has));
            watched |= u32::from(has) << at;
        }
        watched
    }

    /// Those of these packets that are drawn, each on its own, be others like it or not.
    #[inline]
    fn drawn(&mut self, flows: &Flows<K>, of: u32) -> u32 {
        let Self { common, slots, draws, .. } = self;
        let Common { setup, family, clock, .. } = &**common;
        if setup.share == u32::MAX {
            return of;
        }
        let epoch = clock.epoch_at(flows.polled_ns());
        let seed = u64::from(grade::window_seed(epoch)) ^ SHARE_SALT;
        let mut computed = HashColumns::default();
        let hashes = match flows.hashes().filter(|_| self.shared) {
            Some(hashes) => hashes,
            None => {
                family.hash_columns(flows.keys(), &mut computed);
                &computed
            }
        };
        let first = *draws;
        *draws += flows.len() as u64;
        let plan = slots.ingress().map(|record| &record.group.plan);
        let plan = plan.filter(|plan| !plan.attends_none(K::KIND));
        let carries = |&at: &usize| {
            let digest = flows.digests().get(at).copied().unwrap_or(0);
            let (word, packet) = (flow_word(&hashes.of(at)), (digest, first + at as u64));
            setup.carries(packet_word(word, seed, packet))
                || plan.is_some_and(|plan| plan.attends(K::KIND, word))
        };
        ones(of).filter(carries).fold(0, |all, at| all | 1 << at)
    }

    /// Chooses among packets that enter those that get stacks, and counts why others go without.
    #[inline]
    fn choose(&mut self, flows: &mut Flows<K>, counters: &mut Counters) {
        let every = all(flows.len());
        let watched = self.watched(flows);
        // Where each packet is to carry one, that it can't is seen when it departs.
        let mut placed = watched;
        if self.common.setup.share != u32::MAX {
            let has_ports = self.common.insertion.udp_port.is_some();
            let has_place =
                |&at: &usize| has_ports || TCP_AND_UDP.contains(&flows.keys()[at].protocol());
            placed = ones(watched).filter(has_place).fold(0, |all, at| all | 1 << at);
        }
        let drawn = self.drawn(flows, placed);
        flows.set_source(drawn);
        let placeless = watched & !placed;
        let reasons = [
            (every & !watched, NotCarried::Watch),
            (placeless, NotCarried::Protocol),
            (placed & !drawn, NotCarried::Share),
        ];
        for (packets, why) in reasons {
            counters.int.not_carried[why as usize] += u64::from(packets.count_ones());
        }
        if let Some(record) = self.slots.ingress() {
            record.group.entered.placeless += u64::from(placeless.count_ones());
        }
    }

    /// Notes packets that enter while nothing is put into any.
    #[inline]
    fn note_idle(&mut self, packets: u64) {
        if let Some(record) = self.slots.ingress() {
            record.group.entered.idle += packets;
        }
    }
}

impl<K: Key> LcoreSystem<K> for OnEdge<K> {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.slots
    }

    fn wants_sent(&self) -> bool {
        !self.is_host
    }

    fn wants_transit(&self) -> bool {
        self.common.setup.instructions.has_times()
    }

    fn wants_departures(&self) -> bool {
        !self.is_host
    }

    fn wants_arrivals(&self) -> bool {
        !self.is_host
    }

    fn wants_digests(&self) -> bool {
        self.common.setup.share != u32::MAX
    }

    fn wants_stacks(&self) -> bool {
        true
    }

    fn wants_fronts(&self) -> bool {
        self.reporter.is_some()
    }

    fn fronts(&mut self) -> Option<&mut Fronts> {
        self.reporter.as_mut().map(|reporter| &mut reporter.fronts)
    }

    fn inserts(&self) -> Option<&Insertion> {
        Some(&self.common.insertion).filter(|_| !self.is_host)
    }

    fn stacks_of(&self) -> Option<(NonZeroU16, Option<NonZeroU16>)> {
        let Insertion { domain, udp_port, .. } = self.common.insertion;
        Some((domain, udp_port))
    }

    fn hashes_by(&self) -> Option<&HashFamily> {
        Some(&self.common.family)
    }

    fn share_hashes(&mut self, shared: bool) {
        self.shared = shared;
    }

    fn note_means(&mut self, means: Means) {
        for bit in 0..2 {
            if let Some(window) = self.slots.by_bit(bit) {
                window.group.note_means(means);
            }
        }
    }

    #[inline]
    fn enter(&mut self, flows: &mut Flows<K>, counters: &mut Counters) {
        self.left &= !Self::positions(flows);
        if flows.are_local() && !flows.go_to_sinks() {
            return;
        }
        if !self.is_source() {
            return self.note_idle(flows.len() as u64);
        }
        self.note_entered(counters);
        self.choose(flows, counters);
    }

    #[inline]
    fn transit(&mut self, flows: &mut Flows<K>, _counters: &mut Counters) {
        self.pass_on(flows);
    }

    #[inline]
    fn leave(&mut self, flows: &Flows<K>, _counters: &mut Counters) {
        if flows.go_to_sinks() {
            // Those are the sinks of these packets.
            return self.pass_on(flows);
        }
        self.left &= !Self::positions(flows);
        let (polled_ns, is_local, shared) = (flows.polled_ns(), flows.are_local(), self.shared);
        let has_times = self.common.setup.instructions.has_times();
        let Self { slots, left, words, reporter, common, .. } = self;
        flows.by_bit(|of| {
            let packets = of.keys.len() as u64;
            let Some(window) = slots.by_bit(of.bit) else {
                slots.late(of.bit, packets);
                return;
            };
            let mut stacks = [None; BURST];
            for (stack, at) in stacks.iter_mut().zip(ones(of.which)) {
                *stack = if is_local { Some(&Stack::EMPTY) } else { flows.stack(at) };
                if stack.is_some_and(|stack| stack.is_partial) {
                    window.group.note_exceeded(flows.exceeded(at));
                }
            }
            let hashes = of.hashes.filter(|_| shared);
            let leaving = Leaving { keys: of.keys, hashes, polled_ns };
            let stacks = &stacks[..of.keys.len()];
            let of_flows = window.group.record(&leaving, stacks);
            if has_times {
                let mut arrivals = [None; BURST];
                for (arrival, at) in arrivals.iter_mut().zip(ones(of.which)) {
                    *arrival = flows.arrival(at);
                }
                window.group.record_links(stacks, &arrivals);
            }
            window.packets += packets;
            if let Some((reporter, notes)) = reporter.as_mut().zip(window.group.notes()) {
                let (which, words) = (of.which, &of_flows);
                let seed = grade::window_seed(common.clock.epoch_at(polled_ns)).into();
                reporter.note(&Recorded { flows, which, stacks, words, notes, seed });
            }
            for (word, at) in of_flows.into_iter().zip(ones(of.which)) {
                let position = flows.places().get(at).map_or(0, |place| usize::from(place.0));
                words[position % BURST] = word;
                *left |= 1 << (position % BURST);
            }
        });
        for (at, _) in flows.stale() {
            slots.outdated(flows.mark(at).bit, 1);
        }
        let unmarked = flows.unmarked();
        if unmarked > 0 {
            // Each may be of any window of which packets may come.
            slots.open().for_each(|window| window.group.note_unmarked(unmarked.into()));
        }
    }

    /// Of packets for hosts that a queue took, the switch's own hop is known now.
    #[inline]
    fn sent(&mut self, flows: &Flows<K>, sent: Sent, counters: &mut Counters) {
        self.note_entered(counters);
        let Some(departed_ns) = flows.departure_ns() else { return };
        if self.reporter.is_some() {
            return self.sent_reporting(flows, sent, departed_ns);
        }
        let Self { slots, left, words, common, .. } = self;
        let (node, queued) = (common.insertion.node, common.queued(flows));
        let accepted = sent.accepted & flows.at_positions(*left);
        for bit in 0..2 {
            let which = accepted & flows.marked_with(bit);
            let Some(window) = slots.by_bit(bit).filter(|_| which != 0) else { continue };
            let mut packets = [(0, K::default(), 0); BURST];
            // Where no device says more, polls say the same of all packets.
            let polled = flows.polled_arrival(which).map(|of| Hop::met(node, of, departed_ns));
            for (packet, at) in packets.iter_mut().zip(ones(which)) {
                let position = flows.places().get(at).map_or(0, |place| usize::from(place.0));
                let met = |at| Hop::met(node, flows.arrival(at), departed_ns);
                let latency_ns = polled.unwrap_or_else(|| met(at)).latency_ns;
                *packet = (words[position % BURST], flows.keys()[at], latency_ns);
            }
            let packets = &packets[..which.count_ones() as usize];
            window.group.record_owns(packets, flows.polled_ns());
            window.group.note_means(flows.arrival_means(which));
            if let Some(queued) = queued {
                window.group.record_own_queue(queued, which.count_ones());
            }
        }
    }

    /// Packets of a run have no headers: none has a stack.
    fn enter_run(&mut self, _key: &K, packets: u32, _counters: &mut Counters) -> Run {
        self.note_idle(packets.into());
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, key: &K, marked: &MarkedRun, _counters: &mut Counters) {
        let packets = marked.run.packets();
        let Some(window) = self.slots.by_bit(marked.bit) else {
            self.slots.late(marked.bit, packets.into());
            return;
        };
        let polled_ns = self.common.clock.start_of(0);
        for _ in 0..packets {
            let leaving = Leaving { keys: &[*key], hashes: None, polled_ns };
            window.group.record(&leaving, &[None]);
        }
        window.packets += u64::from(packets);
    }
}

/// Its half on an lcore of a switch between edges, which pushes its hops and records nothing.
#[derive(Debug)]
pub(super) struct OnTransit {
    common: Arc<Common>,
    slots: Slots<Held, Held>,
}

impl OnTransit {
    /// No records yet.
    pub(super) fn new(common: Arc<Common>, first_epoch: u64, plan: LcorePlan) -> Self {
        let slots = Slots::new(first_epoch, common.setup.window_epochs.into(), plan);
        Self { common, slots }
    }
}

impl<K: Key> LcoreSystem<K> for OnTransit {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.slots
    }

    fn wants_transit(&self) -> bool {
        self.common.setup.instructions.has_times()
    }

    fn wants_departures(&self) -> bool {
        true
    }

    fn wants_arrivals(&self) -> bool {
        true
    }

    fn inserts(&self) -> Option<&Insertion> {
        Some(&self.common.insertion)
    }

    fn note_means(&mut self, means: Means) {
        for bit in 0..2 {
            if let Some(window) = self.slots.by_bit(bit) {
                window.group.means.add(means);
            }
        }
    }

    /// Nothing enters the network here.
    fn enter(&mut self, _flows: &mut Flows<K>, _counters: &mut Counters) {}

    #[inline]
    fn transit(&mut self, flows: &mut Flows<K>, _counters: &mut Counters) {
        if self.common.setup.instructions.has_times() {
            let slots = &mut self.slots;
            arrival_errors(flows, |bit, packets, error_ns| {
                if let Some(window) = slots.by_bit(bit) {
                    let of = &mut window.group.arrival_error_ns;
                    *of = (*of).max(error_ns);
                } else {
                    slots.late(bit, packets);
                }
            });
        }
    }

    fn leave(&mut self, _flows: &Flows<K>, _counters: &mut Counters) {}

    fn enter_run(&mut self, _key: &K, packets: u32, _counters: &mut Counters) -> Run {
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, _key: &K, _marked: &MarkedRun, _counters: &mut Counters) {}
}

/// For each timestamp bit that packets have, how many there are, and by how many nanoseconds their
/// arrivals may be wrong at most.
#[inline]
fn arrival_errors<K: Key>(flows: &Flows<K>, mut note: impl FnMut(usize, u64, u64)) {
    flows.by_bit(|of| {
        let arrivals = ones(of.which).filter_map(|at| flows.arrival(at)?.middle_ns());
        let error_ns = arrivals.map(|(_, error_ns)| error_ns).max().unwrap_or(0);
        note(of.bit, of.keys.len() as u64, error_ns);
    });
}

/// A bit for each of so many packets.
#[inline]
fn all(packets: usize) -> u32 {
    u32::MAX.checked_shr((BURST - packets.min(BURST)) as u32).unwrap_or(0)
}
