//! Choosing a threshold by the load that it would make.

use super::load::Band;

/// A threshold is lowered only where it would make this share of the load aimed at: what is
/// foretold is not that exact, and a step up and down again is worse than a little memory that lies
/// idle.
const DOUBT: f64 = 0.97;

/// The threshold that should follow `standing`, given the load factor that each would make (falling
/// with the threshold, but for small errors). It stays where the load lies within the band, and
/// where no lower one would fit.
///
/// `least` and `most` bound it. It is only lowered where `may_lower`.
pub(super) fn choose(
    load_at: impl Fn(u32) -> f64,
    standing: u32,
    (least, most): (u32, u32),
    band: Band,
    may_lower: bool,
) -> u32 {
    let standing = standing.clamp(least, most.max(least));
    let load = load_at(standing);
    if load > band.high {
        smallest(&load_at, (standing, most), band.aim)
    } else if load < band.low && may_lower {
        let aim = band.aim * DOUBT;
        let lower = smallest(&load_at, (least, standing), aim);
        // A correction learned at one threshold may deny it though the next is allowed.
        if load_at(lower) <= aim { lower } else { standing }
    } else {
        standing
    }
}

/// The smallest threshold within the bounds (`most` if none) that makes a load of `aim` or less.
fn smallest(load_at: impl Fn(u32) -> f64, (least, most): (u32, u32), aim: f64) -> u32 {
    let (mut fits, mut too_low) = (most, least.saturating_sub(1));
    while fits - too_low > 1 {
        let middle = too_low + (fits - too_low) / 2;
        if load_at(middle) <= aim { fits = middle } else { too_low = middle }
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAND: Band = Band { low: 0.6, aim: 0.68, high: 0.7 };

    fn from(standing: u32, flows: f64) -> u32 {
        choose(|t| flows / f64::from(t), standing, (1, 1000), BAND, true)
    }

    #[test]
    fn it_moves_in_one_step_to_the_smallest_that_fits() {
        assert_eq!(from(1, 68.0), 100);
        assert_eq!(from(900, 68.0), 104, "a little less than what raising it aims at");
        assert_eq!(from(900, 1e9), 1000, "the most there is");
        assert_eq!(from(7, 0.1), 1);
    }

    #[test]
    fn it_stays_within_the_band_and_where_one_less_is_too_much() {
        assert_eq!(from(97, 67.0), 97);
        assert_eq!(from(2, 1.0), 2, "load 0.5; one less would make 1.0");
        let cautious = |t: u32| 0.1 / f64::from(t);
        assert_eq!(choose(cautious, 7, (1, 1000), BAND, false), 7);
    }
}
