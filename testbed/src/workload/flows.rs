//! The flows of a network at one time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use anyhow::{Result, ensure};
use calumma_sketch::WideKey;

use super::fate::Chance;
use super::{Draw, Fate, Frame, Traffic, chosen_pair, frame, set_ttl};
use crate::topology::{Hop, Routes, Topology, Way};

/// Protocol numbers.
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// What a flow's numbers are drawn for.
mod purpose {
    pub(super) const START: u64 = 0;
    pub(super) const SIZE: u64 = 1;
    pub(super) const VICTIM: u64 = 2;
    pub(super) const LOSS: u64 = 3;
    pub(super) const LOCAL: u64 = 4;
    pub(super) const FROM: u64 = 5;
    pub(super) const TO: u64 = 6;
    pub(super) const PORTS: u64 = 7;
    pub(super) const PROTOCOL: u64 = 8;
    pub(super) const WAY: u64 = 9;
    pub(super) const FATE: u64 = 10;
    pub(super) const RENEWED: u64 = 11;
    pub(super) const FAMILY: u64 = 14;
    pub(super) const PLACE: u64 = 15;
    pub(super) const GAP: u64 = 20;
    pub(super) const INSIDE: u64 = 21;
    pub(super) const CHOSEN: u64 = 22;
}

/// A flow of made-up traffic.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Its 5-tuple.
    pub key: WideKey,
    /// The edges where it enters and leaves the network.
    pub edges: [usize; 2],
    /// Packets it sends in every epoch.
    pub packets: u32,
    /// When in an epoch it begins to send, as a share of the epoch.
    pub start: f64,
    /// Its way through the network; none where no way leads there.
    pub way: Option<Arc<Way>>,
    /// The times to live that its packets are sent with, one after the other, again and again.
    ttls: Arc<[u8]>,
    /// The ToS byte of its packets where a router within the network sends them.
    pub inside: Option<u8>,
    /// Where it sends a packet now and then only: the time between two of them, in nanoseconds.
    gap_ns: Option<u64>,
    /// Share of its packets that are lost wherever it goes.
    victim_loss: f64,
    draw: Draw,
    slot: Slot,
}

/// A flow's place in the traffic, which other flows may come to take.
#[derive(Clone, Copy, Debug)]
struct Slot {
    traffic: usize,
    number: u32,
}

impl Flow {
    /// The time to live that packet `number` of an epoch is sent with.
    pub fn ttl_of(&self, number: u32) -> u8 {
        self.ttls[number as usize % self.ttls.len()]
    }

    /// The beginning of its first packet of an epoch, `wire_len` bytes long, as its host sends it.
    pub fn frame(&self, wire_len: u16) -> Frame {
        self.frame_of(0, wire_len)
    }

    /// The same of packet `number`.
    pub fn frame_of(&self, number: u32, wire_len: u16) -> Frame {
        let mut frame = frame(&self.key, wire_len);
        set_ttl(&mut frame, self.ttl_of(number));
        frame
    }

    /// Packets that it sends in `epoch`.
    pub fn packets_in(&self, epoch: u64, length_ns: u64) -> u32 {
        match self.gap_ns {
            None => self.packets,
            Some(_) => self.now_and_then(epoch, length_ns).count() as u32,
        }
    }

    /// When in `epoch` it sends its packets, in nanoseconds since the epoch's beginning: spread
    /// over the share `spread` of it, or now and then.
    pub(super) fn times(
        &self,
        epoch: u64,
        length_ns: u64,
        spread: f64,
    ) -> impl Iterator<Item = u64> {
        let all = if self.gap_ns.is_some() { 0 } else { self.packets };
        let within = move |number: u32| spread * f64::from(number) / f64::from(self.packets);
        let at = move |number| self.start * (1.0 - spread) + within(number);
        let evenly = (0..all).map(move |number| (at(number) * length_ns as f64) as u64);
        evenly.chain(self.now_and_then(epoch, length_ns))
    }

    /// The same where it sends now and then; nothing where it does not.
    fn now_and_then(&self, epoch: u64, length_ns: u64) -> impl Iterator<Item = u64> + use<> {
        let begin = epoch * length_ns;
        let gap_ns = self.gap_ns.unwrap_or(u64::MAX);
        let phase = (self.start * gap_ns as f64) as u64;
        let first = begin.saturating_sub(phase).div_ceil(gap_ns);
        let times = (first..).map(move |number| number * gap_ns + phase);
        let times = times.take_while(move |&at| at < begin + length_ns);
        times.take(if self.gap_ns.is_some() { usize::MAX } else { 0 }).map(move |at| at - begin)
    }

    /// What happens to its packets of `epoch`.
    pub fn fate(&self, epoch: u64) -> Fate {
        let draw = self.draw.of(purpose::FATE).of(epoch);
        // From a loss rate of one on, the phase must not add a packet.
        let phase = if self.victim_loss < 1.0 { draw.share() } else { 0.0 };
        Fate::new(self.victim_loss, phase, draw)
    }

    /// On which segment of its way a victim flow loses packets: on a link or in an inner switch, or
    /// within the edge that it does not leave.
    pub fn victim_segment(&self) -> usize {
        let segments = self.way.as_ref().map_or(1, |way| way.segments());
        match segments.checked_sub(2) {
            Some(between) => 1 + self.draw.of(purpose::PLACE).below(between as u64) as usize,
            None => 0,
        }
    }

    /// Whether packet `number` of `epoch` is lost, be it by the flow, by a link of `topology`, for
    /// its time to live or since no way leads to where it goes.
    pub fn loses(&self, topology: &Topology, epoch: u64, number: u32) -> bool {
        let fate = self.fate(epoch);
        let lost_by = |link: usize| {
            let loss = topology.links()[link].quality.loss;
            fate.draw(Chance::Loss, link, number).share() < loss
        };
        let Some(way) = &self.way else { return true };
        let links = way.hops().iter().zip(1_usize..);
        let ends = |(hop, switches): (&Hop, usize)| {
            let left = usize::from(self.ttl_of(number)).saturating_sub(switches);
            left < usize::from(topology.links()[hop.link].quality.min_ttl.max(1))
        };
        if links.into_iter().any(ends) {
            return true;
        }
        fate.is_lost(number) || way.hops().iter().any(|hop| lost_by(hop.link))
    }

    fn find_way(&mut self, routes: &Routes) {
        let [from, to] = self.edges;
        self.way = routes.way(from, to, self.draw.of(purpose::WAY).bits()).map(Arc::new);
    }
}

/// All flows, in the order in which they begin to send.
#[derive(Clone, Debug)]
pub struct FlowSet {
    draw: Draw,
    kinds: Vec<Traffic>,
    flows: Vec<Flow>,
}

impl FlowSet {
    /// The flows of these kinds of traffic on `topology`.
    ///
    /// # Errors
    /// When a kind of traffic can't be on this topology.
    pub fn new(
        seed: u64,
        kinds: Vec<Traffic>,
        topology: &Topology,
        routes: &Routes,
    ) -> Result<Self> {
        let mut set = Self { draw: Draw::new(seed), kinds, flows: Vec::new() };
        for at in 0..set.kinds.len() {
            let kind = &set.kinds[at];
            kind.check()?;
            let places = Places::of(kind, topology)?;
            for number in 0..kind.flows {
                let slot = Slot { traffic: at, number };
                set.flows.push(make(set.draw, kind, &places, slot, 0, routes));
            }
        }
        set.flows.sort_by(|a, b| a.start.total_cmp(&b.start));
        Ok(set)
    }

    /// The flows.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Lets other flows take the place of some, as the traffic says for `epoch`.
    ///
    /// # Errors
    /// None but those of [`new`](Self::new).
    pub fn renew(&mut self, epoch: u64, topology: &Topology, routes: &Routes) -> Result<()> {
        for at in 0..self.kinds.len() {
            let kind = &self.kinds[at];
            if kind.churn == 0.0 {
                continue;
            }
            let places = Places::of(kind, topology)?;
            for flow in self.flows.iter_mut().filter(|flow| flow.slot.traffic == at) {
                let slot = slot_draw(self.draw, flow.slot);
                if slot.of(purpose::RENEWED).of(epoch).share() < kind.churn {
                    *flow = make(self.draw, kind, &places, flow.slot, epoch, routes);
                }
            }
        }
        Ok(())
    }

    /// Sends every flow on its way anew, after links have changed.
    pub fn reroute(&mut self, routes: &Routes) {
        self.flows.iter_mut().for_each(|flow| flow.find_way(routes));
    }
}

/// Where flows of a kind can come from and go to.
struct Places {
    /// Every host: its edge, and its number there.
    hosts: Vec<(usize, u32)>,
    /// Position in `hosts` of each edge's first host.
    first: Vec<usize>,
    from: Option<usize>,
    to: Option<usize>,
}

impl Places {
    fn of(kind: &Traffic, topology: &Topology) -> Result<Self> {
        let edge = |name: &Option<String>| -> Result<Option<usize>> {
            name.as_ref().map(|name| topology.edge(name)).transpose()
        };
        let mut places = Self {
            hosts: Vec::new(),
            first: Vec::new(),
            from: edge(&kind.from)?,
            to: edge(&kind.to)?,
        };
        for (edge, &hosts) in topology.hosts().iter().enumerate() {
            places.first.push(places.hosts.len());
            places.hosts.extend((0..hosts).map(|host| (edge, host)));
        }
        ensure!(places.hosts.len() >= 2, "traffic needs two hosts");
        for edge in [places.from, places.to].into_iter().flatten() {
            let name = &topology.edges()[edge];
            ensure!(topology.hosts()[edge] > 0, "traffic from or to {name}: it has no hosts");
        }
        Ok(places)
    }

    /// The hosts of an edge, as positions in `hosts`.
    fn at(&self, edge: usize) -> std::ops::Range<usize> {
        let end = self.first.get(edge + 1).copied().unwrap_or(self.hosts.len());
        self.first[edge]..end
    }

    /// The two hosts of a flow, by position.
    fn draw(&self, kind: &Traffic, draw: Draw) -> (usize, usize) {
        let one_of = |range: std::ops::Range<usize>, what| {
            range.start + draw.of(what).below(range.len() as u64) as usize
        };
        let from = match self.from {
            Some(edge) => one_of(self.at(edge), purpose::FROM),
            None => one_of(0..self.hosts.len(), purpose::FROM),
        };
        if let Some(edge) = self.to {
            let to = self.first[edge];
            // The target itself sends to the host after it.
            return (from, if to == from { (to + 1) % self.hosts.len() } else { to });
        }
        let own = self.at(self.hosts[from].0);
        let others = |range: std::ops::Range<usize>| {
            // Any of the range but the flow's own host.
            let other = one_of(range.start..range.end - 1, purpose::TO);
            if other >= from { other + 1 } else { other }
        };
        match kind.local_share {
            Some(share) if draw.of(purpose::LOCAL).share() < share && own.len() > 1 => {
                (from, others(own))
            }
            Some(_) if own.len() < self.hosts.len() => {
                let other = one_of(0..self.hosts.len() - own.len(), purpose::TO);
                (from, if other >= own.start { other + own.len() } else { other })
            }
            _ => (from, others(0..self.hosts.len())),
        }
    }
}

/// A number that no host of an edge has, nor any above it.
const BEYOND_HOSTS: u32 = 256;

/// The IPv4 address of host `number`, counted from 0, of an edge.
pub fn host_address(edge: usize, number: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, (edge >> 8) as u8, edge as u8, number as u8 + 1)
}

/// The IPv6 address of host `number`, counted from 0, of an edge.
pub fn host_address6(edge: usize, number: u32) -> Ipv6Addr {
    Ipv6Addr::new(0xFD00, 0, 0, edge as u16, 0, 0, 0, number as u16 + 1)
}

/// Whether an address is that of a host of an edge, counted from 0.
pub(crate) fn is_host(address: IpAddr, (edge, number): (usize, u32)) -> bool {
    address == host_address(edge, number) || address == host_address6(edge, number)
}

fn slot_draw(draw: Draw, slot: Slot) -> Draw {
    draw.of(slot.traffic as u64).of(u64::from(slot.number))
}

/// ICMP from one of the network's routers to a host, as when a TTL ends.
fn from_inside(draw: Draw, (edge, number): (usize, u32), ipv6: bool) -> WideKey {
    let router = draw.below(1 << 16);
    if ipv6 {
        let src = Ipv6Addr::new(0xFD31, 0, 0, 0, 0, 0, 0, router as u16);
        return WideKey::v6(src, host_address6(edge, number), 0, 0, ICMPV6);
    }
    let router = router.to_be_bytes();
    let src = Ipv4Addr::new(172, 31, router[6], router[7]);
    WideKey::v4(src, host_address(edge, number), 0, 0, ICMP)
}

fn make(
    all: Draw,
    kind: &Traffic,
    places: &Places,
    slot: Slot,
    generation: u64,
    routes: &Routes,
) -> Flow {
    let of_slot = slot_draw(all, slot);
    let draw = of_slot.of(generation);
    let (from, to) = places.draw(kind, draw);
    let (from, to) = (places.hosts[from], places.hosts[to]);
    let ports = draw.of(purpose::PORTS).bits() as u32 | 0x0400_0000;
    let (sport, dport) = ((ports >> 16) as u16, ports as u16);
    let protocol = match draw.of(purpose::PROTOCOL).share() {
        share if share < kind.tcp => TCP,
        share if share < kind.tcp + kind.sctp => SCTP,
        _ => UDP,
    };
    let [low, high] = kind.loss;
    let victim = draw.of(purpose::VICTIM).share() < kind.victims;
    let loss = low + (high - low) * draw.of(purpose::LOSS).share();
    let packets = kind.sizes.packets(draw.of(purpose::SIZE).share(), kind.flows);
    // A trifle more than one packet, so that rounding does not take it away.
    let least =
        if kind.at_least_one { (1.000_001 / f64::from(packets.max(1))).min(1.0) } else { 0.0 };
    let is_ipv6 = draw.of(purpose::FAMILY).share() < kind.ipv6;
    let key = if is_ipv6 {
        let address = |host: (usize, u32)| host_address6(host.0, host.1);
        WideKey::v6(address(from), address(to), sport, dport, protocol)
    } else {
        let address = |host: (usize, u32)| host_address(host.0, host.1);
        WideKey::v4(address(from), address(to), sport, dport, protocol)
    };
    let key = match kind.scan {
        0 => key,
        addresses => {
            let (src, number) = (host_address6(from.0, 0), slot.number % addresses);
            WideKey::v6(src, host_address6(to.0, BEYOND_HOSTS + number), sport, dport, protocol)
        }
    };
    let key = match (kind.inside, kind.chosen) {
        (Some(_), _) => from_inside(draw.of(purpose::INSIDE), to, is_ipv6),
        (None, Some(chosen)) => {
            let of_pair = Slot { number: slot.number / 2, ..slot };
            let pair = slot_draw(all, of_pair).of(purpose::CHOSEN).of(generation);
            chosen_pair(chosen, pair)[slot.number as usize % 2]
        }
        (None, None) => key,
    };
    let mut flow = Flow {
        key,
        edges: [from.0, to.0],
        packets,
        start: of_slot.of(purpose::START).share(),
        way: None,
        ttls: match &kind.ttl_each[..] {
            [] => [kind.ttl[key.src().to_bits() as usize % kind.ttl.len()]].into(),
            each => each.into(),
        },
        inside: kind.inside,
        gap_ns: kind.gap_ms.map(|[least, most]| {
            let ms = least + (most - least) * draw.of(purpose::GAP).share();
            (ms * 1e6) as u64
        }),
        victim_loss: if victim { loss.max(least) } else { 0.0 },
        draw,
        slot,
    };
    flow.find_way(routes);
    flow
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{LinkQuality, Segment};
    use crate::workload::Sizes;
    use calumma_sketch::{Key, KeyKind};
    use std::collections::{HashMap, HashSet};
    use std::path::Path;

    fn topology() -> (Topology, Routes) {
        let topology =
            Topology::load("fat-tree:4x2", Path::new("."), LinkQuality::default()).unwrap();
        let routes = Routes::new(&topology);
        (topology, routes)
    }

    fn set(kind: Traffic) -> FlowSet {
        let (topology, routes) = topology();
        FlowSet::new(1, vec![kind], &topology, &routes).unwrap()
    }

    #[test]
    fn a_scan_goes_to_as_many_addresses_from_one_host() {
        let [from, to] = ["e1", "e2"].map(|edge| Some(edge.to_owned()));
        let kind = Traffic { flows: 2_000, scan: 1_500, from, to, ipv6: 1.0, ..Traffic::default() };
        let set = set(kind.clone());
        let sources: HashSet<_> = set.flows().iter().map(|flow| flow.key.addresses().0).collect();
        let targets: HashSet<_> = set.flows().iter().map(|flow| flow.key.addresses().1).collect();
        assert_eq!((sources.len(), targets.len()), (1, 1_500));
        assert!(sources.contains(&host_address6(0, 0).into()), "{sources:?}");
        let (topology, routes) = topology();
        let kinds = vec![Traffic { ipv6: 0.5, ..kind }];
        let mistake = FlowSet::new(1, kinds, &topology, &routes).unwrap_err().to_string();
        assert_eq!(mistake, "scan: needs from, to and ipv6 = 1.0");
    }

    #[test]
    fn flows_go_between_all_hosts_alike_and_victims_lose_at_their_rates() {
        let set = set(Traffic { flows: 20_000, victims: 0.1, ..Traffic::default() });
        let mut from: HashMap<usize, u32> = HashMap::new();
        let keys: HashSet<WideKey> = set.flows().iter().map(|flow| flow.key).collect();
        assert!(keys.len() > 19_990, "{} different flows", keys.len());
        let (mut victims, mut lost, mut sent) = (0, 0.0, 0.0);
        for flow in set.flows() {
            *from.entry(flow.edges[0]).or_default() += 1;
            assert_ne!(flow.key.src(), flow.key.dst());
            let fate = flow.fate(3);
            if flow.victim_loss > 0.0 {
                victims += 1;
                lost += f64::from(fate.lost_among(flow.packets));
                sent += f64::from(flow.packets);
                assert!((0.01..=0.2).contains(&flow.victim_loss));
            } else {
                assert_eq!(fate.lost_among(flow.packets), 0);
            }
        }
        assert!(from.values().all(|flows| (4700..5300).contains(flows)), "{from:?}");
        assert!((1800..2200).contains(&victims), "{victims}");
        assert!((0.09..0.12).contains(&(lost / sent)), "{}", lost / sent);
        assert!(set.flows().is_sorted_by_key(|flow| flow.start));
    }

    #[test]
    fn victims_that_lose_at_least_one_packet_do_so_in_every_epoch() {
        let kind = Traffic {
            flows: 3000,
            sizes: Sizes::Hadoop,
            victims: 1.0,
            at_least_one: true,
            ..Traffic::default()
        };
        for flow in set(kind).flows() {
            for epoch in 0..4 {
                let lost = flow.fate(epoch).lost_among(flow.packets);
                assert!((1..=flow.packets).contains(&lost), "{lost} of {}", flow.packets);
            }
        }
    }

    #[test]
    fn what_changes_about_the_traffic_changes_nothing_else() {
        let few = set(Traffic { flows: 1000, ..Traffic::default() });
        let many = set(Traffic { flows: 3000, victims: 0.5, ..Traffic::default() });
        let many: HashMap<WideKey, u32> =
            many.flows().iter().map(|flow| (flow.key, flow.packets)).collect();
        assert!(few.flows().iter().all(|flow| many[&flow.key] == flow.packets));
    }

    #[test]
    fn a_share_of_the_flows_is_ipv6_between_the_same_hosts() {
        let one = set(Traffic { flows: 4000, ..Traffic::default() });
        let both = set(Traffic { flows: 4000, ipv6: 0.25, ..Traffic::default() });
        let mut ipv6 = 0;
        for (flow, other) in both.flows().iter().zip(one.flows()) {
            assert_eq!((flow.edges, flow.packets), (other.edges, other.packets));
            if flow.key.src().to_ipv4_mapped().is_none() {
                ipv6 += 1;
                assert_eq!(usize::from(flow.key.src().segments()[3]), flow.edges[0]);
            } else {
                assert_eq!(flow.key, other.key);
            }
        }
        assert!((900..1100).contains(&ipv6), "{ipv6} of 4000");
        let kind = Traffic { ipv6: 0.25, ..Traffic::default() };
        assert!(kind.check_keys(KeyKind::Dual).is_ok());
        let refused = kind.check_keys(KeyKind::Ipv4).unwrap_err().to_string();
        assert!(refused.contains("keys = \"dual\""), "{refused}");
    }

    #[test]
    fn flows_keep_to_the_edges_they_are_told() {
        let local = set(Traffic { flows: 4000, local_share: Some(0.75), ..Traffic::default() });
        let stay = local.flows().iter().filter(|flow| flow.edges[0] == flow.edges[1]).count();
        assert!((2850..3150).contains(&stay), "{stay} of 4000 stay within their edge");

        let (from, to) = (Some("e2".to_owned()), Some("e3".to_owned()));
        let told = set(Traffic { flows: 100, from, to, ..Traffic::default() });
        assert!(told.flows().iter().all(|flow| flow.edges == [1, 2]));
        let (topology, routes) = topology();
        let kind = Traffic { to: Some("e9".to_owned()), ..Traffic::default() };
        let error = FlowSet::new(1, vec![kind], &topology, &routes).unwrap_err();
        assert!(error.to_string().contains("no edge is called \"e9\""));
    }

    #[test]
    fn churn_puts_other_flows_in_the_place_of_some() {
        let (topology, routes) = topology();
        let kind = Traffic { flows: 5000, churn: 0.2, ..Traffic::default() };
        let mut set = FlowSet::new(1, vec![kind], &topology, &routes).unwrap();
        let before: HashSet<WideKey> = set.flows().iter().map(|flow| flow.key).collect();
        set.renew(8, &topology, &routes).unwrap();
        let stayed = set.flows().iter().filter(|flow| before.contains(&flow.key)).count();
        assert!((3850..4150).contains(&stayed), "{stayed} of 5000");
        assert!(set.flows().is_sorted_by_key(|flow| flow.start));
    }

    #[test]
    fn links_lose_packets_at_random_besides_those_that_a_victim_flow_loses() {
        let (mut topology, _) = topology();
        topology.alter_all(|quality| quality.loss = 0.02);
        let routes = Routes::new(&topology);
        let sizes = Sizes::Constant(10_000);
        let kind =
            Traffic { flows: 40, victims: 0.5, loss: [0.1, 0.1], sizes, ..Traffic::default() };
        let set = FlowSet::new(1, vec![kind], &topology, &routes).unwrap();
        for flow in set.flows().iter().filter(|flow| flow.edges[0] != flow.edges[1]) {
            let way = flow.way.as_ref().unwrap();
            let kept = 0.98_f64.powi(way.hops().len() as i32);
            let expected = 10_000.0 * (1.0 - (1.0 - flow.victim_loss) * kept);
            let lost = (0..10_000).filter(|&number| flow.loses(&topology, 5, number)).count();
            assert!((lost as f64 - expected).abs() < 5.0 * expected.sqrt(), "{lost}: {expected}");
            assert_ne!(flow.fate(5), flow.fate(6));
            let place = way.segment(flow.victim_segment());
            let edges = flow.edges.map(Segment::inside);
            assert!(!edges.contains(&place), "edges lose nothing: {place:?}");
        }
    }

    #[test]
    fn a_fate_loses_its_share_of_the_packets_one_at_a_time() {
        let flow = |loss| {
            let kind = Traffic {
                flows: 1,
                victims: 1.0,
                loss: [loss, loss],
                sizes: Sizes::Constant(1000),
                ..Traffic::default()
            };
            set(kind).flows()[0].clone()
        };
        for epoch in 0..50 {
            let fate = flow(0.1).fate(epoch);
            let lost: Vec<u32> = (0..=1000).map(|n| fate.lost_among(n)).collect();
            assert_eq!(lost[0], 0);
            assert!((99..=101).contains(&lost[1000]));
            assert!(lost.windows(2).all(|pair| pair[1] - pair[0] <= 1));
        }
        assert_eq!(flow(1.0).fate(1).lost_among(1000), 1000);
    }
}
