//! All passes over the packets of a burst that take one [`Path`], for one kind of key.

use calumma_sketch::{BURST, Key};

use super::headers::{
    keep_carriable, keep_carried, leave_out_uncarried, read_headers, restore_keys,
};
use super::marks::{self, Marks};
use super::masks::DropMask;
use super::path::{self, Path};
use super::stacks::{self, Carrying, PendingStacks};
use super::{Measured, Policy, probes};
use crate::carrier::{Detached, Mark, Numbers, Way};
use crate::counters::Counters;
use crate::flows::Flows;
use crate::int::Domains;
use crate::mark::Hierarchy;
use crate::measure::Active;
use crate::packet::Packet;
use crate::parse::PlainFlows;
use crate::probe::LcoreProbes;

/// What a lcore treats packets by, beside its measurement.
#[derive(Clone, Copy)]
pub(super) struct By<'a> {
    pub(super) policy: &'a Policy,
    pub(super) numbers: &'a Numbers,
    pub(super) probes: &'a LcoreProbes,
    pub(super) domains: Domains,
}

/// Everything between receiving and sending: finds the packets' flows, records them as their path
/// asks, and reads, writes or takes out marks and stacks. `of` has a bit for each packet that takes
/// the path. Gives those that are to be dropped.
pub(super) fn walk<K: Measured, P: Packet>(
    path: Path,
    active: Option<&mut Active<K>>,
    by: By<'_>,
    counters: &mut Counters,
    packets: &mut [P],
    (of, known, stacks): (u32, &PlainFlows, &mut PendingStacks),
) -> DropMask {
    assert!(packets.len() <= BURST, "a burst of at most {BURST} packets");
    let detached =
        if path.is_from_fabric() { marks::detach(by.policy.carrier, packets, of) } else { None };
    let flows = &mut Flows::new();
    let (lowered, carrying, drops) = (known.lowered(), None, 0);
    let mut walk = Walk {
        path,
        active,
        by,
        counters,
        packets,
        stacks,
        flows,
        lowered,
        detached,
        carrying,
        drops,
    };
    let maybe_probes = walk.read(of, known);
    walk.look_for_stacks(of);
    if maybe_probes != 0 && path.meets_probes() {
        walk.take_probes(maybe_probes);
    }
    walk.leave_out_strangers();
    match path {
        Path::Enter => walk.enter(),
        Path::Transit => walk.transit(),
        Path::Leave => walk.leave(),
        Path::Flooded => walk.flood(),
        Path::Cross => walk.cross(),
        Path::HandOn => walk.hand_on(),
        Path::CrossOn => walk.cross_on(),
        Path::Unmark => walk.unmark(),
        Path::Resume(since) => walk.resume(since),
    }
    DropMask(walk.drops)
}

/// Packets of a burst that take one path, and what they are treated by.
struct Walk<'a, K: Key, P> {
    path: Path,
    active: Option<&'a mut Active<K>>,
    by: By<'a>,
    counters: &'a mut Counters,
    packets: &'a mut [P],
    stacks: &'a mut PendingStacks,
    /// The flows of those that can be measured.
    flows: &'a mut Flows<K>,
    /// A bit for each packet whose time to live the router has lowered already.
    lowered: u32,
    /// What stood in front of headers of packets from the fabric.
    detached: Option<Detached>,
    /// Which packets for hosts may have INT stacks.
    carrying: Option<Carrying>,
    /// A bit for each packet that is to be dropped.
    drops: u32,
}

impl<K: Measured, P: Packet> Walk<'_, K, P> {
    /// Reads headers into flows. Gives a bit for each packet that may be a probe.
    #[inline(always)]
    fn read(&mut self, of: u32, known: &PlainFlows) -> u32 {
        let Self { path, by, counters, packets, flows, .. } = self;
        let (policy, which) = (by.policy, (of, known));
        let maybe_probes = if path.is_counted() {
            let (drops, maybe_probes) = read_headers(policy, counters, packets, which, flows);
            self.drops |= drops.0;
            maybe_probes
        } else {
            read_headers(policy, &mut Counters::default(), packets, which, flows).1
        };
        if path.is_from_fabric() && by.domains.have_ports() {
            restore_keys(by.domains, packets, flows);
        }
        flows.note_recorded(known.were_recorded());
        if matches!(path, Path::Leave | Path::Cross)
            && let Some(active) = self.active.as_deref_mut().filter(|active| active.asks_fronts)
        {
            active.keep_fronts(packets, flows, known.lowered());
        }
        maybe_probes
    }

    /// Clears the bit of stacks in packets from hosts; finds the stacks of packets for hosts, and
    /// treats packets whose stacks are there and can't be read. `of` as in [`walk`].
    #[inline(always)]
    fn look_for_stacks(&mut self, of: u32) {
        let Self { by: By { policy, .. }, counters, packets, stacks, flows, .. } = self;
        let mut others = 0;
        if flows.len() < of.count_ones() as usize {
            let flows = flows.places().iter().fold(0_u32, |all, &(at, _)| all | 1 << at);
            others = of & !self.drops & !flows;
        }
        match self.path {
            Path::Enter | Path::CrossOn => {
                let inserts = self.active.as_ref().is_some_and(|active| active.insertion.is_some());
                stacks.enter(policy, inserts, counters, packets, (&**flows, others));
            }
            Path::Leave | Path::Flooded => {
                self.carrying = stacks::carrying(policy, packets, flows);
                if others != 0 {
                    self.drops |= stacks.unreadable(policy, counters, packets, others);
                }
            }
            Path::Cross | Path::Transit | Path::HandOn | Path::Unmark | Path::Resume(_) => {}
        }
    }

    /// Takes out probes of other edges. `maybe` has a bit for each packet that may be one.
    #[cold]
    fn take_probes(&mut self, maybe: u32) {
        let marks = Marks::of(self.by, self.active.as_deref());
        let with = (self.by.probes, marks, self.detached.as_ref());
        let of = (&mut *self.flows, maybe);
        self.drops |= probes::take(with, self.path, self.counters, self.packets, of);
    }

    /// Leaves out, and counts, packets between addresses that are not to be measured.
    #[inline(always)]
    fn leave_out_strangers(&mut self) {
        let Some(active) = &self.active else { return };
        let (outside, counters) = (active.leave_out_strangers(self.flows), &mut *self.counters);
        match self.path {
            Path::Enter => counters.ingress_outside += outside,
            Path::Leave | Path::HandOn => counters.egress_outside += outside,
            Path::Cross | Path::CrossOn => {
                counters.ingress_outside += outside;
                counters.egress_outside += outside;
            }
            Path::Flooded | Path::Transit | Path::Unmark | Path::Resume(_) => {}
        }
    }

    #[inline(always)]
    fn enter(&mut self) {
        let stamp = self.record_and_choose(|_| {});
        let marks = Marks::of(self.by, self.active.as_deref());
        if marks.claims >> stamp.bit & 1 == 1 {
            marks.write_claimed(self.packets, self.flows, stamp, self.counters);
        } else {
            marks.write(self.packets, self.flows, stamp);
        }
        self.keep_for_sent();
    }

    #[inline(always)]
    fn cross_on(&mut self) {
        let stamp = self.record_and_choose(|flows| {
            flows.stay_local();
            flows.go_on();
        });
        self.record_leaving();
        // Without a claim: nobody reads it behind this switch.
        Marks::of(self.by, self.active.as_deref()).write(self.packets, self.flows, stamp);
        self.keep_for_sent();
    }

    /// Records packets that get marks, and chooses those that get stacks. Gives the mark that they
    /// get, but for the hierarchies.
    #[inline(always)]
    fn record_and_choose(&mut self, note: impl FnOnce(&mut Flows<K>)) -> Mark {
        self.leave_out_uncarriable();
        note(self.flows);
        self.add_details();
        if let Some(active) = &self.active {
            active.add_digests(self.packets, self.flows);
        }
        let stamp = self.record_entering();
        if self.flows.sources() != 0 {
            self.stacks.choose(self.by.policy, self.counters, self.packets, self.flows);
        }
        stamp
    }

    /// Leaves out packets that can carry no mark.
    #[inline(always)]
    fn leave_out_uncarriable(&mut self) {
        let marks = Marks::of(self.by, self.active.as_deref());
        let policy = self.by.policy;
        self.drops |= keep_carriable(marks, policy, self.counters, self.packets, self.flows);
    }

    #[inline(always)]
    fn cross(&mut self) {
        self.flows.stay_local();
        self.add_details();
        self.record_entering();
        self.record_leaving();
        self.keep_for_sent();
    }

    #[inline(always)]
    fn leave(&mut self) {
        self.take_out(true);
        self.add_details();
        self.record_marked();
        self.keep_for_sent();
    }

    #[inline(always)]
    fn flood(&mut self) {
        self.take_out(false);
        self.counters.egress_flooded += self.flows.len() as u64;
    }

    /// Takes marks and stacks out of packets for hosts. Systems are lent the stacks that they are
    /// to record.
    #[inline(always)]
    fn take_out(&mut self, recorded: bool) {
        let Self { by, counters, packets, flows, .. } = self;
        let marks = Marks::of(*by, self.active.as_deref());
        marks.take_claims(self.detached.as_ref(), packets, flows);
        self.drops |= keep_carried(marks, by.policy, counters, packets, flows);
        if let Some(carrying) = &self.carrying {
            let reading = self.active.as_deref_mut().filter(|_| recorded);
            let lent = reading.and_then(Active::lend_stacks);
            let from = (carrying, by.policy.carrier);
            self.drops |= self.stacks.strip(from, lent, counters, packets, flows);
        }
    }

    #[inline(always)]
    fn hand_on(&mut self) {
        let marks = Marks::of(self.by, self.active.as_deref());
        marks.read(self.detached.as_ref(), self.packets, self.flows);
        let policy = self.by.policy;
        self.drops |= keep_carried(marks, policy, self.counters, self.packets, self.flows);
        let came = marks.read_claims(self.detached.as_ref(), self.packets, self.flows);
        self.flows.go_on();
        self.add_details();
        self.record_marked();
        let mut marks = Marks::of(self.by, self.active.as_deref());
        marks.raises &= !self.flows.were_recorded();
        marks.end_claims(self.flows);
        marks.pass_on(self.detached.take(), self.packets, self.flows, came);
        self.keep_for_sent();
    }

    #[inline(always)]
    fn transit(&mut self) {
        let marks = Marks::of(self.by, self.active.as_deref());
        marks.read(self.detached.as_ref(), self.packets, self.flows);
        leave_out_uncarried(marks, self.packets, self.flows);
        let came = marks.read_claims(self.detached.as_ref(), self.packets, self.flows);
        self.add_details();
        if let Some(active) = &mut self.active {
            self.flows.date(active.newest);
            for system in &mut active.systems.recording {
                self.flows.restrict(system.bits);
                system.half.transit(self.flows, self.counters);
            }
        }
        let marks = Marks::of(self.by, self.active.as_deref());
        marks.pass_on(self.detached.take(), self.packets, self.flows, came);
        self.keep_for_sent();
    }

    #[inline(always)]
    fn unmark(&mut self) {
        let marks = Marks::of(self.by, self.active.as_deref());
        marks.take_claims(self.detached.as_ref(), self.packets, self.flows);
    }

    #[inline(always)]
    fn resume(&mut self, since: u64) {
        let marks = Marks::of(self.by, self.active.as_deref());
        let epochs = self.active.as_ref().map(|active| (since, active.newest));
        self.drops = path::resume(marks, epochs, self.detached.take(), self.packets, self.flows);
    }

    /// Adds what systems ask for beside the flows: hashes, arrivals, IP fields.
    #[inline(always)]
    fn add_details(&mut self) {
        if let Some(active) = &mut self.active {
            let of = (self.lowered, self.by.probes.now_ns);
            active.add_details(self.packets, of, self.detached.as_ref(), self.flows);
        }
    }

    /// Records what enters. Gives the mark that it carries, but for the hierarchies.
    #[inline(always)]
    fn record_entering(&mut self) -> Mark {
        let Some(active) = &mut self.active else {
            self.counters.ingress_unrecorded += self.flows.len() as u64;
            self.flows.stamp(0);
            return Mark::plain(0, Hierarchy::NonSampledLl);
        };
        let mut stamp = Mark::of_epoch(active.epoch, Hierarchy::NonSampledLl);
        if self.by.policy.carrier.carries_hops() {
            let length = active.hops.unwrap_or(0);
            stamp.way = Some(Way { hop: u8::from(active.hops.is_some()), length });
        }
        self.flows.stamp(stamp.bit);
        for system in active.systems.recording.iter_mut().filter(|system| system.enters) {
            system.half.enter(self.flows, self.counters);
        }
        stamp
    }

    /// Dates packets that leave by the marks that they carry, counts those that have none, and
    /// records them.
    #[inline(always)]
    fn record_marked(&mut self) {
        let (flows, counters) = (&mut *self.flows, &mut *self.counters);
        if let Some(active) = &self.active {
            flows.date(active.newest);
        }
        if self.active.is_none() && self.by.policy.carrier.needs_session() {
            // Nobody can say which of them were marked.
            counters.egress_unrecorded += flows.len() as u64;
        } else {
            counters.egress_unmarked += u64::from(flows.unmarked());
        }
        self.record_leaving();
    }

    #[inline(always)]
    fn record_leaving(&mut self) {
        let (flows, counters) = (&mut *self.flows, &mut *self.counters);
        match &mut self.active {
            Some(active) => {
                for system in &mut active.systems.recording {
                    flows.restrict(system.bits);
                    system.half.leave(flows, counters);
                }
            }
            None => counters.egress_unrecorded += flows.len() as u64 - u64::from(flows.unmarked()),
        }
    }

    /// Keeps flows for systems that ask what transmit queues do with them, and takes back what was
    /// lent.
    #[inline(always)]
    fn keep_for_sent(&mut self) {
        if let Some(active) = &mut self.active {
            active.keep_for_sent(self.flows);
        }
    }
}
