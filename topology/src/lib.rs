//! Networks: switches, links, hosts, the ways between them, and places on those.
//!
//! A topology is a graph. Edges (switches with hosts, which measure) come first, inner switches
//! after them. It is made by a name (`pair`, `leaf-spine:4x2`, `fat-tree:4`) or read from a file
//! (`zoo:FILE.gml` is one of the Topology Zoo), and either may be followed by what single switches
//! are: `pair e2=tofino core=software`. The testbed lays such networks out, and the controller says
//! by one where packets were lost.

mod cuts;
mod file;
pub mod optimum;
mod place;
mod route;
mod shapes;
mod zoo;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

pub use self::cuts::Cut;
pub use self::place::{Place, Point, Segment};
pub use self::route::{Hop, Routes, Way};

/// What a link does to packets, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkQuality {
    /// Time that every packet takes, in microseconds.
    pub delay_us: f64,
    /// Most that a packet takes on top of it, at random; packets overtake one another then.
    pub jitter_us: f64,
    /// Packets a second that a direction of it carries; 0: any number.
    pub rate_pps: f64,
    /// Packets that wait where more come than it carries; what finds so many waiting is lost.
    pub queue: u32,
    /// Share of the packets that are lost, at random, 0 to 1.
    pub loss: f64,
    /// Share of the packets that arrive twice, at random, 0 to 1.
    pub duplicate: f64,
    /// Share of the packets whose DSCP is set to `dscp`, at random, 0 to 1.
    pub remark: f64,
    /// The DSCP that it sets, 0 to 63.
    pub dscp: u8,
    /// Share of the packets whose ECN field it sets to "congestion experienced", at random, 0 to 1.
    /// In live fabrics only.
    pub ecn: f64,
    /// Share of the flows whose destination is translated, as load balancers do, 0 to 1.
    pub dnat: f64,
    /// Share of the flows whose source is translated, 0 to 1.
    pub snat: f64,
    /// Share of the packets that are held up for as long as `late_ms` says, at random, 0 to 1.
    pub late: f64,
    /// The least and the most that such a packet is held up, in milliseconds.
    pub late_ms: [f64; 2],
    /// Megabits a second that the kernel's token bucket lets through in either direction, with a
    /// queue of two seconds before it; 0: no such queue. In live fabrics only.
    pub tbf_mbit: f64,
    /// The least time to live of packets that it carries: what comes with less is lost, as by a
    /// router that checks it (RFC 5082). 0 and 1 are the same. In simulated networks only.
    pub min_ttl: u8,
    /// Whether routes avoid the link.
    pub down: bool,
}

impl Default for LinkQuality {
    fn default() -> Self {
        Self {
            delay_us: 5.0,
            jitter_us: 0.0,
            rate_pps: 0.0,
            queue: 100,
            loss: 0.0,
            duplicate: 0.0,
            remark: 0.0,
            dscp: 0,
            ecn: 0.0,
            dnat: 0.0,
            snat: 0.0,
            late: 0.0,
            late_ms: [50.0, 2000.0],
            tbf_mbit: 0.0,
            min_ttl: 0,
            down: false,
        }
    }
}

impl LinkQuality {
    /// Checks that the numbers mean something.
    ///
    /// # Errors
    /// The field, its value, and what it may be.
    pub fn check(&self) -> Result<()> {
        let Self { delay_us, jitter_us, rate_pps, dscp, late_ms, .. } = *self;
        for (field, value) in [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("remark", self.remark),
            ("ecn", self.ecn),
            ("dnat", self.dnat),
            ("snat", self.snat),
            ("late", self.late),
        ] {
            anyhow::ensure!((0.0..=1.0).contains(&value), "{field} = {value}: a share from 0 to 1");
        }
        anyhow::ensure!(dscp < 64, "dscp = {dscp}: 0 to 63");
        let [least, most] = late_ms;
        anyhow::ensure!(
            (0.0..=most).contains(&least) && most <= 60_000.0,
            "late_ms = [{least}, {most}]: the least comes first, and at most 60,000"
        );
        for (field, value) in [("delay_us", delay_us), ("jitter_us", jitter_us)] {
            anyhow::ensure!((0.0..=1e6).contains(&value), "{field} = {value}: 0 to 1,000,000");
        }
        anyhow::ensure!(
            rate_pps == 0.0 || (1.0..=1e9).contains(&rate_pps),
            "rate_pps = {rate_pps}: 1 to 1,000,000,000, or 0"
        );
        anyhow::ensure!(
            self.tbf_mbit == 0.0 || (0.1..=1e5).contains(&self.tbf_mbit),
            "tbf_mbit = {}: 0.1 to 100,000, or 0",
            self.tbf_mbit
        );
        Ok(())
    }
}

/// What an edge switch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeKind {
    /// The software switch.
    #[default]
    Software,
    /// The P4 program on a modelled Tofino.
    Tofino,
}

impl EdgeKind {
    fn named(name: &str) -> Option<Self> {
        match name {
            "software" => Some(Self::Software),
            "tofino" => Some(Self::Tofino),
            _ => None,
        }
    }
}

/// What an inner switch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InnerKind {
    /// A router that measures nothing.
    #[default]
    Linux,
    /// The software switch, as a transit.
    Software,
    /// A P4 program on a modelled Tofino, as a transit.
    Tofino,
}

impl InnerKind {
    fn named(name: &str) -> Option<Self> {
        match name {
            "linux" => Some(Self::Linux),
            "software" => Some(Self::Software),
            "tofino" => Some(Self::Tofino),
            _ => None,
        }
    }
}

/// A link between two switches.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The switches at its ends, by position.
    pub ends: [usize; 2],
    /// What it does to packets.
    pub quality: LinkQuality,
}

/// Switches, the links between them, and the hosts at the edges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// Names of all switches, the edges first.
    switches: Vec<String>,
    /// Hosts of each edge.
    hosts: Vec<u32>,
    /// What each edge is.
    kinds: Vec<EdgeKind>,
    /// What each inner switch is.
    inner: Vec<InnerKind>,
    /// Edges whose hosts take marks and INT stacks out of packets themselves.
    with_sinks: BTreeSet<usize>,
    links: Vec<Link>,
    /// Whether ways lead through edges that are not at their ends.
    through_edges: bool,
    /// By switch and edge: the neighbour to which the switch sends what is for the edge, whatever
    /// way is the shortest.
    static_routes: BTreeMap<(usize, usize), usize>,
}

impl Topology {
    /// The topology of that name, or of the file at that path (seen from `folder`), with what
    /// switches are behind it; links without a quality of their own have `quality`.
    ///
    /// # Errors
    /// When it is neither, or the file is wrong: the place and what is expected.
    pub fn load(name: &str, folder: &Path, quality: LinkQuality) -> Result<Self> {
        let mut words = name.split_whitespace();
        let name = words.next().context("a topology has no name")?;
        let mut topology = match (shapes::named(name, quality), name.strip_prefix("zoo:")) {
            (Some(shape), _) => shape?,
            (None, Some(map)) => zoo::read(&folder.join(map), quality)?,
            (None, None) => file::read(&folder.join(name), quality)?,
        };
        for word in words {
            topology.set_kind(word)?;
        }
        topology.check()?;
        Ok(topology)
    }

    /// Lets a switch send what is for an edge to a neighbour, whatever way is the shortest; without
    /// one, by the shortest ways again. The neighbour must be an inner switch, or the edge.
    ///
    /// # Errors
    /// The name that is none, or that there is no link between the two.
    pub fn set_route(&mut self, to: &str, node: &str, via: Option<&str>) -> Result<()> {
        let edge = self.edge(to)?;
        let known = |name: &str| {
            self.position(name).with_context(|| format!("route: no switch is called {name:?}"))
        };
        let at = known(node)?;
        let Some(via) = via else {
            self.static_routes.remove(&(at, edge));
            return Ok(());
        };
        let next = known(via)?;
        ensure!(
            next == edge || next >= self.hosts.len(),
            "route: via = {via:?} is an edge other than {to:?}"
        );
        let are_these = |link: &Link| link.ends == [at, next] || link.ends == [next, at];
        ensure!(
            self.links.iter().any(are_these),
            "route: there is no link between {node:?} and {via:?}"
        );
        self.static_routes.insert((at, edge), next);
        Ok(())
    }

    /// Lets a switch be what a word says, `e2=tofino` or `s1=software`, or `e2=host-sinks`:
    /// software whose hosts have sinks of their own.
    fn set_kind(&mut self, word: &str) -> Result<()> {
        let of_edge = || "an edge is software, tofino or host-sinks: e2=tofino";
        let of_inner = || "an inner switch is linux, software or tofino: s1=software";
        let (name, kind) = word.split_once('=').with_context(|| {
            format!(
                "{word:?}: behind a topology stand switches and their kinds, e2=tofino s1=software"
            )
        })?;
        let at = self.switch(name)?;
        match at.checked_sub(self.hosts.len()) {
            None if kind == "host-sinks" => {
                self.kinds[at] = EdgeKind::Software;
                self.with_sinks.insert(at);
            }
            None => self.kinds[at] = EdgeKind::named(kind).with_context(of_edge)?,
            Some(inner) => self.inner[inner] = InnerKind::named(kind).with_context(of_inner)?,
        }
        Ok(())
    }

    /// Position of the switch called `name`, edge or not.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.switches.iter().position(|switch| switch == name)
    }

    /// Whether the switch at a position is an edge.
    pub fn is_edge(&self, switch: usize) -> bool {
        switch < self.hosts.len()
    }

    /// Names of the edges, in order.
    pub fn edges(&self) -> &[String] {
        &self.switches[..self.hosts.len()]
    }

    /// Names of all switches, the edges first.
    pub fn names(&self) -> &[String] {
        &self.switches
    }

    /// Whether packets also pass through edges that are neither the first nor the last on their
    /// way, as where every switch of a network has hosts. Otherwise an edge forwards no packets but
    /// those of its own hosts.
    pub fn through_edges(&self) -> bool {
        self.through_edges
    }

    /// Hosts with sinks of their own: the edge of each, its number there from 0 on, and the sink's
    /// name.
    pub fn host_sinks(&self) -> impl Iterator<Item = (usize, u32, String)> + '_ {
        let hosts = |&edge: &usize| (0..self.hosts[edge]).map(move |host| (edge, host));
        self.with_sinks.iter().flat_map(hosts).map(|(edge, host)| {
            let name = format!("{}h{}", self.switches[edge], host + 1);
            (edge, host, name)
        })
    }

    /// The number of the sink that a host of an edge has of its own.
    pub fn host_sink(&self, edge: usize, host: usize) -> Option<usize> {
        self.host_sinks().position(|(of, number, _)| (of, number as usize) == (edge, host))
    }

    /// The name of the sink of what leaves the network at an edge, for that of its hosts which
    /// `is_host` says it is for: the host's own, or the edge.
    pub fn sink_of(&self, edge: usize, is_host: impl Fn(u32) -> bool) -> String {
        let mut own = self.host_sinks();
        let own = own.find(|(of, host, _)| *of == edge && is_host(*host));
        own.map_or_else(|| self.switches[edge].clone(), |(_, _, name)| name)
    }

    /// Sinks: the edges, and hosts' own.
    pub fn sinks(&self) -> usize {
        self.hosts.len() + self.host_sinks().count()
    }

    /// Whether hosts of an edge have sinks of their own.
    pub fn has_host_sinks(&self, edge: usize) -> bool {
        self.with_sinks.contains(&edge)
    }

    /// Switches, edges among them.
    pub fn switches(&self) -> usize {
        self.switches.len()
    }

    /// Hosts of each edge.
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// What each edge is.
    pub fn kinds(&self) -> &[EdgeKind] {
        &self.kinds
    }

    /// Whether the switch at a position is a modelled Tofino, edge or not.
    pub fn is_tofino(&self, switch: usize) -> bool {
        match switch.checked_sub(self.hosts.len()) {
            None => self.kinds[switch] == EdgeKind::Tofino,
            Some(inner) => self.inner[inner] == InnerKind::Tofino,
        }
    }

    /// Names of the inner switches that measure.
    pub fn measuring(&self) -> impl Iterator<Item = &str> {
        self.transits().map(|at| self.switches[at].as_str())
    }

    /// The inner switches that measure, software and Tofinos, by position.
    pub fn transits(&self) -> impl Iterator<Item = usize> + use<> {
        let measures = |&(_, &kind): &(usize, &InnerKind)| kind != InnerKind::Linux;
        let inner = self.inner.iter().enumerate().filter(measures);
        let at: Vec<usize> = inner.map(|(inner, _)| self.hosts.len() + inner).collect();
        at.into_iter()
    }

    /// The switches that links lead to from the switch at this position, in the order of the links.
    pub fn neighbours(&self, at: usize) -> impl Iterator<Item = usize> {
        self.links.iter().filter_map(move |link| match link.ends {
            [a, b] if a == at => Some(b),
            [a, b] if b == at => Some(a),
            _ => None,
        })
    }

    /// The links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Position of the edge called `name`.
    ///
    /// # Errors
    /// When there is none.
    pub fn edge(&self, name: &str) -> Result<usize> {
        self.edges().iter().position(|edge| edge == name).ok_or_else(|| {
            let shown = self.edges().len().min(8);
            anyhow::anyhow!("no edge is called {name:?}; there are {:?}...", &self.edges()[..shown])
        })
    }

    /// Position of the switch called `name`.
    fn switch(&self, name: &str) -> Result<usize> {
        self.position(name).with_context(|| {
            let shown = self.switches.len().min(8);
            format!("no switch is called {name:?}; there are {:?}...", &self.switches[..shown])
        })
    }

    /// The link between two switches.
    ///
    /// # Errors
    /// When there is none.
    pub fn link_between(&mut self, [a, b]: &[String; 2]) -> Result<&mut Link> {
        let ends = [a, b].map(|name| self.position(name));
        let [Some(a_at), Some(b_at)] = ends else {
            anyhow::bail!("no link between {a:?} and {b:?}: no such switch");
        };
        self.links
            .iter_mut()
            .find(|link| link.ends == [a_at, b_at] || link.ends == [b_at, a_at])
            .ok_or_else(|| anyhow::anyhow!("no link between {a:?} and {b:?}"))
    }

    /// Changes the quality of every link.
    pub fn alter_all(&mut self, mut change: impl FnMut(&mut LinkQuality)) {
        self.links.iter_mut().for_each(|link| change(&mut link.quality));
    }

    fn add_edge(&mut self, name: impl Into<String>, hosts: u32) -> usize {
        assert_eq!(self.switches.len(), self.hosts.len(), "edges come before other switches");
        self.hosts.push(hosts);
        self.kinds.push(EdgeKind::Software);
        self.switches.push(name.into());
        self.switches.len() - 1
    }

    fn add_switch(&mut self, name: impl Into<String>) -> usize {
        self.inner.push(InnerKind::Linux);
        self.switches.push(name.into());
        self.switches.len() - 1
    }

    fn connect(&mut self, a: usize, b: usize, quality: LinkQuality) {
        self.links.push(Link { ends: [a, b], quality });
    }

    fn check(&self) -> Result<()> {
        anyhow::ensure!(self.hosts.iter().any(|&hosts| hosts > 0), "a network needs a host");
        anyhow::ensure!(self.hosts.iter().all(|&hosts| hosts < 255), "at most 254 hosts an edge");
        anyhow::ensure!(self.hosts.len() <= 1 << 16, "at most 65,536 edges");
        for link in &self.links {
            link.quality.check()?;
            let [a, b] = link.ends;
            let name = &self.switches[a];
            anyhow::ensure!(a != b, "link between {name:?} and itself: name two switches");
        }
        let mut names = std::collections::HashSet::new();
        for name in &self.switches {
            // Points are called by them, s1:in and s1:out.
            anyhow::ensure!(
                !name.is_empty() && !name.contains(|c: char| c == ':' || c.is_whitespace()),
                "a switch is called {name:?}: a name has neither colon nor space"
            );
            anyhow::ensure!(names.insert(name), "two switches are called {name:?}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_software_switches_unless_it_says_otherwise() {
        let load = |name| Topology::load(name, Path::new("."), LinkQuality::default());
        let topology = load("leaf-spine:3x2 e3=tofino e1=software").unwrap();
        let kinds = [EdgeKind::Software, EdgeKind::Software, EdgeKind::Tofino];
        assert_eq!(topology.kinds(), kinds);
        let problem = |name| format!("{:#}", load(name).unwrap_err());
        assert!(problem("pair e9=tofino").contains("no switch is called \"e9\""));
        assert!(problem("pair e2=asic").contains("software, tofino or host-sinks"));
        let topology = load("leaf-spine:2x2 e2=host-sinks").unwrap();
        let sinks: Vec<_> = topology.host_sinks().collect();
        let name = |host| format!("e2h{host}");
        assert_eq!(sinks, [(1, 0, name(1)), (1, 1, name(2))]);
        assert_eq!([0, 1].map(|edge| topology.host_sink(edge, 1)), [None, Some(1)]);
        assert_eq!(topology.kinds()[1], EdgeKind::Software);
        assert!(problem("pair e2").contains("e2=tofino s1=software"));
    }

    #[test]
    fn inner_switches_are_routers_unless_it_says_otherwise() {
        let load = |name| Topology::load(name, Path::new("."), LinkQuality::default());
        let transits = |name| load(name).unwrap().transits().collect::<Vec<_>>();
        assert!(transits("leaf-spine:2x3").is_empty());
        assert_eq!(transits("leaf-spine:2x3 s3=tofino s1=software s2=linux"), [2, 4]);
        let topology = load("leaf-spine:2x3 s3=tofino s1=software e2=tofino").unwrap();
        let tofinos = (0..topology.switches()).filter(|&at| topology.is_tofino(at));
        assert_eq!(tofinos.collect::<Vec<_>>(), [1, 4]);
        assert_eq!(topology.measuring().collect::<Vec<_>>(), ["s1", "s3"]);
        let problem = |name| format!("{:#}", load(name).unwrap_err());
        assert!(problem("pair core=asic").contains("linux, software or tofino"));
        assert!(problem("pair core").contains("e2=tofino s1=software"));
        assert!(problem("pair c9=tofino").contains("no switch is called \"c9\""));
    }
}
