//! AVX2, BMI and PCLMULQDQ: eight packets an instruction, 32 where bytes will do.

use std::arch::x86_64::*;

use super::*;
use crate::hash::addresses::upper;
use crate::hash::crc::{Fold, Halves};

/// Shows by its existence that the CPU has AVX2, BMI and PCLMULQDQ.
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
fn run<W: Work>(isa: Avx2, work: W) -> W::Output {
    work.work(isa)
}

impl Isa for Avx2 {
    #[inline(always)]
    fn run<W: Work>(self, work: W) -> W::Output {
        // SAFETY: `Avx2` exists only where `detect` found every feature that `run` enables.
        unsafe { run(self, work) }
    }

    #[inline(always)]
    fn crc_pair(self, crcs: &CrcPair, key: &[u8; 16]) -> (u32, u32) {
        // SAFETY: `Avx2` exists only where `detect` found the features that `crc_pair` enables.
        unsafe { crc_pair(crcs, key) }
    }

    #[inline(always)]
    fn crc_pair_wide(self, crcs: &CrcPair, key: &[u8; 40]) -> (u32, u32) {
        // SAFETY: `Avx2` exists only where `detect` found the features that `crc_pair_wide`
        // enables.
        unsafe { crc_pair_wide(crcs, key) }
    }

    #[inline(always)]
    fn crcs(self, pair: &CrcPair, keys: &Keys) -> (Column, Column) {
        // SAFETY: `Avx2` exists only where `detect` found the feature that `crcs` enables.
        unsafe { crcs(pair, &keys.columns) }
    }

    #[inline(always)]
    fn address_hash(self, hash: &AddressHash, header: &[u8; 20]) -> u8 {
        // SAFETY: `Avx2` exists only where `detect` found the features that it enables.
        unsafe { address_hash(hash, header) }
    }

    #[inline(always)]
    fn look_up(self, tables: &Tables, x: u32) -> [u32; LANES] {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { look_up(tables, x) }
    }

    #[inline(always)]
    fn look_up_burst(self, tables: &Tables, xs: &Column, len: usize) -> [Column; LANES] {
        // SAFETY: `Avx2` exists only where `detect` found the feature that it enables.
        unsafe { look_up_burst(tables, xs, len) }
    }

    #[inline(always)]
    fn columns_of(self, keys: &[FlowKey; BURST]) -> [Column; 4] {
        // SAFETY: as for `columns`.
        unsafe { columns(keys) }
    }

    #[inline(always)]
    fn columns(self, rows: &Rows) -> [Column; 4] {
        // SAFETY: `Avx2` exists only where `detect` found the feature that `columns` enables.
        unsafe { columns(&rows.0) }
    }

    #[inline(always)]
    fn rows(self, columns: &[Column; 4]) -> Rows {
        // SAFETY: `Avx2` exists only where `detect` found the feature that `rows` enables.
        unsafe { rows(columns) }
    }

    #[inline(always)]
    fn nonzero(self, column: &Column) -> u32 {
        // SAFETY: `Avx2` exists only where `detect` found the feature that `nonzero` enables.
        unsafe { nonzero(column) }
    }

    #[inline(always)]
    fn add_limited(self, a: [u32; 8], b: [u32; 8], limit: [u32; 8], excess: [u32; 8]) -> [u32; 8] {
        // SAFETY: `Avx2` exists only where `detect` found the feature that it enables.
        unsafe { add_limited(&a, &b, &limit, &excess) }
    }

    #[inline(always)]
    fn equal_tags(self, tags: &Tags, tag: u16) -> u32 {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { equal_tags(tags, tag) }
    }

    #[inline(always)]
    fn equal_lanes(self, words: [u64; 2], tag: u16) -> u32 {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { equal_lanes(words, tag) }
    }

    #[inline(always)]
    fn prefetch<T>(self, slice: &[T], at: usize) {
        prefetch(slice, at);
    }
}

/// A comparison for eight tags.
#[inline]
#[target_feature(enable = "sse2")]
fn equal_lanes([low, high]: [u64; 2], tag: u16) -> u32 {
    let words = _mm_set_epi64x(high as i64, low as i64);
    let equal = _mm_cmpeq_epi16(words, _mm_set1_epi16(tag as i16));
    _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())) as u32
}

/// Two comparisons for ten tags.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn equal_tags(tags: &Tags, tag: u16) -> u32 {
    let tag = _mm_set1_epi16(tag as i16);
    let [.., last, end] = *tags;
    // SAFETY: eight of the ten tags are 16 readable bytes; the load needs no alignment.
    let first = unsafe { _mm_loadu_si128(tags.as_ptr().cast()) };
    let rest = _mm_cvtsi32_si128((u32::from(end) << 16 | u32::from(last)) as i32);
    let equal = _mm_packs_epi16(_mm_cmpeq_epi16(first, tag), _mm_cmpeq_epi16(rest, tag));
    _mm_movemask_epi8(equal) as u32 & 0x3FF
}

/// Asks for a cache line on any x86-64.
#[inline(always)]
pub(super) fn prefetch<T>(slice: &[T], at: usize) {
    // A prefetch of any address is harmless; `wrapping_add` makes no claim about it.
    let line = slice.as_ptr().wrapping_add(at).cast();
    // SAFETY: prefetching reads nothing and never faults; SSE is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
}

/// Five instructions beside loads and the store; AVX2 compares unsigned by maximum and equality.
#[inline]
#[target_feature(enable = "avx2")]
fn add_limited(a: &[u32; 8], b: &[u32; 8], limit: &[u32; 8], excess: &[u32; 8]) -> [u32; 8] {
    let a = load(a);
    let reaches = _mm256_cmpeq_epi32(_mm256_max_epu32(a, load(limit)), a);
    let excess = _mm256_and_si256(reaches, load(excess));
    let sum = _mm256_add_epi32(_mm256_add_epi32(a, load(b)), excess);
    let mut words = [0; 8];
    store(&mut words, sum);
    words
}

/// Eight carry-less products, in two chains of four.
#[inline]
#[target_feature(enable = "avx2,sse4.2,pclmulqdq")]
fn crc_pair(crcs: &CrcPair, key: &[u8; 16]) -> (u32, u32) {
    // SAFETY: the key is 16 readable bytes; the load needs no alignment.
    let block = unsafe { _mm_loadu_si128(key.as_ptr().cast()) };
    reduce(crcs, _mm_xor_si128(block, _mm_cvtsi32_si128(-1)))
}

/// Eleven carry-less products: three bring the key down to 16 bytes for both CRCs.
#[inline]
#[target_feature(enable = "avx2,sse4.2,pclmulqdq")]
fn crc_pair_wide(crcs: &CrcPair, key: &[u8; 40]) -> (u32, u32) {
    let mut words = [0; 5];
    for (word, bytes) in words.iter_mut().zip(key.as_chunks().0) {
        *word = i64::from_le_bytes(*bytes);
    }
    // The first 24 bytes are carried down to the last sixteen, where they leave the remainder as it
    // is.
    let [a, b, c, d, e] = words;
    let first = _mm_xor_si128(_mm_cvtsi64_si128(a), _mm_cvtsi32_si128(-1));
    let folded = [first, _mm_cvtsi64_si128(b), _mm_cvtsi64_si128(c)]
        .into_iter()
        .zip(crcs.folds.to_128)
        .map(|(word, power)| _mm_clmulepi64_si128::<0x00>(word, _mm_cvtsi64_si128(power as i64)))
        .fold(_mm_set_epi64x(e, d), |block, share| _mm_xor_si128(block, share));
    reduce(crcs, folded)
}

/// Two carry-less products of what one shuffle puts in order.
#[inline]
#[target_feature(enable = "avx2,sse4.2,pclmulqdq")]
fn address_hash(hash: &AddressHash, header: &[u8; 20]) -> u8 {
    // The source, its last byte first; the protocol and the destination likewise.
    let order = _mm_setr_epi8(11, 10, 9, 8, -1, -1, -1, -1, 5, 15, 14, 13, 12, -1, -1, -1);
    // SAFETY: the last sixteen of the header's twenty bytes, and the two factors, are 16 readable
    // bytes each; the loads need no alignment.
    let (bytes, factors) = unsafe {
        let (header, factors) = (header.as_ptr().add(4), hash.factors().as_ptr());
        (_mm_loadu_si128(header.cast()), _mm_loadu_si128(factors.cast()))
    };
    let numbers = _mm_shuffle_epi8(bytes, order);
    let source = _mm_clmulepi64_si128::<0x00>(numbers, factors);
    let destination = _mm_clmulepi64_si128::<0x11>(numbers, factors);
    upper(_mm_cvtsi128_si64(_mm_xor_si128(source, destination)) as u64)
}

#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn look_up(tables: &Tables, x: u32) -> [u32; LANES] {
    let mut lanes = [0; LANES];
    // SAFETY: `lanes` is 16 writable bytes; the store needs no alignment.
    unsafe { _mm_storeu_si128(lanes.as_mut_ptr().cast(), look_up_in_register(tables, x)) };
    lanes
}

/// Four loads of a table line.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn look_up_in_register(tables: &Tables, x: u32) -> __m128i {
    let [b0, b1, b2, b3] = x.to_le_bytes();
    let line = |position: usize, byte: u8| {
        let line: &[u32; LANES] = &tables[position][usize::from(byte)];
        // SAFETY: the line is 16 readable bytes; the load needs no alignment.
        unsafe { _mm_loadu_si128(line.as_ptr().cast()) }
    };
    let (low, high) = (_mm_xor_si128(line(0, b0), line(1, b1)), (line(2, b2), line(3, b3)));
    _mm_xor_si128(low, _mm_xor_si128(high.0, high.1))
}

/// Eight words of a column.
#[inline]
#[target_feature(enable = "avx2")]
fn load(words: &[u32; 8]) -> __m256i {
    // SAFETY: eight words are 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(words: &mut [u32; 8], vector: __m256i) {
    // SAFETY: eight words are 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), vector) }
}

/// Four rows of four words, in the lower and in the upper half of the registers, become columns,
/// and columns rows.
#[inline]
#[target_feature(enable = "avx2")]
fn turn([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
    let (first, second) = (_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    let (ab, cd) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
    [first, second, _mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd)]
}

/// Rows of 16 bytes, read where they lie.
#[inline]
#[target_feature(enable = "avx2")]
fn columns<R>(rows: &[R; BURST]) -> [Column; 4] {
    const { assert!(size_of::<R>() == 16) };
    let mut columns = [Column::ZERO; 4];
    for (at, rows) in rows.as_chunks::<8>().0.iter().enumerate() {
        let row = |packet: usize| {
            // SAFETY: a row is 16 readable bytes; the load needs no alignment.
            unsafe { _mm_loadu_si128((&raw const rows[packet]).cast()) }
        };
        let two = |packet: usize| _mm256_set_m128i(row(packet + 4), row(packet));
        for (column, words) in columns.iter_mut().zip(turn([two(0), two(1), two(2), two(3)])) {
            store(&mut column.0.as_chunks_mut().0[at], words);
        }
    }
    columns
}

/// Eight shuffles and eight stores for eight packets.
#[inline]
#[target_feature(enable = "avx2")]
fn rows(columns: &[Column; 4]) -> Rows {
    let mut rows = Rows::ZERO;
    for (at, rows) in rows.0.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let column = |word: usize| load(&columns[word].0.as_chunks().0[at]);
        let turned = turn([column(0), column(1), column(2), column(3)]);
        let (first, last) = rows.split_at_mut(4);
        for (two, (low, high)) in turned.into_iter().zip(first.iter_mut().zip(last)) {
            let (low, high) = (low.as_mut_ptr().cast(), high.as_mut_ptr().cast());
            // SAFETY: two rows are 16 writable bytes each; the stores need no alignment.
            unsafe { _mm256_storeu2_m128i(high, low, two) };
        }
    }
    rows
}

/// From the tables' lines to columns without a way through memory.
#[inline]
#[target_feature(enable = "avx2")]
fn look_up_burst(tables: &Tables, xs: &Column, len: usize) -> [Column; LANES] {
    let mut columns = [Column::ZERO; LANES];
    for (at, xs) in xs.0.as_chunks::<8>().0.iter().enumerate().take(len.div_ceil(8)) {
        let line = |packet: usize| look_up_in_register(tables, xs[packet]);
        let two = |packet: usize| _mm256_set_m128i(line(packet + 4), line(packet));
        for (column, words) in columns.iter_mut().zip(turn([two(0), two(1), two(2), two(3)])) {
            store(&mut column.0.as_chunks_mut().0[at], words);
        }
    }
    columns
}

/// Turns the four bytes of each of four words: all first bytes, all second ones, and so on. Done
/// twice, it changes nothing.
#[inline]
#[target_feature(enable = "avx2")]
fn turn_bytes(words: __m256i) -> __m256i {
    let order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order))
}

/// The first bytes of all words of a column, the second ones, and so on, in an order that
/// [`from_bytes`] takes back.
#[inline]
#[target_feature(enable = "avx2")]
fn to_bytes(column: &Column) -> [__m256i; 4] {
    let eight = |at: usize| turn_bytes(load(&column.0.as_chunks().0[at]));
    turn([eight(0), eight(1), eight(2), eight(3)])
}

/// The opposite of [`to_bytes`], `constant` being mixed into every word.
#[inline]
#[target_feature(enable = "avx2")]
fn from_bytes(bytes: [__m256i; 4], constant: u32) -> Column {
    let mut column = Column::ZERO;
    for (words, turned) in column.0.as_chunks_mut().0.iter_mut().zip(turn(bytes)) {
        let constant = _mm256_set1_epi32(constant as i32);
        store(words, _mm256_xor_si256(turn_bytes(turned), constant));
    }
    column
}

/// CRCs as linear maps: for each byte of a key, 16 look-ups among 16 bytes and as many exclusive
/// ors serve 32 keys and both CRCs, some 20 instructions a key.
#[inline]
#[target_feature(enable = "avx2")]
fn crcs(pair: &CrcPair, keys: &[Column; 4]) -> (Column, Column) {
    let [of_x, of_y] = &pair.affine;
    let mut bytes = [[_mm256_setzero_si256(); 4]; 4];
    for (bytes, column) in bytes.iter_mut().zip(keys) {
        *bytes = to_bytes(column);
    }
    let mut x = [_mm256_setzero_si256(); 4];
    let mut y = x;
    let low = _mm256_set1_epi8(0x0F);
    for byte in 0..FlowKey::LEN {
        let both = bytes[byte / 4][byte % 4];
        let low_half = _mm256_and_si256(both, low);
        let high_half = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
        let share = |shares: &Halves, to: usize| {
            let among = |half: usize| {
                // SAFETY: the look-up table is 16 readable bytes; the load needs no alignment.
                let table = unsafe { _mm_loadu_si128(shares[half][to].as_ptr().cast()) };
                _mm256_broadcastsi128_si256(table)
            };
            _mm256_xor_si256(
                _mm256_shuffle_epi8(among(0), low_half),
                _mm256_shuffle_epi8(among(1), high_half),
            )
        };
        for to in 0..4 {
            x[to] = _mm256_xor_si256(x[to], share(&of_x.halves[byte], to));
            y[to] = _mm256_xor_si256(y[to], share(&of_y.halves[byte], to));
        }
    }
    (from_bytes(x, of_x.zeros), from_bytes(y, of_y.zeros))
}

/// Eight packets an instruction.
#[inline]
#[target_feature(enable = "avx2")]
fn nonzero(column: &Column) -> u32 {
    let mut zeros = 0;
    for (eight, words) in column.0.as_chunks::<8>().0.iter().enumerate() {
        let zero = _mm256_cmpeq_epi32(load(words), _mm256_setzero_si256());
        zeros |= (_mm256_movemask_ps(_mm256_castsi256_ps(zero)) as u32) << (8 * eight);
    }
    !zeros
}

/// Both CRCs of a block into which the initial value has been mixed.
#[inline]
#[target_feature(enable = "avx2,sse4.2,pclmulqdq")]
fn reduce(crcs: &CrcPair, block: __m128i) -> (u32, u32) {
    let [of_x, of_y] = &crcs.folds.to_32;
    let (x, y) = (crc32(of_x, block), crc32(of_y, block));
    (_mm_cvtsi128_si32(x) as u32, _mm_cvtsi128_si32(y) as u32)
}

/// The CRC of a block into which the initial value has been mixed, in every lane. With L and H the
/// polynomials of its halves, the remainder is that of L x^96 + H x^32: one product takes L x^96 to
/// degree 95, a second one the upper third to degree 63, two more reduce by Barrett's method.
#[inline]
#[target_feature(enable = "avx2,sse4.2,pclmulqdq")]
fn crc32(by: &Fold, block: __m128i) -> __m128i {
    let two = |words: &[u64; 2]| {
        // SAFETY: two words are 16 readable bytes; the load needs no alignment.
        unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
    };
    let (powers, reduction) = (two(&by.powers), two(&by.reduction));
    let upper_by_32 = _mm_setr_epi8(-1, -1, -1, -1, 8, 9, 10, 11, 12, 13, 14, 15, -1, -1, -1, -1);

    let to_95 = _mm_clmulepi64_si128::<0x00>(block, powers);
    let to_95 = _mm_xor_si128(to_95, _mm_shuffle_epi8(block, upper_by_32));
    let to_63 = _mm_xor_si128(to_95, _mm_clmulepi64_si128::<0x10>(to_95, powers));
    let top = _mm_and_si128(to_63, _mm_setr_epi32(0, 0, -1, 0));
    let quotient = _mm_clmulepi64_si128::<0x11>(top, reduction);
    let quotient = _mm_and_si128(quotient, _mm_setr_epi32(-1, 0, 0, 0));
    let multiple = _mm_clmulepi64_si128::<0x00>(quotient, reduction);
    let remainder = _mm_xor_si128(to_63, _mm_slli_si128::<8>(multiple));
    _mm_xor_si128(_mm_shuffle_epi32::<0xFF>(remainder), _mm_set1_epi32(-1))
}
