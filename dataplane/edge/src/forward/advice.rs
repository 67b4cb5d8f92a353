//! Hosts whose packets leave no room for a whole INT stack are sent the MTU that does, as by path
//! MTU discovery (RFC 1191, RFC 8201). The packets themselves go on.

use dpdk::{Mbuf, Mempool};

use super::decide::{Arrived, Refusal, Task};
use super::exchange::{HandOver, Origin, ToSlow};
use super::header::{self, ether_type};
use super::slow::frames::MOST_V6;
use super::tables::Tables;
use crate::packet::Packet;
use crate::worker::{MostAdded, Worker};

/// An lcore asks for no more than this many ICMP errors a second.
const A_SECOND: u64 = 200;

/// The least MTU that a host goes by: Linux takes what is below for forged in IPv4, and IPv6 has
/// none (RFC 8200, section 5).
const LEAST_V4: u16 = 576;
const LEAST_V6: u16 = 1280;

/// An error quotes no more of a frame: its Ethernet header with two VLAN tags, and what fits.
pub const QUOTED: usize = header::ETHERNET + 8 + MOST_V6;

/// What an lcore needs for it.
#[derive(Debug)]
pub struct Advice {
    /// Where copies of packets come from.
    pool: Mempool,
    /// The time stamp counter from which on another packet may be copied, and for how long none may
    /// be after that.
    next_tsc: u64,
    pause: u64,
}

/// The beginning of a packet without room for a whole stack, without the mark.
#[derive(Debug)]
pub(super) struct Copied {
    /// Its position in the burst.
    at: usize,
    port: usize,
    arrived: Arrived,
    mtu: u16,
    packet: Mbuf,
    generation: u32,
}

impl Advice {
    /// Copies come from `pool`, from which only lcores take ([`pools`](crate::pools)).
    pub fn new(pool: Mempool) -> Self {
        Self { pool, next_tsc: 0, pause: dpdk::tsc_hz() / A_SECOND }
    }

    /// Copies the first packet of a burst that `port` has received from hosts and that is too long
    /// for the port it leaves by if it is to have a whole stack: at most one in a while. `of` has a
    /// bit for each that may get one, `ports` says where they leave.
    pub(super) fn copy(
        &mut self,
        worker: &mut Worker,
        (tables, port): (&Tables, usize),
        (of, ports): (u32, &[u16]),
        packets: &[Mbuf],
    ) -> Option<Copied> {
        if of == 0 {
            return None;
        }
        let now = dpdk::tsc();
        if now < self.next_tsc {
            return None;
        }
        let more = worker.most_added()?;
        let chosen = |(at, packet): (usize, &Mbuf)| {
            let out = tables.port_mtu((*ports.get(at).filter(|_| of >> at & 1 == 1)?).into());
            Some((at, room(packet.bytes(), packet.wire_len(), (out, &more))?))
        };
        let (at, mtu) = packets.iter().enumerate().find_map(chosen)?;
        self.next_tsc = now.saturating_add(self.pause);
        let bytes = packets.get(at)?.bytes();
        let packet = self.pool.alloc_with(bytes.get(..QUOTED).unwrap_or(bytes))?;
        let arrived = tables.any_on(port).unwrap_or_default();
        Some(Copied { at, port, arrived, mtu, packet, generation: tables.generation })
    }
}

impl Copied {
    /// Has its sender be sent the MTU, if the packet was chosen to have a stack.
    pub(super) fn hand_over(self, worker: &mut Worker, to_slow: &ToSlow<Mbuf>) {
        let Self { at, port, arrived, mtu, packet, generation } = self;
        let (origin, task) = (Origin::Host, Task::Tell(Refusal::TooBig(mtu)));
        let handed = HandOver { packet, port, arrived, origin, task, generation };
        // Where there is no room, another packet will do.
        if worker.gets_stack(at) && to_slow.hand_over(handed) {
            worker.counters.int.mtu_advised += 1;
        }
    }
}

/// The longest IP packet that leaves room for `more` bytes on a port that takes `out` behind the
/// Ethernet header, where this packet is longer, has a place for a stack, and its sender can go by
/// that.
fn room(bytes: &[u8], wire_len: usize, (out, more): (u16, &MostAdded)) -> Option<u16> {
    let room = out.checked_sub(more.to_any())?;
    // Most packets are short. Those in several segments get no stack.
    if wire_len <= header::ETHERNET + usize::from(room) || bytes.len() != wire_len {
        return None;
    }
    let link = header::link(bytes, None)?;
    let (total_len, least) = match link.ether_type {
        ether_type::IPV4 => {
            let ip = header::v4(bytes, link.end, wire_len)?;
            let may_fragment = bytes.get(link.end + 6)? & 0x40 == 0;
            (ip.total_len, Some(LEAST_V4).filter(|_| !may_fragment)?)
        }
        ether_type::IPV6 => (header::v6(bytes, link.end, wire_len)?.total_len, LEAST_V6),
        _ => return None,
    };
    let more = more.to(bytes, link.end, wire_len)?;
    let mtu = out.checked_sub(more)?.checked_sub((link.end - header::ETHERNET) as u16)?;
    (total_len > mtu.into() && mtu >= least).then_some(mtu)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::header::protocol::{ICMP, ICMPV6, SCTP, TCP, UDP};
    use super::*;
    use calumma_plane::checksum::checksum;

    const DONT_FRAGMENT: u8 = 0x40;
    const MORE_FRAGMENTS: u8 = 0x20;

    const IGMP: u8 = 2;
    const GRE: u8 = 47;
    const ESP: u8 = 50;
    const OSPF: u8 = 89;
    const VRRP: u8 = 112;

    /// Headers of IPv6 that come before the others, of 8 bytes each.
    const HOP_BY_HOP: u8 = 0;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;

    /// A packet of so many bytes from its IP header on.
    fn packet(version: u8, proto: u8, len: usize, flags: u8) -> Vec<u8> {
        let mut bytes = vec![0; 14 + len];
        let ip = &mut bytes[14..];
        let header_len = if version == 4 { 20 } else { 40 };
        if version == 4 {
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            (ip[6], ip[8], ip[9]) = (flags, 64, proto);
            ip[12..20].copy_from_slice(&[10, 1, 0, 2, 10, 2, 0, 2]);
            let sum = checksum(&ip[..20]).to_be_bytes();
            ip[10..12].copy_from_slice(&sum);
        } else {
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&(len as u16 - 40).to_be_bytes());
            (ip[6], ip[7]) = (proto, 64);
            (ip[8], ip[24]) = (0xFD, 0xFD);
        }
        write_transport(&mut ip[header_len..], proto);
        let kind = if version == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
        bytes[12..14].copy_from_slice(&kind.to_be_bytes());
        bytes
    }

    /// What is looked at of a transport header; of ICMPv6 an echo request.
    fn write_transport(bytes: &mut [u8], proto: u8) {
        let len = (bytes.len() as u16).to_be_bytes();
        match proto {
            TCP => bytes[12] = 5 << 4,
            UDP => bytes[4..6].copy_from_slice(&len),
            ICMP => bytes[0] = 8,
            ICMPV6 => bytes[0] = 128,
            _ => {}
        }
    }

    /// One of IPv6, as long, that has another header before its transport header.
    fn behind(extension: u8, proto: u8, len: usize) -> Vec<u8> {
        let mut bytes = packet(6, extension, len, 0);
        bytes[14 + 40..14 + 48].copy_from_slice(&[proto, 0, 0, 0, 0, 0, 0, 0]);
        write_transport(&mut bytes[14 + 48..], proto);
        bytes
    }

    fn with(mut bytes: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let ip = &mut bytes[14..];
        change(ip);
        if ip[0] >> 4 == 4 {
            ip[10..12].fill(0);
            let sum = checksum(&ip[..20]).to_be_bytes();
            ip[10..12].copy_from_slice(&sum);
        }
        bytes
    }

    #[test]
    fn a_host_is_sent_an_mtu_that_leaves_room_where_it_can_go_by_it() {
        let stacks = MostAdded { by_stack: 64, udp_port: None };
        let of = |bytes: Vec<u8>, out| room(&bytes, bytes.len(), (out, &stacks));
        assert_eq!(of(packet(4, TCP, 1500, DONT_FRAGMENT), 1500), Some(1436));
        assert_eq!(of(packet(4, UDP, 1437, DONT_FRAGMENT), 1500), Some(1436));
        assert_eq!(of(packet(4, TCP, 1436, DONT_FRAGMENT), 1500), None);
        assert_eq!(of(packet(4, TCP, 1500, DONT_FRAGMENT), 1564), None);
        assert_eq!(of(packet(6, TCP, 1500, 0), 1500), Some(1436));
        assert_eq!(of(behind(DESTINATION, UDP, 1437), 1500), Some(1436));
        let mut tagged = packet(6, TCP, 1436, 0);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(of(tagged, 1500), Some(1432));
        // Routers may fragment it; it has no place for a stack; hosts go by no such MTU.
        assert_eq!(of(packet(4, UDP, 1500, 0), 1500), None);
        assert_eq!(of(packet(4, ICMP, 1500, DONT_FRAGMENT), 1500), None);
        assert_eq!(of(packet(6, SCTP, 1500, 0), 1500), None);
        assert_eq!(of(packet(6, TCP, 1300, 0), 1300), None);
        assert_eq!(of(packet(4, TCP, 639, DONT_FRAGMENT), 639), None);
    }

    /// What goes behind a UDP header of its own has room for that as well.
    #[test]
    fn eight_bytes_more_are_left_for_a_udp_header() {
        let by_port = MostAdded { by_stack: 64, udp_port: NonZeroU16::new(41_000) };
        let of = |bytes: &[u8], out| room(bytes, bytes.len(), (out, &by_port));
        for (version, proto, mtu) in [
            (4, ICMP, 1428),
            (4, GRE, 1428),
            (4, ESP, 1428),
            (4, SCTP, 1428),
            (4, TCP, 1436),
            (4, UDP, 1436),
            (6, ICMPV6, 1428),
            (6, ESP, 1428),
            (6, SCTP, 1428),
            (6, TCP, 1436),
            (6, UDP, 1436),
        ] {
            let sent = |len: u16| packet(version, proto, len.into(), DONT_FRAGMENT);
            let what = format!("{proto} over IPv{version}");
            assert_eq!(of(&sent(1500), 1500), Some(mtu), "{what}");
            assert_eq!(of(&sent(mtu + 1), 1500), Some(mtu), "{what}");
            assert_eq!(of(&sent(mtu), 1500), None, "{what}");
            let mut tagged = sent(mtu);
            tagged.splice(12..12, [0x81, 0, 0, 5]);
            assert_eq!(of(&tagged, 1500), Some(mtu - 4), "{what}");
            // The least that its sender goes by.
            let least = if version == 4 { 576 } else { 1280 };
            let out = least + 1500 - mtu;
            assert_eq!(of(&sent(least + 1), out), Some(least), "{what}");
            assert_eq!(of(&sent(least + 1), out - 1), None, "{what}");
        }
        // By what is behind other headers of IPv6.
        for extension in [HOP_BY_HOP, DESTINATION] {
            for (proto, mtu) in [(UDP, 1436), (TCP, 1436), (SCTP, 1428)] {
                assert_eq!(of(&behind(extension, proto, mtu + 1), 1500), Some(mtu as u16));
                assert_eq!(of(&behind(extension, proto, mtu), 1500), None, "{proto}");
            }
        }
    }

    /// Its sender would send shorter packets for nothing.
    #[test]
    fn nobody_is_sent_an_mtu_for_packets_without_a_place_for_a_stack() {
        let by_port = MostAdded { by_stack: 64, udp_port: NonZeroU16::new(41_000) };
        let of_routers = [IGMP, OSPF, VRRP].map(|proto| packet(4, proto, 1500, DONT_FRAGMENT));
        let fragments = [
            packet(4, SCTP, 1500, DONT_FRAGMENT | MORE_FRAGMENTS),
            packet(4, UDP, 1500, DONT_FRAGMENT | MORE_FRAGMENTS),
            // All but the first have an offset.
            with(behind(FRAGMENT, SCTP, 1500), |ip| ip[42] = 1),
            with(behind(FRAGMENT, UDP, 1500), |ip| ip[43] = 1),
        ];
        let on_link = [
            with(packet(4, SCTP, 1500, DONT_FRAGMENT), |ip| ip[16] = 224),
            with(packet(4, ICMP, 1500, DONT_FRAGMENT), |ip| {
                ip[12..14].copy_from_slice(&[169, 254]);
            }),
            with(packet(6, SCTP, 1500, 0), |ip| ip[24] = 0xFF),
            with(packet(6, SCTP, 1500, 0), |ip| ip[8..10].copy_from_slice(&[0xFE, 0x80])),
            // A neighbour is asked for.
            with(packet(6, ICMPV6, 1500, 0), |ip| ip[40] = 135),
        ];
        let damaged = [
            with(packet(4, UDP, 1500, DONT_FRAGMENT), |ip| ip[24] = 0xFF),
            with(packet(6, TCP, 1500, 0), |ip| ip[52] = 0),
        ];
        let all = of_routers.iter().chain(&fragments).chain(&on_link).chain(&damaged);
        for (number, bytes) in all.enumerate() {
            assert_eq!(room(bytes, bytes.len(), (1500, &by_port)), None, "{number}");
        }
    }
}
