//! The cases of tables that count the flows of smallest rank, and of their peers.

use std::cell::RefCell;
use std::hint::black_box;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use calumma_baselines::{Choose, HeapMap, QMaxMap};
use calumma_sketch::table::{BoundedTable, Capacity, Rank, Sink};
use calumma_sketch::{BURST, FlowKey, HashFamily, HyperLogLog, grade};

use crate::cases::ns_each;
use crate::measure::Case;
use crate::workload;

/// Packets of a case.
const PACKETS: usize = 2_300_000;

/// How often the same packets are recorded to find out how long a burst takes at least.
const REPETITIONS: usize = 9;

/// Packets, each with the rank of its flow.
struct Traffic {
    keys: Vec<FlowKey>,
    ranks: Vec<Rank>,
}

impl Traffic {
    fn new(family: &HashFamily, keys: Vec<FlowKey>) -> Rc<Self> {
        let rank = |key| Rank::new(2, grade::fold(grade::word(&family.hash(key), 0), 0));
        Rc::new(Self { ranks: keys.iter().map(rank).collect(), keys })
    }

    /// Every second packet belongs to a flow of its own.
    fn with_churn(family: &HashFamily, packets: &[FlowKey]) -> Rc<Self> {
        let new = workload::keys(packets.len() / 2, 21);
        let old = packets.iter().copied().step_by(2);
        Self::new(family, old.zip(new).flat_map(|(old, new)| [old, new]).collect())
    }

    fn bursts(&self) -> impl Iterator<Item = (&[FlowKey], &[Rank])> {
        self.keys.chunks(BURST).zip(self.ranks.chunks(BURST))
    }
}

/// Counts packets; what has no entry is counted together.
#[derive(Default)]
struct Packets(u64);

impl Sink<FlowKey, [u64; 2]> for Packets {
    fn count(&mut self, value: &mut [u64; 2], packets: Range<usize>) {
        value[0] += packets.len() as u64;
        value[1] += 64 * packets.len() as u64;
    }

    fn refuse(&mut self, packets: Range<usize>) {
        self.0 += packets.len() as u64;
    }

    fn evict(&mut self, _: &FlowKey, _: Rank, value: &[u64; 2]) {
        self.0 += value[0];
    }
}

/// A table for so many flows whose filter has room for all the others of a case.
fn table(entries: u32) -> BoundedTable<FlowKey, [u64; 2]> {
    BoundedTable::new(Capacity { entries, filter_bits: 1 << 24 })
}

/// Recording, with all that it takes: hashes, index, filter, evictions.
fn record(
    name: &str,
    family: &HashFamily,
    entries: u32,
    traffic: &Rc<Traffic>,
) -> [Case<'static>; 2] {
    let case = |name: &str| {
        let (traffic, family, mut table) = (traffic.clone(), family.clone(), table(entries));
        Case::new(name, "ns/packet", move || {
            table.clear();
            let mut sink = Packets::default();
            let time = ns_each(traffic.keys.len(), || {
                for (keys, ranks) in traffic.bursts() {
                    table.record_burst(&family, keys, ranks, &mut sink);
                }
            });
            black_box(sink.0);
            time
        })
    };
    [case(&format!("{name}.ns")), case(name).in_cycles(&format!("{name}.cycles"))]
}

fn rank_of(rank: Rank) -> u64 {
    u64::from(rank.class()) << 32 | u64::from(rank.grade())
}

/// The same by a peer.
fn peer<C: Choose + 'static>(name: &str, mut table: C, traffic: Rc<Traffic>) -> Case<'static> {
    Case::new(name, "ns/packet", move || {
        table.clear();
        ns_each(traffic.keys.len(), || {
            for (key, &rank) in traffic.keys.iter().zip(&traffic.ranks) {
                table.record(key, rank_of(rank));
            }
        })
    })
}

/// The longest time, in microseconds, that any burst takes: of each burst the shortest time over
/// some repetitions counts, so that interrupts do not.
fn longest(
    name: &str,
    traffic: Rc<Traffic>,
    mut run: impl FnMut(&[FlowKey], &[Rank]) + 'static,
    mut clear: impl FnMut() + 'static,
) -> Case<'static> {
    Case::new(name, "us", move || {
        let mut shortest = vec![u128::MAX; traffic.keys.len().div_ceil(BURST)];
        for _ in 0..REPETITIONS {
            clear();
            for ((keys, ranks), shortest) in traffic.bursts().zip(&mut shortest) {
                let start = Instant::now();
                run(keys, ranks);
                *shortest = start.elapsed().as_nanos().min(*shortest);
            }
        }
        shortest.into_iter().max().unwrap_or(0) as f64 / 1e3
    })
}

fn longest_of_peer<C: Choose + 'static>(
    name: &str,
    table: C,
    traffic: Rc<Traffic>,
) -> Case<'static> {
    let table = Rc::new(RefCell::new(table));
    let clear = {
        let table = table.clone();
        move || table.borrow_mut().clear()
    };
    let run = move |keys: &[FlowKey], ranks: &[Rank]| {
        let mut table = table.borrow_mut();
        keys.iter().zip(ranks).for_each(|(key, &rank)| table.record(key, rank_of(rank)));
    };
    longest(name, traffic, run, clear)
}

fn longest_of_table(
    name: &str,
    family: &HashFamily,
    entries: u32,
    traffic: Rc<Traffic>,
) -> Case<'static> {
    let (table, family) = (Rc::new(RefCell::new(table(entries))), family.clone());
    let clear = {
        let table = table.clone();
        move || table.borrow_mut().clear()
    };
    let run = move |keys: &[FlowKey], ranks: &[Rank]| {
        table.borrow_mut().record_burst(&family, keys, ranks, &mut Packets::default());
    };
    longest(name, traffic, run, clear)
}

/// The table beside its peers on the same packets. The peers are given the ranks, too, hash by
/// themselves and remember nobody whom they refused.
fn beside_peers(
    case: &str,
    family: &HashFamily,
    entries: u32,
    traffic: &Rc<Traffic>,
) -> Vec<Case<'static>> {
    let count = entries as usize;
    let name = |of: &str| format!("peer.{of}.record{case}.ns");
    let mut cases = Vec::from(record(&format!("cfs.table.record{case}"), family, entries, traffic));
    cases.push(peer(&name("qmax_map"), QMaxMap::new(count), traffic.clone()));
    cases.push(peer(&name("heap_map"), HeapMap::new(count), traffic.clone()));
    cases
}

/// All cases.
pub fn cases(family: &HashFamily) -> Vec<Case<'static>> {
    let packets = workload::zipf(63_000, PACKETS, 1.1, 1);
    let zipf = Traffic::new(family, packets.clone());
    let new = Traffic::new(family, workload::keys(PACKETS, 31));
    let uniform = Traffic::new(family, workload::zipf(1_500_000, PACKETS, 0.0, 2));
    let churn = Traffic::with_churn(family, &packets);
    let mut cases = Vec::new();
    for (case, entries, traffic) in [
        (".10k", 10_000, &zipf),
        (".all_hit", 65_536, &zipf),
        (".all_new", 10_000, &new),
        (".1m", 1 << 20, &uniform),
        (".churn_10k", 10_000, &churn),
        (".churn_100k", 100_000, &churn),
    ] {
        cases.extend(beside_peers(case, family, entries, traffic));
    }
    let longest_of = |name: &str| format!("{name}.burst.longest.us");
    let (qmax, heap) = (QMaxMap::new(100_000), HeapMap::new(100_000));
    cases.push(longest_of_table(&longest_of("cfs"), family, 100_000, churn.clone()));
    cases.push(longest_of_peer(&longest_of("peer.qmax_map"), qmax, churn.clone()));
    cases.push(longest_of_peer(&longest_of("peer.heap_map"), heap, churn));
    let bytes = table(100_000).bytes_of_entries() as f64 / 1e5;
    cases.push(Case::new("cfs.table.bytes_per_entry", "bytes", move || bytes));
    cases.extend([grades(family, &packets), distinct(family, &packets)]);
    cases
}

/// Grading packets of a burst, whose hashes are at hand.
fn grades(family: &HashFamily, packets: &[FlowKey]) -> Case<'static> {
    const ROUNDS: usize = 1 << 11;
    let burst: Vec<_> = packets[..BURST].iter().map(|key| family.hash(key)).collect();
    Case::new("cfs.grade.ns", "ns/packet", move || {
        ns_each(ROUNDS * BURST, || {
            for _ in 0..ROUNDS {
                let grade = |(at, hashes)| grade::fold(grade::word(hashes, 7), (at & 3) as u8);
                let grades = black_box(&burst).iter().enumerate().map(grade);
                black_box(grades.fold(0, |sum, grade| sum ^ grade));
            }
        })
    })
}

/// Counting distinct flows by packets whose hashes are known.
fn distinct(family: &HashFamily, packets: &[FlowKey]) -> Case<'static> {
    let hashes: Vec<_> = packets[..1 << 16].iter().map(|key| family.hash(key)).collect();
    let mut sketch = HyperLogLog::new(12);
    Case::new("cfs.distinct.ns", "ns/packet", move || {
        sketch.clear();
        let time = ns_each(hashes.len(), || hashes.iter().for_each(|hashes| sketch.insert(hashes)));
        black_box(&sketch);
        time
    })
}
