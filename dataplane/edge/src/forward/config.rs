//! The `[forwarding]` section, and what it comes to once it is checked.
//!
//! [`ForwardingConfig`] is the text's form. A [`Plan`] is what the switch works by: names resolved to
//! positions, every next hop on an interface. Both a port and its Ethernet address must be known for
//! it, so the addresses are filled in once the ports are open.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::Deserialize;

use super::address::Mac;
use crate::config::{PortConfig, Role};

/// How packets find the port they leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By the port they came from: every port has a peer.
    #[default]
    Pairs,
    /// By their destination address.
    Routed,
}

/// The section as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardingConfig {
    /// Port pairs, or routes.
    pub mode: Mode,
    /// Where frames go that are not routed (neither IPv4, IPv6 nor ARP): `drop`, or a port's name.
    pub unknown: String,
    /// Where multicast and broadcast go: `drop`, or a port's name. Neighbour discovery and ARP are
    /// answered whatever this says.
    pub multicast: String,
    /// Seconds after which a neighbour is asked whether it is still there.
    pub neighbour_seconds: u32,
    /// Most ICMP errors a second.
    pub icmp_errors_a_second: u32,
    /// Where the switch has addresses.
    #[serde(rename = "interface")]
    pub interfaces: Vec<InterfaceConfig>,
    /// Static routes beside those to the interfaces' own networks.
    #[serde(rename = "route")]
    pub routes: Vec<RouteConfig>,
    /// Neighbours whose Ethernet addresses need not be asked for.
    #[serde(rename = "neighbour")]
    pub neighbours: Vec<NeighbourConfig>,
}

impl Default for ForwardingConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Pairs,
            unknown: "drop".to_owned(),
            multicast: "drop".to_owned(),
            neighbour_seconds: 60,
            icmp_errors_a_second: 1000,
            interfaces: Vec::new(),
            routes: Vec::new(),
            neighbours: Vec::new(),
        }
    }
}

/// A port, or one VLAN of it, where the switch has addresses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// The port's name.
    pub port: String,
    /// The VLAN whose tag frames carry here, 1 to 4094; absent: frames are untagged, as on an access
    /// port.
    pub vlan: Option<u16>,
    /// The switch's addresses, each with the length of its network's prefix.
    pub addresses: Vec<IpNet>,
    /// Longest IP packet, in bytes.
    #[serde(default = "default_mtu")]
    pub mtu: u16,
}

fn default_mtu() -> u16 {
    1500
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Where to.
    pub to: IpNet,
    /// Next hops: addresses in the networks of interfaces. Flows are spread over several.
    #[serde(default)]
    pub via: Vec<IpAddr>,
    /// Drop what goes there, and say nothing.
    #[serde(default)]
    pub discard: bool,
}

/// A neighbour's Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourConfig {
    /// Its address, in the network of an interface.
    pub address: IpAddr,
    /// Its Ethernet address, as in `02:00:00:00:00:01`.
    pub mac: Mac,
}

/// Position of an interface among all.
pub type InterfaceId = u16;

/// An interface as the switch works with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Position of its port.
    pub port: usize,
    /// What is on the other side of the port.
    pub role: Role,
    /// The VLAN tag of its frames.
    pub vlan: Option<u16>,
    /// Its Ethernet address, which is its port's.
    pub mac: Mac,
    /// Longest IP packet, in bytes.
    pub mtu: u16,
    /// Its addresses with their networks; the link-local one is not among them.
    pub addresses: Vec<IpNet>,
}

impl Interface {
    /// Its link-local address, made of its Ethernet address (RFC 4291, appendix A).
    pub fn link_local(&self) -> Ipv6Addr {
        self.mac.link_local()
    }

    /// Whether `address` is one of its own.
    pub fn owns(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.addr() == address)
            || address == IpAddr::V6(self.link_local())
    }

    /// The address that it speaks from to `to`: the one in the same network, else the first of the
    /// same family; to a link-local address, its own such.
    pub fn speaks_from(&self, to: IpAddr) -> Option<IpAddr> {
        if let IpAddr::V6(to) = to
            && to.is_unicast_link_local()
        {
            return Some(self.link_local().into());
        }
        let family = || self.addresses.iter().filter(|own| own.addr().is_ipv4() == to.is_ipv4());
        family().find(|own| own.contains(&to)).or_else(|| family().next()).map(IpNet::addr)
    }
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// To the switch itself.
    Own,
    /// To everybody on a link: the broadcast address of an interface's network.
    Broadcast,
    /// To neighbours on the link of an interface.
    Link(InterfaceId),
    /// Over next hops, each with the interface it is on; never empty.
    Via(Vec<(InterfaceId, IpAddr)>),
    /// Nowhere, without a word.
    Discard,
}

/// Everything that the configuration says of forwarding by routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// All interfaces; their positions are their [`InterfaceId`]s.
    pub interfaces: Vec<Interface>,
    /// All routes, those to the interfaces' own addresses and networks included.
    pub routes: Vec<(IpNet, Target)>,
    /// Neighbours with static Ethernet addresses.
    pub neighbours: Vec<((InterfaceId, IpAddr), Mac)>,
    /// The port for frames that are not routed; none: they are dropped.
    pub unknown: Option<usize>,
    /// The port for multicast and broadcast; none: they are dropped.
    pub multicast: Option<usize>,
    /// How long a neighbour is believed to be there, in nanoseconds.
    pub neighbour_ns: u64,
    /// Most ICMP errors a second.
    pub icmp_errors_a_second: u32,
    /// Number of ports.
    pub ports: usize,
}

impl ForwardingConfig {
    /// What is wrong with the section for a switch of these ports, each mistake with its remedy.
    pub fn problems(&self, ports: &[PortConfig]) -> Vec<String> {
        match self.mode {
            Mode::Pairs if self.interfaces.is_empty() && self.routes.is_empty() => Vec::new(),
            Mode::Pairs => vec![
                "forwarding: interfaces and routes have no use between port pairs; set mode = \
                 \"routed\""
                    .to_owned(),
            ],
            Mode::Routed => {
                let macs = vec![Mac::default(); ports.len()];
                self.plan(ports, &macs).err().unwrap_or_default()
            }
        }
    }

    /// The plan for a switch of these ports, whose Ethernet addresses are `macs`.
    ///
    /// # Errors
    /// Every mistake, each with its place and remedy.
    pub fn plan(&self, ports: &[PortConfig], macs: &[Mac]) -> Result<Plan, Vec<String>> {
        let mut problems = Vec::new();
        let interfaces = self.interfaces(ports, macs, &mut problems);
        let on_link = |address: IpAddr| {
            interfaces.iter().position(|interface| {
                interface.addresses.iter().any(|own| own.contains(&address))
                    && !interface.owns(address)
            })
        };

        let mut routes = own_routes(&interfaces);
        let mut seen = HashSet::new();
        for route in &self.routes {
            let to = route.to.trunc();
            if !seen.insert(to) {
                problems.push(format!("forwarding.route to {to}: there are two; join their `via`"));
            }
            if route.discard == !route.via.is_empty() {
                let wanted = "give it either next hops (`via`) or `discard = true`";
                problems.push(format!("forwarding.route to {to}: {wanted}"));
                continue;
            }
            let mut hops = Vec::new();
            for &via in &route.via {
                match on_link(via) {
                    _ if via.is_ipv4() != to.addr().is_ipv4() => problems.push(format!(
                        "forwarding.route to {to}: its next hop {via} is of the other family"
                    )),
                    Some(interface) => hops.push((interface as InterfaceId, via)),
                    None => problems.push(format!(
                        "forwarding.route to {to}: its next hop {via} is in no interface's \
                         network; give an interface an address in that network"
                    )),
                }
            }
            let target = if hops.is_empty() { Target::Discard } else { Target::Via(hops) };
            // An interface's own networks and addresses come first: they can't be routed away.
            if routes.iter().any(|(own, _)| *own == to) {
                problems.push(format!("forwarding.route to {to}: this is an interface's own"));
            }
            routes.push((to, target));
        }

        let mut neighbours = Vec::new();
        for NeighbourConfig { address, mac } in &self.neighbours {
            match on_link(*address) {
                Some(interface) => neighbours.push(((interface as InterfaceId, *address), *mac)),
                None => problems.push(format!(
                    "forwarding.neighbour {address}: in no interface's network; give an interface \
                     an address in that network"
                )),
            }
        }
        let unknown = port_or_drop("unknown", &self.unknown, ports, &mut problems);
        let multicast = port_or_drop("multicast", &self.multicast, ports, &mut problems);
        if self.neighbour_seconds == 0 {
            problems.push("forwarding.neighbour_seconds: at least 1".to_owned());
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Plan {
            interfaces,
            routes,
            neighbours,
            unknown,
            multicast,
            neighbour_ns: u64::from(self.neighbour_seconds) * 1_000_000_000,
            icmp_errors_a_second: self.icmp_errors_a_second,
            ports: ports.len(),
        })
    }

    fn interfaces(
        &self,
        ports: &[PortConfig],
        macs: &[Mac],
        problems: &mut Vec<String>,
    ) -> Vec<Interface> {
        if self.interfaces.is_empty() {
            problems.push(
                "forwarding: routes need interfaces; add [[forwarding.interface]] sections"
                    .to_owned(),
            );
        }
        if self.interfaces.len() > usize::from(InterfaceId::MAX) {
            problems.push("forwarding.interface: more than 65,535 of them".to_owned());
        }
        let mut interfaces: Vec<Interface> = Vec::new();
        let mut networks: Vec<IpNet> = Vec::new();
        for config in &self.interfaces {
            let name = match config.vlan {
                Some(vlan) => format!("forwarding.interface {} vlan {vlan}", config.port),
                None => format!("forwarding.interface {}", config.port),
            };
            if config.vlan.is_some_and(|vlan| !(1..=4094).contains(&vlan)) {
                problems.push(format!("{name}: a VLAN is 1 to 4094"));
            }
            // The least that IPv6 works with.
            if config.mtu < 1280 {
                problems.push(format!("{name}: mtu = {} is below 1280", config.mtu));
            }
            for address in &config.addresses {
                let ip = address.addr();
                let unusable = ip.is_multicast() || ip.is_loopback() || ip.is_unspecified();
                if unusable || matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
                    problems.push(format!("{name}: {ip} is no address for an interface"));
                }
                if let Some(other) = networks
                    .iter()
                    .find(|other| other.contains(address) || address.contains(*other))
                {
                    problems.push(format!(
                        "{name}: its network {} overlaps {other}; every network is on one interface",
                        address.trunc()
                    ));
                }
                networks.push(address.trunc());
            }
            let Some(port) = ports.iter().position(|port| port.name == config.port) else {
                problems.push(format!("{name}: no [[port]] has this name"));
                continue;
            };
            if interfaces.iter().any(|other| other.port == port && other.vlan == config.vlan) {
                problems.push(format!("{name}: there are two; join their `addresses`"));
            }
            interfaces.push(Interface {
                port,
                role: ports[port].role,
                vlan: config.vlan,
                mac: macs[port],
                mtu: config.mtu,
                addresses: config.addresses.clone(),
            });
        }
        interfaces
    }
}

/// Routes to the interfaces' own addresses, networks and broadcast addresses.
fn own_routes(interfaces: &[Interface]) -> Vec<(IpNet, Target)> {
    let mut routes = Vec::new();
    for (id, interface) in interfaces.iter().enumerate() {
        for own in &interface.addresses {
            routes.push((IpNet::from(own.addr()), Target::Own));
            if own.prefix_len() < own.max_prefix_len() {
                routes.push((own.trunc(), Target::Link(id as InterfaceId)));
            }
            if let IpNet::V4(own) = own
                && own.prefix_len() < 31
            {
                routes.push((IpNet::from(IpAddr::V4(own.broadcast())), Target::Broadcast));
            }
        }
    }
    let everybody = IpNet::from(IpAddr::V4(Ipv4Addr::BROADCAST));
    routes.push((everybody, Target::Broadcast));
    routes
}

fn port_or_drop(
    key: &str,
    wanted: &str,
    ports: &[PortConfig],
    problems: &mut Vec<String>,
) -> Option<usize> {
    if wanted == "drop" {
        return None;
    }
    let port = ports.iter().position(|port| port.name == wanted);
    if port.is_none() {
        problems.push(format!("forwarding.{key} = {wanted:?}: neither \"drop\" nor a port's name"));
    }
    port
}
