//! Reports of measurement systems in a live fabric: those of ChameleMon are held against what
//! happened by [`account`](super::account), those of all others here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result};
use calumma_analysis::{EpochHead, Report, SystemReport};
use calumma_chamelemon_analysis::NAME;
use calumma_controller::report::EpochReport;
use calumma_sketchint_analysis::report::Found;

use super::Live;
use super::files::Files;
use super::witness::Witness;
use crate::scenario::SystemSummary;
use crate::simulate::EpochTruth;
use crate::system::{Reported, System, Systems, name};

/// A report as it was read.
pub(super) enum Read {
    ChameleMon(Box<EpochReport>),
    Other(Box<Other>),
}

/// A report of another system.
pub(super) struct Other {
    system: &'static dyn System,
    report: Arc<dyn Report>,
    reported: Reported,
    /// The report as the controller wrote it.
    line: String,
}

impl Read {
    /// Reads a line of the controller's output, which any of `systems` may have reported.
    pub(super) fn of(line: &str, systems: Systems) -> Result<Self> {
        let read = |&system: &&'static dyn System| {
            let report = system.listed().read(line)?;
            if let Some(report) = report.as_type::<EpochReport>() {
                return Some(Self::ChameleMon(Box::new(report.clone())));
            }
            let reported = system.reported(&*report)?;
            let line = line.to_owned();
            Some(Self::Other(Box::new(Other { system, report, reported, line })))
        };
        systems.iter().find_map(read).context("no known system's report")
    }
}

/// Is shown a report, what it says, and what happened.
type Watch = Box<dyn FnMut(&dyn Report, &Reported, &EpochTruth)>;

/// What systems other than ChameleMon reported.
#[derive(Default)]
pub(super) struct OfSystems {
    /// Reports on epochs that are not settled.
    pending: Vec<Other>,
    /// What became of the others, in the scenario's epochs.
    pub(super) reported: Vec<SystemSummary>,
    /// The scenario's number of each real epoch.
    pub(super) numbers: BTreeMap<u64, u64>,
    /// The epoch after the last that each system reported.
    next: BTreeMap<&'static str, u64>,
    /// Systems of which a report was complete.
    whole: BTreeSet<&'static str>,
    /// Where reports go, beside what wires say.
    pub(super) files: Option<Files>,
    /// Those of SketchINT.
    pub(super) of_int: Vec<SystemReport<Found>>,
    /// Who is shown them as well.
    pub(super) watch: Option<Watch>,
}

impl Live {
    /// Shows every report of systems other than ChameleMon that is held against what happened: to
    /// `watch`, with what it says and that.
    pub fn watch_systems(
        &mut self,
        watch: impl FnMut(&dyn Report, &Reported, &EpochTruth) + 'static,
    ) {
        self.of_systems.watch = Some(Box::new(watch));
    }

    /// Puts reports of other systems than ChameleMon aside, and gives the rest.
    pub(super) fn sort(&mut self, read: Vec<Read>) -> Vec<EpochReport> {
        let mut of_chamelemon = Vec::new();
        for report in read {
            match report {
                Read::ChameleMon(report) => of_chamelemon.push(*report),
                Read::Other(other) => {
                    let next = self.epochs_of(&other.reported).end;
                    self.of_systems
                        .whole
                        .extend(other.reported.complete.then(|| name(other.system)));
                    self.of_systems.next.insert(name(other.system), next);
                    self.of_systems.pending.push(*other);
                }
            }
        }
        of_chamelemon
    }

    /// Whether every system that runs has reported the last epoch, and the one after it, in which
    /// packets that were sent late are counted.
    pub(super) fn all_reported(&self) -> bool {
        let on = self.sections.get("systems").and_then(toml::Value::as_array);
        let mut on = on.into_iter().flatten().filter_map(toml::Value::as_str);
        on.all(|system| {
            let next = match system {
                NAME => self.next_report,
                _ => self.of_systems.next.get(system).copied().unwrap_or_default(),
            };
            next > self.last_epoch + 2
        })
    }

    /// The real epochs that a report is about.
    fn epochs_of(&self, reported: &Reported) -> Range<u64> {
        let EpochHead { epoch, length_ms, .. } = reported.head;
        epoch..epoch + (length_ms * 1_000_000 / self.clock.length_ns()).max(1)
    }

    /// Whether a report of every system that runs at first was complete, apart from ChameleMon's.
    pub(super) fn others_measure(&self) -> bool {
        let mut others = self.at_first.iter().filter(|system| *system != NAME);
        others.all(|system| self.of_systems.whole.contains(system.as_str()))
    }

    /// Holds reports on epochs that ended before `settled_ns` against what was logged. A window
    /// that the scenario begins or ends in is held against it as well.
    pub(super) fn hold_systems(&mut self, witness: &Witness, settled_ns: u64) -> Result<()> {
        let mut pending = std::mem::take(&mut self.of_systems.pending);
        let is_settled = |other: &mut Other| {
            self.clock.start_of(self.epochs_of(&other.reported).end) <= settled_ns
        };
        let settled: Vec<Other> = pending.extract_if(.., is_settled).collect();
        self.of_systems.pending = pending;
        for Other { system, report, reported, line } in settled {
            let epochs = self.epochs_of(&reported);
            let of = &mut self.of_systems;
            of.of_int.extend(report.as_type::<SystemReport<Found>>().cloned());
            let mut numbers = of.numbers.range(epochs.clone()).map(|(_, number)| *number);
            let Some(first) = numbers.next() else { continue };
            let numbers = first..numbers.next_back().unwrap_or(first) + 1;
            let disturbed = self.disturbed.packets.clone();
            let truth = witness.of_window(epochs, system.reads_wires())?;
            let truth = EpochTruth { disturbed, ..truth };
            let wrong = system.contradicts(&*report, &truth, &self.topology);
            if let Some(watch) = &mut of.watch {
                watch(&*report, &reported, &truth);
            }
            if let Some(files) = &mut of.files {
                let of_system = (name(system), reported.head);
                let beside = (&truth, &self.topology);
                files.write(of_system, &line, beside, wrong.as_deref())?;
            }
            of.reported.push(SystemSummary::new(name(system), numbers, &reported, &truth, wrong));
        }
        Ok(())
    }
}
