//! How full an encoder may be.
//!
//! Where encoders are large, the band to aim at is the paper's 60 to 70 % for three arrays, and as
//! far below the peeling threshold for other numbers of arrays (appendix A.3 of the ChameleMon
//! paper, and its footnotes 2 and 3). Small ones fail at lower loads, since two flows then often
//! share all their buckets; how often is known for every size, and bounds the load further.

use calumma_chamelemon::Layout;

/// How likely an encoder may be not to decode. 0.001 would leave the paper's encoders of 512 and
/// 1024 buckets an array less than half full, and fewer than 8,000 flows decoded of 12,288 buckets.
const FAILURE: f64 = 4e-3;

/// Flows a bucket at which an encoder of 2, 3, 4 or 5 arrays and endless length stops decoding.
const THRESHOLDS: [f64; 4] = [0.5, 0.818, 0.772, 0.702];

/// An ill network counts as healthy again at this share of the victims that turn one ill: they
/// vary from epoch to epoch.
const RELIEVED: f64 = 0.985;

/// Below this, memory of a large encoder of three arrays lies idle.
const LOW: f64 = 0.65;

/// What a change aims at in a large encoder of three arrays: just below the paper's 70 %.
const AIM: f64 = 0.69;

/// What a large encoder of three arrays is left alone up to: numbers of flows vary by some percent
/// from epoch to epoch.
const HIGH: f64 = 0.725;

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
    /// The band of an encoder with `buckets` buckets an array: up to its upper end, it decodes but
    /// for a probability of [`FAILURE`].
    pub(super) fn of(layout: &Layout, buckets: u32) -> Self {
        let paper = paper(layout);
        let decodes = load_of(layout, buckets, decodable(layout, buckets));
        let scale = paper.min(decodes / HIGH);
        Self { low: LOW * scale, aim: AIM * scale, high: HIGH * scale }
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

/// The load factors of three arrays, for those of this layout.
fn paper(layout: &Layout) -> f64 {
    THRESHOLDS[(layout.arrays.clamp(2, 5) - 2) as usize] / THRESHOLDS[1]
}

/// Most flows that an encoder of `buckets` buckets an array decodes, but for a probability of
/// [`FAILURE`].
fn decodable(layout: &Layout, buckets: u32) -> f64 {
    layout.shape(buckets.max(1)).flows_for(FAILURE) as f64
}

/// Flows that an encoder of `buckets` buckets an array holds at a load factor.
pub(super) fn flows_at(layout: &Layout, buckets: u32, load: f64) -> f64 {
    f64::from(layout.arrays) * f64::from(buckets) * load
}

/// Load factor of `flows` in an encoder of `buckets` buckets an array.
pub(super) fn load_of(layout: &Layout, buckets: u32, flows: f64) -> f64 {
    flows / (f64::from(layout.arrays) * f64::from(buckets.max(1)))
}

/// Buckets an array in which `flows` make the load that a change aims at; no more than a switch
/// has.
pub(super) fn buckets_for(layout: &Layout, flows: f64) -> u32 {
    let most = layout.upstream_buckets;
    let used = flows / (f64::from(layout.arrays) * AIM * paper(layout));
    if used >= f64::from(most) {
        return most;
    }
    // The aim lies below what decodes, in proportion.
    let decodable = (flows * HIGH / AIM).ceil() as usize;
    let decodes = layout.shape(most).buckets_for(decodable, FAILURE);
    let decodes = decodes.and_then(|buckets| u32::try_from(buckets).ok()).unwrap_or(most);
    decodes.max(used.ceil() as u32).min(most)
}

/// Most victim flows that an HL encoder of `buckets` buckets an array can hold for a network to
/// stay healthy.
pub(super) fn full(layout: &Layout, buckets: u32) -> f64 {
    decodable(layout, buckets)
}

/// Most victim flows at which an ill network counts as healthy again.
pub(super) fn relieved(layout: &Layout, buckets: u32) -> f64 {
    RELIEVED * full(layout, buckets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_encoders_are_filled_to_the_papers_load_and_small_ones_less() {
        let layout = Layout::default();
        let large = Band::of(&layout, 3584);
        assert!(large.low > 0.6 && large.aim < 0.7 && large.high < 0.75, "{large:?}");
        assert!(Band::of(&layout, 512).aim < 0.65 && Band::of(&layout, 64).aim < 0.25);
        let two = Layout { arrays: 2, ..Layout::default() };
        assert!(Band::of(&two, 4096).high < 0.1, "with two arrays any cycle is a failure");
    }

    #[test]
    fn up_to_the_upper_end_of_its_band_an_encoder_decodes_nearly_always() {
        for arrays in 2..=5 {
            let layout = Layout { arrays, ..Layout::default() };
            for buckets in [1, 16, 128, 512, 1024, 4096] {
                let flows = flows_at(&layout, buckets, Band::of(&layout, buckets).high);
                let failure = layout.shape(buckets).failure_probability((flows + 1e-6) as usize);
                assert!(failure <= FAILURE, "{arrays} arrays of {buckets}: {failure}");
            }
        }
    }

    #[test]
    fn buckets_for_a_number_of_flows_hold_them_at_the_wanted_load() {
        let layout = Layout::default();
        for flows in [1.0, 50.0, 1_000.0, 6_000.0] {
            let buckets = buckets_for(&layout, flows);
            assert!(buckets <= layout.upstream_buckets);
            let load = load_of(&layout, buckets, flows);
            let band = Band::of(&layout, buckets);
            assert!(load <= band.aim * 1.01, "{flows} flows: {buckets} buckets, load {load}");
            assert!(flows < 50.0 || load > band.low, "{flows} flows: {buckets} buckets");
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
