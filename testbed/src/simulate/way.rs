//! Packets on their way from edge to edge: over every link, and through every switch in between.
//!
//! Packets of one flow pass together as long as nothing parts them. What is lost is counted here,
//! where it is lost, and no switch of Calumma has a part in it.

use std::sync::Arc;

use calumma_edge::carrier::{Mark, PlainTos};
use calumma_edge::packet::Packet;
use calumma_plane::{MarkedRun, Run};
use calumma_sketch::{BURST, WideKey};

use super::link::{self, Transmitter};
use super::nat;
use super::network::{Bytes, IP_OFFSET, bytes};
use super::node::Node;
use super::numbers::Numbers;
use super::stay::{Had, OnWay, Stay};
use super::truth::{Account, Touched, Treatment, Truths};
use crate::carrier::Carrier;
use crate::topology::{Link, LinkQuality, Topology, Way};
use crate::workload::{Chance, Fate, Flow, frame, identify_as, set_dscp, set_ttl, translate};

/// Packets of one flow that are under way together.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) key: WideKey,
    /// What entered together: timestamp bit, and hierarchies from the packet `first` on.
    entered: MarkedRun,
    first: u32,
    /// Those of these packets that are in this load.
    left: Numbers,
    /// The packet itself, where packets are simulated one by one.
    pub(super) bytes: Option<Bytes>,
    /// What it has met.
    pub(super) met: OnWay,
    /// The DSCP that a link has given them, where one has.
    dscp: Option<u8>,
    /// Their time to live.
    ttl: u8,
    /// Whether they go from host to host of an edge, which has recorded them as such.
    pub(super) has_crossed: bool,
    way: Arc<Way>,
    /// The segment of the way that they are about to pass.
    at: usize,
    /// Whether they have waited for the link that they are about to pass.
    has_waited: bool,
    fate: Fate,
    /// The segment on which a victim flow's packets are lost.
    victims_at: usize,
    account: Account,
}

impl Load {
    /// What has entered of a flow, its packets from `first` on, and goes `way`.
    pub(super) fn new(
        flow: &Flow,
        way: &Arc<Way>,
        fate: Fate,
        (first, entered): (u32, MarkedRun),
        account: Account,
    ) -> Self {
        let ttl = flow.ttl_of(first);
        Self {
            key: flow.key,
            entered,
            first,
            left: Numbers::within(first..first + entered.run.packets()),
            bytes: None,
            met: OnWay::default(),
            dscp: None,
            ttl,
            has_crossed: false,
            way: way.clone(),
            at: 0,
            has_waited: false,
            fate,
            victims_at: flow.victim_segment(),
            account,
        }
    }

    /// The packets with the marks they carry.
    pub(super) fn marked(&self) -> MarkedRun {
        let run = self.run(&self.left);
        let Some(dscp) = self.dscp else { return MarkedRun { bit: self.entered.bit, run } };
        let Mark { bit, hierarchy, .. } = Mark::from_bits(dscp >> 3);
        let mut counts = [0; 4];
        counts[usize::from(hierarchy.bits())] = run.packets();
        MarkedRun { bit, run: Run::new(counts) }
    }

    /// Whether a packet is as its host sent it, but for what links have changed that no edge puts
    /// right. What an identification or flow label is then means nothing to hosts.
    pub(super) fn is_whole(&self, packet: &Bytes, carrier: Carrier) -> bool {
        let mut expected = frame(&self.key, 60);
        set_ttl(&mut expected, self.ttl);
        if let Some(dscp) = self.dscp {
            // An edge gives back the bits that carry the mark, and no others.
            let left = match carrier {
                Carrier::Tos => dscp & 0b111,
                Carrier::SignedTos => 0,
                _ => dscp,
            };
            set_dscp(&mut expected, left);
        }
        if carrier.is_signed() {
            identify_as(&mut expected, packet.bytes());
        }
        // Ethernet's addresses say which host was meant before anything was translated.
        packet.bytes()[12..] == expected[12..]
    }

    /// The edge where they leave the network.
    pub(super) fn egress(&self) -> usize {
        self.way.switch(self.way.hops().len())
    }

    /// Some of the packets by hierarchy.
    fn run(&self, numbers: &Numbers) -> Run {
        numbers.of_run(&self.entered.run, self.first)
    }

    /// Of the packets, the first ones are lost on the segment that they are about to pass, and the
    /// others are left.
    fn lose(&mut self, truths: &mut Truths, [lost, left]: [Numbers; 2]) {
        self.left = left;
        if lost.is_empty() {
            return;
        }
        let run = self.run(&lost);
        if let Some(flow) = truths.flow(self.account) {
            flow.lose_on(self.way.segment(self.at), &run, self.touched(lost));
        }
    }

    /// All of the packets are lost on the segment that they are about to pass.
    fn lose_all(&mut self, truths: &mut Truths) {
        self.lose(truths, self.left.split(|_| true));
    }

    /// A link loses packets by chance, or for their time to live.
    fn lose_on_link(&mut self, truths: &mut Truths, link: usize, quality: &LinkQuality) {
        if self.ttl < quality.min_ttl {
            self.lose_all(truths);
        }
        let (fate, loss) = (self.fate, quality.loss);
        if loss > 0.0 {
            let lost = |number| fate.draw(Chance::Loss, link, number).share() < loss;
            self.lose(truths, self.left.split(lost));
        }
    }

    /// The flow loses packets, where this is the segment on which it does, and all of them where it
    /// is a switch on whose way to the next one their time to live ends.
    fn lose_victims(&mut self, truths: &mut Truths) {
        if self.ttl <= 1 && self.at.is_multiple_of(2) && !self.has_arrived() {
            self.lose_all(truths);
        }
        let fate = self.fate;
        if fate.is_victim() && self.victims_at == self.at {
            self.lose(truths, self.left.part(|numbers| fate.lost_of(numbers)));
        }
    }

    /// The copies that a link makes of packets by chance, if any.
    fn copies(&self, truths: &mut Truths, link: usize, quality: &LinkQuality) -> Option<Self> {
        if quality.duplicate == 0.0 {
            return None;
        }
        let draw = |number| self.fate.draw(Chance::Copy, link, number).share();
        let [doubled, _] = self.left.split(|number| draw(number) < quality.duplicate);
        if doubled.is_empty() {
            return None;
        }
        let run = self.run(&doubled);
        if truths.is_disturbed(&self.key) {
            // Copies of what was translated are too many of the flow that it has become.
            truths.disturb(&self.key, doubled.count());
        }
        if let Some(flow) = truths.flow(self.account) {
            flow.double_on(self.way.segment(self.at), &run, self.touched(doubled.clone()));
        }
        Some(Self { left: doubled, fate: self.fate.of_copies(link), ..self.clone() })
    }

    /// Some of the packets, as the truth keeps them.
    fn touched(&self, numbers: Numbers) -> Touched {
        Touched { numbers, first: self.first, entered: self.entered.run }
    }

    /// What a link makes of them, and how long each part of it takes; nothing of it is lost.
    fn cross(
        mut self,
        truths: &mut Truths,
        link: usize,
        quality: &LinkQuality,
    ) -> Vec<(u64, Self)> {
        self.translate(truths, link, quality);
        let mut parts = self.remark(truths, link, quality);
        let copies: Vec<Self> =
            parts.iter().filter_map(|part| part.copies(truths, link, quality)).collect();
        parts.extend(copies);
        let mut through = Vec::new();
        for part in parts {
            for (held_ns, mut part) in part.hold_up(truths, link, quality) {
                let delay_ns = held_ns + part.delay_ns(link, quality);
                part.pass(truths);
                through.push((delay_ns, part));
            }
        }
        through
    }

    /// A link translates their addresses, where it does so to this flow.
    fn translate(&mut self, truths: &mut Truths, link: usize, quality: &LinkQuality) {
        let Some(key) = nat::translated(&self.key, link, quality) else { return };
        self.treat(truths, Treatment::Translated(key), &self.left);
        self.key = key;
        if let Some(packet) = &mut self.bytes {
            translate(packet.bytes_mut(), &key);
        }
    }

    /// A link sets the DSCP of packets by chance. Gives those whose it sets and the others, if any.
    fn remark(self, truths: &mut Truths, link: usize, quality: &LinkQuality) -> Vec<Self> {
        if quality.remark == 0.0 {
            return vec![self];
        }
        let draw = |number| self.fate.draw(Chance::Remark, link, number).share();
        let [set, left] = self.left.split(|number| draw(number) < quality.remark);
        self.treat(truths, Treatment::Remarked(quality.dscp), &set);
        let mut remarked = Self { left: set, dscp: Some(quality.dscp), ..self.clone() };
        if let Some(packet) = &mut remarked.bytes {
            set_dscp(packet.bytes_mut(), quality.dscp);
        }
        let both = [remarked, Self { left, ..self }];
        both.into_iter().filter(|part| !part.left.is_empty()).collect()
    }

    /// A link holds up packets by chance, each for as long as it takes. Gives all of them, and for
    /// how long they are held up.
    fn hold_up(self, truths: &mut Truths, link: usize, quality: &LinkQuality) -> Vec<(u64, Self)> {
        if quality.late == 0.0 {
            return vec![(0, self)];
        }
        let draw = |number| self.fate.draw(Chance::HoldUp, link, number);
        let [held, left] = self.left.split(|number| draw(number).share() < quality.late);
        self.treat(truths, Treatment::HeldUp, &held);
        let [least, most] = quality.late_ms;
        let held_ns = |number| ((least + (most - least) * draw(number).of(1).share()) * 1e6) as u64;
        let single = |number| Self { left: Numbers::within(number..number + 1), ..self.clone() };
        let mut parts: Vec<(u64, Self)> =
            held.iter().map(|number| (held_ns(number), single(number))).collect();
        if !left.is_empty() {
            parts.push((0, Self { left, ..self }));
        }
        parts
    }

    /// A link treats packets in a way that neither loses nor copies them.
    fn treat(&self, truths: &mut Truths, treatment: Treatment, numbers: &Numbers) {
        if numbers.is_empty() {
            return;
        }
        let packets = numbers.count();
        truths.disturb(&self.key, packets);
        if let Treatment::Translated(key) = treatment {
            truths.disturb(&key, packets);
        }
        if let Some(flow) = truths.flow(self.account) {
            flow.treat_on(self.way.segment(self.at), treatment, packets);
        }
    }

    /// How long a link takes to carry them.
    fn delay_ns(&self, link: usize, quality: &LinkQuality) -> u64 {
        let ns = |us: f64| (us * 1e3) as u64;
        let late = self.fate.draw(Chance::Delay, link, self.left.first());
        ns(quality.delay_us) + late.below(ns(quality.jitter_us) + 1)
    }

    /// They wait until the link that they are about to pass carries them, each for itself; those
    /// that find the queue full are lost. Gives when the link is through with each that is
    /// left.
    fn wait(
        &mut self,
        truths: &mut Truths,
        transmitter: &mut Transmitter,
        quality: &LinkQuality,
        now_ns: u64,
    ) -> Vec<(u64, Self)> {
        let mut through = Vec::new();
        let lost = |number| match transmitter.accept(quality, now_ns) {
            Some(through_ns) => {
                through.push((through_ns, number));
                false
            }
            None => true,
        };
        self.lose(truths, self.left.split(lost));
        let single = |number| Self {
            left: Numbers::within(number..number + 1),
            has_waited: true,
            ..self.clone()
        };
        through.into_iter().map(|(through_ns, number)| (through_ns, single(number))).collect()
    }

    /// They pass the inside of a transit, where the flow may lose some. A run passes packet
    /// by packet. Gives when they go on.
    fn pass_inside(&mut self, truths: &mut Truths, switch: &mut Node, now_ns: u64) -> u64 {
        let received: Vec<u32> = self.left.iter().collect();
        self.lose_victims(truths);
        let left = &self.left;
        if let Some(packet) = &mut self.bytes {
            let before = packet.bytes().len();
            let accepted = |_| !left.is_empty();
            let (at_ns, had) = switch.pass(std::slice::from_mut(packet), now_ns, accepted);
            let place = self.way.switch(self.at / 2);
            let stayed = Stay { arrived_ns: now_ns, departed_ns: at_ns };
            self.met.pass(place, (before, packet.bytes().len()), (had, stayed));
            return at_ns;
        }
        let mut at_ns = now_ns;
        for burst in received.chunks(BURST) {
            let mut packets: Vec<Bytes> = burst.iter().map(|&number| self.packet(number)).collect();
            at_ns = switch.pass(&mut packets, now_ns, |at| left.contains(burst[at])).0;
        }
        at_ns
    }

    /// One of the packets, with the mark that it carries.
    fn packet(&self, number: u32) -> Bytes {
        let mut packet = bytes(&frame(&self.key, 60));
        set_ttl(packet.bytes_mut(), self.ttl);
        let MarkedRun { bit, run } = self.entered;
        let mut end = self.first;
        let hierarchy = run.by_hierarchy().find_map(|(hierarchy, packets)| {
            end += packets;
            (number < end).then_some(hierarchy)
        });
        if let Some(hierarchy) = hierarchy {
            PlainTos::default().write(packet.bytes_mut(), IP_OFFSET, Mark::plain(bit, hierarchy));
        }
        if let Some(dscp) = self.dscp {
            set_dscp(packet.bytes_mut(), dscp);
        }
        packet
    }

    /// They come to a switch, maybe again.
    fn visit(&self, truths: &mut Truths) {
        if self.way.goes_round()
            && let Some(flow) = truths.flow(self.account)
        {
            flow.visit(self.way.switch(self.at / 2), self.left.count());
        }
    }

    /// Whether they are where they leave the network.
    pub(super) fn has_arrived(&self) -> bool {
        self.at + 1 == self.way.segments()
    }

    /// They have passed a segment.
    fn pass(&mut self, truths: &mut Truths) {
        truths.passed(self.account, self.way.segment(self.at).to, self.left.count());
        if self.at.is_multiple_of(2) {
            self.route();
        }
        self.at += 1;
        self.has_waited = false;
    }

    /// A switch has routed them.
    fn route(&mut self) {
        self.ttl -= 1;
        if let Some(packet) = &mut self.bytes {
            set_ttl(packet.bytes_mut(), self.ttl);
        }
    }

    /// A packet has come to its sink at `now_ns`, which knows `had` of it.
    pub(super) fn arrive(&self, truths: &mut Truths, (now_ns, had): (u64, Had)) {
        if let Some(flow) = truths.flow(self.account) {
            self.met.arrive(self.egress(), (now_ns, had), &mut flow.met);
        }
    }

    /// A packet goes on from its last switch, which may push, to the host's own sink.
    pub(super) fn hand_on(&mut self, edge: &mut Node, packet: &mut Bytes, now_ns: u64) {
        let before = packet.bytes().len();
        let (departed_ns, had) = edge.hand_on(packet, now_ns);
        let stayed = Stay { arrived_ns: now_ns, departed_ns };
        self.met.pass(self.egress(), (before, packet.bytes().len()), (had, stayed));
    }

    /// A packet has come to its host, which is no hop.
    pub(super) fn arrive_at_host(&self, truths: &mut Truths) {
        if let Some(flow) = truths.flow(self.account) {
            self.met.end(&mut flow.met);
        }
    }

    /// They leave the network.
    pub(super) fn deliver(&self, truths: &mut Truths) {
        let packets = self.left.count();
        truths.passed(self.account, self.way.segment(self.at).to, packets);
        if let Some(flow) = truths.flow(self.account) {
            flow.delivered += packets;
        }
    }
}

/// What lies between the edges.
#[derive(Debug)]
pub(super) struct Fabric {
    links: Vec<Link>,
    /// By number of the link and the end from which it carries.
    transmitters: Vec<[Transmitter; 2]>,
    /// By switch, its position among the nodes; none where it is an edge, or no switch of ours.
    transits: Vec<Option<usize>>,
}

impl Fabric {
    /// The nodes are the edges, and then the transits, in order.
    pub(super) fn new(topology: &Topology) -> Self {
        let links = topology.links().to_vec();
        let mut transits = vec![None; topology.switches()];
        for (at, node) in topology.transits().zip(topology.edges().len()..) {
            transits[at] = Some(node);
        }
        Self { transmitters: vec![Default::default(); links.len()], links, transits }
    }

    /// The position among the nodes of an inner switch that is a transit.
    pub(super) fn transit(&self, switch: usize) -> Option<usize> {
        self.transits.get(switch).copied().flatten()
    }

    /// Gives the links the qualities that `topology`, the same otherwise, has now.
    pub(super) fn set_links(&mut self, topology: &Topology) {
        self.links = topology.links().to_vec();
    }

    /// Lets a load that is at `at_ns` where it is pass the network, as far as nothing that happens
    /// after `now_ns` can matter to it. Adds what is left of it to `onward`, and when to go on
    /// with it: what has arrived at the egress edge, and what comes to a link where others may
    /// be before it, or to a switch that has something to do before.
    pub(super) fn pass(
        &mut self,
        load: Load,
        (at_ns, now_ns): (u64, u64),
        nodes: &mut [Node],
        truths: &mut Truths,
        onward: &mut Vec<(u64, Load)>,
    ) {
        let mut under_way = vec![(at_ns, load)];
        while let Some((mut at_ns, mut load)) = under_way.pop() {
            loop {
                let link = (load.at % 2 == 1).then(|| load.way.hops()[load.at / 2].link);
                if let Some(link) = link {
                    let Link { quality, ends } = &self.links[link];
                    if quality.rate_pps > 0.0 && !load.has_waited {
                        if at_ns > now_ns {
                            onward.push((at_ns, load));
                        } else {
                            let from = load.way.switch(load.at / 2);
                            let transmitter =
                                &mut self.transmitters[link][usize::from(ends[0] != from)];
                            under_way.extend(load.wait(truths, transmitter, quality, at_ns));
                        }
                        break;
                    }
                    load.lose_on_link(truths, link, quality);
                }
                match self.transits[load.way.switch(load.at / 2)] {
                    Some(transit) if link.is_none() => {
                        let switch = &mut nodes[transit];
                        if at_ns > now_ns && (at_ns >= switch.due_ns || switch.is_timed()) {
                            onward.push((at_ns, load));
                            break;
                        }
                        load.visit(truths);
                        at_ns = load.pass_inside(truths, switch, at_ns);
                    }
                    _ => load.lose_victims(truths),
                }
                if load.left.is_empty() {
                    break;
                }
                if load.has_arrived() {
                    onward.push((at_ns, load));
                    break;
                }
                if let Some(link) = link {
                    let quality = &self.links[link].quality;
                    if !link::is_plain(quality) {
                        let parts = load.cross(truths, link, quality).into_iter();
                        under_way.extend(parts.map(|(delay_ns, part)| (at_ns + delay_ns, part)));
                        break;
                    }
                    at_ns += load.delay_ns(link, quality);
                }
                load.pass(truths);
            }
        }
    }
}
