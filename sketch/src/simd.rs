//! Instruction sets: what the CPU at hand has, found out when a hash family is made.
//!
//! Hot code is written once, over an [`Isa`]. Run through [`Isa::run`] it is compiled once more
//! for the vector instructions, so that its plain loops over the eight lanes of a bucket become
//! single ones. Only what no compiler finds by itself stands here as intrinsics: the CRCs, the
//! tables' 16-byte lines, prefetching. Everything else is in safe code elsewhere.

#![allow(unsafe_code)]

use crate::hash::{Hashes, LANES, Tables, crc};

/// The instructions that a hash family, and what is called with it, uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Any CPU.
    Scalar,
    /// x86-64 with AVX2, BMI, CRC32 and PCLMULQDQ.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

impl Engine {
    /// The fastest that this CPU has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(isa) = Avx2::detect() {
            return Self::Avx2(isa);
        }
        Self::Scalar
    }

    /// Its name, as benchmarks print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "AVX2",
        }
    }
}

/// Calls `$body` with `$isa` being what `$engine` stands for, compiled for its instructions.
macro_rules! with_engine {
    ($engine:expr, |$isa:ident| $body:expr) => {
        match $engine {
            $crate::simd::Engine::Scalar => {
                let $isa = $crate::simd::Scalar;
                $body
            }
            #[cfg(target_arch = "x86_64")]
            $crate::simd::Engine::Avx2($isa) => $crate::simd::Isa::run($isa, || $body),
        }
    };
}
pub(crate) use with_engine;

/// What hot code asks of an instruction set. Implementations agree in every bit.
pub(crate) trait Isa: Copy {
    /// Runs `f` compiled for this instruction set, as far as it is inlined.
    fn run<R>(self, f: impl FnOnce() -> R) -> R;

    /// All hashes of a padded key.
    fn hash(self, tables: &Tables, key: &[u8; 16]) -> Hashes;

    /// `a + b` lane by lane, `excess` being added where a lane of `a` reaches `limit`.
    fn add_limited(self, a: [u32; 8], b: [u32; 8], limit: [u32; 8], excess: [u32; 8]) -> [u32; 8];

    /// Asks for the cache line of `slice[at]`; nothing happens where there is none.
    fn prefetch<T>(self, slice: &[T], at: usize);
}

/// Plain code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

impl Isa for Scalar {
    #[inline(always)]
    fn run<R>(self, f: impl FnOnce() -> R) -> R {
        f()
    }

    #[inline(always)]
    fn hash(self, tables: &Tables, key: &[u8; 16]) -> Hashes {
        Hashes::mix(tables, crc::crc32c(key), crc::crc32_iso_hdlc(key))
    }

    #[inline(always)]
    fn add_limited(self, a: [u32; 8], b: [u32; 8], limit: [u32; 8], excess: [u32; 8]) -> [u32; 8] {
        let mut sum = [0; 8];
        for lane in 0..8 {
            let excess = if a[lane] >= limit[lane] { excess[lane] } else { 0 };
            sum[lane] = a[lane].wrapping_add(b[lane]).wrapping_add(excess);
        }
        sum
    }

    #[inline(always)]
    fn prefetch<T>(self, _slice: &[T], _at: usize) {}
}

#[cfg(target_arch = "x86_64")]
pub use x86::Avx2;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::hash::ROTATIONS;
    use crate::hash::crc::{BARRETT, FOLD_63, FOLD_95, REFLECTED_33};

    /// Shows by its existence that the CPU has AVX2, BMI, CRC32 and PCLMULQDQ.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Avx2(());

    impl Avx2 {
        /// Looks whether the CPU has them.
        pub(super) fn detect() -> Option<Self> {
            let all = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("sse4.2")
                && is_x86_feature_detected!("pclmulqdq");
            all.then_some(Self(()))
        }
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,sse4.2,pclmulqdq")]
    fn run<R>(f: impl FnOnce() -> R) -> R {
        f()
    }

    impl Isa for Avx2 {
        #[inline(always)]
        fn run<R>(self, f: impl FnOnce() -> R) -> R {
            // SAFETY: `Avx2` exists only where `detect` found every feature that `run` enables.
            unsafe { run(f) }
        }

        #[inline(always)]
        fn hash(self, tables: &Tables, key: &[u8; 16]) -> Hashes {
            // SAFETY: `Avx2` exists only where `detect` found the features that `hash` enables.
            unsafe { hash(tables, key) }
        }

        #[inline(always)]
        fn add_limited(
            self,
            a: [u32; 8],
            b: [u32; 8],
            limit: [u32; 8],
            excess: [u32; 8],
        ) -> [u32; 8] {
            // SAFETY: `Avx2` exists only where `detect` found the feature that it enables.
            unsafe { add_limited(&a, &b, &limit, &excess) }
        }

        #[inline(always)]
        fn prefetch<T>(self, slice: &[T], at: usize) {
            // A prefetch of any address is harmless; `wrapping_add` makes no claim about it.
            let line = slice.as_ptr().wrapping_add(at).cast();
            // SAFETY: prefetching reads nothing and never faults; SSE is part of x86-64.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
        }
    }

    /// Five instructions beside loads and the store; AVX2 compares unsigned by maximum and equality.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_limited(a: &[u32; 8], b: &[u32; 8], limit: &[u32; 8], excess: &[u32; 8]) -> [u32; 8] {
        let load = |words: &[u32; 8]| {
            // SAFETY: eight words are 32 readable bytes; the load needs no alignment.
            unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
        };
        let a = load(a);
        let reaches = _mm256_cmpeq_epi32(_mm256_max_epu32(a, load(limit)), a);
        let excess = _mm256_and_si256(reaches, load(excess));
        let sum = _mm256_add_epi32(_mm256_add_epi32(a, load(b)), excess);
        let mut words = [0; 8];
        // SAFETY: eight words are 32 writable bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), sum) };
        words
    }

    /// Two CRC32 instructions, four carry-less products, four loads of a table line: about 30
    /// instructions without a branch.
    #[inline]
    #[target_feature(enable = "avx2,sse4.2,pclmulqdq")]
    fn hash(tables: &Tables, key: &[u8; 16]) -> Hashes {
        let message = u128::from_le_bytes(*key);
        let x = _mm_crc32_u64(u64::from(u32::MAX), message as u64);
        let x = !(_mm_crc32_u64(x, (message >> 64) as u64) as u32);

        // SAFETY: the key is 16 readable bytes; the load needs no alignment.
        let block = unsafe { _mm_loadu_si128(key.as_ptr().cast()) };
        let y = crc32_iso_hdlc(block);

        let [b0, b1, b2, b3] = x.to_le_bytes();
        let line = |position: usize, byte: u8| {
            let line: &[u32; LANES] = &tables[position][usize::from(byte)];
            // SAFETY: the line is 16 readable bytes; the load needs no alignment.
            unsafe { _mm_loadu_si128(line.as_ptr().cast()) }
        };
        let looked_up = _mm_xor_si128(
            _mm_xor_si128(line(0, b0), line(1, b1)),
            _mm_xor_si128(line(2, b2), line(3, b3)),
        );
        let [r0, r1, r2, r3] = ROTATIONS.map(|rotation| rotation as i32);
        let left = _mm_setr_epi32(r0, r1, r2, r3);
        let right = _mm_sub_epi32(_mm_set1_epi32(32), left);
        let rotated = _mm_or_si128(_mm_sllv_epi32(y, left), _mm_srlv_epi32(y, right));
        let mixed = _mm_xor_si128(looked_up, rotated);

        let mut lanes = [0; LANES];
        // SAFETY: `lanes` is 16 writable bytes; the store needs no alignment.
        unsafe { _mm_storeu_si128(lanes.as_mut_ptr().cast(), mixed) };
        Hashes::from_parts(lanes, x, _mm_cvtsi128_si32(y) as u32)
    }

    /// CRC-32/ISO-HDLC of a block, in every lane. With L and H the polynomials of its halves, the
    /// remainder is that of L x^96 + H x^32: one product takes L x^96 to degree 95, a second one
    /// the upper third to degree 63, two more reduce by Barrett's method. Bits are reflected, so
    /// the product of two halves comes out multiplied by x, which the constants allow for.
    #[inline]
    #[target_feature(enable = "avx2,sse4.2,pclmulqdq")]
    fn crc32_iso_hdlc(block: __m128i) -> __m128i {
        let folds = _mm_set_epi64x((FOLD_63 << 32) as i64, (FOLD_95 << 32) as i64);
        let reduction = _mm_set_epi64x(BARRETT as i64, REFLECTED_33 as i64);
        let upper_by_32 =
            _mm_setr_epi8(-1, -1, -1, -1, 8, 9, 10, 11, 12, 13, 14, 15, -1, -1, -1, -1);

        let block = _mm_xor_si128(block, _mm_cvtsi32_si128(-1));
        let to_95 = _mm_clmulepi64_si128::<0x00>(block, folds);
        let to_95 = _mm_xor_si128(to_95, _mm_shuffle_epi8(block, upper_by_32));
        let to_63 = _mm_xor_si128(to_95, _mm_clmulepi64_si128::<0x10>(to_95, folds));
        let top = _mm_and_si128(to_63, _mm_setr_epi32(0, 0, -1, 0));
        let quotient = _mm_clmulepi64_si128::<0x11>(top, reduction);
        let quotient = _mm_and_si128(quotient, _mm_setr_epi32(-1, 0, 0, 0));
        let multiple = _mm_clmulepi64_si128::<0x00>(quotient, reduction);
        let remainder = _mm_xor_si128(to_63, _mm_slli_si128::<8>(multiple));
        _mm_xor_si128(_mm_shuffle_epi32::<0xFF>(remainder), _mm_set1_epi32(-1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{FlowKey, HashFamily, HashKey};

    proptest! {
        #[test]
        fn vector_instructions_hash_as_plain_code_does(secret: [u8; 32], keys: Vec<[u8; 13]>) {
            let fast = HashFamily::new(&HashKey::from_bytes(secret));
            let plain = fast.clone().scalar();
            prop_assert_eq!(plain.engine(), Engine::Scalar);
            for key in keys {
                let key = FlowKey::from_bytes(key);
                prop_assert_eq!(fast.hash(&key), plain.hash(&key));
            }
        }
    }
}
