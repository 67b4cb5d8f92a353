//! The six packet accumulation tasks, each answered as well as the sketches of one epoch allow
//! (section 4.2 and Appendix C of the ChameleMon paper).

use std::sync::{Arc, OnceLock};

use super::distribution::Counted;
use super::entropy::entropy_of_packets;
use super::index::Index;
use super::size::{Flowset, Sizes};
use super::{Estimate, cardinality, entropy, tells_distribution};
use crate::fermat::Decoded;
use crate::hash::{HashFamily, Hashes};
use crate::key::{FlowKey, Key};
use crate::tower::{Insertion, TowerSketch};

/// A flow's size in packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowSize {
    /// The size of least expected relative error, with the root of its expected square error.
    /// Within the bounds.
    pub estimate: Estimate,
    /// The least that it can be.
    pub at_least: u64,
    /// The most that it can be; `None` where all its counters overflowed and the flowset lacks it.
    pub at_most: Option<u64>,
}

/// What classifier and HH flowset of one epoch show together.
///
/// From counters of CM insertion, which are sums, it estimates how much of them is a flow's own.
/// Counters of CU insertion are no sums: a flow's estimate is the most that it can have, which is
/// close to the truth, and there is neither distribution nor entropy.
///
/// Made in about the time of [`size_distribution`](super::size_distribution) when first asked for a
/// size or the distribution; then a size costs some hundred nanoseconds.
#[derive(Debug)]
pub struct Accumulation<K: Key = FlowKey> {
    family: Arc<HashFamily>,
    classifier: TowerSketch,
    /// Most packets of a flow that are not in the flowset.
    unseen: u64,
    /// The flowset, and where each flow is in it.
    flows: Vec<(K, u64)>,
    index: OnceLock<Index<K>>,
    complete: bool,
    packets: Option<u64>,
    known: OnceLock<Known>,
}

#[derive(Debug)]
struct Known {
    /// What counters that are sums say of any flow.
    sizes: Option<Sizes>,
    /// Sizes of the flows of the flowset, in its order.
    hh: Vec<Estimate>,
    distribution: Vec<(u64, f64)>,
}

/// Between which a flow's size must lie.
struct Bounds {
    at_least: u64,
    at_most: Option<u64>,
    widest: u64,
}

impl Bounds {
    /// The upper bound, which is close where counters are of CU insertion. No distribution between
    /// two bounds has a standard error of more than half of what lies between them.
    fn closest(&self) -> Estimate {
        match self.at_most {
            Some(most) => Estimate {
                value: most as f64,
                standard_error: Some((most - self.at_least) as f64 / 2.0),
            },
            None => Estimate { value: self.widest as f64, standard_error: None },
        }
    }
}

impl<K: Key> Accumulation<K> {
    /// Of an epoch under threshold `t_h` (at least 1) whose HH encoder gave `decoded`.
    pub fn new(
        family: Arc<HashFamily>,
        classifier: TowerSketch,
        t_h: u32,
        decoded: &Decoded<K>,
    ) -> Self {
        Self::from_flowset(family, classifier, t_h, decoded.flows(), decoded.is_complete())
    }

    /// The same from the flows of the HH encoder and whether these are all that it recorded. Flows
    /// without a positive number of packets, which only a partial decode has, are left out; of a
    /// flow that is there twice, the last counts.
    pub fn from_flowset(
        family: Arc<HashFamily>,
        classifier: TowerSketch,
        t_h: u32,
        flows: &[(K, i64)],
        complete: bool,
    ) -> Self {
        let flows = flows
            .iter()
            .filter_map(|&(key, packets)| Some((key, u64::try_from(packets).ok()?)))
            .filter(|&(_, packets)| packets > 0)
            .collect();
        // All below T_h, or as many as the widest counter holds.
        let unseen = u64::from(t_h.max(1)).min(widest(&classifier)) - 1;
        Self {
            family,
            classifier,
            unseen,
            flows,
            index: OnceLock::new(),
            complete,
            packets: None,
            known: OnceLock::new(),
        }
    }

    /// With the number of packets that the epoch had, where a switch has counted them: entropy gets
    /// more exact by it.
    pub fn with_packets(self, packets: u64) -> Self {
        Self { packets: Some(packets), ..self }
    }

    /// Where at most so many packets of a flow are not in the flowset, instead of those below T_h:
    /// of replicas that were added up, each has let through those below T_h.
    pub fn with_unseen(self, packets: u64) -> Self {
        Self { unseen: packets, ..self }
    }

    fn known(&self) -> &Known {
        self.known.get_or_init(|| self.learn())
    }

    fn learn(&self) -> Known {
        match self.classifier.insertion() {
            Insertion::Cm => self.learn_from_sums(),
            Insertion::Cu => self.learn_from_bounds(),
        }
    }

    fn learn_from_bounds(&self) -> Known {
        let size = |(key, _): &(K, u64)| self.bounds(key, &self.family.hash(key)).closest();
        let hh = self.flows.iter().map(size).collect();
        // Where the flowset has all flows, no counter is read.
        let distribution = if self.known_from() == 1 {
            Counted::of(&self.classifier, 1).distribution(self.flows.iter().map(|flow| flow.1))
        } else {
            Vec::new()
        };
        Known { sizes: None, hh, distribution }
    }

    fn learn_from_sums(&self) -> Known {
        let (unseen, known_from) = (self.unseen, self.known_from());
        let flowset = Flowset::read(&self.family, &self.classifier, &self.flows);
        let own = flowset.bounds(unseen);
        let mut counted = Counted::of(&self.classifier, known_from);
        let distribution = counted.distribution(own.iter().copied());
        let mut sizes = Sizes::new(&self.classifier, &distribution, known_from, &flowset);
        let (hh, own) = sizes.of_flowset(flowset, unseen, own);
        Known { sizes: Some(sizes), distribution: counted.distribution(own), hh }
    }

    /// From which size on the flowset has all flows; `u64::MAX` where it may lack some.
    fn known_from(&self) -> u64 {
        if self.complete { self.unseen.saturating_add(1) } else { u64::MAX }
    }

    /// The flows of the flowset and their packets in it.
    pub fn flows(&self) -> &[(K, u64)] {
        &self.flows
    }

    /// Packets of a flow that are in the flowset; 0 where it is not.
    pub fn recorded(&self, key: &K) -> u64 {
        self.place(key).map_or(0, |at| self.flows[at].1)
    }

    /// Where a flow is in the flowset.
    fn place(&self, key: &K) -> Option<usize> {
        self.index.get_or_init(|| Index::new(&self.flows)).get(&self.flows, key)
    }

    /// What flows are hashed by.
    pub fn family(&self) -> &HashFamily {
        &self.family
    }

    /// The classifier.
    pub fn classifier(&self) -> &TowerSketch {
        &self.classifier
    }

    /// The size of any flow (0 where it was not seen).
    ///
    /// Of a flow in the HH flowset the packets are known from the one on with which its counters
    /// reached T_h; how many of those before were its own is estimated from the counters. Any other
    /// flow has less than T_h packets, if the HH encoder decoded completely.
    pub fn size_of(&self, key: &K) -> FlowSize {
        let hashes = self.family.hash(key);
        let bounds = self.bounds(key, &hashes);
        let known = self.known();
        let hh = self.place(key).map(|at| known.hh[at]);
        let estimate = hh.unwrap_or_else(|| match &known.sizes {
            Some(sizes) => sizes.of_other(&self.classifier, &hashes, self.known_from()),
            None => bounds.closest(),
        });
        FlowSize { estimate, at_least: bounds.at_least, at_most: bounds.at_most }
    }

    fn bounds(&self, key: &K, hashes: &Hashes) -> Bounds {
        let counted = self.classifier.query(hashes);
        let counted = (counted != u32::MAX).then_some(u64::from(counted));
        let recorded = self.recorded(key);
        let most = (self.complete || recorded > 0).then_some(recorded.saturating_add(self.unseen));
        let at_most = most.into_iter().chain(counted).min();
        let at_least = if self.complete { recorded } else { 0 };
        let widest = widest(&self.classifier);
        Bounds { at_least: at_least.min(at_most.unwrap_or(u64::MAX)), at_most, widest }
    }

    /// Flows of more than `threshold` packets and their sizes, the largest first. None is missed
    /// where `threshold` is at least T_h and the HH encoder decoded completely, but for those that
    /// the estimate puts on the wrong side of the threshold.
    pub fn heavy_hitters(&self, threshold: u64) -> Vec<(K, u64)> {
        let sizes = self.flows.iter().zip(&self.known().hh);
        let sizes = sizes.map(|((key, _), size)| (*key, size.rounded()));
        let mut hitters: Vec<_> = sizes.filter(|&(_, size)| size > threshold).collect();
        hitters.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        hitters
    }

    /// Flows whose sizes in the epochs `before` and this one differ by more than `threshold`, with
    /// both sizes, the greatest change first. Only flows in the HH flowset of either epoch are
    /// found.
    pub fn heavy_changes<'a>(&'a self, before: &'a Self, threshold: u64) -> Vec<(K, u64, u64)> {
        let keys = |epoch: &'a Self| epoch.flows.iter().map(|flow| &flow.0);
        let new = keys(self).filter(|key| before.place(key).is_none());
        let size = |epoch: &Self, key| epoch.size_of(key).estimate.rounded();
        let mut changes: Vec<_> = keys(before)
            .chain(new)
            .map(|key| (*key, size(before, key), size(self, key)))
            .filter(|&(_, before, after)| before.abs_diff(after) > threshold)
            .collect();
        changes.sort_by(|a, b| b.1.abs_diff(b.2).cmp(&a.1.abs_diff(a.2)).then(a.0.cmp(&b.0)));
        changes
    }

    /// Number of flows; exact where every flow is in the flowset.
    pub fn cardinality(&self) -> Estimate {
        if self.complete && self.unseen == 0 {
            return Estimate { value: self.flows.len() as f64, standard_error: Some(0.0) };
        }
        cardinality(&self.classifier)
    }

    /// Whether [`distribution`](Self::distribution) and [`entropy`](Self::entropy) are in range;
    /// see [`tells_distribution`].
    pub fn tells_distribution(&self) -> bool {
        tells_distribution(&self.classifier, self.known_from())
    }

    /// Number of flows by size in packets, ascending; see
    /// [`size_distribution`](super::size_distribution). Empty for counters of CU
    /// insertion, which have none.
    pub fn distribution(&self) -> &[(u64, f64)] {
        &self.known().distribution
    }

    /// Entropy of the flow sizes in bits; see [`entropy()`]. Where the number of packets is known,
    /// the flows whose sizes are estimated count for what the others leave of it.
    pub fn entropy(&self) -> f64 {
        let Some(packets) = self.packets else { return entropy(self.distribution()) };
        entropy_of_packets(self.distribution(), self.known_from(), packets)
    }
}

/// The most that any counter holds.
fn widest(classifier: &TowerSketch) -> u64 {
    classifier.levels().map(|level| u64::from(level.max())).max().unwrap_or(1)
}
