//! Whether attention is shifted.

use std::path::PathBuf;

use calumma_chamelemon::Layout;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::attention::Bounds;

/// What is done with the plans for later epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShiftingMode {
    /// Attention shifts as they say.
    #[default]
    Shift,
    /// They are reported and not applied.
    DryRun,
    /// None are made: attention stays as `[attention]` says, or as it is set by hand.
    Static,
}

/// Whether and within which bounds attention is shifted. Buckets are those of an array; where they
/// are left out, they are the paper's in proportion to the layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShiftingSection {
    /// What is done with plans.
    pub mode: ShiftingMode,
    /// Least buckets of the HH encoder.
    pub min_hh_buckets: Option<u32>,
    /// Least buckets of the HL encoder.
    pub min_hl_buckets: Option<u32>,
    /// Least buckets of the LL encoder where light losses are recorded separately.
    pub min_ll_buckets: Option<u32>,
    /// T_h, where it is not to be chosen.
    pub fixed_t_h: Option<u32>,
    /// File that every change of attention is appended to, as a JSON object a line.
    pub audit: Option<PathBuf>,
}

impl ShiftingSection {
    /// Whether plans are made at all.
    pub fn plans(&self) -> bool {
        self.mode != ShiftingMode::Static
    }

    /// The planner's bounds on switches of `layout`.
    pub fn bounds(&self, layout: &Layout) -> Bounds {
        let paper = Bounds::of(layout);
        Bounds {
            min_hh: self.min_hh_buckets.unwrap_or(paper.min_hh),
            min_hl: self.min_hl_buckets.unwrap_or(paper.min_hl),
            min_ll: self.min_ll_buckets.unwrap_or(paper.min_ll),
            fixed_t_h: self.fixed_t_h,
        }
    }
}
