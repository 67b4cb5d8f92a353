//! From frames in any order to epochs in order, for one measurement system.
//!
//! A pure state machine: frames and the time are passed in, and it says what is to be done next. An
//! epoch is to be decoded when every side of every expected node is there. It is to be reported
//! when every node has sealed it as well; or, whatever is missing, when its deadline has passed.
//! From the first epoch that anything is received of, every epoch is reported exactly once and in
//! order, whether anything came of it or not. Which nodes are expected, and what a side holds, is
//! the system's: each system has a collector of its own, so that what one of them misses is missing
//! in no other.
//!
//! A system that sums over windows of several epochs has windows collected instead, each under the
//! number of its first epoch.

use std::collections::BTreeMap;

use calumma_analysis::NodeEnd;
use calumma_epoch::EpochClock;
use calumma_wire::{Role, SideKind};
use tracing::warn;

/// Most epochs that may have passed without anything received of them and still be reported one by
/// one. More than that is a controller that slept, or whose clock was set. Also how far the first
/// epoch that anything is received of may lie back: nodes hold what a restarting controller has
/// missed.
pub(crate) const MOST_SILENT: u64 = 1200;

/// Kinds of sides.
pub(crate) const KINDS: usize = 4;

/// The sides that a node of a role delivers of an epoch.
pub fn sides_of(role: Role) -> &'static [SideKind] {
    match role {
        Role::Edge => &[SideKind::Ingress, SideKind::Egress],
        Role::Transit => &[SideKind::Transit],
        Role::Host => &[SideKind::Host],
    }
}

/// What a node sends about an epoch.
#[derive(Clone, Debug)]
pub enum Frame<S> {
    /// What was recorded on a side.
    Side(SideKind, S),
    /// Nothing of the epoch can be recorded any more.
    Sealed {
        /// Packets of it that came too late to be recorded.
        late_packets: u64,
        /// What else is known of them, in the system's own format.
        body: Vec<u8>,
    },
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It belongs to an epoch that is being collected.
    Accepted,
    /// The same was there already; the first one stands.
    Duplicate,
    /// Its epoch has been reported, or is none that is reported.
    Late,
    /// Its epoch lies too far from the controller's time: clocks differ.
    OutOfWindow,
}

/// What is to be done next.
#[derive(Debug)]
pub enum Step<S> {
    /// Decode an epoch. Not always in order: an epoch of which something is missing holds no later
    /// one up.
    Decode(Sides<S>),
    /// Report an epoch that has been given out to be decoded; in order.
    Report(Ends),
}

/// The sides of an epoch, as far as they came.
#[derive(Debug)]
pub struct Sides<S> {
    /// The epoch; of a window, its first.
    pub epoch: u64,
    /// The sides of each expected node.
    pub nodes: Vec<NodeSides<S>>,
    /// When the last side of each kind was received.
    received_ns: [u64; KINDS],
}

impl<S> Sides<S> {
    /// When the last side of a kind was received, in nanoseconds since the Unix epoch; 0 where none
    /// was.
    pub fn received_ns(&self, kind: SideKind) -> u64 {
        self.received_ns[kind as usize]
    }
}

/// The sides of an epoch at one node, as far as they came.
#[derive(Debug)]
pub struct NodeSides<S>([Option<S>; KINDS]);

impl<S> Default for NodeSides<S> {
    fn default() -> Self {
        Self([const { None }; KINDS])
    }
}

impl<S> NodeSides<S> {
    /// A side, where it came.
    pub fn get(&self, kind: SideKind) -> Option<&S> {
        self.0[kind as usize].as_ref()
    }

    /// Takes a side out.
    pub fn take(&mut self, kind: SideKind) -> Option<S> {
        self.0[kind as usize].take()
    }
}

/// How an epoch ended at every expected node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The epoch; of a window, its first.
    pub epoch: u64,
    /// Each node's end.
    pub nodes: Vec<NodeEnd>,
}

/// Collects the frames of one system into epochs; `S` is what it keeps of a side.
#[derive(Debug)]
pub struct Collector<S> {
    /// The sides that each expected node delivers.
    nodes: Vec<&'static [SideKind]>,
    clock: EpochClock,
    grace_ns: u64,
    /// Epochs of a window.
    window: u64,
    /// When the first frame was received.
    opened_ns: u64,
    /// The next window to be reported; `None` until anything is received.
    next: Option<u64>,
    /// The first window that is not reported any more, where the system ends.
    end: Option<u64>,
    /// Whether a window has been reported.
    reporting: bool,
    /// How often it has begun anew.
    begun: u64,
    /// Since when the next window lies ahead of time, where it does.
    ahead_since_ns: Option<u64>,
    pending: BTreeMap<u64, Pending<S>>,
    /// For each node, the epoch of its last frame, where that was out of window.
    out_of_window: Vec<Option<u64>>,
}

/// A window that is being collected.
#[derive(Debug)]
struct Pending<S> {
    sides: Vec<NodeSides<S>>,
    /// Of each node that has sealed it, its late packets and what else is known of them.
    seals: Vec<Option<(u64, Vec<u8>)>>,
    received_ns: [u64; KINDS],
    /// Sides that are still to come.
    missing_sides: usize,
    /// Nodes that have not sealed it.
    unsealed: usize,
    /// Whether its sides have been given out.
    decoding: bool,
}

impl<S> Pending<S> {
    fn new(nodes: &[&'static [SideKind]]) -> Self {
        Self {
            sides: nodes.iter().map(|_| NodeSides::default()).collect(),
            seals: vec![None; nodes.len()],
            received_ns: [0; KINDS],
            missing_sides: nodes.iter().map(|sides| sides.len()).sum(),
            unsealed: nodes.len(),
            decoding: false,
        }
    }

    fn is_measured(&self) -> bool {
        self.missing_sides == 0
    }

    fn is_whole(&self) -> bool {
        self.decoding && self.unsealed == 0
    }

    fn put(&mut self, node: usize, frame: Frame<S>, received_ns: u64) -> Receipt {
        match frame {
            Frame::Side(kind, side) => {
                let place = &mut self.sides[node].0[kind as usize];
                if self.decoding || place.is_some() {
                    return Receipt::Duplicate;
                }
                *place = Some(side);
                let last = &mut self.received_ns[kind as usize];
                *last = received_ns.max(*last);
                self.missing_sides -= 1;
            }
            Frame::Sealed { late_packets, body } => {
                let place = &mut self.seals[node];
                if place.is_some() {
                    return Receipt::Duplicate;
                }
                *place = Some((late_packets, body));
                self.unsealed -= 1;
            }
        }
        Receipt::Accepted
    }
}

impl<S> Collector<S> {
    /// A collector that expects nodes that deliver these sides each. A node seals an epoch when the
    /// one after the next is armed; `grace_ns` after that, the epoch is reported without what is
    /// still missing.
    pub fn new(nodes: Vec<&'static [SideKind]>, clock: EpochClock, grace_ns: u64) -> Self {
        Self {
            out_of_window: vec![None; nodes.len()],
            nodes,
            clock,
            grace_ns,
            window: 1,
            opened_ns: 0,
            next: None,
            end: None,
            reporting: false,
            begun: 0,
            ahead_since_ns: None,
            pending: BTreeMap::new(),
        }
    }

    /// Has it collect for a system that sums over windows of `epochs`, at least one.
    #[must_use]
    pub fn with_window(self, epochs: u64) -> Self {
        Self { window: epochs.max(1), ..self }
    }

    /// Ends the system: nothing of `epoch` or later is taken in or reported; of windows, none that
    /// `epoch` falls into.
    pub fn end_at(&mut self, epoch: u64) {
        let end = epoch / self.window;
        self.end = Some(end);
        self.pending.split_off(&end);
    }

    /// How often it has begun anew, and the epoch before which all are reported; 0 as long as none
    /// is.
    pub fn open_from(&self) -> (u64, u64) {
        let next = self.next.filter(|_| self.reporting).unwrap_or(0);
        (self.begun, next.saturating_mul(self.window))
    }

    /// Epochs that are being collected.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether everything before the system's end has been reported by `now_ns`.
    pub fn has_ended(&self, now_ns: u64) -> bool {
        match (self.end, self.next) {
            (None, _) => false,
            (Some(end), Some(next)) => next >= end,
            // Something may yet come of the last window.
            (Some(end), None) => end == 0 || now_ns >= self.deadline_of_window(end - 1),
        }
    }

    /// When the window that `epoch` falls into is reported even if something is missing, in
    /// nanoseconds since the Unix epoch. Epochs that nodes held while no controller was there count
    /// from the first frame received.
    pub fn deadline_of(&self, epoch: u64) -> u64 {
        self.deadline_of_window(epoch / self.window)
    }

    fn deadline_of_window(&self, window: u64) -> u64 {
        let sealed = window.saturating_add(1).saturating_mul(self.window).saturating_add(1);
        self.clock.start_of(sealed).max(self.opened_ns).saturating_add(self.grace_ns)
    }

    /// When there is something to do at the latest.
    pub fn next_deadline(&self) -> Option<u64> {
        let ended = self.end.and_then(|end| end.checked_sub(1));
        self.next.or(ended).map(|window| self.deadline_of_window(window))
    }

    /// Takes in a frame about `epoch` of the node at position `node` among the expected ones,
    /// received at `received_ns`. Its side must be one that the node delivers.
    pub fn take(&mut self, node: usize, epoch: u64, frame: Frame<S>, received_ns: u64) -> Receipt {
        self.follow_back(received_ns);
        let window = epoch / self.window;
        let is_over = self.reporting && self.next.is_some_and(|next| window < next);
        if is_over || self.end.is_some_and(|end| window >= end) {
            return Receipt::Late;
        }
        // No side of an epoch is finished before its end by the node's clock.
        let current = self.clock.epoch_at(received_ns);
        if epoch > current || epoch.saturating_add(MOST_SILENT) < current {
            self.out_of_window[node] = Some(epoch);
            return Receipt::OutOfWindow;
        }
        if self.next.is_none() {
            self.opened_ns = received_ns;
        }
        // Until anything has been reported, a node may hold an earlier epoch than the others.
        self.next = Some(self.next.map_or(window, |next| next.min(window)));
        self.out_of_window[node] = None;
        let pending = self.pending.entry(window).or_insert_with(|| Pending::new(&self.nodes));
        pending.put(node, frame, received_ns)
    }

    /// Begins as at the start where the controller's clock went ahead, so that epochs were closed
    /// that were still to come, and was set back: else all that comes would be late until time has
    /// caught up. Those epochs are reported twice.
    fn follow_back(&mut self, now_ns: u64) {
        let current = self.clock.epoch_at(now_ns) / self.window;
        let Some(next) = self.next.filter(|&next| self.reporting && next > current + 2) else {
            self.ahead_since_ns = None;
            return;
        };
        let since_ns = self.ahead_since_ns.map_or(now_ns, |since_ns| since_ns.min(now_ns));
        self.ahead_since_ns = Some(since_ns);
        if now_ns - since_ns >= self.grace_ns {
            let (next, current) = (next * self.window, current * self.window);
            warn!(
                next,
                current,
                "the controller's clock went ahead and was set back: epochs before {next} were closed \
                 before their time, and are collected anew from about {current} on"
            );
            self.pending.clear();
            (self.next, self.reporting, self.ahead_since_ns) = (None, false, None);
            self.begun += 1;
        }
    }

    /// What is to be done at `now_ns`, if anything; ask until there is nothing.
    pub fn step(&mut self, now_ns: u64) -> Option<Step<S>> {
        self.follow_back(now_ns);
        let measured = |(_, it): &(&u64, &Pending<S>)| !it.decoding && it.is_measured();
        if let Some((&window, _)) = self.pending.iter().find(measured) {
            return Some(self.decode(window));
        }
        let next = self.next.filter(|&next| self.end.is_none_or(|end| next < end))?;
        let whole = self.pending.get(&next).is_some_and(Pending::is_whole);
        if !whole && now_ns < self.deadline_of_window(next) {
            return None;
        }
        Some(self.finish_window(next, now_ns))
    }

    /// As [`step`](Self::step), for a controller that stops: waits for nothing that is missing.
    pub fn finish(&mut self) -> Option<Step<S>> {
        let last = *self.pending.last_key_value()?.0;
        let next = self.next.unwrap_or(last);
        Some(self.finish_window(next, 0))
    }

    /// Gives out a window's sides, or, where that has been done, its end.
    fn finish_window(&mut self, window: u64, now_ns: u64) -> Step<S> {
        match self.pending.get(&window) {
            Some(pending) if pending.decoding => {
                let ends = self.take_ends(window);
                self.next = Some(self.after(window, now_ns));
                self.reporting = true;
                Step::Report(ends)
            }
            _ => self.decode(window),
        }
    }

    fn decode(&mut self, window: u64) -> Step<S> {
        let pending = self.pending.entry(window).or_insert_with(|| Pending::new(&self.nodes));
        pending.decoding = true;
        Step::Decode(Sides {
            epoch: window * self.window,
            nodes: pending.sides.iter_mut().map(std::mem::take).collect(),
            received_ns: pending.received_ns,
        })
    }

    fn take_ends(&mut self, window: u64) -> Ends {
        let epoch = window * self.window;
        let seals = self.pending.remove(&window).map_or_else(Vec::new, |it| it.seals);
        let note = |other| format!("it sends epoch {other} while {epoch} is due: check its clock");
        let end = |(seal, other): (Option<_>, &Option<u64>)| {
            let (late_packets, seal) = seal.unzip();
            let seal = seal.unwrap_or_default();
            NodeEnd { late_packets, seal, note: other.map(note), ..NodeEnd::default() }
        };
        Ends { epoch, nodes: seals.into_iter().zip(&self.out_of_window).map(end).collect() }
    }

    /// The window to come after `window`: the following one, unless the controller slept.
    fn after(&self, window: u64, now_ns: u64) -> u64 {
        let next = window + 1;
        if self.pending.contains_key(&next) {
            return next;
        }
        let silent_from = self.clock.epoch_at(now_ns).saturating_sub(MOST_SILENT) / self.window;
        let received = self.pending.first_key_value().map_or(u64::MAX, |(&first, _)| first);
        next.max(silent_from.min(received))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_epoch::Guards;
    use proptest::prelude::*;

    const LENGTH: u64 = 50_000_000;
    const GRACE: u64 = 500_000_000;

    fn collector(roles: &[Role]) -> Collector<u64> {
        let clock = EpochClock::new(LENGTH, Guards::default()).unwrap();
        Collector::new(roles.iter().map(|&role| sides_of(role)).collect(), clock, GRACE)
    }

    /// All that a node of a role sends of an epoch; its sides hold the epoch.
    fn frames(role: Role, epoch: u64) -> Vec<Frame<u64>> {
        let sides = sides_of(role).iter().map(|&kind| Frame::Side(kind, epoch));
        sides.chain([Frame::Sealed { late_packets: 0, body: Vec::new() }]).collect()
    }

    /// The epochs that are reported at `now_ns`, each with its nodes that sealed it.
    fn reported(collector: &mut Collector<u64>, now_ns: u64) -> Vec<(u64, usize)> {
        let mut reported = Vec::new();
        while let Some(step) = collector.step(now_ns) {
            if let Step::Report(Ends { epoch, nodes }) = step {
                let sealed = nodes.iter().filter(|node| node.late_packets.is_some()).count();
                reported.push((epoch, sealed));
            }
        }
        reported
    }

    #[test]
    fn each_node_delivers_the_sides_of_its_role() {
        let roles = [Role::Edge, Role::Transit];
        let mut collector = collector(&roles);
        let now = 103 * LENGTH;
        for (node, role) in roles.into_iter().enumerate() {
            assert!(reported(&mut collector, now).is_empty(), "the {} is missing", role.name());
            for frame in frames(role, 100) {
                assert_eq!(collector.take(node, 100, frame, now), Receipt::Accepted);
            }
        }
        let Some(Step::Decode(mut sides)) = collector.step(now) else { panic!("sides") };
        assert_eq!(sides.received_ns(SideKind::Transit), now);
        assert_eq!(sides.nodes[0].take(SideKind::Transit), None);
        assert_eq!(sides.nodes[1].take(SideKind::Transit), Some(100));
        assert_eq!(reported(&mut collector, now), [(100, 2)]);
    }

    #[test]
    fn a_window_is_collected_once_under_its_first_epoch() {
        let mut collector = collector(&[Role::Transit]).with_window(10);
        let now = 131 * LENGTH;
        for epoch in [110, 120] {
            for frame in frames(Role::Transit, epoch) {
                assert_eq!(collector.take(0, epoch, frame, now), Receipt::Accepted);
            }
        }
        let again = Frame::Side(SideKind::Transit, 7);
        assert_eq!(collector.take(0, 129, again, now), Receipt::Duplicate);
        assert_eq!(reported(&mut collector, now), [(110, 1), (120, 1)]);
        // The window from 130 on is sealed when epoch 141 is armed.
        assert_eq!(collector.next_deadline(), Some(141 * LENGTH + GRACE));
        assert_eq!(reported(&mut collector, 141 * LENGTH + GRACE), [(130, 0)]);
    }

    #[test]
    fn a_system_that_ends_reports_what_was_before_and_nothing_after() {
        let mut collector = collector(&[Role::Transit, Role::Transit]);
        let now = 103 * LENGTH;
        for frame in frames(Role::Transit, 100) {
            collector.take(0, 100, frame, now);
        }
        collector.end_at(102);
        assert!(!collector.has_ended(now));
        let after = Frame::Sealed { late_packets: 0, body: Vec::new() };
        assert_eq!(collector.take(0, 102, after, now), Receipt::Late);
        assert_eq!(reported(&mut collector, 200 * LENGTH), [(100, 1), (101, 0)]);
        assert!(collector.has_ended(200 * LENGTH));

        let mut silent = super::tests::collector(&[Role::Transit]);
        silent.end_at(102);
        let deadline = silent.next_deadline().unwrap();
        assert!(!silent.has_ended(deadline - 1) && silent.has_ended(deadline));
    }

    /// A controller whose clock is an hour ahead for a moment closes an hour of epochs; set back,
    /// it goes on with what its nodes send.
    #[test]
    fn a_clock_that_was_ahead_for_a_moment_stops_reports_for_the_grace_only() {
        for ahead_ns in [5_000_000_000, 3_600_000_000_000] {
            let mut collector = collector(&[Role::Transit]);
            let deliver = |collector: &mut Collector<u64>, epoch: u64| {
                let now_ns = (epoch + 2) * LENGTH;
                for frame in frames(Role::Transit, epoch) {
                    collector.take(0, epoch, frame, now_ns);
                }
                reported(collector, now_ns)
            };
            assert_eq!(deliver(&mut collector, 100), [(100, 1)]);
            assert!(reported(&mut collector, 103 * LENGTH + ahead_ns).len() > 80);
            let after: Vec<_> = (102..130).flat_map(|e| deliver(&mut collector, e)).collect();
            let first = 103 + GRACE / LENGTH - 1;
            let expected: Vec<_> = (first..130).map(|epoch| (epoch, 1)).collect();
            assert_eq!(after, expected, "{ahead_ns}");
        }
    }

    /// A controller whose clock is set back by less than the grace closes no epoch twice.
    #[test]
    fn a_clock_that_is_set_back_a_little_changes_nothing() {
        let mut collector = collector(&[Role::Transit]);
        let mut out = Vec::new();
        for (epoch, now) in [(100, 102), (101, 103), (102, 98), (102, 104), (103, 105)] {
            for frame in frames(Role::Transit, epoch) {
                collector.take(0, epoch, frame, now * LENGTH);
            }
            out.extend(reported(&mut collector, now * LENGTH));
        }
        assert_eq!(out, [(100, 1), (101, 1), (102, 1), (103, 1)]);
    }

    proptest! {
        /// Frames of any epochs at any times, windows of any length: each window is reported once
        /// and in order, with exactly the seals that were kept.
        #[test]
        fn whatever_comes_windows_are_reported_once_and_in_order(
            window in 1u64..5,
            deliveries in prop::collection::vec((0u64..20, 0usize..2, any::<bool>()), 0..80),
            steps in prop::collection::vec(0u64..60_000_000, 80),
        ) {
            let mut collector = collector(&[Role::Transit; 2]).with_window(window);
            let mut now = 120 * LENGTH;
            let mut out = Vec::new();
            let mut seals = BTreeMap::<u64, usize>::new();
            for ((epoch, node, is_seal), step) in deliveries.into_iter().zip(steps) {
                now += step;
                let epoch = 100 + epoch;
                let frame = if is_seal {
                    Frame::Sealed { late_packets: 0, body: Vec::new() }
                } else {
                    Frame::Side(SideKind::Transit, epoch)
                };
                if collector.take(node, epoch, frame, now) == Receipt::Accepted && is_seal {
                    *seals.entry(epoch / window * window).or_default() += 1;
                }
                out.extend(reported(&mut collector, now));
            }
            out.extend(reported(&mut collector, now + 30 * LENGTH + GRACE));
            for pair in out.windows(2) {
                prop_assert_eq!(pair[0].0 + window, pair[1].0);
            }
            for (epoch, sealed) in out {
                prop_assert_eq!(sealed, seals.get(&epoch).copied().unwrap_or(0));
            }
        }
    }
}
