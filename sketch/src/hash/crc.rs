//! The two CRCs of the contract, as TNA's `Hash` extern computes them.
//!
//! `crc32c` is `CRCPolynomial<bit<32>>(0x1EDC6F41, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF)`,
//! `crc32_iso_hdlc` is `HashAlgorithm_t.CRC32`, that is 0x04C11DB7 with the same parameters.
//! [`bitwise`] is the definition; the tables are checked against it.

use crate::key::FlowKey;

/// CRC-32C (Castagnoli), generator 0x1EDC6F41, reflected.
pub const CASTAGNOLI: u32 = 0x1EDC_6F41;
/// CRC-32/ISO-HDLC, generator 0x04C11DB7, reflected.
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

/// x^`exponent` modulo CRC-32's generator, reflected: bit 31 stands for x^0.
const fn power_of_x(exponent: u32) -> u64 {
    let mut power = 1_u32 << 31;
    let mut i = 0;
    while i < exponent {
        power = (power >> 1) ^ (ISO_HDLC.reverse_bits() & (power & 1).wrapping_neg());
        i += 1;
    }
    power as u64
}

/// What carries the upper half of a 16-byte block down by carry-less multiplication.
pub(crate) const FOLD_95: u64 = power_of_x(95);
/// What carries the upper third of the rest down.
pub(crate) const FOLD_63: u64 = power_of_x(63);
/// What carries the first, second and third eight bytes of 40 down to the last sixteen.
pub(crate) const FOLDS_TO_128: [u64; 3] = [power_of_x(255), power_of_x(191), power_of_x(127)];
/// CRC-32's generator with its top coefficient, reflected.
pub(crate) const REFLECTED_33: u64 = (ISO_HDLC.reverse_bits() as u64) << 1 | 1;
/// The quotient of x^64 by the generator, reflected: Barrett's constant.
pub(crate) const BARRETT: u64 = {
    // Long division, the highest coefficient first; x^64 minus x^32 times the generator.
    let (mut quotient, mut rest, mut degree) = (1_u64, (ISO_HDLC as u64) << 32, 63);
    while degree >= 32 {
        let bit = rest >> degree & 1;
        quotient |= bit << (64 - degree);
        rest ^= (bit << 32 | (bit.wrapping_neg() & ISO_HDLC as u64)) << (degree - 32);
        degree -= 1;
    }
    quotient
};

/// The CRC of 16 zero bytes: what an affine map by [`matrices`] adds.
pub(crate) const fn of_zeros(generator: u32) -> u32 {
    bitwise(generator, &[0; 16])
}

/// A CRC of 16 bytes is their linear map over GF(2) and a constant. For each byte of a key, these
/// are the 8 x 8 bit matrices that map it to its share in each byte of the CRC, the least
/// significant first, in the form of x86's GF2P8AFFINEQB: row after row, the last row first.
pub(crate) const fn matrices(generator: u32) -> [[u64; 4]; FlowKey::LEN] {
    let mut matrices = [[0; 4]; FlowKey::LEN];
    let mut byte = 0;
    while byte < FlowKey::LEN {
        let mut bit = 0;
        while bit < 8 {
            let mut message = [0; 16];
            message[byte] = 1 << bit;
            let share = bitwise(generator, &message) ^ of_zeros(generator);
            let mut to = 0;
            while to < 32 {
                matrices[byte][to / 8] |= ((share >> to & 1) as u64) << (8 * (7 - to % 8) + bit);
                to += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    matrices
}

/// The shares of a byte's lower and upper half in each byte of a CRC, the least significant first,
/// by the half's value: the map of [`matrices`] as look-ups among 16 bytes, x86's PSHUFB.
pub(crate) type Halves = [[[u8; 16]; 4]; 2];

/// [`Halves`] of each byte of a key.
pub(crate) const fn halves(generator: u32) -> [Halves; FlowKey::LEN] {
    let mut halves = [[[[0; 16]; 4]; 2]; FlowKey::LEN];
    let mut at = 0;
    while at < FlowKey::LEN * 2 * 16 {
        let (byte, half, value) = (at / 32, at / 16 % 2, at % 16);
        let mut message = [0; 16];
        message[byte] = (value << (4 * half)) as u8;
        let share = (bitwise(generator, &message) ^ of_zeros(generator)).to_le_bytes();
        let mut to = 0;
        while to < 4 {
            halves[byte][half][to][value] = share[to];
            to += 1;
        }
        at += 1;
    }
    halves
}

/// Tables for eight bytes at a time ("slicing by eight").
const fn slicing_tables(generator: u32) -> [[u32; 256]; 8] {
    let generator = generator.reverse_bits();
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (generator & (crc & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut slice = 1;
    while slice < 8 {
        let mut byte = 0;
        while byte < 256 {
            let previous = tables[slice - 1][byte];
            tables[slice][byte] = (previous >> 8) ^ tables[0][(previous & 0xFF) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
}

static CASTAGNOLI_TABLES: [[u32; 256]; 8] = slicing_tables(CASTAGNOLI);
static ISO_HDLC_TABLES: [[u32; 256]; 8] = slicing_tables(ISO_HDLC);

#[inline]
fn sliced<const N: usize>(tables: &[[u32; 256]; 8], bytes: &[u8; N]) -> u32 {
    const { assert!(N.is_multiple_of(8), "keys are padded to eights") };
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

/// CRC-32C of a padded key.
#[inline]
pub fn crc32c<const N: usize>(bytes: &[u8; N]) -> u32 {
    sliced(&CASTAGNOLI_TABLES, bytes)
}

/// CRC-32/ISO-HDLC of a padded key.
#[inline]
pub fn crc32_iso_hdlc<const N: usize>(bytes: &[u8; N]) -> u32 {
    sliced(&ISO_HDLC_TABLES, bytes)
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
        assert_eq!((REFLECTED_33, BARRETT), (0x1_DB71_0641, 0x1_F701_1641));
    }

    proptest! {
        #[test]
        fn tables_equal_the_definition(narrow: [u8; 16], wide: [[u8; 8]; 5]) {
            prop_assert_eq!(crc32c(&narrow), bitwise(CASTAGNOLI, &narrow));
            prop_assert_eq!(crc32_iso_hdlc(&narrow), bitwise(ISO_HDLC, &narrow));
            let wide: [u8; 40] = wide.as_flattened().try_into().unwrap();
            prop_assert_eq!(crc32c(&wide), bitwise(CASTAGNOLI, &wide));
            prop_assert_eq!(crc32_iso_hdlc(&wide), bitwise(ISO_HDLC, &wide));
        }
    }
}
