//! Flows of which packets leave a live fabric that entered it as another flow, in another epoch or
//! nowhere, by what its routers were set up to do.

use std::collections::HashMap;

use calumma_sketch::{Key, WideKey};

use crate::fabric::faults;
use crate::topology::{LinkQuality, Topology};
use crate::workload::Flow;

/// Such packets so far: at most so many of each flow.
#[derive(Debug, Default)]
pub(super) struct Disturbed {
    /// By flow.
    pub(super) packets: HashMap<WideKey, u64>,
    /// Those that routers within the network have sent.
    pub(super) from_inside: u64,
}

impl Disturbed {
    /// Adds what flows send in `epoch`.
    pub(super) fn add(&mut self, flows: &[Flow], topology: &Topology, epoch: u64, length_ns: u64) {
        for flow in flows {
            let packets = u64::from(flow.packets_in(epoch, length_ns));
            if flow.inside.is_some() {
                self.from_inside += packets;
                *self.packets.entry(flow.key).or_default() += packets;
                continue;
            }
            let mut key = flow.key;
            for hop in flow.way.iter().flat_map(|way| way.hops()) {
                let quality = &topology.links()[hop.link].quality;
                let LinkQuality { remark, late, tbf_mbit, .. } = *quality;
                let port = faults::translated_port(quality, key.dport());
                if [remark, late, tbf_mbit] == [0.0; 3] && port.is_none() {
                    continue;
                }
                *self.packets.entry(key).or_default() += packets;
                if let Some(port) = port {
                    let (src, dst) = key.addresses();
                    let translated = WideKey::new(src, dst, key.sport(), port, key.protocol());
                    key = translated.unwrap_or(key);
                    *self.packets.entry(key).or_default() += packets;
                }
            }
        }
    }
}
