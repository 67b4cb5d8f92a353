//! Switches of a live fabric: edges of either kind, and what switches of either role have in
//! common.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use calumma_switchd::system::System;
use calumma_wire::Role;

use super::forwarding;
use crate::calumma::{Device, Hardware, HardwarePort, Place, Switch, Tofino, Wire, p4};
use crate::fabric::Process;
use crate::fabric::wiring::{Wiring, devices, port_names};
use crate::topology::{EdgeKind, Topology};

/// Switches share their CPUs: they go to sleep soon, and for no longer than a receive ring lasts.
const IDLE_SLEEP_US: u32 = 100;
const IDLE_POLLS: u32 = 16;

/// Packets that the ring of a port holds, so many as arrive while the switch waits for a CPU.
pub(super) const RING: u32 = 4096;

/// Where the drivers of modelled Tofinos of one namespace offer their interface, one by one.
pub(super) const FIRST_GRPC_PORT: u16 = 50_052;

/// A switch of ours that runs.
pub(super) enum Running {
    Software(Switch),
    Tofino(Tofino),
}

/// What Tofinos have their programs from.
#[derive(Clone, Copy)]
pub(super) struct Programs<'a> {
    /// The systems with a program.
    pub(super) known: &'a [&'static dyn System],
    /// Names of the systems that run.
    pub(super) on: &'a [String],
    /// The controller's configuration.
    pub(super) controller: &'a toml::Table,
}

impl Programs<'_> {
    /// The system whose program a switch of that role has. Where none has one for it, any will
    /// do to forward.
    pub(super) fn of(&self, role: Role) -> Result<&'static dyn System> {
        let any = || self.known.first().copied();
        p4::loaded(self.known, role, self.on).or_else(any).context("no system has a P4 program")
    }
}

impl Running {
    /// Starts the edge at that position, which is called so and is of that kind; `more` are further
    /// sections of its configuration, which has it route where there is one for `forwarding` and
    /// leave stacks to its hosts' own sinks where these have some.
    pub(super) fn start_edge(
        place: Place<'_>,
        wiring: &Wiring,
        (edge, name, kind): (usize, &str, EdgeKind),
        (more, host_sinks, forwarding): (&str, bool, Option<&Topology>),
        programs: Programs<'_>,
    ) -> Result<Self> {
        let interfaces = wiring.ports(edge);
        match kind {
            EdgeKind::Software => {
                let names = port_names(2 * interfaces.len());
                let mut ports: Vec<Device<'_>> =
                    names.chunks_exact(2).flat_map(|two| Device::pair(&two[0], &two[1])).collect();
                let hosts = ports.iter_mut().filter(|port| port.role == "host");
                hosts.for_each(|port| port.host_sink = host_sinks);
                let mut more = more.to_owned();
                if let Some(topology) = forwarding {
                    more += &forwarding::of_edge(wiring, topology, edge, &names)?;
                    ports.iter_mut().for_each(|port| port.peer = None);
                }
                let devices = devices(&names, interfaces.iter().flatten(), RING);
                let lcores = lcores(edge);
                let wire = wire((name, "edge"), &lcores, &ports, &devices, &more);
                Switch::start(place, &wire).map(Self::Software)
            }
            EdgeKind::Tofino => {
                ensure!(
                    forwarding.is_none(),
                    "{name}: of a live fabric's edges only software routes"
                );
                let interfaces = interfaces.into_iter().flatten().enumerate();
                let port = |(at, interface)| {
                    let role = ["host", "fabric"][at % 2];
                    HardwarePort { interface, role, peer: Some(at ^ 1) }
                };
                let ports: Vec<HardwarePort> = interfaces.map(port).collect();
                let hardware = Hardware {
                    name,
                    role: "edge",
                    system: programs.of(Role::Edge)?,
                    controller: programs.controller,
                    ports: &ports,
                    routes: "",
                    cpu_port: wiring.cpu_port(edge),
                    grpc_port: FIRST_GRPC_PORT + edge as u16,
                };
                Tofino::start(place, &hardware).map(Self::Tofino)
            }
        }
    }

    /// Its process; of a Tofino, its control plane's.
    pub(super) fn process(&self) -> &Process {
        match self {
            Self::Software(switch) => switch.process(),
            Self::Tofino(switch) => switch.control(),
        }
    }

    /// Starts the sink of a host, counted from 0, of an edge, which is called so and runs as the
    /// network's switch at that position.
    pub(super) fn start_sink(
        place: Place<'_>,
        wiring: &Wiring,
        (edge, host, name): (usize, usize, &str),
        position: usize,
        more: &str,
    ) -> Result<Self> {
        let names = port_names(2);
        let ports = Device::pair(&names[0], &names[1]);
        let devices = devices(&names, wiring.sink_ports(edge, host).iter(), RING);
        let lcores = lcores(position);
        let wire = wire((name, "host"), &lcores, &ports, &devices, more);
        Switch::start(place, &wire).map(Self::Software)
    }

    /// Waits until it forwards packets.
    pub(super) fn wait_forwarding(&mut self, limit: Duration) -> Result<()> {
        match self {
            Self::Software(switch) => switch.wait_forwarding(limit),
            Self::Tofino(switch) => switch.wait_forwarding(limit),
        }
    }

    /// An error, with what it wrote last, if it has ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        match self {
            Self::Software(switch) => switch.check_running(),
            Self::Tofino(switch) => switch.check_running(),
        }
    }

    /// Lets its process stand still for a while, in a moment; of a Tofino, its control plane.
    pub(super) fn freeze(&self, moment: Duration, time: Duration) {
        match self {
            Self::Software(switch) => switch.freeze(moment, time),
            Self::Tofino(switch) => switch.freeze_control(moment, time),
        }
    }

    /// Kills its process. Gives a Tofino, whose control plane that is, with another one; a software
    /// switch has to be started anew.
    pub(super) fn kill(self, place: Place<'_>) -> Result<Option<Self>> {
        match self {
            Self::Software(switch) => switch.kill().map(|()| None),
            Self::Tofino(switch) => switch.kill_control(place).map(Self::Tofino).map(Some),
        }
    }

    /// Stops it, and gives its totals by name, where it counts.
    pub(super) fn stop(self) -> Result<Option<BTreeMap<String, u64>>> {
        match self {
            Self::Software(switch) => switch.stop().map(Some),
            Self::Tofino(switch) => switch.stop().map(|()| None),
        }
    }
}

/// One lcore for the switch at this position, by turns on all CPUs.
pub(super) fn lcores(position: usize) -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!("0@{}", position % cpus)
}

/// A switch by name and role, `more` being further sections of its configuration.
pub(super) fn wire<'a>(
    (name, role): (&'a str, &'a str),
    lcores: &'a str,
    ports: &'a [Device<'a>],
    devices: &'a [String],
    more: &'a str,
) -> Wire<'a> {
    let (idle_sleep_us, idle_polls) = (IDLE_SLEEP_US, Some(IDLE_POLLS));
    Wire { name, role, lcores, ports, devices, more, idle_sleep_us, idle_polls }
}
