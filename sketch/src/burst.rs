//! A burst of packets on its side: one field of all its packets after the other, so that plain
//! loops over a field become vector instructions, whichever the CPU has.
//!
//! A column always has room for a whole burst. What stands behind the last packet of a shorter one
//! is computed like the rest and never read.

use crate::hash::crc::CrcPair;
use crate::key::{FlowKey, WideKey};
use crate::simd::Isa;

/// Most packets that are recorded at a time.
pub const BURST: usize = 32;

/// One word for each packet of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Column(pub [u32; BURST]);

impl Column {
    /// All words zero.
    pub const ZERO: Self = Self([0; BURST]);

    /// The column of `f` of each packet's number.
    #[inline(always)]
    pub fn from_fn(f: impl Fn(usize) -> u32) -> Self {
        let mut column = Self::ZERO;
        for packet in 0..BURST {
            column.0[packet] = f(packet);
        }
        column
    }
}

/// The entry for `class`, without a look-up that vectors could not make.
#[inline(always)]
pub(crate) fn select(entries: &[u32; 4], class: u32) -> u32 {
    let [zero, one, two, three] = *entries;
    let low = if class == 0 { zero } else { one };
    let high = if class == 3 { three } else { two };
    if class >= 2 { high } else { low }
}

/// A mask of a burst's first `packets` packets, at most [`BURST`].
#[inline(always)]
pub fn first(packets: usize) -> u32 {
    ((1_u64 << packets.min(BURST)) - 1) as u32
}

/// The numbers of the bits that are set, the lowest first.
#[inline(always)]
pub fn ones(mut bits: u32) -> impl Iterator<Item = usize> + Clone {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        lowest
    })
}

/// Four words for each packet of a burst, packet after packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Rows(pub [[u32; 4]; BURST]);

impl Rows {
    /// All words zero.
    pub const ZERO: Self = Self([[0; 4]; BURST]);
}

/// Keys that are hashed and recorded in bursts.
pub trait InBursts: Copy {
    /// The keys of a burst, in the form in which they are read.
    type Burst;

    /// # Panics
    /// When there are more than [`BURST`].
    fn burst(isa: impl Isa, keys: &[Self]) -> Self::Burst;

    /// The first `len` of these keys.
    fn first_of(isa: impl Isa, keys: &[Self; BURST], len: usize) -> Self::Burst;

    /// How many keys there are.
    fn number(burst: &Self::Burst) -> usize;

    /// Both CRCs of the padded key.
    fn crc_pair(&self, isa: impl Isa, crcs: &CrcPair) -> (u32, u32);

    /// Both CRCs of every key of a burst.
    fn crcs(isa: impl Isa, crcs: &CrcPair, burst: &Self::Burst) -> (Column, Column);
}

impl InBursts for FlowKey {
    type Burst = Keys;

    #[inline(always)]
    fn burst(isa: impl Isa, keys: &[Self]) -> Keys {
        Keys::new(isa, keys)
    }

    #[inline(always)]
    fn first_of(isa: impl Isa, keys: &[Self; BURST], len: usize) -> Keys {
        Keys { len, columns: isa.columns_of(keys) }
    }

    #[inline(always)]
    fn number(burst: &Keys) -> usize {
        burst.len
    }

    #[inline(always)]
    fn crc_pair(&self, isa: impl Isa, crcs: &CrcPair) -> (u32, u32) {
        isa.crc_pair(crcs, self.padded())
    }

    #[inline(always)]
    fn crcs(isa: impl Isa, crcs: &CrcPair, burst: &Keys) -> (Column, Column) {
        isa.crcs(crcs, burst)
    }
}

impl InBursts for WideKey {
    type Burst = WideKeys;

    #[inline(always)]
    fn burst(_: impl Isa, keys: &[Self]) -> WideKeys {
        let mut burst = WideKeys { len: keys.len(), keys: [Self::default(); BURST] };
        burst.keys[..keys.len()].copy_from_slice(keys);
        burst
    }

    #[inline(always)]
    fn first_of(_: impl Isa, keys: &[Self; BURST], len: usize) -> WideKeys {
        WideKeys { len, keys: *keys }
    }

    #[inline(always)]
    fn number(burst: &WideKeys) -> usize {
        burst.len
    }

    #[inline(always)]
    fn crc_pair(&self, isa: impl Isa, crcs: &CrcPair) -> (u32, u32) {
        isa.crc_pair_wide(crcs, self.padded())
    }

    #[inline(always)]
    fn crcs(isa: impl Isa, crcs: &CrcPair, burst: &WideKeys) -> (Column, Column) {
        let (mut x, mut y) = (Column::ZERO, Column::ZERO);
        for packet in 0..burst.len {
            (x.0[packet], y.0[packet]) = isa.crc_pair_wide(crcs, burst.keys[packet].padded());
        }
        (x, y)
    }
}

/// The wide keys of a burst. They are too long to lie on their side.
pub struct WideKeys {
    /// How many there are.
    pub(crate) len: usize,
    /// The keys, zero behind the last.
    pub(crate) keys: [WideKey; BURST],
}

/// The keys of a burst.
pub struct Keys {
    /// How many there are.
    pub(crate) len: usize,
    /// The padded keys' little-endian words, each of all keys.
    pub(crate) columns: [Column; 4],
}

impl Keys {
    /// # Panics
    /// When there are more than [`BURST`].
    #[inline(always)]
    pub(crate) fn new(isa: impl Isa, keys: &[FlowKey]) -> Self {
        let columns = match keys.first_chunk() {
            Some(keys) => isa.columns_of(keys),
            None => {
                let mut whole = [FlowKey::default(); BURST];
                whole[..keys.len()].copy_from_slice(keys);
                isa.columns_of(&whole)
            }
        };
        Self { len: keys.len(), columns }
    }

    /// The little-endian words of one of the padded keys.
    #[inline(always)]
    pub(crate) fn padded(&self, packet: usize) -> [u32; 4] {
        let word = |at: usize| self.columns[at].0[packet];
        [word(0), word(1), word(2), word(3)]
    }

    /// The big-endian words of one of the padded keys.
    #[inline(always)]
    pub(crate) fn words(&self, packet: usize) -> [u32; 4] {
        self.padded(packet).map(u32::swap_bytes)
    }
}
