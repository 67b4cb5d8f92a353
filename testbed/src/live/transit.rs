//! Inner switches of a live fabric that are software: `calumma-edge` as a transit.
//!
//! ```text
//!  namespace e1        namespace s1                  namespace switches
//!  router  s1 -------- e1  router  s1t1 ------------ s1t1 [          ]
//!                                                         [transit s1]
//!  router  s1 -------- e2  router  s1t2 ------------ s1t2 [          ]
//!  namespace e2
//! ```
//!
//! The router in the switch's place stays, with a port of the switch for each neighbour: what comes
//! from a neighbour goes to its port, and what the switch sends by that port goes to the neighbour.
//! So all that is lost on a link is lost, counted and logged by routers, on either side of the
//! switch, and which link a packet takes is the switch's choice alone.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context, Result};

use super::switch::{RING, lcores, wire};
use crate::calumma::{Device, Place, Switch, Wire};
use crate::fabric::link::{self, End};
use crate::fabric::wiring::{INDEXES, Wiring, devices, nicknames, port_names, prefixes_of};
use crate::topology::{Routes, Topology};

/// How long a transit may take until it forwards.
const START_LIMIT: Duration = Duration::from_secs(40);

/// Numbers of the routing tables, port by port, of what comes from neighbours and from the switch.
const INTO_SWITCH: usize = 100;
const OUT_OF_SWITCH: usize = 200;

/// A transit switch that runs.
pub(super) struct Transit {
    switch: Switch,
    /// Its place in the topology.
    at: usize,
    name: String,
}

impl Transit {
    /// Starts the switch at the position `at`.
    pub(super) fn start(
        place: Place<'_>,
        wiring: &Wiring,
        topology: &Topology,
        at: usize,
    ) -> Result<Self> {
        let name = topology.names()[at].clone();
        let start = |wire: &Wire<'_>| Switch::start(place, wire);
        let switch = with_wire(wiring, topology, at, start).with_context(|| name.clone())?;
        Ok(Self { switch, at, name })
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its interfaces, in the order of its ports.
    pub(super) fn interfaces(&self, topology: &Topology) -> Vec<String> {
        (1..=topology.neighbours(self.at).count()).map(|port| interface(&self.name, port)).collect()
    }

    /// Waits until it forwards.
    pub(super) fn wait_forwarding(&mut self) -> Result<()> {
        self.switch.wait_forwarding(START_LIMIT).with_context(|| self.name.clone())
    }

    /// Lets it route over the links that are up now.
    pub(super) fn set_routes(
        &self,
        place: Place<'_>,
        wiring: &Wiring,
        topology: &Topology,
    ) -> Result<()> {
        with_wire(wiring, topology, self.at, |wire| self.switch.reload(place, wire))
    }

    /// An error, with what it wrote last, if it has ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        self.switch.check_running()
    }

    /// Stops it, and gives its totals by name.
    pub(super) fn stop(self) -> Result<BTreeMap<String, u64>> {
        self.switch.stop()
    }
}

/// The interface at a port of a switch, counted from 1; both ends of the wire there are called so.
fn interface(switch: &str, port: usize) -> String {
    format!("{switch}t{port}")
}

/// The addresses at a port of the switch at position `at`, of the switch itself and of its router,
/// with the lengths of their networks; those of IPv4 first.
fn addresses(at: usize, port: usize) -> [([IpAddr; 2], u8); 2] {
    let ipv4 = |host| {
        let base = Ipv4Addr::new(100, 64, at as u8, 0).to_bits();
        IpAddr::V4(Ipv4Addr::from_bits(base + 4 * port as u32 + host))
    };
    let ipv6 = |host| Ipv6Addr::new(0xFDFF, 0, at as u16, port as u16, 0, 0, 0, host).into();
    [([ipv4(1), ipv4(2)], 30), ([ipv6(1), ipv6(2)], 64)]
}

/// Puts the router of every transit between its ports and its neighbours.
pub(super) fn attach_all(wiring: &Wiring, topology: &Topology) -> Result<()> {
    let first = topology.edges().len() + 1;
    for (number, at) in (first..).zip(topology.transits()) {
        attach(wiring, topology, at, number as u32 * INDEXES)?;
    }
    Ok(())
}

/// Does so with the switch at position `at`. `index` is the interface index before that of its
/// first port.
fn attach(wiring: &Wiring, topology: &Topology, at: usize, index: u32) -> Result<()> {
    let (router, name) = (&wiring.routers()[at], &topology.names()[at]);
    for (port, neighbour) in (1..).zip(topology.neighbours(at)) {
        let interface = interface(name, port);
        let inner = End { namespace: router, name: &interface };
        let outer = End { namespace: wiring.switches(), name: &interface };
        link::connect(outer, index + port as u32, inner)?;
        let mac = outer.mac()?;
        let into = (wiring.interface(neighbour), &interface, INTO_SWITCH + port);
        let out_of = (&*interface, &wiring.interface(neighbour).to_owned(), OUT_OF_SWITCH + port);
        for (family, ([switch, own], length)) in ["-4", "-6"].into_iter().zip(addresses(at, port)) {
            let switch = switch.to_string();
            inner.set_address(&format!("{own}/{length}"))?;
            inner.set_neighbour(&switch, &mac)?;
            let beyond = &nicknames(neighbour)[usize::from(family == "-6")];
            for ((from, to, table), via) in [(into, &switch), (out_of, beyond)] {
                let table = &table.to_string();
                let rule = ["rule", "add", "iif", from, "lookup", table];
                let route = ["route", "add", "default", "via", via, "dev", to, "onlink"];
                router.ip(&[&[family][..], &rule].concat())?;
                router.ip(&[&[family][..], &route, &["table", table]].concat())?;
            }
            // Copies, and packets of slow links, come from the router itself.
            if port == 1 {
                let route = ["route", "add", "default", "via", &switch, "dev", &interface];
                router.ip(&[&[family][..], &route].concat())?;
            }
        }
    }
    Ok(())
}

/// Has something done with the description of the switch at position `at`.
fn with_wire<T>(
    wiring: &Wiring,
    topology: &Topology,
    at: usize,
    f: impl FnOnce(&Wire<'_>) -> Result<T>,
) -> Result<T> {
    let name = &topology.names()[at];
    let neighbours: Vec<usize> = topology.neighbours(at).collect();
    let names = port_names(neighbours.len());
    let interfaces: Vec<String> =
        (1..=neighbours.len()).map(|port| interface(name, port)).collect();
    let port = |name| Device { name, role: "fabric", peer: None, lcore: None };
    let ports: Vec<Device<'_>> = names.iter().map(|name| port(name)).collect();
    let mut forwarding = "[forwarding]\nmode = \"routed\"\n".to_owned();
    for ((port, name), interface) in (1..).zip(&names).zip(&interfaces) {
        let mac = End { namespace: &wiring.routers()[at], name: interface }.mac()?;
        let addresses = addresses(at, port);
        let own = addresses.map(|([switch, _], length)| format!("\"{switch}/{length}\""));
        forwarding += &format!(
            "[[forwarding.interface]]\nport = \"{name}\"\naddresses = [{}]\n",
            own.join(", ")
        );
        for ([_, router], _) in addresses {
            forwarding +=
                &format!("[[forwarding.neighbour]]\naddress = \"{router}\"\nmac = \"{mac}\"\n");
        }
    }
    let routes = Routes::new(topology);
    for edge in 0..topology.edges().len() {
        let hops = routes.next_hops(at, edge);
        for (family, prefix) in prefixes_of(edge).into_iter().enumerate() {
            let via = |hop| {
                let port = neighbours.iter().position(|neighbour| neighbour == hop);
                port.map(|port| format!("\"{}\"", addresses(at, port + 1)[family].0[1]))
            };
            let via: Vec<String> = hops.iter().filter_map(via).collect();
            let way = match via.is_empty() {
                true => "discard = true".to_owned(),
                false => format!("via = [{}]", via.join(", ")),
            };
            forwarding += &format!("[[forwarding.route]]\nto = \"{prefix}\"\n{way}\n");
        }
    }
    let (lcores, devices) = (lcores(at), devices(&names, interfaces.iter(), RING));
    f(&wire((name, "transit"), &lcores, &ports, &devices, &forwarding))
}
