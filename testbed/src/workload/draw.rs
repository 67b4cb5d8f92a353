//! Random numbers that depend on nothing but what they are for.

/// A point from which independent numbers are drawn by name: a seed and whatever was mixed into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw(u64);

impl Draw {
    /// The point of a seed.
    pub fn new(seed: u64) -> Self {
        Self(0).of(seed)
    }

    /// The point for `what` from here: a flow, an epoch, a purpose.
    #[must_use]
    pub fn of(self, what: u64) -> Self {
        // The finaliser of SplitMix64, after a step that no two of a point's children share.
        let mut z = self.0.wrapping_add(what.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self(z ^ (z >> 31))
    }

    /// 64 random bits.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// A number from 0 up to, not including, 1.
    pub fn share(self) -> f64 {
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `n`, which must not be 0.
    pub fn below(self, n: u64) -> u64 {
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_even_and_children_of_a_point_differ() {
        let point = Draw::new(7).of(3);
        assert_eq!(point, Draw::new(7).of(3));
        let mut sums = [0; 10];
        for n in 0..10_000 {
            sums[point.of(n).below(10) as usize] += 1;
            assert!((0.0..1.0).contains(&point.of(n).share()));
        }
        assert!(sums.iter().all(|sum| (850..1150).contains(sum)), "{sums:?}");
    }
}
