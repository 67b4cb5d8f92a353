//! One epoch's sketches at an edge: what every packet entering or leaving the network goes through.
//!
//! A switch keeps two groups of each kind and rotates them; when, is the epoch crate's business.

mod run;

use calumma_plane::{Hierarchy, Record, StrayTable, Strays};
use calumma_sketch::burst::Column;
use calumma_sketch::hash::sample_seed;
use calumma_sketch::simd::{Isa, Work};
use calumma_sketch::{
    FermatSketch, FlowKey, HashColumns, HashFamily, Hashes, Insertion, Key, Part, TowerSketch,
};

use super::attention::Attention;
use super::balance::Balance;
use super::layout::{Layout, LayoutError};

use self::run::{EnterRuns, LeaveRuns, few_runs};

/// Flow classifier and upstream flow encoder of one epoch: the ingress role.
#[derive(Clone, Debug, PartialEq)]
pub struct IngressGroup<K: Key = FlowKey> {
    classifier: TowerSketch,
    upstream: FermatSketch<K>,
    balance: Balance,
    /// Groups with packets that are merged in here, this one included; 0 before any is.
    merged: u32,
    attention: Attention,
    sample_seed: u16,
    /// Part of the encoder for each hierarchy.
    parts: [Part; 4],
}

impl<K: Key> IngressGroup<K> {
    /// Empty sketches, about to measure `epoch` under `attention`.
    ///
    /// # Errors
    /// When the layout is invalid or has keys of another kind.
    pub fn new(layout: &Layout, attention: Attention, epoch: u64) -> Result<Self, LayoutError> {
        layout.validate_for(K::KIND)?;
        let mut group = Self {
            classifier: TowerSketch::new(&layout.classifier)?.with_insertion(layout.insertion),
            upstream: FermatSketch::new(layout.upstream_shape()),
            balance: Balance::default(),
            merged: 0,
            attention,
            sample_seed: 0,
            parts: [Part::new(0, 0); 4],
        };
        group.begin(&attention, epoch);
        Ok(group)
    }

    /// Records one packet entering the network and gives its hierarchy, which must travel with it.
    #[inline]
    pub fn record(&mut self, key: &K, hashes: &Hashes) -> Hierarchy {
        let size = self.classifier.insert(hashes);
        let hierarchy = self.attention.classify(size, hashes, self.sample_seed);
        self.balance.count(hierarchy);
        if hierarchy != Hierarchy::NonSampledLl {
            self.upstream.encode(&self.parts[usize::from(hierarchy.bits())], key, hashes);
        }
        hierarchy
    }

    /// Records a burst of at most [`BURST`](calumma_sketch::BURST) packets in order and gives each
    /// one's hierarchy. Step by step for the whole burst, so that its cache lines are under way
    /// together: one a packet in each array of counters and of buckets. About 28 cycles a
    /// packet in the default layout with AVX-512 (EPYC of family 26), about 47 with AVX2
    /// (family 25, half the L2 cache); `cargo xtask bench sketch` prints those of the CPU at
    /// hand. A burst of few flows, their packets back to back, is recorded flow by flow: see
    /// [`Run`](crate::Run).
    ///
    /// # Panics
    /// When the burst is longer, or `hierarchies` is not as long as `keys`.
    pub fn record_burst(&mut self, family: &HashFamily, keys: &[K], hierarchies: &mut [Hierarchy]) {
        self.record_hashed(family, keys, None, hierarchies);
    }

    /// The same where `hashes` are the keys' by `family`, or none are at hand.
    ///
    /// # Panics
    /// As [`record_burst`](Self::record_burst).
    pub fn record_hashed(
        &mut self,
        family: &HashFamily,
        keys: &[K],
        hashes: Option<&HashColumns>,
        hierarchies: &mut [Hierarchy],
    ) {
        assert_eq!(keys.len(), hierarchies.len(), "one hierarchy for each key");
        if few_runs(keys) {
            family.engine().run(EnterRuns { group: self, family, keys, hierarchies });
            return;
        }
        let (engine, group) = (family.engine(), self);
        match group.classifier.insertion() {
            Insertion::Cm => {
                engine.run(Enter::<_, true> { group, family, keys, hashes, hierarchies });
            }
            Insertion::Cu => {
                engine.run(Enter::<_, false> { group, family, keys, hashes, hierarchies });
            }
        }
    }

    /// The flow classifier.
    pub fn classifier(&self) -> &TowerSketch {
        &self.classifier
    }

    /// The packets as they were classified.
    pub fn balance(&self) -> Balance {
        self.balance
    }

    /// How many lcores recorded packets in it. Each has classified its own by itself, so that a
    /// flow becomes a candidate on each anew.
    pub fn lcores(&self) -> u32 {
        self.merged.max(u32::from(self.balance.packets() > 0))
    }

    /// The upstream flow encoder.
    pub fn upstream(&self) -> &FermatSketch<K> {
        &self.upstream
    }

    /// The attention under which the group measures.
    pub fn attention(&self) -> &Attention {
        &self.attention
    }
}

impl<K: Key> Record for IngressGroup<K> {
    type Plan = Attention;

    fn begin(&mut self, attention: &Attention, epoch: u64) {
        let partition = attention.partition;
        self.attention = *attention;
        self.sample_seed = sample_seed(epoch);
        self.parts =
            [Part::new(0, 0), partition.ll_part(), partition.hl_part(), partition.hh_part()];
    }

    fn plan(&self) -> &Attention {
        &self.attention
    }

    /// # Panics
    /// When the groups are of different layouts; those of one switch never are.
    fn merge(&mut self, other: &Self) {
        self.merged = self.lcores() + other.lcores();
        self.classifier.merge(&other.classifier);
        self.upstream.add(&other.upstream).expect("groups of one switch share its layout");
        self.balance += other.balance;
    }

    fn clear(&mut self) {
        self.classifier.clear();
        self.upstream.clear();
        self.balance = Balance::default();
        self.merged = 0;
    }

    fn lines(&self) -> usize {
        self.classifier.lines() + self.upstream.lines()
    }

    #[inline]
    fn make_ready(&mut self, line: usize) {
        let line = self.classifier.make_ready(line);
        line.and_then(|line| self.upstream.make_ready(line));
    }
}

/// A burst that enters the network and is counted by CM insertion, or by CU.
struct Enter<'a, K: Key, const CM: bool> {
    group: &'a mut IngressGroup<K>,
    family: &'a HashFamily,
    keys: &'a [K],
    hashes: Option<&'a HashColumns>,
    hierarchies: &'a mut [Hierarchy],
}

impl<K: Key, const CM: bool> Work for Enter<'_, K, CM> {
    type Output = ();

    #[inline(always)]
    fn work(self, isa: impl Isa) {
        let Self { group, family, keys, hashes, hierarchies } = self;
        let keys = K::burst(isa, keys);
        let computed;
        let hashes = match hashes {
            Some(hashes) => hashes,
            None => {
                computed = family.hash_keys::<K>(isa, &keys);
                &computed
            }
        };
        let sizes = group.classifier.insert_burst::<CM>(hierarchies.len(), hashes);
        let classes = Column::from_fn(|packet| {
            let sample = hashes.of(packet).sample(group.sample_seed);
            group.attention.class(sizes.0[packet], sample)
        });
        group.balance.count_burst(&classes, hierarchies.len());
        for (hierarchy, &class) in hierarchies.iter_mut().zip(&classes.0) {
            *hierarchy = Hierarchy::from_bits(class as u8);
        }
        group.upstream.encode_burst(isa, &group.parts, &keys, hashes, &classes);
    }
}

/// Downstream flow encoder of one epoch: the egress role.
#[derive(Clone, Debug, PartialEq)]
pub struct EgressGroup<K: Key = FlowKey> {
    downstream: FermatSketch<K>,
    balance: Balance,
    attention: Attention,
    foreign_packets: u64,
    /// Packets that no bucket holds, as far as those of hierarchy 0 have found room.
    strays: StrayTable<K>,
    /// Packets without a mark, which came while packets of this epoch could.
    unmarked: StrayTable<K>,
    /// Part of the encoder for each hierarchy; heavy-hitter candidates go to the HL part.
    parts: [Part; 4],
}

impl<K: Key> EgressGroup<K> {
    /// An empty encoder, about to measure an epoch under `attention`.
    ///
    /// # Errors
    /// When the layout is invalid or has keys of another kind.
    pub fn new(layout: &Layout, attention: Attention) -> Result<Self, LayoutError> {
        layout.validate_for(K::KIND)?;
        let mut group = Self {
            downstream: FermatSketch::new(layout.downstream_shape()),
            balance: Balance::default(),
            attention,
            foreign_packets: 0,
            strays: StrayTable::new(layout.stray_entries()),
            unmarked: StrayTable::new(layout.stray_entries() / 2),
            parts: [Part::new(0, 0); 4],
        };
        group.begin(&attention, 0);
        Ok(group)
    }

    /// Records one packet leaving the network under the hierarchy it carries. Gives false where
    /// no packet of this deployment carries that in this epoch: it has no buckets, or is 0 where
    /// all packets are encoded.
    #[inline]
    pub fn record(&mut self, key: &K, hashes: &Hashes, hierarchy: Hierarchy) -> bool {
        self.balance.count(hierarchy);
        if hierarchy == Hierarchy::NonSampledLl {
            let is_foreign = self.attention.encodes_all();
            if is_foreign {
                self.strays.keep(key, hierarchy, 0, 1);
            }
            return !is_foreign;
        }
        let part = &self.parts[usize::from(hierarchy.bits())];
        if part.is_empty() {
            self.foreign_packets += 1;
            self.strays.add(key, hierarchy, 0, 1);
            return false;
        }
        self.downstream.encode(part, key, hashes);
        true
    }

    /// Records a burst of at most [`BURST`](calumma_sketch::BURST) packets under the hierarchies
    /// they carry, and gives the number of those for which [`record`](Self::record) gives false.
    /// One cache line a packet in each array of buckets; about 21 cycles a packet in the
    /// default layout with AVX-512, as measured for [`IngressGroup::record_burst`]: 11 to hash, 10
    /// for three buckets. Ingress does the same and in 8 more counts in the classifier. To be
    /// 1.5 times as fast, egress would have to do with 4 cycles for its buckets, that is three
    /// loads, additions modulo p and stores of 32 bytes each.
    ///
    /// # Panics
    /// When the burst is longer, or `hierarchies` is not as long as `keys`.
    pub fn record_burst(
        &mut self,
        family: &HashFamily,
        keys: &[K],
        hierarchies: &[Hierarchy],
    ) -> u32 {
        self.record_hashed(family, keys, None, hierarchies)
    }

    /// The same where `hashes` are the keys' by `family`, or none are at hand.
    ///
    /// # Panics
    /// As [`record_burst`](Self::record_burst).
    pub fn record_hashed(
        &mut self,
        family: &HashFamily,
        keys: &[K],
        hashes: Option<&HashColumns>,
        hierarchies: &[Hierarchy],
    ) -> u32 {
        assert_eq!(keys.len(), hierarchies.len(), "one hierarchy for each key");
        if few_runs(keys) {
            return family.engine().run(LeaveRuns { group: self, family, keys, hierarchies });
        }
        let before = self.balance.of(Hierarchy::NonSampledLl);
        let leave = Leave { group: &mut *self, family, keys, hashes, hierarchies };
        let without_buckets = family.engine().run(leave);
        let unencoded = match self.attention.encodes_all() {
            true => (self.balance.of(Hierarchy::NonSampledLl) - before) as u32,
            false => 0,
        };
        if without_buckets + unencoded > 0 {
            self.foreign_packets += u64::from(without_buckets);
            self.keep_foreign(keys, hierarchies);
        }
        without_buckets + unencoded
    }

    /// Keeps the packets of a burst that no bucket holds.
    #[cold]
    fn keep_foreign(&mut self, keys: &[K], hierarchies: &[Hierarchy]) {
        for (key, &hierarchy) in keys.iter().zip(hierarchies) {
            let part = &self.parts[usize::from(hierarchy.bits())];
            if hierarchy != Hierarchy::NonSampledLl {
                if part.is_empty() {
                    self.strays.add(key, hierarchy, 0, 1);
                }
            } else if self.attention.encodes_all() {
                self.strays.keep(key, hierarchy, 0, 1);
            }
        }
    }

    /// Records a packet without a mark, which came while packets of this epoch could. `age` is by
    /// how many epochs, 0 to 7, it says to be older than this one (or by eight more, or sixteen,
    /// and so on), or [`UNDATED`](calumma_plane::UNDATED) where it says nothing.
    #[cold]
    pub fn record_unmarked(&mut self, key: &K, age: u8) {
        self.unmarked.add(key, Hierarchy::NonSampledLl, age, 1);
    }

    /// The packets by the hierarchy that they carried, those without buckets included.
    pub fn balance(&self) -> Balance {
        self.balance
    }

    /// Packets that no bucket holds, by flow: those whose hierarchy has none in this epoch, and,
    /// where all packets are encoded, those of hierarchy 0. Of the latter only [`balance`] counts
    /// what has found no room.
    ///
    /// [`balance`]: Self::balance
    pub fn strays(&self) -> Strays<K> {
        self.strays.strays()
    }

    /// Packets without a mark, by flow.
    pub fn unmarked(&self) -> Strays<K> {
        self.unmarked.strays()
    }

    /// Packets that carried a hierarchy other than 0 which has no buckets in this epoch.
    pub fn foreign_packets(&self) -> u64 {
        self.foreign_packets
    }

    /// The downstream flow encoder.
    pub fn downstream(&self) -> &FermatSketch<K> {
        &self.downstream
    }

    /// The attention under which the group measures.
    pub fn attention(&self) -> &Attention {
        &self.attention
    }
}

impl<K: Key> Record for EgressGroup<K> {
    type Plan = Attention;

    fn begin(&mut self, attention: &Attention, _epoch: u64) {
        let partition = attention.partition;
        self.attention = *attention;
        self.parts =
            [Part::new(0, 0), partition.ll_part(), partition.hl_part(), partition.hl_part()];
    }

    fn plan(&self) -> &Attention {
        &self.attention
    }

    /// # Panics
    /// When the groups are of different layouts; those of one switch never are.
    fn merge(&mut self, other: &Self) {
        self.downstream.add(&other.downstream).expect("groups of one switch share its layout");
        self.foreign_packets += other.foreign_packets;
        self.balance += other.balance;
        self.strays.merge(&other.strays);
        self.unmarked.merge(&other.unmarked);
    }

    fn clear(&mut self) {
        self.downstream.clear();
        self.foreign_packets = 0;
        self.balance = Balance::default();
        self.strays.clear();
        self.unmarked.clear();
    }

    fn lines(&self) -> usize {
        self.downstream.lines()
    }

    #[inline]
    fn make_ready(&mut self, line: usize) {
        self.downstream.make_ready(line);
    }
}

/// A burst that leaves the network.
struct Leave<'a, K: Key> {
    group: &'a mut EgressGroup<K>,
    family: &'a HashFamily,
    keys: &'a [K],
    hashes: Option<&'a HashColumns>,
    hierarchies: &'a [Hierarchy],
}

impl<K: Key> Work for Leave<'_, K> {
    type Output = u32;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> u32 {
        let Self { group, family, keys, hashes, hierarchies } = self;
        let mut classes = Column::ZERO;
        for (class, hierarchy) in classes.0[..keys.len()].iter_mut().zip(hierarchies) {
            *class = u32::from(hierarchy.bits());
        }
        group.balance.count_burst(&classes, keys.len());
        let keys = K::burst(isa, keys);
        let computed;
        let hashes = match hashes {
            Some(hashes) => hashes,
            None => {
                computed = family.hash_keys::<K>(isa, &keys);
                &computed
            }
        };
        group.downstream.encode_burst(isa, &group.parts, &keys, hashes, &classes)
    }
}
