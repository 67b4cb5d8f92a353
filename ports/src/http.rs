//! HTTP/1 within bounds: connections by [`Guests`], and a time limit on everything that a peer can
//! let one wait for.
//!
//! A connection that sends no request, or the head of one byte by byte, is closed after
//! [`HEAD_TIMEOUT`]; one whose request is not answered within [`REQUEST_TIMEOUT`], as its body does
//! not come, is answered 408; one that does not take its answer is closed after [`STALL_TIMEOUT`].
//! A connection that waits for its next request gives way where there are too many; one that is
//! being answered does not. Where there is TLS, its handshake has the time of a head, and counts as
//! waiting. An address may ask a thousand times a second, of which it can save up two seconds; what
//! is more is answered 429.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::header::{AUTHORIZATION, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tracing::debug;

use crate::guests::{Guest, Guests, Worker};

/// Time for the head of a request, from the end of the one before on: a head is one packet or two.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for a request to be read and answered. The answer's body may take longer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Time in which a peer takes some of what it is sent.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Time for answers to end once the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a request's head at most.
const HEAD_BYTES: usize = 32 << 10;

/// The TLS that a port has at present; none where it speaks without.
pub type Tls = Option<watch::Receiver<Arc<ServerConfig>>>;

/// Serves `routes` until `stop` is over. Requests come with the peer's address as [`ConnectInfo`].
pub async fn serve(
    listener: TcpListener,
    tls: Tls,
    routes: Router,
    guests: Arc<Guests>,
    stop: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(false);
    tokio::pin!(stop);
    loop {
        let (stream, address) = tokio::select! {
            accepted = crate::accept(&listener) => accepted,
            () = &mut stop => break,
        };
        // Refused ones are closed without a word: a word would cost what there is none left of.
        let Some(guest) = guests.enter(address.ip()) else { continue };
        let acceptor = tls.as_ref().map(|tls| TlsAcceptor::from(tls.borrow().clone()));
        let (routes, stopped) = (routes.clone(), stopped.clone());
        tokio::spawn(receive(stream, address, acceptor, routes, guest, stopped));
    }
    drop(listener);
    stopping.send_replace(true);
    drop(stopped);
    let _ = timeout(STOP_TIMEOUT, stopping.closed()).await;
}

/// Serves one connection, after its handshake where there is to be one.
async fn receive(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    routes: Router,
    mut guest: Guest,
    stopped: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else {
        return converse(stream, address, routes, guest, stopped).await;
    };
    let shaken = tokio::select! {
        shaken = timeout(HEAD_TIMEOUT, acceptor.accept(stream)) => shaken,
        () = guest.displaced() => return,
    };
    match shaken {
        Ok(Ok(stream)) => converse(stream, address, routes, guest, stopped).await,
        Ok(Err(problem)) => debug!(%address, "no TLS: {problem}"),
        Err(_) => debug!(%address, "no TLS within {HEAD_TIMEOUT:?}"),
    }
}

/// Serves what a connection carries.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    address: SocketAddr,
    routes: Router,
    mut guest: Guest,
    mut stopped: watch::Receiver<bool>,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALL_TIMEOUT));
    let (routes, worker) = (TowerToHyperService::new(routes), guest.worker());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(address));
        answer(routes.clone(), worker.clone(), request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    tokio::pin!(connection);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(problem) = ended {
                    debug!("an HTTP connection ended: {problem}");
                }
                return;
            }
            () = guest.displaced() => return,
            _ = stopped.wait_for(|&stopped| stopped), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The token of `Authorization: Bearer TOKEN`; empty where there is such a header of another form,
/// which no token is.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?;
    let words = value.to_str().ok().and_then(|value| value.split_once(' '));
    let bearer = words.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    Some(bearer.map_or("", |(_, token)| token.trim()))
}

/// Answers one request.
async fn answer(
    routes: TowerToHyperService<Router>,
    worker: Worker,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    if !worker.may_ask() {
        let why = "too many requests from this address: ask later";
        return Ok((StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")], why).into_response());
    }
    let at_work = worker.begin();
    let Ok(answered) = timeout(REQUEST_TIMEOUT, routes.call(request)).await else {
        let problem = format!("no answer within {REQUEST_TIMEOUT:?}");
        return Ok((StatusCode::REQUEST_TIMEOUT, problem).into_response());
    };
    // The connection is at work until the answer has gone out.
    let until_sent = move |body: Body| {
        Body::new(body.map_frame(move |frame| {
            let _ = &at_work;
            frame
        }))
    };
    answered.map(|response| response.map(until_sent))
}
