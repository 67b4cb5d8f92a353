//! How large flows are: the size distribution (section IV-C of the paper), scaled by the share of
//! flows that is counted, and the entropy.
//!
//! What scales supposes that flows without a count are as large as those with one. Nobody knows
//! that: tables that are full may be those that large flows come to. So each number has bounds
//! that suppose nothing.

use calumma_sketch::estimate;

use crate::coverage::{Coverage, Total};
use crate::flows::Judged;
use crate::report::SizeBin;

/// How many bins there can be.
const BINS: usize = 64;

/// The bin of a size.
fn bin(packets: u64) -> usize {
    packets.max(1).ilog2() as usize
}

/// How many flows there are in each bin up to that of the largest exact count, by those counts, if
/// of the flows that are chosen by their hashes this share has a count, and all others have one;
/// `None` where there may be flows of either kind and none has an exact count.
pub(crate) fn estimate(flows: &[Judged], share: Coverage) -> Option<Vec<f64>> {
    let (mut sizes, mut numbers) = ([[0_u64; BINS]; 2], [[0_u64; 2]; 2]);
    for flow in flows {
        let kind = usize::from(flow.comes_first);
        let [monitored, exact] = &mut numbers[kind];
        *monitored += 1;
        if flow.exact {
            *exact += 1;
            sizes[kind][bin(flow.packets)] += 1;
        }
    }
    let mut all = [0.0; BINS];
    for ((sizes, [monitored, exact]), share) in
        sizes.iter().zip(numbers).zip([share, Coverage::ALL])
    {
        if exact == 0 && (monitored > 0 || share.low < 1.0) {
            return None;
        }
        let share = share.value * exact as f64 / monitored.max(1) as f64;
        let of_each = sizes.iter().zip(&mut all).filter(|(number, _)| **number > 0);
        of_each.for_each(|(&number, all)| *all += number as f64 / share);
    }
    let bins = all.iter().rposition(|flows| *flows > 0.0).map_or(0, |last| last + 1);
    Some(all[..bins].to_vec())
}

/// These numbers of flows by size, with what they are at least and at most: where so many packets,
/// if that is known, may be of any flow with a count, and so many flows have none.
pub(crate) fn within(
    sizes: Vec<f64>,
    flows: &[Judged],
    (uncounted, others): (Option<u64>, f64),
) -> Vec<SizeBin> {
    let (mut low, mut high) = ([0_u64; BINS], [0_i64; BINS + 1]);
    for flow in flows {
        let (least, most) = flow.entered(uncounted);
        let (first, last) = (bin(least), most.map_or(BINS - 1, bin));
        low[first] += u64::from(first == last);
        high[first] += 1;
        high[last + 1] -= 1;
    }
    let mut may_be = 0;
    let of_each = sizes.into_iter().zip(low.iter().zip(&high)).enumerate();
    of_each
        .map(|(bin, (flows, (&low, begin)))| {
            may_be += begin;
            let (low, high) = (low as f64, may_be as f64 + others);
            let flows = flows.clamp(low, high);
            let error = (flows - low).max(high - flows);
            SizeBin { from: 1 << bin, to: (1 << bin) - 1 + (1 << bin), flows, low, high, error }
        })
        .collect()
}

/// The entropy of the packets of all flows, where all of them have an exact count; else `None`: the
/// largest flows decide, and a sample without one of them shows nothing of it.
pub(crate) fn entropy(flows: &[Judged], total: Total) -> Option<f64> {
    let are_all = total.high <= flows.len() as f64 && flows.iter().all(|flow| flow.exact);
    (are_all && !flows.is_empty()).then(|| {
        let sizes: Vec<(u64, f64)> = flows.iter().map(|flow| (flow.packets, 1.0)).collect();
        estimate::entropy(&sizes)
    })
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn exactly(value: f64) -> Coverage {
        Coverage { value, low: value, high: value }
    }

    fn counted(sizes: &[u64]) -> Vec<Judged> {
        sizes.iter().map(|&size| Judged::exactly(size)).collect()
    }

    #[test]
    fn where_all_flows_are_counted_sizes_and_entropy_are_exact() {
        let flows = counted(&[1, 1, 2, 4]);
        let sizes = estimate(&flows, exactly(1.0)).unwrap();
        let bins = within(sizes, &flows, (Some(0), 0.0));
        let bins: Vec<_> =
            bins.iter().map(|bin| [bin.flows, bin.low, bin.high, bin.error]).collect();
        assert_eq!(bins, [[2.0, 2.0, 2.0, 0.0], [1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]]);
        let entropy = |total| entropy(&flows, total);
        assert!((entropy(Total::exactly(4)).unwrap() - 1.75).abs() < 1e-12);
        assert!(entropy(Total::exactly(8)).is_none());
    }

    #[test]
    fn where_no_flow_has_a_size_and_there_are_flows_nothing_is_said() {
        assert_eq!(estimate(&[], exactly(1.0)), Some(Vec::new()));
        let few = Coverage { value: 0.0, low: 0.0, high: 1.0 };
        for share in [exactly(0.0), exactly(0.5), few] {
            assert_eq!(estimate(&[], share), None);
        }
    }

    /// Tables count one flow in two, and of those of more than ten packets one in ten.
    #[test]
    fn the_truth_lies_within_bounds_whichever_flows_are_counted() {
        let mut rng = StdRng::seed_from_u64(1);
        let all: Vec<u64> = (1..=20_000_u64).map(|rank| 1 + 20_000 / rank).collect();
        for of_large in [0.5, 0.1] {
            let chance = |size: u64| if size > 10 { of_large } else { 0.5 };
            let some: Vec<u64> =
                all.iter().copied().filter(|&size| rng.random_bool(chance(size))).collect();
            let flows = counted(&some);
            let share = exactly(some.len() as f64 / all.len() as f64);
            let others = (all.len() - some.len()) as f64;
            let bins = within(estimate(&flows, share).unwrap(), &flows, (Some(9), others));
            for bin in bins {
                let of_bin = |size: &&u64| (bin.from..=bin.to).contains(*size);
                let there = all.iter().filter(of_bin).count() as f64;
                assert!((bin.low..=bin.high).contains(&there), "{bin:?}, {there}");
                assert!((bin.flows - there).abs() <= bin.error, "{bin:?}, {there}");
            }
        }
    }
}
