//! Tags that stand before the transport header, behind a UDP header of their own; and the port that
//! a packet of UDP goes to.
//!
//! That UDP header has the checksum 0. One that is right would be over all of the payload, which
//! nobody here reads; and of a packet that was damaged on its way it would say nothing once it is
//! taken out: the checksums that the sender has written are behind it, and stay as they are. Over
//! IPv6 a 0 is allowed where both ends of a tunnel agree upon it (RFC 6935, section 5), as switches
//! of one network do.

use super::{
    L4Place, MOST_BEFORE, Resize, TagError, UDP, change_checksum, change_word, close_gap, open_gap,
    word,
};
use crate::packet::Packet;
use crate::parse::detail::Detail;

/// Bytes of a UDP header.
pub(crate) const UDP_HEADER: usize = 8;

impl L4Place {
    /// Behind a UDP header that is to be put before what is behind the IP header, whatever that is.
    ///
    /// # Errors
    /// When the packet can carry no such tag.
    pub(crate) fn behind_own_header(
        ip_offset: usize,
        ipv6: bool,
        of: &Detail,
    ) -> Result<Self, TagError> {
        Ok(Self { udp: true, ..Self::of_any(ip_offset, ipv6, of, UDP_HEADER)? })
    }

    /// Where UDP's header says which port the packet goes to.
    fn port_at(&self) -> usize {
        self.l4_offset + 2
    }
}

/// Puts a UDP header with these two ports and `tag` before the transport header of a packet, whose
/// IP datagram may be of `mtu` bytes afterwards.
///
/// # Errors
/// Why it can't; the packet stays as it was.
#[inline]
pub(crate) fn wrap<P: Packet>(
    packet: &mut P,
    place: &L4Place,
    (ports, tag): ([u16; 2], &[u8]),
    mtu: usize,
) -> Result<(), TagError> {
    let L4Place { ip_offset, ipv6, l4_offset, total_len, at, .. } = *place;
    let more = UDP_HEADER + tag.len();
    if !tag.len().is_multiple_of(2) {
        return Err(TagError::OddLength);
    }
    if at > MOST_BEFORE || packet.bytes().len() < l4_offset || ip_offset + total_len < l4_offset {
        return Err(TagError::Short);
    }
    if !ipv6 && word(packet.bytes(), ip_offset + 10) == Some(u16::MAX) {
        return Err(TagError::Checksum);
    }
    if total_len + more > mtu.min(usize::from(u16::MAX)) {
        return Err(TagError::TooLong);
    }
    if !open_gap(packet, l4_offset, more) {
        return Err(TagError::Headroom);
    }
    let len = ip_offset + total_len + more - l4_offset;
    let header = [ports[0], ports[1], len as u16, 0].map(u16::to_be_bytes);
    let bytes = packet.bytes_mut();
    bytes[l4_offset..at].copy_from_slice(header.as_flattened());
    bytes[at..at + tag.len()].copy_from_slice(tag);
    change_ip(bytes, place, (more, Resize::Longer), UDP);
    Ok(())
}

/// Takes a UDP header and `len` bytes behind it out of a packet, whose transport header is that of
/// `protocol` from then on. `place` is that of the packet as it is, tag included.
///
/// # Errors
/// Why it can't; the packet stays as it was.
#[inline]
pub(crate) fn unwrap<P: Packet>(
    packet: &mut P,
    place: &L4Place,
    len: usize,
    protocol: u8,
) -> Result<(), TagError> {
    let L4Place { ip_offset, l4_offset, total_len, .. } = *place;
    let less = UDP_HEADER + len;
    let is_there = l4_offset + less <= ip_offset + total_len && l4_offset <= MOST_BEFORE;
    if !is_there || !close_gap(packet, l4_offset, less) {
        return Err(TagError::Short);
    }
    change_ip(packet.bytes_mut(), place, (less, Resize::Shorter), protocol);
    Ok(())
}

/// Lets a packet of UDP go to another port, and gives the one that it went to.
///
/// # Errors
/// When its header is not at hand; the packet stays as it was.
#[inline]
pub(crate) fn redirect<P: Packet>(
    packet: &mut P,
    place: &L4Place,
    port: u16,
) -> Result<u16, TagError> {
    let bytes = packet.bytes_mut();
    let before = word(bytes, place.port_at()).ok_or(TagError::Short)?;
    if word(bytes, place.checksum_at()).is_none() {
        return Err(TagError::Short);
    }
    let delta = change_word(bytes, place.port_at(), |_| port);
    change_checksum(bytes, place.checksum_at(), true, delta);
    Ok(before)
}

/// Corrects an IP header by so many bytes behind it, and says what comes next.
#[inline]
fn change_ip(bytes: &mut [u8], place: &L4Place, (len, by): (usize, Resize), protocol: u8) {
    let L4Place { ip_offset, ipv6, protocol_at, .. } = *place;
    if ipv6 {
        change_word(bytes, ip_offset + 4, |before| by.of(before, len));
        if let Some(byte) = bytes.get_mut(protocol_at) {
            *byte = protocol;
        }
        return;
    }
    let delta = change_word(bytes, ip_offset + 2, |before| by.of(before, len));
    change_checksum(bytes, ip_offset + 10, false, delta);
    let delta = change_word(bytes, ip_offset + 8, |ttl| ttl & 0xFF00 | u16::from(protocol));
    change_checksum(bytes, ip_offset + 10, false, delta);
}
