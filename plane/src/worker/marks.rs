//! The marks of a burst: written, read and taken out, compiled for each kind of carrier.

use calumma_sketch::{BURST, Key};

use crate::carrier::{Carrier, Carry, FlowLabel, IpId, Mark, Numbers, Signer};
use crate::flows::Flows;
use crate::packet::Packet;

/// What is done by the carrier, compiled for each kind; by a shim, which is between headers, it may
/// be something else.
macro_rules! by_carrier {
    ($marks:expr, $by:ident => $done:expr, $shim:pat => $done_by_shim:expr) => {
        match $marks.carrier {
            Carrier::Tos($by) => $done,
            Carrier::SignedTos($by) => $done,
            Carrier::FlowLabel => {
                let $by = $marks.label();
                $done
            }
            Carrier::IpId => {
                let $by = $marks.ip_id();
                $done
            }
            Carrier::Shim($shim) => $done_by_shim,
        }
    };
}

/// Marks that were taken out of a burst's packets before their headers were read.
type Detached = [Option<Mark>; BURST];

/// How packets are marked, and what it takes.
#[derive(Clone, Copy)]
pub(super) struct Marks<'a> {
    pub(super) carrier: Carrier,
    /// That of the session.
    pub(super) signer: Option<&'a Signer>,
    pub(super) numbers: &'a Numbers,
}

impl<'a> Marks<'a> {
    fn label(self) -> FlowLabel<'a> {
        FlowLabel { signer: self.signer }
    }

    fn ip_id(self) -> IpId<'a> {
        IpId { signer: self.signer, numbers: self.numbers }
    }

    /// A bit for each of the places whose packet can be marked; `None` where all can.
    #[inline]
    pub(super) fn carriable<P: Packet>(self, packets: &[P], places: &[(u16, u16)]) -> Option<u32> {
        fn of<P: Packet>(by: impl Carry, packets: &[P], places: &[(u16, u16)]) -> u32 {
            let can_carry = |&(at, ip_offset): &(u16, u16)| {
                by.can_carry(&packets[usize::from(at)], usize::from(ip_offset))
            };
            let bits = places.iter().map(can_carry).enumerate();
            bits.fold(0, |mask, (number, can)| mask | u32::from(can) << number)
        }
        match self.carrier {
            Carrier::Tos(_) | Carrier::SignedTos(_) => None,
            Carrier::FlowLabel => Some(of(self.label(), packets, places)),
            Carrier::IpId => Some(of(self.ip_id(), packets, places)),
            Carrier::Shim(shim) => Some(of(shim, packets, places)),
        }
    }

    /// Marks the packets: each with `stamp` and its own hierarchy.
    #[inline]
    pub(super) fn write<K: Key, P: Packet>(self, packets: &mut [P], flows: &Flows<K>, stamp: Mark) {
        fn all<K: Key, P: Packet>(
            by: impl Carry,
            packets: &mut [P],
            flows: &Flows<K>,
            stamp: Mark,
        ) {
            for (number, &(at, ip_offset)) in flows.places().iter().enumerate() {
                let mark = Mark { hierarchy: flows.mark(number).hierarchy, ..stamp };
                by.write(&mut packets[usize::from(at)], usize::from(ip_offset), mark);
            }
        }
        by_carrier!(self, by => all(by, packets, flows, stamp), by => all(by, packets, flows, stamp));
    }

    /// Marks one packet, where it can be marked; gives whether it can.
    pub(super) fn write_one<P: Packet>(self, packet: &mut P, ip_offset: usize, mark: Mark) -> bool {
        fn one<P: Packet>(by: impl Carry, packet: &mut P, ip_offset: usize, mark: Mark) -> bool {
            let can_carry = by.can_carry(packet, ip_offset);
            if can_carry {
                by.write(packet, ip_offset, mark);
            }
            can_carry
        }
        by_carrier!(
            self,
            by => one(by, packet, ip_offset, mark),
            by => one(by, packet, ip_offset, mark)
        )
    }

    /// The mark of the packet at position `at`.
    pub(super) fn read_one<P: Packet>(
        self,
        detached: Option<&Detached>,
        packets: &[P],
        (at, ip_offset): (usize, usize),
    ) -> Option<Mark> {
        let packet = packets.get(at)?;
        let detached = || detached.and_then(|marks| marks.get(at).copied().flatten());
        by_carrier!(self, by => Carry::read(by, packet, ip_offset), _ => detached())
    }

    /// Takes the marks out.
    #[inline]
    pub(super) fn take<K: Key, P: Packet>(
        self,
        detached: Option<&Detached>,
        packets: &mut [P],
        flows: &mut Flows<K>,
    ) {
        fn all<K: Key, P: Packet>(by: impl Carry, packets: &mut [P], flows: &mut Flows<K>) {
            for number in 0..flows.len() {
                let (at, ip_offset) = flows.places()[number];
                let mark = by.take(&mut packets[usize::from(at)], usize::from(ip_offset));
                flows.set_mark(number, mark);
            }
        }
        by_carrier!(self, by => all(by, packets, flows), _ => set_detached(detached, flows));
    }

    /// Reads the marks, which stay where they are.
    #[inline]
    pub(super) fn read<K: Key, P: Packet>(
        self,
        detached: Option<&Detached>,
        packets: &[P],
        flows: &mut Flows<K>,
    ) {
        fn all<K: Key, P: Packet>(by: impl Carry, packets: &[P], flows: &mut Flows<K>) {
            for number in 0..flows.len() {
                let (at, ip_offset) = flows.places()[number];
                let mark = by.read(&packets[usize::from(at)], usize::from(ip_offset));
                flows.set_mark(number, mark);
            }
        }
        by_carrier!(self, by => all(by, packets, flows), _ => set_detached(detached, flows));
    }
}

/// Takes out what hides the headers of those of a burst's packets that `of` has a bit for.
#[inline]
pub(super) fn detach<P: Packet>(carrier: Carrier, packets: &mut [P], of: u32) -> Option<Detached> {
    match carrier {
        Carrier::Shim(shim) => Some(shim.detach(packets, of)),
        Carrier::Tos(_) | Carrier::SignedTos(_) | Carrier::FlowLabel | Carrier::IpId => None,
    }
}

/// Notes the marks of packets that were detached.
fn set_detached<K: Key>(detached: Option<&Detached>, flows: &mut Flows<K>) {
    for number in 0..flows.len() {
        let at = usize::from(flows.places()[number].0);
        let mark = detached.and_then(|marks| marks.get(at).copied().flatten());
        flows.set_mark(number, mark);
    }
}
