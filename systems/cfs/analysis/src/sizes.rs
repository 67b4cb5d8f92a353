//! How large flows are: the size distribution (section IV-C of the paper), scaled by the share of
//! flows that is counted, and the entropy.

use calumma_sketch::estimate;

use crate::coverage::{Coverage, Z95};
use crate::report::SizeBin;

/// The share of flows with an exact count, out of all there were.
pub(crate) fn share(exact: u64, monitored: u64, coverage: Coverage) -> Coverage {
    if monitored == 0 {
        return coverage;
    }
    let of_these = exact as f64 / monitored as f64;
    let Coverage { value, low, high } = coverage;
    Coverage { value: value * of_these, low: low * of_these, high: high * of_these }
}

/// Bins that double, up to that of the largest size.
pub(crate) fn bins(sizes: &[u64]) -> usize {
    sizes.iter().max().and_then(|most| most.checked_ilog2()).map_or(0, |bin| bin as usize + 1)
}

/// Flows by size, in so many bins that double, of which a share has these sizes; `None` where there
/// may be flows, and none has a size.
pub(crate) fn distribution(sizes: &[u64], share: Coverage, bins: usize) -> Option<Vec<SizeBin>> {
    if sizes.is_empty() && share.low < 1.0 {
        return None;
    }
    let mut counts = [0_u64; 64];
    sizes.iter().filter(|&&size| size > 0).for_each(|size| counts[size.ilog2() as usize] += 1);
    let counts = counts.iter().enumerate().take(bins);
    let of_each = counts
        .map(|(bin, &count)| {
            let counted = count as f64;
            // As if one more had been counted: a bin without any may have some all the same.
            let chosen = if share.low < 1.0 {
                Z95 * ((counted + 1.0) * (1.0 - share.low)).sqrt()
            } else {
                0.0
            };
            let scaled = |by: f64| if by > 0.0 { counted / by } else { 0.0 };
            let flows = scaled(share.value);
            let by_total = (scaled(share.low) - flows).max(flows - scaled(share.high));
            let error = if share.value > 0.0 { by_total + chosen / share.value } else { 0.0 };
            SizeBin { from: 1 << bin, to: (1 << bin) - 1 + (1 << bin), flows, error }
        })
        .collect();
    Some(of_each)
}

/// What two kinds of flows are together, in as many bins each.
pub(crate) fn together(mut one: Vec<SizeBin>, other: Vec<SizeBin>) -> Vec<SizeBin> {
    for (bin, more) in one.iter_mut().zip(other) {
        bin.flows += more.flows;
        bin.error += more.error;
    }
    one
}

/// The entropy of the packets of all flows, where these are the sizes of all of them; else `None`:
/// the largest flows decide, and a sample without one of them shows nothing of it.
pub(crate) fn entropy(sizes: &[u64], share: Coverage) -> Option<f64> {
    (share.low >= 1.0 && !sizes.is_empty()).then(|| {
        let sizes: Vec<(u64, f64)> = sizes.iter().map(|&size| (size, 1.0)).collect();
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

    fn distribution(sizes: &[u64], share: Coverage) -> Vec<SizeBin> {
        super::distribution(sizes, share, bins(sizes)).unwrap()
    }

    #[test]
    fn where_all_flows_are_counted_sizes_and_entropy_are_exact() {
        let sizes = [1, 1, 2, 4];
        let bins = distribution(&sizes, exactly(1.0));
        let bins: Vec<_> =
            bins.iter().map(|bin| (bin.from, bin.to, bin.flows, bin.error)).collect();
        assert_eq!(bins, [(1, 1, 2.0, 0.0), (2, 3, 1.0, 0.0), (4, 7, 1.0, 0.0)]);
        let entropy = entropy(&sizes, exactly(1.0)).unwrap();
        assert!((entropy - 1.75).abs() < 1e-12);
        assert!(super::entropy(&sizes, exactly(0.5)).is_none());
    }

    #[test]
    fn where_no_flow_has_a_size_and_there_are_flows_nothing_is_said() {
        assert_eq!(super::distribution(&[], exactly(1.0), 0), Some(Vec::new()));
        let few = Coverage { value: 0.0, low: 0.0, high: 1.0 };
        for share in [exactly(0.0), exactly(0.5), few] {
            assert_eq!(super::distribution(&[], share, 3), None);
        }
    }

    #[test]
    fn the_truth_lies_within_the_error_of_a_sample() {
        let mut rng = StdRng::seed_from_u64(1);
        let all: Vec<u64> = (1..=20_000_u64).map(|rank| 1 + 20_000 / rank).collect();
        let truth = distribution(&all, exactly(1.0));
        let mut outside = 0;
        for _ in 0..100 {
            let share = 0.3;
            let some: Vec<u64> = all.iter().copied().filter(|_| rng.random_bool(share)).collect();
            let bins = distribution(&some, exactly(share));
            let is_off =
                |(of_all, bin): (&SizeBin, &SizeBin)| (of_all.flows - bin.flows).abs() > bin.error;
            outside += truth.iter().zip(&bins).filter(|pair| is_off(*pair)).count();
        }
        let bins = 100 * truth.len();
        assert!(outside * 20 <= bins, "{} of {bins} bins", outside);
    }
}
