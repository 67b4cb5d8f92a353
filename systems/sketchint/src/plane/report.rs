//! Which packets for hosts an lcore hands on to be reported at once, and what is said of them.

use calumma_plane::Flows;
use calumma_plane::int::report::{Reasons, Summary};
use calumma_plane::int::{Hop, Insertion, Instructions, Stack, UNKNOWN};
use calumma_plane::outlet::{Fronts, Outlet};
use calumma_sketch::burst::ones;
use calumma_sketch::sketchint::{Notes, Words, packet_word};
use calumma_sketch::{BURST, Key};

/// Mixed with an epoch's seed, so that what is drawn has nothing to do with which packets carry
/// stacks.
const TRACKED_SALT: u64 = 0x7E1E_4E70_47ED_0D0E;

/// Packets of one burst and window that leave, and what is known of them.
pub(super) struct Recorded<'a, K> {
    /// All that leave.
    pub(super) flows: &'a Flows<K>,
    /// Which of them they are.
    pub(super) which: u32,
    /// Their stacks; those of packets from host to host are empty.
    pub(super) stacks: &'a [Option<&'a Stack>],
    /// A word of each one's flow.
    pub(super) words: &'a Words,
    /// What was remarkable as they were recorded.
    pub(super) notes: &'a Notes,
    /// The epoch's.
    pub(super) seed: u64,
}

/// Hands packets on to be reported, on an lcore.
#[derive(Debug)]
pub(super) struct Reporter {
    outlet: Outlet,
    pub(super) fronts: Fronts,
    insertion: Insertion,
    /// Whether the sink is no hop.
    is_host: bool,
    /// What is known so far of packets of the burst, by position.
    summaries: [Summary; BURST],
    /// Packets that have been drawn from.
    draws: u64,
}

impl Reporter {
    /// One that hands on by `outlet`, of a sink that says of itself what `insertion` has.
    pub(super) fn new(outlet: Outlet, insertion: Insertion, is_host: bool) -> Self {
        let nothing = Summary::new(insertion.domain.get());
        let fronts = outlet.fronts();
        Self { outlet, fronts, insertion, is_host, summaries: [nothing; BURST], draws: 0 }
    }

    /// Notes what is known of packets as they are recorded. At an end host's sink that is all.
    pub(super) fn note<K: Key>(&mut self, of: &Recorded<'_, K>) {
        for (number, at) in ones(of.which).enumerate() {
            let Some(&(position, _)) = of.flows.places().get(at) else { break };
            let position = usize::from(position) % BURST;
            let stack = of.stacks.get(number).copied().flatten();
            let stack = stack.filter(|_| !of.flows.are_local());
            let (word, has_stack) = (of.words[number % BURST], stack.is_some());
            let inflated = of.notes.inflation(number);
            let mut reasons = Reasons::default();
            reasons.add(Reasons::INFLATED, inflated.is_some());
            reasons.add(Reasons::PATH_CHANGE, of.notes.has_new_path(number));
            reasons.add(Reasons::HEAVY_HITTER, of.notes.becomes_heavy(number));
            reasons.add(Reasons::LOOP, stack.is_some_and(|stack| self.goes_round(stack)));
            let tracked = has_stack && self.draws(word, of.seed, position);
            reasons.add(Reasons::TRACKED, tracked);
            let before = self.summaries[position];
            let (is_dropped, latency_ns) = (false, UNKNOWN);
            self.summaries[position] =
                Summary { reasons, has_stack, inflated, is_dropped, latency_ns, ..before };
            if self.is_host {
                self.hand_on(position);
            }
        }
    }

    /// Whether a packet has come by a switch twice, this one included.
    fn goes_round(&self, stack: &Stack) -> bool {
        let own = (!self.is_host).then_some(self.insertion.node.get().into());
        let nodes = &stack.nodes()[..stack.len()];
        let comes_back =
            |(at, node): (usize, &u32)| own == Some(*node) || nodes[..at].contains(node);
        nodes.iter().enumerate().any(comes_back)
    }

    /// Whether a packet with a stack is drawn, on its own, be others like it or not.
    fn draws(&mut self, word: u64, seed: u64, position: usize) -> bool {
        if !self.outlet.draws_any() {
            return false;
        }
        self.draws += 1;
        let packet = (self.fronts.digest(position), self.draws);
        self.outlet.draws(packet_word(word, seed ^ TRACKED_SALT, packet))
    }

    /// A transmit queue took the packet at a position, which met `own` at this switch and, where
    /// its latency here is inflated, `inflated`.
    pub(super) fn took(&mut self, position: usize, own: &Hop, inflated: Option<(u32, u32)>) {
        let has_times = self.insertion.instructions.has_times();
        let has_latency = self.insertion.instructions.bits() & Instructions::LATENCY != 0;
        let of = &mut self.summaries[position % BURST];
        let time = |ns: u64| if has_times { ns } else { u64::MAX };
        of.latency_ns = if has_latency { own.latency_ns } else { UNKNOWN };
        (of.ingress_ns, of.egress_ns) = (time(own.ingress_ns), time(own.egress_ns));
        if let Some((_, latency_ns)) = inflated {
            of.reasons.add(Reasons::INFLATED, true);
            if of.inflated.is_none_or(|(_, before)| latency_ns > before) {
                of.inflated = inflated;
            }
        }
        self.hand_on(position);
    }

    /// A transmit queue refused the packet at a position.
    pub(super) fn refused(&mut self, position: usize) {
        let of = &mut self.summaries[position % BURST];
        of.is_dropped = true;
        (of.ingress_ns, of.egress_ns) = (u64::MAX, u64::MAX);
        self.hand_on(position);
    }

    fn hand_on(&self, position: usize) {
        let summary = self.summaries[position % BURST];
        if !summary.reasons.is_empty() {
            let node = self.insertion.node.get().into();
            self.outlet.hand_on(self.fronts.sample(position, node, summary));
        }
    }
}
