//! Nodes that are expected and not connected, and paths that can't be trusted, second by second: no
//! report is about them.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use calumma_analysis::EpochHead;
use calumma_analysis::alert::{Details, Fact, Reading};

use super::AlertsSection;
use super::hysteresis::Patience;
use super::watched::{Event, Watched};
use crate::paths::PathStatus;

/// How often nodes are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// How nodes stand at a moment.
#[derive(Clone, Debug, Default)]
pub struct WatchedNodes {
    /// The epoch of that moment.
    pub epoch: u64,
    /// The moment, in nanoseconds since the Unix epoch.
    pub unix_ns: u64,
    /// The systems that run, or have epochs to report still.
    pub systems: Vec<&'static str>,
    /// The nodes that no system's alerts watch.
    pub nodes: Vec<WatchedNode>,
    /// Edges that are not connected.
    pub edges_away: Vec<String>,
    /// Whether edges are to send probes.
    pub probing: bool,
    /// The paths between edges that probes have gone.
    pub paths: Vec<PathStatus>,
}

impl WatchedNodes {
    /// The moment stands for its epoch: no report brings what is said of it.
    pub(super) fn head(&self) -> EpochHead {
        EpochHead { epoch: self.epoch, start_unix_ns: self.unix_ns, length_ms: 0 }
    }
}

/// How a node stands.
#[derive(Clone, Debug)]
pub struct WatchedNode {
    /// Its name.
    pub name: String,
    /// `edge`, `transit` or `host`.
    pub role: &'static str,
    /// Whether it is connected.
    pub connected: bool,
    /// What ended its last connection, or why it was refused.
    pub problem: Option<String>,
}

/// Watches which nodes are connected.
pub struct NodeWatch {
    look: Box<dyn Fn() -> WatchedNodes + Send>,
    patience: Patience,
    alerts: BTreeMap<String, Watched>,
    /// By the names of both edges, those alone whose alerts last.
    of_paths: BTreeMap<(String, String), Watched>,
    looked: Option<Instant>,
}

impl fmt::Debug for NodeWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeWatch").field("alerts", &self.alerts).finish_non_exhaustive()
    }
}

impl NodeWatch {
    /// Watches the nodes that `look` gives.
    pub fn new(section: &AlertsSection, look: impl Fn() -> WatchedNodes + Send + 'static) -> Self {
        let patience = Patience {
            raise_after: section.missing_seconds,
            clear_after: section.missing_seconds,
            update_ns: section.update_seconds.saturating_mul(1_000_000_000),
        };
        let (alerts, of_paths) = (BTreeMap::new(), BTreeMap::new());
        Self { look: Box::new(look), patience, alerts, of_paths, looked: None }
    }

    /// Looks at the nodes, once a second however often it is called.
    pub(super) fn look(&mut self) -> Option<WatchedNodes> {
        if self.looked.is_some_and(|looked| looked.elapsed() < INTERVAL) {
            return None;
        }
        self.looked = Some(Instant::now());
        Some((self.look)())
    }

    /// Takes how they stand, and gives what is to be said.
    pub(super) fn take(&mut self, now: &WatchedNodes) -> Vec<Event> {
        let mut events = self.take_nodes(now);
        events.extend(self.take_paths(now));
        events
    }

    fn take_nodes(&mut self, now: &WatchedNodes) -> Vec<Event> {
        const ALERT: &str = "node_missing";
        let mut events = Vec::new();
        for WatchedNode { name, role, connected, problem } in &now.nodes {
            let reading = if *connected { Reading::Good } else { Reading::Bad };
            let fact = Fact { alert: ALERT, node: Some(name.clone()), reading };
            let alert = self.alerts.entry(name.clone()).or_default();
            events.extend(alert.step(fact, now.head(), &self.patience, |_, over| {
                let text = match problem {
                    _ if over => format!("{role} {name} is connected again"),
                    Some(problem) => format!("{role} {name} is not connected: {problem}"),
                    None => format!("{role} {name} is not connected"),
                };
                (text, Details::default())
            }));
        }
        let names: HashSet<&String> = now.nodes.iter().map(|node| &node.name).collect();
        self.alerts.retain(|name, alert| {
            let stays = names.contains(name);
            if !stays {
                let text = || format!("{name}: a system's own alert watches it from now on");
                events.extend(alert.end((ALERT, Some(name.clone())), now.head(), text));
            }
            stays
        });
        events
    }

    fn take_paths(&mut self, now: &WatchedNodes) -> Vec<Event> {
        const ALERT: &str = "path";
        let mut events = Vec::new();
        let alert_of = |from: &str, to: &str| (ALERT, Some(format!("{from}-{to}")));
        // What was seen once was so.
        let patience = Patience { raise_after: 1, ..self.patience };
        for PathStatus { from, to, problem, .. } in &now.paths {
            let of = (from.clone(), to.clone());
            if problem.is_none() && !self.of_paths.contains_key(&of) {
                continue;
            }
            let reading = if problem.is_none() { Reading::Good } else { Reading::Bad };
            let (alert, node) = alert_of(from, to);
            let fact = Fact { alert, node, reading };
            let alert = self.of_paths.entry(of).or_default();
            events.extend(alert.step(fact, now.head(), &patience, |_, _| {
                let text = match problem {
                    Some(problem) => format!("{to}: {problem}"),
                    None => format!("{to}: packets from {from} come as they should again"),
                };
                (text, Details::default())
            }));
        }
        let probed: HashSet<(&str, &str)> =
            now.paths.iter().map(|path| (path.from.as_str(), path.to.as_str())).collect();
        for ((from, to), watched) in &mut self.of_paths {
            if probed.contains(&(from.as_str(), to.as_str())) {
                continue;
            }
            let text = || format!("{to}: packets from {from} are not probed any more");
            if !now.probing {
                events.extend(watched.end(alert_of(from, to), now.head(), text));
                continue;
            }
            // An edge that is away may come back to the same path. Where both are there, a path
            // that has packets is probed again before long.
            let is_away = now.edges_away.iter().any(|edge| edge == from || edge == to);
            let reading = if is_away { Reading::Unknown } else { Reading::Good };
            let (alert, node) = alert_of(from, to);
            let fact = Fact { alert, node, reading };
            let event =
                watched.step(fact, now.head(), &patience, |_, _| (text(), Details::default()));
            events.extend(event);
        }
        self.of_paths.retain(|_, watched| watched.lasts());
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transit_that_goes_is_missed_after_a_while_and_one_that_blinks_is_not() {
        let section = AlertsSection { missing_seconds: 3, ..AlertsSection::default() };
        let mut watch = NodeWatch::new(&section, WatchedNodes::default);
        let mut events = Vec::new();
        for second in 0..20_u64 {
            let node = |name: &str, connected| WatchedNode {
                name: name.to_owned(),
                role: "transit",
                connected,
                problem: (second > 5).then(|| "the connection was reset".to_owned()),
            };
            let nodes = vec![node("s1", !(5..12).contains(&second)), node("s2", second != 7)];
            let unix_ns = second * 1_000_000_000;
            let epoch = 20 * second;
            let now = WatchedNodes { epoch, unix_ns, nodes, ..WatchedNodes::default() };
            events.extend(watch.take(&now));
        }
        let words: Vec<_> =
            events.iter().map(|event| (event.epoch, event.event, event.text.as_str())).collect();
        let missing = "transit s1 is not connected: the connection was reset";
        assert_eq!(words, [(140, "start", missing), (280, "end", "transit s1 is connected again")]);
        assert_eq!(events[0].node.as_deref(), Some("s1"));
        assert!(events.iter().all(|event| event.id == "node_missing-s1-140"));
    }

    #[test]
    fn a_path_that_can_not_be_trusted_is_told_at_once_and_until_it_can_again() {
        let section = AlertsSection { missing_seconds: 3, ..AlertsSection::default() };
        let mut watch = NodeWatch::new(&section, WatchedNodes::default);
        let mut events = Vec::new();
        for second in 0..20_u64 {
            let problem = "marks are rewritten on the way from e1".to_owned();
            let path = PathStatus {
                from: "e1".to_owned(),
                to: "e2".to_owned(),
                problem: (5..9).contains(&second).then_some(problem),
                ..PathStatus::default()
            };
            let (unix_ns, paths) = (second * 1_000_000_000, vec![path]);
            let now = WatchedNodes { epoch: second, unix_ns, paths, ..WatchedNodes::default() };
            events.extend(watch.take(&now));
        }
        let words: Vec<_> =
            events.iter().map(|event| (event.epoch, event.event, event.text.as_str())).collect();
        let rewritten = "e2: marks are rewritten on the way from e1";
        let over = "e2: packets from e1 come as they should again";
        assert_eq!(words, [(5, "start", rewritten), (11, "end", over)]);
        assert_eq!((events[0].alert, events[0].node.as_deref()), ("path", Some("e1-e2")));
    }

    /// What is said over some seconds of a path from e1 to e2 that is wrong in seconds 5 to 9 and
    /// not listed from then on, as `change` has it.
    fn story_of_a_path(
        section: &AlertsSection,
        change: impl Fn(u64, &mut WatchedNodes),
    ) -> Vec<(u64, &'static str, String)> {
        let mut watch = NodeWatch::new(section, WatchedNodes::default);
        let mut events = Vec::new();
        for second in 0..30_u64 {
            let path = PathStatus {
                from: "e1".to_owned(),
                to: "e2".to_owned(),
                problem: (second >= 5).then(|| "marks are rewritten".to_owned()),
                ..PathStatus::default()
            };
            let mut now = WatchedNodes {
                epoch: second,
                unix_ns: second * 1_000_000_000,
                probing: true,
                paths: if second < 10 { vec![path] } else { Vec::new() },
                ..WatchedNodes::default()
            };
            change(second, &mut now);
            events.extend(watch.take(&now));
        }
        events.into_iter().map(|event| (event.epoch, event.event, event.text)).collect()
    }

    #[test]
    fn the_alert_of_a_path_ends_where_it_is_not_probed_any_more() {
        let section = AlertsSection { missing_seconds: 3, ..AlertsSection::default() };
        let start = (5, "start", "e2: marks are rewritten".to_owned());
        let end = |at| (at, "end", "e2: packets from e1 are not probed any more".to_owned());
        // After a while, as no packets go there; at once, as probes are switched off.
        assert_eq!(story_of_a_path(&section, |_, _| {}), [start.clone(), end(12)]);
        let off = story_of_a_path(&section, |second, now| now.probing = second < 10);
        assert_eq!(off, [start.clone(), end(10)]);
        // Not while nobody knows whether the edge comes back to it.
        let away = |second: u64, now: &mut WatchedNodes| {
            let is_away = (10..20).contains(&second);
            now.edges_away = is_away.then(|| "e2".to_owned()).into_iter().collect();
        };
        assert_eq!(story_of_a_path(&section, away), [start.clone(), end(22)]);
        let section = AlertsSection { update_seconds: 9, ..section };
        let last = "e2: marks are rewritten, last seen in epoch 9".to_owned();
        assert_eq!(story_of_a_path(&section, away), [start, (14, "update", last), end(22)]);
    }

    #[test]
    fn a_node_that_is_back_for_a_moment_is_not_said_to_be_away() {
        let section =
            AlertsSection { missing_seconds: 5, update_seconds: 4, ..AlertsSection::default() };
        let mut watch = NodeWatch::new(&section, WatchedNodes::default);
        let mut events = Vec::new();
        for second in 0..20_u64 {
            let node = WatchedNode {
                name: "e1".to_owned(),
                role: "edge",
                connected: second >= 6,
                problem: Some("it was reset".to_owned()),
            };
            // From then on ChameleMon's alert is about it.
            let nodes = if second < 9 { vec![node] } else { Vec::new() };
            let unix_ns = second * 1_000_000_000;
            let now = WatchedNodes { epoch: second, unix_ns, nodes, ..WatchedNodes::default() };
            events.extend(watch.take(&now));
        }
        let words: Vec<_> =
            events.iter().map(|event| (event.epoch, event.event, event.text.as_str())).collect();
        let missing = "edge e1 is not connected: it was reset";
        let last = format!("{missing}, last seen in epoch 5");
        let over = "e1: a system's own alert watches it from now on";
        assert_eq!(words, [(4, "start", missing), (8, "update", &*last), (9, "end", over)]);
        assert!(events.iter().all(|event| event.id == "node_missing-e1-4"));
    }
}
