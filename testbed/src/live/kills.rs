//! Programs that are killed or stand still in the middle of a run, and what the controller's
//! archive has of it afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use calumma_archive::{files_of, journaled};
use calumma_chamelemon_analysis::NAME;
use calumma_controller::report::EpochReport;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

use super::Live;
use crate::calumma::Controller;
use crate::scenario::Program;

/// The archive's table that has a row for each report on an epoch, and the columns that say which
/// and whether it is complete.
const EPOCHS: &str = "epochs";
const EPOCH: &str = "epoch";
const COMPLETE: &str = "complete";

/// What has to be in the controller's archive.
#[derive(Debug, Default)]
pub(super) struct Archived {
    /// Epochs that were reported complete.
    complete: BTreeSet<u64>,
    /// Those of them that were reported incomplete later, by another controller: none reports an
    /// epoch twice.
    again: BTreeSet<u64>,
    /// Those that were there as complete whenever a controller had been killed.
    kept: BTreeSet<u64>,
}

impl Archived {
    /// Notes a report on an epoch.
    pub(super) fn note(&mut self, epoch: u64, complete: bool) {
        if complete {
            self.complete.insert(epoch);
        } else if self.complete.contains(&epoch) {
            self.again.insert(epoch);
        }
    }

    /// Holds it against the epochs that are in the archive in the end, each with how often it is
    /// there as complete.
    fn check(&self, times: &BTreeMap<u64, usize>) -> Result<()> {
        let Self { complete, again, kept } = self;
        let lost: Vec<&u64> = complete.iter().filter(|of| !times.contains_key(of)).collect();
        ensure!(lost.is_empty(), "epochs {lost:?} were reported and are not in the archive");
        let is_complete = |of: &&u64| times.get(of).is_some_and(|&times| times > 0);
        let gone: Vec<&u64> = kept.iter().filter(|of| !is_complete(of)).collect();
        ensure!(gone.is_empty(), "epochs {gone:?} were in the archive as complete and are no more");
        // A controller may be killed between publishing a report and writing it to the journal. The
        // nodes still hold such an epoch, and the next controller reports it anew. Of its first two
        // it does not know whether nodes were late with those before them that have the same
        // timestamp bits, and a node may have been killed since: so it may report such an epoch
        // incomplete. No other one may be archived so.
        let less: Vec<&u64> = complete.difference(again).filter(|of| !is_complete(of)).collect();
        ensure!(less.is_empty(), "epochs {less:?} were reported complete and archived incomplete");
        let twice: Vec<u64> = times.iter().filter(|of| *of.1 > 1).map(|of| *of.0).collect();
        ensure!(twice.is_empty(), "epochs {twice:?} are in the archive more than once");
        Ok(())
    }
}

impl Live {
    /// Where the controller keeps its archive.
    pub(super) fn archive(&self) -> PathBuf {
        self.run.directory().join("archive")
    }

    /// Lets a program stand still, from the middle of an epoch on, when packets are under way.
    pub(super) fn freeze_program(&self, program: Program, time: Duration) -> Result<()> {
        let moment = Duration::from_nanos(self.clock.length_ns() / 3);
        let Program::Switch(at) = program else {
            let (controller, _) = self.controller.as_ref().context("freeze: it is away")?;
            controller.freeze(moment, time);
            return Ok(());
        };
        let edges = self.edges.iter().enumerate().filter_map(|(at, of)| Some((at, of.as_ref()?)));
        let transits = self.transits.iter().map(|of| (of.at(), of.switch()));
        let found = edges.chain(transits).find(|(other, _)| *other == at);
        found.context("freeze: that switch is a router")?.1.freeze(moment, time);
        Ok(())
    }

    /// Kills a program and starts it anew.
    pub(super) fn kill_program(&mut self, program: Program) -> Result<()> {
        let Program::Switch(at) = program else {
            self.end_controller(Controller::kill)?;
            if self.archived.is_some() {
                let there = self.in_archive()?.into_iter().filter(|&(_, times)| times > 0);
                let there: Vec<u64> = there.map(|(epoch, _)| epoch).collect();
                self.archived.iter_mut().for_each(|of| of.kept.extend(&there));
            }
            return self.start_controller();
        };
        let Some(edge) = self.edges.get_mut(at).and_then(Option::take) else {
            bail!("kill: of what other switches than edges lose, routers log nothing");
        };
        self.restarted.insert(at);
        match edge.kill(self.place())? {
            Some(started) => self.edges[at] = Some(started),
            None => self.start_edge(at)?,
        }
        Ok(())
    }

    /// Ends the controller in some way, and takes what it has reported.
    pub(super) fn end_controller(
        &mut self,
        end: impl FnOnce(Controller) -> Result<()>,
    ) -> Result<()> {
        let Some((controller, reports)) = self.controller.take() else { return Ok(()) };
        end(controller)?;
        let read = self.sort(reports.finish()?);
        self.pending.extend(read);
        Ok(())
    }

    /// Holds the archive against what was reported: it has each epoch, as complete where it was
    /// when a controller was killed, and a complete report of it once at most.
    pub(super) fn check_archive(&self) -> Result<()> {
        self.archived.as_ref().map_or(Ok(()), |archived| archived.check(&self.in_archive()?))
    }

    /// The epochs that are in the archive's files and its journal, each with how often it is there
    /// as complete.
    fn in_archive(&self) -> Result<BTreeMap<u64, usize>> {
        let mut times: BTreeMap<u64, usize> = BTreeMap::new();
        let mut note = |epoch, complete: bool| {
            *times.entry(epoch).or_default() += usize::from(complete);
        };
        let journal = journaled(&self.archive(), calumma_systems::SYSTEMS)?;
        for (name, file) in files_of(&self.archive(), EPOCHS)? {
            // The journal has the same rows.
            if journal.is_in(NAME, &name) {
                continue;
            }
            let reading = || format!("reading {}", file.display());
            let rows = SerializedFileReader::new(File::open(&file).with_context(reading)?)?;
            for row in rows.get_row_iter(None)? {
                let row = row?;
                let column = |wanted: &str| {
                    row.get_column_iter().position(|(name, _)| name == wanted).with_context(reading)
                };
                note(row.get_ulong(column(EPOCH)?)?, row.get_bool(column(COMPLETE)?)?);
            }
        }
        let waiting = journal.reports.iter().filter_map(|of| of.as_type::<EpochReport>());
        waiting.for_each(|report| note(report.epoch, report.complete));
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the archive is as it should be in the end; epochs are reported complete, or not, in
    /// this order, and some were in the archive as complete when a controller was killed.
    fn is_sound(reports: &[(u64, bool)], kept: &[u64], times: &[(u64, usize)]) -> bool {
        let mut archived = Archived { kept: kept.iter().copied().collect(), ..Archived::default() };
        reports.iter().for_each(|&(epoch, complete)| archived.note(epoch, complete));
        archived.check(&times.iter().copied().collect()).is_ok()
    }

    #[test]
    fn an_epoch_that_was_complete_is_archived_so_unless_it_was_reported_anew() {
        let (first, anew) = ((7, true), (7, false));
        assert!(is_sound(&[first], &[], &[(7, 1)]));
        assert!(!is_sound(&[first], &[], &[]), "it is lost");
        assert!(!is_sound(&[first], &[], &[(7, 2)]), "it is there twice");
        assert!(!is_sound(&[first], &[], &[(7, 0)]), "nobody reported it so");
        assert!(!is_sound(&[anew, first], &[], &[(7, 0)]), "the complete one came last");
        assert!(is_sound(&[first, anew], &[], &[(7, 0)]));
        assert!(is_sound(&[first, anew], &[7], &[(7, 1)]));
        assert!(!is_sound(&[first, anew], &[7], &[(7, 0)]), "it was there before");
    }
}
