//! The switch's configuration: one TOML file.
//!
//! It says which DPDK ports there are and how they belong together; how DPDK finds those ports is
//! for the EAL arguments. Memory, thresholds, epochs and the hash key come from the controller.

mod carrier;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;

pub use self::carrier::{CarrierConfig, CarrierKind};
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
        if let Some((place, problem)) = self.carrier.mistakes().into_iter().next() {
            return Err(format!("{place}: {problem}"));
        }
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
        assert!(dscp.contains("carrier.dscp: 64"));

        let missing = Config::load(Path::new("/nonexistent/edge.toml")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/edge.toml") && missing.contains("--config"));
    }
}
