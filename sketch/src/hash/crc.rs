//! The two CRCs of a hash family, as TNA's `Hash` extern computes them:
//! `CRCPolynomial<bit<32>>(generator, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF)`.
//!
//! [`bitwise`] is the definition. Generators are a family's own, so what each instruction set
//! computes CRCs from is made together with the family and checked against the definition.

use super::polynomial;
use crate::key::FlowKey;

/// CRC-32C (Castagnoli), generator 0x1EDC6F41.
pub const CASTAGNOLI: u32 = 0x1EDC_6F41;
/// CRC-32/ISO-HDLC, generator 0x04C11DB7.
pub const ISO_HDLC: u32 = 0x04C1_1DB7;

/// The definition: a reflected CRC-32 with initial value and final XOR of all ones, bit by bit.
/// `generator` is given in normal (not reflected) notation, as P4 programs write it.
pub const fn bitwise(generator: u32, bytes: &[u8]) -> u32 {
    let generator = generator.reverse_bits();
    let mut crc = u32::MAX;
    let mut i = 0;
    while i < bytes.len() {
        crc ^= bytes[i] as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (generator & (crc & 1).wrapping_neg());
            bit += 1;
        }
        i += 1;
    }
    !crc
}

/// Two CRCs, x and y, and all that engines compute them from.
#[derive(Clone)]
pub struct CrcPair {
    generators: [u32; 2],
    pub(crate) slices: [Slices; 2],
    pub(crate) folds: Folds,
    pub(crate) affine: [Affine; 2],
}

impl CrcPair {
    /// The CRCs with these generators, in normal notation.
    pub(crate) fn new(generators: [u32; 2]) -> Self {
        let slices = generators.map(Slices::new);
        Self {
            generators,
            folds: Folds::new(generators),
            affine: [Affine::new(&slices[0]), Affine::new(&slices[1])],
            slices,
        }
    }

    /// The generators of x and y in normal notation, as P4 programs write them.
    pub fn generators(&self) -> [u32; 2] {
        self.generators
    }

    /// Both CRCs of a padded key, by plain code.
    #[inline]
    pub fn of<const N: usize>(&self, bytes: &[u8; N]) -> (u32, u32) {
        (self.slices[0].of(bytes), self.slices[1].of(bytes))
    }
}

/// For plain code: tables for eight bytes at a time ("slicing by eight").
#[derive(Clone)]
pub(crate) struct Slices([[u32; 256]; 8]);

impl Slices {
    fn new(generator: u32) -> Self {
        let generator = generator.reverse_bits();
        let mut tables = [[0; 256]; 8];
        for byte in 0..256 {
            let crc = (0..8)
                .fold(byte as u32, |crc, _| (crc >> 1) ^ (generator & (crc & 1).wrapping_neg()));
            tables[0][byte] = crc;
        }
        for slice in 1..8 {
            for byte in 0..256 {
                let previous = tables[slice - 1][byte];
                tables[slice][byte] = (previous >> 8) ^ tables[0][(previous & 0xFF) as usize];
            }
        }
        Self(tables)
    }

    #[inline]
    fn of<const N: usize>(&self, bytes: &[u8; N]) -> u32 {
        const { assert!(N.is_multiple_of(8), "keys are padded to eights") };
        let Self(tables) = self;
        let mut crc = u32::MAX;
        for eight in bytes.as_chunks::<8>().0 {
            let [a, b, c, d, e, f, g, h] = *eight;
            let [a, b, c, d] = (u32::from_le_bytes([a, b, c, d]) ^ crc).to_le_bytes();
            crc = tables[7][a as usize]
                ^ tables[6][b as usize]
                ^ tables[5][c as usize]
                ^ tables[4][d as usize]
                ^ tables[3][e as usize]
                ^ tables[2][f as usize]
                ^ tables[1][g as usize]
                ^ tables[0][h as usize];
        }
        !crc
    }
}

/// For carry-less multiplication. Polynomials are reflected: a word's highest bit stands for x^0,
/// and a product comes out multiplied by x, which the constants allow for.
#[derive(Clone)]
pub(crate) struct Folds {
    /// x^255, x^191 and x^127 modulo the product of both generators: what carries the first, second
    /// and third eight bytes of 40 down to the last sixteen for both CRCs at once.
    pub(crate) to_128: [u64; 3],
    /// What brings sixteen bytes down to each CRC.
    pub(crate) to_32: [Fold; 2],
}

/// Constants of one CRC.
#[derive(Clone)]
#[repr(align(16))]
pub(crate) struct Fold {
    /// x^95 and x^63 modulo the generator: what carries the upper half of a 16-byte block down, and
    /// the upper third of the rest.
    pub(crate) powers: [u64; 2],
    /// The generator with its top coefficient, and the quotient of x^64 by it: Barrett's constant.
    pub(crate) reduction: [u64; 2],
}

impl Folds {
    fn new(generators: [u32; 2]) -> Self {
        let product = polynomial::product(generators).reverse_bits();
        Self {
            to_128: [255, 191, 127].map(|exponent| power_of_x(exponent, product)),
            to_32: generators.map(Fold::new),
        }
    }
}

impl Fold {
    fn new(generator: u32) -> Self {
        let reflected = generator.reverse_bits();
        let power = |exponent| {
            (0..exponent).fold(1_u32 << 31, |power, _| {
                (power >> 1) ^ (reflected & (power & 1).wrapping_neg())
            })
        };
        // Long division, the highest coefficient first; x^64 minus x^32 times the generator.
        let (mut quotient, mut rest) = (1_u64, u64::from(generator) << 32);
        for degree in (32..64).rev() {
            let bit = rest >> degree & 1;
            quotient |= bit << (64 - degree);
            let multiple = bit << 32 | bit.wrapping_neg() & u64::from(generator);
            rest ^= multiple << (degree - 32);
        }
        Self {
            powers: [95, 63].map(|exponent| u64::from(power(exponent)) << 32),
            reduction: [u64::from(reflected) << 1 | 1, quotient],
        }
    }
}

/// x^`exponent` modulo a reflected polynomial of degree 64.
fn power_of_x(exponent: u32, modulus: u64) -> u64 {
    (0..exponent)
        .fold(1 << 63, |power, _| (power >> 1) ^ (modulus & (power & 1_u64).wrapping_neg()))
}

/// For vectors of bytes: the CRC of 16 bytes is their affine map over GF(2).
#[derive(Clone)]
#[repr(align(64))]
pub(crate) struct Affine {
    /// For each byte of a key, the 8 x 8 bit matrices that map it to its share in each byte of the
    /// CRC, the least significant first, as x86's GF2P8AFFINEQB reads them: row after row, the last
    /// row first. Each stands there twice, to fill a register.
    pub(crate) matrices: [[u64; 8]; FlowKey::LEN],
    /// The same map as look-ups among 16 bytes, x86's PSHUFB.
    pub(crate) halves: [Halves; FlowKey::LEN],
    /// The CRC of 16 zero bytes: what is added to the shares.
    pub(crate) zeros: u32,
}

/// The shares of a byte's lower and upper half in each byte of a CRC, the least significant first,
/// by the half's value.
pub(crate) type Halves = [[[u8; 16]; 4]; 2];

impl Affine {
    fn new(slices: &Slices) -> Self {
        let zeros = slices.of(&[0; 16]);
        let share = |byte: usize, value: u8| {
            let mut message = [0; 16];
            message[byte] = value;
            slices.of(&message) ^ zeros
        };
        let mut matrices = [[0; 8]; FlowKey::LEN];
        let mut halves = [[[[0; 16]; 4]; 2]; FlowKey::LEN];
        for byte in 0..FlowKey::LEN {
            for bit in 0..8 {
                let share = share(byte, 1 << bit);
                for to in 0..32 {
                    let coefficient = u64::from(share >> to & 1) << (8 * (7 - to % 8) + bit);
                    matrices[byte][2 * (to / 8)] |= coefficient;
                    matrices[byte][2 * (to / 8) + 1] |= coefficient;
                }
            }
            for (half, value) in (0..2).flat_map(|half| (0..16).map(move |value| (half, value))) {
                let share = share(byte, value << (4 * half)).to_le_bytes();
                for (table, share) in halves[byte][half].iter_mut().zip(share) {
                    table[usize::from(value)] = share;
                }
            }
        }
        Self { matrices, halves, zeros }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_definition_gives_the_catalogued_check_values() {
        assert_eq!(bitwise(CASTAGNOLI, b"123456789"), 0xE306_9283);
        assert_eq!(bitwise(ISO_HDLC, b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn carryless_constants_are_the_published_ones() {
        assert_eq!(Fold::new(ISO_HDLC).reduction, [0x1_DB71_0641, 0x1_F701_1641]);
    }

    proptest! {
        #[test]
        fn tables_equal_the_definition(
            generators: [u32; 2],
            narrow: [u8; 16],
            wide: [[u8; 8]; 5],
        ) {
            let pair = CrcPair::new(generators);
            let by_definition = |bytes: &[u8]| {
                let [x, y] = generators.map(|generator| bitwise(generator, bytes));
                (x, y)
            };
            prop_assert_eq!(pair.of(&narrow), by_definition(&narrow));
            let wide: [u8; 40] = wide.as_flattened().try_into().unwrap();
            prop_assert_eq!(pair.of(&wide), by_definition(&wide));
        }
    }
}
