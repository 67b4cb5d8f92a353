//! The network as it should be, and as it is seen.

use axum::Json;
use axum::extract::State;

use super::Server;
use crate::api::TopologyStatus;

/// Switches and links as configured, which of them are connected, and who connects unexpectedly
#[utoipa::path(get, path = "/api/v1/topology", responses((status = OK, body = TopologyStatus)))]
pub(super) async fn topology(State(server): State<Server>) -> Json<TopologyStatus> {
    let hub = &server.hub;
    let topology = hub.topologies().last();
    Json(crate::topology::status(topology.as_deref(), hub.nodes(), hub.unexpected_nodes()))
}
