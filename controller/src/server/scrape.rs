//! `GET /metrics`, which Prometheus scrapes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use calumma_ports::Guests;

use super::http::Server;
use super::http::answers::Cost;
use crate::metrics::Metrics;

/// Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The API's state, the connections to its port, and all metrics.
type Scraped = (Server, Arc<Guests>, Arc<Metrics>);

/// The route, to be merged into the API's.
pub(super) fn router(server: Server, guests: Arc<Guests>, metrics: Arc<Metrics>) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state((server, guests, metrics))
}

async fn scrape(State((server, guests, metrics)): State<Scraped>) -> Response {
    let answers = server.answers.clone();
    let make = move || {
        let Server { hub, answers, refused, unauthorized, .. } = &server;
        let lanes = hub.lanes();
        metrics.note_systems(|system| {
            lanes.iter().any(|lane| lane.id() == system.offer().system && lane.is_on())
        });
        metrics.note_key(&hub.hash_key_status());
        metrics.note_carrier(&hub.carrier_status());
        metrics.note_port("switches", hub.strangers());
        metrics.note_port("http", &guests);
        metrics.note_requests("busy", answers.refused());
        metrics.note_requests("slow", answers.cut());
        metrics.note_requests("frequent", guests.too_frequent());
        metrics.note_requests("foreign", refused.load(Ordering::Relaxed));
        metrics.note_requests("unauthorized", unauthorized.load(Ordering::Relaxed));
        metrics.render(&hub.nodes(), &hub.paths())
    };
    answers.text(Cost::Piece, TEXT_FORMAT, make).await
}
