//! What really happened in an epoch, and whether a report says so.

use std::collections::HashMap;

use calumma_controller::report::{DecodeState, EpochReport, LossClass};
use calumma_sketch::{FlowKey, Hierarchy, Run};

use crate::workload::Fate;

/// What one flow did in one epoch, by the clock of the edge where it entered.
#[derive(Clone, Copy, Debug)]
pub struct FlowTruth {
    /// The flow.
    pub key: FlowKey,
    /// The edge where it entered.
    pub edge: u32,
    /// Packets that entered.
    pub packets: u32,
    /// Packets that were lost.
    pub lost: u32,
    /// Those of them that carried a hierarchy with an encoding, so that the loss can be seen.
    pub encoded: u32,
    /// Those of them that were heavy-loss or heavy-hitter candidates.
    pub heavy: u32,
    /// Which of its packets are lost, where all of them from the first on were in this epoch.
    pub fate: Option<Fate>,
}

impl FlowTruth {
    /// Nothing yet of the flow `key`, which enters at `edge`.
    pub fn new(key: FlowKey, edge: usize, fate: Option<Fate>) -> Self {
        Self { key, edge: edge as u32, packets: 0, lost: 0, encoded: 0, heavy: 0, fate }
    }

    /// Adds packets that entered, and those of them that are `left` after all losses.
    pub fn add(&mut self, entered: &Run, left: &Run) {
        let lost = |hierarchy| entered.of(hierarchy) - left.of(hierarchy);
        let heavy = lost(Hierarchy::HlCandidate) + lost(Hierarchy::HhCandidate);
        self.packets += entered.packets();
        self.lost += entered.packets() - left.packets();
        self.encoded += heavy + lost(Hierarchy::SampledLl);
        self.heavy += heavy;
    }
}

/// What happened in an epoch.
#[derive(Clone, Debug, Default)]
pub struct EpochTruth {
    /// Every flow that sent; one that comes twice sent twice.
    pub flows: Vec<FlowTruth>,
}

impl EpochTruth {
    /// Packets that entered at edge `edge`.
    pub fn packets_at(&self, edge: usize) -> u64 {
        let here = self.flows.iter().filter(|flow| flow.edge as usize == edge);
        here.map(|flow| u64::from(flow.packets)).sum()
    }

    /// Packets that entered the network.
    pub fn packets(&self) -> u64 {
        self.flows.iter().map(|flow| u64::from(flow.packets)).sum()
    }

    /// Packets that were lost.
    pub fn lost(&self) -> u64 {
        self.flows.iter().map(|flow| u64::from(flow.lost)).sum()
    }

    /// Flows that lost packets.
    pub fn victims(&self) -> usize {
        self.flows.iter().filter(|flow| flow.lost > 0).count()
    }

    /// What is wrong with a report that claims to be certain; nothing where it claims less.
    ///
    /// * It must count every packet that entered.
    /// * Where the encoders came out complete, it must name exactly the flows that lost packets which
    ///   carried an encoding, and how many: in a healthy network, all losses.
    /// * Every packet lost after its flow had reached T_l must be among them.
    pub fn contradicts(&self, report: &EpochReport) -> Option<String> {
        if !report.complete {
            return None;
        }
        let counted: u64 = report.edges.iter().filter_map(|edge| edge.packets_in).sum();
        if counted != self.packets() {
            return Some(format!("{counted} packets counted, {} entered", self.packets()));
        }
        let certain = report.decode.hl == DecodeState::Complete
            && [DecodeState::Complete, DecodeState::Absent].contains(&report.decode.ll);
        if !certain {
            return None;
        }
        if let Some(surplus) = report.surplus.first() {
            return Some(format!("{} has {} packets too many", surplus.flow, surplus.packets));
        }
        let mut expected: HashMap<FlowKey, Expected> = HashMap::new();
        for flow in self.flows.iter().filter(|flow| flow.lost > 0) {
            let past_t_l = flow.fate.map_or(0, |fate| {
                let below = (report.config.t_l - 1).min(flow.packets);
                fate.lost_among(flow.packets) - fate.lost_among(below)
            });
            let of_flow = expected.entry(flow.key).or_default();
            of_flow.encoded += u64::from(flow.encoded);
            of_flow.heavy += u64::from(flow.heavy);
            of_flow.past_t_l += u64::from(past_t_l);
        }
        let mut named = 0;
        for loss in &report.loss {
            let Some(truth) = expected.get(&loss.flow.key::<FlowKey>().unwrap()) else {
                return Some(format!("{} is said to have lost {}", loss.flow, loss.lost));
            };
            let class = if truth.heavy > 0 { LossClass::Heavy } else { LossClass::Light };
            if loss.lost != truth.encoded || loss.class != class || loss.lost < truth.past_t_l {
                return Some(format!("{loss:?}, but in truth {truth:?}"));
            }
            named += 1;
        }
        let victims = expected.values().filter(|truth| truth.encoded > 0).count();
        let unseen = expected.iter().find(|(_, truth)| truth.encoded < truth.past_t_l);
        match unseen {
            Some((flow, truth)) => Some(format!("{flow} was left out: {truth:?}")),
            None if named < victims => Some(format!("{named} victim flows of {victims} named")),
            None => None,
        }
    }
}

/// What a report must say of a victim flow.
#[derive(Debug, Default)]
struct Expected {
    encoded: u64,
    heavy: u64,
    past_t_l: u64,
}
