//! `GET /metrics`, which Prometheus scrapes.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::hub::Hub;
use crate::metrics::Metrics;

/// Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

type Scraped = (Arc<Hub>, Arc<Metrics>);

/// The route, to be merged into the API's.
pub(super) fn router(hub: Arc<Hub>, metrics: Arc<Metrics>) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state((hub, metrics))
}

async fn scrape(State((hub, metrics)): State<Scraped>) -> Response {
    metrics.note_key(&hub.hash_key_status());
    metrics.note_port("switches", hub.strangers());
    match metrics.render(&hub.nodes(), &hub.paths()) {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(problem) => (StatusCode::INTERNAL_SERVER_ERROR, problem.to_string()).into_response(),
    }
}
