//! The paths between edges.

use axum::Json;
use axum::extract::State;

use super::Server;
use crate::paths::PathStatus;

/// Every path between two edges that probes have gone: how long they take, whether their marks come
/// through, and what is wrong
#[utoipa::path(get, path = "/api/v1/paths", responses((status = OK, body = Vec<PathStatus>)))]
pub(super) async fn paths(State(server): State<Server>) -> Json<Vec<PathStatus>> {
    Json(server.hub.paths())
}
