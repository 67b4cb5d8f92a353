//! From frames in any order to whole epochs in order.
//!
//! A pure state machine: frames and the time are passed in, finished epochs come out. An epoch is
//! finished when every expected edge has delivered its ingress side, its egress side and its seal,
//! or when its deadline has passed. From the first epoch that anything is heard of, every epoch
//! comes out exactly once and in order, whether anything came of it or not.

use std::collections::BTreeMap;

use calumma_epoch::EpochClock;
use calumma_sketch::Attention;
use calumma_wire::Message;

use crate::analyse::{EdgeInput, EpochInput};

/// Most epochs that may have passed without anything heard of them and still be reported one by
/// one. More than that is a controller that slept, or whose clock was set.
const MOST_SILENT: u64 = 1200;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It belongs to an epoch that is being collected.
    Kept,
    /// The same was there already; the first one stands.
    Duplicate,
    /// Its epoch has been reported.
    Late,
    /// Its epoch lies too far from the controller's time: clocks differ.
    Astray,
}

/// Collects frames into epochs.
#[derive(Debug)]
pub struct Collector {
    edges: Vec<String>,
    clock: EpochClock,
    grace_ns: u64,
    /// The next epoch to come out; `None` until anything is heard.
    next: Option<u64>,
    pending: BTreeMap<u64, Vec<EdgeInput>>,
    /// For each edge, the epoch of the last frame that went astray.
    astray: Vec<Option<u64>>,
}

impl Collector {
    /// A collector that expects these edges. An edge seals an epoch when the one after the next is
    /// armed; `grace_ns` after that, the epoch is reported without what is still missing.
    pub fn new(edges: Vec<String>, clock: EpochClock, grace_ns: u64) -> Self {
        let astray = vec![None; edges.len()];
        Self { edges, clock, grace_ns, next: None, pending: BTreeMap::new(), astray }
    }

    /// The expected edges.
    pub fn edges(&self) -> &[String] {
        &self.edges
    }

    /// When `epoch` is reported even if something is missing, in nanoseconds since the Unix epoch.
    pub fn deadline_of(&self, epoch: u64) -> u64 {
        self.clock.start_of(epoch + 2).saturating_add(self.grace_ns)
    }

    /// When the next epoch is due at the latest.
    pub fn next_deadline(&self) -> Option<u64> {
        self.next.map(|next| self.deadline_of(next))
    }

    /// Takes in a frame of the edge at position `edge` among the expected ones. Frames that are no
    /// part of an epoch are ignored.
    pub fn take(&mut self, edge: usize, message: Message, now_ns: u64) -> Taken {
        let epoch = match &message {
            Message::Ingress(side) => side.epoch,
            Message::Egress(side) => side.epoch,
            Message::Sealed { epoch, .. } => *epoch,
            _ => return Taken::Kept,
        };
        if self.next.is_some_and(|next| epoch < next) {
            return Taken::Late;
        }
        // No side of an epoch is finished before its end by the edge's clock.
        let current = self.clock.epoch_at(now_ns);
        let passed = |epoch| self.next.is_none() && self.deadline_of(epoch) < now_ns;
        if epoch > current || passed(epoch) {
            self.astray[edge] = Some(epoch);
            return Taken::Astray;
        }
        self.next.get_or_insert(epoch);
        self.astray[edge] = None;
        let edges = self
            .pending
            .entry(epoch)
            .or_insert_with(|| self.edges.iter().map(EdgeInput::nothing).collect());
        let input = &mut edges[edge];
        let duplicate = match message {
            Message::Ingress(side) => put(&mut input.ingress, side),
            Message::Egress(side) => put(&mut input.egress, side),
            Message::Sealed { late_packets, .. } => put(&mut input.late_packets, late_packets),
            _ => false,
        };
        if duplicate { Taken::Duplicate } else { Taken::Kept }
    }

    /// The next epoch, if it is whole or its deadline has passed at `now_ns`. `planned` gives the
    /// attention that was planned for an epoch.
    pub fn poll(
        &mut self,
        now_ns: u64,
        planned: impl FnOnce(u64) -> Attention,
    ) -> Option<EpochInput> {
        let next = self.next?;
        let whole =
            self.pending.get(&next).is_some_and(|edges| edges.iter().all(EdgeInput::is_whole));
        if !whole && now_ns < self.deadline_of(next) {
            return None;
        }
        let input = self.release(next, planned);
        self.next = Some(self.after(next, now_ns));
        Some(input)
    }

    /// The next epoch that anything came of, whole or not: for a controller that stops.
    pub fn finish(&mut self, planned: impl FnOnce(u64) -> Attention) -> Option<EpochInput> {
        let last = *self.pending.last_key_value()?.0;
        let next = self.next.unwrap_or(last);
        self.next = Some(next + 1);
        Some(self.release(next, planned))
    }

    /// The epoch to come out after `epoch`: the following one, unless the controller slept.
    fn after(&self, epoch: u64, now_ns: u64) -> u64 {
        let next = epoch + 1;
        if self.pending.contains_key(&next) {
            return next;
        }
        let silent_from = self.clock.epoch_at(now_ns).saturating_sub(MOST_SILENT);
        let heard = self.pending.first_key_value().map_or(u64::MAX, |(&first, _)| first);
        next.max(silent_from.min(heard))
    }

    fn release(&mut self, epoch: u64, planned: impl FnOnce(u64) -> Attention) -> EpochInput {
        let mut edges = self
            .pending
            .remove(&epoch)
            .unwrap_or_else(|| self.edges.iter().map(EdgeInput::nothing).collect());
        for (input, astray) in edges.iter_mut().zip(&self.astray) {
            input.note = astray.filter(|_| !input.is_whole()).map(|other| {
                format!("it sends epoch {other} while {epoch} is due: check its clock")
            });
        }
        EpochInput { epoch, planned: planned(epoch), edges }
    }
}

/// Fills a place; true where it was taken.
fn put<T>(place: &mut Option<T>, value: T) -> bool {
    let taken = place.is_some();
    if !taken {
        *place = Some(value);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_epoch::Guards;
    use calumma_sketch::{EgressGroup, IngressGroup, Layout, Level};
    use proptest::prelude::*;

    const LENGTH: u64 = 50_000_000;
    const GRACE: u64 = 500_000_000;

    fn layout() -> Layout {
        Layout {
            upstream_buckets: 8,
            downstream_buckets: 4,
            classifier: vec![Level::new(8, 8)],
            ..Layout::default()
        }
    }

    fn attention() -> Attention {
        Attention::healthy(&layout(), 4)
    }

    fn collector() -> Collector {
        let clock = EpochClock::new(LENGTH, Guards::default()).unwrap();
        Collector::new(vec!["e1".to_owned(), "e2".to_owned()], clock, GRACE)
    }

    /// All that an edge sends of an epoch.
    fn frames(epoch: u64) -> [Message; 3] {
        let ingress = IngressGroup::new(&layout(), attention(), epoch).unwrap();
        let egress = EgressGroup::new(&layout(), attention()).unwrap();
        let input = EdgeInput::from_groups("", epoch, (&ingress, 0), (&egress, 0));
        [
            Message::Ingress(input.ingress.unwrap()),
            Message::Egress(input.egress.unwrap()),
            Message::Sealed { epoch, late_packets: 0 },
        ]
    }

    fn drain(collector: &mut Collector, now_ns: u64) -> Vec<EpochInput> {
        std::iter::from_fn(|| collector.poll(now_ns, |_| attention())).collect()
    }

    #[test]
    fn an_epoch_comes_out_when_the_last_edge_has_sealed_it() {
        let mut collector = collector();
        let now = 103 * LENGTH;
        for message in frames(100) {
            assert_eq!(collector.take(0, message, now), Taken::Kept);
        }
        let [ingress, egress, seal] = frames(100);
        for message in [seal, ingress] {
            collector.take(1, message, now);
            assert!(drain(&mut collector, now).is_empty());
        }
        collector.take(1, egress, now);
        let epochs = drain(&mut collector, now);
        assert_eq!(epochs.len(), 1);
        assert!(epochs[0].epoch == 100 && epochs[0].edges.iter().all(EdgeInput::is_whole));
    }

    #[test]
    fn a_missing_edge_holds_an_epoch_up_to_its_deadline_and_later_ones_behind_it() {
        let mut collector = collector();
        let now = 104 * LENGTH;
        frames(100).into_iter().for_each(|message| {
            collector.take(0, message, now);
        });
        for edge in 0..2 {
            frames(101).into_iter().for_each(|message| {
                collector.take(edge, message, now);
            });
        }
        let deadline = collector.next_deadline().unwrap();
        assert_eq!(deadline, 102 * LENGTH + GRACE);
        assert!(drain(&mut collector, deadline - 1).is_empty());
        let epochs = drain(&mut collector, deadline);
        assert_eq!(epochs.iter().map(|input| input.epoch).collect::<Vec<_>>(), [100, 101]);
        assert!(!epochs[0].edges[1].is_whole() && epochs[1].edges[1].is_whole());

        let [late, ..] = frames(100);
        assert_eq!(collector.take(1, late, deadline), Taken::Late);
    }

    #[test]
    fn the_first_of_two_equal_frames_stands() {
        let mut collector = collector();
        let now = 103 * LENGTH;
        assert_eq!(
            collector.take(0, Message::Sealed { epoch: 100, late_packets: 0 }, now),
            Taken::Kept
        );
        let again = Message::Sealed { epoch: 100, late_packets: 9 };
        assert_eq!(collector.take(0, again, now), Taken::Duplicate);
        let epoch = collector.finish(|_| attention()).unwrap();
        assert_eq!(epoch.edges[0].late_packets, Some(0));
    }

    #[test]
    fn an_edge_whose_clock_is_wrong_goes_astray_and_the_report_says_so() {
        let mut collector = collector();
        let now = 103 * LENGTH;
        for ahead in [104, 5_000, u64::MAX] {
            let message = Message::Sealed { epoch: ahead, late_packets: 0 };
            assert_eq!(collector.take(1, message, now), Taken::Astray);
        }
        let ancient = Message::Sealed { epoch: 3, late_packets: 0 };
        assert_eq!(collector.take(1, ancient, now), Taken::Astray);
        assert_eq!(collector.next_deadline(), None, "nothing has been heard yet");

        frames(100).into_iter().for_each(|message| {
            collector.take(0, message, now);
        });
        let epochs = drain(&mut collector, 102 * LENGTH + GRACE);
        let note = epochs[0].edges[1].note.as_ref().unwrap();
        assert_eq!(note, "it sends epoch 3 while 100 is due: check its clock");
        assert_eq!(epochs[0].edges[0].note, None);
    }

    #[test]
    fn silence_is_reported_epoch_by_epoch_but_a_long_sleep_is_not() {
        let mut collector = collector();
        frames(100).into_iter().for_each(|message| {
            collector.take(0, message, 103 * LENGTH);
        });
        let epochs = drain(&mut collector, 110 * LENGTH + GRACE);
        assert_eq!(epochs.len(), 9);

        let woken = 1_000_000 * LENGTH;
        let epochs = drain(&mut collector, woken);
        assert!(epochs.len() as u64 <= MOST_SILENT + 1, "{} epochs", epochs.len());
        assert!(epochs.is_sorted_by_key(|input| input.epoch));
    }

    #[test]
    fn stopping_gives_what_there_is_and_nothing_more() {
        let mut collector = collector();
        for epoch in [100, 102] {
            frames(epoch).into_iter().for_each(|message| {
                collector.take(0, message, 104 * LENGTH);
            });
        }
        let rest: Vec<_> =
            std::iter::from_fn(|| collector.finish(|_| attention())).map(|e| e.epoch).collect();
        assert_eq!(rest, [100, 101, 102]);
    }

    proptest! {
        /// Frames of ten epochs in any order, some of them lost, some doubled, at any times: every
        /// epoch comes out once, in order, whole exactly if all its frames came before it did.
        #[test]
        fn whatever_the_order_every_epoch_comes_out_once_and_in_order(
            deliveries in prop::collection::vec((0u64..10, 0usize..2, 0usize..3), 0..120),
            steps in prop::collection::vec(0u64..60_000_000, 120),
        ) {
            let mut collector = collector();
            let mut now = 110 * LENGTH;
            let mut out = Vec::new();
            let mut kept = std::collections::HashSet::new();
            for ((epoch, edge, which), step) in deliveries.into_iter().zip(steps) {
                now += step;
                let message = frames(100 + epoch)[which].clone();
                match collector.take(edge, message, now) {
                    Taken::Kept => prop_assert!(kept.insert((100 + epoch, edge, which))),
                    Taken::Duplicate => prop_assert!(kept.contains(&(100 + epoch, edge, which))),
                    Taken::Late | Taken::Astray => {}
                }
                out.extend(drain(&mut collector, now));
            }
            out.extend(drain(&mut collector, now + 20 * LENGTH + GRACE));
            for pair in out.windows(2) {
                prop_assert_eq!(pair[0].epoch + 1, pair[1].epoch);
            }
            for input in out {
                for (edge, share) in input.edges.iter().enumerate() {
                    let has = |which| kept.contains(&(input.epoch, edge, which));
                    prop_assert_eq!(share.ingress.is_some(), has(0));
                    prop_assert_eq!(share.egress.is_some(), has(1));
                    prop_assert_eq!(share.late_packets.is_some(), has(2));
                }
            }
        }
    }
}
