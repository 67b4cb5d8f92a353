//! The hash family: every index, fingerprint and sampling decision of a packet, from two CRCs and
//! one table look-up, all of them secret.
//!
//! A CRC alone is linear: structured traffic (address ranges, port sweeps) would fall into buckets
//! in rows, and nothing would decode. So one CRC goes through secret tables (tabulation hashing)
//! and the other is rotated in, one rotation for each array. Together the two CRCs are the key's
//! remainder modulo the product of two irreducible polynomials of degree 32, so keys that differ
//! only within 64 neighbouring bits never agree in both. The polynomials are secret as well: of
//! keys that differ in more, nobody can know which agree.
//!
//! The construction is part of the contract with the hardware switches: `docs/contract.md`.

pub(crate) mod addresses;
pub mod crc;
pub mod polynomial;

use std::fmt;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

pub use self::addresses::{AddressHash, BYTES as ADDRESS_BYTES};
use self::crc::CrcPair;
use crate::burst::{BURST, Column};
use crate::key::Key;
use crate::simd::{Engine, Isa, Work};

/// Words that one table look-up yields: one for each of up to three bucket arrays, one for the
/// flow classifier (or a fourth array).
pub const LANES: usize = 4;

/// How far the second CRC is rotated left before it is mixed into each lane. Any 12 low bits of
/// the first three lanes together cover all 32 bits of the CRC, so that two keys with the same
/// first CRC collide in all three arrays only where they agree in the second one as well.
pub const ROTATIONS: [u32; LANES] = [0, 11, 21, 16];

/// The first word of the nonce under which a key's number is drawn; of a key with public generators
/// the next one. Tables and generators have 0, signatures 1 and 2.
const ID_NONCE: u32 = 3;

/// The secret of a deployment from which its hash functions are drawn; all its switches share it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey {
    bytes: [u8; 32],
    public_generators: bool,
}

impl HashKey {
    /// The key from its 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self { bytes, public_generators: false }
    }

    /// The key for the functions of releases that draw only the tables from it, and take the CRCs
    /// that everybody knows. Hosts that choose their flows can have them mistaken for others.
    pub fn with_public_generators(bytes: [u8; 32]) -> Self {
        Self { bytes, public_generators: true }
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// A number that tells keys apart and says nothing of them (docs/contract.md, "Hashes").
    pub fn id(&self) -> u64 {
        // The generator counts in 64 bits what RFC 8439 has as a counter and the nonce's first
        // word.
        const WORDS: u128 = 16;
        let nonce = ID_NONCE + u32::from(self.public_generators);
        let mut stream = ChaCha20Rng::from_seed(self.bytes);
        stream.set_word_pos((u128::from(nonce) << 32) * WORDS);
        stream.next_u64()
    }

    /// Whether it is [one with public generators](Self::with_public_generators).
    pub fn has_public_generators(&self) -> bool {
        self.public_generators
    }
}

impl fmt::Debug for HashKey {
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

/// What the four bytes of the first CRC are looked up in: 16 KiB, resident in the L1 cache.
pub(crate) type Tables = [[[u32; LANES]; 256]; 4];

/// The keyed hash functions of a deployment.
#[derive(Clone)]
pub struct HashFamily {
    crcs: Box<CrcPair>,
    tables: Box<Tables>,
    engine: Engine,
}

impl HashFamily {
    /// Draws the functions from `key`: the ChaCha20 key stream (nonce 0), read as little-endian
    /// 32-bit words. First come the tables, in the order byte position, byte value, lane, then the
    /// CRCs' generators. Some 0.2 ms.
    pub fn new(key: &HashKey) -> Self {
        let mut stream = ChaCha20Rng::from_seed(key.bytes);
        let mut tables = Box::new([[[0; LANES]; 256]; 4]);
        for word in tables.as_flattened_mut().as_flattened_mut() {
            *word = stream.next_u32();
        }
        let generators = if key.public_generators {
            [crc::CASTAGNOLI, crc::ISO_HDLC]
        } else {
            polynomial::draw(|| stream.next_u32())
        };
        Self { crcs: Box::new(CrcPair::new(generators)), tables, engine: Engine::detect() }
    }

    /// The same functions computed by plain code, to compare with.
    pub fn scalar(self) -> Self {
        self.with_engine(Engine::Scalar)
    }

    /// The same functions computed with other instructions: one of [`Engine::available`].
    pub fn with_engine(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    /// The instructions that hashing uses, and what is given this family: recording and decoding.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The tables, for those who must load them into a hardware switch: byte position, byte
    /// value, lane.
    pub fn tables(&self) -> &[[[u32; LANES]; 256]; 4] {
        &self.tables
    }

    /// The CRCs x and y, whose generators a hardware switch must load as well.
    pub fn crcs(&self) -> &CrcPair {
        &self.crcs
    }

    /// All hashes of one key. The tables stay in the L1 cache; the key's line is the only other
    /// one. Bursts are cheaper: see [`hash_burst`](Self::hash_burst).
    #[inline]
    pub fn hash<K: Key>(&self, key: &K) -> Hashes {
        self.engine.run(HashOne(self, key))
    }

    /// All hashes of a burst of keys; `out` must be as long as `keys`. About 12 cycles a key with
    /// AVX-512 (EPYC of family 26; `cargo xtask bench sketch` prints those of the CPU at hand).
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn hash_burst<K: Key>(&self, keys: &[K], out: &mut [Hashes]) {
        assert_eq!(keys.len(), out.len(), "one set of hashes for each key");
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            self.engine.run(HashBurst(self, keys, out));
        }
    }

    /// All hashes of a burst of keys, at most [`BURST`], column by column: for several sketches.
    ///
    /// # Panics
    /// When the burst is longer.
    #[inline]
    pub fn hash_columns<K: Key>(&self, keys: &[K], out: &mut HashColumns) {
        self.engine.run(HashInto(self, keys, out));
    }

    /// Whether both compute the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.crcs.generators() == other.crcs.generators() && self.tables == other.tables
    }

    /// As [`hash`](Self::hash), within work that already runs on `isa`.
    #[inline(always)]
    pub fn hash_with<K: Key>(&self, isa: impl Isa, key: &K) -> Hashes {
        let (x, y) = key.crc_pair(isa, &self.crcs);
        Hashes::mix(isa.look_up(&self.tables, x), x, y)
    }

    /// All hashes of a burst, column by column, within work that already runs on `isa`.
    #[inline(always)]
    pub fn hash_keys<K: Key>(&self, isa: impl Isa, keys: &K::Burst) -> HashColumns {
        let (x, y) = K::crcs(isa, &self.crcs, keys);
        let [a, b, c, d] = isa.look_up_burst(&self.tables, &x, K::number(keys));
        let mix = |words: Column, rotation: u32| {
            Column::from_fn(|packet| words.0[packet] ^ y.0[packet].rotate_left(rotation))
        };
        let [r, s, t, u] = ROTATIONS;
        HashColumns { lanes: [mix(a, r), mix(b, s), mix(c, t), mix(d, u)], x, y }
    }
}

struct HashOne<'a, K>(&'a HashFamily, &'a K);

impl<K: Key> Work for HashOne<'_, K> {
    type Output = Hashes;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> Hashes {
        self.0.hash_with(isa, self.1)
    }
}

struct HashInto<'a, K>(&'a HashFamily, &'a [K], &'a mut HashColumns);

impl<K: Key> Work for HashInto<'_, K> {
    type Output = ();

    #[inline(always)]
    fn work(self, isa: impl Isa) {
        *self.2 = self.0.hash_keys::<K>(isa, &K::burst(isa, self.1));
    }
}

struct HashBurst<'a, K>(&'a HashFamily, &'a [K], &'a mut [Hashes]);

impl<K: Key> Work for HashBurst<'_, K> {
    type Output = ();

    #[inline(always)]
    fn work(self, isa: impl Isa) {
        let hashes = self.0.hash_keys::<K>(isa, &K::burst(isa, self.1));
        for (packet, out) in self.2.iter_mut().take(BURST).enumerate() {
            *out = hashes.of(packet);
        }
    }
}

/// The hashes of a burst of keys.
#[derive(Clone, Debug)]
pub struct HashColumns {
    lanes: [Column; LANES],
    x: Column,
    y: Column,
}

impl Default for HashColumns {
    fn default() -> Self {
        Self { lanes: [Column::ZERO; LANES], x: Column::ZERO, y: Column::ZERO }
    }
}

impl HashColumns {
    /// The hashes of one packet of the burst.
    #[inline(always)]
    pub fn of(&self, packet: usize) -> Hashes {
        let mut lanes = [0; LANES];
        for lane in 0..LANES {
            lanes[lane] = self.lanes[lane].0[packet];
        }
        Hashes { lanes, x: self.x.0[packet], y: self.y.0[packet] }
    }

    /// [`Hashes::array_word`] of every packet.
    #[inline(always)]
    pub(crate) fn array_words(&self, array: usize) -> Column {
        match array {
            0..LANES => self.lanes[array],
            _ => Column::from_fn(|packet| self.of(packet).array_word(LANES)),
        }
    }

    /// [`Hashes::classifier_word`] of every packet.
    #[inline(always)]
    pub(crate) fn classifier_words(&self, level: usize) -> Column {
        // A loop of its own for each level: only those are vectorised.
        match level {
            0 => Column::from_fn(|packet| self.of(packet).classifier_word(0)),
            1 => Column::from_fn(|packet| self.of(packet).classifier_word(1)),
            2 => Column::from_fn(|packet| self.of(packet).classifier_word(2)),
            3 => Column::from_fn(|packet| self.of(packet).classifier_word(3)),
            _ => Column::from_fn(|packet| self.of(packet).classifier_word(4)),
        }
    }
}

impl fmt::Debug for HashFamily {
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashFamily(..)")
    }
}

/// The hashes of one key, from which every index is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hashes {
    lanes: [u32; LANES],
    x: u32,
    y: u32,
}

impl Hashes {
    /// The tables' words for the first CRC, and the second CRC rotated in.
    #[inline(always)]
    pub(crate) fn mix(looked_up: [u32; LANES], x: u32, y: u32) -> Self {
        let mut lanes = looked_up;
        for lane in 0..LANES {
            lanes[lane] ^= y.rotate_left(ROTATIONS[lane]);
        }
        Self { lanes, x, y }
    }

    /// The word that indexes bucket array `array` of a FermatSketch (at most
    /// [`crate::fermat::MAX_ARRAYS`]).
    #[inline(always)]
    pub fn array_word(&self, array: usize) -> u32 {
        match array {
            0..LANES => self.lanes[array],
            _ => self.lanes[0].rotate_left(16) ^ self.lanes[1].rotate_left(24) ^ self.x,
        }
    }

    /// The word that indexes level `level` of a flow classifier (at most
    /// [`crate::tower::MAX_LEVELS`]), or of a TowerSketch of more levels (at most
    /// [`crate::tower::MOST_LEVELS`]), whose fifth shares no word with the others.
    #[inline(always)]
    pub fn classifier_word(&self, level: usize) -> u32 {
        let word = self.lanes[3];
        match level {
            0 => word,
            1 => word.rotate_left(16) ^ self.x,
            2 => word.rotate_left(8) ^ self.y,
            3 => word.rotate_left(24) ^ self.x ^ self.y,
            _ => self.lanes[2],
        }
    }

    /// The word by which sums over flows are weighted, to show what they are of: it follows from
    /// all that the hashes know of the key, and sums of other counts are alike by chance only.
    #[inline(always)]
    pub(crate) fn check_word(&self) -> u64 {
        let word = u64::from(self.x) << 32 | u64::from(self.y);
        let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    /// The 20-bit fingerprint that travels in the last ID fragment of an IPv4 key.
    #[inline(always)]
    pub fn fingerprint(&self) -> u32 {
        self.y >> 12
    }

    /// The 14-bit fingerprint that travels in the last ID fragment of a wide key.
    #[inline(always)]
    pub fn wide_fingerprint(&self) -> u32 {
        self.y >> 18
    }

    /// The 16-bit value that is compared with the sample rate's threshold.
    #[inline(always)]
    pub fn sample(&self, seed: u16) -> u16 {
        ((self.lanes[3] ^ self.y) >> 16) as u16 ^ seed
    }
}

/// The seed that decides which light-loss candidates epoch `epoch` samples, so that another part
/// of the flows is looked at in every epoch. All switches compute it alike.
pub fn sample_seed(epoch: u64) -> u16 {
    mixed(epoch) as u16
}

/// A number from which nothing can be seen of its neighbours: a step of SplitMix64.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::FlowKey;

    #[test]
    fn tables_are_the_chacha20_key_stream() {
        // RFC 8439, appendix A.1, test vector 1: key and nonce of zeros.
        let family = HashFamily::new(&HashKey::from_bytes([0; 32]));
        assert_eq!(family.tables()[0][0], [0xade0_b876, 0x903d_f1a0, 0xe56a_5d40, 0x28bd_8653]);
    }

    #[test]
    fn columns_are_the_hashes_of_their_keys() {
        let [family, other] = [1, 2].map(|byte| HashFamily::new(&HashKey::from_bytes([byte; 32])));
        let keys: Vec<_> = (0..20).map(|n| FlowKey::from_words(n, 7, 9, 17)).collect();
        let mut columns = HashColumns::default();
        family.hash_columns(&keys, &mut columns);
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(columns.of(at), family.hash(key));
        }
        assert!(family.is_same(&family.clone().scalar()) && !family.is_same(&other));
    }

    #[test]
    fn the_three_array_words_see_every_bit_of_the_second_crc() {
        let low_bits = 0xFFF_u32;
        let seen = ROTATIONS[..3].iter().fold(0, |seen, &r| seen | low_bits.rotate_right(r));
        assert_eq!(seen, u32::MAX);
    }
}
