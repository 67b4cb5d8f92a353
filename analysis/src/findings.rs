//! A report of any system but ChameleMon, whose own is older than this.
//!
//! ```text
//! {"system": "...", "epoch": ..., "start_unix_ns": ..., "length_ms": ..., "complete": ...,
//!  "missing_nodes": [...], "incomplete_because": [...], and what the system found}
//! ```

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::report::{EpochHead, Report};
use crate::run::Collected;

/// What a system says of an epoch beside which one it is and what is missing: an object of JSON
/// whose fields have other names than those of [`SystemReport`].
pub trait Findings: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Name of the system.
    const SYSTEM: &'static str;

    /// See [`Report::unpublished`].
    fn unpublished(&self) -> Option<String> {
        None
    }
}

/// A system's report on one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "F: Findings")]
pub struct SystemReport<F> {
    system: Cow<'static, str>,
    /// Which epoch.
    #[serde(flatten)]
    pub head: EpochHead,
    /// Whether every node that runs the system delivered all of the epoch, in time and by a clock
    /// that keeps to the guard.
    pub complete: bool,
    /// Nodes of which something did not come in time, or may have packets of other epochs.
    pub missing_nodes: Vec<String>,
    /// Why the epoch is incomplete; empty where it is complete.
    pub incomplete_because: Vec<String>,
    /// What was found.
    #[serde(flatten)]
    pub findings: F,
}

impl<F: Findings> SystemReport<F> {
    /// The report on an epoch in which `findings` were found.
    pub fn new<S>(epoch: &Collected<S>, findings: F) -> Self {
        let incomplete_because = epoch.incomplete_because();
        Self {
            system: F::SYSTEM.into(),
            head: epoch.head,
            complete: incomplete_because.is_empty(),
            missing_nodes: epoch.missing_nodes(),
            incomplete_because,
            findings,
        }
    }

    /// Adds why the epoch is incomplete, though all nodes delivered.
    pub fn add_problem(&mut self, problem: String) {
        self.complete = false;
        self.incomplete_because.push(problem);
    }

    /// The report in a line of JSON; `None` where the line is another system's.
    pub fn read(line: &str) -> Option<Arc<dyn Report>> {
        let report: Self = serde_json::from_str(line).ok()?;
        (report.system == F::SYSTEM).then(|| Arc::new(report) as Arc<dyn Report>)
    }
}

impl<F: Findings> Report for SystemReport<F> {
    fn system(&self) -> &'static str {
        F::SYSTEM
    }

    fn head(&self) -> EpochHead {
        self.head
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn unpublished(&self) -> Option<String> {
        self.findings.unpublished()
    }

    fn to_shared(&self) -> Arc<dyn Report> {
        Arc::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Found {
        packets: u64,
    }

    impl Findings for Found {
        const SYSTEM: &'static str = "sixth";
    }

    #[test]
    fn a_line_names_its_system_and_epoch_and_is_read_by_no_other() {
        let head = EpochHead { epoch: 7, start_unix_ns: 350_000_000, length_ms: 50 };
        let epoch = Collected::<()> { head, nodes: Vec::new(), topology: None };
        let mut report = SystemReport::new(&epoch, Found { packets: 3 });
        assert!(report.complete);
        report.add_problem("no room".to_owned());
        let line = serde_json::to_string(&report).unwrap();
        assert_eq!(
            line,
            r#"{"system":"sixth","epoch":7,"start_unix_ns":350000000,"length_ms":50,"complete":false,"#
                .to_owned()
                + r#""missing_nodes":[],"incomplete_because":["no room"],"packets":3}"#
        );
        let read = SystemReport::<Found>::read(&line).unwrap();
        assert_eq!(read.as_type(), Some(&report));
        assert!(SystemReport::<Found>::read(&line.replace("sixth", "fifth")).is_none());
    }
}
