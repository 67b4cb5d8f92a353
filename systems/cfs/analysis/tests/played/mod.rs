//! A network's switches in virtual time and the controller's analysis of the one window that they
//! send: what is begun before packets go through, and what is reported of them.

use std::sync::Arc;

use calumma_analysis::{
    AnyAnalysis, Collected, Delivery, Deployment, EpochHead, HashKeys, Node, NodeEnd, System,
    SystemReport,
};
use calumma_cfs::frames::{Hop, OFFER, Setup};
use calumma_cfs_analysis::{Cfs, Found};
use calumma_plane::Carrier;
use calumma_plane::carrier::{Shim, Tos};
use calumma_plane::secret::hash_key;
use calumma_sketch::KeyKind;
use calumma_wire::{Role, Side, SideKind, SystemId};
use serde_json::Value;

use crate::common::{EPOCH_NS, FIRST_EPOCH, Net, Switch, clock, secret};

/// The network.
pub(crate) struct Played {
    nodes: Vec<Arc<Node>>,
    analysis: Box<dyn AnyAnalysis>,
    pub(crate) switches: Vec<Switch>,
}

impl Played {
    /// Switches of these names and roles, the first of them an edge, with so many lcores each, by a
    /// section `[cfs]`.
    pub(crate) fn new(of: &[(&str, Role)], section: &Value, keys: KeyKind, lcores: usize) -> Self {
        let node = |(id, &(name, role)): (u16, &(&str, Role))| {
            Arc::new(Node { name: name.to_owned(), role, id })
        };
        let nodes: Vec<Arc<Node>> = (1..).zip(of).map(node).collect();
        let deployment = Deployment {
            section,
            hash_keys: &HashKeys::new(hash_key(&secret())),
            clock: clock(),
            nodes: &nodes,
            id: std::num::NonZeroU16::MIN,
        };
        let analysis = Cfs.start(&deployment).unwrap().unwrap();
        let switch = |node: &Arc<Node>| {
            let setup = Setup::decode(&analysis.setup(node, OFFER.highest).setup).unwrap();
            let carrier = match setup.hop {
                Hop::Mark { .. } => Carrier::Shim(Shim { hops: true, ..Shim::default() }),
                Hop::Ttl(_) | Hop::Port(_) | Hop::None => Carrier::Tos(Tos::default()),
            };
            let net = Net { carrier, keys, setup };
            Switch::with_role(&net, node.id, lcores, node.role)
        };
        let switches = nodes.iter().map(switch).collect();
        Self { nodes, analysis, switches }
    }

    /// What a node sends of that window from the fabric, as the controller reads it.
    #[allow(dead_code, reason = "not every test crate has wrong windows")]
    pub(crate) fn decoded(&self, node: usize) -> Result<(), String> {
        let (node, window) = (&self.nodes[node], &self.switches[node].windows[&FIRST_EPOCH]);
        let (system, epoch, counters) = (SystemId::CFS, FIRST_EPOCH, Vec::new());
        let is_edge = node.role == Role::Edge;
        let side = if is_edge { SideKind::Egress } else { SideKind::Transit };
        let (packets, body) = (window.totals.packets, window.encode());
        let side = Side { system, epoch, side, stall_ns: 0, packets, counters, body };
        self.analysis.decode(node, OFFER.highest, side).map(drop)
    }

    /// What is reported of the window that begins with the first epoch.
    pub(crate) fn report(mut self) -> SystemReport<Found> {
        let start = clock().start_of(FIRST_EPOCH);
        let mut delivered = Vec::new();
        for (node, switch) in self.nodes.iter().zip(&mut self.switches) {
            switch.advance_to(start + 10 * EPOCH_NS);
            let window = &switch.windows[&FIRST_EPOCH];
            let side = |side, packets, body| {
                let (system, counters) = (SystemId::CFS, Vec::new());
                let epoch = FIRST_EPOCH;
                let side = Side { system, epoch, side, stall_ns: 0, packets, counters, body };
                Some(self.analysis.decode(node, OFFER.highest, side).unwrap())
            };
            let is_edge = node.role == Role::Edge;
            let kind = if is_edge { SideKind::Egress } else { SideKind::Transit };
            let mut sides = vec![(kind, side(kind, window.totals.packets, window.encode()))];
            if is_edge {
                let ingress = SideKind::Ingress;
                sides.insert(0, (ingress, side(ingress, 0, Vec::new())));
            }
            let end = NodeEnd { late_packets: Some(0), ..NodeEnd::default() };
            delivered.push(Delivery { node: node.clone(), sides, doubts: Vec::new(), end });
        }
        let head = EpochHead { epoch: FIRST_EPOCH, start_unix_ns: start, length_ms: 100 };
        let of = Collected { head, nodes: delivered, topology: None };
        let published = self.analysis.analyse(of).unwrap();
        published.report.as_type::<SystemReport<Found>>().unwrap().clone()
    }
}
