//! Latencies of one flow at one switch, distinguished by quarters of an octave.

/// Bins of an octave, each 2^(1/4) times as far up as the one before.
const OF_OCTAVE: u32 = 4;

/// Where the second, third and fourth quarter of an octave begin, of values whose highest bit is
/// set: 2^31 times 2^(1/4), 2^(1/2) and 2^(3/4), rounded up.
const BEGINS: [u32; OF_OCTAVE as usize - 1] = [2_553_802_834, 3_037_000_500, 3_611_622_603];

/// Counts of latencies, in nanoseconds, by bins of a quarter of an octave: values of one differ by
/// a factor of less than [`FACTOR`](Self::FACTOR). Counts are exact, and merge by adding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarters {
    bins: [u32; Self::BINS],
}

impl Default for Quarters {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Quarters {
    /// How many bins there are. The first has 0 and 1; three of the lowest are of no whole number.
    pub const BINS: usize = (32 * OF_OCTAVE) as usize;

    /// How many times as long the longest latency of a bin may be as the least, but for the first
    /// one: 2^(1/4), rounded up.
    pub const FACTOR: f64 = 1.189_207_2;

    /// Without any.
    pub const EMPTY: Self = Self { bins: [0; Self::BINS] };

    /// Those with these counts.
    pub fn from_bins(bins: [u32; Self::BINS]) -> Self {
        Self { bins }
    }

    /// The counts.
    pub fn bins(&self) -> &[u32; Self::BINS] {
        &self.bins
    }

    #[inline(always)]
    fn bin(ns: u32) -> usize {
        let ns = ns.max(1);
        let octave = ns.ilog2();
        let normal = ns << (31 - octave);
        let quarter: u32 = BEGINS.iter().map(|&begin| u32::from(normal >= begin)).sum();
        (octave * OF_OCTAVE + quarter) as usize
    }

    /// The smallest and the largest value of a bin that has any.
    fn values(bin: usize) -> (u32, u32) {
        let begin = |bin: u32| {
            let (octave, quarter) = (bin / OF_OCTAVE, bin % OF_OCTAVE);
            let normal = match quarter.checked_sub(1) {
                None => 1 << 31,
                Some(at) => u64::from(BEGINS[at as usize]),
            };
            (normal << octave).div_ceil(1 << 31)
        };
        let bin = bin as u32;
        let from = if bin == 0 { 0 } else { begin(bin) };
        (from as u32, (begin(bin + 1) - 1) as u32)
    }

    /// Counts a latency.
    #[inline(always)]
    pub fn add(&mut self, ns: u32) {
        let bin = &mut self.bins[Self::bin(ns)];
        *bin = bin.saturating_add(1);
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.bins.iter_mut().zip(&other.bins) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.bins.iter().map(|&bin| u64::from(bin)).sum()
    }

    /// Between which latencies the one is that is `rank`th in order of size, the first being 1;
    /// `None` where there are not as many.
    pub fn at_rank(&self, rank: u64) -> Option<(u32, u32)> {
        let mut up_to = 0;
        let bin = self.bins.iter().position(|&bin| {
            up_to += u64::from(bin);
            bin > 0 && up_to >= rank
        })?;
        Some(Self::values(bin))
    }

    /// The least that the longest of them may be; `None` of none.
    pub fn longest(&self) -> Option<u32> {
        let bin = self.bins.iter().rposition(|&bin| bin > 0)?;
        Some(Self::values(bin).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bins_follow_each_other_over_all_values_and_are_narrow() {
        let mut next = 0_u64;
        for bin in 0..Quarters::BINS {
            let (from, to) = Quarters::values(bin);
            if u64::from(to) + 1 == next {
                // There is no whole number in it.
                continue;
            }
            assert_eq!(u64::from(from), next);
            assert_eq!((Quarters::bin(from), Quarters::bin(to)), (bin, bin));
            assert!(bin == 0 || f64::from(to) < f64::from(from) * Quarters::FACTOR, "{from} {to}");
            next = u64::from(to) + 1;
        }
        assert_eq!(next, 1 << 32);
        assert_eq!(Quarters::bin(0), 0);
    }

    proptest! {
        #[test]
        fn what_is_at_a_rank_is_between_its_bounds(
            values in prop::collection::vec((0..32_u32, any::<u32>()), 1..300),
            rank in any::<prop::sample::Index>(),
        ) {
            let mut parts = [Quarters::default(), Quarters::default()];
            let mut all: Vec<u32> = values.iter().map(|(shift, value)| value >> shift).collect();
            for (at, &value) in all.iter().enumerate() {
                parts[at % 2].add(value);
            }
            let [mut merged, other] = parts;
            merged.merge(&other);
            all.sort_unstable();
            let rank = rank.index(all.len());
            let (low, high) = merged.at_rank(rank as u64 + 1).unwrap();
            prop_assert!((low..=high).contains(&all[rank]), "{low} {} {high}", all[rank]);
            prop_assert!(high < 2 || f64::from(high) < f64::from(low) * Quarters::FACTOR);
            prop_assert_eq!(merged.count(), all.len() as u64);
            prop_assert_eq!(merged.at_rank(all.len() as u64 + 1), None);
            prop_assert!(merged.longest().unwrap() <= all[all.len() - 1]);
        }
    }
}
