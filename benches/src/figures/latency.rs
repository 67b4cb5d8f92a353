//! Figures 7(c), 7(d) and 8 of the SketchINT paper: latencies of flows at switches, as a sink sums
//! them up, and what it costs to collect them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use anyhow::Result;
use calumma_baselines::LatencyCountMin;
use calumma_epoch::{EpochClock, Guards};
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_plane::int::{Hop, Stack};
use calumma_sketch::sketchint::{Pairs, Path, Shape, flow_word};
use calumma_sketch::{FlowKey, HashFamily, HashKey, WideKey};
use calumma_sketchint::frames::Layout;
use calumma_sketchint::plane::{Leaving, SinkSetup, SinkWindow};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::Setup;
use super::heavy::whole_rows;
use crate::{passport, workload};

/// Error of means, and inflated latencies found.
pub(super) const FIGURE: Figure<Setup> = Figure {
    name: "sketchint-07",
    title: "SketchINT, figure 7(c) and (d): latencies of flows at switches",
    claim: "With 3 MB the towers' error of mean latency is 0.11 where CM's is 0.18; with 600 KB they \
            find inflated latencies (5 times the mean) with an F1 of 0.976, CM with 0.961. The goal of \
            this project: with 1 MB an error of at most 0.01, and an F1 of at least 0.99.",
    measure: accuracy,
};

/// Bytes and packets of collection.
pub(super) const COLLECTION: Figure<Setup> = Figure {
    name: "sketchint-08",
    title: "SketchINT, figure 8: bytes and packets of collection, beside INT of every packet",
    claim: "With 3 % of the bytes and 0.03 % of the packets of INT in passport mode, mean latencies are \
            off by less than 5 %. The goal of this project: 0.6 % of the bytes and 0.01 % of the packets \
            with an error of at most 1 %.",
    measure: collection,
};

/// Switches on a path.
pub(super) const HOPS: usize = 5;

/// Multiples of the mean above which a latency is inflated, and packets before it that the mean
/// must be of.
const TIMES: u64 = 5;
const SEEN: u64 = 8;

/// Hundredths of the memory that rows take, the rest being the towers'.
const OF_ROWS: usize = 75;

/// The unit of sums in towers, in nanoseconds.
const UNIT_NS: u32 = 64;

/// A window at one sink: packets of flows, each with its latencies at the switches of its path.
pub(super) struct Window {
    family: HashFamily,
    flows: Vec<(FlowKey, Path)>,
    /// Flow and latencies in nanoseconds.
    packets: Vec<(u32, [u32; HOPS])>,
}

pub(super) type OfFlow = (FlowKey, u32);

/// What is true of a window.
pub(super) struct Truth {
    /// The mean of each flow at each switch, in nanoseconds.
    pub(super) means: BTreeMap<OfFlow, f64>,
    inflated: BTreeSet<OfFlow>,
}

/// The mean latency of a flow at a switch, in nanoseconds.
type Mean = Box<dyn Fn(&FlowKey, u32) -> f64>;

/// What somebody says of it.
struct Answer {
    mean: Mean,
    inflated: BTreeSet<OfFlow>,
    /// Bytes that are collected of it.
    bytes: usize,
}

impl Window {
    /// Paths of a fat-tree's five hops to one edge switch. A switch's latency is a queue's: it
    /// wanders with time between one and some forty microseconds, and of a thousand packets one
    /// waits ten to a hundred times as long.
    pub(super) fn new(flows: usize, packets: usize, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let keys = workload::keys(flows, seed);
        let flows: Vec<(FlowKey, Path)> =
            keys.iter().map(|key| (*key, way_to_sink(&mut rng))).collect();
        let numbers: HashMap<FlowKey, u32> =
            flows.iter().enumerate().map(|(at, (key, _))| (*key, at as u32)).collect();
        let [drawn, _] = workload::zipf_epochs(keys, packets, 1.0, seed);
        let mut queues: HashMap<u32, f64> = HashMap::new();
        let packets = drawn.iter().map(|key| {
            let number = numbers[key];
            let nodes = flows[number as usize].1.nodes();
            let latencies = std::array::from_fn(|hop| {
                let queue = queues.entry(nodes[hop]).or_insert(5_000.0);
                *queue = (*queue * rng.random_range(0.9..1.11)).clamp(1_000.0, 40_000.0);
                let inflated = rng.random_bool(0.001);
                let times = if inflated { rng.random_range(10.0..100.0) } else { 1.0 };
                (*queue * times * rng.random_range(0.8..1.2)) as u32
            });
            (number, latencies)
        });
        let packets = packets.collect();
        let family = HashFamily::new(&HashKey::from_bytes([seed as u8; 32]));
        Self { family, flows, packets }
    }

    pub(super) fn packets(&self) -> impl Iterator<Item = (&FlowKey, &Path, &[u32; HOPS])> {
        self.packets.iter().map(|(number, latencies)| {
            let (key, path) = &self.flows[*number as usize];
            (key, path, latencies)
        })
    }

    pub(super) fn truth(&self) -> Truth {
        let mut sums: BTreeMap<OfFlow, [u64; 2]> = BTreeMap::new();
        let mut inflated = BTreeSet::new();
        for (key, path, latencies) in self.packets() {
            for (&node, &latency) in path.nodes().iter().zip(latencies) {
                let [packets, sum] = sums.entry((*key, node)).or_default();
                if is_inflated(*packets, *sum, latency) {
                    inflated.insert((*key, node));
                }
                *packets += 1;
                *sum += u64::from(latency);
            }
        }
        let mean = |(of, [packets, sum]): (OfFlow, [u64; 2])| (of, sum as f64 / packets as f64);
        Truth { means: sums.into_iter().map(mean).collect(), inflated }
    }

    /// By a sketch of so many bytes that is asked for packets and sum of latencies before each
    /// packet.
    fn by_sketch<S: 'static>(
        &self,
        (bytes, mut sketch): (usize, S),
        insert: fn(&mut S, u64, u32, u32),
        query: fn(&S, u64, u32) -> [u64; 2],
    ) -> Answer {
        let mut inflated = BTreeSet::new();
        for (key, path, latencies) in self.packets() {
            let word = flow_word(&self.family.hash(key));
            for (&node, &latency) in path.nodes().iter().zip(latencies) {
                let [packets, sum] = query(&sketch, word, node);
                if is_inflated(packets, sum, latency) {
                    inflated.insert((*key, node));
                }
                insert(&mut sketch, word, node, latency.div_ceil(UNIT_NS));
            }
        }
        let family = self.family.clone();
        let mean = move |key: &FlowKey, node| {
            let [packets, sum] = query(&sketch, flow_word(&family.hash(key)), node);
            sum as f64 / packets.max(1) as f64
        };
        Answer { mean: Box::new(mean), inflated, bytes }
    }

    /// By rows of three quarters of so many bytes, and towers beside them.
    fn by_rows(&self, bytes: usize) -> Result<Answer> {
        let least = Shape {
            unit_ns: UNIT_NS,
            hops: HOPS as u8,
            inflated: u16::MAX,
            pair_buckets: 1 << 16,
            ..Shape::default()
        };
        let sets = bytes * OF_ROWS / 100 / whole_rows(1);
        let of_bucket = Pairs::new(least.pairs()).memory() as f64 / f64::from(least.pair_buckets);
        let pair_buckets = ((bytes - whole_rows(sets)) as f64 / of_bucket) as u32;
        let shape = Shape { row_sets: sets as u32, pair_buckets, ..least };
        let frame = self.by_sink(shape)?.frame(0, 1);
        let mut rows: HashMap<(WideKey, u32), [u64; 2]> = HashMap::new();
        let mut exact = HashSet::new();
        for row in &frame.rows {
            exact.extend(row.is_exact.then_some(row.key));
            let path = frame.paths[row.path as usize - 1].path;
            for (&node, cell) in path.nodes().iter().zip(&row.hops) {
                let [packets, sum] = rows.entry((row.key, node)).or_default();
                *packets += row.packets;
                *sum += cell.sum_ns;
            }
        }
        let narrow: HashMap<WideKey, FlowKey> =
            self.flows.iter().map(|(key, _)| (WideKey::from(*key), *key)).collect();
        let inflated = frame.inflated.iter();
        let inflated = inflated.filter_map(|of| Some((*narrow.get(&of.key)?, of.node))).collect();
        let (family, bytes) = (self.family.clone(), frame.encode().len());
        let mean = move |key: &FlowKey, node| {
            let wide = WideKey::from(*key);
            let [mut packets, mut sum] = rows.get(&(wide, node)).copied().unwrap_or_default();
            if !exact.contains(&wide) {
                let pair = frame.pairs.query(flow_word(&family.hash(key)), node);
                packets += u64::from(pair.packets.unwrap_or(u32::MAX));
                sum += u64::from(pair.latency.unwrap_or(u32::MAX)) * u64::from(UNIT_NS);
            }
            sum as f64 / packets.max(1) as f64
        };
        Ok(Answer { mean: Box::new(mean), inflated, bytes })
    }

    /// What a sink of this shape keeps of it.
    fn by_sink(&self, shape: Shape) -> Result<SinkWindow<FlowKey, ()>> {
        let layout = Layout {
            shape,
            heavy_packets: u32::MAX,
            heavy_change_packets: u32::MAX,
            inflation_percent: 100 * TIMES as u32,
        };
        let clock = EpochClock::new(50_000_000, Guards::default())?;
        let family = self.family.clone();
        let claims = layout.claims(1);
        let setup = SinkSetup { layout, own: None, family, claims, clock, has_times: false };
        let mut sink = SinkWindow::new(Arc::new(setup), (), 1)?;
        for (key, path, latencies) in self.packets() {
            let mut stack = Stack::EMPTY;
            for (&node, &latency_ns) in path.nodes().iter().zip(latencies) {
                stack.push(Hop { node, latency_ns, ..Hop::UNKNOWN });
            }
            let leaving = Leaving { keys: std::slice::from_ref(key), hashes: None, polled_ns: 0 };
            sink.record(&leaving, &[Some(&stack)]);
        }
        Ok(sink)
    }
}

/// The way of a flow from another part of a fat-tree to the sink, by five switches.
pub(super) fn way_to_sink(rng: &mut StdRng) -> Path {
    let pod = rng.random_range(1..4_u32);
    let [edge, up, core, down] = [2, 2, 4, 2].map(|of| rng.random_range(0..of));
    let nodes = [pod * 10 + edge, pod * 10 + 4 + up, 100 + core, 4 + down, 2];
    Path::new(nodes, false)
}

fn is_inflated(packets: u64, sum: u64, latency: u32) -> bool {
    packets >= SEEN && u64::from(latency) * packets > TIMES * sum
}

/// Towers of the paper's widths in as many bytes.
fn towers(bytes: usize) -> Pairs {
    let of = |pair_buckets| Pairs::new(Shape { pair_buckets, ..Shape::default() }.pairs());
    let of_bucket = of(1 << 16).bytes() as f64 / f64::from(1 << 16);
    of((bytes as f64 / of_bucket) as u32)
}

/// Who sums latencies up in so many bytes.
type Contender = (&'static str, fn(&Window, usize) -> Result<Answer>);

const CONTENDERS: [Contender; 3] = [
    ("rows and towers", Window::by_rows),
    ("towers", |window, bytes| {
        let insert = |towers: &mut Pairs, word, node, units| towers.insert(word, node, units, 1);
        let query = |towers: &Pairs, word, node| {
            let pair = towers.query(word, node);
            let [packets, sum] = [pair.packets, pair.latency].map(|of| of.unwrap_or(u32::MAX));
            [packets.into(), u64::from(sum) * u64::from(UNIT_NS)]
        };
        Ok(window.by_sketch((bytes, towers(bytes)), insert, query))
    }),
    ("CM", |window, bytes| {
        let sketch = (bytes, LatencyCountMin::new(bytes, 3));
        let query = |sketch: &LatencyCountMin, word, node| {
            let [packets, sum] = sketch.query(word, node);
            [packets.into(), u64::from(sum) * u64::from(UNIT_NS)]
        };
        Ok(window.by_sketch(sketch, LatencyCountMin::insert, query))
    }),
];

/// Mean relative error of the means, and F1 of the inflated latencies.
fn errors(truth: &Truth, answer: &Answer) -> [f64; 2] {
    let error =
        |(&(key, node), &mean): (&OfFlow, &f64)| ((answer.mean)(&key, node) - mean).abs() / mean;
    let are = truth.means.iter().map(error).sum::<f64>() / truth.means.len() as f64;
    let right = answer.inflated.intersection(&truth.inflated).count() as f64;
    let f1 = 2.0 * right / (answer.inflated.len() + truth.inflated.len()).max(1) as f64;
    [are, f1]
}

/// What came of a contender with so many bytes of memory, on average over windows.
struct Point {
    kilobytes: usize,
    are: f64,
    f1: f64,
    /// Bytes collected of a window.
    bytes: f64,
}

/// Windows of so many flows and packets, and how many flows at switches had inflated latencies.
struct Played {
    windows: usize,
    flows: usize,
    packets: usize,
    inflated: usize,
    points: Vec<(&'static str, Vec<Point>)>,
}

fn play(setup: &Setup) -> Result<Played> {
    let (flows, packets) = setup.choose((9_125, 2_000_000), (1_500, 60_000));
    let sizes: &[usize] = setup.choose(&[300, 600, 1000, 1500, 2000, 3000], &[100, 300]);
    let windows: Vec<(Window, Truth)> = (1..=setup.choose(3, 1))
        .map(|seed| {
            let window = Window::new(flows, packets, seed);
            let truth = window.truth();
            (window, truth)
        })
        .collect();
    let mut points = Vec::new();
    for (name, answer) in CONTENDERS {
        let mut of_sizes = Vec::new();
        for &kilobytes in sizes {
            let mut point = Point { kilobytes, are: 0.0, f1: 0.0, bytes: 0.0 };
            for (window, truth) in &windows {
                let answer = answer(window, kilobytes * 1000)?;
                let [are, f1] = errors(truth, &answer);
                let each = 1.0 / windows.len() as f64;
                point.are += are * each;
                point.f1 += f1 * each;
                point.bytes += answer.bytes as f64 * each;
            }
            of_sizes.push(point);
        }
        points.push((name, of_sizes));
    }
    let inflated = windows.iter().map(|(_, truth)| truth.inflated.len()).sum();
    Ok(Played { windows: windows.len(), flows, packets, inflated, points })
}

fn series(name: &str, points: Vec<(f64, f64)>) -> Series {
    if name == "CM" { Series::new(name, points) } else { Series::ours(name, points) }
}

/// Figures 7(c) and (d).
fn accuracy(setup: &Setup) -> Result<Drawn> {
    let played = play(setup)?;
    let memory = || Axis::linear("memory (KB)");
    let mut means = Chart::new("(c) mean latencies", memory(), Axis::log("ARE"));
    let mut inflated = Chart::new("(d) inflated latencies", memory(), Axis::linear("F1 score"));
    let mut sentences = Vec::new();
    for (name, points) in &played.points {
        let of = |y: fn(&Point) -> f64| -> Vec<(f64, f64)> {
            points.iter().map(|point| (point.kilobytes as f64, y(point))).collect()
        };
        let listed = |points: &[(f64, f64)]| {
            let each = points.iter().map(|(size, value)| format!("{value:.4} at {size} KB"));
            each.collect::<Vec<_>>().join(", ")
        };
        let (are, f1) = (of(|point| point.are), of(|point| point.f1));
        sentences.push(format!("{name}: ARE {}; F1 {}", listed(&are), listed(&f1)));
        means = means.with(series(name, are));
        inflated = inflated.with(series(name, f1));
    }
    let drawn = Drawn::new(vec![means, inflated]);
    let Played { windows, flows, packets, inflated, .. } = played;
    Ok(sentences
        .into_iter()
        .fold(drawn, Drawn::measured)
        .because(format!(
            "{packets} packets of {flows} flows by Zipf(1.0), {HOPS} hops each, queues that wander; \
             {inflated} flows at switches with inflated latencies in {windows} windows. The paper has \
             DCTCP's flow sizes, and latencies of its own testbed."
        ))
        .because(
            "Memory of towers and CM is that of their counters, as in the paper, and that of rows with \
             their keys and claims, beside towers as they stand in memory; the table of inflated latencies \
             is free for all, as the paper's is.",
        ))
}

/// Figure 8.
fn collection(setup: &Setup) -> Result<Drawn> {
    let played = play(setup)?;
    let error = || Axis::log("ARE of mean latencies");
    let mut bytes = Chart::new("(a) bytes", Axis::log("% of INT's bytes"), error());
    let mut packets = Chart::new("(b) packets", Axis::log("% of INT's packets"), error());
    let mut sentences = Vec::new();
    for (name, points) in &played.points {
        let of = |share: fn(f64, usize) -> f64| -> Vec<(f64, f64)> {
            let percent = |point: &Point| 100.0 * share(point.bytes, played.packets);
            points.iter().map(|point| (percent(point), point.are)).collect()
        };
        let (of_bytes, of_packets) = (of(passport::share_of_bytes), of(passport::share_of_packets));
        let each = of_bytes.iter().zip(&of_packets).map(|((bytes, are), (packets, _))| {
            format!("ARE {are:.4} with {bytes:.3} % and {packets:.4} %")
        });
        sentences.push(format!("{name}: {}", each.collect::<Vec<_>>().join(", ")));
        bytes = bytes.with(series(name, of_bytes));
        packets = packets.with(series(name, of_packets));
    }
    let drawn = Drawn::new(vec![bytes, packets]);
    Ok(sentences
        .into_iter()
        .fold(drawn, Drawn::measured)
        .because(format!(
            "A window of {} packets as in figure 7(c). In passport mode each packet's headers and stack \
             of {HOPS} hops, {} bytes, go to a collector as a telemetry report of their own; a sink's \
             window goes in frames of 9,000 bytes. Rows are counted as the frame has them that is sent to \
             the controller, with keys, paths, histograms and the table of inflated latencies; towers and \
             CM as their counters stand in memory, as in the paper.",
            played.packets,
            passport::REPORT_BYTES
        ))
        .because("What stacks add to packets between switches is the same for all and not drawn."))
}
