//! The paths to other edges: which probes are sent when, and what is reported of those that arrive
//! (docs/probes.md).
//!
//! No I/O and no clock: the control thread drives it on a switch, the simulator in virtual time.
//! Lcores note headers of packets that hosts send. Where the controller says that a destination is
//! behind another edge, probes go to it with those headers: every mark at once when the destination
//! is new, and again each minute; one at a time in between.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use calumma_epoch::EpochClock;
use calumma_plane::carrier::Mark;
use calumma_plane::mark::Hierarchy;
use calumma_plane::probe::{FromLcore, Headers, LONGEST, Probe, ProbeKey, Seen};
use calumma_switch_host::Session;
use calumma_wire::{Message, NO_MARK, PathsSeen, PathsWanted, ProbeSeen};

/// How often an lcore is asked for headers.
const SAMPLE_NS: u64 = 10_000_000;

/// Hosts and destinations that are remembered, and for how long after they were seen last.
const MOST_HOSTS: usize = 256;
const FORGET_NS: u64 = 120_000_000_000;

/// How often hosts and destinations are sent to the controller: while they change, and else.
const SOON_NS: u64 = 50_000_000;
const LATER_NS: u64 = 10_000_000_000;

/// How often all marks are tried.
const ALL_MARKS_NS: u64 = 60_000_000_000;

/// Probes a second that an edge sends in all, where that is at least one a second to each other
/// edge and no more than one an epoch.
const MOST_PER_SECOND: u64 = 64;

/// Destinations behind one edge that are probed.
const MOST_PER_EDGE: usize = 4;

/// Probes that wait to be sent.
const MOST_WAITING: usize = 512;

/// Of probes that arrive as they should, one of each edge is reported in so long; and so many more
/// after one that did not, or none: all marks to all destinations, twice.
const REPORT_NS: u64 = 1_000_000_000;
const MOST_OWED: u32 = 2 * MARKS as u32 * MOST_PER_EDGE as u32;

/// Marks that are tried: four hierarchies in this epoch and in the one before.
const MARKS: u64 = 8;

/// A probe that an lcore is to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The packet, but for its mark, and how much of it is one.
    pub frame: [u8; LONGEST],
    /// Its length.
    pub len: usize,
    /// Where its IP header begins.
    pub ip_offset: usize,
    /// Its mark.
    pub mark: Mark,
    /// The lcore, and the position among its ports of the one that the probe enters by.
    pub lcore: usize,
    /// See `lcore`.
    pub port: usize,
}

/// What is known of paths, and what is to be sent.
#[derive(Debug, Default)]
pub struct Paths {
    session: Option<Of>,
    /// Whether the controller wants probes.
    on: bool,
    /// Whether lcores do not have the key yet.
    key_is_new: bool,
    sampled_ns: u64,
    /// Hosts behind this edge, and when each was seen last.
    hosts: BTreeMap<IpAddr, u64>,
    /// Where they send to.
    ways: BTreeMap<IpAddr, Way>,
    /// The edges of hosts that are behind others.
    edges: HashMap<IpAddr, u16>,
    /// When hosts and destinations were sent to the controller last.
    listed_ns: u64,
    has_news: bool,
    /// When all marks are due, and the next probe.
    all_due_ns: u64,
    next_ns: u64,
    turn: usize,
    number: u64,
    waiting: VecDeque<(IpAddr, u64)>,
    seen: Vec<ProbeSeen>,
    /// By edge: when one of its probes was reported last, and how many of those to come will be
    /// though they are as they should be.
    reported: HashMap<u16, (u64, u32)>,
}

/// What is used of a session.
#[derive(Debug)]
struct Of {
    node: u16,
    key: ProbeKey,
    /// The key that probes are sent by from an epoch on.
    next_key: Option<(u64, ProbeKey)>,
    clock: EpochClock,
    ipv6: bool,
}

/// How packets go to a destination.
#[derive(Clone, Copy, Debug)]
struct Way {
    headers: Headers,
    lcore: usize,
    port: usize,
    seen_ns: u64,
}

impl Paths {
    /// A session has begun, which measures IPv6 or does not.
    pub fn begin(&mut self, session: &Session, ipv6: bool) {
        let (key, clock) = (ProbeKey::new(session.hash_key), session.clock);
        self.session = session.node_id.map(|node| Of { node, key, next_key: None, clock, ipv6 });
        self.key_is_new = true;
        self.waiting.clear();
        self.all_due_ns = 0;
    }

    /// The session goes on by another hash key, from its first epoch on. Probes by it are known
    /// from now on, since other edges may be ahead.
    pub fn rekey(&mut self, session: &Session) {
        if let Some(of) = &mut self.session {
            of.next_key = Some((session.first_epoch, ProbeKey::new(session.hash_key)));
            self.key_is_new = true;
        }
    }

    /// What the controller wants.
    pub fn want(&mut self, wanted: PathsWanted) {
        if self.on != wanted.on {
            *self = Self {
                session: self.session.take(),
                key_is_new: self.key_is_new,
                number: self.number,
                on: wanted.on,
                ..Self::default()
            };
        }
        let own = self.session.as_ref().map_or(0, |of| of.node);
        let edges: HashMap<IpAddr, u16> =
            wanted.hosts.into_iter().filter(|&(_, edge)| edge != own).collect();
        if edges.keys().any(|host| !self.edges.contains_key(host)) {
            // All marks at once, where a destination is new.
            self.all_due_ns = 0;
        }
        self.edges = edges;
    }

    /// The controller has gone, and with it the wish.
    pub fn stop(&mut self) {
        self.want(PathsWanted::default());
    }

    /// The key of the session that lcores know probes by, once after it has changed.
    pub fn take_key(&mut self) -> Option<ProbeKey> {
        let newest = |of: &Of| of.next_key.as_ref().map_or(&of.key, |(_, key)| key).clone();
        let key = self.session.as_ref().map(newest);
        if std::mem::take(&mut self.key_is_new) { key } else { None }
    }

    /// Whether lcores are to be asked for headers.
    pub fn wants_samples(&mut self, now_ns: u64) -> bool {
        let due =
            self.on && self.session.is_some() && now_ns.abs_diff(self.sampled_ns) >= SAMPLE_NS;
        if due {
            self.sampled_ns = now_ns;
        }
        due
    }

    /// Takes in what an lcore has found.
    pub fn found(&mut self, lcore: usize, found: FromLcore, now_ns: u64) {
        let Some(of) = &self.session else { return };
        match found {
            FromLcore::Seen(seen) => self.take_seen(seen, now_ns),
            FromLcore::Sample(sample) => {
                let (source, destination) = sample.headers.addresses();
                if !self.on || source == destination || (source.is_ipv6() && !of.ipv6) {
                    return;
                }
                let (headers, port) = (sample.headers, sample.port);
                let way = Way { headers, lcore, port, seen_ns: now_ns };
                self.has_news |= remember(&mut self.hosts, source, now_ns, |of| *of);
                self.has_news |= remember(&mut self.ways, destination, way, |of| of.seen_ns);
            }
        }
    }

    fn take_seen(&mut self, seen: Seen, now_ns: u64) {
        let Some(of) = self.session.as_ref().filter(|_| self.on) else { return };
        let Seen { probe, arrived, received_ns, source, destination } = seen;
        if probe.sender == of.node {
            return;
        }
        let arrived = arrived.map_or(NO_MARK, Mark::bits);
        let mark = probe.mark_bits();
        let flight_ns = received_ns.saturating_sub(probe.sent_ns);
        let is_right = arrived == mark && flight_ns <= of.clock.guards().flight_ns;
        let (last_ns, owed) = self.reported.entry(probe.sender).or_insert((0, MOST_OWED));
        if !is_right {
            *owed = MOST_OWED;
        } else if *owed > 0 {
            *owed -= 1;
        } else if now_ns.abs_diff(*last_ns) < REPORT_NS {
            return;
        }
        *last_ns = now_ns;
        self.seen.push(ProbeSeen {
            from: probe.sender,
            mark,
            arrived,
            sent_ns: probe.sent_ns,
            received_ns,
            source,
            destination,
        });
    }

    /// The probes that are to be sent now.
    pub fn due(&mut self, now_ns: u64) -> Vec<Order> {
        if !self.on || self.session.is_none() {
            return Vec::new();
        }
        if now_ns >= self.all_due_ns {
            self.all_due_ns = now_ns + ALL_MARKS_NS;
            self.all_marks();
        }
        if now_ns >= self.next_ns {
            self.next_ns = now_ns + self.interval_ns();
            let edges = self.targets();
            // All edges by turns; all marks to a host behind one before those to the next.
            let (turn, marks) = (self.turn, MARKS as usize);
            if let Some(hosts) = edges.get(turn % edges.len().max(1)) {
                let round = turn / edges.len();
                self.turn += 1;
                let host = hosts[round / marks % hosts.len()];
                self.waiting.push_front((host, (round % marks) as u64));
            }
        }
        let mut orders = Vec::new();
        while let Some((target, mark)) = self.waiting.pop_front() {
            orders.extend(self.order(target, mark, now_ns));
        }
        orders
    }

    /// Destinations that are probed: some behind each other edge.
    fn targets(&self) -> Vec<Vec<IpAddr>> {
        let mut by_edge: BTreeMap<u16, Vec<IpAddr>> = BTreeMap::new();
        for host in self.ways.keys() {
            if let Some(&edge) = self.edges.get(host) {
                let hosts = by_edge.entry(edge).or_default();
                if hosts.len() < MOST_PER_EDGE {
                    hosts.push(*host);
                }
            }
        }
        by_edge.into_values().collect()
    }

    /// Time between two probes.
    fn interval_ns(&self) -> u64 {
        let length_ns = self.session.as_ref().map_or(0, |of| of.clock.length_ns());
        let edges: BTreeSet<_> = self.ways.keys().filter_map(|host| self.edges.get(host)).collect();
        let edges = edges.len().max(1) as u64;
        let per_second = MOST_PER_SECOND.max(edges);
        (1_000_000_000 / per_second).max(length_ns / edges)
    }

    fn all_marks(&mut self) {
        for target in self.targets().concat() {
            for mark in 0..MARKS {
                if self.waiting.len() < MOST_WAITING {
                    self.waiting.push_back((target, mark));
                }
            }
        }
    }

    fn order(&mut self, target: IpAddr, mark: u64, now_ns: u64) -> Option<Order> {
        let of = self.session.as_mut()?;
        let shown = of.clock.epoch_at(now_ns);
        if let Some((_, key)) = of.next_key.take_if(|(epoch, _)| *epoch <= shown) {
            of.key = key;
        }
        let way = self.ways.get(&target)?;
        // A number that no other probe has, also after the switch was started anew.
        self.number = (self.number + 1).max(now_ns / 1000);
        let epoch = of.clock.epoch_at(now_ns).saturating_sub(mark >> 2);
        let hierarchy = Hierarchy::from_bits((mark & 3) as u8);
        let number = self.number & 0xFFFF_FFFF_FFFF;
        let probe = Probe { sender: of.node, number, epoch, hierarchy, sent_ns: now_ns };
        let (frame, len, ip_offset) = way.headers.with(&probe, &of.key);
        let (mark, lcore, port) = (probe.mark(), way.lcore, way.port);
        Some(Order { frame, len, ip_offset, mark, lcore, port })
    }

    /// What is to be sent to the controller now.
    pub fn message(&mut self, now_ns: u64) -> Option<Message> {
        if !self.on {
            return None;
        }
        let fresh = |seen_ns: u64| now_ns.abs_diff(seen_ns) < FORGET_NS;
        let since_ns = now_ns.abs_diff(self.listed_ns);
        let mut seen = PathsSeen::default();
        if since_ns >= LATER_NS || self.has_news && since_ns >= SOON_NS {
            self.hosts.retain(|_, seen_ns| fresh(*seen_ns));
            self.ways.retain(|_, way| fresh(way.seen_ns));
            self.has_news = false;
            self.listed_ns = now_ns;
            seen.hosts = self.hosts.keys().copied().collect();
            seen.destinations = self.ways.keys().copied().collect();
        } else if self.seen.is_empty() {
            return None;
        }
        seen.probes = std::mem::take(&mut self.seen);
        Some(Message::PathsSeen(Box::new(seen)))
    }
}

/// Remembers a value by address; where there are too many, the one that was seen longest ago makes
/// room. Gives whether the address is new.
fn remember<T>(
    of: &mut BTreeMap<IpAddr, T>,
    address: IpAddr,
    value: T,
    seen_ns: fn(&T) -> u64,
) -> bool {
    let is_new = of.insert(address, value).is_none();
    if of.len() > MOST_HOSTS
        && let Some(oldest) = of.iter().min_by_key(|(_, value)| seen_ns(value)).map(|(at, _)| *at)
    {
        of.remove(&oldest);
    }
    is_new
}
