//! Archives on disks that fail, fill up, tear what is written and lose power at any moment.
//!
//! The archive and what its reports are handed to it by are the controller's own; only the disk is
//! simulated ([`disk`]). Nodes hold what no controller has acknowledged, and send it to the next
//! one, which reports it again. Everything is drawn from a seed: `calumma-testbed disks --from SEED
//! --runs 1` plays it again.

pub mod disk;
pub mod found;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use calumma_analysis::{Published, System};
use calumma_archive::{Archive, ArchiveSection};
use calumma_chamelemon_analysis::ChameleMon;
use calumma_controller::output::{Sink, keep};
use calumma_controller::report::EpochReport;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use self::disk::{Faults, FaultyDisk};
use self::found::{OfEpoch, check, found};

/// Runs that a thread plays at a time.
const PIECE: u64 = 20;

/// Epochs that are reported while things go wrong, at most, and a bound on the steps that takes.
const MOST_EPOCHS: u64 = 40;
const MOST_STEPS: usize = 400;

/// Epochs that are reported and not acknowledged, at most.
const MOST_AHEAD: u64 = 200;

/// How long an epoch is.
const LENGTH: Duration = Duration::from_secs(1);

/// Noon of 31 January 2026, in seconds.
const BEGIN_S: u64 = 1_769_860_800;

pub(crate) static SYSTEMS: [&dyn System; 1] = [&ChameleMon];

/// What became of many runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Runs.
    pub runs: u64,
    /// Epochs that were acknowledged.
    pub acknowledged: u64,
    /// Times that the power went.
    pub deaths: u64,
    /// Operations of disks that failed.
    pub failures: u64,
    /// What does not hold: seed, and words.
    pub wrong: Vec<(u64, String)>,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.acknowledged += other.acknowledged;
        self.deaths += other.deaths;
        self.failures += other.failures;
        self.wrong.extend(other.wrong);
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, acknowledged, deaths, failures, wrong } = self;
        write!(
            f,
            "{runs} runs: {acknowledged} epochs acknowledged, {deaths} losses of power, {failures} \
             failures of disks, {} runs wrong",
            wrong.len()
        )?;
        let again = "calumma-testbed disks --runs 1 --from";
        wrong.iter().take(10).try_for_each(|(seed, what)| write!(f, "\n{again} {seed}: {what}"))
    }
}

/// Plays the runs of these seeds on all CPUs.
///
/// # Errors
/// When a thread ends early.
pub fn play(seeds: Range<u64>) -> Result<Sum> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut sum = Sum::default();
        loop {
            let first = next.fetch_add(PIECE, Ordering::Relaxed);
            if first >= seeds.end {
                return sum;
            }
            (first..seeds.end.min(first + PIECE)).for_each(|seed| sum.add(play_one(seed)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut sum = Sum::default();
        for thread in threads {
            sum.add(thread.join().map_err(|_| anyhow!("a thread that played runs panicked"))?);
        }
        sum.wrong.sort();
        Ok(sum)
    })
}

/// Plays one.
pub fn play_one(seed: u64) -> Sum {
    let mut run = Run::draw(seed);
    let wrong = run.play().err().map(|problem| (seed, format!("{problem:#}")));
    Sum {
        runs: 1,
        acknowledged: run.next,
        deaths: run.deaths,
        failures: run.disk.failures(),
        wrong: wrong.into_iter().collect(),
    }
}

/// An archive, its disk, and who has its reports made.
struct Run {
    rng: ChaCha8Rng,
    disk: FaultyDisk,
    section: ArchiveSection,
    archive: Option<Timed>,
    now: Instant,
    epochs: u64,
    /// The first epoch that nodes hold: all before are acknowledged.
    next: u64,
    /// Whether a complete report of an epoch was acknowledged.
    complete: BTreeMap<u64, bool>,
    /// The highest epoch that was ever reported.
    reported: Option<u64>,
    deaths: u64,
    /// How likely the controller is killed before an epoch.
    kills: f64,
}

/// An archive by the run's clock.
pub(crate) struct Timed {
    pub(crate) of: Archive<FaultyDisk>,
    pub(crate) now: Instant,
}

impl Sink for Timed {
    fn name(&self) -> &'static str {
        "archive"
    }

    fn take(&mut self, published: &Arc<Published>) -> Result<()> {
        self.of.append(published, self.now)
    }

    fn sync(&mut self) -> Result<()> {
        self.of.sync()
    }
}

/// The packets that the only flow of an epoch lost.
fn lost(epoch: u64) -> u64 {
    1 + epoch * 7 % 1000
}

fn report(epoch: u64, complete: bool) -> Result<Arc<Published>> {
    let (start, lost) = ((BEGIN_S + epoch) * 1_000_000_000, lost(epoch));
    let config =
        r#"{"t_h":1,"t_l":1,"sample_rate":1.0,"hh_buckets":3584,"hl_buckets":512,"ll_buckets":0}"#;
    let json = format!(
        r#"{{"epoch":{epoch},"start_unix_ns":{start},"length_ms":1000,"complete":{complete},"missing_edges":[],"incomplete_because":[],"state":"healthy","config":{config},"decode":{{"hl":"complete","ll":"absent","hl_load_factor":0.03}},"loss":[{{"src":"10.1.0.2","dst":"10.2.0.2","sport":40000,"dport":5201,"proto":6,"lost":{lost},"class":"HL"}}],"plan":null,"edges":[]}}"#
    );
    let report: EpochReport = serde_json::from_str(&json)?;
    Ok(Arc::new(Published::new(report, json)))
}

impl Run {
    fn draw(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let spans = rng.random_range(0..4);
        let failing = (0..spans).map(|_| {
            let begin = rng.random_range(0..250);
            let share = [0.02, 0.1, 0.5, 1.0][rng.random_range(0..4)];
            (begin..begin + rng.random_range(1..150), share)
        });
        let failing = failing.collect();
        let deaths = rng.random_range(0..5);
        let mut deaths: Vec<u64> = (0..deaths).map(|_| rng.random_range(0..300)).collect();
        deaths.sort_unstable();
        let disk = ChaCha8Rng::seed_from_u64(rng.random());
        let section = ArchiveSection {
            dir: "/archive".into(),
            roll_seconds: rng.random_range(1..20),
            roll_mib: 32,
            keep_days: 0,
            keep_mib: 0,
        };
        Self {
            disk: FaultyDisk::new(disk, Faults { failing, deaths }),
            section,
            archive: None,
            now: Instant::now(),
            epochs: rng.random_range(3..=MOST_EPOCHS),
            next: 0,
            complete: BTreeMap::new(),
            reported: None,
            deaths: 0,
            kills: 0.03,
            rng,
        }
    }

    fn play(&mut self) -> Result<()> {
        let mut steps = 0;
        while self.next < self.epochs && steps < MOST_STEPS {
            steps += 1;
            self.step()?;
        }
        // Nothing goes wrong any more.
        self.disk.heal();
        self.kills = 0.0;
        for after in 0.. {
            let before = self.next;
            self.step()?;
            if self.next > before && self.next > self.reported.unwrap_or_default() {
                break;
            }
            // A controller starts again, and the disk is tried again.
            ensure!(after < 4, "no epoch is acknowledged though the disk is sound again");
        }
        let mut archive = self.archive.take().context("no controller at the end")?;
        archive.of.finish(self.now).context("ending a sound archive")?;
        drop(archive);
        self.disk.restart();
        self.check()
    }

    /// An epoch, or several that have waited; or a controller that starts, where none runs.
    fn step(&mut self) -> Result<()> {
        self.now += LENGTH;
        let Some(mut archive) = self.archive.take() else {
            return self.start();
        };
        // The controller is killed, and the machine goes on.
        if self.rng.random_bool(self.kills) {
            return Ok(());
        }
        let first = self.reported.map_or(0, |last| last + 1);
        // More than wait in memory would be lost.
        let reports = if first < self.next + MOST_AHEAD { self.rng.random_range(1..=4) } else { 0 };
        let some: Vec<_> = (first..first + reports)
            .map(|epoch| report(epoch, self.rng.random_bool(0.8)))
            .collect::<Result<_>>()?;
        self.reported = (first + reports).checked_sub(1);
        archive.now = self.now;
        let kept = keep(&mut archive, some, drop);
        // As once a second without reports.
        let _ = archive.of.roll_if_due(self.now);
        for published in kept {
            let epoch = published.report.head().epoch;
            let is_complete = published.report.as_type::<EpochReport>();
            let is_complete = is_complete.is_some_and(|report| report.complete);
            *self.complete.entry(epoch).or_default() |= is_complete;
            self.next = self.next.max(epoch + 1);
        }
        if self.disk.is_dead() {
            drop(archive);
            return self.lose_power();
        }
        self.archive = Some(archive);
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        match Archive::open_on(self.disk.clone(), &self.section, &SYSTEMS) {
            Ok(archive) => {
                self.archive = Some(Timed { of: archive, now: self.now });
                // Nodes send it what nobody has acknowledged.
                self.reported = self.next.checked_sub(1);
                self.check()?;
            }
            Err(_) if self.disk.is_dead() => self.lose_power()?,
            // Whoever starts it tries again.
            Err(_) => {}
        }
        Ok(())
    }

    fn lose_power(&mut self) -> Result<()> {
        self.deaths += 1;
        self.disk.restart();
        self.check()
    }

    /// Holds what is there against what was acknowledged.
    fn check(&self) -> Result<()> {
        let found = found(&self.disk, &self.section.dir)?;
        let is_complete = |epoch: &u64| self.complete.get(epoch).copied().unwrap_or_default();
        check(&found, (0..self.next).map(|epoch| (epoch, is_complete(&epoch))))?;
        for (epoch, OfEpoch { complete, lost: packets }) in found {
            let wanted = vec![lost(epoch); complete.len()];
            ensure!(packets == wanted, "epoch {epoch}: {packets:?} lost, of {wanted:?}");
        }
        Ok(())
    }
}
