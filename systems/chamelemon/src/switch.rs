//! ChameleMon on the control thread of a switch: sessions, plans, frames of finished groups.
//!
//! What an lcore does to packets is in [`plane`](crate::plane).

use std::any::Any;

use calumma_plane::system::{
    FinishedSide, Groups, LcoreHalf, Notes, Recorded, SessionContext, SwitchSystem, System,
};
use calumma_plane::{AnyRecord, Strays};
use calumma_sketch::{AnyKey, FlowKey, Key, KeyKind, with_key};
use calumma_wire::{Offer, Role, Side, SideKind, SystemSetup};

use crate::frames::{
    self, Defects, EgressSide, IngressSide, Late, SessionPlan, SwitchSession, VERSION,
};
use crate::plane::lcore::{OnLcore, prefaulted};
use crate::{AttentionError, EgressGroup, IngressGroup, LatePackets, LayoutError};

/// ChameleMon, which runs on edges.
#[derive(Clone, Copy, Debug)]
pub struct ChameleMon;

impl System for ChameleMon {
    fn name(&self) -> &'static str {
        "chamelemon"
    }

    fn offer(&self) -> Offer {
        frames::OFFER
    }

    fn runs_as(&self, role: Role) -> bool {
        role == Role::Edge
    }

    fn hashes(&self) -> bool {
        true
    }

    fn begin(
        &self,
        session: &SessionContext,
        setup: &SystemSetup,
    ) -> Result<Box<dyn SwitchSystem>, String> {
        let SessionContext { hash_key, clock, first_epoch, .. } = session;
        let plan = SessionPlan::decode(setup, hash_key, *clock, *first_epoch)?;
        let SwitchHalf(session) = SwitchHalf::new(plan).map_err(|problem| problem.to_string())?;
        Ok(Box::new(SwitchHalf(session.with_version(setup.version))))
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
pub struct SwitchHalf(SwitchSession);

impl SwitchHalf {
    /// ChameleMon as `plan` says.
    ///
    /// # Errors
    /// When the layout or the attention is invalid.
    pub fn new(plan: SessionPlan) -> Result<Self, SetupError> {
        plan.layout.validate()?;
        plan.attention.validate(&plan.layout)?;
        Ok(Self(SwitchSession::new(plan)))
    }

    fn half<K: Key>(&self) -> Box<dyn calumma_plane::LcoreSystem<K>> {
        let SessionPlan { first_epoch, attention, .. } = *self.0.plan();
        Box::new(OnLcore::new(self.0.family().clone(), first_epoch, attention))
    }

    fn empty<K: Key + From<FlowKey>>(&self) -> Groups {
        let SessionPlan { layout, attention, first_epoch, .. } = self.0.plan();
        prefaulted::<K>(self.0.family(), layout, *attention, *first_epoch)
    }

    fn side_of<K: Key>(&self, finished: FinishedSide<'_>) -> Option<(Side, Notes)> {
        let FinishedSide { epoch, side, record, mixed_plan } = finished;
        let (packets, stall_ns) = (record.packets(), record.stall_ns());
        let defects = Defects { stall_ns, mixed_attention: mixed_plan, ..Defects::default() };
        match side {
            SideKind::Ingress => {
                let group = &record.get::<IngressGroup<K>>()?.group;
                let side = IngressSide::of_group(epoch, group, packets, defects);
                let (side, hh_flows) = self.0.ingress(&side);
                Some((side, vec![("hh_flows", hh_flows.map(|flows| flows as u64))]))
            }
            SideKind::Egress => {
                let group = &record.get::<EgressGroup<K>>()?.group;
                let foreign_packets = group.foreign_packets();
                let defects = Defects { foreign_packets, ..defects };
                let side = EgressSide::of_group(epoch, group, packets, defects);
                Some((self.0.egress(side), vec![("foreign_packets", Some(foreign_packets))]))
            }
            SideKind::Transit | SideKind::Host => None,
        }
    }
}

impl SwitchSystem for SwitchHalf {
    fn keys(&self) -> Option<KeyKind> {
        Some(self.0.plan().layout.keys)
    }

    fn on_lcore(&self, keys: KeyKind) -> AnyKey<LcoreHalf> {
        with_key!(keys, K => K::any(self.half()))
    }

    fn groups(&self, keys: KeyKind) -> Groups {
        with_key!(keys, K => self.empty::<K>())
    }

    fn late_record(&self, keys: KeyKind) -> Option<Box<dyn AnyRecord>> {
        let layout = &self.0.plan().layout;
        Some(with_key!(keys, K => Box::new(Recorded::new(LatePackets::<K>::new(layout)))))
    }

    fn plan(&self, plan: &[u8]) -> Result<Box<dyn Any + Send>, String> {
        Ok(Box::new(self.0.check(plan)?))
    }

    fn accept(&mut self, epoch: u64, plan: &[u8]) {
        if let Ok(attention) = self.0.check(plan) {
            self.0.accept(epoch, attention);
        }
    }

    fn holding(&self) -> Vec<u8> {
        self.0.holding().encode()
    }

    fn side(&self, finished: FinishedSide<'_>) -> Option<(Side, Notes)> {
        with_key!(self.0.plan().layout.keys, K => self.side_of::<K>(finished))
    }

    fn seal(&self, late_packets: u64, late: Option<&dyn AnyRecord>) -> Vec<u8> {
        if self.0.version() < VERSION {
            return Vec::new();
        }
        let keys = self.0.plan().layout.keys;
        with_key!(keys, K => late_of::<K>(late_packets, late).encode())
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let (layout, holding) = (&self.0.plan().layout, self.0.holding());
        let attention = &holding.attention;
        let bucket = layout.bucket_words() * 4;
        let classifier: usize = layout.classifier.iter().map(|level| level.bytes()).sum();
        vec![
            ("classifier_bytes", classifier as f64),
            ("upstream_bytes", (layout.upstream_shape().total_buckets() * bucket) as f64),
            ("downstream_bytes", (layout.downstream_shape().total_buckets() * bucket) as f64),
            ("t_h", attention.t_h.into()),
            ("t_l", attention.t_l.into()),
            ("sample_rate", attention.sample_rate.as_f64()),
            ("hh_buckets", attention.partition.hh.into()),
            ("hl_buckets", attention.partition.hl.into()),
            ("ll_buckets", attention.partition.ll.into()),
            ("effective_epoch", holding.effective_epoch as f64),
        ]
    }
}

/// What is sent of `late_packets` late packets, and those of hierarchy 0, that lcores recorded.
pub(crate) fn late_of<K: Key>(late_packets: u64, late: Option<&dyn AnyRecord>) -> Late<K> {
    match late.and_then(|record| record.get::<LatePackets<K>>()) {
        Some(record) => record.group.late(late_packets),
        None => Late { unencoded: 0, strays: Strays { entries: Vec::new(), beyond: late_packets } },
    }
}

#[cfg(test)]
mod tests {
    use calumma_epoch::{EpochClock, Guards};
    use calumma_plane::measure::{Measurement, Moment};
    use calumma_plane::outlet::Outlets;
    use calumma_plane::system::RouteWatch;
    use calumma_plane::{Counters, LcoreMerger};
    use calumma_sketch::HashKey;
    use calumma_wire::Secret;

    use super::*;
    use crate::{Attention, Layout};

    /// A controller one release older reads what it always read; a newer one is not shown zeros.
    #[test]
    fn bodies_of_version_1_say_nothing_of_what_is_beside_the_sketches() {
        let layout = Layout::default();
        let attention = Attention::healthy(&layout, 1024);
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let context = SessionContext {
            role: Role::Edge,
            node_id: None,
            hash_key: calumma_wire::Secret::new([3; 32]),
            clock,
            first_epoch: 100,
            lcores: 1,
            ports: None,
            routes: RouteWatch::default(),
            outlets: Outlets::default(),
            carries_claims: true,
            carries_hops: false,
            carries_stacks: true,
        };
        let mut bytes = [Vec::new(), Vec::new()];
        for (version, bytes) in [frames::OLDEST_VERSION, VERSION].into_iter().zip(&mut bytes) {
            let setup = frames::setup(&layout, &attention, version);
            let half = ChameleMon.begin(&context, &setup).unwrap();
            let Groups { ingress, by_bit } = half.groups(layout.keys);
            for (side, record) in [(SideKind::Ingress, ingress), (SideKind::Egress, by_bit)] {
                let record = &*record;
                let finished = FinishedSide { epoch: 100, side, record, mixed_plan: false };
                let (frame, _) = half.side(finished).unwrap();
                bytes.push(frame.body.len());
                let message = calumma_wire::Message::Side(Box::new(frame));
                let there = match frames::Message::read(message, Some(&layout)).unwrap() {
                    Some(frames::Message::Ingress(side)) => {
                        vec![side.balance.is_some(), side.lcores.is_some()]
                    }
                    Some(frames::Message::Egress(side)) => {
                        vec![side.balance.is_some(), side.strays.is_some(), side.unmarked.is_some()]
                    }
                    other => panic!("{other:?}"),
                };
                assert!(there.iter().all(|&there| there == (version == VERSION)));
            }
            assert_eq!(half.seal(0, None).is_empty(), version < VERSION);
        }
        let [older, newer] = bytes;
        assert!(older.iter().zip(&newer).all(|(older, newer)| older < newer));
    }

    #[test]
    fn a_flip_waits_for_one_burst_unless_the_lcore_was_away_for_long() {
        let layout = Layout::default();
        let keys = layout.keys;
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let attention = Attention::healthy(&layout, 1024);
        let hash_key = HashKey::from_bytes([3; 32]);
        let plan = SessionPlan { layout, hash_key, clock, first_epoch: 100, attention };
        let system = SwitchHalf::new(plan).unwrap();
        let (mut merger, mut mailboxes) = LcoreMerger::new(1);
        merger.begin(clock, 100, Secret::new([3; 32]), keys, vec![Box::new(system)]);
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
