//! Connections with nodes that end: closed by the node, by the controller, or broken.

use std::ops::Range;

use calumma_wire::Message;

use super::nodes::State;
use super::{Hub, lock};
use crate::clocks::gone;
use crate::server::unix_ns;

impl Hub {
    /// Whether the node's own end closed the connection before the end of a time, and it was not
    /// back before that began.
    pub(in crate::server) fn is_gone(&self, node: usize, time_ns: &Range<u64>) -> bool {
        let state = lock(&self.nodes[node].state);
        let is_away = state.link.is_none();
        state.closed_ns.is_some_and(|closed_ns| gone(closed_ns, is_away, time_ns))
    }

    /// Notes that a connection has ended: whether the node's own end closed it, and what problem
    /// there was.
    pub(in crate::server) fn dismiss(
        &self,
        node: usize,
        connection: u64,
        (closed, problem): (bool, Option<String>),
    ) {
        let mut marked = lock(&self.marked);
        let mut state = lock(&self.nodes[node].state);
        let State { status, link, closed_ns, .. } = &mut *state;
        if link.as_ref().is_some_and(|link| link.connection == connection) {
            *link = None;
            *closed_ns = closed.then(unix_ns);
            marked.remove(node);
            lock(&self.delays).set(node, None);
            status.connected = false;
            status.last_problem = problem;
            let lanes = self.lanes();
            let now_ns = unix_ns();
            for steering in lanes.iter().filter_map(|lane| lane.steering.as_ref()) {
                lock(steering).left(node, now_ns);
            }
        }
    }

    /// Closes a node's connection, which sent what can't be read.
    pub(in crate::server) fn close(&self, node: usize, connection: u64, reason: String) {
        let state = lock(&self.nodes[node].state);
        if let Some(link) = state.link.as_ref().filter(|link| link.connection == connection) {
            // Where the queue is full, the next such frame closes the connection.
            let _ = link.messages.try_send(Message::Refused { reason });
        }
    }
}
