//! The six accumulation tasks, at one edge: heavy hitters, flow size, heavy changes, cardinality,
//! flow size distribution, entropy.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use calumma_chamelemon::frames::Ingress;
use calumma_chamelemon::{Attention, SampleRate};
use calumma_sketch::estimate::{self, Accumulation};
use calumma_sketch::hash::sample_seed;
use calumma_sketch::{
    AnyKey, FermatSketch, HashFamily, Hashes, Key, Keyed, Part, TowerSketch, either,
};

use super::entered::Bounds;
use super::tasks::Tasks;
use crate::report::{EdgeReport, Flow, HeavyChange, HeavyHitter};

/// Adds what the flow sizes at the edge answer.
pub(super) fn answer(
    report: &mut EdgeReport,
    sizes: &EdgeSizes,
    previous: Option<&EdgeSizes>,
    tasks: &Tasks,
) {
    match (&sizes.0, previous.map(|previous| &previous.0)) {
        (AnyKey::Ipv4(sizes), Some(AnyKey::Ipv4(previous))) => {
            answer_by(report, sizes, Some(previous), tasks);
        }
        (AnyKey::Dual(sizes), Some(AnyKey::Dual(previous))) => {
            answer_by(report, sizes, Some(previous), tasks);
        }
        (AnyKey::Ipv4(sizes), _) => answer_by(report, sizes, None, tasks),
        (AnyKey::Dual(sizes), _) => answer_by(report, sizes, None, tasks),
    }
}

/// The same by the edge's kind of key.
fn answer_by<K: Key>(
    report: &mut EdgeReport,
    sizes: &SizesBy<K>,
    previous: Option<&SizesBy<K>>,
    tasks: &Tasks,
) {
    report.heavy_hitters = sizes.heavy_hitters(tasks.heavy_hitter);
    report.heavy_hitters_complete = sizes.has_all_above(tasks.heavy_hitter);
    if let Some(previous) = previous.filter(|previous| previous.whole && sizes.whole) {
        report.heavy_changes_since = Some(previous.epoch);
        let (changes, complete) = sizes.heavy_changes(previous, tasks.heavy_change);
        (report.heavy_changes, report.heavy_changes_complete) = (changes, complete);
    }
    let cardinality = sizes.cardinality();
    report.cardinality = Some(rounded(cardinality.value));
    report.cardinality_error = cardinality.standard_error.map(rounded);
    if let Some((distribution, entropy)) = sizes.distribution() {
        report.entropy = Some(rounded(entropy));
        report.size_distribution =
            distribution.into_iter().map(|(size, flows)| (size, rounded(flows))).collect();
    }
}

/// Three decimals say all that an estimate does.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The flows of the edge's own HL and LL encoders, where these decode by themselves: then sizes are
/// exact. They are sized for losses, not for all candidates, so often they don't.
#[derive(Clone, Debug, Default, PartialEq)]
struct OwnParts<K: Key> {
    hl: Option<HashMap<K, i64>>,
    ll: Option<HashMap<K, i64>>,
}

impl<K: Key> OwnParts<K> {
    fn decode(upstream: &FermatSketch<K>, attention: &Attention, family: &HashFamily) -> Self {
        let decode = |part: &Part, used: bool| {
            if !used {
                return Some(HashMap::new());
            }
            let decoded = upstream.part(part).decode(family);
            decoded.is_complete().then(|| decoded.into_flowset())
        };
        let partition = attention.partition;
        let hl = decode(&partition.hl_part(), attention.t_h > attention.t_l);
        // Without the HL part, the LL part makes no size exact.
        let ll = hl.as_ref().and_then(|_| decode(&partition.ll_part(), attention.t_l > 1));
        Self { hl, ll }
    }
}

/// A flow's size in packets at the edge where it entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSize {
    /// The size, never below the truth.
    pub size: u64,
    /// The least that it can have been.
    pub size_min: u64,
    /// Whether the size is exact.
    pub exact: bool,
}

impl FlowSize {
    /// The least, where that is not the size.
    fn min_unless_exact(&self) -> Option<u64> {
        (!self.exact).then_some(self.size_min)
    }

    /// By how many packets it may differ from another at most.
    fn most_from(&self, other: &Self) -> u64 {
        let more = self.size.saturating_sub(other.size_min);
        more.max(other.size.saturating_sub(self.size_min))
    }
}

/// What is known of flow sizes at one edge in one epoch: HH flowset and flow classifier. Estimates
/// are worked out when first asked for, after all that attention waits for.
#[derive(Debug)]
pub struct EdgeSizes(AnyKey<Sizes>);

/// [`SizesBy`] a kind of key.
#[derive(Debug)]
pub(crate) enum Sizes {}

impl Keyed for Sizes {
    type Of<K: Key> = SizesBy<K>;
}

impl EdgeSizes {
    pub(super) fn new<K: Key>(
        side: &Ingress,
        encoder: &FermatSketch<K>,
        hh: &[(K, i64)],
        hh_complete: bool,
        family: &Arc<HashFamily>,
    ) -> Self {
        Self(K::any(SizesBy::new(side, encoder, hh, hh_complete, family)))
    }

    /// The epoch that this is about.
    pub fn epoch(&self) -> u64 {
        either!(&self.0, sizes => sizes.epoch)
    }

    /// The size of any flow, `None` where the deployment does not measure such flows: IPv6 by IPv4
    /// keys.
    ///
    /// Of a flow in the HH flowset, the HH encoder holds every packet from the one that reached T_h
    /// on, so at most T_h - 1 of each lcore are not in it; fewer where the classifier took the flow
    /// for larger.
    pub fn size_of(&self, flow: &Flow) -> Option<FlowSize> {
        either!(&self.0, sizes => Some(sizes.size_of(&flow.key()?)))
    }

    /// The packets of each flow of the HH flowset that the HH encoder holds, in no order.
    pub(crate) fn hh_packets(&self) -> Vec<i64> {
        either!(&self.0, sizes => sizes.hh().map(|(_, packets)| packets as i64).collect())
    }

    /// The sizes by their kind of key.
    pub(crate) fn by_key(&self) -> &AnyKey<Sizes> {
        &self.0
    }
}

/// The most packets of a flow, beside those in the HH encoder, that counted below `threshold`: each
/// lcore has let through as many. Of an edge that does not say how many those were, all packets
/// that are not in the encoder may be of one flow.
fn most_below<K: Key>(threshold: u32, side: &Ingress, hh: &[(K, i64)]) -> u64 {
    if threshold == 1 {
        return 0;
    }
    match side.lcores {
        Some(lcores) => {
            // A counter that has overflowed is above any threshold.
            let widest = side.classifier.levels().map(|level| level.max()).max();
            u64::from(lcores) * u64::from(widest.map_or(threshold, |max| max.min(threshold)) - 1)
        }
        None => {
            let recorded = hh.iter().map(|&(_, packets)| packets.unsigned_abs());
            side.packets_in.saturating_sub(recorded.fold(0, u64::saturating_add))
        }
    }
}

/// Flow sizes by a kind of key.
#[derive(Debug)]
pub(crate) struct SizesBy<K: Key> {
    epoch: u64,
    attention: Attention,
    hh_complete: bool,
    /// Whether every packet that entered was recorded and decoded.
    whole: bool,
    /// Packets that entered.
    packets: u64,
    /// Most packets of a flow that are not in the HH encoder.
    unseen: u64,
    /// Most packets of a flow that has not been decoded.
    undecoded: u64,
    own: OwnParts<K>,
    accumulation: Accumulation<K>,
}

impl<K: Key> SizesBy<K> {
    fn new(
        side: &Ingress,
        encoder: &FermatSketch<K>,
        hh: &[(K, i64)],
        hh_complete: bool,
        family: &Arc<HashFamily>,
    ) -> Self {
        let own = if hh_complete {
            OwnParts::decode(encoder, &side.attention, family)
        } else {
            OwnParts::default()
        };
        let Attention { t_h, t_l, .. } = side.attention;
        let unseen = most_below(t_h, side, hh);
        let classifier = side.classifier.clone();
        let accumulation =
            Accumulation::from_flowset(Arc::clone(family), classifier, t_h, hh, hh_complete)
                .with_packets(side.packets_in)
                .with_unseen(unseen);
        let mut sizes = Self {
            epoch: side.epoch,
            attention: side.attention,
            hh_complete,
            whole: hh_complete && side.defects.is_none(),
            packets: side.packets_in,
            unseen,
            undecoded: unseen,
            own,
            accumulation,
        };
        if sizes.all_exact() {
            sizes.undecoded = 0;
        } else if sizes.own.hl.is_some() {
            sizes.undecoded = most_below(t_l, side, hh);
        }
        sizes
    }

    fn classifier(&self) -> &TowerSketch {
        self.accumulation.classifier()
    }

    /// The flows of the HH flowset, each with its packets that the HH encoder holds.
    fn hh(&self) -> impl Iterator<Item = (&K, u64)> {
        self.accumulation.flows().iter().map(|(key, packets)| (key, *packets))
    }

    /// The flows of the HH flowset.
    pub(crate) fn hh_flows(&self) -> impl Iterator<Item = &K> {
        self.hh().map(|(key, _)| key)
    }

    /// As [`EdgeSizes::size_of`].
    fn size_of(&self, flow: &K) -> FlowSize {
        let hashes = self.accumulation.family().hash(flow);
        let recorded = self.accumulation.recorded(flow);
        if let Some(before) = self.packets_before(flow, &hashes) {
            let size = recorded + before;
            return FlowSize { size, size_min: size, exact: true };
        }
        let counted = self.classifier().query(&hashes);
        // A counter that overflowed is no bound.
        let counted = if counted == u32::MAX { self.packets } else { counted.into() };
        if !self.hh_complete {
            // Packets of what is recorded may be among what did not decode.
            return FlowSize { size: counted, size_min: 0, exact: false };
        }
        let size = recorded.saturating_add(self.unseen).min(counted);
        let size_min = recorded.min(size);
        FlowSize { size, size_min, exact: size == size_min }
    }

    /// Whether a flow is in the HH flowset.
    pub(super) fn has(&self, flow: &K) -> bool {
        self.accumulation.recorded(flow) > 0
    }

    /// Bounds of the packets of `flow` that entered here.
    pub(super) fn entered(&self, flow: &K, hashes: &Hashes) -> Bounds {
        let recorded = self.accumulation.recorded(flow);
        if let Some(before) = self.packets_before(flow, hashes) {
            let size = recorded + before;
            return Bounds { least: size, most: Some(size) };
        }
        let counted = self.classifier().query(hashes);
        let counted = (counted != u32::MAX).then_some(u64::from(counted));
        if !self.hh_complete {
            return Bounds { least: 0, most: counted };
        }
        let most = recorded.saturating_add(self.unseen);
        Bounds { least: recorded, most: Some(counted.map_or(most, |counted| counted.min(most))) }
    }

    /// Packets of the flow before it reached T_h, where they are known exactly.
    fn packets_before(&self, flow: &K, hashes: &Hashes) -> Option<u64> {
        if !self.hh_complete {
            return None;
        }
        let hl = self.own.hl.as_ref()?.get(flow).copied().unwrap_or(0);
        if self.attention.t_l == 1 {
            return u64::try_from(hl).ok();
        }
        let ll = self.own.ll.as_ref()?.get(flow).copied().unwrap_or(0);
        let encoded = encodes_all_of(&self.attention, self.epoch, hashes);
        if encoded { u64::try_from(hl + ll).ok() } else { None }
    }

    /// Whether the sizes of all flows are known exactly.
    fn all_exact(&self) -> bool {
        self.hh_complete
            && self.own.hl.is_some()
            && self.own.ll.is_some()
            && (self.attention.t_l == 1 || self.attention.sample_rate == SampleRate::ALL)
    }

    /// Every flow that has been decoded, in whichever part.
    fn flows(&self) -> impl Iterator<Item = &K> {
        self.hh_flows().chain(self.own_flows())
    }

    /// The flows of the HL and LL encoders that are not in the HH flowset.
    fn own_flows(&self) -> impl Iterator<Item = &K> {
        let (hl, ll) = (self.own.hl.as_ref(), self.own.ll.as_ref());
        let more_hl = hl.into_iter().flat_map(HashMap::keys);
        let more_hl = more_hl.filter(|key| self.accumulation.recorded(key) == 0);
        let in_hl = move |key: &&K| hl.is_some_and(|hl| hl.contains_key(key));
        let more_ll = ll.into_iter().flat_map(HashMap::keys);
        let more_ll =
            more_ll.filter(move |key| self.accumulation.recorded(key) == 0 && !in_hl(key));
        more_hl.chain(more_ll)
    }

    /// Whether a flow that is not in the HH flowset is in the HL or LL encoder.
    fn is_own(&self, flow: &K) -> bool {
        let OwnParts { hl, ll } = &self.own;
        [hl, ll].into_iter().flatten().any(|part| part.contains_key(flow))
    }

    /// Whether [`size_of`](Self::size_of) may give more than `threshold` for a flow of the HH
    /// flowset of which this many packets are recorded. Of most flows it can't, and that costs less
    /// to say.
    fn may_exceed(&self, recorded: u64, threshold: u64) -> bool {
        // What else is known exactly of a flow has no such bound, nor has what did not decode.
        self.own.hl.is_some()
            || !self.hh_complete
            || recorded.saturating_add(self.unseen) > threshold
    }

    /// Every flow that has been decoded and may have more than `threshold` packets.
    fn large_flows(&self, threshold: u64) -> impl Iterator<Item = &K> {
        let large = self.hh().filter(move |&(_, recorded)| self.may_exceed(recorded, threshold));
        large.map(|(key, _)| key).chain(self.own_flows())
    }

    /// Whether [`heavy_hitters`](Self::heavy_hitters) lacks no flow of more packets.
    fn has_all_above(&self, threshold: u64) -> bool {
        self.whole && self.undecoded <= threshold
    }

    fn heavy_hitters(&self, threshold: u64) -> Vec<HeavyHitter> {
        let mut hitters: Vec<HeavyHitter> = self
            .large_flows(threshold)
            .map(|key| (key, self.size_of(key)))
            .filter(|(_, size)| size.size > threshold)
            .map(|(key, size)| HeavyHitter {
                flow: key.into(),
                size: size.size,
                size_min: size.min_unless_exact(),
            })
            .collect();
        hitters.sort_by(|a, b| b.size.cmp(&a.size).then(a.flow.cmp(&b.flow)));
        hitters
    }

    /// The flows of those decoded in either epoch that have changed by more, and whether no other
    /// flow can have. Both epochs are whole.
    fn heavy_changes(&self, previous: &Self, threshold: u64) -> (Vec<HeavyChange>, bool) {
        // A flow of at most `threshold` packets in both has changed by no more. Where one that is
        // not in the flowset may have more, all are looked at.
        let all = self.may_exceed(0, threshold) || previous.may_exceed(0, threshold);
        let is_large = |sizes: &Self, recorded| all || sizes.may_exceed(recorded, threshold);
        let is_listed = |flow: &K| {
            let recorded = previous.accumulation.recorded(flow);
            recorded > 0 && is_large(previous, recorded)
        };
        let new =
            self.hh().filter(|&(flow, recorded)| is_large(self, recorded) && !is_listed(flow));
        let large = previous.hh().filter(|&(_, recorded)| is_large(previous, recorded));
        let large = large.chain(new).map(|(key, _)| key);
        // Where those of the edge's own parts are known, all of the flowsets are looked at.
        let (own_before, own) = (previous.own_flows(), self.own_flows());
        let own_before = own_before.filter(|key| !self.has(key));
        let own = own.filter(|key| !previous.has(key) && !previous.is_own(key));
        let (mut changes, mut complete) = (Vec::new(), true);
        for key in large.chain(own_before).chain(own) {
            let (before, after) = (previous.size_of(key), self.size_of(key));
            if before.size.abs_diff(after.size) > threshold {
                changes.push(HeavyChange {
                    flow: key.into(),
                    before: before.size,
                    before_min: before.min_unless_exact(),
                    after: after.size,
                    after_min: after.min_unless_exact(),
                });
            } else {
                complete &= before.most_from(&after) <= threshold;
            }
        }
        let by = |change: &HeavyChange| change.before.abs_diff(change.after);
        changes.sort_by(|a, b| by(b).cmp(&by(a)).then(a.flow.cmp(&b.flow)));
        (changes, complete && self.undecoded.max(previous.undecoded) <= threshold)
    }

    fn cardinality(&self) -> estimate::Estimate {
        if self.all_exact() {
            let value = self.flows().count() as f64;
            estimate::Estimate { value, standard_error: Some(0.0) }
        } else {
            self.accumulation.cardinality()
        }
    }

    /// Number of flows by size and the entropy of it; none where the classifier is out of its
    /// range.
    fn distribution(&self) -> Option<(Vec<(u64, f64)>, f64)> {
        if self.all_exact() {
            let sizes = self.flows().map(|flow| self.size_of(flow).size);
            let sizes = estimate::size_distribution_with_known(self.classifier(), 1, sizes);
            let entropy = estimate::entropy(&sizes);
            return Some((sizes, entropy));
        }
        let accumulation = &self.accumulation;
        accumulation
            .tells_distribution()
            .then(|| (accumulation.distribution().to_vec(), accumulation.entropy()))
    }
}

/// Whether a flow's packets are encoded from its first on: those before it reaches T_l are only
/// where it is in the sample of the epoch.
pub(super) fn encodes_all_of(attention: &Attention, epoch: u64, hashes: &Hashes) -> bool {
    let sample = u32::from(hashes.sample(sample_seed(epoch)));
    attention.t_l == 1 || sample < attention.sample_rate.threshold()
}
