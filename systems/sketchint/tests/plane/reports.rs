//! What a sink hands on to be reported at once.

use calumma_plane::int::header::{Seen, look};
use calumma_plane::int::report::{Reasons, Summary};
use calumma_plane::int::{Domains, Hop, UNKNOWN, push};
use calumma_plane::outlet::{Outlets, Sample};
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::parse::PlainFlows;
use calumma_plane::sync::Receiver;
use calumma_plane::system::SessionContext;
use calumma_plane::worker::{Departure, Path, Sent};
use calumma_sketchint::frames::{Setup, Step};
use calumma_wire::Role;

use super::{EPOCH_NS, FIRST_EPOCH, STAYS_NS, Switch, WINDOW, middle, packet, session, setup};

/// Bytes of a packet that are handed on.
const BYTES: usize = 128;

/// A packet on its way from source to sink: node and latency of each switch between them, in
/// nanoseconds; how long it is in the sink; whether a queue takes it there.
#[derive(Clone, Copy)]
struct Way(&'static [(u16, u32)], u64, bool);

/// A source, and a sink that hands packets on.
struct Rig {
    setup: Setup,
    source: Switch,
    sink: Switch,
    rings: Vec<Receiver<Sample>>,
    now_ns: u64,
}

impl Rig {
    fn new(role: Role, setup: Setup, tracked: u32) -> Self {
        let (outlets, rings) = Outlets::new(1, BYTES, tracked);
        let context = SessionContext { outlets, ..session(role, 2) };
        let sink = Switch::in_session(context, setup, Step::Sources);
        let source = Switch::new(Role::Edge, 1, setup, Step::Sources);
        Self { setup, source, sink, rings, now_ns: middle(FIRST_EPOCH) }
    }

    /// A packet goes its way. Gives it as it came to the sink, from the IP header on.
    fn send(&mut self, bytes: &[u8], way: Way) -> Vec<u8> {
        self.send_later(bytes, way, 0)
    }

    /// The same of one that is so many nanoseconds on its way.
    fn send_later(
        &mut self,
        bytes: &[u8],
        Way(between, stay_ns, accepted): Way,
        takes_ns: u64,
    ) -> Vec<u8> {
        self.now_ns += 1000;
        let mut frames = [Frame::with_headroom(256, bytes)];
        self.source.pass(Path::Enter, &mut frames, self.now_ns, STAYS_NS[0]);
        for &(node, latency_ns) in between {
            let hop = Hop { node: node.into(), latency_ns, ..Hop::UNKNOWN };
            if let Seen::Stack(found) = look(&frames[0], 14, Domains::ANY) {
                push::transit(&mut frames[0], &found, &hop, 1500);
            }
        }
        let arrived = frames[0].bytes()[14..].to_vec();
        self.now_ns += takes_ns;
        let Self { sink, now_ns, .. } = self;
        sink.advance_to(*now_ns);
        sink.worker.begin();
        assert!(sink.worker.pass(Path::Leave, &mut frames, 1, &PlainFlows::NONE).is_empty());
        assert_eq!(frames[0].bytes(), bytes);
        sink.worker.depart(&mut frames, 1, Departure { at_ns: *now_ns + stay_ns, mtu: 1500 });
        let [accepted, refused] = [accepted, !accepted].map(u32::from);
        sink.worker.sent(Sent { accepted, refused });
        arrived
    }

    /// What was handed on since this was last asked.
    fn reported(&self) -> Vec<Sample> {
        self.rings.iter().flat_map(|ring| ring.try_iter()).collect()
    }
}

fn few() -> Setup {
    let mut setup = setup();
    (setup.layout.heavy_packets, setup.layout.heavy_change_packets) = (12, 12);
    setup
}

fn reasons(of: &[Reasons]) -> Reasons {
    let mut all = Reasons::default();
    of.iter().for_each(|reason| all.add(*reason, true));
    all
}

const USUAL: Way = Way(&[(3, 7_000)], STAYS_NS[2], true);

/// Why a packet is to be reported, and where its latency is inflated, and how long it is there.
type Expected = Option<(Reasons, Option<(u32, u32)>)>;

/// A flow's packets one after the other, and what is to be reported of each.
fn story() -> Vec<(Way, Expected)> {
    let (inflated, path, around) = (Reasons::INFLATED, Reasons::PATH_CHANGE, Reasons::LOOP);
    let mut story = vec![(USUAL, None); 10];
    let slow: &[(u16, u32)] = &[(3, 100_000)];
    story.extend([
        (Way(slow, STAYS_NS[2], true), Some((inflated, Some((3, 100_000))))),
        (Way(&[(4, 7_000)], STAYS_NS[2], true), Some((path, None))),
        (USUAL, Some((Reasons::HEAVY_HITTER, None))),
        (USUAL, None),
        (Way(&[(3, 7_000), (3, 7_000)], STAYS_NS[2], true), Some((reasons(&[around, path]), None))),
        (Way(&[(2, 7_000)], STAYS_NS[2], true), Some((reasons(&[around, path]), None))),
        (Way(&[(3, 7_000)], 90_000, true), Some((inflated, Some((2, 90_000))))),
        (Way(&[(3, 7_000)], 0, false), None),
        (Way(slow, 0, false), Some((inflated, Some((3, 100_000))))),
        // Of two, the longer one.
        (Way(slow, 200_000, true), Some((inflated, Some((2, 200_000))))),
    ]);
    story
}

#[test]
fn what_is_remarkable_is_reported_with_the_packet_as_it_arrived() {
    for protocol in [6, 17] {
        let mut rig = Rig::new(Role::Edge, few(), 0);
        for (number, (way, expected)) in story().into_iter().enumerate() {
            let arrived = rig.send(&packet(1, protocol, 60), way);
            let reported = rig.reported();
            let Some((reasons, inflated)) = expected else {
                assert!(reported.is_empty(), "{number}: {reported:?}");
                continue;
            };
            let [sample] = &reported[..] else { panic!("{number}: {reported:?}") };
            let Way(_, stay_ns, accepted) = way;
            let latency_ns = if accepted { stay_ns as u32 } else { UNKNOWN };
            let summary = Summary {
                reasons,
                is_dropped: !accepted,
                has_stack: true,
                inflated,
                latency_ns,
                ..Summary::new(rig.setup.domain.get())
            };
            assert_eq!((sample.summary, sample.node), (summary, 2), "{number}");
            assert_eq!(sample.packet(), &arrived[..arrived.len().min(BYTES)], "{number}");
        }
    }
}

/// Its summary would be that of an earlier packet in the same place of a burst.
#[test]
fn a_packet_that_no_window_has_is_not_reported() {
    for accepted in [true, false] {
        let mut rig = Rig::new(Role::Edge, few(), 0);
        (0..10).for_each(|_| drop(rig.send(&packet(1, 17, 60), USUAL)));
        rig.send(&packet(1, 17, 60), Way(&[(3, 100_000)], STAYS_NS[2], true));
        assert_eq!(rig.reported().len(), 1);
        let late = Way(&[(3, 7_000)], STAYS_NS[2], accepted);
        rig.send_later(&packet(2, 17, 60), late, EPOCH_NS);
        assert!(rig.reported().is_empty(), "the epoch of its mark was taken");
        rig.sink.advance_to(middle(FIRST_EPOCH + 2 * WINDOW));
        assert_eq!(rig.sink.windows[&FIRST_EPOCH].totals.packets, 11);
        assert_eq!(rig.sink.late[&FIRST_EPOCH], 1);
    }
}

/// What a sink keeps does not depend on whether anything is reported.
#[test]
fn sinks_keep_the_same_where_nothing_is_reported() {
    let mut reporting = Rig::new(Role::Edge, few(), u32::MAX);
    let mut silent = Rig::new(Role::Edge, few(), 0);
    silent.sink = Switch::new(Role::Edge, 2, few(), Step::Sources);
    for rig in [&mut reporting, &mut silent] {
        for (way, _) in story() {
            (0..3).for_each(|flow| drop(rig.send(&packet(flow, 17, 60), way)));
        }
        rig.sink.advance_to(middle(FIRST_EPOCH + 3 * WINDOW));
    }
    assert!(silent.reported().is_empty() && reporting.reported().len() >= 60);
    let [mut one, other] = [reporting, silent].map(|rig| rig.sink.windows);
    one.values_mut().zip(other.values()).for_each(|(one, other)| one.memory = other.memory);
    assert!(one == other && !other[&FIRST_EPOCH].inflated.is_empty());
    // The last packet of all was inflated at the sink itself, by the clock that found it.
    let of_sink = other[&FIRST_EPOCH].inflated.iter().filter(|of| of.node == 2);
    let last_us = u64::from(of_sink.map(|of| of.last_us).max().unwrap());
    assert_eq!(FIRST_EPOCH * EPOCH_NS + last_us * 1000, middle(FIRST_EPOCH) + 60_000);
}

/// Packets that are alike are drawn each on its own, and by no turns.
#[test]
fn a_share_of_packets_with_a_stack_is_tracked() {
    let mut rig = Rig::new(Role::Edge, setup(), 1 << 30);
    let (mut drawn, bytes) = (Vec::new(), packet(1, 17, 60));
    for number in 0..2000 {
        rig.send(&bytes, Way(&[(3, 7_000)], STAYS_NS[2], true));
        let tracked = |of: &Sample| of.summary.reasons.has(Reasons::TRACKED);
        drawn.extend(rig.reported().iter().any(tracked).then_some(number));
    }
    // A quarter, give or take four standard deviations.
    assert!((422..=578).contains(&drawn.len()), "{}", drawn.len());
    let gaps: std::collections::BTreeSet<u32> =
        drawn.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(gaps.len() > 8, "{gaps:?}");
    // No place for a stack.
    let mut rig = Rig::new(Role::Edge, setup(), u32::MAX);
    rig.send(&packet(1, 89, 60), USUAL);
    assert!(rig.reported().is_empty());
}

#[test]
fn a_sink_on_an_end_host_reports_what_stacks_say_and_nothing_of_itself() {
    let mut rig = Rig::new(Role::Host, few(), 0);
    (0..10).for_each(|_| drop(rig.send(&packet(1, 17, 60), USUAL)));
    rig.send(&packet(1, 17, 60), Way(&[(3, 100_000)], 0, true));
    // It is no hop: its number in a stack is another's.
    rig.send(&packet(2, 17, 60), Way(&[(2, 7_000)], 0, true));
    let reported = rig.reported();
    let [sample] = &reported[..] else { panic!("{reported:?}") };
    let Summary { reasons, latency_ns, inflated, .. } = sample.summary;
    assert_eq!((reasons, latency_ns), (Reasons::INFLATED, UNKNOWN));
    assert_eq!((inflated, sample.node), (Some((3, 100_000)), 2));
}
