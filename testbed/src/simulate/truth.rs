//! What really happened in an epoch.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use calumma_chamelemon::{Hierarchy, Run};
use calumma_controller::analyse::Tasks;
use calumma_sketch::WideKey;

use super::numbers::Numbers;
use super::stay::Met;
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
    /// What else was done to packets on each segment, and to how many.
    pub treated: Vec<(Segment, Treatment, u32)>,
    /// Packets that came to each switch, counted again where they come again, by position; only of
    /// a flow whose way goes round.
    pub visits: BTreeMap<usize, u32>,
    /// What those met that reached their sink, where packets are simulated one by one.
    pub met: Met,
    /// Which packets were lost and which copied, where the simulation knows them by number.
    lost_packets: Vec<Touched>,
    copied_packets: Vec<Touched>,
    /// Whether all of the flow's packets from the first on were in this epoch.
    from_first: bool,
}

/// What a link does to packets that it neither loses nor copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It sets their DSCP.
    Remarked(u8),
    /// It makes packets of another flow out of them.
    Translated(WideKey),
    /// It holds them up for long.
    HeldUp,
}

/// Packets of a flow by number.
#[derive(Clone, Debug)]
pub(super) struct Touched {
    pub(super) numbers: Numbers,
    /// What entered together with them: hierarchies from the packet `first` on.
    pub(super) first: u32,
    pub(super) entered: Run,
}

impl Touched {
    /// Those whose hierarchy has an encoding: each with whether that is the heavy one.
    fn encoded(&self) -> impl Iterator<Item = (u32, bool)> {
        let [none, light, ..] = self.entered.counts();
        let (light_from, heavy_from) = (self.first + none, self.first + none + light);
        let encoded = self.numbers.iter().filter(move |&number| number >= light_from);
        encoded.map(move |number| (number, number >= heavy_from))
    }
}

/// A stranger: packets that arrived at an edge and that no edge saw enter.
#[derive(Clone, Copy, Debug)]
pub struct Stranger {
    /// Its flow.
    pub key: WideKey,
    /// The edge where it arrived.
    pub edge: u32,
    /// Packets.
    pub packets: u32,
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
            treated: Vec::new(),
            visits: BTreeMap::new(),
            met: Met::default(),
            lost_packets: Vec::new(),
            copied_packets: Vec::new(),
            from_first: false,
        }
    }

    /// The same of a flow that takes `way`; `from_first` where the epoch has its first packet.
    pub(super) fn on_way(mut self, way: Option<Arc<Way>>, from_first: bool) -> Self {
        self.way = way;
        self.from_first = from_first;
        self
    }

    /// Packets came to a switch, maybe again.
    pub(super) fn visit(&mut self, switch: usize, packets: u32) {
        *self.visits.entry(switch).or_default() += packets;
    }

    /// The switches of a turn, by position, where packets went round.
    pub fn turn(&self) -> Option<BTreeSet<usize>> {
        self.way.as_ref().filter(|_| !self.visits.is_empty())?.turn()
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

    /// Packets, those of `run`, were lost on a segment.
    pub(super) fn lose_on(&mut self, segment: Segment, run: &Run, packets: Touched) {
        self.lose(run);
        add(&mut self.losses, segment, run.packets());
        self.lost_packets.push(packets);
    }

    /// Copies were made of packets on a segment.
    pub(super) fn double_on(&mut self, segment: Segment, run: &Run, packets: Touched) {
        self.double(run);
        add(&mut self.copies, segment, run.packets());
        self.copied_packets.push(packets);
    }

    /// Something else was done to packets on a segment.
    pub(super) fn treat_on(&mut self, segment: Segment, treatment: Treatment, packets: u32) {
        let same = |of: &&mut (Segment, Treatment, u32)| (of.0, of.1) == (segment, treatment);
        match self.treated.iter_mut().find(same) {
            Some((.., count)) => *count += packets,
            None => self.treated.push((segment, treatment, packets)),
        }
    }

    /// How many of the lost packets came when the flow had already sent `packets`, as far as it is
    /// known.
    pub(super) fn lost_after(&self, packets: u32) -> u32 {
        let lost = self.lost_packets.iter().filter(|_| self.from_first);
        lost.map(|lost| lost.numbers.count_from(packets)).sum()
    }

    /// Packets that carried an encoding and of which nothing arrived: heavy-loss and heavy-hitter
    /// candidates, and sampled light-loss ones. Where it is not known which packet was lost, no
    /// copy made up for another.
    pub fn missing(&self) -> [u32; 2] {
        if self.doubled == 0 || self.lost_packets.is_empty() {
            return [self.heavy, self.encoded - self.heavy];
        }
        let mut copies: HashMap<u32, i64> = HashMap::new();
        for (number, _) in self.copied_packets.iter().flat_map(Touched::encoded) {
            *copies.entry(number).or_default() += 1;
        }
        let mut missing = [0; 2];
        for (number, is_heavy) in self.lost_packets.iter().flat_map(Touched::encoded) {
            let left = copies.entry(number).or_default();
            *left -= 1;
            // The packet itself, after all of its copies.
            missing[usize::from(!is_heavy)] += u32::from(*left == -1);
        }
        missing
    }
}

fn add(counts: &mut Vec<(Segment, u32)>, segment: Segment, packets: u32) {
    match counts.iter_mut().find(|(of, _)| *of == segment) {
        Some((_, count)) => *count += packets,
        None => counts.push((segment, packets)),
    }
}

/// Packets of a flow that came to a switch, as they were seen on the wires next to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// Packets.
    pub packets: u64,
    /// Their bytes, as IP counts them.
    pub bytes: u64,
    /// Those of the packets that a host behind this switch had sent.
    pub entered: u64,
}

/// What came to each switch, by position, of each flow.
pub type AtSwitches = HashMap<WideKey, BTreeMap<usize, Came>>;

/// What happened in an epoch.
#[derive(Clone, Debug, Default)]
pub struct EpochTruth {
    /// Every flow that sent; one that comes twice sent twice. Where wires were read, only flows
    /// that lost packets or of which copies were made.
    pub flows: Vec<FlowTruth>,
    /// What came to switches, where wires were read.
    pub came: Option<AtSwitches>,
    /// What entered, where `flows` are only those of which packets were lost or doubled.
    pub entered: Option<Entered>,
    /// Packets that passed each point, where the simulation counts them.
    pub passed: BTreeMap<Point, u64>,
    /// Strangers that arrived at an edge, by true time.
    pub strangers: Vec<Stranger>,
    /// Packets by flow that any link so far has held up, re-marked, or translated from it or into
    /// it, and those of strangers: they may leave the network in any epoch.
    pub disturbed: HashMap<WideKey, u64>,
    /// What entered in the epoch before, where it is known.
    pub before: Option<Arc<[Sent]>>,
    /// What ChameleMon is to report, where that is known.
    pub tasks: Option<Tasks>,
}

/// Packets of a flow that entered at an edge in an epoch; one that comes twice sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The flow.
    pub key: WideKey,
    /// The edge where it entered.
    pub edge: u32,
    /// Packets.
    pub packets: u32,
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
    /// Flows that entered the network.
    pub fn flows(&self) -> usize {
        self.entered.map_or(self.flows.len(), |entered| entered.flows)
    }

    /// How many flows sent packets, each counted once.
    pub fn senders(&self) -> usize {
        if let Some(came) = &self.came {
            return came.len();
        }
        let sent = self.flows.iter().filter(|flow| flow.packets > 0).map(|flow| flow.key);
        sent.collect::<HashSet<_>>().len()
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
}

/// The truth of all epochs that have not been reported.
#[derive(Debug, Default)]
pub(super) struct Truths {
    epochs: BTreeMap<u64, Known>,
    /// The first epoch that is not forgotten.
    from: u64,
    disturbed: HashMap<WideKey, u64>,
    /// The last epoch that ChameleMon has reported, and what entered in it.
    last: Option<(u64, Arc<[Sent]>)>,
}

/// What is known of an epoch.
#[derive(Clone, Debug, Default)]
struct Known {
    flows: Vec<FlowTruth>,
    /// Packets that passed each switch's two points, by position.
    passed: Vec<[u64; 2]>,
    strangers: Vec<Stranger>,
}

impl Known {
    fn into_truth(self, disturbed: HashMap<WideKey, u64>) -> EpochTruth {
        let points = |(switch, passed): (usize, &[u64; 2])| {
            [Point::In(switch), Point::Out(switch)].into_iter().zip(*passed)
        };
        let passed = self.passed.iter().enumerate().flat_map(points);
        let passed = passed.filter(|&(_, packets)| packets > 0).collect();
        let Self { flows, strangers, .. } = self;
        EpochTruth { flows, passed, strangers, disturbed, ..EpochTruth::default() }
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

    /// Something was done to packets of a flow that may let them leave the network in any epoch.
    pub(super) fn disturb(&mut self, key: &WideKey, packets: u32) {
        *self.disturbed.entry(*key).or_default() += u64::from(packets);
    }

    /// Whether that was done to any.
    pub(super) fn is_disturbed(&self, key: &WideKey) -> bool {
        self.disturbed.contains_key(key)
    }

    /// A stranger arrived.
    pub(super) fn strange(&mut self, epoch: u64, stranger: Stranger) {
        self.disturb(&stranger.key, stranger.packets);
        self.epochs.entry(epoch).or_default().strangers.push(stranger);
    }

    /// Whether what happened in an epoch is not forgotten.
    pub(super) fn remembers(&self, epoch: u64) -> bool {
        epoch >= self.from
    }

    /// What happened in an epoch, as far as it is known.
    pub(super) fn of(&self, epoch: u64) -> EpochTruth {
        let known = self.epochs.get(&epoch).cloned().unwrap_or_default();
        known.into_truth(self.disturbed.clone())
    }

    /// What ChameleMon's report on an epoch is held against. What happened in it is then forgotten
    /// where nobody `still` reports it.
    pub(super) fn reported(&mut self, epoch: u64, still: bool, tasks: Tasks) -> EpochTruth {
        let known = match still {
            true => self.epochs.get(&epoch).cloned(),
            false => self.epochs.remove(&epoch),
        };
        let known = known.unwrap_or_default();
        let sent = |&FlowTruth { key, edge, packets, .. }: &FlowTruth| Sent { key, edge, packets };
        let last = self.last.replace((epoch, known.flows.iter().map(sent).collect()));
        let before = last.filter(|(last, _)| last + 1 == epoch).map(|(_, sent)| sent);
        let truth = known.into_truth(self.disturbed.clone());
        EpochTruth { before, tasks: Some(tasks), ..truth }
    }

    /// Forgets what entered at an edge in `epoch` and later ones.
    pub(super) fn forget_at(&mut self, edge: usize, epoch: u64) {
        let known = self.epochs.range_mut(epoch..);
        let flows = known.flat_map(|(_, known)| &mut known.flows);
        for flow in flows.filter(|flow| flow.edge as usize == edge) {
            *flow = FlowTruth::new(flow.key, edge);
        }
    }

    /// Forgets the epochs before `epoch`.
    pub(super) fn forget_before(&mut self, epoch: u64) {
        self.from = self.from.max(epoch);
        self.epochs = self.epochs.split_off(&self.from);
    }
}
