//! How many flows cooperating switches count: figures 3 to 5 of the CFS paper, and what memory
//! brings.

use std::collections::HashMap;

use anyhow::Result;
use calumma_baselines::DusHh;
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::FlowKey;
use calumma_testbed::coverage::{Algorithm, Entries, Network, Outcome, Share, Trial};
use calumma_testbed::workload::Sizes;

use super::Setup;
use super::epochs::capture;

/// Figures of the paper, and those that it lacks.
pub(super) const FIGURES: [Figure<Setup>; 7] = [
    Figure {
        name: "cfs-03",
        title: "Flows counted by switches of 10,000 entries",
        claim: "Figure 3 of the CFS paper: with 10,000 entries a switch, its rules are near the optimum \
                for the entire range, and CFS-FR meets it; FlowRadar does very poorly when there are \
                too many flows. Its rules simulated: at as many flows as entries, folding counts 0.877 \
                of them in the fat-tree and 0.777 in GEANT, the greedy rule 0.791 and 0.703, where 1 is \
                possible. The goal of this project: 0.95 and 0.93 of them, and nearly all with a \
                quarter more entries.",
        measure: |setup| by_flows(setup),
    },
    Figure {
        name: "cfs-04",
        title: "Flows counted in the fat-tree, against entries and bytes",
        claim: "Figure 4 of the CFS paper: in the fat-tree its rules are near the optimum for the entire \
                range; CFS-FR follows it all the way to full coverage, where folding alone struggles \
                beyond 0.95; FlowRadar is of use only when all fits; DUS-HH has heavy hitters only. \
                The paper leaves FlowRadar's filter out. The goal of this project: all flows with 0.45 \
                of FlowRadar's bytes and 0.85 of CFS-FR's.",
        measure: |setup| by_memory(setup, &FAT_TREE),
    },
    Figure {
        name: "cfs-05",
        title: "Flows counted in GEANT, against entries and bytes",
        claim: "Figure 5 of the CFS paper: as in the fat-tree, but that FlowRadar needs slightly more \
                room. The goal of this project: all flows with 0.72 of FlowRadar's bytes and 0.85 of \
                CFS-FR's.",
        measure: |setup| by_memory(setup, &GEANT),
    },
    Figure {
        name: "cfs-claim",
        title: "Claims: windows until they are learnt",
        claim: "Beyond the paper. The goal of this project: in the window in which the load doubles no \
                less than folding alone, and nearly all flows after four.",
        measure: |setup| by_window(setup),
    },
    Figure {
        name: "cfs-memory",
        title: "Bytes with which all flows are counted",
        claim: "The CFS paper: up to four times less room than FlowRadar, which by its own split of \
                entries is 1.9 in the fat-tree and 1.04 in GEANT. The goal of this project: 0.45 of \
                FlowRadar's bytes in the fat-tree and 0.72 in GEANT.",
        measure: |setup| memory(setup),
    },
    Figure {
        name: "cfs-uneven",
        title: "Half of the switches with four times the entries of the others",
        claim: "Beyond the paper. The goal of this project, with 1.25 entries a flow: 0.98 of the flows in \
                the fat-tree and 0.93 in GEANT, where folding counts 0.89 and 0.81.",
        measure: |setup| uneven(setup),
    },
    Figure {
        name: "cfs-rows",
        title: "Tables of rows, as a Tofino has them, beside whole ones",
        claim: "Section III-H of the CFS paper, which was not built: a flow has one row, chosen by its hash. \
                The goal of this project: rows of four within 0.05 of whole tables.",
        measure: |setup| rows(setup),
    },
];

/// A network, and how it is called.
pub(super) struct Place {
    topology: &'static str,
    pub(super) name: &'static str,
}

pub(super) const FAT_TREE: Place =
    Place { topology: "fat-tree:8", name: "fat-tree of 80 switches" };
pub(super) const GEANT: Place =
    Place { topology: "testbed/topologies/geant2012.toml", name: "GEANT of 40 switches" };

impl Place {
    /// GEANT is read from where the program is started or, where that is not the repository, from
    /// where it was built.
    pub(super) fn load(&self) -> Result<Network> {
        let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
        let is_here =
            !self.topology.ends_with(".toml") || std::path::Path::new(self.topology).exists();
        let name =
            if is_here { self.topology.to_owned() } else { format!("{built}{}", self.topology) };
        Network::load(&name)
    }
}

/// How an algorithm is called, and whether it is the project's.
pub(super) fn named(algorithm: Algorithm) -> (&'static str, bool) {
    match algorithm {
        Algorithm::Claim => ("folding and claims", true),
        Algorithm::ClaimFr => ("claims and Fermat residual", true),
        Algorithm::ClaimRandom => ("by chance and claims", true),
        Algorithm::Fold => ("CFS, folding", false),
        Algorithm::Greedy => ("CFS, greedy", false),
        Algorithm::CfsFr => ("CFS-FR, folding", false),
        Algorithm::GreedyFr => ("CFS-FR, greedy", false),
        Algorithm::Flowradar => ("FlowRadar", false),
        Algorithm::Csamp => ("cSamp, flows of the window before", false),
        Algorithm::Random => ("by chance", false),
        Algorithm::Even => ("even shares", false),
        Algorithm::Same => ("all the same", false),
    }
}

pub(super) fn series(algorithm: Algorithm, points: Vec<(f64, f64)>) -> Series {
    match named(algorithm) {
        (name, true) => Series::ours(name, points),
        (name, false) => Series::new(name, points),
    }
}

const COMPARED: [Algorithm; 9] = [
    Algorithm::Claim,
    Algorithm::ClaimFr,
    Algorithm::Fold,
    Algorithm::Greedy,
    Algorithm::CfsFr,
    Algorithm::GreedyFr,
    Algorithm::Flowradar,
    Algorithm::Csamp,
    Algorithm::Random,
];

/// Entries in the network for each flow.
pub(super) const ROOM: [f64; 10] = [0.33, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0];

/// Plays trials, as many at a time as there are CPUs.
fn play_all(network: &Network, trials: &[Trial]) -> Vec<Outcome> {
    play_flows(network, trials).into_iter().map(|(outcome, _)| outcome).collect()
}

/// The same, with whether each flow was counted.
pub(super) fn play_flows(network: &Network, trials: &[Trial]) -> Vec<(Outcome, Vec<bool>)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(trials.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut played = Vec::new();
        loop {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(trial) = trials.get(at) else { return played };
            played.push((at, network.play_flows(trial)));
        }
    };
    let mut all: Vec<(usize, (Outcome, Vec<bool>))> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    });
    all.sort_by_key(|&(at, _)| at);
    all.into_iter().map(|(_, played)| played).collect()
}

pub(super) fn wrong<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> u64 {
    outcomes.into_iter().map(|outcome| outcome.wrong).sum()
}

const SHARE: &str = "share of the flows counted";

/// Figure 3.
fn by_flows(setup: &Setup) -> Result<Drawn> {
    let entries = setup.choose(10_000, 256);
    let room: &[f64] = setup.choose(&ROOM, &[1.0, 1.5]);
    let (mut measured, mut charts) = (Vec::new(), Vec::new());
    for place in [FAT_TREE, GEANT] {
        let network = place.load()?;
        let all = network.switches() as f64 * f64::from(entries);
        let mut chart = Chart::new(place.name, Axis::linear("flows"), Axis::linear(SHARE));
        let mut sentences = Vec::new();
        for algorithm in COMPARED {
            let trial =
                |room: &f64| Trial::new(algorithm, (all / room) as u32, Entries::Even(entries), 1);
            let trials: Vec<Trial> = room.iter().map(trial).collect();
            let outcomes = play_all(&network, &trials);
            let points = |y: fn(&Outcome) -> f64| {
                outcomes.iter().map(|it| (f64::from(it.flows), y(it))).collect::<Vec<_>>()
            };
            if algorithm == Algorithm::Claim {
                chart = chart.with(Series::new("optimum", points(|it| it.optimum)));
            }
            chart = chart.with(series(algorithm, points(|it| it.coverage)));
            let each = outcomes.iter().zip(room);
            let each = each.map(|(it, room)| format!("{:.3} at {room}", it.coverage));
            let each: Vec<String> = each.collect();
            sentences.push(format!(
                "{}: {}, {} counts wrong",
                named(algorithm).0,
                each.join(", "),
                wrong(&outcomes)
            ));
        }
        charts.push(chart);
        let sentences = sentences.join("; ");
        measured.push(format!("{}, share of the flows at entries a flow: {sentences}", place.name));
    }
    let drawn = measured.into_iter().fold(Drawn::new(charts), Drawn::measured);
    Ok(drawn.because(
        "One packet a flow between two hosts drawn at random, on one of the shortest ways; all flows are \
         new in each window, and claims are those of the eighth. Residuals have a tenth of the entries \
         as cells or buckets, FlowRadar all. What FlowRadar cells decode counts only where the \
         residual comes out empty, since of others no count is certain.",
    ))
}

/// Packets of the flows of a trace.
pub(super) struct Trace {
    pub(super) name: String,
    pub(super) sizes: Vec<u32>,
}

/// The paper's traces where they are among the captures, and what stands in for them otherwise.
pub(super) fn traces(setup: &Setup) -> Result<Vec<Trace>> {
    let synthetic = |sizes: Sizes, flows: u32| {
        let flows = setup.choose(flows, flows / 20);
        let place = |flow: u32| (f64::from(flow) + 0.5) / f64::from(flows);
        let sizes: Vec<u32> = (0..flows).map(|flow| sizes.packets(place(flow), flows)).collect();
        // In an order that has nothing to do with their sizes.
        let stride = 7_919;
        (0..sizes.len()).map(|at| sizes[at * stride % sizes.len()]).collect::<Vec<u32>>()
    };
    let mut traces = Vec::new();
    for (paper, file, other, made) in [
        ("Chicago", "chicago.pcap", "backbone-65k.pcap", None),
        ("Univ", "univ.pcap", "mixed-captures.pcap", None),
        (
            "New York",
            "new-york.pcap",
            "",
            Some((Sizes::Zipf { skew: 1.0, largest: 20_000 }, 60_000)),
        ),
        ("DDoS", "ddos.pcap", "", Some((Sizes::Zipf { skew: 1.6, largest: 50_000 }, 60_000))),
    ] {
        let of = |name: &str| -> Result<Option<Vec<u32>>> {
            if name.is_empty() {
                return Ok(None);
            }
            Ok(capture(&setup.data.join(name))?.map(|keys| {
                let mut packets: HashMap<FlowKey, u32> = HashMap::new();
                let mut order = Vec::new();
                for key in keys {
                    let packets = packets.entry(key).or_insert(0);
                    if *packets == 0 {
                        order.push(key);
                    }
                    *packets += 1;
                }
                order.iter().map(|key| packets[key]).collect()
            }))
        };
        let (name, sizes) = match (of(file)?, of(other)?, made) {
            (Some(sizes), ..) => (paper.to_owned(), sizes),
            (None, Some(sizes), _) => (format!("{other} for {paper}"), sizes),
            (None, None, Some((sizes, flows))) => {
                (format!("{sizes} for {paper}"), synthetic(sizes, flows))
            }
            (None, None, None) => continue,
        };
        traces.push(Trace { name, sizes });
    }
    Ok(traces)
}

pub(super) const IN_TRACES: [Algorithm; 6] = [
    Algorithm::Claim,
    Algorithm::ClaimFr,
    Algorithm::Fold,
    Algorithm::Greedy,
    Algorithm::CfsFr,
    Algorithm::Flowradar,
];

/// Figures 4 and 5.
fn by_memory(setup: &Setup, place: &Place) -> Result<Drawn> {
    let network = place.load()?;
    let room: &[f64] =
        setup.choose(&[0.1, 0.25, 0.5, 0.75, 1.0, 1.15, 1.3, 1.5, 1.8, 2.2, 3.0], &[1.0, 3.0]);
    let mut charts = Vec::new();
    let mut sentences = Vec::new();
    for trace in traces(setup)? {
        let flows = trace.sizes.len() as u32;
        let entries: Vec<u32> = room
            .iter()
            .map(|room| ((f64::from(flows) * room / network.switches() as f64) as u32).max(8))
            .collect();
        let heading = format!("{}: {flows} flows", trace.name);
        let mut by_entries =
            Chart::new(heading.clone(), Axis::linear("entries a switch"), Axis::linear(SHARE));
        let mut by_bytes = Chart::new(heading, Axis::linear("KB a switch"), Axis::linear(SHARE));
        for algorithm in IN_TRACES {
            let trial = |&entries: &u32| Trial {
                sizes: trace.sizes.clone(),
                ..Trial::new(algorithm, flows, Entries::Even(entries), 1)
            };
            let trials: Vec<Trial> = entries.iter().map(trial).collect();
            let outcomes = play_all(&network, &trials);
            let points = |x: fn(&Outcome) -> f64, y: fn(&Outcome) -> f64| {
                outcomes.iter().map(|it| (x(it), y(it))).collect::<Vec<_>>()
            };
            let entries = |it: &Outcome| f64::from(it.entries.mean());
            if algorithm == Algorithm::Claim {
                by_entries =
                    by_entries.with(Series::new("optimum", points(entries, |it| it.optimum)));
            }
            let kilobytes = |it: &Outcome| it.bytes_per_node as f64 / 1000.0;
            by_entries = by_entries.with(series(algorithm, points(entries, |it| it.coverage)));
            by_bytes = by_bytes.with(series(algorithm, points(kilobytes, |it| it.coverage)));
            let full = outcomes.iter().find(|it| it.coverage == 1.0);
            let full = full.map_or("never".to_owned(), |it| {
                format!("{} entries, {:.0} KB", it.entries.mean(), kilobytes(it))
            });
            sentences.push(format!(
                "{}, {}: all flows first with {full}; {} counts wrong",
                trace.name,
                named(algorithm).0,
                wrong(&outcomes)
            ));
        }
        let samples = |entries: u32| f64::from(entries);
        let heavy: Vec<(f64, f64)> =
            entries.iter().map(|&it| (samples(it), sampled(&trace.sizes, it))).collect();
        by_entries = by_entries.with(Series::new("DUS-HH, flows in its sample", heavy));
        charts.extend([by_entries, by_bytes]);
    }
    let drawn = Drawn::new(charts).because(
        "The paper's traces can't be passed on: where the captures have no chicago.pcap, univ.pcap, \
         new-york.pcap or ddos.pcap, others stand in. Every flow of the trace takes one of the shortest \
         ways between hosts drawn at random; its packets come in two parts. Bytes are those of all that \
         a switch has: table, index, filters, registers, residual. FlowRadar's filter has 64 bits a \
         flow, since one flow that it mistakes for another spoils the count of others.",
    );
    Ok(sentences.into_iter().fold(drawn, Drawn::measured))
}

/// Share of flows of which a sample of so many packets over the whole network has one.
fn sampled(sizes: &[u32], packets: u32) -> f64 {
    let mut sample = DusHh::new(packets as usize * (FlowKey::LEN + 8), 1);
    for (flow, &size) in sizes.iter().enumerate() {
        let key = FlowKey::from_words(flow as u32, 0, 0, 17);
        (0..u64::from(size)).for_each(|number| sample.insert(&key, number));
    }
    sample.flows() as f64 / sizes.len().max(1) as f64
}

/// Coverage of claims, window by window.
fn by_window(setup: &Setup) -> Result<Drawn> {
    let entries = setup.choose(2_000, 256);
    let windows = 1..=setup.choose(12, 3);
    let mut charts = Vec::new();
    let mut sentences = Vec::new();
    for place in [FAT_TREE, GEANT] {
        let network = place.load()?;
        let mut chart = Chart::new(place.name, Axis::linear("window"), Axis::linear(SHARE));
        for room in [1.0, 1.1, 1.25, 1.5] {
            let flows = (network.switches() as f64 * f64::from(entries) / room) as u32;
            let trial = |windows: u32| Trial {
                windows,
                ..Trial::new(Algorithm::Claim, flows, Entries::Even(entries), 1)
            };
            let trials: Vec<Trial> = windows.clone().map(trial).collect();
            let outcomes = play_all(&network, &trials);
            let points: Vec<(f64, f64)> = windows
                .clone()
                .zip(&outcomes)
                .map(|(window, it)| (f64::from(window), it.coverage))
                .collect();
            let each: Vec<String> = points.iter().map(|(_, y)| format!("{y:.4}")).collect();
            sentences.push(format!("{}, {room} entries a flow: {}", place.name, each.join(", ")));
            chart = chart.with(Series::ours(format!("{room} entries a flow"), points));
        }
        charts.push(chart);
    }
    let drawn = Drawn::new(charts).because(
        "Flows are new in each window. In the first one each switch claims all flows that pass it: \
         where every switch has hosts and as many flows begin at each, that is already near the best.",
    );
    Ok(sentences.into_iter().fold(drawn, Drawn::measured))
}

/// The smallest memory that counts all flows.
fn memory(setup: &Setup) -> Result<Drawn> {
    let flows = setup.choose(200_000, 20_000);
    let tried = [
        ("claims, Fermat", Algorithm::ClaimFr, Share::Fixed(0.9)),
        ("the same, auto", Algorithm::ClaimFr, Share::Auto),
        ("CFS-FR, 0.9", Algorithm::CfsFr, Share::Fixed(0.9)),
        ("CFS-FR, 0.7", Algorithm::CfsFr, Share::Fixed(0.7)),
        ("FlowRadar", Algorithm::Flowradar, Share::Fixed(0.9)),
        ("folding alone", Algorithm::Fold, Share::Fixed(0.9)),
    ];
    let categories = tried.map(|(name, ..)| name.to_owned()).to_vec();
    let axis = Axis::linear("KB a switch");
    let mut chart = Chart::bars(format!("{flows} flows"), categories.clone(), axis);
    let mut a_flow = Chart::bars("", categories, Axis::linear("entries of all switches a flow"));
    let mut measured = Vec::new();
    for place in [FAT_TREE, GEANT] {
        let network = place.load()?;
        let (mut bytes, mut entries) = (Vec::new(), Vec::new());
        let mut sentences = Vec::new();
        for (at, (name, algorithm, alpha)) in (0_u32..).zip(tried) {
            let trial = Trial::new(algorithm, flows, Entries::Even(256), 1);
            let trial = Trial { alpha, windows: alpha.windows(trial.windows), ..trial };
            let Some(full) = network.smallest_full(&trial) else { continue };
            let per_flow =
                f64::from(full.entries.mean()) * network.switches() as f64 / f64::from(flows);
            bytes.push((f64::from(at), full.bytes_per_node as f64 / 1000.0));
            entries.push((f64::from(at), per_flow));
            sentences.push(format!(
                "{name} {:.1} KB, {per_flow:.2} entries a flow",
                full.bytes_per_node as f64 / 1000.0
            ));
        }
        measured.push(format!("{}: {}", place.name, sentences.join("; ")));
        chart = chart.with(Series::new(place.name, bytes));
        a_flow = a_flow.with(Series::new(place.name, entries));
    }
    let drawn = measured.into_iter().fold(Drawn::new(vec![chart, a_flow]), Drawn::measured);
    Ok(drawn.because(
        "The smallest to a hundredth, for one draw of flows. Cells and buckets are entries as tables' \
         are. Folding alone must have room for the last flow that all switches grade badly.",
    ))
}

/// Half of the switches have four times the entries of the others.
fn uneven(setup: &Setup) -> Result<Drawn> {
    let mean = setup.choose(5_000, 256);
    let room: &[f64] = setup.choose(&[0.5, 0.75, 1.0, 1.1, 1.25, 1.5, 2.0], &[1.25]);
    let mut charts = Vec::new();
    let mut sentences = Vec::new();
    for place in [FAT_TREE, GEANT] {
        let network = place.load()?;
        let x = Axis::linear("entries of all switches a flow");
        let mut chart = Chart::new(place.name, x, Axis::linear(SHARE));
        for algorithm in
            [Algorithm::Claim, Algorithm::ClaimRandom, Algorithm::Fold, Algorithm::Random]
        {
            let trial = |room: &f64| {
                let flows = (network.switches() as f64 * f64::from(mean) / room) as u32;
                Trial::new(algorithm, flows, Entries::Uneven(mean), 1)
            };
            let trials: Vec<Trial> = room.iter().map(trial).collect();
            let outcomes = play_all(&network, &trials);
            let points = |y: fn(&Outcome) -> f64| {
                room.iter().zip(&outcomes).map(|(&room, it)| (room, y(it))).collect::<Vec<_>>()
            };
            if algorithm == Algorithm::Claim {
                chart = chart.with(Series::new("optimum", points(|it| it.optimum)));
            }
            chart = chart.with(series(algorithm, points(|it| it.coverage)));
            let each = outcomes.iter().zip(room);
            let each: Vec<String> =
                each.map(|(it, room)| format!("{:.4} at {room}", it.coverage)).collect();
            sentences.push(format!("{}, {}: {}", place.name, named(algorithm).0, each.join(", ")));
        }
        charts.push(chart);
    }
    Ok(sentences.into_iter().fold(Drawn::new(charts), Drawn::measured))
}

/// Tables of rows of so many flows, beside whole ones.
fn rows(setup: &Setup) -> Result<Drawn> {
    let entries = setup.choose(2_400, 240);
    let room: &[f64] = setup.choose(&ROOM, &[1.0, 1.5]);
    let (mut charts, mut sentences) = (Vec::new(), Vec::new());
    for place in [FAT_TREE, GEANT] {
        let network = place.load()?;
        let x = Axis::linear("entries of all switches a flow");
        let mut chart = Chart::new(place.name, x, Axis::linear(SHARE));
        for columns in [Some(2), Some(3), Some(4), Some(6), Some(8), None] {
            let trial = |room: &f64| {
                let flows = (network.switches() as f64 * f64::from(entries) / room) as u32;
                let trial = Trial::new(Algorithm::Fold, flows, Entries::Even(entries), 1);
                Trial { columns, ..trial }
            };
            let trials: Vec<Trial> = room.iter().map(trial).collect();
            let outcomes = play_all(&network, &trials);
            let name =
                columns.map_or("whole tables".to_owned(), |columns| format!("rows of {columns}"));
            let points: Vec<(f64, f64)> =
                room.iter().zip(&outcomes).map(|(&room, it)| (room, it.coverage)).collect();
            let each = points.iter().map(|(room, share)| format!("{share:.3} at {room}"));
            let each: Vec<String> = each.collect();
            sentences.push(format!(
                "{}, {name}: {}, {} counts wrong",
                place.name,
                each.join(", "),
                wrong(&outcomes)
            ));
            let series = if columns.is_some() { Series::ours } else { Series::new };
            chart = chart.with(series(name, points));
        }
        charts.push(chart);
    }
    let drawn = sentences.into_iter().fold(Drawn::new(charts), Drawn::measured);
    Ok(drawn.because(
        "Folding without claims. A row keeps its flows of smallest rank, and a full one can't use room \
         that another has left.",
    ))
}
