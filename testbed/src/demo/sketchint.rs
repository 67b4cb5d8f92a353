//! The demo of SketchINT: leaves and spines that are all real switches, and what was reported of
//! every flow at each of them beside what captures on the wires say. ChameleMon runs beside it.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::live::{Comparison, Live};
use crate::scenario::{Scenario, play_in};

/// The fabric and its traffic; how long it lasts is the operator's to say.
const SCENARIO: &str = include_str!("sketchint.toml");

/// Epochs of the scenario in a second.
const EPOCHS_A_SECOND: u64 = 10;

/// What the demo showed.
#[derive(Debug)]
pub struct IntDemo {
    compared: Comparison,
    /// What reports claimed that is not so.
    wrong: Vec<String>,
    doubts: Vec<String>,
    /// Epochs that ChameleMon reported, and those of them in which it names every loss.
    epochs: [usize; 2],
}

/// Plays the demo for so many seconds, prints a line for each window, and writes reports and
/// `truth.json` to `out`. `testbed` is the calumma-testbed program, beside which those of switches
/// and the controller lie.
///
/// # Errors
/// When the user is not root, or something breaks down.
pub fn run(seconds: u32, testbed: &Path, out: &Path) -> Result<IntDemo> {
    let mut scenario = Scenario::parse(SCENARIO, Path::new("."))?;
    scenario.epochs = scenario.epochs.max(u64::from(seconds) * EPOCHS_A_SECOND);
    let mut live = Live::start(&scenario, testbed)?;
    live.write_to(out)?;
    live.watch_systems(|_, reported, _| println!("{}", reported.to_line()));
    let path = out.join("epochs.jsonl");
    let writing = || format!("writing {}", path.display());
    let mut epochs = fs::File::create(&path).with_context(writing)?;
    let played = play_in(&mut live, &scenario, |outcome, _| {
        let line = serde_json::to_string(&outcome.report)?;
        writeln!(epochs, "{line}").with_context(writing)
    })?;
    let compared = live.take_compared().context("SketchINT did not run")?;
    let path = out.join("truth.json");
    let text = serde_json::to_string_pretty(&compared.truth())?;
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    let wrong = played.contradictions().map(|(epoch, wrong)| format!("epoch {epoch}: {wrong}"));
    let decoded = played.epochs.iter().filter(|epoch| epoch.decoded).count();
    Ok(IntDemo {
        compared,
        wrong: wrong.collect(),
        doubts: played.doubts.clone(),
        epochs: [played.epochs.len(), decoded],
    })
}

impl IntDemo {
    /// Whether bytes, paths and packets equal what was captured, latencies are near, and ChameleMon
    /// named every loss in some epochs and was never wrong.
    pub fn is_equal(&self) -> bool {
        self.compared.is_equal() && self.wrong.is_empty() && self.epochs[1] > 0
    }

    /// Whether nothing but latencies is other than captured.
    pub fn differs_by_latency_alone(&self) -> bool {
        self.compared.complaint().is_none() && self.wrong.is_empty()
    }

    /// The result for a terminal.
    pub fn to_text(&self) -> String {
        let mut text = self.compared.to_text();
        let [epochs, decoded] = self.epochs;
        text +=
            &format!("ChameleMon beside it: {epochs} epochs, {decoded} with every loss named\n");
        for wrong in &self.wrong {
            text += &format!("WRONG: {wrong}\n");
        }
        for doubt in &self.doubts {
            text += &format!("beside what routers logged: {doubt}\n");
        }
        text += match self.is_equal() {
            true => "equal for every flow and switch, and latencies are near\n",
            false => "DIFFERENT\n",
        };
        text
    }
}
