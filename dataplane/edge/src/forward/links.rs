//! Which ports have a link.
//!
//! Devices say so themselves, but those that DPDK makes on interfaces of the kernel
//! (`net_af_packet`) always say yes: there the kernel is asked. By the slow path, never by an
//! lcore.

use std::fs;
use std::path::{Path, PathBuf};

use dpdk::Port;

/// Where the kernel lists its interfaces.
const INTERFACES: &str = "/sys/class/net";

/// Says of each port, by position, whether it has a link.
pub type Links = Box<dyn FnMut() -> Vec<bool> + Send>;

/// The links of these ports.
pub fn of_ports(ports: &[Port]) -> Links {
    let mut watched: Vec<(Port, Option<Interface>)> = ports
        .iter()
        .map(|port| {
            let index = port.info().ok().and_then(|info| info.interface);
            (port.clone(), index.and_then(Interface::find))
        })
        .collect();
    Box::new(move || {
        let up = |(port, interface): &mut (Port, Option<Interface>)| match interface {
            Some(interface) => interface.is_up(),
            // A device that does not know its link is treated as having one.
            None => port.link().map_or(true, |link| link.up),
        };
        watched.iter_mut().map(up).collect()
    })
}

/// An interface of the kernel.
#[derive(Debug)]
struct Interface {
    index: u32,
    path: PathBuf,
}

impl Interface {
    fn find(index: u32) -> Option<Self> {
        let named = |path: PathBuf| (number(&path.join("ifindex"))? == index).then_some(path);
        let all = fs::read_dir(INTERFACES).ok()?;
        let path = all.flatten().find_map(|entry| named(entry.path()))?;
        Some(Self { index, path })
    }

    fn is_up(&mut self) -> bool {
        let state = |path: &Path| fs::read_to_string(path.join("operstate")).ok();
        let said = state(&self.path).or_else(|| {
            // Renamed, or gone.
            self.path = Self::find(self.index)?.path;
            state(&self.path)
        });
        // Interfaces without a carrier to look for are in an unknown state.
        said.is_some_and(|state| matches!(state.trim(), "up" | "unknown"))
    }
}

fn number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
