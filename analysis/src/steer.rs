//! Plans that change while a system runs.
//!
//! A system whose nodes measure by plans of their own all the time has an
//! [`Analysis::steer`](crate::Analysis::steer). The controller then tells it how every node stands,
//! and it says which plan each is to have. Sending plans in time, again where they came too late or
//! got no answer, and reading the answers is the controller's (`calumma_controller::steering`).

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;

use calumma_sketch::WideKey;
use serde_json::{Map, Value};

use crate::Flow;

/// A plan that a node has said it applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// From this epoch on; of windows, from the first on that begins with it or after it.
    pub epoch: u64,
    /// The plan, in the system's own format.
    pub plan: Vec<u8>,
}

/// How a node stands, as far as the controller knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Since when it is not connected, in nanoseconds since the Unix epoch; from the controller's
    /// start on where it has not come yet. `None` while it is connected.
    pub away_since_ns: Option<u64>,
    /// Whether it has come since the controller was started.
    pub has_come: bool,
    /// What it has said last that it applies; `None` where it has begun anew since, or has said
    /// nothing. Of one that is away, what it is supposed to go on with.
    pub applied: Option<Applied>,
    /// Plans it has been sent since, without an answer so far. Each may hold there, or not.
    pub unanswered: Vec<Applied>,
    /// What keeps it from measuring, in words.
    pub problem: Option<String>,
}

impl Standing {
    /// Every plan that it may measure by now or later.
    pub fn possible(&self) -> impl Iterator<Item = &Applied> {
        self.applied.iter().chain(&self.unanswered)
    }
}

/// Flows that another system found worth a look in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// The epoch.
    pub epoch: u64,
    /// Flows that lost packets, those that lost most first.
    pub victims: Vec<Flow>,
    /// Heavy hitters of all edges, the largest first.
    pub heavy_hitters: Vec<Flow>,
}

/// What another system found in the last epochs, as far as plans may name it.
#[derive(Clone, Debug)]
pub struct RecentlyNoticed {
    /// Flows of each kind that are kept of an epoch.
    most: usize,
    /// The newest last.
    epochs: VecDeque<Noticed>,
}

impl RecentlyNoticed {
    /// Epochs that are kept.
    pub const EPOCHS: usize = 20;

    /// Nothing yet; of each epoch at most so many flows of each kind are kept.
    pub fn new(most: usize) -> Self {
        Self { most, epochs: VecDeque::new() }
    }

    /// Adds an epoch.
    pub fn add(&mut self, noticed: &Noticed) {
        if self.epochs.len() == Self::EPOCHS {
            self.epochs.pop_front();
        }
        let some = |flows: &[Flow]| flows.iter().take(self.most).copied().collect();
        self.epochs.push_back(Noticed {
            epoch: noticed.epoch,
            victims: some(&noticed.victims),
            heavy_hitters: some(&noticed.heavy_hitters),
        });
    }

    /// Flows that lost packets, those of newer epochs first.
    pub fn victims(&self) -> impl Iterator<Item = &Flow> {
        self.epochs.iter().rev().flat_map(|of| &of.victims)
    }

    /// Heavy hitters, those of newer epochs first.
    pub fn heavy_hitters(&self) -> impl Iterator<Item = &Flow> {
        self.epochs.iter().rev().flat_map(|of| &of.heavy_hitters)
    }
}

/// The keys of the first `most` of these flows, each once, in order.
pub fn first_keys<'a>(flows: impl IntoIterator<Item = &'a Flow>, most: usize) -> Vec<WideKey> {
    let mut keys = BTreeSet::new();
    for key in flows.into_iter().filter_map(Flow::key) {
        if keys.len() == most {
            break;
        }
        keys.insert(key);
    }
    keys.into_iter().collect()
}

/// Flows that every switch is to count, whatever their hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// How many there may be.
    pub most: usize,
    /// Flows that an operator has named.
    pub wanted: Vec<Flow>,
    /// All flows that nodes were sent last, those of the operator first in line for the places.
    pub sent: Vec<Flow>,
    /// Nodes that can't pin flows: their programs are older.
    pub without: Vec<String>,
}

/// Says which plans nodes are to have. Called often, and by threads that others wait for: it must
/// be quick.
pub trait Steer: Debug + Send {
    /// Which plan holds, and from which epoch on, at a node that says it is `holding` this, of
    /// those that are to be sent `setup`; `None` where it measures by another setup, or not at all.
    fn held(&self, setup: &[u8], holding: &[u8]) -> Option<Applied>;

    /// The plan that each node is to have, in the order of [`Deployment::nodes`]; `None` where it
    /// is to go on as it does. A plan that is new is sent to hold from the first window on that
    /// every node can follow.
    ///
    /// [`Deployment::nodes`]: crate::Deployment::nodes
    fn plans(&mut self, nodes: &[Standing], now_ns: u64) -> Vec<Option<Vec<u8>>>;

    /// Takes in by which version of the system a node measures that has come, by its place in
    /// [`Deployment::nodes`](crate::Deployment::nodes).
    fn note_version(&mut self, _node: usize, _version: u8) {}

    /// Whether it wants to know of flows that ChameleMon finds.
    fn wants_noticed(&self) -> bool {
        false
    }

    /// Takes in what ChameleMon reports of an epoch.
    fn notice(&mut self, _noticed: &Noticed) {}

    /// Pins these flows, and none that were pinned by this before, from a window to come on.
    ///
    /// # Errors
    /// Why they stay as they are.
    fn pin(&mut self, _flows: &[Flow]) -> Result<(), String> {
        Err("this system pins no flows".to_owned())
    }

    /// Flows that are pinned; `None` where the system pins none.
    fn pins(&self) -> Option<Pins> {
        None
    }

    /// Takes over what may change while the system runs of its section, which was read again, from
    /// a window to come on. Gives what of it waits until the system is switched on again, and why.
    ///
    /// # Errors
    /// What is wrong with it. Then all stays as it is.
    fn reload(&mut self, _section: &Value) -> Result<Vec<String>, String> {
        Err(NEVER.to_owned())
    }

    /// Changes these fields of the section, and no others, from a window to come on.
    ///
    /// # Errors
    /// What is wrong with one, or why it can't change. Then all stay as they are.
    fn amend(&mut self, _changes: &Map<String, Value>) -> Result<(), String> {
        Err(NEVER.to_owned())
    }

    /// The fields that may change, as they are wanted now, and what nodes were sent last of them.
    /// `None` where none may.
    fn settings(&self) -> Option<Value> {
        None
    }
}

/// What a system answers nothing of which changes while it runs.
const NEVER: &str = "its section changes when it is switched off and on again";
