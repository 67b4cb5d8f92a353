//! The [collector](crate::collect) of ChameleMon's frames: edges only, an ingress and an egress
//! side each.

use calumma_chamelemon::Attention;
use calumma_chamelemon::frames::{Egress, Ingress, Message};
use calumma_epoch::EpochClock;
use calumma_wire::{Role, SideKind};

use crate::analyse::{DecodedIngress, EdgeInput, EpochInput};
use crate::collect::{self, Ends, Frame, NodeSides, Receipt, Sides, sides_of};

/// What is to be done next.
#[derive(Debug)]
pub enum Step {
    /// Decode an epoch: attention waits for that. Not always in order.
    Decode(EpochInput, Received),
    /// Report an epoch that has been given out to be decoded; in order.
    Report(Ends),
}

/// When the sides of an epoch were received, in nanoseconds since the Unix epoch; 0 where none was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The last ingress side.
    pub ingress_ns: u64,
    /// The last egress side.
    pub egress_ns: u64,
}

/// A side of an edge.
#[derive(Debug)]
enum EdgeSide {
    /// The ingress side, and what is decoded of it where that has been done already.
    Ingress(Box<Ingress>, Option<Box<DecodedIngress>>),
    /// The egress side.
    Egress(Box<Egress>),
}

/// Collects the edges' frames into epochs.
#[derive(Debug)]
pub struct Collector {
    edges: Vec<String>,
    of_edges: collect::Collector<EdgeSide>,
}

impl Collector {
    /// A collector that expects these edges. An edge seals an epoch when the one after the next is
    /// armed; `grace_ns` after that, the epoch is reported without what is still missing.
    pub fn new(edges: Vec<String>, clock: EpochClock, grace_ns: u64) -> Self {
        let sides = edges.iter().map(|_| sides_of(Role::Edge)).collect();
        Self { edges, of_edges: collect::Collector::new(sides, clock, grace_ns) }
    }

    /// The expected edges.
    pub fn edges(&self) -> &[String] {
        &self.edges
    }

    /// When `epoch` is reported even if something is missing, in nanoseconds since the Unix epoch.
    /// Epochs that edges held while no controller was there count from the first frame received.
    pub fn deadline_of(&self, epoch: u64) -> u64 {
        self.of_edges.deadline_of(epoch)
    }

    /// When the next epoch is due at the latest.
    pub fn next_deadline(&self) -> Option<u64> {
        self.of_edges.next_deadline()
    }

    /// As [`collect::Collector::open_from`].
    pub fn open_from(&self) -> (u64, u64) {
        self.of_edges.open_from()
    }

    /// Ends the system: nothing of `epoch` or later is taken in or reported.
    pub fn end_at(&mut self, epoch: u64) {
        self.of_edges.end_at(epoch);
    }

    /// Whether everything before the system's end has been reported by `now_ns`.
    pub fn has_ended(&self, now_ns: u64) -> bool {
        self.of_edges.has_ended(now_ns)
    }

    /// Takes in a frame of the edge at position `edge` among the expected ones, received at
    /// `received_ns`. Frames that are no part of an epoch are ignored.
    pub fn take(&mut self, edge: usize, message: Message, received_ns: u64) -> Receipt {
        self.take_with(edge, message, None, received_ns)
    }

    /// As [`take`](Self::take), for an ingress side that has been decoded already.
    pub fn take_with(
        &mut self,
        edge: usize,
        message: Message,
        decoded: Option<Box<DecodedIngress>>,
        received_ns: u64,
    ) -> Receipt {
        let (epoch, frame) = match message {
            Message::Ingress(side) => {
                (side.epoch, Frame::Side(SideKind::Ingress, EdgeSide::Ingress(side, decoded)))
            }
            Message::Egress(side) => {
                (side.epoch, Frame::Side(SideKind::Egress, EdgeSide::Egress(side)))
            }
            Message::Sealed { epoch, late_packets, late: body } => {
                (epoch, Frame::Sealed { late_packets, body })
            }
            _ => return Receipt::Accepted,
        };
        self.of_edges.take(edge, epoch, frame, received_ns)
    }

    /// What is to be done at `now_ns`, if anything; ask until there is nothing. `planned` gives the
    /// attention that was planned for an epoch.
    pub fn step(&mut self, now_ns: u64, planned: impl FnOnce(u64) -> Attention) -> Option<Step> {
        let step = self.of_edges.step(now_ns)?;
        Some(self.of_chamelemon(step, planned))
    }

    /// As [`step`](Self::step), for a controller that stops: waits for nothing that is missing.
    pub fn finish(&mut self, planned: impl FnOnce(u64) -> Attention) -> Option<Step> {
        let step = self.of_edges.finish()?;
        Some(self.of_chamelemon(step, planned))
    }

    fn of_chamelemon(
        &self,
        step: collect::Step<EdgeSide>,
        planned: impl FnOnce(u64) -> Attention,
    ) -> Step {
        match step {
            collect::Step::Report(ends) => Step::Report(ends),
            collect::Step::Decode(sides) => {
                let received = Received {
                    ingress_ns: sides.received_ns(SideKind::Ingress),
                    egress_ns: sides.received_ns(SideKind::Egress),
                };
                let Sides { epoch, nodes, .. } = sides;
                let edges = self.edges.iter().zip(nodes).map(input).collect();
                Step::Decode(EpochInput { epoch, planned: planned(epoch), edges }, received)
            }
        }
    }
}

/// An edge's share of an epoch.
fn input((edge, mut sides): (&String, NodeSides<EdgeSide>)) -> EdgeInput {
    let mut input = EdgeInput::nothing(edge);
    for side in [SideKind::Ingress, SideKind::Egress].map(|kind| sides.take(kind)) {
        match side {
            Some(EdgeSide::Ingress(side, decoded)) => {
                input.ingress = Some(side);
                input.decoded = decoded;
            }
            Some(EdgeSide::Egress(side)) => input.egress = Some(side),
            None => {}
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use calumma_chamelemon::{EgressGroup, IngressGroup, Layout};
    use calumma_epoch::Guards;
    use calumma_sketch::{FlowKey, Level};
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
        let ingress = IngressGroup::<FlowKey>::new(&layout(), attention(), epoch).unwrap();
        let egress = EgressGroup::<FlowKey>::new(&layout(), attention()).unwrap();
        let input = EdgeInput::from_groups("", epoch, (&ingress, 0), (&egress, 0));
        [
            Message::Ingress(input.ingress.unwrap()),
            Message::Egress(input.egress.unwrap()),
            sealed(epoch, 0),
        ]
    }

    fn sealed(epoch: u64, late_packets: u64) -> Message {
        Message::Sealed { epoch, late_packets, late: Vec::new() }
    }

    /// A collector and the epochs that it has given out and not yet ended.
    struct Collecting(Collector, BTreeMap<u64, EpochInput>);

    impl Collecting {
        fn start() -> Self {
            Self(collector(), BTreeMap::new())
        }

        /// The epochs that are to be reported at `now_ns`.
        fn drain(&mut self, now_ns: u64) -> Vec<EpochInput> {
            let Self(collector, open) = self;
            let mut reported = Vec::new();
            while let Some(step) = collector.step(now_ns, |_| attention()) {
                reported.extend(follow(step, open));
            }
            reported
        }

        fn finish(&mut self) -> Vec<EpochInput> {
            let Self(collector, open) = self;
            let mut reported = Vec::new();
            while let Some(step) = collector.finish(|_| attention()) {
                reported.extend(follow(step, open));
            }
            reported
        }
    }

    fn follow(step: Step, open: &mut BTreeMap<u64, EpochInput>) -> Option<EpochInput> {
        match step {
            Step::Decode(input, _) => {
                assert!(open.insert(input.epoch, input).is_none(), "decoded once");
                None
            }
            Step::Report(ends) => {
                let mut input = open.remove(&ends.epoch).expect("decoded before it is reported");
                for (edge, end) in input.edges.iter_mut().zip(ends.nodes) {
                    edge.late_packets = end.late_packets;
                    edge.note = end.note;
                }
                Some(input)
            }
        }
    }

    #[test]
    fn an_epoch_comes_out_when_the_last_edge_has_sealed_it() {
        let mut collecting = Collecting::start();
        let now = 103 * LENGTH;
        for message in frames(100) {
            assert_eq!(collecting.0.take(0, message, now), Receipt::Accepted);
        }
        let [ingress, egress, seal] = frames(100);
        for message in [seal, ingress] {
            collecting.0.take(1, message, now);
            assert!(collecting.drain(now).is_empty());
        }
        collecting.0.take(1, egress, now);
        let epochs = collecting.drain(now);
        assert_eq!(epochs.len(), 1);
        assert!(epochs[0].epoch == 100 && epochs[0].edges.iter().all(EdgeInput::is_whole));
    }

    #[test]
    fn an_epoch_is_decoded_before_it_is_sealed_and_though_an_earlier_one_waits() {
        let mut collecting = Collecting::start();
        let now = 103 * LENGTH;
        let [ingress, ..] = frames(100);
        collecting.0.take(0, ingress, now);
        for edge in 0..2 {
            let [ingress, egress, _] = frames(101);
            collecting.0.take(edge, ingress, now + 1);
            collecting.0.take(edge, egress, now + 2);
        }
        let step = collecting.0.step(now + 3, |_| attention());
        let Some(Step::Decode(input, received)) = step else { panic!("{step:?}") };
        assert!(input.epoch == 101 && input.edges.iter().all(EdgeInput::is_measured));
        assert_eq!(received, Received { ingress_ns: now + 1, egress_ns: now + 2 });
        assert!(collecting.0.step(now + 3, |_| attention()).is_none());
        let [again, ..] = frames(101);
        assert_eq!(collecting.0.take(0, again, now + 4), Receipt::Duplicate);
    }

    #[test]
    fn what_edges_held_for_a_controller_that_was_away_is_taken_in_oldest_first() {
        let mut collecting = Collecting::start();
        let back = 180 * LENGTH;
        for (edge, held) in [(0, 120..=122), (1, 119..=122)] {
            for epoch in held {
                for message in frames(epoch) {
                    assert_eq!(collecting.0.take(edge, message, back), Receipt::Accepted);
                }
            }
        }
        assert!(collecting.drain(back + GRACE - 1).is_empty(), "the first edge may have 119, too");
        let epochs = collecting.drain(back + GRACE);
        let numbers: Vec<_> = epochs.iter().take(4).map(|input| input.epoch).collect();
        assert_eq!(numbers, [119, 120, 121, 122]);
        assert!(!epochs[0].edges[0].is_whole());
        assert!(epochs[1..4].iter().all(|input| input.edges.iter().all(EdgeInput::is_whole)));
    }

    #[test]
    fn a_missing_edge_holds_an_epoch_up_to_its_deadline_and_later_ones_behind_it() {
        let mut collecting = Collecting::start();
        let now = 102 * LENGTH;
        frames(100).into_iter().for_each(|message| {
            collecting.0.take(0, message, now);
        });
        for edge in 0..2 {
            frames(101).into_iter().for_each(|message| {
                collecting.0.take(edge, message, now);
            });
        }
        let deadline = collecting.0.next_deadline().unwrap();
        assert_eq!(deadline, 102 * LENGTH + GRACE);
        assert!(collecting.drain(deadline - 1).is_empty());
        let epochs = collecting.drain(deadline);
        assert_eq!(epochs.iter().map(|input| input.epoch).collect::<Vec<_>>(), [100, 101]);
        assert!(!epochs[0].edges[1].is_whole() && epochs[1].edges[1].is_whole());

        let [late, ..] = frames(100);
        assert_eq!(collecting.0.take(1, late, deadline), Receipt::Late);
    }

    #[test]
    fn the_first_of_two_equal_frames_stands() {
        let mut collecting = Collecting::start();
        let now = 103 * LENGTH;
        assert_eq!(collecting.0.take(0, sealed(100, 0), now), Receipt::Accepted);
        let again = sealed(100, 9);
        assert_eq!(collecting.0.take(0, again, now), Receipt::Duplicate);
        let epoch = collecting.finish().remove(0);
        assert_eq!(epoch.edges[0].late_packets, Some(0));
    }

    #[test]
    fn an_edge_whose_clock_is_wrong_is_out_of_window_and_the_report_says_so() {
        let mut collecting = Collecting::start();
        let now = 103 * LENGTH;
        for ahead in [104, 5_000, u64::MAX] {
            let message = sealed(ahead, 0);
            assert_eq!(collecting.0.take(1, message, now), Receipt::OutOfWindow);
        }
        let (now, ancient) = (5000 * LENGTH, sealed(3, 0));
        assert_eq!(collecting.0.take(1, ancient, now), Receipt::OutOfWindow);
        assert_eq!(collecting.0.next_deadline(), None, "nothing has been received yet");

        frames(4997).into_iter().for_each(|message| {
            collecting.0.take(0, message, now);
        });
        let epochs = collecting.drain(now + GRACE);
        let note = epochs[0].edges[1].note.as_ref().unwrap();
        assert_eq!(note, "it sends epoch 3 while 4997 is due: check its clock");
        assert_eq!(epochs[0].edges[0].note, None);
    }

    #[test]
    fn silence_is_reported_epoch_by_epoch_but_a_long_sleep_is_not() {
        let mut collecting = Collecting::start();
        frames(100).into_iter().for_each(|message| {
            collecting.0.take(0, message, 103 * LENGTH);
        });
        let epochs = collecting.drain(110 * LENGTH + GRACE);
        assert_eq!(epochs.len(), 9);

        let woken = 1_000_000 * LENGTH;
        let epochs = collecting.drain(woken);
        assert!(epochs.len() <= 1201, "{} epochs", epochs.len());
        assert!(epochs.is_sorted_by_key(|input| input.epoch));
    }

    #[test]
    fn stopping_gives_what_there_is_and_nothing_more() {
        let mut collecting = Collecting::start();
        for epoch in [100, 102] {
            frames(epoch).into_iter().for_each(|message| {
                collecting.0.take(0, message, 104 * LENGTH);
            });
        }
        let rest: Vec<_> = collecting.finish().into_iter().map(|input| input.epoch).collect();
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
            let mut collecting = Collecting::start();
            let mut now = 110 * LENGTH;
            let mut out = Vec::new();
            let mut kept = std::collections::HashSet::new();
            for ((epoch, edge, which), step) in deliveries.into_iter().zip(steps) {
                now += step;
                let message = frames(100 + epoch)[which].clone();
                match collecting.0.take(edge, message, now) {
                    Receipt::Accepted => prop_assert!(kept.insert((100 + epoch, edge, which))),
                    Receipt::Duplicate => prop_assert!(kept.contains(&(100 + epoch, edge, which))),
                    Receipt::Late | Receipt::OutOfWindow => {}
                }
                out.extend(collecting.drain(now));
            }
            out.extend(collecting.drain(now + 20 * LENGTH + GRACE));
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
