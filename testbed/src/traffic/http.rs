//! HTTP: a server of pages of many sizes, and clients that ask it for one after the other over
//! connections that they keep. The testbed runs both inside the hosts' namespaces by executing
//! itself.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;

use super::short::{Outcome, PATIENCE, evenly};

/// Bytes of the pages that are asked for, in turn.
const PAGES: [usize; 6] = [120, 900, 4_000, 18_000, 70_000, 300];

/// The largest page.
const MAX_PAGE: usize = 1 << 24;

/// Answers requests for ever: the page `/N` has N bytes.
///
/// # Errors
/// When the address is taken.
pub fn serve(address: SocketAddr) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("listening on {address}; is another server there?"))?;
        axum::serve(listener, pages()).await.context("serving pages")
    })
}

fn pages() -> Router {
    Router::new().route("/{bytes}", get(page))
}

async fn page(Path(bytes): Path<usize>) -> Result<Vec<u8>, StatusCode> {
    if bytes > MAX_PAGE {
        return Err(StatusCode::NOT_FOUND);
    }
    Ok(vec![b'.'; bytes])
}

/// Asks for `requests` pages evenly over `time`, and waits for all of them.
pub fn ask(server: SocketAddr, requests: u32, time: Duration) -> Outcome {
    let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build();
    // It keeps its connections, and opens another one where all are busy.
    let agent = ureq::Agent::new_with_config(config);
    evenly(requests, time, |n| {
        let bytes = PAGES[n as usize % PAGES.len()];
        let mut answer =
            agent.get(format!("http://{server}/{bytes}")).call().map_err(io::Error::other)?;
        let page = answer.body_mut().read_to_vec().map_err(io::Error::other)?;
        if page.len() != bytes {
            return Err(io::Error::other(format!("{} bytes of {bytes}", page.len())));
        }
        Ok(bytes as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_answered_with_their_length_and_counted() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let bind = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = runtime.block_on(bind).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async { axum::serve(listener, pages()).await });
        let outcome = ask(address, 12, Duration::ZERO);
        let bytes = 2 * PAGES.iter().sum::<usize>() as u64;
        assert_eq!(outcome, Outcome { completed: 12, bytes, ..Outcome::default() });
    }
}
