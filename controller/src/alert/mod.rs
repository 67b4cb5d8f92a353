//! Alerts: what is wrong for several epochs, sent to webhooks when it starts, while it lasts and
//! when it ends.
//!
//! It notices and reports; it neither silences, groups nor escalates: that is for what receives it.
//! `deploy/prometheus/alerts.yml` watches for the same in Prometheus.

mod hysteresis;
mod nodes;
mod watch;
mod watched;
mod webhook;

pub use hysteresis::{Hysteresis, Lasting, Patience, Transition};
pub use nodes::{NodeWatch, WatchedNode, WatchedNodes};
pub use watch::Watch;
pub use watched::Event;
pub use webhook::WebhookUrl;
pub(crate) use webhook::host;

use std::sync::Arc;

use calumma_analysis::alert::AlertLimits;
use calumma_analysis::{Published, System};
use serde::Deserialize;
use tracing::warn;

use self::webhook::Webhook;
use crate::config::Config;
use crate::output::Sink;

/// `[alerts]` of the configuration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlertsSection {
    /// Where events are sent by POST; without any they are only logged.
    pub webhooks: Vec<WebhookUrl>,
    /// Share of an epoch's packets lost that is too much; below half of it is good again.
    pub loss_share: f64,
    /// Share of the last 100 epochs incomplete that is too much; up to half of it is good again.
    pub incomplete_share: f64,
    /// Bad epochs in a row that start an alert.
    pub raise_after: u32,
    /// Good epochs in a row that end it.
    pub clear_after: u32,
    /// Seconds between updates while it lasts.
    pub update_seconds: u64,
    /// Seconds that a node must be away to be missing, and back for that to end.
    pub missing_seconds: u32,
}

impl Default for AlertsSection {
    fn default() -> Self {
        Self {
            webhooks: Vec::new(),
            loss_share: 0.001,
            incomplete_share: 0.05,
            raise_after: 3,
            clear_after: 100,
            update_seconds: 60,
            missing_seconds: 10,
        }
    }
}

impl AlertsSection {
    /// Checks what the types leave open.
    ///
    /// # Errors
    /// The field and the remedy.
    pub fn check(&self) -> Result<(), String> {
        if let Some(url) = self.webhooks.iter().find(|url| !url.is_http()) {
            return Err(format!("webhooks: the one of {url} must begin with http:// or https://"));
        }
        let shares = [("loss_share", self.loss_share), ("incomplete_share", self.incomplete_share)];
        if let Some((name, share)) = shares.iter().find(|(_, share)| !(0.0..=1.0).contains(share)) {
            return Err(format!("{name} = {share}: a share is from 0 to 1"));
        }
        let Self { raise_after, clear_after, missing_seconds, .. } = *self;
        if [raise_after, clear_after, missing_seconds].contains(&0) || self.update_seconds == 0 {
            return Err("raise_after, clear_after, update_seconds and missing_seconds: at least 1"
                .to_owned());
        }
        Ok(())
    }
}

/// Watches reports and nodes, and sends webhooks what it notices.
#[derive(Debug)]
pub struct Alerts {
    watch: Watch,
    nodes: Option<NodeWatch>,
    webhooks: Vec<Webhook>,
    /// Undelivered events that were reported.
    known_lost: u64,
}

impl Alerts {
    /// Starts a thread for each webhook, and watches the reports of `systems` on the nodes of a
    /// configuration.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        systems: &[&dyn System],
        section: &AlertsSection,
        config: &Config,
    ) -> anyhow::Result<Self> {
        let patience = Patience {
            raise_after: section.raise_after,
            clear_after: section.clear_after,
            update_ns: section.update_seconds.saturating_mul(1_000_000_000),
        };
        let AlertsSection { loss_share, incomplete_share, .. } = *section;
        let limits = AlertLimits { loss_share, incomplete_share };
        let rules = systems
            .iter()
            .map(|&system| (system.name(), system.alert_rules(&limits, &config.nodes_for(system))));
        let watch = Watch::new(rules, patience);
        let webhooks = section.webhooks.iter().map(Webhook::start);
        let webhooks = webhooks.collect::<Result<_, _>>()?;
        Ok(Self { watch, nodes: None, webhooks, known_lost: 0 })
    }

    /// Also watches nodes, and ends the alerts of systems that are switched off.
    #[must_use]
    pub fn with_nodes(self, nodes: NodeWatch) -> Self {
        Self { nodes: Some(nodes), ..self }
    }

    fn send(&self, events: &[Event]) -> anyhow::Result<()> {
        for event in events {
            let Event { event: what, alert, epoch, text, .. } = event;
            warn!(epoch, "alert {alert} ({what}): {text}");
            let json: Arc<str> = serde_json::to_string(event)?.into();
            self.webhooks.iter().for_each(|webhook| webhook.send(&json));
        }
        Ok(())
    }

    fn watch_nodes(&mut self) -> anyhow::Result<()> {
        let Some(nodes) = &mut self.nodes else { return Ok(()) };
        let Some(now) = nodes.look() else { return Ok(()) };
        let is_on = |system| now.systems.contains(&system);
        let mut events = self.watch.end_where_off(is_on, now.head());
        events.extend(nodes.take(&now));
        self.send(&events)
    }

    /// Fails where events were lost since it was called last.
    fn check_lost(&mut self) -> anyhow::Result<()> {
        let lost = self.webhooks.iter().map(Webhook::lost).sum();
        let new = lost - std::mem::replace(&mut self.known_lost, lost);
        anyhow::ensure!(new == 0, "{new} events could not be delivered to webhooks");
        Ok(())
    }
}

impl Sink for Alerts {
    fn name(&self) -> &'static str {
        "alerts"
    }

    fn take(&mut self, published: &Arc<Published>) -> anyhow::Result<()> {
        let events = self.watch.take(&*published.report);
        self.send(&events)?;
        self.watch_nodes()?;
        self.check_lost()
    }

    fn notice(&mut self, published: &Published) -> anyhow::Result<()> {
        let events = self.watch.take(&*published.report);
        self.send(&events)
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        self.watch_nodes()?;
        self.check_lost()
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.webhooks.iter_mut().for_each(Webhook::finish);
        self.check_lost()
    }
}
