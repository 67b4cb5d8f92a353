//! The hash functions of the `Hash` extern.
//!
//! The fields are put one after the other, first field first, most significant bit first; when
//! they do not fill whole bytes, zero bits go in front. A CRC follows the usual description
//! (width, polynomial, reflected, initial value, final xor), so that the published check values
//! hold. The result is the low bits of the function's value.

use crate::types::mask;

/// What a `Hash` instance computes.
#[derive(Debug, Clone)]
pub(crate) struct HashSpec {
    /// Full name of the instance.
    pub(crate) name: String,
    pub(crate) function: Function,
    /// Bits of the result.
    pub(crate) width: u16,
}

#[derive(Debug, Clone)]
pub(crate) enum Function {
    /// The low bits of the data themselves.
    Identity,
    /// Exclusive or of the words of this many bytes.
    Xor(usize),
    Crc(Box<Crc>),
}

/// A table-driven CRC of 8, 16, 32 or any other width up to 64 bits.
#[derive(Debug, Clone)]
pub(crate) struct Crc {
    width: u16,
    reflected: bool,
    initial: u64,
    last_xor: u64,
    table: [u64; 256],
}

/// The fields of `CRCPolynomial`, those that the model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Polynomial {
    pub(crate) width: u16,
    pub(crate) coefficients: u64,
    pub(crate) reflected: bool,
    pub(crate) initial: u64,
    pub(crate) last_xor: u64,
}

impl Polynomial {
    /// Why no hash unit computes it; `None` where one does.
    pub(crate) fn problem(&self) -> Option<String> {
        let Self { width, coefficients, initial, last_xor, .. } = *self;
        if !(8..=64).contains(&width) {
            return Some("a polynomial has 8 to 64 bits".to_owned());
        }
        if coefficients & 1 == 0 {
            return Some("a polynomial is odd".to_owned());
        }
        let wide = [coefficients, initial, last_xor].map(u128::from);
        let wide = wide.into_iter().find(|&value| value > mask(width))?;
        Some(format!("{wide:#x} does not fit in {width} bits"))
    }

    /// CRC-8 (SMBus).
    pub(crate) const CRC8: Polynomial =
        Polynomial { width: 8, coefficients: 0x07, reflected: false, initial: 0, last_xor: 0 };
    /// CRC-16/ARC.
    pub(crate) const CRC16: Polynomial =
        Polynomial { width: 16, coefficients: 0x8005, reflected: true, initial: 0, last_xor: 0 };
    /// CRC-32/ISO-HDLC.
    pub(crate) const CRC32: Polynomial = Polynomial {
        width: 32,
        coefficients: 0x04c1_1db7,
        reflected: true,
        initial: 0xffff_ffff,
        last_xor: 0xffff_ffff,
    };
    /// CRC-64/ECMA-182.
    pub(crate) const CRC64: Polynomial = Polynomial {
        width: 64,
        coefficients: 0x42f0_e1eb_a9ea_3693,
        reflected: false,
        initial: 0,
        last_xor: 0,
    };
}

impl Crc {
    /// The register holds reflected values in its low bits and others in its high bits, so that
    /// one loop serves every width.
    pub(crate) fn new(polynomial: Polynomial) -> Crc {
        let Polynomial { width, coefficients, reflected, initial, last_xor } = polynomial;
        let up = 64 - u32::from(width);
        let mut table = [0; 256];
        for (byte, entry) in (0u64..).zip(&mut table) {
            *entry = if reflected {
                let feedback = coefficients.reverse_bits() >> up;
                (0..8).fold(byte, |r, _| if r & 1 == 1 { r >> 1 ^ feedback } else { r >> 1 })
            } else {
                let feedback = coefficients << up;
                (0..8).fold(
                    byte << 56,
                    |r, _| {
                        if r >> 63 == 1 { r << 1 ^ feedback } else { r << 1 }
                    },
                )
            };
        }
        let initial = if reflected { initial.reverse_bits() >> up } else { initial << up };
        Crc { width, reflected, initial, last_xor, table }
    }

    /// The CRC of the bytes. About a nanosecond a byte.
    pub(crate) fn of(&self, bytes: &[u8]) -> u64 {
        let mut register = self.initial;
        if self.reflected {
            for &byte in bytes {
                let index = (register ^ u64::from(byte)) & 0xff;
                register = register >> 8 ^ self.table[index as usize];
            }
            register ^ self.last_xor
        } else {
            for &byte in bytes {
                let index = register >> 56 ^ u64::from(byte);
                register = register << 8 ^ self.table[index as usize];
            }
            register >> (64 - u32::from(self.width)) ^ self.last_xor
        }
    }
}

impl HashSpec {
    /// Widest result the function has.
    pub(crate) fn limit(function: &Function) -> u16 {
        match function {
            Function::Identity => 128,
            Function::Xor(bytes) => (bytes * 8) as u16,
            Function::Crc(crc) => crc.width,
        }
    }

    /// The hash of the bytes.
    pub(crate) fn compute(&self, bytes: &[u8]) -> u128 {
        let value = match &self.function {
            Function::Identity => {
                let low = &bytes[bytes.len().saturating_sub(16)..];
                low.iter().fold(0, |value, &byte| value << 8 | u128::from(byte))
            }
            Function::Xor(word) => bytes.rchunks(*word).fold(0, |sum, chunk| {
                sum ^ chunk.iter().fold(0, |value, &byte| value << 8 | u128::from(byte))
            }),
            Function::Crc(crc) => u128::from(crc.of(bytes)),
        };
        value & mask(self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: &[u8] = b"123456789";

    #[test]
    fn crcs_have_their_published_check_values() {
        let of = |polynomial| Crc::new(polynomial).of(CHECK);
        assert_eq!(of(Polynomial::CRC8), 0xf4);
        assert_eq!(of(Polynomial::CRC16), 0xbb3d);
        assert_eq!(of(Polynomial::CRC32), 0xcbf4_3926);
        assert_eq!(of(Polynomial::CRC64), 0x6c40_df5f_0b49_7347);
        let crc32c = Polynomial { coefficients: 0x1edc_6f41, ..Polynomial::CRC32 };
        assert_eq!(of(crc32c), 0xe306_9283);
        let bzip2 = Polynomial { reflected: false, ..Polynomial::CRC32 };
        assert_eq!(of(bzip2), 0xfc89_1918);
        let xmodem = Polynomial { width: 16, coefficients: 0x1021, ..Polynomial::CRC8 };
        assert_eq!(of(xmodem), 0x31c3);
    }

    #[test]
    fn identity_and_xor_take_the_low_bits() {
        let spec = |function, width| HashSpec { name: String::new(), function, width };
        let identity = spec(Function::Identity, 12);
        assert_eq!(identity.compute(&[0x12, 0x34, 0x56]), 0x456);
        let xor = spec(Function::Xor(2), 16);
        assert_eq!(xor.compute(&[0x01, 0x12, 0x34]), 0x1234 ^ 0x01);
    }
}
