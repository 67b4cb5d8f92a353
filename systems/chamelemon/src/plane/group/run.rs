//! Runs: packets of one flow back to back, recorded at once.
//!
//! Hosts send trains of packets, and a train's packets would wait for one another at the same
//! counters and buckets. A simulation of a hundred thousand flows an epoch can't afford every
//! packet. What a run leaves in the sketches is, bit for bit, what its packets would have left one
//! by one.

use calumma_sketch::simd::{Isa, Work};
use calumma_sketch::{HashFamily, Hashes, Key};

use calumma_plane::{Hierarchy, Run};

use super::{EgressGroup, IngressGroup};

/// Packets of a burst that are recorded in the time of one run.
const PACKETS_OF_A_RUN: usize = 8;

/// Whether a burst is so few runs that it is recorded sooner run by run than packet by packet.
/// Looks no further than to the first run that is too many.
#[inline]
pub(super) fn few_runs<K: Key>(keys: &[K]) -> bool {
    let most = keys.len() / PACKETS_OF_A_RUN;
    let mut changes = 0;
    for pair in keys.windows(2) {
        changes += usize::from(pair[0] != pair[1]);
        if changes >= most {
            return false;
        }
    }
    most > 0
}

impl<K: Key> IngressGroup<K> {
    /// Records `packets` packets of one flow entering the network, as so many calls of
    /// [`record`](Self::record) would, and gives the hierarchies that these give.
    #[inline(always)]
    pub fn record_run(&mut self, key: &K, hashes: &Hashes, packets: u32) -> Run {
        let below =
            |size| self.classifier.packets_to_reach(hashes, size).saturating_sub(1).min(packets);
        let (light, below_t_h) = (below(self.attention.t_l), below(self.attention.t_h));
        let lowest = self.attention.classify(0, hashes, self.sample_seed);
        self.classifier.insert_run(hashes, packets);

        let mut run = [0, 0, below_t_h - light, packets - below_t_h];
        run[usize::from(lowest.bits())] += light;
        self.balance.count_run(&Run::new(run));
        for (part, packets) in self.parts.iter().zip(run).skip(1) {
            if packets > 0 {
                self.upstream.insert_into(part, key, hashes, packets as i32);
            }
        }
        Run::new(run)
    }
}

impl<K: Key> EgressGroup<K> {
    /// Records a run leaving the network, as [`record`](Self::record) would packet by packet, and
    /// gives for how many of its packets that gives false.
    #[inline(always)]
    pub fn record_run(&mut self, key: &K, hashes: &Hashes, run: &Run) -> u32 {
        let mut foreign = 0;
        self.balance.count_run(run);
        let unencoded = match self.attention.encodes_all() {
            true => run.of(Hierarchy::NonSampledLl),
            false => 0,
        };
        if unencoded > 0 {
            self.strays.keep(key, Hierarchy::NonSampledLl, 0, unencoded);
        }
        for (part, (hierarchy, packets)) in self.parts.iter().zip(run.by_hierarchy()).skip(1) {
            if packets > 0 && part.is_empty() {
                foreign += packets;
                self.strays.add(key, hierarchy, 0, packets);
            } else if packets > 0 {
                self.downstream.insert_into(part, key, hashes, packets as i32);
            }
        }
        self.foreign_packets += u64::from(foreign);
        foreign + unencoded
    }
}

/// A burst that enters the network, run by run.
pub(super) struct EnterRuns<'a, K: Key> {
    pub(super) group: &'a mut IngressGroup<K>,
    pub(super) family: &'a HashFamily,
    pub(super) keys: &'a [K],
    pub(super) hierarchies: &'a mut [Hierarchy],
}

impl<K: Key> Work for EnterRuns<'_, K> {
    type Output = ();

    #[inline(always)]
    fn work(self, isa: impl Isa) {
        let Self { group, family, keys, mut hierarchies } = self;
        for packets in keys.chunk_by(K::eq) {
            let key = &packets[0];
            let hashes = family.hash_with(isa, key);
            let run = group.record_run(key, &hashes, packets.len() as u32);
            for (hierarchy, packets) in run.by_hierarchy() {
                let (these, others) = hierarchies.split_at_mut(packets as usize);
                these.fill(hierarchy);
                hierarchies = others;
            }
        }
    }
}

/// A burst that leaves the network, run by run.
pub(super) struct LeaveRuns<'a, K: Key> {
    pub(super) group: &'a mut EgressGroup<K>,
    pub(super) family: &'a HashFamily,
    pub(super) keys: &'a [K],
    pub(super) hierarchies: &'a [Hierarchy],
}

impl<K: Key> Work for LeaveRuns<'_, K> {
    type Output = u32;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> u32 {
        let Self { group, family, keys, mut hierarchies } = self;
        let mut foreign = 0;
        for packets in keys.chunk_by(K::eq) {
            let key = &packets[0];
            let (these, others) = hierarchies.split_at(packets.len());
            let run = these.iter().copied().collect();
            foreign += group.record_run(key, &family.hash_with(isa, key), &run);
            hierarchies = others;
        }
        foreign
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attention, Layout, Partition, SampleRate};
    use calumma_sketch::{FlowKey, HashKey, Insertion, Level};
    use proptest::prelude::*;

    proptest! {
        /// Flows that collide in every counter, thresholds on both sides of what counters hold, a
        /// loss pattern of any kind: groups and hierarchies are those of single packets.
        #[test]
        fn a_run_leaves_what_its_packets_would_have_left(
            t_l in 1u32..40,
            above in 0u32..600,
            rate in 1u32..=65_536,
            insertion in prop::sample::select(vec![Insertion::Cm, Insertion::Cu]),
            runs in prop::collection::vec((0u32..12, 0u32..700, 1u32..9), 1..30),
        ) {
            let layout = Layout {
                upstream_buckets: 40,
                downstream_buckets: 30,
                classifier: vec![Level::new(4, 6), Level::new(8, 4), Level::new(16, 3)],
                insertion,
                ..Layout::default()
            };
            let attention = Attention {
                t_h: t_l + above,
                t_l,
                sample_rate: SampleRate::from_threshold(rate).unwrap(),
                partition: Partition { hh: 10, hl: 20, ll: 10 },
            };
            let family = HashFamily::new(&HashKey::from_bytes([3; 32]));
            let group = || (
                IngressGroup::new(&layout, attention, 9).unwrap(),
                EgressGroup::new(&layout, attention).unwrap(),
            );
            let ((mut in_runs, mut out_runs), (mut in_packets, mut out_packets)) = (group(), group());
            for (flow, packets, every) in runs {
                let key = FlowKey::from_words(flow, 1, 2, 17);
                let hashes = family.hash(&key);
                let run = in_runs.record_run(&key, &hashes, packets);
                prop_assert_eq!(run.packets(), packets);
                let mut single = [0; 4];
                for position in 0..packets {
                    let hierarchy = in_packets.record(&key, &hashes);
                    if position % every == every - 1 {
                        single[usize::from(hierarchy.bits())] += 1;
                    } else {
                        out_packets.record(&key, &hashes, hierarchy);
                    }
                }
                let left = run.without(|first| first / every);
                for (hierarchy, packets) in left.by_hierarchy() {
                    let lost = run.of(hierarchy) - packets;
                    prop_assert_eq!(lost, single[usize::from(hierarchy.bits())]);
                }
                prop_assert_eq!(out_runs.record_run(&key, &hashes, &left), 0);
            }
            prop_assert_eq!(in_runs, in_packets);
            prop_assert_eq!(out_runs, out_packets);
        }
    }

    #[test]
    fn a_run_for_which_a_part_has_no_buckets_is_foreign() {
        let layout = Layout::default();
        let family = HashFamily::new(&HashKey::from_bytes([3; 32]));
        let key = FlowKey::from_words(1, 2, 3, 17);
        let hashes = family.hash(&key);
        let mut egress = EgressGroup::new(&layout, Attention::healthy(&layout, 512)).unwrap();
        assert_eq!(egress.record_run(&key, &hashes, &Run::new([4, 3, 2, 1])), 7);
        assert_eq!((egress.foreign_packets(), egress.downstream().packets()), (3, 3));
    }

    /// A stranger that reads as hierarchy 0 is known by flow where no packet carries that, whatever
    /// the burst it comes in. Where packets carry it, one is as good as the other.
    #[test]
    fn hierarchy_0_is_kept_by_flow_where_all_packets_are_encoded() {
        let layout = Layout::default();
        let family = HashFamily::new(&HashKey::from_bytes([3; 32]));
        let keys = |flows: u32| (0..32).map(move |at| FlowKey::from_words(at % flows, 2, 3, 17));
        let healthy = Attention::healthy(&layout, 512);
        let sampled = Attention { sample_rate: SampleRate::new(0.5).unwrap(), ..healthy };
        for (attention, all) in [(healthy, true), (sampled, false)] {
            // A burst of many flows, and one of a single run.
            for flows in [16, 1] {
                let keys: Vec<_> = keys(flows).collect();
                let mut hierarchies = [Hierarchy::HlCandidate; 32];
                hierarchies[7] = Hierarchy::NonSampledLl;
                let mut egress = EgressGroup::new(&layout, attention).unwrap();
                let foreign = egress.record_burst(&family, &keys, &hierarchies);
                let kept: Vec<_> = egress.strays().entries.iter().map(|of| of.key).collect();
                assert_eq!((foreign, kept), (all.into(), vec![keys[7]; all.into()]));
                assert!(egress.foreign_packets() == 0 && egress.strays().beyond == 0);
            }
        }
    }
}
