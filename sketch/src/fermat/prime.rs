//! Prime arithmetic: four 31-bit fragments, summed modulo p = 4294967291 (Appendix D.1 of the
//! ChameleMon paper, figure 13).
//!
//! | fragment | bits |
//! |---|---|
//! | 0 | low 31 bits of the source address |
//! | 1 | low 31 bits of the destination address |
//! | 2 | low 31 bits of source port, destination port |
//! | 3 | top bits of fragments 0, 1, 2 (bits 30, 29, 28), protocol (27-20), fingerprint (19-0) |

use std::sync::LazyLock;

use super::bucket::{Bucket, COUNT, Unit};
use crate::key::FlowKey;

/// The largest 32-bit prime.
pub const P: u32 = 4_294_967_291;

/// Fragments of a key.
pub(super) const FRAGMENTS: usize = 4;

const LOW_31: u32 = 0x7FFF_FFFF;

#[inline]
pub(super) fn unit(key: &FlowKey, fingerprint: u32) -> Unit {
    let (src, dst, ports) = (key.src_word(), key.dst_word(), key.ports_word());
    let rest = (src >> 31) << 30
        | (dst >> 31) << 29
        | (ports >> 31) << 28
        | u32::from(key.protocol()) << 20
        | fingerprint;
    Unit([src & LOW_31, dst & LOW_31, ports & LOW_31, rest, 0, 0, 0, 1])
}

/// `a + b mod p` of numbers below p.
#[inline]
fn add_mod(a: u32, b: u32) -> u32 {
    let to_wrap = P - b;
    if a >= to_wrap { a - to_wrap } else { a + b }
}

/// `a - b mod p` of numbers below p.
#[inline]
fn sub_mod(a: u32, b: u32) -> u32 {
    if a >= b { a - b } else { a + (P - b) }
}

/// `a b mod p`. Since 2^32 = 5 mod p, the upper half of a product counts five times.
#[inline]
fn mul_mod(a: u32, b: u32) -> u32 {
    let fold = |wide: u64| (wide >> 32) * 5 + (wide & 0xFFFF_FFFF);
    let folded = fold(fold(u64::from(a) * u64::from(b)));
    if folded >= u64::from(P) { (folded - u64::from(P)) as u32 } else { folded as u32 }
}

#[inline]
fn lanes(a: &Bucket, b: &Bucket, op: impl Fn(u32, u32) -> u32, count: u32) -> Bucket {
    let mut sum = [0; 8];
    for lane in 0..FRAGMENTS {
        sum[lane] = op(a.0[lane], b.0[lane]);
    }
    sum[COUNT] = count;
    Bucket(sum)
}

#[inline]
pub(super) fn add(a: &Bucket, b: &Bucket) -> Bucket {
    lanes(a, b, add_mod, a.0[COUNT].wrapping_add(b.0[COUNT]))
}

#[inline]
pub(super) fn subtract(a: &Bucket, b: &Bucket) -> Bucket {
    lanes(a, b, sub_mod, a.0[COUNT].wrapping_sub(b.0[COUNT]))
}

/// A signed packet count as a number modulo p.
#[inline]
fn reduce(packets: i32) -> u32 {
    if packets >= 0 { packets as u32 } else { P - packets.unsigned_abs() }
}

#[inline]
pub(super) fn multiply(unit: &Unit, packets: i32) -> Bucket {
    let factor = reduce(packets);
    let mut product = [0; 8];
    for lane in 0..FRAGMENTS {
        product[lane] = mul_mod(unit.0[lane], factor);
    }
    product[COUNT] = packets as u32;
    Bucket(product)
}

/// Fragments of an average packet in `bucket`, taken apart into key and fingerprint. `None` where
/// the count is zero or a fragment is longer than 31 bits.
#[inline]
pub(super) fn divide(bucket: &Bucket) -> Option<(FlowKey, u32)> {
    let count = bucket.count();
    if count == 0 {
        return None;
    }
    let inverse = inverse(count);
    let mut fragments = [0; FRAGMENTS];
    for (fragment, &sum) in fragments.iter_mut().zip(&bucket.0) {
        *fragment = mul_mod(sum, inverse);
        if *fragment > LOW_31 {
            return None;
        }
    }
    let [src, dst, ports, rest] = fragments;
    let key = FlowKey::from_words(
        src | (rest >> 30) << 31,
        dst | (rest >> 29) << 31,
        ports | (rest >> 28) << 31,
        (rest >> 20) as u8,
    );
    Some((key, rest & 0xF_FFFF))
}

/// Counts whose inverses are kept ready: most flows lose or send few packets.
const SMALL: usize = 4096;

static SMALL_INVERSES: LazyLock<Box<[u32; SMALL]>> = LazyLock::new(|| {
    let mut inverses = Box::new([0; SMALL]);
    inverses[1] = 1;
    for n in 2..SMALL as u32 {
        // p = q n + r, so 1/n = -q / r.
        let below = inverses[(P % n) as usize];
        inverses[n as usize] = P - mul_mod(P / n, below);
    }
    inverses
});

/// The inverse of a non-zero count modulo p. Every 32-bit count but 0 has one: p exceeds 2^31.
#[inline]
fn inverse(count: i32) -> u32 {
    let magnitude = count.unsigned_abs();
    let inverse = match SMALL_INVERSES.get(magnitude as usize) {
        Some(&inverse) => inverse,
        None => power(magnitude, P - 2),
    };
    if count > 0 { inverse } else { P - inverse }
}

/// `base^exponent mod p`: Fermat's little theorem makes base^(p-2) the inverse of base.
fn power(base: u32, mut exponent: u32) -> u32 {
    let (mut result, mut square) = (1, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = mul_mod(result, square);
        }
        square = mul_mod(square, square);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_and_products_are_those_of_wide_integers(a in 0..P, b in 0..P) {
            let p = u64::from(P);
            prop_assert_eq!(u64::from(add_mod(a, b)), (u64::from(a) + u64::from(b)) % p);
            prop_assert_eq!(u64::from(sub_mod(a, b)), (u64::from(a) + p - u64::from(b)) % p);
            prop_assert_eq!(u64::from(mul_mod(a, b)), u64::from(a) * u64::from(b) % p);
        }

        #[test]
        fn a_count_times_its_inverse_is_one(count: i32) {
            prop_assume!(count != 0);
            prop_assert_eq!(mul_mod(reduce(count), inverse(count)), 1);
        }

        #[test]
        fn dividing_gives_back_what_was_multiplied(
            words: (u32, u32, u32), protocol: u8, fingerprint in 0u32..1 << 20, packets: i32,
        ) {
            prop_assume!(packets != 0);
            let key = FlowKey::from_words(words.0, words.1, words.2, protocol);
            let bucket = multiply(&unit(&key, fingerprint), packets);
            prop_assert_eq!(divide(&bucket), Some((key, fingerprint)));
        }
    }

    #[test]
    fn corner_counts_and_operands_hold() {
        assert_eq!(mul_mod(P - 1, P - 1), 1);
        assert_eq!(add_mod(P - 1, P - 1), P - 2);
        for count in [1, -1, 4095, 4096, -4096, i32::MAX, i32::MIN] {
            assert_eq!(mul_mod(reduce(count), inverse(count)), 1, "count {count}");
        }
    }
}
