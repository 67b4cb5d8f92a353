//! ChameleMon on a switch: what an lcore does to a burst, and what it is given to record into.

use std::any::Any;
use std::sync::Arc;

use calumma_plane::counters::Counters;
use calumma_plane::slots::AnySlots;
use calumma_plane::system::{Groups, LcoreSystem, LcoreSystems, Record, Recorded, SwitchSystem};
use calumma_plane::{Flows, Hierarchy, MarkedRun, Run, Slots};
use calumma_sketch::{AnyKey, BURST, FlowKey, HashFamily, Key, KeyKind, WideKey};

use super::attention::{Attention, AttentionError};
use super::group::{EgressGroup, IngressGroup};
use super::layout::{Layout, LayoutError};

impl<K: Key> Record for IngressGroup<K> {
    type Plan = Attention;

    fn begin(&mut self, plan: &Attention, epoch: u64) {
        Self::begin(self, *plan, epoch);
    }

    fn plan(&self) -> &Attention {
        self.attention()
    }

    fn merge(&mut self, other: &Self) {
        Self::merge(self, other);
    }

    fn clear(&mut self) {
        Self::clear(self);
    }

    fn lines(&self) -> usize {
        Self::lines(self)
    }

    #[inline]
    fn make_ready(&mut self, line: usize) {
        Self::make_ready(self, line);
    }
}

impl<K: Key> Record for EgressGroup<K> {
    type Plan = Attention;

    fn begin(&mut self, plan: &Attention, _epoch: u64) {
        Self::begin(self, *plan);
    }

    fn plan(&self) -> &Attention {
        self.attention()
    }

    fn merge(&mut self, other: &Self) {
        Self::merge(self, other);
    }

    fn clear(&mut self) {
        Self::clear(self);
    }

    fn lines(&self) -> usize {
        Self::lines(self)
    }

    #[inline]
    fn make_ready(&mut self, line: usize) {
        Self::make_ready(self, line);
    }
}

/// ChameleMon's half on an lcore.
#[derive(Debug)]
struct OnLcore<K: Key> {
    family: Arc<HashFamily>,
    slots: Slots<IngressGroup<K>, EgressGroup<K>>,
}

impl<K: Key> LcoreSystem<K> for OnLcore<K> {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.slots
    }

    #[inline]
    fn enter(&mut self, flows: &mut Flows<K>, counters: &mut Counters) {
        let (keys, hierarchies) = flows.classify();
        let packets = keys.len() as u64;
        if let Some(record) = self.slots.ingress() {
            record.group.record_burst(&self.family, keys, hierarchies);
            record.packets += packets;
            counters.ingress_recorded += packets;
        } else {
            counters.ingress_unrecorded += packets;
        }
    }

    #[inline]
    fn leave(&mut self, flows: &Flows<K>, counters: &mut Counters) {
        let Self { family, slots } = self;
        flows.by_bit(|bit, keys, hierarchies| {
            let packets = keys.len() as u64;
            if let Some(record) = slots.by_bit(bit) {
                record.group.record_burst(family, keys, hierarchies);
                record.packets += packets;
                counters.egress_recorded += packets;
            } else {
                let encoded = |&&hierarchy: &&_| hierarchy != Hierarchy::NonSampledLl;
                let late = hierarchies.iter().filter(encoded).count() as u64;
                slots.late(bit, late);
                counters.egress_late += late;
                counters.egress_unrecorded += packets - late;
            }
        });
    }

    fn enter_run(&mut self, key: &K, packets: u32, counters: &mut Counters) -> Run {
        let total = u64::from(packets);
        if let Some(record) = self.slots.ingress() {
            let run = record.group.record_run(key, &self.family.hash(key), packets);
            record.packets += total;
            counters.ingress_recorded += total;
            run
        } else {
            counters.ingress_unrecorded += total;
            Run::unencoded(packets)
        }
    }

    fn leave_run(&mut self, key: &K, marked: &MarkedRun, counters: &mut Counters) {
        let MarkedRun { bit, run } = *marked;
        let total = u64::from(run.packets());
        if let Some(record) = self.slots.by_bit(bit) {
            record.group.record_run(key, &self.family.hash(key), &run);
            record.packets += total;
            counters.egress_recorded += total;
        } else {
            let unencoded = u64::from(run.of(Hierarchy::NonSampledLl));
            self.slots.late(bit, total - unencoded);
            counters.egress_late += total - unencoded;
            counters.egress_unrecorded += unencoded;
        }
    }
}

/// Why a switch can't run ChameleMon as it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// Sketches of this layout can't be built.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The attention does not fit the layout.
    #[error(transparent)]
    Attention(#[from] AttentionError),
}

/// ChameleMon's half on the control thread of a switch.
#[derive(Debug)]
pub struct ChameleMon {
    layout: Layout,
    family: Arc<HashFamily>,
    attention: Attention,
    first_epoch: u64,
}

impl ChameleMon {
    /// ChameleMon by `layout` with the hash functions of `family`; `attention` holds from `first_epoch` on.
    ///
    /// # Errors
    /// When the layout or the attention is invalid.
    pub fn new(
        layout: Layout,
        family: Arc<HashFamily>,
        attention: Attention,
        first_epoch: u64,
    ) -> Result<Self, SetupError> {
        layout.validate()?;
        attention.validate(&layout)?;
        Ok(Self { layout, family, attention, first_epoch })
    }

    /// Empty groups, through which some bursts have gone already.
    fn prefaulted<K: Key + From<FlowKey>>(&self) -> Groups {
        let ingress = IngressGroup::new(&self.layout, self.attention, self.first_epoch);
        let egress = EgressGroup::new(&self.layout, self.attention);
        let (mut ingress, mut egress): (IngressGroup<K>, EgressGroup<K>) =
            (ingress.expect(VALID), egress.expect(VALID));
        prefault_code(&self.family, &mut ingress, &mut egress);
        Groups {
            ingress: Box::new(Recorded::new(ingress)),
            by_bit: Box::new(Recorded::new(egress)),
        }
    }
}

const VALID: &str = "layout and attention were validated";

/// Records a few bursts, so that no lcore waits for the system to map code which has never run: a few
/// tens of microseconds in the first burst of a session.
fn prefault_code<K: Key + From<FlowKey>>(
    family: &HashFamily,
    ingress: &mut IngressGroup<K>,
    egress: &mut EgressGroup<K>,
) {
    let numbered: [K; BURST] = std::array::from_fn(|at| FlowKey::from_bytes([at as u8; 13]).into());
    for keys in [numbered, [numbered[0]; BURST]] {
        let mut hierarchies = [Hierarchy::NonSampledLl; BURST];
        ingress.record_burst(family, &keys, &mut hierarchies);
        egress.record_burst(family, &keys, &[Hierarchy::HhCandidate; BURST]);
    }
}

impl SwitchSystem for ChameleMon {
    fn add_to(&self, systems: &mut AnyKey<LcoreSystems>) {
        fn on_lcore<K: Key>(system: &ChameleMon) -> Box<dyn LcoreSystem<K>> {
            let slots = Slots::new(system.first_epoch, system.attention);
            Box::new(OnLcore { family: system.family.clone(), slots })
        }
        match systems {
            AnyKey::Ipv4(systems) => systems.push(on_lcore(self)),
            AnyKey::Dual(systems) => systems.push(on_lcore(self)),
        }
    }

    fn groups(&self) -> Groups {
        match self.layout.keys {
            KeyKind::Ipv4 => self.prefaulted::<FlowKey>(),
            KeyKind::Dual => self.prefaulted::<WideKey>(),
        }
    }

    fn plan(&self, plan: &dyn Any) -> Result<Box<dyn Any + Send>, String> {
        let attention: &Attention = plan.downcast_ref().ok_or("not an attention")?;
        attention.validate(&self.layout).map_err(|problem| problem.to_string())?;
        Ok(Box::new(*attention))
    }
}

#[cfg(test)]
mod tests {
    use calumma_epoch::{EpochClock, Guards};
    use calumma_plane::measure::{Measurement, Moment};
    use calumma_plane::{Counters, LcoreMerger};
    use calumma_sketch::HashKey;

    use super::*;

    #[test]
    fn a_flip_waits_for_one_burst_unless_the_lcore_was_away_for_long() {
        let layout = Layout::default();
        let keys = layout.keys;
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let attention = Attention::healthy(&layout, 1024);
        let family = Arc::new(HashFamily::new(&HashKey::from_bytes([3; 32])));
        let system = ChameleMon::new(layout, family, attention, 100).unwrap();
        let (mut merger, mut mailboxes) = LcoreMerger::new(1);
        merger.begin(clock, 100, keys, vec![Box::new(system)]);
        let mut measurement = Measurement::new(mailboxes.remove(0));
        let mut tick = |now_ns| measurement.tick(now_ns, true, &Counters::default());

        let (first, second) = (clock.start_of(100), clock.start_of(101));
        tick(clock.arm_time(100) - 1);
        assert_eq!(tick(clock.arm_time(100)), Moment::ArmOrTake);
        let around = [first - 1, first, first + 2_000, first + 4_000].map(&mut tick);
        assert_eq!(around, [Moment::Ordinary, Moment::Ordinary, Moment::Flip, Moment::Ordinary]);

        // The epoch before is taken, the next one armed.
        let between = [clock.arm_time(101) - 2, clock.arm_time(101) - 1, clock.arm_time(101)];
        assert_eq!(between.map(&mut tick)[1..], [Moment::ArmOrTake; 2]);
        // A tenth of the flight guard.
        let late_ns = Guards::default().flight_ns / 10 + 1;
        assert_eq!(tick(second + late_ns), Moment::Flip);
    }
}
