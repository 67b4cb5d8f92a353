//! What the deployment is, as far as readers of reports need it. Never its hash key.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Server;
use crate::analyse::Tasks;

/// What holds for all epochs of a deployment.
#[derive(Serialize, ToSchema)]
pub(super) struct Deployment {
    /// Names of the edges.
    edges: Vec<String>,
    /// Length of an epoch in milliseconds.
    epoch_length_ms: u64,
    /// Most that the clocks of two switches differ, in microseconds.
    clock_guard_us: u64,
    /// Longest that a packet travels through the network, in microseconds.
    flight_guard_us: u64,
    /// Epochs that this API remembers.
    history: usize,
    /// Bucket arrays of an encoder.
    arrays: u32,
    /// Buckets an array of the upstream flow encoder, which the HH, HL and LL encoders divide.
    upstream_buckets: u32,
    /// Buckets an array of the downstream flow encoder.
    downstream_buckets: u32,
    /// What is reported.
    tasks: Tasks,
}

/// Edges, epochs and memory of the deployment
#[utoipa::path(get, path = "/api/v1/deployment", responses((status = OK, body = Deployment)))]
pub(super) async fn deployment(State(server): State<Server>) -> Json<Deployment> {
    let (config, clock) = (server.hub.config(), server.hub.clock());
    Json(Deployment {
        edges: config.edges.clone(),
        epoch_length_ms: clock.length_ns() / 1_000_000,
        clock_guard_us: clock.guards().clock_ns / 1000,
        flight_guard_us: clock.guards().flight_ns / 1000,
        history: config.history,
        arrays: config.layout.arrays,
        upstream_buckets: config.layout.upstream_buckets,
        downstream_buckets: config.layout.downstream_buckets,
        tasks: server.hub.chamelemon.tasks(),
    })
}
