//! Inner switches of a live fabric that measure: `calumma-edge` as a transit, or a modelled Tofino
//! with its control plane.
//!
//! ```text
//!  namespace e1        namespace s1                  namespace s1-switch   namespace switches
//!  router  s1 -------- e1  router  s1t1 ------------ s1t1 [          ]
//!                                                         [transit s1] controller ---- s1ctl
//!  router  s1 -------- e2  router  s1t2 ------------ s1t2 [          ]
//!  namespace e2
//! ```
//!
//! The router in the switch's place stays, with a port of the switch for each neighbour: what comes
//! from a neighbour goes to its port, and what the switch sends by that port goes to the neighbour.
//! So all that is lost on a link is lost, counted and logged by routers, on either side of the
//! switch, and which link a packet takes is the switch's choice alone.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use calumma_wire::Role;

use super::forwarding::{self, addresses};
use super::switch::{FIRST_GRPC_PORT, Programs, RING, Running, lcores, wire};
use crate::calumma::{Device, Hardware, HardwarePort, Place, Switch, Tofino, Wire, port_number};
use crate::carrier::Carrier;
use crate::fabric::link::{self, End};
use crate::fabric::wires;
use crate::fabric::wiring::{
    INDEXES, NextHops, Wiring, devices, nicknames, port_names, prefixes_of,
};
use crate::topology::Topology;

/// How long a transit may take until it forwards.
const START_LIMIT: Duration = Duration::from_secs(40);

/// Numbers of the routing tables, port by port, of what comes from neighbours and from the switch.
const INTO_SWITCH: usize = 100;
const OUT_OF_SWITCH: usize = 200;

/// A transit switch that runs.
pub(super) struct Transit {
    switch: Running,
    /// Its place in the topology.
    at: usize,
    name: String,
}

impl Transit {
    /// Starts the switch at the position `at`, in a network whose packets carry marks so.
    pub(super) fn start(
        (place, carrier): (Place<'_>, Carrier),
        wiring: &Wiring,
        topology: &Topology,
        at: usize,
        programs: Programs<'_>,
    ) -> Result<Self> {
        let name = topology.names()[at].clone();
        let switch = if topology.is_tofino(at) {
            let start = |hardware: &Hardware<'_>| Tofino::start(place, hardware);
            with_hardware(wiring, topology, at, programs, start).map(Running::Tofino)
        } else {
            let start = |wire: &Wire<'_>| Switch::start(place, wire);
            with_wire(wiring, topology, (at, carrier), start).map(Running::Software)
        };
        Ok(Self { switch: switch.with_context(|| name.clone())?, at, name })
    }

    /// Its place in the topology.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The switch itself.
    pub(super) fn switch(&self) -> &Running {
        &self.switch
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
        (place, carrier): (Place<'_>, Carrier),
        wiring: &Wiring,
        topology: &Topology,
        programs: Programs<'_>,
    ) -> Result<()> {
        match &self.switch {
            Running::Software(switch) => {
                let of = (self.at, carrier);
                with_wire(wiring, topology, of, |wire| switch.reload(place, wire))
            }
            Running::Tofino(switch) => {
                with_hardware(wiring, topology, self.at, programs, |of| switch.reload(place, of))
            }
        }
    }

    /// An error, with what it wrote last, if it has ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        self.switch.check_running()
    }

    /// Stops it, and gives its totals by name, where it counts.
    pub(super) fn stop(self) -> Result<Option<BTreeMap<String, u64>>> {
        self.switch.stop()
    }
}

/// The interface at a port of a switch, counted from 1; both ends of the wire there are called so.
pub(super) fn interface(switch: &str, port: usize) -> String {
    format!("{switch}t{port}")
}

/// Puts the router of every transit between its ports and its neighbours.
pub(super) fn attach_all(wiring: &Wiring, topology: &Topology) -> Result<()> {
    topology.transits().try_for_each(|at| attach(wiring, topology, at))
}

/// Lets routers log what comes to the switches beside them.
pub(super) fn watch_wires(wiring: &Wiring, topology: &Topology) -> Result<()> {
    let edges = (0..topology.edges().len()).map(|at| (at, "h".to_owned(), true));
    let transits = topology.transits().map(|at| (at, format!("{}t", topology.names()[at]), false));
    edges.chain(transits).try_for_each(|(at, towards, is_edge)| {
        wires::watch(&wiring.routers()[at], &towards, is_edge)
    })
}

/// Does so with the switch at position `at`.
fn attach(wiring: &Wiring, topology: &Topology, at: usize) -> Result<()> {
    let (router, name) = (&wiring.routers()[at], &topology.names()[at]);
    for (port, neighbour) in (1..).zip(topology.neighbours(at)) {
        let interface = interface(name, port);
        let inner = End { namespace: router, name: &interface };
        let outer = End { namespace: &wiring.transits()[&at], name: &interface };
        link::connect(outer, INDEXES + port as u32, inner)?;
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
    (at, carrier): (usize, Carrier),
    f: impl FnOnce(&Wire<'_>) -> Result<T>,
) -> Result<T> {
    let name = &topology.names()[at];
    let neighbours: Vec<usize> = topology.neighbours(at).collect();
    let names = port_names(neighbours.len());
    let interfaces: Vec<String> =
        (1..=neighbours.len()).map(|port| interface(name, port)).collect();
    let port = |name| Device { name, role: "fabric", peer: None, lcore: None, host_sink: false };
    let ports: Vec<Device<'_>> = names.iter().map(|name| port(name)).collect();
    let mut section = carrier.section().to_owned() + forwarding::ROUTED;
    for ((port, name), interface) in (1..).zip(&names).zip(&interfaces) {
        let mac = End { namespace: &wiring.routers()[at], name: interface }.mac()?;
        section += &forwarding::interface(name, at, port, &mac);
    }
    for (prefixes, hops) in ways(topology, at) {
        section += &forwarding::routes(at, &prefixes, &hops);
    }
    let (lcores, devices) = (lcores(at), devices(&names, interfaces.iter(), RING));
    f(&wire((name, "transit"), &lcores, &ports, &devices, &section))
}

/// For each edge the prefixes of its hosts, and the ports of the switch at position `at` that lead
/// there.
fn ways(topology: &Topology, at: usize) -> impl Iterator<Item = ([String; 2], Vec<usize>)> {
    let next_hops = NextHops::new(topology);
    let neighbours: Vec<usize> = topology.neighbours(at).collect();
    (0..topology.edges().len()).map(move |edge| {
        let hops = next_hops.of(at, edge);
        let port = |hop| neighbours.iter().position(|neighbour| neighbour == hop);
        let ports = hops.iter().filter_map(port).map(|port| port + 1).collect();
        (prefixes_of(edge), ports)
    })
}

/// Has something done with the description of the Tofino at position `at`.
fn with_hardware<T>(
    wiring: &Wiring,
    topology: &Topology,
    at: usize,
    programs: Programs<'_>,
    f: impl FnOnce(&Hardware<'_>) -> Result<T>,
) -> Result<T> {
    let name = &topology.names()[at];
    let interfaces = 1..=topology.neighbours(at).count();
    let interfaces: Vec<String> = interfaces.map(|port| interface(name, port)).collect();
    let (switch, router) = (&wiring.transits()[&at], &wiring.routers()[at]);
    let mut hops = Vec::new();
    for (position, name) in interfaces.iter().enumerate() {
        let [from, mac] = [switch, router].map(|namespace| End { namespace, name }.mac());
        let number = port_number(position);
        hops.push(format!("{{ port = {number}, mac = \"{}\", from = \"{}\" }}", mac?, from?));
    }
    let mut routes = String::new();
    for (prefixes, ports) in ways(topology, at) {
        let via: Vec<&str> = ports.iter().map(|port| hops[port - 1].as_str()).collect();
        for prefix in prefixes {
            routes += &format!("[[route]]\nto = \"{prefix}\"\nvia = [{}]\n", via.join(", "));
        }
    }
    let port = |interface| HardwarePort { interface, role: "fabric", peer: None };
    let ports: Vec<HardwarePort> = interfaces.into_iter().map(port).collect();
    f(&Hardware {
        name,
        role: "transit",
        system: programs.of(Role::Transit)?,
        controller: programs.controller,
        ports: &ports,
        routes: &routes,
        cpu_port: wiring.cpu_port(at),
        grpc_port: FIRST_GRPC_PORT,
    })
}
