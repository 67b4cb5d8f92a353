//! What alerts watch for. When one starts and ends, and who is sent it, is the controller's.

use std::fmt::Debug;

use serde::Serialize;

use crate::flow::Flow;
use crate::report::Report;

/// What an epoch shows about the thing watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Beyond the limit, which one epoch proves: an alert starts at once.
    Proven,
    /// Beyond the limit.
    Bad,
    /// Neither bad enough to start an alert nor good enough to end one.
    Between,
    /// Clearly within the limit.
    Good,
    /// The epoch does not show it.
    Unknown,
}

/// Limits that the operator sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlertLimits {
    /// Share of an epoch's packets lost above which losses are bad; below half of it they are
    /// good.
    pub loss_share: f64,
    /// Share of the last epochs that are incomplete above which that is bad; up to half of it, it
    /// is good.
    pub incomplete_share: f64,
}

/// A victim flow that an alert names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Victim {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Packets lost in the epoch.
    pub lost: u64,
}

/// What has kept epochs from being complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spoiler {
    /// The edge where it shows; none where it is the network's.
    pub edge: Option<String>,
    /// What it is, in the words of the last epoch that had it.
    pub reason: String,
    /// In how many of the last epochs.
    pub epochs: usize,
    /// Flows at fault in that epoch, as far as they are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<Flow>,
}

/// What an alert adds to its words.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Details {
    /// Share of packets lost in this epoch, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_share: Option<f64>,
    /// Whether that is a lower bound, and what flows lost may be one as well.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub loss_share_at_least: bool,
    /// The flows that lost most in this epoch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<Victim>,
    /// Share of the last epochs that are incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete_share: Option<f64>,
    /// What made most of these so, the most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Spoiler>,
}

/// One thing that is watched, as one epoch shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The alert's name; no other system has an alert of that name.
    pub alert: &'static str,
    /// The node it is about, where it is about one.
    pub node: Option<String>,
    /// How things stand.
    pub reading: Reading,
}

/// What a system's reports are watched for.
pub trait Rules: Debug + Send {
    /// Takes the next report, and gives every thing watched, always the same ones in the same
    /// order; `None` where the report is another system's.
    fn read(&mut self, report: &dyn Report) -> Option<Vec<Fact>>;

    /// A fact of `report` that is bad in words; `over` where its alert ends.
    fn text(&self, fact: &Fact, report: &dyn Report, over: bool) -> String;

    /// What is added to the words: nothing, if nothing is said here.
    fn details(&self, _fact: &Fact, _report: &dyn Report) -> Details {
        Details::default()
    }

    /// Forgets earlier reports, since the system is off: nothing, if they are not remembered.
    fn forget(&mut self) {}
}
