//! Who is connected.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::Server;
use super::answers::Cost;
use crate::api::EdgeStatus;

/// Whether the controller runs, and who is connected.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`, always: who is not, does not answer.
    status: &'static str,
    /// Edges that are connected, and expected.
    edges: (usize, usize),
    /// The last epoch that was reported.
    last_epoch: Option<u64>,
}

/// Whether the controller runs
#[utoipa::path(get, path = "/healthz", responses((status = OK, body = Health)))]
pub(super) async fn health(State(server): State<Server>) -> Json<Health> {
    let edges = server.hub.edges();
    let connected = edges.iter().filter(|edge| edge.connected).count();
    let last_epoch = server.hub.chamelemon.recent.last_epoch();
    Json(Health { status: "ok", edges: (connected, edges.len()), last_epoch })
}

/// Every expected edge: its connection, its clock, its own totals
#[utoipa::path(get, path = "/api/v1/edges", responses((status = OK, body = Vec<EdgeStatus>)))]
pub(super) async fn edges(State(server): State<Server>) -> Response {
    let hub = server.hub;
    server.answers.json(Cost::Piece, move || hub.edges()).await
}
