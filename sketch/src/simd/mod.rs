//! Instruction sets: what the CPU at hand has, found out when a hash family is made.
//!
//! Hot code is written once, over an [`Isa`]. Run through [`Isa::run`] it is compiled once more
//! for the vector instructions, so that its plain loops over the packets of a burst or the lanes
//! of a bucket become single ones. Only what no compiler finds by itself stands in this module as
//! intrinsics: carry-less products, the tables' 16-byte lines, turning rows into columns, sums
//! modulo p, prefetching. Everything else is in safe code elsewhere.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(target_arch = "x86_64")]
pub use self::{avx2::Avx2, avx512::Avx512};

use crate::burst::{BURST, Column, Keys, Rows};
use crate::hash::crc::CrcPair;
use crate::hash::{AddressHash, LANES, Tables};
use crate::key::FlowKey;

/// The instructions that a hash family, and what is called with it, uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Any CPU.
    Scalar,
    /// x86-64 with AVX2, BMI and PCLMULQDQ.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// The same with AVX-512 (F, BW, DQ, VL, VBMI) and GFNI.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Engine {
    /// The fastest that this CPU has.
    pub fn detect() -> Self {
        Self::available().next().unwrap_or(Self::Scalar)
    }

    /// All that this CPU has, the fastest first and plain code last.
    pub fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let vector =
            [Avx512::detect().map(Self::Avx512), Avx2::detect().map(Self::Avx2)].into_iter();
        #[cfg(not(target_arch = "x86_64"))]
        let vector = std::iter::empty();
        vector.flatten().chain([Self::Scalar])
    }

    /// Its name, as benchmarks print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "AVX-512",
        }
    }
}

/// Work that is compiled for each instruction set anew. A trait, since a closure could not be made
/// part of the function that the instructions are enabled in: [`work`](Self::work) must be
/// `#[inline(always)]`.
pub trait Work {
    /// What comes of it.
    type Output;

    /// Does it with the instructions of `isa`.
    fn work(self, isa: impl Isa) -> Self::Output;
}

impl Engine {
    /// Does `work` with these instructions.
    #[inline(always)]
    pub fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            Self::Scalar => Scalar.run(work),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(isa) => isa.run(work),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(isa) => isa.run(work),
        }
    }
}

/// Which latencies [`Isa::add_latencies`] says of that they may be long.
#[derive(Clone, Copy, Debug)]
pub struct Above {
    /// Those that are above so many times the mean of those before.
    pub times: u64,
    /// Where so many are before.
    pub seen: u32,
    /// Whether those that have fewer before count as well.
    pub few: bool,
}

/// Parts of the hashes of the flows in a bucket of a table.
pub(crate) type Tags = [u16; 10];

/// What hot code asks of an instruction set. Implementations agree in every bit.
pub trait Isa: Copy {
    /// Does `work` in a function of its own, compiled for this instruction set.
    fn run<W: Work>(self, work: W) -> W::Output;

    /// Both CRCs of a padded key.
    fn crc_pair(self, crcs: &CrcPair, key: &[u8; 16]) -> (u32, u32);

    /// Both CRCs of a padded wide key.
    fn crc_pair_wide(self, crcs: &CrcPair, key: &[u8; 40]) -> (u32, u32);

    /// Both CRCs of every key of a burst.
    fn crcs(self, crcs: &CrcPair, keys: &Keys) -> (Column, Column);

    /// The hash of an IPv4 header's addresses and protocol.
    #[inline(always)]
    fn address_hash(self, hash: &AddressHash, header: &[u8; 20]) -> u8 {
        hash.of(header)
    }

    /// The exclusive or of the lines that the four bytes of `x` stand for.
    fn look_up(self, tables: &Tables, x: u32) -> [u32; LANES];

    /// [`look_up`](Self::look_up) for the first `len` of `xs`, word after word.
    #[inline(always)]
    fn look_up_burst(self, tables: &Tables, xs: &Column, len: usize) -> [Column; LANES] {
        let mut rows = Rows::ZERO;
        for (row, &x) in rows.0[..len].iter_mut().zip(&xs.0) {
            *row = self.look_up(tables, x);
        }
        self.columns(&rows)
    }

    /// The padded keys' words, word after word.
    #[inline(always)]
    fn columns_of(self, keys: &[FlowKey; BURST]) -> [Column; 4] {
        let mut rows = Rows::ZERO;
        for (row, key) in rows.0.iter_mut().zip(keys) {
            *row = key.padded_words();
        }
        self.columns(&rows)
    }

    /// Word after word what was packet after packet.
    fn columns(self, rows: &Rows) -> [Column; 4];

    /// Packet after packet what was word after word.
    fn rows(self, columns: &[Column; 4]) -> Rows;

    /// A set bit for each packet whose word is not zero, the first packet's lowest.
    fn nonzero(self, column: &Column) -> u32;

    /// `a + b` lane by lane, `excess` being added where a lane of `a` reaches `limit`.
    fn add_limited(self, a: [u32; 8], b: [u32; 8], limit: [u32; 8], excess: [u32; 8]) -> [u32; 8];

    /// A set bit for each of the tags that is `tag`, the first one's lowest.
    #[inline(always)]
    fn equal_tags(self, tags: &Tags, tag: u16) -> u32 {
        tags.iter().enumerate().fold(0, |bits, (at, &each)| bits | u32::from(each == tag) << at)
    }

    /// A set bit for each of the eight 16-bit lanes of two words that is `tag`, the lowest lane of
    /// the first word lowest.
    #[inline(always)]
    fn equal_lanes(self, words: [u64; 2], tag: u16) -> u32 {
        // The lanes' highest bits, side by side.
        let of = |word: u64| (lanes(word, tag).wrapping_mul(0x0000_2000_4000_8001) >> 60) as u32;
        of(words[1]) << 4 | of(words[0])
    }

    /// Adds the first latencies of a column, but for those of all bits set, to cells that lie side
    /// by side in `cells`, which are of four words each: first all sums, each in two words, then
    /// all maxima, then all numbers, of which none is at its highest. Gives whether one of the
    /// latencies is what `above` says, by the sum modulo 2^64.
    #[inline(always)]
    fn add_latencies(
        self,
        cells: &mut [u32],
        (latencies, hops): (&[u32; 16], usize),
        above: Above,
    ) -> bool {
        let width = cells.len() / 4;
        let (sums, others) = cells.split_at_mut(2 * width);
        let (most, numbers) = others.split_at_mut(width);
        let cells = sums.as_chunks_mut::<2>().0.iter_mut().zip(most).zip(numbers);
        let mut is_above = false;
        for (&ns, ((sum, most), number)) in latencies.iter().take(hops).zip(cells) {
            if ns == u32::MAX {
                continue;
            }
            let before = u64::from(sum[1]) << 32 | u64::from(sum[0]);
            let is_long = u64::from(ns) * u64::from(*number) > before.wrapping_mul(above.times);
            is_above |= if *number < above.seen { above.few } else { is_long };
            let after = before.wrapping_add(ns.into());
            *sum = [after as u32, (after >> 32) as u32];
            *most = ns.max(*most);
            *number = number.wrapping_add(1);
        }
        is_above
    }

    /// Asks for the cache line of `slice[at]`; nothing happens where there is none.
    fn prefetch<T>(self, slice: &[T], at: usize);
}

/// Plain code.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

impl Isa for Scalar {
    #[inline(always)]
    fn run<W: Work>(self, work: W) -> W::Output {
        work.work(self)
    }

    #[inline(always)]
    fn crc_pair(self, crcs: &CrcPair, key: &[u8; 16]) -> (u32, u32) {
        crcs.of(key)
    }

    #[inline(always)]
    fn crc_pair_wide(self, crcs: &CrcPair, key: &[u8; 40]) -> (u32, u32) {
        crcs.of(key)
    }

    #[inline(always)]
    fn crcs(self, crcs: &CrcPair, keys: &Keys) -> (Column, Column) {
        let (mut x, mut y) = (Column::ZERO, Column::ZERO);
        for packet in 0..keys.len {
            (x.0[packet], y.0[packet]) = crcs.of(&bytes(&keys.padded(packet)));
        }
        (x, y)
    }

    #[inline(always)]
    fn look_up(self, tables: &Tables, x: u32) -> [u32; LANES] {
        let mut words = [0; LANES];
        for (table, byte) in tables.iter().zip(x.to_le_bytes()) {
            for (word, entry) in words.iter_mut().zip(table[usize::from(byte)]) {
                *word ^= entry;
            }
        }
        words
    }

    #[inline(always)]
    fn columns(self, rows: &Rows) -> [Column; 4] {
        let mut columns = [Column::ZERO; 4];
        for (packet, row) in rows.0.iter().enumerate() {
            for (column, &word) in columns.iter_mut().zip(row) {
                column.0[packet] = word;
            }
        }
        columns
    }

    #[inline(always)]
    fn rows(self, columns: &[Column; 4]) -> Rows {
        let mut rows = Rows::ZERO;
        for (packet, row) in rows.0.iter_mut().enumerate() {
            for (word, column) in row.iter_mut().zip(columns) {
                *word = column.0[packet];
            }
        }
        rows
    }

    #[inline(always)]
    fn nonzero(self, column: &Column) -> u32 {
        (0..BURST).fold(0, |bits, packet| bits | u32::from(column.0[packet] != 0) << packet)
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

/// The 16-bit lanes of a word that are `tag`: their highest bits, all others being 0.
#[inline(always)]
pub(crate) fn lanes(word: u64, tag: u16) -> u64 {
    const LOW: u64 = 0x7FFF_7FFF_7FFF_7FFF;
    // A lane of the difference is zero where its lower bits and its highest one are.
    let differ = word ^ (u64::from(tag) * 0x0001_0001_0001_0001);
    !((differ & LOW).wrapping_add(LOW) | differ | LOW)
}

/// The bytes of four little-endian words.
#[inline(always)]
fn bytes(words: &[u32; 4]) -> [u8; 16] {
    let word = |at: usize| u128::from(words[at]) << (32 * at);
    (word(0) | word(1) | word(2) | word(3)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{FlowKey, HashFamily, HashKey, Hashes, Key, WideKey};

    struct Turn<'a>(&'a Rows);

    impl Work for Turn<'_> {
        type Output = ([Column; 4], Rows, u32);

        #[inline(always)]
        fn work(self, isa: impl Isa) -> Self::Output {
            let turned = isa.columns(self.0);
            (turned, isa.rows(&turned), isa.nonzero(&turned[0]))
        }
    }

    struct Add<'a>(&'a mut [u32], (&'a [u32; 16], usize), Above);

    impl Work for Add<'_> {
        type Output = bool;

        #[inline(always)]
        fn work(self, isa: impl Isa) -> bool {
            isa.add_latencies(self.0, self.1, self.2)
        }
    }

    struct FindLanes([u64; 2], u16);

    impl Work for FindLanes {
        type Output = u32;

        #[inline(always)]
        fn work(self, isa: impl Isa) -> u32 {
            isa.equal_lanes(self.0, self.1)
        }
    }

    struct Find<'a>(&'a Tags, u16);

    impl Work for Find<'_> {
        type Output = u32;

        #[inline(always)]
        fn work(self, isa: impl Isa) -> u32 {
            isa.equal_tags(self.0, self.1)
        }
    }

    fn hash_alike<K: Key>(family: &HashFamily, keys: &[K]) -> Result<(), TestCaseError> {
        let plain = family.clone().scalar();
        let expected: Vec<Hashes> = keys.iter().map(|key| plain.hash(key)).collect();
        for engine in Engine::available() {
            let family = family.clone().with_engine(engine);
            let singly: Vec<Hashes> = keys.iter().map(|key| family.hash(key)).collect();
            prop_assert_eq!(&singly, &expected, "{}", engine.name());
            let mut bursts = vec![Hashes::default(); keys.len()];
            family.hash_burst(keys, &mut bursts);
            prop_assert_eq!(&bursts, &expected, "bursts, {}", engine.name());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn every_engine_hashes_as_plain_code_does(secret: [u8; 32], keys: Vec<[u8; 13]>) {
            let family = HashFamily::new(&HashKey::from_bytes(secret));
            prop_assert_eq!(family.clone().scalar().engine(), Engine::Scalar);
            let keys: Vec<FlowKey> = keys.into_iter().map(FlowKey::from_bytes).collect();
            hash_alike(&family, &keys)?;
        }

        #[test]
        fn every_engine_hashes_wide_keys_as_plain_code_does(
            secret: [u8; 32],
            keys: Vec<([u32; 9], u8)>,
        ) {
            let family = HashFamily::new(&HashKey::from_bytes(secret));
            let keys: Vec<WideKey> = keys
                .into_iter()
                .map(|(words, protocol)| WideKey::from_words(words, protocol))
                .collect();
            hash_alike(&family, &keys)?;
        }

        #[test]
        fn latencies_are_added_alike_by_every_engine(
            before in prop::collection::vec((0_u64..1 << 40, any::<u32>(), 0_u32..40), 1..18),
            drawn in prop::array::uniform16((0_u32..33, any::<u32>())),
            (hops, times, few) in (0_usize..18, 0_u64..9, any::<bool>()),
        ) {
            let sums = before.iter().flat_map(|of| [of.0 as u32, (of.0 >> 32) as u32]);
            let others = before.iter().map(|of| of.1).chain(before.iter().map(|of| of.2));
            let cells: Vec<u32> = sums.chain(others).collect();
            // Some are not known.
            let latencies = drawn.map(|(shift, ns)| ns.checked_shr(shift).unwrap_or(u32::MAX));
            let above = Above { times, seen: 8, few };
            let (mut expected, mut is_above) = (before.clone(), false);
            for (of, &ns) in expected.iter_mut().zip(&latencies).take(hops) {
                if ns != u32::MAX {
                    let is_long = u128::from(ns) * u128::from(of.2) > u128::from(of.0 * times);
                    is_above |= if of.2 < 8 { few } else { is_long };
                    *of = (of.0 + u64::from(ns), of.1.max(ns), of.2 + 1);
                }
            }
            for engine in Engine::available() {
                let mut cells = cells.clone();
                let found = engine.run(Add(&mut cells, (&latencies, hops), above));
                prop_assert_eq!(found, is_above, "{}", engine.name());
                let width = before.len();
                for (at, &(sum, most, number)) in expected.iter().enumerate() {
                    let words = [2 * at, 2 * at + 1, 2 * width + at, 3 * width + at];
                    let words = words.map(|at| cells[at]);
                    prop_assert_eq!(words, [sum as u32, (sum >> 32) as u32, most, number]);
                }
            }
        }

        #[test]
        fn lanes_are_found_by_every_engine(lanes: [u16; 8], few: bool, tag in 0_u16..4) {
            let lanes = if few { lanes.map(|lane| lane % 4) } else { lanes };
            let word = |of: &[u16]| (0..).zip(of).fold(0, |word, (at, &lane)| {
                word | u64::from(lane) << (16 * at)
            });
            let words = [word(&lanes[..4]), word(&lanes[4..])];
            for engine in Engine::available() {
                for tag in [tag, lanes[6], lanes[3] ^ 0x8000] {
                    let found = engine.run(FindLanes(words, tag));
                    let equal = |at: &usize| lanes[*at] == tag;
                    let expected = (0..8).filter(equal).fold(0, |bits, at| bits | 1 << at);
                    prop_assert_eq!(found, expected, "{}", engine.name());
                }
            }
        }

        #[test]
        fn tags_are_found_in_the_same_places(tags: [u16; 10], few: bool, tag in 0_u16..4) {
            let tags = if few { tags.map(|tag| tag % 4) } else { tags };
            for engine in Engine::available() {
                for tag in [tag, tags[9]] {
                    let places = engine.run(Find(&tags, tag));
                    for (at, &each) in tags.iter().enumerate() {
                        prop_assert_eq!(places >> at & 1 == 1, each == tag);
                    }
                    prop_assert_eq!(places >> tags.len(), 0);
                }
            }
        }

        #[test]
        fn turning_rows_and_finding_zeros_is_the_same_everywhere(words: [[u32; 4]; BURST]) {
            let rows = Rows(words.map(|row| row.map(|word| word & word << 7)));
            let columns = Scalar.columns(&rows);
            for engine in Engine::available() {
                let (turned, back, bits) = engine.run(Turn(&rows));
                prop_assert_eq!((turned, back), (columns, rows));
                prop_assert_eq!(bits, Scalar.nonzero(&columns[0]));
            }
        }
    }
}
