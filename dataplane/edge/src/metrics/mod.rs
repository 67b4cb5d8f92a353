//! The switch's figures over HTTP: `/metrics` for Prometheus, `/status` as JSON for
//! `calumma-edge top`.

mod text;

use std::net::{SocketAddr, TcpListener};

use anyhow::Context;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tracing::{error, info};

use crate::cpus::Cpus;
use crate::status::{Board, Status};

pub use self::text::prometheus;

/// Serves what hangs on `board` from a thread of its own on `cpus`, for as long as the process lives.
///
/// # Errors
/// When the address can't be listened on.
pub fn serve(listen: SocketAddr, board: Board, cpus: Cpus) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen)
        .with_context(|| format!("metrics.listen: listening on {listen}; is it in use?"))?;
    listener.set_nonblocking(true).context("metrics.listen")?;
    info!(address = %listener.local_addr()?, "metrics");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    cpus.spawn("metrics", move || {
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router(board)).await
        });
        if let Err(problem) = served {
            error!("metrics are not served any more: {problem}");
        }
    })?;
    Ok(())
}

fn router(board: Board) -> Router {
    Router::new().route("/metrics", get(metrics)).route("/status", get(status)).with_state(board)
}

async fn metrics(State(board): State<Board>) -> Response {
    match prometheus(&board.read()) {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(problem) => {
            (axum::http::StatusCode::INTERNAL_SERVER_ERROR, problem.to_string()).into_response()
        }
    }
}

async fn status(State(board): State<Board>) -> Json<Status> {
    Json(Status::clone(&board.read()))
}
