//! A network of edges in miniature, whose packets are lost, copied, rewritten and late as it is
//! asked for.

use std::collections::{BTreeMap, BTreeSet};

use calumma_chamelemon::{Attention, EgressGroup, Hierarchy, IngressGroup, Layout};
use calumma_chamelemon_analysis::report::{Amendment, EpochReport, Flow};
use calumma_chamelemon_analysis::{Analyser, EdgeInput, EpochInput, Tasks};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::{FlowKey, HashFamily, HashKey, Level};

pub(crate) const EDGES: [&str; 3] = ["e1", "e2", "e3"];

/// The first epoch that is reported.
pub(crate) const FIRST: u64 = 100;

pub(crate) fn layout() -> Layout {
    Layout {
        upstream_buckets: 256,
        downstream_buckets: 128,
        classifier: vec![Level::new(8, 4096), Level::new(16, 2048)],
        ..Layout::default()
    }
}

pub(crate) fn healthy() -> Attention {
    Attention::healthy(&layout(), 128)
}

fn hash_key() -> HashKey {
    HashKey::from_bytes([9; 32])
}

/// What became of one packet that entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It left as it was.
    Arrived,
    /// It did not leave.
    Lost,
    /// It left so many times.
    Copied(u8),
    /// It left under another mark.
    Marked(Hierarchy),
    /// It left as another flow.
    Became(FlowKey),
    /// It left where the epoch so many after its own was being recorded.
    Elsewhere(i64),
}

/// What a flow did in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) entered: u64,
    pub(crate) lost: u64,
    pub(crate) copies: u64,
    /// Packets that left, and not as packets of this flow in this epoch.
    pub(crate) moved: u64,
}

struct Groups {
    ingress: IngressGroup<FlowKey>,
    packets_in: u64,
    egress: EgressGroup<FlowKey>,
    packets_out: u64,
}

/// Epochs of a network.
pub(crate) struct World {
    attention: Attention,
    family: HashFamily,
    epochs: BTreeMap<u64, Vec<Groups>>,
    truth: BTreeMap<(u64, FlowKey), Truth>,
}

impl World {
    /// A network that measures `epochs` epochs under `attention`.
    pub(crate) fn new(attention: Attention, epochs: u64) -> Self {
        let groups = |epoch| Groups {
            ingress: IngressGroup::new(&layout(), attention, epoch).unwrap(),
            packets_in: 0,
            egress: EgressGroup::new(&layout(), attention).unwrap(),
            packets_out: 0,
        };
        let of_edges = |epoch| EDGES.map(|_| groups(epoch)).into();
        let epochs = (FIRST..FIRST + epochs).map(|epoch| (epoch, of_edges(epoch))).collect();
        Self { attention, family: HashFamily::new(&hash_key()), epochs, truth: BTreeMap::new() }
    }

    /// Sends a packet in `epoch` from one edge to another.
    pub(crate) fn send(&mut self, epoch: u64, [from, to]: [usize; 2], key: FlowKey, fate: Fate) {
        let groups = &mut self.epochs.get_mut(&epoch).unwrap()[from];
        let mark = groups.ingress.record(&key, &self.family.hash(&key));
        groups.packets_in += 1;
        let truth = self.truth.entry((epoch, key)).or_default();
        truth.entered += 1;
        match fate {
            Fate::Arrived => self.leave(epoch, to, key, mark),
            Fate::Lost => truth.lost += 1,
            Fate::Copied(times) => {
                truth.copies += u64::from(times) - 1;
                (0..times).for_each(|_| self.leave(epoch, to, key, mark));
            }
            Fate::Marked(mark) => {
                truth.moved += 1;
                self.leave(epoch, to, key, mark);
            }
            Fate::Became(other) => {
                truth.moved += 1;
                self.leave(epoch, to, other, mark);
            }
            Fate::Elsewhere(by) => {
                truth.moved += 1;
                self.leave(epoch.strict_add_signed(by), to, key, mark);
            }
        }
    }

    /// A packet leaves the network.
    pub(crate) fn leave(&mut self, epoch: u64, edge: usize, key: FlowKey, mark: Hierarchy) {
        let groups = self.epochs.get_mut(&epoch).expect("an epoch of this network");
        groups[edge].egress.record(&key, &self.family.hash(&key), mark);
        groups[edge].packets_out += 1;
    }

    /// What a flow did in an epoch.
    pub(crate) fn truth(&self, epoch: u64, key: &FlowKey) -> Truth {
        self.truth.get(&(epoch, *key)).copied().unwrap_or_default()
    }

    /// What each flow did that entered in an epoch.
    pub(crate) fn flows(&self, epoch: u64) -> impl Iterator<Item = (FlowKey, Truth)> {
        let of_epoch = self.truth.iter().filter(move |((of, _), _)| *of == epoch);
        of_epoch.map(|(&(_, key), &truth)| (key, truth))
    }

    /// What the edges deliver of an epoch.
    pub(crate) fn input(&self, epoch: u64) -> EpochInput {
        let edges = EDGES.iter().zip(&self.epochs[&epoch]).map(|(edge, groups)| {
            let mut input = EdgeInput::from_groups(
                *edge,
                epoch,
                (&groups.ingress, groups.packets_in),
                (&groups.egress, groups.packets_out),
            );
            let egress = input.egress.as_mut().unwrap();
            egress.defects.foreign_packets = groups.egress.foreign_packets();
            input
        });
        EpochInput { epoch, planned: self.attention, edges: edges.collect() }
    }

    /// The reports on all epochs.
    pub(crate) fn reports(&self) -> Vec<EpochReport> {
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let mut analyser = Analyser::new(layout(), &hash_key(), clock, Tasks::default());
        self.epochs.keys().map(|&epoch| analyser.analyse(self.input(epoch))).collect()
    }

    /// What is wrong with reports, if anything: an exact number that is not the balance, a lower
    /// bound above the truth, a flow that lost packets and is passed over.
    pub(crate) fn contradicts(&self, reports: &[EpochReport]) -> Option<String> {
        let amended: Vec<&Amendment> =
            reports.iter().flat_map(|report| &report.amendments).collect();
        let amendment = |epoch, flow: &Flow| {
            amended.iter().find(|amended| (amended.epoch, &amended.flow) == (epoch, flow))
        };
        for report in reports.iter().filter(|report| report.losses_are_decoded()) {
            let epoch = report.epoch;
            let mut named = BTreeSet::new();
            for loss in &report.loss {
                let key = loss.flow.key().unwrap();
                named.insert(key);
                let truth = self.truth(epoch, &key);
                let (least, is_exact) = match amendment(epoch, &loss.flow) {
                    Some(amended) => (amended.lost, false),
                    None => (loss.lost, !loss.at_least),
                };
                let balance = truth.lost as i64 - truth.copies as i64;
                if least > truth.lost || (is_exact && least as i64 != balance) {
                    return Some(format!("{epoch}: {loss:?}, but {truth:?}"));
                }
            }
            for surplus in report.surplus.iter().filter(|surplus| surplus.stranger) {
                let truth = self.truth(epoch, &surplus.flow.key().unwrap());
                if truth.entered > 0 {
                    return Some(format!("{epoch}: {surplus:?}, but {truth:?}"));
                }
            }
            for rewritten in &report.rewritten {
                let truth = self.truth(epoch, &rewritten.from.key().unwrap());
                if rewritten.packets > truth.lost + truth.moved {
                    return Some(format!("{epoch}: {rewritten:?}, but {truth:?}"));
                }
            }
            let doubtful = report.surplus.iter().map(|surplus| surplus.flow);
            let doubtful = doubtful.chain(report.rewritten.iter().map(|rewritten| rewritten.from));
            named.extend(doubtful.map(|flow| flow.key::<FlowKey>().unwrap()));
            for (key, truth) in self.flows(epoch) {
                if truth.lost > truth.copies && !named.contains(&key) {
                    return Some(format!("{epoch}: {key} is passed over, but {truth:?}"));
                }
            }
        }
        None
    }
}
