//! Two hosts, an edge before each, and one link between the edges' routers, which drop packets at
//! random: the network of the demo.
//!
//! ```text
//!  namespace h1.1       namespace switches       namespace e1            namespace e2       namespace switches       namespace h2.1
//!  10.0.0.1 eth0 ---- e1h1 [edge e1] e1f1 ---- h1  router  e2 ------ e1  router  h1 ---- e2f1 [edge e2] e2h1 ---- eth0 10.0.1.1
//! ```
//!
//! The edges are bumps in the wire: their four interfaces have no addresses, and nothing passes
//! until a program forwards between them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Result;

use super::drops::{self, Drops, Hop, Passage};
use super::faults;
use super::link::{Counters, End};
use super::loss::FlowLoss;
use super::namespace::Namespace;
use super::run::Run;
use super::tunnel::{self, Tunnel};
use super::wiring::{HOST, Wiring, devices, port_names};
use crate::scenario::EdgeForwarding;
use crate::topology::{LinkQuality, Topology};
use crate::workload::{host_address, host_address6};

const TOPOLOGY: &str = "
edge = [{ name = 'e1', hosts = 1 }, { name = 'e2', hosts = 1 }]
link = [{ between = ['e1', 'e2'] }]
";

/// Packets that the ring of an edge's port holds, so many as arrive while the edge waits for a CPU.
const RING: u32 = 16_384;

/// The network. Dropping it removes it, and kills what runs in it.
#[derive(Debug)]
pub struct Pair {
    wiring: Wiring,
    topology: Topology,
    backlog_before: u64,
}

impl Pair {
    /// Builds the network; its routers drop `loss_permille` of a thousand TCP and UDP packets, in
    /// both directions.
    ///
    /// # Errors
    /// When the user is not root, or a command fails.
    pub fn create(run: &Run, loss_permille: u16) -> Result<Self> {
        let topology: Topology = toml::from_str(TOPOLOGY)?;
        let wiring = Wiring::create(run, &topology, EdgeForwarding::Pairs)?;
        let loss = f64::from(loss_permille) / 1000.0;
        let quality = LinkQuality { loss, ..LinkQuality::default() };
        for (router, neighbour) in wiring.routers().iter().zip([1, 0]) {
            faults::install(router)?;
            let interfaces = [wiring.interface(neighbour), tunnel::INTERFACE];
            let links = interfaces.map(|interface| (interface.to_owned(), quality)).into();
            faults::set(router, &links)?;
        }
        Ok(Self { wiring, topology, backlog_before: drops::backlog()? })
    }

    /// Lets the routers set the DSCP of every packet to 0.
    ///
    /// # Errors
    /// When a command fails.
    pub fn clear_dscp(&self) -> Result<()> {
        self.wiring.routers().iter().try_for_each(faults::clear_dscp)
    }

    /// Lets the routers send copies of all packets to where no edge is.
    ///
    /// # Errors
    /// When a command fails.
    pub fn mirror(&self) -> Result<()> {
        self.wiring.routers().iter().try_for_each(faults::mirror)
    }

    /// Lets the routers send each other everything through a tunnel.
    ///
    /// # Errors
    /// When a command fails.
    pub fn tunnel(&self, tunnel: Tunnel) -> Result<()> {
        let end = |edge: usize| End {
            namespace: &self.wiring.routers()[edge],
            name: self.wiring.interface(1 - edge),
        };
        tunnel.connect([end(0), end(1)])
    }

    /// Packets that have come through it.
    ///
    /// # Errors
    /// When a command fails, or there is no such tunnel.
    pub fn tunnelled(&self, tunnel: Tunnel) -> Result<u64> {
        self.wiring.routers().iter().map(|router| tunnel.arrived(router)).sum()
    }

    /// Copies that they have sent.
    ///
    /// # Errors
    /// When a command fails, or they do not mirror.
    pub fn mirrored(&self) -> Result<u64> {
        self.wiring.routers().iter().map(faults::mirrored).sum()
    }

    /// Names of the edges.
    pub fn edges(&self) -> &[String] {
        self.topology.edges()
    }

    /// The host behind an edge.
    pub fn host(&self, edge: usize) -> &Namespace {
        &self.wiring.hosts()[edge][0]
    }

    /// Its address.
    pub fn address(&self, edge: usize, ipv6: bool) -> IpAddr {
        if ipv6 { host_address6(edge, 0).into() } else { host_address(edge, 0).into() }
    }

    /// Where the edges' interfaces are, and the edges and the controller run.
    pub fn switches(&self) -> &Namespace {
        self.wiring.switches()
    }

    /// EAL arguments that make an edge's interfaces DPDK ports: `net_af_packet0` towards the host,
    /// `net_af_packet1` towards the fabric.
    pub fn devices(&self, edge: usize) -> Vec<String> {
        devices(&port_names(2), self.ports(edge).iter(), RING)
    }

    /// What the routers dropped of each flow. An error if traffic is still on its way.
    ///
    /// # Errors
    /// When a command fails.
    pub fn losses(&self) -> Result<Vec<FlowLoss>> {
        let mut flows = BTreeMap::new();
        for router in self.wiring.routers() {
            for FlowLoss { flow, lost } in faults::losses(router)? {
                *flows.entry(flow).or_default() += lost;
            }
        }
        Ok(flows.into_iter().map(|(flow, lost)| FlowLoss { flow, lost }).collect())
    }

    /// Whether a program receives from both interfaces of an edge through AF_PACKET. Packets sent
    /// before are lost.
    ///
    /// # Errors
    /// When a command fails.
    pub fn has_switch(&self, edge: usize) -> Result<bool> {
        for name in &self.ports(edge) {
            if !(End { namespace: self.switches(), name }).has_listener()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until no packet has moved for a second.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn wait_quiet(&self) -> Result<()> {
        self.wiring.wait_quiet()
    }

    /// How the packets passed, hop by hop.
    ///
    /// # Errors
    /// When a command fails.
    pub fn passage(&self) -> Result<Passage> {
        let half = |edge: usize| -> [(String, &Namespace, String); 5] {
            let (number, router) = (edge + 1, &self.wiring.routers()[edge]);
            let [host_port, fabric_port] = self.ports(edge);
            let fabric = self.wiring.interface(1 - edge).to_owned();
            [
                (format!("h{number}"), self.host(edge), HOST.to_owned()),
                (host_port.clone(), self.switches(), host_port),
                (fabric_port.clone(), self.switches(), fabric_port),
                (format!("r{number}h"), router, "h1".to_owned()),
                (format!("r{number}f"), router, fabric),
            ]
        };
        let ends = half(0).into_iter().chain(half(1).into_iter().rev());
        let mut counted: Vec<(String, Counters)> = Vec::new();
        for (name, namespace, interface) in ends {
            counted.push((name, End { namespace, name: &interface }.counters()?));
        }
        let mut found: Vec<Drops> =
            counted.iter().flat_map(|(name, c)| drops::of_interface(name, c)).collect();
        let mut dropped = [0; 2];
        for (router, dropped) in self.wiring.routers().iter().zip(&mut dropped) {
            found.extend(drops::of_ip_layer(router)?);
            *dropped = faults::losses(router)?.iter().map(|loss| loss.lost).sum();
        }
        let backlog = drops::backlog()?.saturating_sub(self.backlog_before);
        if backlog > 0 {
            found.push(Drops {
                place: "this machine".into(),
                counter: "softnet_stat dropped".into(),
                packets: backlog,
            });
        }
        Ok(Passage { hops: hops(&counted, dropped), drops: found })
    }

    /// The interfaces of an edge, towards the host and towards the fabric.
    fn ports(&self, edge: usize) -> [String; 2] {
        self.wiring.ports(edge).swap_remove(0)
    }
}

/// The hops between interfaces in the order h1, e1h1, e1f1, r1h, r1f and back from r2f to h2: every
/// second pair is a wire, the others are the edges and the routers. On a wire a packet goes from a
/// sending to a receiving counter, within a switch the other way round. `dropped` is what the
/// routers dropped on purpose.
fn hops(counted: &[(String, Counters)], dropped: [u64; 2]) -> Vec<Hop> {
    let hop = |from: usize, to: usize| {
        let (from_name, a) = &counted[from];
        let (to_name, b) = &counted[to];
        let wire = from.min(to).is_multiple_of(2);
        let (entered, left) =
            if wire { (a.tx.packets, b.rx.packets) } else { (a.rx.packets, b.tx.packets) };
        Hop { name: format!("{from_name} > {to_name}"), entered, left, dropped: 0 }
    };
    // The rules of a router count both directions in one set, so each router is one hop.
    let routers = [3, 5];
    let last = counted.len() - 1;
    let others = || (0..last).filter(|i| !routers.contains(i));
    let mut hops: Vec<Hop> = others().map(|i| hop(i, i + 1)).collect();
    hops.extend(others().rev().map(|i| hop(i + 1, i)));
    for ((router, number), dropped) in routers.into_iter().zip(1..).zip(dropped) {
        let (there, back) = (hop(router, router + 1), hop(router + 1, router));
        let (entered, left) = (there.entered + back.entered, there.left + back.left);
        hops.push(Hop { name: format!("router {number}"), entered, left, dropped });
    }
    hops
}
