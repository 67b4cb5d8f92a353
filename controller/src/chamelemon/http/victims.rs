//! Which flows lose packets, added up over the latest epochs: one epoch is too short to tell.

use std::collections::HashMap;

use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::{Victim, Victims};
use crate::report::{EpochReport, Flow};
use crate::server::http::answers::Cost;
use crate::server::http::{Server, Window};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Most {
    /// At most so many flows
    #[serde(default = "default_limit")]
    #[param(default = 100)]
    limit: usize,
}

fn default_limit() -> usize {
    100
}

/// Flows that lost packets in the latest epochs
#[utoipa::path(get, path = "/api/v1/victims", params(Window, Most),
    responses((status = OK, body = Victims)))]
pub(super) async fn victims(
    State(server): State<Server>,
    Query(window): Query<Window>,
    Query(Most { limit }): Query<Most>,
) -> Response {
    let hub = server.hub;
    let make = move || {
        let reports = hub.chamelemon.recent.reports(window.last);
        add_up(reports.iter().map(AsRef::as_ref), limit)
    };
    server.answers.json(Cost::Sum, make).await
}

fn add_up<'a>(reports: impl Iterator<Item = &'a EpochReport>, limit: usize) -> Victims {
    let mut sum = Victims {
        first_epoch: None,
        last_epoch: None,
        epochs: 0,
        epochs_unknown: 0,
        packets_in: 0,
        lost: 0,
        victims: 0,
        flows: Vec::new(),
    };
    let mut victims: HashMap<Flow, Victim> = HashMap::new();
    for report in reports {
        sum.first_epoch.get_or_insert(report.epoch);
        sum.last_epoch = Some(report.epoch);
        sum.epochs += 1;
        sum.epochs_unknown += u64::from(!report.losses_are_exact());
        // Numbers of others: too large a sum is shown as the largest there is.
        let packets_in = report.edges.iter().filter_map(|edge| edge.packets_in);
        sum.packets_in = packets_in.fold(sum.packets_in, u64::saturating_add);
        for (loss, lost) in report.losses_left() {
            let victim = victims.entry(loss.flow).or_insert_with(|| Victim {
                flow: loss.flow,
                lost: 0,
                uncertain: 0,
                epochs: 0,
                last_epoch: 0,
            });
            let total = if loss.partial { &mut victim.uncertain } else { &mut victim.lost };
            *total = total.saturating_add(lost);
            victim.epochs += 1;
            victim.last_epoch = report.epoch;
        }
    }
    sum.lost = victims.values().map(|victim| victim.lost).fold(0, u64::saturating_add);
    sum.victims = victims.len() as u64;
    sum.flows = victims.into_values().collect();
    sum.flows.sort_by(|a, b| {
        (b.lost, b.uncertain).cmp(&(a.lost, a.uncertain)).then(a.flow.cmp(&b.flow))
    });
    sum.flows.truncate(limit);
    sum
}
