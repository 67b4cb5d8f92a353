//! What probes say of the paths between edges (docs/probes.md): whether marks come through as they
//! were sent, and whether packets come in time for a mark to be believed.
//!
//! No I/O and no clock, so that the simulation drives it as the live controller does.

mod spans;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use calumma_epoch::EpochClock;
use calumma_wire::{NO_MARK, PathsSeen, PathsWanted, ProbeSeen};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::spans::{REMEMBERED, Spans};

/// Hosts that are remembered of one edge.
const MOST_HOSTS: usize = 4096;

/// Marks that are tried.
const MARKS: u8 = 8;

/// After how long a mark that was tried to a destination counts no more, in nanoseconds: all are
/// tried each minute.
const FORGET_NS: u64 = 150_000_000_000;

/// All paths of a deployment.
#[derive(Debug)]
pub struct Paths {
    clock: EpochClock,
    enabled: bool,
    edges: Vec<Edge>,
    /// Positions of edges by number.
    positions: HashMap<u16, usize>,
    /// By address: the edge in front of it.
    hosts: HashMap<IpAddr, usize>,
    /// By sender and receiver.
    pairs: BTreeMap<(usize, usize), Pair>,
    /// Nodes that are connected and know no probes.
    unable: BTreeSet<usize>,
    /// By address: the edges at which packets enter that go there.
    senders: HashMap<IpAddr, BTreeSet<usize>>,
    /// Edges that may want to know something new.
    changed: BTreeSet<usize>,
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
}

/// The path from one edge to another.
#[derive(Clone, Debug, Default)]
struct Pair {
    probes: u64,
    last: Option<ProbeSeen>,
    /// By destination and mark: what it arrived as last, and when that probe was sent.
    marks: BTreeMap<(IpAddr, u8), (u8, u64)>,
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
            hosts: HashMap::new(),
            pairs: BTreeMap::new(),
            unable: BTreeSet::new(),
            senders: HashMap::new(),
            changed: BTreeSet::new(),
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
        let before = std::mem::replace(edge, Edge { id, most_flight_ns, ..Edge::default() });
        self.set_destinations(node, &before.destinations, &[]);
        self.set_hosts(node, &before.hosts, &[]);
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
        for host in before {
            if self.hosts.get(host) == Some(&node) {
                self.hosts.remove(host);
            }
        }
        self.hosts.extend(after.iter().take(MOST_HOSTS).map(|&host| (host, node)));
        self.ask_senders_to(before);
        self.ask_senders_to(after);
    }

    /// Takes in what an edge has seen.
    pub fn take(&mut self, node: usize, seen: PathsSeen) {
        let Some(edge) = self.edges.get_mut(node) else { return };
        let PathsSeen { hosts, destinations, probes } = seen;
        if !destinations.is_empty() || !hosts.is_empty() {
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
        let pair = self.pairs.entry((from, to)).or_default();
        if pair.gone_since.is_some() {
            let Pair { changed, slow, slowest_ns, .. } = std::mem::take(pair);
            *pair = Pair { changed, slow, slowest_ns, ..Pair::default() };
        }
        pair.probes += 1;
        pair.last = Some(*probe);
        if probe.mark < MARKS {
            let of = (probe.destination, probe.mark);
            pair.marks.retain(|_, (_, at_ns)| *at_ns + FORGET_NS > probe.sent_ns);
            let (arrived, at_ns) = pair.marks.entry(of).or_insert((probe.mark, 0));
            if *at_ns <= probe.sent_ns {
                (*arrived, *at_ns) = (probe.arrived, probe.sent_ns);
            }
        }
        if probe.arrived != probe.mark {
            pair.changed.begin(sent);
            pair.changed_by = Some((probe.source, probe.destination));
        } else if pair.changed().next().is_none() {
            pair.changed.end(sent);
        }
        let flight_ns = probe.received_ns.saturating_sub(probe.sent_ns);
        if flight_ns > most_ns {
            if !pair.slow.lasts() {
                pair.slowest_ns = 0;
            }
            // Nothing is known of packets since the last probe that came in time.
            let since = if pair.in_time_ns == 0 { sent } else { clock.epoch_at(pair.in_time_ns) };
            pair.slow.begin(since.min(sent));
            pair.slowest_ns = pair.slowest_ns.max(flight_ns);
        } else {
            pair.in_time_ns = pair.in_time_ns.max(probe.sent_ns);
            pair.slow.end(sent);
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
            let hosts = if on { destinations.filter_map(behind).collect() } else { Vec::new() };
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
        let mut problems: Vec<Option<String>> = vec![None; self.edges.len()];
        for (&(from, to), pair) in &self.pairs {
            let Some(problem) = pair.problem(epoch, name(from), self.edges[to].most_flight_ns)
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

    /// Every path of which something is known.
    pub fn status<'a>(&self, epoch: u64, name: impl Fn(usize) -> &'a str) -> Vec<PathStatus> {
        let status = |(&(from, to), pair): (&(usize, usize), &Pair)| {
            let flight_ns = |of: &ProbeSeen| of.received_ns.wrapping_sub(of.sent_ns).cast_signed();
            let problem = pair.problem(epoch, name(from), self.edges[to].most_flight_ns);
            let spans = [&pair.changed, &pair.slow].into_iter().filter_map(|all| all.of(epoch));
            PathStatus {
                from: name(from).to_owned(),
                to: name(to).to_owned(),
                probes: pair.probes,
                last_unix_ns: pair.last.map(|probe| probe.sent_ns),
                flight_ms: pair.last.as_ref().map(|probe| flight_ns(probe) as f64 / 1e6),
                marks_tried: pair.tried(),
                marks_changed: pair
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
    /// How many marks have been tried.
    fn tried(&self) -> u8 {
        self.marks.keys().fold(0_u8, |tried, (_, mark)| tried | 1 << mark).count_ones() as u8
    }

    /// Marks that did not come through: what was sent, and what arrived.
    fn changed(&self) -> impl Iterator<Item = (u8, u8)> {
        let all = self.marks.iter().map(|(&(_, mark), &(arrived, _))| (mark, arrived));
        all.filter(|(mark, arrived)| mark != arrived)
    }

    /// One of the edges goes: nothing is known of epochs after `epoch`.
    fn end(&mut self, epoch: u64) {
        self.changed.end(epoch);
        self.slow.end(epoch);
        self.gone_since.get_or_insert(epoch);
    }

    /// What is wrong in an epoch with the path from the edge `from`, in words.
    fn problem(&self, epoch: u64, from: &str, most_flight_ns: u64) -> Option<String> {
        let mut problems = Vec::new();
        if self.changed.of(epoch).is_some() {
            problems.push(self.changed_in_words(from));
        }
        if self.slow.of(epoch).is_some() {
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
        let example = self.changed().next();
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

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_epoch::Guards;

    const LENGTH: u64 = 50_000_000;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn names(at: usize) -> &'static str {
        ["e1", "e2", "e3"][at]
    }

    fn paths() -> Paths {
        let clock = EpochClock::new(LENGTH, Guards::default()).unwrap();
        let mut paths = Paths::new(clock, true, [11, 12, 13]);
        (0..3).for_each(|edge| paths.connected(edge, 0, true, 2));
        paths
    }

    /// A probe from e1 that was sent in the middle of an epoch.
    fn probe(epoch: u64, mark: u8, arrived: u8, flight_ms: u64) -> ProbeSeen {
        let sent_ns = epoch * LENGTH + LENGTH / 2;
        let received_ns = sent_ns + flight_ms * 1_000_000;
        let (source, destination) = (address(1), address(2));
        ProbeSeen { from: 11, mark, arrived, sent_ns, received_ns, source, destination }
    }

    fn take(paths: &mut Paths, probe: ProbeSeen) {
        paths.take(1, PathsSeen { probes: vec![probe], ..PathsSeen::default() });
    }

    #[test]
    fn edges_probe_hosts_that_others_have_in_front_of_them_and_no_one_else() {
        let mut paths = paths();
        let nothing = PathsWanted { on: true, hosts: Vec::new() };
        let first = paths.messages();
        assert_eq!(first, [0, 1, 2].map(|edge| (edge, nothing.clone())));
        let seen = |hosts: &[u8], destinations: &[u8]| PathsSeen {
            hosts: hosts.iter().copied().map(address).collect(),
            destinations: destinations.iter().copied().map(address).collect(),
            probes: Vec::new(),
        };
        paths.take(0, seen(&[1], &[1, 2, 9]));
        assert!(paths.messages().is_empty());
        paths.take(1, seen(&[2], &[]));
        let wanted = PathsWanted { on: true, hosts: vec![(address(2), 12)] };
        assert_eq!(paths.messages(), [(0, wanted)]);
        assert!(paths.messages().is_empty());
        // A switch that knows no probes would let them through to hosts.
        paths.connected(2, 0, false, 2);
        let off = PathsWanted::default();
        assert_eq!(paths.messages(), [(0, off.clone()), (1, off)]);
        assert!(!paths.is_on());
        paths.disconnected(2, 0);
        assert_eq!(paths.messages().len(), 2);
    }

    #[test]
    fn a_path_that_rewrites_marks_is_named_until_all_have_come_through() {
        let mut paths = paths();
        (0..8).for_each(|mark| take(&mut paths, probe(100, mark, mark, 1)));
        assert_eq!(paths.problems(100, names), [None, None, None]);
        take(&mut paths, probe(110, 5, 0, 1));
        take(&mut paths, probe(111, 6, 0, 1));
        assert_eq!(paths.problems(109, names)[1], None);
        let problem = paths.problems(112, names)[1].clone().unwrap();
        assert!(
            problem.contains("from e1 (10.0.0.1 to 10.0.0.2): 101 arrives as 000"),
            "{problem}"
        );
        take(&mut paths, probe(120, 5, 5, 1));
        assert!(paths.problems(120, names)[1].is_some(), "110 has not come through");
        take(&mut paths, probe(121, 6, 6, 1));
        assert_eq!(paths.problems(122, names)[1], None);
        assert!(paths.problems(121, names)[1].is_some());
        let status = paths.status(115, names);
        assert_eq!((status.len(), status[0].marks_tried), (1, 8));
        assert_eq!(status[0].since_epoch, Some(110));
    }

    #[test]
    fn epochs_are_in_doubt_from_the_last_probe_that_came_in_time_to_the_next() {
        let mut paths = paths();
        take(&mut paths, probe(100, 0, 0, 2));
        take(&mut paths, probe(102, 0, 0, 47));
        take(&mut paths, probe(104, 0, 0, 600));
        for (epoch, is_sound) in [(101, true), (102, false), (104, false), (150, false)] {
            assert_eq!(paths.problems(epoch, names)[1].is_none(), is_sound, "{epoch}");
        }
        let problem = paths.problems(104, names)[1].clone().unwrap();
        assert!(problem.contains("from e1 take up to 600 ms"), "{problem}");
        assert!(problem.contains("beyond 48 ms"), "{problem}");
        take(&mut paths, probe(160, 0, 0, 3));
        assert!(paths.problems(160, names)[1].is_some());
        assert_eq!(paths.problems(161, names)[1], None);
    }

    #[test]
    fn a_path_that_changes_often_is_known_for_each_epoch_that_may_be_reported() {
        let mut paths = paths();
        for (epoch, arrived) in [(100, 1), (102, 0), (104, 3), (110, 3), (112, 0), (114, 3)] {
            take(&mut paths, probe(epoch, 3, arrived, 1));
        }
        let trusted = |paths: &Paths, epoch| paths.problems(epoch, names)[1].is_none();
        let expected = [(99, true), (100, false), (104, false), (105, true), (112, false)];
        for (epoch, is_trusted) in expected {
            assert_eq!(trusted(&paths, epoch), is_trusted, "{epoch}");
        }
        take(&mut paths, probe(120, 3, 3, 600));
        assert!(!trusted(&paths, 100), "its report may still come");
    }

    #[test]
    fn reports_of_epochs_before_an_edge_went_know_what_was_wrong_with_its_paths() {
        let mut paths = paths();
        take(&mut paths, probe(100, 5, 0, 1));
        paths.disconnected(0, 110);
        let problem = |paths: &Paths, epoch| paths.problems(epoch, names)[1].clone();
        assert!(problem(&paths, 105).unwrap().contains("101 arrives as 000"));
        assert_eq!((problem(&paths, 111), paths.status(105, names).len()), (None, 0));
        paths.connected(0, 120, true, 2);
        take(&mut paths, probe(121, 5, 5, 1));
        assert!(problem(&paths, 105).is_some());
        assert_eq!((problem(&paths, 121), paths.status(121, names)[0].probes), (None, 1));
        paths.disconnected(2, 110 + REMEMBERED + 100);
        take(&mut paths, probe(300, 5, 5, 1));
        paths.disconnected(0, 400);
        paths.connected(0, 401 + REMEMBERED, true, 2);
        assert_eq!(problem(&paths, 105), None, "forgotten");
    }

    #[test]
    fn only_edges_with_packets_for_a_host_are_sent_where_it_is() {
        let ids = 1..=1000;
        let clock = EpochClock::new(LENGTH, Guards::default()).unwrap();
        let mut paths = Paths::new(clock, true, ids.clone());
        let host = |edge: u16| IpAddr::from([10, 1, (edge >> 8) as u8, edge as u8]);
        for id in ids.clone() {
            paths.connected(usize::from(id) - 1, 0, true, 2);
            let destinations = (1..=8).map(|further| host((id + further - 1) % 1000 + 1));
            let (hosts, destinations) = (vec![host(id)], destinations.collect());
            let seen = PathsSeen { hosts, destinations, probes: Vec::new() };
            paths.take(usize::from(id) - 1, seen);
        }
        let first = paths.messages();
        assert_eq!(first.len(), 1000);
        assert!(first.iter().all(|(_, wanted)| wanted.on && wanted.hosts.len() == 8));
        paths.disconnected(499, 10);
        let next: Vec<_> = paths.messages().into_iter().map(|(at, _)| at).collect();
        assert_eq!(next, (491..499).collect::<Vec<_>>());
        assert_eq!(paths.senders.len(), 1000);
    }

    #[test]
    fn a_mark_that_says_more_of_the_epoch_may_take_longer() {
        let mut paths = paths();
        paths.connected(1, 0, true, 8);
        take(&mut paths, probe(100, 0, 0, 300));
        assert_eq!(paths.problems(100, names)[1], None);
        take(&mut paths, probe(101, 3, NO_MARK, 500));
        let problem = paths.problems(101, names)[1].clone().unwrap();
        assert!(problem.contains("011 arrives without a valid mark"), "{problem}");
        assert!(problem.contains("beyond 348 ms"), "{problem}");
    }
}
