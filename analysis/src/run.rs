//! How the controller runs a system: what it sends the system's nodes, how it reads what they
//! deliver, and what it makes of a collected epoch.
//!
//! A system implements the typed [`Analysis`]; the controller holds it as an [`AnyAnalysis`], which
//! every one of them is. Each runs on a thread of its own and sees the frames of no other system.
//! Sockets, deadlines and completeness are the controller's.

use std::any::Any;
use std::fmt::Debug;
use std::num::NonZeroU16;
use std::sync::Arc;

use calumma_epoch::EpochClock;
use calumma_topology::Topology;
use calumma_wire::{Role, Side, SideKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::flow::Flow;
use crate::keys::HashKeys;
use crate::node::NodeEnd;
use crate::report::{EpochHead, Published, Report};
use crate::steer::Steer;

/// A node that runs a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it does in the network.
    pub role: Role,
    /// Its number, never 0: the same for as long as the controller's state is kept.
    pub id: u16,
}

/// What a system is started with.
#[derive(Clone, Copy, Debug)]
pub struct Deployment<'a> {
    /// The system's section of the controller's file; null where there is none.
    pub section: &'a serde_json::Value,
    /// The secrets that hash functions are drawn from: switches begin a system that hashes anew
    /// where they change.
    pub hash_keys: &'a HashKeys,
    /// The deployment's epochs.
    pub clock: EpochClock,
    /// The nodes that the system runs on.
    pub nodes: &'a [Arc<Node>],
    /// The deployment's number, drawn at random: the same for as long as the controller's state is
    /// kept.
    pub id: NonZeroU16,
}

impl Deployment<'_> {
    /// The parameters in the system's section; their defaults where there is none.
    ///
    /// # Errors
    /// What is wrong with the section.
    pub fn parameters<T: DeserializeOwned + Default>(&self) -> Result<T, String> {
        if self.section.is_null() {
            return Ok(T::default());
        }
        T::deserialize(self.section).map_err(|error| error.to_string())
    }
}

/// What a node is sent of a system that it is to run, in the system's own format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSetup {
    /// What stays for as long as the node runs the system.
    pub setup: Vec<u8>,
    /// What holds from the first epoch on.
    pub plan: Vec<u8>,
}

/// What a node delivered of an epoch.
#[derive(Debug)]
pub struct Delivery<S> {
    /// The node.
    pub node: Arc<Node>,
    /// Each side that a node of its role delivers, where it came.
    pub sides: Vec<(SideKind, Option<S>)>,
    /// Why its numbers may lack packets of the epoch, although all came: what it was late with, or
    /// others were, in this epoch or in one with the same timestamp bit. A side that may have other
    /// epochs' packets counts as one that did not come, and so bounds nothing.
    pub doubts: Vec<String>,
    /// How the epoch ended there.
    pub end: NodeEnd,
}

impl<S> Delivery<S> {
    /// The sides that came.
    pub fn came(&self) -> impl Iterator<Item = (SideKind, &S)> {
        self.sides.iter().filter_map(|(kind, side)| Some((*kind, side.as_ref()?)))
    }

    /// Whether all that the node sends of an epoch came in time, and has packets of no other epoch.
    pub fn is_whole(&self) -> bool {
        self.end.late_packets.is_some() && self.sides.iter().all(|(_, side)| side.is_some())
    }

    /// Why the node's numbers are not those of every packet of the epoch, in words; `None` where
    /// nothing is known to be wrong with them.
    pub fn problem(&self) -> Option<String> {
        let (name, end) = (&self.node.name, &self.end);
        if let Some(doubt) = self.doubts.first() {
            return Some(format!("{name}: {doubt}"));
        }
        if !self.is_whole() {
            let missing = self.sides.iter().filter(|(_, side)| side.is_none());
            let missing = missing.map(|(kind, _)| format!("no {} side", kind.name()));
            let seal = end.late_packets.is_none().then(|| "no seal".to_owned());
            let missing: Vec<String> = missing.chain(seal).collect();
            let note = end.note.as_ref().map_or(String::new(), |note| format!("; {note}"));
            return Some(format!("{name}: {} came in time{note}", missing.join(" and ")));
        }
        if let Some(late) = end.late_packets.filter(|&late| late > 0) {
            return Some(format!("{name}: {late} packets came too late to be recorded"));
        }
        end.clock.as_ref().map(|clock| format!("{name}: {clock}"))
    }
}

/// What a node reports before its epoch is over.
#[derive(Clone, Copy, Debug)]
pub struct Notice<'a> {
    /// The epoch; of a system that sums over windows, the window's first.
    pub epoch: u64,
    /// Version of the system's bodies that the node writes.
    pub version: u8,
    /// What it reports, in the system's own format.
    pub body: &'a [u8],
}

/// An epoch, as far as it came. Of a system that sums over windows, a window.
#[derive(Debug)]
pub struct Collected<S> {
    /// Which one; a window's number is that of its first epoch, and its length that of all its
    /// epochs.
    pub head: EpochHead,
    /// Every node that the system runs on, in the order of [`Deployment::nodes`], whether anything
    /// came from it or not.
    pub nodes: Vec<Delivery<S>>,
    /// How the switches are linked, where the operator says so and it stayed so in all of the
    /// epoch. Every edge and transit is in it.
    pub topology: Option<Arc<Topology>>,
}

impl<S> Collected<S> {
    /// The nodes of which something did not come in time, or was left out since it may have other
    /// epochs' packets.
    pub fn missing_nodes(&self) -> Vec<String> {
        let missing = self.nodes.iter().filter(|delivery| !delivery.is_whole());
        missing.map(|delivery| delivery.node.name.clone()).collect()
    }

    /// Why the epoch is incomplete; empty where it is complete.
    pub fn incomplete_because(&self) -> Vec<String> {
        self.nodes.iter().filter_map(Delivery::problem).collect()
    }
}

/// What a system remembers of its latest epochs beside their reports, for questions about single
/// flows. Asked from other threads than the system's own.
pub trait Remembered: Debug + Send + Sync {
    /// What is known of a flow in the latest epochs, `last` of them at most, oldest first: a JSON
    /// object for each. Of a system that sums over windows, in the latest windows.
    ///
    /// # Errors
    /// When one can't be written as JSON.
    fn flow(&self, flow: &Flow, last: usize) -> serde_json::Result<Vec<String>>;
}

/// What a system makes of what its nodes deliver. All of it runs on the system's own thread.
pub trait Analysis: Debug + Send + 'static {
    /// What is kept of a side.
    type Side: Send + 'static;

    /// What is reported of an epoch.
    type Report: Report + Serialize;

    /// Epochs that it sums over; nodes then send sides of a window's first epoch only.
    fn window(&self) -> u64 {
        1
    }

    /// What a node is sent that reads and writes bodies of `version`.
    fn setup(&self, node: &Node, version: u8) -> NodeSetup;

    /// What says which plans nodes are to have while it runs; `None` where they keep the plan that
    /// they are set up with. Asked once. A node that is set up begins by the plan of its
    /// [setup](Self::setup), and has another from then on.
    fn steer(&self) -> Option<Box<dyn Steer>> {
        None
    }

    /// What it remembers beside its reports; `None` where that is nothing. Asked once.
    fn remembered(&self) -> Option<Arc<dyn Remembered>> {
        None
    }

    /// What its section means for the network that its operator may not expect, for the log;
    /// `None` where that is nothing. Asked once.
    fn remark(&self) -> Option<String> {
        None
    }

    /// Reads a side, of a kind that nodes of that role deliver. What comes in here is not to be
    /// trusted.
    ///
    /// # Errors
    /// What can't be read: the node is then sent away with these words.
    fn decode(&self, node: &Node, version: u8, side: Side) -> Result<Self::Side, String>;

    /// Reads what a node reports of `epoch` before that is over, and gives what is to be published
    /// of it at once; nothing where all of it has been. What comes in here is not to be trusted.
    ///
    /// # Errors
    /// What can't be read, or that nodes of this system report nothing so.
    fn notice(
        &mut self,
        _node: &Node,
        _head: EpochHead,
        _of: Notice<'_>,
    ) -> Result<Option<Published>, String> {
        Err("nothing is expected before an epoch is over".to_owned())
    }

    /// Reports an epoch. They come in order, each once, and all of them from the first that
    /// anything was received of.
    fn analyse(&mut self, epoch: Collected<Self::Side>) -> Self::Report;
}

/// A decoded side of any system.
pub type AnySide = Box<dyn Any + Send>;

/// Any system's [`Analysis`]. Sides are those of the same object.
pub trait AnyAnalysis: Debug + Send {
    /// See [`Analysis::window`].
    fn window(&self) -> u64;

    /// See [`Analysis::setup`].
    fn setup(&self, node: &Node, version: u8) -> NodeSetup;

    /// See [`Analysis::steer`].
    fn steer(&self) -> Option<Box<dyn Steer>>;

    /// See [`Analysis::remembered`].
    fn remembered(&self) -> Option<Arc<dyn Remembered>>;

    /// See [`Analysis::remark`].
    fn remark(&self) -> Option<String>;

    /// See [`Analysis::decode`].
    ///
    /// # Errors
    /// What can't be read.
    fn decode(&self, node: &Node, version: u8, side: Side) -> Result<AnySide, String>;

    /// See [`Analysis::notice`].
    ///
    /// # Errors
    /// What can't be read.
    fn notice(
        &mut self,
        node: &Node,
        head: EpochHead,
        of: Notice<'_>,
    ) -> Result<Option<Published>, String>;

    /// See [`Analysis::analyse`].
    ///
    /// # Errors
    /// When the report can't be written as JSON.
    fn analyse(&mut self, epoch: Collected<AnySide>) -> serde_json::Result<Published>;
}

impl<A: Analysis> AnyAnalysis for A {
    fn window(&self) -> u64 {
        Analysis::window(self)
    }

    fn setup(&self, node: &Node, version: u8) -> NodeSetup {
        Analysis::setup(self, node, version)
    }

    fn steer(&self) -> Option<Box<dyn Steer>> {
        Analysis::steer(self)
    }

    fn remembered(&self) -> Option<Arc<dyn Remembered>> {
        Analysis::remembered(self)
    }

    fn remark(&self) -> Option<String> {
        Analysis::remark(self)
    }

    fn decode(&self, node: &Node, version: u8, side: Side) -> Result<AnySide, String> {
        Ok(Box::new(Analysis::decode(self, node, version, side)?))
    }

    fn notice(
        &mut self,
        node: &Node,
        head: EpochHead,
        of: Notice<'_>,
    ) -> Result<Option<Published>, String> {
        Analysis::notice(self, node, head, of)
    }

    fn analyse(&mut self, epoch: Collected<AnySide>) -> serde_json::Result<Published> {
        let typed = |side: AnySide| side.downcast::<A::Side>().ok().map(|side| *side);
        let Collected { head, nodes, topology } = epoch;
        let nodes = nodes.into_iter().map(|Delivery { node, sides, doubts, end }| {
            let sides = sides.into_iter().map(|(kind, side)| (kind, side.and_then(typed)));
            Delivery { node, sides: sides.collect(), doubts, end }
        });
        let epoch = Collected { head, nodes: nodes.collect(), topology };
        let report = Analysis::analyse(self, epoch);
        let json = serde_json::to_string(&report)?;
        Ok(Published::new(report, json))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(sides: [Option<u8>; 2], late_packets: Option<u64>) -> Delivery<u8> {
        let node = Arc::new(Node { name: "e1".to_owned(), role: Role::Edge, id: 1 });
        let kinds = [SideKind::Ingress, SideKind::Egress];
        let end = NodeEnd { late_packets, ..NodeEnd::default() };
        let sides = kinds.into_iter().zip(sides).collect();
        Delivery { node, sides, doubts: Vec::new(), end }
    }

    #[test]
    fn an_epoch_says_what_is_missing_where_and_why() {
        let problem = |sides, late| delivery(sides, late).problem();
        assert_eq!(problem([Some(1), Some(2)], Some(0)), None);
        let missing = problem([Some(1), None], None).unwrap();
        assert_eq!(missing, "e1: no egress side and no seal came in time");
        let late = problem([Some(1), Some(2)], Some(3)).unwrap();
        assert_eq!(late, "e1: 3 packets came too late to be recorded");

        let mut clock = delivery([Some(1), Some(2)], Some(0));
        clock.end.clock = Some("its clock is wrong".to_owned());
        assert_eq!(clock.problem().unwrap(), "e1: its clock is wrong");
        assert!(clock.is_whole());

        let mut doubtful = delivery([Some(1), Some(2)], Some(0));
        doubtful.doubts.push("it was late".to_owned());
        assert_eq!(doubtful.problem().unwrap(), "e1: it was late");
    }

    #[test]
    fn parameters_are_the_defaults_without_a_section_and_mistakes_are_named() {
        #[derive(Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        struct Parameters {
            flows: u16,
        }
        let hash_keys = HashKeys::new(calumma_sketch::HashKey::from_bytes([1; 32]));
        let clock = EpochClock::new(50_000_000, calumma_epoch::Guards::default()).unwrap();
        let read = |section: &serde_json::Value| {
            Deployment { section, hash_keys: &hash_keys, clock, nodes: &[], id: NonZeroU16::MIN }
                .parameters::<Parameters>()
        };
        assert_eq!(read(&serde_json::Value::Null), Ok(Parameters::default()));
        assert_eq!(read(&serde_json::json!({ "flows": 7 })), Ok(Parameters { flows: 7 }));
        let mistake = read(&serde_json::json!({ "flow": 7 })).unwrap_err();
        assert!(mistake.contains("unknown field `flow`"), "{mistake}");
    }
}
