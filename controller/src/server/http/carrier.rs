//! Where packets carry their marks: what was chosen, and another one by command.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::{Problem, Server};
use crate::api::{CarrierOrder, CarrierStatus};

/// By which carrier packets are marked, and what switches offer
#[utoipa::path(get, path = "/api/v1/carrier", responses((status = OK, body = CarrierStatus)))]
pub(super) async fn status(State(server): State<Server>) -> Json<CarrierStatus> {
    Json(server.hub.carrier_status())
}

/// Has another carrier chosen: where it is another one, all switches begin anew within seconds
#[utoipa::path(post, path = "/api/v1/carrier", request_body = CarrierOrder, responses(
    (status = OK, body = CarrierStatus),
    (status = CONFLICT, description = "It stays, and why", body = Problem),
))]
pub(super) async fn order(
    State(server): State<Server>,
    Json(CarrierOrder { carrier }): Json<CarrierOrder>,
) -> Result<Json<CarrierStatus>, (StatusCode, Json<Problem>)> {
    let ordered = tokio::task::spawn_blocking(move || {
        server.hub.order_carrier(Some(carrier.as_str()).filter(|&carrier| carrier != "auto"))
    });
    let ordered = ordered.await.unwrap_or_else(|problem| Err(problem.to_string()));
    ordered.map(Json).map_err(|error| (StatusCode::CONFLICT, Json(Problem { error })))
}
