//! What really happened in an epoch, and whether a report says so.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use calumma_chamelemon::{Hierarchy, Run};
use calumma_controller::report::{EpochReport, Flow, LossClass};
use calumma_sketch::WideKey;

use super::numbers::Numbers;
use crate::topology::{Point, Segment, Way};

/// What one flow did in one epoch, by the clock of the edge where it entered.
///
/// A copy that a link makes of a packet counts as a packet from there on: packets and copies are
/// those that were delivered and those that were lost.
#[derive(Clone, Debug)]
pub struct FlowTruth {
    /// The flow.
    pub key: WideKey,
    /// The edge where it entered.
    pub edge: u32,
    /// Packets that entered.
    pub packets: u32,
    /// Packets that left the network, where the simulation counts them.
    pub delivered: u32,
    /// Packets that were lost.
    pub lost: u32,
    /// Those of them that carried a hierarchy with an encoding, so that the loss can be seen.
    pub encoded: u32,
    /// Those of them that were heavy-loss or heavy-hitter candidates.
    pub heavy: u32,
    /// Copies that were made of packets.
    pub doubled: u32,
    /// Those of them that carried a hierarchy with an encoding.
    pub doubled_encoded: u32,
    /// Those of them that were heavy-loss or heavy-hitter candidates.
    pub doubled_heavy: u32,
    /// The way that its packets took, where it is known and there is one.
    pub way: Option<Arc<Way>>,
    /// How many were lost on each segment, where it is known. No segment comes twice.
    pub losses: Vec<(Segment, u32)>,
    /// How many copies were made on each segment, likewise.
    pub copies: Vec<(Segment, u32)>,
    /// Numbers of the packets that were lost, where all of the flow's packets from the first on
    /// were in this epoch.
    lost_numbers: Option<Vec<Numbers>>,
}

impl FlowTruth {
    /// Nothing yet of the flow `key`, which enters at `edge`.
    pub fn new(key: WideKey, edge: usize) -> Self {
        Self {
            key,
            edge: edge as u32,
            packets: 0,
            delivered: 0,
            lost: 0,
            encoded: 0,
            heavy: 0,
            doubled: 0,
            doubled_encoded: 0,
            doubled_heavy: 0,
            way: None,
            losses: Vec::new(),
            copies: Vec::new(),
            lost_numbers: None,
        }
    }

    /// The same of a flow that takes `way`; `from_first` where the epoch has its first packet.
    pub(super) fn on_way(mut self, way: Option<Arc<Way>>, from_first: bool) -> Self {
        self.way = way;
        self.lost_numbers = from_first.then(Vec::new);
        self
    }

    /// Packets were lost.
    pub fn lose(&mut self, run: &Run) {
        let heavy = run.of(Hierarchy::HlCandidate) + run.of(Hierarchy::HhCandidate);
        self.lost += run.packets();
        self.encoded += heavy + run.of(Hierarchy::SampledLl);
        self.heavy += heavy;
    }

    /// Copies were made of packets.
    pub fn double(&mut self, run: &Run) {
        let heavy = run.of(Hierarchy::HlCandidate) + run.of(Hierarchy::HhCandidate);
        self.doubled += run.packets();
        self.doubled_encoded += heavy + run.of(Hierarchy::SampledLl);
        self.doubled_heavy += heavy;
    }

    /// Packets `numbers`, those of `run`, were lost on a segment.
    pub(super) fn lose_on(&mut self, segment: Segment, run: &Run, numbers: Numbers) {
        self.lose(run);
        add(&mut self.losses, segment, run.packets());
        if let Some(lost) = &mut self.lost_numbers {
            lost.push(numbers);
        }
    }

    /// Copies were made of packets on a segment.
    pub(super) fn double_on(&mut self, segment: Segment, run: &Run) {
        self.double(run);
        add(&mut self.copies, segment, run.packets());
    }

    /// How many of the lost packets came when the flow had already sent `packets`, as far as it is
    /// known.
    fn lost_after(&self, packets: u32) -> u32 {
        let lost = self.lost_numbers.iter().flatten();
        lost.map(|numbers| numbers.count_from(packets)).sum()
    }
}

fn add(counts: &mut Vec<(Segment, u32)>, segment: Segment, packets: u32) {
    match counts.iter_mut().find(|(of, _)| *of == segment) {
        Some((_, count)) => *count += packets,
        None => counts.push((segment, packets)),
    }
}

/// What happened in an epoch.
#[derive(Clone, Debug, Default)]
pub struct EpochTruth {
    /// Every flow that sent; one that comes twice sent twice.
    pub flows: Vec<FlowTruth>,
    /// What entered, where `flows` are only those of which packets were lost or doubled.
    pub entered: Option<Entered>,
    /// Packets that passed each point, where the simulation counts them.
    pub passed: BTreeMap<Point, u64>,
}

/// Traffic that was sent into a network in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entered {
    /// Flows.
    pub flows: usize,
    /// Packets; a few may have come after the epoch's end.
    pub packets: u64,
}

impl EpochTruth {
    /// Packets that entered at edge `edge`.
    pub fn packets_at(&self, edge: usize) -> u64 {
        let here = self.flows.iter().filter(|flow| flow.edge as usize == edge);
        here.map(|flow| u64::from(flow.packets)).sum()
    }

    /// Flows that entered the network.
    pub fn flows(&self) -> usize {
        self.entered.map_or(self.flows.len(), |entered| entered.flows)
    }

    /// Packets that entered the network.
    pub fn packets(&self) -> u64 {
        let listed = || self.flows.iter().map(|flow| u64::from(flow.packets)).sum();
        self.entered.map_or_else(listed, |entered| entered.packets)
    }

    /// Packets that were lost.
    pub fn lost(&self) -> u64 {
        self.flows.iter().map(|flow| u64::from(flow.lost)).sum()
    }

    /// Packets that were lost on each segment, where it is known.
    pub fn losses(&self) -> BTreeMap<Segment, u64> {
        let mut losses = BTreeMap::new();
        for &(segment, lost) in self.flows.iter().flat_map(|flow| &flow.losses) {
            *losses.entry(segment).or_default() += u64::from(lost);
        }
        losses
    }

    /// Flows that lost packets.
    pub fn victims(&self) -> usize {
        self.flows.iter().filter(|flow| flow.lost > 0).count()
    }

    /// Copies that were made of packets.
    pub fn doubled(&self) -> u64 {
        self.flows.iter().map(|flow| u64::from(flow.doubled)).sum()
    }

    /// What is wrong with a report that claims to be certain; nothing where it claims less.
    ///
    /// * It must count every packet that entered, where all flows are listed.
    /// * Where the encoders came out complete, it must name exactly the flows that lost packets
    ///   which carried an encoding, and how many: in a healthy network, all losses. Packets that
    ///   left twice make up for as many lost ones of the same flow; what is left of them it must
    ///   name as a surplus.
    /// * What it says was lost at least must have been, and what it sets aside it must name.
    /// * Every packet lost after its flow had reached T_l must be among them.
    pub fn contradicts(&self, report: &EpochReport) -> Option<String> {
        if !report.complete {
            return None;
        }
        let counted: u64 = report.edges.iter().filter_map(|edge| edge.packets_in).sum();
        if self.entered.is_none() && counted != self.packets() {
            return Some(format!("{counted} packets counted, {} entered", self.packets()));
        }
        if !report.losses_are_decoded() {
            return None;
        }
        let mut expected: HashMap<WideKey, Expected> = HashMap::new();
        for flow in self.flows.iter().filter(|flow| flow.lost + flow.doubled > 0) {
            expected.entry(flow.key).or_default().add(flow, report.config.t_l);
        }
        let mut named = 0;
        for loss in &report.loss {
            let Some(truth) = loss.flow.key().and_then(|key: WideKey| expected.get(&key)) else {
                return Some(format!("{} is said to have lost {}", loss.flow, loss.lost));
            };
            let class = if truth.heavy > 0 { LossClass::Heavy } else { LossClass::Light };
            let said = if loss.at_least {
                loss.lost <= truth.lost()
            } else {
                loss.lost == truth.lost() && loss.lost >= truth.must_name()
            };
            if !said || loss.class != class {
                return Some(format!("{loss:?}, but in truth {truth:?}"));
            }
            named += 1;
        }
        let named_besides: HashSet<Flow> = report.loss.iter().map(|loss| loss.flow).collect();
        for rewritten in &report.rewritten {
            let truth = rewritten.from.key().and_then(|key: WideKey| expected.get(&key));
            if truth.is_none_or(|truth| truth.missing() < rewritten.packets) {
                return Some(format!("{rewritten:?}, but in truth {truth:?}"));
            }
            let victim = truth.is_some_and(|truth| truth.lost() > 0);
            named += usize::from(victim && !named_besides.contains(&rewritten.from));
        }
        let mut surpluses = 0;
        for surplus in &report.surplus {
            let truth = surplus.flow.key().and_then(|key: WideKey| expected.get(&key));
            if truth.map(Expected::surplus) != Some(surplus.packets) {
                return Some(format!("{surplus:?}, but in truth {truth:?}"));
            }
            surpluses += 1;
        }
        let victims = expected.values().filter(|truth| truth.lost() > 0).count();
        let with_surplus = expected.values().filter(|truth| truth.surplus() > 0).count();
        let unseen = expected.iter().find(|(_, truth)| truth.lost() < truth.must_name());
        if let Some((flow, truth)) = unseen {
            return Some(format!("{flow} was left out: {truth:?}"));
        }
        if named < victims {
            return Some(format!("{named} victim flows of {victims} named"));
        }
        (surpluses < with_surplus)
            .then(|| format!("{surpluses} flows of {with_surplus} with packets too many named"))
    }
}

/// What a report must say of a flow that lost packets or had some doubled.
#[derive(Debug, Default)]
struct Expected {
    /// Lost less doubled heavy-loss and heavy-hitter candidates.
    heavy: i64,
    /// The same of sampled light-loss candidates.
    light: i64,
    /// Packets lost past T_l, less those doubled; negative where more were doubled.
    past_t_l: i64,
}

impl Expected {
    fn add(&mut self, flow: &FlowTruth, t_l: u32) {
        let light = |encoded: u32, heavy: u32| i64::from(encoded - heavy);
        self.heavy += i64::from(flow.heavy) - i64::from(flow.doubled_heavy);
        self.light += light(flow.encoded, flow.heavy);
        self.light -= light(flow.doubled_encoded, flow.doubled_heavy);
        // Two flows may have one key, and what one doubles makes up for what the other loses.
        self.past_t_l += i64::from(flow.lost_after(t_l - 1)) - i64::from(flow.doubled_encoded);
    }

    /// Losses past T_l that a report must name.
    fn must_name(&self) -> u64 {
        self.past_t_l.max(0) as u64
    }

    /// Packets missing in either encoder.
    fn missing(&self) -> u64 {
        (self.heavy.max(0) + self.light.max(0)) as u64
    }

    fn lost(&self) -> u64 {
        (self.heavy + self.light).max(0) as u64
    }

    fn surplus(&self) -> u64 {
        (-self.heavy - self.light).max(0) as u64
    }
}

/// The truth of all epochs that have not been reported.
#[derive(Debug, Default)]
pub(super) struct Truths {
    epochs: BTreeMap<u64, Known>,
    /// The first epoch that is not forgotten.
    from: u64,
}

/// What is known of an epoch.
#[derive(Clone, Debug, Default)]
struct Known {
    flows: Vec<FlowTruth>,
    /// Packets that passed each switch's two points, by position.
    passed: Vec<[u64; 2]>,
}

impl Known {
    fn into_truth(self) -> EpochTruth {
        let points = |(switch, passed): (usize, &[u64; 2])| {
            [Point::In(switch), Point::Out(switch)].into_iter().zip(*passed)
        };
        let passed = self.passed.iter().enumerate().flat_map(points);
        let passed = passed.filter(|&(_, packets)| packets > 0).collect();
        EpochTruth { flows: self.flows, entered: None, passed }
    }
}

/// Where the truth has what packets did: their epoch, and their flow's position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    epoch: u64,
    at: usize,
}

impl Truths {
    /// Opens an account for a flow.
    pub(super) fn open(&mut self, epoch: u64, flow: FlowTruth) -> Account {
        let flows = &mut self.epochs.entry(epoch).or_default().flows;
        flows.push(flow);
        Account { epoch, at: flows.len() - 1 }
    }

    /// What a flow did. None where the epoch has been reported: what it did since, no report can
    /// know.
    pub(super) fn flow(&mut self, account: Account) -> Option<&mut FlowTruth> {
        self.epochs.get_mut(&account.epoch)?.flows.get_mut(account.at)
    }

    /// Packets of a flow passed a point.
    pub(super) fn passed(&mut self, account: Account, point: Point, packets: u32) {
        let (Point::In(switch) | Point::Out(switch)) = point;
        let Some(Known { passed, .. }) = self.epochs.get_mut(&account.epoch) else { return };
        if passed.len() <= switch {
            passed.resize(switch + 1, [0; 2]);
        }
        passed[switch][usize::from(point == Point::Out(switch))] += u64::from(packets);
    }

    /// Whether what happened in an epoch is not forgotten.
    pub(super) fn remembers(&self, epoch: u64) -> bool {
        epoch >= self.from
    }

    /// What happened in an epoch, as far as it is known.
    pub(super) fn of(&self, epoch: u64) -> EpochTruth {
        self.epochs.get(&epoch).cloned().unwrap_or_default().into_truth()
    }

    /// The same, which is then forgotten.
    pub(super) fn take(&mut self, epoch: u64) -> EpochTruth {
        self.epochs.remove(&epoch).unwrap_or_default().into_truth()
    }

    /// Forgets the epochs before `epoch`.
    pub(super) fn forget_before(&mut self, epoch: u64) {
        self.from = self.from.max(epoch);
        self.epochs = self.epochs.split_off(&self.from);
    }
}
