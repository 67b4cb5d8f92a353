//! From what a system's nodes send to its reports, for every system but ChameleMon: its
//! [`Collector`] and its analysis put together.
//!
//! Pure: frames and the time are passed in. The server runs each on a thread of its own; a
//! simulation runs them in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;

use calumma_analysis::run::AnySide;
use calumma_analysis::{
    AnyAnalysis, Collected, Delivery, EpochHead, Node, NodeEnd, NodeSetup, Notice, Published,
};
use calumma_epoch::EpochClock;
use calumma_wire::{Role, Side, SideKind};

pub use crate::topology::Topologies;

use crate::clocks::NodeState;
use crate::collect::{Collector, Ends, Frame, NodeSides, Receipt, Sides, Step, sides_of};
use crate::doubts::{Came, Doubts};

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
    /// says of each node what there is to say of it, of an epoch or window that began at so many
    /// nanoseconds since the Unix epoch.
    pub fn step(
        &mut self,
        now_ns: u64,
        states: impl FnOnce(u64) -> Vec<NodeState>,
    ) -> Option<Analysed> {
        loop {
            let step = self.collector.step(now_ns)?;
            if let Some((sides, ends)) = self.ended(step) {
                return Some(self.analyse(sides, ends, states));
            }
        }
    }

    /// The same for a controller that stops, and waits for nothing that is missing.
    pub fn finish(&mut self, states: impl FnOnce(u64) -> Vec<NodeState>) -> Option<Analysed> {
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
        states: impl FnOnce(u64) -> Vec<NodeState>,
    ) -> Analysed {
        let epoch = ends.epoch;
        let start_unix_ns = self.clock.start_of(epoch);
        let states = states(start_unix_ns);
        let of_nodes = self.nodes.iter().zip(&sides.nodes).zip(&ends.nodes).zip(&states);
        let came = of_nodes.map(|(((node, sides), end), state)| Came {
            measured_before: state.measured_before,
            ..came(node.role, sides, end)
        });
        let doubts = self.doubts.of(epoch, &came.collect::<Vec<_>>());
        let delivered = self.nodes.iter().zip(sides.nodes).zip(ends.nodes).zip(states).zip(doubts);
        let delivered = delivered.map(|((((node, mut sides), mut end), state), doubts)| {
            (end.clock, end.offset, end.kind) = (state.problem, state.offset, state.kind);
            let side = |&kind: &SideKind| {
                // A record that ended too late may have packets of other epochs.
                let of =
                    sides.take(kind).filter(|of| kind == SideKind::Ingress || of.stall_ns == 0);
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
        let (nodes, next) = (delivered.collect(), epoch + self.window);
        let topology = self.topologies.in_all_of(epoch..next);
        let report = self.analysis.analyse(Collected { head, nodes, topology });
        Analysed { epoch, next, report }
    }
}

/// How a node went through an epoch, by what came of it.
fn came(role: Role, sides: &NodeSides<Delivered>, end: &NodeEnd) -> Came {
    let mut came = Came {
        any: end.late_packets.is_some(),
        all: end.late_packets.is_some(),
        late_packets: end.late_packets.unwrap_or(0),
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
    came
}
