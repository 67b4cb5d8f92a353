//! The daemon's configuration: one TOML file.
//!
//! It says where the driver is, which ports there are, where packets go, and how collection packets
//! get in and out.
//! Memory, thresholds, epochs and the hash key come from the controller.

use std::collections::HashSet;
use std::path::Path;

use calumma_switch_host::metrics::MetricsConfig;
use calumma_switch_host::{NodeRole, TlsFiles, check_exposure};
use serde::Deserialize;

use crate::pipes;
use crate::routes::{self, RouteConfig};

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The switch's name, by which the controller knows it.
    pub name: String,
    /// Its role in the network.
    #[serde(default)]
    pub role: NodeRole,
    /// The controller's address, host and port.
    pub controller: String,
    /// The certificate that the switch shows the controller, and whom it believes.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// Whether a controller on another host may be called without TLS.
    #[serde(default)]
    pub insecure: bool,
    /// The switch's driver.
    pub driver: DriverConfig,
    /// How sketches come out of the switch.
    #[serde(default)]
    pub collection: CollectionConfig,
    /// How packets carry their mark.
    #[serde(default)]
    pub carrier: CarrierConfig,
    /// Where the daemon's counters can be read.
    #[serde(default)]
    pub metrics: MetricsConfig,
    /// Ethernet types that go to the CPU port: ARP, LLDP, ...
    #[serde(default)]
    pub punt: Vec<u16>,
    /// The ports.
    #[serde(rename = "port")]
    pub ports: Vec<PortConfig>,
    /// Where packets go that no port has a peer for.
    #[serde(default, rename = "route")]
    pub routes: Vec<RouteConfig>,
}

/// The switch's driver.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DriverConfig {
    /// Where it offers BFRuntime: host and port.
    pub address: String,
    /// The program's name there.
    pub program: String,
    /// The device.
    pub device: u32,
    /// The number that the daemon is known by; each client of the driver needs its own.
    pub client: u32,
}

impl Default for DriverConfig {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:50052".to_owned(),
            program: "edge".to_owned(),
            device: 0,
            client: 1,
        }
    }
}

/// Ethernet types of packets that are measured: IPv4, and the tags of VLANs.
const MEASURED: [u16; 3] = [0x0800, 0x8100, 0x88A8];

/// Ways for sketches to come out of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Packets that take the registers along (appendix D of the ChameleMon paper): milliseconds.
    #[default]
    Packets,
    /// Reads through the driver: no CPU port is needed, but epochs must be long.
    Registers,
}

/// How sketches come out of the switch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CollectionConfig {
    /// By packets or by reads of registers.
    pub method: Method,
    /// The network interface that leads to the switch's CPU port.
    pub interface: String,
    /// The number of the CPU port in the program.
    pub cpu_port: u16,
    /// A port that leads back into the switch.
    pub recirculation_port: u16,
    /// The mirror session of the copies that go on collecting.
    pub mirror_session: u16,
    /// The mirror session of notices.
    pub notice_session: u16,
    /// Milliseconds without any packet from the switch after which the missing ones are asked for
    /// again.
    pub retry_ms: u64,
}

impl Default for CollectionConfig {
    fn default() -> Self {
        Self {
            method: Method::Packets,
            interface: String::new(),
            cpu_port: 64,
            recirculation_port: 68,
            mirror_session: 1,
            notice_session: 2,
            retry_ms: 5,
        }
    }
}

/// How packets carry their mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CarrierConfig {
    /// Where, as a software edge's file has it: "tos" and "ip-id" are those that the program can,
    /// each where it was compiled for it.
    pub kind: CarrierKind,
    /// With kind "tos": the DSCP (0 to 63) whose upper three bits packets are given back at egress.
    pub dscp: u8,
}

/// Where packets of a network carry their mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CarrierKind {
    /// In the ToS byte.
    #[default]
    Tos,
    /// In the IPv4 identification.
    IpId,
    /// In the IPv6 flow label.
    FlowLabel,
    /// In a header between Ethernet and IP.
    Shim,
    /// Where the controller says.
    Auto,
}

impl CarrierKind {
    /// Where packets carry their mark, as a software edge says it to the controller.
    pub fn words(self) -> &'static str {
        match self {
            Self::Tos => "tos",
            Self::IpId => "ip-id",
            Self::FlowLabel => "flow-label",
            Self::Shim => "shim",
            Self::Auto => "auto",
        }
    }

    /// What the choice costs, for who checks the file.
    pub fn costs(self) -> &'static str {
        match self {
            Self::Tos => {
                "the mark is in the upper three bits of the DSCP: what hosts write there is lost, and \
                 packets that no edge has marked look like others. kind = \"ip-id\" has neither, with \
                 edge.p4 compiled for it (docs/tofino.md)"
            }
            Self::IpId => {
                "the mark is in the IPv4 identification, which leaves as 0 or, where the packet may be \
                 fragmented, as a fresh number. Fragments and packets with an authentication header are \
                 not measured, nor is what has no DF and is longer than the controller's [domain] \
                 fabric_mtu, 1280 bytes unless it says otherwise"
            }
            Self::FlowLabel | Self::Shim | Self::Auto => "a Tofino can't",
        }
    }

    /// Why a Tofino can't.
    fn hindrance(self) -> Option<&'static str> {
        match self {
            Self::Tos | Self::IpId => None,
            Self::FlowLabel => Some("a Tofino edge does not measure IPv6"),
            Self::Shim => Some("the program has no header for a shim"),
            Self::Auto => Some(
                "a Tofino's program was compiled for one carrier: name that, and the controller takes \
                 it for what the switch offers",
            ),
        }
    }
}

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// Its number in the program (`D_P` in the driver's list of ports).
    pub number: u16,
    /// What is on the other side.
    pub role: Role,
    /// The number of the port that all packets from this one go to; without one they are routed.
    pub peer: Option<u16>,
    /// Longest IP packet that may leave by it with INT, in bytes without VLAN tags.
    #[serde(default = "usual_mtu")]
    pub mtu: u16,
    /// Its speed; without one somebody else brings it up.
    pub speed: Option<Speed>,
    /// Its forward error correction.
    #[serde(default)]
    pub fec: Fec,
    /// Whether it agrees on a speed with the other side.
    #[serde(default)]
    pub autonegotiation: AutoNegotiation,
}

/// That of links where nobody says another.
const fn usual_mtu() -> u16 {
    1500
}

/// The speed of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "they say themselves what they are")]
pub enum Speed {
    #[serde(rename = "1G")]
    G1,
    #[serde(rename = "10G")]
    G10,
    #[serde(rename = "25G")]
    G25,
    #[serde(rename = "40G")]
    G40,
    #[serde(rename = "50G")]
    G50,
    #[serde(rename = "100G")]
    G100,
    #[serde(rename = "200G")]
    G200,
    #[serde(rename = "400G")]
    G400,
}

/// Forward error correction of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fec {
    /// None.
    #[default]
    None,
    /// Fire code (IEEE 802.3, clause 74).
    Fc,
    /// Reed-Solomon (clauses 91 and 108).
    Rs,
}

/// Whether a port agrees on its speed with the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AutoNegotiation {
    /// As the driver thinks right for what is plugged in.
    #[default]
    Default,
    /// Yes.
    On,
    /// No.
    Off,
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

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{path}: {source}; give the path of the daemon's configuration with --config")]
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
        match config.problem() {
            None => Ok(config),
            Some(problem) => Err(ConfigError::Contradiction { path: path.to_owned(), problem }),
        }
    }

    fn problem(&self) -> Option<String> {
        if self.name.is_empty() || self.name.len() > calumma_wire::MAX_NAME_BYTES {
            return Some("name: a switch's name has 1 to 64 bytes".to_owned());
        }
        if let Err(why) = check_exposure(&self.controller, self.tls.as_ref(), self.insecure) {
            return Some(format!("controller = {:?}: {why}", self.controller));
        }
        if let Err(why) = self.metrics.check_exposure(self.insecure) {
            return Some(format!("metrics.listen: {why}"));
        }
        if let Some(why) = self.carrier.kind.hindrance() {
            let others = "all edges of its network go by \"tos\", or all by \"ip-id\"";
            return Some(format!("carrier.kind: {why}; {others}"));
        }
        if self.carrier.kind == CarrierKind::IpId {
            if self.role != NodeRole::Edge {
                let why = "what a transit switch pushes into needs the ToS byte for its marker";
                return Some(format!("carrier.kind = \"ip-id\": {why}; only an edge has it"));
            }
            if self.carrier.dscp != 0 {
                return Some("carrier.dscp: only kind = \"tos\" gives a DSCP back".to_owned());
            }
        }
        if self.carrier.dscp > 63 {
            return Some(format!("carrier.dscp = {}: a DSCP is 0 to 63", self.carrier.dscp));
        }
        let collection = &self.collection;
        if collection.method == Method::Packets && collection.interface.is_empty() {
            return Some(
                "collection.interface: name the network interface of the switch's CPU port, or set \
                 collection.method = \"registers\""
                    .to_owned(),
            );
        }
        if collection.mirror_session == collection.notice_session {
            let why = "collection.notice_session: it is mirror_session's number; each has its own";
            return Some(why.to_owned());
        }
        if let Some(kind) = self.punt.iter().find(|kind| MEASURED.contains(kind)) {
            return Some(format!(
                "punt: {kind:#06x} is IPv4 or a VLAN tag before it, which is measured: what goes to the \
                 CPU port instead of its way would be lost"
            ));
        }
        if self.role == NodeRole::Host {
            let why = "role = \"host\": an end host's sink is software; run calumma-edge there";
            return Some(why.to_owned());
        }
        let is_transit = self.role == NodeRole::Transit;
        let mut numbers = HashSet::from([collection.cpu_port, collection.recirculation_port]);
        for port in &self.ports {
            if !numbers.insert(port.number) {
                return Some(format!(
                    "port {}: named twice, or the CPU or recirculation port",
                    port.number
                ));
            }
            if is_transit && port.role == Role::Host {
                return Some(format!(
                    "port {}: a transit switch has no port that faces hosts; set role = \"edge\" for the \
                     switch, or role = \"fabric\" for the port",
                    port.number
                ));
            }
            let Some(number) = port.peer else { continue };
            match self.ports.iter().find(|other| other.number == number) {
                None => {
                    return Some(format!(
                        "port {}: its peer {number} is not among the ports",
                        port.number
                    ));
                }
                Some(peer) if peer.role == port.role && !is_transit => {
                    return Some(format!(
                        "port {}: its peer {number} has the same role; one of them must face hosts, \
                         the other the fabric",
                        port.number
                    ));
                }
                Some(_) => {}
            }
        }
        if self.ports.is_empty() {
            return Some("port: at least two [[port]] sections".to_owned());
        }
        pipes::problem(self).or_else(|| routes::problem(&self.routes, &self.ports))
    }

    /// This configuration with all of `new` that can change while the switch runs, and the names of
    /// what differs beyond that.
    pub fn following(&self, new: &Self) -> (Self, Vec<&'static str>) {
        let kept = Self {
            name: self.name.clone(),
            role: self.role,
            controller: self.controller.clone(),
            insecure: self.insecure,
            driver: self.driver.clone(),
            collection: self.collection.clone(),
            metrics: self.metrics.clone(),
            ..new.clone()
        };
        let fixed = [
            ("name", self.name != new.name),
            ("role", self.role != new.role),
            ("controller", self.controller != new.controller),
            ("insecure", self.insecure != new.insecure),
            ("[driver]", self.driver != new.driver),
            ("[collection]", self.collection != new.collection),
            ("[metrics]", self.metrics != new.metrics),
        ];
        (kept, fixed.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: &str = r#"
        name = "e2"
        controller = "127.0.0.1:7600"
        [driver]
        program = "edge"
        [collection]
        interface = "cpu0"
        [[port]]
        number = 1
        role = "host"
        peer = 2
        [[port]]
        number = 2
        role = "fabric"
        peer = 1
    "#;

    fn problem(text: &str) -> String {
        Config::parse(text, "switchd.toml").unwrap_err().to_string()
    }

    #[test]
    fn a_pair_of_ports_and_a_cpu_port_are_enough() {
        let config = Config::parse(PAIR, "switchd.toml").unwrap();
        assert_eq!(config.driver, DriverConfig::default());
        assert_eq!((config.ports[0].role, config.collection.cpu_port), (Role::Host, 64));
    }

    #[test]
    fn errors_name_the_file_the_place_and_the_remedy() {
        let typo = problem(&PAIR.replace("peer = 2", "pear = 2"));
        assert!(typo.contains("switchd.toml") && typo.contains("pear") && typo.contains("line"));
        let none = problem(&PAIR.replace("interface = \"cpu0\"", ""));
        assert!(none.contains("collection.method = \"registers\""), "{none}");
        let stranger = problem(&PAIR.replace("peer = 2", "peer = 9"));
        assert!(stranger.contains("its peer 9 is not among the ports"));
        let same_role = problem(&PAIR.replace("\"fabric\"", "\"host\""));
        assert!(same_role.contains("one of them must face hosts"));
        let taken = problem(&PAIR.replace("number = 1", "number = 64"));
        assert!(taken.contains("port 64"), "{taken}");
        let stray = problem(&format!(
            "{PAIR}[[route]]\nto = \"10.0.0.0/8\"\n[[route.via]]\nport = 3\n\
             mac = \"02:00:00:00:00:01\"\nfrom = \"02:00:00:00:00:02\"\n"
        ));
        assert!(stray.contains("route 10.0.0.0/8: port 3 is not among"), "{stray}");
        let neither = problem(&format!("{PAIR}[[route]]\nto = \"10.0.0.0/8\"\n"));
        assert!(neither.contains("next hops (via) or discard"), "{neither}");
        let host = problem(&format!("{PAIR}[[route]]\nto = \"10.0.0.1/8\"\ndiscard = true\n"));
        assert!(host.contains("the network is 10.0.0.0/8"), "{host}");
        let long = problem(&format!("{PAIR}[[route]]\nto = \"fd00::/65\"\ndiscard = true\n"));
        assert!(long.contains("at most 64 bits"), "{long}");
        let of_host = problem(&PAIR.replace("name = \"e2\"", "name = \"h1\"\nrole = \"host\""));
        assert!(of_host.contains("an end host's sink is software"), "{of_host}");
        let label = problem(&format!("{PAIR}[carrier]\nkind = \"flow-label\"\n"));
        assert!(label.contains("does not measure IPv6; all edges"), "{label}");
        let auto = problem(&format!("{PAIR}[carrier]\nkind = \"auto\"\n"));
        assert!(auto.contains("compiled for one carrier: name that"), "{auto}");
        let punted = problem(&PAIR.replace("[driver]", "punt = [0x0806, 0x8100]\n[driver]"));
        assert!(punted.contains("punt: 0x8100 is IPv4 or a VLAN tag"), "{punted}");
        let missing = Config::load(Path::new("/nonexistent/switchd.toml")).unwrap_err();
        assert!(missing.to_string().contains("--config"));
    }

    #[test]
    fn an_edge_may_have_marks_in_the_identification_and_then_no_dscp_to_give_back() {
        let signed = format!("{PAIR}[carrier]\nkind = \"ip-id\"\n");
        let config = Config::parse(&signed, "switchd.toml").unwrap();
        assert_eq!(config.carrier.kind.words(), "ip-id");
        let dscp = problem(&format!("{signed}dscp = 8\n"));
        assert!(dscp.contains("carrier.dscp: only kind = \"tos\""), "{dscp}");
        let transit = signed.replace("name = \"e2\"", "name = \"s1\"\nrole = \"transit\"");
        let marker = problem(&transit.replace("\"host\"", "\"fabric\""));
        assert!(marker.contains("only an edge has it"), "{marker}");
    }

    #[test]
    fn all_ports_of_a_transit_switch_face_the_fabric() {
        let transit = PAIR.replace("name = \"e2\"", "name = \"s1\"\nrole = \"transit\"");
        let host = problem(&transit);
        assert!(host.contains("port 1: a transit switch has no port that faces hosts"), "{host}");
        let all_fabric = transit.replace("\"host\"", "\"fabric\"");
        let config = Config::parse(&all_fabric, "switchd.toml").unwrap();
        assert_eq!((config.role, config.ports[0].peer), (NodeRole::Transit, Some(2)));
        let edge = Config::parse(PAIR, "switchd.toml").unwrap();
        assert_eq!((edge.role, edge.following(&config).1), (NodeRole::Edge, vec!["name", "role"]));
    }

    #[test]
    fn ports_and_routes_may_change_and_the_rest_stays() {
        let config = Config::parse(PAIR, "switchd.toml").unwrap();
        let text = PAIR.replace("7600", "7700").replace("peer = 1\n", "speed = \"100G\"\n");
        let new = Config::parse(&text.replace("peer = 2", ""), "switchd.toml").unwrap();
        let (followed, fixed) = config.following(&new);
        assert_eq!(fixed, ["controller"]);
        assert_eq!((followed.controller, followed.ports), (config.controller, new.ports));
    }
}
