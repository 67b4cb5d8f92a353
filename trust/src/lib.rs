//! Who may talk to whom.
//!
//! Switches and controller have certificates of one small authority ([`Authority`]) and speak TLS
//! 1.3 by them ([`tls`]). The name in a switch's certificate is the name that it has in the
//! network. Whoever asks over HTTP has a token ([`Tokens`]).
//!
//! Nothing here opens a socket.

mod authority;
mod files;
pub mod tls;
mod tokens;

pub use authority::{Authority, CONTROLLER, Held, check_name};
pub use tls::TlsFiles;
pub use tokens::{Role, Token, Tokens};

use std::net::IpAddr;

/// Whether what is reached at `host`, an address or a name, never leaves this host.
pub fn is_loopback(host: &str) -> bool {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.parse().map_or(host.eq_ignore_ascii_case("localhost"), is_loopback_address)
}

/// Whether what is reached at an address never leaves this host.
pub fn is_loopback_address(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Seconds since the Unix epoch.
fn unix_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Random bytes that nobody can guess.
fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    use ring::rand::SecureRandom;
    let mut bytes = [0; N];
    let filled = ring::rand::SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_by_address_and_by_name() {
        for host in ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["10.0.0.1", "0.0.0.0", "::", "localhost.evil.example", "128.0.0.1", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
