//! From reports to alerts: what each system watches for, and what is said about it.

use std::collections::BTreeMap;

use calumma_analysis::alert::Rules;
use calumma_analysis::{EpochHead, Report};

use super::hysteresis::Patience;
use super::watched::{Event, Watched};

/// System, alert and node.
type Of = (&'static str, &'static str, Option<String>);

/// Watches reports for trouble.
#[derive(Debug)]
pub struct Watch {
    patience: Patience,
    /// By system.
    rules: BTreeMap<&'static str, Box<dyn Rules>>,
    alerts: BTreeMap<Of, Watched>,
}

impl Watch {
    /// Watches what each system's rules say.
    pub fn new(
        rules: impl IntoIterator<Item = (&'static str, Box<dyn Rules>)>,
        patience: Patience,
    ) -> Self {
        Self { patience, rules: rules.into_iter().collect(), alerts: BTreeMap::new() }
    }

    /// Takes a report, and gives what is to be said.
    pub fn take(&mut self, report: &dyn Report) -> Vec<Event> {
        let Self { patience, rules, alerts } = self;
        let (system, head) = (report.system(), report.head());
        let Some(rules) = rules.get_mut(system) else { return Vec::new() };
        let facts = rules.read(report).unwrap_or_default();
        let stepped = facts.into_iter().filter_map(|fact| {
            let of = (system, fact.alert, fact.node.clone());
            alerts.entry(of).or_default().step(fact, head, patience, |fact, over| {
                (rules.text(fact, report, over), rules.details(fact, report))
            })
        });
        stepped.collect()
    }

    /// Ends the alerts of systems that are off at the moment of `head`, and forgets what these have
    /// reported.
    pub fn end_where_off(
        &mut self,
        is_on: impl Fn(&'static str) -> bool,
        head: EpochHead,
    ) -> Vec<Event> {
        let off = self.rules.iter_mut().filter(|(system, _)| !is_on(system));
        off.for_each(|(_, rules)| rules.forget());
        let mut events = Vec::new();
        self.alerts.retain(|(system, alert, node), watched| {
            let stays = is_on(system);
            if !stays {
                let text = || format!("not watched any more: {system} is switched off");
                events.extend(watched.end((alert, node.clone()), head, text));
            }
            stays
        });
        events
    }
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
        let mut watch = Watch::new([(ChameleMon.name(), rules)], PATIENCE);
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

    #[test]
    fn an_update_that_no_bad_epoch_brings_says_what_was_seen_last() {
        let events = story(9, |epoch, report| {
            report.loss[0].lost = 1000;
            // Incomplete from epoch 4 on, so that losses are not known; e2 is away until epoch 6.
            if epoch >= 4 {
                report.complete = false;
                report.loss.clear();
            }
            if epoch <= 6 {
                report.missing_edges = vec!["e2".to_owned()];
            }
            report.state = if epoch <= 6 { NetworkState::Ill } else { NetworkState::Healthy };
        });
        let of = |alert: &str| -> Vec<_> {
            let of = events.iter().filter(|(_, event)| event.alert == alert);
            of.map(|(epoch, event)| (*epoch, event.event, event.text.as_str())).collect()
        };
        let lost = "1000 packets of 1 flows lost in epoch";
        let (two, three) = (format!("{lost} 2"), format!("{lost} 3, last seen in epoch 3"));
        let wanted = [
            (2, "start", &*two),
            (4, "update", &*three),
            (6, "update", &*three),
            (8, "update", &*three),
        ];
        assert_eq!(of("loss"), wanted);
        let (away, over) = ("e2: did not deliver", "edge e2 delivers again");
        let wanted =
            [(2, "start", away), (4, "update", away), (6, "update", away), (8, "end", over)];
        assert_eq!(of("edge_missing"), wanted);
        let updates = events.iter().filter(|(_, event)| event.alert == "loss").skip(1);
        for (_, update) in updates {
            let update = serde_json::to_value(update).unwrap();
            assert_eq!(
                (&update["last_seen_epoch"], &update["flows"][0]["lost"]),
                (&3.into(), &1000.into())
            );
            assert!((update["loss_share"].as_f64().unwrap() - 0.0123).abs() < 1e-4, "{update}");
        }
    }

    #[test]
    fn an_edge_that_is_back_for_an_epoch_is_not_said_to_be_away() {
        let events = story(7, |epoch, report| {
            report.complete = false;
            if epoch != 4 {
                report.missing_edges = vec!["e2".to_owned()];
            }
        });
        let events: Vec<_> = events.iter().filter(|(_, event)| event.node.is_some()).collect();
        let texts: Vec<_> =
            events.iter().map(|(epoch, event)| (*epoch, event.text.as_str())).collect();
        let away = "e2: did not deliver";
        let back = "e2: did not deliver, last seen in epoch 3";
        assert_eq!(texts, [(2, away), (4, back), (6, away)]);
        assert_eq!(events[1].1.last_seen_epoch, Some(3));
        assert_eq!(events[2].1.last_seen_epoch, None);
    }

    #[test]
    fn losses_that_are_lower_bounds_are_said_to_be() {
        let start = |at_least| {
            let events = story(2, |_, report| {
                report.loss[0].lost = 1000;
                report.loss[0].at_least = at_least;
            });
            serde_json::to_value(&events[0].1).unwrap()
        };
        let (exact, bound) = (start(false), start(true));
        assert_eq!(exact["text"], "1000 packets of 1 flows lost in epoch 2");
        assert!(exact.get("loss_share_at_least").is_none());
        assert_eq!(bound["text"], "at least 1000 packets of 1 flows lost in epoch 2");
        assert_eq!(bound["loss_share_at_least"], true);
        assert_eq!(bound["loss_share"], exact["loss_share"]);
    }

    #[test]
    fn alerts_end_where_their_system_is_switched_off_and_begin_anew_where_it_is_on_again() {
        let limits = AlertLimits { loss_share: 0.01, incomplete_share: 0.05 };
        let rules = ChameleMon.alert_rules(&limits, &["e1".to_owned(), "e2".to_owned()]);
        let mut watch = Watch::new([(ChameleMon.name(), rules)], PATIENCE);
        let mut report = sample();
        report.complete = false;
        report.missing_edges = vec!["e2".to_owned()];
        let mut take = |watch: &mut Watch, epoch: u64| {
            (report.epoch, report.start_unix_ns) = (epoch, epoch * 50_000_000);
            watch.take(&report)
        };
        let started: Vec<_> = (1..=7).flat_map(|epoch| take(&mut watch, epoch)).collect();
        let started: Vec<_> = started.iter().filter(|event| event.event == "start").collect();
        assert_eq!(started.len(), 2, "{started:?}");
        let head = EpochHead { epoch: 9, start_unix_ns: 450_000_000, length_ms: 0 };
        assert_eq!(watch.end_where_off(|system| system == "chamelemon", head), []);
        let ended = watch.end_where_off(|system| system == "cfs", head);
        let words: Vec<_> = ended.iter().map(|event| (event.alert, event.event)).collect();
        assert_eq!(words, [("edge_missing", "end"), ("incomplete", "end")]);
        assert_eq!(ended[0].text, "not watched any more: chamelemon is switched off");
        assert_eq!((ended[0].id.as_str(), ended[0].epoch), ("edge_missing-e2-2", 9));
        assert!(started.iter().all(|start| ended.iter().any(|end| end.id == start.id)));
        assert_eq!(watch.end_where_off(|_| false, head), []);
        // Neither bad readings in a row nor incomplete epochs of before count.
        assert_eq!(take(&mut watch, 11), []);
        let anew: Vec<_> = take(&mut watch, 12).into_iter().map(|event| event.alert).collect();
        assert_eq!(anew, ["edge_missing"]);
    }
}
