//! The HTTP API, the live events and the dashboard's files.
//!
//! Every route is described where it is written; `GET /api/v1/openapi.json` puts the descriptions
//! together, so it can't differ from the routes. `docs/controller.md` is the operator's page.

mod deployment;
mod edges;
mod files;
mod hash_key;
mod nodes;
mod paths;
mod systems;
mod topology;

use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::error;
use utoipa::{IntoParams, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::hub::Hub;
use crate::chamelemon;

/// What handlers share.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) hub: Arc<Hub>,
    /// Becomes true when the controller stops.
    pub(crate) stopped: watch::Receiver<bool>,
}

/// The latest epochs, as requests ask for them.
#[derive(Clone, Copy, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Window {
    /// How many epochs, ending with the newest
    #[serde(default = "default_last")]
    #[param(default = 20)]
    pub(crate) last: usize,
}

fn default_last() -> usize {
    20
}

/// Answers requests until it is to stop; `more` are routes beside the API's.
pub(super) async fn serve(
    listener: TcpListener,
    hub: Arc<Hub>,
    more: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let router = router(Server { hub, stopped: stopped.clone() }).merge(more);
    let stop = async move {
        // An error means that the controller is gone, which is to stop as well.
        let _ = stopped.wait_for(|&stopped| stopped).await;
    };
    if let Err(problem) = axum::serve(listener, router).with_graceful_shutdown(stop).await {
        error!("the HTTP API failed: {problem}");
    }
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Calumma controller",
    description = "What a network measured by Calumma carries and loses, epoch by epoch. Epochs \
                   are numbered: their start in nanoseconds since the Unix epoch over their length."
))]
struct Description;

fn router(server: Server) -> Router {
    let (router, description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(edges::health))
        .routes(routes!(deployment::deployment))
        .routes(routes!(hash_key::status))
        .routes(routes!(hash_key::rotate))
        .routes(routes!(edges::edges))
        .routes(routes!(nodes::nodes))
        .routes(routes!(paths::paths))
        .routes(routes!(topology::topology))
        .routes(routes!(systems::systems))
        .routes(routes!(systems::epochs))
        .routes(routes!(systems::windows))
        .routes(routes!(systems::epoch))
        .merge(chamelemon::http::router())
        .split_for_parts();
    router
        .route("/api/v1/openapi.json", get(async move || Json(description)))
        .merge(files::router())
        .fallback(nothing_here)
        .with_state(server)
}

/// What was wrong with a request.
#[derive(Serialize, ToSchema)]
pub(crate) struct Problem {
    /// What, and the remedy.
    pub(crate) error: String,
}

async fn nothing_here() -> Response {
    let error = "nothing is here: / is the dashboard, /api/v1/openapi.json describes the API";
    (StatusCode::NOT_FOUND, Json(Problem { error: error.to_owned() })).into_response()
}

/// Answers with the JSON that `make` gives, made away from the threads that serve connections:
/// reports can be large.
pub(crate) async fn json(
    make: impl FnOnce() -> serde_json::Result<String> + Send + 'static,
) -> Response {
    match tokio::task::spawn_blocking(make).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Ok(Err(problem)) => broken(&problem),
        Err(problem) => broken(&problem),
    }
}

fn broken(problem: &dyn std::fmt::Display) -> Response {
    error!("an answer of the HTTP API could not be made: {problem}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}
