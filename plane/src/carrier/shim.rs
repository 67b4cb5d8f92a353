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
//! for ee and says nothing of the epoch; so do edges without a session, which know none. A marked
//! packet is longer by four bytes, which the network's MTU must allow. The packet leaves the
//! network as it came.

use calumma_sketch::BURST;

use super::{Carry, EpochBits, Mark};
use crate::packet::Packet;
use crate::parse::ether_type;
use crate::tag::{close_gap, open_gap};

/// A shim of an EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shim {
    /// The EtherType that says a shim follows.
    pub ether_type: u16,
}

/// Bytes by which a marked packet is longer.
const SHIM: usize = 4;

const MAGIC: u8 = 0xCA;
const CLAIM: u8 = 0b0000_0100;
const UNDATED: u8 = 1;
const UNDATED_MASK: u8 = 0b0001_1111;
const DATED: u8 = 2;
const DATED_MASK: u8 = 0b0000_0011;
const EPOCH_SHIFT: u32 = 3;
const MARK_SHIFT: u32 = 5;

/// The byte that says a mark.
#[inline]
fn byte_of(mark: Mark) -> u8 {
    let rest = mark.epoch.get().map_or(UNDATED, |bits| bits << EPOCH_SHIFT | DATED);
    mark.bits() << MARK_SHIFT | rest
}

/// The mark that a byte says.
#[inline]
fn mark_of(byte: u8) -> Option<Mark> {
    let undated = Mark::from_bits(byte >> MARK_SHIFT);
    if byte & DATED_MASK == DATED {
        let epoch = EpochBits::of(u64::from(byte >> EPOCH_SHIFT) << 1);
        Some(Mark { epoch, ..undated })
    } else {
        (byte & UNDATED_MASK == UNDATED).then_some(undated)
    }
}

impl Shim {
    /// IEEE 802's EtherType for local experiments.
    pub const LOCAL_EXPERIMENT: u16 = 0x88B5;

    /// Bytes by which a marked packet is longer.
    pub const LEN: usize = SHIM;

    /// The EtherType of what follows the shim whose own EtherType ends at `at`; none where that is
    /// no shim.
    #[inline]
    pub fn ether_type_behind(bytes: &[u8], at: usize) -> Option<u16> {
        match *bytes.get(at..)?.first_chunk()? {
            [MAGIC, mark, high, low] => mark_of(mark).map(|_| u16::from_be_bytes([high, low])),
            _ => None,
        }
    }

    /// The mark, and where the shim begins.
    #[inline]
    fn find(self, bytes: &[u8]) -> Option<(Mark, usize)> {
        let (found, end) = ether_type(bytes).ok()?;
        if found != self.ether_type {
            return None;
        }
        // The EtherType of what follows is there as well.
        match *bytes.get(end..)?.first_chunk()? {
            [MAGIC, mark, _, _] => mark_of(mark).map(|mark| (mark, end - 2)),
            _ => None,
        }
    }

    #[inline]
    fn remove<P: Packet>(self, packet: &mut P) -> Option<Mark> {
        let (mark, at) = self.find(packet.bytes())?;
        close_gap(packet, at, SHIM).then_some(mark)
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
                if close_gap(packet, start, SHIM) {
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
        Self { ether_type: Self::LOCAL_EXPERIMENT }
    }
}

impl Carry for Shim {
    #[inline]
    fn can_carry<P: Packet>(self, packet: &P, _ip_offset: usize) -> bool {
        packet.headroom() >= SHIM
    }

    #[inline]
    fn write<P: Packet>(self, packet: &mut P, ip_offset: usize, mark: Mark) {
        let Some(at) = ip_offset.checked_sub(2) else { return };
        if packet.bytes().len() < ip_offset || !open_gap(packet, at, SHIM) {
            return;
        }
        let [high, low] = self.ether_type.to_be_bytes();
        let shim = [high, low, MAGIC, byte_of(mark)];
        packet.bytes_mut()[at..at + SHIM].copy_from_slice(&shim);
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
        if let Some(byte) = self.byte(packet).filter(|byte| **byte & DATED_MASK == DATED) {
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
        let frame = Frame::with_headroom(3, &udp(0, 20));
        assert!(!Shim::default().can_carry(&frame, 14));
    }

    #[test]
    fn a_packet_without_a_shim_or_with_another_one_stays_as_it_is() {
        let shim = Shim { ether_type: 0x88B6 };
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
            with(15, 0xA3),
            with(15, 0xA7),
            with(15, 0xA9),
            bytes[..17].to_vec(),
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
