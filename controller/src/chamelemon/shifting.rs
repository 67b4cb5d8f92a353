//! Attention in the running controller: each decoded epoch goes to the planner, and what it plans
//! to the switches, unless the operator wants it otherwise.

use std::sync::Arc;

use tracing::{error, info};

use crate::analyse::DecodedEpoch;
use crate::attention::{Observation, Planner};
use crate::report::PlanReport;
use crate::server::{Hub, unix_ns};

/// Plans epoch after epoch.
#[derive(Debug)]
pub(super) struct Shifting {
    hub: Arc<Hub>,
    planner: Planner,
    /// The plan that was logged last as not applied, so that it is not logged every epoch.
    not_applied: Vec<String>,
    /// The newest epoch that was planned from.
    newest: u64,
}

impl Shifting {
    /// `None` where the configuration leaves attention as it is.
    ///
    /// # Errors
    /// When the bounds don't fit the layout; never for a configuration that was parsed.
    pub(super) fn new(hub: Arc<Hub>) -> anyhow::Result<Option<Self>> {
        let config = hub.config();
        if !config.shifting.plans() {
            return Ok(None);
        }
        let bounds = config.shifting.bounds(&config.layout);
        let planner = Planner::new(config.layout.clone(), bounds).map_err(anyhow::Error::msg)?;
        Ok(Some(Self { hub, planner, not_applied: Vec::new(), newest: 0 }))
    }

    /// Plans from an epoch, and lets the plan hold as soon as every switch can follow. `None` where
    /// the epoch tells nothing.
    pub(super) fn next(&mut self, epoch: &DecodedEpoch) -> Option<PlanReport> {
        // An epoch that waited for a missing edge comes after later ones, which know more. None is
        // measured that is still to come, but by a clock that was ahead and has been set back.
        let is_past = self.newest <= self.hub.clock().epoch_at(unix_ns());
        if epoch.epoch() < self.newest && is_past {
            return None;
        }
        self.newest = epoch.epoch();
        let hub = &self.hub;
        let observation = Observation::of(epoch)?;
        let (since, standing) = hub.standing();
        let plan = self.planner.next(&observation, &standing);
        let mut report = PlanReport {
            effective_epoch: since,
            state: plan.state,
            config: (&plan.attention).into(),
            applied: false,
            reasons: plan.reasons,
        };
        if plan.attention == standing {
            self.not_applied.clear();
            return Some(report);
        }
        let now_ns = unix_ns();
        match hub.shift(epoch.epoch(), plan.attention, &report.reasons, now_ns) {
            Ok(Some(effective_epoch)) => {
                report.effective_epoch = effective_epoch;
                report.applied = true;
                self.not_applied.clear();
                info!(effective_epoch, "attention shifts: {}", report.reasons.join("; "));
            }
            Ok(None) => {
                report.effective_epoch = hub.earliest_epoch(now_ns);
                if self.not_applied.is_empty() {
                    info!("attention would shift: {}", report.reasons.join("; "));
                    hub.note_not_applied(epoch.epoch(), &report, now_ns);
                    self.not_applied.clone_from(&report.reasons);
                }
            }
            Err(problem) => error!("the plan is not applied: {problem}"),
        }
        Some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::server::start;
    use crate::{EdgeInput, EpochInput};
    use calumma_chamelemon::{EgressGroup, IngressGroup};
    use calumma_sketch::FlowKey;

    /// The clock was ahead by an hour, and an epoch was planned from that is still to come.
    #[tokio::test]
    async fn it_plans_again_once_the_clock_was_set_back() {
        let config = "edges = ['e1']\nlisten = '127.0.0.1:0'\n[shifting]\nmode = 'dry-run'";
        let running = start(Config::parse(config, "a test").unwrap(), Vec::new()).await.unwrap();
        let hub = running.hub().clone();
        let mut shifting = Shifting::new(hub.clone()).unwrap().unwrap();
        let planned = hub.standing().1;
        let layout = &hub.config().layout;
        let decoded = |epoch| {
            let ingress = IngressGroup::<FlowKey>::new(layout, planned, epoch).unwrap();
            let egress = EgressGroup::<FlowKey>::new(layout, planned).unwrap();
            let of = EdgeInput::from_groups("e1", epoch, (&ingress, 0), (&egress, 0));
            hub.chamelemon.decoder.decode(EpochInput { epoch, planned, edges: vec![of] })
        };
        let current = hub.clock().epoch_at(unix_ns());
        for (epoch, plans) in [
            (current - 2, true),
            (current - 3, false),
            (current + 72_000, true),
            (current - 1, true),
        ] {
            let plan = shifting.next(&decoded(epoch));
            assert_eq!(plan.is_some(), plans, "{epoch} at {current}");
        }
        running.stop().await.unwrap();
    }
}
