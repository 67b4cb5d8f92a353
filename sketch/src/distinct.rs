//! How many different flows there were, over any number of switches: HyperLogLog (Flajolet and
//! others, 2007), with the estimator of Ertl (2017), which needs no corrections for few flows.

use crate::estimate::Estimate;
use crate::hash::Hashes;

/// Bits of a hash.
const HASH: u8 = 64;

/// Registers, of which each keeps the longest run of zeros among the hashes that fall on it.
///
/// Registers of two switches are merged by taking the larger ones; a flow that both saw counts
/// once. With m registers the standard error is 1.04 / sqrt(m) of the number: 1.6 % with 4096.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HyperLogLog {
    registers: Box<[u8]>,
    bits: u8,
}

impl HyperLogLog {
    /// 2^4 registers give no more than an idea of the number.
    pub const LEAST_BITS: u8 = 4;

    /// 2^16 registers tell the number to 0.4 %.
    pub const MOST_BITS: u8 = 16;

    /// 2^`bits` registers, all zero; [`LEAST_BITS`](Self::LEAST_BITS) to
    /// [`MOST_BITS`](Self::MOST_BITS), what lies beyond being brought to the next of these.
    pub fn new(bits: u8) -> Self {
        let bits = bits.clamp(Self::LEAST_BITS, Self::MOST_BITS);
        Self { registers: vec![0; 1 << bits].into_boxed_slice(), bits }
    }

    /// The sketch of these registers; `None` where their number is not one that sketches have, or
    /// one has a value that no hash gives.
    pub fn from_registers(registers: Vec<u8>) -> Option<Self> {
        let bits = registers.len().is_power_of_two().then(|| registers.len().ilog2() as u8)?;
        let most = HASH - bits.min(HASH - 1) + 1;
        let fits = (Self::LEAST_BITS..=Self::MOST_BITS).contains(&bits)
            && registers.iter().all(|&register| register <= most);
        fits.then(|| Self { registers: registers.into_boxed_slice(), bits })
    }

    /// The registers. Each has six bits.
    pub fn registers(&self) -> &[u8] {
        &self.registers
    }

    /// The logarithm of their number.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Notes a flow. One cache line.
    #[inline(always)]
    pub fn insert(&mut self, hashes: &Hashes) {
        let word = u64::from(hashes.array_word(0)) << 32 | u64::from(hashes.array_word(1));
        let at = (word >> (HASH - self.bits)) as usize;
        // A bit behind the last one ends the run of zeros.
        let rest = word << self.bits | 1 << (self.bits - 1);
        if let Some(register) = self.registers.get_mut(at) {
            *register = (*register).max(rest.leading_zeros() as u8 + 1);
        }
    }

    /// Adds the flows that `other` has noted; false, and nothing changes, where it has another
    /// number of registers.
    #[must_use]
    pub fn merge(&mut self, other: &Self) -> bool {
        let fits = self.bits == other.bits;
        if fits {
            for (register, &other) in self.registers.iter_mut().zip(&other.registers) {
                *register = (*register).max(other);
            }
        }
        fits
    }

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.registers.fill(0);
    }

    /// How many different flows were noted.
    pub fn estimate(&self) -> Estimate {
        let m = self.registers.len() as f64;
        let longest = usize::from(HASH - self.bits) + 1;
        let mut counts = [0.0; HASH as usize + 1];
        for &register in &self.registers {
            counts[usize::from(register).min(longest)] += 1.0;
        }
        let mut z = m * tau(1.0 - counts[longest] / m);
        for count in counts[1..longest].iter().rev() {
            z = 0.5 * (z + count);
        }
        z += m * sigma(counts[0] / m);
        let value = m * m / (2.0 * std::f64::consts::LN_2 * z);
        Estimate { value, standard_error: Some(1.04 / m.sqrt() * value) }
    }
}

/// Flows that were noted beyond known ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// About so many.
    pub value: f64,
    /// At least so many, 95 times out of 100.
    pub low: f64,
    /// At most so many, 95 times out of 100.
    pub high: f64,
}

/// Standard errors to either side that hold the truth 95 times out of 100.
const Z95: f64 = 1.96;

impl HyperLogLog {
    /// How many different flows were noted beyond those of `known`, whose registers are of flows
    /// that all were noted; `None` where it has another number of registers.
    ///
    /// A register that is larger than that of the known flows shows another flow. One that is not
    /// says that no other flow there had a longer run of zeros. So the error falls with the flows
    /// that are not known, where that of [`estimate`](Self::estimate) does not: with m registers
    /// it is about that of m / n such flows for each of the n in all.
    ///
    /// Which flows are known must not hang on the words that registers follow from.
    pub fn beyond(&self, known: &Self) -> Option<Beyond> {
        if self.bits != known.bits {
            return None;
        }
        let m = self.registers.len() as f64;
        // Flows that are not known come to a register at a rate; the largest run of theirs there
        // is at most v with probability exp(-rate * weight(v)).
        let longest = HASH - self.bits + 1;
        let weight = |run: u8| if run < longest { f64::exp2(-f64::from(run)) } else { 0.0 };
        let (mut larger, mut all) = (0.0, 0.0);
        let mut runs = [0.0; HASH as usize + 1];
        for (&run, &of_known) in self.registers.iter().zip(&known.registers) {
            all += weight(run);
            if run > of_known {
                larger += 1.0;
                runs[usize::from(run.min(longest))] += 1.0;
            }
        }
        if larger == 0.0 {
            // All of so many are where their runs show nothing, 39 times out of 40.
            let high = -f64::ln(0.025) / -f64::ln_1p(-(all / m).clamp(1e-30, 1.0));
            return Some(Beyond { value: 0.0, low: 0.0, high });
        }
        // Registers that are larger, by what each of their runs weighs.
        let of_runs = (1..=longest).zip(&runs[1..]).filter(|(_, number)| **number > 0.0);
        let of_runs =
            || of_runs.clone().map(|(run, &number)| (weight(run - 1) - weight(run), number));
        let slope = |rate: f64| {
            of_runs().map(|(weight, of)| of * weight / f64::exp_m1(rate * weight)).sum::<f64>()
                - all
        };
        let (mut low, mut high) = (0.0_f64, f64::exp2(f64::from(HASH)));
        for _ in 0..200 {
            // Rates of flows are as likely to be far apart as near each other.
            let middle = if low > 0.0 { (low * high).sqrt() } else { high / 1024.0 };
            if slope(middle) > 0.0 {
                low = middle
            } else {
                high = middle
            }
            if low > 0.0 && high / low < 1.0 + 1e-9 || high < 1e-12 {
                break;
            }
        }
        let rate = f64::midpoint(low, high);
        // What is known of the rate is what so many events would say of theirs.
        let events = of_runs()
            .map(|(weight, of)| {
                let half = rate * weight / 2.0;
                let root = if half > 0.0 { half / half.sinh() } else { 1.0 };
                of * root * root
            })
            .sum::<f64>()
            .max(1e-9);
        let (least, most) = events_between(events);
        let value = (m * rate).max(larger);
        let low = (m * rate * least / events).clamp(larger, value);
        let high = (m * rate * most / events).max(value);
        Some(Beyond { value, low, high })
    }
}

/// Between what the mean of events lies of which so many were seen, 95 times out of 100 (Wilson and
/// Hilferty's approximation of the chi-squared distribution).
fn events_between(seen: f64) -> (f64, f64) {
    let bound = |of: f64, z: f64| of * (1.0 - 1.0 / (9.0 * of) + z / (3.0 * of.sqrt())).powi(3);
    (bound(seen, -Z95).max(0.0), bound(seen + 1.0, Z95))
}

/// The share of registers that are zero, and what flows they may have missed: infinite where all
/// are.
fn sigma(share: f64) -> f64 {
    if share == 1.0 {
        return f64::INFINITY;
    }
    let (mut x, mut y, mut z) = (share, 1.0, share);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

/// The same for the share of registers that are not at their largest value.
fn tau(share: f64) -> f64 {
    if share == 0.0 || share == 1.0 {
        return 0.0;
    }
    let (mut x, mut y, mut z) = (share, 1.0, 1.0 - share);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowKey, HashFamily, HashKey};

    fn hashes(family: &HashFamily, flows: std::ops::Range<u32>) -> impl Iterator<Item = Hashes> {
        flows.map(|flow| family.hash(&FlowKey::from_words(0x0A00_0000 + flow, 7, flow << 9, 6)))
    }

    #[test]
    fn the_number_of_flows_is_told_within_its_error_from_none_to_a_million() {
        // Over twenty families, so that the error's size is tested as well as the bias.
        for flows in [0, 1, 10, 1_000, 12_000, 50_000, 200_000] {
            let mut errors = Vec::new();
            for seed in 0..20 {
                let family = HashFamily::new(&HashKey::from_bytes([seed; 32]));
                let mut sketch = HyperLogLog::new(12);
                hashes(&family, 0..flows).for_each(|hashes| sketch.insert(&hashes));
                let estimate = sketch.estimate();
                let error = estimate.value - f64::from(flows);
                errors.push(error / estimate.standard_error.unwrap().max(0.5));
            }
            let mean = errors.iter().sum::<f64>() / 20.0;
            let square = errors.iter().map(|error| error * error).sum::<f64>() / 20.0;
            assert!(mean.abs() < 1.0, "{flows} flows: {mean} standard errors off");
            assert!(square < 2.5, "{flows} flows: {square} times the variance");
        }
    }

    #[test]
    fn a_flow_that_two_switches_saw_counts_once() {
        let family = HashFamily::new(&HashKey::from_bytes([1; 32]));
        let mut sketches = [0..30_000, 20_000..50_000, 0..50_000].map(|flows| {
            let mut sketch = HyperLogLog::new(12);
            hashes(&family, flows).for_each(|hashes| sketch.insert(&hashes));
            sketch
        });
        let [one, other, all] = &mut sketches;
        assert!(one.merge(other));
        assert_eq!(one, all);
        let before = one.clone();
        assert!(!one.merge(&HyperLogLog::new(11)));
        assert_eq!(*one, before);
        one.clear();
        assert_eq!(one.estimate().value, 0.0);
    }

    /// `(truth within the bounds, mean of value / truth, mean width / that of the estimate)` of so
    /// many families.
    fn beyond(known: u32, others: u32, families: u8) -> (u32, f64, f64) {
        let (mut within, mut sum, mut width) = (0, 0.0, 0.0);
        for seed in 0..families {
            let family = HashFamily::new(&HashKey::from_bytes([seed; 32]));
            let (mut all, mut some) = (HyperLogLog::new(10), HyperLogLog::new(10));
            hashes(&family, 0..known).for_each(|hashes| some.insert(&hashes));
            hashes(&family, 0..known + others).for_each(|hashes| all.insert(&hashes));
            let beyond = all.beyond(&some).unwrap();
            let there = f64::from(others);
            assert!(beyond.low <= beyond.value && beyond.value <= beyond.high, "{beyond:?}");
            within += u32::from((beyond.low..=beyond.high).contains(&there));
            sum += beyond.value / there.max(1.0);
            width += (beyond.high - beyond.low)
                / (2.0 * Z95 * all.estimate().standard_error.unwrap().max(1.0));
        }
        (within, sum / f64::from(families), width / f64::from(families))
    }

    #[test]
    fn flows_beyond_the_known_ones_are_told_better_the_fewer_they_are() {
        for (known, others, widest) in [
            (0, 40_000, 1.3),
            (2_000, 38_000, 1.3),
            (20_000, 20_000, 1.0),
            (36_000, 4_000, 0.45),
            (39_600, 400, 0.2),
            (40_000, 0, 0.1),
            (30, 30, 2.5),
            (0, 3, 4.0),
        ] {
            let (within, mean, width) = beyond(known, others, 100);
            assert!(within >= 88, "{known} and {others}: {within} of 100 within the bounds");
            let wanted = if others == 0 { 0.0..=0.0 } else { 0.9..=1.15 };
            assert!(wanted.contains(&mean), "{known} and {others}: {mean} of the truth");
            assert!(width <= widest, "{known} and {others}: {width} times as wide");
        }
    }

    #[test]
    fn where_no_flow_was_noted_there_is_none_beyond() {
        let empty = HyperLogLog::new(10);
        let none = Beyond { value: 0.0, low: 0.0, high: 0.0 };
        assert_eq!(empty.beyond(&empty), Some(none));
        assert_eq!(empty.beyond(&HyperLogLog::new(11)), None);
        // Registers that hold the longest runs only.
        let full = HyperLogLog::from_registers(vec![55; 1 << 10]).unwrap();
        let beyond = full.beyond(&empty).unwrap();
        assert!(beyond.value > 1e12 && beyond.high.is_finite(), "{beyond:?}");
        assert!(full.beyond(&full).unwrap().high > 1e12);
    }

    #[test]
    fn registers_that_no_hash_gives_are_none() {
        assert!(HyperLogLog::from_registers(vec![53; 4096]).is_some());
        assert!(HyperLogLog::from_registers(vec![54; 4096]).is_none());
        for len in [0, 8, 4095, 1 << 17] {
            assert!(HyperLogLog::from_registers(vec![0; len]).is_none(), "{len}");
        }
        let sketch = HyperLogLog::new(1);
        assert_eq!((sketch.bits(), sketch.registers().len()), (4, 16));
        assert_eq!(HyperLogLog::from_registers(sketch.registers().to_vec()), Some(sketch));
    }
}
