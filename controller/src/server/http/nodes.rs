//! All nodes, whatever their role.

use axum::Json;
use axum::extract::State;

use super::Server;
use crate::api::NodeStatus;

/// Every expected node: its role and number, its connection, and the systems that it runs
#[utoipa::path(get, path = "/api/v1/nodes", responses((status = OK, body = Vec<NodeStatus>)))]
pub(super) async fn nodes(State(server): State<Server>) -> Json<Vec<NodeStatus>> {
    Json(server.hub.nodes())
}
