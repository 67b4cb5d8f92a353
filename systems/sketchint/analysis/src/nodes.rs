//! Switches: what all sinks say of one, and which flows have many packets there.

use std::collections::BTreeMap;

use calumma_analysis::Flow;
use calumma_plane::int::means::Means;
use calumma_sketch::sketchint::{Histogram, NodeSums};
use calumma_sketchint::frames::Layout;
use calumma_wire::SwitchKind;

use crate::changes::{self, Last};
use crate::delays::LONGEST_NS;
use crate::local::largest_first;
use crate::report::{Heavy, Latency, NodeReport, Packets, Queue};
use crate::view::{Names, SinkView};

/// What a switch says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    /// What kind of switch it is, where that is known.
    pub(crate) kind: Option<&'static str>,
    /// By what means it knows what it has put into stacks, where it says so.
    pub(crate) means: Option<Means>,
}

impl Own {
    fn is_tofino(&self) -> bool {
        self.kind == Some(SwitchKind::Tofino.name())
    }

    /// What says when packets arrived, and by how much that may be wrong, in microseconds.
    fn stamp(&self) -> (Option<&'static str>, Option<f64>) {
        // Of a Tofino, its ports' MACs do.
        if self.is_tofino() {
            return (Some("device"), None);
        }
        let Some(means) = self.means else { return (None, None) };
        let stamp = match (means.has(Means::DEVICE), means.has(Means::POLL)) {
            (true, false) => "device",
            (false, true) => "poll",
            (true, true) => "both",
            (false, false) => return (None, None),
        };
        (Some(stamp), Some(means.arrival_error_ns as f64 / 1000.0))
    }

    /// Its queue, as packets have met it.
    fn queue(&self, of: &NodeSums) -> Option<Queue> {
        let unit = self.kind.map(|_| if self.is_tofino() { "cells" } else { "packets" });
        // A switch of which nothing came may have polled so.
        let is_software = self.kind.is_some() && !self.is_tofino();
        let at_least = self.means.map_or(is_software, |means| means.has(Means::QUEUE_AT_LEAST));
        (of.queued > 0).then(|| Queue {
            unit: unit.map(str::to_owned),
            at_least,
            packets: of.queued,
            mean: of.queue_sum as f64 / of.queued as f64,
            max: of.queue_max,
        })
    }
}

/// All switches that packets came by. `are_all` where no sink is missing and all are sound.
pub(crate) fn all(
    (sinks, are_all): (&[SinkView], bool),
    last: Option<&Last>,
    (names, owns): (&Names, &BTreeMap<u32, Own>),
    layout: &Layout,
) -> Vec<NodeReport> {
    let mut sums: BTreeMap<u32, NodeSums> = BTreeMap::new();
    for of in sinks.iter().flat_map(|sink| &sink.window.nodes) {
        sum_up(&mut sums, of);
    }
    let mut known = known(sinks);
    // Flows by the switches that they may have come by.
    let heavy = u64::from(layout.heavy_packets);
    let mut hitters: BTreeMap<u32, Vec<Heavy>> = BTreeMap::new();
    // Where many packets of a flow don't say where they came by, it may be heavy anywhere.
    let mut are_known = true;
    for sink in sinks {
        for flow in sink.flows() {
            if !flow.packets.may_exceed(heavy) {
                continue;
            }
            are_known &= sink.silent_of(&flow) <= heavy;
            for node in sink.may_nodes(&flow) {
                let packets = sink.hop(&flow, node).packets;
                if packets.may_exceed(heavy) {
                    let (flow, sink) = (Flow::from(&flow.key), sink.name.clone());
                    let certain = packets.at_least > heavy;
                    let of = Heavy { flow, sink, packets, certain };
                    hitters.entry(node).or_default().push(of);
                }
            }
        }
    }
    let changes =
        last.map(|last| changes::at_switches(sinks, last, u64::from(layout.heavy_change_packets)));
    // Of switches that no sink names nothing is known but bounds.
    for &node in hitters.keys().chain(changes.iter().flat_map(BTreeMap::keys)) {
        sums.entry(node).or_insert_with(|| NodeSums::none(node));
    }
    // Each of them may have been at any switch.
    let not_told_apart =
        sinks.iter().fold(0_u64, |sum, sink| sum.saturating_add(sink.window.totals.nodes_full));
    let are_counted = are_all
        && sinks.iter().all(|sink| {
            let is_counted = |row: &calumma_sketch::sketchint::FlowRow<_>| row.has_inflation;
            let rows = &sink.window.rows;
            sink.has_all() && sink.window.totals.inflated_full == 0 && rows.iter().all(is_counted)
        });
    let report = |(node, of): (u32, NodeSums)| {
        // By towers nothing is certain.
        let certain = sinks.iter().filter(|sink| sink.is_sound).flat_map(|sink| {
            let of_node = sink.window.inflated.iter().filter(|of| of.node == node);
            of_node.filter(|of| sink.window.has_inflation(&of.key))
        });
        let inflated: u64 = certain.map(|of| u64::from(of.count)).sum();
        let is_known = !sinks.iter().any(|sink| sink.is_cut_at(node));
        let inflated = if is_known { inflated } else { 0 };
        let mut heavy_hitters = hitters.remove(&node).unwrap_or_default();
        largest_first(&mut heavy_hitters);
        let at_most = of.packets.saturating_add(not_told_apart);
        let at_most = are_all.then_some(at_most);
        let Packets { packets, at_least, at_most } = Packets::between(of.packets, at_most);
        let (known, latency_sinks) = known.remove(&node).unwrap_or_else(|| none(node));
        let own = owns.get(&node).copied().unwrap_or_default();
        let (stamp, stamp_error_us) = own.stamp();
        NodeReport {
            node: names.of(node),
            id: node,
            kind: own.kind.map(str::to_owned),
            stamp: stamp.map(str::to_owned),
            stamp_error_us,
            packets,
            at_least,
            at_most,
            latency_us: latency(&known),
            latency_sinks,
            queue: own.queue(&known),
            inflated: (are_counted && is_known).then_some(inflated),
            inflated_at_least: inflated,
            heavy_hitters,
            heavy_hitters_complete: are_all
                && not_told_apart == 0
                && are_known
                && sinks.iter().all(SinkView::knows_large),
            heavy_changes: changes
                .as_ref()
                .map(|changes| changes.get(&node).cloned().unwrap_or_default()),
        }
    };
    sums.into_iter().map(report).collect()
}

fn sum_up(sums: &mut BTreeMap<u32, NodeSums>, of: &NodeSums) {
    sums.entry(of.node).and_modify(|sum| add(sum, of)).or_insert_with(|| of.clone());
}

/// A switch that no sink knows anything of.
fn none(node: u32) -> (NodeSums, Vec<String>) {
    (NodeSums::none(node), Vec::new())
}

/// What packets met at each switch, and the sinks which say how long it had them: of those alone
/// that recorded all their packets and tell all switches apart.
fn known(sinks: &[SinkView]) -> BTreeMap<u32, (NodeSums, Vec<String>)> {
    let mut all: BTreeMap<u32, (NodeSums, Vec<String>)> = BTreeMap::new();
    let knows = |sink: &&SinkView| sink.is_sound && sink.window.totals.nodes_full == 0;
    for sink in sinks.iter().filter(knows) {
        for of in &sink.window.nodes {
            let (sum, sinks) = all.entry(of.node).or_insert_with(|| none(of.node));
            add(sum, of);
            sinks.extend((of.latencies.count() != Some(0)).then(|| sink.name.clone()));
        }
    }
    all
}

fn add(sum: &mut NodeSums, more: &NodeSums) {
    sum.packets = sum.packets.saturating_add(more.packets);
    sum.sum_ns = sum.sum_ns.saturating_add(more.sum_ns);
    sum.min_ns = sum.min_ns.min(more.min_ns);
    sum.max_ns = sum.max_ns.max(more.max_ns);
    sum.latencies.merge(&more.latencies);
    sum.queued = sum.queued.saturating_add(more.queued);
    sum.queue_sum = sum.queue_sum.saturating_add(more.queue_sum);
    sum.queue_max = sum.queue_max.max(more.queue_max);
}

fn latency(of: &NodeSums) -> Latency {
    let known = of.latencies.count().filter(|&known| known > 0);
    let Some(known) = known else {
        return Latency { error: Histogram::ERROR, ..Latency::default() };
    };
    let us = |ns: f64| ns / 1000.0;
    // No quantile is beyond the longest, or below the least.
    let range = (f64::from(of.min_ns), f64::from(of.max_ns));
    let longest = f64::from(LONGEST_NS);
    let is_known = |ns: &f64| *ns < longest;
    let quantile = |q| {
        let ns = of.latencies.quantile(q)?.max(range.0).min(range.1);
        (ns * (1.0 + Histogram::ERROR) < longest || range.1 < longest).then(|| us(ns))
    };
    let mean = of.sum_ns as f64 / known as f64;
    Latency {
        mean: (range.1 < longest).then(|| us(mean)),
        min: Some(range.0).filter(is_known).map(us),
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
        max: Some(range.1).filter(is_known).map(us),
        error: Histogram::ERROR,
    }
}
