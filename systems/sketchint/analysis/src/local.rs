//! What a sink says of all packets for its hosts, with INT or without: heavy hitters, how many
//! flows, of which sizes, and their entropy.

use calumma_analysis::Flow;
use calumma_sketch::estimate::{self, Estimate, tells_distribution};

use crate::report::{Heavy, SizeBin};
use crate::view::{FlowView, SinkView};

/// Standard errors within which an estimate is 95 times out of 100.
const OF_95: f64 = 1.96;

/// Flows of more packets than `threshold`, or that may have, the largest first.
pub(crate) fn heavy_hitters(sink: &SinkView, threshold: u64) -> Vec<Heavy> {
    let heavy = |FlowView { key, packets, .. }: FlowView<'_>| {
        packets.may_exceed(threshold).then(|| Heavy {
            flow: Flow::from(&key),
            sink: sink.name.clone(),
            packets,
            certain: packets.at_least > threshold,
        })
    };
    let mut all: Vec<Heavy> = sink.flows().filter_map(heavy).collect();
    largest_first(&mut all);
    all
}

pub(crate) fn largest_first(all: &mut [Heavy]) {
    all.sort_by_key(|of| std::cmp::Reverse((of.packets.at_least, of.packets.at_most)));
}

/// How many flows there were, and by how much that is wrong at most 95 times out of 100; `None`
/// where nobody can tell.
pub(crate) fn cardinality(sink: &SinkView) -> Option<(f64, f64)> {
    if sink.has_all() {
        let flows = sink.rows_by_flow().count();
        return Some((flows as f64, 0.0));
    }
    let Estimate { value, standard_error } = estimate::cardinality(&sink.window.sizes);
    let is_whole = sink.is_sound && sink.window.unclassified == 0;
    let error = standard_error.filter(|_| is_whole)?;
    Some((value, OF_95 * error))
}

/// Sizes of flows: those that are known exactly, and all packets beside them.
#[derive(Debug)]
pub(crate) struct Distribution<'a> {
    sink: &'a SinkView,
    /// Sizes of flows that are known exactly.
    exact: Vec<u64>,
    /// Packets of all other flows.
    others: u64,
    /// What other flows have at least.
    inexact: Vec<u64>,
    /// Estimated numbers of flows by size.
    estimated: Option<Vec<(u64, f64)>>,
}

impl<'a> Distribution<'a> {
    /// Of a sink that is sound and knows all packets' flows; of another nothing is known.
    pub(crate) fn of(sink: &'a SinkView) -> Option<Self> {
        if !sink.is_sound || sink.window.unclassified > 0 {
            return None;
        }
        let (mut exact, mut inexact) = (Vec::new(), Vec::new());
        for rows in sink.rows_by_flow() {
            let packets: u64 = rows.iter().map(|row| row.packets).sum();
            if rows[0].is_exact { &mut exact } else { &mut inexact }.push(packets);
        }
        let others = sink.window.totals.packets.checked_sub(exact.iter().sum())?;
        let tower = &sink.window.sizes;
        let is_told = others > 0 && tells_distribution(tower, u64::MAX);
        let estimated = is_told.then(|| estimate::size_distribution(tower, std::iter::empty()));
        Some(Self { sink, exact, others, inexact, estimated })
    }

    /// Flows by size, by powers of two, without sizes that no flow can have.
    pub(crate) fn bins(&self) -> Vec<SizeBin> {
        let largest = self.exact.iter().copied().max().unwrap_or(0).max(self.others);
        let octaves = 0..u64::BITS - largest.leading_zeros();
        let bin = |octave: u32| {
            let (from, to) = (1_u64 << octave, u64::MAX >> (63 - octave));
            let is_in = |size: &u64| (from..=to).contains(size);
            let at_least = self.exact.iter().filter(|size| is_in(size)).count() as u64;
            // Each of the other flows here has as many of the other packets at least.
            let at_most = at_least + self.others / from;
            let estimated = self.estimated.as_ref().map(|sizes| {
                let here = sizes.iter().filter(|(size, _)| is_in(size));
                let flows: f64 = here.map(|(_, flows)| flows).sum();
                flows.clamp(at_least as f64, at_most as f64)
            });
            let flows = if at_least == at_most { Some(at_least as f64) } else { estimated };
            SizeBin { from, to, flows, at_least, at_most }
        };
        octaves.map(bin).filter(|bin| bin.at_most > 0).collect()
    }

    /// The entropy, where it is known, and its bounds: -sum (s / N) log2(s / N) over the flows'
    /// sizes s. `None` without packets.
    ///
    /// It is log2 N - W / N with W the sum of s log2 s, which grows where flows are taken
    /// together: W is least where packets of unknown flows are all of different ones, and largest
    /// where all are of one.
    pub(crate) fn entropy(&self) -> Option<(Option<f64>, f64, f64)> {
        let packets = self.sink.window.totals.packets;
        if packets == 0 {
            return None;
        }
        let all = packets as f64;
        let weight = |size: u64| size as f64 * (size as f64).log2();
        let weights = |sizes: &[u64]| sizes.iter().map(|&size| weight(size)).sum::<f64>();
        let of = |weight: f64| (all.log2() - weight / all).max(0.0);
        let exact = weights(&self.exact);
        let most = if self.others == 0 { 0.0 } else { weight(self.others) };
        let (low, high) = (of(exact + most), of(exact + weights(&self.inexact)));
        if self.others == 0 {
            return Some((Some(low), low, low));
        }
        let estimated = self.estimated.as_ref().map(|sizes| estimate::entropy(sizes));
        Some((estimated.map(|entropy| entropy.clamp(low, high)), low, high))
    }
}
