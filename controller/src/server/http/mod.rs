//! The HTTP API, the live events and the dashboard's files.
//!
//! Every route is described where it is written; `GET /api/v1/openapi.json` puts the descriptions
//! together, so it can't differ from the routes. `docs/controller.md` is the operator's page.

pub(crate) mod access;
pub(crate) mod answers;
mod carrier;
mod deployment;
mod edges;
mod files;
mod hash_key;
mod nodes;
mod origin;
mod paths;
pub(crate) mod systems;
mod topology;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::Context;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use calumma_ports::{Bounds, Guests};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::error;
use utoipa::{IntoParams, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::answers::Answers;
use super::audit::Audit;
use super::hub::Hub;
use super::trust::Trust;
use super::yield_to_others;
use crate::{cfs, chamelemon, sketchint};

/// Connections to the HTTP port: some dashboards, an event stream each, and who polls.
pub(super) const BOUNDS: Bounds = Bounds { most: 512, most_of_address: 128 };

/// Threads that serve connections.
const SERVING_THREADS: usize = 2;

/// What handlers share.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) hub: Arc<Hub>,
    /// Becomes true when the controller stops.
    pub(crate) stopped: watch::Receiver<bool>,
    /// Those that are large or take long.
    pub(crate) answers: Answers,
    /// Requests that a page of somebody else's may have made.
    pub(crate) refused: Arc<AtomicU64>,
    /// Requests without the token that they needed.
    pub(crate) unauthorized: Arc<AtomicU64>,
    /// Tokens, and the certificate.
    pub(super) trust: Arc<Trust>,
    /// Where changes are written down.
    pub(super) audit: Arc<Audit>,
}

impl Server {
    pub(super) fn new(
        hub: Arc<Hub>,
        trust: Arc<Trust>,
        audit: Arc<Audit>,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let (answers, refused, unauthorized) = Default::default();
        Self { hub, stopped, answers, refused, unauthorized, trust, audit }
    }
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

/// Answers requests until it is to stop; `more` are routes beside the API's. On threads of its own,
/// that yield to those of measurement: readers, however many, hold up no frame and no decoding.
///
/// # Errors
/// When there are no threads for it.
pub(super) fn start(
    listener: TcpListener,
    server: Server,
    guests: Arc<Guests>,
    more: Router,
) -> anyhow::Result<()> {
    let listener = listener.into_std()?;
    let hub = server.hub.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(SERVING_THREADS)
        .max_blocking_threads(answers::MOST)
        .thread_name("http")
        .on_thread_start(move || {
            hub.pin();
            yield_to_others();
        })
        .enable_all()
        .build()
        .context("http")?;
    let mut stopped = server.stopped.clone();
    let checked = axum::middleware::from_fn_with_state(server.clone(), origin::check);
    let allowed = axum::middleware::from_fn_with_state(server.clone(), access::check);
    let tls = server.trust.http().tls();
    // The last layer is the first that a request comes to.
    let router = router(server).merge(more).layer(allowed).layer(checked);
    let serving = move || {
        runtime.block_on(async {
            let listener = match TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(problem) => return error!("the HTTP API failed: {problem}"),
            };
            // An error means that the controller is gone, which is to stop as well.
            let stop = async { drop(stopped.wait_for(|&stopped| stopped).await) };
            calumma_ports::http::serve(listener, tls, router, guests, stop).await;
        });
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("http".to_owned()).spawn(serving).context("http")?;
    Ok(())
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
        .routes(routes!(access::session))
        .routes(routes!(edges::health))
        .routes(routes!(deployment::deployment))
        .routes(routes!(carrier::status))
        .routes(routes!(carrier::order))
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
        .merge(cfs::router())
        .merge(sketchint::router())
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
