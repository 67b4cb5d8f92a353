//! Flows that a host chooses against sketches whose hashes begin with public checksums.
//!
//! CRC-32C and CRC-32 of a key are linear, so keys that agree in both differ by a vector of their
//! common kernel, which Gauss elimination finds. Nothing here knows how the product hashes.

use calumma_sketch::WideKey;
use serde::Deserialize;

use super::Draw;

/// What flows are chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chosen {
    /// Two flows that agree in both checksums: buckets that one shares with the other hold neither.
    Jam,
    /// The same, and the sum of their keys is twice a third one that also agrees: one packet of
    /// each looks like two packets of that.
    Triples,
}

/// CRC-32C and CRC-32, reflected.
const POLYNOMIALS: [u32; 2] = [0x82F6_3B78, 0xEDB8_8320];

/// Bytes that are hashed of an IPv4 flow's key, the last three of them zeros.
const HASHED: usize = 16;

/// Bits of addresses and ports; the protocol stays.
const CHOSEN_BITS: u32 = 96;

const UDP: u8 = 17;

/// What both checksums of a key are but for a constant. Byte `at` of the key is bits
/// `8 * at..8 * at + 8`.
fn checksums(key: u128) -> u64 {
    let crc = |polynomial: u32| {
        key.to_le_bytes()[..HASHED].iter().fold(0_u32, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| {
                crc >> 1 ^ if crc & 1 == 1 { polynomial } else { 0 }
            })
        })
    };
    let [castagnoli, ethernet] = POLYNOMIALS.map(crc);
    u64::from(castagnoli) << 32 | u64::from(ethernet)
}

/// A basis of the differences whose `images` vanish, of the bits that `may` differ.
fn kernel(may: impl Fn(u32) -> bool, image: impl Fn(u128) -> u128) -> Vec<u128> {
    let mut pivots: [Option<(u128, u128)>; 128] = [None; 128];
    let mut kernel = Vec::new();
    for bit in (0..CHOSEN_BITS).filter(|&bit| may(bit)) {
        let (mut value, mut sum) = (image(1 << bit), 1 << bit);
        while let Some(top) = value.checked_ilog2() {
            let Some((other, others)) = pivots[top as usize] else {
                pivots[top as usize] = Some((value, sum));
                break;
            };
            value ^= other;
            sum ^= others;
        }
        if value == 0 {
            kernel.push(sum);
        }
    }
    kernel
}

/// A random vector that `basis` spans, other than none.
fn one_of(basis: &[u128], draw: Draw) -> u128 {
    let some = 1 + draw.below((1 << basis.len().min(62)) - 1);
    let within = (0..basis.len().min(62)).filter(|at| some >> at & 1 == 1);
    within.fold(0, |sum, at| sum ^ basis[at])
}

/// Two UDP flows that are chosen for this, always the same for a `draw`.
pub fn pair(chosen: Chosen, draw: Draw) -> [WideKey; 2] {
    let random = u128::from(draw.of(0).bits()) << 64 | u128::from(draw.of(1).bits());
    let base = random & ((1 << CHOSEN_BITS) - 1) | u128::from(UDP) << CHOSEN_BITS;
    let keys = match chosen {
        Chosen::Jam => {
            let differ = one_of(&kernel(|_| true, |key| checksums(key).into()), draw.of(2));
            [base, base ^ differ]
        }
        Chosen::Triples => {
            // Twice a difference must neither leave its byte nor be anything but a shift.
            let both = |key| u128::from(checksums(key)) << 64 | u128::from(checksums(key << 1));
            let differ = one_of(&kernel(|bit| bit % 8 < 7, both), draw.of(2));
            let base = base & !(differ | differ << 1);
            [base, base | differ << 1]
        }
    };
    keys.map(|key| {
        let [a, b, c, d, e, f, g, h, i, j, k, l, protocol, ..] = key.to_le_bytes();
        let (src, dst) = ([a, b, c, d].into(), [e, f, g, h].into());
        let [sport, dport] = [[i, j], [k, l]].map(u16::from_be_bytes);
        WideKey::v4(src, dst, sport, dport, protocol)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_sketch::FlowKey;

    /// The checksums of "123456789" and of nine zeros, as published and by hand.
    const DIGITS: u64 = 0xE306_9283_CBF4_3926;
    const ZEROS: u64 = 0xBBE5_68A3_E609_14AE;

    #[test]
    fn chosen_flows_agree_in_both_checksums() {
        let of = |bytes: &[u8; 9]| {
            let mut key = [0; 16];
            key[7..].copy_from_slice(bytes);
            checksums(u128::from_le_bytes(key))
        };
        assert_eq!(of(&[0; 9]), 0);
        assert_eq!(of(b"123456789"), DIGITS ^ ZEROS);
        for seed in 0..50 {
            for chosen in [Chosen::Jam, Chosen::Triples] {
                let [a, b] = pair(chosen, Draw::new(seed));
                assert_ne!(a, b);
                let sums = [a, b].map(|key| {
                    let flow = calumma_controller::report::Flow::from(&key);
                    let narrow: FlowKey = flow.key().expect("IPv4");
                    let mut bytes = [0; HASHED];
                    bytes[..narrow.as_bytes().len()].copy_from_slice(narrow.as_bytes());
                    checksums(u128::from_le_bytes(bytes))
                });
                assert_eq!(sums[0], sums[1], "{chosen:?}: {a:?} and {b:?}");
            }
        }
    }
}
