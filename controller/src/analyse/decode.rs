//! What an epoch's encoders hold: the HH flowset of every edge, and the losses between all of them.
//!
//! Decoding is what attention waits for, so it is done as early as it can be. The HH flowset of an
//! edge needs only its ingress side and is worked out when that side comes in, some time before the
//! egress sides do. Once the last of these is there, only sums over the edges and the decoding of
//! two small encoders are left. Estimates and the report are not this module's business.

use std::sync::Arc;

use calumma_sketch::{Attention, FermatSketch, FlowKey, HashFamily, Hashes, Layout};
use calumma_wire::Ingress;

use super::input::EpochInput;
use super::load::Load;
use super::loss::{self, Losses};
use super::soundness;
use crate::report::{DecodeReport, DecodeState, Loss};

/// Flows that are hashed together.
const BURST: usize = 32;

/// What decoding needs to know of the deployment. Cheap to copy.
#[derive(Clone, Debug)]
pub struct Decoder {
    layout: Arc<Layout>,
    family: Arc<HashFamily>,
}

impl Decoder {
    /// A decoder for switches of `layout`, whose hash functions are `family`.
    pub fn new(layout: Layout, family: Arc<HashFamily>) -> Self {
        Self { layout: Arc::new(layout), family }
    }

    /// The deployment's hash functions.
    pub fn family(&self) -> &Arc<HashFamily> {
        &self.family
    }

    /// The HH flowset of an ingress side. Takes no part of the side out of it.
    pub fn hh_flowset(&self, side: &Ingress) -> HhFlowset {
        HhFlowset::decode(side, &self.family)
    }

    /// Finds the losses of an epoch, decoding those HH encoders that have not been yet.
    pub fn decode(&self, mut input: EpochInput) -> DecodedEpoch {
        for edge in &mut input.edges {
            if let Some(side) = &edge.ingress
                && edge.hh.is_none()
            {
                edge.hh = Some(Box::new(self.hh_flowset(side)));
            }
        }
        let attention = soundness::attention_of(&input);
        let losses = if soundness::judge_sides(&input).is_sound() {
            loss::detect(&self.layout, &self.family, &attention, &input.edges)
        } else {
            Losses::skipped(&attention)
        };
        DecodedEpoch { input, attention, losses }
    }
}

/// The flows of an edge's HH encoder, and what they leave to do for the delta HL encoder.
#[derive(Clone, Debug)]
pub struct HhFlowset {
    /// Each flow once, all with a positive number of packets.
    flows: Vec<(FlowKey, i64)>,
    state: DecodeState,
    load_factor: Option<f64>,
    /// The upstream HL encoder with these flows put into it; none where the flowset is not complete.
    upstream_hl: Option<FermatSketch>,
}

impl HhFlowset {
    fn decode(side: &Ingress, family: &HashFamily) -> Self {
        if side.defects.mixed_attention {
            let state = DecodeState::Skipped;
            return Self { flows: Vec::new(), state, load_factor: None, upstream_hl: None };
        }
        let partition = side.attention.partition;
        let sketch = side.upstream.part(&partition.hh_part());
        let load = Load::of(&sketch);
        let decoded = sketch.decode(family);
        // Nothing is ever subtracted from an upstream encoder.
        let countable = |&(_, packets): &(_, i64)| (1..=i64::from(i32::MAX)).contains(&packets);
        let flows: Vec<_> =
            decoded.flows().iter().filter(|flow| countable(flow)).copied().collect();
        if !decoded.is_complete() || flows.len() < decoded.flows().len() {
            let (state, load_factor) = (DecodeState::Partial, Some(load.estimated()));
            return Self { flows, state, load_factor, upstream_hl: None };
        }
        let mut hl = side.upstream.part(&partition.hl_part());
        reinsert(&mut hl, &flows, family);
        let load_factor = Some(load.exact(flows.len()));
        Self { flows, state: DecodeState::Complete, load_factor, upstream_hl: Some(hl) }
    }

    /// The flows and the packets of each that the HH encoder holds, in no order.
    pub fn flows(&self) -> &[(FlowKey, i64)] {
        &self.flows
    }

    /// How decoding went.
    pub fn state(&self) -> DecodeState {
        self.state
    }

    /// Flows over buckets; estimated where decoding came out partial, none where it was skipped.
    pub fn load_factor(&self) -> Option<f64> {
        self.load_factor
    }

    pub(super) fn upstream_hl(&self) -> Option<&FermatSketch> {
        self.upstream_hl.as_ref()
    }
}

/// Puts flows into an encoder as if their packets had been recorded there.
fn reinsert(sketch: &mut FermatSketch, flows: &[(FlowKey, i64)], family: &HashFamily) {
    let whole = sketch.whole();
    let mut keys = [FlowKey::default(); BURST];
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
    pub(super) attention: Attention,
    pub(super) losses: Losses,
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

    /// Every expected edge, as far as its sides came: ingress side, HH flowset, packets.
    pub fn edges(&self) -> &[super::EdgeInput] {
        &self.input.edges
    }

    /// Adds how the epoch ended at each edge: packets that came too late, where it has sealed the
    /// epoch, and what else the operator should know where something is missing.
    pub fn end(&mut self, ends: Vec<(Option<u64>, Option<String>)>) {
        for (edge, (late_packets, note)) in self.input.edges.iter_mut().zip(ends) {
            edge.late_packets = late_packets;
            edge.note = note;
        }
    }

    /// How decoding of the delta encoders went.
    pub fn decode(&self) -> &DecodeReport {
        &self.losses.decode
    }

    /// Victim flows, most packets first. Packets that came too late may yet make them doubtful.
    pub fn losses(&self) -> &[Loss] {
        &self.losses.loss
    }
}
