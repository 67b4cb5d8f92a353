//! The choice between the two arithmetics, made once for a deployment.

use serde::{Deserialize, Serialize};

use super::bucket::{Bucket, Unit};
use super::{prime, wrapping};
use crate::key::FlowKey;

/// How the fragments of flow keys are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arithmetic {
    /// Four 31-bit fragments modulo the largest 32-bit prime, five words a bucket (the paper's).
    #[default]
    Prime,
    /// Seven 15-bit fragments in words that wrap, eight words a bucket: twice as many fit a
    /// stateful ALU of a Tofino.
    Wrapping,
}

impl Arithmetic {
    /// Words of a bucket on the wire and in a hardware switch, the count last.
    pub fn words(self) -> usize {
        match self {
            Self::Prime => prime::FRAGMENTS + 1,
            Self::Wrapping => wrapping::FRAGMENTS + 1,
        }
    }

    /// What a packet of `key` adds to a bucket; `fingerprint` is 0 where none is summed.
    #[inline(always)]
    pub(super) fn unit(self, key: &FlowKey, fingerprint: u32) -> Unit {
        match self {
            Self::Prime => prime::unit(key, fingerprint),
            Self::Wrapping => wrapping::unit(key),
        }
    }

    /// `a + b`.
    #[inline(always)]
    pub(super) fn add(self, a: &Bucket, b: &Bucket) -> Bucket {
        match self {
            Self::Prime => prime::add(a, b),
            Self::Wrapping => wrapping::add(a, b),
        }
    }

    /// `a - b`.
    #[inline(always)]
    pub(super) fn subtract(self, a: &Bucket, b: &Bucket) -> Bucket {
        match self {
            Self::Prime => prime::subtract(a, b),
            Self::Wrapping => wrapping::subtract(a, b),
        }
    }

    /// What `packets` packets add.
    #[inline(always)]
    pub(super) fn multiply(self, unit: &Unit, packets: i32) -> Bucket {
        match self {
            Self::Prime => prime::multiply(unit, packets),
            Self::Wrapping => wrapping::multiply(unit, packets),
        }
    }

    /// Whether `fragments` (a bucket's words without the count) can be a sum of this arithmetic.
    pub(super) fn in_range(self, fragments: &[u32]) -> bool {
        match self {
            Self::Prime => fragments.iter().all(|&word| word < prime::P),
            Self::Wrapping => true,
        }
    }

    /// Whether there is room for a fingerprint beside the key.
    pub(super) fn carries_fingerprint(self) -> bool {
        self == Self::Prime
    }
}
