//! Thresholds of the accumulation tasks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the operator wants reported, per edge and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tasks {
    /// Flows of more packets than this are reported as heavy hitters (delta_h).
    pub heavy_hitter: u64,
    /// Flows whose size changes by more packets than this are reported as heavy changes (delta_c).
    pub heavy_change: u64,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { heavy_hitter: 500, heavy_change: 250 }
    }
}
