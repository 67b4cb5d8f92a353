//! Attention: what holds, and changing it by hand.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::chamelemon::attention::AttentionStatus;
use crate::config::AttentionSection;
use crate::server::http::{Problem, Server};
use crate::server::unix_ns;

/// What became of a wish for other attention.
#[derive(Serialize, ToSchema)]
pub(super) struct Changed {
    /// The first epoch in which the new attention holds; absent where it holds already.
    effective_epoch: Option<u64>,
}

/// What holds, since which epoch, and whether it is held
#[utoipa::path(get, path = "/api/v1/attention", responses((status = OK, body = AttentionStatus)))]
pub(super) async fn attention(State(server): State<Server>) -> Json<AttentionStatus> {
    Json(server.hub.attention())
}

/// Lets attention be shifted again
#[utoipa::path(post, path = "/api/v1/attention/release",
    responses((status = OK, body = AttentionStatus)))]
pub(super) async fn release(State(server): State<Server>) -> Json<AttentionStatus> {
    server.hub.release();
    Json(server.hub.attention())
}

/// Sets attention on all switches, from one epoch on, and holds it
///
/// Fields left out take their defaults. The HH encoder gets the buckets that HL and LL leave.
#[utoipa::path(post, path = "/api/v1/attention", request_body = AttentionSection, responses(
    (status = OK, body = Changed),
    (status = UNPROCESSABLE_ENTITY, description = "It does not fit the switches", body = Problem),
))]
pub(super) async fn change(
    State(server): State<Server>,
    Json(wanted): Json<AttentionSection>,
) -> Result<Json<Changed>, (StatusCode, Json<Problem>)> {
    match server.hub.change_attention(&wanted, unix_ns()) {
        Ok(effective_epoch) => Ok(Json(Changed { effective_epoch })),
        Err(error) => Err((StatusCode::UNPROCESSABLE_ENTITY, Json(Problem { error }))),
    }
}
