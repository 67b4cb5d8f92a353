//! The hash key: since when it holds, and another one by command. Never the key itself.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::{Problem, Server};
use crate::api::{HashKeyStatus, KeyChangeBy, KeyRotated};

/// Since which epoch the hash key holds, and why it was changed last
#[utoipa::path(get, path = "/api/v1/hash-key", responses((status = OK, body = HashKeyStatus)))]
pub(super) async fn status(State(server): State<Server>) -> Json<HashKeyStatus> {
    Json(server.hub.hash_key_status())
}

/// Draws another hash key, by which all switches measure from one epoch on
#[utoipa::path(post, path = "/api/v1/hash-key/rotate", responses(
    (status = OK, body = KeyRotated),
    (status = CONFLICT, description = "It stays, and why", body = Problem),
))]
pub(super) async fn rotate(
    State(server): State<Server>,
) -> Result<Json<KeyRotated>, (StatusCode, Json<Problem>)> {
    let rotated = tokio::task::spawn_blocking(move || {
        server.hub.rotate_key(KeyChangeBy::Operator, "an operator asked for it")
    });
    let rotated = rotated.await.unwrap_or_else(|problem| Err(problem.to_string()));
    match rotated {
        Ok(effective_epoch) => Ok(Json(KeyRotated { effective_epoch })),
        Err(error) => Err((StatusCode::CONFLICT, Json(Problem { error }))),
    }
}
