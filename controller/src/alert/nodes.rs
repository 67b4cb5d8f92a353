//! Nodes that are expected and not connected, second by second: a node that no report is about is
//! missed by nobody else.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use calumma_analysis::EpochHead;
use calumma_analysis::alert::{Details, Fact, Reading};

use super::AlertsSection;
use super::hysteresis::{Hysteresis, Patience, Transition};
use super::watch::{Event, event};

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
        Self { look: Box::new(look), patience, alerts: HashMap::new(), looked: None }
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
            let now = WatchedNodes { epoch: 20 * second, unix_ns: second * 1_000_000_000, nodes };
            events.extend(watch.take(&now));
        }
        let words: Vec<_> =
            events.iter().map(|event| (event.epoch, event.event, event.text.as_str())).collect();
        let missing = "transit s1 is not connected: the connection was reset";
        assert_eq!(words, [(140, "start", missing), (280, "end", "transit s1 is connected again")]);
        assert_eq!(events[0].node.as_deref(), Some("s1"));
        assert!(events.iter().all(|event| event.id == "node_missing-s1-140"));
    }
}
