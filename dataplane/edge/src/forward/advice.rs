//! Hosts whose packets leave no room for a whole INT stack are sent the MTU that does, as by path
//! MTU discovery (RFC 1191, RFC 8201). The packets themselves go on.

use dpdk::{Mbuf, Mempool};

use super::decide::{Arrived, Refusal, Task};
use super::exchange::{HandOver, Origin, ToSlow};
use super::header::{self, ether_type, protocol};
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
const QUOTED: usize = header::ETHERNET + 8 + MOST_V6;

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
}

impl Advice {
    /// Copies come from `pool`.
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
        Some(Copied { at, port, arrived, mtu, packet })
    }
}

impl Copied {
    /// Has its sender be sent the MTU, if the packet was chosen to have a stack.
    pub(super) fn hand_over(self, worker: &mut Worker, to_slow: &ToSlow<Mbuf>) {
        let Self { at, port, arrived, mtu, packet } = self;
        let task = Task::Tell(Refusal::TooBig(mtu));
        let handed = HandOver { packet, port, arrived, origin: Origin::Host, task };
        // Where there is no room, another packet will do.
        if worker.gets_stack(at) && to_slow.hand_over(handed) {
            worker.counters.int.mtu_advised += 1;
        }
    }
}

/// The longest IP packet that leaves room for `more` bytes on a port that takes `out` behind the
/// Ethernet header, where this packet is longer and its sender can go by that.
fn room(bytes: &[u8], wire_len: usize, (out, more): (u16, &MostAdded)) -> Option<u16> {
    let room = out.checked_sub(more.to_others.unwrap_or(more.to_tcp_and_udp))?;
    // Most packets are short. Those in several segments get no stack.
    if wire_len <= header::ETHERNET + usize::from(room) || bytes.len() != wire_len {
        return None;
    }
    let link = header::link(bytes, None)?;
    let (total_len, proto, least) = match link.ether_type {
        ether_type::IPV4 => {
            let ip = header::v4(bytes, link.end, wire_len)?;
            let may_fragment = bytes.get(link.end + 6)? & 0x40 == 0;
            (ip.total_len, Some(ip.protocol).filter(|_| !may_fragment)?, LEAST_V4)
        }
        ether_type::IPV6 => {
            let ip = header::v6(bytes, link.end, wire_len)?;
            (ip.total_len, ip.next_header, LEAST_V6)
        }
        _ => return None,
    };
    let more = match proto {
        protocol::TCP | protocol::UDP => more.to_tcp_and_udp,
        _ => more.to_others?,
    };
    let mtu = out.checked_sub(more)?.checked_sub((link.end - header::ETHERNET) as u16)?;
    (total_len > mtu.into() && mtu >= least).then_some(mtu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_plane::checksum::checksum;

    /// A packet of so many bytes from its IP header on.
    fn packet(version: u8, proto: u8, len: usize, flags: u8) -> Vec<u8> {
        let mut bytes = vec![0; 14 + len];
        let ip = &mut bytes[14..];
        if version == 4 {
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            (ip[6], ip[8], ip[9]) = (flags, 64, proto);
            let sum = checksum(&ip[..20]).to_be_bytes();
            ip[10..12].copy_from_slice(&sum);
            bytes[12..14].copy_from_slice(&ether_type::IPV4.to_be_bytes());
        } else {
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&(len as u16 - 40).to_be_bytes());
            (ip[6], ip[7]) = (proto, 64);
            bytes[12..14].copy_from_slice(&ether_type::IPV6.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn a_host_is_sent_an_mtu_that_leaves_room_where_it_can_go_by_it() {
        let stacks = MostAdded { to_tcp_and_udp: 64, to_others: None };
        let of = |bytes: Vec<u8>, out| room(&bytes, bytes.len(), (out, &stacks));
        let (dont_fragment, icmp) = (0x40, 1);
        assert_eq!(of(packet(4, protocol::TCP, 1500, dont_fragment), 1500), Some(1436));
        assert_eq!(of(packet(4, protocol::UDP, 1437, dont_fragment), 1500), Some(1436));
        assert_eq!(of(packet(4, protocol::TCP, 1436, dont_fragment), 1500), None);
        assert_eq!(of(packet(4, protocol::TCP, 1500, dont_fragment), 1564), None);
        assert_eq!(of(packet(6, protocol::TCP, 1500, 0), 1500), Some(1436));
        let mut tagged = packet(6, protocol::TCP, 1436, 0);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(of(tagged, 1500), Some(1432));
        // Routers may fragment it; it has no place for a stack; hosts go by no such MTU.
        assert_eq!(of(packet(4, protocol::UDP, 1500, 0), 1500), None);
        assert_eq!(of(packet(4, icmp, 1500, dont_fragment), 1500), None);
        assert_eq!(of(packet(6, protocol::TCP, 1300, 0), 1300), None);
        assert_eq!(of(packet(4, protocol::TCP, 639, dont_fragment), 639), None);

        let by_port = MostAdded { to_others: Some(72), ..stacks };
        let of = |bytes: Vec<u8>| room(&bytes, bytes.len(), (1500, &by_port));
        assert_eq!(of(packet(4, icmp, 1429, dont_fragment)), Some(1428));
        assert_eq!(of(packet(4, icmp, 1428, dont_fragment)), None);
        assert_eq!(of(packet(4, protocol::UDP, 1436, dont_fragment)), None);
        assert_eq!(of(packet(4, protocol::UDP, 1437, dont_fragment)), Some(1436));
    }
}
