//! Who may ask: tokens, and what they are good for.
//!
//! A token comes in `Authorization: Bearer TOKEN`. A browser that has shown one is given a cookie,
//! since it can't send that header with an event stream; cookies are good for reading only, so that
//! no page can have a browser change anything. Whoever changes something is written down.

use std::future;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{COOKIE, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use calumma_ports::http::bearer;
use calumma_trust::{Role, Token, Tokens};
use tokio::sync::watch;
use tokio::task::JoinError;

use super::{Problem, Server};
use crate::server::audit::Change;
use crate::server::unix_ns;

/// The cookie's name.
const COOKIE_NAME: &str = "calumma_token";

/// Bytes of what a change is asked for with.
const MOST_BODY: usize = 64 << 10;

/// Where a browser has its token made a cookie.
pub(super) const SESSION: &str = "/api/v1/session";

/// Passes on what its sender may ask for.
pub(super) async fn check(State(server): State<Server>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    // The dashboard's files are in every copy of the program, and its page is where tokens are
    // asked for.
    if reads && (path == "/" || path.starts_with("/dashboard/")) {
        return next.run(request).await;
    }
    let shown = shown(request.headers(), reads);
    let token = shown.and_then(|shown| server.trust.http().token(shown));
    let wanted = if reads || path == SESSION { Role::Read } else { Role::Operate };
    let refused = |status, error: String| {
        server.unauthorized.fetch_add(1, Ordering::Relaxed);
        (status, Json(Problem { error })).into_response()
    };
    match token {
        Some(token) if token.role >= wanted && wanted == Role::Operate => {
            change(server, token, request, next).await
        }
        Some(token) if token.role >= wanted => next.run(request).await,
        Some(token) => {
            let (held, wanted) = (token.role.name(), wanted.name());
            let error = format!("the token is of role `{held}`, and this needs `{wanted}`");
            refused(StatusCode::FORBIDDEN, error)
        }
        None if shown.is_none() && wanted == Role::Read && free(&server, path) => {
            next.run(request).await
        }
        None => {
            let what = if shown.is_none() { "this needs a token" } else { "no such token" };
            let error = format!(
                "{what}: `calumma-controller token add NAME --role {}` makes one, to be sent as \
                 `Authorization: Bearer TOKEN`, once `tokens` is in the configuration",
                wanted.name()
            );
            let mut response = refused(StatusCode::UNAUTHORIZED, error);
            let headers = response.headers_mut();
            headers.insert(WWW_AUTHENTICATE, axum::http::HeaderValue::from_static("Bearer"));
            response
        }
    }
}

fn free(server: &Server, path: &str) -> bool {
    path != SESSION && server.trust.http().is_read_freely()
}

/// Until when somebody may read on what has no end.
pub(crate) struct Permit {
    /// The token that was shown.
    shown: Option<String>,
    tokens: watch::Receiver<Tokens>,
}

impl Permit {
    /// That of a reader who has been let in.
    pub(crate) fn of(server: &Server, headers: &HeaderMap) -> Self {
        let tokens = server.trust.http().tokens();
        Self { shown: shown(headers, true).map(str::to_owned), tokens }
    }

    /// Whether the token has been revoked.
    pub(crate) fn is_over(&self) -> bool {
        let tokens = self.tokens.borrow();
        self.shown.as_ref().is_some_and(|shown| tokens.find(shown).is_none())
    }

    /// Returns when the token has been revoked.
    pub(crate) async fn over(&mut self) {
        while !self.is_over() {
            // Nothing changes any more when the controller is gone, which others notice.
            if self.tokens.changed().await.is_err() {
                return future::pending().await;
            }
        }
    }
}

/// The token that a request shows.
fn shown(headers: &HeaderMap, reads: bool) -> Option<&str> {
    if let Some(token) = bearer(headers) {
        return Some(token);
    }
    let cookies = headers.get_all(COOKIE).iter().filter(|_| reads);
    let cookies = cookies.filter_map(|value| value.to_str().ok());
    let mut named = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE_NAME).then_some(value)
    });
    named.next()
}

/// Has a change made, and writes down who did: whether its sender waits for the answer or not.
async fn change(server: Server, token: Token, request: Request, next: Next) -> Response {
    let from = request.extensions().get().map(|ConnectInfo::<SocketAddr>(from)| *from);
    let what = format!("{} {}", request.method(), request.uri());
    let (head, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, MOST_BODY).await else {
        let error = format!("more than {MOST_BODY} bytes");
        return (StatusCode::PAYLOAD_TOO_LARGE, Json(Problem { error })).into_response();
    };
    let body = said(&bytes);
    let change = async move {
        let response = next.run(Request::from_parts(head, Body::from(bytes))).await;
        let (who, status) = (&*token.name, Some(response.status().as_u16()));
        let change = Change { unix_ns: unix_ns(), who, from, what: &what, body, status };
        server.audit.note(&change);
        response
    };
    let failed = |problem: JoinError| {
        let error = problem.to_string();
        (StatusCode::INTERNAL_SERVER_ERROR, Json(Problem { error })).into_response()
    };
    tokio::spawn(change).await.unwrap_or_else(failed)
}

/// A body as it is written down.
fn said(bytes: &Bytes) -> serde_json::Value {
    let text = || String::from_utf8_lossy(bytes).into_owned().into();
    match bytes.is_empty() {
        true => serde_json::Value::Null,
        false => serde_json::from_slice(bytes).unwrap_or_else(|_| text()),
    }
}

/// Makes the token that was shown a cookie, for a browser
#[utoipa::path(post, path = "/api/v1/session", responses(
    (status = NO_CONTENT, description = "A cookie, which is good for reading until the browser ends"),
    (status = UNAUTHORIZED, description = "No token, or none that is known", body = Problem),
))]
pub(super) async fn session(State(server): State<Server>, headers: HeaderMap) -> Response {
    let token = shown(&headers, false).unwrap_or_default();
    let secure = if server.trust.http().tls().is_some() { "; Secure" } else { "" };
    let cookie = format!("{COOKIE_NAME}={token}; HttpOnly; SameSite=Strict; Path=/{secure}");
    (StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response()
}
