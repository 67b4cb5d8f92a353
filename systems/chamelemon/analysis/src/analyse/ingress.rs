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
    /// The upstream HL encoder with the HH flowset put into it; none where that is not complete.
    upstream_hl: Option<AnyKey<Encoders>>,
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
        let upstream_hl = complete.then(|| {
            let mut hl = encoder.part(&side.attention.partition.hl_part());
            reinsert(&mut hl, flows, family);
            hl.into()
        });
        let sizes = Arc::new(EdgeSizes::new(side, encoder, flows, complete, family));
        Self { state, load_factor, upstream_hl, sizes }
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
}

/// Puts flows into an encoder as if their packets had been recorded there.
fn reinsert<K: Key>(sketch: &mut FermatSketch<K>, flows: &[(K, i64)], family: &HashFamily) {
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
            sketch.insert_into(&whole, key, hashes, *packets as i32);
        }
    }
}
