//! Eight secret bits of an IPv4 header's addresses and protocol.
//!
//! They are linear over GF(2), so that a hardware switch adds them up from a table for each byte.

/// Bytes of a header that count: source, destination, protocol.
pub const BYTES: usize = 9;

/// How many bits the number is shifted left by that each of these bytes is part of.
const SHIFTS: [u32; BYTES] = [24, 16, 8, 0, 32, 24, 16, 8, 0];

/// Bytes of the source.
const SOURCE: usize = 4;

/// The carry-less products of two numbers of a header with secret factors, added modulo x^64, of
/// which the upper eight bits are used: the source, and the destination with the protocol below it
/// (`docs/contract.md`, Signature).
///
/// Over the factors, those of any two different headers are uniform and independent but for a
/// constant that is added.
#[derive(Clone)]
pub struct AddressHash {
    factors: [u64; 2],
    tables: [[u8; 256]; BYTES],
}

impl AddressHash {
    /// With these factors: the source's, and the destination's and protocol's.
    pub fn new(factors: [u64; 2]) -> Self {
        let table = |position: usize| -> [u8; 256] {
            let factor = factors[usize::from(position >= SOURCE)];
            std::array::from_fn(|byte| upper(product((byte as u64) << SHIFTS[position], factor)))
        };
        Self { factors, tables: std::array::from_fn(table) }
    }

    /// For each of the source's four bytes, the destination's, and the protocol, what its values
    /// add to the hash by exclusive or.
    pub fn tables(&self) -> &[[u8; 256]; BYTES] {
        &self.tables
    }

    /// What the numbers are multiplied by.
    pub(crate) fn factors(&self) -> &[u64; 2] {
        &self.factors
    }

    /// The hash of a header, by plain code.
    #[inline(always)]
    pub fn of(&self, header: &[u8; 20]) -> u8 {
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        let [t0, t1, t2, t3, t4, t5, t6, t7, t8] = &self.tables;
        let at = |table: &[u8; 256], byte: u8| table[usize::from(byte)];
        // A loop becomes vectors that are taken apart again, and takes seven times as long.
        let source = at(t0, s0) ^ at(t1, s1) ^ at(t2, s2) ^ at(t3, s3);
        let destination = at(t4, d0) ^ at(t5, d1) ^ at(t6, d2) ^ at(t7, d3);
        source ^ destination ^ at(t8, header[9])
    }
}

/// What is used of a sum of products.
#[inline(always)]
pub(crate) fn upper(sum: u64) -> u8 {
    (sum >> (u64::BITS - u8::BITS)) as u8
}

/// A carry-less product modulo x^64.
fn product(number: u64, factor: u64) -> u64 {
    (0..64).filter(|bit| number >> bit & 1 == 1).fold(0, |sum, bit| sum ^ factor << bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Engine, Isa, Work};
    use proptest::prelude::*;

    struct Hash<'a>(&'a AddressHash, &'a [u8; 20]);

    impl Work for Hash<'_> {
        type Output = u8;

        #[inline(always)]
        fn work(self, isa: impl Isa) -> u8 {
            isa.address_hash(self.0, self.1)
        }
    }

    /// `docs/contract.md` in other words: each bit of the numbers moves a factor, whose bits that
    /// are too high are gone.
    fn in_words(factors: [u64; 2], header: &[u8; 20]) -> u8 {
        let be = |at: usize| u32::from_be_bytes(*header[at..].first_chunk().unwrap());
        let numbers = [be(12).into(), u64::from(be(16)) << 8 | u64::from(header[9])];
        let mut sum = 0_u64;
        for (number, factor) in numbers.into_iter().zip(factors) {
            for bit in 0..64 {
                if number & 1 << bit != 0 {
                    sum ^= factor << bit;
                }
            }
        }
        (sum >> 56) as u8
    }

    proptest! {
        #[test]
        fn every_engine_hashes_as_the_contract_has_it(factors: [u64; 2], header: [u8; 20]) {
            let hash = AddressHash::new(factors);
            prop_assert_eq!(hash.of(&header), in_words(factors, &header));
            for engine in Engine::available() {
                let hashed = engine.run(Hash(&hash, &header));
                prop_assert_eq!(hashed, hash.of(&header), "{}", engine.name());
            }
        }
    }

    /// Whatever two headers differ in, the eight bits of the difference are independent functions
    /// of the factors' bits: their matrix has full rank.
    #[test]
    fn differences_of_headers_are_uniform_over_the_factors() {
        let single = (0..72).map(|bit| 1_u128 << bit);
        let double = (0..72).flat_map(|one| (0..72).map(move |other| 1_u128 << one | 1 << other));
        let mut drawn = 1_u128;
        let any = std::iter::repeat_with(|| {
            drawn = drawn.wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645).wrapping_add(7);
            drawn >> 56
        });
        for difference in single.chain(double).chain(any.take(20_000)).filter(|&of| of != 0) {
            let mut header = [0; 20];
            let bytes = difference.to_be_bytes();
            header[9] = bytes[7];
            header[12..].copy_from_slice(&bytes[8..]);
            // Row by row: what each bit of the factors adds to the hash.
            let rows = (0..128).map(|bit| {
                let factors = 1_u128 << bit;
                in_words([factors as u64, (factors >> 64) as u64], &header)
            });
            let mut basis = Vec::new();
            for row in rows {
                let rest = basis.iter().fold(row, |rest: u8, &of: &u8| rest.min(rest ^ of));
                if rest != 0 {
                    basis.push(rest);
                }
            }
            assert_eq!(basis.len(), 8, "{difference:x}");
        }
    }
}
