//! The switch's configuration: one TOML file.
//!
//! It says which DPDK ports there are and how they belong together; how DPDK finds those ports is
//! for the EAL arguments. Memory, thresholds, epochs and the hash key come from the controller.

mod carrier;
mod choice;
mod mistakes;
mod ports;
mod reader;
mod sketchint;

use std::path::Path;

use calumma_switch_host::metrics::MetricsConfig;
use calumma_switch_host::{NodeRole, TlsFiles, check_exposure};
use calumma_wire::Marking;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use self::carrier::{CarrierConfig, CarrierKind, MeasureConfig};
pub use self::mistakes::{Mistake, Mistakes};
pub use self::ports::{Polled, PortConfig, Role};
pub use self::sketchint::{Pmtu, ReportsConfig, SketchintConfig};
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
    /// The certificate that the switch shows the controller, and whom it believes.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// Whether a controller on another host may be called without TLS.
    #[serde(default)]
    pub insecure: bool,
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
    /// What becomes of INT stacks.
    #[serde(default)]
    pub sketchint: SketchintConfig,
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
    /// Empty polls of all ports before the first sleep: few where other switches wait for the
    /// core, many where packets that follow one another closely should not wait.
    pub idle_polls: u32,
    /// The CPU that all threads beside the lcores run on; best none of the lcores'. Unset, they
    /// run on those that no lcore has, and anywhere where lcores have all.
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
    /// The user that the switch becomes once DPDK has its devices and memory. Unset: it stays who
    /// it is.
    pub user: Option<String>,
    /// Memory for measured epochs that no controller has reported yet, in MiB. Of what is more,
    /// the oldest is given up.
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
        } else if mistakes.is_sound("controller")
            && mistakes.is_sound("tls")
            && let Err(problem) = check_exposure(&self.controller, self.tls.as_ref(), self.insecure)
        {
            mistakes.add("controller", problem);
        }
        if mistakes.is_sound("metrics")
            && let Err(problem) = self.metrics.check_exposure(self.insecure)
        {
            mistakes.add("metrics.listen", problem);
        }
        self.carrier.check(mistakes);
        self.process.check(mistakes);
        self.sketchint.check(self.role, self.forwarding.mode, mistakes);
        ports::check(&self.ports, mistakes);
        match self.forwarding.mode {
            Mode::Pairs if self.role == NodeRole::Transit => mistakes.add(
                "forwarding.mode",
                "a transit switch routes; set mode = \"routed\" and give interfaces and routes",
            ),
            Mode::Routed if self.role == NodeRole::Host => mistakes.add(
                "forwarding.mode",
                "an end host's sink joins its network and its kernel; set mode = \"pairs\"",
            ),
            Mode::Pairs => ports::check_peers(&self.ports, mistakes),
            Mode::Routed => ports::check_routed(&self.ports, mistakes),
        }
        if self.role == NodeRole::Transit {
            ports::check_transit(&self.ports, mistakes);
        }
        let skip_flooded = self.forwarding.skip_flooded;
        ports::check_host_sinks(&self.ports, (self.role, skip_flooded), mistakes);
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
            keys: self.measure.keys,
            strip: self.sketchint.strip,
        }
    }

    /// What all switches of a network must do alike, as the controller is told.
    pub fn marking(&self) -> Marking {
        let offers: Vec<_> = self.carriers().into_iter().map(|(words, _)| words).collect();
        let carrier = offers.first().cloned().unwrap_or_else(|| self.carrier.words());
        Marking { carrier, tunnels: self.measure.tunnels.name().to_owned(), offers }
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

    /// What a switch that runs by this configuration goes by once it has followed `new` as far as
    /// it can, and the keys in which it can't: they take effect when it is started again.
    pub fn following(&self, new: &Self) -> (Self, Vec<&'static str>) {
        let mut followed = self.clone();
        followed.policy = new.policy;
        // The next connection to the controller goes by it.
        followed.tls.clone_from(&new.tls);
        followed.polling = PollingConfig { control_cpu: self.polling.control_cpu, ..new.polling };
        // Where the mark is and what is measured is the same at all edges of a network, so one
        // alone can't change it; what it gives back at egress, it can.
        let carrier = !self.carrier.marks_as(&new.carrier);
        if !carrier {
            followed.carrier = new.carrier;
        }
        let kinds = [&self.carrier, &new.carrier].map(CarrierConfig::kind);
        let dscp = carrier && kinds == [CarrierKind::Auto; 2];
        let differences = [
            ("name", self.name != new.name),
            ("role", self.role != new.role),
            ("controller", self.controller != new.controller),
            ("insecure", self.insecure != new.insecure),
            ("port", self.ports != new.ports),
            ("carrier.kind, signature and ether_type", carrier && !dscp),
            ("carrier.dscp, where kind is not \"tos\"", dscp),
            ("measure", self.measure != new.measure),
            // A session goes by it: without sinks everywhere, no source may insert.
            ("sketchint.strip", self.sketchint.strip != new.sketchint.strip),
            ("sketchint.mtu", self.sketchint.mtu != new.sketchint.mtu),
            ("sketchint.pmtu", self.sketchint.pmtu != new.sketchint.pmtu),
            ("sketchint.reports", self.sketchint.reports != new.sketchint.reports),
            ("polling.control_cpu", self.polling.control_cpu != new.polling.control_cpu),
            ("metrics", self.metrics != new.metrics),
            ("process", self.process != new.process),
            ("forwarding.mode", self.forwarding.mode != new.forwarding.mode),
            (
                "forwarding.skip_flooded",
                self.forwarding.skip_flooded != new.forwarding.skip_flooded,
            ),
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
mod tests;
