//! Reports of measurement systems in a live fabric: those of ChameleMon are held against what
//! happened by [`account`](super::account), those of all others here.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use calumma_analysis::Report;
use calumma_chamelemon_analysis::NAME;
use calumma_controller::report::EpochReport;

use super::Live;
use super::witness::Witness;
use crate::scenario::SystemSummary;
use crate::simulate::EpochTruth;
use crate::system::{Said, System, Systems, name};

/// A report as it was read.
pub(super) enum Read {
    ChameleMon(Box<EpochReport>),
    Other(Other),
}

/// A report of another system.
pub(super) struct Other {
    system: &'static dyn System,
    report: Arc<dyn Report>,
    said: Said,
}

impl Read {
    /// Reads a line of the controller's output, which any of `systems` may have reported.
    pub(super) fn of(line: &str, systems: Systems) -> Result<Self> {
        let read = |&system: &&'static dyn System| {
            let report = system.listed().read(line)?;
            if let Some(report) = report.as_type::<EpochReport>() {
                return Some(Self::ChameleMon(Box::new(report.clone())));
            }
            let said = system.said(&*report)?;
            Some(Self::Other(Other { system, report, said }))
        };
        systems.iter().find_map(read).context("no known system's report")
    }
}

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
}

impl Live {
    /// Puts reports of other systems than ChameleMon aside, and gives the rest.
    pub(super) fn sort(&mut self, read: Vec<Read>) -> Vec<EpochReport> {
        let mut of_chamelemon = Vec::new();
        for report in read {
            match report {
                Read::ChameleMon(report) => of_chamelemon.push(*report),
                Read::Other(other) => {
                    let next = other.said.head.epoch + 1;
                    self.of_systems.next.insert(name(other.system), next);
                    self.of_systems.pending.push(other);
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

    /// Holds reports on epochs that ended before `settled_ns` against what was logged.
    pub(super) fn hold_systems(&mut self, witness: &Witness, settled_ns: u64) -> Result<()> {
        let of = &mut self.of_systems;
        let is_settled =
            |other: &mut Other| self.clock.start_of(other.said.head.epoch + 1) <= settled_ns;
        for Other { system, report, said } in of.pending.extract_if(.., is_settled) {
            let Some(&number) = of.numbers.get(&said.head.epoch) else { continue };
            let flows = witness.of(said.head.epoch)?;
            let truth = EpochTruth { flows, ..EpochTruth::default() };
            let wrong = system.contradicts(&*report, &truth, &self.topology);
            of.reported.push(SystemSummary::new(
                name(system),
                number..number + 1,
                &said,
                &truth,
                wrong,
            ));
        }
        Ok(())
    }
}
