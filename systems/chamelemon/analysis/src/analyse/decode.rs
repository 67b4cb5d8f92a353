//! What an epoch's encoders hold: the HH flowset of every edge, and the losses between all of them.
//!
//! Decoding is what attention waits for, so it is done as early as it can be. The HH flowset of an
//! edge and the flow sizes there need only its ingress side and are worked out when that comes in,
//! some time before the egress sides do. Once the last of these is there, only sums over the edges
//! and the decoding of two small encoders are left. Estimates and the report are not this module's
//! business.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use calumma_analysis::{HashKeys, NodeEnd};
use calumma_chamelemon::frames::{Ingress, decode_late};
use calumma_chamelemon::{Attention, Layout};
use calumma_epoch::EpochClock;
use calumma_sketch::{FlowKey, HashFamily, KeyKind, WideKey};

use super::edge::{EdgeSizes, encodes_all_of, rounded};
use super::entered::Entered;
use super::explain::{Doubts, Explained};
use super::ingress::DecodedIngress;
use super::input::{EdgeInput, EpochInput};
use super::loss::{self, Losses};
use super::soundness::{self, Verdict};
use crate::report::{Cause, DecodeReport, EdgeReport, EpochReport, Flow, Loss};

/// What decoding needs to know of the deployment. Cheap to copy.
#[derive(Clone, Debug)]
pub struct Decoder {
    layout: Arc<Layout>,
    keys: HashKeys,
    clock: EpochClock,
    /// Whether marks have more of the epoch's number than the timestamp bit.
    dated: Arc<AtomicBool>,
}

impl Decoder {
    /// A decoder for switches of `layout` that hash by `keys`, and for epochs by `clock`.
    pub fn new(layout: Layout, keys: HashKeys, clock: EpochClock) -> Self {
        let dated = Arc::default();
        Self { layout: Arc::new(layout), keys, clock, dated }
    }

    /// Says of this decoder and its copies whether marks have more of the epoch's number than the
    /// timestamp bit, so that no packet is recorded in a wrong epoch and none is under a wrong
    /// mark. As long as nobody says so, they have not.
    pub fn set_dated(&self, dated: bool) {
        self.dated.store(dated, Ordering::Relaxed);
    }

    pub(super) fn is_dated(&self) -> bool {
        self.dated.load(Ordering::Relaxed)
    }

    /// By which keys switches hash.
    pub fn keys(&self) -> &HashKeys {
        &self.keys
    }

    /// Decodes an ingress side.
    pub fn ingress(&self, side: &Ingress) -> DecodedIngress {
        DecodedIngress::decode(side, &self.keys.at(side.epoch).family)
    }

    /// Finds the losses of an epoch, decoding those HH encoders that have not been yet.
    pub fn decode(&self, mut input: EpochInput) -> DecodedEpoch {
        let key = self.keys.at(input.epoch);
        input.edges.iter_mut().for_each(|edge| edge.keep_hashed_by(key.id));
        for edge in &mut input.edges {
            if let Some(side) = &edge.ingress
                && edge.decoded.is_none()
            {
                edge.decoded = Some(Box::new(self.ingress(side)));
            }
        }
        let attention = soundness::attention_of(&input);
        let losses = if soundness::judge_sides(&input).is_sound() {
            loss::detect(&self.layout, &key.family, &attention, &input.edges)
        } else {
            Losses::skipped(&attention)
        };
        let family = key.family.clone();
        DecodedEpoch { input, attention, losses, family, clock: self.clock, keys: self.layout.keys }
    }
}

/// An epoch whose encoders have been decoded: all that attention is planned from, and what the
/// report is made of.
#[derive(Clone, Debug)]
pub struct DecodedEpoch {
    pub(super) input: EpochInput,
    attention: Attention,
    losses: Losses,
    family: Arc<HashFamily>,
    clock: EpochClock,
    keys: KeyKind,
}

impl DecodedEpoch {
    /// Number of the epoch.
    pub fn epoch(&self) -> u64 {
        self.input.epoch
    }

    /// The functions that its flows were hashed by.
    pub fn family(&self) -> &HashFamily {
        &self.family
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

    /// Victim flows, most packets first. Packets that come too late may yet make them doubtful, and
    /// packets that were copied or rewritten are not known as such.
    pub fn losses(&self) -> &[Loss] {
        &self.losses.loss
    }

    /// What became of the packets, given what entered and what no sketch holds.
    pub(super) fn explained(&self, entered: &Entered<'_>, strays: &Doubts<'_>) -> Explained {
        let mut explained = self.losses.explained(entered, strays);
        for loss in explained.loss.iter_mut().filter(|loss| !loss.partial) {
            loss.at_least |= !self.encodes_all_of(&loss.flow);
        }
        explained
    }

    /// Whether no packet of a flow can have been lost without a trace.
    fn encodes_all_of(&self, flow: &Flow) -> bool {
        let hashes = match self.keys {
            KeyKind::Ipv4 => flow.key::<FlowKey>().map(|key| self.family.hash(&key)),
            KeyKind::Dual => flow.key::<WideKey>().map(|key| self.family.hash(&key)),
        };
        hashes.is_some_and(|hashes| encodes_all_of(&self.attention, self.epoch(), &hashes))
    }

    /// Why its losses can't be right; nothing where they may.
    pub(super) fn contradiction(&self) -> Option<Cause> {
        self.losses.contradiction(&self.input)
    }

    /// The report as far as decoding gives it: losses and load factors, but none of the
    /// accumulation tasks' estimates.
    pub(super) fn outline(&self, verdict: Verdict, explained: Explained) -> EpochReport {
        let (complete, missing_edges) = (verdict.is_sound(), verdict.missing_edges);
        let skipped;
        let (losses, Explained { loss, surplus, rewritten, .. }) = if complete {
            (&self.losses, explained)
        } else {
            skipped = Losses::skipped(&self.attention);
            (&skipped, Explained::default())
        };
        EpochReport {
            epoch: self.input.epoch,
            start_unix_ns: self.clock.start_of(self.input.epoch),
            length_ms: self.clock.length_ns() / 1_000_000,
            complete,
            missing_edges,
            incomplete_because: verdict.causes.iter().map(|cause| cause.reason.clone()).collect(),
            state: (&self.attention).into(),
            config: (&self.attention).into(),
            decode: losses.decode,
            loss,
            surplus,
            rewritten,
            indistinct: losses.indistinct.clone(),
            strays: Vec::new(),
            causes: verdict.causes,
            amendments: Vec::new(),
            amended: Vec::new(),
            plan: None,
            timing: None,
            losses_only: false,
            edges: self.input.edges.iter().map(outline).collect(),
        }
    }

    /// Flow sizes at each edge whose ingress side came, by the edge's name.
    pub fn sizes(&self) -> HashMap<String, Arc<EdgeSizes>> {
        let edges = self.input.edges.iter();
        edges
            .filter_map(|edge| Some((edge.edge.clone(), edge.decoded.as_ref()?.sizes().clone())))
            .collect()
    }

    /// Adds how the epoch ended at each edge.
    pub fn end(&mut self, ends: Vec<NodeEnd>) {
        for (edge, end) in self.input.edges.iter_mut().zip(ends) {
            edge.late_packets = end.late_packets;
            // What can't be read is not known. Frames of such seals are refused when they come.
            edge.late = decode_late(self.keys, &end.seal).ok().flatten();
            edge.note = end.note;
            edge.clock = end.clock;
            edge.unprobed = end.unprobed;
            edge.measured_before = end.measured_before;
        }
    }
}

/// The edge's report as far as decoding gives it.
fn outline(input: &EdgeInput) -> EdgeReport {
    let load_factor = input.decoded.as_ref().and_then(|decoded| decoded.hh_load_factor());
    EdgeReport {
        edge: input.edge.clone(),
        packets_in: input.ingress.as_ref().map(|side| side.packets_in),
        packets_out: input.egress.as_ref().map(|side| side.packets_out),
        cardinality: None,
        cardinality_error: None,
        entropy: None,
        hh_decode: input.hh_state(),
        hh_load_factor: load_factor.map(rounded),
        heavy_hitters: Vec::new(),
        heavy_hitters_complete: false,
        heavy_changes_since: None,
        heavy_changes: Vec::new(),
        heavy_changes_complete: false,
        size_distribution: Vec::new(),
    }
}
