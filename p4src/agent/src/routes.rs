//! Static routes as the configuration has them: networks, next hops and their addresses.

use ipnet::IpNet;
use serde::Deserialize;

use crate::config::PortConfig;

/// Most next hops of a route: a member of its group is named by a byte of the flow's hash.
const MOST_HOPS: usize = 256;

/// Longest IPv6 network that the program routes by.
const MOST_BITS_6: u8 = 64;

/// Where packets to a network go.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The network.
    pub to: IpNet,
    /// Next hops; flows spread over several of them by their hash.
    #[serde(default)]
    pub via: Vec<Hop>,
    /// Whether packets to the network end here.
    #[serde(default)]
    pub discard: bool,
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hop {
    /// The port that leads there.
    pub port: u16,
    /// Its address.
    pub mac: Mac,
    /// The switch's own address on that port.
    pub from: Mac,
}

/// An Ethernet address, written as six bytes in hexadecimal with colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Mac(
    /// Its 48 bits.
    pub u64,
);

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes: Option<Vec<u8>> = text
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2))
            .collect();
        match bytes.as_deref() {
            Some(&[a, b, c, d, e, f]) => Ok(Mac(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))),
            _ => Err(format!("{text}: an Ethernet address is written 02:00:00:00:00:01")),
        }
    }
}

/// What is wrong with the routes on these ports, and the remedy.
pub(crate) fn problem(routes: &[RouteConfig], ports: &[PortConfig]) -> Option<String> {
    for (at, route) in routes.iter().enumerate() {
        let to = route.to;
        if to.trunc() != to {
            return Some(format!("route {to}: the network is {}", to.trunc()));
        }
        if routes[..at].iter().any(|earlier| earlier.to == to) {
            return Some(format!("route {to}: named twice"));
        }
        if matches!(to, IpNet::V6(_)) && to.prefix_len() > MOST_BITS_6 {
            return Some(format!(
                "route {to}: the switch routes IPv6 by at most {MOST_BITS_6} bits"
            ));
        }
        if route.via.is_empty() != route.discard {
            return Some(format!("route {to}: it has either next hops (via) or discard = true"));
        }
        if route.via.len() > MOST_HOPS {
            return Some(format!("route {to}: at most {MOST_HOPS} next hops"));
        }
        for hop in &route.via {
            if !ports.iter().any(|port| port.number == hop.port) {
                return Some(format!(
                    "route {to}: port {} is not among the [[port]] sections",
                    hop.port
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let read = |text: &str| Mac::try_from(text.to_owned());
        assert_eq!(read("02:00:00:00:0a:FF"), Ok(Mac(0x0200_0000_0AFF)));
        for wrong in ["02:00:00:00:00", "2:0:0:0:0:1", "02-00-00-00-00-01", "02:00:00:00:00:0g"] {
            assert!(read(wrong).unwrap_err().contains(wrong));
        }
    }
}
