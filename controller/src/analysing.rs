//! From what a system's nodes send to its reports, for every system but ChameleMon: its
//! [`Collector`] and its analysis put together.
//!
//! Pure: frames and the time are passed in. The server runs each on a thread of its own; a
//! simulation runs them in virtual time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use calumma_analysis::run::AnySide;
use calumma_analysis::{
    AnyAnalysis, Collected, Delivery, EpochHead, Node, NodeEnd, NodeSetup, Notice, Published,
};
use calumma_epoch::EpochClock;
use calumma_wire::{Role, Side, SideKind, SwitchKind};

pub use crate::topology::Topologies;

use crate::clocks::NodeState;
use crate::collect::{Collector, Ends, Frame, NodeSides, Receipt, Sides, Step, sides_of};
use crate::doubts::{Came, Doubted, Doubts};

/// The analysis of a system, and the epochs that are being collected for it.
#[derive(Debug)]
pub struct Analysing {
    analysis: Box<dyn AnyAnalysis>,
    nodes: Vec<Arc<Node>>,
    clock: EpochClock,
    window: u64,
    collector: Collector<Delivered>,
    topologies: Arc<Topologies>,
    doubts: Doubts,
    /// Epochs whose sides have been given out.
    open: BTreeMap<u64, Sides<Delivered>>,
}

/// A side, and by how much its rotation was late, in nanoseconds.
#[derive(Debug)]
struct Delivered {
    side: AnySide,
    stall_ns: u64,
}

/// An epoch that has been analysed; of a system that sums over windows, a window.
#[derive(Debug)]
pub struct Analysed {
    /// The epoch; of a window, its first.
    pub epoch: u64,
    /// The first epoch after it.
    pub next: u64,
    /// Its report, unless that can't be written as JSON.
    pub report: serde_json::Result<Published>,
}

impl Analysing {
    /// The analysis of a system that runs on `nodes`. An epoch is reported without what is still
    /// missing of it `grace_ns` after all nodes should have sealed it. Each has its own of the
    /// `topologies`.
    pub fn new(
        analysis: Box<dyn AnyAnalysis>,
        nodes: Vec<Arc<Node>>,
        clock: EpochClock,
        grace_ns: u64,
        topologies: Arc<Topologies>,
    ) -> Self {
        let sides = nodes.iter().map(|node| sides_of(node.role)).collect();
        let window = analysis.window().max(1);
        let collector = Collector::new(sides, clock, grace_ns).with_window(window);
        let doubts = Doubts::new(clock, window, nodes.len());
        let open = BTreeMap::new();
        Self { analysis, nodes, clock, window, collector, topologies, doubts, open }
    }

    /// What the node at position `node` is sent that runs `version`.
    pub fn setup(&self, node: usize, version: u8) -> NodeSetup {
        self.analysis.setup(&self.nodes[node], version)
    }

    /// Epochs that are being collected.
    pub fn pending(&self) -> usize {
        self.collector.pending()
    }

    /// As [`Collector::open_from`].
    pub fn open_from(&self) -> (u64, u64) {
        self.collector.open_from()
    }

    /// As [`Collector::end_at`].
    pub fn end_at(&mut self, epoch: u64) {
        self.collector.end_at(epoch);
    }

    /// As [`Collector::has_ended`].
    pub fn has_ended(&self, now_ns: u64) -> bool {
        self.collector.has_ended(now_ns)
    }

    /// As [`Collector::next_deadline`].
    pub fn next_deadline(&self) -> Option<u64> {
        self.collector.next_deadline()
    }

    /// Takes in a side, with a body of `version`, of the node at position `node`, whose role has
    /// such a side. It was received at `received_ns`.
    ///
    /// # Errors
    /// What can't be read.
    pub fn side(
        &mut self,
        node: usize,
        version: u8,
        side: Side,
        received_ns: u64,
    ) -> Result<Receipt, String> {
        let (epoch, kind, stall_ns) = (side.epoch, side.side, side.stall_ns);
        let side = self.analysis.decode(&self.nodes[node], version, side)?;
        let side = Delivered { side, stall_ns };
        Ok(self.collector.take(node, epoch, Frame::Side(kind, side), received_ns))
    }

    /// Takes in that the node at position `node` can record nothing of `epoch` any more, with its
    /// late packets and what else is known of them.
    pub fn sealed(
        &mut self,
        node: usize,
        epoch: u64,
        (late_packets, body): (u64, Vec<u8>),
        received_ns: u64,
    ) -> Receipt {
        self.collector.take(node, epoch, Frame::Sealed { late_packets, body }, received_ns)
    }

    /// Takes in what the node at position `node` reports before an epoch is over, received at
    /// `received_ns`. Gives what is to be published at once, as of the epoch in which it came.
    ///
    /// # Errors
    /// What can't be read.
    pub fn notice(
        &mut self,
        node: usize,
        of: Notice<'_>,
        received_ns: u64,
    ) -> Result<Option<Published>, String> {
        let epoch = self.clock.epoch_at(received_ns);
        let head = EpochHead {
            epoch,
            start_unix_ns: self.clock.start_of(epoch),
            length_ms: self.clock.length_ns() / 1_000_000,
        };
        self.analysis.notice(&self.nodes[node], head, of)
    }

    /// The next epoch that is to be reported at `now_ns`, if any; ask until there is none. `states`
    /// says of each node what there is to say of it, of an epoch or a window of these.
    pub fn step(
        &mut self,
        now_ns: u64,
        states: impl FnOnce(Range<u64>) -> Vec<NodeState>,
    ) -> Option<Analysed> {
        loop {
            let step = self.collector.step(now_ns)?;
            if let Some((sides, ends)) = self.ended(step) {
                return Some(self.analyse(sides, ends, states));
            }
        }
    }

    /// As [`step`](Self::step), for a controller that stops: waits for nothing that is missing.
    pub fn finish(
        &mut self,
        states: impl FnOnce(Range<u64>) -> Vec<NodeState>,
    ) -> Option<Analysed> {
        loop {
            let step = self.collector.finish()?;
            if let Some((sides, ends)) = self.ended(step) {
                return Some(self.analyse(sides, ends, states));
            }
        }
    }

    fn ended(&mut self, step: Step<Delivered>) -> Option<(Sides<Delivered>, Ends)> {
        match step {
            Step::Decode(sides) => {
                self.open.insert(sides.epoch, sides);
                None
            }
            Step::Report(ends) => Some((self.open.remove(&ends.epoch)?, ends)),
        }
    }

    fn analyse(
        &mut self,
        sides: Sides<Delivered>,
        ends: Ends,
        states: impl FnOnce(Range<u64>) -> Vec<NodeState>,
    ) -> Analysed {
        let epoch = ends.epoch;
        let start_unix_ns = self.clock.start_of(epoch);
        let next = epoch + self.window;
        let states = states(epoch..next);
        let of_nodes = self.nodes.iter().zip(&sides.nodes).zip(&ends.nodes).zip(&states);
        let came = of_nodes.map(|(((node, sides), end), state)| came(node.role, sides, end, state));
        let came: Vec<Came> = came.collect();
        let doubts = self.doubts.of(epoch, &came).into_iter().zip(came);
        let delivered = self.nodes.iter().zip(sides.nodes).zip(ends.nodes).zip(states).zip(doubts);
        let delivered = delivered.map(|((((node, mut sides), mut end), state), (doubts, came))| {
            let Doubted { because: mut doubts, mut has_others } = doubts;
            // By another clock, by a mark that was changed, or long after it was sent, a packet may
            // be counted in any window.
            has_others |= state.problem.is_some();
            doubts.extend(state.problem.clone().filter(|_| came.all));
            (end.clock, end.offset, end.kind) = (state.problem, state.offset, state.kind);
            let side = |&kind: &SideKind| {
                // What enters is of the epoch that it is stamped with.
                let of = sides.take(kind).filter(|_| kind == SideKind::Ingress || !has_others);
                (kind, of.map(|of| of.side))
            };
            let sides = sides_of(node.role).iter().map(side).collect();
            Delivery { node: node.clone(), sides, doubts, end }
        });
        let head = EpochHead {
            epoch,
            start_unix_ns,
            length_ms: self.clock.length_ns().saturating_mul(self.window) / 1_000_000,
        };
        let nodes = delivered.collect();
        let topology = self.topologies.in_all_of(epoch..next);
        let report = self.analysis.analyse(Collected { head, nodes, topology });
        Analysed { epoch, next, report }
    }
}

/// How a node went through an epoch, by what came of it.
fn came(role: Role, sides: &NodeSides<Delivered>, end: &NodeEnd, state: &NodeState) -> Came {
    let mut came = Came {
        any: end.late_packets.is_some(),
        all: end.late_packets.is_some(),
        late_packets: end.late_packets.unwrap_or(0),
        measured_before: state.measured_before,
        ..Came::default()
    };
    for &kind in sides_of(role) {
        let side = sides.get(kind);
        came.any |= side.is_some();
        came.all &= side.is_some();
        let stall_ns = side.map_or(0, |side| side.stall_ns);
        match kind {
            SideKind::Ingress => came.flip_ns = stall_ns,
            _ => came.take_ns = came.take_ns.max(stall_ns),
        }
    }
    // A Tofino forwards whatever its CPU does, and what an end host has received goes nowhere.
    let forwards = role != Role::Host && state.kind != Some(SwitchKind::Tofino.name());
    came.held_ns = if forwards { came.take_ns } else { 0 };
    came.may_hold = forwards && !came.all && !state.is_gone;
    came
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_analysis::{Analysis, Findings, SystemReport};
    use calumma_epoch::Guards;
    use calumma_wire::SystemId;
    use serde::{Deserialize, Serialize};

    const LENGTH: u64 = 50_000_000;

    /// Which sides there are of each node.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct There(Vec<Vec<bool>>);

    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Found {
        there: There,
    }

    impl Findings for Found {
        const SYSTEM: &'static str = "there";
    }

    #[derive(Debug)]
    struct Whole;

    impl Analysis for Whole {
        type Side = ();
        type Report = SystemReport<Found>;

        fn window(&self) -> u64 {
            2
        }

        fn setup(&self, _node: &Node, _version: u8) -> NodeSetup {
            NodeSetup::default()
        }

        fn decode(&self, _node: &Node, _version: u8, _side: Side) -> Result<(), String> {
            Ok(())
        }

        fn analyse(&mut self, window: Collected<()>) -> SystemReport<Found> {
            let sides = |of: &Delivery<()>| -> Vec<bool> {
                of.sides.iter().map(|(_, side)| side.is_some()).collect()
            };
            let there = window.nodes.iter().map(sides).collect();
            SystemReport::new(&window, Found { there: There(there) })
        }
    }

    /// What a node of a window was late with: packets, and how long with its end.
    type Late = (u64, u64);

    /// Of a node of which nothing comes.
    const MISSING: Late = (u64::MAX, 0);

    /// What there is of an edge, a transit node and a Tofino in windows in which they were so late,
    /// and why it is not all; in some windows the edge has a problem.
    fn played(windows: &[([Late; 3], Option<&str>)]) -> Vec<(There, Vec<String>)> {
        let clock = EpochClock::new(LENGTH, Guards::default()).unwrap();
        let of = [("e1", Role::Edge), ("s1", Role::Transit), ("s2", Role::Transit)];
        let node =
            |((name, role), id): ((&str, Role), u16)| Node { name: name.to_owned(), role, id };
        let nodes = of.into_iter().zip(1..).map(node).map(Arc::new).collect();
        let topologies = Arc::new(Topologies::new(None));
        let mut system = Analysing::new(Box::new(Whole), nodes, clock, LENGTH, topologies);
        let play = |(at, (late, problem)): (u64, &([Late; 3], Option<&str>))| {
            let epoch = 1000 + 2 * at;
            let now_ns = clock.start_of(epoch + 5);
            let came = late.iter().enumerate().filter(|(_, late)| **late != MISSING);
            for (node, &(packets, stall_ns)) in came {
                for &side in sides_of(of[node].1) {
                    let stall_ns = if side == SideKind::Ingress { 0 } else { stall_ns };
                    let (system_id, counters) = (SystemId::SKETCHINT, Vec::new());
                    let (packets, body) = (0, Vec::new());
                    let side =
                        Side { system: system_id, epoch, side, stall_ns, packets, counters, body };
                    assert_eq!(system.side(node, 1, side, now_ns), Ok(Receipt::Accepted));
                }
                system.sealed(node, epoch, (packets, Vec::new()), now_ns);
            }
            let states = |window: Range<u64>| {
                assert_eq!(window, epoch..epoch + 2);
                let kinds = ["software", "software", "tofino"];
                let state = |kind| NodeState { kind: Some(kind), ..NodeState::default() };
                let mut states = kinds.map(state);
                states[0].problem = problem.map(str::to_owned);
                states.into()
            };
            let published = system.step(now_ns, states).unwrap().report.unwrap();
            let report = published.report.as_type::<SystemReport<Found>>().unwrap();
            (report.findings.there.clone(), report.incomplete_because.clone())
        };
        (0..).zip(windows).map(play).collect()
    }

    const WELL: ([Late; 3], Option<&str>) = ([(0, 0); 3], None);

    fn there(edge: [bool; 2], transits: [bool; 2]) -> There {
        There(vec![edge.into(), vec![transits[0]], vec![transits[1]]])
    }

    /// What is left of it would be counted as the next one's: that is no lower bound.
    #[test]
    fn where_a_window_was_late_the_next_one_is_left_out_but_for_what_entered() {
        let late = ([(3, 0), (0, 0), (0, 0)], None);
        let [first, next, after] = &played(&[late, WELL, WELL])[..] else { panic!("three") };
        let all = there([true; 2], [true; 2]);
        assert_eq!((&first.0, &after.0), (&all, &all));
        assert_eq!(first.1, ["e1: 3 packets came too late to be recorded"]);
        assert_eq!(next.0, there([true, false], [true; 2]));
        assert!(next.1[0].contains("long after the epochs from 1000 on"), "{:?}", next.1);
    }

    /// What its CPU is late with is all that a Tofino is late with: it goes on forwarding.
    #[test]
    fn where_a_transit_node_stood_still_every_node_may_have_other_windows_packets() {
        let windows = |node: usize| {
            let mut late = WELL;
            late.0[node].1 = 60_000_000;
            let [first, next, after] = <[_; 3]>::try_from(played(&[late, WELL, WELL])).unwrap();
            assert_eq!((after.0, after.1), (there([true; 2], [true; 2]), Vec::new()));
            (first.0, first.1.len(), next.0, next.1.len())
        };
        let none_left = there([true, false], [false; 2]);
        assert_eq!(windows(1), (there([true; 2], [false, true]), 3, none_left, 3));
        let but_its_own = there([true; 2], [true, false]);
        assert_eq!(windows(2), (but_its_own.clone(), 1, but_its_own, 1));
    }

    /// How long it stood still, it does not say where nothing comes of it.
    #[test]
    fn where_a_transit_node_is_missing_it_may_stand_still_but_no_tofino_does() {
        let windows = |node: usize| {
            let mut missing = WELL;
            missing.0[node] = MISSING;
            let windows = played(&[WELL, missing, WELL, WELL]);
            let [_, second, third, fourth] = <[_; 4]>::try_from(windows).unwrap();
            assert_eq!((fourth.0, fourth.1), (there([true; 2], [true; 2]), Vec::new()));
            (second, third)
        };
        let (second, third) = windows(1);
        assert_eq!(second.0, there([true; 2], [false, true]));
        assert!(
            second.1.iter().any(|of| of.starts_with("e1: packets of epoch 1002")),
            "{second:?}"
        );
        assert_eq!(third.0, there([true, false], [false; 2]));
        let (second, third) = windows(2);
        assert_eq!((second.0, second.1.len()), (there([true; 2], [true, false]), 1));
        assert_eq!((third.0, third.1.len()), (there([true; 2], [true, false]), 1));
    }

    #[test]
    fn packets_by_a_wrong_clock_or_a_long_path_may_be_of_any_window() {
        let wrong = (WELL.0, Some("packets from e2 take up to 170 ms"));
        let windows = played(&[wrong, WELL]);
        assert_eq!(windows[0].0, there([true, false], [true; 2]));
        assert_eq!(windows[0].1, ["e1: packets from e2 take up to 170 ms"]);
        assert_eq!(windows[1], (there([true; 2], [true; 2]), Vec::new()));
    }
}
