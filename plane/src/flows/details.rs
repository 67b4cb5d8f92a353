//! What is added to the flows of a burst where a system asks for it, in memory that is lent.

use calumma_sketch::{BURST, HashColumns, HashFamily, Key};

use super::Flows;
use crate::arrival::{Arrival, BurstArrival};
use crate::int::Stack;
use crate::int::around::Queued;
use crate::int::header::Header;
use crate::int::means::Means;
use crate::parse::detail::IpFields;
use crate::worker::masks::positions;

/// The arrivals of a burst's packets.
pub(crate) type Arrivals = [Arrival; BURST];

/// What the IP headers of a burst's packets say, and the packets' digests.
#[derive(Clone, Debug, Default)]
pub(crate) struct IpColumns {
    fields: [IpFields; BURST],
    digests: [u64; BURST],
    /// Whether the headers have been read, and digests made.
    are_read: bool,
    are_digested: bool,
}

/// The INT stacks of a burst's packets, by position.
#[derive(Clone, Debug)]
pub(crate) struct Stacks {
    of: [Stack; BURST],
    /// The positions of packets that had one.
    which: u32,
    /// Of those, the ones into which a switch did not push for their length.
    mtu_exceeded: u32,
    /// And those into which one did not since their stack may have no more hops.
    hops_exceeded: u32,
}

impl Default for Stacks {
    fn default() -> Self {
        Self { of: [Stack::EMPTY; BURST], which: 0, mtu_exceeded: 0, hops_exceeded: 0 }
    }
}

impl Stacks {
    /// No stacks.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.which, self.mtu_exceeded, self.hops_exceeded) = (0, 0, 0);
    }

    /// Room for the stack of the packet at a position, which has one with this header.
    #[inline]
    pub(crate) fn add(&mut self, at: usize, header: &Header) -> Option<&mut Stack> {
        let stack = self.of.get_mut(at)?;
        self.which |= 1 << at;
        self.mtu_exceeded |= u32::from(header.mtu_exceeded()) << at;
        self.hops_exceeded |= u32::from(header.hops_exceeded()) << at;
        Some(stack)
    }
}

impl<K: Key> Flows<K> {
    /// Notes that the packets go to hosts with sinks of their own.
    #[inline]
    pub(crate) fn go_on(&mut self) {
        self.goes_on = true;
    }

    /// Whether the packets, which [leave](crate::LcoreSystem::leave) the network here, go to hosts
    /// with sinks of their own: they keep marks and INT stacks, with this switch's hop.
    #[inline]
    pub fn go_to_sinks(&self) -> bool {
        self.goes_on
    }

    /// Notes the stacks that packets have come with, in the memory that was lent.
    #[inline]
    pub(crate) fn set_stacks(&mut self, stacks: Option<Box<Stacks>>) {
        self.stacks = stacks;
    }

    /// Gives that memory back.
    #[inline]
    pub(crate) fn take_stacks(&mut self) -> Option<Box<Stacks>> {
        self.stacks.take()
    }

    /// The INT stack that packet number `at` of these came with, source first, of the packets that
    /// [leave](crate::LcoreSystem::leave); `None` where it had none, or no system reads them. The
    /// switch's own hop is not among them.
    #[inline]
    pub fn stack(&self, at: usize) -> Option<&Stack> {
        let stacks = self.stacks.as_ref()?;
        let position = usize::from(self.places().get(at)?.0);
        (stacks.which >> position & 1 == 1).then(|| &stacks.of[position])
    }

    /// Whether a switch did not push into the stack that packet number `at` of these came with:
    /// since the packet would have been too long, and since the stack may have no more hops.
    #[inline]
    pub fn exceeded(&self, at: usize) -> (bool, bool) {
        let position = self.places().get(at).map_or(0, |place| u32::from(place.0));
        self.stacks.as_ref().map_or((false, false), |stacks| {
            let has = |these: u32| (stacks.which & these) >> (position & 31) & 1 == 1;
            (has(stacks.mtu_exceeded), has(stacks.hops_exceeded))
        })
    }

    /// Notes when a transmit queue was handed packets, and how many waited in the receive queue
    /// where they came, if that is known.
    #[inline]
    pub(crate) fn depart(&mut self, at_ns: u64, queued: Option<Queued>) {
        (self.departure_ns, self.queued) = (at_ns, queued);
    }

    /// In [`sent`](crate::LcoreSystem::sent): when the transmit queue was handed the packets it is
    /// about, in nanoseconds since the Unix epoch by the switch's clock, just before it took the
    /// first. `None` where no system [asks](crate::LcoreSystem::wants_departures), and of packets
    /// that no queue was handed.
    #[inline]
    pub fn departure_ns(&self) -> Option<u64> {
        (self.departure_ns != 0).then_some(self.departure_ns)
    }

    /// In [`sent`](crate::LcoreSystem::sent): how many packets waited in the receive queue where
    /// they came, as the switch's own hop has it. `None` where no stacks
    /// [ask](crate::int::Instructions::has_queue) for it, and of what the switch itself has made or
    /// kept.
    #[inline]
    pub fn queued(&self) -> Option<Queued> {
        self.queued
    }

    /// No packets, and room for their arrivals.
    pub(crate) fn with_arrivals() -> Self {
        Self { arrivals: Some(Box::new([Arrival::default(); BURST])), ..Self::new() }
    }

    /// Notes when each packet arrived, by its stamp, which `stamp` gives by its position in the
    /// burst, in the memory that is lent.
    pub(crate) fn lend(
        &mut self,
        memory: Option<Box<Arrivals>>,
        arrival: &BurstArrival,
        stamp: impl Fn(usize) -> Option<u64>,
    ) {
        self.arrivals = memory;
        if let Some(arrivals) = &mut self.arrivals {
            let (polled, mut stamped) = (arrival.polled(), 0);
            let places = self.places[..self.len].iter().enumerate();
            for (of, (at, &(position, _))) in arrivals.iter_mut().zip(places) {
                let by_device = arrival.stamped(stamp(position.into()));
                stamped |= u32::from(by_device.is_some()) << at;
                *of = by_device.unwrap_or(polled);
            }
            (self.stamped, self.timed) = (stamped, true);
        }
    }

    /// Notes when the lcore began the round of polls that found the burst, in nanoseconds since the
    /// Unix epoch, and by which port it came. Lends memory for what IP headers say, and digests.
    #[inline]
    pub(crate) fn found(&mut self, polled: (u64, u16), memory: Option<Box<IpColumns>>) {
        (self.polled, self.ip) = (polled, memory);
        if let Some(ip) = &mut self.ip {
            (ip.are_read, ip.are_digested) = (false, false);
        }
    }

    /// Notes what each packet's IP header says, by its position in the burst and the header's
    /// offset, in the memory that was lent.
    pub(crate) fn read_ip(&mut self, read: impl Fn(usize, usize) -> IpFields) {
        if let Some(ip) = &mut self.ip {
            ip.are_read = true;
            for (of, &(at, offset)) in ip.fields.iter_mut().zip(&self.places[..self.len]) {
                *of = read(at.into(), offset.into());
            }
        }
    }

    /// Notes the digest of each packet, by its position in the burst and the offset of its IP
    /// header, in the memory that was lent.
    #[inline]
    pub(crate) fn read_digests(&mut self, read: impl Fn(usize, usize) -> u64) {
        if let Some(ip) = &mut self.ip {
            ip.are_digested = true;
            for (of, &(at, offset)) in ip.digests.iter_mut().zip(&self.places[..self.len]) {
                *of = read(at.into(), offset.into());
            }
        }
    }

    /// A number of each packet that [enters](crate::LcoreSystem::enter), of its bytes that no hop
    /// changes: packets that differ in them have the same only by chance. None where no system
    /// [asks](crate::LcoreSystem::wants_digests) for them.
    #[inline]
    pub fn digests(&self) -> &[u64] {
        self.ip.as_ref().filter(|ip| ip.are_digested).map_or(&[], |ip| &ip.digests[..self.len])
    }

    /// Gives back the memory of what IP headers say.
    pub(crate) fn take_ip(&mut self) -> Option<Box<IpColumns>> {
        self.ip.take()
    }

    /// TTL and length of each packet, as it was received; none where no system asks for them, and
    /// in what transmit queues are said to have done.
    #[inline]
    pub fn ip(&self) -> &[IpFields] {
        self.ip.as_ref().filter(|ip| ip.are_read).map_or(&[], |ip| &ip.fields[..self.len])
    }

    /// When the lcore began the round of polls that found the burst, in nanoseconds since the Unix
    /// epoch.
    #[inline]
    pub fn polled_ns(&self) -> u64 {
        self.polled.0
    }

    /// The switch's port that received the burst, from 0.
    #[inline]
    pub fn port(&self) -> u16 {
        self.polled.1
    }

    /// Hashes all keys, into the memory that is lent.
    pub(crate) fn hash(&mut self, by: &HashFamily, memory: Option<Box<HashColumns>>) {
        self.hashes = memory;
        if let Some(hashes) = &mut self.hashes {
            by.hash_columns(&self.keys[..self.len], hashes);
        }
    }

    /// Gives back the memory of hashes.
    pub(crate) fn take_hashes(&mut self) -> Option<Box<HashColumns>> {
        self.hashes.take()
    }

    /// The hashes of the packets' keys, where several systems use the same functions.
    #[inline]
    pub fn hashes(&self) -> Option<&HashColumns> {
        self.hashes.as_deref()
    }

    /// Gives back what was lent.
    pub(crate) fn give_back(&mut self) -> Option<Box<Arrivals>> {
        self.timed = false;
        self.arrivals.take()
    }

    /// When packet number `at` of these arrived; `None` where no system asks for arrivals, and of
    /// what the switch itself has made or kept.
    #[inline]
    pub fn arrival(&self, at: usize) -> Option<Arrival> {
        let arrivals = self.arrivals.as_ref().filter(|_| self.timed)?;
        arrivals[..self.len].get(at).copied()
    }

    /// When those of these packets arrived that `which` has a bit for, all of which one poll has
    /// found, as in [`arrival`](Self::arrival); `None` where a device's stamp says it of one.
    #[inline]
    pub fn polled_arrival(&self, which: u32) -> Option<Option<Arrival>> {
        let first = which.trailing_zeros() as usize;
        (which & self.stamped == 0).then(|| self.arrival(first))
    }

    /// By what means it is known when those of these packets arrived that `which` has a bit for,
    /// all of which one poll has found.
    #[inline]
    pub fn arrival_means(&self, which: u32) -> Means {
        let mut means = Means::default();
        let mut note = |at: usize| {
            if let Some(arrival) = self.arrival(at) {
                means.note(arrival, self.stamped >> at & 1 == 1);
            }
        };
        positions(which & self.stamped).for_each(&mut note);
        // What polls say is the same of all.
        positions(which & !self.stamped).take(1).for_each(note);
        means
    }
}
