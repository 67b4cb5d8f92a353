//! The `[[port]]` sections.

use std::collections::{BTreeSet, HashMap};

use calumma_switch_host::NodeRole;
use serde::Deserialize;

use super::Mistakes;

/// One DPDK port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// The device's name as DPDK has it: a PCI address, or the name of a `--vdev`.
    pub name: String,
    /// What is on the other side.
    pub role: Role,
    /// Between port pairs: the port that packets from this one go to.
    pub peer: Option<String>,
    /// Between port pairs: numbers of the lcores that poll it, the same as its peer's; `None`:
    /// all.
    pub lcores: Option<BTreeSet<u32>>,
    /// Descriptors of each receive queue.
    #[serde(default = "default_descriptors")]
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue.
    #[serde(default = "default_descriptors")]
    pub tx_descriptors: u16,
    /// Whether the device is to stamp packets as they arrive, where it can.
    #[serde(default)]
    pub timestamps: bool,
    /// Of an edge's host port: whether a host is behind it that has a sink of its own, so that
    /// packets are sent there with marks and INT stacks.
    #[serde(default)]
    pub host_sink: bool,
}

fn default_descriptors() -> u16 {
    1024
}

/// A port as an lcore that polls it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Its position among all ports.
    pub port: usize,
    /// Between port pairs, its peer's position among the ports that the lcore polls.
    pub peer: usize,
}

/// What is on the other side of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Hosts: packets from here enter the network (ingress role).
    Host,
    /// The network: packets from here leave it (egress role).
    Fabric,
}

impl PortConfig {
    /// Whether lcore number `lcore` polls it, and sends to it.
    pub fn is_polled_by(&self, lcore: u32) -> bool {
        self.lcores.as_ref().is_none_or(|lcores| lcores.contains(&lcore))
    }
}

/// Notes what is wrong with them, whatever becomes of their packets: each has a name of its own.
pub(super) fn check(ports: &[PortConfig], mistakes: &mut Mistakes) {
    if ports.len() < 2 && mistakes.is_sound("port") {
        mistakes.add("port", "at least two [[port]] sections are needed, joined by `peer`");
    }
    let place = |at: usize, key: &str| format!("port[{at}].{key}");
    let named = |at: usize, mistakes: &Mistakes| mistakes.is_sound(&place(at, "name"));
    let mut by_name: HashMap<&str, &PortConfig> = HashMap::new();
    for (at, port) in ports.iter().enumerate() {
        if named(at, mistakes) && by_name.insert(&port.name, port).is_some() {
            let problem = format!("there is a port {} above; each has one section", port.name);
            mistakes.add(&place(at, "name"), problem);
        }
        let lcores = place(at, "lcores");
        if port.lcores.as_ref().is_some_and(BTreeSet::is_empty) && mistakes.is_sound(&lcores) {
            mistakes.add(&lcores, "somebody must poll it; leave the key out for all lcores");
            mistakes.doubt(&lcores);
        }
        for (key, descriptors) in
            [("rx_descriptors", port.rx_descriptors), ("tx_descriptors", port.tx_descriptors)]
        {
            let key = place(at, key);
            if descriptors == 0 && mistakes.is_sound(&key) {
                mistakes.add(&key, "a queue has at least one descriptor");
            }
        }
    }
}

/// Notes where a port has no peer of the other role.
pub(super) fn check_peers(ports: &[PortConfig], mistakes: &mut Mistakes) {
    let by_name: HashMap<&str, &PortConfig> =
        ports.iter().map(|port| (port.name.as_str(), port)).collect();
    let all_sound = |key: &str, mistakes: &Mistakes| {
        (0..ports.len()).all(|at| mistakes.is_sound(&format!("port[{at}].{key}")))
    };
    let all_named = all_sound("name", mistakes);
    let all_polled = all_sound("lcores", mistakes);
    for (at, port) in ports.iter().enumerate() {
        let key = format!("port[{at}].peer");
        if !mistakes.is_sound(&key) {
            continue;
        }
        let Some(peer) = &port.peer else {
            mistakes.add(&key, "peer is missing; add it, or set forwarding.mode = \"routed\"");
            continue;
        };
        match by_name.get(peer.as_str()) {
            None if all_named => {
                let names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
                let problem = format!("there is no port {peer}, but: {}", names.join(", "));
                mistakes.add(&key, problem);
            }
            Some(other) if other.role == port.role && mistakes.is_sound("port") => {
                let problem = format!(
                    "{} and its peer {peer} have the same role; one of them must face hosts, the \
                     other the fabric",
                    port.name
                );
                mistakes.add(&key, problem);
            }
            Some(other) if other.lcores != port.lcores && all_polled => {
                let problem = format!(
                    "{} and its peer {peer} are polled by different lcores; an lcore polls both or none",
                    port.name
                );
                mistakes.add(&format!("port[{at}].lcores"), problem);
            }
            _ => {}
        }
    }
}

/// Notes where a router's port has a peer, or lcores of its own.
pub(super) fn check_routed(ports: &[PortConfig], mistakes: &mut Mistakes) {
    for (at, _) in ports.iter().enumerate().filter(|(_, port)| port.peer.is_some()) {
        let problem = "a routed port has no peer; leave it out, or set forwarding.mode = \"pairs\"";
        mistakes.add(&format!("port[{at}].peer"), problem);
    }
    for (at, _) in ports.iter().enumerate().filter(|(_, port)| port.lcores.is_some()) {
        let problem =
            "every lcore polls a routed port, since packets may leave by any; leave it out";
        mistakes.add(&format!("port[{at}].lcores"), problem);
    }
}

/// Notes where a port that leaves marks and stacks in packets is none of an edge that faces hosts,
/// and where the host's sink would count packets that were flooded.
pub(super) fn check_host_sinks(
    ports: &[PortConfig],
    (role, skip_flooded): (NodeRole, bool),
    mistakes: &mut Mistakes,
) {
    for (at, port) in ports.iter().enumerate().filter(|(_, port)| port.host_sink) {
        let problem = if role != NodeRole::Edge {
            "only edges leave marks and stacks to hosts' sinks; leave it out"
        } else if port.role != Role::Host {
            "the port does not face hosts; set host_sink at its peer"
        } else if skip_flooded {
            "hosts' sinks don't know what was flooded; leave forwarding.skip_flooded out"
        } else {
            continue;
        };
        mistakes.add(&format!("port[{at}].host_sink"), problem);
    }
}

/// Notes ports of a transit switch that face hosts.
pub(super) fn check_transit(ports: &[PortConfig], mistakes: &mut Mistakes) {
    for (at, port) in ports.iter().enumerate().filter(|(_, port)| port.role == Role::Host) {
        let key = format!("port[{at}].role");
        if mistakes.is_sound(&key) {
            let problem = format!(
                "{} faces hosts, but all ports of a transit switch face the fabric; set role = \
                 \"fabric\" here, or leave out the switch's role = \"transit\"",
                port.name
            );
            mistakes.add(&key, problem);
        }
    }
}
