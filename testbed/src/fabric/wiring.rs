//! A topology in network namespaces.
//!
//! ```text
//!  namespace h1.1       namespace switches        namespace e1       namespace s1
//!  10.0.0.1 eth0 ---- e1h1 [edge e1] e1f1 ---- h1    router
//!  namespace h1.2                                    router  s1 ---- e1  router
//!  10.0.0.2 eth0 ---- e1h2 [edge e1] e1f2 ---- h2
//! ```
//!
//! Every host has two ports of its edge switch to itself, one towards it and one towards the
//! fabric: edges are bumps in the wire, or routers to which hosts and their router send. A hardware
//! edge has a CPU port besides, which leads to its control plane. Behind them each edge has a
//! router, which is to the fabric what the edge is in the topology; the topology's other switches
//! are routers too, and those that are ours are behind theirs, each in a namespace of its own
//! (`live/transit.rs`), as is the sink of a host that has one, between the host and its edge.
//! Nothing has to be resolved or learnt: routers have no addresses, neighbours are permanent, and
//! routes are those of [`NextHops`], several of equal length shared out by flow.
//! The same in IPv6, with fd00:0:0:E::H for host H of edge E, counted from 0.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::link::{self, End};
use super::namespace::Namespace;
use super::process::wait_until;
use super::run::Run;
use crate::scenario::EdgeForwarding;
use crate::topology::{Routes, Topology};
use crate::workload::{host_address, host_address6};

/// Interface indexes of a switch's ports begin at a multiple of this.
///
/// DPDK's net_af_packet joins a fanout group numbered `(process id ^ interface index) & 0xffff`,
/// and refuses to start when another process in the namespace has the same number. With indexes
/// this far apart that takes process ids 4096 apart; with neighbouring ones it hit one start in
/// fifteen.
pub(crate) const INDEXES: u32 = 1 << 12;

/// The most edges that can be told apart by interface indexes.
const EDGES: usize = 15;

/// The interface that leads to the controller from where a transit or a host's sink runs.
const CONTROLLER: &str = "controller";

/// The longest name that leaves room for a port's number in an interface's name.
const NAME: usize = 11;

/// Without a packet for so long, none is on its way; and how long that may take.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_LIMIT: Duration = Duration::from_secs(30);

/// Interface of a host.
pub(crate) const HOST: &str = "eth0";

/// What hosts call their router, in either family; no interface has these addresses.
const GATEWAYS: [&str; 2] = ["169.254.0.1", "fe80::1"];

/// Where the switches of a live fabric send packets next.
///
/// A switch from which no way leads to an edge gets nothing for that edge, but in the moment in
/// which a link goes down or comes back: switches learn of it one after the other. What comes then
/// is sent as if all links were up, since a discarded packet would be in nobody's log of losses.
#[derive(Debug)]
pub(crate) struct NextHops {
    up: Routes,
    all: Routes,
}

impl NextHops {
    /// Those in a topology of which some links may be down.
    pub(crate) fn new(topology: &Topology) -> Self {
        Self { up: Routes::new(topology), all: Routes::over_all(topology) }
    }

    /// The neighbours to which switch `at` sends what is for `edge`.
    pub(crate) fn of(&self, at: usize, edge: usize) -> Vec<usize> {
        let up = self.up.next_hops(at, edge);
        if up.is_empty() { self.all.next_hops(at, edge) } else { up }
    }
}

/// The network. Dropping it removes it, and kills what runs in it.
#[derive(Debug)]
pub(crate) struct Wiring {
    names: Vec<String>,
    /// By edge and host.
    hosts: Vec<Vec<Namespace>>,
    /// By switch, edges first.
    routers: Vec<Namespace>,
    /// Where the ports of edges are, and they and the controller run.
    switches: Namespace,
    /// Where the ports of each transit are, and it runs, by its position.
    transits: BTreeMap<usize, Namespace>,
    /// Where the ports of each host's own sink are, and it runs, in the order of
    /// [`Topology::host_sinks`].
    sinks: Vec<Namespace>,
}

impl Wiring {
    /// Builds the network of `topology`, links as they are now.
    pub(crate) fn create(
        run: &Run,
        topology: &Topology,
        forwarding: EdgeForwarding,
    ) -> Result<Self> {
        let edges = topology.edges().len();
        ensure!(edges <= EDGES, "{edges} edges: a live fabric has at most {EDGES}");
        for name in topology.names() {
            ensure!(name.len() <= NAME, "{name}: names have at most {NAME} bytes in a live fabric");
        }
        let hosts = |(edge, &count): (usize, &u32)| -> Result<Vec<Namespace>> {
            let name = |host| format!("h{}.{host}", edge + 1);
            (1..=count).map(|host| Namespace::create_dual_stack(run, &name(host))).collect()
        };
        let wiring = Self {
            names: topology.names().to_vec(),
            hosts: topology.hosts().iter().enumerate().map(hosts).collect::<Result<_>>()?,
            routers: topology
                .names()
                .iter()
                .map(|name| Namespace::create_dual_stack(run, name))
                .collect::<Result<_>>()?,
            switches: Namespace::create(run, "switches")?,
            transits: topology
                .transits()
                .map(|at| {
                    let name = format!("{}-switch", topology.names()[at]);
                    Ok((at, Namespace::create(run, &name)?))
                })
                .collect::<Result<_>>()?,
            sinks: topology
                .host_sinks()
                .map(|(_, _, name)| Namespace::create(run, &format!("{name}-sink")))
                .collect::<Result<_>>()?,
        };
        for edge in 0..edges {
            for host in 1..=wiring.hosts[edge].len() {
                let sink = topology.host_sink(edge, host - 1).map(|sink| &wiring.sinks[sink]);
                let attached = wiring.attach(edge, (host, sink), forwarding);
                attached.with_context(|| format!("host {host} of an edge"))?;
            }
            if topology.is_tofino(edge) {
                wiring.attach_cpu(edge, &wiring.switches, (edge as u32 + 1) * INDEXES)?;
            }
        }
        let mut index = edges as u32 * INDEXES;
        let mut next_index = || {
            index += INDEXES;
            index
        };
        for (&at, namespace) in &wiring.transits {
            let name = format!("{}ctl", wiring.names[at]);
            wiring.attach_controller(at, &name, namespace, next_index())?;
            if topology.is_tofino(at) {
                wiring.attach_cpu(at, namespace, INDEXES)?;
            }
        }
        for (number, (edge, host, _)) in topology.host_sinks().enumerate() {
            let name = format!("{}c{}", wiring.names[edge], host + 1);
            let position = topology.switches() + number;
            wiring.attach_controller(position, &name, &wiring.sinks[number], next_index())?;
        }
        for (number, link) in topology.links().iter().enumerate() {
            let [a, b] = link.ends;
            let [a_end, b_end] = [wiring.towards(a, b), wiring.towards(b, a)];
            // Anything that no other interface of the namespace has.
            link::connect(a_end, 1000 + number as u32, b_end)?;
            wiring.meet(a_end, b, &b_end.mac()?)?;
            wiring.meet(b_end, a, &a_end.mac()?)?;
        }
        for router in &wiring.routers {
            // Flows are shared out by their ports too.
            router.sysctl(&[
                "net.ipv4.ip_forward=1",
                "net.ipv4.fib_multipath_hash_policy=1",
                "net.ipv6.conf.all.forwarding=1",
                "net.ipv6.fib_multipath_hash_policy=1",
            ])?;
        }
        wiring.set_routes(topology)?;
        Ok(wiring)
    }

    /// Hosts, by edge.
    pub(crate) fn hosts(&self) -> &[Vec<Namespace>] {
        &self.hosts
    }

    /// Routers, edges' first.
    pub(crate) fn routers(&self) -> &[Namespace] {
        &self.routers
    }

    /// Where edges and controller run.
    pub(crate) fn switches(&self) -> &Namespace {
        &self.switches
    }

    /// Where each transit runs, by its position.
    pub(crate) fn transits(&self) -> &BTreeMap<usize, Namespace> {
        &self.transits
    }

    /// Where each host's own sink runs, in the order of [`Topology::host_sinks`].
    pub(crate) fn sinks(&self) -> &[Namespace] {
        &self.sinks
    }

    /// The controller's address as the transit at a position knows it. Hosts' own sinks have the
    /// positions behind the last switch.
    pub(crate) fn controller_of(position: usize) -> String {
        management(position)[0].to_string()
    }

    /// The interfaces of an edge: for each host the one towards it and the one towards the fabric.
    pub(crate) fn ports(&self, edge: usize) -> Vec<[String; 2]> {
        let name = &self.names[edge];
        let hosts = 1..=self.hosts[edge].len();
        hosts.map(|host| ["h", "f"].map(|side| format!("{name}{side}{host}"))).collect()
    }

    /// The interfaces of the sink of a host of an edge, counted from 0: the one towards the host's
    /// kernel and the one towards the edge.
    pub(crate) fn sink_ports(&self, edge: usize, host: usize) -> [String; 2] {
        ["k", "n"].map(|side| format!("{}{side}{}", self.names[edge], host + 1))
    }

    /// Both ends of the wire at a hardware switch's CPU port: the control plane's and the switch's.
    pub(crate) fn cpu_port(&self, switch: usize) -> [String; 2] {
        ["cpu", "dp"].map(|end| format!("{}{end}", self.names[switch]))
    }

    /// What every router's interface towards the router `neighbour` is called.
    pub(crate) fn interface(&self, neighbour: usize) -> &str {
        &self.names[neighbour]
    }

    /// The routers next to a router, by the index of its interface towards each.
    pub(crate) fn neighbours(&self, router: usize) -> Result<HashMap<u32, usize>> {
        let named = |(name, index): (String, u32)| {
            Some((index, self.names.iter().position(|switch| *switch == name)?))
        };
        Ok(link::indexes(&self.routers[router])?.into_iter().filter_map(named).collect())
    }

    /// Lets hosts send no longer packets.
    pub(crate) fn set_host_mtu(&self, bytes: u16) -> Result<()> {
        let mtu = bytes.to_string();
        let mut hosts = self.hosts.iter().flatten();
        hosts.try_for_each(|host| host.ip(&["link", "set", HOST, "mtu", &mtu]).map(drop))
    }

    /// The MTUs of paths from the first host of an edge to the last one of another, by the edges
    /// and the IP version, that the first one's kernel has found to be less than its link's.
    pub(crate) fn path_mtus(&self) -> Result<BTreeMap<(usize, usize, u8), u16>> {
        let mut mtus = BTreeMap::new();
        for (from, hosts) in self.hosts.iter().enumerate() {
            let Some(host) = hosts.first() else { continue };
            for (to, others) in self.hosts.iter().enumerate().filter(|(to, _)| *to != from) {
                let last = others.len().saturating_sub(1) as u32;
                let (v4, v6) = (host_address(to, last), host_address6(to, last));
                for (version, address) in [(4, v4.to_string()), (6, v6.to_string())] {
                    let route = host.ip(&["route", "get", &address])?;
                    let mut words = route.split_whitespace().skip_while(|word| *word != "mtu");
                    if let Some(mtu) = words.nth(1) {
                        mtus.insert((from, to, version), mtu.parse().context("an MTU")?);
                    }
                }
            }
        }
        Ok(mtus)
    }

    /// Packets that hosts have received, and that they have sent, by the kernel's counters.
    pub(crate) fn moved_by_hosts(&self) -> Result<(u64, u64)> {
        let mut moved = (0, 0);
        for namespace in self.hosts.iter().flatten() {
            let counters = End { namespace, name: HOST }.counters()?;
            moved.0 += counters.rx.packets;
            moved.1 += counters.tx.packets;
        }
        Ok(moved)
    }

    /// Waits until no host has sent or received anything for a while.
    pub(crate) fn wait_quiet(&self) -> Result<()> {
        let mut last = (self.moved_by_hosts()?, Instant::now());
        wait_until("the traffic to end", QUIET_LIMIT, || {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.moved_by_hosts()?;
            if now != last.0 {
                last = (now, Instant::now());
            }
            Ok(last.1.elapsed() >= QUIET)
        })
    }

    /// Lets every router send packets on the shortest ways over the links that are up; those of
    /// transits leave it to the transits.
    pub(crate) fn set_routes(&self, topology: &Topology) -> Result<()> {
        let next_hops = NextHops::new(topology);
        let transits: Vec<usize> = topology.transits().collect();
        let routers = self.routers.iter().enumerate();
        for (at, router) in routers.filter(|(at, _)| !transits.contains(at)) {
            let mut batch = String::new();
            for edge in (0..self.hosts.len()).filter(|&edge| edge != at) {
                ensure!(
                    at >= self.hosts.len() || next_hops.up.reaches(at, edge),
                    "no way is left from {} to {}: what a live fabric loses so it can't count",
                    self.names[at],
                    self.names[edge]
                );
                for (family, prefix) in prefixes_of(edge).into_iter().enumerate() {
                    batch += &format!("route replace {prefix}");
                    for hop in next_hops.of(at, edge) {
                        let (name, interface) = (&nicknames(hop)[family], self.interface(hop));
                        batch += &format!(" nexthop via {name} dev {interface} onlink");
                    }
                    batch.push('\n');
                }
            }
            router.ip_batch(&batch).with_context(|| format!("routes of {}", self.names[at]))?;
        }
        Ok(())
    }

    /// Gives a hardware switch in that namespace the wire at its CPU port.
    fn attach_cpu(&self, switch: usize, namespace: &Namespace, index: u32) -> Result<()> {
        let [near, far] = self.cpu_port(switch);
        let [near, far] = [&near, &far].map(|name| End { namespace, name });
        link::connect(near, index, far)
    }

    /// Connects the namespace of the transit or sink at a position to the controller's, where the
    /// interface is called so.
    fn attach_controller(
        &self,
        position: usize,
        name: &str,
        namespace: &Namespace,
        index: u32,
    ) -> Result<()> {
        let ends = [End { namespace: &self.switches, name }, End { namespace, name: CONTROLLER }];
        link::connect(ends[0], index, ends[1])?;
        let addresses = ends.iter().zip(management(position));
        addresses
            .into_iter()
            .try_for_each(|(end, address)| end.set_address(&format!("{address}/30")))
    }

    /// Connects a host through its edge's ports to the edge's router, and through the ports of its
    /// own sink before that, where there is a namespace for one.
    fn attach(
        &self,
        edge: usize,
        (number, sink): (usize, Option<&Namespace>),
        forwarding: EdgeForwarding,
    ) -> Result<()> {
        let host = End { namespace: &self.hosts[edge][number - 1], name: HOST };
        let router_name = format!("h{number}");
        let router = End { namespace: &self.routers[edge], name: &router_name };
        let [host_port, fabric_port] = &self.ports(edge)[number - 1];
        let port = |name| End { namespace: &self.switches, name };
        let index = (edge as u32 + 1) * INDEXES + 2 * number as u32;
        if let Some(namespace) = sink {
            let [kernel, network] = &self.sink_ports(edge, number - 1);
            let [kernel, network] = [kernel, network].map(|name| End { namespace, name });
            link::connect(port(host_port), index, network)?;
            // The sink is the only program there: any other index than that of `network` will do.
            link::connect(kernel, INDEXES, host)?;
            kernel.set_promiscuous()?;
            network.set_promiscuous()?;
        } else {
            link::connect(port(host_port), index, host)?;
        }
        link::connect(port(fabric_port), index + 1, router)?;
        port(host_port).set_promiscuous()?;
        port(fabric_port).set_promiscuous()?;
        let [next_to_host, next_to_router] = match forwarding {
            EdgeForwarding::Pairs => [router, host],
            EdgeForwarding::Routed => [port(host_port), port(fabric_port)],
        };
        let [next_to_host, next_to_router] = [next_to_host.mac()?, next_to_router.mac()?];
        let number = number as u32 - 1;
        let ipv4 = host_address(edge, number).to_string();
        let ipv6 = host_address6(edge, number).to_string();
        for ((address, length), gateway) in [(ipv4, 32), (ipv6, 128)].into_iter().zip(GATEWAYS) {
            host.set_address(&format!("{address}/{length}"))?;
            host.set_neighbour(gateway, &next_to_host)?;
            router.set_neighbour(&address, &next_to_router)?;
            let default = ["route", "add", "default", "via", gateway, "dev", HOST, "onlink"];
            host.namespace.ip(&default)?;
            router.namespace.ip(&["route", "add", &address, "dev", &router_name])?;
        }
        // What is for none of the edge's hosts is for the first one.
        if number == 0 {
            let [_, prefix] = &prefixes_of(edge);
            let first = &host_address6(edge, 0).to_string();
            router.namespace.ip(&[
                "route",
                "add",
                prefix,
                "via",
                first,
                "dev",
                &router_name,
                "onlink",
            ])?;
        }
        Ok(())
    }

    fn towards(&self, router: usize, neighbour: usize) -> End<'_> {
        End { namespace: &self.routers[router], name: self.interface(neighbour) }
    }

    /// Tells a router how to reach a neighbouring one.
    fn meet(&self, end: End<'_>, neighbour: usize, mac: &str) -> Result<()> {
        nicknames(neighbour).iter().try_for_each(|name| end.set_neighbour(name, mac))
    }
}

/// Addresses on the wire between the controller and the transit or sink at a position, in this
/// order.
fn management(position: usize) -> [Ipv4Addr; 2] {
    [1, 2].map(|end| Ipv4Addr::new(100, 127, position as u8, end))
}

/// The hosts of an edge, in IPv4 and in IPv6.
pub(crate) fn prefixes_of(edge: usize) -> [String; 2] {
    let ipv4 = Ipv4Addr::from_bits(host_address(edge, 0).to_bits() & !0xFF);
    let ipv6 = Ipv6Addr::from_bits(host_address6(edge, 0).to_bits() & !0xFFFF);
    [format!("{ipv4}/24"), format!("{ipv6}/64")]
}

/// Addresses by which neighbours know a router, in IPv4 and in IPv6.
pub(crate) fn nicknames(router: usize) -> [String; 2] {
    let number = 0x100 + router as u32;
    let ipv6 = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, number as u16);
    [Ipv4Addr::from_bits(0xA9FE_0000 + number).to_string(), ipv6.to_string()]
}

/// What DPDK calls the first `ports` ports of a switch.
pub(crate) fn port_names(ports: usize) -> Vec<String> {
    (0..ports).map(|number| format!("net_af_packet{number}")).collect()
}

/// EAL arguments that make ports of interfaces, with rings of so many packets.
pub(crate) fn devices<'a>(
    names: &[String],
    interfaces: impl Iterator<Item = &'a String>,
    ring: u32,
) -> Vec<String> {
    let ring = format!("blocksz=65536,framesz=2048,framecnt={ring}");
    let device = |(name, interface)| format!("--vdev={name},iface={interface},{ring}");
    names.iter().zip(interfaces).map(device).collect()
}
