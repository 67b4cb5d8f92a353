//! One flow: its size now, and its sizes and losses over time.

use std::collections::HashMap;

use axum::extract::{Query, State};
use axum::response::Response;

use crate::api::{FlowInEpoch, SizeAt};
use crate::report::{EdgeReport, EpochReport, Flow};
use crate::server::http::answers::Cost;
use crate::server::http::{Server, Window};

/// A flow's size at every edge, in the edge's last epoch
#[utoipa::path(get, path = "/api/v1/flows", params(Flow),
    responses((status = OK, body = Vec<SizeAt>)))]
pub(super) async fn sizes(State(server): State<Server>, Query(flow): Query<Flow>) -> Response {
    let hub = server.hub;
    let make = move || {
        let mut newest = Vec::new();
        let sizes = hub.chamelemon.recent.flow_sizes(&flow).into_iter();
        for at in sizes.rev().filter(|at| hub.measures(&flow, at.epoch)) {
            if newest.iter().all(|known: &SizeAt| known.edge != at.edge) {
                newest.push(at);
            }
        }
        newest.sort_by(|a, b| a.edge.cmp(&b.edge));
        newest
    };
    server.answers.json(Cost::Piece, make).await
}

/// A flow's losses and sizes over time, oldest epoch first
#[utoipa::path(get, path = "/api/v1/flows/history", params(Flow, Window),
    responses((status = OK, body = Vec<FlowInEpoch>)))]
pub(super) async fn history(
    State(server): State<Server>,
    Query(flow): Query<Flow>,
    Query(window): Query<Window>,
) -> Response {
    let hub = server.hub;
    let make = move || {
        let recent = &hub.chamelemon.recent;
        let reports = recent.reports(window.last);
        let mut sizes: HashMap<u64, Vec<SizeAt>> = HashMap::new();
        for at in recent.flow_sizes(&flow) {
            sizes.entry(at.epoch).or_default().push(at);
        }
        let epochs: Vec<FlowInEpoch> = reports
            .iter()
            .map(|report| match hub.measures(&flow, report.epoch) {
                true => in_epoch(&flow, report, sizes.remove(&report.epoch)),
                false => unmeasured(report),
            })
            .collect();
        epochs
    };
    server.answers.json(Cost::Sum, make).await
}

fn in_epoch(flow: &Flow, report: &EpochReport, sizes: Option<Vec<SizeAt>>) -> FlowInEpoch {
    let loss = report.loss.iter().find(|loss| loss.flow == *flow);
    // What is not in the list was not lost, unless the flow may have been outside the sample, or
    // hidden by copies, or can't be told from another one.
    let none = report.losses_are_decoded() && report.config.sample_rate >= 1.0;
    let doubtful = !report.causes.is_empty()
        || !report.indistinct.is_empty()
        || report.surplus.iter().any(|surplus| surplus.flow == *flow)
        || report.rewritten.iter().any(|rewritten| rewritten.from == *flow);
    let amended = report.amended.iter().rfind(|amended| amended.flow == *flow);
    FlowInEpoch {
        epoch: report.epoch,
        start_unix_ns: report.start_unix_ns,
        complete: report.complete,
        lost: loss
            .map(|loss| amended.map_or(loss.lost, |amended| amended.lost))
            .or((none && !doubtful).then_some(0)),
        class: loss.map(|loss| loss.class),
        partial: loss.is_some_and(|loss| loss.partial),
        at_least: loss.is_some_and(|loss| loss.at_least)
            || amended.is_some_and(|amended| amended.late.is_none()),
        sizes: sizes.unwrap_or_else(|| as_heavy_hitter(flow, report)),
    }
}

/// What is known of a flow whose packets nobody measures.
fn unmeasured(report: &EpochReport) -> FlowInEpoch {
    FlowInEpoch {
        epoch: report.epoch,
        start_unix_ns: report.start_unix_ns,
        complete: report.complete,
        lost: None,
        class: None,
        partial: false,
        at_least: false,
        sizes: Vec::new(),
    }
}

fn as_heavy_hitter(flow: &Flow, report: &EpochReport) -> Vec<SizeAt> {
    let at = |edge: &EdgeReport| {
        let hitter = edge.heavy_hitters.iter().find(|hitter| hitter.flow == *flow)?;
        Some(SizeAt {
            edge: edge.edge.clone(),
            epoch: report.epoch,
            size: hitter.size,
            size_min: hitter.size_min.unwrap_or(hitter.size),
            exact: hitter.size_min.is_none(),
        })
    };
    report.edges.iter().filter_map(at).collect()
}
