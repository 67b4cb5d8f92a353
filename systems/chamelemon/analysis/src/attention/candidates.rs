//! How many flows of an edge would be heavy-hitter candidates at any T_h.
//!
//! A flow becomes a candidate with the first packet at which the classifier takes it for T_h
//! packets large. That is every flow of that size, and smaller ones that share all their counters
//! with others: with more flows than counters, these are most of the candidates at a small T_h, and
//! a plan that forgot them would fail.
//!
//! What shares a counter with a flow is distributed as the counters themselves are, so their
//! histograms show how much a flow is overestimated by.

use calumma_sketch::{TowerSketch, estimate};

/// Shares of counters by what they hold, of one array of the classifier.
#[derive(Clone, Debug, PartialEq)]
struct Tail {
    /// Values, ascending, and the share of counters with that value or a larger one.
    shares: Vec<(u32, f64)>,
}

impl Tail {
    fn of(histogram: Vec<(u32, u32)>) -> Self {
        let all: f64 = histogram.iter().map(|&(_, counters)| f64::from(counters)).sum();
        let mut above = all;
        let share = |(value, counters): (u32, u32)| {
            let share = above / all;
            above -= f64::from(counters);
            (value, share)
        };
        Self { shares: histogram.into_iter().map(share).collect() }
    }

    /// The share of counters that hold at least `value`.
    fn at_least(&self, value: u32) -> f64 {
        let at = self.shares.partition_point(|&(held, _)| held < value);
        self.shares.get(at).map_or(0.0, |&(_, share)| share)
    }
}

/// The flows of one edge in one epoch, for the question how many are candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    /// Number of flows by size, ascending.
    sizes: Vec<(u64, f64)>,
    /// What flows share their counters with, array by array.
    tails: Vec<Tail>,
    /// Packets of the HH candidates since they became some, ascending, and the T_h at which they
    /// did; where all are known.
    decoded: Option<(u32, Vec<u32>)>,
}

impl Candidates {
    /// From an edge's classifier and the packets of each flow in its HH flowset under `t_h`, which
    /// may be partial.
    pub fn new(
        classifier: &TowerSketch,
        t_h: u32,
        hh: impl Iterator<Item = i64>,
        hh_complete: bool,
    ) -> Self {
        let mut packets: Vec<u32> =
            hh.map(|packets| u32::try_from(packets).unwrap_or(u32::MAX)).collect();
        packets.sort_unstable();
        let beyond = packets.iter().map(|&packets| u64::from(packets) + u64::from(t_h) - 1);
        let sizes = estimate::size_distribution(classifier, beyond);
        let levels = 0..classifier.levels().len();
        let tails = levels.map(|level| Tail::of(classifier.histogram(level))).collect();
        Self { sizes, tails, decoded: hh_complete.then_some((t_h, packets)) }
    }

    /// Flows of known sizes, none of which shares its counters: number by size, ascending.
    pub fn from_sizes(sizes: Vec<(u64, f64)>) -> Self {
        Self { sizes, tails: Vec::new(), decoded: None }
    }

    /// Number of flows by size, ascending.
    pub fn sizes(&self) -> &[(u64, f64)] {
        &self.sizes
    }

    /// Flows that are candidates at `t_h`, foretold from sizes and counters alone: those of that
    /// size, and smaller ones that pass for it.
    ///
    /// The latter need packets of others to come before their own last one. For packets spread
    /// evenly over the epoch, a flow of s packets has seen a share of s / (s + k) of what its k
    /// counters will hold of others, in the mean; for flows that come in bursts it is less. How
    /// much less, the planner learns, and multiplies the second number by.
    pub(super) fn foretold(&self, t_h: u32) -> (f64, f64) {
        let t_h = u64::from(t_h);
        let arrays = self.tails.len() as f64;
        let (mut large, mut taken_for) = (0.0, 0.0);
        for &(size, number) in &self.sizes {
            if size >= t_h {
                large += number;
            } else if !self.tails.is_empty() {
                let missing = u32::try_from(t_h - size).unwrap_or(u32::MAX);
                let shared: f64 = self.tails.iter().map(|tail| tail.at_least(missing)).product();
                let size = size as f64;
                taken_for += number * shared * size / (size + arrays);
            }
        }
        (large, taken_for)
    }

    /// Flows that would certainly have been candidates at `t_h`, where the HH flowset tells: each
    /// packet of a candidate raised its counters. Flows that share them raised some further.
    pub(super) fn certain(&self, t_h: u32) -> f64 {
        let Some((from, packets)) = &self.decoded else { return 0.0 };
        let needed = t_h.saturating_sub(*from) + 1;
        (packets.len() - packets.partition_point(|&held| held < needed)) as f64
    }
}

#[cfg(test)]
mod tests {
    use calumma_chamelemon::{Attention, IngressGroup, Layout, Partition};
    use calumma_sketch::{FlowKey, HashFamily, HashKey};
    use rand::rngs::StdRng;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Flows of 1 to some hundred packets, their packets in any order, recorded under `t_h`.
    fn recorded(flows: u32, t_h: u32) -> Candidates {
        let partition = Partition { hh: 60_000, hl: 5_000, ll: 536 };
        let layout =
            Layout { upstream_buckets: 65_536, downstream_buckets: 8_192, ..Layout::default() };
        let attention =
            Attention { t_h, ..Attention { partition, ..Attention::healthy(&layout, 1) } };
        let family = HashFamily::new(&HashKey::from_bytes([5; 32]));
        let mut group = IngressGroup::new(&layout, attention, 7).unwrap();
        let mut rng = StdRng::seed_from_u64(u64::from(flows));
        let mut packets: Vec<u32> = Vec::new();
        for flow in 0..flows {
            let size = (1.0 / rng.random_range(0.003..1.0_f64)).powf(0.9) as usize;
            packets.extend(std::iter::repeat_n(flow, size));
        }
        packets.shuffle(&mut rng);
        for flow in packets {
            let key = FlowKey::from_words(0x0A00_0000, flow, flow << 9, 6);
            group.record(&key, &family.hash(&key));
        }
        let hh = group.upstream().part(&partition.hh_part()).decode(&family);
        assert!(hh.is_complete());
        let packets = hh.flows().iter().map(|&(_, packets)| packets);
        Candidates::new(group.classifier(), t_h, packets, true)
    }

    #[test]
    fn candidates_at_any_threshold_are_foretold_to_some_percent_though_mice_share_counters() {
        for (flows, allowed) in [(5_000, 0.05), (25_000, 0.12)] {
            let truth = recorded(flows, 1);
            for t_h in [1, 2, 3, 5, 9, 20] {
                let real = recorded(flows, t_h).certain(t_h);
                let (large, taken_for) = truth.foretold(t_h);
                let foretold = large + taken_for;
                let error = (foretold / real - 1.0).abs();
                assert!(error < allowed, "{flows} flows, T_h {t_h}: {foretold:.0} for {real}");
            }
        }
    }

    #[test]
    fn a_flowset_tells_how_many_candidates_there_are_at_least_at_higher_thresholds() {
        let at_two = recorded(20_000, 2);
        for (t_h, share) in [(2, 1.0), (3, 0.8), (5, 0.8), (9, 0.85), (20, 0.9)] {
            let real = recorded(20_000, t_h).certain(t_h);
            let certain = at_two.certain(t_h);
            assert!(certain <= real && certain >= share * real, "T_h {t_h}: {certain} of {real}");
        }
    }
}
