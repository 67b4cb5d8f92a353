//! Generators of CRCs that nobody can predict: irreducible polynomials over GF(2), drawn at random.
//!
//! Two keys have the same CRC exactly where its generator divides their difference. A difference of
//! 8n bits is a multiple of at most 8n / 32 of the [`IRREDUCIBLE`] polynomials of degree 32, so
//! whoever does not know the generators hits both with a probability that `docs/contract.md`
//! bounds.

/// How many irreducible polynomials of degree 32 there are: (2^32 - 2^16) / 32.
pub const IRREDUCIBLE: u64 = ((1 << 32) - (1 << 16)) / 32;

/// The first two different irreducible polynomials of degree 32 among `words`. Each word gives the
/// coefficients of x^31 to x^0, of which the last is 1 whatever the word says: every sixteenth such
/// polynomial is irreducible, and all that are come up with the same probability.
pub(crate) fn draw(words: impl FnMut() -> u32) -> [u32; 2] {
    let mut drawn =
        std::iter::repeat_with(words).map(|word| word | 1).filter(|&g| is_irreducible(g));
    let mut next = || drawn.next().unwrap_or_default();
    let first = next();
    loop {
        let second = next();
        if second != first {
            return [first, second];
        }
    }
}

/// Whether x^32 and the terms of `generator` make an irreducible polynomial, by Rabin's test. 2 is
/// the only prime that divides 32: x^(2^16) - x must have no divisor in common with it, and
/// x^(2^32) - x must be a multiple.
pub fn is_irreducible(generator: u32) -> bool {
    const X: u32 = 0b10;
    let powers = |of: u32| (0..16).fold(of, |power, _| square(power, generator));
    let half = powers(X);
    are_coprime(1 << 32 | u64::from(generator), (half ^ X).into()) && powers(half) == X
}

/// The square of a polynomial modulo x^32 + `generator`.
fn square(of: u32, generator: u32) -> u32 {
    // Squaring only moves coefficients apart.
    let spread = (0..32).fold(0_u64, |spread, bit| spread | u64::from(of >> bit & 1) << (2 * bit));
    let modulus = 1 << 32 | u64::from(generator);
    let reduced = (32..63).rev().fold(spread, |rest, degree| {
        if rest >> degree & 1 == 1 { rest ^ modulus << (degree - 32) } else { rest }
    });
    reduced as u32
}

/// Whether 1 is the only common divisor, by Euclid's algorithm.
fn are_coprime(mut one: u64, mut other: u64) -> bool {
    while other != 0 {
        while one != 0 && one.leading_zeros() <= other.leading_zeros() {
            one ^= other << (other.leading_zeros() - one.leading_zeros());
        }
        (one, other) = (other, one);
    }
    one == 1
}

/// The product of two polynomials of degree 32 without its highest term, x^64.
pub(crate) fn product([one, other]: [u32; 2]) -> u64 {
    let other = 1 << 32 | u128::from(other);
    let one = 1 << 32 | u64::from(one);
    (0..33).filter(|bit| one >> bit & 1 == 1).fold(0, |sum, bit| sum ^ (other << bit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::crc::{CASTAGNOLI, ISO_HDLC};

    /// The degrees of the factors of x^32 + `generator`, by trial division.
    fn smallest_factor(generator: u32) -> Option<u64> {
        let rest = |mut of: u64, by: u64| {
            while of != 0 && of.leading_zeros() <= by.leading_zeros() {
                of ^= by << (by.leading_zeros() - of.leading_zeros());
            }
            of
        };
        (2..1 << 17).find(|&by| rest(1 << 32 | u64::from(generator), by) == 0)
    }

    #[test]
    fn rabins_test_agrees_with_trial_division() {
        let mut irreducible = 0;
        // Consecutive numbers have every small factor among them.
        for generator in (0xDEAD_0000..0xDEAD_0100).chain([ISO_HDLC, CASTAGNOLI, 0x8D, 0xC5, 1]) {
            let found = is_irreducible(generator);
            assert_eq!(found, smallest_factor(generator).is_none(), "{generator:#010x}");
            irreducible += u32::from(found);
        }
        assert!(irreducible >= 4, "{irreducible}");
        // The CRC-32 of Ethernet is primitive; CRC-32C has x + 1 as a factor.
        assert!(is_irreducible(ISO_HDLC) && !is_irreducible(CASTAGNOLI));
    }

    #[test]
    fn two_different_ones_are_drawn_in_order() {
        let words = [ISO_HDLC & !1, 2, ISO_HDLC, CASTAGNOLI, 0x8D, 0xC5];
        let irreducible: Vec<u32> =
            words.into_iter().map(|word| word | 1).filter(|&g| is_irreducible(g)).collect();
        assert_eq!(irreducible[..2], [ISO_HDLC, ISO_HDLC]);
        let mut left = words.into_iter();
        assert_eq!(draw(|| left.next().unwrap()), [ISO_HDLC, irreducible[2]]);
    }

    #[test]
    fn every_sixteenth_odd_polynomial_is_irreducible() {
        let mut word = 1_u32;
        let mut next = || {
            word = word.wrapping_mul(0x915F_77F5).wrapping_add(0x1234_567B);
            word ^ word >> 15 | 1
        };
        let found = (0..16_000).filter(|_| is_irreducible(next())).count();
        assert!((900..1100).contains(&found), "{found} of 16000");
        assert_eq!(IRREDUCIBLE, 134_215_680);
    }

    #[test]
    fn products_are_those_of_polynomials() {
        // (x^32 + x + 1) (x^32 + x^2) = x^64 + x^34 + x^33 + x^32 + x^3 + x^2.
        assert_eq!(product([0b11, 0b100]), 1 << 34 | 1 << 33 | 1 << 32 | 1 << 3 | 1 << 2);
    }
}
