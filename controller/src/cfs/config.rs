//! `/api/v1/cfs/config`: what of the section `[cfs]` changes while switches measure.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use calumma_analysis::System;
use calumma_cfs_analysis::Cfs;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::server::http::systems::lane_of;
use crate::server::http::{Problem, Server};
use crate::server::hub::lock;

/// What of the section changes while switches measure.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CfsConfig {
    /// Flows that a switch's table is to hold.
    pub entries: u32,
    /// Which share of the memory of table and residual the table is to have: `auto`, or the share;
    /// null where there is no residual.
    pub alpha: Option<Alpha>,
    /// How flows are to be graded.
    pub grade: Grade,
    /// Whether switches are to claim flows.
    pub claim: bool,
    /// Flows that can be pinned.
    pub pins: u32,
    /// What of ChameleMon's findings is pinned.
    pub pin: Vec<Pin>,
    /// The largest flows that a report lists.
    pub flows_listed: u64,
    /// Packets in a window that make a heavy hitter.
    pub heavy_packets: u64,
    /// Packets more or less than in the window before that make a heavy change.
    pub heavy_change_packets: u64,
    /// Destinations that make a source a superspreader, and sources that flood a destination.
    pub superspreader: u64,
    /// The share of all flows below which an alert starts.
    pub coverage_wanted: f64,
    /// What switches were sent last; it holds from the next window on that every switch can follow.
    pub sent: Sent,
    /// Switches that go on by the file in what differs from it, since their programs are older.
    pub without: Vec<String>,
}

/// What switches were sent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct Sent {
    /// Flows that a table holds where it has the file's share of the memory.
    pub entries: u32,
    /// The table's share of the memory; null where there is no residual.
    pub alpha: Option<f64>,
    /// How flows are graded.
    pub grade: Grade,
    /// Whether they claim flows.
    pub claim: bool,
}

/// A share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Alpha {
    /// So much, 0.6 to 0.97, or what the file says.
    Fixed(f64),
    /// It moves.
    Moves(Moves),
}

/// A share that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Moves {
    /// By how residuals fare, from window to window.
    Auto,
}

/// How flows are graded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// By hops, each of which prefers the flows in the middle of those that the others leave.
    Fold,
    /// By hops, each of which prefers its own part of the flows.
    Greedy,
    /// By switch.
    Random,
    /// By hops, of which marks say how many there are.
    Even,
}

/// Flows that are pinned without an operator's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pin {
    /// Those that lost packets.
    Victims,
    /// Heavy hitters.
    Heavy,
}

/// What is to be otherwise. What is not there stays.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CfsConfigWanted {
    /// Flows that a switch's table holds: 256 to what there is memory for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u32>,
    /// The table's share of the memory of table and residual: `auto`, or 0.6 to 0.97.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<Alpha>,
    /// How flows are graded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grade: Option<Grade>,
    /// Whether switches claim flows, where the file lets them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<bool>,
    /// Flows that can be pinned, at most a quarter of the entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pins: Option<u32>,
    /// What of ChameleMon's findings is pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<Vec<Pin>>,
    /// The largest flows that a report lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows_listed: Option<u64>,
    /// Packets in a window that make a heavy hitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heavy_packets: Option<u64>,
    /// Packets more or less than in the window before that make a heavy change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heavy_change_packets: Option<u64>,
    /// Destinations that make a source a superspreader, and sources that flood a destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superspreader: Option<u64>,
    /// The share of all flows below which an alert starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage_wanted: Option<f64>,
}

/// The routes.
pub(super) fn router() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(config, configure))
}

/// What of the section changes while switches measure
#[utoipa::path(get, path = "/api/v1/cfs/config",
    responses(
        (status = OK, body = CfsConfig),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
    ))]
async fn config(State(server): State<Server>) -> Response {
    configured(&server, None)
}

/// Changes settings from a window to come on, the same one at all switches
#[utoipa::path(post, path = "/api/v1/cfs/config", request_body = CfsConfigWanted,
    responses(
        (status = OK, body = CfsConfig),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
        (status = UNPROCESSABLE_ENTITY, description = "It can't be", body = Problem),
    ))]
async fn configure(State(server): State<Server>, Json(wanted): Json<CfsConfigWanted>) -> Response {
    configured(&server, Some(&wanted))
}

/// Changes what is wanted, if anything, and answers with what there is.
fn configured(server: &Server, wanted: Option<&CfsConfigWanted>) -> Response {
    let lane = match lane_of(server, Cfs.name()) {
        Ok(lane) => lane,
        Err(response) => return *response,
    };
    let answer = || {
        let mut steering = lane.steering.as_ref().map(lock).ok_or("nothing of it can change")?;
        if let Some(wanted) = wanted
            && let Value::Object(changes) = json(wanted)?
        {
            steering.amend(&changes)?;
        }
        let settings = steering.settings().ok_or("nothing of it can change")?;
        serde_json::from_value::<CfsConfig>(settings).map_err(|error| error.to_string())
    };
    match answer() {
        Ok(config) => Json(config).into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, Json(Problem { error })).into_response(),
    }
}

fn json(wanted: &CfsConfigWanted) -> Result<Value, String> {
    serde_json::to_value(wanted).map_err(|error| error.to_string())
}
