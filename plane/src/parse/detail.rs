//! What lies beyond a packet's key: its TTL and length, where its transport header is, how long
//! that is, TCP flags. Read for systems that ask for it; nobody else pays.

use super::{IPV4, TCP, UDP, ipv6};
use crate::carrier::Way;

/// Bytes of an IPv6 header.
const IPV6: u32 = 40;

/// Header fields of a packet whose flow could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Detail {
    /// TTL, or hop limit.
    pub ttl: u8,
    /// IP protocol of the transport header, after IPv6 extension headers.
    pub protocol: u8,
    /// Where the byte is that says it, in bytes from the packet's start.
    pub protocol_at: u16,
    /// Bytes of the IP datagram, its headers included.
    pub total_len: u16,
    /// Where the transport header begins, in bytes from the packet's start.
    pub l4_offset: u16,
    /// Bytes of the transport header: TCP's with its options, 8 of UDP, 0 of others.
    pub l4_len: u16,
    /// TCP's flags, CWR the highest bit and FIN the lowest; 0 of others.
    pub tcp_flags: u8,
    /// Whether the packet is a fragment, the first one included.
    pub is_fragment: bool,
}

/// What the outermost IP header of a packet says beside its flow, as the packet was received, and
/// how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IpFields {
    /// TTL, or hop limit.
    pub ttl: u8,
    /// Bytes of the packet: the total length of IPv4, 40 and the payload length of IPv6.
    pub len: u32,
    /// By its mark, where that says it; of one that enters, at no hop yet.
    pub way: Way,
}

/// The fields of a packet whose flow could be read and whose IP header begins at `ip_offset`; of
/// bytes that are no such header, zeros.
#[inline(always)]
pub(crate) fn ip_fields(bytes: &[u8], ip_offset: usize) -> IpFields {
    let header = bytes.get(ip_offset..).and_then(|header| header.first_chunk::<IPV4>());
    match header {
        Some(ipv4) if ipv4[0] >> 4 == 4 => {
            let len = u16::from_be_bytes([ipv4[2], ipv4[3]]).into();
            IpFields { ttl: ipv4[8], len, way: Way::default() }
        }
        Some(ipv6) => {
            let payload = u16::from_be_bytes([ipv6[4], ipv6[5]]);
            IpFields { ttl: ipv6[7], len: u32::from(payload) + IPV6, way: Way::default() }
        }
        None => IpFields::default(),
    }
}

/// Bytes of a packet from its transport header on that its [digest] is of.
const DIGESTED: usize = 48;

/// A number that packets of a flow that differ have in common only by chance: of the identification
/// of IPv4 and of the first bytes behind the IP header, without the length and the checksum there,
/// which hops correct for what they put in. No hop changes any of these.
#[inline]
pub(crate) fn digest(bytes: &[u8], ip_offset: usize) -> u64 {
    let Some(ip) = bytes.get(ip_offset..).filter(|ip| ip.len() >= IPV4) else { return 0 };
    let (protocol, behind, id) = match ip[0] >> 4 {
        4 => (ip[9], usize::from(ip[0] & 0xF) * 4, u64::from(ip[4]) << 8 | u64::from(ip[5])),
        _ => (ip[6], IPV6 as usize, 0),
    };
    let transport = ip.get(behind..).unwrap_or(&[]);
    let mut these = [0; DIGESTED];
    let len = transport.len().min(DIGESTED);
    these[..len].copy_from_slice(&transport[..len]);
    match protocol {
        TCP => these[16..18].fill(0),
        UDP => these[4..8].fill(0),
        _ => {}
    }
    let words = these.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    words.fold(id, mixed)
}

/// A number that is mixed with a word.
#[inline]
pub(crate) fn mixed(number: u64, word: u64) -> u64 {
    let product = u128::from(number ^ word ^ FOLD[0]) * u128::from(FOLD[1]);
    (product as u64) ^ (product >> 64) as u64
}

/// Odd numbers without a pattern.
const FOLD: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93];

/// The details of a packet whose IP header begins at `ip_offset`; `wire_len` is how long it is or
/// was on the wire. `None` where its headers can't be read as far as that.
pub fn detail(bytes: &[u8], ip_offset: usize, wire_len: usize) -> Option<Detail> {
    let version = bytes.get(ip_offset)? >> 4;
    let mut detail = match version {
        4 => of_ipv4(bytes, ip_offset)?,
        6 => of_ipv6(bytes, ip_offset, wire_len)?,
        _ => return None,
    };
    if ip_offset + usize::from(detail.total_len) > wire_len {
        return None;
    }
    let end = ip_offset + usize::from(detail.total_len);
    let l4 = bytes.get(usize::from(detail.l4_offset)..end.min(bytes.len()))?;
    match detail.protocol {
        TCP if !detail.is_fragment => {
            let header: &[u8; 20] = l4.first_chunk()?;
            let len = usize::from(header[12] >> 4) * 4;
            if len < 20 || usize::from(detail.l4_offset) + len > end {
                return None;
            }
            (detail.l4_len, detail.tcp_flags) = (len as u16, header[13]);
        }
        UDP if !detail.is_fragment => {
            let header: &[u8; 8] = l4.first_chunk()?;
            let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
            if len < 8 || usize::from(detail.l4_offset) + len > end {
                return None;
            }
            detail.l4_len = 8;
        }
        _ => {}
    }
    Some(detail)
}

fn of_ipv4(bytes: &[u8], ip_offset: usize) -> Option<Detail> {
    let header: &[u8; IPV4] = bytes.get(ip_offset..)?.first_chunk()?;
    let header_len = usize::from(header[0] & 0xF) * 4;
    let total_len = u16::from_be_bytes([header[2], header[3]]);
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    (header_len >= IPV4 && header_len <= usize::from(total_len)).then_some(Detail {
        ttl: header[8],
        protocol: header[9],
        protocol_at: (ip_offset + 9) as u16,
        total_len,
        l4_offset: (ip_offset + header_len) as u16,
        // Offset, or "more fragments".
        is_fragment: fragment & 0x3FFF != 0,
        ..Detail::default()
    })
}

fn of_ipv6(bytes: &[u8], ip_offset: usize, wire_len: usize) -> Option<Detail> {
    let upper = ipv6::upper(bytes, ip_offset, wire_len).ok()?;
    Some(Detail {
        ttl: *bytes.get(ip_offset + 7)?,
        protocol: upper.protocol,
        protocol_at: u16::try_from(upper.protocol_at).ok()?,
        total_len: u16::try_from(upper.end - ip_offset).ok()?,
        l4_offset: u16::try_from(upper.offset).ok()?,
        is_fragment: upper.fragment,
        ..Detail::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::ipv6::tests::packet;
    use crate::parse::tests::udp;

    #[test]
    fn udp_over_ipv4_tells_its_fields() {
        let mut frame = udp(1, 20);
        frame[18 + 8] = 63;
        let udp_len = (8 + 20_u16).to_be_bytes();
        frame[18 + 24..18 + 26].copy_from_slice(&udp_len);
        let detail = detail(&frame, 18, frame.len());
        let wanted = Detail {
            ttl: 63,
            protocol: UDP,
            protocol_at: 18 + 9,
            total_len: 20 + 8 + 20,
            l4_offset: 38,
            l4_len: 8,
            tcp_flags: 0,
            is_fragment: false,
        };
        assert_eq!(detail, Some(wanted));
    }

    #[test]
    fn both_families_tell_their_ttl_and_length() {
        let mut frame = udp(1, 20);
        frame[18 + 8] = 63;
        // Padding is no part of the packet.
        frame.extend_from_slice(&[0; 9]);
        assert_eq!(
            ip_fields(&frame, 18),
            IpFields { ttl: 63, len: 20 + 8 + 20, way: Way::default() }
        );
        let mut frame = packet(&[], TCP, &[0; 32]);
        frame[14 + 7] = 1;
        assert_eq!(ip_fields(&frame, 14), IpFields { ttl: 1, len: 40 + 32, way: Way::default() });
        frame[18..20].copy_from_slice(&[0xFF, 0xFF]);
        assert_eq!(ip_fields(&frame, 14).len, 40 + 0xFFFF);
        assert_eq!(ip_fields(&frame[..33], 14), IpFields::default());
    }

    #[test]
    fn a_digest_is_of_what_no_hop_changes() {
        let of_udp = udp(1, 24);
        let digest_of = |change: &dyn Fn(&mut [u8])| {
            let mut frame = of_udp.clone();
            change(&mut frame[18..]);
            digest(&frame, 18)
        };
        let same = digest(&of_udp, 18);
        // ToS byte, lengths, TTL, checksums.
        for at in [1, 2, 3, 8, 10, 11, 24, 25, 26, 27] {
            assert_eq!(digest_of(&|ip| ip[at] ^= 0x5A), same, "byte {at}");
        }
        // Identification, ports, payload.
        for at in [4, 5, 20, 23, 28, 47] {
            assert_ne!(digest_of(&|ip| ip[at] ^= 1), same, "byte {at}");
        }
        let mut tcp = [0; 32];
        let of_tcp = |tcp: &[u8; 32]| digest(&packet(&[], TCP, tcp), 14);
        let same = of_tcp(&tcp);
        tcp[16] = 1;
        assert_eq!(of_tcp(&tcp), same);
        tcp[7] = 1;
        assert_ne!(of_tcp(&tcp), same);
        assert_eq!(digest(&[0x45], 0), 0);
    }

    #[test]
    fn tcp_over_ipv6_tells_flags_and_options() {
        let mut tcp = [0; 32];
        (tcp[12], tcp[13]) = (8 << 4, 0x12);
        let frame = packet(&[], TCP, &tcp);
        let found = detail(&frame, 14, frame.len()).unwrap();
        assert_eq!((found.l4_offset, found.l4_len, found.tcp_flags), (54, 32, 0x12));
        assert_eq!(found.protocol_at, 20);
        let options: (u8, &[u8]) = (60, &[0; 7]);
        let behind = packet(&[options; 2], TCP, &tcp);
        let found_behind = detail(&behind, 14, behind.len()).unwrap();
        assert_eq!((found_behind.protocol_at, behind[62]), (62, TCP));
        assert_eq!(usize::from(found.total_len), 40 + 32);
    }

    #[test]
    fn a_header_that_ends_beyond_the_datagram_is_no_detail() {
        let mut tcp = [0; 20];
        tcp[12] = 6 << 4;
        assert_eq!(detail(&packet(&[], TCP, &tcp), 14, 14 + 40 + 20), None);
    }
}
