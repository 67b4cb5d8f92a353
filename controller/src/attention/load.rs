//! How full an encoder may be.
//!
//! Peeling succeeds almost surely below a threshold that only the number of arrays fixes, and fails
//! above it; how sharp the step is depends on the number of buckets (appendix A.3 of the
//! ChameleMon paper, and its footnotes 2 and 3). So the band to aim at is the paper's 60 to 70 %
//! for large encoders of three arrays, and lower for small ones, whose step is soft.

use calumma_sketch::Layout;

/// Flows a bucket at which an encoder of 2, 3, 4 or 5 arrays and endless length stops decoding.
const THRESHOLDS: [f64; 4] = [0.5, 0.818, 0.772, 0.702];

/// Width of the step: how far below the threshold an encoder of one bucket would have to stay, for
/// one failure in some ten thousand epochs.
const SAFE: f64 = 4.5;

/// The same for one failure in some hundred epochs: the most that a healthy network may load the
/// largest HL encoder with before its losses are sampled.
const FULL: f64 = 3.2;

/// The same for coming back from there.
const RELIEVED: f64 = 4.2;

/// What a change aims at in a large encoder of three arrays: just below the paper's 70 %.
const AIM: f64 = 0.69;

/// Flows a bucket, over all arrays, between which an encoder is well used and decodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Band {
    /// Below this, memory lies idle.
    pub(super) low: f64,
    /// What a change aims at.
    pub(super) aim: f64,
    /// Above this, a small growth would make decoding fail.
    pub(super) high: f64,
}

impl Band {
    /// The band of an encoder with `buckets` buckets an array.
    pub(super) fn of(layout: &Layout, buckets: u32) -> Self {
        let threshold = threshold(layout);
        let paper = threshold / THRESHOLDS[1];
        let safe = below_threshold(layout, buckets, SAFE);
        let scale = paper.min(safe / AIM);
        Self { low: 0.65 * scale, aim: AIM * scale, high: 0.725 * scale }
    }

    /// A band with more room on both sides: for what is foretold and has not been measured.
    pub(super) fn wider(self) -> Self {
        Self { low: self.low * 0.92, aim: self.aim, high: self.high * 1.08 }
    }
}

/// Fewest empty buckets from which flows are counted: fewer say no more than "at least".
const EMPTY: f64 = 3.0;

/// Highest load factor that the empty buckets of an encoder of `buckets` buckets an array can tell.
pub(super) fn countable(layout: &Layout, buckets: u32) -> f64 {
    let total = f64::from(layout.arrays) * f64::from(buckets.max(1));
    (total / EMPTY).ln().max(0.0) / f64::from(layout.arrays)
}

fn threshold(layout: &Layout) -> f64 {
    THRESHOLDS[(layout.arrays.clamp(2, 5) - 2) as usize]
}

fn below_threshold(layout: &Layout, buckets: u32, width: f64) -> f64 {
    let threshold = threshold(layout);
    let total = f64::from(layout.arrays) * f64::from(buckets.max(1));
    (threshold - width / total.sqrt()).max(threshold / 4.0)
}

/// Flows that an encoder of `buckets` buckets an array holds at a load factor.
pub(super) fn flows_at(layout: &Layout, buckets: u32, load: f64) -> f64 {
    f64::from(layout.arrays) * f64::from(buckets) * load
}

/// Load factor of `flows` in an encoder of `buckets` buckets an array.
pub(super) fn load_of(layout: &Layout, buckets: u32, flows: f64) -> f64 {
    flows / (f64::from(layout.arrays) * f64::from(buckets.max(1)))
}

/// Buckets an array in which `flows` make the load that a change aims at.
pub(super) fn buckets_for(layout: &Layout, flows: f64) -> u32 {
    let at = |aim: f64| (flows / (f64::from(layout.arrays) * aim)).ceil() as u32;
    // The aim depends on the size. This closes in on it from both sides, last from above.
    let mut buckets = at(Band::of(layout, u32::MAX).aim);
    for _ in 0..5 {
        buckets = at(Band::of(layout, buckets).aim);
    }
    buckets
}

/// Most victim flows that an HL encoder of `buckets` buckets an array can hold for a network to stay
/// healthy.
pub(super) fn full(layout: &Layout, buckets: u32) -> f64 {
    flows_at(layout, buckets, below_threshold(layout, buckets, FULL))
}

/// Most victim flows at which an ill network is taken for healthy again.
pub(super) fn relieved(layout: &Layout, buckets: u32) -> f64 {
    flows_at(layout, buckets, below_threshold(layout, buckets, RELIEVED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_encoders_are_filled_to_the_papers_load_and_small_ones_less() {
        let layout = Layout::default();
        let large = Band::of(&layout, 3584);
        assert!(large.low > 0.6 && large.aim < 0.7 && large.high < 0.75, "{large:?}");
        assert!(Band::of(&layout, 64).aim < 0.55);
        let two = Layout { arrays: 2, ..Layout::default() };
        assert!(Band::of(&two, 4096).high < 0.5);
    }

    #[test]
    fn buckets_for_a_number_of_flows_hold_them_at_the_wanted_load() {
        let layout = Layout::default();
        for flows in [1.0, 50.0, 1_000.0, 6_000.0] {
            let buckets = buckets_for(&layout, flows);
            let load = load_of(&layout, buckets, flows);
            let band = Band::of(&layout, buckets);
            assert!(load <= band.aim * 1.01, "{flows} flows: {buckets} buckets, load {load}");
            assert!(flows < 500.0 || load > band.low, "{flows} flows: {buckets} buckets");
        }
    }

    #[test]
    fn the_papers_downstream_encoder_is_full_between_its_healthy_and_its_ill_networks() {
        let layout = Layout::default();
        assert!(relieved(&layout, 3072) > 7_000.0);
        assert!(full(&layout, 3072) > relieved(&layout, 3072));
        assert!(full(&layout, 3072) < 7_500.0);
    }
}
