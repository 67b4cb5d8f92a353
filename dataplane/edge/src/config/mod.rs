//! The switch's configuration: one TOML file.
//!
//! It says which DPDK ports there are and how they belong together; how DPDK finds those ports is
//! for the EAL arguments. Memory, thresholds, epochs and the hash key come from the controller.

mod carrier;
mod mistakes;
mod ports;
mod reader;

use std::path::Path;

use calumma_switch_host::metrics::MetricsConfig;
use calumma_wire::Marking;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use self::carrier::{CarrierConfig, CarrierKind, MeasureConfig};
pub use self::mistakes::{Mistake, Mistakes};
pub use self::ports::{Polled, PortConfig, Role};
use crate::carrier::Carrier;
use crate::forward::address::Mac;
use crate::forward::config::{ForwardingConfig, Mode, Plan};
use crate::worker::{Policy, Treatment};

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The switch's name, by which the controller knows it.
    pub name: String,
    /// What the switch does in the network.
    #[serde(default)]
    pub role: NodeRole,
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
    /// How packets find the port they leave by.
    #[serde(default)]
    pub forwarding: ForwardingConfig,
    /// What is measured of a packet.
    #[serde(default)]
    pub measure: MeasureConfig,
    /// How lcores poll.
    #[serde(default)]
    pub polling: PollingConfig,
    /// Where the switch's figures can be read.
    #[serde(default)]
    pub metrics: MetricsConfig,
    /// Whose process the switch is.
    #[serde(default)]
    pub process: ProcessConfig,
}

/// What a switch does in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeRole {
    /// Packets enter and leave the network there.
    #[default]
    Edge,
    /// It stands in the middle: all its ports face the fabric, and it routes.
    Transit,
}

impl NodeRole {
    /// The same, as the controller is told.
    pub fn to_wire(self) -> calumma_wire::Role {
        match self {
            Self::Edge => calumma_wire::Role::Edge,
            Self::Transit => calumma_wire::Role::Transit,
        }
    }
}

/// What lcores go by and may be changed while they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How packets are treated beyond measuring them.
    pub policy: Policy,
    /// As [`PollingConfig::idle_sleep_us`].
    pub idle_sleep_us: u32,
    /// As [`PollingConfig::idle_polls`].
    pub idle_polls: u32,
    /// As [`PollingConfig::transmit_retries`].
    pub transmit_retries: u32,
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

/// How lcores poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PollingConfig {
    /// Sleep this long, in microseconds, after `idle_polls` empty polls in a row; 0 polls without
    /// pause. A switch on cores of its own should not sleep; one that shares them must.
    pub idle_sleep_us: u32,
    /// Empty polls of all ports before the first sleep: few where other switches wait for the core,
    /// many where packets that follow one another closely should not wait.
    pub idle_polls: u32,
    /// The CPU that all threads beside the lcores run on; best none of the lcores'. Unset, they run on
    /// those that no lcore has, and anywhere where lcores have all.
    pub control_cpu: Option<usize>,
    /// How often a full transmit queue is tried again before packets are dropped.
    pub transmit_retries: u32,
}

impl Default for PollingConfig {
    fn default() -> Self {
        Self { idle_sleep_us: 0, idle_polls: 1000, control_cpu: None, transmit_retries: 64 }
    }
}

/// Whose process the switch is, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessConfig {
    /// The user that the switch becomes once DPDK has its devices and memory. Unset: it stays who it
    /// is.
    pub user: Option<String>,
    /// Memory for measured epochs that no controller has reported yet, in MiB. Of what is more, the
    /// oldest is given up.
    pub hold_mib: u32,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self { user: None, hold_mib: (calumma_switch_host::MOST_HELD >> 20) as u32 }
    }
}

impl ProcessConfig {
    /// Bytes that are held for a controller that is slow or away.
    pub fn most_held(&self) -> usize {
        (self.hold_mib as usize) << 20
    }

    fn check(&self, mistakes: &mut Mistakes) {
        if !(1..=65_536).contains(&self.hold_mib) {
            let problem = format!("{} MiB; give 1 to 65536", self.hold_mib);
            mistakes.add("process.hold_mib", problem);
        }
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
    #[error("{path}: {}", listed(mistakes))]
    Mistakes {
        /// The file.
        path: String,
        /// All that is wrong with it, in the order of its lines; at least one.
        mistakes: Vec<Mistake>,
    },
}

fn listed(mistakes: &[Mistake]) -> String {
    let noun = if mistakes.len() == 1 { "mistake" } else { "mistakes" };
    let lines = mistakes.iter().map(|mistake| format!("\n  {mistake}"));
    format!("{} {noun}{}", mistakes.len(), lines.collect::<String>())
}

impl Config {
    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// Names the file and every mistake in it, with its line and the remedy.
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
        let (table, errors) = DeTable::parse_recoverable(text);
        let span = table.span();
        let root = Spanned::new(span, DeValue::Table(table.into_inner()));
        let mut mistakes = Mistakes::of(text, &root);
        let config: Option<Self> = if errors.is_empty() {
            reader::read(&root, &mut mistakes)
        } else {
            // What else is wrong can't be told: the parser has guessed what was meant.
            for error in errors {
                let line = mistakes::line_of(text, error.span().map_or(0, |span| span.start));
                mistakes.add_at(line, "", error.message());
            }
            None
        };
        if let Some(config) = &config {
            config.check(&mut mistakes);
        }
        match (config, mistakes.into_found()) {
            (Some(config), found) if found.is_empty() => Ok(config),
            (_, mistakes) => Err(ConfigError::Mistakes { path: path.to_owned(), mistakes }),
        }
    }

    /// What types alone don't rule out. Each section has its own check.
    fn check(&self, mistakes: &mut Mistakes) {
        if mistakes.is_sound("name") && (self.name.is_empty() || self.name.len() > 64) {
            mistakes.add("name", "a switch's name has 1 to 64 bytes");
        }
        if mistakes.is_sound("controller") && !is_host_and_port(&self.controller) {
            let problem = format!("{:?} is no address; write HOST:PORT", self.controller);
            mistakes.add("controller", problem);
        }
        self.carrier.check(mistakes);
        self.process.check(mistakes);
        ports::check(&self.ports, mistakes);
        match self.forwarding.mode {
            Mode::Pairs if self.role == NodeRole::Transit => mistakes.add(
                "forwarding.mode",
                "a transit switch routes; set mode = \"routed\" and give interfaces and routes",
            ),
            Mode::Pairs => ports::check_peers(&self.ports, mistakes),
            Mode::Routed => ports::check_routed(&self.ports, mistakes),
        }
        if self.role == NodeRole::Transit {
            ports::check_transit(&self.ports, mistakes);
        }
        if mistakes.is_sound("port") {
            for (place, problem) in self.forwarding.problems(&self.ports) {
                mistakes.add(&place, problem);
            }
        }
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

    /// What all switches of a network must do alike, as the controller is told.
    pub fn marking(&self) -> Marking {
        Marking { carrier: self.carrier.words(), tunnels: self.measure.tunnels.name().to_owned() }
    }

    /// What lcores go by and may be changed while they run.
    pub fn settings(&self) -> Settings {
        Settings {
            policy: self.policy(),
            idle_sleep_us: self.polling.idle_sleep_us,
            idle_polls: self.polling.idle_polls,
            transmit_retries: self.polling.transmit_retries,
        }
    }

    /// What a switch that runs by this configuration goes by once it has followed `new` as far as it
    /// can, and the keys in which it can't: they take effect when it is started again.
    pub fn following(&self, new: &Self) -> (Self, Vec<&'static str>) {
        let mut followed = self.clone();
        followed.policy = new.policy;
        followed.polling = PollingConfig { control_cpu: self.polling.control_cpu, ..new.polling };
        // Where the mark is and what is measured is the same at all edges of a network, so one alone
        // can't change it; what it gives back at egress, it can.
        let carrier = !self.carrier.marks_as(&new.carrier);
        if !carrier {
            followed.carrier = new.carrier;
        }
        let differences = [
            ("name", self.name != new.name),
            ("role", self.role != new.role),
            ("controller", self.controller != new.controller),
            ("port", self.ports != new.ports),
            ("carrier.kind, signature and ether_type", carrier),
            ("measure", self.measure != new.measure),
            ("polling.control_cpu", self.polling.control_cpu != new.polling.control_cpu),
            ("metrics", self.metrics != new.metrics),
            ("process", self.process != new.process),
            ("forwarding.mode", self.forwarding.mode != new.forwarding.mode),
        ];
        let fixed = differences.into_iter().filter(|&(_, differs)| differs).map(|(key, _)| key);
        (followed, fixed.collect())
    }

    /// The ports that each of the EAL's lcores polls, given these lcores' numbers.
    ///
    /// # Errors
    /// When a port names an lcore that is not there, or an lcore has nothing to poll.
    pub fn polled(&self, lcores: &[u32]) -> anyhow::Result<Vec<Vec<Polled>>> {
        for port in &self.ports {
            let absent = |lcore: &&u32| !lcores.contains(lcore);
            if let Some(lcore) = port.lcores.iter().flatten().find(absent) {
                anyhow::bail!(
                    "port {} names lcore {lcore}, but the EAL has {lcores:?}: see its --lcores argument",
                    port.name
                );
            }
        }
        lcores.iter().map(|&lcore| self.polled_by(lcore)).collect()
    }

    fn polled_by(&self, lcore: u32) -> anyhow::Result<Vec<Polled>> {
        let ports: Vec<(usize, &PortConfig)> =
            self.ports.iter().enumerate().filter(|(_, port)| port.is_polled_by(lcore)).collect();
        anyhow::ensure!(
            !ports.is_empty(),
            "lcore {lcore} polls no port: add it to the `lcores` of some, or leave it out of the EAL's --lcores"
        );
        let peer = |port: &PortConfig| {
            ports.iter().position(|(_, other)| Some(&other.name) == port.peer.as_ref())
        };
        let polled = ports
            .iter()
            .map(|&(at, port)| Polled { port: at, peer: peer(port).unwrap_or_default() });
        Ok(polled.collect())
    }

    /// What a switch that forwards by routes goes by, on ports with these Ethernet addresses.
    ///
    /// # Errors
    /// Every mistake in the section; none once the configuration has been checked.
    pub fn plan(&self, macs: &[Mac]) -> anyhow::Result<Plan> {
        let shim = match self.carrier.carrier() {
            Carrier::Shim(shim) => Some(shim.ether_type),
            _ => None,
        };
        self.forwarding.plan(&self.ports, macs, shim).map_err(|problems| {
            let lines: Vec<_> = problems.iter().map(|(at, what)| format!("{at}: {what}")).collect();
            anyhow::anyhow!(lines.join("; "))
        })
    }
}

/// Whether a text has the form `HOST:PORT`; whether there is such a host shows when it is called.
fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|at| at > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::{FlowLabel, Shim, Tos};
    use crate::parse::tunnel::Tunnels;

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
        let both = vec![Polled { port: 0, peer: 1 }, Polled { port: 1, peer: 0 }];
        assert_eq!(config.polled(&[4, 7]).unwrap(), [both.clone(), both]);
        assert_eq!(config.ports[0].role, Role::Host);
        assert_eq!(config.policy(), Policy::default());
    }

    #[test]
    fn a_transit_switch_routes_between_ports_of_the_fabric() {
        let transit = r#"
            name = "s1"
            role = "transit"
            controller = "127.0.0.1:7600"
            [[port]]
            name = "net_af_packet0"
            role = "fabric"
            [[port]]
            name = "net_af_packet1"
            role = "fabric"
            [forwarding]
            mode = "routed"
            [[forwarding.interface]]
            port = "net_af_packet0"
            addresses = ["10.0.0.1/24"]
            [[forwarding.interface]]
            port = "net_af_packet1"
            addresses = ["10.0.1.1/24"]
        "#;
        let config = Config::parse(transit, "transit.toml").unwrap();
        assert_eq!(config.role.to_wire(), calumma_wire::Role::Transit);
        assert_eq!(Config::parse(PAIR, "edge.toml").unwrap().role, NodeRole::Edge);
        let with_host = problem(&transit.replacen("\"fabric\"", "\"host\"", 1));
        assert!(
            with_host.contains("transit switch") && with_host.contains("line 7"),
            "{with_host}"
        );
        let pairs = problem(&transit.replace("mode = \"routed\"", ""));
        assert!(pairs.contains("forwarding.mode"), "{pairs}");
        let other = problem(&transit.replace("\"transit\"", "\"core\""));
        assert!(other.contains("transit") && other.contains("edge"), "{other}");
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
    fn a_running_switch_follows_the_dscp_and_not_the_carrier() {
        let with = |section: &str| {
            Config::parse(&format!("{PAIR}\n[carrier]\n{section}"), "edge.toml").unwrap()
        };
        let running = with("dscp = 8");
        assert!(running.following(&with("dscp = 46\nsignature = false")).1.is_empty());
        for other in ["dscp = 8\nsignature = true", "kind = 'shim'"] {
            let fixed = running.following(&with(other)).1;
            assert_eq!(fixed, ["carrier.kind, signature and ether_type"], "{other}");
        }
    }

    #[test]
    fn what_a_carrier_can_not_be_is_said_with_the_remedy() {
        for (section, wanted) in [
            ("kind = 'shim'\nether_type = 0x0800", "carrier.ether_type: 0x0800"),
            ("kind = 'shim'\nether_type = 1500", "nothing in the network uses"),
            ("ether_type = 0x88b5", "only kind = \"shim\""),
            ("kind = 'shim'\ndscp = 0", "only kind = \"tos\""),
            ("kind = 'flow-label'\nsignature = true", "carrier.signature"),
            ("kind = 'vlan'", "flow-label"),
        ] {
            let problem = problem(&format!("{PAIR}\n[carrier]\n{section}"));
            assert!(problem.contains(wanted), "{problem}");
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
    fn one_error_lists_every_mistake_with_its_line_and_its_remedy() {
        let text = r#"
name = "e1"
controller = "nowhere"
colour = "green"

[carrier]
dscp = 64

[polling]
idle_sleep_us = "long"
transmit_retry = 3

[[port]]
name = "net_null0"
role = "hots"
peer = "net_null7"

[[port]]
role = "fabric"
rx_descriptors = 0
"#;
        let problem = problem(text);
        let lines: Vec<&str> = problem.lines().collect();
        assert_eq!(lines[0], "edge.toml: 9 mistakes");
        for (line, place, remedy) in [
            (3, "controller", "HOST:PORT"),
            (4, "colour", "there is no key colour here, but: name, role, controller, port"),
            (7, "carrier.dscp", "0 to 63"),
            (10, "polling.idle_sleep_us", "expected u32"),
            (11, "polling.transmit_retry", "transmit_retries"),
            (15, "port[0].role", "host, fabric"),
            (18, "port[1].name", "add it"),
            (18, "port[1].peer", "add it"),
            (20, "port[1].rx_descriptors", "at least one"),
        ] {
            let found = lines.iter().find(|found| found.contains(&format!(": {place}: ")));
            let found = found.unwrap_or_else(|| panic!("{place} in {problem}"));
            assert!(found.starts_with(&format!("  line {line}: ")), "{line}: {found}");
            assert!(found.contains(remedy), "{remedy}: {found}");
        }
    }

    #[test]
    fn a_running_switch_follows_a_new_configuration_as_far_as_it_can() {
        let old = Config::parse(PAIR, "edge.toml").unwrap();
        let sections = "\n[policy]\nmalformed = 'drop'\n[carrier]\ndscp = 46\n\
                        [polling]\nidle_sleep_us = 9\ncontrol_cpu = 1";
        let new = Config::parse(&format!("{PAIR}{sections}"), "edge.toml").unwrap();
        let (followed, fixed) = old.following(&new);
        assert_eq!((followed.policy, followed.carrier), (new.policy, new.carrier));
        assert_eq!((followed.polling.idle_sleep_us, followed.polling.control_cpu), (9, None));
        assert_eq!(fixed, ["polling.control_cpu"]);

        let other = PAIR.replace("e1", "e2") + "\n[carrier]\nkind = 'shim'";
        let other = Config::parse(&other, "edge.toml").unwrap();
        let (followed, fixed) = old.following(&other);
        assert_eq!(
            (followed, fixed),
            (old, vec!["name", "carrier.kind, signature and ether_type"])
        );
    }

    #[test]
    fn ports_may_have_lcores_of_their_own() {
        let pair = |at: usize, lcores: &str| {
            let port = |name: &str, role: &str, peer: &str| {
                format!(
                    "[[port]]\nname = 'eth{name}'\nrole = '{role}'\npeer = 'eth{peer}'\nlcores = {lcores}\n"
                )
            };
            let (a, b) = ((2 * at).to_string(), (2 * at + 1).to_string());
            port(&a, "host", &b) + &port(&b, "fabric", &a)
        };
        let text = format!(
            "name = 'e1'\ncontroller = '::1:7600'\n{}{}",
            pair(0, "[3]"),
            pair(1, "[3, 5]")
        );
        let config = Config::parse(&text, "edge.toml").unwrap();
        let polled = |port, peer| Polled { port, peer };
        let all = vec![polled(0, 1), polled(1, 0), polled(2, 3), polled(3, 2)];
        let second = vec![polled(2, 1), polled(3, 0)];
        assert_eq!(config.polled(&[3, 5]).unwrap(), [all, second]);

        let stranger = config.polled(&[3]).unwrap_err().to_string();
        assert!(stranger.contains("port eth2 names lcore 5, but the EAL has [3]"), "{stranger}");
        let idle = config.polled(&[3, 5, 6]).unwrap_err().to_string();
        assert!(idle.contains("lcore 6 polls no port"), "{idle}");
    }

    #[test]
    fn every_breach_of_toml_is_found() {
        let problem = problem("name = \ncontroller = 'a\n[carrier\n");
        for line in ["line 1:", "line 2:", "line 3:"] {
            assert!(problem.contains(line), "{problem}");
        }
    }

    #[test]
    fn sections_that_contradict_each_other_are_named() {
        let stranger = problem(&PAIR.replace("peer = \"net_af_packet1\"", "peer = \"eth7\""));
        assert!(stranger.contains("port[0].peer: there is no port eth7, but: net_af_packet0"));

        let same_role = problem(&PAIR.replace("\"fabric\"", "\"host\""));
        assert!(same_role.contains("one of them must face hosts"));

        let apart = problem(&PAIR.replace("role = \"host\"", "role = \"host\"\nlcores = [1, 2]"));
        assert!(apart.contains("port[0].lcores: net_af_packet0 and its peer"), "{apart}");
        let nobody = problem(&PAIR.replace("role = \"host\"", "role = \"host\"\nlcores = []"));
        assert!(nobody.contains("port[0].lcores: somebody must poll it"), "{nobody}");
        assert!(!nobody.contains("different"), "{nobody}");

        let twice = problem(&format!(
            "{PAIR}\n[[port]]\nname = \"net_af_packet0\"\nrole = \"host\"\npeer = \"net_af_packet1\""
        ));
        assert!(twice.contains("port[2].name: there is a port net_af_packet0 above"), "{twice}");

        let missing = Config::load(Path::new("/nonexistent/edge.toml")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/edge.toml") && missing.contains("--config"));
    }
}
