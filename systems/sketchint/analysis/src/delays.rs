//! Latencies of flows of which all packets say them: what follows from number, sum and maximum
//! beyond the mean, and what collectors of flow records are given.

use calumma_sketch::sketchint::Cell;

use crate::report::{FlowReport, HopReport, InSwitches, PathReport};
use crate::view::{FlowView, SinkView};

/// A latency that is as long as a stack can say, or longer.
pub(crate) const LONGEST_NS: u32 = u32::MAX - 1;

/// Latencies of all packets of a flow in a window, as flow records have them: rounded to
/// microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// Packets of the flow, all of which have one.
    pub packets: u64,
    /// The mean.
    pub mean_us: u32,
    /// The sum.
    pub sum_us: u64,
    /// The least, where it is known.
    pub min_us: Option<u32>,
    /// The longest, where it is known.
    pub max_us: Option<u32>,
}

impl Delays {
    /// By numbers of microseconds; `None` where there are no packets, or a number has no place in a
    /// record.
    fn of(packets: u64, mean_us: f64, [min_us, max_us]: [Option<f64>; 2]) -> Option<Self> {
        let mean = rounded(mean_us)?;
        // A sum of whole nanoseconds, which a mean of fewer digits has lost the last ones of.
        let sum_ns = (mean_us * 1000.0 * packets as f64).round();
        let sum_us = (packets > 0 && sum_ns < EXACT).then(|| (sum_ns as u64 + 500) / 1000)?;
        let [min_us, max_us] = [min_us, max_us].map(|of| of.and_then(rounded));
        Some(Self { packets, mean_us: mean, sum_us, min_us, max_us })
    }
}

/// Sums below this are whole numbers as they come out of a mean.
const EXACT: f64 = (1_u64 << 50) as f64;

fn rounded(us: f64) -> Option<u32> {
    let us = us.round();
    (0.0..=f64::from(u32::MAX)).contains(&us).then_some(us as u32)
}

impl FlowReport {
    /// How long a switch had the flow's packets; `None` where it is not known that these are all
    /// of them and that each says it, where one came by more than once, and where one was longer
    /// there than a stack can say.
    pub fn delays_at(&self, hop: &HopReport) -> Option<Delays> {
        let HopReport { node, packets, latencies, .. } = hop;
        let visits = |path: &PathReport| path.path.iter().filter(|of| *of == node).count();
        // Of a path that lacks switches, it may be one of these.
        let lacks = |path: &PathReport| path.partial && *node != self.sink;
        if self.paths.iter().any(|path| lacks(path) || visits(path) > 1) {
            return None;
        }
        let packets = packets.packets.filter(|&packets| *latencies == Some(packets))?;
        let max_us = hop.max_us.filter(|&us| us < f64::from(LONGEST_NS) / 1000.0)?;
        Delays::of(packets, hop.mean_us?, [hop.min_us, Some(max_us)])
    }

    /// How long all switches together had each of the flow's packets; `None` where that is not
    /// known of all of them.
    pub fn delays(&self) -> Option<Delays> {
        let InSwitches { mean, min, max } = self.in_switches_us?;
        Delays::of(self.packets.packets?, mean, [min, max])
    }
}

/// Whether all latencies of a cell are the same.
fn is_steady(cell: &Cell) -> bool {
    cell.sum_ns == u64::from(cell.max_ns) * u64::from(cell.known)
}

/// The least latency of a cell in nanoseconds, where it is known: of two the one that is not the
/// longest, of more if all are the same.
pub(crate) fn least_ns(cell: &Cell) -> Option<u32> {
    if is_steady(cell) {
        return Some(cell.max_ns);
    }
    let other = cell.sum_ns.checked_sub(cell.max_ns.into()).filter(|_| cell.known == 2)?;
    u32::try_from(other).ok()
}

/// How long the switches on their way had packets, each of which met something in all of these
/// cells: the least sum over the cells and the longest, in nanoseconds, where they are known. More
/// than one cell in which latencies differ may have them in any order.
fn range_ns<'a>(cells: impl Iterator<Item = &'a Cell>) -> [Option<u64>; 2] {
    let (mut steady, mut other) = (0, None);
    for cell in cells {
        match (is_steady(cell), other) {
            (true, _) => steady += u64::from(cell.max_ns),
            (false, None) => other = Some(cell),
            (false, Some(_)) => return [None; 2],
        }
    }
    let with = |ns: u32| steady + u64::from(ns);
    match other {
        None => [Some(steady); 2],
        Some(cell) => [least_ns(cell).map(with), Some(with(cell.max_ns))],
    }
}

/// How long all switches together had each packet of a flow, the sink's own included; `None` where
/// a packet came without a whole stack, or a switch does not say how long it had it.
pub(crate) fn in_switches(sink: &SinkView, flow: &FlowView<'_>) -> Option<InSwitches> {
    let all = flow.packets.packets.filter(|&all| all > 0 && flow.is_exact)?;
    let mut own = Cell::default();
    flow.rows.iter().for_each(|row| own.merge(&row.own));
    let is_known =
        |cell: &Cell, packets: u64| u64::from(cell.known) == packets && cell.max_ns < LONGEST_NS;
    // An end host is no hop.
    if sink.window.own.is_some() && !is_known(&own, all) {
        return None;
    }
    let mut sum_ns = u128::from(own.sum_ns);
    let mut ends_ns: [Option<u64>; 2] = [Some(u64::MAX), Some(0)];
    for row in flow.rows {
        let path = sink.path(row).filter(|path| !sink.may_lack(path))?;
        let are_known = row.hops.iter().all(|cell| is_known(cell, row.packets));
        if !are_known || row.hops.len() != path.nodes().len() {
            return None;
        }
        sum_ns += row.hops.iter().map(|cell| u128::from(cell.sum_ns)).sum::<u128>();
        // Rows do not distinguish what the sink met.
        let [least, longest] = match is_steady(&own) || flow.rows.len() == 1 {
            true => range_ns(row.hops.iter().chain([&own])),
            false => [None; 2],
        };
        ends_ns = [
            ends_ns[0].zip(least).map(|(one, other)| one.min(other)),
            ends_ns[1].zip(longest).map(|(one, other)| one.max(other)),
        ];
    }
    let us = |ns: u64| ns as f64 / 1000.0;
    let [min, max] = ends_ns.map(|ns| ns.map(us));
    Some(InSwitches { mean: sum_ns as f64 / all as f64 / 1000.0, min, max })
}
