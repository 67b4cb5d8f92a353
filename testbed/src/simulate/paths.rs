//! Probes in the simulation: they go the way of a flow between the same addresses, and links do to
//! them what they do to packets, but for translating them.

use anyhow::Result;
use calumma_edge::packet::{self, Packet};
use calumma_plane::probe::Headers;
use calumma_sketch::Key;

use super::network::Simulation;
use crate::workload::{Draw, set_dscp};

/// A probe as bytes.
pub(super) type ProbeBytes = packet::Frame<Vec<u8>>;

impl Simulation {
    /// Lets a probe that has entered the network travel to its egress edge. Gives that, and when it
    /// arrives; none where it is lost, or no flow goes there.
    pub(super) fn travel(&mut self, probe: &mut ProbeBytes, now_ns: u64) -> Option<(usize, u64)> {
        let addresses = Headers::of(probe.bytes())?.addresses();
        let goes = |flow: &&crate::workload::Flow| {
            flow.inside.is_none() && flow.key.addresses() == addresses
        };
        let flow = self.flows().iter().find(goes)?;
        let (way, egress) = (flow.way.clone()?, flow.edges[1]);
        self.probes_sent += 1;
        let draw = Draw::new(self.setup.seed).of(u64::MAX - 2).of(self.probes_sent);
        let mut at_ns = now_ns;
        for (number, hop) in (0..).zip(way.hops()) {
            let (quality, draw) = (self.quality(hop.link), draw.of(number));
            if draw.of(0).share() < quality.loss {
                return None;
            }
            if draw.of(1).share() < quality.remark {
                set_dscp(probe.bytes_mut(), quality.dscp);
            }
            let mut takes_us = quality.delay_us + quality.jitter_us * draw.of(2).share();
            if draw.of(3).share() < quality.late {
                let [least, most] = quality.late_ms;
                takes_us += 1e3 * (least + (most - least) * draw.of(4).share());
            }
            at_ns += (takes_us * 1e3) as u64;
        }
        Some((egress, at_ns))
    }

    /// A probe arrives at its egress edge.
    ///
    /// # Errors
    /// When the edge does not take it out, and a host would get it.
    pub(super) fn arrive(&mut self, edge: usize, mut probe: ProbeBytes, now_ns: u64) -> Result<()> {
        let is_taken = self.nodes[edge].take_probe(&mut probe, now_ns);
        anyhow::ensure!(is_taken, "an edge lets a probe through to a host");
        Ok(())
    }
}
