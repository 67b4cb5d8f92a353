//! Latencies of a switch, distinguished to 1.6 %.

use super::met::UNKNOWN;

/// Bins of an octave: a bin is at most 1/32 of its smallest value wide.
const OF_OCTAVE: u32 = 32;
const BITS: u32 = OF_OCTAVE.ilog2();

/// Bins of a histogram: one for each of the first 32 nanoseconds, then 32 for each octave.
pub const BINS: usize = ((32 - BITS + 1) * OF_OCTAVE) as usize;

/// Counts of latencies, in nanoseconds, by bins that grow with them. Counts are exact; a quantile
/// is given with a relative error of at most [`Histogram::ERROR`]. Histograms merge by adding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    bins: Box<[u32]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { bins: vec![0; BINS].into_boxed_slice() }
    }
}

impl Histogram {
    /// The most by which a quantile may be wrong, as a share of itself.
    pub const ERROR: f64 = 1.0 / (2 * OF_OCTAVE) as f64;

    /// The histogram of these bins; `None` where there are not [`BINS`].
    pub fn from_bins(bins: Vec<u32>) -> Option<Self> {
        (bins.len() == BINS).then(|| Self { bins: bins.into_boxed_slice() })
    }

    /// Its bins, of which one that holds `u32::MAX` is full.
    pub fn bins(&self) -> &[u32] {
        &self.bins
    }

    #[inline(always)]
    pub(super) fn bin(ns: u32) -> usize {
        if ns < OF_OCTAVE {
            return ns as usize;
        }
        let shift = ns.ilog2() - BITS;
        ((shift + 1) * OF_OCTAVE + (ns >> shift & (OF_OCTAVE - 1))) as usize
    }

    /// The bins of latencies, [`BINS`] for one that is not known. Without a branch, for vectors:
    /// exponent and first digits of a floating-point number are the bin. Digits beyond the first
    /// eight are thinned out, so that none is rounded up to another bin.
    #[inline(always)]
    pub(super) fn places<const N: usize>(latencies: &[u32; N]) -> [u32; N] {
        /// The first digits' bits, beyond those of a bin.
        const REST: u32 = f32::MANTISSA_DIGITS - 1 - BITS;
        /// The bits of 2^4, in whose octave bins would be as wide as half a nanosecond.
        const NONE: u32 = (f32::MAX_EXP as u32 - 1 + BITS - 1) << BITS;
        let mut bins = [0; N];
        for at in 0..N {
            let ns = latencies[at];
            let digits = (ns & !(ns >> 8)) as f32;
            let bin = (digits.to_bits() >> REST).wrapping_sub(NONE);
            let bin = if ns < OF_OCTAVE { ns } else { bin };
            bins[at] = if ns == UNKNOWN { BINS as u32 } else { bin };
        }
        bins
    }

    /// The smallest and the largest value of a bin.
    fn values(bin: usize) -> (u32, u32) {
        let bin = bin as u32;
        if bin < OF_OCTAVE {
            return (bin, bin);
        }
        let shift = bin / OF_OCTAVE - 1;
        let from = (OF_OCTAVE + bin % OF_OCTAVE) << shift;
        (from, from + ((1 << shift) - 1))
    }

    /// Counts a latency.
    #[inline(always)]
    pub fn add(&mut self, ns: u32) {
        let bin = &mut self.bins[Self::bin(ns)];
        *bin = bin.saturating_add(1);
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        self.merge_bins(&other.bins);
    }

    /// The same of its bins.
    pub(super) fn merge_bins(&mut self, bins: &[u32]) {
        for (mine, theirs) in self.bins.iter_mut().zip(bins) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// How many were counted; `None` where a bin is full, so that there may have been more.
    pub fn count(&self) -> Option<u64> {
        let full = self.bins.contains(&u32::MAX);
        (!full).then(|| self.bins.iter().map(|&bin| u64::from(bin)).sum())
    }

    /// The latency that a share `q` of all don't exceed, within [`ERROR`](Self::ERROR) of the
    /// truth; `None` where none was counted, or too many.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let count = self.count().filter(|&count| count > 0)?;
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count);
        let mut below = 0;
        let bin = self.bins.iter().position(|&bin| {
            below += u64::from(bin);
            below >= rank
        })?;
        let (from, to) = Self::values(bin);
        Some((f64::from(from) + f64::from(to)) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bins_follow_each_other_over_all_values() {
        let mut next = 0_u64;
        for bin in 0..BINS {
            let (from, to) = Histogram::values(bin);
            assert_eq!(u64::from(from), next);
            assert_eq!((Histogram::bin(from), Histogram::bin(to)), (bin, bin));
            next = u64::from(to) + 1;
        }
        assert_eq!(next, 1 << 32);
    }

    #[test]
    fn bins_side_by_side_are_the_same() {
        let bounds = (0..BINS).flat_map(|bin| <[u32; 2]>::from(Histogram::values(bin)));
        for ns in bounds.filter(|&ns| ns != UNKNOWN) {
            let both = Histogram::places(&[ns, UNKNOWN]);
            assert_eq!(both, [Histogram::bin(ns) as u32, BINS as u32], "{ns}");
        }
    }

    #[test]
    fn a_full_bin_is_no_number() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.count(), histogram.quantile(0.5)), (Some(0), None));
        histogram.add(70);
        histogram.bins[Histogram::bin(70)] = u32::MAX - 1;
        assert!(histogram.quantile(0.5).is_some());
        histogram.add(70);
        histogram.add(70);
        assert_eq!((histogram.count(), histogram.quantile(0.5)), (None, None));
    }

    proptest! {
        #[test]
        fn quantiles_are_within_their_error(
            mut values in prop::collection::vec((0..32_u32, any::<u32>()), 1..300),
            q in 0.0..=1.0_f64,
        ) {
            let mut parts = [Histogram::default(), Histogram::default()];
            let mut all: Vec<u32> = values.drain(..).map(|(shift, value)| value >> shift).collect();
            for (at, &value) in all.iter().enumerate() {
                parts[at % 2].add(value);
            }
            let [mut merged, other] = parts;
            merged.merge(&other);
            all.sort_unstable();
            let rank = ((q * all.len() as f64).ceil() as usize).max(1);
            let (told, truth) = (merged.quantile(q).unwrap(), f64::from(all[rank - 1]));
            prop_assert!((told - truth).abs() <= Histogram::ERROR * truth, "{} {}", told, truth);
            prop_assert_eq!(merged.count(), Some(all.len() as u64));
            for ns in all.into_iter().filter(|&ns| ns != UNKNOWN) {
                prop_assert_eq!(Histogram::places(&[ns]), [Histogram::bin(ns) as u32]);
            }
        }
    }
}
