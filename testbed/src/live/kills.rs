//! Programs that are killed or stand still in the middle of a run, and what the controller's
//! archive has of it afterwards.

use std::collections::BTreeMap;
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

    /// Holds the archive against what was reported: it has each epoch, and a complete report of it
    /// once at most.
    pub(super) fn check_archive(&self) -> Result<()> {
        let Some(reported) = &self.archived else { return Ok(()) };
        // Of each epoch that is there: how often as complete.
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
        // A controller may die between publishing a report and writing it: then the next one has
        // the epoch again, and does not know whether nodes were late with those before it.
        let lost: Vec<&u64> = reported.iter().filter(|of| !times.contains_key(of)).collect();
        ensure!(lost.is_empty(), "epochs {lost:?} were reported and are not in the archive");
        let again: Vec<u64> = times.iter().filter(|of| *of.1 > 1).map(|of| *of.0).collect();
        ensure!(again.is_empty(), "epochs {again:?} are in the archive more than once");
        Ok(())
    }
}
