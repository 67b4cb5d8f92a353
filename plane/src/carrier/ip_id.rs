//! Marks in the IPv4 identification, for networks that use or re-mark the DSCP.
//!
//! The identification of a datagram that is not and may not be fragmented means nothing (RFC 6864),
//! and nothing on the way looks at it. In IPv6 the flow label carries the same mark.

mod bursts;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

use calumma_sketch::Engine;
use calumma_sketch::simd::{Isa, Scalar};
use calumma_wire::DEFAULT_FABRIC_MTU;

use self::bursts::{Read, Take, Write};
use super::flow_label::FlowLabel;
use super::signature::{Signer, Signing};
use super::{Carry, Mark, Seen, signed, update_checksum};
use crate::int::Domains;
use crate::mark::Hierarchy;
use crate::packet::Packet;
use crate::parse::Unmeasured;

/// All sixteen bits: eight bits of fields (`signed`) on top of a signature of eight. An
/// identification drawn at random looks marked once in 2,048 times.
///
/// Packets leave the network with the identification 0 where they may not be fragmented, and with a
/// fresh number else. Fragments carry no mark, as all of a datagram's must keep one identification;
/// nor do packets that the fabric may cut, and those with an authentication header, which covers it
/// (RFC 4302). A packet that became fragments after it was marked is read, unchanged, by the first
/// of them. Without a signer no mark is written or believed, and every identification is replaced
/// at egress.
#[derive(Clone, Copy, Debug)]
pub struct IpId<'a> {
    /// That of the session.
    pub signer: Option<&'a Signer>,
    /// That of the lcore.
    pub numbers: &'a Numbers,
    /// As [`FlowLabel::claims`].
    pub claims: u8,
    /// The longest IPv4 packets that no link of the fabric cuts, in bytes of their total length:
    /// longer ones that may be fragmented carry no mark.
    pub fabric_mtu: u16,
}

const AUTHENTICATION_HEADER: u8 = 51;

/// Of bytes 6 and 7: no fragmentation, more fragments, and where a fragment lies.
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1FFF;

/// What of bytes 2 to 9 says that a datagram is a fragment.
const FRAGMENT: u64 = ((MORE_FRAGMENTS | OFFSET) as u64) << 16;
/// What of these says that it may not become several.
const KEEPS_WHOLE: u64 = (DONT_FRAGMENT as u64) << 16;

/// How a datagram stands to fragmentation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Datagram {
    /// It is whole and stays so.
    Atomic,
    /// It is whole, and may become fragments behind the fabric.
    Whole,
    /// It is the first of several.
    FirstFragment,
    /// It is whole, and may become fragments in the fabric.
    Long,
    /// Another fragment, or covered by an authentication header.
    Untouchable,
}

impl Datagram {
    #[inline(always)]
    fn of(header: &[u8; 20], fabric_mtu: u16) -> Self {
        let word = u16::from_be_bytes([header[6], header[7]]);
        if word & OFFSET != 0 || header[9] == AUTHENTICATION_HEADER {
            Self::Untouchable
        } else if word & MORE_FRAGMENTS != 0 {
            Self::FirstFragment
        } else if word & DONT_FRAGMENT != 0 {
            Self::Atomic
        } else if u16::from_be_bytes([header[2], header[3]]) > fabric_mtu {
            Self::Long
        } else {
            Self::Whole
        }
    }
}

/// Whether an IPv4 header can be marked: it is [atomic](Datagram::Atomic) or
/// [whole](Datagram::Whole). Asked of every packet: what nearly none is are branches, and lengths
/// and flags, which are anything, are none.
#[inline(always)]
fn is_markable(header: &[u8; 20], fabric_mtu: u16) -> bool {
    // Total length, identification, flags and offset, TTL, protocol: one load.
    let [_, _, a, b, c, d, e, f, g, h, ..] = *header;
    let word = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    if word & FRAGMENT != 0 || word as u8 == AUTHENTICATION_HEADER {
        return false;
    }
    // Negative where it is too long. Cleared where the bit is set that keeps it whole.
    let room = i64::from(fabric_mtu) - (word >> 48) as i64;
    room & !((word << KEEPS_WHOLE.leading_zeros()) as i64) >= 0
}

/// The packet's IPv4 header; `None` where it is IPv6.
#[inline(always)]
fn ipv4(bytes: &[u8], ip_offset: usize) -> Option<&[u8; 20]> {
    bytes.get(ip_offset..)?.first_chunk().filter(|header| header[0] >> 4 == 4)
}

impl<'a> IpId<'a> {
    /// In a session without claims, and in a fabric as it is unless it says otherwise.
    pub fn new(signer: Option<&'a Signer>, numbers: &'a Numbers) -> Self {
        Self { signer, numbers, claims: 0, fabric_mtu: DEFAULT_FABRIC_MTU }
    }

    fn label(self) -> FlowLabel<'a> {
        // Nothing puts stacks into packets with this carrier.
        FlowLabel { signer: self.signer, claims: self.claims, domains: Domains::ANY }
    }

    /// The packet's IPv4 header and what it is; `None` where it is IPv6.
    #[inline(always)]
    fn header(self, bytes: &[u8], ip_offset: usize) -> Option<(&[u8; 20], Datagram)> {
        ipv4(bytes, ip_offset).map(|header| (header, Datagram::of(header, self.fabric_mtu)))
    }

    /// The instructions that bursts are signed with.
    fn engine(self) -> Engine {
        self.signer.map_or(Engine::Scalar, Signer::engine)
    }

    /// Writes the identification, and what the checksum is then.
    #[inline(always)]
    fn set(bytes: &mut [u8], ip_offset: usize, identification: u16) {
        let header = bytes.get_mut(ip_offset..).and_then(<[u8]>::first_chunk_mut::<20>);
        if let Some(header) = header {
            update_checksum(header, 4, identification.to_be_bytes());
        }
    }

    /// The fields of the mark that a header carries.
    #[inline(always)]
    fn fields(self, header: &[u8; 20], signing: &mut Latest<'_>, isa: impl Isa) -> Option<u8> {
        let [fields, signature] = [header[4], header[5]];
        let fits = signing.of(signed::epoch(fields))?.fits(header, signature, isa);
        (fits && signed::is_valid(fields, self.claims)).then_some(fields)
    }

    /// What a header says that can't have been marked as it is, and has a signature nevertheless.
    fn lost_mark(self, header: &[u8; 20]) -> Option<Mark> {
        let [fields, signature] = [header[4], header[5]];
        let signing = self.signer?.ipv4(signed::epoch(fields));
        if signing.fits(header, signature, Scalar) { signed::unproven(fields) } else { None }
    }

    /// The fields of the mark that a packet carries.
    #[inline(always)]
    fn read_by<P: Packet>(
        self,
        packet: &P,
        ip_offset: usize,
        (signing, isa): (&mut Latest<'_>, impl Isa),
    ) -> Option<u8> {
        match ipv4(packet.bytes(), ip_offset) {
            Some(header) if self.may_be_marked(header) => self.fields(header, signing, isa),
            Some(_) => None,
            None => self.label().read_fields(packet, ip_offset),
        }
    }

    /// The same, and takes the mark out.
    #[inline(always)]
    fn take_by<P: Packet>(
        self,
        packet: &mut P,
        ip_offset: usize,
        (signing, isa): (&mut Latest<'_>, impl Isa),
    ) -> Option<u8> {
        let header = packet.bytes_mut().get_mut(ip_offset..).and_then(<[u8]>::first_chunk_mut);
        let Some(header) = header.filter(|header| header[0] >> 4 == 4) else {
            return self.label().take_fields(packet, ip_offset);
        };
        let is_markable = is_markable(header, self.fabric_mtu);
        if !is_markable && !self.may_be_marked(header) {
            return None;
        }
        let fields = self.fields(header, signing, isa);
        if is_markable && (fields.is_some() || self.signer.is_none()) {
            let is_atomic = u16::from_be_bytes([header[6], header[7]]) & DONT_FRAGMENT != 0;
            let number = self.numbers.next(header, !is_atomic);
            update_checksum(header, 4, number.to_be_bytes());
        }
        fields
    }

    /// Whether a header from the network may carry a mark.
    #[inline(always)]
    fn may_be_marked(self, header: &[u8; 20]) -> bool {
        let is_first = || Datagram::of(header, self.fabric_mtu) == Datagram::FirstFragment;
        is_markable(header, self.fabric_mtu) || is_first()
    }
}

/// What signs the headers of the epoch that the latest one said: nearly always the next says the
/// same.
struct Latest<'a> {
    signer: Option<&'a Signer>,
    /// The epoch's three bits.
    epoch: u8,
    signing: Option<Signing<'a>>,
}

impl<'a> Latest<'a> {
    fn new(signer: Option<&'a Signer>) -> Self {
        Self { signer, epoch: u8::MAX, signing: None }
    }

    /// What signs those of the epoch of these three bits; `None` where there is no signer.
    #[inline(always)]
    fn of(&mut self, epoch: u8) -> Option<Signing<'a>> {
        if epoch != self.epoch {
            (self.epoch, self.signing) = (epoch, self.signer.map(|signer| signer.ipv4(epoch)));
        }
        self.signing
    }
}

impl Carry for IpId<'_> {
    #[inline]
    fn can_carry<P: Packet>(self, packet: &P, ip_offset: usize) -> bool {
        match ipv4(packet.bytes(), ip_offset) {
            Some(header) => is_markable(header, self.fabric_mtu),
            None => self.label().can_carry(packet, ip_offset),
        }
    }

    #[inline]
    fn why_not<P: Packet>(self, packet: &P, ip_offset: usize) -> Unmeasured {
        match self.header(packet.bytes(), ip_offset) {
            Some((_, Datagram::Long)) => Unmeasured::AboveFabricMtu,
            _ => Unmeasured::NoCarrier,
        }
    }

    /// A long one with a valid mark may not be fragmented where it was marked: that was changed on
    /// its way.
    #[inline]
    fn may_have_carried<P: Packet>(self, packet: &P, ip_offset: usize) -> bool {
        match self.header(packet.bytes(), ip_offset) {
            Some((header, Datagram::Long)) => self.lost_mark(header).is_some(),
            _ => self.can_carry(packet, ip_offset),
        }
    }

    #[inline]
    fn write<P: Packet>(self, packet: &mut P, ip_offset: usize, mark: Mark) {
        let Some(signer) = self.signer else { return };
        match self.header(packet.bytes(), ip_offset) {
            Some((header, Datagram::Atomic | Datagram::Whole)) => {
                let fields = signed::fields(mark);
                let signing = signer.ipv4(signed::epoch(fields));
                let signature = signing.sign(header, Scalar);
                let identification = u16::from_be_bytes([fields, signature]);
                Self::set(packet.bytes_mut(), ip_offset, identification);
            }
            Some(_) => {}
            None => self.label().write(packet, ip_offset, mark),
        }
    }

    #[inline]
    fn read<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<Mark> {
        self.read_by(packet, ip_offset, (&mut Latest::new(self.signer), Scalar)).map(signed::said)
    }

    #[inline]
    fn take<P: Packet>(self, packet: &mut P, ip_offset: usize) -> Option<Mark> {
        self.take_by(packet, ip_offset, (&mut Latest::new(self.signer), Scalar)).map(signed::said)
    }

    #[inline]
    fn write_all<P: Packet>(
        self,
        packets: &mut [P],
        places: &[(u16, u16)],
        stamp: Mark,
        hierarchies: &[Hierarchy],
    ) {
        if let Some(signer) = self.signer {
            signer.engine().run(Write { by: self, signer, packets, places, stamp, hierarchies });
        }
    }

    #[inline]
    fn read_all<P: Packet>(self, packets: &[P], places: &[(u16, u16)]) -> Seen {
        self.engine().run(Read { by: self, packets, places })
    }

    #[inline]
    fn take_all<P: Packet>(self, packets: &mut [P], places: &[(u16, u16)]) -> Seen {
        self.engine().run(Take { by: self, packets, places })
    }

    #[inline]
    fn unproven<P: Packet>(self, packet: &P, ip_offset: usize) -> Option<Mark> {
        match self.header(packet.bytes(), ip_offset) {
            Some((_, Datagram::Untouchable)) => None,
            Some((header, Datagram::Long)) => self.lost_mark(header),
            Some((header, _)) => self.signer.and_then(|_| signed::unproven(header[4])),
            None => self.label().unproven(packet, ip_offset),
        }
    }

    #[inline]
    fn claim<P: Packet>(self, packet: &P, ip_offset: usize) -> bool {
        match self.header(packet.bytes(), ip_offset) {
            Some((header, _)) => header[4] & signed::CLAIM != 0,
            None => self.label().claim(packet, ip_offset),
        }
    }

    #[inline]
    fn set_claim<P: Packet>(self, packet: &mut P, ip_offset: usize, claimed: bool) {
        let Some((header, datagram)) = self.header(packet.bytes(), ip_offset) else {
            return self.label().set_claim(packet, ip_offset, claimed);
        };
        if datagram == Datagram::FirstFragment {
            // It keeps the identification of the others.
            return;
        }
        let bit = if claimed { signed::CLAIM } else { 0 };
        let fields = header[4] & !signed::CLAIM | bit;
        let identification = u16::from_be_bytes([fields, header[5]]);
        Self::set(packet.bytes_mut(), ip_offset, identification);
    }
}

/// Fresh identifications, one lcore's: of packets between two addresses each is the one before
/// plus 1, from where nobody outside can know (RFC 7739). Receivers that merge TCP segments ask for
/// that where the packets may become fragments.
#[derive(Debug)]
pub struct Numbers {
    counters: Box<[Cell<u16>; COUNTERS]>,
    key: u64,
}

/// Pairs of addresses share a counter where their hashes agree.
const COUNTERS: usize = 256;

impl Numbers {
    /// Numbers that begin anywhere.
    pub fn new() -> Self {
        let drawn = || RandomState::new().build_hasher().finish();
        let counters = Box::new(std::array::from_fn(|_| Cell::new(drawn() as u16)));
        Self { counters, key: drawn() }
    }

    /// The next one of a packet with this header; 0 where it needs none, by the same instructions:
    /// which packets may be fragmented no CPU foresees.
    #[inline(always)]
    fn next(&self, header: &[u8; 20], needed: bool) -> u16 {
        let [.., a, b, c, d, e, f, g, h] = *header;
        let addresses = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let hash = (addresses ^ self.key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hash = (hash ^ hash >> 32).wrapping_mul(self.key | 1);
        let counter = &self.counters[(hash >> 56) as usize % COUNTERS];
        let number = counter.get().wrapping_add(needed.into());
        counter.set(number);
        // Not the same for all that share the counter.
        number.wrapping_add((hash >> 40) as u16) & 0_u16.wrapping_sub(needed.into())
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self::new()
    }
}
