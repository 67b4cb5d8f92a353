//! What an epoch is analysed from.

use calumma_analysis::Unprobed;
use calumma_chamelemon::frames::{
    AnyLate, Defects, Egress, EgressSide, Ingress, IngressSide, Late, Strays,
};
use calumma_chamelemon::{Attention, EgressGroup, IngressGroup};
use calumma_sketch::{AnyKey, Key};

use super::ingress::DecodedIngress;
use crate::report::DecodeState;

/// An epoch, as far as it came.
#[derive(Clone, Debug)]
pub struct EpochInput {
    /// Number of the epoch.
    pub epoch: u64,
    /// The attention that was planned for it; reported where no edge says what it measured under.
    pub planned: Attention,
    /// Every expected edge, whether anything came from it or not.
    pub edges: Vec<EdgeInput>,
}

/// One edge's share of an epoch, as far as it came.
#[derive(Clone, Debug, Default)]
pub struct EdgeInput {
    /// The edge's name.
    pub edge: String,
    /// Its ingress side.
    pub ingress: Option<Box<Ingress>>,
    /// What is decoded of the ingress side, where that has been done already.
    pub decoded: Option<Box<DecodedIngress>>,
    /// Its egress side.
    pub egress: Option<Box<Egress>>,
    /// Packets that came after the egress group had been taken; `None` where the edge has not
    /// sealed the epoch.
    pub late_packets: Option<u64>,
    /// These packets by flow; `None` where the edge only counts them.
    pub late: Option<AnyKey<AnyLate>>,
    /// What else the operator should know where something is missing.
    pub note: Option<String>,
    /// What is wrong with its clock, where it is too far from another edge's.
    pub clock: Option<String>,
    /// Paths from it of which it is not known yet whether marks come through.
    pub unprobed: Option<Unprobed>,
    /// Whether it measured before anything of it could come here.
    pub measured_before: bool,
    /// Whether a side came and was hashed by another key than the epoch's, so that it can't be
    /// read.
    pub other_key: bool,
}

impl EdgeInput {
    /// An edge of which nothing came yet.
    pub fn nothing(edge: impl Into<String>) -> Self {
        Self { edge: edge.into(), ..Self::default() }
    }

    /// A sound epoch of an edge, from the groups that measured it and the packets they recorded:
    /// for replays and tests, which need no frames.
    pub fn from_groups<K: Key>(
        edge: impl Into<String>,
        epoch: u64,
        (ingress, packets_in): (&IngressGroup<K>, u64),
        (egress, packets_out): (&EgressGroup<K>, u64),
    ) -> Self {
        let none = Defects::default();
        let none_late = Late { unencoded: 0, strays: Strays::<K>::default() };
        let ingress = IngressSide::of_group(epoch, ingress, packets_in, none).to_ingress();
        let egress = EgressSide::of_group(epoch, egress, packets_out, none).to_egress();
        Self {
            edge: edge.into(),
            ingress: Some(Box::new(ingress)),
            decoded: None,
            egress: Some(Box::new(egress)),
            late_packets: Some(0),
            late: Some(K::any(none_late)),
            note: None,
            clock: None,
            unprobed: None,
            measured_before: false,
            other_key: false,
        }
    }

    /// Drops the sides that say that they were hashed by another key than the one of this number.
    pub(super) fn keep_hashed_by(&mut self, key: u64) {
        let is_other = |of: Option<u64>| of.is_some_and(|of| of != key);
        let ingress = self.ingress.take_if(|side| is_other(side.key)).is_some();
        let egress = self.egress.take_if(|side| is_other(side.key)).is_some();
        if ingress {
            self.decoded = None;
        }
        self.other_key |= ingress | egress;
    }

    /// How decoding of the HH encoder went, as far as it has been tried.
    pub fn hh_state(&self) -> DecodeState {
        self.decoded.as_ref().map_or(DecodeState::Skipped, |decoded| decoded.hh_state())
    }

    /// Whether anything that it measured came.
    pub(super) fn came(&self) -> bool {
        self.ingress.is_some() || self.egress.is_some()
    }

    /// Whether both sides are there.
    pub fn is_measured(&self) -> bool {
        self.ingress.is_some() && self.egress.is_some()
    }

    /// Whether all that an edge sends of an epoch is there.
    pub fn is_whole(&self) -> bool {
        self.is_measured() && self.late_packets.is_some()
    }
}
