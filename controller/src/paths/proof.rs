//! To which edges the marks of packets that enter at one are known to come through.
//!
//! A mark in the ToS byte looks right whatever the network has made of it. So what is missing of a
//! flow is believed to be lost once all eight marks have come through from the edge where it
//! entered to the one in front of its destination. Two things bound the wait, since not every path
//! can be probed: a host that sends nothing is behind no edge that is known, and a network may drop
//! probes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use calumma_analysis::Unprobed;

/// For how many epochs losses wait for all marks to come through to an edge to which packets go.
const WAIT: u64 = 200;

/// For how many epochs after an edge has sent the first destinations others may be missing among
/// them.
const YOUNG: u64 = 20;

/// What is known of the paths from an edge.
#[derive(Clone, Debug, Default)]
pub(super) struct Proof {
    /// Whether a mark looks right whatever it was: it has the timestamp bit alone.
    is_needed: bool,
    /// The edge, by position: packets to hosts behind it as well do not leave it.
    own: usize,
    /// Since when it is known where packets go that enter there.
    listed: Option<u64>,
    /// To which edges all marks have come through, and since when.
    proven: Arc<BTreeMap<usize, u64>>,
    /// To which others packets go, and since when that is known.
    waiting: BTreeMap<usize, u64>,
    /// The last epoch of the connection before, where nothing was missing in it.
    trusted: Option<u64>,
}

impl Proof {
    /// The edge has connected; its marks distinguish so many epochs.
    pub(super) fn begin(&mut self, own: usize, distinct: u64) {
        self.is_needed = distinct <= 2;
        self.own = own;
        self.prove(own, 0);
    }

    /// It has gone, in `epoch`.
    pub(super) fn ended(self, epoch: u64) -> Self {
        let is_whole = self.missing(epoch, &Arc::default()).is_none();
        let trusted = if is_whole && self.listed.is_some() { Some(epoch) } else { self.trusted };
        Self { is_needed: self.is_needed, own: self.own, trusted, ..Self::default() }
    }

    /// Another edge has gone.
    pub(super) fn forget(&mut self, to: usize) {
        self.waiting.remove(&to);
        if self.proven.contains_key(&to) {
            Arc::make_mut(&mut self.proven).remove(&to);
        }
    }

    /// Destinations of its packets are known.
    pub(super) fn list(&mut self, epoch: u64) {
        self.listed.get_or_insert(epoch);
    }

    /// Packets go to these edges.
    pub(super) fn wait_for(&mut self, to: impl Iterator<Item = usize>, epoch: u64) {
        for to in to {
            if !self.proven.contains_key(&to) {
                self.waiting.entry(to).or_insert(epoch);
            }
        }
    }

    /// All marks have come through to an edge, the last of them sent in `epoch`.
    pub(super) fn prove(&mut self, to: usize, epoch: u64) {
        if !self.proven.contains_key(&to) {
            Arc::make_mut(&mut self.proven).insert(to, epoch);
        }
    }

    /// Paths of which it is not known in `epoch` whether marks come through; `None` where it is of
    /// all that matter.
    pub(super) fn missing(
        &self,
        epoch: u64,
        hosts: &Arc<HashMap<IpAddr, usize>>,
    ) -> Option<Unprobed> {
        if !self.is_needed || self.trusted.is_some_and(|last| epoch <= last) {
            return None;
        }
        let is_proven = |to: &usize| self.proven.get(to).is_some_and(|&since| since <= epoch);
        let is_young = self.listed.is_none_or(|since| epoch < since + YOUNG);
        let waiting = self.waiting.iter();
        let waiting = waiting.filter(|&(to, since)| !is_proven(to) && epoch < since + WAIT);
        let waiting: Vec<usize> = waiting.map(|(&to, _)| to).collect();
        if waiting.is_empty() && !is_young {
            return None;
        }
        let mut proven = self.proven.iter();
        let any_proven = proven.any(|(&to, &since)| to != self.own && since <= epoch);
        Some(Unprobed {
            hosts: hosts.clone(),
            proven: self.proven.clone(),
            epoch,
            others: is_young,
            unknown: !waiting.is_empty() || is_young && !any_proven,
            waiting,
        })
    }
}
