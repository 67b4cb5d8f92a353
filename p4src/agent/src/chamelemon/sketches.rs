//! From the registers of a finished group to its sketches, however the words came out of the
//! switch.

use calumma_chamelemon::Layout;
use calumma_sketch::fermat::{Lanes, WordsError};
use calumma_sketch::tower::CountersError;
use calumma_sketch::{FermatSketch, FlowKey, TowerSketch};

/// Words that make no sketch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// Not the sources of a side.
    #[error("words of {0} sources")]
    Sources(usize),
    /// Not of the classifier.
    #[error("the classifier makes no sense: {0}")]
    Classifier(CountersError),
    /// Not of an encoder.
    #[error("an encoder makes no sense: {0}")]
    Encoder(WordsError),
}

/// The ingress side of a group.
#[derive(Clone, Debug)]
pub struct IngressSketches {
    /// The flow classifier.
    pub classifier: TowerSketch,
    /// The upstream flow encoder.
    pub upstream: FermatSketch,
}

impl IngressSketches {
    /// From the words of each of [`Source::INGRESS`](super::Source::INGRESS).
    ///
    /// # Errors
    /// When they are not those of a group of this layout.
    pub fn new(layout: &Layout, words: &[Vec<u32>]) -> Result<Self, Nonsense> {
        let [narrow, wide, buckets @ ..] = words else {
            return Err(Nonsense::Sources(words.len()));
        };
        let mut bytes: Vec<u8> = narrow.iter().map(|&count| count as u8).collect();
        bytes.extend(wide.iter().flat_map(|&count| (count as u16).to_le_bytes()));
        let classifier =
            TowerSketch::from_bytes(&layout.classifier, &bytes).map_err(Nonsense::Classifier)?;
        let upstream = FermatSketch::from_words(layout.upstream_shape(), buckets.concat());
        Ok(Self { classifier, upstream: upstream.map_err(Nonsense::Encoder)? })
    }
}

/// The egress side of a group.
#[derive(Clone, Debug)]
pub struct EgressSketches {
    /// Packets encoded; those of hierarchy 0 are not.
    pub encoded: u64,
    /// The downstream flow encoder.
    pub downstream: FermatSketch,
}

impl EgressSketches {
    /// From the words of each of [`Source::EGRESS`](super::Source::EGRESS).
    ///
    /// # Errors
    /// When they are not those of a group of this layout.
    pub fn new(layout: &Layout, words: &[Vec<u32>]) -> Result<Self, Nonsense> {
        let shape = layout.downstream_shape();
        let downstream = FermatSketch::<FlowKey>::from_words(shape, words.concat());
        let downstream = downstream.map_err(Nonsense::Encoder)?;
        let first = &downstream.buckets()[..shape.buckets];
        let encoded = first.iter().map(|bucket| u64::from(bucket.count() as u32)).sum();
        Ok(Self { encoded, downstream })
    }
}
