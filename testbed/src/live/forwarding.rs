//! How routed switches of a live fabric are configured: addresses on the wires to their routers and
//! hosts, whose own are known, and routes by these. Edges are bumps in the wire where a scenario
//! doesn't say otherwise.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Result;

use crate::fabric::link::End;
use crate::fabric::wiring::{HOST, Wiring, prefixes_of};
use crate::topology::Topology;
use crate::workload::{host_address, host_address6};

/// What the section begins with.
pub(super) const ROUTED: &str = "[forwarding]\nmode = \"routed\"\n";

/// The addresses at a port, counted from 1, of the switch at position `at`: the switch's own and
/// that of whoever is at the other end, with the lengths of their networks; those of IPv4 first.
pub(super) fn addresses(at: usize, port: usize) -> [([IpAddr; 2], u8); 2] {
    let ipv4 = |host| {
        let base = Ipv4Addr::new(100, 64, at as u8, 0).to_bits();
        IpAddr::V4(Ipv4Addr::from_bits(base + 4 * port as u32 + host))
    };
    let ipv6 = |host| Ipv6Addr::new(0xFDFF, 0, at as u16, port as u16, 0, 0, 0, host).into();
    [([ipv4(1), ipv4(2)], 30), ([ipv6(1), ipv6(2)], 64)]
}

/// The interface at a port, which DPDK calls `name`; `mac` is at the other end.
pub(super) fn interface(name: &str, at: usize, port: usize, mac: &str) -> String {
    let addresses = addresses(at, port);
    let own = addresses.map(|([switch, _], length)| format!("\"{switch}/{length}\""));
    let mut text =
        format!("[[forwarding.interface]]\nport = \"{name}\"\naddresses = [{}]\n", own.join(", "));
    for ([_, other], _) in addresses {
        text += &format!("[[forwarding.neighbour]]\naddress = \"{other}\"\nmac = \"{mac}\"\n");
    }
    text
}

/// Routes to a prefix of IPv4 and one of IPv6 by whoever is at these ports.
pub(super) fn routes(at: usize, to: &[String; 2], ports: &[usize]) -> String {
    let mut text = String::new();
    for (family, prefix) in to.iter().enumerate() {
        let via = ports.iter().map(|&port| addresses(at, port)[family].0[1]);
        let via: Vec<String> = via.map(|address| format!("\"{address}\"")).collect();
        text += &format!("[[forwarding.route]]\nto = \"{prefix}\"\nvia = [{}]\n", via.join(", "));
    }
    text
}

/// The section of an edge that routes: ports towards hosts and towards its router by turns.
pub(super) fn of_edge(
    wiring: &Wiring,
    topology: &Topology,
    edge: usize,
    ports: &[String],
) -> Result<String> {
    let mut text = ROUTED.to_owned();
    let mut to_router = Vec::new();
    let two = ports.chunks_exact(2).zip(&wiring.hosts()[edge]);
    for (number, (names, host)) in two.enumerate() {
        let (near_host, near_router) = (2 * number + 1, 2 * number + 2);
        let mac = End { namespace: host, name: HOST }.mac()?;
        text += &interface(&names[0], edge, near_host, &mac);
        let number = number as u32;
        let own = [
            format!("{}/32", host_address(edge, number)),
            format!("{}/128", host_address6(edge, number)),
        ];
        text += &routes(edge, &own, &[near_host]);
        if number == 0 {
            text += &routes(edge, &prefixes_of(edge), &[near_host]);
        }
        let name = &format!("h{}", number + 1);
        let mac = End { namespace: &wiring.routers()[edge], name }.mac()?;
        text += &interface(&names[1], edge, near_router, &mac);
        to_router.push(near_router);
    }
    for other in (0..topology.edges().len()).filter(|&other| other != edge) {
        text += &routes(edge, &prefixes_of(other), &to_router);
    }
    Ok(text)
}
