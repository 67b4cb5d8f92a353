//! Arithmetic on scalars, for constants at load time and for packets at run time alike.

use crate::ir::Op;
use crate::types::{mask, signed};

/// Applies `op` to two values of `width` bits (the right operand of a shift may have any width).
/// Comparisons give 0 or 1.
#[inline]
pub(crate) fn apply(op: Op, width: u16, a: u128, b: u128) -> u128 {
    let all = mask(width);
    match op {
        Op::Add => a.wrapping_add(b) & all,
        Op::Sub => a.wrapping_sub(b) & all,
        Op::Mul => a.wrapping_mul(b) & all,
        Op::SatAdd => a.checked_add(b).map_or(all, |sum| sum.min(all)),
        Op::SatSub => a.saturating_sub(b),
        Op::SatAddSigned => saturate(signed(a, width).saturating_add(signed(b, width)), width),
        Op::SatSubSigned => saturate(signed(a, width).saturating_sub(signed(b, width)), width),
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::Shl => shift(b, width).map_or(0, |by| (a << by) & all),
        Op::Shr => shift(b, width).map_or(0, |by| a >> by),
        Op::ShrSigned => {
            let by = shift(b, width).unwrap_or(u32::from(width) - 1);
            (signed(a, width) >> by) as u128 & all
        }
        Op::Eq => u128::from(a == b),
        Op::Ne => u128::from(a != b),
        Op::Lt => u128::from(a < b),
        Op::Le => u128::from(a <= b),
        Op::LtSigned => u128::from(signed(a, width) < signed(b, width)),
        Op::LeSigned => u128::from(signed(a, width) <= signed(b, width)),
        Op::Min => a.min(b),
        Op::Max => a.max(b),
        Op::MinSigned => {
            if signed(a, width) < signed(b, width) {
                a
            } else {
                b
            }
        }
        Op::MaxSigned => {
            if signed(a, width) > signed(b, width) {
                a
            } else {
                b
            }
        }
    }
}

/// A shift by less than the width.
fn shift(by: u128, width: u16) -> Option<u32> {
    u32::try_from(by).ok().filter(|&by| by < u32::from(width))
}

fn saturate(value: i128, width: u16) -> u128 {
    let highest = (mask(width) >> 1) as i128;
    value.clamp(-highest - 1, highest) as u128 & mask(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturating_arithmetic_stops_at_both_ends() {
        assert_eq!(apply(Op::SatAdd, 8, 250, 10), 255);
        assert_eq!(apply(Op::SatSub, 8, 5, 10), 0);
        assert_eq!(apply(Op::SatAddSigned, 8, 0x7f, 1), 0x7f);
        assert_eq!(apply(Op::SatSubSigned, 8, 0x80, 1), 0x80);
        assert_eq!(apply(Op::SatAdd, 128, u128::MAX, 1), u128::MAX);
        assert_eq!(apply(Op::SatSubSigned, 128, 1 << 127, 1), 1 << 127);
    }

    #[test]
    fn plain_arithmetic_wraps_in_its_width() {
        assert_eq!(apply(Op::Add, 8, 255, 2), 1);
        assert_eq!(apply(Op::Sub, 16, 0, 1), 0xffff);
        assert_eq!(apply(Op::Mul, 8, 16, 17), 16);
    }

    #[test]
    fn shifts_past_the_width_leave_nothing_but_the_sign() {
        assert_eq!(apply(Op::Shl, 8, 0xff, 8), 0);
        assert_eq!(apply(Op::Shr, 8, 0xff, 200), 0);
        assert_eq!(apply(Op::ShrSigned, 8, 0x80, 200), 0xff);
        assert_eq!(apply(Op::ShrSigned, 8, 0x80, 1), 0xc0);
        assert_eq!(apply(Op::Shl, 8, 0x81, 1), 2);
    }

    #[test]
    fn signed_comparison_knows_negative_numbers() {
        assert_eq!(apply(Op::LtSigned, 8, 0xff, 1), 1);
        assert_eq!(apply(Op::Lt, 8, 0xff, 1), 0);
        assert_eq!(apply(Op::MaxSigned, 8, 0xff, 1), 1);
    }
}
