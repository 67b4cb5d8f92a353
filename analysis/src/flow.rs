//! Flows as reports name them.

use std::net::{IpAddr, SocketAddr};

use calumma_sketch::Key;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// An IPv4 or IPv6 flow.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoParams,
    ToSchema,
)]
#[into_params(parameter_in = Query)]
pub struct Flow {
    /// Source address.
    #[schema(value_type = String, example = "10.1.0.2")]
    #[param(value_type = String, example = "10.1.0.2")]
    pub src: IpAddr,
    /// Destination address.
    #[schema(value_type = String, example = "10.2.0.2")]
    #[param(value_type = String, example = "10.2.0.2")]
    pub dst: IpAddr,
    /// Source port, 0 where the protocol has none.
    pub sport: u16,
    /// Destination port, 0 where the protocol has none.
    pub dport: u16,
    /// IP protocol number.
    pub proto: u8,
}

impl<K: Key> From<&K> for Flow {
    fn from(key: &K) -> Self {
        let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
        Self { src, dst, sport, dport, proto: key.protocol() }
    }
}

impl Flow {
    /// The flow's key; `None` where keys of this kind don't hold it.
    pub fn key<K: Key>(&self) -> Option<K> {
        K::new(self.src, self.dst, self.sport, self.dport, self.proto)
    }
}

impl std::fmt::Display for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let proto = match self.proto {
            1 => "icmp",
            6 => "tcp",
            17 => "udp",
            58 => "icmp6",
            132 => "sctp",
            other => {
                return write!(f, "{} > {} proto {other}", self.src, self.dst);
            }
        };
        // IPv6 addresses stand in brackets before a port.
        let (src, dst) = (self.src, self.dst);
        let ends = (SocketAddr::new(src, self.sport), SocketAddr::new(dst, self.dport));
        write!(f, "{} > {} {proto}", ends.0, ends.1)
    }
}
