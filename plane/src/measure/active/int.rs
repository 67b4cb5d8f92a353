//! What systems ask for that have to do with INT stacks.

use calumma_sketch::Key;

use super::{Active, Running};
use crate::flows::{Flows, Stacks};
use crate::int::around::Queued;
use crate::int::means::Means;
use crate::int::{Domains, Instructions};
use crate::packet::Packet;
use crate::parse::detail::digest;

impl<K: Key> Active<K> {
    /// Lends room for the INT stacks of a burst, where a system reads them.
    #[inline]
    pub(crate) fn lend_stacks(&mut self) -> Option<Box<Stacks>> {
        let mut lent = if self.asks_stacks { self.systems.stacks.take() } else { None };
        if let Some(stacks) = &mut lent {
            stacks.clear();
        }
        lent
    }

    /// Lets systems that ask for it keep the first bytes of packets that leave. The TTLs of those
    /// at the positions in `lowered` are one less than received.
    #[inline(never)]
    pub(crate) fn keep_fronts<P: Packet>(&mut self, packets: &[P], flows: &Flows<K>, lowered: u32) {
        let fronts = self.systems.recording.iter_mut().filter_map(|system| system.half.fronts());
        fronts.for_each(|fronts| fronts.keep(packets, flows, lowered));
    }

    /// Adds digests of packets that enter, where a system asks for them.
    #[inline]
    pub(crate) fn add_digests<P: Packet>(&self, packets: &[P], flows: &mut Flows<K>) {
        if self.asks_digests {
            flows.read_digests(|at, ip_offset| {
                digest(packets.get(at).map_or(&[][..], Packet::bytes), ip_offset)
            });
        }
    }

    /// Notes when a transmit queue is handed packets of the burst, and how many waited where that
    /// came, if it is known.
    #[inline]
    pub(crate) fn depart(&mut self, at_ns: u64, queued: Option<Queued>) {
        self.systems.recorded.depart(at_ns, queued);
    }

    /// What stacks say of the switch's ports and queues.
    #[inline]
    pub(crate) fn asks_around(&self) -> u16 {
        let insertion = self.insertion.as_ref();
        insertion.map_or(0, |insertion| insertion.instructions.bits() & Instructions::AROUND)
    }

    /// Lets systems know by what means the switch knows what it puts into packets.
    #[cold]
    pub(crate) fn note_means(&mut self, means: Means) {
        self.systems.recording.iter_mut().for_each(|system| system.half.note_means(means));
    }

    /// Notes whose INT stacks are this switch's.
    pub(crate) fn learn_domains(&self, domains: &mut Domains) {
        let known = self.systems.recording.iter().filter_map(|system| system.half.stacks_of());
        known.for_each(|(domain, udp_port)| domains.learn(domain, udp_port));
    }

    /// Looks what packets are given that enter now.
    pub(super) fn find_insertion(&mut self) {
        let recording = &self.systems.recording;
        let of = |system: &Running<K>| system.half.inserts().copied();
        let entered = recording.iter().filter(|system| system.enters).find_map(of);
        self.insertion = entered.or_else(|| recording.iter().find_map(of));
        let asks = recording.iter().any(|system| system.half.wants_departures());
        self.asks_departures = asks || self.insertion.is_some();
    }
}
