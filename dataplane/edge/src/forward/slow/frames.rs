//! The frames that the switch makes: questions and answers for Ethernet addresses, echo replies,
//! ICMP errors; and reading those that it gets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calumma_plane::parse::detail::detail;
use etherparse::icmpv4::{DestUnreachableHeader, TimeExceededCode};
use etherparse::icmpv6::{
    DestUnreachableCode, NeighborAdvertisementHeader, TimeExceededCode as TimeExceededCode6,
};
use etherparse::{
    ArpEthIpv4Packet, ArpOperation, ArpPacketSlice, Icmpv4Slice, Icmpv4Type, Icmpv6Slice,
    Icmpv6Type, PacketBuilder,
};

use super::super::address::Mac;
use super::super::config::Interface;
use super::super::header::{ETHERNET, ether_type, protocol};

/// TTL of what the switch sends.
const TTL: u8 = 64;
/// Bytes of an ICMP error's IP packet at most: RFC 1812, section 4.3.2.3.
const MOST_V4: usize = 576;
/// The same for IPv6: RFC 4443, section 2.4 (c).
pub const MOST_V6: usize = 1280;
/// Bytes of the headers before what an ICMP error quotes.
const V4_HEADERS: usize = 20 + 8;
const V6_HEADERS: usize = 40 + 8;

/// A question or answer for an Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saying {
    /// Who asks or answers; unspecified where it has no address yet.
    pub from: IpAddr,
    /// Its Ethernet address, where it says so.
    pub mac: Option<Mac>,
    /// Whose Ethernet address it asks for or tells.
    pub about: IpAddr,
    /// Whether it asks.
    pub asks: bool,
}

/// Reads an ARP packet for IPv4 over Ethernet.
pub fn read_arp(packet: &[u8]) -> Option<Saying> {
    let arp = ArpPacketSlice::from_slice(packet).ok()?.to_packet().try_eth_ipv4().ok()?;
    let asks = match arp.operation {
        ArpOperation::REQUEST => true,
        ArpOperation::REPLY => false,
        _ => return None,
    };
    let from = IpAddr::V4(arp.sender_ipv4_addr());
    let about = if asks { IpAddr::V4(arp.target_ipv4_addr()) } else { from };
    Some(Saying { from, mac: Some(Mac(arp.sender_mac)), about, asks })
}

/// Reads a neighbour solicitation or advertisement; `packet` begins with its IPv6 header, without
/// extension headers behind it.
pub fn read_discovery(packet: &[u8]) -> Option<Saying> {
    let (from, to, icmp) = icmp6(packet)?;
    let asks = match icmp.icmp_type() {
        Icmpv6Type::NeighborSolicitation => true,
        Icmpv6Type::NeighborAdvertisement(_) => false,
        _ => return None,
    };
    if packet.get(7) != Some(&255) || !icmp.is_checksum_valid(from.octets(), to.octets()) {
        return None;
    }
    let (target, mut options) = icmp.payload().split_first_chunk::<16>()?;
    let wanted = if asks { 1 } else { 2 };
    let mut mac = None;
    while let [kind, len, rest @ ..] = options {
        let len = usize::from(*len) * 8;
        let body = rest.get(..len.checked_sub(2)?)?;
        if *kind == wanted {
            mac = body.first_chunk::<6>().map(|mac| Mac(*mac));
        }
        options = &options[len..];
    }
    Some(Saying { from: from.into(), mac, about: Ipv6Addr::from(*target).into(), asks })
}

/// An ICMPv6 message, and where its packet comes from and goes to.
fn icmp6(packet: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr, Icmpv6Slice<'_>)> {
    let ip = super::super::header::v6(packet, 0, packet.len())?;
    let icmp = Icmpv6Slice::from_slice(packet.get(40..ip.total_len)?).ok()?;
    Some((ip.from, ip.to, icmp))
}

/// Asks `to` (an Ethernet address; none: everybody) on the link of `interface` for the Ethernet
/// address of `about`.
pub fn ask(interface: &Interface, about: IpAddr, to: Option<Mac>) -> Option<Vec<u8>> {
    match about {
        IpAddr::V4(about) => {
            let Some(IpAddr::V4(from)) = interface.speaks_from(about.into()) else { return None };
            let arp = ArpEthIpv4Packet {
                operation: ArpOperation::REQUEST,
                sender_mac: interface.mac.0,
                sender_ipv4: from.octets(),
                target_mac: [0; 6],
                target_ipv4: about.octets(),
            };
            let to = to.unwrap_or(Mac::BROADCAST);
            Some(frame(interface, to, ether_type::ARP, &arp.to_bytes()))
        }
        IpAddr::V6(about) => {
            let (group, link) = match to {
                Some(mac) => (about, mac),
                None => {
                    let group = solicited_node(about);
                    (group, Mac::of_multicast(group))
                }
            };
            let body = with_link_address(about, 1, interface.mac);
            let kind = Icmpv6Type::NeighborSolicitation;
            let packet = discovery(interface.link_local(), group, kind, &body)?;
            Some(frame(interface, link, ether_type::IPV6, &packet))
        }
    }
}

/// Answers a question: `about` is at this interface's Ethernet address. To everybody where the
/// asker has no address yet, and, without a question, to say so unasked.
pub fn answer(interface: &Interface, about: IpAddr, question: Option<&Saying>) -> Option<Vec<u8>> {
    let asker = question.filter(|question| !question.from.is_unspecified());
    match about {
        IpAddr::V4(about) => {
            let (to, target) = match question {
                Some(Saying { from: IpAddr::V4(from), mac, .. }) => ((*mac)?, *from),
                _ => (Mac::BROADCAST, about),
            };
            let unasked = question.is_none();
            let arp = ArpEthIpv4Packet {
                operation: if unasked { ArpOperation::REQUEST } else { ArpOperation::REPLY },
                sender_mac: interface.mac.0,
                sender_ipv4: about.octets(),
                target_mac: if unasked { [0; 6] } else { to.0 },
                target_ipv4: target.octets(),
            };
            Some(frame(interface, to, ether_type::ARP, &arp.to_bytes()))
        }
        IpAddr::V6(about) => {
            let all_nodes = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1);
            let (to, link) = match asker {
                Some(Saying { from: IpAddr::V6(from), mac, .. }) => (*from, (*mac)?),
                _ => (all_nodes, Mac::of_multicast(all_nodes)),
            };
            let head = NeighborAdvertisementHeader {
                router: true,
                solicited: asker.is_some(),
                r#override: true,
            };
            let body = with_link_address(about, 2, interface.mac);
            let packet = discovery(about, to, Icmpv6Type::NeighborAdvertisement(head), &body)?;
            Some(frame(interface, link, ether_type::IPV6, &packet))
        }
    }
}

/// The group that a neighbour listens to for questions (RFC 4291, section 2.7.1).
fn solicited_node(of: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = of.octets();
    Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 1, 0xFF00 | u16::from(a), u16::from_be_bytes([b, c]))
}

/// A target and the option with a link-layer address (RFC 4861, section 4.6.1).
fn with_link_address(target: Ipv6Addr, option: u8, mac: Mac) -> Vec<u8> {
    let mut body = target.octets().to_vec();
    body.extend_from_slice(&[option, 1]);
    body.extend_from_slice(&mac.0);
    body
}

fn discovery(from: Ipv6Addr, to: Ipv6Addr, kind: Icmpv6Type, body: &[u8]) -> Option<Vec<u8>> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv6(from.octets(), to.octets(), 255).icmpv6(kind);
    builder.write_to_vec(&mut packet, body).ok()?;
    Some(packet)
}

/// A frame from `interface` on its link.
pub fn frame(interface: &Interface, to: Mac, ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET + 4 + packet.len());
    frame.extend_from_slice(&to.0);
    frame.extend_from_slice(&interface.mac.0);
    if let Some(vlan) = interface.vlan {
        frame.extend_from_slice(&0x8100_u16.to_be_bytes());
        frame.extend_from_slice(&vlan.to_be_bytes());
    }
    frame.extend_from_slice(&ether_type.to_be_bytes());
    frame.extend_from_slice(packet);
    frame
}

/// The reply to a ping, as a frame that is still to be routed or addressed; `packet` begins with
/// the IP header. Nothing where it is no whole ping.
pub fn echo_reply(packet: &[u8]) -> Option<Vec<u8>> {
    let mut reply = unaddressed(packet)?;
    if packet.first()? >> 4 == 4 {
        let ip = super::super::header::v4(packet, 0, packet.len())?;
        let icmp = Icmpv4Slice::from_slice(packet.get(ip.header_len..ip.total_len)?).ok()?;
        let Icmpv4Type::EchoRequest(echo) = icmp.icmp_type() else { return None };
        if ip.is_fragment || calumma_plane::checksum::checksum(icmp.slice()) != 0 {
            return None;
        }
        PacketBuilder::ipv4(ip.to.octets(), ip.from.octets(), TTL)
            .icmpv4(Icmpv4Type::EchoReply(echo))
            .write_to_vec(&mut reply, icmp.payload())
            .ok()?;
    } else {
        let (from, to, icmp) = icmp6(packet)?;
        let Icmpv6Type::EchoRequest(echo) = icmp.icmp_type() else { return None };
        if !icmp.is_checksum_valid(from.octets(), to.octets()) {
            return None;
        }
        PacketBuilder::ipv6(to.octets(), from.octets(), TTL)
            .icmpv6(Icmpv6Type::EchoReply(echo))
            .write_to_vec(&mut reply, icmp.payload())
            .ok()?;
    }
    Some(reply)
}

/// Why a packet was dropped, as an ICMP error has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// The TTL, or hop limit, ran out.
    TtlExpired,
    /// No route to the destination.
    NoRoute,
    /// The destination, or the next hop to it, does not answer.
    HostUnreachable,
    /// Nobody listens on the port.
    PortUnreachable,
    /// The packet is longer than this MTU.
    TooBig(u16),
}

/// An ICMP error from `from` about `packet`, which begins with its IP header, as a frame that is
/// still to be routed. Nothing where `packet` must not be answered with an error.
pub fn error(from: IpAddr, packet: &[u8], complaint: Complaint) -> Option<Vec<u8>> {
    let mut frame = unaddressed(packet)?;
    match from {
        IpAddr::V4(from) => {
            let to = may_be_told_v4(packet)?;
            let kind = match complaint {
                Complaint::TtlExpired => {
                    Icmpv4Type::TimeExceeded(TimeExceededCode::TtlExceededInTransit)
                }
                Complaint::NoRoute => unreachable_v4(DestUnreachableHeader::Network),
                Complaint::HostUnreachable => unreachable_v4(DestUnreachableHeader::Host),
                Complaint::PortUnreachable => unreachable_v4(DestUnreachableHeader::Port),
                Complaint::TooBig(next_hop_mtu) => {
                    unreachable_v4(DestUnreachableHeader::FragmentationNeeded { next_hop_mtu })
                }
            };
            let quote = &packet[..packet.len().min(MOST_V4 - V4_HEADERS)];
            PacketBuilder::ipv4(from.octets(), to.octets(), TTL)
                .icmpv4(kind)
                .write_to_vec(&mut frame, quote)
                .ok()?;
        }
        IpAddr::V6(from) => {
            let to = may_be_told_v6(packet)?;
            let kind = match complaint {
                Complaint::TtlExpired => {
                    Icmpv6Type::TimeExceeded(TimeExceededCode6::HopLimitExceeded)
                }
                Complaint::NoRoute => unreachable_v6(DestUnreachableCode::NoRoute),
                Complaint::HostUnreachable => unreachable_v6(DestUnreachableCode::Address),
                Complaint::PortUnreachable => unreachable_v6(DestUnreachableCode::Port),
                Complaint::TooBig(mtu) => Icmpv6Type::PacketTooBig { mtu: mtu.into() },
            };
            let quote = &packet[..packet.len().min(MOST_V6 - V6_HEADERS)];
            PacketBuilder::ipv6(from.octets(), to.octets(), TTL)
                .icmpv6(kind)
                .write_to_vec(&mut frame, quote)
                .ok()?;
        }
    }
    Some(frame)
}

fn unreachable_v4(code: DestUnreachableHeader) -> Icmpv4Type {
    Icmpv4Type::DestinationUnreachable(code)
}

fn unreachable_v6(code: DestUnreachableCode) -> Icmpv6Type {
    Icmpv6Type::DestinationUnreachable(code)
}

/// An Ethernet header without addresses, for an answer to `packet`, which begins with its IP
/// header.
fn unaddressed(packet: &[u8]) -> Option<Vec<u8>> {
    let ether_type = match packet.first()? >> 4 {
        4 => ether_type::IPV4,
        6 => ether_type::IPV6,
        _ => return None,
    };
    let mut frame = vec![0; ETHERNET - 2];
    frame.extend_from_slice(&ether_type.to_be_bytes());
    Some(frame)
}

/// The sender of a packet that may be sent an ICMP error about it (RFC 1812, section 4.3.2.7).
fn may_be_told_v4(packet: &[u8]) -> Option<Ipv4Addr> {
    let ip = super::super::header::v4(packet, 0, usize::MAX)?;
    let icmp_type = packet.get(ip.header_len);
    // Of ICMP, only echoes and the like, which are no errors themselves.
    let error = ip.protocol == 1 && !matches!(icmp_type, Some(0 | 8 | 13 | 14));
    let nobody = ip.from.is_unspecified() || ip.from.is_multicast() || ip.from.is_broadcast();
    (!ip.is_later_fragment && !error && !nobody && !ip.to.is_multicast()).then_some(ip.from)
}

/// The sender of a packet that may be sent an ICMP error about it (RFC 4443, section 2.4 (e)). None
/// of one whose headers can't be read to the last: it may be an error itself.
fn may_be_told_v6(packet: &[u8]) -> Option<Ipv6Addr> {
    let ip = super::super::header::v6(packet, 0, usize::MAX)?;
    let upper = detail(packet, 0, ip.total_len)?;
    let icmp_type = packet.get(usize::from(upper.l4_offset));
    let error = upper.protocol == protocol::ICMPV6 && icmp_type.is_none_or(|kind| *kind < 128);
    let nobody =
        ip.from.is_unspecified() || ip.from.is_multicast() || ip.from.is_unicast_link_local();
    (!error && !nobody && !ip.to.is_multicast()).then_some(ip.from)
}
