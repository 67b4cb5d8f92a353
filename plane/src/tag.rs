//! Bytes that travel inside of a packet: put in at one switch, read and changed at others, taken
//! out at the last. The one place that shifts headers and corrects lengths and checksums.
//!
//! A tag stands between two headers: behind Ethernet, where nothing counts it, or behind (or
//! within) the transport header, where the IP length, UDP's length and the checksums do. Checksums
//! are corrected incrementally (RFC 1624, equation 3), so that a packet which was damaged before
//! stays damaged. Taking out what was put in gives the packet back to the byte.
//!
//! The headers before the tag move into the headroom, not the payload behind it: a tag costs a copy
//! of some sixty bytes whatever the packet's length, and works in the first segment of a chain.

pub(crate) mod before;

use crate::packet::Packet;
use crate::parse::detail::Detail;

/// Most bytes of headers that may stand before a tag.
const MOST_BEFORE: usize = 256;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Why a tag can't be put into a packet, or taken out of it. The packet stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagError {
    /// A length that checksums can't follow: tags have an even number of bytes.
    OddLength,
    /// A fragment: its transport header, or that of its siblings, is elsewhere.
    Fragment,
    /// Neither TCP nor UDP.
    Protocol,
    /// The datagram would be longer than the network lets through, or than IP can tell.
    TooLong,
    /// No room before the packet.
    Headroom,
    /// Not so many bytes in the packet, or not in its first segment.
    Short,
    /// A checksum field that no sender writes (all ones, but for UDP): what comes out could differ
    /// from what went in.
    Checksum,
}

/// Where a tag stands in a packet that can carry one behind its transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L4Place {
    ip_offset: usize,
    ipv6: bool,
    l4_offset: usize,
    /// Where the byte is that says the transport protocol.
    protocol_at: usize,
    udp: bool,
    /// Where the tag begins.
    at: usize,
    total_len: usize,
}

impl L4Place {
    /// Behind TCP's 20 fixed bytes (before its options) or UDP's 8.
    ///
    /// # Errors
    /// When the packet can carry no such tag.
    pub fn behind_fixed_header(
        ip_offset: usize,
        ipv6: bool,
        of: &Detail,
    ) -> Result<Self, TagError> {
        Self::new(ip_offset, ipv6, of, if of.protocol == TCP { 20 } else { 8 })
    }

    /// Behind the whole transport header, TCP's options included.
    ///
    /// # Errors
    /// When the packet can carry no such tag.
    pub fn behind_header(ip_offset: usize, ipv6: bool, of: &Detail) -> Result<Self, TagError> {
        Self::new(ip_offset, ipv6, of, of.l4_len.into())
    }

    fn new(ip_offset: usize, ipv6: bool, of: &Detail, behind: usize) -> Result<Self, TagError> {
        let place = Self::of_any(ip_offset, ipv6, of, behind)?;
        if matches!(of.protocol, TCP | UDP) { Ok(place) } else { Err(TagError::Protocol) }
    }

    /// The same of any protocol.
    fn of_any(ip_offset: usize, ipv6: bool, of: &Detail, behind: usize) -> Result<Self, TagError> {
        if of.is_fragment {
            return Err(TagError::Fragment);
        }
        let l4_offset = usize::from(of.l4_offset);
        Ok(Self {
            ip_offset,
            ipv6,
            l4_offset,
            protocol_at: of.protocol_at.into(),
            udp: of.protocol == UDP,
            at: l4_offset + behind,
            total_len: of.total_len.into(),
        })
    }

    /// This place `bytes` further on: behind another tag.
    #[must_use]
    pub fn further(self, bytes: usize) -> Self {
        Self { at: self.at + bytes, ..self }
    }

    /// Where the tag begins, in bytes from the packet's start.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Where the transport header begins, likewise.
    pub(crate) fn transport(&self) -> usize {
        self.l4_offset
    }

    fn checksum_at(&self) -> usize {
        self.l4_offset + if self.udp { 6 } else { 16 }
    }
}

/// Puts `tag` into a packet; its IP datagram may be of `mtu` bytes afterwards.
///
/// # Errors
/// Why it can't; the packet stays as it was.
#[inline]
pub fn push<P: Packet>(
    packet: &mut P,
    place: &L4Place,
    tag: &[u8],
    mtu: usize,
) -> Result<(), TagError> {
    check(packet, place, tag.len())?;
    if has_odd_checksum(packet.bytes(), place) {
        return Err(TagError::Checksum);
    }
    extend(packet, place, tag, mtu)
}

/// Puts more bytes into a packet that carries a tag already. Routers on its way may have written a
/// zero checksum as all ones, which [`push`] refuses.
///
/// # Errors
/// Why it can't; the packet stays as it was.
#[inline]
pub fn extend<P: Packet>(
    packet: &mut P,
    place: &L4Place,
    tag: &[u8],
    mtu: usize,
) -> Result<(), TagError> {
    check(packet, place, tag.len())?;
    if place.total_len + tag.len() > mtu.min(usize::from(u16::MAX)) {
        return Err(TagError::TooLong);
    }
    if !open_gap(packet, place.at, tag.len()) {
        return Err(TagError::Headroom);
    }
    let bytes = packet.bytes_mut();
    bytes[place.at..place.at + tag.len()].copy_from_slice(tag);
    resize(bytes, place, tag.len(), Resize::Longer, sum(tag));
    Ok(())
}

/// Takes as many bytes out of a packet as `tag` has room for, and gives them there. `place` is that
/// of the packet as it is, tag included.
///
/// # Errors
/// Why it can't; the packet stays as it was.
#[inline]
pub fn take<P: Packet>(packet: &mut P, place: &L4Place, tag: &mut [u8]) -> Result<(), TagError> {
    let standing = packet.bytes().get(place.at..place.at + tag.len()).ok_or(TagError::Short)?;
    tag.copy_from_slice(standing);
    remove(packet, place, tag.len())
}

/// Takes `len` bytes out of a packet, as [`take`] does, and gives them to nobody.
///
/// # Errors
/// Why it can't; the packet stays as it was.
#[inline]
pub fn remove<P: Packet>(packet: &mut P, place: &L4Place, len: usize) -> Result<(), TagError> {
    check(packet, place, len)?;
    let standing = packet.bytes().get(place.at..place.at + len).ok_or(TagError::Short)?;
    if place.at + len > place.ip_offset + place.total_len {
        return Err(TagError::Short);
    }
    let tag_sum = sum(standing);
    if !close_gap(packet, place.at, len) {
        return Err(TagError::Short);
    }
    resize(packet.bytes_mut(), place, len, Resize::Shorter, tag_sum);
    Ok(())
}

/// Writes `new` over the bytes of a tag that begin `offset` (an even number) behind its beginning.
///
/// # Errors
/// When there are not so many.
#[inline]
pub fn rewrite<P: Packet>(
    packet: &mut P,
    place: &L4Place,
    offset: usize,
    new: &[u8],
) -> Result<(), TagError> {
    if !offset.is_multiple_of(2) || !new.len().is_multiple_of(2) {
        return Err(TagError::OddLength);
    }
    check(packet, place, 0)?;
    let (bytes, start) = (packet.bytes_mut(), place.at + offset);
    let old = bytes.get_mut(start..start + new.len()).ok_or(TagError::Short)?;
    let removed = sum(old);
    old.copy_from_slice(new);
    change_checksum(
        bytes,
        place.checksum_at(),
        place.udp,
        fold(u32::from(sum(new)) + u32::from(!removed)),
    );
    Ok(())
}

/// Opens a gap of `len` bytes, of any value, before byte `at`. Gives whether there was room.
#[inline]
pub(crate) fn open_gap<P: Packet>(packet: &mut P, at: usize, len: usize) -> bool {
    if packet.bytes().len() < at || !packet.prepend(len) {
        return false;
    }
    packet.bytes_mut().copy_within(len..len + at, 0);
    true
}

/// Closes the gap of `len` bytes from byte `at` on. Gives whether there were as many.
#[inline]
pub(crate) fn close_gap<P: Packet>(packet: &mut P, at: usize, len: usize) -> bool {
    let mut before = [0; MOST_BEFORE];
    let (Some(before), Some(standing)) = (before.get_mut(..at), packet.bytes().get(..at)) else {
        return false;
    };
    before.copy_from_slice(standing);
    if packet.bytes().len() < at + len || !packet.adj(len) {
        return false;
    }
    packet.bytes_mut()[..at].copy_from_slice(before);
    true
}

/// What both putting in and taking out need.
#[inline]
fn check<P: Packet>(packet: &P, place: &L4Place, len: usize) -> Result<(), TagError> {
    if !len.is_multiple_of(2) || !(place.at - place.l4_offset).is_multiple_of(2) {
        return Err(TagError::OddLength);
    }
    if place.at > MOST_BEFORE {
        return Err(TagError::Short);
    }
    match word(packet.bytes(), place.checksum_at()) {
        Some(_) => Ok(()),
        None => Err(TagError::Short),
    }
}

/// Whether a checksum is all ones, which no sender writes but for UDP. Zero means the same, and
/// nothing would say which of the two it was.
#[inline]
fn has_odd_checksum(bytes: &[u8], place: &L4Place) -> bool {
    let all_ones = |at| word(bytes, at) == Some(u16::MAX);
    (!place.ipv6 && all_ones(place.ip_offset + 10)) || (!place.udp && all_ones(place.checksum_at()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Resize {
    Longer,
    Shorter,
}

impl Resize {
    /// A length that changes by so many bytes.
    #[inline]
    fn of(self, before: u16, len: usize) -> u16 {
        match self {
            Self::Longer => before.wrapping_add(len as u16),
            Self::Shorter => before.wrapping_sub(len as u16),
        }
    }
}

/// Corrects lengths and checksums by a tag of `len` bytes whose words add up to `tag_sum`.
#[inline]
fn resize(bytes: &mut [u8], place: &L4Place, len: usize, by: Resize, tag_sum: u16) {
    let changed = |before: u16| by.of(before, len);
    if place.ipv6 {
        change_word(bytes, place.ip_offset + 4, changed);
    } else {
        let delta = change_word(bytes, place.ip_offset + 2, changed);
        change_checksum(bytes, place.ip_offset + 10, false, delta);
    }
    // The transport checksum covers the tag, the pseudo-header's length and, of UDP, its own.
    let mut lengths = len as u32;
    if place.udp {
        change_word(bytes, place.l4_offset + 4, changed);
        lengths *= 2;
    }
    let added = fold(u32::from(tag_sum) + lengths);
    let delta = if by == Resize::Longer { added } else { !added };
    change_checksum(bytes, place.checksum_at(), place.udp, delta);
}

/// Changes a word, and gives by how much a sum over it changes.
#[inline]
fn change_word(bytes: &mut [u8], at: usize, change: impl Fn(u16) -> u16) -> u16 {
    let Some(before) = word(bytes, at) else { return 0 };
    let after = change(before);
    bytes[at..at + 2].copy_from_slice(&after.to_be_bytes());
    fold(u32::from(after) + u32::from(!before))
}

/// Lets a checksum follow a change of `delta` in what it covers: HC' = ~(~HC + delta). UDP's 0
/// means that there is none, and stays; a result of 0 is written as all ones there (RFC 768).
#[inline]
fn change_checksum(bytes: &mut [u8], at: usize, udp: bool, delta: u16) {
    let Some(before) = word(bytes, at) else { return };
    if udp && before == 0 {
        return;
    }
    let after = !fold(u32::from(!before) + u32::from(delta));
    let after = if udp && after == 0 { u16::MAX } else { after };
    bytes[at..at + 2].copy_from_slice(&after.to_be_bytes());
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// The ones' complement sum of an even number of bytes.
#[inline]
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.as_chunks().0.iter().map(|&pair| u32::from(u16::from_be_bytes(pair)));
    fold(words.sum())
}

#[inline]
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xFFFF) + (sum >> 16);
    ((sum & 0xFFFF) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Frame;
    use crate::parse::detail::detail;
    use crate::parse::ipv6::tests::packet as ipv6_packet;
    use crate::parse::tests::checksum;
    use proptest::prelude::*;

    const MTU: usize = 9000;
    const IP: usize = 14;

    /// An Ethernet frame with an IPv4 datagram, header checksum right, transport checksum right
    /// where `summed`.
    fn ipv4(protocol: u8, header: &[u8], payload: &[u8], summed: bool) -> Vec<u8> {
        let mut frame = vec![0; IP];
        frame[12] = 8;
        let total = (20 + header.len() + payload.len()) as u16;
        let mut ip = [0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2];
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        let right = checksum(&ip);
        ip[10..12].copy_from_slice(&right.to_be_bytes());
        frame.extend(ip);
        frame.extend(header);
        frame.extend(payload);
        if summed {
            write_l4(&mut frame, protocol);
        }
        frame
    }

    fn write_l4(frame: &mut [u8], protocol: u8) {
        let at = IP + 20 + if protocol == UDP { 6 } else { 16 };
        frame[at..at + 2].fill(0);
        let right = match l4_sum(frame) {
            0 if protocol == UDP => u16::MAX,
            right => right,
        };
        frame[at..at + 2].copy_from_slice(&right.to_be_bytes());
    }

    /// The checksum over pseudo-header and transport segment; 0 where that in the frame is right.
    fn l4_sum(frame: &[u8]) -> u16 {
        let (ip, l4) = frame[IP..].split_at(20);
        let mut covered = ip[12..20].to_vec();
        covered.extend([0, ip[9]]);
        covered.extend((l4.len() as u16).to_be_bytes());
        covered.extend(l4);
        if !covered.len().is_multiple_of(2) {
            covered.push(0);
        }
        checksum(&covered)
    }

    fn udp_header(payload: usize) -> [u8; 8] {
        let [high, low] = (8 + payload as u16).to_be_bytes();
        [0x9C, 0x40, 0x14, 0x51, high, low, 0, 0]
    }

    fn tcp_header(options: usize) -> Vec<u8> {
        let mut header = vec![0; 20 + options];
        header[..4].copy_from_slice(&[0x9C, 0x40, 0x14, 0x51]);
        header[12] = (5 + options as u8 / 4) << 4;
        header[13] = 0x18;
        header[20..].fill(1);
        header
    }

    fn place(bytes: &[u8], ipv6: bool) -> L4Place {
        let detail = detail(bytes, IP, bytes.len()).unwrap();
        L4Place::behind_fixed_header(IP, ipv6, &detail).unwrap()
    }

    #[test]
    fn a_tag_behind_udp_is_counted_by_lengths_and_checksums() {
        let before = ipv4(UDP, &udp_header(4), b"abcd", true);
        let mut frame = Frame::with_headroom(8, &before);
        push(&mut frame, &place(&before, false), &[1, 2, 3, 4, 5, 6, 7, 8], MTU).unwrap();
        let golden = [
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0x45, 0, 0, 40, 0, 1, 0, 0, 64, 17, 0x66,
            0xBE, 10, 1, 0, 2, 10, 2, 0, 2, 0x9C, 0x40, 0x14, 0x51, 0, 20,
        ];
        assert_eq!(frame.bytes()[..40], golden);
        assert_eq!(frame.bytes()[42..], *b"\x01\x02\x03\x04\x05\x06\x07\x08abcd");
        assert_eq!((checksum(&frame.bytes()[14..34]), l4_sum(frame.bytes())), (0, 0));
    }

    #[test]
    fn a_tag_behind_tcp_stands_before_its_options() {
        let before = ipv4(TCP, &tcp_header(12), b"xyz", true);
        let mut frame = Frame::with_headroom(6, &before);
        push(&mut frame, &place(&before, false), &[0xAA; 6], MTU).unwrap();
        assert_eq!(frame.bytes()[54..66], [[0xAA; 6], [1; 6]].concat());
        assert_eq!((checksum(&frame.bytes()[14..34]), l4_sum(frame.bytes())), (0, 0));
    }

    #[test]
    fn what_can_carry_no_tag_says_why_and_stays() {
        let before = ipv4(UDP, &udp_header(4), b"abcd", true);
        let at = place(&before, false);
        let refused = |frame: &mut Frame, tag: &[u8], mtu, why| {
            let kept = frame.clone();
            assert_eq!(push(frame, &at, tag, mtu), Err(why));
            assert_eq!(*frame, kept);
        };
        refused(&mut Frame::with_headroom(3, &before), &[0; 4], MTU, TagError::Headroom);
        refused(&mut Frame::with_headroom(8, &before), &[0; 4], 35, TagError::TooLong);
        refused(&mut Frame::with_headroom(8, &before), &[0; 3], MTU, TagError::OddLength);
        let mut fragment = before.clone();
        fragment[IP + 6] = 0x20;
        let fragment = detail(&fragment, IP, fragment.len()).unwrap();
        let none = L4Place::behind_fixed_header(IP, false, &fragment);
        assert_eq!(none, Err(TagError::Fragment));
    }

    /// Packets of TCP and UDP over IPv4 and IPv6, with right checksums, wrong ones and none.
    fn packets() -> impl Strategy<Value = (Vec<u8>, bool)> {
        let payload = || prop::collection::vec(any::<u8>(), 0..60);
        let v4 = (any::<bool>(), 0usize..=10, payload(), any::<bool>(), any::<u16>()).prop_map(
            |(udp, options, payload, summed, other)| {
                let (protocol, header) = if udp {
                    (UDP, udp_header(payload.len()).to_vec())
                } else {
                    (TCP, tcp_header(4 * options))
                };
                let mut frame = ipv4(protocol, &header, &payload, summed);
                if !summed {
                    let at = IP + 20 + if udp { 6 } else { 16 };
                    frame[at..at + 2].copy_from_slice(&other.to_be_bytes());
                }
                (frame, false)
            },
        );
        let v6 = (any::<bool>(), payload(), any::<u16>()).prop_map(|(udp, payload, sum)| {
            let mut upper = if udp { udp_header(payload.len()).to_vec() } else { tcp_header(8) };
            let at = if udp { 6 } else { 16 };
            upper[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            upper.extend(payload);
            (ipv6_packet(&[], if udp { UDP } else { TCP }, &upper).to_vec(), true)
        });
        prop_oneof![v4, v6]
    }

    proptest! {
        /// What is taken out is what was put in, and the packet is what it was, to the byte.
        #[test]
        fn taking_out_undoes_putting_in(
            (before, ipv6) in packets(),
            words in prop::collection::vec(any::<[u8; 2]>(), 0..16),
            rewritten in any::<[u8; 2]>(),
            whole: bool,
        ) {
            let tag = words.concat();
            let place_of = |bytes: &[u8], total| {
                let detail = detail(bytes, IP, total).unwrap();
                if whole {
                    // Of a tagged packet the header ends where it did before.
                    L4Place::behind_header(IP, ipv6, &detail)
                } else {
                    L4Place::behind_fixed_header(IP, ipv6, &detail)
                }
                .unwrap()
            };
            let mut frame = Frame::with_headroom(40, &before);
            let at = place_of(&before, before.len());
            match push(&mut frame, &at, &tag, MTU) {
                Err(why) => {
                    prop_assert_eq!(why, TagError::Checksum);
                    prop_assert_eq!(frame.bytes(), &before[..]);
                }
                Ok(()) => {
                    let tagged = frame.bytes().to_vec();
                    prop_assert_eq!(tagged.len(), before.len() + tag.len());
                    let l4 = before[IP + if ipv6 { 6 } else { 9 }];
                    let right = !ipv6 && l4_sum(&before) == 0;
                    prop_assert!(!right || l4_sum(&tagged) == 0, "protocol {l4}");
                    if !ipv6 {
                        prop_assert_eq!(checksum(&tagged[14..34]), 0);
                    }
                    let place = place_of(&tagged, tagged.len());
                    if !tag.is_empty() {
                        let first: [u8; 2] = tag[..2].try_into().unwrap();
                        rewrite(&mut frame, &place, 0, &rewritten).unwrap();
                        prop_assert!(!right || l4_sum(frame.bytes()) == 0);
                        rewrite(&mut frame, &place, 0, &first).unwrap();
                        prop_assert_eq!(frame.bytes(), &tagged[..]);
                    }
                    let mut taken = vec![0; tag.len()];
                    take(&mut frame, &place, &mut taken).unwrap();
                    prop_assert_eq!(taken, tag);
                    prop_assert_eq!(frame.bytes(), &before[..]);
                }
            }
        }
    }
}
