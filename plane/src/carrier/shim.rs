//! Marks in a header of their own between Ethernet and IP, for networks that use the whole DSCP.
//!
//! Four bytes before the EtherType, behind VLAN tags, shaped like one of them:
//!
//! ```text
//! | addresses | VLAN tags | shim's EtherType | 0xCA | t hh ee c vv | EtherType | IP ...
//! ```
//!
//! t is the timestamp bit, hh the hierarchy, ee the two bits of the epoch's number above the
//! timestamp bit, c a claim, v the version (2). One of version 1, which releases before had, has 00
//! for ee and says nothing of the epoch; so do edges without a session, which know none. One of
//! version 3 has two bytes more before the EtherType: the hop that the packet comes to, and how
//! many it passes in all, 0 where that is not known. A marked packet is longer by four or six
//! bytes, which the network's MTU must allow. The packet leaves the network as it came.

use calumma_sketch::BURST;

use super::{Carry, EpochBits, Mark, Way};
use crate::packet::Packet;
use crate::parse::ether_type;
use crate::tag::{close_gap, open_gap};

/// A shim of an EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shim {
    /// The EtherType that says a shim follows.
    pub ether_type: u16,
    /// Whether packets that enter get shims with hops. They are read in any case.
    pub hops: bool,
}

/// Bytes of a shim without hops, by which a marked packet is longer, and of one with them.
const SHIM: usize = 4;
const WITH_HOPS: usize = 6;

const MAGIC: u8 = 0xCA;
const CLAIM: u8 = 0b0000_0100;
const UNDATED: u8 = 1;
const UNDATED_MASK: u8 = 0b0001_1111;
const DATED: u8 = 2;
const HOPS: u8 = 3;
const VERSION_MASK: u8 = 0b0000_0011;
const EPOCH_SHIFT: u32 = 3;
const MARK_SHIFT: u32 = 5;

/// The byte that says a mark.
#[inline]
fn byte_of(mark: Mark) -> u8 {
    let version = if mark.way.is_some() { HOPS } else { DATED };
    let rest = mark.epoch.get().map_or(UNDATED, |bits| bits << EPOCH_SHIFT | version);
    mark.bits() << MARK_SHIFT | rest
}

/// The mark that a byte says, but for the hops.
#[inline]
fn mark_of(byte: u8) -> Option<Mark> {
    let undated = Mark::from_bits(byte >> MARK_SHIFT);
    if byte & DATED != 0 {
        let epoch = EpochBits::of(u64::from(byte >> EPOCH_SHIFT) << 1);
        Some(Mark { epoch, ..undated })
    } else {
        (byte & UNDATED_MASK == UNDATED).then_some(undated)
    }
}

/// What a shim says whose own EtherType ends at `at`, and the EtherType behind it; none where that
/// is no shim, or the packet ends before.
#[inline]
fn said(bytes: &[u8], at: usize) -> Option<(Mark, u16)> {
    let [magic, byte, a, b] = *bytes.get(at..)?.first_chunk()?;
    let mark = mark_of(byte).filter(|_| magic == MAGIC)?;
    if byte & VERSION_MASK != HOPS {
        return Some((mark, u16::from_be_bytes([a, b])));
    }
    let behind = *bytes.get(at + 4..)?.first_chunk()?;
    let way = Some(Way { hop: a.min(Way::MOST), length: b });
    Some((Mark { way, ..mark }, u16::from_be_bytes(behind)))
}

/// Bytes of the shim that carries such a mark.
#[inline]
fn len_of(mark: Mark) -> usize {
    if mark.way.is_some() && mark.epoch != EpochBits::UNKNOWN { WITH_HOPS } else { SHIM }
}

impl Shim {
    /// IEEE 802's EtherType for local experiments.
    pub const LOCAL_EXPERIMENT: u16 = 0x88B5;

    /// Bytes by which a marked packet is longer, at most.
    pub const fn longest(self) -> usize {
        if self.hops { WITH_HOPS } else { SHIM }
    }

    /// The EtherType of what follows the shim whose own EtherType ends at `at`, and where that one
    /// ends; none where that is no shim.
    #[inline]
    pub fn ether_type_behind(bytes: &[u8], at: usize) -> Option<(u16, usize)> {
        said(bytes, at).map(|(mark, behind)| (behind, at + len_of(mark)))
    }

    /// The mark, and where the shim begins.
    #[inline]
    fn find(self, bytes: &[u8]) -> Option<(Mark, usize)> {
        let (found, end) = ether_type(bytes).ok()?;
        if found != self.ether_type {
            return None;
        }
        // The EtherType of what follows is there as well.
        said(bytes, end).map(|(mark, _)| (mark, end - 2))
    }

    #[inline]
    fn remove<P: Packet>(self, packet: &mut P) -> Option<Mark> {
        let (mark, at) = self.find(packet.bytes())?;
        close_gap(packet, at, len_of(mark)).then_some(mark)
    }

    /// The byte that says the mark.
    #[inline]
    fn byte<P: Packet>(self, packet: &mut P) -> Option<&mut u8> {
        let (_, at) = self.find(packet.bytes())?;
        packet.bytes_mut().get_mut(at + 3)
    }
}

/// What a burst's packets carried in shims that were taken out, by their positions.
#[derive(Clone, Debug)]
pub struct Detached {
    /// The marks.
    pub marks: [Option<Mark>; BURST],
    /// A bit for each packet: whether it has a claim.
    pub claims: u32,
}

impl Detached {
    /// Lets all packets go on with the number of the next hop, where their marks have hops.
    #[inline]
    pub fn raise(&mut self) {
        for mark in self.marks.iter_mut().flatten() {
            mark.way = mark.way.map(Way::raised);
        }
    }

    /// How far the packet at a position has come, as its mark says it; nowhere, where it does not.
    #[inline]
    pub fn way(&self, at: usize) -> Way {
        self.marks.get(at).and_then(|mark| mark.as_ref()?.way).unwrap_or_default()
    }
}

impl Shim {
    /// Takes the shims, which hide the headers behind them, out of those of a burst's packets that
    /// `of` has a bit for, and gives what they carried.
    #[inline]
    pub fn detach<P: Packet>(self, packets: &mut [P], of: u32) -> Detached {
        let mut detached = Detached { marks: [None; BURST], claims: 0 };
        for (at, (mark, packet)) in detached.marks.iter_mut().zip(packets).enumerate() {
            if of >> at & 1 == 1
                && let Some((found, start)) = self.find(packet.bytes())
            {
                let claimed = packet.bytes().get(start + 3).is_some_and(|byte| byte & CLAIM != 0);
                if close_gap(packet, start, len_of(found)) {
                    *mark = Some(found);
                    detached.claims |= u32::from(claimed) << at;
                }
            }
        }
        detached
    }

    /// Puts back what [`detach`](Self::detach) took out.
    #[inline]
    pub fn attach<P: Packet>(self, packets: &mut [P], detached: &Detached) {
        for (at, (packet, mark)) in packets.iter_mut().zip(&detached.marks).enumerate() {
            if let Some(mark) = mark
                && let Ok((_, end)) = ether_type(packet.bytes())
            {
                self.write(packet, end, *mark);
                if detached.claims >> at & 1 == 1 {
                    self.set_claim(packet, end, true);
                }
            }
        }
    }

    /// Whether a packet bears a shim that no edge of this network gave it, or that this edge can't
    /// read. Such a packet must not go on: another edge would take it for marked.
    #[inline]
    pub fn is_foreign<P: Packet>(self, packet: &P) -> bool {
        ether_type(packet.bytes()).is_ok_and(|(found, _)| found == self.ether_type)
    }
}

impl Default for Shim {
    fn default() -> Self {
        Self { ether_type: Self::LOCAL_EXPERIMENT, hops: false }
    }
}

impl Carry for Shim {
    #[inline]
    fn can_carry<P: Packet>(self, packet: &P, _ip_offset: usize) -> bool {
        packet.headroom() >= self.longest()
    }

    #[inline]
    fn write<P: Packet>(self, packet: &mut P, ip_offset: usize, mark: Mark) {
        let Some(at) = ip_offset.checked_sub(2) else { return };
        let len = len_of(mark);
        if packet.bytes().len() < ip_offset || !open_gap(packet, at, len) {
            return;
        }
        let [high, low] = self.ether_type.to_be_bytes();
        let Way { hop, length } = mark.way.unwrap_or_default();
        let shim = [high, low, MAGIC, byte_of(mark), hop, length];
        packet.bytes_mut()[at..at + len].copy_from_slice(&shim[..len]);
    }

    #[inline]
    fn read<P: Packet>(self, packet: &P, _ip_offset: usize) -> Option<Mark> {
        self.find(packet.bytes()).map(|(mark, _)| mark)
    }

    #[inline]
    fn take<P: Packet>(self, packet: &mut P, _ip_offset: usize) -> Option<Mark> {
        self.remove(packet)
    }

    #[inline]
    fn claim<P: Packet>(self, packet: &P, _ip_offset: usize) -> bool {
        let found = self.find(packet.bytes());
        let byte = found.and_then(|(_, at)| packet.bytes().get(at + 3));
        byte.is_some_and(|byte| byte & CLAIM != 0)
    }

    #[inline]
    fn set_claim<P: Packet>(self, packet: &mut P, _ip_offset: usize, claimed: bool) {
        if let Some(byte) = self.byte(packet).filter(|byte| **byte & DATED != 0) {
            *byte = *byte & !CLAIM | if claimed { CLAIM } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::tests::{dated_marks, marks, through};
    use crate::packet::Frame;
    use crate::parse::tests::udp;

    #[test]
    fn the_shim_lies_between_ethernet_and_ip_and_goes_without_a_trace() {
        for (tags, ip_offset) in [(0, 14), (1, 18), (2, 22)] {
            let before = udp(tags, 20);
            for mark in marks().chain(dated_marks()) {
                let mut frame = Frame::with_headroom(4, &before);
                let seen = through(Shim::default(), &mut frame, ip_offset, mark, |bytes| {
                    assert_eq!(bytes[..ip_offset - 2], before[..ip_offset - 2]);
                    let epoch = mark.epoch.get().map_or(1, |bits| bits << 3 | 2);
                    let byte = mark.bits() << 5 | epoch;
                    let shim = [0x88, 0xB5, 0xCA, byte, 0x08, 0x00];
                    assert_eq!(bytes[ip_offset - 2..ip_offset + 4], shim);
                    assert_eq!(bytes[ip_offset + 4..], before[ip_offset..]);
                });
                assert_eq!(seen, Some(mark));
                assert_eq!(frame.bytes(), before);
            }
        }
    }

    #[test]
    fn without_room_before_it_a_packet_carries_none() {
        for (hops, headroom) in [(false, 4), (true, 6)] {
            let shim = Shim { hops, ..Shim::default() };
            let carries = |room| shim.can_carry(&Frame::with_headroom(room, &udp(0, 20)), 14);
            assert_eq!((carries(headroom - 1), carries(headroom)), (false, true));
        }
    }

    #[test]
    fn hops_go_with_a_mark_are_raised_up_to_the_last_and_leave_without_a_trace() {
        let shim = Shim { hops: true, ..Shim::default() };
        for (tags, ip_offset) in [(0, 14), (1, 18), (2, 22)] {
            let before = udp(tags, 20);
            let at = ip_offset - 2;
            for mark in dated_marks() {
                let way = Some(Way { hop: 1, length: 3 });
                let mark = Mark { way, ..mark };
                let mut frame = Frame::with_headroom(6, &before);
                let byte = mark.bits() << 5 | mark.epoch.get().unwrap() << 3 | 3;
                let seen = through(shim, &mut frame, ip_offset, mark, |bytes| {
                    assert_eq!(bytes[..at], before[..at]);
                    let wanted = [0x88, 0xB5, 0xCA, byte, 1, 3, 0x08, 0x00];
                    assert_eq!(bytes[at..ip_offset + 6], wanted);
                    assert_eq!(bytes[ip_offset + 6..], before[ip_offset..]);
                    let behind = Shim::ether_type_behind(bytes, ip_offset);
                    assert_eq!(behind, Some((0x0800, ip_offset + 6)));
                });
                assert_eq!((seen, frame.bytes()), (Some(mark), &before[..]));

                shim.write(&mut frame, ip_offset, mark);
                shim.set_claim(&mut frame, ip_offset, true);
                for hop in 1..=20_u8 {
                    let mut detached = shim.detach(std::slice::from_mut(&mut frame), 1);
                    assert_eq!(frame.bytes(), before);
                    let way = Way { hop: hop.min(16), length: 3 };
                    assert_eq!((detached.way(0), detached.claims), (way, 1));
                    detached.raise();
                    shim.attach(std::slice::from_mut(&mut frame), &detached);
                    let wanted = [byte | 4, (hop + 1).min(16), 3, 0x08, 0x00];
                    assert_eq!(frame.bytes()[at + 3..at + 8], wanted);
                }
                // A number beyond the last stands for that one.
                frame.bytes_mut()[at + 4] = 200;
                assert_eq!(shim.read(&frame, ip_offset).unwrap().way.unwrap().hop, 16);
            }
        }
    }

    #[test]
    fn an_edge_that_knows_no_epoch_says_no_hops() {
        let shim = Shim { hops: true, ..Shim::default() };
        let before = udp(0, 20);
        let mut frame = Frame::with_headroom(6, &before);
        let mark = Mark { way: Some(Way::default()), ..Mark::from_bits(2) };
        shim.write(&mut frame, 14, mark);
        assert_eq!(frame.bytes()[12..18], [0x88, 0xB5, 0xCA, 0x41, 0x08, 0x00]);
        assert_eq!(shim.take(&mut frame, 14), Some(Mark { way: None, ..mark }));
        assert_eq!(frame.bytes(), before);
    }

    #[test]
    fn a_packet_without_a_shim_or_with_another_one_stays_as_it_is() {
        let shim = Shim { ether_type: 0x88B6, hops: true };
        let mut marked = Frame::with_headroom(4, &udp(0, 20));
        shim.write(&mut marked, 14, Mark::from_bits(5));
        let bytes = marked.bytes().to_vec();
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            bytes
        };
        let others = [
            udp(0, 20),
            with(13, 0xB5),
            with(14, 0xCB),
            with(15, 0xA0),
            with(15, 0xA5),
            with(15, 0xA9),
            bytes[..17].to_vec(),
            with(15, 0xA3)[..19].to_vec(),
        ];
        for other in others {
            let mut frame = Frame::new(other.to_vec());
            assert_eq!(shim.take(&mut frame, 14), None);
            assert_eq!(frame.bytes(), other);
            let announced = other[12..14] == [0x88, 0xB6];
            assert_eq!(shim.is_foreign(&frame), announced);
        }
    }
}
