//! Evaluates expressions: a few nanoseconds a node, no allocation.

use super::bits;
use super::{Machine, PARSER_ERROR_PARTIAL_HDR};
use crate::ir::{Code, Data, Expr};
use crate::ops;
use crate::types::{mask, signed};

impl Machine {
    #[inline]
    pub(super) fn eval(&mut self, code: &Code, expr: &Expr) -> u128 {
        match expr {
            Expr::Const(value) => *value,
            Expr::Slot(slot) => self.frame[*slot as usize],
            other => self.eval_node(code, other),
        }
    }

    fn eval_node(&mut self, code: &Code, expr: &Expr) -> u128 {
        match expr {
            Expr::Const(value) => *value,
            Expr::Slot(slot) => self.frame[*slot as usize],
            Expr::Slice { value, low, width } => self.eval(code, value) >> low & mask(*width),
            Expr::Concat { high, low, low_width } => {
                let high = self.eval(code, high);
                let low = self.eval(code, low);
                high.checked_shl(u32::from(*low_width)).unwrap_or(0) | low
            }
            Expr::Op { op, width, a, b } => {
                let a = self.eval(code, a);
                let b = self.eval(code, b);
                ops::apply(*op, *width, a, b)
            }
            Expr::Is { slot, value } => u128::from(self.frame[*slot as usize] == *value),
            Expr::LogicAnd(a, b) => {
                if self.eval(code, a) == 0 {
                    0
                } else {
                    self.eval(code, b)
                }
            }
            Expr::LogicOr(a, b) => {
                if self.eval(code, a) != 0 {
                    1
                } else {
                    self.eval(code, b)
                }
            }
            Expr::LogicNot(a) => u128::from(self.eval(code, a) == 0),
            Expr::Complement { value, width } => !self.eval(code, value) & mask(*width),
            Expr::Negate { value, width } => self.eval(code, value).wrapping_neg() & mask(*width),
            Expr::SignExtend { value, from, to } => {
                signed(self.eval(code, value), *from) as u128 & mask(*to)
            }
            Expr::Choose(parts) => {
                let chosen = if self.eval(code, &parts[0]) != 0 { &parts[1] } else { &parts[2] };
                self.eval(code, chosen)
            }
            Expr::Hash { hash, data } => {
                let mut bytes = std::mem::take(&mut self.bytes);
                self.serialize(code, data, &mut bytes);
                let value = self.hashes[*hash as usize].compute(&bytes);
                self.bytes = bytes;
                value
            }
            Expr::Random { width } => {
                let value = u128::from(self.next_random()) << 64 | u128::from(self.next_random());
                value & mask(*width)
            }
            Expr::Lookahead { offset, width } => {
                let at = self.cursor + *offset as usize;
                if at + usize::from(*width) > self.input.len() * 8 {
                    self.parser_error |= PARSER_ERROR_PARTIAL_HDR;
                    return 0;
                }
                bits::read(&self.input, at, *width)
            }
            Expr::Element { stack, index, count, size, field } => {
                let index = self.eval(code, index);
                if index >= u128::from(*count) {
                    return 0;
                }
                self.frame[(stack + 1 + index as u32 * size + field) as usize]
            }
            Expr::ChecksumUpdate { data, zeros_as_ones } => {
                let sum = !self.sum(code, data);
                let flag = self.eval(code, zeros_as_ones) != 0;
                u128::from(if sum == 0 && flag { 0xffff } else { sum })
            }
            Expr::ChecksumGet(unit) => u128::from(fold(self.checksums[*unit as usize])),
            Expr::Do(inner) => {
                self.run(code, &inner.0);
                self.eval(code, &inner.1)
            }
        }
    }

    /// The ones' complement sum of the data in 16-bit words.
    pub(super) fn sum(&mut self, code: &Code, data: &Data) -> u16 {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.serialize(code, data, &mut bytes);
        let words = bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low)));
        let sum = fold(words.sum());
        self.bytes = bytes;
        sum
    }

    /// SplitMix64: every run sees the same numbers.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Adds the carries back in.
pub(super) fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}
