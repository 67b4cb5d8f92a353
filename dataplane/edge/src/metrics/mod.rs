//! The switch's figures over HTTP: `/metrics` for Prometheus, `/status` as JSON for
//! `calumma-edge top`.

mod text;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use calumma_cpus::Cpus;
use calumma_switch_host::metrics::{self as host, Readers};

use crate::config::Config;
use crate::status::{Board, Status};

pub use self::text::prometheus;

/// Serves what hangs on `board`, where `config` says so, from a thread of its own on `cpus`, for as
/// long as the process lives. Gives what to reload.
///
/// # Errors
/// When the address can't be listened on, or a file can't be used.
pub fn serve(config: &Config, board: Board, cpus: &Cpus) -> anyhow::Result<Option<Arc<Readers>>> {
    let server = host::server(&config.metrics, config.insecure, router(board))?;
    let Some((access, serve)) = server else { return Ok(None) };
    cpus.spawn("metrics", serve)?;
    Ok(Some(access))
}

fn router(board: Board) -> Router {
    Router::new().route("/metrics", get(metrics)).route("/status", get(status)).with_state(board)
}

async fn metrics(State(board): State<Board>) -> Response {
    host::answer(prometheus(&board.read()))
}

async fn status(State(board): State<Board>) -> Json<Status> {
    Json(Status::clone(&board.read()))
}
