//! Prime arithmetic, and the four 31-bit fragments of IPv4 keys, summed modulo p = 4294967291
//! (Appendix D.1 of the ChameleMon paper, figure 13).
//!
//! | fragment | bits |
//! |---|---|
//! | 0 | low 31 bits of the source address |
//! | 1 | low 31 bits of the destination address |
//! | 2 | low 31 bits of source port, destination port |
//! | 3 | top bits of fragments 0, 1, 2 (bits 30, 29, 28), protocol (27-20), fingerprint (19-0) |

use super::bucket::{Bucket, Lanes};
use super::summed::Divided;
use crate::burst::{BURST, Column, Keys, Rows};
use crate::key::FlowKey;
use crate::simd::Isa;

/// The largest 32-bit prime.
pub const P: u32 = 4_294_967_291;

/// Fragments of a key.
pub(super) const FRAGMENTS: usize = 4;

pub(super) const LOW_31: u32 = 0x7FFF_FFFF;

#[inline(always)]
fn fragments(src: u32, dst: u32, ports: u32, protocol: u32, fingerprint: u32) -> [u32; FRAGMENTS] {
    let rest =
        (src >> 31) << 30 | (dst >> 31) << 29 | (ports >> 31) << 28 | protocol << 20 | fingerprint;
    [src & LOW_31, dst & LOW_31, ports & LOW_31, rest]
}

#[inline]
pub(super) fn unit(key: &FlowKey, fingerprint: u32) -> Bucket {
    let (src, dst, ports) = (key.src_word(), key.dst_word(), key.ports_word());
    let [a, b, c, d] = fragments(src, dst, ports, key.protocol().into(), fingerprint);
    Bucket([a, b, c, d, 0, 0, 0, 1])
}

/// The fragments of every key of a burst.
#[inline(always)]
pub(super) fn units(isa: impl Isa, keys: &Keys, fingerprint: impl Fn(usize) -> u32) -> Rows {
    let mut columns = [Column::ZERO; FRAGMENTS];
    for packet in 0..BURST {
        let [src, dst, ports, protocol] = keys.words(packet);
        let fragments = fragments(src, dst, ports, protocol >> 24, fingerprint(packet));
        for (column, fragment) in columns.iter_mut().zip(fragments) {
            column.0[packet] = fragment;
        }
    }
    isa.rows(&columns)
}

/// What a sum past 2^32 or a difference below zero lacks of being one modulo p, since 2^32 = 5 mod
/// p: 5 in the lanes of fragments (those that are not used never get there), nothing in the
/// count's, which wraps.
pub(super) const fn excess<const LANES: usize>() -> [u32; LANES] {
    let mut excess = [5; LANES];
    excess[LANES - 1] = 0;
    excess
}

/// `a b mod p`. Since 2^32 = 5 mod p, the upper half of a product counts five times.
#[inline(always)]
pub(super) const fn mul_mod(a: u32, b: u32) -> u32 {
    let product = a as u64 * b as u64;
    let folded = (product >> 32) * 5 + (product & 0xFFFF_FFFF);
    let folded = (folded >> 32) * 5 + (folded & 0xFFFF_FFFF);
    // Below 2^32 + 30: it reaches p exactly when five more carry.
    (folded + ((folded + 5) >> 32) * 5) as u32
}

/// Fragments modulo p, counts modulo 2^32; all lanes alike, for the sake of vectors.
#[inline(always)]
pub(super) fn add<const LANES: usize>(a: &[u32; LANES], b: &[u32; LANES]) -> [u32; LANES] {
    let excess = const { excess::<LANES>() };
    let mut sum = [0; LANES];
    for lane in 0..LANES {
        let (a, b) = (a[lane], b[lane]);
        let excess = if a >= P.wrapping_sub(b) { excess[lane] } else { 0 };
        sum[lane] = a.wrapping_add(b).wrapping_add(excess);
    }
    sum
}

/// Adds `unit` to `bucket`, as [`add`] does. `limit` is what [`limit_of`] gives for the unit, the
/// same for all its buckets.
#[inline(always)]
pub(super) fn add_unit(isa: impl Isa, bucket: &mut Bucket, unit: &Bucket, limit: &[u32; 8]) {
    bucket.0 = isa.add_limited(bucket.0, unit.0, *limit, const { excess() });
}

/// From where on a sum is no longer below p.
#[inline(always)]
pub(super) fn limit_of<const LANES: usize>(unit: &[u32; LANES]) -> [u32; LANES] {
    let mut limit = [0; LANES];
    for lane in 0..LANES {
        limit[lane] = P.wrapping_sub(unit[lane]);
    }
    limit
}

/// The opposite of [`add`].
#[inline(always)]
pub(super) fn subtract<const LANES: usize>(a: &[u32; LANES], b: &[u32; LANES]) -> [u32; LANES] {
    let excess = const { excess::<LANES>() };
    let mut difference = [0; LANES];
    for lane in 0..LANES {
        let (a, b) = (a[lane], b[lane]);
        let excess = if a < b { excess[lane] } else { 0 };
        difference[lane] = a.wrapping_sub(b).wrapping_sub(excess);
    }
    difference
}

/// A signed packet count as a number modulo p.
#[inline]
fn reduce(packets: i32) -> u32 {
    if packets >= 0 { packets as u32 } else { P - packets.unsigned_abs() }
}

/// `a b - c d` modulo p.
#[inline]
pub(super) fn cross(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let (plus, minus) = (mul_mod(a, b), mul_mod(c, d));
    if plus >= minus { plus - minus } else { plus + (P - minus) }
}

/// `a / b` modulo p; `b` is not 0.
#[inline]
pub(super) fn quotient(a: u32, b: u32) -> u32 {
    // What lies above 2^31 is a small negative number modulo p.
    let b = if b > i32::MAX as u32 { b.wrapping_sub(P) as i32 } else { b as i32 };
    mul_mod(a, inverse(b))
}

/// The fragments of `unit`, `packets` times.
#[inline]
pub(super) fn multiply(product: &mut [u32], unit: &[u32], packets: i32) {
    let factor = reduce(packets);
    for (product, &fragment) in product.iter_mut().zip(unit) {
        *product = mul_mod(fragment, factor);
    }
}

/// Divides each of up to [`BURST`] buckets by its count: the key and fingerprint of an average
/// packet. Implausible are counts of zero and fragments longer than 31 bits.
#[inline(always)]
pub(super) fn divide(isa: impl Isa, buckets: &[Bucket]) -> Divided<FlowKey> {
    let (mut sums, mut inverses) = (Rows::ZERO, Column::ZERO);
    for (bucket, (sum, inverse)) in buckets.iter().zip(sums.0.iter_mut().zip(&mut inverses.0)) {
        sum.copy_from_slice(&bucket.0[..FRAGMENTS]);
        *inverse = self::inverse(bucket.count());
    }
    let sums = isa.columns(&sums);
    let quotient =
        |fragment: usize| Column::from_fn(|at| mul_mod(sums[fragment].0[at], inverses.0[at]));
    let fragments = [quotient(0), quotient(1), quotient(2), quotient(3)];
    let [src, dst, ports, rest] = &fragments;
    // The key's bytes are big-endian, and the three top bits wait in the last fragment.
    let word = |fragment: &Column, top: u32| {
        Column::from_fn(|at| (fragment.0[at] | rest.0[at] >> top << 31).swap_bytes())
    };
    let protocols = Column::from_fn(|at| rest.0[at] >> 20 & 0xFF);
    // No inverse is zero but that of a count of zero.
    let plausible = Column::from_fn(|at| {
        let any = src.0[at] | dst.0[at] | ports.0[at] | rest.0[at];
        if any <= LOW_31 { inverses.0[at] } else { 0 }
    });
    Divided {
        keys: isa.rows(&[word(src, 30), word(dst, 29), word(ports, 28), protocols]),
        fingerprints: Column::from_fn(|at| rest.0[at] & 0xF_FFFF),
        plausible: isa.nonzero(&plausible),
    }
}

/// Counts whose inverses are kept ready: most flows lose or send few packets.
const SMALL: usize = 4096;

static SMALL_INVERSES: [u32; SMALL] = {
    let mut inverses = [0; SMALL];
    inverses[1] = 1;
    let mut n = 2;
    while n < SMALL as u32 {
        // p = q n + r, so 1/n = -q / r.
        let below = inverses[(P % n) as usize];
        inverses[n as usize] = P - mul_mod(P / n, below);
        n += 1;
    }
    inverses
};

/// The inverse of a count modulo p, 0 for 0. Every other 32-bit count has one: p exceeds 2^31.
#[inline(always)]
pub(super) fn inverse(count: i32) -> u32 {
    let magnitude = count.unsigned_abs();
    let inverse = match SMALL_INVERSES.get(magnitude as usize) {
        Some(&inverse) => inverse,
        None => large_inverse(magnitude),
    };
    if count >= 0 { inverse } else { P - inverse }
}

/// The inverse of a count that the table lacks, in some three divisions for one of 100,000 and at
/// most twenty. With p = q n + r it is that of r times -q, and with p = (q + 1) n - s it is that of
/// s times q + 1; of r and s one is at most n / 2.
#[inline(never)]
fn large_inverse(mut n: u32) -> u32 {
    let mut factor = 1;
    while n as usize >= SMALL {
        let (quotient, rest) = (P / n, P % n);
        if rest <= n / 2 {
            factor = mul_mod(factor, P - quotient);
            n = rest;
        } else {
            factor = mul_mod(factor, quotient + 1);
            n -= rest;
        }
    }
    mul_mod(factor, SMALL_INVERSES[n as usize])
}

#[cfg(test)]
mod tests {
    use super::super::bucket::COUNT;
    use super::super::{Arithmetic, Summed};
    use super::*;
    use crate::simd::Scalar;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_and_products_are_those_of_wide_integers(a in 0..P, b in 0..P) {
            let p = u64::from(P);
            let (x, y) = ([a, 0, 0, 0, 0, 0, 0, a], [b, 0, 0, 0, 0, 0, 0, b]);
            let (sum, difference) = (add(&x, &y), subtract(&x, &y));
            prop_assert_eq!(u64::from(sum[0]), (u64::from(a) + u64::from(b)) % p);
            prop_assert_eq!(u64::from(difference[0]), (u64::from(a) + p - u64::from(b)) % p);
            prop_assert_eq!((sum[COUNT], difference[COUNT]), (a.wrapping_add(b), a.wrapping_sub(b)));
            prop_assert_eq!(u64::from(mul_mod(a, b)), u64::from(a) * u64::from(b) % p);
            prop_assert_eq!(mul_mod(quotient(a, b.max(1)), b.max(1)), a);
            let (x, y, square) = (u128::from(a), u128::from(b), u128::from(p) * u128::from(p));
            prop_assert_eq!(u128::from(cross(a, a, b, b)), (x * x + square - y * y) % u128::from(p));
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
            let bucket = FlowKey::multiply(Arithmetic::Prime, &unit(&key, fingerprint), packets);
            let divided = divide(Scalar, &[Bucket::default(), bucket]);
            prop_assert_eq!(divided.plausible, 0b10);
            prop_assert_eq!(FlowKey::key_of(&divided.keys, 1), key);
            prop_assert_eq!(divided.fingerprints.0[1], fingerprint);
        }
    }

    #[test]
    fn corner_counts_and_operands_hold() {
        assert_eq!(mul_mod(P - 1, P - 1), 1);
        let largest = [P - 1; 8];
        assert_eq!(add(&largest, &largest)[0], P - 2);
        assert_eq!(subtract(&[0; 8], &largest)[0], 1);
        for count in [1, -1, 4095, 4096, -4096, 4097, 65_537, i32::MAX, i32::MIN] {
            assert_eq!(mul_mod(reduce(count), inverse(count)), 1, "count {count}");
        }
    }
}
