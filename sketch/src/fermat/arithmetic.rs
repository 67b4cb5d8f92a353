//! The choice between the two arithmetics, made once for a deployment.

use serde::{Deserialize, Serialize};

use super::summed::Summed;
use super::{prime, wrapping};
use crate::key::{FlowKey, KeyKind, WideKey};

/// How the fragments of flow keys are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arithmetic {
    /// 31-bit fragments modulo the largest 32-bit prime (the paper's): five words a bucket for IPv4
    /// keys, eleven for wide ones.
    #[default]
    Prime,
    /// Seven 15-bit fragments in words that wrap, eight words a bucket: twice as many fit a
    /// stateful ALU of a Tofino. For IPv4 keys only.
    Wrapping,
}

impl Arithmetic {
    /// Words of an IPv4 key's bucket on the wire and in a hardware switch, the count last.
    pub fn words(self) -> usize {
        match self {
            Self::Prime => prime::FRAGMENTS + 1,
            Self::Wrapping => wrapping::FRAGMENTS + 1,
        }
    }

    /// Words of a bucket for keys of this kind, as [`words`](Self::words).
    pub fn bucket_words(self, keys: KeyKind) -> usize {
        match keys {
            KeyKind::Ipv4 => <FlowKey as Summed>::words(self),
            KeyKind::Dual => <WideKey as Summed>::words(self),
        }
    }

    /// Whether keys of this kind can be summed in it.
    pub fn sums(self, keys: KeyKind) -> bool {
        self == Self::Prime || keys == KeyKind::Ipv4
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
