//! The HTTP API: reports, edges, flow sizes, and attention.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::error;

use super::hub::{AttentionStatus, EdgeStatus, Hub};
use super::unix_ns;
use crate::config::AttentionSection;
use crate::report::Flow;

/// Answers requests until told to stop; `more` are routes beside the API's.
pub(super) async fn serve(
    listener: TcpListener,
    hub: Arc<Hub>,
    more: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let router = Router::new()
        .route("/healthz", get(health))
        .route("/api/v1/epochs", get(epochs))
        .route("/api/v1/edges", get(edges))
        .route("/api/v1/flows", get(flows))
        .route("/api/v1/attention", get(attention).post(change_attention))
        .route("/api/v1/attention/release", post(release))
        .with_state(hub)
        .merge(more);
    let stop = async move {
        // An error means that the controller is gone, which is to stop as well.
        let _ = stopped.wait_for(|&stopped| stopped).await;
    };
    if let Err(problem) = axum::serve(listener, router).with_graceful_shutdown(stop).await {
        error!("the HTTP API failed: {problem}");
    }
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    /// Edges that are connected, and expected.
    edges: (usize, usize),
    last_epoch: Option<u64>,
}

async fn health(State(hub): State<Arc<Hub>>) -> Json<Health> {
    let edges = hub.edges();
    let connected = edges.iter().filter(|edge| edge.connected).count();
    Json(Health { status: "ok", edges: (connected, edges.len()), last_epoch: hub.last_epoch() })
}

#[derive(Deserialize)]
struct Last {
    #[serde(default = "default_last")]
    last: usize,
}

fn default_last() -> usize {
    20
}

async fn epochs(State(hub): State<Arc<Hub>>, Query(query): Query<Last>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], hub.last_reports(query.last))
}

async fn edges(State(hub): State<Arc<Hub>>) -> Json<Vec<EdgeStatus>> {
    Json(hub.edges())
}

/// A flow's size at one edge in its last epoch.
#[derive(Serialize)]
struct SizeAt {
    edge: String,
    epoch: u64,
    size: u64,
    size_min: u64,
    exact: bool,
}

async fn flows(State(hub): State<Arc<Hub>>, Query(flow): Query<Flow>) -> Json<Vec<SizeAt>> {
    let sizes = hub.flow_sizes(&(&flow).into());
    let at = |(edge, epoch, size): (String, u64, crate::analyse::FlowSize)| SizeAt {
        edge,
        epoch,
        size: size.size,
        size_min: size.size_min,
        exact: size.exact,
    };
    Json(sizes.into_iter().map(at).collect())
}

#[derive(Serialize)]
struct Changed {
    /// The first epoch in which the new attention holds; absent where nothing changes.
    effective_epoch: Option<u64>,
}

#[derive(Serialize)]
struct Problem {
    error: String,
}

async fn attention(State(hub): State<Arc<Hub>>) -> Json<AttentionStatus> {
    Json(hub.attention())
}

async fn release(State(hub): State<Arc<Hub>>) -> Json<AttentionStatus> {
    hub.release();
    Json(hub.attention())
}

async fn change_attention(
    State(hub): State<Arc<Hub>>,
    Json(wanted): Json<AttentionSection>,
) -> Result<Json<Changed>, (StatusCode, Json<Problem>)> {
    match hub.change_attention(&wanted, unix_ns()) {
        Ok(effective_epoch) => Ok(Json(Changed { effective_epoch })),
        Err(error) => Err((StatusCode::UNPROCESSABLE_ENTITY, Json(Problem { error }))),
    }
}
