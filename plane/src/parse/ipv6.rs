//! IPv6: the fixed header, a bounded walk over its extension headers, and the ports.
//!
//! Out of line, so that it costs IPv4 packets nothing.

use super::{KEY6, Key6, Malformed, has_ports};

/// The fixed header.
pub(crate) const IPV6: usize = 40;

/// Most extension headers that are walked over; a packet with more is malformed.
const MOST_EXTENSIONS: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// What follows the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Upper {
    /// Its protocol number.
    pub(super) protocol: u8,
    /// Where the byte is that says so.
    pub(super) protocol_at: usize,
    /// Where it begins.
    pub(super) offset: usize,
    /// Where it ends by the IPv6 header's payload length.
    pub(super) end: usize,
    /// Whether the packet is a fragment of a longer one.
    pub(super) fragment: bool,
    /// Whether it is a fragment and not the first, so that there are no ports.
    pub(super) later_fragment: bool,
}

/// The flow's key.
#[inline(never)]
pub(super) fn key(bytes: &[u8], ip_offset: usize, wire_len: usize) -> Result<Key6, Malformed> {
    let upper = upper(bytes, ip_offset, wire_len)?;
    let mut key = [0; KEY6];
    let addresses = bytes.get(ip_offset + 8..ip_offset + IPV6).ok_or(Malformed::Ipv6Truncated)?;
    key[..32].copy_from_slice(addresses);
    if has_ports(upper.protocol) && !upper.later_fragment {
        let ports = at::<4>(bytes, upper.offset, upper.end).ok_or(Malformed::PortsTruncated)?;
        key[32..36].copy_from_slice(ports);
    }
    key[36] = upper.protocol;
    Ok(key)
}

/// Walks to the upper-layer header. Hop-by-hop options, routing, fragment, authentication and
/// destination options are walked over; everything else, ESP and "no next header" among it, is
/// taken for the upper layer.
pub(super) fn upper(bytes: &[u8], ip_offset: usize, wire_len: usize) -> Result<Upper, Malformed> {
    let header = bytes
        .get(ip_offset..)
        .and_then(|rest| rest.first_chunk::<IPV6>())
        .ok_or(Malformed::Ipv6Truncated)?;
    if header[0] >> 4 != 6 {
        return Err(Malformed::Ipv6Version);
    }
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let end = ip_offset + IPV6 + payload_len;
    if end > wire_len {
        return Err(Malformed::Ipv6PayloadLength);
    }
    let mut upper = Upper {
        protocol: header[6],
        protocol_at: ip_offset + 6,
        offset: ip_offset + IPV6,
        end,
        fragment: false,
        later_fragment: false,
    };
    for _ in 0..=MOST_EXTENSIONS {
        let unit = match upper.protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => 8,
            AUTHENTICATION => 4,
            FRAGMENT => 0,
            _ if upper.offset > end => return Err(Malformed::Ipv6Extensions),
            _ => return Ok(upper),
        };
        let [next, len, high, low] =
            *at::<4>(bytes, upper.offset, end).ok_or(Malformed::Ipv6Extensions)?;
        (upper.protocol, upper.protocol_at) = (next, upper.offset);
        upper.offset += match unit {
            8 => (usize::from(len) + 1) * 8,
            4 => (usize::from(len) + 2) * 4,
            _ => {
                let fragment = u16::from_be_bytes([high, low]);
                // Offset in its upper 13 bits, "more fragments" in the lowest one.
                upper.fragment |= fragment & !0b110 != 0;
                upper.later_fragment |= fragment >> 3 != 0;
                8
            }
        };
        if upper.later_fragment {
            // What follows is the middle of something.
            return if upper.offset > end { Err(Malformed::Ipv6Extensions) } else { Ok(upper) };
        }
    }
    Err(Malformed::Ipv6Extensions)
}

/// `N` bytes from `from` on, if they lie before `end` and are at hand.
fn at<const N: usize>(bytes: &[u8], from: usize, end: usize) -> Option<&[u8; N]> {
    bytes.get(from..end.min(bytes.len()))?.first_chunk()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::parse::{Parsed, parse};

    /// An Ethernet frame with an IPv6 packet of these extension headers, each a number and its
    /// bytes without the next header's number, and then `protocol` and its bytes.
    pub(crate) fn packet(extensions: &[(u8, &[u8])], protocol: u8, upper: &[u8]) -> Vec<u8> {
        let numbers = extensions.iter().map(|(number, _)| *number).chain([protocol]);
        let mut numbers = numbers.collect::<Vec<_>>().into_iter();
        let mut frame = vec![2; 12];
        frame.extend_from_slice(&[0x86, 0xDD, 0x60, 0, 0, 0, 0, 0, numbers.next().unwrap(), 64]);
        frame.extend_from_slice(&[0x20; 16]);
        frame.extend_from_slice(&[0xFD; 16]);
        for ((_, bytes), next) in extensions.iter().zip(numbers) {
            frame.push(next);
            frame.extend_from_slice(bytes);
        }
        frame.extend_from_slice(upper);
        let payload_len = (frame.len() - 54) as u16;
        frame[18..20].copy_from_slice(&payload_len.to_be_bytes());
        frame
    }

    const UDP_HEADER: [u8; 8] = [0x9C, 0x40, 0x14, 0x51, 0, 8, 0, 0];

    fn flow(frame: &[u8]) -> (u32, u8) {
        match parse(frame, frame.len()) {
            Parsed::Flow6 { key, ip_offset: 14 } => {
                assert_eq!((&key[..16], &key[16..32]), (&[0x20; 16][..], &[0xFD; 16][..]));
                (u32::from_be_bytes(key[32..36].try_into().unwrap()), key[36])
            }
            other => panic!("{other:?}"),
        }
    }

    fn malformed(frame: &[u8]) -> Malformed {
        match parse(frame, frame.len()) {
            Parsed::Malformed(kind) => kind,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_ports_are_found_behind_every_extension_header() {
        let options = [0; 7];
        let long = { [&[1][..], &[0; 14]].concat() };
        let authentication = { [&[1][..], &[0; 10]].concat() };
        let first_fragment = [0, 0, 1, 0, 0, 0, 7];
        let all: [(u8, &[u8]); 5] = [
            (HOP_BY_HOP, &options),
            (DESTINATION, &long),
            (ROUTING, &options),
            (AUTHENTICATION, &authentication),
            (FRAGMENT, &first_fragment),
        ];
        for some in 0..=all.len() {
            let frame = packet(&all[..some], 17, &UDP_HEADER);
            assert_eq!(flow(&frame), (0x9C40_1451, 17), "{some} extension headers");
        }
    }

    #[test]
    fn later_fragments_and_other_protocols_have_no_ports() {
        let later = [0, 0, 8, 0, 0, 0, 7];
        assert_eq!(flow(&packet(&[(FRAGMENT, &later)], 17, &[0xAB; 8])), (0, 17));
        assert_eq!(flow(&packet(&[], 58, &[128, 0, 0, 0])), (0, 58));
        assert_eq!(flow(&packet(&[], 50, &[0xAB; 16])), (0, 50), "ESP hides its ports");
        assert_eq!(flow(&packet(&[(HOP_BY_HOP, &[0; 7])], 59, &[])), (0, 59), "no next header");
    }

    #[test]
    fn the_walk_is_bounded() {
        let options: (u8, &[u8]) = (DESTINATION, &[0; 7]);
        assert_eq!(flow(&packet(&[options; MOST_EXTENSIONS], 17, &UDP_HEADER)).1, 17);
        let longer = packet(&[options; MOST_EXTENSIONS + 1], 17, &UDP_HEADER);
        assert_eq!(malformed(&longer), Malformed::Ipv6Extensions);
    }

    #[test]
    fn every_truncation_is_malformed_and_says_where() {
        let frame = packet(&[(HOP_BY_HOP, &[0; 7])], 6, &[0; 20]);
        for len in 14..frame.len() {
            let wanted = match len {
                14..54 => Malformed::Ipv6Truncated,
                _ => Malformed::Ipv6PayloadLength,
            };
            assert_eq!(malformed(&frame[..len]), wanted, "{len} bytes");
        }
        for (payload_len, wanted) in [
            (0, Malformed::Ipv6Extensions),
            (7, Malformed::Ipv6Extensions),
            (8, Malformed::PortsTruncated),
            (11, Malformed::PortsTruncated),
        ] {
            let mut frame = frame.clone();
            frame[19] = payload_len;
            assert_eq!(malformed(&frame), wanted, "{payload_len} bytes of payload");
        }
        let mut other = frame;
        other[14] = 0x40;
        assert_eq!(malformed(&other), Malformed::Ipv6Version);
    }
}
