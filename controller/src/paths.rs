//! What probes say of the paths between edges (docs/probes.md): whether marks come through as they
//! were sent, and whether packets come in time for a mark to be believed.
//!
//! No I/O and no clock, so that the simulation drives it as the live controller does.

mod marks;
mod proof;
#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use calumma_analysis::Unprobed;
use calumma_epoch::EpochClock;
use calumma_wire::{NO_MARK, PathsSeen, PathsWanted, ProbeSeen};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::marks::{MARKS, Marks};
use self::proof::Proof;
use crate::spans::{REMEMBERED, Spans};

/// Hosts that are remembered of one edge.
const MOST_HOSTS: usize = 4096;

/// All paths of a deployment.
#[derive(Debug)]
pub struct Paths {
    clock: EpochClock,
    enabled: bool,
    edges: Vec<Edge>,
    /// Positions of edges by number.
    positions: HashMap<u16, usize>,
    /// By address: the edge in front of it.
    hosts: Arc<HashMap<IpAddr, usize>>,
    /// By sender and receiver.
    pairs: BTreeMap<(usize, usize), Pair>,
    /// Nodes that are connected and know no probes.
    unable: BTreeSet<usize>,
    /// By address: the edges at which packets enter that go there.
    senders: HashMap<IpAddr, BTreeSet<usize>>,
    /// Edges that may want to know something new.
    changed: BTreeSet<usize>,
    /// The latest epoch that anything was received in.
    epoch: u64,
}

/// An edge.
#[derive(Clone, Debug, Default)]
struct Edge {
    /// Its number.
    id: u16,
    /// Whether it is connected, and knows probes.
    able: bool,
    /// Hosts behind it.
    hosts: Vec<IpAddr>,
    /// Where packets go that enter there.
    destinations: Vec<IpAddr>,
    /// What it was sent last.
    wanted: Option<PathsWanted>,
    /// Epochs that one probe's flight is more than a mark can tell from.
    most_flight_ns: u64,
    /// To which edges marks are known to come through.
    proof: Proof,
}

/// The path from one edge to another.
#[derive(Clone, Debug, Default)]
struct Pair {
    probes: u64,
    last: Option<ProbeSeen>,
    marks: Marks,
    /// The addresses of the last probe whose mark was changed.
    changed_by: Option<(IpAddr, IpAddr)>,
    /// Since when a mark of a probe was changed, and until when not every one has come through
    /// since.
    changed: Spans,
    /// The same of probes that took too long.
    slow: Spans,
    slowest_ns: u64,
    /// When the last probe was sent that came in time.
    in_time_ns: u64,
    /// Since when one of the edges is not connected: reports of epochs before may still come.
    gone_since: Option<u64>,
}

/// What a probe's three bits are, as people write them.
fn bits(mark: u8) -> String {
    if mark == NO_MARK { "none".to_owned() } else { format!("{mark:03b}") }
}

/// What is known of the path from one edge to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PathStatus {
    /// The edge that sends.
    pub from: String,
    /// The edge that receives.
    pub to: String,
    /// Probes that the receiver has reported: every one that was not as it should be, and one a
    /// second of the others.
    pub probes: u64,
    /// When the last of them was sent, in nanoseconds since the Unix epoch by the sender's clock.
    pub last_unix_ns: Option<u64>,
    /// How long it took, in milliseconds, as far as the edges' clocks agree.
    pub flight_ms: Option<f64>,
    /// How many of the eight marks have been tried.
    pub marks_tried: u8,
    /// Marks that did not come through: what was sent, and what arrived.
    pub marks_changed: Vec<(String, String)>,
    /// The first epoch since which the path can't be trusted; none where it can.
    pub since_epoch: Option<u64>,
    /// What is wrong with it, and what to do; none where nothing is.
    pub problem: Option<String>,
}

impl Paths {
    /// Paths between edges of these numbers; none are probed unless `enabled`.
    pub fn new(clock: EpochClock, enabled: bool, ids: impl IntoIterator<Item = u16>) -> Self {
        let edge = |id| Edge { id, ..Edge::default() };
        let edges: Vec<Edge> = ids.into_iter().map(edge).collect();
        Self {
            clock,
            enabled,
            positions: edges.iter().map(|edge| edge.id).zip(0..).collect(),
            edges,
            hosts: Arc::default(),
            pairs: BTreeMap::new(),
            unable: BTreeSet::new(),
            senders: HashMap::new(),
            changed: BTreeSet::new(),
            epoch: 0,
        }
    }

    /// Lets edges probe, or stops it. What is known of paths is forgotten then.
    pub fn enable(&mut self, enabled: bool) {
        if self.enabled != enabled {
            self.ask_all();
        }
        self.enabled = enabled;
        if !enabled {
            self.pairs.clear();
        }
    }

    /// All edges may want to know something new.
    fn ask_all(&mut self) {
        self.changed.extend(0..self.edges.len());
    }

    /// Those may that have packets for these hosts.
    fn ask_senders_to(&mut self, hosts: &[IpAddr]) {
        self.changed.extend(hosts.iter().filter_map(|host| self.senders.get(host)).flatten());
    }

    /// A node, by position, edges first, has connected, in `epoch`. `able` says whether it knows
    /// probes, and `distinct` how many epochs its marks distinguish.
    pub fn connected(&mut self, node: usize, epoch: u64, able: bool, distinct: u64) {
        self.forget(node, epoch);
        if !able && self.unable.insert(node) && self.unable.len() == 1 {
            self.ask_all();
        }
        let (clock, guard_ns) = (self.clock, self.clock.guards().clock_ns);
        if let Some(edge) = self.edges.get_mut(node) {
            edge.able = able;
            edge.most_flight_ns =
                (clock.length_ns() * distinct.saturating_sub(1)).saturating_sub(2 * guard_ns);
            edge.proof.begin(node, distinct);
            self.changed.insert(node);
        }
    }

    /// A node has gone, in `epoch`.
    pub fn disconnected(&mut self, node: usize, epoch: u64) {
        self.forget(node, epoch);
    }

    /// Forgets what is known of a node and the hosts behind it. Of the paths to it and from it
    /// stays what was wrong with them, for reports of epochs before.
    fn forget(&mut self, node: usize, epoch: u64) {
        if self.unable.remove(&node) && self.unable.is_empty() {
            self.ask_all();
        }
        let Some(edge) = self.edges.get_mut(node) else { return };
        let Edge { id, most_flight_ns, .. } = *edge;
        let proof = std::mem::take(&mut edge.proof).ended(epoch);
        let before = std::mem::replace(edge, Edge { id, most_flight_ns, proof, ..Edge::default() });
        self.set_destinations(node, &before.destinations, &[]);
        self.set_hosts(node, &before.hosts, &[]);
        self.edges.iter_mut().for_each(|edge| edge.proof.forget(node));
        for (_, pair) in self.pairs.iter_mut().filter(|(ends, _)| ends.0 == node || ends.1 == node)
        {
            pair.end(epoch);
        }
        self.pairs.retain(|_, pair| pair.gone_since.is_none_or(|gone| gone + REMEMBERED >= epoch));
    }

    /// Other destinations than before.
    fn set_destinations(&mut self, node: usize, before: &[IpAddr], after: &[IpAddr]) {
        for host in before {
            if let Entry::Occupied(mut senders) = self.senders.entry(*host) {
                senders.get_mut().remove(&node);
                if senders.get().is_empty() {
                    senders.remove();
                }
            }
        }
        for host in after {
            self.senders.entry(*host).or_default().insert(node);
        }
        self.changed.insert(node);
    }

    /// Other hosts behind an edge than before.
    fn set_hosts(&mut self, node: usize, before: &[IpAddr], after: &[IpAddr]) {
        let hosts = Arc::make_mut(&mut self.hosts);
        for host in before {
            if hosts.get(host) == Some(&node) {
                hosts.remove(host);
            }
        }
        hosts.extend(after.iter().take(MOST_HOSTS).map(|&host| (host, node)));
        self.ask_senders_to(before);
        self.ask_senders_to(after);
    }

    /// Takes in what an edge has seen, in `epoch`.
    pub fn take(&mut self, node: usize, seen: PathsSeen, epoch: u64) {
        self.epoch = self.epoch.max(epoch);
        let Some(edge) = self.edges.get_mut(node) else { return };
        let PathsSeen { hosts, destinations, probes } = seen;
        if !destinations.is_empty() || !hosts.is_empty() {
            if !destinations.is_empty() {
                edge.proof.list(self.epoch);
            }
            let other_destinations = (edge.destinations != destinations)
                .then(|| std::mem::replace(&mut edge.destinations, destinations.clone()));
            let other_hosts =
                (edge.hosts != hosts).then(|| std::mem::replace(&mut edge.hosts, hosts.clone()));
            if let Some(before) = other_destinations {
                self.set_destinations(node, &before, &destinations);
            }
            if let Some(before) = other_hosts {
                self.set_hosts(node, &before, &hosts);
            }
        }
        for probe in probes {
            self.take_probe(node, &probe);
        }
    }

    fn take_probe(&mut self, to: usize, probe: &ProbeSeen) {
        let Some(&from) = self.positions.get(&probe.from) else { return };
        let most_ns = self.edges[to].most_flight_ns;
        let clock = self.clock;
        let sent = clock.epoch_at(probe.sent_ns);
        // An edge may say any time.
        let came = clock.epoch_at(probe.received_ns).clamp(sent, sent.saturating_add(REMEMBERED));
        let pair = self.pairs.entry((from, to)).or_default();
        if pair.gone_since.is_some() {
            let Pair { changed, slow, slowest_ns, .. } = std::mem::take(pair);
            *pair = Pair { changed, slow, slowest_ns, ..Pair::default() };
        }
        pair.probes += 1;
        pair.last = Some(*probe);
        pair.marks.take(probe);
        if probe.arrived != probe.mark {
            pair.changed.begin(sent, sent, came);
            pair.changed_by = Some((probe.source, probe.destination));
        } else if pair.marks.changed().next().is_none() {
            pair.changed.end(sent);
        }
        let flight_ns = probe.received_ns.saturating_sub(probe.sent_ns);
        if flight_ns > most_ns {
            if !pair.slow.lasts() {
                pair.slowest_ns = 0;
            }
            // Nothing is known of packets since the last probe that came in time.
            let since = if pair.in_time_ns == 0 { sent } else { clock.epoch_at(pair.in_time_ns) };
            pair.slow.begin(since.min(sent), sent, came);
            pair.slowest_ns = pair.slowest_ns.max(flight_ns);
        } else {
            pair.in_time_ns = pair.in_time_ns.max(probe.sent_ns);
            pair.slow.end(sent);
        }
        if pair.marks.tried() == MARKS && pair.marks.changed().next().is_none() {
            self.edges[from].proof.prove(to, sent);
        }
    }

    /// What is to be sent, each to the edge at a position.
    pub fn messages(&mut self) -> Vec<(usize, PathsWanted)> {
        let on = self.is_on();
        let changed = std::mem::take(&mut self.changed);
        let able = changed.into_iter().filter(|&at| self.edges[at].able);
        let able: Vec<usize> = able.collect();
        let mut messages = Vec::new();
        for at in able {
            let behind = |host: &IpAddr| {
                let other = *self.hosts.get(host).filter(|&&other| other != at)?;
                let Edge { id, able, .. } = self.edges[other];
                able.then_some((*host, id))
            };
            let destinations = self.edges[at].destinations.iter();
            let hosts: Vec<_> =
                if on { destinations.filter_map(behind).collect() } else { Vec::new() };
            let others = hosts.iter().filter_map(|(host, _)| self.hosts.get(host)).copied();
            self.edges[at].proof.wait_for(others, self.epoch);
            let wanted = PathsWanted { on, hosts };
            let last = &mut self.edges[at].wanted;
            if last.as_ref() != Some(&wanted) {
                *last = Some(wanted.clone());
                messages.push((at, wanted));
            }
        }
        messages
    }

    /// What is wrong in an epoch with the paths to each edge, in words; `name` gives edges' names.
    pub fn problems<'a>(&self, epoch: u64, name: impl Fn(usize) -> &'a str) -> Vec<Option<String>> {
        self.problems_where(|spans| spans.of(epoch).is_some(), name)
    }

    /// What is wrong with the paths to each edge, in words, for packets that may have been counted
    /// in a window of these epochs.
    pub fn problems_around<'a>(
        &self,
        window: &Range<u64>,
        name: impl Fn(usize) -> &'a str,
    ) -> Vec<Option<String>> {
        self.problems_where(|spans| spans.is_around(window), name)
    }

    fn problems_where<'a>(
        &self,
        has: impl Fn(&Spans) -> bool,
        name: impl Fn(usize) -> &'a str,
    ) -> Vec<Option<String>> {
        let mut problems: Vec<Option<String>> = vec![None; self.edges.len()];
        for (&(from, to), pair) in &self.pairs {
            let Some(problem) = pair.problem(&has, name(from), self.edges[to].most_flight_ns)
            else {
                continue;
            };
            match &mut problems[to] {
                Some(others) => *others = format!("{others}; {problem}"),
                none => *none = Some(problem),
            }
        }
        problems
    }

    /// By edge: paths from it of which it is not known yet in `epoch` whether marks come through.
    /// Where no probes are sent it never is, and none is named.
    pub fn unprobed(&self, epoch: u64) -> Vec<Option<Unprobed>> {
        let is_on = self.is_on();
        let of = |edge: &Edge| edge.proof.missing(epoch, &self.hosts).filter(|_| is_on);
        self.edges.iter().map(of).collect()
    }

    /// Every path of which something is known.
    pub fn status<'a>(&self, epoch: u64, name: impl Fn(usize) -> &'a str) -> Vec<PathStatus> {
        let status = |(&(from, to), pair): (&(usize, usize), &Pair)| {
            let flight_ns = |of: &ProbeSeen| of.received_ns.wrapping_sub(of.sent_ns).cast_signed();
            let has = |spans: &Spans| spans.of(epoch).is_some();
            let problem = pair.problem(has, name(from), self.edges[to].most_flight_ns);
            let spans = [&pair.changed, &pair.slow].into_iter().filter_map(|all| all.of(epoch));
            PathStatus {
                from: name(from).to_owned(),
                to: name(to).to_owned(),
                probes: pair.probes,
                last_unix_ns: pair.last.map(|probe| probe.sent_ns),
                flight_ms: pair.last.as_ref().map(|probe| flight_ns(probe) as f64 / 1e6),
                marks_tried: pair.marks.tried(),
                marks_changed: pair
                    .marks
                    .changed()
                    .map(|(sent, arrived)| (bits(sent), bits(arrived)))
                    .collect(),
                since_epoch: spans.map(|span| span.since).min(),
                problem,
            }
        };
        let there = self.pairs.iter().filter(|(_, pair)| pair.gone_since.is_none());
        there.map(status).collect()
    }

    /// Whether probes are sent: they are wanted, and all nodes know them.
    pub fn is_on(&self) -> bool {
        self.enabled && self.unable.is_empty()
    }
}

impl Pair {
    /// One of the edges goes: nothing is known of epochs after `epoch`.
    fn end(&mut self, epoch: u64) {
        self.changed.end(epoch);
        self.slow.end(epoch);
        self.gone_since.get_or_insert(epoch);
    }

    /// What is wrong with the path from the edge `from`, in words, in epochs that its spans have.
    fn problem(
        &self,
        has: impl Fn(&Spans) -> bool,
        from: &str,
        most_flight_ns: u64,
    ) -> Option<String> {
        let mut problems = Vec::new();
        if has(&self.changed) {
            problems.push(self.changed_in_words(from));
        }
        if has(&self.slow) {
            problems.push(format!(
                "packets from {from} take up to {:.0} ms, and marks can't tell epochs apart beyond \
                 {:.0} ms: find the queue or link that holds them up",
                self.slowest_ns as f64 / 1e6,
                most_flight_ns as f64 / 1e6
            ));
        }
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    fn changed_in_words(&self, from: &str) -> String {
        let example = self.marks.changed().next();
        let (sent, arrived) = example.unwrap_or((0, 0));
        let way = self
            .changed_by
            .map_or(String::new(), |(source, destination)| format!(" ({source} to {destination})"));
        let how = match (example, arrived) {
            (None, _) => String::new(),
            (_, NO_MARK) => format!(": {} arrives without a valid mark", bits(sent)),
            _ => format!(": {} arrives as {}", bits(sent), bits(arrived)),
        };
        format!("marks are rewritten on the way from {from}{way}{how}; use another carrier")
    }
}
