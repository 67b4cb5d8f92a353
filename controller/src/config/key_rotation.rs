//! When the controller changes the hash key by itself.

use serde::Deserialize;

/// When the controller changes the hash key by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeyRotationSection {
    /// Whether it does at each start, once the nodes are connected.
    pub at_start: bool,
    /// Whether it does where reports show what chance hardly does, but flows that somebody has
    /// chosen.
    pub on_suspicion: bool,
    /// Least minutes from one change to the next that nobody asked for.
    pub minutes_between: u64,
}

impl Default for KeyRotationSection {
    fn default() -> Self {
        Self { at_start: false, on_suspicion: true, minutes_between: 10 }
    }
}
