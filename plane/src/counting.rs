//! Systems that count every packet once at a switch, where it passes.
//!
//! Such a system says what its record does with packets of a flow; which record that is, and what
//! becomes of packets that are late, outdated or refused, is the same for all of them.

use calumma_sketch::Key;

use crate::counters::Counters;
use crate::flows::Flows;
use crate::run::{MarkedRun, Run};
use crate::slots::{AnySlots, Slots};
use crate::system::{LcoreSystem, Record, Recorded};
use crate::worker::Sent;

/// A record of packets by flow.
pub trait CountPackets<K>: Record + Clone {
    /// Counts packets of a flow that came.
    fn count(&mut self, key: &K, packets: u64);

    /// Notes that the switch did not send so many of those counted.
    fn refuse(&mut self, key: &K, packets: u64);
}

/// A value that says how many packets of a flow there were.
pub trait Tally {
    /// That of packets that came, and of packets that had been counted and were not sent.
    fn of(received: u64, refused: u64) -> Self;
}

/// The half on an lcore of a system that counts every packet once: in the record of packets that
/// enter, or in that of the timestamp bit they carry.
#[derive(Debug)]
pub struct CountEach<R: Record>(Slots<R, R>);

impl<R: Record + Clone> CountEach<R> {
    /// No records yet; `plan` holds from `first_epoch` on, and a window has `window` epochs.
    ///
    /// # Panics
    /// When a window has no epochs.
    pub fn new(first_epoch: u64, window: u64, plan: R::Plan) -> Self {
        Self(Slots::new(first_epoch, window, plan))
    }

    #[inline]
    fn by_bit<K>(&mut self, bit: usize, keys: impl Iterator<Item = (K, u64)>)
    where
        R: CountPackets<K>,
    {
        if let Some(record) = self.0.by_bit(bit) {
            keys.for_each(|(key, packets)| count(record, &key, packets));
        } else {
            self.0.late(bit, keys.map(|(_, packets)| packets).sum());
        }
    }
}

#[inline]
fn count<K, R: CountPackets<K>>(record: &mut Recorded<R>, key: &K, packets: u64) {
    record.group.count(key, packets);
    record.packets += packets;
}

impl<K: Key, R: CountPackets<K>> LcoreSystem<K> for CountEach<R> {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.0
    }

    fn wants_transit(&self) -> bool {
        true
    }

    fn wants_sent(&self) -> bool {
        true
    }

    fn enter(&mut self, flows: &mut Flows<K>, _counters: &mut Counters) {
        if let Some(record) = self.0.ingress() {
            flows.keys().iter().for_each(|key| count(record, key, 1));
        }
    }

    fn transit(&mut self, flows: &mut Flows<K>, counters: &mut Counters) {
        self.leave(flows, counters);
    }

    fn leave(&mut self, flows: &Flows<K>, _counters: &mut Counters) {
        flows.by_bit(|of| self.by_bit(of.bit, of.keys.iter().map(|&key| (key, 1))));
        for (at, _) in flows.stale() {
            self.0.outdated(flows.mark(at).bit, 1);
        }
    }

    /// Refused packets go where they were recorded; one whose epoch was over was not.
    fn sent(&mut self, flows: &Flows<K>, sent: Sent, _counters: &mut Counters) {
        for at in (0..flows.len()).filter(|at| sent.refused >> at & 1 == 1 && flows.is_marked(*at))
        {
            let entering = flows.is_entering(at);
            let bit = flows.mark(at).bit;
            let record = if entering { self.0.ingress() } else { self.0.by_bit(bit) };
            if let Some(record) = record {
                record.group.refuse(&flows.keys()[at], 1);
            }
        }
    }

    fn enter_run(&mut self, key: &K, packets: u32, _counters: &mut Counters) -> Run {
        if let Some(record) = self.0.ingress() {
            count(record, key, packets.into());
        }
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, key: &K, marked: &MarkedRun, _counters: &mut Counters) {
        self.by_bit(marked.bit, [(*key, marked.run.packets().into())].into_iter());
    }
}

#[cfg(test)]
mod tests {
    use calumma_sketch::FlowKey;

    use super::*;
    use crate::carrier::{Mark, Seen};
    use crate::system::{AnyRecord, Groups};

    /// What came and was refused, of all flows.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Sums([u64; 2]);

    impl Record for Sums {
        type Plan = ();

        fn begin(&mut self, (): &(), _epoch: u64) {}

        fn plan(&self) -> &() {
            &()
        }

        fn merge(&mut self, other: &Self) {
            (0..2).for_each(|at| self.0[at] += other.0[at]);
        }

        fn clear(&mut self) {
            *self = Self::default();
        }
    }

    impl CountPackets<FlowKey> for Sums {
        fn count(&mut self, _key: &FlowKey, packets: u64) {
            self.0[0] += packets;
        }

        fn refuse(&mut self, _key: &FlowKey, packets: u64) {
            self.0[1] += packets;
        }
    }

    fn flows(packets: usize) -> Flows<FlowKey> {
        let mut flows = Flows::new();
        (0..packets).for_each(|at| flows.push(FlowKey::from_words(1, 2, 3, 17), at, 14));
        flows
    }

    /// Packets that carry a timestamp bit.
    fn marked(packets: usize, bit: u8) -> Flows<FlowKey> {
        let (mut flows, mut seen) = (flows(packets), Seen::default());
        (0..packets).for_each(|at| seen.note(at, Some(Mark::from_bits(bit << 2)), None));
        flows.set_seen(&seen);
        flows
    }

    fn sums(record: &dyn AnyRecord) -> ([u64; 2], u64) {
        (record.get::<Sums>().unwrap().group.0, record.packets())
    }

    #[test]
    fn each_packet_counts_in_its_epoch_on_its_side_or_is_late() {
        let mut half = CountEach::<Sums>::new(100, 1, ());
        let counters = &mut Counters::default();
        let slots = LcoreSystem::<FlowKey>::slots(&mut half);
        (0..4).for_each(|_| slots.supply(Groups::alike(Sums::default)));
        slots.arm(100);
        slots.flip(100, 0);
        let mut entering = flows(5);
        entering.stamp(0);
        half.enter(&mut entering, counters);
        half.sent(&entering, Sent { accepted: 0b01101, refused: 0b10010 }, counters);
        half.enter_run(&FlowKey::ZERO, 10, counters);
        let leaving = marked(3, 0);
        half.leave(&leaving, counters);
        half.transit(&mut marked(4, 0), counters);
        half.sent(&leaving, Sent { accepted: 0b110, refused: 0b001 }, counters);
        half.leave_run(&FlowKey::ZERO, &MarkedRun { bit: 0, run: Run::unencoded(20) }, counters);

        let slots = LcoreSystem::<FlowKey>::slots(&mut half);
        slots.arm(101);
        slots.flip(101, 0);
        let (epoch, entered) = slots.flipped().unwrap();
        assert_eq!((epoch, sums(&*entered)), (100, ([15, 2], 15)));
        let (epoch, passed) = slots.take(100, 0).unwrap();
        assert_eq!((epoch, sums(&*passed)), (100, ([27, 1], 27)));

        half.leave(&marked(2, 0), counters);
        half.sent(&marked(2, 0), Sent { accepted: 0, refused: 0b11 }, counters);
        half.leave(&marked(1, 1), counters);
        let slots = LcoreSystem::<FlowKey>::slots(&mut half);
        let sealed = slots.arm(102).unwrap();
        slots.flip(102, 0);
        assert_eq!((sealed.epoch, sealed.late_packets), (100, 2));
        let (epoch, passed) = slots.take(101, 0).unwrap();
        assert_eq!((epoch, sums(&*passed)), (101, ([1, 0], 1)));
    }
}
