//! What all switches of a deployment share for as long as it runs, and how an encoder's buckets
//! are divided among its parts.

use serde::{Deserialize, Serialize};

use calumma_sketch::fermat::{Arithmetic, MAX_ARRAYS, Shape};
use calumma_sketch::tower::{self, Insertion, Level};
use calumma_sketch::{KeyKind, Part};

/// The memory of every edge switch. Defaults are those of the ChameleMon paper, section 5.2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Layout {
    /// Which packets are measured, and by what key.
    pub keys: KeyKind,
    /// How bucket words are summed.
    pub arithmetic: Arithmetic,
    /// Whether a fingerprint of the key is summed along with it.
    pub fingerprint: bool,
    /// Bucket arrays of an encoder (d).
    pub arrays: u32,
    /// Buckets an array of the upstream flow encoder (m_uf).
    pub upstream_buckets: u32,
    /// Buckets an array of the downstream flow encoder (m_df).
    pub downstream_buckets: u32,
    /// Counter arrays of the flow classifier, narrowest first.
    pub classifier: Vec<Level>,
    /// How the flow classifier counts. The contract's is CM; where all edges are software, CU may
    /// be chosen, since nothing of the classifier but the hierarchy leaves with a packet.
    pub insertion: Insertion,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            keys: KeyKind::Ipv4,
            arithmetic: Arithmetic::Prime,
            fingerprint: true,
            arrays: 3,
            upstream_buckets: 4096,
            downstream_buckets: 3072,
            classifier: vec![Level::new(8, 32_768), Level::new(16, 16_384)],
            insertion: Insertion::Cm,
        }
    }
}

/// Why a layout can't be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Keys that the arithmetic does not sum.
    #[error(
        "keys = \"{}\" with arithmetic = \"wrapping\": wide keys are summed in prime arithmetic only; \
         set arithmetic = \"prime\", or keys = \"ipv4\"", .0.name()
    )]
    Arithmetic(KeyKind),
    /// Sketches of one kind of key where the layout has another.
    #[error("keys = \"{}\", but these sketches hold \"{}\" keys", .layout.name(), .sketches.name())]
    Keys {
        /// Keys of the layout.
        layout: KeyKind,
        /// Keys of the sketches.
        sketches: KeyKind,
    },
    /// A number of bucket arrays that the hash family has no words for.
    #[error("arrays = {0}: an encoder has 2 to {MAX_ARRAYS} bucket arrays")]
    Arrays(u32),
    /// A number of buckets that no index reaches.
    #[error("{field} = {value}: must be at least 1 and at most 2^28")]
    Buckets {
        /// The field's name in the configuration.
        field: &'static str,
        /// What it was set to.
        value: u32,
    },
    /// The downstream flow encoder has no heavy-hitter part, so it needs less than the upstream
    /// one.
    #[error(
        "downstream_buckets = {downstream} exceeds upstream_buckets = {upstream}: \
         the upstream encoder must hold every part of the downstream one"
    )]
    Downstream {
        /// Buckets an array of the downstream flow encoder.
        downstream: u32,
        /// Buckets an array of the upstream flow encoder.
        upstream: u32,
    },
    /// Counter arrays that a TowerSketch can't be built of.
    #[error("classifier: {0}")]
    Classifier(#[from] tower::LevelError),
}

/// How much of the memory of [`Layout::within`] is the upstream flow encoder's, and how much of the
/// rest is that of each counter array, by the width of its counters in bits.
const ENCODER: f64 = 0.3;
const CLASSIFIER: [(u32, f64); 3] = [(4, 0.3), (8, 0.5), (16, 0.2)];

/// Most flows for whose packets an lcore has room that no bucket holds.
const MOST_STRAY_ENTRIES: usize = 2048;

impl Layout {
    /// Flows for whose packets an lcore has room that no bucket holds, in an epoch.
    pub fn stray_entries(&self) -> usize {
        (self.downstream_buckets as usize / 2).clamp(16, MOST_STRAY_ENTRIES)
    }

    /// A layout whose classifier and upstream flow encoder together fill at most `bytes` (but have
    /// at least one counter an array and one bucket an array), divided so that all six packet
    /// accumulation tasks are answered well from 200 to 600 KB: narrow counters tell the many small
    /// flows apart, 8-bit ones carry a flow to T_h with few others beside it, and the encoder takes
    /// over before the wide ones would matter. The downstream flow encoder has three quarters
    /// of the upstream one's buckets, as in the paper. `cargo xtask figures --only
    /// chamelemon-11` shows what it brings; a Tofino has no 4-bit counters.
    pub fn within(bytes: usize) -> Self {
        let layout = Self::default();
        let encoder = (bytes as f64 * ENCODER) as usize;
        let bucket = 4 * layout.arithmetic.words();
        let buckets = encoder / bucket / layout.arrays as usize;
        let upstream_buckets = (buckets as u32).clamp(1, 1 << 28);
        let counters =
            bytes.saturating_sub(upstream_buckets as usize * layout.arrays as usize * bucket);
        let level = |(bits, share): (u32, f64)| {
            let counters = counters as f64 * share * 8.0 / f64::from(bits);
            Level::new(bits, (counters as u32).clamp(1, 1 << 28))
        };
        Self {
            upstream_buckets,
            downstream_buckets: (upstream_buckets / 4 * 3).max(1),
            classifier: CLASSIFIER.map(level).to_vec(),
            ..layout
        }
    }

    /// Checks that sketches of this layout can be built.
    ///
    /// # Errors
    /// Names the field, its value and what it may be.
    pub fn validate(&self) -> Result<(), LayoutError> {
        if !self.arithmetic.sums(self.keys) {
            return Err(LayoutError::Arithmetic(self.keys));
        }
        if !(2..=MAX_ARRAYS as u32).contains(&self.arrays) {
            return Err(LayoutError::Arrays(self.arrays));
        }
        for (field, value) in [
            ("upstream_buckets", self.upstream_buckets),
            ("downstream_buckets", self.downstream_buckets),
        ] {
            if !(1..=1 << 28).contains(&value) {
                return Err(LayoutError::Buckets { field, value });
            }
        }
        if self.downstream_buckets > self.upstream_buckets {
            return Err(LayoutError::Downstream {
                downstream: self.downstream_buckets,
                upstream: self.upstream_buckets,
            });
        }
        Ok(tower::validate_levels(&self.classifier)?)
    }

    /// Checks that sketches of this layout can be built, and that they hold keys of this kind.
    pub(crate) fn validate_for(&self, sketches: KeyKind) -> Result<(), LayoutError> {
        self.validate()?;
        if self.keys == sketches {
            Ok(())
        } else {
            Err(LayoutError::Keys { layout: self.keys, sketches })
        }
    }

    /// Words of a bucket on the wire and in a hardware switch: its fragments and its count.
    pub fn bucket_words(&self) -> usize {
        self.arithmetic.bucket_words(self.keys)
    }

    /// Shape of the upstream flow encoder.
    pub fn upstream_shape(&self) -> Shape {
        self.shape(self.upstream_buckets)
    }

    /// Shape of the downstream flow encoder.
    pub fn downstream_shape(&self) -> Shape {
        self.shape(self.downstream_buckets)
    }

    /// Shape of an encoder of this layout with another number of buckets an array.
    pub fn shape(&self, buckets: u32) -> Shape {
        Shape {
            arithmetic: self.arithmetic,
            fingerprint: self.fingerprint,
            arrays: self.arrays as usize,
            buckets: buckets as usize,
        }
    }
}

/// How the buckets of each array of the upstream flow encoder are divided: LL on the left, HL in
/// the middle, HH on the right. The downstream flow encoder has the same LL and HL parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Buckets an array of the HH encoder (m_hh).
    pub hh: u32,
    /// Buckets an array of the HL encoder (m_hl).
    pub hl: u32,
    /// Buckets an array of the LL encoder (m_ll).
    pub ll: u32,
}

impl Partition {
    /// The LL encoder's buckets.
    pub fn ll_part(&self) -> Part {
        Part::new(0, self.ll)
    }

    /// The HL encoder's buckets.
    pub fn hl_part(&self) -> Part {
        Part::new(self.ll, self.hl)
    }

    /// The HH encoder's buckets.
    pub fn hh_part(&self) -> Part {
        Part::new(self.ll + self.hl, self.hh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_layout_is_valid_and_a_wrong_one_says_what_is_wrong() {
        assert_eq!(Layout::default().validate(), Ok(()));
        let wrong = Layout { downstream_buckets: 5000, ..Layout::default() };
        assert!(wrong.validate().unwrap_err().to_string().contains("downstream_buckets = 5000"));
        let wrong = Layout { arrays: 9, ..Layout::default() };
        assert!(wrong.validate().unwrap_err().to_string().contains("arrays = 9"));
    }

    #[test]
    fn a_layout_within_so_many_bytes_is_valid_and_fills_them() {
        for bytes in [0, 1_000, 65_536, 200_000, 600_000, 100_000_000] {
            let layout = Layout::within(bytes);
            assert_eq!(layout.validate(), Ok(()), "{bytes} bytes");
            let counters: usize = layout.classifier.iter().map(Level::bytes).sum();
            let buckets = layout.upstream_shape().total_buckets() * 4 * layout.arithmetic.words();
            assert!(counters + buckets <= bytes.max(70), "{bytes} bytes");
            assert!((counters + buckets) as f64 > 0.98 * bytes as f64, "{bytes} bytes");
        }
    }

    #[test]
    fn parts_lie_side_by_side_ll_first() {
        let partition = Partition { hh: 1024, hl: 2560, ll: 512 };
        assert_eq!(partition.ll_part().offset(), 0);
        assert_eq!(partition.hl_part().offset(), 512);
        assert_eq!(partition.hh_part().offset(), 3072);
    }
}
