//! AVX-512 and GFNI: sixteen packets an instruction.

use std::arch::x86_64::*;

use super::avx2::{Avx2, look_up, look_up_in_register, prefetch};
use super::*;
use crate::hash::crc::Affine;

/// Shows by its existence that the CPU has what [`Avx2`] says, AVX-512 (F, BW, DQ, VL, VBMI) and
/// GFNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512(Avx2);

impl Avx512 {
    /// Looks whether the CPU has them.
    pub(super) fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("gfni");
        Avx2::detect().filter(|_| all).map(Self)
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,sse4.2,pclmulqdq")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
fn run<W: Work>(isa: Avx512, work: W) -> W::Output {
    work.work(isa)
}

impl Isa for Avx512 {
    #[inline(always)]
    fn run<W: Work>(self, work: W) -> W::Output {
        // SAFETY: `Avx512` exists only where `detect` found every feature that `run` enables.
        unsafe { run(self, work) }
    }

    #[inline(always)]
    fn crc_pair(self, crcs: &CrcPair, key: &[u8; 16]) -> (u32, u32) {
        self.0.crc_pair(crcs, key)
    }

    #[inline(always)]
    fn crc_pair_wide(self, crcs: &CrcPair, key: &[u8; 40]) -> (u32, u32) {
        self.0.crc_pair_wide(crcs, key)
    }

    #[inline(always)]
    fn crcs(self, pair: &CrcPair, keys: &Keys) -> (Column, Column) {
        // SAFETY: `Avx512` exists only where `detect` found the features that `crcs` enables.
        unsafe { crcs(pair, &keys.columns) }
    }

    #[inline(always)]
    fn address_hash(self, hash: &AddressHash, header: &[u8; 20]) -> u8 {
        self.0.address_hash(hash, header)
    }

    #[inline(always)]
    fn look_up(self, tables: &Tables, x: u32) -> [u32; LANES] {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { look_up(tables, x) }
    }

    #[inline(always)]
    fn look_up_burst(self, tables: &Tables, xs: &Column, len: usize) -> [Column; LANES] {
        // SAFETY: `Avx512` exists only where `detect` found the feature that it enables.
        unsafe { look_up_burst(tables, xs, len) }
    }

    #[inline(always)]
    fn columns_of(self, keys: &[FlowKey; BURST]) -> [Column; 4] {
        // SAFETY: as for `columns`.
        unsafe { columns(keys) }
    }

    #[inline(always)]
    fn columns(self, rows: &Rows) -> [Column; 4] {
        // SAFETY: `Avx512` exists only where `detect` found the feature that `columns` enables.
        unsafe { columns(&rows.0) }
    }

    #[inline(always)]
    fn rows(self, columns: &[Column; 4]) -> Rows {
        // SAFETY: `Avx512` exists only where `detect` found the feature that `rows` enables.
        unsafe { rows(columns) }
    }

    #[inline(always)]
    fn nonzero(self, column: &Column) -> u32 {
        // SAFETY: `Avx512` exists only where `detect` found the feature that `nonzero` enables.
        unsafe { nonzero(column) }
    }

    #[inline(always)]
    fn add_limited(self, a: [u32; 8], b: [u32; 8], limit: [u32; 8], excess: [u32; 8]) -> [u32; 8] {
        // SAFETY: `Avx512` exists only where `detect` found the features that it enables.
        unsafe { add_limited(&a, &b, &limit, &excess) }
    }

    #[inline(always)]
    fn equal_tags(self, tags: &Tags, tag: u16) -> u32 {
        self.0.equal_tags(tags, tag)
    }

    #[inline(always)]
    fn equal_lanes(self, words: [u64; 2], tag: u16) -> u32 {
        // SAFETY: `Avx512` exists only where `detect` found the features that it enables.
        unsafe { equal_lanes(words, tag) }
    }

    #[inline(always)]
    fn add_latencies(
        self,
        cells: &mut [u32],
        (latencies, hops): (&[u32; 16], usize),
        above: Above,
    ) -> bool {
        // SAFETY: `Avx512` exists only where `detect` found the features that it enables.
        unsafe { add_latencies(cells, latencies, hops, above) }
    }

    #[inline(always)]
    fn prefetch<T>(self, slice: &[T], at: usize) {
        prefetch(slice, at);
    }
}

/// Three instructions beside loads and the store.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn add_limited(a: &[u32; 8], b: &[u32; 8], limit: &[u32; 8], excess: &[u32; 8]) -> [u32; 8] {
    let load = |words: &[u32; 8]| {
        // SAFETY: eight words are 32 readable bytes; the load needs no alignment.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    };
    let a = load(a);
    let reaches = _mm256_cmpge_epu32_mask(a, load(limit));
    let sum = _mm256_add_epi32(a, load(b));
    let sum = _mm256_mask_add_epi32(sum, reaches, sum, load(excess));
    let mut words = [0; 8];
    // SAFETY: eight words are 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), sum) };
    words
}

/// A comparison for eight tags.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn equal_lanes([low, high]: [u64; 2], tag: u16) -> u32 {
    let words = _mm_set_epi64x(high as i64, low as i64);
    _mm_cmpeq_epi16_mask(words, _mm_set1_epi16(tag as i16)).into()
}

/// Eight hops at a time, those that there are and that are known.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn add_latencies(cells: &mut [u32], latencies: &[u32; 16], hops: usize, above: Above) -> bool {
    let width = cells.len() / 4;
    let hops = hops.min(width).min(latencies.len());
    let times = _mm512_set1_epi64(above.times as i64);
    let seen = _mm256_set1_epi32(above.seen as i32);
    let cells = cells.as_mut_ptr();
    let mut all = 0;
    for (at, eight) in latencies.as_chunks::<8>().0.iter().enumerate() {
        let first = 8 * at;
        if first >= hops {
            break;
        }
        let there = (0xFF_u32 >> (8 - (hops - first).min(8))) as u8;
        // SAFETY: eight words are 32 readable bytes; the load needs no alignment.
        let ns = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
        let known = _mm256_mask_cmpneq_epi32_mask(there, ns, _mm256_set1_epi32(-1));
        let sums = cells.wrapping_add(2 * first);
        let (most, numbers) =
            (cells.wrapping_add(2 * width + first), cells.wrapping_add(3 * width + first));
        // SAFETY: only the words of known hops are read, which are less than `width`: those of
        // sums, maxima and numbers begin at 0, `2 * width` and `3 * width` of `4 * width` words.
        let (sum, longest, number) = unsafe {
            (
                _mm512_maskz_loadu_epi64(known, sums.cast()),
                _mm256_maskz_loadu_epi32(known, most.cast()),
                _mm256_maskz_loadu_epi32(known, numbers.cast()),
            )
        };
        let wide = _mm512_cvtepu32_epi64(ns);
        let product = _mm512_mul_epu32(wide, _mm512_cvtepu32_epi64(number));
        let few = _mm256_mask_cmplt_epu32_mask(known, number, seen);
        let limit = _mm512_mullo_epi64(sum, times);
        let long = _mm512_mask_cmpgt_epu64_mask(known & !few, product, limit);
        all |= long | if above.few { few } else { 0 };
        // SAFETY: as for the loads, writable.
        unsafe {
            _mm512_mask_storeu_epi64(sums.cast(), known, _mm512_add_epi64(sum, wide));
            _mm256_mask_storeu_epi32(most.cast(), known, _mm256_max_epu32(longest, ns));
            let more = _mm256_add_epi32(number, _mm256_set1_epi32(1));
            _mm256_mask_storeu_epi32(numbers.cast(), known, more);
        }
    }
    all != 0
}

/// Sixteen words of a column.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[u32; 16]) -> __m512i {
    // SAFETY: sixteen words are 64 readable bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(words: &mut [u32; 16], vector: __m512i) {
    // SAFETY: sixteen words are 64 writable bytes; the store needs no alignment.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), vector) }
}

/// 64 bytes to compute with.
const fn vector<T: Copy, const N: usize>(parts: [T; N]) -> __m512i {
    const { assert!(N * size_of::<T>() == 64) };
    // SAFETY: both are 64 bytes of plain integers, of which every value is valid.
    unsafe { std::mem::transmute_copy(&parts) }
}

/// Sixteen packets' words 0 and 1, or 2 and 3, out of two registers of four rows each.
const PAIRS: [[u32; 16]; 2] = [
    [0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29],
    [2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31],
];

/// Sixteen packets word after word, by eight permutations out of four registers of four packets
/// each.
#[inline]
#[target_feature(enable = "avx512f")]
fn turn(rows: [__m512i; 4]) -> [__m512i; 4] {
    let mut columns = rows;
    for (pair, indexes) in PAIRS.into_iter().enumerate() {
        let low = _mm512_permutex2var_epi32(rows[0], vector(indexes), rows[1]);
        let high = _mm512_permutex2var_epi32(rows[2], vector(indexes), rows[3]);
        columns[2 * pair] = _mm512_shuffle_i64x2::<0x44>(low, high);
        columns[2 * pair + 1] = _mm512_shuffle_i64x2::<0xEE>(low, high);
    }
    columns
}

/// Rows of 16 bytes, read where they lie.
#[inline]
#[target_feature(enable = "avx512f")]
fn columns<R>(rows: &[R; BURST]) -> [Column; 4] {
    const { assert!(size_of::<R>() == 16) };
    let mut columns = [Column::ZERO; 4];
    for (half, rows) in rows.as_chunks::<16>().0.iter().enumerate() {
        let four = |at: usize| {
            let rows: &[R] = &rows[4 * at..4 * at + 4];
            // SAFETY: four rows are 64 readable bytes; the load needs no alignment.
            unsafe { _mm512_loadu_si512(rows.as_ptr().cast()) }
        };
        let turned = turn([four(0), four(1), four(2), four(3)]);
        for (column, words) in columns.iter_mut().zip(turned) {
            store(&mut column.0.as_chunks_mut().0[half], words);
        }
    }
    columns
}

/// From the tables' lines to columns without a way through memory: a load of 64 bytes would wait
/// until the lines stored before it are in the cache.
#[inline]
#[target_feature(enable = "avx512f")]
fn look_up_burst(tables: &Tables, xs: &Column, len: usize) -> [Column; LANES] {
    let mut columns = [Column::ZERO; LANES];
    for half in 0..len.div_ceil(16) {
        let four = |at: usize| {
            let line =
                |packet: usize| look_up_in_register(tables, xs.0[16 * half + 4 * at + packet]);
            let two = |at: usize| {
                _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(line(at)), line(at + 1))
            };
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(two(0)), two(2))
        };
        let turned = turn([four(0), four(1), four(2), four(3)]);
        for (column, words) in columns.iter_mut().zip(turned) {
            store(&mut column.0.as_chunks_mut().0[half], words);
        }
    }
    columns
}

/// Two columns, the one's packet beside the other's, of packets 0 to 7 and 8 to 15.
const BESIDE: [[u32; 16]; 2] = [
    [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23],
    [8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31],
];

/// Two pairs of columns side by side, of the first four packets and of the next.
const ROWS: [[u64; 8]; 2] = [[0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]];

/// Eight permutations for sixteen packets.
#[inline]
#[target_feature(enable = "avx512f")]
fn rows(columns: &[Column; 4]) -> Rows {
    let mut rows = Rows::ZERO;
    for (half, rows) in rows.0.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let column = |at: usize| load(&columns[at].0.as_chunks().0[half]);
        let mut quarters = rows.as_chunks_mut::<4>().0.iter_mut();
        for beside in BESIDE {
            let left = _mm512_permutex2var_epi32(column(0), vector(beside), column(1));
            let right = _mm512_permutex2var_epi32(column(2), vector(beside), column(3));
            for (order, rows) in ROWS.into_iter().zip(&mut quarters) {
                let four = _mm512_permutex2var_epi64(left, vector(order), right);
                // SAFETY: four rows are 64 writable bytes; the store needs no alignment.
                unsafe { _mm512_storeu_si512(rows.as_mut_ptr().cast(), four) };
            }
        }
    }
    rows
}

#[inline]
#[target_feature(enable = "avx512f")]
fn nonzero(column: &Column) -> u32 {
    let half = |at: usize| {
        let words = load(&column.0.as_chunks().0[at]);
        u32::from(_mm512_test_epi32_mask(words, words))
    };
    half(0) | half(1) << 16
}

/// One byte of each of sixteen words, all sixteen once for each byte of a CRC.
const SPREAD: [[u8; 64]; 4] = {
    let mut spread = [[0; 64]; 4];
    let mut at = 0;
    while at < 4 * 64 {
        spread[at / 64][at % 64] = (4 * (at % 16) + at / 64) as u8;
        at += 1;
    }
    spread
};

/// The opposite: a CRC's bytes side by side again.
const GATHER: [u8; 64] = {
    let mut gather = [0; 64];
    let mut at = 0;
    while at < 64 {
        gather[at] = (16 * (at % 4) + at / 4) as u8;
        at += 1;
    }
    gather
};

/// CRCs as linear maps: for each byte of a key one permutation, two affine maps and two exclusive
/// ors serve sixteen keys and both CRCs, about four instructions a key.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn crcs(pair: &CrcPair, keys: &[Column; 4]) -> (Column, Column) {
    let [of_x, of_y] = &pair.affine;
    let (mut xs, mut ys) = (Column::ZERO, Column::ZERO);
    for half in 0..2 {
        let (mut x, mut y) = (_mm512_setzero_si512(), _mm512_setzero_si512());
        for byte in 0..FlowKey::LEN {
            let words = load(&keys[byte / 4].0.as_chunks().0[half]);
            let bytes = _mm512_permutexvar_epi8(vector(SPREAD[byte % 4]), words);
            let share =
                |of: &Affine| _mm512_gf2p8affine_epi64_epi8::<0>(bytes, vector(of.matrices[byte]));
            x = _mm512_xor_si512(x, share(of_x));
            y = _mm512_xor_si512(y, share(of_y));
        }
        let finish = |shares: __m512i, of: &Affine| {
            let words = _mm512_permutexvar_epi8(vector(GATHER), shares);
            _mm512_xor_si512(words, _mm512_set1_epi32(of.zeros as i32))
        };
        store(&mut xs.0.as_chunks_mut().0[half], finish(x, of_x));
        store(&mut ys.0.as_chunks_mut().0[half], finish(y, of_y));
    }
    (xs, ys)
}
