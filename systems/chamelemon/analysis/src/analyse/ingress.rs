//! What is decoded of one edge's ingress side, long before the epoch's last side comes in.

use std::sync::Arc;

use calumma_chamelemon::frames::{Ingress, Upstream};
use calumma_sketch::{AnyKey, Encoders, FermatSketch, HashFamily, Hashes, Key, either};

use super::edge::EdgeSizes;
use super::load::Load;
use crate::report::DecodeState;

/// Flows that are hashed together.
const BURST: usize = 32;

/// What is decoded of an ingress side: its HH flowset, what follows of flow sizes at its edge, and
/// what is left to do for the delta HL encoder.
#[derive(Clone, Debug)]
pub struct DecodedIngress {
    state: DecodeState,
    load_factor: Option<f64>,
    /// The upstream HL encoder with the HH flowset put into it, as far as that is known.
    upstream_hl: Option<AnyKey<Encoders>>,
    /// What is left of the HH encoder without that flowset; none where that is nothing.
    remainder: Option<AnyKey<Encoders>>,
    sizes: Arc<EdgeSizes>,
}

impl DecodedIngress {
    pub(super) fn decode(side: &Ingress, family: &Arc<HashFamily>) -> Self {
        either!(&side.upstream, upstream => Self::decode_by(side, upstream, family))
    }

    /// Decodes an ingress side by its kind of key.
    fn decode_by<K: Key>(side: &Ingress, upstream: &Upstream<K>, family: &Arc<HashFamily>) -> Self {
        let Upstream { encoder, hh_flows } = upstream;
        let hh = side.attention.partition.hh_part();
        let buckets = encoder.shape().arrays * hh.len() as usize;
        let exact = |flows: &[_]| Some(flows.len() as f64 / buckets as f64);
        let new = |flows: &[_], state, load_factor| {
            Self::new(side, encoder, flows, state, load_factor, family)
        };
        if side.defects.mixed_attention {
            return new(&[], DecodeState::Skipped, None);
        }
        if let Some(flows) = hh_flows {
            return new(flows, DecodeState::Complete, exact(flows));
        }
        let sketch = encoder.part(&hh);
        let load = Load::of(&sketch);
        let decoded = sketch.decode(family);
        let flows = decoded.flows();
        // Nothing is ever subtracted from an upstream encoder.
        let countable = |&(_, packets): &(_, i64)| (1..=i64::from(i32::MAX)).contains(&packets);
        if decoded.is_complete() && flows.iter().all(countable) {
            new(flows, DecodeState::Complete, exact(flows))
        } else {
            let flows: Vec<_> = flows.iter().copied().filter(countable).collect();
            new(&flows, DecodeState::Partial, Some(load.estimated()))
        }
    }

    fn new<K: Key>(
        side: &Ingress,
        encoder: &FermatSketch<K>,
        flows: &[(K, i64)],
        state: DecodeState,
        load_factor: Option<f64>,
        family: &Arc<HashFamily>,
    ) -> Self {
        let complete = state == DecodeState::Complete;
        let partition = side.attention.partition;
        let upstream_hl = (state != DecodeState::Skipped).then(|| {
            let mut hl = encoder.part(&partition.hl_part());
            reinsert(&mut hl, flows, family, 1);
            hl.into()
        });
        let remainder = (state == DecodeState::Partial).then(|| {
            let mut hh = encoder.part(&partition.hh_part());
            reinsert(&mut hh, flows, family, -1);
            hh.into()
        });
        let sizes = Arc::new(EdgeSizes::new(side, encoder, flows, complete, family));
        Self { state, load_factor, upstream_hl, remainder, sizes }
    }

    /// How decoding of the HH encoder went.
    pub fn hh_state(&self) -> DecodeState {
        self.state
    }

    /// Flows over buckets of the HH encoder; estimated where decoding came out partial, none where
    /// it was skipped.
    pub fn hh_load_factor(&self) -> Option<f64> {
        self.load_factor
    }

    /// Flow sizes at the edge.
    pub fn sizes(&self) -> &Arc<EdgeSizes> {
        &self.sizes
    }

    pub(super) fn upstream_hl(&self) -> Option<&AnyKey<Encoders>> {
        self.upstream_hl.as_ref()
    }

    /// Whether what came out of the HH encoder is all that it held of a flow, and whether anything
    /// came out.
    ///
    /// It is where the classifier never counted as many packets of the flow as make a heavy-hitter
    /// candidate: then the encoder held none, and none came out. It is also where two of the flow's
    /// buckets are empty without the flows that came out. A bucket is, where they are all that it
    /// held; or where others together passed for a flow that never was, by place and fingerprint,
    /// which then left its own other buckets in disorder and did not empty a second of this one's.
    pub(super) fn holds_all_of<K: Key>(&self, side: &Ingress, key: &K, hashes: &Hashes) -> Held {
        let recorded = self.sizes.by_key().get::<K>().is_some_and(|sizes| sizes.has(key));
        let never = !recorded && side.classifier.query(hashes) < side.attention.t_h;
        let Some(remainder) = self.remainder.as_ref().and_then(|left| left.get::<K>()) else {
            return Held::All;
        };
        if never || remainder.empty_arrays(hashes) >= 2 {
            Held::All
        } else if recorded {
            Held::Unknown
        } else {
            Held::AtLeast
        }
    }
}

/// What came out of an HH encoder of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    /// All that it held.
    All,
    /// Nothing, and it may have held some.
    AtLeast,
    /// Something, and it may have held more or less.
    Unknown,
}

/// Puts flows into an encoder as if their packets had been recorded there, `times` times each.
pub(super) fn reinsert<K: Key>(
    sketch: &mut FermatSketch<K>,
    flows: &[(K, i64)],
    family: &HashFamily,
    times: i32,
) {
    let whole = sketch.whole();
    let mut keys = [K::default(); BURST];
    let mut hashes = [Hashes::default(); BURST];
    for flows in flows.chunks(BURST) {
        for (to, (key, _)) in keys.iter_mut().zip(flows) {
            *to = *key;
        }
        let hashes = &mut hashes[..flows.len()];
        family.hash_burst(&keys[..flows.len()], hashes);
        for ((key, packets), hashes) in flows.iter().zip(hashes) {
            sketch.insert_into(&whole, key, hashes, times * *packets as i32);
        }
    }
}
