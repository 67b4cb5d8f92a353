//! Requests that a web page of somebody else's has a browser send: refused.
//!
//! A browser that can reach the controller sends it whatever any page asks for. A page whose own
//! name is made to point to the controller (DNS rebinding) even reads the answers, as of its own
//! server: so `Host` must be an address, `localhost`, or a name that the configuration knows.
//! `Origin`, where there is one, must be the same host. And what changes anything must be sent as
//! JSON, which a page may only send to its own server.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Problem, Server};

/// Passes on what may have been meant.
pub(super) async fn check(State(server): State<Server>, request: Request, next: Next) -> Response {
    let names = &server.hub.config().http_names;
    match refusal(request.method(), request.headers(), names) {
        None => next.run(request).await,
        Some((status, error)) => {
            server.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (status, Json(Problem { error })).into_response()
        }
    }
}

fn refusal(method: &Method, headers: &HeaderMap, names: &[String]) -> Option<(StatusCode, String)> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST).unwrap_or_default();
    if !is_own(host, names) {
        let error = format!(
            "{host:?} is no name of this controller: use its address, or add the name to `http_names` \
             in its configuration"
        );
        return Some((StatusCode::MISDIRECTED_REQUEST, error));
    }
    if let Some(origin) = text(ORIGIN) {
        let of = origin.split_once("://").map_or("", |(_, of)| of);
        if !of.eq_ignore_ascii_case(host) {
            let error = format!("a page of {origin:?} may not ask this controller");
            return Some((StatusCode::FORBIDDEN, error));
        }
    }
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let kind = text(CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default();
    (!reads && !kind.trim().eq_ignore_ascii_case("application/json")).then(|| {
        let error = "what changes anything needs the header `content-type: application/json`";
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, error.to_owned())
    })
}

/// Whether a host, with or without its port, is this controller by address or by name.
fn is_own(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.');
    // No name service can make an address point elsewhere.
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    fn status(method: Method, headers: &[(HeaderName, &'static str)]) -> Option<u16> {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        let refusal = refusal(&method, &headers.collect(), &["c.example".to_owned()]);
        refusal.map(|(status, _)| status.as_u16())
    }

    #[test]
    fn hosts_are_addresses_or_names_that_are_known() {
        for (host, refused) in [
            ("127.0.0.1:7601", None),
            ("10.0.0.7", None),
            ("[2001:db8::7]:7601", None),
            ("localhost:7601", None),
            ("C.example.:7601", None),
            ("evil.example:7601", Some(421)),
            ("c.example.evil", Some(421)),
            ("127.0.0.1.evil.example", Some(421)),
            ("", Some(421)),
        ] {
            assert_eq!(status(Method::GET, &[(HOST, host)]), refused, "{host}");
        }
        assert_eq!(status(Method::GET, &[]), Some(421));
    }

    #[test]
    fn pages_of_others_are_refused_and_changes_are_json() {
        let host = (HOST, "10.0.0.7:7601");
        let of = |origin| status(Method::GET, &[host.clone(), (ORIGIN, origin)]);
        assert_eq!(of("http://10.0.0.7:7601"), None);
        assert_eq!(of("https://10.0.0.7:7601"), None, "behind a proxy");
        for origin in ["http://10.0.0.8:7601", "http://10.0.0.7", "http://evil.example", "null"] {
            assert_eq!(of(origin), Some(403), "{origin}");
        }
        let post = |kind| status(Method::POST, &[host.clone(), (CONTENT_TYPE, kind)]);
        assert_eq!(post("application/json"), None);
        assert_eq!(post("Application/JSON; charset=utf-8"), None);
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
            assert_eq!(post(kind), Some(415), "{kind}");
        }
    }
}
