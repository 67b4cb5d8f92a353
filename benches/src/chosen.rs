//! The cases of tables that count the flows of smallest rank, and of their peers.

use std::cell::{LazyCell, RefCell};
use std::hint::black_box;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use calumma_baselines::{Choose, FirstComeMap, HeapMap, QMaxMap};
use calumma_sketch::table::{BoundedTable, Capacity, Rank, Sink};
use calumma_sketch::{BURST, FlowKey, HashFamily, HyperLogLog, Key, WideKey, grade};
use dpdk::Eal;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::cases::ns_each;
use crate::measure::Case;
use crate::rte_hash::RteHash;
use crate::workload;

/// Packets of a case.
const PACKETS: usize = 2_300_000;

/// Packets of a case of which a share is of flows with an entry.
const PACKETS_OF_SHARES: usize = 1 << 20;

/// How often the same packets are recorded to find out how long a burst takes at least.
const REPETITIONS: usize = 9;

/// Packets, each with the rank of its flow.
#[derive(Default)]
struct Traffic {
    keys: Vec<FlowKey>,
    ranks: Vec<Rank>,
}

impl Traffic {
    /// Packets of flows of this class.
    fn new(family: &HashFamily, class: u8, keys: Vec<FlowKey>) -> Self {
        let rank = |key| Rank::new(class, grade::fold(grade::word(&family.hash(key), 0), 0));
        Self { ranks: keys.iter().map(rank).collect(), keys }
    }

    fn bursts(&self) -> impl Iterator<Item = (&[FlowKey], &[Rank])> {
        self.keys.chunks(BURST).zip(self.ranks.chunks(BURST))
    }
}

/// What a reading is of.
#[derive(Default)]
struct Work {
    /// Recorded before time is taken.
    before: Traffic,
    packets: Traffic,
}

/// The same, made when it is needed first.
type Lazy = Rc<LazyCell<Work, Box<dyn FnOnce() -> Work>>>;

fn lazy(work: impl FnOnce() -> Work + 'static) -> Lazy {
    let work: Box<dyn FnOnce() -> Work> = Box::new(work);
    Rc::new(LazyCell::new(work))
}

/// Work that begins with an empty table.
fn packets(family: &HashFamily, keys: impl FnOnce() -> Vec<FlowKey> + 'static) -> Lazy {
    let family = family.clone();
    lazy(move || Work { packets: Traffic::new(&family, 2, keys()), ..Work::default() })
}

fn zipf() -> Vec<FlowKey> {
    workload::zipf(63_000, PACKETS, 1.1, 1)
}

/// Every second packet belongs to a flow of its own.
fn with_churn() -> Vec<FlowKey> {
    let old = zipf().into_iter().step_by(2);
    old.zip(workload::keys(PACKETS / 2, 21)).flat_map(|(old, new)| [old, new]).collect()
}

/// Work that finds the table full of flows that stay. This share of the packets is of such flows,
/// drawn from a Zipf distribution, each of the others of a flow of its own that is not taken.
fn hits(family: &HashFamily, entries: usize, share: f64, exponent: f64) -> Lazy {
    let family = family.clone();
    lazy(move || {
        let mut rng = StdRng::seed_from_u64(51);
        let hits = (PACKETS_OF_SHARES as f64 * share).round() as usize;
        // With so many more the table has found out whom it will not take.
        let more = (entries / 4).max(1024);
        let mut known = workload::keys(entries + more + PACKETS_OF_SHARES - hits, 52);
        let new = known.split_off(entries + more);
        let others = Traffic::new(&family, 2, known.split_off(entries));
        let hits = workload::zipf_of(&known, hits, exponent, &mut rng);
        let mut before = Traffic::new(&family, 1, known);
        before.keys.extend(others.keys);
        before.ranks.extend(others.ranks);
        let of_class = |class, keys| {
            let Traffic { keys, ranks } = Traffic::new(&family, class, keys);
            keys.into_iter().zip(ranks)
        };
        let mut packets: Vec<_> = of_class(1, hits).chain(of_class(2, new)).collect();
        packets.shuffle(&mut rng);
        let (keys, ranks) = packets.into_iter().unzip();
        Work { before, packets: Traffic { keys, ranks } }
    })
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
fn table<K: Key>(entries: u32) -> BoundedTable<K, [u64; 2]> {
    BoundedTable::new(Capacity { entries, filter_bits: 1 << 24 })
}

/// What takes nanoseconds a packet each time, and may be read by several cases.
type Reading = Rc<RefCell<dyn FnMut() -> f64>>;

fn time(reading: &Reading) -> f64 {
    (reading.borrow_mut())()
}

fn case(name: &str, reading: &Reading) -> Case<'static> {
    let reading = reading.clone();
    Case::new(name, "ns/packet", move || time(&reading))
}

/// How many times as long as ours a peer takes, both read one after the other.
fn over(name: &str, ours: &Reading, peer: &Reading) -> Case<'static> {
    let (ours, peer) = (ours.clone(), peer.clone());
    Case::new(name, "ratio", move || {
        let ours = time(&ours);
        time(&peer) / ours
    })
}

/// Recording, with all that it takes: hashes, index, filter, evictions.
fn record(family: &HashFamily, entries: u32, work: &Lazy) -> Reading {
    let (work, family, mut table) = (work.clone(), family.clone(), table(entries));
    Rc::new(RefCell::new(move || {
        let mut sink = Packets::default();
        let mut record = |traffic: &Traffic| {
            for (keys, ranks) in traffic.bursts() {
                table.record_burst(&family, keys, ranks, &mut sink);
            }
        };
        record(&work.before);
        let time = ns_each(work.packets.keys.len(), || record(&work.packets));
        black_box(sink.0);
        table.clear();
        time
    }))
}

fn rank_of(rank: Rank) -> u64 {
    u64::from(rank.class()) << 32 | u64::from(rank.grade())
}

/// The same by a peer.
fn peer<C: Choose + 'static>(mut table: C, work: &Lazy) -> Reading {
    let work = work.clone();
    Rc::new(RefCell::new(move || {
        let mut record = |traffic: &Traffic| {
            for (key, &rank) in traffic.keys.iter().zip(&traffic.ranks) {
                table.record(key, rank_of(rank));
            }
        };
        record(&work.before);
        let time = ns_each(work.packets.keys.len(), || record(&work.packets));
        table.clear();
        time
    }))
}

/// The same by DPDK's hash table, which takes its memory when it is read first.
///
/// # Panics
/// When the EAL has not as much.
fn rte_hash(eal: &Eal, entries: u32, work: &Lazy) -> Reading {
    let (eal, work, mut table) = (eal.clone(), work.clone(), None);
    Rc::new(RefCell::new(move || {
        let make = || RteHash::new(&eal, entries).expect("the EAL has memory for it");
        let table = table.get_or_insert_with(make);
        let mut record = |traffic: &Traffic| {
            traffic.keys.chunks(BURST).for_each(|keys| table.record_burst(keys));
        };
        record(&work.before);
        let time = ns_each(work.packets.keys.len(), || record(&work.packets));
        table.clear();
        time
    }))
}

/// The longest time, in microseconds, that any burst takes: of each burst the shortest time over
/// some repetitions counts, so that interrupts do not.
fn longest(
    name: &str,
    work: Lazy,
    mut run: impl FnMut(&[FlowKey], &[Rank]) + 'static,
    mut clear: impl FnMut() + 'static,
) -> Case<'static> {
    Case::new(name, "us", move || {
        let traffic = &work.packets;
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

fn longest_of_peer<C: Choose + 'static>(name: &str, table: C, work: Lazy) -> Case<'static> {
    let table = Rc::new(RefCell::new(table));
    let clear = {
        let table = table.clone();
        move || table.borrow_mut().clear()
    };
    let run = move |keys: &[FlowKey], ranks: &[Rank]| {
        let mut table = table.borrow_mut();
        keys.iter().zip(ranks).for_each(|(key, &rank)| table.record(key, rank_of(rank)));
    };
    longest(name, work, run, clear)
}

fn longest_of_table(name: &str, family: &HashFamily, entries: u32, work: Lazy) -> Case<'static> {
    let (table, family) = (Rc::new(RefCell::new(table(entries))), family.clone());
    let clear = {
        let table = table.clone();
        move || table.borrow_mut().clear()
    };
    let run = move |keys: &[FlowKey], ranks: &[Rank]| {
        table.borrow_mut().record_burst(&family, keys, ranks, &mut Packets::default());
    };
    longest(name, work, run, clear)
}

/// The table beside its peers on the same packets. Those that choose by rank are given the ranks,
/// too, hash by themselves and remember nobody whom they refused; the others count flows as they
/// come, as long as there is room.
fn beside_peers(
    of: &str,
    (family, eal): (&HashFamily, &Eal),
    entries: u32,
    work: &Lazy,
) -> [Case<'static>; 7] {
    let count = entries as usize;
    let name = |peer: &str| format!("peer.{peer}.record{of}.ns");
    let ratio = |peer: &str| format!("cfs.table.over_{peer}{of}");
    let ours = record(family, entries, work);
    let rte_hash = rte_hash(eal, entries, work);
    let heap = peer(HeapMap::new(count), work);
    let ns = format!("cfs.table.record{of}.ns");
    let cycles = format!("cfs.table.record{of}.cycles");
    [
        case(&ns, &ours),
        case(&ns, &ours).in_cycles(&cycles),
        case(&name("rte_hash"), &rte_hash),
        over(&ratio("rte_hash"), &ours, &rte_hash),
        case(&name("hash_map"), &peer(FirstComeMap::new(count), work)),
        case(&name("heap_map"), &heap),
        over(&ratio("heap_map"), &ours, &heap),
    ]
}

/// All cases.
pub fn cases(family: &HashFamily, eal: &Eal) -> Vec<Case<'static>> {
    let churn = packets(family, with_churn);
    let zipf_of_all = packets(family, zipf);
    let new = packets(family, || workload::keys(PACKETS, 31));
    let uniform = packets(family, || workload::zipf(1_500_000, PACKETS, 0.0, 2));
    let mut cases = Vec::new();
    for (of, entries, work) in [
        (".10k", 10_000, &zipf_of_all),
        (".all_hit", 65_536, &zipf_of_all),
        (".all_new", 10_000, &new),
        (".1m", 1 << 20, &uniform),
        (".churn_10k", 10_000, &churn),
        (".churn_100k", 100_000, &churn),
    ] {
        cases.extend(beside_peers(of, (family, eal), entries, work));
        let qmax = peer(QMaxMap::new(entries as usize), work);
        cases.push(case(&format!("peer.qmax_map.record{of}.ns"), &qmax));
    }
    for (size, entries) in [("10k", 10_000), ("100k", 100_000), ("1m", 1_000_000)] {
        for (percent, share) in [(50, 0.5), (90, 0.9), (100, 1.0)] {
            for (drawn, exponent) in [("zipf", 1.1), ("uniform", 0.0)] {
                let work = hits(family, entries as usize, share, exponent);
                let of = format!(".hits_{percent}.{drawn}.{size}");
                cases.extend(beside_peers(&of, (family, eal), entries, &work));
            }
        }
    }
    let longest_of = |name: &str| format!("{name}.burst.longest.us");
    let (qmax, heap) = (QMaxMap::new(100_000), HeapMap::new(100_000));
    cases.push(longest_of_table(&longest_of("cfs"), family, 100_000, churn.clone()));
    cases.push(longest_of_peer(&longest_of("peer.qmax_map"), qmax, churn.clone()));
    cases.push(longest_of_peer(&longest_of("peer.heap_map"), heap, churn));
    let per_entry = |bytes: usize| bytes as f64 / 1e5;
    let narrow = per_entry(table::<FlowKey>(100_000).bytes_of_entries());
    let wide = per_entry(table::<WideKey>(100_000).bytes_of_entries());
    for (name, bytes) in
        [("cfs.table.bytes_per_entry", narrow), ("cfs.table.wide.bytes_per_entry", wide)]
    {
        cases.push(Case::new(name, "bytes", move || bytes));
    }
    let packets = workload::zipf(63_000, 1 << 16, 1.1, 1);
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
    let hashes: Vec<_> = packets.iter().map(|key| family.hash(key)).collect();
    let mut sketch = HyperLogLog::new(12);
    Case::new("cfs.distinct.ns", "ns/packet", move || {
        sketch.clear();
        let time = ns_each(hashes.len(), || hashes.iter().for_each(|hashes| sketch.insert(hashes)));
        black_box(&sketch);
        time
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use calumma_sketch::HashKey;

    use super::*;

    #[test]
    fn a_share_of_the_packets_is_of_flows_that_a_full_table_has() {
        let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
        for (share, exponent) in [(0.5, 1.1), (0.9, 0.0), (1.0, 1.1)] {
            let work = hits(&family, 2048, share, exponent);
            let (mut table, mut sink) = (table(2048), Packets::default());
            let mut record = |traffic: &Traffic, table: &mut BoundedTable<FlowKey, [u64; 2]>| {
                for (keys, ranks) in traffic.bursts() {
                    table.record_burst(&family, keys, ranks, &mut sink);
                }
                table.turnover()
            };
            let before = record(&work.before, &mut table);
            let after = record(&work.packets, &mut table);
            assert_eq!(work.packets.keys.len(), PACKETS_OF_SHARES);
            let mut packets: HashMap<FlowKey, u64> = HashMap::new();
            for key in work.before.keys[..2048].iter().chain(&work.packets.keys) {
                *packets.entry(*key).or_default() += 1;
            }
            let known = &work.before.keys[..2048];
            let hits: u64 = known.iter().map(|key| packets[key] - 1).sum();
            assert_eq!(hits, (PACKETS_OF_SHARES as f64 * share).round() as u64);
            assert_eq!(packets.len() as u64 - 2048, PACKETS_OF_SHARES as u64 - hits);
            for key in known {
                let counts = table.get(&family, key).expect("it stays");
                assert_eq!(*counts, [packets[key], 64 * packets[key]]);
            }
            // Of the others hardly one is taken.
            let taken = after.admitted - before.admitted;
            assert!(taken as usize <= PACKETS_OF_SHARES / 100, "{taken}");
        }
    }
}
