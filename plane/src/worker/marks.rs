//! The marks of a burst: written, read and taken out, compiled for each kind of carrier.

use calumma_sketch::Key;

use super::masks::positions;
use super::walk::By;
use crate::carrier::{
    Carrier, Carry, Detached, FlowLabel, IpId, Mark, Numbers, Seen, Signer, StackedTos, Unmarked,
};
use crate::counters::Counters;
use crate::flows::Flows;
use crate::int::Domains;
use crate::measure::Active;
use crate::packet::Packet;
use crate::parse::Unmeasured;

/// What is done by the carrier, compiled for each kind; by a shim, which is between headers, it may
/// be something else.
macro_rules! by_carrier {
    ($marks:expr, $by:ident => $done:expr, $shim:pat => $done_by_shim:expr) => {
        match $marks.carrier {
            Carrier::Tos($by) => $done,
            Carrier::SignedTos(tos) => {
                let $by = StackedTos { tos, domains: $marks.domains };
                $done
            }
            Carrier::FlowLabel => {
                let $by = $marks.label();
                $done
            }
            Carrier::IpId => {
                let $by = $marks.ip_id();
                $done
            }
            Carrier::Shim($shim) => $done_by_shim,
            Carrier::Unchosen => {
                let $by = Unmarked;
                $done
            }
        }
    };
}

/// How packets are marked, and what it takes.
#[derive(Clone, Copy)]
pub(super) struct Marks<'a> {
    pub(super) carrier: Carrier,
    /// That of the session.
    pub(super) signer: Option<&'a Signer>,
    pub(super) numbers: &'a Numbers,
    /// The timestamp bits of which packets have claims, bit 0 for 0 and bit 1 for 1.
    pub(super) claims: u8,
    /// Whether packets go on with the number of the next hop.
    pub(super) raises: bool,
    /// As [`IpId::fabric_mtu`]. Without a session nobody knows it, and nothing is beyond it.
    pub(super) fabric_mtu: u16,
    /// Whose INT stacks are this switch's.
    domains: Domains,
}

impl<'a> Marks<'a> {
    /// How a worker marks packets in a session, or without one.
    #[inline]
    pub(super) fn of<K: Key>(by: By<'a>, active: Option<&'a Active<K>>) -> Self {
        let By { policy, numbers, domains, .. } = by;
        let claims = active.map_or(0, |active| active.claims);
        let raises = active.is_some_and(|active| active.hops.is_some());
        let signer = active.map(|active| &active.signer);
        let fabric_mtu = active.map_or(u16::MAX, Active::fabric_mtu);
        Marks { carrier: policy.carrier, signer, numbers, claims, raises, fabric_mtu, domains }
    }

    /// How packets are marked that the switch makes itself.
    pub(super) fn of_own(
        carrier: Carrier,
        (signer, fabric_mtu): (Option<&'a Signer>, u16),
        numbers: &'a Numbers,
    ) -> Self {
        let (claims, raises, domains) = (0, false, Domains::ANY);
        Self { carrier, signer, numbers, claims, raises, fabric_mtu, domains }
    }

    fn label(self) -> FlowLabel<'a> {
        FlowLabel { signer: self.signer, claims: self.claims, domains: self.domains }
    }

    fn ip_id(self) -> IpId<'a> {
        let Self { signer, numbers, claims, fabric_mtu, .. } = self;
        IpId { signer, numbers, claims, fabric_mtu }
    }

    /// A bit for each of the places whose packet, one that enters, can be marked; `None` where all
    /// can.
    #[inline]
    pub(super) fn carriable<P: Packet>(self, packets: &[P], places: &[(u16, u16)]) -> Option<u32> {
        match self.carrier {
            Carrier::Tos(_) | Carrier::SignedTos(_) | Carrier::Unchosen => None,
            Carrier::FlowLabel => Some(self.label().can_carry_all(packets, places)),
            Carrier::IpId => Some(self.ip_id().can_carry_all(packets, places)),
            Carrier::Shim(shim) => Some(shim.can_carry_all(packets, places)),
        }
    }

    /// A bit for each of the places that `of` has one for, those of packets that leave without a
    /// valid mark, whose packet may have entered with one; `None` where all may.
    pub(super) fn carried<P: Packet>(
        self,
        packets: &[P],
        (places, of): (&[(u16, u16)], u32),
    ) -> Option<u32> {
        fn among<P: Packet>(
            by: impl Carry,
            packets: &[P],
            (places, of): (&[(u16, u16)], u32),
        ) -> u32 {
            let carried = |number: &usize| {
                let (at, ip_offset) = places[*number];
                by.may_have_carried(&packets[usize::from(at)], usize::from(ip_offset))
            };
            positions(of).filter(carried).fold(0, |mask, number| mask | 1 << number)
        }
        let which = (places, of);
        match self.carrier {
            Carrier::Tos(_) | Carrier::SignedTos(_) | Carrier::Unchosen => None,
            Carrier::FlowLabel => Some(among(self.label(), packets, which)),
            Carrier::IpId => Some(among(self.ip_id(), packets, which)),
            Carrier::Shim(shim) => Some(among(shim, packets, which)),
        }
    }

    /// As what a packet counts that enters and can't be marked.
    #[cold]
    pub(super) fn why_not<P: Packet>(self, packet: &P, ip_offset: usize) -> Unmeasured {
        by_carrier!(
            self,
            by => by.why_not(packet, ip_offset),
            by => by.why_not(packet, ip_offset)
        )
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
            by.write_all(packets, flows.places(), stamp, flows.hierarchies());
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
        let detached = || detached.and_then(|of| of.marks.get(at).copied().flatten());
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
            flows.set_seen(&by.take_all(packets, flows.places()));
        }
        by_carrier!(self, by => all(by, packets, flows), _ => set_detached(detached, flows));
    }

    /// Marks the packets as [`write`](Self::write) does, and each with its claim. Counts those
    /// whose bit a host had set.
    pub(super) fn write_claimed<K: Key, P: Packet>(
        self,
        packets: &mut [P],
        flows: &Flows<K>,
        stamp: Mark,
        counters: &mut Counters,
    ) {
        if let Carrier::Tos(_) = self.carrier {
            counters.claim_bits += u64::from(self.claims_in(None, packets, flows).count_ones());
        }
        self.write(packets, flows, stamp);
        self.set_claims(packets, flows, (u32::MAX, flows.claimed()));
    }

    /// Reads the claims of packets whose marks have been read, and gives them.
    #[inline]
    pub(super) fn read_claims<K: Key, P: Packet>(
        self,
        detached: Option<&Detached>,
        packets: &[P],
        flows: &mut Flows<K>,
    ) -> u32 {
        if self.claims == 0 {
            return 0;
        }
        let claims = self.claims_in(detached, packets, flows) & flows.marked_of(self.claims);
        flows.set_claimed(claims);
        claims
    }

    /// Lets packets that pass go on with their claims, of which those in `came` they came with, and
    /// puts shims back, with the number of the next hop.
    #[inline]
    pub(super) fn pass_on<K: Key, P: Packet>(
        self,
        mut detached: Option<Detached>,
        packets: &mut [P],
        flows: &Flows<K>,
        came: u32,
    ) {
        let changed = (flows.claimed() ^ came) & flows.marked_of(self.claims);
        if changed != 0 {
            self.change_claims(detached.as_mut(), packets, flows, changed);
        }
        if let (Carrier::Shim(shim), Some(detached)) = (self.carrier, &mut detached) {
            if self.raises {
                detached.raise();
            }
            shim.attach(packets, detached);
        }
    }

    /// Lets packets go on with the bit of claims as it is configured for those that leave.
    pub(super) fn end_claims<K: Key>(self, flows: &mut Flows<K>) {
        let gives = matches!(self.carrier, Carrier::Tos(tos) if tos.gives_claim_bit());
        flows.set_claimed(if gives { flows.marked_of(self.claims) } else { 0 });
    }

    #[cold]
    fn change_claims<K: Key, P: Packet>(
        self,
        detached: Option<&mut Detached>,
        packets: &mut [P],
        flows: &Flows<K>,
        changed: u32,
    ) {
        match detached {
            Some(detached) => {
                for number in positions(changed) {
                    detached.claims ^= 1 << flows.places()[number].0;
                }
            }
            None => self.set_claims(packets, flows, (changed, flows.claimed())),
        }
    }

    /// Takes the marks out, as [`take`](Self::take) does, and the claims.
    #[inline]
    pub(super) fn take_claims<K: Key, P: Packet>(
        self,
        detached: Option<&Detached>,
        packets: &mut [P],
        flows: &mut Flows<K>,
    ) {
        if self.claims == 0 {
            return self.take(detached, packets, flows);
        }
        let claims = self.claims_in(detached, packets, flows);
        self.take(detached, packets, flows);
        let had = flows.marked_of(self.claims);
        flows.set_claimed(claims & had);
        if let Carrier::Tos(tos) = self.carrier {
            let given = if tos.gives_claim_bit() { had } else { 0 };
            self.set_claims(packets, flows, (had, given));
        }
    }

    /// A bit for each packet that has the bit of a claim set, marked or not.
    #[inline]
    fn claims_in<K: Key, P: Packet>(
        self,
        detached: Option<&Detached>,
        packets: &[P],
        flows: &Flows<K>,
    ) -> u32 {
        fn all<K: Key, P: Packet>(by: impl Carry, packets: &[P], flows: &Flows<K>) -> u32 {
            let claim = |&(at, ip_offset): &(u16, u16)| {
                by.claim(&packets[usize::from(at)], usize::from(ip_offset))
            };
            let bits = flows.places().iter().map(claim).enumerate();
            bits.fold(0, |mask, (number, claim)| mask | u32::from(claim) << number)
        }
        let detached = || detached.map_or(0, |of| flows.at_positions(of.claims));
        by_carrier!(self, by => all(by, packets, flows), _ => detached())
    }

    /// Sets the bit of a claim in those of the packets that `claimed` has a bit for, and clears it
    /// in the others; not in packets that `which` has none for.
    #[inline]
    fn set_claims<K: Key, P: Packet>(
        self,
        packets: &mut [P],
        flows: &Flows<K>,
        (which, claimed): (u32, u32),
    ) {
        fn all<K: Key, P: Packet>(
            by: impl Carry,
            packets: &mut [P],
            flows: &Flows<K>,
            (which, claimed): (u32, u32),
        ) {
            for number in positions(which) {
                let Some(&(at, ip_offset)) = flows.places().get(number) else { return };
                let (at, ip_offset) = (usize::from(at), usize::from(ip_offset));
                by.set_claim(&mut packets[at], ip_offset, claimed >> number & 1 == 1);
            }
        }
        let bits = (which, claimed);
        by_carrier!(self, by => all(by, packets, flows, bits), by => all(by, packets, flows, bits));
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
            flows.set_seen(&by.read_all(packets, flows.places()));
        }
        by_carrier!(self, by => all(by, packets, flows), _ => set_detached(detached, flows));
    }
}

/// Takes out what hides the headers of those of a burst's packets that `of` has a bit for.
#[inline]
pub(super) fn detach<P: Packet>(carrier: Carrier, packets: &mut [P], of: u32) -> Option<Detached> {
    match carrier {
        Carrier::Shim(shim) => Some(shim.detach(packets, of)),
        Carrier::Tos(_)
        | Carrier::SignedTos(_)
        | Carrier::FlowLabel
        | Carrier::IpId
        | Carrier::Unchosen => None,
    }
}

/// Notes the marks of packets that were detached.
fn set_detached<K: Key>(detached: Option<&Detached>, flows: &mut Flows<K>) {
    let mut seen = Seen::default();
    for (number, &(at, _)) in flows.places().iter().enumerate() {
        let mark = detached.and_then(|of| of.marks.get(usize::from(at)).copied().flatten());
        seen.note(number, mark, None);
    }
    flows.set_seen(&seen);
}
