//! Plans that change while a system runs.
//!
//! A system whose nodes measure by plans of their own all the time has an
//! [`Analysis::steer`](crate::Analysis::steer). The controller then tells it how every node stands,
//! and it says which plan each is to have. Sending plans in time, again where they came too late or
//! got no answer, and reading the answers is the controller's (`calumma_controller::steering`).

use std::fmt::Debug;

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

    /// Whether it wants to know of flows that ChameleMon finds.
    fn wants_noticed(&self) -> bool {
        false
    }

    /// Takes in what ChameleMon reports of an epoch.
    fn notice(&mut self, _noticed: &Noticed) {}
}
