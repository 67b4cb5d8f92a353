//! Tunnels between two routers: all that one forwards to the other is put into an outer packet
//! there, and taken out again at the other.

use anyhow::{Context, Result};

use super::link::End;
use super::loss::parse_total;
use super::namespace::Namespace;
use super::wiring::{nicknames, prefixes_of};
use crate::workload::{host_address, host_address6};

/// What packets are put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// Ethernet in UDP (RFC 7348).
    Vxlan,
    /// IP in IPv6 with a routing header (RFC 8986).
    Srv6,
}

/// The interface of a tunnel that has one.
pub(crate) const INTERFACE: &str = "tunnel";

/// Room for the longest outer headers.
const MTU: &str = "1600";

impl Tunnel {
    /// The family of its outer packets, and what they are.
    fn outer(self) -> (&'static str, &'static str) {
        match self {
            Self::Vxlan => ("ip", "udp dport 4789"),
            Self::Srv6 => ("ip6", "ip6 nexthdr 43"),
        }
    }

    /// Lets both routers, next to an edge with one host each, send each other everything so;
    /// `ends` are their interfaces towards each other, by the edge.
    pub(crate) fn connect(self, ends: [End<'_>; 2]) -> Result<()> {
        let (family, outer) = self.outer();
        let count = format!(
            "table {family} tunnel {{
               chain arrivals {{
                 type filter hook prerouting priority -250; policy accept;
                 {outer} counter
               }}
             }}"
        );
        for End { namespace, name } in ends {
            namespace.ip(&["link", "set", name, "mtu", MTU])?;
            namespace.run_with_input("nft", &["-f", "-"], &count)?;
        }
        match self {
            Self::Vxlan => vxlan(ends),
            Self::Srv6 => srv6(ends),
        }
    }

    /// Outer packets that have come to a router.
    pub(crate) fn arrived(self, router: &Namespace) -> Result<u64> {
        let (family, _) = self.outer();
        let chain = router.run("nft", &["-j", "list", "chain", family, "tunnel", "arrivals"])?;
        parse_total(&chain).with_context(|| format!("what nft printed: {chain}"))
    }
}

fn vxlan(ends: [End<'_>; 2]) -> Result<()> {
    let address = |edge: usize| format!("198.51.100.{}", edge + 1);
    let tunnels = ends.map(|end| End { name: INTERFACE, ..end });
    for (edge, end) in ends.into_iter().enumerate() {
        let (own, other) = (address(edge), address(1 - edge));
        end.set_address(&format!("{own}/30"))?;
        end.set_neighbour(&other, &ends[1 - edge].mac()?)?;
        let link = ["link", "add", INTERFACE, "type", "vxlan", "id", "7", "dstport", "4789"];
        let between = ["local", &own, "remote", &other, "dev", end.name];
        end.namespace.ip(&[&link[..], &between].concat())?;
        tunnels[edge].prepare()?;
    }
    for (edge, tunnel) in tunnels.into_iter().enumerate() {
        let (mac, mut batch) = (tunnels[1 - edge].mac()?, String::new());
        for (name, prefix) in nicknames(1 - edge).iter().zip(prefixes_of(1 - edge)) {
            tunnel.set_neighbour(name, &mac)?;
            batch += &format!("route replace {prefix} nexthop via {name} dev {INTERFACE} onlink\n");
        }
        tunnel.namespace.ip_batch(&batch)?;
    }
    Ok(())
}

fn srv6(ends: [End<'_>; 2]) -> Result<()> {
    // Where IPv4 is taken out, and where IPv6.
    let segments = |edge: usize| [4, 6].map(|family| format!("fc00:ca::{}:{family}", edge + 1));
    for (edge, End { namespace, name }) in ends.into_iter().enumerate() {
        namespace.sysctl(&[
            "net.ipv6.conf.all.seg6_enabled=1",
            &format!("net.ipv6.conf.{name}.seg6_enabled=1"),
        ])?;
        let [own, other] = [edge, 1 - edge].map(segments);
        namespace.ip(&["sr", "tunsrc", "set", &own[1]])?;
        let [_, neighbour] = nicknames(1 - edge);
        let mut batch = String::new();
        for (segment, prefix) in other.iter().zip(prefixes_of(1 - edge)) {
            batch += &format!("route add {segment} via {neighbour} dev {name} onlink\n");
            batch += &format!(
                "route replace {prefix} encap seg6 mode encap segs {segment} dev {name}\n"
            );
        }
        let hosts = [host_address(edge, 0).to_string(), host_address6(edge, 0).to_string()];
        for ((segment, host), family) in own.iter().zip(hosts).zip([4, 6]) {
            let action = format!("action End.DX{family} nh{family} {host}");
            batch += &format!("route add {segment} encap seg6local {action} dev h1\n");
        }
        namespace.ip_batch(&batch)?;
    }
    Ok(())
}
