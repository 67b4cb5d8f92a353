//! What becomes of each packet of a burst: read, looked up and, where it goes on, rewritten.
//!
//! Three passes: plain packets ([`super::plain`]) are recognised, and others read header by header;
//! addresses are looked up all at once; then each packet is given its new Ethernet header and TTL.
//! Nothing is sent, dropped or counted here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calumma_sketch::BURST;

use super::config::{InterfaceId, PassTo};
use super::counters::Reason;
use super::header::{self, Link, V4, V6, ether_type, protocol};
use super::plain::{self, Plain, Template};
use super::routed::Routed;
use super::shorten::Lost;
use super::tables::{Adjacency, HopTarget, Lpm, Tables};
use crate::config::Role;
use crate::packet::Packet;
use crate::parse::PlainFlows;

/// What becomes of a packet that is not routed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves by this port, not rewritten.
    Pass(PassTo),
    /// It is for the slow path.
    HandOver(Arrived, Task),
    /// It is dropped.
    Drop(Reason),
    /// It is dropped, and its sender gets an ICMP error.
    Refuse(Arrived, Refusal),
}

/// Where a packet came in.
pub type Arrived = InterfaceId;

/// What the slow path is to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// It asks or answers for an Ethernet address, or came to a link-local one: it was never meant
    /// to leave the link.
    Link,
    /// It is for the switch itself.
    Own,
    /// Its next hop's Ethernet address is not known yet.
    Resolve(InterfaceId, IpAddr),
    /// It was dropped; its sender is to get an ICMP error.
    Tell(Refusal),
}

/// Why a packet was dropped whose sender gets an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It had passed as many routers as it may.
    TtlExpired,
    /// There is no route to its destination.
    NoRoute,
    /// It is longer than this MTU.
    TooBig(u16),
}

impl Refusal {
    /// What the packet is counted under.
    pub fn reason(self) -> Reason {
        match self {
            Self::TtlExpired => Reason::TtlExpired,
            Self::NoRoute => Reason::NoRoute,
            Self::TooBig(_) => Reason::TooBig,
        }
    }
}

/// A packet whose destination is to be looked up.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Position in the burst.
    at: u8,
    tagged: bool,
    ttl: u8,
    arrived: Arrived,
    /// Where the IP header begins.
    offset: u16,
    /// Bytes of the IP packet.
    total_len: u16,
}

/// Bytes of the shortest headers that a plain packet has.
const PLAIN_HEADERS: usize = header::ETHERNET + header::IPV4;

/// Addresses of one family.
trait Address: Copy {
    fn ip(self) -> IpAddr;
    /// Finds the hop of each address.
    fn look_up(lpm: &dyn Lpm, addresses: &[Self], hops: &mut [u64]);
    /// Where the TTL is in a header.
    const TTL: usize;
    /// Takes one off the TTL in the header at `offset`.
    fn decrement_ttl(bytes: &mut [u8], offset: usize);
}

impl Address for u32 {
    const TTL: usize = 8;

    #[inline(always)]
    fn ip(self) -> IpAddr {
        Ipv4Addr::from(self).into()
    }

    #[inline(always)]
    fn look_up(lpm: &dyn Lpm, addresses: &[Self], hops: &mut [u64]) {
        lpm.lookup4(addresses, hops);
    }

    #[inline(always)]
    fn decrement_ttl(bytes: &mut [u8], offset: usize) {
        header::decrement_ttl(bytes, offset);
    }
}

impl Address for [u8; 16] {
    const TTL: usize = 7;

    #[inline(always)]
    fn ip(self) -> IpAddr {
        Ipv6Addr::from(self).into()
    }

    #[inline(always)]
    fn look_up(lpm: &dyn Lpm, addresses: &[Self], hops: &mut [u64]) {
        lpm.lookup6(addresses, hops);
    }

    #[inline(always)]
    fn decrement_ttl(bytes: &mut [u8], offset: usize) {
        header::decrement_hop_limit(bytes, offset);
    }
}

/// Packets of one family that are not plain, whose destinations are to be looked up together.
#[derive(Debug)]
struct Batch<A> {
    asked: [Asked; BURST],
    addresses: [A; BURST],
    len: usize,
}

impl<A: Copy> Batch<A> {
    fn new(zero: A) -> Self {
        Self { asked: [Asked::default(); BURST], addresses: [zero; BURST], len: 0 }
    }

    #[inline(always)]
    fn push(&mut self, asked: Asked, address: A) {
        self.asked[self.len] = asked;
        self.addresses[self.len] = address;
        self.len += 1;
    }
}

/// What becomes of the packets of a burst. Made once and used for every burst, as clearing it would
/// take as long as deciding for a few packets.
#[derive(Debug)]
pub struct Decisions {
    /// Packets that are routed; those of no set have a verdict.
    pub routed: Routed,
    /// What becomes of the others, by position.
    pub verdicts: [Verdict; BURST],
    /// Flows of the burst's packets as they are after this.
    pub flows: PlainFlows,
    plain4: plain::Batch<u32>,
    plain6: plain::Batch<[u8; 16]>,
    v4: Batch<u32>,
    v6: Batch<[u8; 16]>,
    hops: [u64; BURST],
}

impl Decisions {
    /// None yet.
    pub fn new() -> Self {
        Self {
            routed: Routed::default(),
            verdicts: [Verdict::Drop(Reason::Header); BURST],
            flows: PlainFlows::NONE,
            plain4: plain::Batch::new(0),
            plain6: plain::Batch::new([0; 16]),
            v4: Batch::new(0),
            v6: Batch::new([0; 16]),
            hops: [0; BURST],
        }
    }
}

impl Default for Decisions {
    fn default() -> Self {
        Self::new()
    }
}

/// Decides for a burst.
#[derive(Clone, Copy, Debug)]
pub struct Decider<'a> {
    /// What is forwarded by.
    pub tables: &'a Tables,
    /// The port that the packets came from.
    pub port: usize,
    /// Whether they were made by the switch itself: they are on their first link still, come from
    /// no station, and have no Ethernet addresses yet.
    pub own: bool,
    /// EtherType of the header that the packets may carry their mark in.
    pub shim: Option<u16>,
    /// What they lose where they leave the network.
    pub lost: Lost<'a>,
    /// Chooses among next hops differently than other switches.
    pub seed: u64,
}

impl Decider<'_> {
    /// Routes `packets`, at most [`BURST`], or gives them their verdicts.
    ///
    /// # Panics
    /// When there are more.
    #[inline]
    pub fn decide<P: Packet>(&self, packets: &mut [P], decisions: &mut Decisions) {
        assert!(packets.len() <= BURST, "a burst of at most {BURST} packets");
        let Decisions { routed, verdicts, flows, plain4, plain6, v4, v6, hops } = decisions;
        (v4.len, v6.len, routed.to_fabric, routed.to_host) = (0, 0, 0, 0);
        plain4.clear();
        plain6.clear();
        flows.clear();
        // No packet is plain on a port without untagged frames, or if the switch made it.
        let untagged = if self.own { None } else { self.tables.untagged(self.port) };
        let (template, arrived) =
            untagged.map_or((Template::NONE, 0), |(mac, on)| (Template::new(mac), on));
        for (at, packet) in packets.iter().enumerate() {
            let (bytes, wire_len) = (packet.bytes(), packet.wire_len());
            if let Some(flow) = flows.read(at, bytes, wire_len)
                && let Some(total_len) = template.total_len(bytes)
            {
                plain4.push(at, flow.dst_word(), total_len);
                continue;
            }
            match template.read(bytes, wire_len) {
                Some(Plain::V4(to, total_len)) => plain4.push(at, to, total_len),
                Some(Plain::V6(to, total_len)) => plain6.push(at, to, total_len),
                None => {
                    if let Some(verdict) = self.read(at, packet, v4, v6) {
                        verdicts[at] = verdict;
                    }
                }
            }
        }
        let mut moved = self.route_plain(plain4, arrived, packets, hops, routed, verdicts);
        self.route_plain(plain6, arrived, packets, hops, routed, verdicts);
        if v4.len > 0 {
            moved |= self.route(v4, packets, hops, routed, verdicts);
        }
        if v6.len > 0 {
            self.route(v6, packets, hops, routed, verdicts);
        }
        flows.forget(moved);
        flows.lower(if self.own { 0 } else { routed.to_fabric | routed.to_host });
    }

    /// Looks the destinations of plain packets up, and rewrites them. Gives the positions of those
    /// that may have got a VLAN tag.
    #[inline(always)]
    fn route_plain<P: Packet, A: Address>(
        &self,
        batch: &plain::Batch<A>,
        arrived: Arrived,
        packets: &mut [P],
        hops: &mut [u64; BURST],
        routed: &mut Routed,
        verdicts: &mut [Verdict; BURST],
    ) -> u32 {
        let addresses = batch.addresses();
        if addresses.is_empty() {
            return 0;
        }
        A::look_up(self.tables.lpm(), addresses, &mut hops[..addresses.len()]);
        // In registers: each packet's bits would wait for those of the one before to be written.
        let (mut to_fabric, mut to_host, mut moved) = (0, 0, 0);
        // Most bursts have one next hop.
        let same = hops[1..addresses.len()].iter().fold(0, |differ, hop| differ | (hop ^ hops[0]));
        let single = self.tables.single(hops[0]);
        if same == 0 && batch.longest() <= single.untagged_mtu {
            let mut all = 0;
            for (at, _, _) in batch.iter() {
                if let Some(header) = packets[at].bytes_mut().first_chunk_mut::<PLAIN_HEADERS>() {
                    header[..12].copy_from_slice(&single.addresses);
                    A::decrement_ttl(header, header::ETHERNET);
                    routed.ports[at] = single.port;
                    all |= 1 << at;
                }
            }
            let to =
                if single.role == Role::Host { &mut routed.to_host } else { &mut routed.to_fabric };
            *to |= all;
            return 0;
        }
        for ((at, total_len, to), &hop) in batch.iter().zip(hops.iter()) {
            let packet = &mut packets[at];
            let single = self.tables.single(hop);
            let next = if total_len <= single.untagged_mtu {
                Some(single)
            } else {
                self.plain_next(total_len, to, hop, packet)
            };
            if let Some(next) = next
                && let Some(header) = packet.bytes_mut().first_chunk_mut::<PLAIN_HEADERS>()
            {
                header[..12].copy_from_slice(&next.addresses);
                A::decrement_ttl(header, header::ETHERNET);
                routed.ports[at] = next.port;
                let host = u32::from(next.role == Role::Host);
                to_host |= host << at;
                to_fabric |= (host ^ 1) << at;
                continue;
            }
            moved |= 1 << at;
            let ttl = packet.bytes().get(header::ETHERNET + A::TTL).copied().unwrap_or_default();
            let (offset, at_burst) = (header::ETHERNET as u16, at as u8);
            let asked = Asked { at: at_burst, tagged: false, ttl, arrived, offset, total_len };
            match self.finish(&asked, to, hop, packet) {
                Ok(next) => routed.push(at, next.port, next.role),
                Err(verdict) => verdicts[at] = verdict,
            }
        }
        routed.to_fabric |= to_fabric;
        routed.to_host |= to_host;
        moved
    }

    /// The neighbour that a plain packet goes to over a link, or over one of several next hops,
    /// where it can be sent there untagged and as it is.
    #[inline(always)]
    fn plain_next<P: Packet, A: Address>(
        &self,
        total_len: u16,
        to: A,
        hop: u64,
        packet: &P,
    ) -> Option<&Adjacency> {
        let next = match self.tables.hop(hop) {
            HopTarget::Via { ready, .. } => Adjacency::choose(ready, || {
                header::flow_hash(self.seed, packet.bytes(), header::ETHERNET)
            }),
            HopTarget::Link(interface) => self.tables.neighbour(*interface, to.ip()),
            _ => None,
        };
        next.filter(|next| total_len <= next.untagged_mtu)
    }

    /// Looks the destinations of other packets up, and rewrites them. Gives their positions.
    #[inline(never)]
    fn route<P: Packet, A: Address>(
        &self,
        batch: &Batch<A>,
        packets: &mut [P],
        hops: &mut [u64; BURST],
        routed: &mut Routed,
        verdicts: &mut [Verdict; BURST],
    ) -> u32 {
        let mut moved = 0;
        let (asked, addresses) = (&batch.asked[..batch.len], &batch.addresses[..batch.len]);
        A::look_up(self.tables.lpm(), addresses, &mut hops[..batch.len]);
        for ((asked, &to), &hop) in asked.iter().zip(addresses).zip(hops.iter()) {
            let at = usize::from(asked.at);
            moved |= 1 << at;
            match self.finish(asked, to, hop, &mut packets[at]) {
                Ok(next) => routed.push(at, next.port, next.role),
                Err(verdict) => verdicts[at] = verdict,
            }
        }
        moved
    }

    /// Reads a packet's headers: gives what becomes of it, or nothing where that depends on its
    /// destination's route.
    #[inline(never)]
    fn read<P: Packet>(
        &self,
        at: usize,
        packet: &P,
        v4: &mut Batch<u32>,
        v6: &mut Batch<[u8; 16]>,
    ) -> Option<Verdict> {
        let bytes = packet.bytes();
        let Some(link) = header::link(bytes, self.shim) else {
            return Some(Verdict::Drop(Reason::Header));
        };
        let (arrived, to_group) = if self.own {
            (0, false)
        } else {
            let Some(arrived) = self.tables.arriving(self.port, link.vlan) else {
                return Some(Verdict::Drop(Reason::NoInterface));
            };
            let Some(interface) = self.tables.interface(arrived) else {
                return Some(Verdict::Drop(Reason::NoInterface));
            };
            if !link.to.is_group() && link.to != interface.mac {
                return Some(Verdict::Drop(Reason::OtherStation));
            }
            (arrived, link.to.is_group())
        };
        let asked = |total_len: usize, ttl: u8| Asked {
            at: at as u8,
            arrived,
            tagged: link.vlan.is_some(),
            offset: link.end as u16,
            total_len: total_len.min(usize::from(u16::MAX)) as u16,
            ttl,
        };
        match link.ether_type {
            ether_type::IPV4 => {
                let Some(ip) = header::v4(bytes, link.end, packet.wire_len()) else {
                    return Some(Verdict::Drop(Reason::Header));
                };
                if let Some(verdict) = self.unusual_v4(&ip, to_group) {
                    return Some(verdict);
                }
                v4.push(asked(ip.total_len, ip.ttl), ip.to.into());
                None
            }
            ether_type::IPV6 => {
                let Some(ip) = header::v6(bytes, link.end, packet.wire_len()) else {
                    return Some(Verdict::Drop(Reason::Header));
                };
                if let Some(verdict) = self.unusual_v6(&ip, bytes, &link, arrived) {
                    return Some(verdict);
                }
                if to_group {
                    return Some(self.multicast());
                }
                v6.push(asked(ip.total_len, ip.hop_limit), ip.to.octets());
                None
            }
            ether_type::ARP => Some(Verdict::HandOver(arrived, Task::Link)),
            _ if to_group => Some(self.multicast()),
            _ => Some(self.unknown()),
        }
    }

    /// What becomes of an IPv4 packet that is not routed like others.
    #[inline]
    fn unusual_v4(&self, ip: &V4, to_group: bool) -> Option<Verdict> {
        let never_on_a_link = |ip: Ipv4Addr| matches!(ip.octets()[0], 0 | 127 | 240..);
        if ip.to.is_multicast() || ip.to.is_broadcast() || to_group {
            Some(self.multicast())
        } else if never_on_a_link(ip.from) || ip.from.is_multicast() || never_on_a_link(ip.to) {
            Some(Verdict::Drop(Reason::Martian))
        } else {
            None
        }
    }

    /// What becomes of an IPv6 packet that is not routed like others.
    #[inline]
    fn unusual_v6(&self, ip: &V6, bytes: &[u8], link: &Link, arrived: Arrived) -> Option<Verdict> {
        let to = ip.to;
        if to.is_multicast() {
            let icmp_type = bytes.get(link.end + header::IPV6);
            // Neighbour solicitations and advertisements: never from beyond the link.
            let discovery = ip.next_header == protocol::ICMPV6
                && ip.hop_limit == 255
                && matches!(icmp_type, Some(135 | 136));
            let answer = Verdict::HandOver(arrived, Task::Link);
            return Some(if discovery { answer } else { self.multicast() });
        }
        if to.is_unicast_link_local() && !self.own {
            let to_us = self.tables.interface(arrived).is_some_and(|own| own.link_local == to);
            let answer = Verdict::HandOver(arrived, Task::Link);
            return Some(if to_us { answer } else { Verdict::Drop(Reason::Martian) });
        }
        let from = ip.from;
        let never_on_a_link = from.is_multicast()
            || from.is_unspecified()
            || from.is_loopback()
            || to.is_unspecified()
            || to.is_loopback();
        never_on_a_link.then_some(Verdict::Drop(Reason::Martian))
    }

    fn multicast(&self) -> Verdict {
        self.pass_or_drop(self.tables.multicast, Reason::Multicast)
    }

    fn unknown(&self) -> Verdict {
        self.pass_or_drop(self.tables.unknown, Reason::Unknown)
    }

    fn pass_or_drop(&self, to: Option<PassTo>, reason: Reason) -> Verdict {
        match to {
            Some(to) if usize::from(to.port) != self.port && !self.own => Verdict::Pass(to),
            _ => Verdict::Drop(reason),
        }
    }

    /// Sends any packet on to where its route leads: gives the neighbour that it goes to, or what
    /// becomes of it instead.
    #[inline(never)]
    fn finish<P: Packet, A: Address>(
        &self,
        asked: &Asked,
        to: A,
        hop: u64,
        packet: &mut P,
    ) -> Result<&Adjacency, Verdict> {
        let to = to.ip();
        let ttl = asked.ttl;
        let hop = self.tables.hop(hop);
        match hop {
            HopTarget::Own => {
                let task = own_task(packet.bytes(), asked.offset.into(), ttl, to);
                return Err(Verdict::HandOver(asked.arrived, task));
            }
            HopTarget::Broadcast => return Err(self.multicast()),
            HopTarget::Discard => return Err(Verdict::Drop(Reason::Discard)),
            HopTarget::None | HopTarget::Link(_) | HopTarget::Via { .. } => {}
        }
        if !self.own && ttl <= 1 {
            return Err(Verdict::Refuse(asked.arrived, Refusal::TtlExpired));
        }
        let offset = usize::from(asked.offset);
        if header::stays_on_link(packet.bytes(), offset, to) {
            return Err(Verdict::Drop(Reason::Martian));
        }
        let next = match hop {
            HopTarget::Link(interface) => {
                self.tables.neighbour(*interface, to).ok_or((*interface, to))
            }
            HopTarget::Via { ready, first } => {
                let hash = || header::flow_hash(self.seed, packet.bytes(), offset);
                Adjacency::choose(ready, hash).ok_or(*first)
            }
            _ => return Err(Verdict::Refuse(asked.arrived, Refusal::NoRoute)),
        };
        let out = match next {
            Ok(neighbour) => Some((neighbour.mtu, neighbour.port, neighbour.role == Role::Host)),
            // What waits for an address loses its stack here, wherever it goes then.
            Err((interface, _)) => {
                self.tables.interface(interface).map(|of| (of.mtu, of.port, true))
            }
        };
        let Some((mtu, port, leaves)) = out else {
            return Err(Verdict::Refuse(asked.arrived, Refusal::NoRoute));
        };
        let lost = if leaves { self.lost.by(port) } else { 0 };
        if asked.total_len.saturating_sub(lost) > mtu {
            return Err(Verdict::Refuse(asked.arrived, Refusal::TooBig(mtu)));
        }
        let next = next.map_err(|(interface, next)| {
            Verdict::HandOver(asked.arrived, Task::Resolve(interface, next))
        })?;
        if !self.own {
            A::decrement_ttl(packet.bytes_mut(), offset);
        }
        if header::rewrite_link(packet, asked.tagged, next) {
            Ok(next)
        } else {
            Err(Verdict::Drop(Reason::NoHeadroom))
        }
    }
}

/// A neighbour may also ask one of the switch's addresses for its Ethernet address.
#[inline]
fn own_task(bytes: &[u8], at: usize, ttl: u8, to: IpAddr) -> Task {
    let icmp = (bytes.get(at + 6), bytes.get(at + header::IPV6));
    let discovery =
        to.is_ipv6() && ttl == 255 && matches!(icmp, (Some(&protocol::ICMPV6), Some(135 | 136)));
    if discovery { Task::Link } else { Task::Own }
}
