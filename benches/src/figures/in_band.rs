//! What the bytes that INT adds to packets buy: the error of mean latencies against bytes a packet
//! between switches. The SketchINT paper counts the bytes of collection only.

use std::collections::{BTreeMap, HashSet};

use anyhow::Result;
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::FlowKey;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::Setup;
use super::latency::{HOPS, OfFlow, Window};

pub(super) const FIGURE: Figure<Setup> = Figure {
    name: "sketchint-in-band",
    title: "SketchINT: error of mean latencies against bytes in packets",
    claim: "Beyond the paper, whose figures leave out what stacks add to packets between switches: with \
            five hops 56 bytes each by INT-MD, 32 by the paper's own layer.",
    measure,
};

/// Shim, metadata header, and two words for each hop.
const INT_BYTES: f64 = (16 + 8 * HOPS) as f64;

/// The paper's layer: a count of hops, and six bytes for each.
const PAPER_BYTES: f64 = (2 + 6 * HOPS) as f64;

/// One packet in so many carries a stack.
const SHARES: [u32; 4] = [1, 4, 16, 64];

/// Flows of which all packets carry one, where others do by the smallest share.
const ATTENDED: usize = 1024;

/// The latency of one hop of a packet, as PINT's (Ben Basat and others, 2020) 8 or 16 bits say it:
/// the nearest powers of a base, with a probability by which the mean is right.
struct Compressed {
    base: f64,
    bits: u32,
}

/// The longest latency that it can say, in nanoseconds.
const LONGEST: f64 = u32::MAX as f64;

impl Compressed {
    fn of(bits: u32) -> Self {
        Self { base: LONGEST.powf(1.0 / (f64::from(1 << bits) - 1.0)), bits }
    }

    fn rounded(&self, latency: u32, rng: &mut StdRng) -> f64 {
        let latency = f64::from(latency.max(1));
        let power = latency.ln() / self.base.ln();
        let (low, high) = (self.base.powf(power.floor()), self.base.powf(power.floor() + 1.0));
        let up = ((latency - low) / (high - low)).clamp(0.0, 1.0);
        if rng.random_bool(up) { high } else { low }
    }
}

/// Latencies that packets carried to a sink with room for all.
#[derive(Default)]
struct Sums(BTreeMap<OfFlow, (u64, f64)>);

impl Sums {
    fn add(&mut self, of: OfFlow, latency: f64) {
        let (packets, sum) = self.0.entry(of).or_default();
        *packets += 1;
        *sum += latency;
    }

    /// The mean relative error of the means that there are, and how many of all these are.
    fn errors(&self, truth: &BTreeMap<OfFlow, f64>) -> [f64; 2] {
        let error = |(of, &(packets, sum)): (&OfFlow, &(u64, f64))| {
            Some((sum / packets as f64 - truth[of]).abs() / truth[of])
        };
        let errors: Vec<f64> = self.0.iter().filter_map(error).collect();
        let known = errors.len() as f64;
        [errors.iter().sum::<f64>() / known.max(1.0), known / truth.len().max(1) as f64]
    }
}

/// Bytes a packet on average, error, and share of flows at switches that have a mean.
type Point = [f64; 3];

/// By stacks in packets of which `carries` chooses some, of so many bytes.
fn by_stacks(
    window: &Window,
    truth: &BTreeMap<OfFlow, f64>,
    bytes: f64,
    mut carries: impl FnMut(&FlowKey) -> bool,
) -> Point {
    let (mut sums, mut stacks, mut packets) = (Sums::default(), 0_u64, 0_u64);
    for (key, path, latencies) in window.packets() {
        packets += 1;
        if carries(key) {
            stacks += 1;
            for (&node, &latency) in path.nodes().iter().zip(latencies) {
                sums.add((*key, node), latency.into());
            }
        }
    }
    let [error, known] = sums.errors(truth);
    [bytes * stacks as f64 / packets.max(1) as f64, error, known]
}

/// By one hop's latency in each packet, which hop being drawn.
fn by_pint(window: &Window, truth: &BTreeMap<OfFlow, f64>, code: &Compressed) -> Point {
    let (mut sums, mut rng) = (Sums::default(), StdRng::seed_from_u64(code.bits.into()));
    for (key, path, latencies) in window.packets() {
        let hop = rng.random_range(0..HOPS);
        sums.add((*key, path.nodes()[hop]), code.rounded(latencies[hop], &mut rng));
    }
    let [error, known] = sums.errors(truth);
    [f64::from(code.bits) / 8.0, error, known]
}

fn measure(setup: &Setup) -> Result<Drawn> {
    let (flows, packets) = setup.choose((9_125, 2_000_000), (1_500, 60_000));
    let window = Window::new(flows, packets, 1);
    let truth = window.truth().means;
    let mut sizes: BTreeMap<FlowKey, u64> = BTreeMap::new();
    window.packets().for_each(|(key, ..)| *sizes.entry(*key).or_default() += 1);
    let mut largest: Vec<(u64, FlowKey)> = sizes.iter().map(|(key, size)| (*size, *key)).collect();
    largest.sort_unstable_by(|one, other| other.cmp(one));
    let attended: HashSet<FlowKey> = largest.iter().take(ATTENDED).map(|of| of.1).collect();

    let drawn = |share: u32| {
        let mut rng = StdRng::seed_from_u64(share.into());
        move || rng.random_ratio(1, share)
    };
    let shares = SHARES.map(|share| {
        let mut is_drawn = drawn(share);
        by_stacks(&window, &truth, INT_BYTES, move |_| is_drawn())
    });
    let smallest = SHARES[SHARES.len() - 1];
    let mut is_drawn = drawn(smallest);
    let attention =
        by_stacks(&window, &truth, INT_BYTES, |key| attended.contains(key) || is_drawn());
    let paper = by_stacks(&window, &truth, PAPER_BYTES, |_| true);
    let pint = [8, 16].map(|bits| by_pint(&window, &truth, &Compressed::of(bits)));
    let all: [(&str, bool, Vec<Point>); 4] = [
        ("INT-MD, share 1 to 1/64", true, shares.to_vec()),
        ("attention, others 1/64", true, vec![attention]),
        ("the paper's layer", false, vec![paper]),
        ("PINT, 1 and 2 bytes", false, pint.to_vec()),
    ];

    let bytes = || Axis::log("bytes a packet");
    // What is exact has no place on a logarithmic axis.
    let error = Axis::linear("ARE of means that are known");
    let mut errors = Chart::new("(a) mean latencies", bytes(), error);
    let mut known =
        Chart::new("(b) flows at switches that have a mean", bytes(), Axis::linear("share"));
    let mut sentences = Vec::new();
    for (name, is_ours, points) in all {
        let listed = points.iter().map(|[bytes, error, known]| {
            format!("ARE {error:.4} of {:.1} % of the means with {bytes:.2} bytes", 100.0 * known)
        });
        sentences.push(format!("{name}: {}", listed.collect::<Vec<_>>().join(", ")));
        let series = if is_ours { Series::ours } else { Series::new };
        let of = |y: fn(&Point) -> f64| points.iter().map(|of| (of[0], y(of))).collect();
        errors = errors.with(series(name, of(|of| of[1])));
        known = known.with(series(name, of(|of| of[2])));
    }
    Ok(sentences
        .into_iter()
        .fold(Drawn::new(vec![errors, known]), Drawn::measured)
        .because(format!(
            "{packets} packets of {flows} flows with latencies as in figure 7(c), and sinks with room for \
             all: the error is that of what packets say. With share 1 there is none."
        ))
        .because(
            "PINT is written anew after its paper: each packet says one hop's latency, drawn by a hash, as \
             a power of a base. Which switch that is, a sink is taken to know.",
        ))
}
