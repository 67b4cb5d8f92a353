//! The controller's configuration: one TOML file.
//!
//! It holds everything that all switches of the deployment measure by; switches get it over the
//! wire. `docs/controller.md` is the operator's page on it.

mod domain;
mod epoch;
mod exposure;
mod generators;
mod hash_key;
mod key_rotation;
mod probes;
mod secrets;
mod shifting;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use calumma_analysis::System;
use calumma_archive::ArchiveSection;
use calumma_chamelemon::frames::check_layout;
use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_cpus::Cpus;
use calumma_epoch::EpochClock;
use calumma_sketch::HashKey;
use calumma_systems::SYSTEMS;
use calumma_topology::Topology;
use calumma_trust::TlsFiles;
use calumma_wire::{MAX_NAME_BYTES, Role};
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, Deserializer, ValueDeserializer};
use utoipa::ToSchema;

use crate::alert::AlertsSection;
use crate::analyse::Tasks;
use crate::ipfix::IpfixSection;

pub use self::domain::DomainSection;
pub use self::epoch::EpochSection;
pub use self::generators::HashGenerators;
pub use self::hash_key::HashKeyText;
pub(crate) use self::hash_key::parse_hash_key;
pub use self::key_rotation::KeyRotationSection;
pub use self::probes::ProbesSection;
pub use self::shifting::{ShiftingMode, ShiftingSection};
pub use calumma_trust::tls::HttpTls;

/// The whole file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// CPUs that its threads run on, one each, in turn; where the kernel lets them if there are
    /// none.
    #[serde(default)]
    pub cpus: Vec<usize>,
    /// Where nodes connect to.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// The controller's certificate, and whose certificates it believes.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// Whether it may be reached from other hosts without TLS, and read without a token.
    #[serde(default)]
    pub insecure: bool,
    /// Where the HTTP API listens. None where absent.
    #[serde(default)]
    pub http: Option<SocketAddr>,
    /// The HTTP API's certificate; it speaks without TLS where absent.
    #[serde(default)]
    pub http_tls: Option<HttpTls>,
    /// File of the tokens that the HTTP API knows.
    #[serde(default)]
    pub tokens: Option<PathBuf>,
    /// File that every change by a request is appended to, as a JSON object a line.
    #[serde(default)]
    pub audit: Option<PathBuf>,
    /// Names that the HTTP API is reached by, beside addresses and `localhost`.
    #[serde(default)]
    pub http_names: Vec<String>,
    /// Names of the edges. An epoch is complete only when all of them have delivered.
    pub edges: Vec<String>,
    /// Names of the transit switches: what they miss is missing only in systems that run there.
    #[serde(default)]
    pub transits: Vec<String>,
    /// Names of the end hosts that run a program of a system; likewise.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// How the switches are linked, where reports are to say between which of them packets are
    /// lost.
    #[serde(default)]
    pub topology: Option<Topology>,
    /// Names of the systems that run. Parameters of one are in a section of its name.
    #[serde(default = "default_systems")]
    pub systems: Vec<String>,
    /// Sections of systems other than ChameleMon.
    #[serde(skip)]
    sections: BTreeMap<String, serde_json::Value>,
    /// Where the hash key is kept from one start to the next; without it, a new key is drawn at
    /// every start.
    #[serde(default)]
    pub state_dir: Option<PathBuf>,
    /// The hash key as 64 hexadecimal digits, where it is not to be drawn at random.
    #[serde(default)]
    pub hash_key: Option<HashKeyText>,
    /// Where the generators of the hash functions' CRCs come from.
    #[serde(default)]
    pub hash_generators: HashGenerators,
    /// When the controller changes the hash key by itself.
    #[serde(default)]
    pub key_rotation: KeyRotationSection,
    /// Epochs that the HTTP API remembers.
    #[serde(default = "default_history")]
    pub history: usize,
    /// How long to wait for a missing node after its last frame of an epoch was due.
    #[serde(default = "default_grace")]
    pub grace_ms: u64,
    /// Length of epochs and guards.
    #[serde(default)]
    pub epoch: EpochSection,
    /// Whose packets are measured; all where absent.
    #[serde(default)]
    pub domain: DomainSection,
    /// Whether edges probe the paths between them.
    #[serde(default)]
    pub probes: ProbesSection,
    /// Memory of the switches.
    #[serde(default)]
    pub layout: Layout,
    /// Thresholds, sampling, division of memory.
    #[serde(default)]
    pub attention: AttentionSection,
    /// Whether and within which bounds attention is shifted.
    #[serde(default)]
    pub shifting: ShiftingSection,
    /// What to report.
    #[serde(default)]
    pub tasks: Tasks,
    /// Parquet files of all reports; none are written where absent.
    #[serde(default)]
    pub archive: Option<ArchiveSection>,
    /// A collector of flow records; none are sent where absent.
    #[serde(default)]
    pub ipfix: Option<IpfixSection>,
    /// Alerts; none where absent.
    #[serde(default)]
    pub alerts: Option<AlertsSection>,
}

fn default_listen() -> SocketAddr {
    ([127, 0, 0, 1], 7600).into()
}

fn default_systems() -> Vec<String> {
    vec![calumma_chamelemon_analysis::NAME.to_owned()]
}

fn default_history() -> usize {
    1200
}

fn default_grace() -> u64 {
    1000
}

/// Thresholds, sampling and division of memory; what the HH encoder gets is what the others leave.
/// Also the body of `POST /api/v1/attention`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AttentionSection {
    /// Flows of at least this many packets are heavy-hitter candidates.
    pub t_h: u32,
    /// Flows below this many packets are light-loss candidates.
    pub t_l: u32,
    /// The share of light-loss candidates that are monitored.
    #[schema(value_type = f64, minimum = 0, maximum = 1)]
    pub sample_rate: SampleRate,
    /// Buckets an array of the HL encoder.
    pub hl_buckets: u32,
    /// Buckets an array of the LL encoder.
    pub ll_buckets: u32,
}

impl Default for AttentionSection {
    fn default() -> Self {
        Self { t_h: 1, t_l: 1, sample_rate: SampleRate::ALL, hl_buckets: 512, ll_buckets: 0 }
    }
}

impl AttentionSection {
    /// The attention on switches of `layout`.
    ///
    /// # Errors
    /// What doesn't fit, and the rule.
    pub fn on(&self, layout: &Layout) -> Result<Attention, String> {
        let Self { t_h, t_l, sample_rate, hl_buckets: hl, ll_buckets: ll } = *self;
        let hh = u64::from(layout.upstream_buckets)
            .checked_sub(u64::from(hl) + u64::from(ll))
            .ok_or_else(|| {
                format!(
                    "hl_buckets = {hl} and ll_buckets = {ll} exceed upstream_buckets = {}: lower \
                     one of the former or raise the latter",
                    layout.upstream_buckets
                )
            })?;
        let partition = Partition { hh: hh as u32, hl, ll };
        let attention = Attention { t_h, t_l, sample_rate, partition };
        attention.validate(layout).map_err(|error| error.to_string())?;
        Ok(attention)
    }
}

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{path}: {source}; give the path of the controller's configuration with --config")]
    Read {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is no such configuration.
    #[error("{path}: {problem}")]
    Parse {
        /// The file.
        path: String,
        /// Line, column and what is wrong there, without secrets.
        problem: String,
    },
    /// A field holds what it can't.
    #[error("{path}: {problem}")]
    Value {
        /// The file.
        path: String,
        /// The field, its value, and the remedy.
        problem: String,
    },
}

impl Config {
    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// Names the file, the place in it, and the remedy.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_for(SYSTEMS, path)
    }

    /// As [`load`](Self::load), where other systems than the product's can be chosen.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_for(systems: &[&dyn System], path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: name.clone(), source })?;
        Self::parse_for(systems, &text, &name)
    }

    /// Checks the text of a configuration; `path` is named in errors.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(text: &str, path: &str) -> Result<Self, ConfigError> {
        Self::parse_for(SYSTEMS, text, path)
    }

    /// As [`parse`](Self::parse), where other systems than the product's can be chosen.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse_for(systems: &[&dyn System], text: &str, path: &str) -> Result<Self, ConfigError> {
        let config = Self::read(systems, text).map_err(|mut source| {
            source.set_input(Some(text));
            let problem = secrets::without_secrets(&source.to_string());
            ConfigError::Parse { path: path.to_owned(), problem }
        })?;
        let checked = config.check().and_then(|()| config.check_systems(systems));
        checked.map_err(|problem| ConfigError::Value { path: path.to_owned(), problem })?;
        Ok(config)
    }

    /// Reads the text; the sections of systems are taken out first, as each knows its own fields.
    fn read(systems: &[&dyn System], text: &str) -> Result<Self, toml::de::Error> {
        let mut table = DeTable::parse(text)?;
        let mut sections = BTreeMap::new();
        for name in systems.iter().map(|system| system.name()) {
            if let Some(section) = table.get_mut().remove(name) {
                let section = serde_json::Value::deserialize(ValueDeserializer::from(section))?;
                sections.insert(name.to_owned(), section);
            }
        }
        let config = Self::deserialize(Deserializer::from(table))?;
        Ok(Self { sections, ..config })
    }

    fn check_systems(&self, systems: &[&dyn System]) -> Result<(), String> {
        let known: Vec<&str> = systems.iter().map(|system| system.name()).collect();
        let mut named = HashSet::new();
        for name in &self.systems {
            if !known.contains(&name.as_str()) {
                return Err(format!("systems: there is no {name:?}; known are {known:?}"));
            }
            if !named.insert(name) {
                return Err(format!("systems: {name:?} is named twice"));
            }
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), String> {
        if self.edges.is_empty() {
            return Err("edges: name at least one, as each edge's own `name` says".to_owned());
        }
        let mut named = HashSet::new();
        for role in [Role::Edge, Role::Transit, Role::Host] {
            for name in self.nodes_of(role) {
                let field = format!("{}s", role.name());
                if name.is_empty() || name.len() > MAX_NAME_BYTES {
                    return Err(format!("{field}: {name:?} must have 1 to {MAX_NAME_BYTES} bytes"));
                }
                if !named.insert(name) {
                    return Err(format!("{field}: {name:?} is named twice"));
                }
            }
        }
        Ok(())
    }

    /// Names of the nodes of a role.
    pub fn nodes_of(&self, role: Role) -> &[String] {
        match role {
            Role::Edge => &self.edges,
            Role::Transit => &self.transits,
            Role::Host => &self.hosts,
        }
    }

    /// Names of the nodes that a system runs on.
    pub fn nodes_for(&self, system: &dyn System) -> Vec<String> {
        let roles = [Role::Edge, Role::Transit, Role::Host].into_iter();
        let roles = roles.filter(|role| system.roles().contains(role));
        roles.flat_map(|role| self.nodes_of(role)).cloned().collect()
    }

    /// The section of the system called `name`; null where there is none.
    pub fn section(&self, name: &str) -> &serde_json::Value {
        self.sections.get(name).unwrap_or(&serde_json::Value::Null)
    }

    fn check(&self) -> Result<(), String> {
        self.check_nodes()?;
        self.checked_cpus()?;
        if let Some(topology) = &self.topology {
            crate::topology::check(topology, &self.edges, &self.transits)
                .map_err(|problem| format!("[topology]: {problem}"))?;
        }
        if let Some(key) = &self.hash_key {
            key.parse().map_err(|problem| format!("hash_key: {problem}"))?;
        }
        self.domain.domain().map_err(|problem| format!("[domain]: {problem}"))?;
        if self.grace_ms > 3_600_000 {
            return Err(format!("grace_ms = {}: at most one hour", self.grace_ms));
        }
        self.checked_clock().map_err(|problem| format!("[epoch]: {problem}"))?;
        check_layout(&self.layout).map_err(|problem| format!("[layout]: {problem}"))?;
        self.checked_attention().map_err(|problem| format!("[attention]: {problem}"))?;
        let archive = self.archive.as_ref().map_or(Ok(()), ArchiveSection::check);
        archive.map_err(|problem| format!("[archive]: {problem}"))?;
        let alerts = self.alerts.as_ref().map_or(Ok(()), AlertsSection::check);
        alerts.map_err(|problem| format!("[alerts]: {problem}"))?;
        if self.shifting.plans() {
            let bounds = self.shifting.bounds(&self.layout);
            bounds.check(&self.layout).map_err(|problem| format!("[shifting]: {problem}"))?;
        }
        Ok(())
    }

    fn checked_cpus(&self) -> Result<Option<Cpus>, String> {
        let cpus = (!self.cpus.is_empty()).then(|| Cpus::these(self.cpus.clone()));
        cpus.transpose()
            .map_err(|_| format!("cpus = {:?}: Linux knows none of such a number", self.cpus))
    }

    /// The CPUs that threads run on, in turn, where the file names any.
    pub fn cpus(&self) -> Option<Cpus> {
        self.checked_cpus().unwrap_or_default()
    }

    fn checked_clock(&self) -> Result<EpochClock, String> {
        self.epoch.clock().map_err(|error| error.to_string())
    }

    fn checked_attention(&self) -> Result<Attention, String> {
        self.attention.on(&self.layout)
    }

    /// The epochs of the deployment.
    ///
    /// # Errors
    /// When length and guards don't fit; never for a configuration that was parsed.
    pub fn clock(&self) -> anyhow::Result<EpochClock> {
        self.checked_clock().map_err(anyhow::Error::msg)
    }

    /// The attention that the file asks for.
    ///
    /// # Errors
    /// When it doesn't fit the layout; never for a configuration that was parsed.
    pub fn planned_attention(&self) -> anyhow::Result<Attention> {
        self.checked_attention().map_err(anyhow::Error::msg)
    }

    /// The hash key, where the file has one.
    pub fn fixed_hash_key(&self) -> Option<HashKey> {
        let key = self.hash_key.as_ref()?.parse().ok()?;
        Some(self.hash_key_of(key))
    }

    /// The hash key that these bytes are.
    pub fn hash_key_of(&self, bytes: [u8; 32]) -> HashKey {
        match self.hash_generators {
            HashGenerators::Secret => HashKey::from_bytes(bytes),
            HashGenerators::Public => HashKey::with_public_generators(bytes),
        }
    }

    /// Names of what differs from `other` and can't change while the controller runs.
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let differs = [
            ("cpus", self.cpus != other.cpus),
            ("listen", self.listen != other.listen),
            ("[tls]", self.tls != other.tls),
            ("insecure", self.insecure != other.insecure),
            ("http", self.http != other.http),
            ("[http_tls]", self.http_tls != other.http_tls),
            ("tokens", self.tokens != other.tokens),
            ("audit", self.audit != other.audit),
            ("http_names", self.http_names != other.http_names),
            ("edges", self.edges != other.edges),
            ("transits", self.transits != other.transits),
            ("hosts", self.hosts != other.hosts),
            ("state_dir", self.state_dir != other.state_dir),
            ("hash_key", self.hash_key != other.hash_key),
            ("hash_generators", self.hash_generators != other.hash_generators),
            ("[key_rotation]", self.key_rotation != other.key_rotation),
            ("history", self.history != other.history),
            ("grace_ms", self.grace_ms != other.grace_ms),
            ("[epoch]", self.epoch != other.epoch),
            ("[layout]", self.layout != other.layout),
            ("[archive]", self.archive != other.archive),
            ("[ipfix]", self.ipfix != other.ipfix),
            ("[alerts]", self.alerts != other.alerts),
            ("[shifting]", self.shifting != other.shifting),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::WebhookUrl;

    fn problem(text: &str) -> String {
        Config::parse(text, "controller.toml").unwrap_err().to_string()
    }

    #[test]
    fn the_names_of_the_edges_are_enough() {
        let config = Config::parse("edges = ['e1', 'e2']", "controller.toml").unwrap();
        assert_eq!(config.clock().unwrap().length_ns(), 50_000_000);
        assert_eq!(config.layout, Layout::default());
        let attention = config.planned_attention().unwrap();
        assert_eq!(attention, Attention::healthy(&config.layout, 512));
    }

    #[test]
    fn the_sample_configuration_is_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let config = Config::load(&folder.join("docs/controller.toml")).unwrap();
        assert_eq!(config.planned_attention().unwrap().t_h, 1);
    }

    #[test]
    fn the_sections_that_the_sample_leaves_out_are_valid_and_show_the_defaults() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/controller.toml");
        let text = std::fs::read_to_string(page).unwrap();
        let wanted = |line: &str| line.strip_prefix('#').is_some_and(|rest| !rest.starts_with(' '));
        let on: Vec<&str> =
            text.lines().map(|line| if wanted(line) { &line[1..] } else { line }).collect();
        let config = Config::parse(&on.join("\n"), "controller.toml").unwrap();

        let bare = "[archive]\ndir = '/var/lib/calumma/archive'\n[alerts]\n\
                    [ipfix]\ncollector = '127.0.0.1:4739'\n";
        let bare = Config::parse(&format!("edges = ['e1', 'e2']\n{bare}"), "c.toml").unwrap();
        assert_eq!((config.archive, config.ipfix), (bare.archive, bare.ipfix));
        let webhooks = vec![WebhookUrl::from("http://127.0.0.1:8080/calumma")];
        assert_eq!(config.alerts, Some(AlertsSection { webhooks, ..bare.alerts.unwrap() }));
    }

    #[test]
    fn a_configuration_that_is_shown_has_no_secrets() {
        let text = format!(
            "edges = ['e1']\nhash_key = '{}'\n[alerts]\n\
             webhooks = ['https://ada:5ecret@hooks.example.net/services/5ecret?token=5ecret']",
            "7a".repeat(32)
        );
        let config = Config::parse(&text, "controller.toml").unwrap();
        for shown in [format!("{config:?}"), format!("{config:#?}")] {
            assert!(shown.contains("hash_key") && shown.contains("hooks.example.net"), "{shown}");
            assert!(!shown.contains("7a7a") && !shown.contains("5ecret"), "{shown}");
        }
        let url = problem("edges = ['e1']\n[alerts]\nwebhooks = ['ftp://10.0.0.1/5ecret']");
        assert!(url.contains("10.0.0.1") && !url.contains("5ecret"), "{url}");
    }

    #[test]
    fn errors_name_the_file_the_place_and_the_remedy() {
        let typo = problem("edges = ['e1']\n[epoch]\nlenght_ms = 50");
        assert!(typo.contains("controller.toml") && typo.contains("line 3"), "{typo}");
        assert!(typo.contains("lenght_ms") && typo.contains("length_ms"), "{typo}");

        let guards = problem("edges = ['e1']\n[epoch]\nflight_guard_us = 50000");
        assert!(guards.contains("lengthen the epoch or lower the guards"), "{guards}");

        let parts = problem("edges = ['e1']\n[attention]\nhl_buckets = 5000");
        assert!(parts.contains("[attention]: hl_buckets = 5000"), "{parts}");

        let bounds = problem("edges = ['e1']\n[shifting]\nmin_hl_buckets = 3500");
        assert!(bounds.contains("[shifting]: min_hl_buckets = 3500"), "{bounds}");

        let twice = problem("edges = ['e1', 'e1']");
        assert!(twice.contains("\"e1\" is named twice"), "{twice}");

        let key = problem("edges = ['e1']\nhash_key = 'secret'");
        assert!(key.contains("openssl rand -hex 32") && !key.contains("secret'"), "{key}");

        let cut_off = problem(&format!("edges = ['e1']\nhash_key = '{}", "7a".repeat(32)));
        assert!(cut_off.contains("hash_key") && !cut_off.contains("7a7a"), "{cut_off}");

        let cpus = problem("edges = ['e1']\ncpus = [0, 9999]");
        assert!(cpus.contains("cpus = [0, 9999]"), "{cpus}");

        let none = problem("edges = []");
        assert!(none.contains("name at least one"), "{none}");

        let layout = problem("edges = ['e1']\n[layout]\nupstream_buckets = 100000000");
        assert!(layout.contains("lower upstream_buckets"), "{layout}");

        let small = problem("edges = ['e1']\n[archive]\ndir = 'a'\nkeep_mib = 10");
        assert!(small.contains("[archive]: keep_mib = 10: raise it"), "{small}");

        let url = problem("edges = ['e1']\n[alerts]\nwebhooks = ['localhost:80']");
        assert!(url.contains("[alerts]: webhooks") && url.contains("http://"), "{url}");

        let topology = problem("edges = ['e1', 'e3']\ntopology = 'pair'");
        assert!(topology.contains("[topology]: \"e3\" of `edges` is no edge there"), "{topology}");

        let missing = Config::load(Path::new("/nonexistent/c.toml")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/c.toml") && missing.contains("--config"));
    }
}
