//! Figures 7(a) and (b) of the SketchINT paper: which flows have many packets at a switch, and
//! which many more or fewer than in the window before.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use calumma_analysis::{Collected, Delivery, EpochHead, Flow, HashKeys, Node, NodeEnd};
use calumma_baselines::{ConservativeUpdate, CountMin, Insert, Query};
use calumma_epoch::{EpochClock, Guards};
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_plane::Record;
use calumma_plane::int::{Hop, Stack};
use calumma_sketch::sketchint::{Cell, Claims, Pairs, Path, Rows, Shape, WAYS};
use calumma_sketch::{BURST, FlowKey, HashFamily, HashKey, Insertion};
use calumma_sketchint::frames::{Layout, Window};
use calumma_sketchint::plane::{Leaving, SinkSetup, SinkWindow};
use calumma_sketchint_analysis::report::{Change, Found};
use calumma_sketchint_analysis::{Limits, Windows};
use calumma_wire::{Role, Side, SideKind, SystemId};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::Setup;
use super::answers::f1;
use super::latency::{HOPS, way_to_sink};
use super::sketchint::{Tower, even_levels};
use crate::workload;

pub(super) const FIGURE: Figure<Setup> = Figure {
    name: "sketchint-07-heavy",
    title: "SketchINT, figure 7(a) and (b): heavy hitters and heavy changes at switches",
    claim: "With 10 KB TowerCU's heavy hitters have an F1 of 0.765 where CM has 0.446 and CU 0.667, and \
            with 50 KB 0.99; heavy changes 0.688, 0.462 and 0.536, and 0.98. Keys are kept in a table \
            that is not counted. The goal of this project: with 40 KB 0.99 of both, keys counted in, \
            while flows change their paths.",
    measure,
};

/// More packets make a heavy hitter, and more or fewer by so many a heavy change.
const HITTER: u32 = 1500;
const CHANGE: u32 = 750;

/// One flow in so many takes another path in the middle of a window.
const CHANGES_PATH: usize = 20;

/// Epochs of a window, of 50 ms.
const EPOCHS: u64 = 100;

/// A flow at a switch.
type At = (u32, Flow);

/// One packet in so many of a window comes before the sink has sent what it kept of the last.
const EARLY: usize = 100;

/// Packets of three windows, one after the other, at one sink: their flows' and paths' numbers.
/// What is asked is of the second and the third.
struct Traffic {
    flows: Vec<FlowKey>,
    paths: Vec<Path>,
    windows: [Vec<(u32, u32)>; 3],
    truth: Large,
}

/// Flows at switches that are large in the last window, or changed.
#[derive(Default)]
struct Large {
    hitters: HashSet<At>,
    changes: HashSet<At>,
}

impl Traffic {
    fn new(number: usize, packets: usize, seed: u64) -> Self {
        let flows = workload::keys(number, seed);
        let [first, second] = workload::zipf_epochs(flows.clone(), packets, 1.0, seed);
        let numbers: HashMap<FlowKey, u32> =
            flows.iter().zip(0..).map(|(key, at)| (*key, at)).collect();
        let mut rng = StdRng::seed_from_u64(seed);
        let drawn = [workload::zipf_of(&flows, packets, 1.0, &mut rng), first, second];
        let mut paths: Vec<Path> = Vec::new();
        let mut take = |rng: &mut StdRng| {
            let path = way_to_sink(rng);
            let at = paths.iter().position(|other| *other == path);
            at.unwrap_or_else(|| {
                paths.push(path);
                paths.len() - 1
            }) as u32
        };
        let mut by: Vec<u32> = flows.iter().map(|_| take(&mut rng)).collect();
        let windows = drawn.map(|keys| {
            let changes: HashMap<usize, usize> = (0..number / CHANGES_PATH)
                .map(|_| (rng.random_range(0..packets), rng.random_range(0..number)))
                .collect();
            let packet = |(at, key): (usize, &FlowKey)| {
                if let Some(&flow) = changes.get(&at) {
                    by[flow] = take(&mut rng);
                }
                let flow = numbers[key];
                (flow, by[flow as usize])
            };
            keys.iter().enumerate().map(packet).collect()
        });
        let truth = Large::default();
        let mut traffic = Self { flows, paths, windows, truth };
        traffic.truth = traffic.counted();
        traffic
    }

    /// What is true of it.
    fn counted(&self) -> Large {
        let mut counts: HashMap<(u32, u32), [u32; 2]> = HashMap::new();
        for (window, packets) in self.windows[1..].iter().enumerate() {
            for &(flow, path) in packets {
                for &node in self.paths[path as usize].nodes() {
                    counts.entry((node, flow)).or_default()[window] += 1;
                }
            }
        }
        let chosen = |is: fn([u32; 2]) -> bool| {
            let all = counts.iter().filter(|(_, packets)| is(**packets));
            all.map(|(&(node, flow), _)| (node, self.flow(flow))).collect()
        };
        Large {
            hitters: chosen(|[_, now]| now > HITTER),
            changes: chosen(|[before, now]| before.abs_diff(now) > CHANGE),
        }
    }

    fn flow(&self, number: u32) -> Flow {
        Flow::from(&self.flows[number as usize])
    }

    /// As the paper does it: a sketch of the packets of each flow, and beside it a table of the
    /// flows that it has found large with the path that each came by, which takes no memory.
    fn by_sketch<S: Insert + Query>(&self, new: impl Fn() -> S) -> Large {
        let [_, first, second] = &self.windows;
        let windows = [first, second].map(|packets| {
            let (mut sketch, mut table) = (new(), HashMap::new());
            for &(flow, path) in packets {
                let key = &self.flows[flow as usize];
                sketch.insert(key);
                if sketch.query(key) > CHANGE {
                    table.insert(flow, path);
                }
            }
            (sketch, table)
        });
        let [(before, old), (sketch, table)] = &windows;
        let mut found = Large::default();
        let at = |flow: u32, path: u32| {
            let nodes = self.paths[path as usize].nodes().iter();
            nodes.map(move |&node| (node, self.flow(flow)))
        };
        for (&flow, &path) in table {
            if sketch.query(&self.flows[flow as usize]) > HITTER {
                found.hitters.extend(at(flow, path));
            }
        }
        for (&flow, &path) in old.iter().chain(table) {
            let key = &self.flows[flow as usize];
            if before.query(key).abs_diff(sketch.query(key)) > CHANGE {
                found.changes.extend(at(flow, table.get(&flow).copied().unwrap_or(path)));
            }
        }
        found
    }

    /// As reports have it, of an end host's sink whose rows take so many bytes, by `of_rows`.
    fn by_rows(&self, bytes: usize, of_rows: fn(usize) -> usize) -> Result<Large> {
        let layout = Layout {
            shape: shape(bytes, of_rows),
            heavy_packets: HITTER,
            heavy_change_packets: CHANGE,
            ..Layout::default()
        };
        let key = HashKey::from_bytes([7; 32]);
        let names = BTreeMap::new();
        let mut windows = Windows::new(layout, Limits::default(), HashKeys::new(key), names);
        let node = Arc::new(Node { name: "h1".to_owned(), role: Role::Host, id: 1 });
        let mut found = None;
        for (number, frame) in (1..).zip(self.frames(layout, &key)?) {
            let epoch = number * EPOCHS;
            let side = Side {
                system: SystemId::SKETCHINT,
                epoch,
                side: SideKind::Host,
                stall_ns: 0,
                packets: frame.totals.packets,
                counters: Vec::new(),
                body: frame.encode(),
            };
            let window = windows.decode(&node, &side).map_err(|error| anyhow!(error))?;
            let delivery = Delivery {
                node: node.clone(),
                sides: vec![(SideKind::Host, Some(window))],
                doubts: Vec::new(),
                end: NodeEnd { late_packets: Some(0), ..NodeEnd::default() },
            };
            let head = EpochHead { epoch, start_unix_ns: 0, length_ms: EPOCHS * 50 };
            let collected = Collected { head, nodes: vec![delivery], topology: None };
            found = Some(windows.analyse(&collected, EPOCHS, "on").0);
        }
        Ok(known(&found.context("no window")?))
    }

    /// What a sink sends of each window.
    fn frames(&self, layout: Layout, key: &HashKey) -> Result<Vec<Window>> {
        let clock = EpochClock::new(50_000_000, Guards::default())?;
        let (family, claims) = (HashFamily::new(key), layout.claims(1));
        let setup = SinkSetup { layout, own: None, family, claims, clock, has_times: false };
        let setup = Arc::new(setup);
        let stack = |path: &Path| {
            let mut stack = Stack::EMPTY;
            let hops = path.nodes().iter();
            hops.for_each(|&node| stack.push(Hop { node, latency_ns: 1000, ..Hop::UNKNOWN }));
            stack
        };
        let stacks: Vec<Stack> = self.paths.iter().map(stack).collect();
        let record = |sink: &mut SinkWindow<FlowKey, ()>, packets: &[(u32, u32)]| {
            for burst in packets.chunks(BURST) {
                let keys: Vec<FlowKey> = burst.iter().map(|of| self.flows[of.0 as usize]).collect();
                let stacks: Vec<_> = burst.iter().map(|of| Some(&stacks[of.1 as usize])).collect();
                sink.record(&Leaving { keys: &keys, hashes: None, polled_ns: 0 }, &stacks);
            }
        };
        let mut frames = Vec::new();
        let mut last: Option<SinkWindow<FlowKey, ()>> = None;
        for packets in &self.windows {
            let mut sink = SinkWindow::new(setup.clone(), (), 1)?;
            sink.begin(&(), 0);
            let (early, others) = packets.split_at(packets.len() / EARLY);
            record(&mut sink, early);
            if let Some(last) = last {
                last.renew_claims();
                frames.push(last.frame(key.id(), 1));
            }
            record(&mut sink, others);
            last = Some(sink);
        }
        frames.extend(last.map(|last| last.frame(key.id(), 1)));
        Ok(frames)
    }
}

/// What a report says of the packets that are known by name: no fewer than these were there.
fn known(found: &Found) -> Large {
    let mut all = Large::default();
    for node in &found.nodes {
        let hitters = node.heavy_hitters.iter().filter(|of| of.certain);
        all.hitters.extend(hitters.map(|of| (node.id, of.flow)));
        let changes = node.heavy_changes.iter().flatten();
        let is_heavy =
            |of: &&Change| of.before.at_least.abs_diff(of.after.at_least) > CHANGE.into();
        all.changes.extend(changes.filter(is_heavy).map(|of| (node.id, of.flow)));
    }
    all
}

/// Bytes of so many sets of rows, and of the claims to them.
pub(super) fn whole_rows(sets: usize) -> usize {
    let claims = Arc::new(Claims::new(sets, 1));
    Rows::<FlowKey>::new(sets, HOPS, false).with_claims(claims, CHANGE).bytes()
}

/// The same without latencies, for which figure 7(c) counts them: keys, paths and packets.
fn heads_of_rows(sets: usize) -> usize {
    whole_rows(sets) - sets * WAYS * HOPS * size_of::<Cell>()
}

/// As many rows as have room in so many bytes, and towers in what is left.
fn shape(bytes: usize, of_rows: fn(usize) -> usize) -> Shape {
    let mut sets = 1;
    while of_rows(2 * sets) < bytes {
        sets *= 2;
    }
    let least = Shape { tower_words: 16, pair_buckets: 16, ..Shape::default() };
    // Half of what is left for each of them.
    let rest = bytes.saturating_sub(of_rows(sets)) / 2;
    let tower_words = (rest / (4 * least.tower().len())).max(16) as u32;
    let of_pairs = |pair_buckets| Pairs::new(Shape { pair_buckets, ..least }.pairs()).memory();
    let pair_buckets = (16 * rest / of_pairs(16)).max(16) as u32;
    Shape {
        tower_words,
        pair_buckets,
        row_sets: sets as u32,
        hops: HOPS as u8,
        paths: 128,
        keys: 1,
        inflated: 1,
        ..least
    }
}

type Contender = (&'static str, fn(&Traffic, usize, u64) -> Result<Large>);

const CONTENDERS: [Contender; 5] = [
    ("rows, keys counted", |traffic, bytes, _| traffic.by_rows(bytes, heads_of_rows)),
    ("rows, latencies counted too", |traffic, bytes, _| traffic.by_rows(bytes, whole_rows)),
    ("TowerCU", |traffic, bytes, seed| {
        let levels = even_levels(bytes, [8, 16, 32]);
        Ok(traffic.by_sketch(|| Tower::of(&levels, seed, Insertion::Cu)))
    }),
    ("CM", |traffic, bytes, seed| Ok(traffic.by_sketch(|| CountMin::new(bytes, seed)))),
    ("CU", |traffic, bytes, seed| Ok(traffic.by_sketch(|| ConservativeUpdate::new(bytes, seed)))),
];

fn measure(setup: &Setup) -> Result<Drawn> {
    let (flows, packets) = setup.choose((9_125, 2_000_000), (1_500, 60_000));
    let sizes: &[usize] = setup.choose(&[10, 20, 30, 40, 50], &[10]);
    let all: Vec<Traffic> =
        (1..=setup.choose(3, 1)).map(|seed| Traffic::new(flows, packets, seed)).collect();
    let memory = || Axis::linear("memory (KB)");
    let mut hitters = Chart::new("(a) heavy hitters", memory(), Axis::linear("F1 score"));
    let mut changes = Chart::new("(b) heavy changes", memory(), Axis::linear("F1 score"));
    let mut sentences = Vec::new();
    for (name, answer) in CONTENDERS {
        let (mut of_hitters, mut of_changes) = (Vec::new(), Vec::new());
        for &kilobytes in sizes {
            let mut sums = [0.0; 2];
            for (traffic, seed) in all.iter().zip(1..) {
                let found = answer(traffic, kilobytes * 1000, seed)?;
                let truth = &traffic.truth;
                sums[0] += f1(&found.hitters, &truth.hitters) / all.len() as f64;
                sums[1] += f1(&found.changes, &truth.changes) / all.len() as f64;
            }
            of_hitters.push((kilobytes as f64, sums[0]));
            of_changes.push((kilobytes as f64, sums[1]));
        }
        let listed = |points: &[(f64, f64)]| {
            let each = points.iter().map(|(size, value)| format!("{value:.3} at {size} KB"));
            each.collect::<Vec<_>>().join(", ")
        };
        sentences.push(format!(
            "{name}: heavy hitters {}; heavy changes {}",
            listed(&of_hitters),
            listed(&of_changes)
        ));
        let series = if name.starts_with('C') { Series::new } else { Series::ours };
        hitters = hitters.with(series(name, of_hitters));
        changes = changes.with(series(name, of_changes));
    }
    let number =
        |of: fn(&Large) -> usize| all.iter().map(|of_all| of(&of_all.truth)).sum::<usize>();
    let (heavy, changed) = (number(|of| of.hitters.len()), number(|of| of.changes.len()));
    Ok(sentences
        .into_iter()
        .fold(Drawn::new(vec![hitters, changes]), Drawn::measured)
        .because(format!(
            "Two windows of {packets} packets of {flows} flows by Zipf(1.0), {HOPS} hops each, in the second \
             of which one flow in ten has another's size; one in {CHANGES_PATH} changes its path in a \
             window. Before them is a third, for rows that have claims from it; the last window's \
             claims hold from a window's {EARLY}th part on. {heavy} heavy hitters and {changed} heavy changes at switches, in {} such pairs.",
            all.len()
        ))
        .because(
            "Rows are found by reports: packets of a flow at a switch that rows have, towers apart. They \
             keep latencies at each hop as well, which figure 7(c) counts. There is a power of two sets of \
             them. The table of paths, which all flows share, is not counted, and neither are the \
             switches' histograms. For the others, the table of keys and paths is unbounded and free.",
        ))
}
