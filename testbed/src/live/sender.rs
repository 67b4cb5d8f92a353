//! Made-up traffic out of hosts: packets of flows, sent when they are due through raw sockets of
//! the hosts' own namespaces.

use std::net::{IpAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use calumma_sketch::{Key, WideKey};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6,
    SockaddrLike, sendto, socket,
};

use super::unix_ns;
use crate::fabric::faults::MADE_UP_TTL;
use crate::fabric::wiring::Wiring;
use crate::fabric::{Namespace, interrupt};
use crate::simulate::Entered;
use crate::workload::pcap::packets_of;
use crate::workload::{Flow, set_dscp};

/// Where a frame's IP header begins; what is before it is the kernel's to write.
const IP_OFFSET: usize = 14;

/// Packets that are due within so many nanoseconds are sent at once.
const TOGETHER_NS: u64 = 300_000;

/// Raw sockets of all hosts.
pub(super) struct Sender {
    /// By edge and host: one for IPv4, one for IPv6.
    sockets: Vec<Vec<[OwnedFd; 2]>>,
    /// Of a router in the middle, where there is one, for IPv4.
    inside: Option<OwnedFd>,
}

impl Sender {
    pub(super) fn new(wiring: &Wiring) -> Result<Self> {
        let open = |family| {
            // Packets come with their IP header.
            let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
            socket.context("a raw socket of a host")
        };
        let both = || Ok([open(AddressFamily::Inet)?, open(AddressFamily::Inet6)?]);
        let of_edge = |hosts: &Vec<Namespace>| -> Result<Vec<[OwnedFd; 2]>> {
            hosts.iter().map(|host| host.within(both)).collect()
        };
        let edges = wiring.hosts().len();
        let inner = wiring.routers().get(edges);
        let inside = inner.map(|inner| inner.within(|| open(AddressFamily::Inet))).transpose()?;
        Ok(Self { inside, sockets: wiring.hosts().iter().map(of_edge).collect::<Result<_>>()? })
    }

    /// Sends what the flows send in the epoch `epoch` that begins at `begin_ns`, each packet when
    /// it is due or, where the machine is late, as soon as it can be; returns when the epoch is
    /// over.
    pub(super) fn send_epoch(
        &self,
        flows: &[Flow],
        epoch: u64,
        begin_ns: u64,
        length_ns: u64,
        spread: f64,
    ) -> Result<Entered> {
        let packets = packets_of(flows, epoch, length_ns, spread);
        let from_hosts = flows.iter().filter(|flow| flow.inside.is_none());
        let is_from_host =
            |&&(_, flow, _): &&(u64, u32, u32)| flows[flow as usize].inside.is_none();
        let entered = Entered {
            flows: from_hosts.count(),
            packets: packets.iter().filter(is_from_host).count() as u64,
        };
        sleep_until(begin_ns)?;
        for (at_ns, flow, number) in packets {
            let due_ns = begin_ns + at_ns;
            // A sleep takes longer than it is asked to, so the packets of a short while go
            // together.
            if due_ns > unix_ns()? + TOGETHER_NS {
                sleep_until(due_ns)?;
            }
            let flow = &flows[flow as usize];
            let mut bytes = flow.frame(60);
            if flow.fate(epoch).is_lost(number) {
                bytes.mark_congestion();
            }
            if let Some(tos) = flow.inside {
                set_dscp(&mut bytes, tos >> 2);
            }
            let ip = &mut bytes[IP_OFFSET..];
            // The kernel writes the checksum of an IPv4 header itself, and its identification.
            ip[if ip[0] >> 4 == 4 { 8 } else { 7 }] = MADE_UP_TTL;
            match (flow.inside, flow.key.addresses().1) {
                (Some(_), IpAddr::V4(to)) => {
                    let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
                    let inside = self.inside.as_ref().context("no router in the middle")?;
                    send(inside, ip, &to)?;
                }
                _ => self.send(flow.edges[0], &flow.key, ip)?,
            }
        }
        sleep_until(begin_ns + length_ns)?;
        Ok(entered)
    }

    fn send(&self, edge: usize, key: &WideKey, packet: &[u8]) -> Result<()> {
        // Hosts are numbered from 1 on in the last byte of their addresses, of both families.
        let [.., number] = key.src().octets();
        let [ipv4, ipv6] = &self.sockets[edge][usize::from(number) - 1];
        match key.addresses().1 {
            IpAddr::V4(to) => send(ipv4, packet, &SockaddrIn::from(SocketAddrV4::new(to, 0))),
            IpAddr::V6(to) => {
                send(ipv6, packet, &SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, 0)))
            }
        }
    }
}

/// Sends a packet, from its IP header on, through a raw socket.
pub(super) fn send(socket: &OwnedFd, packet: &[u8], to: &impl SockaddrLike) -> Result<()> {
    loop {
        match sendto(socket.as_raw_fd(), packet, to, MsgFlags::empty()) {
            Ok(_) => return Ok(()),
            // The queue of the host is full for a moment.
            Err(Errno::ENOBUFS | Errno::EINTR) => std::thread::yield_now(),
            Err(errno) => return Err(errno).context("sending a packet"),
        }
    }
}

/// Sleeps until the system's clock shows `unix_ns_due`, but not through an interrupt.
pub(super) fn sleep_until(unix_ns_due: u64) -> Result<()> {
    match unix_ns_due.saturating_sub(unix_ns()?) {
        0 => Ok(()),
        left => interrupt::sleep(Duration::from_nanos(left)),
    }
}
