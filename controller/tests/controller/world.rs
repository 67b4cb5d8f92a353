//! A network of edges in miniature: real groups measure packets that never existed.

use std::collections::BTreeMap;

use calumma_chamelemon::{Attention, EgressGroup, IngressGroup, Layout};
use calumma_controller::EdgeInput;
use calumma_sketch::{FlowKey, HashFamily, HashKey, Key, WideKey};

pub(crate) fn hash_key() -> HashKey {
    HashKey::from_bytes([9; 32])
}

/// Flow number `n`.
pub(crate) fn flow(n: u32) -> FlowKey {
    FlowKey::from_words(0x0A01_0002, 0x0A02_0000 | n >> 16, (n & 0xFFFF) << 16 | 5201, 6)
}

/// Flow number `n` where edges measure both families: every second one is IPv6.
pub(crate) fn wide_flow(n: u32) -> WideKey {
    if n.is_multiple_of(2) {
        return flow(n).into();
    }
    let prefix = 0x2001_0DB8_u128 << 96;
    let (src, dst) = (prefix | 1 << 64 | 2, prefix | 2 << 64 | u128::from(n >> 16));
    WideKey::v6(src.into(), dst.into(), n as u16, 5201, 6)
}

/// Name, ingress group and packets recorded, egress group and packets recorded.
type Edge<K> = (String, IngressGroup<K>, u64, EgressGroup<K>, u64);

/// One epoch of a network: what its edges measure by keys `K`, and what really happened.
pub(crate) struct World<K: Key = FlowKey> {
    pub(crate) epoch: u64,
    family: HashFamily,
    edges: Vec<Edge<K>>,
    /// Packets lost, by flow.
    pub(crate) lost: BTreeMap<K, u64>,
    /// Packets sent, by flow, at each edge.
    pub(crate) sent: Vec<BTreeMap<K, u64>>,
}

impl<K: Key> World<K> {
    pub(crate) fn new(
        edges: &[&str],
        layout: &Layout,
        hash_key: &HashKey,
        attention: Attention,
        epoch: u64,
    ) -> Self {
        let edge = |name: &&str| {
            let ingress = IngressGroup::new(layout, attention, epoch).unwrap();
            (name.to_string(), ingress, 0, EgressGroup::new(layout, attention).unwrap(), 0)
        };
        Self {
            epoch,
            family: HashFamily::new(hash_key),
            edges: edges.iter().map(edge).collect(),
            lost: BTreeMap::new(),
            sent: vec![BTreeMap::new(); edges.len()],
        }
    }

    /// Sends `packets` packets of a flow from one edge to another, of which those at the positions
    /// for which `is_lost` holds are lost.
    pub(crate) fn send(
        &mut self,
        (from, to): (usize, usize),
        key: K,
        packets: u64,
        is_lost: impl Fn(u64) -> bool,
    ) {
        let hashes = self.family.hash(&key);
        for position in 0..packets {
            let (_, ingress, packets_in, ..) = &mut self.edges[from];
            let hierarchy = ingress.record(&key, &hashes);
            *packets_in += 1;
            *self.sent[from].entry(key).or_default() += 1;
            if is_lost(position) {
                *self.lost.entry(key).or_default() += 1;
            } else {
                let (_, _, _, egress, packets_out) = &mut self.edges[to];
                assert!(egress.record(&key, &hashes, hierarchy));
                *packets_out += 1;
            }
        }
    }

    /// A packet that leaves the network without having entered it.
    pub(crate) fn duplicate(&mut self, to: usize, key: K) {
        let hashes = self.family.hash(&key);
        let (_, _, _, egress, packets_out) = &mut self.edges[to];
        egress.record(&key, &hashes, calumma_chamelemon::Hierarchy::HhCandidate);
        *packets_out += 1;
    }

    /// What the edges deliver.
    pub(crate) fn inputs(&self) -> Vec<EdgeInput> {
        self.edges
            .iter()
            .map(|(name, ingress, packets_in, egress, packets_out)| {
                let ingress = (ingress, *packets_in);
                EdgeInput::from_groups(name, self.epoch, ingress, (egress, *packets_out))
            })
            .collect()
    }
}
