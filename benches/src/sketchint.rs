//! The cases of what a SketchINT sink keeps, beside the paper's host and its peers.

use std::hint::black_box;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use calumma_baselines::{
    ConservativeUpdate, CountMin, Elastic, Guarded, SharedTower, SketchIntHost,
};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::Record;
use calumma_plane::int::{Hop, Stack};
use calumma_sketch::sketchint::Shape;
use calumma_sketch::tower::Rule;
use calumma_sketch::{BURST, FlowKey, HashColumns, HashFamily, TowerSketch};
use calumma_sketchint::frames::Layout;
use calumma_sketchint::plane::{Leaving, SinkSetup, SinkWindow};

use crate::cases::mpps;
use crate::measure::{Case, Watch};
use crate::peers;

/// Switches that packets came by.
const HOPS: usize = 5;

/// The sink's own number.
const SINK: u32 = 90;

/// Lcores that record side by side, where several do.
const LCORES: usize = 2;

/// What packets of a burst came by: nodes and latencies.
pub(crate) type Ways = [([u32; HOPS], [u32; HOPS]); BURST];

/// What the packets of a burst met: the way of a fat-tree's flow follows from its key, and of
/// a thousand latencies one is long.
pub(crate) fn ways(keys: &[FlowKey], number: usize) -> Ways {
    std::array::from_fn(|at| {
        let flow = keys.get(at).map_or(0, |key| u32::from(key.sport()));
        let pod = 1 + flow % 3;
        let nodes = [pod * 10 + flow / 3 % 2, pod * 10 + 4 + flow / 6 % 2, 100 + flow / 12 % 4];
        let nodes = [nodes[0], nodes[1], nodes[2], 4 + flow / 48 % 2, 0];
        let latencies = std::array::from_fn(|hop| {
            let random = ((number * BURST + at) * HOPS + hop).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let latency = 1_000 + (random >> 50) as u32;
            if (random >> 20).is_multiple_of(1000) { latency * 40 } else { latency }
        });
        (nodes, latencies)
    })
}

fn fill(stack: &mut Stack, (nodes, latencies): &([u32; HOPS], [u32; HOPS])) {
    stack.clear();
    for (&node, &latency_ns) in nodes.iter().zip(latencies) {
        stack.push(Hop { node, latency_ns, ..Hop::UNKNOWN });
    }
}

/// Millions of packets a second that `record` takes. What packets carry is made for each burst, in
/// the same memory, and is not part of the reading.
fn record_all<T>(
    packets: &[FlowKey],
    (mut carried, make): (T, impl Fn(&mut T, &Ways)),
    mut record: impl FnMut(&[FlowKey], &T),
) -> f64 {
    let watch = Watch::start();
    let (began, mut worked) = (dpdk::tsc(), 0);
    for (number, keys) in packets.chunks(BURST).enumerate() {
        make(&mut carried, &ways(keys, number));
        let from = dpdk::tsc();
        record(keys, &carried);
        worked += dpdk::tsc() - from;
    }
    let share = worked as f64 / (dpdk::tsc() - began) as f64;
    packets.len() as f64 * 1e3 / (watch.nanos() * share)
}

/// So many sets of rows, and as many rows whose latencies are counted by size.
fn shape(row_sets: u32, quantiles: u16) -> Shape {
    Shape { row_sets, quantiles, ..Shape::default() }
}

fn sink(family: &HashFamily, shape: Shape) -> SinkWindow<FlowKey, ()> {
    let layout = Layout { shape, ..Layout::default() };
    let clock = EpochClock::new(50_000_000, Guards::default()).expect("a valid clock");
    let (family, has_times) = (family.clone(), false);
    let setup =
        SinkSetup { layout, own: Some(SINK), family, claims: layout.claims(1), clock, has_times };
    SinkWindow::new(Arc::new(setup), (), 1).expect("a valid layout")
}

/// A sink's work on packets with five hops, from the keys and the stacks that they came with.
fn record(family: &HashFamily, shape: Shape, packets: &[FlowKey]) -> impl FnMut() -> f64 {
    let mut window = sink(family, shape);
    move || {
        window.clear();
        window.begin(&(), 0);
        let make = |stacks: &mut [Stack; BURST], ways: &Ways| {
            stacks.iter_mut().zip(ways).for_each(|(stack, way)| fill(stack, way));
        };
        record_all(packets, ([Stack::EMPTY; BURST], make), |keys, stacks| {
            let stacks = stacks.each_ref().map(Some);
            let leaving = Leaving { keys, hashes: None, polled_ns: 0 };
            window.record(&leaving, &stacks[..keys.len()]);
        })
    }
}

/// The same by the paper's host, with as much memory.
fn record_by_peer(bytes: usize, packets: &[FlowKey]) -> impl FnMut() -> f64 {
    let empty = SketchIntHost::new(bytes, 3);
    move || {
        let mut host = empty.clone();
        let make = |carried: &mut Ways, ways: &Ways| *carried = *ways;
        let empty_ways = [([0; HOPS], [0; HOPS]); BURST];
        let speed = record_all(packets, (empty_ways, make), |keys, ways| {
            for (key, (nodes, latencies)) in keys.iter().zip(ways) {
                host.insert(key, nodes, latencies);
            }
        });
        black_box(host);
        speed
    }
}

/// Nanoseconds for one read-modify-write of a random line in so much memory: each line chosen by
/// what was read before, or all by a sequence that the CPU may work ahead on.
fn line_touch(bytes: usize, waits: bool) -> impl FnMut() -> f64 {
    const TOUCHES: usize = 4_000_000;
    let lines = bytes / 64;
    let mut memory = vec![[1_u64; 8]; lines];
    move || {
        let watch = Watch::start();
        let (mut random, mut read) = (1_u64, 0);
        for _ in 0..TOUCHES {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            // What was read is small, and changes the line all the same.
            let place = if waits { random ^ (read << 40) } else { random };
            let line = &mut memory[(((place >> 32) * lines as u64) >> 32) as usize];
            line[0] += 1;
            read = line[0];
        }
        black_box(&memory);
        watch.nanos() / TOUCHES as f64
    }
}

/// Hashing and inserting into a tower of sizes.
fn insert(tower: &mut TowerSketch, rule: Rule, family: &HashFamily, packets: &[FlowKey]) -> f64 {
    mpps(packets.len(), || {
        let mut hashes = HashColumns::default();
        for keys in packets.chunks(BURST) {
            family.hash_columns(keys, &mut hashes);
            if rule == Rule::Cm {
                black_box(tower.insert_burst::<true>(keys.len(), &hashes));
                continue;
            }
            for at in 0..keys.len() {
                black_box(tower.insert_weight(&hashes.of(at), 1, rule));
            }
        }
    })
}

fn tower(rule: Rule) -> TowerSketch {
    Shape { rule, ..Shape::default() }.empty_tower().expect("a valid tower")
}

/// Millions of packets a second of [`LCORES`] threads with a share of the packets each, by the time
/// that they have a CPU.
fn side_by_side(packets: &[FlowKey], lcore: impl Fn(&[FlowKey]) -> f64 + Sync) -> f64 {
    let lcore = &lcore;
    std::thread::scope(|scope| {
        let shares = packets.chunks(packets.len().div_ceil(LCORES));
        let threads: Vec<_> = shares.map(|share| scope.spawn(move || lcore(share))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no lcore panics")).sum()
    })
}

/// The same into one tower for all.
fn shared<W: Guarded + Send>(packets: &[FlowKey]) -> f64 {
    let tower = SharedTower::<W>::new(Shape::default().tower_words as usize, 3);
    side_by_side(packets, |share| {
        mpps(share.len(), || {
            share.iter().for_each(|key| {
                black_box(tower.insert(key));
            })
        })
    })
}

/// Towers of several lcores: of their own and merged, or one for all, with locks or without.
fn towers_side_by_side<'a>(family: &'a HashFamily, packets: &'a [FlowKey]) -> Vec<Case<'a>> {
    let own = move || {
        let merged = Mutex::new(tower(Rule::Cm));
        side_by_side(packets, |share| {
            let mut own = tower(Rule::Cm);
            let counted = insert(&mut own, Rule::Cm, family, share);
            let watch = Watch::start();
            merged.lock().expect("no lcore panics").merge(&own);
            let merging = watch.nanos() / share.len() as f64;
            1e3 / (1e3 / counted + merging)
        })
    };
    let name = |of: &str| format!("sketch.sketchint.tower.lcores{LCORES}.{of}");
    vec![
        Case::new(&name("own.mpps"), "Mpps", own),
        Case::new(&name("shared.mpps"), "Mpps", || shared::<AtomicU32>(packets)),
        Case::new(&name("locked.mpps"), "Mpps", || shared::<Mutex<u32>>(packets)),
        Case::new(&name("own_over_shared"), "ratio", move || own() / shared::<AtomicU32>(packets)),
        Case::new(&name("own_over_locked"), "ratio", move || own() / shared::<Mutex<u32>>(packets)),
    ]
}

/// All cases.
pub fn cases<'a>(family: &'a HashFamily, packets: &'a [FlowKey]) -> Vec<Case<'a>> {
    let rows = Shape::default();
    let (towers, by_size) = (shape(0, 0), shape(rows.row_sets, 256));
    let bytes = sink(family, rows).bytes();
    let mpps = |name: &str, run: Box<dyn FnMut() -> f64 + 'a>| Case::new(name, "Mpps", run);
    let ours = |shape| -> Box<dyn FnMut() -> f64 + 'a> { Box::new(record(family, shape, packets)) };
    let peer = || record_by_peer(bytes, packets);
    let over = |name: &str, shape, mut of: Box<dyn FnMut() -> f64 + 'a>| {
        let mut ours = record(family, shape, packets);
        Case::new(&format!("sketch.sketchint.record.{name}"), "ratio", move || ours() / of())
    };
    let touches = |waits| {
        let mut touch = line_touch(bytes, waits);
        move || 1e3 / touch()
    };
    let mut cases = vec![
        mpps("sketch.sketchint.record.h5.mpps", ours(rows)),
        mpps("sketch.sketchint.record.h5.mpps", ours(rows))
            .in_cycles("sketch.sketchint.record.h5.cycles"),
        mpps("sketch.sketchint.record.h5.quantiles.mpps", ours(by_size)),
        mpps("sketch.sketchint.record.tower.h5.mpps", ours(towers)),
        mpps("peer.sketchint.record.h5.mpps", Box::new(peer())),
        over("h5.over_peer", rows, Box::new(peer())),
        over("tower.h5.over_peer", towers, Box::new(peer())),
        over("h5.over_line_touch", rows, Box::new(touches(true))),
        over("h5.over_line_touch_ahead", rows, Box::new(touches(false))),
        Case::new("sketch.sketchint.memory.kb", "KB", move || bytes as f64 / 1e3),
    ];
    for (name, rule) in [("cm", Rule::Cm), ("cu", Rule::Cu), ("acu", Rule::Acu)] {
        let mut tower = tower(rule);
        cases.push(Case::new(&format!("sketch.sketchint.tower.{name}.mpps"), "Mpps", move || {
            tower.clear();
            insert(&mut tower, rule, family, packets)
        }));
    }
    let bytes = tower(Rule::Cm).bytes();
    cases.extend(towers_side_by_side(family, packets));
    cases.extend(
        [
            peers::insert("sketchint.cm", CountMin::new(bytes, 3), packets),
            peers::insert("sketchint.cu", ConservativeUpdate::new(bytes, 3), packets),
            peers::insert("sketchint.elastic", Elastic::new(bytes, 3), packets),
        ]
        .into_iter()
        .map(|[speed, _]| speed),
    );
    cases
}
