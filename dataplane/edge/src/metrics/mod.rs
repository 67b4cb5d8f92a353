//! The switch's figures over HTTP: `/metrics` for Prometheus, `/status` as JSON for
//! `calumma-edge top`.

mod text;

use std::net::SocketAddr;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use calumma_switch_host::metrics as host;

use crate::cpus::Cpus;
use crate::status::{Board, Status};

pub use self::text::prometheus;

/// Serves what hangs on `board` from a thread of its own on `cpus`, for as long as the process
/// lives.
///
/// # Errors
/// When the address can't be listened on.
pub fn serve(listen: SocketAddr, board: Board, cpus: &Cpus) -> anyhow::Result<()> {
    cpus.spawn("metrics", host::server(listen, router(board))?)?;
    Ok(())
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
