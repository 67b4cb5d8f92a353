//! Attention: what the controller moves from epoch to epoch, and what it means for one packet.
//!
//! Sections 3.2 and 4.3 of the ChameleMon paper. Deciding *where* attention should go is the
//! controller's work, not this module's.

use calumma_plane::Hierarchy;
use calumma_sketch::Hashes;
use serde::{Deserialize, Serialize};

use super::layout::{Layout, Partition};

/// The share of light-loss candidates that are monitored, in steps of 1/65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SampleRate(u32);

impl SampleRate {
    /// Every light-loss candidate.
    pub const ALL: Self = Self(65_536);

    /// The rate nearest above `rate`: a packet is sampled when its 16-bit sample hash lies below
    /// ceil(65536 rate).
    ///
    /// # Errors
    /// When the rate is not within 0 (excluded) to 1.
    pub fn new(rate: f64) -> Result<Self, AttentionError> {
        if rate > 0.0 && rate <= 1.0 {
            Ok(Self((rate * 65_536.0).ceil() as u32))
        } else {
            Err(AttentionError::SampleRate(rate.to_string()))
        }
    }

    /// The rate from the threshold that switches compare with (1 to 65536).
    ///
    /// # Errors
    /// When the threshold is out of that range.
    pub fn from_threshold(threshold: u32) -> Result<Self, AttentionError> {
        match threshold {
            1..=65_536 => Ok(Self(threshold)),
            _ => Err(AttentionError::SampleRate(format!("{threshold}/65536"))),
        }
    }

    /// The threshold that switches compare the sample hash with.
    #[inline]
    pub fn threshold(self) -> u32 {
        self.0
    }

    /// The share of flows that are sampled, above 0 and at most 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 65_536.0
    }
}

impl Serialize for SampleRate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for SampleRate {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Thresholds, sampling and division of memory, as they hold for one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Flows of at least this many packets are heavy-hitter candidates (T_h, at least 1).
    pub t_h: u32,
    /// Flows below this many packets are light-loss candidates (T_l, 1 to T_h).
    pub t_l: u32,
    /// The share of light-loss candidates that are monitored.
    pub sample_rate: SampleRate,
    /// Buckets of each part of the encoders.
    pub partition: Partition,
}

/// Why an attention can't hold on switches of a given layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttentionError {
    /// A sample rate that is no share.
    #[error("sample_rate = {0}: must be above 0 and at most 1")]
    SampleRate(String),
    /// Thresholds out of order.
    #[error("t_l = {t_l}, t_h = {t_h}: must hold 1 <= t_l <= t_h")]
    Thresholds {
        /// Threshold of heavy-loss candidates.
        t_l: u32,
        /// Threshold of heavy-hitter candidates.
        t_h: u32,
    },
    /// Parts that don't fill the upstream flow encoder.
    #[error("hh + hl + ll = {sum} buckets an array, but the upstream encoder has {upstream}")]
    Upstream {
        /// What the parts add up to.
        sum: u64,
        /// Buckets an array of the upstream flow encoder.
        upstream: u32,
    },
    /// Parts that don't fit the downstream flow encoder.
    #[error("hl + ll = {sum} buckets an array, but the downstream encoder has {downstream}")]
    Downstream {
        /// What the parts add up to.
        sum: u64,
        /// Buckets an array of the downstream flow encoder.
        downstream: u32,
    },
    /// A part without buckets that packets would be encoded into.
    #[error("{0} has no buckets, but packets would be encoded into it")]
    EmptyPart(&'static str),
}

impl Attention {
    /// A healthy network's attention on `layout`: every flow recorded, `hl` buckets for losses
    /// (section 4.3.1; the paper reserves at least 512).
    pub fn healthy(layout: &Layout, hl: u32) -> Self {
        let hl = hl.min(layout.downstream_buckets);
        Self {
            t_h: 1,
            t_l: 1,
            sample_rate: SampleRate::ALL,
            partition: Partition { hh: layout.upstream_buckets.saturating_sub(hl), hl, ll: 0 },
        }
    }

    /// Checks this attention against the memory of the switches.
    ///
    /// # Errors
    /// Names the fields, their values and the rule they break.
    pub fn validate(&self, layout: &Layout) -> Result<(), AttentionError> {
        let Partition { hh, hl, ll } = self.partition;
        if self.t_l < 1 || self.t_l > self.t_h {
            return Err(AttentionError::Thresholds { t_l: self.t_l, t_h: self.t_h });
        }
        let sum = u64::from(hh) + u64::from(hl) + u64::from(ll);
        if sum != u64::from(layout.upstream_buckets) {
            return Err(AttentionError::Upstream { sum, upstream: layout.upstream_buckets });
        }
        let sum = u64::from(hl) + u64::from(ll);
        if sum > u64::from(layout.downstream_buckets) {
            return Err(AttentionError::Downstream { sum, downstream: layout.downstream_buckets });
        }
        if hh == 0 {
            return Err(AttentionError::EmptyPart("the HH encoder"));
        }
        if hl == 0 {
            return Err(AttentionError::EmptyPart("the HL encoder"));
        }
        if ll == 0 && self.t_l > 1 {
            return Err(AttentionError::EmptyPart("the LL encoder"));
        }
        Ok(())
    }

    /// Whether every packet is put into an encoder, so that none carries hierarchy 0.
    pub fn encodes_all(&self) -> bool {
        self.sample_rate == SampleRate::ALL
    }

    /// The hierarchy of a packet whose flow has reached `size` packets (`u32::MAX` where the
    /// classifier overflowed).
    #[inline]
    pub fn classify(&self, size: u32, hashes: &Hashes, sample_seed: u16) -> Hierarchy {
        Hierarchy::from_bits(self.class(size, hashes.sample(sample_seed)) as u8)
    }

    /// The two bits of [`classify`](Self::classify)'s hierarchy.
    #[inline(always)]
    pub(crate) fn class(&self, size: u32, sample: u16) -> u32 {
        // Thresholds rise with the hierarchy, so each one reached is one hierarchy more.
        let sampled = u32::from(sample) < self.sample_rate.threshold();
        let (heavy_loss, heavy_hitter) = (size >= self.t_l, size >= self.t_h);
        u32::from(sampled | heavy_loss | heavy_hitter)
            + u32::from(heavy_loss | heavy_hitter)
            + u32::from(heavy_hitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_divide_flows_by_size() {
        let attention = Attention {
            t_h: 10,
            t_l: 3,
            sample_rate: SampleRate::ALL,
            partition: Partition { hh: 1024, hl: 2560, ll: 512 },
        };
        assert_eq!(attention.validate(&Layout::default()), Ok(()));
        let hashes = Hashes::default();
        let of = |size| attention.classify(size, &hashes, 0);
        assert_eq!(of(1), Hierarchy::SampledLl);
        assert_eq!(of(2), Hierarchy::SampledLl);
        assert_eq!(of(3), Hierarchy::HlCandidate);
        assert_eq!(of(9), Hierarchy::HlCandidate);
        assert_eq!(of(10), Hierarchy::HhCandidate);
        assert_eq!(of(u32::MAX), Hierarchy::HhCandidate);
    }

    #[test]
    fn the_sample_rate_is_the_share_of_hash_values_below_its_threshold() {
        assert_eq!(SampleRate::new(1.0).unwrap().threshold(), 65_536);
        assert_eq!(SampleRate::new(0.5).unwrap().threshold(), 32_768);
        assert_eq!(SampleRate::new(1e-9).unwrap().threshold(), 1);
        for wrong in [0.0, -0.1, 1.1, f64::NAN] {
            assert!(SampleRate::new(wrong).is_err());
        }
    }

    #[test]
    fn an_attention_that_does_not_fit_says_which_part() {
        let layout = Layout::default();
        let healthy = Attention::healthy(&layout, 512);
        assert_eq!(healthy.validate(&layout), Ok(()));
        assert_eq!(healthy.partition, Partition { hh: 3584, hl: 512, ll: 0 });

        let sampled_nowhere = Attention { t_h: 9, t_l: 2, ..healthy };
        let error = sampled_nowhere.validate(&layout).unwrap_err();
        assert_eq!(error, AttentionError::EmptyPart("the LL encoder"));

        let partition = Partition { hh: 512, hl: 3584, ll: 0 };
        let error = Attention { partition, ..healthy }.validate(&layout).unwrap_err();
        assert_eq!(error, AttentionError::Downstream { sum: 3584, downstream: 3072 });
    }
}
