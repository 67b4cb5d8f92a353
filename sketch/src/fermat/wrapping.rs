//! Wrapping arithmetic: seven fragments of 15 bits, summed in 32-bit words that wrap.
//!
//! The 104 key bits, first bit first, are cut into six fragments of 15 bits and one of 14. Division
//! by a count with k trailing zero bits loses the k top bits of the quotient; with 15-bit fragments
//! that is no loss up to k = 17, and the fragments' range is itself a check of purity.

use super::bucket::{Bucket, COUNT, Unit};
use crate::burst::{BURST, Column, Keys, Rows};
use crate::key::FlowKey;
use crate::simd::Isa;

/// Fragments of a key.
pub(super) const FRAGMENTS: usize = 7;

const FRAGMENT_BITS: u32 = 15;
const KEY_BITS: u32 = 104;

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
pub(super) fn unit(key: &FlowKey) -> Unit {
    Unit(words(key.padded_words().map(u32::swap_bytes)))
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

#[inline(always)]
pub(super) fn multiply(unit: &Unit, packets: i32) -> Bucket {
    lanes(&unit.0, |_, word| word.wrapping_mul(packets as u32))
}

/// The key of the single flow in `bucket`. `None` where the count is zero or divisible by 2^18, or
/// where a sum is not the count times a fragment.
#[inline(always)]
pub(super) fn divide(bucket: &Bucket) -> Option<FlowKey> {
    let count = bucket.0[COUNT];
    let shift = count.trailing_zeros();
    if shift > 32 - FRAGMENT_BITS {
        return None;
    }
    let inverse = odd_inverse(count >> shift);
    let mut quotients = [0; FRAGMENTS];
    let (mut too_long, mut divided_off) = (0, 0);
    for fragment in 0..FRAGMENTS {
        let sum = bucket.0[fragment];
        quotients[fragment] = (sum >> shift).wrapping_mul(inverse) & (u32::MAX >> shift);
        too_long |= quotients[fragment];
        divided_off |= sum;
    }
    if too_long >> FRAGMENT_BITS != 0 || divided_off & ((1 << shift) - 1) != 0 {
        return None;
    }
    let bits = quotients.iter().fold(0, |bits, &q| bits << FRAGMENT_BITS | u128::from(q));
    if bits & 1 == 1 {
        return None;
    }
    let bytes = ((bits >> 1) << (128 - KEY_BITS)).to_be_bytes();
    let mut key = [0; FlowKey::LEN];
    key.copy_from_slice(&bytes[..FlowKey::LEN]);
    Some(FlowKey::from_bytes(key))
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
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_odd_number_times_its_inverse_is_one(n: u32) {
            prop_assert_eq!((n | 1).wrapping_mul(odd_inverse(n | 1)), 1);
        }

        #[test]
        fn dividing_gives_back_what_was_multiplied(key: [u8; 13], packets: i32) {
            prop_assume!(packets.trailing_zeros() <= 17);
            let key = FlowKey::from_bytes(key);
            prop_assert_eq!(divide(&multiply(&unit(&key), packets)), Some(key));
        }
    }

    #[test]
    fn counts_that_would_lose_key_bits_are_refused() {
        let key = FlowKey::from_bytes([0xFF; 13]);
        assert_eq!(divide(&multiply(&unit(&key), 1 << 17)), Some(key));
        assert_eq!(divide(&multiply(&unit(&key), 1 << 18)), None);
        assert_eq!(divide(&multiply(&unit(&key), 0)), None);
    }
}
