//! The long run: every scenario there is, many seeds of each.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::disks;
use crate::scenario::Scenario;
use crate::scenario::command::{Order, play_all};
use crate::tiny::{self, Trouble};

/// Tiny networks that are played for each seed of the scenarios.
const TINY: u64 = 10_000;

/// Plays `seeds` seeds of each simulated scenario, and as many times 10,000 tiny networks, 1,000
/// whose controllers have faulty disks, and 10,000 archives on such. `folder` has a folder of
/// scenarios for each system. Gives whether everything held.
///
/// # Errors
/// When a scenario can't be read or played.
pub fn run(folder: &Path, seeds: u64, out: Option<PathBuf>) -> Result<bool> {
    let mut files = Vec::new();
    for system in listing(folder)? {
        // What only live fabrics can do lies in a folder of its own.
        if system.is_dir() && !system.ends_with("live") {
            files.extend(listing(&system)?);
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let scenarios = files
        .iter()
        .map(|file| {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, Scenario::load(file)?))
        })
        .collect::<Result<Vec<_>>>()?;
    let once: u64 = scenarios.iter().map(|(_, scenario)| scenario.epochs).sum();
    ensure!(once > 0, "{}: no scenario is there", folder.display());
    println!("{} scenarios, {seeds} seeds of each: {} epochs", scenarios.len(), once * seeds);
    let held = play_all(&scenarios, &Order { files, seeds, out, epoch_ms: None, live: None })?;
    let tiny = tiny::play(0..seeds.saturating_mul(TINY), &Trouble::HOLDS)?;
    print!("{tiny}");
    let with_disks = tiny::play(0..seeds.saturating_mul(TINY / 10), &Trouble::WITH_DISKS)?;
    print!("{with_disks}");
    let disks = disks::play(0..seeds.saturating_mul(TINY))?;
    println!("{disks}");
    let wrong = [tiny.wrong.len(), with_disks.wrong.len(), disks.wrong.len()];
    Ok(held && wrong == [0; 3])
}

fn listing(folder: &Path) -> Result<Vec<PathBuf>> {
    let listing = std::fs::read_dir(folder)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .with_context(|| format!("{}: a folder of scenarios", folder.display()))?;
    Ok(listing.into_iter().map(|entry| entry.path()).collect())
}
