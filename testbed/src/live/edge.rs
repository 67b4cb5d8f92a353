//! Edge switches of a live fabric, of either kind.

use std::collections::BTreeMap;

use anyhow::Result;
use calumma_chamelemon::Layout;

use super::wiring::Wiring;
use crate::calumma::{Device, Hardware, Place, Switch, Tofino, Wire};
use crate::topology::EdgeKind;

/// Switches share their CPUs: they go to sleep soon, and for no longer than a receive ring lasts.
const IDLE_SLEEP_US: u32 = 100;
const POLLING: &str = "idle_polls = 16\n";

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
            EdgeKind::Software => software(place, name, edge, &interfaces).map(Self::Software),
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

fn software(
    place: Place<'_>,
    name: &str,
    edge: usize,
    interfaces: &[[String; 2]],
) -> Result<Switch> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let device = |number: usize| format!("net_af_packet{number}");
    let names: Vec<String> = (0..2 * interfaces.len()).map(device).collect();
    // Rings that hold what arrives while the switch waits for a CPU.
    let rings = "blocksz=65536,framesz=2048,framecnt=4096";
    let devices: Vec<String> = names
        .iter()
        .zip(interfaces.iter().flatten())
        .map(|(name, interface)| format!("--vdev={name},iface={interface},{rings}"))
        .collect();
    let ports: Vec<Device<'_>> =
        names.chunks_exact(2).flat_map(|pair| Device::pair(&pair[0], &pair[1])).collect();
    let wire = Wire {
        name,
        lcores: &format!("0@{}", edge % cpus),
        ports: &ports,
        devices: &devices,
        more: POLLING,
        idle_sleep_us: IDLE_SLEEP_US,
    };
    Switch::start(place, &wire)
}
