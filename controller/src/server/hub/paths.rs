//! The paths between edges, as probes show them, and what edges are sent about them.

use std::ops::Range;

use calumma_analysis::Unprobed;
use calumma_wire::{Message, Offer, PathsSeen, Role, SystemId};

use super::{Hub, lock};
use crate::paths::PathStatus;
use crate::server::unix_ns;

/// Epochs that marks tell apart: by the timestamp bit alone, or with two bits more.
const BY_BIT: u64 = 2;
const BY_THREE_BITS: u64 = 8;

/// Whether a node with these offers knows probes, and how many epochs marks in such a carrier tell
/// apart.
pub(super) fn knows_probes(offers: &[Offer], carrier: &str) -> (bool, u64) {
    let able = offers.iter().any(|offer| offer.system == SystemId::PROBES);
    let in_tos = carrier.contains("tos");
    (able, if in_tos { BY_BIT } else { BY_THREE_BITS })
}

impl Hub {
    /// A node has connected: see [`knows_probes`].
    pub(in crate::server) fn paths_connected(&self, node: usize, (able, epochs): (bool, u64)) {
        if self.nodes[node].node.role == Role::Edge {
            // All edges have one carrier.
            self.chamelemon.decoder.set_dated(epochs == BY_THREE_BITS);
        }
        let epoch = self.clock.epoch_at(unix_ns());
        lock(&self.paths).connected(node, epoch, able, epochs);
        self.send_paths();
    }

    /// A node has gone.
    pub(in crate::server) fn paths_disconnected(&self, node: usize) {
        lock(&self.paths).disconnected(node, self.clock.epoch_at(unix_ns()));
        self.send_paths();
    }

    /// Takes in what an edge has seen of paths.
    pub(in crate::server) fn paths_seen(&self, node: usize, seen: PathsSeen) {
        lock(&self.paths).take(node, seen, self.clock.epoch_at(unix_ns()));
        self.send_paths();
    }

    /// Lets edges probe the paths between them, or stops it.
    pub(in crate::server) fn enable_probes(&self, enabled: bool) {
        lock(&self.paths).enable(enabled);
        self.send_paths();
    }

    fn send_paths(&self) {
        // Held until all are in their queues: an edge goes by the message that comes last.
        let mut paths = lock(&self.paths);
        for (node, wanted) in paths.messages() {
            let state = lock(&self.nodes[node].state);
            if let Some(link) = &state.link {
                link.send(&self.nodes[node].node.name, Message::PathsWanted(Box::new(wanted)));
            }
        }
    }

    /// Every path of which something is known.
    pub fn paths(&self) -> Vec<PathStatus> {
        let epoch = self.clock.epoch_at(unix_ns());
        lock(&self.paths).status(epoch, |at| &self.nodes[at].node.name)
    }

    /// Whether edges are to send probes.
    pub(crate) fn is_probing(&self) -> bool {
        lock(&self.paths).is_on()
    }

    /// By edge: paths from it of which it is not known yet in an epoch whether marks come through.
    pub(crate) fn unprobed(&self, epoch: u64) -> Vec<Option<Unprobed>> {
        lock(&self.paths).unprobed(epoch)
    }

    /// What was wrong in an epoch with each edge's clock or the paths to it, or is now with the
    /// clock.
    pub(crate) fn problems_of_edges(&self, epoch: u64) -> Vec<Option<String>> {
        let problems = self.clock_problems_of_edges(epoch);
        let of_paths = lock(&self.paths).problems(epoch, |at| &self.nodes[at].node.name);
        with_paths(problems, of_paths)
    }

    /// What was wrong with each node's clock in a window of these epochs or around it, or is now,
    /// or with the paths to it.
    pub(crate) fn problems_of_all(&self, window: &Range<u64>) -> Vec<Option<String>> {
        let problems = self.clock_problems_of_all(window);
        let of_paths = lock(&self.paths).problems_around(window, |at| &self.nodes[at].node.name);
        with_paths(problems, of_paths)
    }
}

fn with_paths(
    mut problems: Vec<Option<String>>,
    of_paths: Vec<Option<String>>,
) -> Vec<Option<String>> {
    for (problem, of_path) in problems.iter_mut().zip(of_paths) {
        *problem = match (problem.take(), of_path) {
            (Some(of_clock), Some(of_path)) => Some(format!("{of_clock}; {of_path}")),
            (of_clock, of_path) => of_clock.or(of_path),
        };
    }
    problems
}
