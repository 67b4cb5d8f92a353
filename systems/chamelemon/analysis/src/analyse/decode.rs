//! What an epoch's encoders hold: the HH flowset of every edge, and the losses between all of them.
//!
//! Decoding is what attention waits for, so it is done as early as it can be. The HH flowset of an
//! edge and the flow sizes there need only its ingress side and are worked out when that comes in,
//! some time before the egress sides do. Once the last of these is there, only sums over the edges and the decoding of
//! two small encoders are left. Estimates and the report are not this module's business.

use std::collections::HashMap;
use std::sync::Arc;

use calumma_analysis::NodeEnd;
use calumma_chamelemon::frames::{Ingress, Upstream};
use calumma_chamelemon::{Attention, Layout};
use calumma_epoch::EpochClock;
use calumma_sketch::{AnyKey, Encoders, FermatSketch, HashFamily, Hashes, Key, either};

use super::edge::{self, EdgeSizes};
use super::input::{EdgeInput, EpochInput};
use super::load::Load;
use super::loss::{self, Losses};
use super::soundness::{self, Verdict};
use crate::report::{DecodeReport, DecodeState, EpochReport, Loss};

/// Flows that are hashed together.
const BURST: usize = 32;

/// What decoding needs to know of the deployment. Cheap to copy.
#[derive(Clone, Debug)]
pub struct Decoder {
    layout: Arc<Layout>,
    family: Arc<HashFamily>,
    clock: EpochClock,
}

impl Decoder {
    /// A decoder for switches of `layout`, whose hash functions are `family`, and for epochs by
    /// `clock`.
    pub fn new(layout: Layout, family: Arc<HashFamily>, clock: EpochClock) -> Self {
        Self { layout: Arc::new(layout), family, clock }
    }

    /// The deployment's hash functions.
    pub fn family(&self) -> &Arc<HashFamily> {
        &self.family
    }

    /// Decodes an ingress side.
    pub fn ingress(&self, side: &Ingress) -> DecodedIngress {
        DecodedIngress::decode(side, &self.family)
    }

    /// Finds the losses of an epoch, decoding those HH encoders that have not been yet.
    pub fn decode(&self, mut input: EpochInput) -> DecodedEpoch {
        for edge in &mut input.edges {
            if let Some(side) = &edge.ingress
                && edge.decoded.is_none()
            {
                edge.decoded = Some(Box::new(self.ingress(side)));
            }
        }
        let attention = soundness::attention_of(&input);
        let losses = if soundness::judge_sides(&input).is_sound() {
            loss::detect(&self.layout, &self.family, &attention, &input.edges)
        } else {
            Losses::skipped(&attention)
        };
        DecodedEpoch { input, attention, losses, clock: self.clock }
    }
}

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
    fn decode(side: &Ingress, family: &Arc<HashFamily>) -> Self {
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

/// An epoch whose encoders have been decoded: all that attention is planned from, and what the
/// report is made of.
#[derive(Clone, Debug)]
pub struct DecodedEpoch {
    pub(super) input: EpochInput,
    attention: Attention,
    losses: Losses,
    clock: EpochClock,
}

impl DecodedEpoch {
    /// Number of the epoch.
    pub fn epoch(&self) -> u64 {
        self.input.epoch
    }

    /// The attention that the edges measured under; the planned one where no edge said.
    pub fn attention(&self) -> &Attention {
        &self.attention
    }

    /// Every expected edge, as far as its sides came.
    pub fn edges(&self) -> &[EdgeInput] {
        &self.input.edges
    }

    /// How decoding of the delta encoders went.
    pub fn decode(&self) -> &DecodeReport {
        &self.losses.decode
    }

    /// Victim flows, most packets first. Packets that come too late may yet make them doubtful.
    pub fn losses(&self) -> &[Loss] {
        &self.losses.loss
    }

    /// The report as far as decoding gives it: losses and load factors, but none of the accumulation
    /// tasks' estimates.
    pub(super) fn outline(&self, verdict: Verdict) -> EpochReport {
        let losses =
            if verdict.is_sound() { self.losses.clone() } else { Losses::skipped(&self.attention) };
        EpochReport {
            epoch: self.input.epoch,
            start_unix_ns: self.clock.start_of(self.input.epoch),
            length_ms: self.clock.length_ns() / 1_000_000,
            complete: verdict.is_sound(),
            missing_edges: verdict.missing_edges,
            incomplete_because: verdict.reasons,
            state: (&self.attention).into(),
            config: (&self.attention).into(),
            decode: losses.decode,
            loss: losses.loss,
            surplus: losses.surplus,
            plan: None,
            timing: None,
            losses_only: false,
            edges: self.input.edges.iter().map(edge::outline).collect(),
        }
    }

    /// Flow sizes at each edge whose ingress side came, by the edge's name.
    pub fn sizes(&self) -> HashMap<String, Arc<EdgeSizes>> {
        let edges = self.input.edges.iter();
        edges
            .filter_map(|edge| Some((edge.edge.clone(), edge.decoded.as_ref()?.sizes.clone())))
            .collect()
    }

    /// Adds how the epoch ended at each edge.
    pub fn end(&mut self, ends: Vec<NodeEnd>) {
        for (edge, end) in self.input.edges.iter_mut().zip(ends) {
            edge.late_packets = end.late_packets;
            edge.note = end.note;
            edge.clock = end.clock;
        }
    }
}
