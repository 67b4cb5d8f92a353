//! An lcore polls a ring; a system that asks when packets arrived is told between when and when.
//! And an epoch is not taken while more packets may be in the ring.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use calumma_edge::config::{Role, Settings};
use calumma_edge::control::unix_ns;
use calumma_edge::lcore::emptied::Emptied;
use calumma_edge::lcore::forwarder::{Forwarder, Pairs};
use calumma_edge::lcore::{self, PortQueues};
use calumma_edge::live::Lines;
use calumma_edge::measure::Measurement;
use calumma_edge::worker::{Policy, Sent, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::arrival::{Arrival, Polls};
use calumma_plane::slots::AnySlots;
use calumma_plane::system::{FinishedSide, Groups, LcoreHalf, Notes, Recorded};
use calumma_plane::{
    Counters, Flows, LcoreMerger, LcoreSystem, MarkedRun, Record, Run, Slots, SwitchSystem,
};
use calumma_sketch::{AnyKey, FlowKey, Key, KeyKind};
use calumma_wire::{Secret, Side};
use dpdk::{Burst, Mempool, Port, PortConfig, RxQueue, TxQueue};

use crate::edge::{H0, eal};
use crate::frames::Udp;

const EPOCH_NS: u64 = 50_000_000;

/// By how much the lcore's clock may differ from the system's on a busy machine.
const CLOCKS_NS: u64 = 1_000_000;

/// One lcore polls at a time.
static POLLING: Mutex<()> = Mutex::new(());

/// Arrivals by source port: as packets entered, and as they were sent.
type Seen = Arc<Mutex<Vec<(u16, Arrival, bool)>>>;

/// A system that notes when packets arrived.
#[derive(Debug)]
struct Probe(Seen);

#[derive(Debug)]
struct OnLcore(Seen, Slots<Nothing, Nothing>);

#[derive(Clone, Debug)]
struct Nothing;

impl Record for Nothing {
    type Plan = ();

    fn begin(&mut self, (): &(), _epoch: u64) {}

    fn plan(&self) -> &() {
        &()
    }

    fn merge(&mut self, _other: &Self) {}

    fn clear(&mut self) {}
}

impl OnLcore {
    fn note<K: Key>(&self, flows: &Flows<K>, at: usize, sent: bool) {
        let arrival = flows.arrival(at).expect("an arrival, as it was asked for");
        self.0.lock().unwrap().push((flows.keys()[at].ports().0, arrival, sent));
    }
}

impl<K: Key> LcoreSystem<K> for OnLcore {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.1
    }

    fn wants_sent(&self) -> bool {
        true
    }

    fn wants_arrivals(&self) -> bool {
        true
    }

    fn enter(&mut self, flows: &mut Flows<K>, _: &mut Counters) {
        (0..flows.len()).for_each(|at| self.note(flows, at, false));
    }

    fn leave(&mut self, _: &Flows<K>, _: &mut Counters) {}

    fn sent(&mut self, flows: &Flows<K>, sent: Sent, _: &mut Counters) {
        let accepted = (0..flows.len()).filter(|at| sent.accepted >> at & 1 == 1);
        accepted.for_each(|at| self.note(flows, at, true));
    }

    fn enter_run(&mut self, _: &K, packets: u32, _: &mut Counters) -> Run {
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, _: &K, _: &MarkedRun, _: &mut Counters) {}
}

impl SwitchSystem for Probe {
    fn on_lcore(&self, keys: KeyKind) -> AnyKey<LcoreHalf> {
        assert_eq!(keys, KeyKind::Ipv4);
        let half: Box<dyn LcoreSystem<FlowKey>> =
            Box::new(OnLcore(self.0.clone(), Slots::new(0, 1, ())));
        AnyKey::Ipv4(half)
    }

    fn groups(&self, _: KeyKind) -> Groups {
        let nothing = || Box::new(Recorded::new(Nothing));
        Groups { ingress: nothing(), by_bit: nothing() }
    }

    fn side(&self, _: FinishedSide<'_>) -> Option<(Side, Notes)> {
        None
    }
}

/// A stamp that a device with the system's clock could have given a packet, one in microseconds,
/// none.
fn stamp(number: u16, now_ns: u64) -> Option<u64> {
    match number % 3 {
        0 => Some(now_ns - 200_000),
        1 => Some(now_ns / 1000),
        _ => None,
    }
}

/// A port's queues.
fn open(name: &str, pool: &Mempool) -> (RxQueue, TxQueue) {
    let (_, mut queues) = Port::open(eal(), name, PortConfig::default(), pool).unwrap();
    queues.pop().unwrap()
}

/// The same as an lcore has them, as if they were of this driver.
fn port((rx, tx): (RxQueue, TxQueue), role: Role, peer: usize, driver: &str) -> PortQueues {
    PortQueues {
        rx,
        tx,
        number: 1 - peer as u16,
        role,
        host_sink: false,
        peer,
        polls: Polls::default(),
        emptied: Emptied::by(driver),
        mtu: 1500,
    }
}

#[test]
fn packets_arrive_between_the_bounds_and_when_their_device_says() {
    let _alone = POLLING.lock().unwrap_or_else(PoisonError::into_inner);
    let pool = Mempool::new(eal(), "arrivals", 1023, -1).unwrap();
    let (ring_rx, mut into_ring) = open("net_ring0", &pool);
    let ((_, spare_tx), (fabric_rx, fabric_tx)) =
        (open("net_null0", &pool), open("net_null1", &pool));
    let port = |rx, tx, role, peer| port((rx, tx), role, peer, "net_ring");
    let ports =
        vec![port(ring_rx, spare_tx, Role::Host, 1), port(fabric_rx, fabric_tx, Role::Fabric, 0)];

    let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
    let first_epoch = clock.epoch_at(unix_ns()) + 2;
    let seen = Seen::default();
    let (mut merger, mut mailboxes) = LcoreMerger::new(1);
    let probe = Box::new(Probe(seen.clone()));
    merger.begin(clock, first_epoch, Secret::new([0; 32]), KeyKind::Ipv4, vec![probe]);
    let worker = Worker::new(Policy::default(), Measurement::new(mailboxes.remove(0)));
    let policy = Policy::default();
    let settings = Settings { policy, idle_sleep_us: 0, idle_polls: 1000, transmit_retries: 0 };
    let (_lines, mut lines) = Lines::new(1, dpdk::tsc_hz());
    let (line, stop) = (lines.remove(0), AtomicBool::new(false));
    let mut truth = Vec::new();
    std::thread::scope(|scope| {
        let stopping = &stop;
        let polling = move || lcore::run(worker, ports, Pairs::default(), settings, line, stopping);
        let lcore = scope.spawn(polling);
        while unix_ns() < clock.start_of(first_epoch) + 10_000_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        for number in 0..60 {
            let frame = Udp { ports: (number, 9), ..Udp::new("10.1.0.2", "10.2.0.1") }.frame(H0);
            let (mut mbuf, mut burst) = (pool.alloc_with(&frame).unwrap(), Burst::<32>::new());
            let before_ns = unix_ns();
            if let Some(stamp) = stamp(number, before_ns) {
                mbuf.set_rx_timestamp(stamp).unwrap();
            }
            burst.push(mbuf).unwrap();
            assert_eq!(into_ring.tx(&mut burst), 1);
            truth.push((before_ns, unix_ns()));
            std::thread::sleep(Duration::from_millis(u64::from(number % 4)));
            merger.poll();
        }
        std::thread::sleep(Duration::from_millis(10));
        stop.store(true, Ordering::Relaxed);
        lcore.join().unwrap();
    });

    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let (sent, entered): (Vec<_>, Vec<_>) = seen.into_iter().partition(|(.., sent)| *sent);
    let of = |seen: Vec<(u16, Arrival, bool)>| -> Vec<(u16, Arrival)> {
        seen.into_iter().map(|(number, arrival, _)| (number, arrival)).collect()
    };
    let entered = of(entered);
    assert_eq!(entered.len(), truth.len());
    assert_eq!(entered, of(sent), "the same when they are sent");
    let (mut widths, mut bounds) = (Vec::new(), Vec::new());
    for (number, arrival) in entered {
        let (before_ns, after_ns) = truth[usize::from(number)];
        match stamp(number, before_ns) {
            // Whoever sent it was held up, so that its stamp is not to be believed.
            Some(_) if after_ns - before_ns > CLOCKS_NS / 2 => {}
            Some(ns) if number % 3 == 0 => assert_eq!(arrival, Arrival::at(ns)),
            _ => {
                assert!(arrival.earliest_ns <= after_ns + CLOCKS_NS, "{arrival:?}, {after_ns}");
                assert!(arrival.latest_ns + CLOCKS_NS >= before_ns, "{arrival:?}, {before_ns}");
                widths.push(arrival.width_ns());
                bounds.push(arrival.earliest_ns);
            }
        }
    }
    // On a busy machine an lcore waits for its CPU, and bounds are as wide as that.
    assert!(widths.iter().any(|width_ns| *width_ns < 20_000_000), "{widths:?}");
    bounds.sort_unstable();
    bounds.dedup();
    assert!(bounds.len() >= 5, "each poll has bounds of its own: {bounds:?}");
    assert_eq!(pool.in_use(), 0);
}

/// Puts what is received back into the ring that it comes from, so that no poll finds it empty or
/// finds as many packets as it could take. Counts the polls, one after the other, that find an
/// event of the measurement due.
struct Again {
    into_ring: TxQueue,
    due_ns: u64,
    polls: usize,
    most: usize,
}

impl Forwarder for Again {
    fn forward(&mut self, worker: &mut Worker, _: &[PortQueues], _: usize, burst: &mut Burst) {
        let due_ns = worker.next_due_ns();
        let waits = worker.keys().is_some() && due_ns == self.due_ns && due_ns <= unix_ns();
        self.polls = if waits { self.polls + 1 } else { 0 };
        (self.due_ns, self.most) = (due_ns, self.most.max(self.polls));
        self.into_ring.tx(burst);
        assert!(burst.is_empty());
    }

    fn flush(
        &mut self,
        _: &mut Worker,
        _: &mut [PortQueues],
        _: usize,
        _: &mut Burst,
        _: u32,
        _: impl FnMut() -> u64,
    ) {
    }

    fn poll(
        &mut self,
        _: &mut Worker,
        _: &mut [PortQueues],
        _: u32,
        _: impl FnMut() -> u64,
    ) -> bool {
        false
    }
}

/// Virtio's driver leaves packets behind by polls that take fewer than they may.
#[test]
fn an_epoch_waits_to_be_taken_while_short_polls_may_have_left_packets() {
    let _alone = POLLING.lock().unwrap_or_else(PoisonError::into_inner);
    let pool = Mempool::new(eal(), "short polls", 1023, -1).unwrap();
    let (ring_rx, mut into_ring) = open("net_ring1", &pool);
    let (_, spare_tx) = open("net_null2", &pool);
    let mut burst = Burst::<32>::new();
    for number in 0..5 {
        let frame = Udp { ports: (number, 9), ..Udp::new("10.1.0.2", "10.2.0.1") }.frame(H0);
        burst.push(pool.alloc_with(&frame).unwrap()).unwrap();
    }
    into_ring.tx(&mut burst);
    assert!(burst.is_empty());
    let ports = vec![port((ring_rx, spare_tx), Role::Fabric, 0, "net_virtio")];
    let again = Again { into_ring, due_ns: 0, polls: 0, most: 0 };

    let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
    let first_epoch = clock.epoch_at(unix_ns()) + 2;
    let (mut merger, mut mailboxes) = LcoreMerger::new(1);
    let probe = Box::new(Probe(Seen::default()));
    merger.begin(clock, first_epoch, Secret::new([0; 32]), KeyKind::Ipv4, vec![probe]);
    let policy = Policy::default();
    let worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
    let settings = Settings { policy, idle_sleep_us: 0, idle_polls: 1000, transmit_retries: 0 };
    let (_lines, mut lines) = Lines::new(1, dpdk::tsc_hz());
    let (line, stop) = (lines.remove(0), AtomicBool::new(false));
    let (finished, again) = std::thread::scope(|scope| {
        let stopping = &stop;
        let lcore = scope.spawn(move || lcore::run(worker, ports, again, settings, line, stopping));
        while unix_ns() < clock.start_of(first_epoch + 8) {
            std::thread::sleep(Duration::from_millis(5));
            merger.poll();
        }
        stop.store(true, Ordering::Relaxed);
        lcore.join().unwrap()
    });
    // A flip waits for one.
    assert!(again.most > 20, "{} polls", again.most);
    let mut left = finished.ports;
    assert_eq!(left[0].rx.rx(&mut burst), 5);
    drop(burst);
    assert_eq!(pool.in_use(), 0);
}
