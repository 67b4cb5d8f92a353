//! The cases of what cooperative flow selection does to a switch's packets, as bytes from parsing
//! to what goes on: the loop guard, and pins.

use calumma_cfs::Cfs;
use calumma_cfs::frames::{OFFER, Pins, Setup, Window};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::measure::Side;
use calumma_plane::outlet::Outlets;
use calumma_plane::packet::Frame;
use calumma_plane::parse::PlainFlows;
use calumma_plane::system::{FinishedSide, RouteWatch, SessionContext, System};
use calumma_plane::worker::{Path, Policy, first};
use calumma_plane::{LcoreMerger, Measurement, Part, Worker};
use calumma_sketch::{BURST, FlowKey, KeyKind, WideKey};
use calumma_testbed::workload::frame;
use calumma_wire::{Role, Secret, SideKind, SystemSetup};

use crate::cases::ns_each;
use crate::measure::Case;
use crate::workload;

/// Packets of a case.
const PACKETS: usize = 1 << 16;

/// Length of a packet on the wire, in bytes.
const WIRE: u16 = 60;

/// Room before a packet for what switches put into it.
const HEADROOM: usize = 32;

/// The key that flows are hashed by.
pub const HASH_KEY: [u8; 32] = [7; 32];

/// Length of an epoch in nanoseconds.
pub const EPOCH_NS: u64 = 50_000_000;

const FIRST_EPOCH: u64 = 100;

/// An lcore of a switch that runs this system alone, in the middle of a window.
pub struct Switch {
    setup: Setup,
    role: Role,
    worker: Worker,
    /// The other end of the lcore's mailbox.
    merger: LcoreMerger,
}

impl Switch {
    /// One between others that measures by this setup, with these flows pinned, in order.
    ///
    /// # Panics
    /// When a switch can't measure so.
    pub fn new(setup: Setup, pins: Vec<WideKey>) -> Self {
        Self::of((Role::Transit, 1), setup, pins)
    }

    /// The same of an edge or a switch between others, with its id.
    ///
    /// # Panics
    /// When a switch can't measure so.
    pub fn of((role, id): (Role, u16), setup: Setup, pins: Vec<WideKey>) -> Self {
        let (system, version) = (OFFER.system, OFFER.highest);
        let clock = EpochClock::new(EPOCH_NS, Guards::default()).expect("a valid clock");
        let session = SessionContext {
            role,
            node_id: Some(id),
            hash_key: Secret::new(HASH_KEY),
            clock,
            first_epoch: FIRST_EPOCH,
            lcores: 1,
            ports: None,
            routes: RouteWatch::default(),
            outlets: Outlets::default(),
            carries_claims: true,
            carries_hops: false,
            carries_stacks: true,
        };
        let plan = if pins.is_empty() { Vec::new() } else { Pins { flows: pins.into() }.encode() };
        let encoded = SystemSetup { system, version, setup: setup.encode(), plan };
        let begun = vec![Cfs.begin(&session, &encoded).expect("a valid setup")];
        let (mut merger, mailboxes) = LcoreMerger::new(1);
        merger.begin(session.clock, FIRST_EPOCH, session.hash_key, KeyKind::Ipv4, begun);
        let mailbox = mailboxes.into_iter().next().expect("one for the lcore");
        let mut worker = Worker::new(Policy::default(), Measurement::new(mailbox));
        let window = FIRST_EPOCH.next_multiple_of(u64::from(Setup::default().window_epochs));
        worker.advance_to(clock.start_of(window + 2));
        Self { setup, role, worker, merger }
    }

    /// Nanoseconds for each of these packets, which pass from fabric to fabric.
    pub fn pass(&mut self, packets: &mut [Frame]) -> f64 {
        ns_each(packets.len(), || self.record(Path::Transit, packets))
    }

    /// Lets these packets pass on this path.
    pub fn record(&mut self, path: Path, packets: &mut [Frame]) {
        for burst in packets.chunks_mut(BURST) {
            self.worker.begin();
            self.worker.pass(path, burst, first(burst.len()), &PlainFlows::NONE);
        }
    }

    /// Lets time pass until a window with packets is over, and gives what it kept of it.
    ///
    /// # Panics
    /// When there is none, or it can't be read.
    pub fn finish(self) -> Window {
        let setup = self.setup;
        Window::decode(&self.deliver().body, &setup).expect("a window")
    }

    /// The same as the controller is sent it.
    ///
    /// # Panics
    /// When there is none.
    pub fn deliver(mut self) -> calumma_wire::Side {
        let clock = EpochClock::new(EPOCH_NS, Guards::default()).expect("a valid clock");
        let side = if self.role == Role::Edge { SideKind::Egress } else { SideKind::Transit };
        for epoch in FIRST_EPOCH..FIRST_EPOCH + 3 * u64::from(self.setup.window_epochs) {
            self.worker.advance_to(clock.start_of(epoch));
            for part in self.merger.poll() {
                let Part::Side { epoch, side: Side::ByBit, record, mixed_plan, .. } = part else {
                    continue;
                };
                let half = self.merger.system(0).expect("the only system");
                let finished = FinishedSide { epoch, side, record: &*record, mixed_plan };
                let (side, _) = half.side(finished).expect("a side of this system");
                if side.packets > 0 {
                    return side;
                }
            }
        }
        panic!("no window with packets has ended");
    }
}

/// Flows with the addresses and ports of these keys, of UDP.
pub fn of_udp(keys: &[FlowKey]) -> Vec<FlowKey> {
    let ports = |key: &FlowKey| u32::from(key.sport()) << 16 | u32::from(key.dport());
    let of = |key: &FlowKey| FlowKey::from_words(key.src_word(), key.dst_word(), ports(key), 17);
    keys.iter().map(of).collect()
}

/// A packet of each of these flows.
pub fn frames(keys: &[FlowKey]) -> Vec<Frame> {
    let bytes = |key: &FlowKey| Frame::with_headroom(HEADROOM, &frame(&(*key).into(), WIRE));
    keys.iter().map(bytes).collect()
}

/// What a switch takes for a packet, and by how much that is more than what another takes, which
/// passes the same packets in turns with it.
fn beside(
    (name, more): (&str, &str),
    keys: &[FlowKey],
    [one, other]: [Box<dyn Fn() -> Switch>; 2],
) -> [Case<'static>; 2] {
    let (mut switch, mut packets) = (one(), frames(keys));
    let alone = Case::new(name, "ns/packet", move || switch.pass(&mut packets));
    let (mut one, mut other, mut packets) = (one(), other(), frames(keys));
    let difference = Case::new(more, "ns/packet", move || {
        let mut turns = || one.pass(&mut packets) - other.pass(&mut packets);
        // Whoever comes second finds the packets in the cache; so the first turn is none.
        turns();
        (turns() + turns()) / 2.0
    });
    [alone, difference]
}

/// All cases.
pub fn cases() -> Vec<Case<'static>> {
    // Hardly one in a hundred of the flows has an entry.
    let full = Setup { entries: 256, filter_bits: 1 << 20, ..Setup::default() };
    let new = of_udp(&workload::keys(PACKETS, 41));
    let switch = |guard| -> Box<dyn Fn() -> Switch> {
        Box::new(move || Switch::new(Setup { guard, ..full }, Vec::new()))
    };
    let names = ("cfs.pass.all_new.ns", "cfs.guard.ns");
    let mut cases = Vec::from(beside(names, &new, [switch(true), switch(false)]));

    let zipf = of_udp(&workload::zipf(63_000, PACKETS, 1.1, 1));
    let most = 1024;
    let mut pinned: Vec<WideKey> = zipf.iter().map(|&key| key.into()).collect();
    pinned.sort_unstable();
    pinned.dedup();
    let step = (pinned.len() / most).max(1);
    let pinned: Vec<WideKey> = pinned.into_iter().step_by(step).take(most).collect();
    let setup = Setup { entries: 10_000, filter_bits: 640_000, ..Setup::default() };
    let switch = |pins: Vec<WideKey>| -> Box<dyn Fn() -> Switch> {
        Box::new(move || Switch::new(setup, pins.clone()))
    };
    let names = ("cfs.pass.pinned.ns", "cfs.pins.ns");
    cases.extend(beside(names, &zipf, [switch(pinned), switch(Vec::new())]));
    cases
}
