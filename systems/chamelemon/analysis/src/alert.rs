//! What alerts watch for in ChameleMon's reports.

mod recent;

use std::collections::HashSet;

use calumma_analysis::Report;
use calumma_analysis::alert::{AlertLimits, Details, Fact, Reading, Rules, Victim};

use self::recent::Recent;
use crate::report::{
    Cause, CauseKind, Change, DecodeState, EdgeReport, EpochReport, NetworkState, Rewritten,
};

/// Flows that an alert names, victims or those at fault.
const FLOWS_NAMED: usize = 5;

const LOSS: &str = "loss";
const ILL: &str = "ill";
const DECODE: &str = "decode";
const REWRITTEN: &str = "rewritten";
const INCOMPLETE: &str = "incomplete";
const EDGE_MISSING: &str = "edge_missing";

/// Losses, network state, decoding, epochs that are incomplete, and edges that deliver nothing.
#[derive(Debug)]
pub(crate) struct EpochRules {
    limits: AlertLimits,
    /// In the order of their names.
    edges: Vec<String>,
    recent: Recent,
}

impl EpochRules {
    pub(crate) fn new(limits: AlertLimits, edges: &[String]) -> Self {
        let mut edges = edges.to_owned();
        edges.sort();
        Self { limits, edges, recent: Recent::default() }
    }
}

impl Rules for EpochRules {
    fn read(&mut self, report: &dyn Report) -> Option<Vec<Fact>> {
        let report: &EpochReport = report.as_type()?;
        self.recent.take(report);
        let of_network = |alert, reading| Fact { alert, node: None, reading };
        let missing: HashSet<&String> = report.missing_edges.iter().collect();
        let of_edge = |edge: &String| Fact {
            alert: EDGE_MISSING,
            node: Some(edge.clone()),
            reading: bad_if(missing.contains(edge)),
        };
        let network = [
            of_network(LOSS, losses(report, self.limits.loss_share)),
            of_network(ILL, bad_if(report.state == NetworkState::Ill)),
            of_network(DECODE, decoding(report)),
            of_network(REWRITTEN, rewriting(report, self.limits.loss_share)),
            of_network(INCOMPLETE, self.recent.reading(self.limits.incomplete_share)),
        ];
        Some(network.into_iter().chain(self.edges.iter().map(of_edge)).collect())
    }

    fn text(&self, fact: &Fact, report: &dyn Report, over: bool) -> String {
        let Some(report) = report.as_type() else { return String::new() };
        match (fact.alert, over) {
            (INCOMPLETE, true) => "epochs are complete again".to_owned(),
            (INCOMPLETE, false) => self.recent.text(),
            _ => text(fact, report, over),
        }
    }

    fn details(&self, fact: &Fact, report: &dyn Report) -> Details {
        match (fact.alert, report.as_type::<EpochReport>()) {
            (LOSS, Some(report)) => {
                let victims = report.loss.iter().filter(|loss| !loss.partial).take(FLOWS_NAMED);
                let victims = victims.map(|loss| Victim { flow: loss.flow, lost: loss.lost });
                let (loss_share, flows) = (loss_share(report), victims.collect());
                let loss_share_at_least = loss_share.is_some() && !report.losses_are_exact();
                Details { loss_share, loss_share_at_least, flows, ..Details::default() }
            }
            (INCOMPLETE, Some(_)) => Details {
                incomplete_share: Some(self.recent.share()),
                causes: self.recent.spoilers(),
                ..Details::default()
            },
            _ => Details::default(),
        }
    }

    fn forget(&mut self) {
        self.recent = Recent::default();
    }
}

fn bad_if(is: bool) -> Reading {
    if is { Reading::Bad } else { Reading::Good }
}

fn losses(report: &EpochReport, limit: f64) -> Reading {
    match loss_share(report) {
        None => Reading::Unknown,
        Some(share) if share > limit => Reading::Bad,
        Some(_) if !report.losses_are_exact() => Reading::Unknown,
        Some(share) if share > limit / 2.0 => Reading::Between,
        Some(_) => Reading::Good,
    }
}

fn decoding(report: &EpochReport) -> Reading {
    let failed = |state| matches!(state, DecodeState::Partial | DecodeState::Blocked);
    let hh = report.edges.iter().any(|edge| failed(edge.hh_decode));
    if hh || failed(report.decode.hl) || failed(report.decode.ll) {
        Reading::Bad
    } else if report.decode.hl == DecodeState::Skipped {
        Reading::Unknown
    } else {
        Reading::Good
    }
}

/// Whether the network rewrites packets, so many that losses can't be known.
fn rewriting(report: &EpochReport, limit: f64) -> Reading {
    let marks = report.causes.iter().any(|cause| cause.kind == CauseKind::Mark);
    if marks || rewritten_packets(report) as f64 > limit * entered(report) as f64 {
        Reading::Bad
    } else if report.losses_are_decoded() {
        Reading::Good
    } else {
        Reading::Unknown
    }
}

/// Packets that are missing and may have been rewritten.
fn rewritten_packets(report: &EpochReport) -> u64 {
    rewritten(report).map(|rewritten| rewritten.packets).sum()
}

/// Flows whose packets may have been rewritten, and not only be late.
fn rewritten(report: &EpochReport) -> impl Iterator<Item = &Rewritten> {
    report.rewritten.iter().filter(|rewritten| rewritten.what != Change::Epoch)
}

/// Packets that entered at the edges that say so.
fn entered(report: &EpochReport) -> u64 {
    report.edges.iter().filter_map(|edge| edge.packets_in).sum()
}

/// The share of packets that were lost, at least; where losses are known.
fn loss_share(report: &EpochReport) -> Option<f64> {
    let entered: u64 = report.edges.iter().map(|edge| edge.packets_in).sum::<Option<u64>>()?;
    let share = report.lost_packets() as f64 / entered.max(1) as f64;
    report.losses_are_decoded().then_some(share)
}

fn text(fact: &Fact, report: &EpochReport, over: bool) -> String {
    match (fact.alert, fact.node.as_deref()) {
        (LOSS, _) if over => "losses are back below the limit".to_owned(),
        (LOSS, _) => {
            let (lost, flows) = (report.lost_packets(), report.loss.len());
            let at_least = if report.losses_are_exact() { "" } else { "at least " };
            format!("{at_least}{lost} packets of {flows} flows lost in epoch {}", report.epoch)
        }
        (ILL, _) if over => "the network is healthy again".to_owned(),
        (ILL, _) => "so many victim flows that light losses are sampled".to_owned(),
        (REWRITTEN, _) if over => "packets are no longer rewritten on their way".to_owned(),
        (REWRITTEN, _) => {
            let mark = report.causes.iter().find(|cause| cause.kind == CauseKind::Mark);
            mark.map(|cause| cause.reason.clone()).unwrap_or_else(|| {
                format!(
                    "{} packets of {} flows may have left as other flows' or under other marks in \
                     epoch {}: NAT, a load balancer, a tunnel or a policy is between the edges",
                    rewritten_packets(report),
                    rewritten(report).count(),
                    report.epoch
                )
            })
        }
        (EDGE_MISSING, Some(edge)) if over => format!("edge {edge} delivers again"),
        (EDGE_MISSING, Some(edge)) => {
            let of_edge = |cause: &&Cause| cause.edge.as_deref() == Some(edge);
            let cause = report.causes.iter().find(of_edge).map(|cause| cause.reason.clone());
            let named = |reason: &&String| reason.starts_with(&format!("{edge}: "));
            let reason = report.incomplete_because.iter().find(named);
            cause.or(reason.cloned()).unwrap_or_else(|| format!("{edge}: did not deliver"))
        }
        _ if over => "all encoders decode again".to_owned(),
        _ => {
            let failed = |edge: &&EdgeReport| edge.hh_decode == DecodeState::Partial;
            let edges = report.edges.iter().filter(failed).map(|edge| edge.edge.as_str());
            format!(
                "encoders are too small for the traffic: HL {}, LL {}, HH partial at [{}]",
                report.decode.hl.name(),
                report.decode.ll.name(),
                edges.collect::<Vec<_>>().join(", ")
            )
        }
    }
}
