//! Reports on the latest epochs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::report::EpochReport;
use crate::server::http::answers::{Cost, JSON};
use crate::server::http::{Problem, Server, Window};
use crate::summary::EpochSummary;

/// How much of an epoch is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum View {
    /// Everything, flow by flow.
    #[default]
    Report,
    /// The same without flows.
    Summary,
}

/// An epoch as far as a [`View`] shows it.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Epoch<'a> {
    /// Everything.
    Report(&'a EpochReport),
    /// Without flows.
    Summary(Box<EpochSummary>),
}

impl View {
    pub(super) fn of(self, report: &EpochReport) -> Epoch<'_> {
        match self {
            Self::Report => Epoch::Report(report),
            Self::Summary => Epoch::Summary(Box::new(report.into())),
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Shown {
    /// How much of each
    #[serde(default)]
    #[param(inline, default = "report", required = false)]
    view: View,
}

/// The latest epochs, oldest first
#[utoipa::path(get, path = "/api/v1/epochs", params(Window, Shown),
    responses((status = OK, body = Vec<Epoch>)))]
pub(super) async fn epochs(
    State(server): State<Server>,
    Query(window): Query<Window>,
    Query(Shown { view }): Query<Shown>,
) -> Response {
    let reports = server.hub.chamelemon.recent.reports(window.last);
    let write = move |report: &Arc<EpochReport>, piece: &mut Vec<u8>| {
        serde_json::to_writer(piece, &view.of(report))
    };
    server.answers.list(reports, write).await
}

/// One epoch
#[utoipa::path(get, path = "/api/v1/epochs/{epoch}",
    params(("epoch" = u64, Path, description = "Number of the epoch")),
    responses(
        (status = OK, body = EpochReport),
        (status = NOT_FOUND, description = "Not yet, or no longer, remembered", body = Problem),
    ))]
pub(super) async fn epoch(State(server): State<Server>, Path(epoch): Path<u64>) -> Response {
    match server.hub.chamelemon.recent.report(epoch) {
        Some(report) => {
            let write = move || serde_json::to_string(&*report);
            server.answers.text(Cost::Piece, JSON, write).await
        }
        None => {
            let error = format!(
                "epoch {epoch} is not among the last {} that were reported; raise `history` in \
                 the controller's configuration to remember more",
                server.hub.config().history
            );
            (StatusCode::NOT_FOUND, Json(Problem { error })).into_response()
        }
    }
}
