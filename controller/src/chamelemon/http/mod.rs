//! What the HTTP API answers about ChameleMon: its epochs as reports and as events, losses, flows,
//! and attention.

mod attention;
mod epochs;
mod events;
mod flows;
mod victims;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::server::http::Server;

/// The routes.
pub(crate) fn router() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(epochs::epochs))
        .routes(routes!(epochs::epoch))
        .routes(routes!(events::events))
        .routes(routes!(victims::victims))
        .routes(routes!(flows::sizes))
        .routes(routes!(flows::history))
        .routes(routes!(attention::attention, attention::change))
        .routes(routes!(attention::release))
}
