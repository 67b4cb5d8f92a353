//! What SketchINT sinks send of a window, and how long the controller takes over it.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use calumma_analysis::{Collected, Delivery, EpochHead, HashKeys, Node, NodeEnd, SystemReport};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::Record;
use calumma_plane::int::{Hop, Stack};
use calumma_sketch::{BURST, FlowKey, HashFamily, HashKey};
use calumma_sketchint::frames::Layout;
use calumma_sketchint::plane::{Leaving, SinkSetup, SinkWindow};
use calumma_sketchint_analysis::{Limits, Windows};
use calumma_wire::{Role, Side, SideKind, SystemId};

use crate::controller::exact;
use crate::measure::{Case, Figure, Watch};
use crate::sketchint::ways;
use crate::{passport, workload};

/// Sinks, their flows and packets in all, and epochs of a window.
const SINKS: usize = 4;
const FLOWS: usize = 9_000;
const PACKETS: usize = 2_000_000;
const EPOCHS: u64 = 100;

/// Nodes have numbers below this; sinks are the first of them.
const NODES: u32 = 128;

fn clock() -> EpochClock {
    EpochClock::new(50_000_000, Guards::default()).expect("a valid clock")
}

/// Windows of sinks that packets of five hops came to.
#[derive(Debug)]
pub struct Collection {
    windows: Windows,
    sinks: Vec<(Arc<Node>, Side)>,
    /// Bytes of their memory.
    memory: usize,
}

impl Default for Collection {
    /// 9,000 flows and two million packets at four sinks, by Zipf(1.0), with default tables.
    fn default() -> Self {
        Self::of(FLOWS, PACKETS)
    }
}

impl Collection {
    fn of(flows: usize, packets: usize) -> Self {
        let key = HashKey::from_bytes([3; 32]);
        let family = HashFamily::new(&key);
        let names: BTreeMap<u32, String> = (1..NODES).map(|id| (id, format!("s{id}"))).collect();
        let layout = Layout::default();
        let mut memory = 0;
        let mut sink = |at: usize| {
            let id = at as u16 + 1;
            let (family, own) = (family.clone(), Some(id.into()));
            let (claims, clock) = (layout.claims(1), clock());
            let setup = SinkSetup { layout, own, family, claims, clock, has_times: false };
            let mut window =
                SinkWindow::new(Arc::new(setup), (), 1).expect("a layout that is valid");
            let keys = workload::keys(flows / SINKS, at as u64);
            let [packets, _] = workload::zipf_epochs(keys, packets / SINKS, 1.0, at as u64);
            window.begin(&(), 0);
            fill(&mut window, &packets);
            memory += window.bytes();
            let body = window.frame(key.id(), 1).encode();
            let side = Side {
                system: SystemId::SKETCHINT,
                epoch: 0,
                side: SideKind::Egress,
                stall_ns: 0,
                packets: packets.len() as u64,
                counters: Vec::new(),
                body,
            };
            (Arc::new(Node { name: format!("s{id}"), role: Role::Edge, id }), side)
        };
        let sinks = (0..SINKS).map(&mut sink).collect();
        let windows = Windows::new(layout, Limits::default(), HashKeys::new(key), names);
        Self { windows, sinks, memory }
    }

    /// From the bytes of the sinks' frames to the report's JSON.
    fn report(&mut self) -> String {
        let deliver = |(node, side): &(Arc<Node>, Side)| {
            let window = self.windows.decode(node, side).expect("a window of a sink");
            Delivery {
                node: node.clone(),
                sides: vec![(SideKind::Egress, Some(window))],
                doubts: Vec::new(),
                end: NodeEnd { late_packets: Some(0), ..NodeEnd::default() },
            }
        };
        let length_ms = EPOCHS * 50;
        let head = EpochHead { epoch: 0, start_unix_ns: clock().start_of(0), length_ms };
        let nodes = self.sinks.iter().map(deliver).collect();
        let collected = Collected { head, nodes, topology: None };
        let (found, problems) = self.windows.analyse(&collected, EPOCHS, "on");
        assert!(problems.is_empty(), "{problems:?}");
        let report = SystemReport::new(&collected, found);
        serde_json::to_string(&report).expect("a report is JSON")
    }

    /// How long that takes.
    pub fn case(&mut self) -> Case<'_> {
        Case::new("controller.sketchint.window.ms", "ms", move || {
            let watch = Watch::start();
            black_box(self.report());
            watch.nanos() / 1e6
        })
    }

    /// Bytes of the frames, as they are and beside memory and INT in passport mode.
    pub fn bytes(&self) -> Vec<Figure> {
        let sent: usize = self.sinks.iter().map(|(_, side)| side.body.len()).sum();
        let packets: u64 = self.sinks.iter().map(|(_, side)| side.packets).sum();
        let (sent, packets) = (sent as f64, packets as usize);
        let name = |what: &str| format!("controller.sketchint.{what}");
        vec![
            exact(&name("bytes"), "B/sink", sent / self.sinks.len() as f64),
            exact(&name("bytes.ratio"), "of memory", sent / self.memory as f64),
            exact(&name("nb"), "of INT", passport::share_of_bytes(sent, packets)),
            exact(&name("npn"), "of INT", passport::share_of_packets(sent, packets)),
        ]
    }
}

fn fill(window: &mut SinkWindow<FlowKey, ()>, packets: &[FlowKey]) {
    let mut stacks = [Stack::EMPTY; BURST];
    for (number, keys) in packets.chunks(BURST).enumerate() {
        let ways = ways(keys, number);
        for (stack, (nodes, latencies)) in stacks.iter_mut().zip(&ways) {
            stack.clear();
            // The number 0 is no node's.
            for (&node, &latency_ns) in nodes.iter().zip(latencies).filter(|hop| *hop.0 > 0) {
                stack.push(Hop { node, latency_ns, ..Hop::UNKNOWN });
            }
        }
        let stacks = stacks.each_ref().map(Some);
        let leaving = Leaving { keys, hashes: None, polled_ns: clock().start_of(0) };
        window.record(&leaving, &stacks[..keys.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_four_sinks_is_reported_and_smaller_than_int() {
        let mut collection = Collection::of(400, 40_000);
        let report: serde_json::Value = serde_json::from_str(&collection.report()).unwrap();
        let sinks = report["sketchint"]["sinks"].as_array().or(report["sinks"].as_array());
        assert_eq!(sinks.unwrap().len(), SINKS, "{report}");
        let figures = collection.bytes();
        let nb = figures.iter().find(|figure| figure.name.ends_with(".nb")).unwrap();
        assert!(nb.median > 0.0 && nb.median < 0.5, "{}", nb.median);
    }
}
