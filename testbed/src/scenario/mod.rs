//! Scenarios: a network, its traffic, what changes when, and what the reports are expected to say.
//!
//! A scenario is a TOML file (`docs/scenarios.md` explains every field). Whatever it expects, every
//! report of it is held against what really happened: one that claims to be certain and is not is a
//! failure in any scenario.

mod change;
pub mod command;
mod expect;
mod page;
mod play;
mod simulated;
mod stacks;
mod summary;
mod usage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use calumma_chamelemon::Layout;
use calumma_controller::analyse::Tasks;
use calumma_controller::attention::Bounds;
use calumma_controller::config::{AttentionSection, EpochSection};
use calumma_epoch::EpochClock;
use calumma_sketch::{HashKey, KeyKind};
use calumma_switchd::chamelemon::program;
use serde::Deserialize;

pub use self::change::{Change, Program};
pub use self::expect::{Expectation, Verdict};
pub use self::play::{Network, Played, play_in};
pub use self::simulated::{play, play_with};
pub use self::stacks::{Balance, Stacks};
pub use self::summary::{EpochSummary, SystemSummary};
pub use self::usage::{Held, Usage};

use crate::calumma::{CLOCK_GUARD_US, FLIGHT_GUARD_US};
use crate::carrier::Carrier;
use crate::simulate::{Detail, Lcores, Setup, SwitchQuality, Systems};
use crate::topology::{EdgeKind, LinkQuality, Topology};
use crate::workload::Draw;

/// Where a live fabric's collector of telemetry reports listens.
pub(crate) const COLLECTOR: &str = "127.0.0.1:32766";

/// A scenario, as its file gives it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it shows, in a few words.
    pub title: String,
    /// Epochs that it lasts.
    pub epochs: u64,
    /// Measurement systems that run from the beginning.
    #[serde(default = "chamelemon")]
    pub systems: Vec<String>,
    /// Parameters of systems by name, as the controller's configuration has them.
    #[serde(default)]
    pub system: BTreeMap<String, toml::Table>,
    /// Where everything random is drawn from.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// A topology's name, or the path of its file seen from the scenario's.
    #[serde(default = "papers_topology")]
    pub topology: String,
    /// What links do to packets that no topology file and no change says otherwise.
    #[serde(default)]
    pub links: LinkQuality,
    /// What switches do to packets besides measuring them, by their names; `all` is for those that
    /// are not named.
    #[serde(default)]
    pub switches: BTreeMap<String, SwitchQuality>,
    /// By how much clocks are off.
    #[serde(default)]
    pub clocks: Clocks,
    /// How finely traffic is simulated.
    #[serde(default)]
    pub detail: DetailName,
    /// With `detail = "packets"`, the share of an epoch over which a flow spreads its packets.
    #[serde(default)]
    pub spread: f64,
    /// How packets carry their marks.
    #[serde(default)]
    pub carrier: Carrier,
    /// Lcores of simulated software switches.
    #[serde(default)]
    pub lcores: Lcores,
    /// What edges of a live fabric do with packets.
    #[serde(default)]
    pub edges: EdgeForwarding,
    /// The MTU of the hosts of a live fabric, whose links carry 1500 bytes.
    pub host_mtu: Option<u16>,
    /// Whether edges of a live fabric, which route, send hosts the MTU that leaves room for stacks.
    #[serde(default)]
    pub pmtu: bool,
    /// What is in `[sketchint.reports]` of the edges of a live fabric, but for the collector, which
    /// is the testbed; without it, nothing is reported at once.
    pub reports: Option<toml::Table>,
    /// Packets with changed bytes a second that come to each edge of a live fabric, half of them
    /// from a host and half from the network.
    #[serde(default)]
    pub mutants: u32,
    /// Length of epochs and guards, as the controller's configuration has them.
    #[serde(default)]
    pub epoch: EpochSection,
    /// Memory of the switches, likewise.
    #[serde(default)]
    pub layout: Layout,
    /// Attention to begin with, likewise.
    #[serde(default)]
    pub attention: AttentionSection,
    /// Whether the controller moves attention, within the bounds that go with the layout.
    #[serde(default)]
    pub planner: bool,
    /// Whether edges probe the paths between them.
    #[serde(default)]
    pub probes: bool,
    /// What to report, likewise.
    #[serde(default)]
    pub tasks: Tasks,
    /// How long the controller waits for what is missing, in milliseconds.
    #[serde(default = "short_grace")]
    pub grace_ms: u64,
    /// How many reports of each system the live controller remembers, where it is not its default.
    #[serde(default)]
    pub history: Option<u64>,
    /// Whether the controller of a live fabric keeps an archive, which has to have every epoch that
    /// was reported.
    #[serde(default)]
    pub archive: bool,
    /// Kinds of traffic by name.
    pub traffic: BTreeMap<String, toml::Table>,
    /// Applications on the hosts of a live fabric; a simulation has none.
    #[serde(default)]
    pub application: Vec<Application>,
    /// What changes, and when.
    #[serde(default)]
    pub change: Vec<Change>,
    /// What reports are expected to say.
    #[serde(default)]
    pub expect: Vec<Expectation>,
    /// Where the file lies.
    #[serde(skip)]
    folder: PathBuf,
    /// The file as it is, for sections that go to a live controller.
    #[serde(skip)]
    file: toml::Table,
}

/// Sections of a scenario's file that are a controller's as they are.
const CONTROLLER_SECTIONS: [&str; 3] = ["layout", "attention", "tasks"];

fn chamelemon() -> Vec<String> {
    vec![calumma_chamelemon_analysis::NAME.to_owned()]
}

fn first_seed() -> u64 {
    1
}

fn papers_topology() -> String {
    "fat-tree:4x2".to_owned()
}

fn short_grace() -> u64 {
    200
}

/// What edges of a live fabric do with packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeForwarding {
    /// Each passes packets from one of two ports to the other.
    #[default]
    Pairs,
    /// They route.
    Routed,
}

/// A real application between the first host of one edge and the last host of another, for as long
/// as the scenario lasts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// What it is.
    pub kind: ApplicationKind,
    /// The client's edge.
    pub from: String,
    /// The server's edge.
    pub to: String,
    /// Megabits a second of a transfer.
    #[serde(default = "one")]
    pub mbit: u32,
    /// Short connections a second.
    #[serde(default = "one")]
    pub connections: u32,
    /// Pages asked for in a second.
    #[serde(default = "one")]
    pub requests: u32,
    /// Datagrams a second, or echo requests.
    #[serde(default = "one")]
    pub datagrams: u32,
    /// Over IPv6 instead of IPv4.
    #[serde(default)]
    pub ipv6: bool,
}

fn one() -> u32 {
    1
}

/// Kinds of applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplicationKind {
    /// iperf3 over TCP.
    Tcp,
    /// iperf3 over UDP.
    Udp,
    /// Many TCP connections of some packets each.
    Short,
    /// HTTP: pages of many sizes over connections that are kept.
    Http,
    /// UDP packets that look as if they had INT stacks, and come back; over IPv4.
    Forged,
    /// ICMP's echo.
    Ping,
}

/// By how much the clocks of switches are off, each at random within these bounds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Clocks {
    /// Most that a clock is ahead or behind, in microseconds.
    pub offset_us: f64,
    /// Most that it goes fast or slow, in millionths.
    pub drift_ppm: f64,
}

impl Default for Clocks {
    /// NTP's precision on the ChameleMon paper's testbed (appendix D.2) from one end to the other.
    fn default() -> Self {
        Self { offset_us: 250.0, drift_ppm: 0.0 }
    }
}

/// How finely traffic is simulated: see [`Detail`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DetailName {
    /// All packets that a flow sends in an epoch leave its host at once.
    #[default]
    Runs,
    /// Packet by packet.
    Packets,
}

impl Scenario {
    /// Reads and checks a scenario.
    ///
    /// # Errors
    /// Names the file, the place in it, and what is expected there.
    pub fn load(path: &Path) -> Result<Self> {
        let named = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(named)?;
        Self::parse(&text, path.parent().unwrap_or(Path::new("."))).with_context(named)
    }

    /// Checks the text of a scenario; topologies' files are looked for in `folder`.
    ///
    /// # Errors
    /// Names the place in it and what is expected there.
    pub fn parse(text: &str, folder: &Path) -> Result<Self> {
        let mut scenario: Self = toml::from_str(text)?;
        scenario.file = toml::from_str(text)?;
        scenario.folder = folder.to_owned();
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<()> {
        ensure!(self.epochs > 0, "epochs = 0: at least one");
        ensure!((0.0..=1.0).contains(&self.spread), "spread = {}: a share", self.spread);
        let mut topology = self.topology()?;
        self.setup()?;
        let mut ever = self.systems_ever();
        let measures = ever.any(|name| name == calumma_chamelemon_analysis::NAME);
        if measures && topology.kinds().contains(&EdgeKind::Tofino) {
            program::check(&self.layout).context("an edge is a Tofino")?;
        }
        let mut traffic = self.traffic.clone();
        let fits = |traffic: &BTreeMap<String, toml::Table>| {
            let kinds = change::kinds(traffic)?;
            kinds.iter().try_for_each(|kind| kind.check_keys(self.layout.keys))
        };
        fits(&traffic)?;
        for application in &self.application {
            let [from, to] = [&application.from, &application.to].map(|edge| topology.edge(edge));
            ensure!(from? != to?, "an application between {:?} and itself", application.from);
            ensure!(
                !application.ipv6 || self.layout.keys == KeyKind::Dual,
                "an application with ipv6 = true: edges don't measure it; give [layout] keys = \"dual\""
            );
        }
        let mut before = 0;
        for change in &self.change {
            let at = change.at;
            ensure!(
                at >= before && at < self.epochs,
                "changes come in order and before the end: {at}"
            );
            before = at;
            let named = || format!("change at {at}");
            change.check(&mut topology, &mut traffic).with_context(named)?;
            fits(&traffic).with_context(named)?;
        }
        for (at, expectation) in self.expect.iter().enumerate() {
            expectation.check(self.epochs).with_context(|| format!("expectation {}", at + 1))?;
        }
        Ok(())
    }

    /// The network.
    ///
    /// # Errors
    /// When there is none of that name, or packets pass through its edges: those of scenarios
    /// forward what their own hosts send and receive.
    pub fn topology(&self) -> Result<Topology> {
        let topology = Topology::load(&self.topology, &self.folder, self.links)?;
        ensure!(
            !topology.through_edges(),
            "{}: packets pass through edges there, which those of scenarios do not let them",
            self.topology
        );
        Ok(topology)
    }

    /// Names of the systems that run at any time, some of them more than once.
    pub fn systems_ever(&self) -> impl Iterator<Item = &str> {
        let changed = self.change.iter().filter_map(|change| change.systems.as_ref());
        self.systems.iter().chain(changed.flatten()).map(String::as_str)
    }

    /// Epochs and guards in a live fabric. Where the file does not say, guards are those of a
    /// machine with few CPUs.
    ///
    /// # Errors
    /// When length and guards don't fit.
    pub fn live_clock(&self) -> Result<EpochClock> {
        let length_us = self.epoch.length_ms.saturating_mul(1000);
        let mut epoch = self.epoch;
        epoch.clock_guard_us.get_or_insert(CLOCK_GUARD_US.min(length_us / 20));
        epoch.flight_guard_us.get_or_insert(FLIGHT_GUARD_US.min(length_us * 2 / 5));
        Ok(epoch.clock()?)
    }

    /// Sections of the configuration of a live fabric's edges.
    pub fn edge_sections(&self) -> String {
        let pmtu = if self.pmtu { "[sketchint]\npmtu = \"advertise\"\n" } else { "" };
        let reports = self.reports.as_ref().map_or_else(String::new, |keys| {
            format!("[sketchint.reports]\ncollector = \"{}\"\n{keys}", COLLECTOR)
        });
        self.carrier.section().to_owned() + pmtu + &reports
    }

    /// The configuration of a live controller that goes with `clock`; addresses and edges aside.
    pub fn controller_sections(&self, clock: &EpochClock) -> toml::Table {
        let integer = |value: u64| toml::Value::Integer(value as i64);
        let mut sections = toml::Table::new();
        for name in CONTROLLER_SECTIONS {
            sections.extend(self.file.get(name).map(|section| (name.to_owned(), section.clone())));
        }
        for (name, parameters) in &self.system {
            sections.insert(name.clone(), parameters.clone().into());
        }
        sections.insert("systems".to_owned(), self.systems.clone().into());
        let mode = if self.planner { "shift" } else { "static" };
        let shifting = [("mode".to_owned(), mode.into())];
        let epoch = [
            ("length_ms", clock.length_ns() / 1_000_000),
            ("clock_guard_us", clock.guards().clock_ns / 1000),
            ("flight_guard_us", clock.guards().flight_ns / 1000),
        ];
        let epoch = epoch.map(|(name, value)| (name.to_owned(), integer(value)));
        sections.insert("shifting".to_owned(), toml::Table::from_iter(shifting).into());
        sections.insert("epoch".to_owned(), toml::Table::from_iter(epoch).into());
        sections.insert("grace_ms".to_owned(), integer(self.grace_ms));
        let history = self.history.map(|history| ("history".to_owned(), integer(history)));
        sections.extend(history);
        let probes = [("enabled".to_owned(), self.probes.into())];
        sections.insert("probes".to_owned(), toml::Table::from_iter(probes).into());
        sections
    }

    /// What the simulation measures by.
    ///
    /// # Errors
    /// When epochs, layout or attention don't fit.
    pub fn setup(&self) -> Result<Setup> {
        self.layout.validate()?;
        let mut key = [0; 32];
        for (at, bytes) in key.chunks_mut(8).enumerate() {
            let drawn = Draw::new(self.seed).of(u64::MAX - 1).of(at as u64);
            bytes.copy_from_slice(&drawn.bits().to_le_bytes());
        }
        Ok(Setup {
            attention: self.attention.on(&self.layout).map_err(anyhow::Error::msg)?,
            planner: self.planner.then(|| Bounds::of(&self.layout)),
            layout: self.layout.clone(),
            hash_key: HashKey::from_bytes(key),
            clock: self.epoch.clock()?,
            tasks: self.tasks,
            losses_only: false,
            grace_ns: self.grace_ms.saturating_mul(1_000_000),
            detail: match self.detail {
                DetailName::Runs => Detail::Runs,
                DetailName::Packets => Detail::Packets { spread: self.spread },
            },
            switches: change::switches(&self.switches, &self.topology()?)?,
            lcores: self.lcores,
            probes: self.probes,
            carrier: self.carrier,
            seed: self.seed,
            systems: Systems {
                on: self.systems.clone(),
                sections: simulated::sections(&self.system)?,
                ..Systems::default()
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let path = std::env::temp_dir().join(format!(
            "calumma-scenario-{}-{}.toml",
            std::process::id(),
            text.len()
        ));
        std::fs::write(&path, text).unwrap();
        let problem = Scenario::load(&path).map(|_| ()).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        format!("{problem:#}")
    }

    #[test]
    fn a_scenario_that_can_not_be_played_says_where_and_why() {
        let least = "title = 't'\nepochs = 9\n[traffic.web]\nflows = 10\n";
        assert!(problem("title = 't'\nepochs = 9\n[traffic.web]\nflow = 10\n").contains("flow"));
        let with = |rest: &str| problem(&format!("{least}{rest}"));
        let late = with("[[change]]\nat = 9\nsays = 'too late'\n");
        assert!(late.contains("before the end: 9"), "{late}");
        let link = with("[[change]]\nat = 1\nlinks = [{ between = ['a1', 'e9'], loss = 0.1 }]\n");
        assert!(link.contains("change at 1: no link between \"a1\" and \"e9\""), "{link}");
        let kind = with("[[change]]\nat = 1\ntraffic.mail = { flows = 1 }\n");
        assert!(kind.contains("no traffic is called \"mail\""), "{kind}");
        let edge = with("[[change]]\nat = 1\nrestart = ['e7']\n");
        assert!(edge.contains("no edge is called \"e7\""), "{edge}");
        let range = with("[[expect]]\nsays = 'x'\nepochs = [4, 12]\ncomplete = true\n");
        assert!(range.contains("expectation 1: epochs = [4, 12]"), "{range}");
        let empty = with("[[expect]]\nsays = 'x'\nepochs = [4, 9]\n");
        assert!(empty.contains("expects nothing"), "{empty}");
        let keys = with("[[change]]\nat = 1\ntraffic.web = { ipv6 = 0.5 }\n");
        assert!(keys.contains("change at 1: ipv6 = 0.5") && keys.contains("dual"), "{keys}");
        let shape = problem(&format!("topology = 'fat-tree:5'\n{least}"));
        assert!(shape.contains("K = 5: must be even"), "{shape}");
        let four = format!("topology = 'pair e2=tofino'\n{least}[layout]\narrays = 4\n");
        let layout = problem(&four);
        assert!(layout.contains("an edge is a Tofino: arrays = 4"), "{layout}");
    }
}
