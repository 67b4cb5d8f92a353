//! `calumma-testbed run`: plays scenarios, one or many seeds of each, and says what became of them.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result, ensure};
use calumma_controller::report::Flow;
use calumma_sketch::WideKey;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{EpochSummary, Played, Scenario, page, play, play_in};
use crate::accuracy::Accuracy;
use crate::live::Live;
use crate::simulate::{EpochTruth, Outcome, Treatment};
use crate::topology::{Place, Segment, Topology, Way};

/// How scenarios are played.
#[derive(Clone, Debug)]
pub struct Order {
    /// The scenarios' files.
    pub files: Vec<PathBuf>,
    /// Seeds of each, from the scenario's own on.
    pub seeds: u64,
    /// Where reports, truth and verdicts of the first seed go.
    pub out: Option<PathBuf>,
    /// Length of epochs in milliseconds, where it is not to be the scenarios'.
    pub epoch_ms: Option<u64>,
    /// Played in live fabrics instead of simulated ones: the calumma-testbed program, beside which
    /// those of the edge and the controller lie.
    pub live: Option<PathBuf>,
}

/// What happened in an epoch, for whoever wants to check the reports.
#[derive(Serialize)]
struct TruthLine {
    epoch: u64,
    flows: usize,
    packets: u64,
    lost: u64,
    /// Where packets were lost, and how many.
    places: Vec<PlaceLine>,
    losses: Vec<LossLine>,
    /// What else links did to packets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    treated: Vec<TreatedLine>,
}

/// What a link did to packets of a flow that it did not lose.
#[derive(Serialize)]
struct TreatedLine {
    #[serde(flatten)]
    flow: Flow,
    place: Place,
    packets: u32,
    what: &'static str,
    /// The flow that it made of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Flow>,
}

/// A segment on which packets were lost.
#[derive(Serialize)]
struct PlaceLine {
    #[serde(flatten)]
    place: Place,
    lost: u64,
}

#[derive(Serialize)]
struct LossLine {
    #[serde(flatten)]
    flow: Flow,
    lost: u32,
    /// Lost packets that carried an encoding.
    encoded: u32,
    /// Where they were lost.
    places: Vec<PlaceLine>,
    /// The switches on their way; nothing where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Vec<String>>,
}

/// Where the files of a scenario go.
struct Files {
    folder: PathBuf,
    topology: Topology,
    reports: BufWriter<File>,
    truth: BufWriter<File>,
    /// Packets above which a flow is a heavy hitter.
    heavy: u64,
    accuracies: Vec<(u64, Accuracy)>,
}

impl Files {
    fn create(folder: PathBuf, scenario: &Scenario) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let create = |name| -> Result<BufWriter<File>> {
            let path = folder.join(name);
            let file =
                File::create(&path).with_context(|| format!("writing {}", path.display()))?;
            Ok(BufWriter::new(file))
        };
        let (reports, truth) = (create("reports.jsonl")?, create("truth.jsonl")?);
        let (topology, heavy) = (scenario.topology()?, scenario.tasks.heavy_hitter);
        Ok(Self { folder, topology, reports, truth, heavy, accuracies: Vec::new() })
    }

    fn write(&mut self, outcome: &Outcome) -> Result<()> {
        let truth = &outcome.truth;
        let accuracy = page::accuracy(outcome, self.heavy);
        self.accuracies.extend(accuracy.map(|accuracy| (outcome.report.epoch, accuracy)));
        let lossy = truth.flows.iter().filter(|flow| flow.lost > 0);
        let places = |losses: &mut dyn Iterator<Item = (Segment, u64)>| {
            let line = |(segment, lost)| PlaceLine { place: self.topology.place(segment), lost };
            losses.map(line).collect()
        };
        let path = |way: &Arc<Way>| -> Vec<String> {
            way.switches().map(|switch| self.topology.names()[switch].clone()).collect()
        };
        let line = TruthLine {
            epoch: outcome.report.epoch,
            flows: truth.flows(),
            packets: truth.packets(),
            lost: truth.lost(),
            places: places(&mut truth.losses().into_iter()),
            losses: lossy
                .map(|flow| LossLine {
                    flow: (&flow.key).into(),
                    lost: flow.lost,
                    encoded: flow.encoded,
                    places: places(
                        &mut flow.losses.iter().map(|&(segment, lost)| (segment, lost.into())),
                    ),
                    path: flow.way.as_ref().map(path),
                })
                .collect(),
            treated: Vec::new(),
        };
        let line = TruthLine { treated: self.treated(truth), ..line };
        serde_json::to_writer(&mut self.reports, &outcome.report)?;
        serde_json::to_writer(&mut self.truth, &line)?;
        self.reports.write_all(b"\n")?;
        Ok(self.truth.write_all(b"\n")?)
    }

    /// What links did to packets that they did not lose.
    fn treated(&self, truth: &EpochTruth) -> Vec<TreatedLine> {
        let mut lines = Vec::new();
        for flow in &truth.flows {
            let mut line = |segment, what, packets, to: Option<&WideKey>| {
                let place = self.topology.place(segment);
                let (flow, to) = ((&flow.key).into(), to.map(Flow::from));
                lines.push(TreatedLine { flow, place, packets, what, to });
            };
            for &(segment, copies) in &flow.copies {
                line(segment, "copied", copies, None);
            }
            for (segment, treatment, packets) in &flow.treated {
                match treatment {
                    Treatment::Remarked(_) => line(*segment, "remarked", *packets, None),
                    Treatment::Translated(to) => line(*segment, "translated", *packets, Some(to)),
                    Treatment::HeldUp => line(*segment, "held up", *packets, None),
                }
            }
        }
        lines
    }

    fn finish(mut self, scenario: &Scenario, played: &Played) -> Result<()> {
        self.reports.flush()?;
        self.truth.flush()?;
        let path = self.folder.join("played.json");
        let file = BufWriter::new(
            File::create(&path).with_context(|| format!("writing {}", path.display()))?,
        );
        serde_json::to_writer_pretty(file, played)?;
        page::write(&self.folder, scenario, played, &self.accuracies)
    }
}

/// Plays what is ordered, on all CPUs, with progress on standard error, and prints a line for each
/// scenario. Gives whether everything held.
///
/// # Errors
/// When a scenario can't be read or played, or files can't be written.
pub fn run(order: &Order) -> Result<bool> {
    ensure!(order.seeds > 0, "--seeds 0: at least one");
    let scenarios = order
        .files
        .iter()
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let mut scenario = Scenario::load(path)?;
            if let Some(length_ms) = order.epoch_ms {
                scenario.epoch.length_ms = length_ms;
                scenario.epoch.clock().with_context(|| format!("--epoch-ms {length_ms}"))?;
            }
            Ok((name, scenario))
        })
        .collect::<Result<Vec<_>>>()?;
    play_all(&scenarios, order)
}

/// Plays scenarios, each with the name its results go by, as `order` says; its files are not looked
/// at.
///
/// # Errors
/// As [`run`].
pub fn play_all(scenarios: &[(String, Scenario)], order: &Order) -> Result<bool> {
    let epochs: u64 = scenarios.iter().map(|(_, scenario)| scenario.epochs * order.seeds).sum();
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} epochs, {eta} left {msg}")?;
    let progress = ProgressBar::new(epochs).with_style(style);

    let games: Vec<(usize, u64)> =
        (0..scenarios.len()).flat_map(|at| (0..order.seeds).map(move |seed| (at, seed))).collect();
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<Played>>>> =
        Mutex::new(games.iter().map(|_| None).collect());
    // A live fabric takes the whole machine.
    let players = match order.live {
        Some(_) => 1,
        None => thread::available_parallelism().map_or(1, NonZero::get).min(games.len()),
    };
    thread::scope(|scope| {
        for _ in 0..players {
            scope.spawn(|| {
                while let Some(&(at, seed)) = games.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (name, scenario) = &scenarios[at];
                    let out = order.out.as_ref().filter(|_| seed == 0).map(|out| out.join(name));
                    let played =
                        one(scenario, seed, out.as_deref(), order.live.as_deref(), &progress);
                    let place = at * order.seeds as usize + seed as usize;
                    // Whoever panicked with the lock held has ended the run anyway.
                    if let Ok(mut results) = results.lock() {
                        results[place] = Some(played.with_context(|| name.clone()));
                    }
                }
            });
        }
    });
    progress.finish_and_clear();

    let mut held = true;
    let mut results = results.into_inner().context("a scenario panicked")?.into_iter();
    for (name, scenario) in scenarios {
        let played: Vec<Played> = results
            .by_ref()
            .take(order.seeds as usize)
            .map(|result| result.context("a scenario that was not played")?)
            .collect::<Result<_>>()?;
        held &= tell(name, scenario, &played);
    }
    Ok(held)
}

fn one(
    scenario: &Scenario,
    seed: u64,
    out: Option<&Path>,
    live: Option<&Path>,
    progress: &ProgressBar,
) -> Result<Played> {
    let scenario = Scenario { seed: scenario.seed + seed, ..scenario.clone() };
    let mut files = out.map(|out| Files::create(out.to_owned(), &scenario)).transpose()?;
    let mut reported = 0;
    let watch = |outcome: &Outcome, _: &EpochSummary| {
        progress.inc(1);
        reported += 1;
        files.iter_mut().try_for_each(|files| files.write(outcome))
    };
    let played = match live {
        Some(testbed) => {
            let mut fabric = Live::start(&scenario, testbed)?;
            out.map_or(Ok(()), |out| fabric.write_to(out))?;
            play_in(&mut fabric, &scenario, watch)?
        }
        None => play(&scenario, watch)?,
    };
    progress.inc(scenario.epochs.saturating_sub(reported));
    if let Some(files) = files {
        files.finish(&scenario, &played)?;
    }
    Ok(played)
}

/// Prints what became of a scenario. Gives whether it held for every seed.
fn tell(name: &str, scenario: &Scenario, played: &[Played]) -> bool {
    let epochs: usize = played.iter().map(|played| played.epochs.len()).sum();
    let all = || played.iter().flat_map(|played| &played.epochs);
    let complete = all().filter(|epoch| epoch.complete).count();
    let decoded = all().filter(|epoch| epoch.decoded).count();
    let held = played.iter().filter(|played| played.holds()).count();
    println!(
        "{} {name}: {} ({epochs} epochs reported, {complete} complete, {decoded} decoded)",
        if held == played.len() { "ok    " } else { "FAILED" },
        scenario.title,
    );
    for played in played {
        if let Some(troubles) = played.troubled() {
            println!("       seed {}: {troubles}", played.seed);
        }
        if let Some(stacks) = &played.stacks {
            println!("       seed {}: {}", played.seed, stacks.in_words());
        }
        for (epoch, wrong) in played.contradictions() {
            println!("       seed {}: the report on epoch {epoch} is WRONG: {wrong}", played.seed);
        }
        for growth in played.growths() {
            println!("       seed {}: grows: {growth}", played.seed);
        }
        for doubt in &played.doubts {
            println!("       seed {}: beside the truth: {doubt}", played.seed);
        }
        for verdict in played.verdicts.iter().filter(|verdict| !verdict.holds) {
            let (epoch, what) = verdict.first_failure.unwrap_or_default();
            println!(
                "       seed {}: \"{}\" held in {} of {} epochs; first not in {epoch}: {what}",
                played.seed, verdict.says, verdict.epochs, verdict.of
            );
        }
    }
    held == played.len()
}
