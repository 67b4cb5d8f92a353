//! Links between switches: packets, by the paths that they came by, and how long they were on each,
//! by the stamps of both switches and how far their clocks are apart.

use std::collections::BTreeMap;

use calumma_analysis::{ClockOffset, Collected};
use calumma_sketch::sketchint::LinkSums;

use crate::report::{LinkLatency, LinkReport};
use crate::view::{Names, SinkView};
use crate::windows::Delivered;

/// By number, how well the times are known that a switch says of a window. Of a switch that did not
/// deliver all of it in time nothing is.
pub(crate) type Times = BTreeMap<u32, Time>;

/// How well the times are known that a switch says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    clock: ClockOffset,
    /// By how much the arrival of a packet may be wrong; `None` where it does not say.
    arrival_error_ns: Option<u64>,
}

/// What the nodes of a window say of their times.
pub(crate) fn times(collected: &Collected<Delivered>) -> Times {
    let time = |delivery: &calumma_analysis::Delivery<Delivered>| {
        let end = &delivery.end;
        let is_sound = delivery.is_whole() && end.late_packets == Some(0) && end.clock.is_none();
        let clock = end.offset.filter(|_| is_sound && delivery.doubts.is_empty())?;
        let arrival_error_ns = delivery.came().find_map(|(_, side)| side.arrival_error_ns);
        Some((u32::from(delivery.node.id), Time { clock, arrival_error_ns }))
    };
    collected.nodes.iter().filter_map(time).collect()
}

/// All links of paths that are known whole, those of most packets first.
/// `are_all` where no sink is missing and all are sound.
pub(crate) fn all(
    (sinks, are_all): (&[SinkView], bool),
    times: &Times,
    names: &Names,
) -> Vec<LinkReport> {
    let mut packets: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let mut sums: BTreeMap<(u32, u32), LinkSums> = BTreeMap::new();
    for sink in sinks {
        // Of a path that may lack switches, neighbours are no neighbours.
        for of in sink.window.paths.iter().filter(|of| !sink.may_lack(&of.path)) {
            let mut nodes = of.path.nodes().iter().copied().chain(sink.window.own);
            let Some(mut from) = nodes.next() else { continue };
            for to in nodes {
                let sum = packets.entry((from, to)).or_default();
                *sum = sum.saturating_add(of.packets);
                from = to;
            }
        }
        for of in &sink.window.links {
            sums.entry((of.from, of.to)).and_modify(|sum| sum.merge(of)).or_insert(*of);
        }
    }
    let are_known = are_all && sinks.iter().all(SinkView::knows_paths);
    // Where an lcore had no room for a link, the others' sums lack what it saw.
    let have_all = are_all && sinks.iter().all(|sink| sink.window.links_full == 0);
    let link = |((from, to), packets): ((u32, u32), u64)| {
        let sums = sums.get(&(from, to)).filter(|_| have_all);
        let latency = sums.and_then(|of| latency(of, times));
        LinkReport {
            from: names.of(from),
            to: names.of(to),
            packets: are_known.then_some(packets),
            at_least: packets,
            latency_us: latency.map(|of| of.0),
            clock_error_us: latency.map(|of| of.1),
            arrival_error_us: latency.map(|of| of.2),
        }
    };
    let mut links: Vec<LinkReport> = packets.into_iter().map(link).collect();
    links.sort_by_key(|link| std::cmp::Reverse(link.at_least));
    links
}

/// How long packets were on a link, and by how much that may be wrong for what is not known of the
/// clocks, and of when packets arrived; `None` where either has no bound.
fn latency(of: &LinkSums, times: &Times) -> Option<(LinkLatency, f64, f64)> {
    if of.is_cut() {
        return None;
    }
    let (from, to) = (times.get(&of.from)?, times.get(&of.to)?);
    let apart_ns = i128::from(to.clock.offset_ns) - i128::from(from.clock.offset_ns);
    let clock_error_ns = from.clock.error_ns.saturating_add(to.clock.error_ns);
    let us = |ns: f64| ns / 1000.0;
    let less_apart = |ns: i64| us((i128::from(ns) - apart_ns) as f64);
    let latency = LinkLatency {
        packets: of.packets,
        mean: us(of.sum_ns as f64 / of.packets as f64 - apart_ns as f64),
        min: less_apart(of.min_ns),
        max: less_apart(of.max_ns),
    };
    Some((latency, us(clock_error_ns as f64), us(to.arrival_error_ns? as f64)))
}
