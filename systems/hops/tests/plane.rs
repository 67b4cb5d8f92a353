//! A second system beside none: an exact count of every flow's packets at each switch of their way.
//!
//! It shows what a system has to bring for an lcore and the control thread, and holds the data plane to
//! it: edges and a transit switch in virtual time, packets lost between them, flips while they are under
//! way.

use std::any::Any;
use std::collections::BTreeMap;

use calumma_epoch::{EpochClock, Guards};
use calumma_plane::measure::Side;
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::slots::AnySlots;
use calumma_plane::system::{Groups, LcoreSystem, LcoreSystems, Record, Recorded, SwitchSystem};
use calumma_plane::worker::Policy;
use calumma_plane::{
    Carrier, Counters, Flows, LcoreMerger, MarkedRun, Measurement, Part, Run, Slots, WindowSlots,
    Worker,
};
use calumma_sketch::{AnyKey, FlowKey, Key, KeyKind};

const FIRST_EPOCH: u64 = 100;
const EPOCH_NS: u64 = 50_000_000;
const FLOWS: usize = 64;

/// Packets by flow: a table of fixed size, so that recording allocates nothing.
#[derive(Clone, Debug, PartialEq)]
struct Count<K> {
    flows: [Option<(K, u64)>; FLOWS],
    plan: (),
}

impl<K: Key> Count<K> {
    const EMPTY: Self = Self { flows: [None; FLOWS], plan: () };

    fn add(&mut self, key: &K, packets: u64) {
        let place = self.flows.iter_mut().find(|flow| flow.is_none_or(|(known, _)| known == *key));
        if let Some(flow) = place {
            flow.get_or_insert((*key, 0)).1 += packets;
        }
    }
}

impl<K: Key> Record for Count<K> {
    type Plan = ();

    fn begin(&mut self, (): &(), _epoch: u64) {}

    fn plan(&self) -> &() {
        &self.plan
    }

    fn merge(&mut self, other: &Self) {
        for (key, packets) in other.flows.iter().flatten() {
            self.add(key, *packets);
        }
    }

    fn clear(&mut self) {
        *self = Self::EMPTY;
    }
}

/// Records of windows; those of one epoch could be in [`Slots`] as well.
#[derive(Debug)]
enum Records<K: Key> {
    OfEpochs(Slots<Count<K>, Count<K>>),
    OfWindows(WindowSlots<Count<K>, Count<K>>),
}

impl<K: Key> Records<K> {
    fn ingress(&mut self) -> Option<&mut Recorded<Count<K>>> {
        match self {
            Self::OfEpochs(slots) => slots.ingress(),
            Self::OfWindows(slots) => slots.ingress(),
        }
    }

    fn by_bit(&mut self, bit: usize) -> Option<&mut Recorded<Count<K>>> {
        match self {
            Self::OfEpochs(slots) => slots.by_bit(bit),
            Self::OfWindows(slots) => slots.by_bit(bit),
        }
    }

    fn late(&mut self, bit: usize, packets: u64) {
        match self {
            Self::OfEpochs(slots) => slots.late(bit, packets),
            Self::OfWindows(slots) => slots.late(bit, packets),
        }
    }
}

#[derive(Debug)]
struct OnLcore<K: Key>(Records<K>);

impl<K: Key> LcoreSystem<K> for OnLcore<K> {
    fn slots(&mut self) -> &mut dyn AnySlots {
        match &mut self.0 {
            Records::OfEpochs(slots) => slots,
            Records::OfWindows(slots) => slots,
        }
    }

    fn wants_transit(&self) -> bool {
        true
    }

    fn enter(&mut self, flows: &mut Flows<K>, _counters: &mut Counters) {
        if let Some(record) = self.0.ingress() {
            flows.keys().iter().for_each(|key| record.group.add(key, 1));
            record.packets += flows.len() as u64;
        }
    }

    fn transit(&mut self, flows: &Flows<K>, counters: &mut Counters) {
        self.leave(flows, counters);
    }

    fn leave(&mut self, flows: &Flows<K>, _counters: &mut Counters) {
        flows.by_bit(|bit, keys, _| match self.0.by_bit(bit) {
            Some(record) => {
                keys.iter().for_each(|key| record.group.add(key, 1));
                record.packets += keys.len() as u64;
            }
            None => self.0.late(bit, keys.len() as u64),
        });
    }

    fn enter_run(&mut self, _key: &K, packets: u32, _counters: &mut Counters) -> Run {
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, _key: &K, _marked: &MarkedRun, _counters: &mut Counters) {}
}

#[derive(Debug)]
struct Hops {
    /// Epochs of a window.
    window: u64,
}

impl SwitchSystem for Hops {
    fn add_to(&self, systems: &mut AnyKey<LcoreSystems>) {
        fn on_lcore<K: Key>(window: u64) -> Box<dyn LcoreSystem<K>> {
            Box::new(OnLcore(match window {
                1 => Records::OfEpochs(Slots::new(FIRST_EPOCH, ())),
                _ => Records::OfWindows(WindowSlots::new(window, ())),
            }))
        }
        match systems {
            AnyKey::Ipv4(systems) => systems.push(on_lcore(self.window)),
            AnyKey::Dual(systems) => systems.push(on_lcore(self.window)),
        }
    }

    fn groups(&self) -> Groups {
        let empty = || Box::new(Recorded::new(Count::<FlowKey>::EMPTY));
        Groups { ingress: empty(), by_bit: empty() }
    }

    fn plan(&self, _plan: &dyn Any) -> Result<Box<dyn Any + Send>, String> {
        Ok(Box::new(()))
    }
}

/// Packets of each flow, by epoch.
type Counts = BTreeMap<(u64, FlowKey), u64>;

struct Switch {
    worker: Worker,
    merger: LcoreMerger,
    entered: Counts,
    by_bit: Counts,
    late: u64,
}

impl Switch {
    fn new(carrier: Carrier, clock: EpochClock, window: u64) -> Self {
        let (mut merger, mut mailboxes) = LcoreMerger::new(1);
        merger.begin(clock, FIRST_EPOCH, KeyKind::Ipv4, vec![Box::new(Hops { window })]);
        let policy = Policy { carrier, ..Policy::default() };
        let worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
        Self { worker, merger, entered: Counts::new(), by_bit: Counts::new(), late: 0 }
    }

    fn advance_to(&mut self, now_ns: u64) {
        self.worker.advance_to(now_ns);
        for part in self.merger.poll() {
            match part {
                Part::Side { system, epoch, side, record, .. } => {
                    let counted = &record.get::<Count<FlowKey>>().unwrap().group;
                    let to =
                        if side == Side::Ingress { &mut self.entered } else { &mut self.by_bit };
                    to.extend(counted.flows.iter().flatten().map(|&(key, n)| ((epoch, key), n)));
                    self.merger.recycle(system, side, record);
                }
                Part::Sealed { late_packets, .. } => self.late += late_packets,
            }
        }
    }
}

/// Packet number `n`, of one of 20 flows.
fn packet(n: u64) -> (FlowKey, Frame) {
    let key = FlowKey::from_words(0x0A01_0002, 0x0A02_0002, (n % 20) as u32 + 1, 17);
    let mut bytes = vec![0; 60];
    bytes[12] = 8;
    bytes[14..18].copy_from_slice(&[0x45, 0, 0, 46]);
    bytes[23] = 17;
    bytes[26..30].copy_from_slice(&key.src_word().to_be_bytes());
    bytes[30..34].copy_from_slice(&key.dst_word().to_be_bytes());
    bytes[34..38].copy_from_slice(&key.ports_word().to_be_bytes());
    (key, Frame::with_headroom(16, &bytes))
}

/// Packets of ten epochs from e1 over s1 to e2, in windows of so many epochs. Every seventh is lost before
/// s1, every eleventh behind it.
fn counted(carrier: Carrier, window: u64) {
    let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
    let [mut e1, mut s1, mut e2] = [(); 3].map(|()| Switch::new(carrier, clock, window));
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

/// A packet that comes after its epoch was taken is counted late in its window, also in the middle of it.
#[test]
fn a_late_packet_is_counted_in_its_window() {
    let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
    let carrier = Carrier::default();
    for (window, epoch) in [(1, 102), (4, 101), (4, 103), (5, 104)] {
        let [mut e1, mut e2] = [(); 2].map(|()| Switch::new(carrier, clock, window));
        let (_, mut frame) = packet(1);
        e1.advance_to(clock.start_of(epoch));
        e1.worker.ingress(std::slice::from_mut(&mut frame));
        e2.advance_to(clock.start_of(epoch + 1) + EPOCH_NS / 2);
        e2.worker.egress(std::slice::from_mut(&mut frame));
        e2.advance_to(clock.start_of(epoch + 2 * window + 4));
        assert_eq!((e2.late, e2.by_bit.len()), (1, 0), "window {window}, epoch {epoch}");
    }
}

fn carriers() -> [Carrier; 3] {
    use calumma_plane::carrier::{Shim, Tos};
    [
        Carrier::Tos(Tos::default()),
        Carrier::SignedTos(Tos::default()),
        Carrier::Shim(Shim::default()),
    ]
}
