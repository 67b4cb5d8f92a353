//! How large single flows are, as far as the classifier's counters and the HH flowset tell.
//!
//! A counter holds its flow and a sum of others. How that sum is distributed is known once the size
//! distribution is (compound Poisson), so that Bayes' rule says how likely each size is behind the
//! counters seen: a flow whose counters read 3 and 40 where most flows have one packet has probably
//! one, not three. Elephants in the HH flowset are taken out of the counters first.

use super::Estimate;
use super::mrac::sums_below;
use crate::burst::BURST;
use crate::hash::{HashFamily, Hashes};
use crate::key::Key;
use crate::simd::{Engine, Isa, Work};
use crate::tower::{OVERFLOW, TowerSketch};

/// Rounds of taking flows of the flowset out of each other's counters.
const ROUNDS: usize = 2;

/// The flows of the HH flowset, and the counters that they fall on.
pub(super) struct Flowset {
    /// Of each flow the packets that are in the flowset.
    packets: Vec<u64>,
    /// Their counters, array by array.
    arrays: Vec<Places>,
}

/// The counters of one array that the flows of the flowset fall on, in its order.
struct Places {
    /// Which counters; where [`Known::packets`] has them, once that is there.
    at: Vec<u32>,
    values: Vec<u32>,
}

impl Flowset {
    /// Reads the counters of `flows` and their packets.
    pub(super) fn read<K: Key>(
        family: &HashFamily,
        classifier: &TowerSketch,
        flows: &[(K, u64)],
    ) -> Self {
        let empty = || Places {
            at: Vec::with_capacity(flows.len()),
            values: Vec::with_capacity(flows.len()),
        };
        let mut arrays: Vec<Places> = classifier.levels().map(|_| empty()).collect();
        let (mut keys, mut hashes) = ([K::default(); BURST], [Hashes::default(); BURST]);
        for flows in flows.chunks(BURST) {
            keys.iter_mut().zip(flows).for_each(|(to, flow)| *to = flow.0);
            let hashes = &mut hashes[..flows.len()];
            family.hash_burst(&keys[..flows.len()], hashes);
            for (array, places) in arrays.iter_mut().enumerate() {
                for hashes in &*hashes {
                    let (at, value) = classifier.counter(array, hashes);
                    places.at.push(at as u32);
                    places.values.push(value);
                }
            }
        }
        Self { packets: flows.iter().map(|flow| flow.1).collect(), arrays }
    }

    /// The most packets that each flow has, of which the first `unseen` are not in the flowset.
    pub(super) fn bounds(&self, unseen: u64) -> Vec<u64> {
        let mut least = vec![OVERFLOW; self.packets.len()];
        for places in &self.arrays {
            least.iter_mut().zip(&places.values).for_each(|(least, value)| {
                *least = (*least).min(*value);
            });
        }
        let bound = |(&packets, least): (&u64, u32)| {
            packets.saturating_add(unseen).min(least.into()).max(packets)
        };
        self.packets.iter().zip(least).map(bound).collect()
    }
}

/// Recorded packets of a flow, its most packets, and those of others.
type Company = (u64, u64, u64);

/// What [`InCompany`] gave before, for a flow's recorded packets, its most packets and
/// those of others: many mice have these in common.
struct Companies {
    /// Each with its company in one word, of which none is zero.
    before: Vec<(u64, Option<Estimate>)>,
    /// Room for a company's weights.
    weights: Vec<Weight>,
}

impl Companies {
    /// A power of two.
    const REMEMBERED: usize = 2048;

    fn new() -> Self {
        Self { before: vec![(0, None); Self::REMEMBERED], weights: Vec::new() }
    }

    /// What `of` gives for `company`, or gave before. Recorded packets are more than none and less
    /// than [`LONGEST`].
    fn get(
        &mut self,
        company: Company,
        of: impl FnOnce(Company, &mut Vec<Weight>) -> Option<Estimate>,
    ) -> Option<Estimate> {
        let (recorded, most, others) = company;
        if most >> 20 != 0 || others >> 33 != 0 {
            return of(company, &mut self.weights);
        }
        let word = recorded << 53 | most << 33 | others;
        let mixed = word.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let entry = &mut self.before[(mixed >> (u64::BITS - Self::REMEMBERED.ilog2())) as usize];
        if entry.0 != word {
            *entry = (word, of(company, &mut self.weights));
        }
        entry.1
    }
}

/// Sizes and sums are told apart below this many packets.
const LONGEST: usize = 1024;

/// What is known of a counter of one flow.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Its value; `None` where it overflowed.
    value: Option<u64>,
    /// Packets of flows known to be in it.
    known: u64,
}

impl Seen {
    /// Of a counter of this `value`, [`OVERFLOW`] where it has overflowed.
    fn new(value: u32, known: u64) -> Self {
        Self { value: (value != OVERFLOW).then_some(value.into()), known }
    }
}

/// What the counters of a flow of the flowset say of it, whatever is known of the others.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// The most packets that it has.
    most: u64,
    /// All packets in its emptiest counter; `u64::MAX` where all overflowed.
    exact: u64,
    /// Whether one of them overflowed: of the packets in it, only those of known flows are known.
    overflowed: bool,
}

/// Other flows in a counter of one array.
#[derive(Clone, Debug)]
struct Noise {
    /// Probability of each sum of small flows.
    sums: Vec<f64>,
    /// Probability of at least that sum.
    at_least: Vec<f64>,
    /// Half of all counters hold no more of small flows.
    median: u64,
    /// The value at which a counter has overflowed.
    max: u64,
}

impl Noise {
    fn new(small: &[f64], counters: u32, max: u32) -> Self {
        let rates: Vec<f64> = small.iter().map(|flows| flows / f64::from(counters)).collect();
        let sums = sums_below(LONGEST, &rates);
        let mut below = 0.0;
        let at_least: Vec<f64> = sums
            .iter()
            .map(|sum| {
                let rest = 1.0_f64 - below;
                below += sum;
                rest.max(0.0)
            })
            .collect();
        let median = at_least.iter().skip(1).take_while(|&&rest| rest > 0.5).count() as u64;
        Self { sums, at_least, median, max: max.into() }
    }

    /// How likely a counter is to be seen like this around a flow of `size` packets, but for a
    /// factor that is the same for all sizes.
    fn likelihood(&self, seen: &Seen, size: usize) -> f64 {
        match seen.value {
            Some(value) => {
                let rest = value.saturating_sub(seen.known) as usize;
                // A sum that large has an unknown elephant in it, whatever the flow's own size.
                if rest >= LONGEST {
                    1.0
                } else {
                    rest.checked_sub(size).map_or(0.0, |r| self.sums[r])
                }
            }
            None => {
                let lacking = self.max.saturating_sub(seen.known) as usize;
                self.at_least[lacking.saturating_sub(size).min(LONGEST - 1)]
            }
        }
    }
}

/// Packets of known flows in the counters of one array.
#[derive(Clone, Debug)]
struct Known {
    /// For every 64 counters a bit for each that known flows fall on, and how many there are
    /// before.
    hit: Vec<(u64, u32)>,
    /// Packets in each such counter.
    packets: Vec<u64>,
}

impl Known {
    /// No packets yet, in the counters `hit` of an array.
    fn new(counters: u32, hit: &[u32]) -> Self {
        let mut words = vec![(0_u64, 0_u32); counters.div_ceil(64) as usize];
        hit.iter().for_each(|&at| words[at as usize / 64].0 |= 1 << (at % 64));
        let mut before = 0;
        for word in &mut words {
            word.1 = before;
            before += word.0.count_ones();
        }
        Self { hit: words, packets: vec![0; before as usize] }
    }

    fn slot(&self, at: usize) -> Option<usize> {
        let ((hit, before), bit) = (self.hit[at / 64], 1_u64 << (at % 64));
        (hit & bit != 0).then(|| (before + (hit & (bit - 1)).count_ones()) as usize)
    }

    fn packets(&self, at: usize) -> u64 {
        self.slot(at).map_or(0, |slot| self.packets[slot])
    }
}

/// What the counters of a classifier say of any flow.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Flows of each size, of which larger ones are told from among their neighbours.
    prior: Vec<f64>,
    arrays: Vec<Noise>,
    /// Packets of the flowset, array by array.
    known: Vec<Known>,
}

impl Sizes {
    /// From the distribution of all flows, ascending. Those of at least `known_from` packets are in
    /// the `flowset`.
    pub(super) fn new(
        classifier: &TowerSketch,
        distribution: &[(u64, f64)],
        known_from: u64,
        flowset: &Flowset,
    ) -> Self {
        let mut flows = vec![0.0; LONGEST];
        for &(size, more) in distribution {
            if let Some(cell) = flows.get_mut(size as usize) {
                *cell += more;
            }
        }
        let prior = smoothed(&flows);
        flows.truncate(known_from.min(LONGEST as u64) as usize);
        let noise = |level: crate::Level| Noise::new(&flows, level.counters, level.max());
        let arrays: Vec<Noise> = classifier.levels().map(noise).collect();
        let levels = classifier.levels().zip(&flowset.arrays);
        let known = levels.map(|(level, places)| Known::new(level.counters, &places.at)).collect();
        Self { prior, arrays, known }
    }

    /// The sizes of the flows of the flowset, in its order, the first `unseen` packets of their
    /// counters not being recorded; and the nearest whole numbers. `own` is what they are taken for
    /// to begin with.
    pub(super) fn of_flowset(
        &mut self,
        mut flowset: Flowset,
        unseen: u64,
        mut own: Vec<u64>,
    ) -> (Vec<Estimate>, Vec<u64>) {
        for (known, places) in self.known.iter().zip(&mut flowset.arrays) {
            for at in &mut places.at {
                *at = known.slot(*at as usize).expect("a counter of the flowset") as u32;
            }
        }
        let counted = self.counted(&flowset, unseen);
        let mut companies = Companies::new();
        let mut estimates: Vec<Estimate> = Vec::with_capacity(counted.len());
        for round in 0..ROUNDS {
            // What other flows are taken for is asked where counters overflowed only.
            self.know(&flowset, &own, |places| places.values.contains(&OVERFLOW));
            for (flow, (&packets, counted)) in flowset.packets.iter().zip(&counted).enumerate() {
                if round > 0 && !counted.overflowed {
                    continue;
                }
                let guessed = match counted.overflowed {
                    true => self.guessed(&flowset, flow, own[flow], unseen),
                    false => u64::MAX,
                };
                let estimate = self.of_recorded(packets, *counted, guessed, unseen, &mut companies);
                match round {
                    0 => estimates.push(estimate),
                    _ => estimates[flow] = estimate,
                }
                // Of no flow is it asked again in this round.
                own[flow] = estimate.rounded();
            }
        }
        self.know(&flowset, &own, |_| true);
        (estimates, own)
    }

    /// The arrays that kept flows out until they had `unseen` packets, which narrow counters do
    /// not.
    fn telling<'a>(
        &'a self,
        flowset: &'a Flowset,
        unseen: u64,
    ) -> impl Iterator<Item = (&'a Noise, &'a Known, &'a Places)> {
        let arrays = self.arrays.iter().zip(&self.known).zip(&flowset.arrays);
        let arrays = arrays.map(|((noise, known), places)| (noise, known, places));
        arrays.filter(move |(noise, ..)| noise.max > unseen)
    }

    fn counted(&self, flowset: &Flowset, unseen: u64) -> Vec<Counted> {
        let nothing = |packets: &u64| Counted {
            most: packets.saturating_add(unseen),
            exact: u64::MAX,
            overflowed: false,
        };
        let mut counted: Vec<Counted> = flowset.packets.iter().map(nothing).collect();
        for (.., places) in self.telling(flowset, unseen) {
            for (counted, &value) in counted.iter_mut().zip(&places.values) {
                let overflowed = value == OVERFLOW;
                let value = if overflowed { u64::MAX } else { value.into() };
                counted.exact = counted.exact.min(value);
                counted.overflowed |= overflowed;
            }
        }
        counted.iter_mut().for_each(|counted| counted.most = counted.most.min(counted.exact));
        counted
    }

    /// Other packets in the emptiest of a flow's counters that overflowed: those that are known,
    /// and what is usual.
    fn guessed(&self, flowset: &Flowset, flow: usize, own: u64, unseen: u64) -> u64 {
        let telling = self.telling(flowset, unseen).filter(|(.., at)| at.values[flow] == OVERFLOW);
        let others = telling.map(|(noise, known, at)| {
            known.packets[at.at[flow] as usize].saturating_sub(own) + noise.median
        });
        others.min().unwrap_or(u64::MAX)
    }

    /// Takes for known, in the arrays that are `asked`, that the flows of the flowset have so many
    /// packets, and nothing of others any more.
    fn know(&mut self, flowset: &Flowset, own: &[u64], asked: impl Fn(&Places) -> bool) {
        let arrays = self.known.iter_mut().zip(&flowset.arrays);
        for (known, places) in arrays.filter(|(_, places)| asked(places)) {
            known.packets.fill(0);
            for (&slot, packets) in places.at.iter().zip(own) {
                known.packets[slot as usize] += packets;
            }
        }
    }

    /// The size of a flow that is not in the flowset and has less than `below` packets: that of
    /// least expected relative error, and the root of the expected square error.
    pub(super) fn of_other(
        &self,
        classifier: &TowerSketch,
        hashes: &Hashes,
        below: u64,
    ) -> Estimate {
        let seen = |(array, known): (usize, &Known)| {
            let (at, value) = classifier.counter(array, hashes);
            Seen::new(value, known.packets(at))
        };
        let seen: Vec<Seen> = self.known.iter().enumerate().map(seen).collect();
        let bound = seen.iter().filter_map(|seen| seen.value).min().unwrap_or(u64::MAX);
        if bound == 0 {
            return Estimate { value: 0.0, standard_error: Some(0.0) };
        }
        if bound == u64::MAX && below == u64::MAX {
            // All its counters overflowed, be it by this flow or by others.
            return Estimate { value: self.most_told() as f64, standard_error: None };
        }
        let most = bound.min(below - 1);
        let weights: Vec<Weight> = (1..LONGEST.min(most as usize + 1))
            .map(|size| {
                let behind =
                    self.arrays.iter().zip(&seen).map(|(a, seen)| a.likelihood(seen, size));
                Weight::new(size as f64, self.prior[size] * behind.product::<f64>())
            })
            .collect();
        let total: f64 = weights.iter().map(|weight| weight.weight).sum();
        if total > 0.0 && most < LONGEST as u64 {
            return least_relative_error(&weights, total);
        }
        // An elephant that the flowset lacks, beside what else is usual in its counters.
        let beside = self.arrays.iter().map(|array| array.median).min().unwrap_or(0);
        let value = bound.saturating_sub(beside).clamp(1, most) as f64;
        Estimate { value, standard_error: Some((beside as f64).max(1.0)) }
    }

    /// The largest size that a counter can show.
    fn most_told(&self) -> u64 {
        self.arrays.iter().map(|array| array.max).max().unwrap_or(0)
    }

    /// The size of a flow of which `recorded` packets are in the flowset, the first `unseen`
    /// packets of its counters not being recorded. `guessed` is what others have in the emptiest of
    /// its counters that overflowed.
    ///
    /// All flows of a counter are taken to send evenly over the epoch. With A packets of others in
    /// the emptiest counter, a flow of S packets has sent its share S / (S + A) of `unseen` when
    /// the counter reaches that, so recorded = S - unseen S / (S + A).
    fn of_recorded(
        &self,
        recorded: u64,
        Counted { most, exact, .. }: Counted,
        guessed: u64,
        unseen: u64,
        companies: &mut Companies,
    ) -> Estimate {
        if most <= recorded {
            return Estimate { value: recorded as f64, standard_error: Some(0.0) };
        }
        // A counter of value V has V - S others; S + A = V then, and S follows without a root.
        let (c, k) = (recorded as f64, unseen as f64);
        let by_value =
            if exact == u64::MAX { None } else { Some(c / (1.0 - (k / exact as f64).min(1.0))) };
        let by_guess = (guessed != u64::MAX).then(|| {
            let half = (guessed as f64 - k - c) / 2.0;
            (half * half + c * guessed as f64).sqrt() - half
        });
        // The emptier counter decides, and that gives the larger flow.
        let fluid = by_value.into_iter().chain(by_guess).fold(c, f64::max).min(most as f64);
        let others = exact.saturating_sub(fluid as u64).min(guessed);
        if others >= unseen
            && fluid < LONGEST as f64
            && let Some(estimate) = companies.get((recorded, most, others), |company, weights| {
                let prior = &self.prior;
                Engine::detect().run(InCompany { company, unseen, prior, weights })
            })
        {
            return estimate;
        }
        let share = (k / (fluid + others as f64)).min(1.0);
        let spread = (others as f64 * share * (1.0 - share)).sqrt().min(most as f64 - c);
        Estimate { value: fluid, standard_error: Some(spread) }
    }
}

/// A flow in company of at least as many packets as go `unseen`: each of its packets was late
/// enough to be recorded with a like probability, and mice are likelier than larger flows.
struct InCompany<'a> {
    company: Company,
    unseen: u64,
    /// [`Sizes::prior`].
    prior: &'a [f64],
    /// Room for the weights.
    weights: &'a mut Vec<Weight>,
}

impl Work for InCompany<'_> {
    type Output = Option<Estimate>;

    #[inline(always)]
    fn work(self, _isa: impl Isa) -> Option<Estimate> {
        let Self { company: (recorded, most, others), unseen, prior, weights } = self;
        weights.clear();
        // Ways to choose the recorded packets among all, grown with the size.
        let mut choices = 1.0_f64;
        // Less than LONGEST, all of them.
        let (first, end) = (recorded as usize, (most as usize + 1).min(LONGEST));
        for (block, prior) in prior[first..end].chunks(LANES).enumerate() {
            let missed = |lane: usize| block * LANES + lane;
            let sizes = lanes(|lane| (first + missed(lane)) as f64);
            let more = lanes(|lane| sizes[lane] / missed(lane).max(1) as f64);
            let early = lanes(|lane| unseen as f64 / (others as f64 + sizes[lane]));
            let late = powers(lanes(|lane| (1.0 - early[lane]).max(0.0)), |_| first);
            let early = powers(early, missed);
            let weighed = weights.len();
            for (lane, prior) in prior.iter().enumerate() {
                if missed(lane) > 0 {
                    choices *= more[lane];
                }
                let weight = prior * (choices * late[lane] * early[lane]);
                weights.push(Weight { size: sizes[lane], weight, by_size: 0.0 });
            }
            for weight in &mut weights[weighed..] {
                weight.by_size = weight.weight / weight.size;
            }
        }
        let total: f64 = weights.iter().map(|weight| weight.weight).sum();
        (total.is_finite() && total > 0.0).then(|| least_relative_error(weights, total))
    }
}

/// Sizes that are worked on side by side: one or a few vectors of them.
const LANES: usize = 8;

#[inline(always)]
fn lanes(f: impl Fn(usize) -> f64) -> [f64; LANES] {
    let mut lanes = [0.0; LANES];
    for (at, lane) in lanes.iter_mut().enumerate() {
        *lane = f(at);
    }
    lanes
}

/// Each lane raised to its power, by squares.
#[inline(always)]
fn powers(mut bases: [f64; LANES], power: impl Fn(usize) -> usize) -> [f64; LANES] {
    let mut powers = [1.0; LANES];
    let mut rest = power(0) | power(LANES - 1);
    for bit in 0.. {
        powers = lanes(|at| powers[at] * if power(at) >> bit & 1 == 1 { bases[at] } else { 1.0 });
        rest >>= 1;
        if rest == 0 {
            break;
        }
        bases = lanes(|at| bases[at] * bases[at]);
    }
    powers
}

/// How likely a size is, but for a factor that is the same for all sizes.
#[derive(Clone, Copy, Debug)]
struct Weight {
    size: f64,
    weight: f64,
    /// The weight over the size.
    by_size: f64,
}

impl Weight {
    fn new(size: f64, weight: f64) -> Self {
        Self { size, weight, by_size: weight / size }
    }
}

/// The mean of each size and its neighbours within an eighth of it: few flows of a size tell little
/// of how many another epoch would have.
fn smoothed(flows: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0];
    flows.iter().for_each(|flows| sums.push(sums[sums.len() - 1] + flows));
    let mean = |size: usize| {
        let (from, to) = (size - size / 8, (size + size / 8 + 1).min(flows.len()));
        (sums[to] - sums[from]) / (to - from) as f64
    };
    (0..flows.len()).map(mean).collect()
}

/// The size of least expected relative error, that is their median weighted once more by 1 / size,
/// and the root of its expected square error.
#[inline(always)]
fn least_relative_error(weights: &[Weight], total: f64) -> Estimate {
    let mut half: f64 = weights.iter().map(|weight| weight.by_size).sum::<f64>() / 2.0;
    let mut value = weights[0].size;
    for weight in weights {
        value = weight.size;
        half -= weight.by_size;
        if half <= 0.0 {
            break;
        }
    }
    let square = |weight: &Weight| weight.weight * (weight.size - value) * (weight.size - value);
    let square: f64 = weights.iter().map(square).sum();
    Estimate { value, standard_error: Some((square / total).sqrt()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_raised_to_their_powers() {
        let bases = lanes(|lane| 0.1 + 0.13 * lane as f64);
        for first in [0, 1, 8, 640] {
            let own = powers(bases, |lane| first + lane);
            let same = powers(bases, |_| first);
            for lane in 0..LANES {
                let close = |power: f64, to: usize| {
                    let right = bases[lane].powi(to as i32);
                    (power - right).abs() <= 1e-13 * right
                };
                assert!(close(own[lane], first + lane) && close(same[lane], first), "{first}");
            }
        }
    }
}
