//! Grades: how switches on a flow's way choose different flows without talking to each other.
//!
//! Every switch grades a flow by the same word of its hashes, [`word`], and by how many switches
//! lie before it, the [hop number](HopRule). The flows of smallest grade are its own. A rule is
//! good when a flow that has a bad grade at one hop has a good one at another (section III-B and C
//! of the paper on cooperative flow selection, CFS). Words and grades are parts of 2^32, where the
//! paper has the unit interval. `docs/contract.md` says them bit for bit.

mod claim;
mod hop;

pub use self::claim::{Chosen, Claims, Ranked, is_claimed};
pub use self::hop::HopRule;

use crate::hash::{HashFamily, Hashes, mixed};
use crate::simd::{Isa, Work};

/// The word that a flow is graded by in a window with this [seed](window_seed). No table of a
/// switch may find its place for the flow by the same lane.
#[inline(always)]
pub fn word(hashes: &Hashes, seed: u32) -> u32 {
    hashes.array_word(3) ^ seed
}

/// The seed of window `window`, so that a flow that no switch chose in one window is graded anew in
/// the next.
pub fn window_seed(window: u64) -> u32 {
    mixed(window) as u32
}

/// Folding (section III-C.2): each hop wants those flows that are in the middle between those that
/// the hops before wanted. Behind hop 16 the hops begin again with the first one.
#[inline(always)]
pub fn fold(word: u32, hop: u8) -> u32 {
    let Some(folds) = hop.checked_sub(1) else { return word.min(!word) };
    (word << (folds % 16)).abs_diff(1 << 31)
}

/// The greedy rule (section III-C.1): each hop wants the flows around a point of its own, one
/// farthest from those of all hops before, the lowest of these.
#[inline(always)]
pub fn greedy(word: u32, hop: u8) -> u32 {
    word.abs_diff(target(hop))
}

/// 1/2, 1/4, 3/4, 1/8, 3/8 and so on.
#[inline(always)]
fn target(hop: u8) -> u32 {
    let number = u32::from(hop) + 1;
    let halvings = number.ilog2();
    let odd = 2 * (number - (1 << halvings)) + 1;
    odd << (31 - halvings)
}

/// Where all switches know how many of them a flow passes: each hop wants the flows around the
/// middle of its share of a circle. A hop from `hops` on begins again with the first one.
#[inline(always)]
pub fn even(word: u32, hop: u8, hops: u8) -> u32 {
    let hops = u64::from(hops.max(1));
    let middle = ((2 * (u64::from(hop) % hops) + 1) << 31) / hops;
    let distance = word.wrapping_sub(middle as u32);
    distance.min(distance.wrapping_neg())
}

/// A grade that has nothing to do with those at other switches, whose salts are others.
#[inline]
pub fn random(family: &HashFamily, word: u32, salt: u32) -> u32 {
    struct LookUp<'a>(&'a HashFamily, u32, u32);

    impl Work for LookUp<'_> {
        type Output = u32;

        #[inline(always)]
        fn work(self, isa: impl Isa) -> u32 {
            random_with(isa, self.0, self.1, self.2)
        }
    }

    family.engine().run(LookUp(family, word, salt))
}

/// As [`random`], within work that already runs on `isa`.
#[inline(always)]
pub fn random_with(isa: impl Isa, family: &HashFamily, word: u32, salt: u32) -> u32 {
    isa.look_up(family.tables(), word ^ salt)[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::HashKey;

    /// 2^40 times the paper's formula, in whole numbers: with `word` / 2^32 for h(x), its modified
    /// hash by the mirror that its example shows (`mirrored`) or by the modulo that its text says.
    fn paper(word: u32, hop: u8, mirrored: bool) -> u64 {
        const ONE: u64 = 1 << 40;
        let h = u64::from(word) << 8;
        let Some(y) = hop.checked_sub(1) else { return h.min(ONE - h) };
        let range = ONE >> y;
        let target = range / 2;
        let within = h % range;
        let modified = if mirrored && h / range % 2 == 1 { range - within } else { within };
        modified.abs_diff(target) << y
    }

    proptest! {
        #[test]
        fn folding_is_the_papers_formula_at_every_hop(word: u32, hop in 0_u8..=8) {
            let grade = u64::from(fold(word, hop)) << 8;
            for mirrored in [false, true] {
                let paper = paper(word, hop, mirrored);
                // At the first hop the distance from 1 is one part of 2^32 less, so that it fits.
                let less = if hop == 0 && word > 1 << 31 { 1 << 8 } else { 0 };
                prop_assert_eq!(grade + less, paper);
            }
        }

        #[test]
        fn hops_behind_the_sixteenth_begin_again(word: u32, hop in 1_u8..=239) {
            prop_assert_eq!(fold(word, hop + 16), fold(word, hop));
        }

        #[test]
        fn even_shares_cover_the_circle(word: u32, hops: u8, hop: u8) {
            let len = u64::from(hops.max(1));
            let best = (0..len).map(|hop| even(word, hop as u8, hops)).min().unwrap();
            // Half a share away from the next middle at most, and one part for rounding.
            prop_assert!(u64::from(best) <= (1 << 31) / len + 1);
            prop_assert_eq!(even(word, hop, hops), even(word, (u64::from(hop) % len) as u8, hops));
        }
    }

    #[test]
    fn each_point_is_as_far_as_can_be_from_those_before() {
        let eighths = [4, 2, 6, 1, 3, 5, 7].map(|eighths| eighths << 29);
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(target), eighths);
        for hop in 1..=255 {
            let nearest =
                |point: u32| (0..hop).map(|other| target(other).abs_diff(point)).min().unwrap();
            // All points so far, the ends, and none but the middles between neighbours can be it.
            let mut points: Vec<u64> = (0..hop).map(|other| target(other).into()).collect();
            points.extend([0, 1 << 32]);
            points.sort_unstable();
            let middles = points.windows(2).map(|pair| ((pair[0] + pair[1]) / 2) as u32);
            assert_eq!(middles.map(nearest).max().unwrap(), nearest(target(hop)), "hop {hop}");
        }
    }

    #[test]
    fn random_grades_of_two_switches_say_nothing_of_each_other() {
        let family = HashFamily::new(&HashKey::from_bytes([3; 32]));
        let family = &family;
        let best = |salt| {
            let low = move |word: &u32| random(family, *word, salt) < 1 << 30;
            (0..40_000_u32).map(|flow| flow.wrapping_mul(0x9E37_79B9)).filter(low)
        };
        let one: std::collections::HashSet<u32> = best(0x1234_5678).collect();
        let both = best(0x8765_4321).filter(|word| one.contains(word)).count();
        assert!(one.len().abs_diff(10_000) < 500, "{} of 40,000", one.len());
        assert!(both.abs_diff(2_500) < 250, "{both} of 40,000 are chosen by both");
    }
}
