//! Packets on their way to a sink, and what software reads of them.

use std::num::NonZeroU16;

use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::{Parsed, parse};
use calumma_plane::int::{Domains, Hop, Insertion, Instructions, Stack, header, push, strip};

use super::{DOMAIN, FABRIC};
use crate::switch::{Numbers, checksum};

/// The stack that the packet came with from the network, where that is one to be taken out.
pub(super) fn taken(port: u16, bytes: &[u8]) -> Option<Stack> {
    let Parsed::Flow { ip_offset, .. } = parse(bytes, bytes.len()) else { return None };
    if bytes[ip_offset + 1] & 0x10 == 0 {
        return None;
    }
    let packet = Frame::with_headroom(0, bytes);
    let mut domains = Domains::ANY;
    domains.learn(DOMAIN);
    let header::Seen::Stack(found) = header::look(&packet, ip_offset, domains) else { return None };
    let mut stack = Stack::EMPTY;
    strip::read(&packet, &found, &mut stack);
    (port == FABRIC).then_some(stack)
}

/// Whether the program's parser can read a packet that software reads to the ports: it looks at all
/// of TCP's and UDP's headers, and behind the marker for the two of a stack.
pub(super) fn is_read(bytes: &[u8], ip: usize) -> bool {
    let header = ip + 4 * usize::from(bytes[ip] & 0xF);
    let fragment = u16::from_be_bytes([bytes[ip + 6], bytes[ip + 7]]);
    let (is_marked, is_cut) = (bytes[ip + 1] & 0x10 != 0, fragment & 0x2000 != 0);
    let l4 = match bytes[ip + 9] {
        6 => 20,
        17 => 8,
        _ => return true,
    };
    if fragment & 0x1FFF != 0 || is_cut && !is_marked {
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
    let Parsed::Flow { ip_offset: ip, .. } = parse(&bytes, usize::MAX) else { return bytes };
    bytes[ip + 1] = bytes[ip + 1] & 0x6F | (bit as u8) << 7;
    bytes[ip + 10..ip + 12].fill(0);
    let sum = checksum(&bytes[ip..ip + usize::from(bytes[ip] & 0xF) * 4]);
    bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
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
    let Parsed::Flow { ip_offset: ip, .. } = parse(bytes, bytes.len()) else {
        return bytes.to_vec();
    };
    let mut packet = Frame::with_headroom(256, bytes);
    for at in 0..hops {
        let insertion = Insertion {
            domain: DOMAIN,
            node: NonZeroU16::MIN,
            instructions: Instructions::DEFAULT,
            hops: 16,
        };
        let node = [u64::from(3 + at), numbers.below(1 << 16), numbers.below(1 << 32)];
        let node = node[numbers.below(9).saturating_sub(6) as usize] as u32;
        let hop = Hop { node, latency_ns: latency(numbers), ..Hop::UNKNOWN };
        match header::look(&packet, ip, calumma_plane::int::Domains::ANY) {
            header::Seen::Stack(found) if at > 0 => {
                push::transit(&mut packet, &found, &hop, 9000);
            }
            _ if at == 0 => {
                let dscp = bytes[ip + 1] >> 2;
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
