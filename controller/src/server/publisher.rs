//! Where all systems' reports meet: the outputs take one at a time.

use std::fmt;
use std::sync::Mutex;

use calumma_analysis::Report;

use super::hub::lock;
use crate::output::Output;

/// The outputs.
pub(crate) struct Publisher(Mutex<Vec<Box<dyn Output>>>);

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Publisher(..)")
    }
}

impl Publisher {
    pub(super) fn new(outputs: Vec<Box<dyn Output>>) -> Self {
        Self(Mutex::new(outputs))
    }

    /// Gives a report to every output; `json` is the same as one line.
    pub(crate) fn publish(&self, report: &dyn Report, json: &str) {
        lock(&self.0).iter_mut().for_each(|output| output.report(report, json));
    }

    /// The same of what is reported before its epoch is over.
    pub(crate) fn notice(&self, report: &dyn Report, json: &str) {
        lock(&self.0).iter_mut().for_each(|output| output.notice(report, json));
    }

    /// Has every output write out what it holds back.
    ///
    /// # Errors
    /// What could not be written.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        lock(&self.0).iter_mut().try_for_each(|output| output.finish())
    }
}
