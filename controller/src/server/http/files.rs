//! The dashboard's files. They are part of the program: nothing is to be installed beside it, and
//! nothing is loaded from elsewhere.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use calumma_analysis::Panel;

use super::{Server, nothing_here};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Name, type and content of each file below `/dashboard/`.
const FILES: [(&str, &str, &str); 10] = [
    ("style.css", CSS, include_str!("../../dashboard/style.css")),
    ("icon.svg", SVG, include_str!("../../dashboard/icon.svg")),
    ("main.js", JS, include_str!("../../dashboard/main.js")),
    ("store.js", JS, include_str!("../../dashboard/store.js")),
    ("dom.js", JS, include_str!("../../dashboard/dom.js")),
    ("format.js", JS, include_str!("../../dashboard/format.js")),
    ("charts.js", JS, include_str!("../../dashboard/charts.js")),
    ("overview.js", JS, include_str!("../../dashboard/overview.js")),
    ("details.js", JS, include_str!("../../dashboard/details.js")),
    ("systems.js", JS, include_str!("../../dashboard/systems.js")),
];

const PAGE: &str = include_str!("../../dashboard/index.html");

/// Names come from the network: the page may run nothing but its own files.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

pub(super) fn router() -> Router<Server> {
    Router::new()
        .route("/", get(async || answer(HTML, PAGE)))
        .route("/dashboard/{name}", get(file))
        .route("/dashboard/systems/{system}/{script}", get(panel))
}

/// Where a system's panel is served.
pub(super) fn panel_path(system: &str, panel: &Panel) -> String {
    format!("/dashboard/systems/{system}/{}.js", panel.name)
}

async fn panel(
    State(server): State<Server>,
    Path((system, script)): Path<(String, String)>,
) -> Response {
    let system = server.hub.systems().iter().find(|known| known.name() == system);
    let panels = system.map_or(&[][..], |system| system.panels());
    match panels.iter().find(|panel| script.strip_suffix(".js") == Some(panel.name)) {
        Some(panel) => answer(JS, panel.script),
        None => nothing_here().await,
    }
}

async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, content)) => answer(kind, content),
        None => nothing_here().await,
    }
}

fn answer(kind: &'static str, content: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // They change with the program, which has no number for that.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, content).into_response()
}
