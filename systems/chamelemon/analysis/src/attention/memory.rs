//! What the planner remembers from one epoch to the next. It is little, and all of it is here: with
//! an empty memory plans are as valid, but may take one step more.

use calumma_chamelemon::{Attention, Layout};

use super::observation::{EdgeObservation, Observation};
use super::victims::Victims;

/// Thresholds whose correction is remembered.
const CORRECTIONS: usize = 8;

/// How far the truth was from what was foretold, at the thresholds used last. It keeps a plan from
/// going back to a threshold that has just proved too low.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Corrections(Vec<(u32, f64)>);

impl Corrections {
    /// What was learned at this threshold.
    pub(super) fn at(&self, threshold: u32) -> Option<f64> {
        self.0.iter().find(|&&(at, _)| at == threshold).map(|&(_, factor)| factor)
    }

    /// What was learned last, at whichever threshold.
    pub(super) fn latest(&self) -> Option<f64> {
        self.0.first().map(|&(_, factor)| factor)
    }

    /// Remembers a correction.
    pub(super) fn learn(&mut self, threshold: u32, factor: f64) {
        self.0.retain(|&(at, _)| at != threshold);
        self.0.truncate(CORRECTIONS - 1);
        self.0.insert(0, (threshold, factor));
    }
}

/// An epoch at whose T_h memory lay idle, and no lower one fitted: asking what each would make
/// takes longer than everything else in a plan, and has the same answer while traffic is the same.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LowestThreshold {
    t_h: u32,
    /// Buckets an array that the candidates were to fit into.
    buckets: u32,
    traffic: Vec<[f64; 3]>,
}

/// Traffic whose numbers differ by less than this share is the same: some standard deviations of a
/// few thousand flows.
const SAME: f64 = 0.03;

impl LowestThreshold {
    /// `None` where the observation doesn't show enough to know such an epoch again.
    pub(super) fn of(observation: &Observation<'_>, layout: &Layout, buckets: u32) -> Option<Self> {
        let Attention { t_h, partition, .. } = observation.attention;
        let of_edge = |edge: &EdgeObservation<'_>| {
            let candidates = edge.hh.flows(layout, partition.hh)?;
            Some([candidates, *edge.flows, edge.packets as f64])
        };
        let traffic = observation.edges.iter().map(of_edge).collect::<Option<Vec<_>>>()?;
        Some(Self { t_h, buckets, traffic })
    }

    /// Whether another epoch is like this one.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same = |(a, b): (&f64, &f64)| (a - b).abs() <= SAME * a.max(*b);
        self.t_h == other.t_h
            && self.buckets == other.buckets
            && self.traffic.len() == other.traffic.len()
            && self.traffic.as_flattened().iter().zip(other.traffic.as_flattened()).all(same)
    }
}

/// The losses that were known last.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KnownLosses {
    /// Victim flows.
    pub(super) flows: f64,
    /// Packets lost.
    pub(super) packets: f64,
    /// Sizes and losses of the victims, where these were looked at.
    pub(super) victims: Option<Victims>,
}

/// What the planner remembers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Of mice classified as HH candidates, by T_h.
    pub(super) hh: Corrections,
    /// Of victims in the HL encoder by T_l.
    pub(super) hl: Corrections,
    /// Of victims in the LL encoder by T_l.
    pub(super) ll: Corrections,
    /// The losses that were known last: victims of an epoch whose encoders did not decode are
    /// taken to lose as many packets each.
    pub(super) losses: Option<KnownLosses>,
    /// Where no lower T_h fitted.
    pub(super) lowest: Option<LowestThreshold>,
    /// Victim flows at which the network last counted as ill: it does not count as healthy again
    /// before they are clearly fewer.
    pub(super) ill_since: Option<f64>,
    /// Epochs in a row that did not decode under what stands, though nothing was too full.
    pub(super) in_vain: u32,
}
