//! What the HTTP API answers about SketchINT beside whole reports: switches, paths, and any flow of
//! the latest windows, listed or not. `docs/sketchint.md` is the operator's page.

use std::collections::HashMap;

use axum::extract::{Query, State};
use axum::response::Response;
use calumma_analysis::{EpochHead, System, SystemReport};
use calumma_sketchint_analysis::report::{
    FlowReport, Found, LinkReport, Loop, NodeReport, PathChange, PathReport, SinkReport,
};
use calumma_sketchint_analysis::suspects::{Suspect, Suspects};
use calumma_sketchint_analysis::{FlowInWindow, SketchInt};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::report::{EpochReport, Flow};
use crate::server::http::answers::{Cost, JSON};
use crate::server::http::systems::{lane_of, of_reports};
use crate::server::http::{Problem, Server, Window};

/// What all answers say of a window.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct OfWindow {
    /// The window's first epoch, its start and length.
    #[serde(flatten)]
    pub head: EpochHead,
    /// Its first and last epoch.
    pub window: [u64; 2],
    /// How far INT was switched on: `off`, `sinks`, `transits` or `on`.
    pub state: String,
    /// Whether the window's measurement is whole and sound.
    pub complete: bool,
}

/// Switches in a window.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodesInWindow {
    /// The window.
    #[serde(flatten)]
    pub of: OfWindow,
    /// Every switch that packets with INT came by.
    #[schema(value_type = Vec<Object>)]
    pub nodes: Vec<NodeReport>,
}

/// Links between switches in a window.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LinksInWindow {
    /// The window.
    #[serde(flatten)]
    pub of: OfWindow,
    /// Every link that packets with a whole path came by, those of most packets first.
    #[schema(value_type = Vec<Object>)]
    pub links: Vec<LinkReport>,
}

/// Paths that packets for a sink's hosts came by.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PathsOfSink {
    /// The sink's name.
    pub edge: String,
    /// Packets whose path found no room.
    pub paths_full: u64,
    /// The paths, those of most packets first.
    #[schema(value_type = Vec<Object>)]
    pub paths: Vec<PathReport>,
}

/// Paths in a window.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PathsInWindow {
    /// The window.
    #[serde(flatten)]
    pub of: OfWindow,
    /// Every sink that delivered.
    pub sinks: Vec<PathsOfSink>,
    /// Flows that came by a path that they did not come by before.
    #[schema(value_type = Vec<Object>)]
    pub path_changes: Vec<PathChange>,
    /// Paths that come by a switch twice.
    #[schema(value_type = Vec<Object>)]
    pub loops: Vec<Loop>,
}

/// What sinks recorded of a flow in a window.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SketchedFlow {
    /// The window.
    #[serde(flatten)]
    pub of: OfWindow,
    /// The flow at each sink that may have had packets of it: exact where its rows hold all of
    /// them, else with bounds from the sketches.
    #[schema(value_type = Vec<Object>)]
    pub flows: Vec<FlowReport>,
}

/// Links that flows came by which lost packets in a window.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SuspectsInWindow {
    /// The window.
    #[serde(flatten)]
    pub of: OfWindow,
    /// Epochs of the window of which ChameleMon does not say all losses: it does not run, did not
    /// decode them, or they are no longer remembered.
    pub epochs_unknown: u64,
    /// Flows that lost packets.
    pub victims: u64,
    /// Victim flows whose paths are known and whole: they voted.
    pub placed: u64,
    /// The links that have votes, those of most first: votes are no proof.
    #[schema(value_type = Vec<Object>)]
    pub suspects: Vec<Suspect>,
}

fn of_window(report: &SystemReport<Found>) -> OfWindow {
    let Found { window, state, .. } = &report.findings;
    OfWindow { head: report.head, window: *window, state: state.clone(), complete: report.complete }
}

/// How many windows.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Last {
    /// How many windows, ending with the newest: at most 8 are remembered
    #[serde(default = "newest")]
    #[param(default = 1)]
    last: usize,
}

fn newest() -> usize {
    1
}

/// The routes.
pub(crate) fn router() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(nodes))
        .routes(routes!(links))
        .routes(routes!(paths))
        .routes(routes!(flows))
        .routes(routes!(suspects))
}

/// Switches in the latest windows, oldest window first: latencies, queues, heavy flows
#[utoipa::path(get, path = "/api/v1/sketchint/nodes", params(Window),
    responses(
        (status = OK, body = Vec<NodesInWindow>),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
    ))]
async fn nodes(State(server): State<Server>, Query(window): Query<Window>) -> Response {
    let of = |report: &SystemReport<Found>| NodesInWindow {
        of: of_window(report),
        nodes: report.findings.nodes.clone(),
    };
    of_reports(server, &SketchInt, window.last, of).await
}

/// Links between switches in the latest windows, oldest window first
#[utoipa::path(get, path = "/api/v1/sketchint/links", params(Window),
    responses(
        (status = OK, body = Vec<LinksInWindow>),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
    ))]
async fn links(State(server): State<Server>, Query(window): Query<Window>) -> Response {
    let of = |report: &SystemReport<Found>| LinksInWindow {
        of: of_window(report),
        links: report.findings.links.clone(),
    };
    of_reports(server, &SketchInt, window.last, of).await
}

/// Paths by sink in the latest windows, their changes, and loops
#[utoipa::path(get, path = "/api/v1/sketchint/paths", params(Window),
    responses(
        (status = OK, body = Vec<PathsInWindow>),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
    ))]
async fn paths(State(server): State<Server>, Query(window): Query<Window>) -> Response {
    let of_sink = |SinkReport { edge, paths_full, paths, .. }: &SinkReport| PathsOfSink {
        edge: edge.clone(),
        paths_full: *paths_full,
        paths: paths.clone(),
    };
    let of = move |report: &SystemReport<Found>| PathsInWindow {
        of: of_window(report),
        sinks: report.findings.sinks.iter().map(of_sink).collect(),
        path_changes: report.findings.path_changes.clone(),
        loops: report.findings.loops.clone(),
    };
    of_reports(server, &SketchInt, window.last, of).await
}

/// Where packets may have been lost in the latest windows: flows that ChameleMon says lost packets
/// vote for the links of their paths
#[utoipa::path(get, path = "/api/v1/sketchint/suspects", params(Window),
    responses(
        (status = OK, body = Vec<SuspectsInWindow>),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
    ))]
async fn suspects(State(server): State<Server>, Query(window): Query<Window>) -> Response {
    let hub = server.hub.clone();
    let of = move |report: &SystemReport<Found>| {
        let [first, last] = report.findings.window;
        let (mut lost, mut known) = (HashMap::new(), 0);
        for epoch in first..=last {
            let Some(epoch) = hub.chamelemon.recent.report(epoch) else { continue };
            known += u64::from(epoch.losses_are_exact());
            add_losses(&mut lost, &epoch);
        }
        let lost: Vec<(Flow, u64)> = lost.into_iter().collect();
        let Suspects { victims, placed, suspects } = Suspects::of(&report.findings, &lost);
        let epochs_unknown = last + 1 - first - known;
        SuspectsInWindow { of: of_window(report), epochs_unknown, victims, placed, suspects }
    };
    of_reports(server, &SketchInt, window.last, of).await
}

/// Adds what flows have lost for certain in an epoch, as far as is known by now.
fn add_losses(lost: &mut HashMap<Flow, u64>, report: &EpochReport) {
    for (loss, left) in report.losses_left().filter(|(loss, _)| !loss.partial) {
        let lost = lost.entry(loss.flow).or_default();
        *lost = lost.saturating_add(left);
    }
}

/// Any flow in the latest windows, whether a report lists it or not: packets, paths, and what it
/// met at each switch
#[utoipa::path(get, path = "/api/v1/sketchint/flows", params(Flow, Last),
    responses(
        (status = OK, body = Vec<SketchedFlow>),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
    ))]
async fn flows(
    State(server): State<Server>,
    Query(flow): Query<Flow>,
    Query(Last { last }): Query<Last>,
) -> Response {
    let lane = match lane_of(&server, SketchInt.name()) {
        Ok(lane) => lane,
        Err(response) => return *response,
    };
    let Some(remembered) = lane.remembered.clone() else {
        return server.answers.json(Cost::Piece, Vec::<FlowInWindow>::new).await;
    };
    let make = move || {
        let windows = remembered.flow(&flow, last)?;
        serde_json::Result::Ok(format!("[{}]", windows.join(",")))
    };
    server.answers.text(Cost::Piece, JSON, make).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Amendment, Loss, sample};

    #[test]
    fn what_was_taken_back_or_is_uncertain_makes_no_suspects() {
        let of = |sport, lost, partial| {
            let loss = sample().loss[0];
            Loss { flow: Flow { sport, ..loss.flow }, lost, partial, ..loss }
        };
        let amended = |sport, was, lost| Amendment {
            epoch: 12,
            flow: of(sport, 0, false).flow,
            was,
            lost,
            late: None,
            at_most_late: Some(was - lost),
            why: String::new(),
        };
        let loss = vec![of(1, 3, false), of(2, 9, true), of(3, 5, false), of(4, 8, false)];
        let amended = vec![amended(4, 8, 7), amended(3, 5, 0), amended(4, 7, 6)];
        let report = EpochReport { loss, amended, ..sample() };
        let mut lost = HashMap::from([(of(1, 0, false).flow, u64::MAX - 1)]);
        add_losses(&mut lost, &report);
        let mut lost: Vec<_> = lost.into_iter().map(|(flow, lost)| (flow.sport, lost)).collect();
        lost.sort_unstable();
        assert_eq!(lost, [(1, u64::MAX), (4, 6)]);
    }
}
