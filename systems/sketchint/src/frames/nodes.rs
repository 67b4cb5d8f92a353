//! What packets met at switches: a part of [`Window`](super::Window), which has the bytes.

use calumma_sketch::sketchint::{BINS, Histogram, NodeSums};
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u32};

use super::columns::{put_numbers, read_numbers};
use super::layout::Layout;
use super::window::{in_order, number};

pub(super) fn put_nodes(out: &mut Vec<u8>, nodes: &[NodeSums]) {
    put_u32(out, nodes.len() as u32);
    put_numbers(out, 4, nodes.iter().map(|of| of.node.into()));
    put_numbers(out, 8, nodes.iter().map(|of| of.packets));
    put_numbers(out, 8, nodes.iter().map(|of| of.sum_ns));
    put_numbers(out, 4, nodes.iter().map(|of| of.min_ns.into()));
    put_numbers(out, 4, nodes.iter().map(|of| of.max_ns.into()));
    put_numbers(out, 8, nodes.iter().map(|of| of.queued));
    put_numbers(out, 8, nodes.iter().map(|of| of.queue_sum));
    put_numbers(out, 4, nodes.iter().map(|of| of.queue_max.into()));
    let bins: Vec<u64> =
        nodes.iter().flat_map(|of| of.latencies.bins().iter().map(|&bin| bin.into())).collect();
    put_numbers(out, 4, bins.into_iter());
}

pub(super) fn read_nodes(
    body: &mut Body<'_>,
    layout: &Layout,
) -> Result<Vec<NodeSums>, DecodeError> {
    const FIELD: &str = "switches";
    let offset = body.offset();
    let number = number(body, FIELD, Layout::most_of(layout.shape.nodes).min(1 << 13))?;
    let node = read_numbers(body, FIELD, 4, number)?;
    let packets = read_numbers(body, FIELD, 8, number)?;
    let sum = read_numbers(body, FIELD, 8, number)?;
    let min = read_numbers(body, FIELD, 4, number)?;
    let max = read_numbers(body, FIELD, 4, number)?;
    let queued = read_numbers(body, FIELD, 8, number)?;
    let queue_sum = read_numbers(body, FIELD, 8, number)?;
    let queue_max = read_numbers(body, FIELD, 4, number)?;
    let bins = read_numbers(body, FIELD, 4, number * BINS)?;
    let mut nodes = Vec::with_capacity(number);
    for (at, bins) in (0..number).zip(bins.chunks(BINS)) {
        let bins = bins.iter().map(|&bin| bin as u32).collect();
        let sums = NodeSums {
            node: node[at] as u32,
            packets: packets[at],
            sum_ns: sum[at],
            min_ns: min[at] as u32,
            max_ns: max[at] as u32,
            latencies: Histogram::from_bins(bins).unwrap_or_default(),
            queued: queued[at],
            queue_sum: queue_sum[at],
            queue_max: queue_max[at] as u32,
        };
        if let Some(why) = wrong_with(&sums) {
            return Err(body.wrong(offset, FIELD, format_args!("{}: {why}", sums.node)));
        }
        nodes.push(sums);
    }
    let numbers: Vec<u32> = nodes.iter().map(|of| of.node).collect();
    in_order(body, FIELD, &numbers)?;
    Ok(nodes)
}

/// What can't be of a switch.
fn wrong_with(of: &NodeSums) -> Option<&'static str> {
    let known = of.latencies.count();
    let (least, most) = (u128::from(of.min_ns), u128::from(of.max_ns));
    if of.packets == 0 {
        return Some("no packets");
    }
    if of.queued > of.packets || known.is_some_and(|known| known > of.packets) {
        return Some("more packets say something than there were");
    }
    let sum = u128::from(of.sum_ns);
    let is_between =
        |known: u64| sum >= least * u128::from(known) && sum <= most * u128::from(known);
    match known {
        Some(0) if sum != 0 || of.max_ns != 0 || of.min_ns != u32::MAX => {
            Some("a latency that no packet had")
        }
        Some(known) if known > 0 && !is_between(known) => {
            Some("the sum of the latencies is not between least and longest")
        }
        _ => None,
    }
}
