//! Switches of a live fabric: edges of either kind, and what software switches of either role have
//! in common.

use std::collections::BTreeMap;

use anyhow::Result;
use calumma_chamelemon::Layout;

use crate::calumma::{Device, Hardware, Place, Switch, Tofino, Wire};
use crate::fabric::wiring::{Wiring, devices, port_names};
use crate::topology::EdgeKind;

/// Switches share their CPUs: they go to sleep soon, and for no longer than a receive ring lasts.
const IDLE_SLEEP_US: u32 = 100;
const IDLE_POLLS: u32 = 16;

/// Packets that the ring of a port holds, so many as arrive while the switch waits for a CPU.
pub(super) const RING: u32 = 4096;

/// Where the drivers of modelled Tofinos offer their interface, edge by edge.
const FIRST_GRPC_PORT: u16 = 50_052;

/// An edge switch that runs.
pub(super) enum EdgeSwitch {
    Software(Switch),
    Tofino(Tofino),
}

impl EdgeSwitch {
    /// Starts the switch at the position `edge`, which is called so and is of that kind.
    pub(super) fn start(
        place: Place<'_>,
        wiring: &Wiring,
        edge: usize,
        (name, kind): (&str, EdgeKind),
        layout: &Layout,
    ) -> Result<Self> {
        let interfaces = wiring.ports(edge);
        match kind {
            EdgeKind::Software => {
                let names = port_names(2 * interfaces.len());
                let ports: Vec<Device<'_>> =
                    names.chunks_exact(2).flat_map(|two| Device::pair(&two[0], &two[1])).collect();
                let devices = devices(&names, interfaces.iter().flatten(), RING);
                let lcores = lcores(edge);
                let wire = wire((name, "edge"), &lcores, &ports, &devices, "");
                Switch::start(place, &wire).map(Self::Software)
            }
            EdgeKind::Tofino => {
                let hardware = Hardware {
                    name,
                    layout,
                    ports: &interfaces,
                    cpu_port: wiring.cpu_port(edge),
                    grpc_port: FIRST_GRPC_PORT + edge as u16,
                };
                Tofino::start(place, &hardware).map(Self::Tofino)
            }
        }
    }

    /// An error, with what it wrote last, if it has ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        match self {
            Self::Software(switch) => switch.check_running(),
            Self::Tofino(switch) => switch.check_running(),
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
