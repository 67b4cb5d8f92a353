//! Reports, as far as all systems agree on them.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which epoch a report is about. Every report has these fields beside its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EpochHead {
    /// Number of the epoch: its start in nanoseconds since the Unix epoch over its length.
    pub epoch: u64,
    /// Its start in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Its length in milliseconds.
    pub length_ms: u64,
}

/// One system's report on one epoch. Those of a system come in the order of epochs.
pub trait Report: Any + Debug + Send + Sync {
    /// Name of the system.
    fn system(&self) -> &'static str;

    /// The epoch it is about.
    fn head(&self) -> EpochHead;

    /// Whether it has all that there is to say: a later one on the same epoch adds nothing.
    fn is_complete(&self) -> bool;

    /// What of it [`System::read`](crate::System::read) needs for the archive beside the JSON that
    /// is published: further fields of that object, as `"name":value`. `None` where that is
    /// nothing. Asked for where the archive's disk is waited for, and may take its time.
    fn unpublished(&self) -> Option<String> {
        None
    }

    /// A copy that can be shared between threads.
    fn to_shared(&self) -> Arc<dyn Report>;
}

impl dyn Report {
    /// The report by its type; `None` where it is another system's.
    pub fn as_type<R: Report>(&self) -> Option<&R> {
        (self as &dyn Any).downcast_ref()
    }
}

/// A report, and the same as one line of JSON.
#[derive(Clone, Debug)]
pub struct Published {
    /// The report.
    pub report: Arc<dyn Report>,
    /// Without a line break.
    pub json: String,
}

impl Published {
    /// A report with its JSON.
    pub fn new(report: impl Report, json: impl Into<String>) -> Self {
        Self { report: Arc::new(report), json: json.into() }
    }
}
