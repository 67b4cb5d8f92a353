//! A system that puts INT stacks into all packets, and notes the stacks it is shown.

use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};

use calumma_edge::measure::Measurement;
use calumma_edge::worker::{Policy, Sent, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::int::{Insertion, Instructions, Stack};
use calumma_plane::slots::AnySlots;
use calumma_plane::system::{FinishedSide, Groups, LcoreHalf, Notes, Recorded};
use calumma_plane::{
    Counters, Flows, LcoreMerger, LcoreSystem, MarkedRun, Record, Run, Slots, SwitchSystem,
};
use calumma_sketch::{AnyKey, FlowKey, Key, KeyKind, WideKey};
use calumma_wire::{Secret, Side};

const EPOCH_NS: u64 = 3_600_000_000_000;

/// The epoch in which all is done.
const EPOCH: u64 = 10;

/// What it was shown.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// The stacks of packets that left; nothing of those without one.
    pub(crate) stacks: Vec<Option<Stack>>,
    /// Ports and protocol of the flows of all packets, where a UDP port marks those with stacks.
    pub(crate) flows: Vec<((u16, u16), u8)>,
    /// When packets were transmitted.
    pub(crate) departures: Vec<Option<u64>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Inserter {
    insertion: Insertion,
    first_epoch: u64,
    shown: Arc<Mutex<Shown>>,
}

#[derive(Clone, Debug)]
struct Nothing;

impl Record for Nothing {
    type Plan = ();

    fn begin(&mut self, (): &(), _epoch: u64) {}

    fn plan(&self) -> &() {
        &()
    }

    fn merge(&mut self, _other: &Self) {}

    fn clear(&mut self) {}
}

#[derive(Debug)]
struct OnLcore(Inserter, Slots<Nothing, Nothing>);

impl OnLcore {
    fn note<K: Key>(&self, flows: &Flows<K>) {
        if self.0.insertion.udp_port.is_some() {
            let of = flows.keys().iter().map(|key| (key.ports(), key.protocol()));
            self.0.shown.lock().unwrap().flows.extend(of);
        }
    }
}

impl<K: Key> LcoreSystem<K> for OnLcore {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.1
    }

    fn wants_sent(&self) -> bool {
        true
    }

    fn wants_arrivals(&self) -> bool {
        true
    }

    fn inserts(&self) -> Option<&Insertion> {
        Some(&self.0.insertion)
    }

    fn wants_stacks(&self) -> bool {
        true
    }

    fn wants_departures(&self) -> bool {
        true
    }

    fn wants_transit(&self) -> bool {
        self.0.insertion.udp_port.is_some()
    }

    fn enter(&mut self, flows: &mut Flows<K>, _: &mut Counters) {
        flows.set_source(u32::MAX);
        self.note(flows);
    }

    fn transit(&mut self, flows: &mut Flows<K>, _: &mut Counters) {
        self.note(flows);
    }

    fn leave(&mut self, flows: &Flows<K>, _: &mut Counters) {
        self.note(flows);
        if !flows.are_local() {
            let stacks = (0..flows.len()).map(|at| flows.stack(at).copied());
            self.0.shown.lock().unwrap().stacks.extend(stacks);
        }
    }

    fn sent(&mut self, flows: &Flows<K>, _: Sent, _: &mut Counters) {
        self.0.shown.lock().unwrap().departures.push(flows.departure_ns());
    }

    fn enter_run(&mut self, _: &K, packets: u32, _: &mut Counters) -> Run {
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, _: &K, _: &MarkedRun, _: &mut Counters) {}
}

impl SwitchSystem for Inserter {
    fn on_lcore(&self, keys: KeyKind) -> AnyKey<LcoreHalf> {
        let half = || OnLcore(self.clone(), Slots::new(self.first_epoch, 1, ()));
        match keys {
            KeyKind::Ipv4 => {
                let half: Box<dyn LcoreSystem<FlowKey>> = Box::new(half());
                AnyKey::Ipv4(half)
            }
            KeyKind::Dual => {
                let half: Box<dyn LcoreSystem<WideKey>> = Box::new(half());
                AnyKey::Dual(half)
            }
        }
    }

    fn groups(&self, _: KeyKind) -> Groups {
        let nothing = || Box::new(Recorded::new(Nothing));
        Groups { ingress: nothing(), by_bit: nothing() }
    }

    fn side(&self, _: FinishedSide<'_>) -> Option<(Side, Notes)> {
        None
    }
}

/// A switch in the middle of an epoch.
pub(crate) struct Node {
    pub(crate) worker: Worker,
    shown: Arc<Mutex<Shown>>,
    _merger: LcoreMerger,
}

/// An insertion with a node's number.
pub(crate) fn insertion(node: u16, hops: u8) -> Insertion {
    let [domain, node] = [0xC4A1, node].map(|number| NonZeroU16::new(number).unwrap());
    Insertion { domain, node, instructions: Instructions::DEFAULT, hops, udp_port: None }
}

impl Node {
    /// One that measures all packets, in virtual time.
    pub(crate) fn new(policy: Policy, insertion: Insertion) -> Self {
        Self::in_epoch(policy, insertion, EPOCH)
    }

    /// The same that measures packets of IPv4 alone.
    pub(crate) fn of_ipv4(policy: Policy, insertion: Insertion) -> Self {
        Self::with_keys(policy, insertion, (EPOCH, KeyKind::Ipv4))
    }

    /// One in the middle of another epoch.
    pub(crate) fn in_epoch(policy: Policy, insertion: Insertion, first_epoch: u64) -> Self {
        Self::with_keys(policy, insertion, (first_epoch, KeyKind::Dual))
    }

    fn with_keys(
        policy: Policy,
        insertion: Insertion,
        (first_epoch, keys): (u64, KeyKind),
    ) -> Self {
        let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
        let shown = Arc::<Mutex<Shown>>::default();
        let system = Box::new(Inserter { insertion, first_epoch, shown: shown.clone() });
        let (mut merger, mut mailboxes) = LcoreMerger::new(1);
        merger.begin(clock, first_epoch, Secret::new([7; 32]), keys, vec![system]);
        let mut worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
        worker.advance_to(Self::middle_ns(first_epoch - 1));
        worker.advance_to(Self::middle_ns(first_epoch));
        Self { worker, shown, _merger: merger }
    }

    /// The middle of an epoch, in nanoseconds since the Unix epoch.
    pub(crate) fn middle_ns(epoch: u64) -> u64 {
        let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
        clock.start_of(epoch) + EPOCH_NS / 2
    }

    /// When all is done, where nobody says another epoch.
    pub(crate) fn now_ns() -> u64 {
        Self::middle_ns(EPOCH)
    }

    /// What it was shown since the last call.
    pub(crate) fn shown(&self) -> Shown {
        std::mem::take(&mut self.shown.lock().unwrap())
    }
}
