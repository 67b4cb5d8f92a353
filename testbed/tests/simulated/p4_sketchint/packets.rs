//! Packets on their way to a sink, and what software reads of them.

use std::num::NonZeroU16;

use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::{Parsed, parse};
use calumma_plane::int::{Domains, Hop, Insertion, Instructions, Stack, header, push, strip};
use calumma_sketch::WideKey;

use super::{DOMAIN, FABRIC};
use crate::switch::{Numbers, checksum};

/// Extension headers of IPv6, behind which the program does not look.
pub(super) const EXTENSIONS: [u8; 5] = [0, 43, 44, 51, 60];

/// The flow of a packet, and where its IP header begins.
pub(super) fn flow(bytes: &[u8]) -> Option<(WideKey, usize)> {
    match parse(bytes, bytes.len()) {
        Parsed::Flow { key, ip_offset } => Some((key.into(), ip_offset)),
        Parsed::Flow6 { key, ip_offset } => Some((WideKey::from_bytes(key), ip_offset)),
        _ => None,
    }
}

/// The traffic class of a packet that is IPv6 by its EtherType, whatever version its header says,
/// and has all of that.
pub(super) fn class_of_ipv6(bytes: &[u8]) -> Option<u8> {
    let mut at = 12;
    for _ in 0..3 {
        match bytes.get(at..at + 2)? {
            [0x86, 0xDD] => {
                let header = bytes.get(at + 2..at + 42)?;
                return Some(header[0] << 4 | header[1] >> 4);
            }
            [0x81, 0] | [0x88, 0xA8] => at += 4,
            _ => return None,
        }
    }
    None
}

fn is_ipv4(bytes: &[u8], ip: usize) -> bool {
    bytes[ip] >> 4 == 4
}

/// The ToS byte, or the traffic class.
pub(super) fn tos(bytes: &[u8], ip: usize) -> u8 {
    if is_ipv4(bytes, ip) { bytes[ip + 1] } else { bytes[ip] << 4 | bytes[ip + 1] >> 4 }
}

/// The protocol, and where its header begins where no extension headers are before it.
pub(super) fn transport(bytes: &[u8], ip: usize) -> (u8, usize) {
    match is_ipv4(bytes, ip) {
        true => (bytes[ip + 9], ip + 4 * usize::from(bytes[ip] & 0xF)),
        false => (bytes[ip + 6], ip + 40),
    }
}

/// The stack that the packet came with from the network, where that is one to be taken out.
pub(super) fn taken(port: u16, bytes: &[u8]) -> Option<Stack> {
    let (_, ip) = flow(bytes)?;
    if tos(bytes, ip) & 0x10 == 0 || EXTENSIONS.contains(&transport(bytes, ip).0) {
        return None;
    }
    let packet = Frame::with_headroom(0, bytes);
    let mut domains = Domains::ANY;
    domains.learn(DOMAIN, None);
    let header::Seen::Stack(found) = header::look(&packet, ip, domains) else { return None };
    let mut stack = Stack::EMPTY;
    strip::read(&packet, &found, &mut stack);
    (port == FABRIC).then_some(stack)
}

/// Whether the program's parser can read a packet that software reads to the ports: it looks at all
/// of TCP's and UDP's headers, and behind the marker for the two of a stack; and at no extension
/// headers.
pub(super) fn is_read(bytes: &[u8], ip: usize) -> bool {
    let (protocol, header) = transport(bytes, ip);
    let is_marked = tos(bytes, ip) & 0x10 != 0;
    let (mut is_later, mut is_cut) = (false, false);
    if is_ipv4(bytes, ip) {
        let fragment = u16::from_be_bytes([bytes[ip + 6], bytes[ip + 7]]);
        (is_later, is_cut) = (fragment & 0x1FFF != 0, fragment & 0x2000 != 0);
    } else if EXTENSIONS.contains(&protocol) {
        return false;
    }
    let l4 = match protocol {
        6 => 20,
        17 => 8,
        _ => return true,
    };
    if is_later || is_cut && !is_marked {
        return true;
    }
    if !is_marked {
        return bytes.len() >= header + l4;
    }
    match bytes.get(header + l4..header + l4 + 4) {
        Some(&[0x10, _, 0, last]) if last & 3 == 0 => bytes.len() >= header + l4 + 16,
        shim => shim.is_some(),
    }
}

/// The packet with this timestamp bit and the marker cleared, its checksum right.
pub(super) fn stamped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    match parse(&bytes, usize::MAX) {
        Parsed::Flow { ip_offset: ip, .. } => {
            bytes[ip + 1] = bytes[ip + 1] & 0x6F | (bit as u8) << 7;
            bytes[ip + 10..ip + 12].fill(0);
            let sum = checksum(&bytes[ip..ip + usize::from(bytes[ip] & 0xF) * 4]);
            bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        }
        Parsed::Flow6 { ip_offset: ip, .. } => {
            bytes[ip] = bytes[ip] & 0xF6 | (bit as u8) << 3;
        }
        _ => {}
    }
    bytes
}

/// Any kind of IPv6 packet: tags, protocols, extension headers, fragments.
pub(super) fn packet6(numbers: &mut Numbers) -> Vec<u8> {
    let flow = numbers.below(200).min(numbers.below(200)) as u8;
    let protocol = [6, 17, 132, 58, 59][usize::from(flow % 5)];
    let mut bytes = vec![2; 12];
    bytes.extend(std::iter::repeat_n([0x81, 0, 0, 9], usize::from(flow % 3)).flatten());
    bytes.extend_from_slice(&[0x86, 0xDD, 0x60 | flow >> 5, flow << 5, 0, 0]);
    let extension = EXTENSIONS.get(numbers.below(40) as usize);
    let mut upper = Vec::new();
    upper.extend(extension.iter().flat_map(|_| [protocol, 0, 0, 0, 0, 0, 0, 0]));
    let in_front = upper.len();
    upper.extend((0x8000_0050_u32).rotate_left(flow.into()).to_be_bytes());
    upper.resize(in_front + 20 + numbers.below(30) as usize, 0x55);
    if protocol == 17 {
        let length = (upper.len() - in_front) as u16;
        upper[in_front + 4..in_front + 6].copy_from_slice(&length.to_be_bytes());
    }
    bytes.extend((upper.len() as u16).to_be_bytes());
    bytes.extend([*extension.unwrap_or(&protocol), 64]);
    bytes.extend([&[0x20; 15][..], &[flow], &[0xFD; 15], &[flow % 7]].concat());
    bytes.extend(upper);
    bytes
}

/// Some latency: most are short, and some are all that can be said.
pub(super) fn latency(numbers: &mut Numbers) -> u32 {
    match numbers.below(16) {
        0 => u32::MAX,
        1 => u32::MAX - 1 - numbers.below(70) as u32,
        2 => numbers.below(1 << 32) as u32,
        _ => numbers.below(100_000) as u32,
    }
}

/// The packet as it comes to the sink over so many switches, where it can carry a stack.
pub(super) fn with_stack(bytes: &[u8], hops: u16, numbers: &mut Numbers) -> Vec<u8> {
    let hops: Vec<(u32, u32)> = (0..hops)
        .map(|at| {
            let node = [u64::from(3 + at), numbers.below(1 << 16), numbers.below(1 << 32)];
            let node = node[numbers.below(9).saturating_sub(6) as usize] as u32;
            (node, latency(numbers))
        })
        .collect();
    with_hops(bytes, &hops)
}

/// The same over these switches, which had it for so long.
pub(super) fn with_hops(bytes: &[u8], hops: &[(u32, u32)]) -> Vec<u8> {
    let Some((_, ip)) = flow(bytes) else {
        return bytes.to_vec();
    };
    let mut packet = Frame::with_headroom(256, bytes);
    for (at, &(node, latency_ns)) in hops.iter().enumerate() {
        let insertion = Insertion {
            domain: DOMAIN,
            node: NonZeroU16::MIN,
            instructions: Instructions::DEFAULT,
            hops: 16,
            udp_port: None,
        };
        let hop = Hop { node, latency_ns, ..Hop::UNKNOWN };
        match header::look(&packet, ip, calumma_plane::int::Domains::ANY) {
            header::Seen::Stack(found) if at > 0 => {
                push::transit(&mut packet, &found, &hop, 9000);
            }
            _ if at == 0 => {
                let dscp = tos(bytes, ip) >> 2;
                let _ = push::source(&mut packet, ip, (&insertion, &hop), dscp, 9000);
            }
            _ => {}
        }
    }
    packet.bytes().to_vec()
}

/// Damage on the way, to some packets.
pub(super) fn damaged(mut bytes: Vec<u8>, numbers: &mut Numbers) -> Vec<u8> {
    match numbers.below(8) {
        0 => {
            for _ in 0..=numbers.below(4) {
                let at = 12 + numbers.below(bytes.len().min(90) as u64 - 12) as usize;
                bytes[at] = numbers.below(256) as u8;
            }
        }
        1 => bytes.truncate(14 + numbers.below(80) as usize),
        _ => {}
    }
    bytes
}
