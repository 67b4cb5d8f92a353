//! Frames of hosts and routers around the edge.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calumma_edge::forward::address::Mac;
use etherparse::icmpv6::NeighborAdvertisementHeader;
use etherparse::{ArpEthIpv4Packet, ArpOperation, Icmpv6Type, PacketBuilder};

/// The Ethernet address of the station behind a port.
pub(crate) fn station(port: u8) -> Mac {
    Mac([2, 0x57, 0, 0, 0, port])
}

/// A frame, behind a VLAN tag or not.
pub(crate) fn ethernet(
    to: Mac,
    from: Mac,
    vlan: Option<u16>,
    ether_type: u16,
    body: &[u8],
) -> Vec<u8> {
    let mut frame = [to.0, from.0].concat();
    if let Some(vlan) = vlan {
        frame.extend_from_slice(&[0x81, 0]);
        frame.extend_from_slice(&vlan.to_be_bytes());
    }
    frame.extend_from_slice(&ether_type.to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

/// A UDP packet from the station behind `port` to the edge's Ethernet address.
pub(crate) struct Udp<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) ports: (u16, u16),
    pub(crate) ttl: u8,
    pub(crate) payload: usize,
}

impl<'a> Udp<'a> {
    pub(crate) fn new(from: &'a str, to: &'a str) -> Self {
        Self { from, to, ports: (4000, 5000), ttl: 64, payload: 30 }
    }

    /// The IP packet.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        let payload = vec![0xAB; self.payload];
        let (from, to) = (self.from.parse().unwrap(), self.to.parse().unwrap());
        let builder = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                PacketBuilder::ipv4(from.octets(), to.octets(), self.ttl)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                PacketBuilder::ipv6(from.octets(), to.octets(), self.ttl)
            }
            _ => panic!("{from} and {to}"),
        };
        let builder = builder.udp(self.ports.0, self.ports.1);
        builder.write_to_vec(&mut packet, &payload).unwrap();
        packet
    }

    /// The frame from the station behind `port` to the edge.
    pub(crate) fn frame(&self, port: usize) -> Vec<u8> {
        let packet = self.packet();
        let ether_type = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86DD };
        let vlan = (port == crate::edge::F1).then_some(100);
        ethernet(crate::edge::mac(port), station(port as u8), vlan, ether_type, &packet)
    }
}

/// What of a frame follows its Ethernet header.
pub(crate) fn body(frame: &[u8]) -> &[u8] {
    if frame[12..14] == [0x81, 0] { &frame[18..] } else { &frame[14..] }
}

/// A frame's EtherType, behind the tag if there is one.
pub(crate) fn ether_type(frame: &[u8]) -> u16 {
    let at = frame.len() - body(frame).len() - 2;
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// A frame's destination and source.
pub(crate) fn link(frame: &[u8]) -> (Mac, Mac) {
    (Mac(frame[..6].try_into().unwrap()), Mac(frame[6..12].try_into().unwrap()))
}

fn arp(operation: ArpOperation, from: Mac, ips: (&str, &str), to: Mac) -> Vec<u8> {
    let ip = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    ArpEthIpv4Packet {
        operation,
        sender_mac: from.0,
        sender_ipv4: ip(ips.0),
        target_mac: to.0,
        target_ipv4: ip(ips.1),
    }
    .to_bytes()
    .to_vec()
}

/// `from`, which is `ip`, asks everybody who has `about`.
pub(crate) fn arp_request(from: Mac, ip: &str, about: &str) -> Vec<u8> {
    let packet = arp(ArpOperation::REQUEST, from, (ip, about), Mac::default());
    ethernet(Mac::BROADCAST, from, None, 0x0806, &packet)
}

/// `from` says that it is `ip`.
pub(crate) fn arp_reply(from: Mac, ip: &str, to: Mac, vlan: Option<u16>) -> Vec<u8> {
    let packet = arp(ArpOperation::REPLY, from, (ip, "0.0.0.0"), to);
    ethernet(to, from, vlan, 0x0806, &packet)
}

fn discovery(from: &str, to: &str, kind: Icmpv6Type, about: &str, mac: Mac) -> Vec<u8> {
    let ip = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    let option = if kind == Icmpv6Type::NeighborSolicitation { 1 } else { 2 };
    let payload = [&ip(about)[..], &[option, 1], &mac.0].concat();
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv6(ip(from), ip(to), 255).icmpv6(kind);
    builder.write_to_vec(&mut packet, &payload).unwrap();
    packet
}

/// `from`, which is `ip`, asks the group of `about` who has that address.
pub(crate) fn neighbour_solicitation(from: Mac, ip: &str, about: &str) -> Vec<u8> {
    let [.., a, b, c] = about.parse::<Ipv6Addr>().unwrap().octets();
    let group = format!("ff02::1:ff{a:02x}:{b:02x}{c:02x}");
    let packet = discovery(ip, &group, Icmpv6Type::NeighborSolicitation, about, from);
    ethernet(Mac([0x33, 0x33, 0xFF, a, b, c]), from, None, 0x86DD, &packet)
}

/// `from` says that it is `ip`.
pub(crate) fn neighbour_advertisement(from: Mac, ip: &str, to: Mac, vlan: Option<u16>) -> Vec<u8> {
    let head = NeighborAdvertisementHeader { router: false, solicited: true, r#override: true };
    let kind = Icmpv6Type::NeighborAdvertisement(head);
    let packet = discovery(ip, "ff02::1", kind, ip, from);
    ethernet(to, from, vlan, 0x86DD, &packet)
}
