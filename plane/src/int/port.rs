//! Where a UDP port marks packets with a stack: which packets go there, and which of them behind a
//! UDP header of their own.

use std::num::NonZeroU16;

use super::header::Original;
use crate::parse::detail::{Detail, mixed};
use crate::parse::{SCTP, TCP, UDP};
use crate::probe;
pub(crate) use crate::tag::before::UDP_HEADER;

#[cfg(test)]
mod tests;

const ICMPV6: u8 = 58;
const ESP: u8 = 50;

/// What routers and switches of the fabric say to each other and to hosts, or read on its way: none
/// of it may look like UDP. IGMP, RSVP, OSPF, PIM, VRRP, and what edges send to find paths.
const OF_ROUTERS: [u8; 6] = [2, 46, 89, 103, 112, probe::PROTOCOL];

/// The first port of those that are for flows of no service (RFC 6335, section 6); there are 2^14.
const DYNAMIC: u16 = 0xC000;

/// What the shim of a packet says, where it is to have a stack: where there is no port, or no place
/// behind a UDP header of its own, that it has the DSCP that it was sent with.
#[inline]
pub(super) fn original(
    bytes: &[u8],
    (ip_offset, of): (usize, &Detail),
    udp_port: Option<NonZeroU16>,
    dscp: u8,
) -> Original {
    if udp_port.is_none() {
        return Original::Dscp(dscp);
    }
    match of.protocol {
        UDP => {
            let at = usize::from(of.l4_offset) + 2;
            let port =
                bytes.get(at..at + 2).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
            Original::Port(port)
        }
        protocol if is_from_host_to_host(bytes, ip_offset, of) => Original::Protocol(protocol),
        _ => Original::Dscp(dscp),
    }
}

/// Whether a packet of neither TCP nor UDP is of one host to another, and nothing that a router or
/// a switch on its way may have to read.
fn is_from_host_to_host(bytes: &[u8], ip_offset: usize, of: &Detail) -> bool {
    if of.protocol == TCP || OF_ROUTERS.contains(&of.protocol) {
        return false;
    }
    let Some(ip) = bytes.get(ip_offset..) else { return false };
    match ip {
        // To a group, to all, from nobody, or from or to the link.
        [0x60..=0x6F, _, _, _, _, _, _, _, addresses @ ..] if addresses.len() >= 32 => {
            let (source, destination) = (&addresses[..16], &addresses[16..32]);
            let on_link = |of: &[u8]| of[0] == 0xFE && of[1] & 0xC0 == 0x80;
            // Errors and echo. Others ask for neighbours, routers and groups.
            let kind = bytes.get(usize::from(of.l4_offset));
            let is_for_hosts = of.protocol != ICMPV6 || kind.is_some_and(|kind| *kind <= 129);
            destination[0] != 0xFF
                && source != [0; 16]
                && !on_link(source)
                && !on_link(destination)
                && is_for_hosts
        }
        [0x40..=0x4F, ..] if ip.len() >= 20 => {
            let on_link = |of: &[u8]| of[..2] == [169, 254];
            ip[16] < 224 && ip[12] != 0 && !on_link(&ip[12..16]) && !on_link(&ip[16..20])
        }
        _ => false,
    }
}

/// The port that a packet behind a UDP header of its own comes from, the same for all of its flow:
/// by it routers with several paths divide flows. Flows are distinguished as far as their headers
/// tell: by addresses and protocol, SCTP's ports, and the number that ESP has of an association.
#[inline]
pub(super) fn source_port(bytes: &[u8], ip_offset: usize, of: &Detail) -> u16 {
    let is_ipv6 = bytes.get(ip_offset).is_some_and(|first| first >> 4 == 6);
    let (from, len) = if is_ipv6 { (8, 32) } else { (12, 8) };
    let addresses = bytes.get(ip_offset + from..ip_offset + from + len).unwrap_or_default();
    let first = bytes.get(of.l4_offset.into()..).and_then(|behind| behind.first_chunk());
    let word = match of.protocol {
        SCTP | ESP => first.copied().map_or(0, u32::from_be_bytes),
        _ => 0,
    };
    let seed = u64::from(word) << 8 | u64::from(of.protocol);
    let words = addresses.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word));
    DYNAMIC | (words.fold(seed, mixed) >> 50) as u16
}
