//! Whether edges probe the paths between them.

use serde::Deserialize;

/// Probes between edges (docs/probes.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProbesSection {
    /// Whether they are sent. They are only where all switches know them.
    pub enabled: bool,
}

impl Default for ProbesSection {
    fn default() -> Self {
        Self { enabled: true }
    }
}
