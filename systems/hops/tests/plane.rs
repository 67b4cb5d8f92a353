//! `hops` on the data plane: edges and a transit switch in virtual time, packets lost between them,
//! flips while they are under way, and systems that join and leave while they pass.

use std::collections::BTreeMap;

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::{Attention, Layout, SwitchHalf};
use calumma_epoch::{EpochClock, Guards};
use calumma_hops::Hops;
use calumma_hops::frames::{Counts as Frames, OFFER, Setup};
use calumma_plane::measure::Side;
use calumma_plane::outlet::Outlets;
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::system::{FinishedSide, RouteWatch, SessionContext, SwitchSystem, System};
use calumma_plane::worker::{Policy, Sent};
use calumma_plane::{Carrier, LcoreMerger, Measurement, Part, Worker};
use calumma_sketch::{FlowKey, HashKey, Key, KeyKind};
use calumma_wire::{Role, Secret, SideKind, SystemSetup};
use proptest::prelude::*;

const FIRST_EPOCH: u64 = 100;
const EPOCH_NS: u64 = 50_000_000;

fn hops(clock: EpochClock, window: u16) -> Box<dyn SwitchSystem> {
    let (hash_key, node_id, role) = (Secret::new([1; 32]), None, Role::Edge);
    let session = SessionContext {
        role,
        node_id,
        hash_key,
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
    let setup = Setup { flows: 64, window }.encode();
    let (system, version) = (OFFER.system, OFFER.highest);
    Hops.begin(&session, &SystemSetup { system, version, setup, plan: Vec::new() }).unwrap()
}

fn chamelemon(clock: EpochClock) -> Box<dyn SwitchSystem> {
    let layout = Layout { upstream_buckets: 512, downstream_buckets: 256, ..Layout::default() };
    let (attention, hash_key) = (Attention::healthy(&layout, 256), HashKey::from_bytes([7; 32]));
    let plan = SessionPlan { layout, hash_key, clock, first_epoch: FIRST_EPOCH, attention };
    Box::new(SwitchHalf::new(plan).unwrap())
}

/// Packets of each flow, by epoch.
type Counts = BTreeMap<(u64, FlowKey), u64>;

struct Switch {
    worker: Worker,
    merger: LcoreMerger,
    /// Numbers of the tables' systems in the session, which came one after the other.
    hops: Vec<usize>,
    entered: Counts,
    by_bit: Counts,
    /// Packets that its transmit queue refused, of those counted.
    refused: Counts,
    late: u64,
    sealed: Vec<(usize, u64)>,
}

impl Switch {
    fn begin(carrier: Carrier, clock: EpochClock, systems: Vec<Box<dyn SwitchSystem>>) -> Self {
        let (mut merger, mut mailboxes) = LcoreMerger::new(1);
        merger.begin(clock, FIRST_EPOCH, Secret::new([1; 32]), KeyKind::Ipv4, systems);
        let policy = Policy { carrier, ..Policy::default() };
        let worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
        let [entered, by_bit, refused] = [(); 3].map(|()| Counts::new());
        let (hops, late, sealed) = (vec![0], 0, Vec::new());
        Self { worker, merger, hops, entered, by_bit, refused, late, sealed }
    }

    fn new(carrier: Carrier, clock: EpochClock, window: u16) -> Self {
        Self::begin(carrier, clock, vec![hops(clock, window)])
    }

    /// Lets time run, event by event, so that records come back in time.
    fn advance_to(&mut self, now_ns: u64) {
        while self.worker.next_due_ns() <= now_ns {
            self.worker.advance_to(self.worker.next_due_ns());
            self.receive();
        }
        self.worker.advance_to(now_ns);
        self.receive();
    }

    fn receive(&mut self) {
        for part in self.merger.poll() {
            match part {
                Part::Side { system, epoch, side, record, mixed_plan, .. } => {
                    if self.hops.contains(&system) {
                        let (kind, to) = match side {
                            Side::Ingress => (SideKind::Ingress, &mut self.entered),
                            Side::ByBit => (SideKind::Egress, &mut self.by_bit),
                        };
                        let half = self.merger.system(system).unwrap();
                        let record = &*record;
                        let side = FinishedSide { epoch, side: kind, record, mixed_plan };
                        let (frame, _) = half.side(side).unwrap();
                        let flows = Frames::decode(&frame.body).unwrap().flows;
                        let received = flows.iter().map(|(_, packets)| packets.received);
                        assert_eq!(frame.packets, received.sum::<u64>());
                        for (key, packets) in flows {
                            let of = (epoch, narrow(&key));
                            to.insert(of, packets.received);
                            if packets.refused > 0 {
                                *self.refused.entry(of).or_default() += packets.refused;
                            }
                        }
                    }
                    self.merger.recycle(system, side, record);
                }
                Part::Sealed { system, epoch, late_packets, .. } => {
                    self.sealed.push((system, epoch));
                    self.late += late_packets;
                }
            }
        }
    }
}

fn narrow(key: &calumma_sketch::WideKey) -> FlowKey {
    let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
    FlowKey::new(src, dst, sport, dport, key.protocol()).unwrap()
}

/// Packet number `n`, of one of 20 flows.
fn packet(n: u64) -> (FlowKey, Frame) {
    let key = FlowKey::from_words(0x0A01_0002, 0x0A02_0002, (n % 20) as u32 + 1, 17);
    let mut bytes = vec![0; 60];
    bytes[12] = 8;
    bytes[14..18].copy_from_slice(&[0x45, 0, 0, 46]);
    bytes[20] = 0x40;
    bytes[23] = 17;
    bytes[26..30].copy_from_slice(&key.src_word().to_be_bytes());
    bytes[30..34].copy_from_slice(&key.dst_word().to_be_bytes());
    bytes[34..38].copy_from_slice(&key.ports_word().to_be_bytes());
    (key, Frame::with_headroom(16, &bytes))
}

/// Packets of ten epochs from e1 over s1 to e2, in windows of so many epochs. Every seventh is lost
/// before s1, every eleventh behind it.
fn counted(carrier: Carrier, window: u16) {
    let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
    let [mut e1, mut s1, mut e2] = [(); 3].map(|()| Switch::new(carrier, clock, window));
    let window = u64::from(window);
    let (mut at_e1, mut at_s1, mut at_e2) = (Counts::new(), Counts::new(), Counts::new());
    let start = clock.start_of(FIRST_EPOCH);
    for n in 0..5_000 {
        let now_ns = start + n * 100_000;
        // Named by its first epoch.
        let epoch = clock.epoch_at(now_ns) / window * window;
        let (key, mut frame) = packet(n);
        let plain = frame.clone();
        e1.advance_to(now_ns);
        e1.worker.ingress(std::slice::from_mut(&mut frame));
        *at_e1.entry((epoch, key)).or_default() += 1;
        if n % 7 == 0 {
            continue;
        }
        // Under way for up to 4 ms each.
        let marked = frame.clone();
        s1.advance_to(now_ns + n % 5 * 1_000_000);
        s1.worker.transit(std::slice::from_mut(&mut frame));
        assert_eq!(frame.bytes(), marked.bytes(), "a transit switch changes nothing");
        *at_s1.entry((epoch, key)).or_default() += 1;
        if n % 11 == 0 {
            continue;
        }
        e2.advance_to(now_ns + n % 5 * 1_000_000 + 3_000_000);
        e2.worker.egress(std::slice::from_mut(&mut frame));
        *at_e2.entry((epoch, key)).or_default() += 1;
        assert_eq!(frame.bytes(), plain.bytes());
    }
    let end = start + (10 + window + 4) * EPOCH_NS;
    [&mut e1, &mut s1, &mut e2].into_iter().for_each(|switch| switch.advance_to(end));
    assert_eq!(e1.entered, at_e1);
    assert_eq!((s1.by_bit, s1.late), (at_s1, 0));
    assert_eq!((e2.by_bit, e2.late), (at_e2, 0));
    assert!(s1.entered.is_empty() && e2.entered.is_empty() && e1.by_bit.is_empty());
}

#[test]
fn every_switch_counts_a_packet_in_the_epoch_it_entered() {
    carriers().into_iter().for_each(|carrier| counted(carrier, 1));
}

#[test]
fn every_switch_counts_a_packet_in_the_window_of_its_epoch() {
    // Odd lengths, too: a bit then means another window each time.
    for window in [2, 4, 5] {
        carriers().into_iter().for_each(|carrier| counted(carrier, window));
    }
}

/// Packets of ten epochs from e1 over s1 to e2, in bursts. Nothing is lost but in transmit queues
/// that are full now and then: what a switch says that its queues refused is what is missing at the
/// next one, flow by flow, at each of the three.
#[test]
fn what_a_full_queue_refuses_is_lost_at_that_switch() {
    let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
    for carrier in carriers() {
        let [mut e1, mut s1, mut e2] = [(); 3].map(|()| Switch::new(carrier, clock, 1));
        let (mut lost_at, mut arrived) = ([(); 3].map(|()| Counts::new()), Counts::new());
        let start = clock.start_of(FIRST_EPOCH);
        for burst in 0..500 {
            let now_ns = start + burst * 1_000_000;
            let epoch = clock.epoch_at(now_ns);
            let (mut keys, mut frames): (Vec<_>, Vec<_>) =
                (0..burst % 33).map(|at| packet(burst * 7 + at * at)).unzip();
            // Of every third burst the queue has room for less than all; where it was full before,
            // the burst goes to two ports, one of which takes nothing.
            let mut send = |switch: &mut Switch, nth: usize, frames: &mut Vec<Frame>| {
                let handed = calumma_plane::worker::first(frames.len());
                let accepted = match (burst + nth as u64) % 3 {
                    0 => {
                        let sent = Sent::prefix(handed, frames.len() / 3);
                        switch.worker.sent(sent);
                        sent.accepted
                    }
                    1 => {
                        let odd = handed & 0xAAAA_AAAA;
                        switch.worker.sent(Sent { accepted: handed & !odd, refused: 0 });
                        switch.worker.sent(Sent { accepted: 0, refused: odd });
                        handed & !odd
                    }
                    _ => {
                        switch.worker.sent(Sent::prefix(handed, frames.len()));
                        handed
                    }
                };
                let packets = std::mem::take(frames).into_iter().zip(std::mem::take(&mut keys));
                for (at, (frame, key)) in packets.enumerate() {
                    if accepted >> at & 1 == 1 {
                        frames.push(frame);
                        keys.push(key);
                    } else {
                        *lost_at[nth].entry((epoch, key)).or_default() += 1;
                    }
                }
            };
            [&mut e1, &mut s1, &mut e2].into_iter().for_each(|switch| switch.advance_to(now_ns));
            e1.worker.ingress(&mut frames);
            send(&mut e1, 0, &mut frames);
            s1.worker.transit(&mut frames);
            send(&mut s1, 1, &mut frames);
            e2.worker.egress(&mut frames);
            send(&mut e2, 2, &mut frames);
            for key in keys {
                *arrived.entry((epoch, key)).or_default() += 1;
            }
        }
        let end = start + 14 * EPOCH_NS;
        [&mut e1, &mut s1, &mut e2].into_iter().for_each(|switch| switch.advance_to(end));
        assert!(lost_at.iter().all(|lost| lost.len() > 50));
        assert_eq!([&e1.refused, &s1.refused, &e2.refused], lost_at.each_ref());
        assert_eq!(minus(&e1.entered, &e1.refused), s1.by_bit);
        assert_eq!(minus(&s1.by_bit, &s1.refused), e2.by_bit);
        assert_eq!(minus(&e2.by_bit, &e2.refused), arrived);
    }
}

/// What is left of some packets without others.
fn minus(all: &Counts, others: &Counts) -> Counts {
    let left = |(of, packets): (&(u64, FlowKey), &u64)| {
        let left = packets - others.get(of).copied().unwrap_or_default();
        (left > 0).then_some((*of, left))
    };
    all.iter().filter_map(left).collect()
}

/// A packet that comes after its epoch was taken is counted late in its window, also in the middle
/// of it.
#[test]
fn a_late_packet_is_counted_in_its_window() {
    let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
    let carrier = Carrier::default();
    for (window, epoch) in [(1, 102), (4, 101), (4, 103), (5, 104)] {
        let [mut e1, mut e2] = [(); 2].map(|()| Switch::new(carrier, clock, window));
        let window = u64::from(window);
        let (_, mut frame) = packet(1);
        e1.advance_to(clock.start_of(epoch));
        e1.worker.ingress(std::slice::from_mut(&mut frame));
        e2.advance_to(clock.start_of(epoch + 1) + EPOCH_NS / 2);
        e2.worker.egress(std::slice::from_mut(&mut frame));
        e2.advance_to(clock.start_of(epoch + 2 * window + 4));
        assert_eq!((e2.late, e2.by_bit.len()), (1, 0), "window {window}, epoch {epoch}");
    }
}

fn carriers() -> [Carrier; 4] {
    use calumma_plane::carrier::{Shim, Tos};
    [
        Carrier::Tos(Tos::default()),
        Carrier::SignedTos(Tos::default()),
        Carrier::Shim(Shim::default()),
        Carrier::IpId,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Beside ChameleMon, which goes on all the time, the tables join and leave while packets
    /// pass: each epoch in which they are on is counted whole, and no other; ChameleMon misses
    /// none.
    #[test]
    fn a_system_joins_and_leaves_while_packets_pass(
        asked_ns in prop::collection::vec(0..12 * EPOCH_NS, 1..5),
        ahead in 0_u64..4,
    ) {
        let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
        let mut edge = Switch::begin(Carrier::default(), clock, vec![chamelemon(clock)]);
        edge.hops.clear();
        let start = clock.start_of(FIRST_EPOCH);
        let mut asked_ns = asked_ns;
        asked_ns.sort_unstable();
        let mut asked = asked_ns.into_iter().peekable();
        let (mut truth, mut running, mut on) = (Counts::new(), None, Vec::new());
        for n in 0..7_500 {
            let now_ns = start + n * 100_000;
            edge.advance_to(now_ns);
            while asked.next_if(|at| start + at <= now_ns).is_some() {
                // As the conversation has it: no plan comes later than this.
                let lead_ns = clock.guards().clock_ns + 2_000_000;
                let from = clock.epoch_at(now_ns + lead_ns) + 1 + ahead;
                match running.take() {
                    None => {
                        let number = edge.merger.add(from, hops(clock, 1)).unwrap();
                        edge.hops.push(number);
                        running = Some(number);
                        on.push((from, u64::MAX));
                    }
                    Some(number) => {
                        edge.merger.remove(number, from);
                        on.last_mut().unwrap().1 = from;
                    }
                }
            }
            let (key, mut frame) = packet(n);
            let plain = frame.clone();
            edge.worker.ingress(std::slice::from_mut(&mut frame));
            edge.worker.egress(std::slice::from_mut(&mut frame));
            prop_assert_eq!(frame.bytes(), plain.bytes());
            *truth.entry((clock.epoch_at(now_ns), key)).or_default() += 1;
        }
        edge.advance_to(start + 20 * EPOCH_NS);
        let measured = |epoch: u64| on.iter().any(|&(from, end)| (from..end).contains(&epoch));
        truth.retain(|(epoch, _), _| measured(*epoch));
        prop_assert_eq!(&edge.entered, &truth);
        prop_assert_eq!(&edge.by_bit, &truth);
        prop_assert_eq!(edge.late, 0);
        let of_chamelemon: Vec<u64> =
            edge.sealed.iter().filter(|(system, _)| *system == 0).map(|(_, epoch)| *epoch).collect();
        prop_assert!(of_chamelemon.is_sorted() && of_chamelemon.len() >= 17, "{of_chamelemon:?}");
        // A system that has left is forgotten, and every epoch of its own has been sealed.
        for (number, &(from, end)) in edge.hops.iter().zip(&on) {
            let sealed: Vec<u64> =
                edge.sealed.iter().filter(|(of, _)| of == number).map(|(_, epoch)| *epoch).collect();
            if end < u64::MAX {
                prop_assert!(edge.merger.system(*number).is_none());
                prop_assert!((from..end).all(|epoch| sealed.contains(&epoch)), "{sealed:?}");
                prop_assert!(sealed.iter().all(|&epoch| epoch < end), "{sealed:?}");
            }
        }
    }
}

/// Lcores that learn late that a system leaves and returns, and of both at once, measure by the one
/// half for longer and by the other from later on. Each epoch is sealed once all the same.
#[test]
fn a_system_that_leaves_and_returns_seals_each_epoch_once_however_late_lcores_learn_of_it() {
    let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
    let asked = FIRST_EPOCH + 6;
    for case in 0..36 {
        let (window, gone, late) = ([1, 3][case % 2], case as u64 / 2 % 3, case as u64 / 6);
        let mut edge = Switch::new(Carrier::default(), clock, window);
        edge.advance_to(clock.start_of(asked - 1 + late) + 20_000_000);
        edge.merger.remove(0, asked);
        edge.hops.push(edge.merger.succeed(0, asked + gone, hops(clock, window)).unwrap());
        edge.advance_to(clock.start_of(asked + 20));
        let sealed: Vec<u64> = edge.sealed.iter().map(|(_, epoch)| *epoch).collect();
        let case = format!("windows of {window}, {gone} epochs off, {late} late: {sealed:?}");
        assert!(sealed.is_sorted_by(|before, after| before < after), "{case}");
        let (window, end) = (u64::from(window), asked + late);
        let (first, last) = (asked + gone.max(late), asked + 18);
        for epoch in (FIRST_EPOCH..last).filter(|epoch| epoch.is_multiple_of(window)) {
            let is_whole = epoch + window <= end || epoch >= first && epoch + window <= last;
            assert!(!is_whole || sealed.contains(&epoch), "epoch {epoch}, {case}");
        }
    }
}
