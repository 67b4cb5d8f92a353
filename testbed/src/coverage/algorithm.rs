//! How switches choose, and what they do with the flows that they don't.

use calumma_sketch::{HashFamily, grade, residual};
use serde::Serialize;

/// How switches choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// By folding
    Fold,
    /// By the greedy rule
    Greedy,
    /// By even shares of ways whose length is known
    Even,
    /// Each by chance
    Random,
    /// All the same flows
    Same,
    /// By folding, and by the claims of switches before
    Claim,
    /// By chance, and by the claims of switches before
    ClaimRandom,
    /// By folding, with a residual
    CfsFr,
    /// By the greedy rule, with a residual
    GreedyFr,
    /// By folding and claims, with a residual
    ClaimFr,
    /// Not at all: FlowRadar, with a cell for each entry
    Flowradar,
    /// By ranges that a controller makes from the flows of the window before
    Csamp,
}

/// A sketch of the flows without an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The paper's
    Flowradar,
    /// FermatSketch with bytes
    Fermat,
}

impl Kind {
    /// The same, of the library's.
    pub(super) fn kept(self) -> residual::Kind {
        match self {
            Self::Flowradar => residual::Kind::FlowRadar,
            Self::Fermat => residual::Kind::Fermat,
        }
    }
}

/// Where a packet is.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) switch: usize,
    pub(super) hop: u8,
    pub(super) hops: u8,
}

impl Algorithm {
    /// Whether switches claim flows, for which they must have seen windows before.
    pub fn claims(self) -> bool {
        matches!(self, Self::Claim | Self::ClaimRandom | Self::ClaimFr)
    }

    /// Windows from which on nothing is learnt any more.
    pub fn windows(self) -> u32 {
        match self {
            _ if self.claims() => 8,
            Self::Csamp => 2,
            _ => 1,
        }
    }

    /// Whether flows without an entry are put into a residual.
    pub fn has_residual(self) -> bool {
        matches!(self, Self::CfsFr | Self::GreedyFr | Self::ClaimFr | Self::Flowradar)
    }

    /// The residual, where this one is asked for; none where there is none.
    pub fn residual(self, asked: Option<Kind>) -> Option<Kind> {
        let usual = if self == Self::ClaimFr { Kind::Fermat } else { Kind::Flowradar };
        self.has_residual().then_some(asked.unwrap_or(usual))
    }

    /// Bits of a residual's filter for each flow in it.
    ///
    /// A flow whose first packet FlowRadar's filter takes for another's spoils its node unless a
    /// table has the flow, and what is taken out of other nodes by spoilt counts spoils these. So
    /// with so many bits there is one such flow in a network in every tenth window or so.
    /// FermatSketch has nothing to lose but room for flows that were not there.
    pub(super) fn filter_bits(self, kind: Kind) -> usize {
        match (self, kind) {
            (_, Kind::Fermat) => 16,
            (Self::Flowradar, Kind::Flowradar) => 64,
            (_, Kind::Flowradar) => 40,
        }
    }

    pub(super) fn grade(self, family: &HashFamily, word: u32, at: At) -> u32 {
        match self {
            Self::Fold | Self::Claim | Self::CfsFr | Self::ClaimFr => grade::fold(word, at.hop),
            Self::Greedy | Self::GreedyFr => grade::greedy(word, at.hop),
            Self::Even => grade::even(word, at.hop, at.hops),
            Self::Random | Self::ClaimRandom => {
                grade::random(family, word, (at.switch as u32).wrapping_mul(0x9E37_79B9))
            }
            Self::Same | Self::Flowradar | Self::Csamp => word,
        }
    }
}
