//! The controller's archive in the simulation, on a disk that fails and loses power.
//!
//! The archive is the live one's own, and so is what hands reports to it; nodes are sent that an
//! epoch is reported once it is kept, and not before. A controller is killed between two epochs, or
//! ends where its disk's power goes; the next one begins with what the disk has then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use calumma_analysis::Published;
use calumma_archive::{Archive, ArchiveSection};
use calumma_controller::output::keep;
use calumma_controller::report::EpochReport;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::controller::{Controller, Reported};
use super::network::Simulation;
use super::{BEGIN_NS, ControlQuality};
use crate::disks::disk::{Faults, FaultyDisk};
use crate::disks::found::{check, found};
use crate::disks::{SYSTEMS, Timed};

/// Time passes by so much faster for the archive, which ends files after whole seconds.
const FASTER: u64 = 20;

/// Between two epochs, the probability that the controller is killed.
const KILLED: f64 = 0.05;

/// Epochs that a controller is away at most.
const MOST_AWAY: u64 = 3;

/// Epochs within which a sound disk has an archive that works again.
const AGAIN: u64 = 12;

/// What became of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Epochs that were acknowledged.
    pub acknowledged: u64,
    /// Times that a controller was killed, or its machine's power went.
    pub ends: u64,
    /// Operations of the disk that failed.
    pub failures: u64,
}

/// The archive, and what it is to have.
pub(super) struct Archived {
    rng: ChaCha8Rng,
    disk: FaultyDisk,
    section: ArchiveSection,
    archive: Option<Timed>,
    began: Instant,
    /// Epochs until a controller is started.
    away: u64,
    /// Whether things go wrong no more.
    is_healed: bool,
    ends: u64,
    /// Epochs that the present controller has reported and that are not kept yet: whether each is
    /// complete.
    waiting: VecDeque<(u64, bool)>,
    /// Epochs that were acknowledged: whether a complete report was.
    acknowledged: BTreeMap<u64, bool>,
    /// The packets that complete reports on each epoch say were lost, each in order.
    lost: BTreeMap<u64, Vec<Vec<u64>>>,
}

impl std::fmt::Debug for Archived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { disk, away, ends, .. } = self;
        f.debug_struct("Archived")
            .field("disk", disk)
            .field("away", away)
            .field("ends", ends)
            .finish()
    }
}

impl Archived {
    /// What goes wrong is drawn from `seed`.
    fn draw(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let failing = (0..rng.random_range(0..4)).map(|_| {
            let begin = rng.random_range(0..80);
            let share = [0.02, 0.1, 0.5, 1.0][rng.random_range(0..4)];
            (begin..begin + rng.random_range(1..60), share)
        });
        let failing = failing.collect();
        let mut deaths: Vec<u64> =
            (0..rng.random_range(0..4)).map(|_| rng.random_range(0..100)).collect();
        deaths.sort_unstable();
        let disk = ChaCha8Rng::seed_from_u64(rng.random());
        let section = ArchiveSection {
            dir: "/archive".into(),
            roll_seconds: rng.random_range(1..12),
            roll_mib: 32,
            keep_days: 0,
            keep_mib: 0,
        };
        Self {
            rng,
            disk: FaultyDisk::new(disk, Faults { failing, deaths }),
            section,
            archive: None,
            began: Instant::now(),
            away: 0,
            is_healed: false,
            ends: 0,
            waiting: VecDeque::new(),
            acknowledged: BTreeMap::new(),
            lost: BTreeMap::new(),
        }
    }

    fn now(&self, now_ns: u64) -> Instant {
        // Nodes connect before the beginning.
        self.began + Duration::from_nanos(now_ns.saturating_sub(BEGIN_NS) * FASTER)
    }

    /// Opens the archive, as a controller does that starts. Gives whether it could.
    fn open(&mut self, now_ns: u64) -> bool {
        let now = self.now(now_ns);
        let opened = Archive::open_on(self.disk.clone(), &self.section, &SYSTEMS);
        self.archive = opened.ok().map(|of| Timed { of, now });
        self.archive.is_some()
    }

    /// Has the archive keep reports; gives the first epoch of which nodes hold what they have sent.
    pub(super) fn keep(&mut self, reports: &[Reported], now_ns: u64) -> Result<Option<u64>> {
        let now = self.now(now_ns);
        let Some(archive) = &mut self.archive else { return Ok(None) };
        let mut published = Vec::new();
        for Reported { report, .. } in reports {
            let EpochReport { epoch, complete, .. } = *report;
            self.waiting.push_back((epoch, complete));
            if complete {
                let lost = sorted(report.loss.iter().map(|loss| loss.lost).collect());
                self.lost.entry(epoch).or_default().push(lost);
            }
            let json = serde_json::to_string(report)?;
            published.push(Arc::new(Published::new(report.clone(), json)));
        }
        archive.now = now;
        let kept = keep(archive, published, drop);
        // As once a second without reports.
        let _ = archive.of.roll_if_due(now);
        let kept = kept.iter().map(|published| published.report.head().epoch).max();
        let Some(last) = kept else { return Ok(None) };
        // Nodes forget all up to there.
        while let Some((epoch, complete)) = self.waiting.pop_front_if(|of| of.0 <= last) {
            *self.acknowledged.entry(epoch).or_default() |= complete;
        }
        Ok(Some(last + 1))
    }

    pub(super) fn is_dead(&self) -> bool {
        self.disk.is_dead()
    }

    /// The controller ends without a word.
    fn end(&mut self) {
        self.archive = None;
        self.waiting.clear();
        self.ends += 1;
        self.away = self.rng.random_range(0..=MOST_AWAY);
    }

    /// Holds what is on the disk against what was acknowledged and reported.
    fn check(&self) -> Result<()> {
        let found = found(&self.disk, &self.section.dir)?;
        check(&found, self.acknowledged.iter().map(|(epoch, complete)| (*epoch, *complete)))?;
        for (epoch, of) in found.iter().filter(|of| of.1.complete == [true]) {
            let lost = sorted(of.lost.clone());
            let reported = self.lost.get(epoch).is_some_and(|all| all.contains(&lost));
            ensure!(reported, "epoch {epoch}: {lost:?} packets lost, as no report has it");
        }
        Ok(())
    }
}

fn sorted(mut packets: Vec<u64>) -> Vec<u64> {
    packets.sort_unstable();
    packets
}

impl Simulation {
    /// Has the controller keep an archive from now on, on a disk that fails and loses power, and
    /// kills the controller now and then; what, and when, is drawn from `seed`.
    ///
    /// # Errors
    /// As [`set_controller`](Self::set_controller).
    pub fn set_archive(&mut self, seed: u64) -> Result<()> {
        let mut archived = Box::new(Archived::draw(seed));
        if archived.open(self.now_ns()) {
            self.controller.iter_mut().for_each(Controller::keep_archive);
        } else {
            self.set_controller(false)?;
        }
        self.archived = Some(archived);
        Ok(())
    }

    /// Lets the disk do what it should from now on, and the controller run; connections do nothing
    /// but take their time.
    ///
    /// # Errors
    /// When what was acknowledged is not there.
    pub fn heal(&mut self) -> Result<()> {
        self.set_control(ControlQuality::default(), 0);
        if let Some(archived) = &mut self.archived {
            archived.is_healed = true;
            archived.disk.heal();
        }
        self.look_after_archive()
    }

    /// Between two epochs: the controller is killed, or starts where none runs.
    pub(super) fn look_after_archive(&mut self) -> Result<()> {
        let now_ns = self.now_ns();
        let Some(mut archived) = self.archived.take() else { return Ok(()) };
        if archived.is_dead() {
            archived.end();
            archived.disk.restart();
            archived.check()?;
            self.set_controller(false)?;
        } else if self.controller.is_some()
            && !archived.is_healed
            && archived.rng.random_bool(KILLED)
        {
            archived.end();
            self.set_controller(false)?;
        }
        if archived.is_healed {
            archived.away = 0;
        }
        if self.controller.is_none() {
            match archived.away.checked_sub(1) {
                Some(away) => archived.away = away,
                None if archived.open(now_ns) => {
                    self.set_controller(true)?;
                    self.controller.iter_mut().for_each(Controller::keep_archive);
                }
                // Whoever starts it tries again.
                None => {}
            }
        }
        self.archived = Some(archived);
        Ok(())
    }

    /// Ends the archive on a sound disk, takes its power once more, and holds what is there against
    /// what was acknowledged. None where no archive is kept.
    ///
    /// # Errors
    /// When something of it is not there, or there twice.
    pub fn end_archive(&mut self) -> Result<Option<Kept>> {
        self.heal()?;
        for _ in 0..AGAIN {
            if self.archived.as_ref().is_none_or(|of| of.archive.is_some()) {
                break;
            }
            self.run_epoch()?;
        }
        let now_ns = self.now_ns();
        let Some(archived) = &mut self.archived else { return Ok(None) };
        let now = archived.now(now_ns);
        let archive = archived.archive.take();
        let mut archive = archive.context("no archive opens though its disk is sound again")?;
        archive.of.finish(now)?;
        drop(archive);
        archived.disk.restart();
        archived.check()?;
        let Archived { disk, ends, acknowledged, .. } = &**archived;
        let (acknowledged, failures) = (acknowledged.len() as u64, disk.failures());
        Ok(Some(Kept { acknowledged, ends: *ends, failures }))
    }
}
