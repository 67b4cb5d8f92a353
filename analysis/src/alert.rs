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

/// A condition of single nodes that reports of type `R` show.
#[derive(Debug)]
pub struct NodeAlert<R: 'static> {
    /// The alert's name; no other system has an alert of that name.
    pub name: &'static str,
    /// Whether a report shows it of a node; `None` where the report does not have the node. That it
    /// is not shown counts in a complete report only.
    pub shows: fn(&R, &str) -> Option<bool>,
    /// What an alert says when it starts, with `{node}` for the node's name.
    pub begins: &'static str,
    /// What it says when it ends.
    pub ends: &'static str,
}

impl<R: Report> NodeAlert<R> {
    /// The rules of a system that has only this alert.
    pub fn watch(&'static self, nodes: &[String]) -> Box<dyn Rules> {
        Box::new(NodeWatch { alert: self, nodes: nodes.to_vec() })
    }
}

/// Watches the nodes that it lists.
#[derive(Debug)]
struct NodeWatch<R: 'static> {
    alert: &'static NodeAlert<R>,
    nodes: Vec<String>,
}

impl<R: Report> Rules for NodeWatch<R> {
    fn read(&mut self, report: &dyn Report) -> Option<Vec<Fact>> {
        let report = report.as_type::<R>()?;
        let fact = |node: &String| {
            let reading = match (self.alert.shows)(report, node) {
                Some(true) => Reading::Bad,
                Some(false) if report.is_complete() => Reading::Good,
                Some(false) | None => Reading::Unknown,
            };
            Fact { alert: self.alert.name, node: Some(node.clone()), reading }
        };
        Some(self.nodes.iter().map(fact).collect())
    }

    fn text(&self, fact: &Fact, _report: &dyn Report, over: bool) -> String {
        let words = if over { self.alert.ends } else { self.alert.begins };
        words.replace("{node}", fact.node.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::report::EpochHead;
    use crate::run::Collected;
    use crate::{Findings, SystemReport};

    /// Nodes, and whether they are hot.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Found {
        nodes: Vec<(String, bool)>,
    }

    impl Findings for Found {
        const SYSTEM: &'static str = "sixth";
    }

    static HOT: NodeAlert<SystemReport<Found>> = NodeAlert {
        name: "sixth-hot",
        shows: |report, name| {
            let of_node = report.findings.nodes.iter().find(|(node, _)| node == name);
            of_node.map(|&(_, hot)| hot)
        },
        begins: "{node} is hot",
        ends: "{node} is cool again",
    };

    #[test]
    fn a_condition_is_over_where_a_complete_report_says_so() {
        let names = ["e1", "e2", "e3"].map(str::to_owned);
        let mut rules = HOT.watch(&names);
        let head = EpochHead { epoch: 7, start_unix_ns: 350_000_000, length_ms: 50 };
        let epoch = Collected::<()> { head, nodes: Vec::new(), topology: None };
        let nodes = vec![("e1".to_owned(), true), ("e2".to_owned(), false)];
        let mut report = SystemReport::new(&epoch, Found { nodes });
        let mut read = |report: &SystemReport<Found>| {
            let facts = rules.read(report).unwrap();
            assert!(facts.iter().all(|fact| fact.alert == "sixth-hot"));
            assert!(facts.iter().zip(&names).all(|(fact, name)| fact.node.as_ref() == Some(name)));
            facts.into_iter().map(|fact| fact.reading).collect::<Vec<_>>()
        };
        assert_eq!(read(&report), [Reading::Bad, Reading::Good, Reading::Unknown]);
        report.add_problem("e4 is missing".to_owned());
        assert_eq!(read(&report), [Reading::Bad, Reading::Unknown, Reading::Unknown]);

        let (node, reading) = (Some("e1".to_owned()), Reading::Bad);
        let fact = Fact { alert: "sixth-hot", node, reading };
        assert_eq!(rules.text(&fact, &report, false), "e1 is hot");
        assert_eq!(rules.text(&fact, &report, true), "e1 is cool again");
    }
}
