//! Figures 4, 5 and 6 of the ChameleMon paper: the memory that packet loss detection takes, and the
//! time to decode it, beside FlowRadar and LossRadar.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Result;
use calumma_baselines::{FlowRadar, LossRadar};
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::{FermatSketch, FlowKey, HashFamily, HashKey, Shape};

use super::Setup;
use crate::measure::Watch;
use crate::workload;

/// Memory and time against the number of victim flows.
pub(super) const VICTIMS: Figure<Setup> = Figure {
    name: "chamelemon-04",
    title: "ChameleMon, figure 4: memory and time against victim flows",
    claim: "FermatSketch's memory and time are proportional to the number of victim flows. Of the \
            largest 10K flows some lose 1 % of their packets; FermatSketch saves up to 15.9 / 23.2 \
            times memory and 3.0 / 4.6 times decoding time against FlowRadar / LossRadar; above 6000 \
            victims it decodes more slowly than FlowRadar.",
    measure: |setup| {
        let flows = setup.choose(10_000, 1_000);
        let victims = setup.choose(&[500, 1_000, 2_500, 5_000, 7_500, 10_000][..], &[100, 1_000]);
        sweep(setup, "victim flows", victims, |&victims, packets| Workload {
            flows: packets[..flows].to_vec(),
            every: flows / victims,
            victims,
            rate: 0.01,
        })
    },
};

/// Memory and time against the loss rate.
pub(super) const LOSS_RATE: Figure<Setup> = Figure {
    name: "chamelemon-05",
    title: "ChameleMon, figure 5: memory and time against the packet loss rate",
    claim: "FermatSketch's memory and time do not depend on the number of lost packets. Of the \
            largest 10K flows the largest 100 lose packets; FermatSketch saves up to 276.1 / 6411.2 \
            times memory and 64.5 / 1585.6 times decoding time against FlowRadar / LossRadar.",
    measure: |setup| {
        let flows = setup.choose(10_000, 1_000);
        let percent = setup.choose(&[1, 2, 5, 10, 20, 50][..], &[1, 5]);
        sweep(setup, "loss rate (%)", percent, |&percent, packets| Workload {
            flows: packets[..flows].to_vec(),
            every: 1,
            victims: 100,
            rate: percent as f64 / 100.0,
        })
    },
};

/// Memory and time against the number of flows.
pub(super) const FLOWS: Figure<Setup> = Figure {
    name: "chamelemon-06",
    title: "ChameleMon, figure 6: memory and time against the number of flows",
    claim: "FermatSketch's memory and time do not depend on the number of flows. The largest 100 of \
            them lose 1 % of their packets; FermatSketch saves up to 1535.0 / 128.8 times memory and \
            821.3 / 23.7 times decoding time against FlowRadar / LossRadar.",
    measure: |setup| {
        let flows = setup.choose(&[10_000, 20_000, 40_000, 60_000, 80_000, 100_000][..], &[1_000]);
        sweep(setup, "flows", flows, |&flows, packets| Workload {
            flows: packets[..flows].to_vec(),
            every: 1,
            victims: 100,
            rate: 0.01,
        })
    },
};

const WHY: [&str; 5] = [
    "Traffic: 100,000 flows, 5.3 million packets, Zipf(1.1), in place of CAIDA's trace; no flow has \
     more than 65,535 packets, the most that LossRadar's 16 bits number.",
    "Keys are 5-tuples: a cell of FlowRadar takes 21 bytes instead of 12, one of LossRadar 19 instead \
     of 10, a bucket of FermatSketch 20 instead of 8. So the ratios of memory are lower than with the \
     paper's 4-byte keys.",
    "Memory is the least, within 2 %, at which 99.9 % of 5000 trials, each with hash functions of its \
     own, succeed; where a trial is long there are fewer, at least 20, and none may fail. Time is \
     the middle one of several decodes at that memory.",
    "A victim loses one packet at least. Most of the flows here are so small that 1 % is that one, so \
     LossRadar has fewer packets to tell than on the paper's trace, whose flows are larger.",
    "With few victims, 99.9 % is not ruled by the load but by two flows that share all three buckets, \
     whose chance falls slowly with memory: there the least memory is uncertain by a quarter.",
];

/// Which flows there are and what is lost of them.
struct Workload {
    /// Packets of each flow, the largest first.
    flows: Vec<u32>,
    /// Every so many flows one is a victim, from the largest on.
    every: usize,
    victims: usize,
    rate: f64,
}

impl Workload {
    /// Number and lost packets of each victim; every victim loses one at least.
    fn lost(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let loss = |packets: u32| (f64::from(packets) * self.rate).round().max(1.0) as u32;
        let victims = (0..self.flows.len()).step_by(self.every).take(self.victims);
        victims.map(move |flow| (flow, loss(self.flows[flow])))
    }

    fn lost_packets(&self) -> u32 {
        self.lost().map(|victim| victim.1).sum()
    }
}

/// A way of finding losses, in so many bytes, under hash functions of this seed: whether all were
/// found exactly, and the nanoseconds that it took to decode.
type Finder = fn(&Workload, &[FlowKey], usize, u64) -> (bool, f64);

/// Name, finder, items that it must decode, and bytes that an item takes at least.
type Contender = (&'static str, Finder, fn(&Workload) -> usize, usize);

const CONTENDERS: [Contender; 3] = [
    ("FermatSketch", fermat, |workload| workload.victims, 24),
    ("FlowRadar", flow_radar, |workload| workload.flows.len(), 28),
    ("LossRadar", loss_radar, |workload| workload.lost_packets() as usize, 23),
];

/// The difference of upstream and downstream is made at once: subtracting is exact.
fn fermat(workload: &Workload, keys: &[FlowKey], bytes: usize, seed: u64) -> (bool, f64) {
    let family = HashFamily::new(&HashKey::from_bytes(std::array::from_fn(|at| {
        (seed >> (8 * (at % 8))) as u8
    })));
    let shape = Shape::default();
    let buckets = bytes / (4 * shape.arithmetic.words()) / shape.arrays;
    let mut sketch = FermatSketch::new(shape.with_buckets(buckets.max(1)));
    for (flow, lost) in workload.lost() {
        sketch.insert(&family, &keys[flow], lost as i32);
    }
    let watch = Watch::start();
    let decoded = sketch.decode(&family);
    let nanos = watch.nanos();
    let right = |(flow, lost): (usize, u32)| decoded.packets_of(&keys[flow]) == Some(lost.into());
    let exact = decoded.is_complete()
        && decoded.flows().len() == workload.victims
        && workload.lost().all(right);
    (exact, nanos)
}

fn flow_radar(workload: &Workload, keys: &[FlowKey], bytes: usize, seed: u64) -> (bool, f64) {
    let mut upstream = FlowRadar::new(bytes, seed);
    let mut downstream = upstream.clone();
    let mut lost = workload.lost().peekable();
    let mut truth = Vec::with_capacity(workload.victims);
    for (flow, &packets) in workload.flows.iter().enumerate() {
        upstream.insert_many(&keys[flow], packets);
        let missing = lost.next_if(|victim| victim.0 == flow).map_or(0, |victim| victim.1);
        if missing > 0 {
            truth.push((keys[flow], missing));
        }
        if missing < packets {
            downstream.insert_many(&keys[flow], packets - missing);
        }
    }
    truth.sort_unstable();
    let watch = Watch::start();
    let found = FlowRadar::lost(upstream, downstream);
    let nanos = watch.nanos();
    (found.as_ref() == Some(&truth), nanos)
}

/// The difference of upstream and downstream is made at once: subtracting is exact.
fn loss_radar(workload: &Workload, keys: &[FlowKey], bytes: usize, seed: u64) -> (bool, f64) {
    let mut sketch = LossRadar::new(bytes, seed);
    let mut truth = Vec::with_capacity(workload.victims);
    for (flow, lost) in workload.lost() {
        (0..lost).for_each(|number| sketch.insert(&keys[flow], number as u16));
        truth.push((keys[flow], lost));
    }
    truth.sort_unstable();
    let watch = Watch::start();
    let found = sketch.decode();
    let nanos = watch.nanos();
    (found.as_ref() == Some(&truth), nanos)
}

fn sweep(
    setup: &Setup,
    unit: &str,
    values: &[usize],
    make: impl Fn(&usize, &[u32]) -> Workload,
) -> Result<Drawn> {
    let sizes = flow_sizes();
    let mut memory = Chart::new("memory", Axis::linear(unit), Axis::log("KB"));
    let mut time = Chart::new("decoding", Axis::linear(unit), Axis::log("ms"));
    let mut measured: Vec<Vec<(f64, f64)>> = Vec::new();
    for (name, find, items, item_bytes) in CONTENDERS {
        let mut points = Vec::new();
        for value in values {
            let workload = make(value, &sizes);
            let items = items(&workload);
            let trials = setup.choose((5_000_000 / items).clamp(20, 5000), 20);
            let keys = workload::keys(workload.flows.len(), items as u64);
            let succeeds = |bytes, seed| find(&workload, &keys, bytes, seed);
            let bytes =
                least(items * item_bytes, |bytes| often(trials, |seed| succeeds(bytes, seed).0));
            let mut times: Vec<f64> =
                (0..setup.choose(9, 3)).map(|seed| succeeds(bytes, seed).1).collect();
            times.sort_unstable_by(f64::total_cmp);
            points.push((bytes as f64 / 1e3, times[times.len() / 2] / 1e6));
        }
        let series = if measured.is_empty() { Series::ours } else { Series::new };
        let against = |pick: fn(&(f64, f64)) -> f64| {
            values.iter().zip(&points).map(|(&value, point)| (value as f64, pick(point))).collect()
        };
        memory = memory.with(series(name, against(|point| point.0)));
        time = time.with(series(name, against(|point| point.1)));
        measured.push(points);
    }
    let mut drawn = Drawn::new(vec![memory, time]);
    for (at, value) in values.iter().enumerate() {
        let [(kb, ms), flow, loss] = [measured[0][at], measured[1][at], measured[2][at]];
        drawn = drawn.measured(format!(
            "{value} {unit}: FermatSketch {kb:.1} KB and {ms:.3} ms; FlowRadar {:.1} times the memory \
             and {:.1} times the time, LossRadar {:.1} and {:.1} times",
            flow.0 / kb,
            flow.1 / ms,
            loss.0 / kb,
            loss.1 / ms
        ));
    }
    Ok(WHY.into_iter().fold(drawn, Drawn::because))
}

/// Packets of 100,000 flows, the largest first: 5.3 million in all but for the cut.
fn flow_sizes() -> Vec<u32> {
    let weights: Vec<f64> = (1..=100_000).map(|rank| f64::from(rank).powf(-1.1)).collect();
    let total: f64 = weights.iter().sum();
    weights
        .iter()
        .map(|weight| (5.3e6 * weight / total).round().clamp(1.0, 65_535.0) as u32)
        .collect()
}

/// The least number of bytes with which it succeeds, within 2 %.
fn least(guess: usize, succeeds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (guess / 2, guess);
    while !succeeds(high) {
        (low, high) = (high, high + high / 2);
    }
    while high - low > (high / 50).max(60) {
        let middle = low.midpoint(high);
        if succeeds(middle) { high = middle } else { low = middle }
    }
    high
}

/// Whether at most one trial in a thousand fails; ends at the first failure too many.
fn often(trials: usize, succeeds: impl Fn(u64) -> bool + Sync) -> bool {
    let (next, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let allowed = trials / 1000;
    let work = || {
        while failures.load(Ordering::Relaxed) <= allowed {
            let trial = next.fetch_add(1, Ordering::Relaxed);
            if trial >= trials {
                break;
            }
            if !succeeds(trial as u64) {
                failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    failures.into_inner() <= allowed
}
