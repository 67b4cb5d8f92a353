//! Nodes that are expected and not connected, and paths that can't be trusted, second by second: no
//! report is about them.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use calumma_analysis::EpochHead;
use calumma_analysis::alert::{Details, Fact, Reading};

use super::AlertsSection;
use super::hysteresis::{Hysteresis, Patience, Transition};
use super::watch::{Event, event};
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
    /// The nodes.
    pub nodes: Vec<WatchedNode>,
    /// The paths between edges that probes have gone.
    pub paths: Vec<PathStatus>,
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
    alerts: HashMap<String, Hysteresis>,
    /// By the names of both edges.
    of_paths: HashMap<(String, String), Hysteresis>,
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
        let (alerts, of_paths) = (HashMap::new(), HashMap::new());
        Self { look: Box::new(look), patience, alerts, of_paths, looked: None }
    }

    /// Looks at the nodes, once a second however often it is called, and gives what is to be said.
    pub(super) fn step(&mut self) -> Vec<Event> {
        if self.looked.is_some_and(|looked| looked.elapsed() < INTERVAL) {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        let now = (self.look)();
        self.take(&now)
    }

    fn take(&mut self, now: &WatchedNodes) -> Vec<Event> {
        // The moment stands for its epoch: no report brings these events.
        let head = EpochHead { epoch: now.epoch, start_unix_ns: now.unix_ns, length_ms: 0 };
        let mut events = Vec::new();
        for WatchedNode { name, role, connected, problem } in &now.nodes {
            let reading = if *connected { Reading::Good } else { Reading::Bad };
            let alert = self.alerts.entry(name.clone()).or_default();
            let stepped = alert.step(reading, now.epoch, now.unix_ns, &self.patience);
            let Some((transition, lasting)) = stepped else { continue };
            let text = match (transition, problem) {
                (Transition::End, _) => format!("{role} {name} is connected again"),
                (_, Some(problem)) => format!("{role} {name} is not connected: {problem}"),
                (_, None) => format!("{role} {name} is not connected"),
            };
            let fact = Fact { alert: "node_missing", node: Some(name.clone()), reading };
            events.push(event(fact, transition, &lasting, head, text, Details::default()));
        }
        events.extend(self.take_paths(now, head));
        events
    }

    fn take_paths(&mut self, now: &WatchedNodes, head: EpochHead) -> Vec<Event> {
        let mut events = Vec::new();
        // What was seen once was so.
        let patience = Patience { raise_after: 1, ..self.patience };
        for PathStatus { from, to, problem, .. } in &now.paths {
            let of = (from.clone(), to.clone());
            if problem.is_none() && !self.of_paths.contains_key(&of) {
                continue;
            }
            let reading = if problem.is_none() { Reading::Good } else { Reading::Bad };
            let alert = self.of_paths.entry(of).or_default();
            let stepped = alert.step(reading, now.epoch, now.unix_ns, &patience);
            let Some((transition, lasting)) = stepped else { continue };
            let text = match problem {
                Some(problem) => format!("{to}: {problem}"),
                None => format!("{to}: packets from {from} come as they should again"),
            };
            let node = Some(format!("{from}-{to}"));
            let fact = Fact { alert: "path", node, reading };
            events.push(event(fact, transition, &lasting, head, text, Details::default()));
        }
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
            let now = WatchedNodes { epoch: 20 * second, unix_ns, nodes, paths: Vec::new() };
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
            let now = WatchedNodes { epoch: second, unix_ns, nodes: Vec::new(), paths };
            events.extend(watch.take(&now));
        }
        let words: Vec<_> =
            events.iter().map(|event| (event.epoch, event.event, event.text.as_str())).collect();
        let rewritten = "e2: marks are rewritten on the way from e1";
        let over = "e2: packets from e1 come as they should again";
        assert_eq!(words, [(5, "start", rewritten), (11, "end", over)]);
        assert_eq!((events[0].alert, events[0].node.as_deref()), ("path", Some("e1-e2")));
    }
}
