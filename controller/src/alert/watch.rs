//! From reports to alerts: what each system watches for, and what is said about it.

use std::collections::HashMap;

use calumma_analysis::alert::{Details, Fact, Rules};
use calumma_analysis::{EpochHead, Report};
use chrono::{DateTime, SecondsFormat};
use serde::Serialize;

use super::hysteresis::{Hysteresis, Lasting, Patience, Transition};

/// What a webhook is sent: the body of its request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// The same from the start of an alert to its end, and never again.
    pub id: String,
    /// `start`, `update` or `end`.
    pub event: &'static str,
    /// `loss`, `ill`, `decode`, `rewritten`, `incomplete`, `edge_missing` or `node_missing`; of a
    /// further system, a name of its own.
    pub alert: &'static str,
    /// The node it is about, where it is about one.
    pub node: Option<String>,
    /// The epoch that brought it.
    pub epoch: u64,
    /// When that epoch began.
    pub time: String,
    /// When the epoch began that started the alert.
    pub since: String,
    /// In words.
    pub text: String,
    /// Share and flows of alert `loss`; share and causes of alert `incomplete`.
    #[serde(flatten)]
    pub details: Details,
}

/// Watches reports for trouble.
#[derive(Debug)]
pub struct Watch {
    patience: Patience,
    rules: Vec<Box<dyn Rules>>,
    alerts: HashMap<(&'static str, Option<String>), Hysteresis>,
}

impl Watch {
    /// Watches what each system's rules say.
    pub fn new(rules: Vec<Box<dyn Rules>>, patience: Patience) -> Self {
        Self { patience, rules, alerts: HashMap::new() }
    }

    /// Takes a report, and gives what is to be said.
    pub fn take(&mut self, report: &dyn Report) -> Vec<Event> {
        let Self { patience, rules, alerts } = self;
        let head = report.head();
        let read = rules.iter_mut().find_map(|rules| {
            let facts = rules.read(report)?;
            Some((rules, facts))
        });
        let Some((rules, facts)) = read else { return Vec::new() };
        let mut events = Vec::new();
        for fact in facts {
            let alert = alerts.entry((fact.alert, fact.node.clone())).or_default();
            let stepped = alert.step(fact.reading, head.epoch, head.start_unix_ns, patience);
            if let Some((transition, lasting)) = stepped {
                let over = transition == Transition::End;
                let text = rules.text(&fact, report, over);
                let details = rules.details(&fact, report);
                events.push(event(fact, transition, &lasting, head, text, details));
            }
        }
        events
    }
}

pub(super) fn event(
    fact: Fact,
    transition: Transition,
    lasting: &Lasting,
    head: EpochHead,
    text: String,
    details: Details,
) -> Event {
    let Fact { alert, node, .. } = fact;
    let id = match &node {
        None => format!("{alert}-{}", lasting.since_epoch),
        Some(node) => format!("{alert}-{node}-{}", lasting.since_epoch),
    };
    Event {
        id,
        event: match transition {
            Transition::Start => "start",
            Transition::Update => "update",
            Transition::End => "end",
        },
        alert,
        node,
        epoch: head.epoch,
        time: rfc3339(head.start_unix_ns),
        since: rfc3339(lasting.since_ns),
        text,
        details,
    }
}

fn rfc3339(unix_ns: u64) -> String {
    let time = DateTime::from_timestamp_nanos(i64::try_from(unix_ns).unwrap_or(i64::MAX));
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use calumma_analysis::System;
    use calumma_analysis::alert::AlertLimits;
    use calumma_chamelemon_analysis::ChameleMon;

    use super::*;
    use crate::report::{
        Cause, CauseKind, DecodeState, EpochReport, FlowPackets, NetworkState, StrayKind,
        StrayReport, sample,
    };

    const PATIENCE: Patience = Patience { raise_after: 2, clear_after: 2, update_ns: 100_000_000 };

    /// What is said over epochs 1, 2, ... that `change` makes out of a healthy one.
    fn story(epochs: u64, change: impl Fn(u64, &mut EpochReport)) -> Vec<(u64, Event)> {
        let limits = AlertLimits { loss_share: 0.01, incomplete_share: 0.05 };
        let rules = ChameleMon.alert_rules(&limits, &["e1".to_owned(), "e2".to_owned()]);
        let mut watch = Watch::new(vec![rules], PATIENCE);
        let mut events = Vec::new();
        for epoch in 1..=epochs {
            let mut report = sample();
            (report.epoch, report.start_unix_ns) = (epoch, epoch * 50_000_000);
            change(epoch, &mut report);
            events.extend(watch.take(&report).into_iter().map(|event| (epoch, event)));
        }
        events
    }

    fn words(events: &[(u64, Event)]) -> Vec<(u64, &str, &str)> {
        events.iter().map(|(epoch, event)| (*epoch, event.alert, event.event)).collect()
    }

    #[test]
    fn a_healthy_network_alarms_nobody() {
        assert_eq!(words(&story(50, |_, _| {})), []);
    }

    #[test]
    fn losses_are_reported_from_start_to_end_with_the_flows_that_lost_most() {
        let events = story(12, |epoch, report| {
            // Of 81,234 packets: 1.2 % in epochs 2 to 6, and 0.7 %, neither good nor bad, in 8.
            report.loss[0].lost = match epoch {
                2..=6 => 1000,
                8 => 600,
                _ => 3,
            };
        });
        let wanted = [(3, "loss", "start"), (5, "loss", "update"), (7, "loss", "update")];
        assert_eq!(words(&events)[..3], wanted);
        assert_eq!(words(&events)[3..], [(9, "loss", "update"), (10, "loss", "end")]);
        let start = serde_json::to_value(&events[0].1).unwrap();
        assert_eq!(start["id"], "loss-3");
        assert_eq!(start["since"], "1970-01-01T00:00:00.150Z");
        assert_eq!(start["flows"][0]["lost"], 1000);
        assert_eq!(start["flows"][0]["src"], "10.1.0.2");
        assert!((start["loss_share"].as_f64().unwrap() - 0.0123).abs() < 1e-4);
        assert_eq!(start["text"], "1000 packets of 1 flows lost in epoch 3");
        assert!(events.iter().all(|(_, event)| event.id == "loss-3"));
    }

    #[test]
    fn an_edge_that_stays_away_is_named_and_losses_are_then_not_judged() {
        let events = story(8, |epoch, report| {
            report.loss[0].lost = 5000;
            if epoch < 6 {
                report.complete = false;
                report.missing_edges = vec!["e2".to_owned()];
                report.incomplete_because = vec!["e2: nothing came in time".to_owned()];
            }
        });
        let edge: Vec<_> = events.iter().filter(|(_, event)| event.alert != "loss").collect();
        assert_eq!(edge[0].1.text, "e2: nothing came in time");
        assert_eq!(edge[0].1.node.as_deref(), Some("e2"));
        assert_eq!((edge[0].0, edge.last().unwrap().0), (2, 7));
        assert_eq!(edge.last().unwrap().1.text, "edge e2 delivers again");
        let loss: Vec<_> = events.iter().filter(|(_, event)| event.alert == "loss").collect();
        assert_eq!((loss.len(), loss[0].0), (1, 7));
    }

    #[test]
    fn an_ill_network_and_failed_decodes_are_reported() {
        let events = story(4, |_, report| {
            report.state = NetworkState::Ill;
            report.edges[0].hh_decode = DecodeState::Partial;
            report.decode.hl = DecodeState::Blocked;
        });
        let wanted = [(2, "ill", "start"), (2, "decode", "start")];
        assert_eq!(words(&events)[..2], wanted);
        assert!(events[1].1.text.contains("HL blocked, LL absent, HH partial at [e1]"));
    }

    /// An epoch that is incomplete by this, packets of one flow of which are known.
    fn spoil(report: &mut EpochReport, edge: &str, kind: CauseKind, what: &str) {
        let reason = format!("{edge}: {what}");
        report.complete = false;
        report.incomplete_because.push(reason.clone());
        let (edge, flow) = (edge.to_owned(), report.loss[0].flow);
        let flows = vec![FlowPackets { flow, packets: 7 }];
        let what = StrayKind::Late;
        let stray = StrayReport { edge: edge.clone(), what, packets: 9, beyond: 2, flows };
        report.strays = vec![stray];
        report.causes.push(Cause { edge: Some(edge), kind, reason, packets: 9, flows: Vec::new() });
    }

    #[test]
    fn epochs_that_are_incomplete_now_and_then_are_reported_with_edge_reason_and_flows() {
        // Every other one of epochs 11 to 41 is, and never two in a row: no other alert has it.
        let events = story(200, |epoch, report| match epoch {
            21 => spoil(report, "e1", CauseKind::Rotation, "its egress rotation came late"),
            11..=41 if epoch % 2 == 1 => {
                spoil(report, "e2", CauseKind::Late, &format!("{epoch} packets were late"));
                spoil(report, "e2", CauseKind::Late, "more of them were late");
            }
            _ => {}
        });
        assert!(events.iter().all(|(_, event)| event.alert == "incomplete"));
        let changes: Vec<_> =
            events.iter().filter(|(_, event)| event.event != "update").cloned().collect();
        // Six of the last hundred are more than one in twenty; two are half of that and less, as
        // they are again when that of epoch 37 is a hundred epochs ago.
        assert_eq!(words(&changes), [(22, "incomplete", "start"), (138, "incomplete", "end")]);
        let [(_, start), (_, end)] = &changes[..] else { panic!() };
        assert_eq!(
            start.text,
            "6 of the last 22 epochs are incomplete, 5 of them by this most frequent cause: e2: 19 \
             packets were late (flows: 10.1.0.2:40000 > 10.2.0.2:5201 tcp)"
        );
        assert_eq!(end.text, "epochs are complete again");
        let start = serde_json::to_value(start).unwrap();
        assert_eq!((&start["id"], &start["node"]), (&"incomplete-22".into(), &().into()));
        assert_eq!(start["incomplete_share"], 0.06);
        let causes = start["causes"].as_array().unwrap();
        assert_eq!((&causes[0]["edge"], &causes[0]["epochs"]), (&"e2".into(), &5.into()));
        assert_eq!(causes[0]["flows"][0]["src"], "10.1.0.2");
        assert_eq!(causes[1]["reason"], "e1: its egress rotation came late");
        assert_eq!(causes[1]["flows"], serde_json::Value::Null);
        assert!(start["flows"].is_null() && start["loss_share"].is_null());
    }

    #[test]
    fn a_few_epochs_that_are_incomplete_alarm_nobody() {
        let events = story(300, |epoch, report| {
            if epoch % 20 == 3 {
                spoil(report, "e2", CauseKind::Clock, "clocks differ");
            }
        });
        assert_eq!(words(&events), []);
    }
}
