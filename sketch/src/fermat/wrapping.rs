//! Wrapping arithmetic: seven fragments of 15 bits, summed in 32-bit words that wrap.
//!
//! The 104 key bits, first bit first, are cut into six fragments of 15 bits and one of 14. Division
//! by a count with k trailing zero bits loses the k top bits of the quotient; with 15-bit fragments
//! that is no loss up to k = 17, and the fragments' range is itself a check of purity.

use super::bucket::Bucket;
use super::summed::Divided;
use crate::burst::{BURST, Column, Keys, Rows};
use crate::key::FlowKey;
use crate::simd::Isa;

/// Fragments of a key.
pub(super) const FRAGMENTS: usize = 7;

const FRAGMENT_BITS: u32 = 15;

/// What a packet adds, from the big-endian words of its padded key.
#[inline(always)]
fn words([a, b, c, d]: [u32; 4]) -> [u32; 8] {
    let mut words = [
        a >> 17,
        a >> 2,
        a << 13 | b >> 19,
        b >> 4,
        b << 11 | c >> 21,
        c >> 6,
        c << 9 | d >> 24 << 1,
        1,
    ];
    for word in &mut words {
        *word &= 0x7FFF;
    }
    words
}

#[inline(always)]
pub(super) fn unit(key: &FlowKey) -> Bucket {
    Bucket(words(key.padded_words().map(u32::swap_bytes)))
}

/// What every packet of a burst adds: the first four words of each, and the others.
#[inline(always)]
pub(super) fn units(isa: impl Isa, keys: &Keys) -> [Rows; 2] {
    let (mut first, mut second) = ([Column::ZERO; 4], [Column::ZERO; 4]);
    for packet in 0..BURST {
        let words = words(keys.words(packet));
        for (column, word) in first.iter_mut().chain(&mut second).zip(words) {
            column.0[packet] = word;
        }
    }
    [isa.rows(&first), isa.rows(&second)]
}

#[inline(always)]
fn lanes(a: &[u32; 8], op: impl Fn(usize, u32) -> u32) -> Bucket {
    let mut words = [0; 8];
    for lane in 0..8 {
        words[lane] = op(lane, a[lane]);
    }
    Bucket(words)
}

#[inline(always)]
pub(super) fn add(a: &Bucket, b: &Bucket) -> Bucket {
    lanes(&a.0, |lane, word| word.wrapping_add(b.0[lane]))
}

#[inline(always)]
pub(super) fn subtract(a: &Bucket, b: &Bucket) -> Bucket {
    lanes(&a.0, |lane, word| word.wrapping_sub(b.0[lane]))
}

/// The smallest number whose product with `b` is `a`; `b` is not 0, and `a` ends in at least as
/// many zero bits.
#[inline]
pub(super) fn quotient(a: u32, b: u32) -> u32 {
    let shift = b.trailing_zeros();
    (a >> shift).wrapping_mul(odd_inverse(b >> shift)) & (u32::MAX >> shift)
}

#[inline(always)]
pub(super) fn multiply(unit: &Bucket, packets: i32) -> Bucket {
    lanes(&unit.0, |_, word| word.wrapping_mul(packets as u32))
}

/// Divides each of up to [`BURST`] buckets by its count: the key of an average packet. Implausible
/// are counts that are zero or divisible by 2^18, and sums that are not the count times a fragment.
#[inline(always)]
pub(super) fn divide(isa: impl Isa, buckets: &[Bucket]) -> Divided<FlowKey> {
    let (mut first, mut second) = (Rows::ZERO, Rows::ZERO);
    for (bucket, (first, second)) in buckets.iter().zip(first.0.iter_mut().zip(&mut second.0)) {
        first.copy_from_slice(&bucket.0[..4]);
        second.copy_from_slice(&bucket.0[4..]);
    }
    let [a, b, c, d] = isa.columns(&first);
    let [e, f, g, counts] = isa.columns(&second);
    let mut words = [Column::ZERO; 4];
    let mut plausible = Column::ZERO;
    for at in 0..BURST {
        let sums = [a.0[at], b.0[at], c.0[at], d.0[at], e.0[at], f.0[at], g.0[at]];
        let (key, right) = divide_words(sums, counts.0[at]);
        for (column, word) in words.iter_mut().zip(key) {
            column.0[at] = word.swap_bytes();
        }
        plausible.0[at] = u32::from(right);
    }
    Divided {
        keys: isa.rows(&words),
        fingerprints: Column::ZERO,
        plausible: isa.nonzero(&plausible),
    }
}

/// The big-endian words of a padded key, and whether they are plausible.
#[inline(always)]
fn divide_words(sums: [u32; FRAGMENTS], count: u32) -> ([u32; 4], bool) {
    // The lowest bit that is set, and how far it is from the right: no CPU but the latest counts
    // zeros in a vector.
    let low = count & count.wrapping_neg();
    let shift = (low.wrapping_sub(1)).count_ones() & 31;
    let inverse = odd_inverse(count >> shift);
    let mut quotients = [0; FRAGMENTS];
    let (mut too_long, mut divided_off) = (0, 0);
    for fragment in 0..FRAGMENTS {
        let sum = sums[fragment];
        quotients[fragment] = (sum >> shift).wrapping_mul(inverse) & (u32::MAX >> shift);
        too_long |= quotients[fragment];
        divided_off |= sum;
    }
    let [a, b, c, d, e, f, g] = quotients;
    let words = [a << 17 | b << 2 | c >> 13, c << 19 | d << 4 | e >> 11, e << 21 | f << 6 | g >> 9];
    let words = [words[0], words[1], words[2], g >> 1 << 24];
    let wrong = too_long >> FRAGMENT_BITS | divided_off & low.wrapping_sub(1) | g & 1;
    (words, wrong == 0 && low.wrapping_sub(1) < 1 << (32 - FRAGMENT_BITS))
}

/// The inverse of an odd number modulo 2^32, by Newton's iteration: each step doubles the number of
/// right bits, and the first guess has five.
#[inline(always)]
fn odd_inverse(odd: u32) -> u32 {
    let mut inverse = odd.wrapping_mul(3) ^ 2;
    for _ in 0..3 {
        inverse = inverse.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(inverse)));
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::super::Summed;
    use super::*;
    use crate::simd::Scalar;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_quotient_times_its_divisor_is_what_was_divided(a: u32, b: u32, zeros in 0_u32..31) {
            let (a, b) = (a << zeros, (b | 1) << (zeros / 2));
            prop_assert_eq!(quotient(a, b).wrapping_mul(b), a);
        }

        #[test]
        fn an_odd_number_times_its_inverse_is_one(n: u32) {
            prop_assert_eq!((n | 1).wrapping_mul(odd_inverse(n | 1)), 1);
        }

        #[test]
        fn dividing_gives_back_what_was_multiplied(key: [u8; 13], packets: i32) {
            prop_assume!(packets.trailing_zeros() <= 17);
            let key = FlowKey::from_bytes(key);
            let divided = divide(Scalar, &[Bucket::default(), multiply(&unit(&key), packets)]);
            prop_assert_eq!(divided.plausible, 0b10);
            prop_assert_eq!(FlowKey::key_of(&divided.keys, 1), key);
        }
    }

    #[test]
    fn counts_that_would_lose_key_bits_are_refused() {
        let key = FlowKey::from_bytes([0xFF; 13]);
        let plausible =
            |packets: i32| divide(Scalar, &[multiply(&unit(&key), packets)]).plausible == 1;
        assert!(plausible(1 << 17) && plausible(-1 << 17) && plausible(i32::MAX));
        assert!(!plausible(1 << 18) && !plausible(i32::MIN) && !plausible(0));
    }
}
