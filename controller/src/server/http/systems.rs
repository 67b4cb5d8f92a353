//! The systems, and the latest reports of each.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use calumma_analysis::{EpochHead, Findings, Panel, System, SystemReport};
use serde::Serialize;

use super::answers::{Cost, JSON};
use super::{Problem, Server, Window, files};
use crate::api::{PanelStatus, SystemStatus};
use crate::chamelemon::is_chamelemon;
use crate::server::lane::Lane;

/// Every system that can run, and how it fares
#[utoipa::path(get, path = "/api/v1/systems",
    responses((status = OK, body = Vec<SystemStatus>)))]
pub(super) async fn systems(State(server): State<Server>) -> Json<Vec<SystemStatus>> {
    let lanes = server.hub.lanes();
    let status = |system: &&'static dyn System| {
        let id = system.offer().system;
        let lane = lanes.iter().find(|lane| lane.id() == id && lane.is_on());
        let last_epoch = match lane {
            Some(_) if is_chamelemon(id) => server.hub.chamelemon.recent.last_epoch(),
            lane => lane.and_then(|lane| lane.history.last_epoch()),
        };
        SystemStatus {
            system: system.name(),
            id: id.0,
            roles: system.roles().iter().map(|role| role.name()).collect(),
            on: lane.is_some(),
            since_epoch: lane.map(|lane| lane.first_epoch),
            last_epoch,
            dropped_frames: lane.map_or(0, |lane| lane.dropped()),
            panels: panels(*system),
        }
    };
    Json(server.hub.systems().iter().map(status).collect())
}

fn panels(system: &dyn System) -> Vec<PanelStatus> {
    let status = |panel: &Panel| PanelStatus {
        name: panel.name,
        title: panel.title,
        script: files::panel_path(system.name(), panel),
    };
    system.panels().iter().map(status).collect()
}

/// The latest reports of a system, oldest first; beside the fields here they have the system's own
#[utoipa::path(get, path = "/api/v1/{system}/epochs",
    params(("system" = String, Path, description = "Name of a system that runs"), Window),
    responses(
        (status = OK, body = Vec<EpochHead>),
        (status = NOT_FOUND, description = "No such system runs", body = Problem),
    ))]
pub(super) async fn epochs(
    State(server): State<Server>,
    Path(system): Path<String>,
    Query(window): Query<Window>,
) -> Response {
    let lane = match lane_of(&server, &system) {
        Ok(lane) => lane,
        Err(response) => return *response,
    };
    let answers = &server.answers;
    if is_chamelemon(lane.id()) {
        let reports = server.hub.chamelemon.recent.reports(window.last);
        return answers
            .list(reports, |report, piece| serde_json::to_writer(piece, &**report))
            .await;
    }
    let line = |line: &Arc<str>, piece: &mut Vec<u8>| {
        piece.extend_from_slice(line.as_bytes());
        Ok(())
    };
    answers.list(lane.history.last(window.last), line).await
}

/// The latest reports of a system that sums over windows, oldest first: those of `epochs`
#[utoipa::path(get, path = "/api/v1/{system}/windows",
    params(("system" = String, Path, description = "Name of a system that runs"), Window),
    responses(
        (status = OK, body = Vec<EpochHead>),
        (status = NOT_FOUND, description = "No such system runs", body = Problem),
    ))]
pub(super) async fn windows(
    server: State<Server>,
    system: Path<String>,
    window: Query<Window>,
) -> Response {
    epochs(server, system, window).await
}

/// A system's report on one epoch; beside the fields here it has the system's own
#[utoipa::path(get, path = "/api/v1/{system}/epochs/{epoch}",
    params(
        ("system" = String, Path, description = "Name of a system that runs"),
        ("epoch" = u64, Path, description = "Number of the epoch; of a window, its first"),
    ),
    responses(
        (status = OK, body = EpochHead),
        (status = NOT_FOUND, description = "Not yet, or no longer, remembered", body = Problem),
    ))]
pub(super) async fn epoch(
    State(server): State<Server>,
    Path((system, epoch)): Path<(String, u64)>,
) -> Response {
    let lane = match lane_of(&server, &system) {
        Ok(lane) => lane,
        Err(response) => return *response,
    };
    let recent = &server.hub.chamelemon.recent;
    if is_chamelemon(lane.id())
        && let Some(report) = recent.report(epoch)
    {
        return server
            .answers
            .text(Cost::Piece, JSON, move || serde_json::to_string(&*report))
            .await;
    }
    match lane.history.of(epoch) {
        Some(line) => ([(header::CONTENT_TYPE, JSON)], line.to_string()).into_response(),
        None => not_found(format!(
            "epoch {epoch} is not among the last {} that {system} reported; raise `history` in the \
             controller's configuration to remember more",
            server.hub.config().history
        )),
    }
}

/// Answers with what `of` makes of each of a system's last reports, or that it does not run.
pub(crate) async fn of_reports<F: Findings, T: Serialize + Send + 'static>(
    server: Server,
    system: &'static dyn System,
    last: usize,
    of: impl Fn(&SystemReport<F>) -> T + Send + 'static,
) -> Response {
    let lane = match lane_of(&server, system.name()) {
        Ok(lane) => lane,
        Err(response) => return *response,
    };
    let lines: Vec<Arc<str>> = lane.history.last(last);
    // A report is read at a time, and what is not wanted of it is gone before the next.
    let make = move || {
        let reports = lines.iter().filter_map(|line| system.read(line));
        reports.filter_map(|report| report.as_type().map(&of)).collect::<Vec<T>>()
    };
    server.answers.json(Cost::Sum, make).await
}

/// The lane of a system that runs.
pub(crate) fn lane_of(server: &Server, system: &str) -> Result<Arc<Lane>, Box<Response>> {
    let lanes = server.hub.lanes();
    let lane = lanes.iter().find(|lane| lane.system.name() == system);
    lane.cloned().ok_or_else(|| {
        let running: Vec<&str> = lanes.iter().map(|lane| lane.system.name()).collect();
        Box::new(not_found(format!("no system {system:?} runs here; these do: {running:?}")))
    })
}

fn not_found(error: String) -> Response {
    (StatusCode::NOT_FOUND, Json(Problem { error })).into_response()
}
