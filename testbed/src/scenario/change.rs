//! What changes in the course of a scenario.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Network;
use crate::simulate::SwitchQuality;
use crate::topology::{LinkQuality, Topology};
use crate::workload::Traffic;

/// Changes that happen together, at the beginning of an epoch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The epoch.
    pub at: u64,
    /// What happens, for the reader.
    #[serde(default)]
    pub says: String,
    /// Fields of kinds of traffic that are other ones from now on.
    #[serde(default)]
    traffic: BTreeMap<String, toml::Table>,
    /// Links that are other ones from now on.
    #[serde(default)]
    links: Vec<LinkChange>,
    /// Static routes that are set or taken back.
    #[serde(default)]
    route: Vec<RouteChange>,
    /// Switches that are other ones from now on, as the scenario's own `switches`; those that are
    /// not named here do nothing to packets any more.
    #[serde(default)]
    switches: Option<BTreeMap<String, SwitchQuality>>,
    /// Clocks that are set.
    #[serde(default)]
    clocks: BTreeMap<String, ClockChange>,
    /// Edges that are started anew, and in simulations hosts' own sinks.
    #[serde(default)]
    restart: Vec<String>,
    /// Switches of a live fabric, or its controller, whose processes stand still for a while.
    #[serde(default)]
    freeze: Vec<Freeze>,
    /// Switches of a live fabric, or its controller, whose processes are killed and started anew.
    #[serde(default)]
    kill: Vec<String>,
    /// Measurement systems that run from now on, all others being switched off.
    #[serde(default)]
    pub(super) systems: Option<Vec<String>>,
    /// Whether the controller draws another hash key, as an operator asks it to.
    #[serde(default)]
    rotate_key: bool,
    /// Whether the controller goes or comes.
    #[serde(default)]
    controller: Option<Presence>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Freeze {
    /// The switch, or `controller`.
    switch: String,
    /// For how many milliseconds.
    ms: u64,
}

/// A program of a live fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The controller.
    Controller,
    /// The switch at this position; of a Tofino, its control plane.
    Switch(usize),
}

impl Program {
    /// How files call the controller; no switch has this name.
    const CONTROLLER: &str = "controller";

    fn named(name: &str, topology: &Topology) -> Result<Self> {
        if name == Self::CONTROLLER {
            return Ok(Self::Controller);
        }
        let position =
            topology.position(name).with_context(|| format!("no switch is called {name:?}"));
        position.map(Self::Switch)
    }

    /// What it is called as a program.
    fn program(self, topology: &Topology) -> &'static str {
        match self {
            Self::Controller => "calumma-controller",
            Self::Switch(at) if topology.is_tofino(at) => "calumma-switchd",
            Self::Switch(_) => "calumma-edge",
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteChange {
    /// The edge that packets are for.
    to: String,
    /// The switch that sends them on.
    node: String,
    /// The neighbour to which it does; without one, by the shortest ways again.
    via: Option<String>,
}

impl RouteChange {
    fn apply(&self, topology: &mut Topology) -> Result<()> {
        topology.set_route(&self.to, &self.node, self.via.as_deref())
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkChange {
    between: [String; 2],
    delay_us: Option<f64>,
    jitter_us: Option<f64>,
    rate_pps: Option<f64>,
    queue: Option<u32>,
    loss: Option<f64>,
    duplicate: Option<f64>,
    remark: Option<f64>,
    dscp: Option<u8>,
    ecn: Option<f64>,
    dnat: Option<f64>,
    snat: Option<f64>,
    late: Option<f64>,
    late_ms: Option<[f64; 2]>,
    tbf_mbit: Option<f64>,
    min_ttl: Option<u8>,
    down: Option<bool>,
}

impl LinkChange {
    fn apply(&self, topology: &mut Topology) -> Result<()> {
        let quality = &mut topology.link_between(&self.between)?.quality;
        *quality = LinkQuality {
            delay_us: self.delay_us.unwrap_or(quality.delay_us),
            jitter_us: self.jitter_us.unwrap_or(quality.jitter_us),
            rate_pps: self.rate_pps.unwrap_or(quality.rate_pps),
            queue: self.queue.unwrap_or(quality.queue),
            loss: self.loss.unwrap_or(quality.loss),
            duplicate: self.duplicate.unwrap_or(quality.duplicate),
            remark: self.remark.unwrap_or(quality.remark),
            dscp: self.dscp.unwrap_or(quality.dscp),
            ecn: self.ecn.unwrap_or(quality.ecn),
            dnat: self.dnat.unwrap_or(quality.dnat),
            snat: self.snat.unwrap_or(quality.snat),
            late: self.late.unwrap_or(quality.late),
            late_ms: self.late_ms.unwrap_or(quality.late_ms),
            tbf_mbit: self.tbf_mbit.unwrap_or(quality.tbf_mbit),
            min_ttl: self.min_ttl.unwrap_or(quality.min_ttl),
            down: self.down.unwrap_or(quality.down),
        };
        quality.check()
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockChange {
    offset_us: Option<f64>,
    drift_ppm: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Presence {
    Away,
    Back,
}

/// The number of the sink of this name that a host has itself.
fn own_sink(name: &str, topology: &Topology) -> Option<usize> {
    topology.host_sinks().position(|(_, _, sink)| sink == name)
}

/// What each switch does to packets, by its position.
pub(super) fn switches(
    named: &BTreeMap<String, SwitchQuality>,
    topology: &Topology,
) -> Result<Vec<SwitchQuality>> {
    for (name, quality) in named {
        let is_known = name == SwitchQuality::ALL || topology.position(name).is_some();
        ensure!(is_known, "switches: no switch is called {name:?}");
        quality.check().with_context(|| format!("switches.{name}"))?;
    }
    let all = named.get(SwitchQuality::ALL).copied().unwrap_or_default();
    Ok(topology.names().iter().map(|name| named.get(name).copied().unwrap_or(all)).collect())
}

/// The kinds of traffic that tables describe, by name.
pub(super) fn kinds(tables: &BTreeMap<String, toml::Table>) -> Result<Vec<Traffic>> {
    tables
        .iter()
        .map(|(name, table)| {
            let named = || format!("traffic.{name}");
            let kind: Traffic = table.clone().try_into().with_context(named)?;
            kind.check().with_context(named)?;
            Ok(kind)
        })
        .collect()
}

impl Change {
    /// Checks that it can happen on this topology to this traffic, and does it to both.
    pub(super) fn check(
        &self,
        topology: &mut Topology,
        traffic: &mut BTreeMap<String, toml::Table>,
    ) -> Result<()> {
        self.merge(traffic)?;
        kinds(traffic)?;
        let restarted = self.restart.iter().filter(|name| own_sink(name, topology).is_none());
        for edge in restarted.chain(self.clocks.keys()) {
            topology.edge(edge)?;
        }
        let programs = self.freeze.iter().map(|of| &of.switch).chain(&self.kill);
        for program in programs {
            Program::named(program, topology)?;
        }
        if let Some(named) = &self.switches {
            switches(named, topology)?;
        }
        self.route.iter().try_for_each(|route| route.apply(topology))?;
        self.links.iter().try_for_each(|link| link.apply(topology))
    }

    /// The programs that are killed or stand still, and which of the two.
    pub(crate) fn troubles<'a>(
        &'a self,
        topology: &'a Topology,
    ) -> impl Iterator<Item = String> + 'a {
        let killed = self.kill.iter().map(|name| (name, "killed"));
        let stopped = self.freeze.iter().map(|of| (&of.switch, "stopped"));
        killed.chain(stopped).filter_map(move |(name, what)| {
            let program = Program::named(name, topology).ok()?.program(topology);
            Some(format!("{program} {what}"))
        })
    }

    fn merge(&self, traffic: &mut BTreeMap<String, toml::Table>) -> Result<()> {
        for (name, fields) in &self.traffic {
            let kind = traffic
                .get_mut(name)
                .with_context(|| format!("no traffic is called {name:?} to begin with"))?;
            kind.extend(fields.clone());
        }
        Ok(())
    }

    /// Lets it happen.
    pub(super) fn apply(
        &self,
        network: &mut impl Network,
        topology: &mut Topology,
        traffic: &mut BTreeMap<String, toml::Table>,
    ) -> Result<()> {
        if !self.traffic.is_empty() {
            self.merge(traffic)?;
            network.set_traffic(kinds(traffic)?)?;
        }
        if !self.links.is_empty() || !self.route.is_empty() {
            self.route.iter().try_for_each(|route| route.apply(topology))?;
            self.links.iter().try_for_each(|link| link.apply(topology))?;
            network.set_links(topology)?;
        }
        if let Some(named) = &self.switches {
            network.set_switches(switches(named, topology)?)?;
        }
        for (edge, clock) in &self.clocks {
            let offset_ns = clock.offset_us.map(|us| us * 1e3);
            let drift = clock.drift_ppm.map(|ppm| ppm * 1e-6);
            network.set_clock(topology.edge(edge)?, offset_ns, drift)?;
        }
        if let Some(systems) = &self.systems {
            network.set_systems(systems)?;
        }
        for of in &self.freeze {
            let program = Program::named(&of.switch, topology)?;
            network.freeze(program, Duration::from_millis(of.ms))?;
        }
        if self.rotate_key {
            network.rotate_key()?;
        }
        for program in &self.kill {
            network.kill(Program::named(program, topology)?)?;
        }
        for name in &self.restart {
            match own_sink(name, topology) {
                Some(sink) => network.restart_sink(sink)?,
                None => network.restart(topology.edge(name)?)?,
            }
        }
        if let Some(presence) = self.controller {
            network.set_controller(presence == Presence::Back)?;
        }
        Ok(())
    }
}
