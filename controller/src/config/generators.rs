//! Where the generators of the hash functions' CRCs come from.

use serde::Deserialize;

/// Where the generators of the hash functions' CRCs come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HashGenerators {
    /// They are drawn from the hash key, so that nobody can choose flows that are mistaken for
    /// each other.
    #[default]
    Secret,
    /// They are those that switches of the release before know.
    Public,
}
