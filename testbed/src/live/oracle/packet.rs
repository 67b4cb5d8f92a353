//! What a captured frame says, read by plain code of its own: nothing here is shared with switches.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use calumma_analysis::Flow;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The bit of the ToS byte that says of a packet that it has a stack.
const MARKER: u8 = 0x10;

/// A captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its flow.
    pub(super) flow: Flow,
    /// The ToS byte or traffic class.
    pub(super) tos: u8,
    /// A number made of the bytes that no switch changes.
    pub(super) identity: u64,
    /// The same where what looks like a stack is the host's own.
    pub(super) of_host: u64,
    /// A number made of all bytes but Ethernet's, the TTL, IPv4's checksum and the marker.
    pub(super) content: u64,
    /// Whether a stack stands behind the transport header, whatever the marker says.
    pub(super) has_stack: bool,
    /// Whether IPv4's checksum is right.
    pub(super) is_sound: bool,
}

impl Frame {
    /// Reads a frame without tags; `None` where it holds no IP packet.
    pub(super) fn read(frame: &[u8]) -> Option<Self> {
        let half = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let ip = frame.get(14..)?;
        let (header, len, tos, protocol) = match (half(12)?, ip.first()? >> 4) {
            (0x0800, 4) => {
                (usize::from(ip[0] & 15) * 4, usize::from(half(16)?), ip[1], *ip.get(9)?)
            }
            (0x86DD, 6) => {
                (40, 40 + usize::from(half(18)?), ip[0] << 4 | ip.get(1)? >> 4, *ip.get(6)?)
            }
            _ => return None,
        };
        let ip = ip.get(..len)?;
        let (head, segment) = ip.split_at_checked(header)?;
        let address = |at: usize, long: bool| -> Option<IpAddr> {
            Some(match long {
                false => IpAddr::from(*head.get(at..)?.first_chunk::<4>()?),
                true => IpAddr::from(*head.get(at..)?.first_chunk::<16>()?),
            })
        };
        let is_long = head[0] >> 4 == 6;
        let (src, dst) = match is_long {
            false => (address(12, false)?, address(16, false)?),
            true => (address(8, true)?, address(24, true)?),
        };
        let is_fragment = !is_long && (head[6] & 0x3F != 0 || head[7] != 0);
        let may_be = tos & MARKER != 0 && protocol == UDP && !is_fragment;
        let as_sent = if may_be { as_sent(segment) } else { None };

        let mut content = DefaultHasher::new();
        let mut same = head.to_vec();
        match is_long {
            false => {
                same[1] &= !MARKER;
                (same[8], same[10], same[11]) = (0, 0, 0);
            }
            true => {
                // The traffic class begins in the middle of the first byte.
                same[0] &= !(MARKER >> 4);
                same[7] = 0;
            }
        }
        (&same, segment).hash(&mut content);

        let is_by_port = as_sent.is_some();
        let (protocol, segment) = match &as_sent {
            Some((protocol, segment)) => (*protocol, &segment[..]),
            None => (protocol, segment),
        };
        let has_ports = matches!(protocol, TCP | UDP) && !is_fragment && segment.len() >= 8;
        let port = |at| u16::from_be_bytes([segment[at], segment[at + 1]]);
        let (sport, dport) = if has_ports { (port(0), port(2)) } else { (0, 0) };
        let fixed = if protocol == TCP { 20 } else { 8 };
        let stack = match segment.get(fixed..) {
            Some(bytes) if has_ports && !is_by_port => stack(bytes, BY_DSCP),
            _ => 0,
        };

        let mut same = DefaultHasher::new();
        (src, dst, protocol).hash(&mut same);
        if !is_long {
            head[4..8].hash(&mut same);
        }
        let [identity, of_host] = if has_ports {
            let fields = if protocol == TCP { segment.get(..16)? } else { &segment[..4] };
            // Between switches a stack is the network's where the marker says so.
            [if tos & MARKER != 0 { stack } else { 0 }, 0].map(|stack| {
                let mut same = same.clone();
                (fields, segment.get(fixed + stack..)).hash(&mut same);
                same.finish()
            })
        } else {
            segment.hash(&mut same);
            [same.finish(); 2]
        };
        let words = head.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
        let sum: u32 = words.sum();
        Some(Self {
            flow: Flow { src, dst, sport, dport, proto: protocol },
            tos,
            identity,
            of_host,
            content: content.finish(),
            has_stack: stack > 0 || is_by_port,
            is_sound: is_long || (sum & 0xFFFF) + (sum >> 16) == 0xFFFF,
        })
    }
}

/// The first byte of a shim, by what marks the packet: the DSCP, a UDP port, or that port before
/// another protocol.
const BY_DSCP: u8 = 0x10;
const BY_PORT: u8 = 0x14;
const BY_PROTOCOL: u8 = 0x18;

/// Bytes of the stack that begins there, by INT-MD's shim, of this kind, and header; 0 where there
/// is none.
fn stack(bytes: &[u8], by: u8) -> usize {
    let Some(&[kind, words, first, _, version, ..]) = bytes.get(..16) else { return 0 };
    let len = 4 + 4 * usize::from(words);
    let is_one = kind == by && (first == 0 || by == BY_PORT) && version >> 4 == 2;
    if is_one && len >= 16 && len <= bytes.len() { len } else { 0 }
}

/// Protocol and segment that a host has sent where a UDP port marks the packet, checksums aside;
/// `None` where none does.
fn as_sent(segment: &[u8]) -> Option<(u8, Vec<u8>)> {
    let (header, behind) = segment.split_at_checked(8)?;
    let [by_port, by_protocol] = [BY_PORT, BY_PROTOCOL].map(|by| stack(behind, by));
    if by_port > 0 {
        let port = &behind[2..4];
        return Some((UDP, [&header[..2], port, &header[4..], &behind[by_port..]].concat()));
    }
    (by_protocol > 0).then(|| (behind[3], behind[by_protocol..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{frame, host_address, host_address6};
    use calumma_sketch::WideKey;

    /// The frame with a stack of one hop, as a source makes it, checksums aside.
    fn with_stack(bytes: &[u8], fixed: usize) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let is_long = bytes[14] >> 4 == 6;
        let l4 = 14 + if is_long { 40 } else { 20 };
        let at = if is_long { 18 } else { 16 };
        let len = u16::from_be_bytes([bytes[at], bytes[at + 1]]) + 24;
        bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
        bytes[if is_long { 21 } else { 22 }] -= 1;
        bytes[if is_long { 14 } else { 15 }] |= if is_long { 1 } else { 0x10 };
        let stack =
            [0x10, 5, 0, 0, 0x20, 0, 2, 5, 0xA0, 0, 0xC4, 0xA1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 9, 9];
        bytes.splice(l4 + fixed..l4 + fixed, stack);
        bytes
    }

    /// The same where a UDP port marks the packet.
    fn by_port(bytes: &[u8], protocol: u8) -> Vec<u8> {
        let mut bytes = with_stack(bytes, if protocol == UDP { 8 } else { 0 });
        let is_long = bytes[14] >> 4 == 6;
        let l4 = 14 + if is_long { 40 } else { 20 };
        if protocol == UDP {
            bytes[l4 + 8] = BY_PORT;
            bytes.copy_within(l4 + 2..l4 + 4, l4 + 10);
        } else {
            (bytes[l4], bytes[l4 + 3]) = (BY_PROTOCOL, protocol);
            bytes.splice(l4..l4, [0xC0, 0, 0, 0, 0, 60, 0, 0]);
            bytes[if is_long { 20 } else { 23 }] = UDP;
            bytes[if is_long { 19 } else { 17 }] += 8;
        }
        bytes[l4 + 2..l4 + 4].copy_from_slice(&41_000_u16.to_be_bytes());
        bytes
    }

    #[test]
    fn a_packet_that_a_port_marks_is_the_one_that_was_sent() {
        for protocol in [UDP, 1, 132] {
            let v4 = WideKey::v4(host_address(0, 0), host_address(1, 0), 7, 53, protocol);
            let v6 = WideKey::v6(host_address6(0, 0), host_address6(1, 0), 7, 53, protocol);
            for key in [v4, v6] {
                let bytes = frame(&key, 60).to_vec();
                let plain = Frame::read(&bytes).unwrap();
                let carrying = Frame::read(&by_port(&bytes, protocol)).unwrap();
                assert!(carrying.has_stack && !plain.has_stack);
                assert_eq!((carrying.flow, carrying.identity), (plain.flow, plain.identity));
                assert_ne!(carrying.content, plain.content);
            }
        }
    }

    #[test]
    fn a_packet_is_the_same_with_and_without_its_stack() {
        for (protocol, fixed) in [(TCP, 20), (UDP, 8)] {
            let v4 = WideKey::v4(host_address(0, 0), host_address(1, 0), 7, 53, protocol);
            let v6 = WideKey::v6(host_address6(0, 0), host_address6(1, 0), 7, 53, protocol);
            for key in [v4, v6] {
                let bytes = frame(&key, 60).to_vec();
                let plain = Frame::read(&bytes).unwrap();
                assert_eq!(plain.flow, Flow::from(&key));
                assert!(!plain.has_stack);
                let carrying = Frame::read(&with_stack(&bytes, fixed)).unwrap();
                assert!(carrying.has_stack && carrying.tos & MARKER != 0);
                assert_eq!((carrying.flow, carrying.identity), (plain.flow, plain.identity));
                assert_ne!(carrying.content, plain.content);
                let bytes_are_long = bytes[14] >> 4 == 6;
                let mut other = bytes;
                // The destination port.
                other[14 + if bytes_are_long { 40 } else { 20 } + 3] ^= 1;
                assert_ne!(Frame::read(&other).unwrap().identity, plain.identity);
            }
        }
    }
}
