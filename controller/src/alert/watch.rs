//! From reports to alerts: what is watched, and what is said about it.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat};
use serde::Serialize;

use super::hysteresis::{Hysteresis, Lasting, Patience, Reading, Transition};
use crate::report::{DecodeState, EpochReport, Flow, NetworkState};

/// Victim flows that an alert names.
const FLOWS_NAMED: usize = 5;

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Loss,
    Ill,
    Decode,
    EdgeMissing(String),
}

impl Trouble {
    fn name(&self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Ill => "ill",
            Self::Decode => "decode",
            Self::EdgeMissing(_) => "edge_missing",
        }
    }
}

/// What a webhook is told: the body of its request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// The same from the start of an alert to its end, and never again.
    pub id: String,
    /// `start`, `update` or `end`.
    pub event: &'static str,
    /// `loss`, `ill`, `decode` or `edge_missing`.
    pub alert: &'static str,
    /// The edge it is about, where it is about one.
    pub edge: Option<String>,
    /// The epoch that brought it.
    pub epoch: u64,
    /// When that epoch began.
    pub time: String,
    /// When the epoch began that started the alert.
    pub since: String,
    /// In words.
    pub text: String,
    /// Share of packets lost in this epoch; of alert `loss` where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_share: Option<f64>,
    /// The flows that lost most in this epoch; of alert `loss`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<Victim>,
}

/// A victim flow in an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Victim {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Packets lost in the epoch.
    pub lost: u64,
}

/// Watches reports for trouble.
#[derive(Debug)]
pub struct Watch {
    loss_share: f64,
    patience: Patience,
    alerts: BTreeMap<Trouble, Hysteresis>,
}

impl Watch {
    /// Watches the edges called `edges`; more than `loss_share` of an epoch's packets lost is bad,
    /// less than half of that is good.
    pub fn new(edges: &[String], loss_share: f64, patience: Patience) -> Self {
        let troubles = [Trouble::Loss, Trouble::Ill, Trouble::Decode];
        let edges = edges.iter().cloned().map(Trouble::EdgeMissing);
        let alerts = troubles.into_iter().chain(edges).map(|t| (t, Hysteresis::default()));
        Self { loss_share, patience, alerts: alerts.collect() }
    }

    /// Takes a report, and gives what is to be said.
    pub fn take(&mut self, report: &EpochReport) -> Vec<Event> {
        let (epoch, at) = (report.epoch, report.start_unix_ns);
        let mut events = Vec::new();
        for (trouble, alert) in &mut self.alerts {
            let reading = read(trouble, report, self.loss_share);
            if let Some((transition, lasting)) = alert.step(reading, epoch, at, &self.patience) {
                events.push(event(trouble, transition, &lasting, report));
            }
        }
        events
    }
}

fn read(trouble: &Trouble, report: &EpochReport, limit: f64) -> Reading {
    let bad = |is: bool| if is { Reading::Bad } else { Reading::Good };
    match trouble {
        Trouble::Loss => match loss_share(report) {
            None => Reading::Unknown,
            Some(share) if share > limit => Reading::Bad,
            Some(share) if share > limit / 2.0 => Reading::Between,
            Some(_) => Reading::Good,
        },
        Trouble::Ill => bad(report.state == NetworkState::Ill),
        Trouble::EdgeMissing(edge) => bad(report.missing_edges.contains(edge)),
        Trouble::Decode => {
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
    }
}

/// The share of packets that were lost, where it is certain.
fn loss_share(report: &EpochReport) -> Option<f64> {
    let entered: u64 = report.edges.iter().map(|edge| edge.packets_in).sum::<Option<u64>>()?;
    let share = report.lost_packets() as f64 / entered.max(1) as f64;
    report.losses_are_certain().then_some(share)
}

fn event(
    trouble: &Trouble,
    transition: Transition,
    lasting: &Lasting,
    report: &EpochReport,
) -> Event {
    let edge = match trouble {
        Trouble::EdgeMissing(edge) => Some(edge.clone()),
        _ => None,
    };
    let of_loss = *trouble == Trouble::Loss;
    let victims = report.loss.iter().filter(|loss| !loss.partial).take(FLOWS_NAMED);
    let victims = victims.map(|loss| Victim { flow: loss.flow, lost: loss.lost });
    let id = match &edge {
        None => format!("{}-{}", trouble.name(), lasting.since_epoch),
        Some(edge) => format!("{}-{edge}-{}", trouble.name(), lasting.since_epoch),
    };
    Event {
        id,
        event: match transition {
            Transition::Start => "start",
            Transition::Update => "update",
            Transition::End => "end",
        },
        alert: trouble.name(),
        edge,
        epoch: report.epoch,
        time: rfc3339(report.start_unix_ns),
        since: rfc3339(lasting.since_ns),
        text: text(trouble, transition, report),
        loss_share: if of_loss { loss_share(report) } else { None },
        flows: if of_loss { victims.collect() } else { Vec::new() },
    }
}

fn text(trouble: &Trouble, transition: Transition, report: &EpochReport) -> String {
    let over = transition == Transition::End;
    match trouble {
        Trouble::Loss if over => "losses are back below the limit".to_owned(),
        Trouble::Loss => {
            let (lost, flows) = (report.lost_packets(), report.loss.len());
            format!("{lost} packets of {flows} flows lost in epoch {}", report.epoch)
        }
        Trouble::Ill if over => "the network is healthy again".to_owned(),
        Trouble::Ill => "so many victim flows that light losses are sampled".to_owned(),
        Trouble::EdgeMissing(edge) if over => format!("edge {edge} delivers again"),
        Trouble::EdgeMissing(edge) => {
            let reason = report.incomplete_because.iter().find(|reason| reason.starts_with(edge));
            reason.cloned().unwrap_or_else(|| format!("{edge}: did not deliver"))
        }
        Trouble::Decode if over => "all encoders decode again".to_owned(),
        Trouble::Decode => {
            let failed = |edge: &&crate::report::EdgeReport| edge.hh_decode == DecodeState::Partial;
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

fn rfc3339(unix_ns: u64) -> String {
    let time = DateTime::from_timestamp_nanos(i64::try_from(unix_ns).unwrap_or(i64::MAX));
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    const PATIENCE: Patience = Patience { raise_after: 2, clear_after: 2, update_ns: 100_000_000 };

    /// What is said over epochs 1, 2, ... that `change` makes out of a healthy one.
    fn story(epochs: u64, change: impl Fn(u64, &mut EpochReport)) -> Vec<(u64, Event)> {
        let mut watch = Watch::new(&["e1".to_owned(), "e2".to_owned()], 0.01, PATIENCE);
        let mut told = Vec::new();
        for epoch in 1..=epochs {
            let mut report = sample();
            (report.epoch, report.start_unix_ns) = (epoch, epoch * 50_000_000);
            change(epoch, &mut report);
            told.extend(watch.take(&report).into_iter().map(|event| (epoch, event)));
        }
        told
    }

    fn words(told: &[(u64, Event)]) -> Vec<(u64, &str, &str)> {
        told.iter().map(|(epoch, event)| (*epoch, event.alert, event.event)).collect()
    }

    #[test]
    fn a_healthy_network_alarms_nobody() {
        assert_eq!(words(&story(50, |_, _| {})), []);
    }

    #[test]
    fn losses_are_told_from_start_to_end_with_the_flows_that_lost_most() {
        let told = story(12, |epoch, report| {
            // Of 81,234 packets: 1.2 % in epochs 2 to 6, and 0.7 %, neither good nor bad, in 8.
            report.loss[0].lost = match epoch {
                2..=6 => 1000,
                8 => 600,
                _ => 3,
            };
        });
        let wanted = [(3, "loss", "start"), (5, "loss", "update"), (7, "loss", "update")];
        assert_eq!(words(&told)[..3], wanted);
        assert_eq!(words(&told)[3..], [(9, "loss", "update"), (10, "loss", "end")]);
        let start = serde_json::to_value(&told[0].1).unwrap();
        assert_eq!(start["id"], "loss-3");
        assert_eq!(start["since"], "1970-01-01T00:00:00.150Z");
        assert_eq!(start["flows"][0]["lost"], 1000);
        assert_eq!(start["flows"][0]["src"], "10.1.0.2");
        assert!((start["loss_share"].as_f64().unwrap() - 0.0123).abs() < 1e-4);
        assert_eq!(start["text"], "1000 packets of 1 flows lost in epoch 3");
        assert!(told.iter().all(|(_, event)| event.id == "loss-3"));
    }

    #[test]
    fn an_edge_that_stays_away_is_named_and_losses_are_then_not_judged() {
        let told = story(8, |epoch, report| {
            report.loss[0].lost = 5000;
            if epoch < 6 {
                report.complete = false;
                report.missing_edges = vec!["e2".to_owned()];
                report.incomplete_because = vec!["e2: nothing came in time".to_owned()];
            }
        });
        let edge: Vec<_> = told.iter().filter(|(_, event)| event.alert != "loss").collect();
        assert_eq!(edge[0].1.text, "e2: nothing came in time");
        assert_eq!(edge[0].1.edge.as_deref(), Some("e2"));
        assert_eq!((edge[0].0, edge.last().unwrap().0), (2, 7));
        assert_eq!(edge.last().unwrap().1.text, "edge e2 delivers again");
        let loss: Vec<_> = told.iter().filter(|(_, event)| event.alert == "loss").collect();
        assert_eq!((loss.len(), loss[0].0), (1, 7));
    }

    #[test]
    fn an_ill_network_and_failed_decodes_are_told() {
        let told = story(4, |_, report| {
            report.state = NetworkState::Ill;
            report.edges[0].hh_decode = DecodeState::Partial;
            report.decode.hl = DecodeState::Blocked;
        });
        let wanted = [(2, "ill", "start"), (2, "decode", "start")];
        assert_eq!(words(&told)[..2], wanted);
        assert!(told[1].1.text.contains("HL blocked, LL absent, HH partial at [e1]"));
    }
}
