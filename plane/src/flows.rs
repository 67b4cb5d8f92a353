//! The flows of a burst: what is read from its headers once, for every system that is on.

mod dates;
mod details;

use calumma_sketch::{BURST, FlowKey, HashColumns, Key};

use crate::carrier::{EpochBits, Mark, Seen};
use crate::int::around::Queued;
use crate::mark::Hierarchy;
use crate::worker::masks::positions;

pub(crate) use self::details::{Arrivals, IpColumns, Stacks};

/// The measurable packets of a burst, at most [`BURST`], in their order: key, place and mark of
/// each.
///
/// At the ingress side all packets are stamped with one [bit](Self::bit); each one's hierarchy is a
/// system's to give. Elsewhere bit and hierarchy are what a packet carries; one without a valid
/// mark is [not marked](Self::is_marked) and to be recorded by nobody, nor is one whose mark says
/// that it is [older](Self::stale) than the epochs that may be open.
#[derive(Clone, Debug)]
pub struct Flows<K> {
    keys: [K; BURST],
    /// Position in the burst and offset of the outermost IP header.
    places: [(u16, u16); BURST],
    hierarchies: [Hierarchy; BURST],
    /// A bit for each packet: the timestamp bit that it carries.
    bits: u32,
    /// A bit for each packet: whether it carries a mark of an epoch that may be open.
    marked: u32,
    /// A bit for each packet: whether it carries a mark of an older epoch.
    stale: u32,
    /// A bit for each packet: whether its mark, valid or not, has the bits of the epoch's number
    /// above the timestamp bit.
    dated: u32,
    /// A bit for each packet: the lower of these, and the upper one.
    epoch_bits: [u32; 2],
    /// The newest epoch that packets may carry.
    newest: u64,
    /// The timestamp bits that the system that is asked sees to, bit 0 for 0 and bit 1 for 1.
    wanted: u8,
    /// A bit for each packet: whether it enters the network at this switch.
    entered: u32,
    /// A bit for each packet: whether it carries a claim.
    claimed: u32,
    len: usize,
    /// The hashes, where several systems use the same.
    hashes: Option<Box<HashColumns>>,
    /// Room for the arrivals, where a system asks for them.
    arrivals: Option<Box<Arrivals>>,
    /// Whether they are there.
    timed: bool,
    /// A bit for each packet: whether its device's stamp says when it arrived.
    stamped: u32,
    /// What IP headers say, where a system asks for it.
    ip: Option<Box<IpColumns>>,
    /// When the lcore began the round of polls that found them, in nanoseconds since the Unix
    /// epoch, and the port that received them.
    polled: (u64, u16),
    /// The INT stacks that packets have come with, where a system reads them.
    stacks: Option<Box<Stacks>>,
    /// A bit for each packet: whether it is to go on with an INT stack.
    sources: u32,
    /// When a transmit queue was handed them, in nanoseconds since the Unix epoch; 0 where nobody
    /// asks.
    departure_ns: u64,
    /// How many packets waited where they came, where that is looked at.
    queued: Option<Queued>,
    /// Whether the packets leave the network at this switch as well as they enter it.
    local: bool,
    /// Whether they go to hosts with sinks of their own.
    goes_on: bool,
    /// Whether they were recorded here before they waited for their next hop.
    recorded: bool,
}

/// What there is a bit of for each packet.
const COLUMNS: usize = 8;

impl<K: Key> Flows<K> {
    /// No packets.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            keys: [K::default(); BURST],
            places: [(0, 0); BURST],
            hierarchies: [Hierarchy::NonSampledLl; BURST],
            bits: 0,
            marked: 0,
            stale: 0,
            dated: 0,
            epoch_bits: [0; 2],
            newest: 0,
            wanted: 0b11,
            entered: 0,
            claimed: 0,
            len: 0,
            hashes: None,
            arrivals: None,
            timed: false,
            stamped: 0,
            ip: None,
            polled: (0, 0),
            stacks: None,
            sources: 0,
            departure_ns: 0,
            queued: None,
            local: false,
            goes_on: false,
            recorded: false,
        }
    }

    /// Takes all packets out.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.bits, self.marked, self.entered, self.len) = (0, 0, 0, 0);
        (self.stale, self.dated, self.epoch_bits, self.claimed) = (0, 0, [0; 2], 0);
        (self.timed, self.stamped, self.departure_ns, self.queued) = (false, 0, 0, None);
    }

    /// Adds the packets of `others`, as many as there is room for.
    pub(crate) fn append(&mut self, others: &Self) {
        let (at, more) = (self.len, others.len.min(BURST - self.len));
        if more == 0 {
            return;
        }
        self.keys[at..at + more].copy_from_slice(&others.keys[..more]);
        self.places[at..at + more].copy_from_slice(&others.places[..more]);
        self.hierarchies[at..at + more].copy_from_slice(&others.hierarchies[..more]);
        let first = u32::MAX >> (BURST - more);
        let [low, high] = others.epoch_bits;
        let Self { bits, marked, stale, dated, entered, claimed, .. } = *others;
        let theirs = [bits, marked, stale, dated, low, high, entered, claimed];
        for (mine, theirs) in self.columns().into_iter().zip(theirs) {
            *mine |= (theirs & first) << at;
        }
        (self.newest, self.polled) = (others.newest, others.polled);
        self.len += more;
        if let (Some(mine), Some(theirs), true) =
            (&mut self.arrivals, &others.arrivals, others.timed)
        {
            mine[at..at + more].copy_from_slice(&theirs[..more]);
            self.timed = true;
            self.stamped |= (others.stamped & first) << at;
        }
    }

    /// Which of these packets a set of positions in the burst names: bit i stands for packet
    /// number i of these.
    pub fn at_positions(&self, positions: u32) -> u32 {
        let bits = self.places().iter().enumerate();
        bits.fold(0, |these, (number, &(at, _))| these | (positions >> at & 1) << number)
    }

    /// The positions of packets that carry a mark of an epoch that may be open.
    pub(crate) fn marked_positions(&self) -> u32 {
        let marked = positions(self.marked).filter_map(|number| self.places().get(number));
        marked.fold(0, |all, &(at, _)| all | 1 << at)
    }

    /// Gives packet number `number` another key.
    #[inline]
    pub(crate) fn set_key(&mut self, number: usize, key: K) {
        if let Some(place) = self.keys.get_mut(number) {
            *place = key;
        }
    }

    /// Adds the burst's packet `at`, whose IP header begins at `ip_offset`.
    ///
    /// # Panics
    /// When there are [`BURST`] packets already.
    #[inline(always)]
    pub(crate) fn push(&mut self, key: K, at: usize, ip_offset: usize) {
        self.keys[self.len] = key;
        self.places[self.len] = (at as u16, ip_offset as u16);
        self.len += 1;
    }

    /// The first `number` packets of a burst, all with their IP headers at `ip_offset`.
    #[inline(always)]
    pub(crate) fn fill(&mut self, keys: &[FlowKey; BURST], number: usize, ip_offset: usize)
    where
        K: From<FlowKey>,
    {
        self.len = number.min(BURST);
        for at in 0..self.len {
            self.keys[at] = keys[at].into();
            self.places[at] = (at as u16, ip_offset as u16);
        }
    }

    /// Keeps the packets that `keep` has a bit for. Most of a burst's, as a rule: what lies before
    /// the first gap stays where it is, and columns close one gap after the other.
    pub(crate) fn retain(&mut self, keep: u32) {
        let gone = !keep & self.all();
        if gone == 0 {
            return;
        }
        let first_gap = gone.trailing_zeros() as usize;
        let mut kept = first_gap;
        for at in first_gap..self.len {
            self.keys[kept] = self.keys[at];
            self.places[kept] = self.places[at];
            self.hierarchies[kept] = self.hierarchies[at];
            // No branch: which ones are kept is anything.
            kept += (keep >> at & 1) as usize;
        }
        for column in self.columns() {
            let mut rest = gone;
            while *column != 0 && rest != 0 {
                // The last gap first, so that the others stay where they are.
                let before = (1 << rest.ilog2()) - 1;
                *column = *column & before | *column >> 1 & !before;
                rest &= before;
            }
        }
        self.len = kept;
    }

    /// What there is a bit of for each packet.
    fn columns(&mut self) -> [&mut u32; COLUMNS] {
        let Self { bits, marked, stale, dated, epoch_bits: [low, high], entered, claimed, .. } =
            self;
        [bits, marked, stale, dated, low, high, entered, claimed]
    }

    /// Stamps all packets with a timestamp bit, and with hierarchy 0.
    #[inline]
    pub(crate) fn stamp(&mut self, bit: usize) {
        self.marked = self.all();
        self.entered = self.marked;
        self.bits = if bit & 1 == 1 { self.marked } else { 0 };
    }

    /// Notes that the packets go from host to host on this switch.
    #[inline]
    pub(crate) fn stay_local(&mut self) {
        self.local = true;
    }

    /// Notes whether the packets were recorded before.
    #[inline]
    pub(crate) fn note_recorded(&mut self, recorded: bool) {
        self.recorded = recorded;
    }

    /// Whether all packets were recorded at this switch when they came, and have waited here for
    /// their next hop since: those that enter the network as leaving it, others as passing.
    #[inline]
    pub fn were_recorded(&self) -> bool {
        self.recorded
    }

    /// Whether all packets go from host to host on this switch. They
    /// [enter](crate::LcoreSystem::enter) the network here, and [leave](crate::LcoreSystem::leave)
    /// it as well.
    #[inline]
    pub fn are_local(&self) -> bool {
        self.local
    }

    /// Notes what all packets say of their marks, of which nothing is known yet.
    #[inline]
    pub(crate) fn set_seen(&mut self, seen: &Seen) {
        let [bits, low, high] = seen.epochs();
        (self.marked, self.bits, self.dated) = (seen.valid(), bits, seen.dated());
        self.epoch_bits = [low & self.dated, high & self.dated];
        self.hierarchies = seen.hierarchies();
    }

    /// Gives out by timestamp bit only packets of these from here on: bit 0 for 0, bit 1 for 1.
    #[inline(always)]
    pub(crate) fn restrict(&mut self, bits: u8) {
        self.wanted = bits;
    }

    /// Whether packets of a timestamp bit are given out.
    #[inline(always)]
    fn wants(&self, bit: usize) -> bool {
        self.wanted >> bit & 1 == 1
    }

    /// A bit for each packet there is.
    #[inline]
    fn all(&self) -> u32 {
        if self.len == 0 { 0 } else { u32::MAX >> (BURST - self.len) }
    }

    /// How many packets there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Each packet's key.
    #[inline]
    pub fn keys(&self) -> &[K] {
        &self.keys[..self.len]
    }

    /// Each packet's position in the burst, and the offset of its outermost IP header.
    #[inline]
    pub fn places(&self) -> &[(u16, u16)] {
        &self.places[..self.len]
    }

    /// Each packet's hierarchy.
    #[inline]
    pub(crate) fn hierarchies(&self) -> &[Hierarchy] {
        &self.hierarchies[..self.len]
    }

    /// The timestamp bit of the first packet; at the ingress side that of all.
    #[inline]
    pub fn bit(&self) -> usize {
        self.bits as usize & 1
    }

    /// Whether packet number `at` of these carries a mark of an epoch that may be open.
    #[inline]
    pub fn is_marked(&self, at: usize) -> bool {
        self.marked >> at & 1 == 1
    }

    /// Which of these packets are [marked](Self::is_marked) with a timestamp bit: bit i stands for
    /// packet number i.
    #[inline]
    pub fn marked_with(&self, bit: usize) -> u32 {
        self.marked & if bit == 1 { self.bits } else { !self.bits }
    }

    /// Whether packet number `at` of these enters the network at this switch. Others come from the
    /// fabric.
    #[inline]
    pub fn is_entering(&self, at: usize) -> bool {
        self.entered >> at & 1 == 1
    }

    /// A bit for each packet: whether it carries a claim, where packets of its epoch have claims.
    #[inline]
    pub fn claimed(&self) -> u32 {
        self.claimed
    }

    /// Lets the packets that `claimed` has a bit for go on with a claim, and the others without.
    #[inline]
    pub fn set_claimed(&mut self, claimed: u32) {
        self.claimed = claimed;
    }

    /// Lets the packets that `chosen` has a bit for go on with an INT stack, beside those that have
    /// been chosen before. Where one can have none, that is counted.
    #[inline]
    pub fn set_source(&mut self, chosen: u32) {
        self.sources |= chosen & self.all();
    }

    /// A bit for each packet that was chosen.
    #[inline]
    pub(crate) fn sources(&self) -> u32 {
        self.sources
    }

    /// A bit for each packet that is marked with one of these timestamp bits, bit 0 for 0 and bit
    /// 1 for 1.
    #[inline]
    pub(crate) fn marked_of(&self, bits: u8) -> u32 {
        let of_bit = |bit: usize, which: u32| if bits >> bit & 1 == 1 { which } else { 0 };
        (self.marked | self.stale) & (of_bit(0, !self.bits) | of_bit(1, self.bits))
    }

    /// How many packets carry no mark.
    #[inline]
    pub fn unmarked(&self) -> u32 {
        self.len as u32 - (self.marked | self.stale).count_ones()
    }

    /// A bit for each packet that carries no mark.
    #[inline]
    pub(crate) fn without_mark(&self) -> u32 {
        self.all() & !(self.marked | self.stale)
    }

    /// The numbers of the packets that carry no mark.
    #[inline]
    pub fn each_unmarked(&self) -> impl Iterator<Item = usize> {
        positions(self.without_mark())
    }

    /// The mark of packet number `at` of these, without its
    /// [way](crate::parse::detail::IpFields::way).
    #[inline(always)]
    pub fn mark(&self, at: usize) -> Mark {
        let [low, high] = self.epoch_bits.map(|column| u64::from(column >> at & 1));
        let epoch = if self.dated >> at & 1 == 1 {
            EpochBits::of((high << 1 | low) << 1)
        } else {
            EpochBits::UNKNOWN
        };
        let (bit, hierarchy) = ((self.bits >> at & 1) as usize, self.hierarchies[at]);
        Mark { bit, hierarchy, epoch, way: None }
    }

    /// Keys with their [hashes](Self::hashes), and the hierarchies that a system gives the packets
    /// at the ingress side.
    #[inline]
    pub fn classify(&mut self) -> (&[K], Option<&HashColumns>, &mut [Hierarchy]) {
        let hashes = self.hashes.as_deref();
        (&self.keys[..self.len], hashes, &mut self.hierarchies[..self.len])
    }

    /// The [marked](Self::is_marked) packets of each timestamp bit that the system sees to, if
    /// there are any.
    #[inline]
    pub fn by_bit(&self, mut record: impl FnMut(OfBit<'_, K>)) {
        if self.len == 0 {
            return;
        }
        let all = self.all();
        // Nearly always all packets of a burst carry the mark of one epoch.
        if self.marked == all && (self.bits == 0 || self.bits == all) {
            let (bit, keys, hashes) = (self.bit(), self.keys(), self.hashes());
            if !self.wants(bit) {
                return;
            }
            let (which, hierarchies) = (all, &self.hierarchies[..self.len]);
            return record(OfBit { bit, which, keys, hashes, hierarchies });
        }
        for bit in 0..2 {
            let of_bit = self.marked_with(bit);
            if of_bit == 0 || !self.wants(bit) {
                continue;
            }
            let mut keys = [K::default(); BURST];
            let mut hierarchies = [Hierarchy::NonSampledLl; BURST];
            let mut len = 0;
            for at in (0..self.len).filter(|at| of_bit >> at & 1 == 1) {
                (keys[len], hierarchies[len]) = (self.keys[at], self.hierarchies[at]);
                len += 1;
            }
            let (keys, hierarchies) = (&keys[..len], &hierarchies[..len]);
            record(OfBit { bit, which: of_bit, keys, hashes: None, hierarchies });
        }
    }
}

/// Packets that carry one timestamp bit.
#[derive(Clone, Copy, Debug)]
pub struct OfBit<'a, K> {
    /// The bit.
    pub bit: usize,
    /// A bit for each packet of the burst's [`Flows`]: whether it is one of these.
    pub which: u32,
    /// Each packet's key.
    pub keys: &'a [K],
    /// Their hashes, where they are at hand: see [`Flows::hashes`].
    pub hashes: Option<&'a HashColumns>,
    /// Each packet's hierarchy.
    pub hierarchies: &'a [Hierarchy],
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_epoch::timestamp_bit;
    use proptest::prelude::*;

    fn key(n: usize) -> FlowKey {
        FlowKey::from_words(n as u32, 0, 0, 17)
    }

    proptest! {
        /// Each marked packet is given once, with its bit and in order; unmarked ones never.
        #[test]
        fn marked_packets_divide_by_bit(marks in prop::collection::vec(prop::option::of(0u8..8), 0..=BURST)) {
            let (mut flows, mut seen) = (Flows::new(), Seen::default());
            for (at, mark) in marks.iter().enumerate() {
                flows.push(key(at), at, 14);
                seen.note(at, mark.map(Mark::from_bits), None);
            }
            flows.set_seen(&seen);
            let wanted = |bit| {
                let of_bit = |&(at, bits): &(usize, u8)| {
                    let mark = Mark::from_bits(bits);
                    (mark.bit == bit).then_some((key(at), mark.hierarchy))
                };
                let marked = marks.iter().enumerate().filter_map(|(at, mark)| Some((at, (*mark)?)));
                marked.filter_map(|packet| of_bit(&packet)).collect::<Vec<_>>()
            };
            let mut given = [Vec::new(), Vec::new()];
            flows.by_bit(|of| {
                let packets = of.keys.iter().copied().zip(of.hierarchies.iter().copied());
                given[of.bit].extend(packets);
                let which = positions(of.which).map(|at| flows.keys()[at]);
                assert!(which.eq(of.keys.iter().copied()));
            });
            prop_assert_eq!(given, [wanted(0), wanted(1)]);
            let unmarked = marks.iter().filter(|mark| mark.is_none()).count();
            prop_assert_eq!(flows.unmarked() as usize, unmarked);
        }

        /// Packets that are put together keep their marks, and are found by their positions.
        #[test]
        fn flows_that_are_appended_stay_as_they_were(
            marks in prop::collection::vec(prop::option::of(0u8..8), 0..=BURST),
            entering: u32,
            positions: u32,
        ) {
            let (mut entered, mut others) = (Flows::new(), Flows::new());
            let mut seen = Seen::default();
            for (at, mark) in marks.iter().enumerate() {
                if entering >> at & 1 == 1 {
                    entered.push(key(at), at, 14);
                } else {
                    others.push(key(at), at, 14);
                    seen.note(others.len() - 1, mark.map(Mark::from_bits), None);
                }
            }
            others.set_seen(&seen);
            entered.stamp(1);
            let mut all = Flows::new();
            all.append(&others);
            all.append(&entered);
            prop_assert_eq!(all.len(), marks.len());
            for (number, &(at, _)) in all.places().iter().enumerate() {
                let at = usize::from(at);
                let enters = entering >> at & 1 == 1;
                prop_assert_eq!((all.keys()[number], all.is_entering(number)), (key(at), enters));
                let wanted = if enters { Some(4) } else { marks[at] };
                let mark = all.is_marked(number).then(|| all.mark(number));
                prop_assert_eq!(mark, wanted.map(Mark::from_bits));
                let found = all.at_positions(positions) >> number & 1;
                prop_assert_eq!(found, positions >> at & 1);
            }
            all.clear();
            prop_assert_eq!((all.len(), all.unmarked(), all.at_positions(u32::MAX)), (0, 0, 0));
        }

        /// Whatever epochs packets carry: those of the two newest are given, others are stale by as
        /// much as they are older, as long as that is less than eight.
        #[test]
        fn packets_are_told_apart_by_all_bits_of_their_epochs(
            newest in 8u64..1 << 40,
            back in prop::collection::vec(prop::option::of(0u64..8), 0..=BURST),
        ) {
            let (mut flows, mut seen) = (Flows::new(), Seen::default());
            for (at, back) in back.iter().enumerate() {
                flows.push(key(at), at, 14);
                let hierarchy = Hierarchy::from_bits(at as u8);
                seen.note(at, back.map(|back| Mark::of_epoch(newest - back, hierarchy)), None);
            }
            flows.set_seen(&seen);
            flows.date(newest);
            let back = back.into_iter().enumerate().filter_map(|(at, back)| Some((at, back?)));
            let (new, old): (Vec<_>, Vec<_>) = back.partition(|&(_, back)| back < 2);
            let mut given = [Vec::new(), Vec::new()];
            flows.by_bit(|of| given[of.bit].extend_from_slice(of.keys));
            for (bit, given) in given.iter().enumerate() {
                let of_bit = new.iter().filter(|(_, back)| timestamp_bit(newest - back) == bit);
                prop_assert_eq!(given, &of_bit.map(|&(at, _)| key(at)).collect::<Vec<_>>());
            }
            let stale: Vec<_> = flows.stale().collect();
            let wanted: Vec<_> = old.iter().map(|&(at, back)| (at, (back & !1) as u8)).collect();
            prop_assert_eq!(stale, wanted);
            prop_assert_eq!(flows.unmarked() as usize, flows.len() - new.len() - old.len());
        }

        #[test]
        fn only_what_is_kept_remains_in_order(number in 0..=BURST, keep: u32) {
            let (mut flows, mut seen) = (Flows::new(), Seen::default());
            (0..number).for_each(|at| {
                flows.push(key(at), at, 14);
                let mark = Mark::of_epoch(at as u64, Hierarchy::HlCandidate);
                seen.note(at, (at % 3 > 0).then_some(mark), None);
            });
            flows.set_seen(&seen);
            flows.date(19);
            let before: Vec<_> = flows.stale().collect();
            flows.retain(keep);
            let kept: Vec<_> = (0..number).filter(|at| keep >> at & 1 == 1).collect();
            prop_assert_eq!(flows.keys(), kept.iter().map(|&at| key(at)).collect::<Vec<_>>());
            let places: Vec<_> = kept.iter().map(|&at| (at as u16, 14)).collect();
            prop_assert_eq!(flows.places(), places);
            let stale = flows.stale().map(|(number, back)| (kept[number], back));
            let wanted = before.into_iter().filter(|&(at, _)| keep >> at & 1 == 1);
            prop_assert_eq!(stale.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
        }
    }
}
