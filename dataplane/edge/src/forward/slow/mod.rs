//! The slow path: all that a router does beside sending packets on. It answers and asks for
//! Ethernet addresses, keeps packets that wait for one, answers pings, and sends ICMP errors to
//! senders whose packets were dropped.
//!
//! A state machine over packets of any kind: no clock, no rings, no DPDK. [`super::thread`] runs
//! it. What it has to say it says by [`Output`]s; whoever runs it publishes the neighbours first
//! ([`SlowPath::known`]), so that packets which waited find them.

pub mod frames;
mod limit;
pub mod neighbours;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::address::Mac;
use super::config::{Interface, InterfaceId, Plan, Target};
use super::counters::{SlowCounters, SlowReason};
use super::decide::{Refusal, Task};
use super::exchange::{HandOver, Origin, Return};
use super::header::{self, ether_type, protocol};
use crate::packet::Packet;

use self::frames::{Complaint, Saying};
use self::limit::Limit;
use self::neighbours::{Key, Neighbours, Question};

/// How often timers are looked at, in nanoseconds.
const SCAN_NS: u64 = 100_000_000;

/// What the slow path wants done.
#[derive(Debug)]
pub enum Output<P> {
    /// A packet that lcores have received goes back to them.
    Back(Return<P>),
    /// A frame that it made is to be forwarded like any other; it has no Ethernet addresses yet.
    Route(Vec<u8>),
    /// A frame that it made is to be sent by the port at this position as it is.
    Send(Vec<u8>, usize),
}

/// A packet that waits for its next hop, as it was handed over.
type Waiting<P> = HandOver<P>;

/// The slow path's state.
#[derive(Debug)]
pub struct SlowPath<P> {
    plan: Plan,
    neighbours: Neighbours<Waiting<P>>,
    errors: Limit,
    /// Whether each port has a link, by position; ports beyond have one.
    links: Vec<bool>,
    scan_ns: u64,
    counters: Arc<SlowCounters>,
    outputs: Vec<Output<P>>,
}

impl<P: Packet> SlowPath<P> {
    /// A slow path that works by `plan`, from `now_ns` on.
    pub fn new(plan: Plan, counters: Arc<SlowCounters>, now_ns: u64) -> Self {
        let mut slow_path = Self {
            neighbours: Neighbours::new(plan.neighbour_ns),
            errors: Limit::new(plan.icmp_errors_a_second, now_ns),
            links: Vec::new(),
            scan_ns: now_ns,
            counters,
            outputs: Vec::new(),
            plan: Plan { interfaces: Vec::new(), ..plan.clone() },
        };
        slow_path.apply(plan, now_ns);
        slow_path
    }

    /// Works by another plan from now on. Neighbours on interfaces that stay are kept.
    pub fn apply(&mut self, plan: Plan, now_ns: u64) {
        let before = std::mem::replace(&mut self.plan, plan);
        let plan = &self.plan;
        let renumbered = |(interface, address): Key| {
            let old = before.interfaces.get(usize::from(interface))?;
            let id = plan.interfaces.iter().position(|new| {
                (new.port, new.vlan) == (old.port, old.vlan) && on_link(new, address)
            })?;
            Some((id as InterfaceId, address))
        };
        let next_hops = plan.routes.iter().flat_map(|(_, target)| match target {
            Target::Via(hops) => hops.clone(),
            _ => Vec::new(),
        });
        let forgotten = self.neighbours.reconfigure(
            plan.neighbour_ns,
            &plan.neighbours,
            next_hops,
            renumbered,
            now_ns,
        );
        self.errors = Limit::new(plan.icmp_errors_a_second, now_ns);
        // All wait in `forgotten` whose interface has gone, and none without a link.
        self.neighbours.set_down(down(plan, &self.links), now_ns);
        // Others may believe that the addresses are elsewhere.
        let announcements: Vec<_> = plan
            .interfaces
            .iter()
            .flat_map(|interface| {
                let own = interface.addresses.iter().map(|own| own.addr());
                own.filter_map(|own| Some((frames::answer(interface, own, None)?, interface.port)))
            })
            .collect();
        for (frame, port) in announcements {
            self.make(Output::Send(frame, port));
        }
        // Those that waited are routed anew: their next hop may be another one now.
        for waited in forgotten {
            self.send_back(waited);
        }
    }

    /// Notes which ports, by position, have a link. Neighbours and next hops behind others are not
    /// sent to: flows are spread over those that are left.
    pub fn set_links(&mut self, links: &[bool], now_ns: u64) {
        if links == self.links {
            return;
        }
        self.links = links.to_vec();
        for waited in self.neighbours.set_down(down(&self.plan, links), now_ns) {
            self.give_up(waited, SlowReason::LinkDown, now_ns);
        }
    }

    /// Whether neighbours have changed since the last call of
    /// [`changed_neighbours`](Self::changed_neighbours).
    pub fn has_changed_neighbours(&self) -> bool {
        self.neighbours.has_changed()
    }

    /// Neighbours that can be sent to, if they have changed since the last call.
    pub fn changed_neighbours(&mut self) -> Option<Vec<(Key, Mac)>> {
        self.neighbours.take_changed().then(|| self.known().collect())
    }

    /// Neighbours that can be sent to.
    pub fn known(&self) -> impl Iterator<Item = (Key, Mac)> + '_ {
        self.neighbours.known()
    }

    /// What is to be done since the last call, in order.
    pub fn outputs(&mut self) -> Vec<Output<P>> {
        let SlowCounters { neighbours, waiting, .. } = &*self.counters;
        waiting.store(self.neighbours.waiting() as u64, Ordering::Relaxed);
        neighbours.store(self.neighbours.known_len() as u64, Ordering::Relaxed);
        std::mem::take(&mut self.outputs)
    }

    /// Does what is due at `now_ns`.
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns < self.scan_ns {
            return;
        }
        self.scan_ns = now_ns + SCAN_NS;
        let (questions, given_up) = self.neighbours.tick(now_ns);
        questions.into_iter().for_each(|question| self.ask(question));
        for waited in given_up {
            self.give_up(waited, SlowReason::NeighbourUnresolved, now_ns);
        }
    }

    /// Drops a packet for a neighbour that can't be reached, and sends its sender an ICMP error.
    fn give_up(&mut self, waited: Waiting<P>, reason: SlowReason, now_ns: u64) {
        self.counters.drop_for(reason, 1);
        if matches!(reason, SlowReason::NeighbourUnresolved | SlowReason::LinkDown) {
            self.complain(&waited, Complaint::HostUnreachable, now_ns);
        }
        self.free(waited.packet);
    }

    /// Takes in a packet.
    pub fn take(&mut self, handed: HandOver<P>, now_ns: u64) {
        match handed.task {
            Task::Resolve(interface, next) => self.resolve((interface, next), handed, now_ns),
            Task::Tell(refusal) => {
                let complaint = match refusal {
                    Refusal::TtlExpired => Complaint::TtlExpired,
                    Refusal::NoRoute => Complaint::NoRoute,
                    Refusal::TooBig(mtu) => Complaint::TooBig(mtu),
                };
                self.complain(&handed, complaint, now_ns);
                self.free(handed.packet);
            }
            Task::Link => {
                SlowCounters::add(&self.counters.taken, 1);
                self.hear(&handed, now_ns);
                self.free(handed.packet);
            }
            Task::Own => {
                SlowCounters::add(&self.counters.taken, 1);
                self.answer_own(&handed, now_ns);
                self.free(handed.packet);
            }
        }
    }

    /// Takes in a packet that was handed over before the plan changed, in which interfaces may have
    /// other numbers than now: it is routed anew, and nobody is sent an error about it.
    pub fn take_old(&mut self, handed: HandOver<P>) {
        match handed.task {
            Task::Tell(_) => self.free(handed.packet),
            Task::Link | Task::Own | Task::Resolve(..) => self.send_back(handed),
        }
    }

    fn resolve(&mut self, key: Key, handed: HandOver<P>, now_ns: u64) {
        match self.neighbours.wait(key, handed.port, handed, now_ns) {
            Ok(question) => question.into_iter().for_each(|question| self.ask(question)),
            Err((handed, None)) => self.send_back(handed),
            Err((handed, Some(reason))) => self.give_up(handed, reason, now_ns),
        }
    }

    /// Hears a question or an answer for an Ethernet address, or a ping to a link-local address.
    fn hear(&mut self, handed: &HandOver<P>, now_ns: u64) {
        let bytes = handed.packet.bytes();
        let Some(link) = header::link(bytes, None) else { return };
        let body = bytes.get(link.end..).unwrap_or_default();
        let id = handed.arrived;
        let Some(interface) = self.plan.interfaces.get(usize::from(id)) else { return };
        let saying = match link.ether_type {
            ether_type::ARP => frames::read_arp(body),
            _ => frames::read_discovery(body),
        };
        let Some(saying) = saying else {
            if let Some(mut reply) = frames::echo_reply(body) {
                let reply = reply.split_off(header::ETHERNET);
                let frame = frames::frame(interface, link.from, link.ether_type, &reply);
                let port = interface.port;
                self.make(Output::Send(frame, port));
            }
            return;
        };
        // Answers to IPv6's questions may leave the Ethernet address to the frame.
        let saying = Saying { mac: saying.mac.or(Some(link.from)), ..saying };
        let for_us = saying.asks && interface.owns(saying.about);
        let reply =
            if for_us { frames::answer(interface, saying.about, Some(&saying)) } else { None };
        let port = interface.port;
        // Whoever asks us will be sent to; others are believed only about themselves, and only if
        // they are known or asked for.
        let speaker = if saying.asks { saying.from } else { saying.about };
        let believable = on_link(interface, speaker) && !interface.owns(speaker);
        if let Some(mac) = saying.mac.filter(|_| believable) {
            for waited in self.neighbours.learn((id, speaker), mac, for_us, now_ns) {
                self.send_back(waited);
            }
        }
        if let Some(frame) = reply {
            self.make(Output::Send(frame, port));
        }
    }

    /// Answers a packet to one of the switch's addresses.
    fn answer_own(&mut self, handed: &HandOver<P>, now_ns: u64) {
        let packet = ip_packet(&handed.packet, self.plan.shim);
        if let Some(reply) = frames::echo_reply(packet) {
            self.make(Output::Route(reply));
            return;
        }
        let protocol = match packet.first().map(|first| first >> 4) {
            Some(4) => packet.get(9),
            _ => packet.get(6),
        };
        if protocol == Some(&protocol::UDP) {
            self.complain(handed, Complaint::PortUnreachable, now_ns);
        }
    }

    /// Sends a packet's sender an ICMP error, if it may be sent one and the limit of their rate
    /// allows it.
    fn complain(&mut self, about: &HandOver<P>, complaint: Complaint, now_ns: u64) {
        let packet = ip_packet(&about.packet, self.plan.shim);
        let any = match packet.first().map(|first| first >> 4) {
            Some(4) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Some(6) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => return,
        };
        let arrived = self.plan.interfaces.get(usize::from(about.arrived));
        let from =
            arrived.into_iter().chain(&self.plan.interfaces).find_map(|own| own.speaks_from(any));
        let made_by_us = about.origin == Origin::Own;
        let Some(error) =
            from.filter(|_| !made_by_us).and_then(|from| frames::error(from, packet, complaint))
        else {
            return;
        };
        if self.errors.allows(now_ns) {
            SlowCounters::add(&self.counters.icmp_errors, 1);
            self.make(Output::Route(error));
        } else {
            SlowCounters::add(&self.counters.icmp_errors_withheld, 1);
        }
    }

    fn ask(&mut self, question: Question) {
        let ((id, about), to) = match question {
            Question::Everybody(key) => (key, None),
            Question::Itself(key, mac) => (key, Some(mac)),
        };
        let Some(interface) = self.plan.interfaces.get(usize::from(id)) else { return };
        let port = interface.port;
        if let Some(frame) = frames::ask(interface, about, to) {
            self.make(Output::Send(frame, port));
        }
    }

    fn make(&mut self, output: Output<P>) {
        SlowCounters::add(&self.counters.made, 1);
        self.outputs.push(output);
    }

    fn send_back(&mut self, handed: HandOver<P>) {
        let HandOver { packet, port, origin, .. } = handed;
        self.outputs.push(Output::Back(Return::Route { packet, port, origin }));
    }

    fn free(&mut self, packet: P) {
        self.outputs.push(Output::Back(Return::Free(packet)));
    }
}

/// Which of a plan's interfaces, by number, are on ports without a link.
fn down(plan: &Plan, links: &[bool]) -> Vec<bool> {
    let is_down = |interface: &Interface| links.get(interface.port) == Some(&false);
    plan.interfaces.iter().map(is_down).collect()
}

/// Whether a neighbour with this address can be on the link of an interface.
fn on_link(interface: &Interface, address: IpAddr) -> bool {
    let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    link_local || interface.addresses.iter().any(|own| own.contains(&address))
}

/// A packet from its IP header on, without padding behind it; as much as there is of one that was
/// cut off to be quoted. That its length agrees with the frame's is known from the lcore.
fn ip_packet<P: Packet>(packet: &P, shim: Option<u16>) -> &[u8] {
    let bytes = packet.bytes();
    let Some(link) = header::link(bytes, shim) else { return &[] };
    let len = match link.ether_type {
        ether_type::IPV4 => header::v4(bytes, link.end, usize::MAX).map(|ip| ip.total_len),
        ether_type::IPV6 => header::v6(bytes, link.end, usize::MAX).map(|ip| ip.total_len),
        _ => None,
    };
    let end = link.end + len.unwrap_or(0);
    bytes.get(link.end..end.min(bytes.len())).unwrap_or_default()
}
