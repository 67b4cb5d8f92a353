//! Nodes that connect and that the configuration does not name.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use calumma_wire::Role;

use super::lock;
use crate::api::UnexpectedNode;

/// Those that are remembered: names come from the network, so there is a bound.
const MOST: usize = 64;

/// The nodes that were refused since nobody expects them, by name.
#[derive(Debug, Default)]
pub(super) struct Unexpected(Mutex<BTreeMap<String, UnexpectedNode>>);

impl Unexpected {
    /// Notes that one has connected.
    pub(super) fn note(&self, name: &str, role: Role, address: SocketAddr, now_ns: u64) {
        let mut nodes = lock(&self.0);
        if nodes.len() >= MOST && !nodes.contains_key(name) {
            return;
        }
        let attempts = nodes.get(name).map_or(0, |node| node.attempts) + 1;
        let node = name.to_owned();
        let role = role.name();
        let node = UnexpectedNode { node, role, address, attempts, last_unix_ns: now_ns };
        nodes.insert(name.to_owned(), node);
    }

    /// Those that have connected since `since_ns`.
    pub(super) fn since(&self, since_ns: u64) -> Vec<UnexpectedNode> {
        let nodes = lock(&self.0);
        nodes.values().filter(|node| node.last_unix_ns >= since_ns).cloned().collect()
    }
}
