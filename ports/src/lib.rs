//! Ports that anybody can connect to, and what that may cost: bounds on the connections that are
//! held open ([`Guests`]), and HTTP/1 served within such bounds, a rate and time limits ([`http`]).
//! [`access`] holds what a port is served by and who has a token for it. [`client`] is the other
//! side, for our own programs.
//!
//! What a connection is for, and what needs a token, is not decided here.

pub mod access;
pub mod client;
pub mod guests;
pub mod http;
mod rates;

pub use access::{Access, AccessFiles};
pub use guests::{Bounds, Guest, Guests};

use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tracing::warn;

/// Time until the next attempt where a connection can't be accepted.
const RETRY: Duration = Duration::from_millis(100);

/// The next connection to a port, and where it comes from.
pub async fn accept(listener: &TcpListener) -> (TcpStream, std::net::SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                // Out of file descriptors, most likely: others must end first.
                warn!("can't accept a connection: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
