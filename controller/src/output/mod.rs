//! Where reports go: a file of JSON lines, the terminal, or whatever implements [`Output`]; what is
//! slow goes through [`Background`].

mod archive;
mod background;
mod lines;
mod terminal;

pub use background::{Background, Sink, SinkStatus, keep};
pub use lines::JsonLines;
pub(crate) use lines::may_wait;
pub use terminal::{LiveTable, PlainLines};

use std::sync::{Arc, mpsc};

use calumma_analysis::Report;

use crate::report::EpochReport;

/// Takes every report, each system's in order, on the thread that publishes them.
pub trait Output: Send {
    /// Takes a report; `json` is the same as one line of JSON, without a line break.
    fn report(&mut self, report: &dyn Report, json: &str);

    /// Takes what is reported before its epoch is over, and is in the epoch's report again.
    fn notice(&mut self, _report: &dyn Report, _json: &str) {}

    /// How the slow ones fare that are behind it.
    fn sinks(&self) -> Vec<Arc<SinkStatus>> {
        Vec::new()
    }

    /// Writes out what is still held back.
    ///
    /// # Errors
    /// When not everything could be written, then or earlier.
    fn finish(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// ChameleMon's reports within the same process; those that nobody receives any more are dropped.
impl Output for mpsc::Sender<EpochReport> {
    fn report(&mut self, report: &dyn Report, _json: &str) {
        if let Some(report) = report.as_type::<EpochReport>() {
            let _ = self.send(report.clone());
        }
    }
}
