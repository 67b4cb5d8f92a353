//! What the HTTP API answers about cooperative flow selection beside whole reports: flows, spreads,
//! loops and losses by window, which flows are pinned, and what changes while switches measure.
//! `docs/cfs.md` is the operator's page.

pub mod config;

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use calumma_analysis::{EpochHead, Pins, System, SystemReport};
use calumma_cfs_analysis::{BlackHole, Cfs, FlowCount, Found, Loop, Loss, PathChange, Spread};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::report::Flow;
use crate::server::http::systems::{lane_of, of_reports};
use crate::server::http::{Problem, Server, Window};
use crate::server::hub::lock;

/// Flows of a window, as its report lists them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowsInWindow {
    /// The window's first epoch, its start and length.
    #[serde(flatten)]
    pub head: EpochHead,
    /// Number of the window.
    pub window: u64,
    /// Whether the window's measurement is whole and sound.
    pub complete: bool,
    /// Flows that any node has a count of.
    pub monitored: u64,
    /// Flows that the report lists, the largest of those monitored; what it does not list is not
    /// found.
    pub listed: u64,
    /// The share of all flows that is monitored.
    pub coverage: Option<f64>,
    /// Lower bound of `coverage`, 95 times out of 100.
    pub coverage_low: Option<f64>,
    /// Upper bound of `coverage`, 95 times out of 100.
    pub coverage_high: Option<f64>,
    /// The share of all flows that tables have room for.
    #[serde(default)]
    pub optimum: Option<f64>,
    /// Lower bound of `optimum`, 95 times out of 100.
    #[serde(default)]
    pub optimum_low: Option<f64>,
    /// Upper bound of `optimum`, 95 times out of 100.
    #[serde(default)]
    pub optimum_high: Option<f64>,
    /// The largest of the flows that were asked for, the largest first.
    #[schema(value_type = Vec<Object>)]
    pub flows: Vec<FlowCount>,
}

/// Superspreaders and flooded destinations of a window.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SpreadsInWindow {
    /// The window's first epoch, its start and length.
    #[serde(flatten)]
    pub head: EpochHead,
    /// Number of the window.
    pub window: u64,
    /// Whether the window's measurement is whole and sound.
    pub complete: bool,
    /// Peers from which on an address is listed.
    pub threshold: u64,
    /// Sources of flows to many destinations.
    #[schema(value_type = Vec<Object>)]
    pub superspreaders: Vec<Spread>,
    /// Whether no other source has as many, 95 times out of 100.
    #[serde(default)]
    pub superspreaders_complete: bool,
    /// Whether no other source has as many, 95 times out of 100, if of an edge's flows those to
    /// some hosts are monitored like those to others.
    #[serde(default)]
    pub superspreaders_likely_complete: bool,
    /// Destinations of flows from many sources.
    #[schema(value_type = Vec<Object>)]
    pub flooded: Vec<Spread>,
    /// Whether no other destination has as many, 95 times out of 100.
    #[serde(default)]
    pub flooded_complete: bool,
    /// Whether no other destination has as many, 95 times out of 100, if of an edge's flows those
    /// of some hosts are monitored like those of others.
    #[serde(default)]
    pub flooded_likely_complete: bool,
}

/// Loops of a window, and changes of path.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LoopsInWindow {
    /// The window's first epoch, its start and length.
    #[serde(flatten)]
    pub head: EpochHead,
    /// Number of the window.
    pub window: u64,
    /// Whether the window's measurement is whole and sound.
    pub complete: bool,
    /// Flows whose packets came by nodes again and again.
    #[schema(value_type = Vec<Object>)]
    pub loops: Vec<Loop>,
    /// Whether every node watched each flow for loops, by its entry or its guard.
    #[serde(default)]
    pub loops_watched: bool,
    /// Flows whose packets came to a node with several times to live.
    #[schema(value_type = Vec<Object>)]
    pub path_changes: Vec<PathChange>,
}

/// Losses of a window, and where nothing goes on.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LossesInWindow {
    /// The window's first epoch, its start and length.
    #[serde(flatten)]
    pub head: EpochHead,
    /// Number of the window.
    pub window: u64,
    /// Whether the window's measurement is whole and sound.
    pub complete: bool,
    /// Flows that lost packets between two nodes that counted them exactly.
    #[schema(value_type = Vec<Object>)]
    pub losses: Vec<Loss>,
    /// Nodes or links from which nothing goes on.
    #[schema(value_type = Vec<Object>)]
    pub black_holes: Vec<BlackHole>,
    /// Whether others would have been seen, as far as it is known where hosts are.
    #[serde(default)]
    pub black_holes_known: bool,
}

/// Flows that every switch counts, whatever their hashes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PinnedFlows {
    /// How many there may be: `[cfs] pins`.
    pub most: u64,
    /// Flows that were asked for here.
    pub wanted: Vec<Flow>,
    /// All flows that switches were sent last, by their keys: those asked for, and victims and
    /// heavy hitters that ChameleMon or tables found. They hold from the next window on that every
    /// switch can follow.
    pub sent: Vec<Flow>,
    /// Switches that can't pin flows, since their programs are older.
    pub without: Vec<String>,
}

impl From<Pins> for PinnedFlows {
    fn from(pins: Pins) -> Self {
        let Pins { most, wanted, sent, without } = pins;
        Self { most: most as u64, wanted, sent, without }
    }
}

/// Flows to be pinned.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinsWanted {
    /// The flows, those that matter most first; none to pin no flow by this any more.
    pub flows: Vec<Flow>,
}

/// Which flows are wanted: those that have all that is given.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// How many windows, ending with the newest
    #[serde(default = "newest")]
    #[param(default = 1)]
    last: usize,
    /// How many flows of each window at most
    #[serde(default = "some")]
    #[param(default = 100)]
    limit: usize,
    /// Source address
    #[param(value_type = Option<String>)]
    src: Option<IpAddr>,
    /// Destination address
    #[param(value_type = Option<String>)]
    dst: Option<IpAddr>,
    /// Source port
    sport: Option<u16>,
    /// Destination port
    dport: Option<u16>,
    /// IP protocol number
    proto: Option<u8>,
}

fn newest() -> usize {
    1
}

fn some() -> usize {
    100
}

impl Wanted {
    fn has(&self, flow: &Flow) -> bool {
        self.src.is_none_or(|src| src == flow.src)
            && self.dst.is_none_or(|dst| dst == flow.dst)
            && self.sport.is_none_or(|sport| sport == flow.sport)
            && self.dport.is_none_or(|dport| dport == flow.dport)
            && self.proto.is_none_or(|proto| proto == flow.proto)
    }
}

/// The routes.
pub(crate) fn router() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(flows))
        .routes(routes!(superspreaders))
        .routes(routes!(loops))
        .routes(routes!(losses))
        .routes(routes!(pins, pin))
        .merge(config::router())
}

/// Monitored flows of the latest windows, oldest window first, with a count for every hop
#[utoipa::path(get, path = "/api/v1/cfs/flows", params(Wanted),
    responses(
        (status = OK, body = Vec<FlowsInWindow>),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
    ))]
async fn flows(State(server): State<Server>, Query(wanted): Query<Wanted>) -> Response {
    let of = move |report: &SystemReport<Found>| {
        let found = &report.findings;
        let flows = found.flows.iter().filter(|count| wanted.has(&count.flow));
        FlowsInWindow {
            head: report.head,
            window: found.window,
            complete: report.complete,
            monitored: found.monitored,
            listed: found.flows.len() as u64,
            coverage: found.coverage,
            coverage_low: found.coverage_low,
            coverage_high: found.coverage_high,
            optimum: found.optimum,
            optimum_low: found.optimum_low,
            optimum_high: found.optimum_high,
            flows: flows.take(wanted.limit).cloned().collect(),
        }
    };
    of_reports(server, &Cfs, wanted.last, of).await
}

/// Sources of flows to many destinations in the latest windows, and the reverse
#[utoipa::path(get, path = "/api/v1/cfs/superspreaders", params(Window),
    responses(
        (status = OK, body = Vec<SpreadsInWindow>),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
    ))]
async fn superspreaders(State(server): State<Server>, Query(window): Query<Window>) -> Response {
    let of = |report: &SystemReport<Found>| SpreadsInWindow {
        head: report.head,
        window: report.findings.window,
        complete: report.complete,
        threshold: report.findings.thresholds.superspreader,
        superspreaders: report.findings.superspreaders.clone(),
        superspreaders_complete: report.findings.superspreaders_complete,
        superspreaders_likely_complete: report.findings.superspreaders_likely_complete,
        flooded: report.findings.flooded.clone(),
        flooded_complete: report.findings.flooded_complete,
        flooded_likely_complete: report.findings.flooded_likely_complete,
    };
    of_reports(server, &Cfs, window.last, of).await
}

/// Loops and changes of path in the latest windows
#[utoipa::path(get, path = "/api/v1/cfs/loops", params(Window),
    responses(
        (status = OK, body = Vec<LoopsInWindow>),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
    ))]
async fn loops(State(server): State<Server>, Query(window): Query<Window>) -> Response {
    let of = |report: &SystemReport<Found>| LoopsInWindow {
        head: report.head,
        window: report.findings.window,
        complete: report.complete,
        loops: report.findings.loops.clone(),
        loops_watched: report.findings.loops_watched,
        path_changes: report.findings.path_changes.clone(),
    };
    of_reports(server, &Cfs, window.last, of).await
}

/// Losses between nodes in the latest windows, and black holes
#[utoipa::path(get, path = "/api/v1/cfs/losses", params(Window),
    responses(
        (status = OK, body = Vec<LossesInWindow>),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
    ))]
async fn losses(State(server): State<Server>, Query(window): Query<Window>) -> Response {
    let of = |report: &SystemReport<Found>| LossesInWindow {
        head: report.head,
        window: report.findings.window,
        complete: report.complete,
        losses: report.findings.losses.clone(),
        black_holes: report.findings.black_holes.clone(),
        black_holes_known: report.findings.black_holes_known,
    };
    of_reports(server, &Cfs, window.last, of).await
}

/// Flows that every switch counts, whatever their hashes
#[utoipa::path(get, path = "/api/v1/cfs/pins",
    responses(
        (status = OK, body = PinnedFlows),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
    ))]
async fn pins(State(server): State<Server>) -> Response {
    pinned(&server, None)
}

/// Has every switch count these flows from a window to come on, and no others that were asked for
/// here before
#[utoipa::path(post, path = "/api/v1/cfs/pins", request_body = PinsWanted,
    responses(
        (status = OK, body = PinnedFlows),
        (status = NOT_FOUND, description = "The system does not run", body = Problem),
        (status = UNPROCESSABLE_ENTITY, description = "They are too many", body = Problem),
    ))]
async fn pin(State(server): State<Server>, Json(wanted): Json<PinsWanted>) -> Response {
    pinned(&server, Some(wanted))
}

/// Pins what is wanted, if anything, and answers with all that is pinned.
fn pinned(server: &Server, wanted: Option<PinsWanted>) -> Response {
    let lane = match lane_of(server, Cfs.name()) {
        Ok(lane) => lane,
        Err(response) => return *response,
    };
    let answer = || {
        let mut steering = lane.steering.as_ref().map(lock)?;
        let pinned = wanted.map_or(Ok(()), |wanted| steering.pin(&wanted.flows));
        let pins = steering.pins()?;
        Some(pinned.map(|()| pins))
    };
    match answer().unwrap_or_else(|| Err("no flows can be pinned".to_owned())) {
        Ok(pins) => Json(PinnedFlows::from(pins)).into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, Json(Problem { error })).into_response(),
    }
}
