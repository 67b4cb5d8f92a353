//! The `[forwarding]` section, and what it comes to once it is checked.
//!
//! [`ForwardingConfig`] is the text's form. A [`Plan`] is what the switch works by: names resolved
//! to positions, every next hop on an interface. Both a port and its Ethernet address must be known
//! for it, so the addresses are filled in once the ports are open.

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
    /// Between port pairs: whether packets for stations that are behind other edges, which the
    /// fabric has sent everywhere, are left out of measurement.
    pub skip_flooded: bool,
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
            skip_flooded: false,
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
    /// The VLAN whose tag frames carry here, 1 to 4094; absent: frames are untagged, as on an
    /// access port.
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

/// A mistake: the place in the file, and what is wrong there with its remedy.
pub type Problem = (String, String);

/// A port that packets leave by as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassTo {
    /// Its position.
    pub port: u16,
    /// What is on the other side.
    pub role: Role,
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
    pub unknown: Option<PassTo>,
    /// The port for multicast and broadcast; none: they are dropped.
    pub multicast: Option<PassTo>,
    /// How long a neighbour is believed to be there, in nanoseconds.
    pub neighbour_ns: u64,
    /// Most ICMP errors a second.
    pub icmp_errors_a_second: u32,
    /// Number of ports.
    pub ports: usize,
    /// EtherType of the header that packets from the fabric carry their mark in, if they do in one
    /// of their own: what follows is read behind it.
    pub shim: Option<u16>,
}

impl ForwardingConfig {
    /// What is wrong with the section for a switch of these ports.
    pub fn problems(&self, ports: &[PortConfig]) -> Vec<Problem> {
        match self.mode {
            Mode::Pairs if self.interfaces.is_empty() && self.routes.is_empty() => Vec::new(),
            Mode::Pairs => {
                let problem = "interfaces and routes have no use between port pairs; set mode = \
                               \"routed\", or take them out";
                vec![("forwarding".to_owned(), problem.to_owned())]
            }
            Mode::Routed if self.skip_flooded => {
                let problem =
                    "routed packets are never flooded; take it out, or set mode = \"pairs\"";
                vec![("forwarding.skip_flooded".to_owned(), problem.to_owned())]
            }
            Mode::Routed => {
                let macs = vec![Mac::default(); ports.len()];
                self.plan(ports, &macs, None).err().unwrap_or_default()
            }
        }
    }

    /// The plan for a switch of these ports, whose Ethernet addresses are `macs`, in a network
    /// whose marks travel in a `shim` of this EtherType, or in none.
    ///
    /// # Errors
    /// Every mistake.
    pub fn plan(
        &self,
        ports: &[PortConfig],
        macs: &[Mac],
        shim: Option<u16>,
    ) -> Result<Plan, Vec<Problem>> {
        let mut problems = Problems::default();
        let interfaces = self.interfaces(ports, macs, &mut problems);
        let routes = self.routes(&interfaces, &mut problems);
        let mut neighbours = Vec::new();
        for (at, NeighbourConfig { address, mac }) in self.neighbours.iter().enumerate() {
            match on_link(&interfaces, *address) {
                Some(interface) => neighbours.push(((interface, *address), *mac)),
                None => problems.add(
                    format!("forwarding.neighbour[{at}].address"),
                    format!("{address} {NO_NETWORK}"),
                ),
            }
        }
        let unknown = port_or_drop("unknown", &self.unknown, ports, &mut problems);
        let multicast = port_or_drop("multicast", &self.multicast, ports, &mut problems);
        if self.neighbour_seconds == 0 {
            problems.add("forwarding.neighbour_seconds".into(), "at least 1".into());
        }
        if !problems.0.is_empty() {
            return Err(problems.0);
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
            shim,
        })
    }

    fn interfaces(
        &self,
        ports: &[PortConfig],
        macs: &[Mac],
        problems: &mut Problems,
    ) -> Vec<Interface> {
        if self.interfaces.is_empty() {
            problems.add(
                "forwarding.interface".into(),
                "routes need interfaces; add [[forwarding.interface]] sections".into(),
            );
        }
        let mut interfaces: Vec<Interface> = Vec::new();
        let mut networks: Vec<IpNet> = Vec::new();
        for (at, config) in self.interfaces.iter().enumerate() {
            let place = |key: &str| format!("forwarding.interface[{at}].{key}");
            if config.vlan.is_some_and(|vlan| !(1..=4094).contains(&vlan)) {
                problems.add(place("vlan"), "a VLAN is 1 to 4094".into());
            }
            // The least that IPv6 works with.
            if config.mtu < 1280 {
                problems.add(place("mtu"), format!("{} is below 1280", config.mtu));
            }
            for address in &config.addresses {
                if let Some(problem) = unusable(*address, &networks) {
                    problems.add(place("addresses"), problem);
                }
                networks.push(address.trunc());
            }
            let Some(port) = ports.iter().position(|port| port.name == config.port) else {
                problems.add(place("port"), format!("no [[port]] is named {}", config.port));
                continue;
            };
            if interfaces.iter().any(|other| other.port == port && other.vlan == config.vlan) {
                let problem = "this port and VLAN have an interface above; join their `addresses`";
                problems.add(place("port"), problem.into());
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
        if interfaces.len() > usize::from(InterfaceId::MAX) {
            problems.add("forwarding.interface".into(), "more than 65,535 of them".into());
        }
        interfaces
    }

    fn routes(&self, interfaces: &[Interface], problems: &mut Problems) -> Vec<(IpNet, Target)> {
        let mut routes = own_routes(interfaces);
        let mut seen: HashSet<IpNet> = routes.iter().map(|(to, _)| *to).collect();
        for (at, route) in self.routes.iter().enumerate() {
            let place = |key: &str| format!("forwarding.route[{at}].{key}");
            let to = route.to.trunc();
            if !seen.insert(to) {
                let problem =
                    format!("{to} has a route above, or is an interface's own; join them");
                problems.add(place("to"), problem);
            }
            if route.discard != route.via.is_empty() {
                let problem = "give the route either next hops (`via`) or `discard = true`";
                problems.add(place("via"), problem.into());
                continue;
            }
            let mut hops = Vec::new();
            for &via in &route.via {
                match on_link(interfaces, via) {
                    _ if via.is_ipv4() != to.addr().is_ipv4() => {
                        problems.add(place("via"), format!("{via} is of another family than {to}"));
                    }
                    Some(interface) => hops.push((interface, via)),
                    None => problems.add(place("via"), format!("{via} {NO_NETWORK}")),
                }
            }
            let target = if hops.is_empty() { Target::Discard } else { Target::Via(hops) };
            routes.push((to, target));
        }
        routes
    }
}

/// The mistakes found so far.
#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, place: String, problem: String) {
        self.0.push((place, problem));
    }
}

const NO_NETWORK: &str = "is in no interface's network; give an interface an address there";

/// The interface on whose link a neighbour with this address is.
fn on_link(interfaces: &[Interface], address: IpAddr) -> Option<InterfaceId> {
    let of = |interface: &Interface| {
        interface.addresses.iter().any(|own| own.contains(&address)) && !interface.owns(address)
    };
    interfaces.iter().position(of).map(|at| at as InterfaceId)
}

/// Why an interface can't have this address, where other ones have these networks.
fn unusable(address: IpNet, networks: &[IpNet]) -> Option<String> {
    let ip = address.addr();
    let link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    if ip.is_multicast() || ip.is_loopback() || ip.is_unspecified() || link_local {
        return Some(format!(
            "{ip} is no address to give; link-local ones are there by themselves"
        ));
    }
    let overlaps = |other: &&IpNet| other.contains(&address) || address.contains(*other);
    let other = networks.iter().find(overlaps)?;
    Some(format!("{} overlaps {other}; a network is on one interface", address.trunc()))
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
    problems: &mut Problems,
) -> Option<PassTo> {
    if wanted == "drop" {
        return None;
    }
    let found = ports.iter().zip(0..).find(|(port, _)| port.name == wanted);
    if found.is_none() {
        let problem = format!("{wanted:?} is neither \"drop\" nor a port's name");
        problems.add(format!("forwarding.{key}"), problem);
    }
    found.map(|(of, port)| PassTo { port, role: of.role })
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const PORTS: &str = "name = 'e1'\ncontroller = '127.0.0.1:9'\n\
        [[port]]\nname = 'h0'\nrole = 'host'\n[[port]]\nname = 'f0'\nrole = 'fabric'\n";

    #[test]
    fn every_mistake_is_found_with_its_place_and_remedy() {
        let text = format!(
            "{PORTS}[forwarding]\nmode = 'routed'\nunknown = 'f9'\nneighbour_seconds = 0\n\
             [[forwarding.interface]]\nport = 'h0'\naddresses = ['10.1.0.1/24', '10.1.0.9/28']\n\
             [[forwarding.interface]]\nport = 'h0'\naddresses = ['fe80::1/64']\nmtu = 600\n\
             [[forwarding.interface]]\nport = 'f7'\nvlan = 5000\naddresses = []\n\
             [[forwarding.route]]\nto = '10.2.0.0/16'\nvia = ['10.7.0.1']\n\
             [[forwarding.route]]\nto = '10.2.9.9/16'\nvia = ['10.1.0.1']\n\
             [[forwarding.route]]\nto = '10.3.0.0/16'\n\
             [[forwarding.route]]\nto = '::/0'\nvia = ['10.1.0.2']\n\
             [[forwarding.neighbour]]\naddress = '10.8.0.1'\nmac = '02:00:00:00:00:01'\n"
        );
        let problem = Config::parse(&text, "edge.toml").unwrap_err().to_string();
        for (place, remedy) in [
            ("forwarding.unknown", "neither \"drop\" nor a port's name"),
            ("forwarding.neighbour_seconds", "at least 1"),
            ("forwarding.interface[0].addresses", "overlaps 10.1.0.0/24"),
            ("forwarding.interface[1].addresses", "link-local ones are there by themselves"),
            ("forwarding.interface[1].mtu", "below 1280"),
            ("forwarding.interface[1].port", "join their `addresses`"),
            ("forwarding.interface[2].port", "no [[port]] is named f7"),
            ("forwarding.interface[2].vlan", "1 to 4094"),
            ("forwarding.route[0].via", "10.7.0.1 is in no interface's network"),
            ("forwarding.route[1].to", "10.2.0.0/16 has a route above"),
            ("forwarding.route[1].via", "10.1.0.1 is in no interface's network"),
            ("forwarding.route[2].via", "`discard = true`"),
            ("forwarding.route[3].via", "of another family"),
            ("forwarding.neighbour[0].address", "give an interface an address there"),
        ] {
            let found = problem.lines().find(|line| line.contains(place) && line.contains(remedy));
            assert!(found.is_some(), "{place}: {remedy} in {problem}");
        }
    }

    #[test]
    fn modes_are_not_mixed_up() {
        let interface = "[[forwarding.interface]]\nport = 'h0'\naddresses = ['10.1.0.1/24']\n";
        let pairs = format!("{PORTS}{interface}");
        let problem = Config::parse(&pairs, "edge.toml").unwrap_err().to_string();
        assert!(problem.contains("set mode = \"routed\"") && problem.contains("peer is missing"));
        let peer = PORTS.replace("'host'\n", "'host'\npeer = 'f0'\nlcores = [1]\n");
        let routed = format!("{peer}[forwarding]\nmode = 'routed'\n{interface}");
        let problem = Config::parse(&routed, "edge.toml").unwrap_err().to_string();
        assert!(problem.contains("a routed port has no peer"), "{problem}");
        assert!(problem.contains("port[0].lcores: every lcore polls a routed port"), "{problem}");
    }
}
