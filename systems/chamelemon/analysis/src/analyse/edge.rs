//! The six accumulation tasks, at one edge: heavy hitters, flow size, heavy changes, cardinality,
//! flow size distribution, entropy.

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
        report.heavy_changes = sizes.heavy_changes(previous, tasks.heavy_change);
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
    /// The size, never below the truth unless the HH encoder came out partial.
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
        let bound = u64::from(self.classifier().query(&hashes));
        if recorded > 0 || self.hh_complete {
            let most = recorded.saturating_add(self.unseen);
            // A counter that overflowed is no bound.
            let size = if bound == u64::from(u32::MAX) { most } else { most.min(bound) };
            let size_min = if self.hh_complete { recorded.min(size) } else { 0 };
            FlowSize { size, size_min, exact: self.hh_complete && size == size_min }
        } else if bound == u64::from(u32::MAX) {
            // Larger than every counter; the HH encoder alone would know by how much.
            let most = self.classifier().levels().map(|level| level.max()).max().unwrap_or(0);
            FlowSize { size: most.into(), size_min: 0, exact: false }
        } else {
            FlowSize { size: bound, size_min: 0, exact: false }
        }
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

    /// Whether [`size_of`](Self::size_of) may give more than `threshold` for a flow of the HH
    /// flowset of which this many packets are recorded. Of most flows it can't, and that costs less
    /// to say.
    fn may_exceed(&self, recorded: u64, threshold: u64) -> bool {
        // What else is known exactly of a flow has no such bound.
        self.own.hl.is_some() || recorded.saturating_add(self.unseen) > threshold
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

    fn heavy_changes(&self, previous: &Self, threshold: u64) -> Vec<HeavyChange> {
        // Both epochs are whole. A flow of at most `threshold` packets in both has changed by no
        // more. Where one that is not in the flowset may have more, all are looked at.
        let all = self.may_exceed(0, threshold) || previous.may_exceed(0, threshold);
        let is_large = |sizes: &Self, recorded| all || sizes.may_exceed(recorded, threshold);
        let is_listed = |flow: &K| {
            let recorded = previous.accumulation.recorded(flow);
            recorded > 0 && is_large(previous, recorded)
        };
        let new =
            self.hh().filter(|&(flow, recorded)| is_large(self, recorded) && !is_listed(flow));
        let mut changes: Vec<HeavyChange> = previous
            .hh()
            .filter(|&(_, recorded)| is_large(previous, recorded))
            .chain(new)
            .map(|(key, _)| key)
            .map(|key| {
                let (before, after) = (previous.size_of(key), self.size_of(key));
                HeavyChange {
                    flow: key.into(),
                    before: before.size,
                    before_min: before.min_unless_exact(),
                    after: after.size,
                    after_min: after.min_unless_exact(),
                }
            })
            .filter(|change| change.before.abs_diff(change.after) > threshold)
            .collect();
        let by = |change: &HeavyChange| change.before.abs_diff(change.after);
        changes.sort_by(|a, b| by(b).cmp(&by(a)).then(a.flow.cmp(&b.flow)));
        changes
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use calumma_chamelemon::frames::{Defects, IngressSide};
    use calumma_chamelemon::{IngressGroup, Layout, Partition};
    use calumma_plane::Record;
    use calumma_sketch::{FlowKey, HashKey, Level};
    use proptest::prelude::*;

    use super::*;

    fn key(flow: usize) -> FlowKey {
        FlowKey::from_words(flow as u32, 7, 1, 6)
    }

    /// What is known of flow sizes after an epoch in which flows had so many packets each.
    fn sizes(t_h: u32, hl: u32, packets: impl Iterator<Item = u32>) -> SizesBy<FlowKey> {
        sizes_on(1, t_h, hl, packets)
    }

    /// The same where packets came to so many lcores in turn.
    fn sizes_on(
        lcores: usize,
        t_h: u32,
        hl: u32,
        packets: impl Iterator<Item = u32>,
    ) -> SizesBy<FlowKey> {
        let (side, family) = side_of(lcores, t_h, hl, packets);
        decoded(&side, &family)
    }

    fn decoded(side: &Ingress, family: &Arc<HashFamily>) -> SizesBy<FlowKey> {
        let AnyKey::Ipv4(upstream) = &side.upstream else { unreachable!() };
        let hh = upstream.encoder.part(&side.attention.partition.hh_part()).decode(family);
        SizesBy::new(side, &upstream.encoder, hh.flows(), hh.is_complete(), family)
    }

    fn side_of(
        lcores: usize,
        t_h: u32,
        hl: u32,
        packets: impl Iterator<Item = u32>,
    ) -> (Ingress, Arc<HashFamily>) {
        let layout = Layout {
            upstream_buckets: 128,
            downstream_buckets: 128,
            classifier: vec![Level::new(8, 256), Level::new(16, 128)],
            ..Layout::default()
        };
        let partition = Partition { hh: 128 - hl, hl, ll: 0 };
        let attention = Attention { t_h, t_l: 1, sample_rate: SampleRate::ALL, partition };
        let family = Arc::new(HashFamily::new(&HashKey::from_bytes([3; 32])));
        let mut groups = vec![IngressGroup::new(&layout, attention, 5).unwrap(); lcores];
        let mut all = 0;
        for (flow, packets) in packets.enumerate() {
            let hashes = family.hash(&key(flow));
            for packet in 0..packets as usize {
                groups[packet % lcores].record(&key(flow), &hashes);
            }
            all += u64::from(packets);
        }
        // As of an lcore that nothing came to.
        let mut group = IngressGroup::new(&layout, attention, 5).unwrap();
        groups.iter().for_each(|of| group.merge(of));
        (IngressSide::of_group(5, &group, all, Defects::default()).to_ingress(), family)
    }

    /// Each lcore lets through what is below T_h there.
    #[test]
    fn a_flow_below_t_h_on_each_lcore_has_what_came_to_both() {
        // The HL part is too small to decode.
        let (side, family) = side_of(2, 100, 1, [198; 8].into_iter());
        assert_eq!(side.lcores, Some(2));
        for lcores in [Some(2), None] {
            let sizes = decoded(&Ingress { lcores, ..side.clone() }, &family);
            assert!(sizes.hh_complete && sizes.own.hl.is_none() && !sizes.has(&key(0)));
            let size = sizes.size_of(&key(0));
            assert!((size.size_min, size.exact) == (0, false) && size.size >= 198, "{size:?}");
            let entered = sizes.entered(&key(0), &family.hash(&key(0)));
            assert!(entered.least == 0 && entered.most.unwrap() >= 198, "{entered:?}");
            assert!(sizes.heavy_hitters(150).is_empty() && !sizes.has_all_above(150));
            assert_eq!(sizes.has_all_above(198), lcores.is_some());
        }
        let one = sizes(100, 1, [99; 8].into_iter());
        assert!(one.has_all_above(99) && !one.has_all_above(98));
    }

    /// A flow of 1 packet and then none, in a counter with others, may have been larger.
    #[test]
    fn a_change_between_bounds_says_so() {
        let large = (0..100).map(|_| 40);
        let (before, after) = (sizes(30, 1, large), sizes(30, 1, [0; 1].into_iter()));
        let changes = after.heavy_changes(&before, 20);
        assert!(before.hh_complete && before.own.hl.is_none() && changes.len() > 50);
        for change in &changes {
            let least = change.before_min.unwrap();
            assert!(least <= 40 && (40..=69).contains(&change.before), "{change:?}");
            assert_eq!((change.after, change.after_min), (0, None));
        }
    }

    proptest! {
        #[test]
        fn sizes_lie_between_their_bounds_on_any_number_of_lcores(
            lcores in 1_usize..5,
            says_lcores: bool,
            t_h in 1_u32..150,
            hl in 1_u32..60,
            packets in prop::collection::vec(0_u32..400, 1..60),
            threshold in 0_u64..600,
        ) {
            let (mut side, family) = side_of(lcores, t_h, hl, packets.iter().copied());
            side.lcores = side.lcores.filter(|_| says_lcores);
            let sizes = decoded(&side, &family);
            if !sizes.hh_complete {
                return Ok(());
            }
            let hitters = sizes.heavy_hitters(threshold);
            for (flow, &packets) in packets.iter().enumerate() {
                let (key, packets) = (key(flow), u64::from(packets));
                let size = sizes.size_of(&key);
                let bounds = size.size_min..=size.size;
                prop_assert!(bounds.contains(&packets), "{size:?} {packets}");
                let entered = sizes.entered(&key, &family.hash(&key));
                prop_assert!(entered.least <= packets && packets <= entered.most.unwrap());
                let is_listed = hitters.iter().any(|hitter| hitter.flow == (&key).into());
                let may_miss = !sizes.has_all_above(threshold);
                prop_assert!(is_listed || packets <= threshold || may_miss);
            }
        }

        #[test]
        fn flows_that_are_not_looked_at_are_neither_large_nor_changed(
            t_h in 1_u32..300,
            hl in 20_u32..60,
            packets in prop::collection::vec((0_u32..400, 0_u32..400), 1..150),
            threshold in 0_u64..300,
        ) {
            let before = sizes(t_h, hl, packets.iter().map(|flow| flow.0));
            let after = sizes(t_h, hl, packets.iter().map(|flow| flow.1));
            let hitters = after.heavy_hitters(threshold);
            let hitters: BTreeSet<Flow> = hitters.into_iter().map(|hitter| hitter.flow).collect();
            // Nobody asks for changes where an HH encoder did not decode.
            let is_asked = before.whole && after.whole;
            let changes = match is_asked {
                true => after.heavy_changes(&before, threshold),
                false => Vec::new(),
            };
            let listed: BTreeSet<Flow> = changes.iter().map(|change| change.flow).collect();
            prop_assert_eq!(listed.len(), changes.len());
            for key in (0..packets.len()).map(key) {
                let (was, is) = (before.size_of(&key).size, after.size_of(&key).size);
                let decoded = after.flows().any(|flow| *flow == key);
                prop_assert_eq!(hitters.contains(&(&key).into()), decoded && is > threshold);
                let decoded = before.has(&key) || after.has(&key);
                let has_changed = is_asked && decoded && was.abs_diff(is) > threshold;
                prop_assert_eq!(listed.contains(&(&key).into()), has_changed);
            }
        }
    }
}
