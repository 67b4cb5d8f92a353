//! What becomes of each packet of a burst: read, looked up and, where it goes on, rewritten.
//!
//! Headers are read one packet after the other, addresses are looked up all at once, and then each
//! packet is given its new Ethernet header and TTL. Nothing is sent, dropped or counted here.

use std::convert::identity;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calumma_sketch::BURST;

use super::config::InterfaceId;
use super::counters::Reason;
use super::header::{self, Link, V4, V6, ether_type, protocol};
use super::tables::{Adjacency, HopTarget, OutInterface, Tables};
use crate::packet::Packet;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has its new headers, and leaves by this interface.
    Send(InterfaceId),
    /// It leaves by this port as it came.
    Pass(u16),
    /// It is for the slow path.
    HandOver(Arrived, Task),
    /// It is dropped.
    Drop(Reason),
    /// It is dropped, and its sender is told.
    Refuse(Arrived, Refusal),
}

/// Where a packet came in.
pub type Arrived = InterfaceId;

/// What the slow path is to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// It asks or answers for an Ethernet address, or came to a link-local one: it was never meant to
    /// leave the link.
    Link,
    /// It is for the switch itself.
    Own,
    /// Its next hop's Ethernet address is not known yet.
    Resolve(InterfaceId, IpAddr),
    /// It was dropped; its sender is to be told.
    Tell(Refusal),
}

/// Why the sender of a packet is told that it was dropped.
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
#[derive(Clone, Copy)]
struct Asked {
    /// Position in the burst.
    at: u8,
    arrived: Arrived,
    tagged: bool,
    /// Where the IP header begins.
    offset: u16,
    /// Bytes of the IP packet.
    total_len: u16,
    ttl: u8,
}

/// Packets of one family whose destinations are to be looked up together.
struct Batch<A> {
    asked: [Asked; BURST],
    addresses: [A; BURST],
    len: usize,
}

impl<A: Copy> Batch<A> {
    #[inline]
    fn new(zero: A) -> Self {
        let nobody = Asked { at: 0, arrived: 0, tagged: false, offset: 0, total_len: 0, ttl: 0 };
        Self { asked: [nobody; BURST], addresses: [zero; BURST], len: 0 }
    }

    #[inline]
    fn push(&mut self, asked: Asked, address: A) {
        self.asked[self.len] = asked;
        self.addresses[self.len] = address;
        self.len += 1;
    }
}

/// Decides for a burst.
#[derive(Clone, Copy, Debug)]
pub struct Decider<'a> {
    /// What is forwarded by.
    pub tables: &'a Tables,
    /// The port that the packets came from.
    pub port: usize,
    /// Whether they were made by the switch itself: they are on their first link still, and come from
    /// no station.
    pub own: bool,
    /// EtherType of the header that the packets may carry their mark in.
    pub shim: Option<u16>,
    /// Chooses among next hops differently than other switches.
    pub seed: u64,
}

impl Decider<'_> {
    /// Gives each of `packets`, at most [`BURST`], its verdict, and those that are sent their new
    /// headers.
    ///
    /// # Panics
    /// When there are more.
    pub fn decide<P: Packet>(&self, packets: &mut [P], verdicts: &mut [Verdict; BURST]) {
        assert!(packets.len() <= BURST, "a burst of at most {BURST} packets");
        let mut v4 = Batch::new(0_u32);
        let mut v6 = Batch::new([0_u8; 16]);
        for (at, packet) in packets.iter().enumerate() {
            if let Some(verdict) = self.read(at, packet, &mut v4, &mut v6) {
                verdicts[at] = verdict;
            }
        }
        let mut hops = [0; BURST];
        if v4.len > 0 {
            self.tables.lpm().lookup4(&v4.addresses[..v4.len], &mut hops[..v4.len]);
            for at in 0..v4.len {
                let asked = &v4.asked[at];
                let to = IpAddr::V4(Ipv4Addr::from(v4.addresses[at]));
                let at_burst = usize::from(asked.at);
                let sent = self.finish(asked, to, hops[at], &mut packets[at_burst]);
                verdicts[at_burst] = sent.map_or_else(identity, Verdict::Send);
            }
        }
        if v6.len > 0 {
            self.tables.lpm().lookup6(&v6.addresses[..v6.len], &mut hops[..v6.len]);
            for at in 0..v6.len {
                let asked = &v6.asked[at];
                let to = IpAddr::V6(Ipv6Addr::from(v6.addresses[at]));
                let at_burst = usize::from(asked.at);
                let sent = self.finish(asked, to, hops[at], &mut packets[at_burst]);
                verdicts[at_burst] = sent.map_or_else(identity, Verdict::Send);
            }
        }
    }

    /// Reads a packet's headers: gives what becomes of it, or nothing where that depends on its
    /// destination's route.
    #[inline]
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
            let interface = self.tables.interface(arrived)?;
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

    fn pass_or_drop(&self, port: Option<usize>, reason: Reason) -> Verdict {
        match port {
            Some(port) if port != self.port => Verdict::Pass(port as u16),
            _ => Verdict::Drop(reason),
        }
    }

    /// Sends a packet on to where its route leads: gives the interface that it leaves by, or what becomes
    /// of it instead. A whole [`Verdict`] could not be read at once after it was put together.
    #[inline]
    fn finish<P: Packet>(
        &self,
        asked: &Asked,
        to: IpAddr,
        hop: u64,
        packet: &mut P,
    ) -> Result<InterfaceId, Verdict> {
        let hop = self.tables.hop(hop);
        match hop {
            HopTarget::Own => {
                let task = own_task(packet.bytes(), asked, to);
                return Err(Verdict::HandOver(asked.arrived, task));
            }
            HopTarget::Broadcast => return Err(self.multicast()),
            HopTarget::Discard => return Err(Verdict::Drop(Reason::Discard)),
            HopTarget::None | HopTarget::Link(_) | HopTarget::Via { .. } => {}
        }
        if !self.own && asked.ttl <= 1 {
            return Err(Verdict::Refuse(asked.arrived, Refusal::TtlExpired));
        }
        if to.is_ipv6() && from_link_local(packet.bytes(), usize::from(asked.offset)) {
            return Err(Verdict::Drop(Reason::Martian));
        }
        let next = match hop {
            HopTarget::Link(interface) => {
                self.tables.neighbour(*interface, to).ok_or((*interface, to))
            }
            HopTarget::Via { ready, first } => {
                let offset = usize::from(asked.offset);
                let hash = || header::flow_hash(self.seed, packet.bytes(), offset);
                choose(ready, hash).ok_or(*first)
            }
            _ => return Err(Verdict::Refuse(asked.arrived, Refusal::NoRoute)),
        };
        let interface = match next {
            Ok(Adjacency { interface, .. }) | Err((interface, _)) => interface,
        };
        let Some(out) = self.tables.interface(interface) else {
            return Err(Verdict::Refuse(asked.arrived, Refusal::NoRoute));
        };
        if asked.total_len > out.mtu {
            return Err(Verdict::Refuse(asked.arrived, Refusal::TooBig(out.mtu)));
        }
        match next {
            Ok(neighbour) => self.rewrite(asked, to, neighbour, out, packet),
            Err((interface, next)) => {
                Err(Verdict::HandOver(asked.arrived, Task::Resolve(interface, next)))
            }
        }
    }

    #[inline]
    fn rewrite<P: Packet>(
        &self,
        asked: &Asked,
        to: IpAddr,
        neighbour: Adjacency,
        out: &OutInterface,
        packet: &mut P,
    ) -> Result<InterfaceId, Verdict> {
        let offset = usize::from(asked.offset);
        if !self.own {
            match to {
                IpAddr::V4(_) => header::decrement_ttl(packet.bytes_mut(), offset),
                IpAddr::V6(_) => header::decrement_hop_limit(packet.bytes_mut(), offset),
            }
        }
        if header::rewrite_link(packet, asked.tagged, neighbour.mac, out) {
            Ok(neighbour.interface)
        } else {
            Err(Verdict::Drop(Reason::NoHeadroom))
        }
    }
}

/// One of several next hops for a flow; none where none is ready.
#[inline]
fn choose(ready: &[Adjacency], hash: impl FnOnce() -> u32) -> Option<Adjacency> {
    match ready {
        [] => None,
        [only] => Some(*only),
        several => {
            let at = (u64::from(hash()) * several.len() as u64) >> 32;
            several.get(at as usize).copied()
        }
    }
}

/// Whether an IPv6 packet comes from a link-local address: it may not go beyond its link (RFC 4291,
/// section 2.5.6).
#[inline]
fn from_link_local(bytes: &[u8], offset: usize) -> bool {
    let from = bytes.get(offset + 8..offset + 10);
    matches!(from, Some(&[0xFE, second]) if second & 0xC0 == 0x80)
}

/// A neighbour may also ask one of the switch's addresses for its Ethernet address.
#[inline]
fn own_task(bytes: &[u8], asked: &Asked, to: IpAddr) -> Task {
    let at = usize::from(asked.offset);
    let icmp = (bytes.get(at + 6), bytes.get(at + header::IPV6));
    let discovery = to.is_ipv6()
        && asked.ttl == 255
        && matches!(icmp, (Some(&protocol::ICMPV6), Some(135 | 136)));
    if discovery { Task::Link } else { Task::Own }
}
