//! What switches say of themselves: by what means they know when packets arrived, and of their
//! ports and queues.

use std::collections::BTreeMap;

use calumma_plane::int::around::{Came, Going, Queued};
use calumma_plane::int::header::{Seen, look};
use calumma_plane::int::means::Means;
use calumma_plane::int::{Domains, Instructions};
use calumma_plane::outlet::Outlets;
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::parse::PlainFlows;
use calumma_plane::system::{FinishedSide, SessionContext, System};
use calumma_plane::worker::{Departure, Path, Sent, first};
use calumma_plane::{Part, measure::Side};
use calumma_sketchint::SketchInt;
use calumma_sketchint::frames::{MEANS_SINCE, OFFER, Setup, Step, Window};
use calumma_wire::{Role, SideKind, SystemSetup};

use super::{
    EPOCH_NS, FIRST_EPOCH, Network, STAYS_NS, Switch, WINDOW, burst, middle, packet, session, setup,
};

/// A packet that its device has stamped as it arrived, or not.
#[derive(Clone, Debug)]
struct Stamped(Frame, Option<u64>);

impl Packet for Stamped {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    fn wire_len(&self) -> usize {
        self.0.wire_len()
    }

    fn stamp(&self) -> Option<u64> {
        self.1
    }

    fn headroom(&self) -> usize {
        self.0.headroom()
    }

    fn prepend(&mut self, len: usize) -> bool {
        self.0.prepend(len)
    }

    fn adj(&mut self, len: usize) -> bool {
        self.0.adj(len)
    }
}

/// Packets of several flows, each as long before `now_ns` as its stamp says, or without one.
fn stamped(before_ns: &[Option<u64>], now_ns: u64) -> Vec<Stamped> {
    let packets = (0..).zip(before_ns).map(|(flow, before_ns)| {
        let frame = Frame::with_headroom(256, &packet(flow, 17, 20));
        Stamped(frame, before_ns.map(|before_ns| now_ns - before_ns))
    });
    packets.collect()
}

#[test]
fn switches_say_by_what_means_they_know_when_packets_arrived() {
    let cases: [(&[Option<u64>], u8, u64); 3] = [
        (&[None, None], Means::POLL, 2_000),
        (&[Some(700), Some(100)], Means::DEVICE, 0),
        (&[Some(700), None], Means::DEVICE | Means::POLL, 2_000),
    ];
    for (before_ns, bits, error_ns) in cases {
        let means = Means::new(bits, error_ns);
        for role in [Role::Edge, Role::Transit] {
            let [mut source, mut between, mut sink] = [(Role::Edge, 1), (role, 3), (Role::Edge, 2)]
                .map(|(role, node)| Switch::new(role, node, setup(), Step::Sources));
            let now_ns = middle(FIRST_EPOCH);
            let mut frames = stamped(before_ns, now_ns);
            let ways = [Path::Enter, Path::Transit, Path::Leave];
            for (switch, way) in [&mut source, &mut between, &mut sink].into_iter().zip(ways) {
                switch.waited_ns = 4_000;
                switch.pass(way, &mut frames, now_ns, 1_000);
            }
            let next = FIRST_EPOCH + WINDOW;
            // In the next window polls find all at once, and in the one after nothing comes.
            let now_ns = middle(next);
            let mut frames = stamped(&[None], now_ns);
            for (switch, way) in [&mut source, &mut between, &mut sink].into_iter().zip(ways) {
                switch.waited_ns = 0;
                switch.pass(way, &mut frames, now_ns, 1_000);
                switch.advance_to(middle(FIRST_EPOCH + 4 * WINDOW));
            }
            let of = |switch: &Switch, epoch: u64| match switch.role {
                Role::Transit => switch.passed[&epoch].means,
                _ => switch.windows[&epoch].means,
            };
            for switch in [&source, &between, &sink] {
                let said = [FIRST_EPOCH, next, next + WINDOW].map(|epoch| of(switch, epoch));
                let wanted = [means, Means::new(Means::POLL, 0), Some(Means::default())];
                assert_eq!(said, wanted, "{:?} of {role:?}", switch.role);
            }
        }
    }
}

/// A controller that reads an older version is sent none of that.
#[test]
fn older_controllers_are_sent_what_they_know() {
    let older = MEANS_SINCE - 1;
    let mut switch = Switch::new(Role::Transit, 3, setup(), Step::Sources);
    let (system, setup) = (OFFER.system, setup().encode());
    let plan = calumma_sketchint::frames::Plan::of(Step::Sources).encode();
    let words = SystemSetup { system, version: older, setup, plan };
    let half = SketchInt.begin(&session(Role::Transit, 3), &words).unwrap();
    switch.worker.advance_to(middle(FIRST_EPOCH + 2 * WINDOW));
    let parts = switch.merger.poll();
    let side = parts.into_iter().find_map(|part| match part {
        Part::Side { epoch, side: Side::ByBit, record, .. } => Some((epoch, record)),
        _ => None,
    });
    let (epoch, record) = side.unwrap();
    let side = SideKind::Transit;
    let finished = FinishedSide { epoch, side, record: &*record, mixed_plan: false };
    assert!(half.side(finished).unwrap().0.body.is_empty());
}

fn asking() -> Setup {
    let bits = Instructions::DEFAULT.bits()
        | Instructions::PORTS
        | Instructions::QUEUE
        | Instructions::INTERFACES
        | Instructions::UTILISATION;
    Setup { instructions: Instructions::new(bits).unwrap(), ..setup() }
}

/// Words of the last hop in a packet's stack.
fn last_hop(frame: &Frame) -> Vec<u32> {
    assert!(matches!(look(frame, 14, Domains::ANY), Seen::Stack(_)));
    let (hop, _) = frame.bytes()[14 + 20 + 8 + 16..][..28].as_chunks::<4>();
    hop.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

#[test]
fn stacks_that_ask_say_ports_queues_and_links() {
    let mut network = Network::new(asking(), Step::Sources);
    let bytes = packet(7, 17, 20);
    let mut frames = [Frame::with_headroom(256, &bytes)];
    let now_ns = middle(FIRST_EPOCH);
    let [source, between, sink] = &mut network.0;
    source.advance_to(now_ns);
    between.advance_to(now_ns);
    sink.advance_to(now_ns);
    assert_eq!(source.worker.asks_around(), asking().instructions.bits() & !0xA000);

    // Of what nobody has said, nothing is known.
    source.pass(Path::Enter, &mut frames, now_ns, STAYS_NS[0]);
    let latency = STAYS_NS[0] as u32;
    let unknown = u32::MAX;
    let nothing = [1, unknown, latency, unknown, unknown, unknown, unknown];
    assert_eq!(last_hop(&frames[0]), nothing);

    between.worker.came(Some(Came::by(2, Some(Queued::of_poll(None, 32, false)))));
    between.worker.came_mut().unwrap().set_interface(0, Some(6));
    between.worker.goes(Going::by(5, 9_876));
    between.pass(Path::Transit, &mut frames, now_ns, STAYS_NS[1]);
    let said = [3, 2 << 16 | 5, STAYS_NS[1] as u32, 32, 6, unknown, 9_876];
    assert_eq!(last_hop(&frames[0]), said);

    sink.pass(Path::Leave, &mut frames, now_ns, STAYS_NS[2]);
    assert_eq!(frames[0].bytes(), bytes);
    network.0.iter_mut().for_each(|of| of.advance_to(middle(FIRST_EPOCH + 2 * WINDOW)));
    let [_, between, sink] = &network.0;
    let window = &sink.windows[&FIRST_EPOCH];
    let queues: Vec<_> =
        window.nodes.iter().map(|of| (of.node, of.queued, of.queue_sum, of.queue_max)).collect();
    assert_eq!(queues, [(1, 0, 0, 0), (2, 0, 0, 0), (3, 1, 32, 32)]);
    let bits = Means::POLL | Means::QUEUE_FOUND | Means::QUEUE_AT_LEAST;
    assert_eq!(between.passed[&FIRST_EPOCH].means, Means::new(bits, 0));
}

fn asking_for_queues() -> Setup {
    let bits = Instructions::DEFAULT.bits() | Instructions::QUEUE;
    Setup { instructions: Instructions::new(bits).unwrap(), ..setup() }
}

/// How many packets the switch itself and stacks say something of, how many of these say how long
/// its queue was, the sum of that, and the longest.
fn queue_of(window: &Window, node: u32) -> (u64, u64, u64, u32) {
    let of = window.nodes.iter().find(|of| of.node == node);
    of.map_or((0, 0, 0, 0), |of| (of.packets, of.queued, of.queue_sum, of.queue_max))
}

/// A source and a sink, which packets come to in one burst.
struct Pair {
    source: Switch,
    sink: Switch,
}

impl Pair {
    /// Where packets are reported at once, or not.
    fn new(setup: Setup, reports: bool) -> Self {
        let outlets = if reports { Outlets::new(1, 128, 0).0 } else { Outlets::default() };
        let context = SessionContext { outlets, ..session(Role::Edge, 2) };
        let sink = Switch::in_session(context, setup, Step::Sources);
        Self { source: Switch::new(Role::Edge, 1, setup, Step::Sources), sink }
    }

    /// So many packets enter.
    fn enter(&mut self, packets: u16, now_ns: u64) -> Vec<Frame> {
        let mut frames: Vec<Frame> =
            (0..packets).map(|flow| Frame::with_headroom(256, &packet(flow, 17, 20))).collect();
        self.source.pass(Path::Enter, &mut frames, now_ns, STAYS_NS[0]);
        frames
    }

    /// Packets come to the sink where so many waited, and a transmit queue takes those that are
    /// `accepted`.
    fn leave(
        &mut self,
        (path, frames): (Path, &mut [Frame]),
        queued: Option<Queued>,
        (now_ns, accepted): (u64, u32),
    ) {
        let Self { sink, .. } = self;
        sink.advance_to(now_ns);
        sink.worker.came(Some(Came::by(2, queued)));
        sink.worker.begin();
        let all = first(frames.len());
        assert!(sink.worker.pass(path, frames, all, &PlainFlows::NONE).is_empty());
        let at_ns = now_ns + STAYS_NS[2];
        sink.worker.depart(frames, all, Departure { at_ns, mtu: 1500 });
        sink.worker.sent(Sent { accepted: all & accepted, refused: all & !accepted });
    }

    /// The sink's windows, after so many.
    fn windows(mut self, windows: u64) -> BTreeMap<u64, Window> {
        self.sink.advance_to(middle(FIRST_EPOCH + (windows + 1) * WINDOW));
        self.sink.windows
    }
}

/// What its own hop would say, had it put one in.
#[test]
fn a_sink_says_how_long_its_own_queue_was() {
    let every = u32::MAX;
    for reports in [false, true] {
        let mut pair = Pair::new(asking_for_queues(), reports);
        let now_ns = middle(FIRST_EPOCH);
        let asked = |waiting, received| Some(Queued::of_poll(Some(waiting), received, true));
        let mut frames = pair.enter(3, now_ns);
        pair.leave((Path::Leave, &mut frames), asked(40, 3), (now_ns, every));
        let mut frames = pair.enter(2, now_ns);
        let found = Some(Queued::of_poll(None, 2, true));
        pair.leave((Path::Leave, &mut frames), found, (now_ns, every));
        // What has waited in the slow path came by no queue.
        let mut frames = pair.enter(1, now_ns);
        pair.leave((Path::Leave, &mut frames), None, (now_ns, every));
        // Of four, one is sent.
        let mut frames = pair.enter(4, now_ns);
        pair.leave((Path::Leave, &mut frames), asked(900, 4), (now_ns, 0b0100));
        // From host to host.
        let mut frames = [Frame::with_headroom(256, &packet(7, 17, 20))];
        pair.leave((Path::Cross, &mut frames), asked(7, 1), (now_ns, every));
        // Packets of two windows in one burst.
        let second = FIRST_EPOCH + WINDOW;
        let flip_ns = second * EPOCH_NS;
        let mut both = pair.enter(2, flip_ns - 1_000_000);
        both.extend(pair.enter(3, flip_ns + 1_000_000));
        pair.leave((Path::Leave, &mut both), asked(11, 5), (flip_ns + 2_000_000, every));
        // In the third nobody looked.
        let now_ns = middle(second + WINDOW);
        let mut frames = pair.enter(1, now_ns);
        pair.leave((Path::Leave, &mut frames), None, (now_ns, every));

        let windows = pair.windows(3);
        let of = |epoch: u64| {
            let window = &windows[&epoch];
            (queue_of(window, 2), window.means.unwrap().bits())
        };
        let of_first = (3 + 2 + 1 + 1 + 1 + 2, 3 + 2 + 1 + 1 + 2, 120 + 4 + 900 + 7 + 22, 900);
        let asked = Means::POLL | Means::QUEUE_ASKED;
        assert_eq!(of(FIRST_EPOCH), (of_first, asked | Means::QUEUE_FOUND), "{reports}");
        assert_eq!(of(second), ((3, 3, 33, 11), asked), "{reports}");
        assert_eq!(of(second + WINDOW), ((1, 0, 0, 0), Means::POLL), "{reports}");
        // The source has looked at no queue.
        assert_eq!(queue_of(&windows[&second], 1), (3, 0, 0, 0));
    }
}

#[test]
fn a_sink_says_nothing_of_a_queue_that_stacks_do_not_ask_for() {
    for reports in [false, true] {
        let mut pair = Pair::new(setup(), reports);
        let now_ns = middle(FIRST_EPOCH);
        let mut frames = pair.enter(3, now_ns);
        let queued = Some(Queued::of_poll(Some(40), 3, true));
        pair.leave((Path::Leave, &mut frames), queued, (now_ns, u32::MAX));
        let windows = pair.windows(1);
        assert_eq!(queue_of(&windows[&FIRST_EPOCH], 2), (3, 0, 0, 0));
        assert_eq!(windows[&FIRST_EPOCH].means, Means::new(Means::POLL, 0));
    }
}

#[test]
fn nobody_looks_at_queues_that_stacks_do_not_ask_for() {
    let mut network = Network::new(setup(), Step::Sources);
    network.send(middle(FIRST_EPOCH), &burst(0));
    assert!(network.0.iter().all(|switch| switch.worker.asks_around() == 0));
}
