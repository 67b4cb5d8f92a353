//! What switches say of themselves: by what means they know when packets arrived, and of their
//! ports and queues.

use calumma_plane::int::around::{Came, Going, Queued};
use calumma_plane::int::header::{Seen, look};
use calumma_plane::int::means::Means;
use calumma_plane::int::{Domains, Instructions};
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::system::{FinishedSide, System};
use calumma_plane::worker::Path;
use calumma_plane::{Part, measure::Side};
use calumma_sketchint::SketchInt;
use calumma_sketchint::frames::{MEANS_SINCE, OFFER, Setup, Step};
use calumma_wire::{Role, SideKind, SystemSetup};

use super::{
    FIRST_EPOCH, Network, STAYS_NS, Switch, WINDOW, burst, middle, packet, session, setup,
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

#[test]
fn nobody_looks_at_queues_that_stacks_do_not_ask_for() {
    let mut network = Network::new(setup(), Step::Sources);
    network.send(middle(FIRST_EPOCH), &burst(0));
    assert!(network.0.iter().all(|switch| switch.worker.asks_around() == 0));
}
