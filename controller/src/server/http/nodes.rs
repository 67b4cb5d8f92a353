//! All nodes, whatever their role.

use axum::extract::State;
use axum::response::Response;

use super::Server;
use super::answers::Cost;
use crate::api::NodeStatus;

/// Every expected node: its role and number, its connection, and the systems that it runs
#[utoipa::path(get, path = "/api/v1/nodes", responses((status = OK, body = Vec<NodeStatus>)))]
pub(super) async fn nodes(State(server): State<Server>) -> Response {
    let hub = server.hub;
    server.answers.json(Cost::Piece, move || hub.nodes()).await
}
