//! The switch's configuration: one TOML file.
//!
//! It says which DPDK ports there are and how they belong together; how DPDK finds those ports is
//! for the EAL arguments. Memory, thresholds, epochs and the hash key come from the controller.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;

use crate::carrier::{Carrier, FlowLabel, Shim, SignedTos, Tos};
use crate::parse::tunnel::Tunnels;
use crate::worker::{Policy, Treatment};

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The edge's name, by which the controller knows it.
    pub name: String,
    /// The controller's address, host and port.
    pub controller: String,
    /// The ports, at least two.
    #[serde(rename = "port")]
    pub ports: Vec<PortConfig>,
    /// What becomes of packets that can't be measured.
    #[serde(default)]
    pub policy: PolicyConfig,
    /// How packets carry their mark.
    #[serde(default)]
    pub carrier: CarrierConfig,
    /// What is measured of a packet.
    #[serde(default)]
    pub measure: MeasureConfig,
    /// How lcores poll.
    #[serde(default)]
    pub polling: PollingConfig,
}

/// One DPDK port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// The device's name as DPDK has it: a PCI address, or the name of a `--vdev`.
    pub name: String,
    /// What is on the other side.
    pub role: Role,
    /// The port that packets from this one go to.
    pub peer: String,
    /// Descriptors of each receive queue.
    #[serde(default = "default_descriptors")]
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue.
    #[serde(default = "default_descriptors")]
    pub tx_descriptors: u16,
}

fn default_descriptors() -> u16 {
    1024
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

/// What becomes of packets that can't be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Packets whose headers can't be read to the ports.
    pub malformed: Treatment,
    /// Well-formed packets that are not measured.
    pub unmeasured: Treatment,
}

/// How packets carry their mark. The same at all edges of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CarrierConfig {
    /// Where.
    pub kind: CarrierKind,
    /// With kind "tos": the DSCP (0 to 63) that packets are given back at egress, its upper three
    /// bits or, with a signature, all of it. Unset, 0.
    pub dscp: Option<u8>,
    /// With kind "tos": whether the lower three bits of the DSCP tell marked packets from others.
    /// Unset, they don't.
    pub signature: Option<bool>,
    /// With kind "shim": its EtherType. Unset, that for local experiments.
    pub ether_type: Option<u16>,
}

/// Where packets carry their mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CarrierKind {
    /// In the ToS byte or traffic class.
    #[default]
    Tos,
    /// In the IPv6 flow label.
    FlowLabel,
    /// In a header between Ethernet and IP.
    Shim,
}

impl CarrierConfig {
    /// EtherTypes that can't be the shim's, since the switch reads them: IPv4, ARP, VLAN tags, IPv6.
    const TAKEN: [u16; 5] = [0x0800, 0x0806, 0x8100, 0x88A8, 0x86DD];

    /// The least number that is an EtherType and not a length.
    const LEAST_ETHER_TYPE: u16 = 0x0600;

    /// What is wrong with the section, and the remedy.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check(&self) -> Result<(), String> {
        let tos = self.kind == CarrierKind::Tos;
        if let Some(dscp) = self.dscp {
            if !tos {
                return Err(
                    "carrier.dscp: only kind = \"tos\" gives a DSCP back; leave it out".into()
                );
            }
            if dscp > 63 {
                return Err(format!("carrier.dscp = {dscp}: a DSCP is 0 to 63"));
            }
        }
        if self.signature.is_some() && !tos {
            return Err(
                "carrier.signature: kinds other than \"tos\" always have one; leave it out".into(),
            );
        }
        match self.ether_type {
            Some(_) if self.kind != CarrierKind::Shim => {
                Err("carrier.ether_type: only kind = \"shim\" has one; leave it out".into())
            }
            Some(taken) if taken < Self::LEAST_ETHER_TYPE || Self::TAKEN.contains(&taken) => {
                Err(format!(
                    "carrier.ether_type = {taken:#06x}: that stands for something else; take one \
                     that nothing in the network uses, 0x88b5 for example"
                ))
            }
            _ => Ok(()),
        }
    }

    /// The carrier.
    pub fn carrier(&self) -> Carrier {
        let dscp = self.dscp.unwrap_or_default();
        match (self.kind, self.signature) {
            (CarrierKind::Tos, Some(true)) => Carrier::SignedTos(SignedTos { dscp }),
            (CarrierKind::Tos, _) => Carrier::Tos(Tos { dscp }),
            (CarrierKind::FlowLabel, _) => Carrier::FlowLabel(FlowLabel),
            (CarrierKind::Shim, _) => Carrier::Shim(
                self.ether_type.map_or_else(Shim::default, |ether_type| Shim { ether_type }),
            ),
        }
    }
}

/// What is measured of a packet. The same at all edges of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeasureConfig {
    /// By which header packets in VXLAN and Geneve tunnels are measured.
    pub tunnels: Tunnels,
}

/// How lcores poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PollingConfig {
    /// Sleep this long, in microseconds, after a thousand empty polls in a row; 0 polls without
    /// pause. A switch on cores of its own should not sleep; one that shares them must.
    pub idle_sleep_us: u32,
    /// The CPU that the control thread is pinned to; best none of the lcores'. Unset, it runs where
    /// the kernel puts it.
    pub control_cpu: Option<usize>,
    /// How often a full transmit queue is tried again before packets are dropped.
    pub transmit_retries: u32,
}

impl Default for PollingConfig {
    fn default() -> Self {
        Self { idle_sleep_us: 0, control_cpu: None, transmit_retries: 64 }
    }
}

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{path}: {source}; give the path of the edge's configuration with --config")]
    Read {
        /// The file.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is no such configuration.
    #[error("{path}: {source}")]
    Parse {
        /// The file.
        path: String,
        /// Line, column and what is wrong there.
        source: Box<toml::de::Error>,
    },
    /// The file contradicts itself.
    #[error("{path}: {problem}")]
    Contradiction {
        /// The file.
        path: String,
        /// What contradicts what, and the remedy.
        problem: String,
    },
}

impl Config {
    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// Names the file, the place in it, and the remedy.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: name.clone(), source })?;
        Self::parse(&text, &name)
    }

    /// Checks the text of a configuration; `path` is named in errors.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(text: &str, path: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|source| ConfigError::Parse {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        config
            .check()
            .map_err(|problem| ConfigError::Contradiction { path: path.to_owned(), problem })?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.name.is_empty() || self.name.len() > 64 {
            return Err("name: an edge's name has 1 to 64 bytes".to_owned());
        }
        self.carrier.check()?;
        if self.ports.len() < 2 {
            return Err("port: at least two [[port]] sections, joined by `peer`".to_owned());
        }
        let mut names = HashSet::new();
        for port in &self.ports {
            if !names.insert(port.name.as_str()) {
                return Err(format!("port {}: named twice", port.name));
            }
            if port.rx_descriptors == 0 || port.tx_descriptors == 0 {
                return Err(format!("port {}: a queue has at least one descriptor", port.name));
            }
        }
        let peers: HashMap<&str, &PortConfig> =
            self.ports.iter().map(|port| (port.name.as_str(), port)).collect();
        for port in &self.ports {
            let Some(peer) = peers.get(port.peer.as_str()) else {
                return Err(format!(
                    "port {}: its peer {} is not among the ports ({})",
                    port.name,
                    port.peer,
                    self.ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ")
                ));
            };
            if peer.role == port.role {
                return Err(format!(
                    "port {}: its peer {} has the same role; one of them must face hosts, the \
                     other the fabric",
                    port.name, port.peer
                ));
            }
        }
        Ok(())
    }

    /// How workers treat packets.
    pub fn policy(&self) -> Policy {
        Policy {
            malformed: self.policy.malformed,
            unmeasured: self.policy.unmeasured,
            carrier: self.carrier.carrier(),
            tunnels: self.measure.tunnels,
        }
    }

    /// Position of each port's peer among the ports.
    pub fn peers(&self) -> Vec<usize> {
        let position =
            |name: &str| self.ports.iter().position(|port| port.name == name).unwrap_or_default();
        self.ports.iter().map(|port| position(&port.peer)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: &str = r#"
        name = "e1"
        controller = "127.0.0.1:7600"

        [[port]]
        name = "net_af_packet0"
        role = "host"
        peer = "net_af_packet1"

        [[port]]
        name = "net_af_packet1"
        role = "fabric"
        peer = "net_af_packet0"
    "#;

    fn problem(text: &str) -> String {
        Config::parse(text, "edge.toml").unwrap_err().to_string()
    }

    #[test]
    fn a_pair_of_ports_is_enough() {
        let config = Config::parse(PAIR, "edge.toml").unwrap();
        assert_eq!(config.peers(), [1, 0]);
        assert_eq!(config.ports[0].role, Role::Host);
        assert_eq!(config.policy(), Policy::default());
    }

    #[test]
    fn a_carrier_is_what_the_configuration_says() {
        for (section, wanted) in [
            ("dscp = 46", Carrier::Tos(Tos { dscp: 46 })),
            ("signature = true\ndscp = 8", Carrier::SignedTos(Tos { dscp: 8 })),
            ("kind = 'flow-label'", Carrier::FlowLabel(FlowLabel)),
            ("kind = 'shim'", Carrier::Shim(Shim { ether_type: 0x88B5 })),
            ("kind = 'shim'\nether_type = 0x9ABC", Carrier::Shim(Shim { ether_type: 0x9ABC })),
        ] {
            let text = format!("{PAIR}\n[carrier]\n{section}\n[measure]\ntunnels = 'inner'");
            let policy = Config::parse(&text, "edge.toml").unwrap().policy();
            assert_eq!((policy.carrier, policy.tunnels), (wanted, Tunnels::Inner));
        }
    }

    #[test]
    fn the_ready_configurations_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dpdk-config");
        let mut files = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                Config::load(&path).unwrap();
                files += 1;
            }
        }
        assert!(files >= 4);
    }

    #[test]
    fn errors_name_the_file_the_place_and_the_remedy() {
        let typo = problem(&PAIR.replace("peer = \"net_af_packet1\"", "pear = \"x\""));
        assert!(typo.contains("edge.toml") && typo.contains("pear") && typo.contains("line"));

        let stranger = problem(&PAIR.replace("peer = \"net_af_packet1\"", "peer = \"eth7\""));
        assert!(stranger.contains("its peer eth7 is not among the ports"));

        let same_role = problem(&PAIR.replace("\"fabric\"", "\"host\""));
        assert!(same_role.contains("one of them must face hosts"));

        let dscp = problem(&format!("{PAIR}\n[carrier]\ndscp = 64"));
        assert!(dscp.contains("carrier.dscp = 64"));

        for (section, wanted) in [
            ("kind = 'shim'\nether_type = 0x0800", "carrier.ether_type = 0x0800"),
            ("kind = 'shim'\nether_type = 1500", "nothing in the network uses"),
            ("ether_type = 0x88b5", "only kind = \"shim\""),
            ("kind = 'shim'\ndscp = 0", "only kind = \"tos\""),
            ("kind = 'flow-label'\nsignature = true", "carrier.signature"),
            ("kind = 'vlan'", "flow-label"),
        ] {
            let problem = problem(&format!("{PAIR}\n[carrier]\n{section}"));
            assert!(problem.contains(wanted), "{problem}");
        }

        let missing = Config::load(Path::new("/nonexistent/edge.toml")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/edge.toml") && missing.contains("--config"));
    }
}
