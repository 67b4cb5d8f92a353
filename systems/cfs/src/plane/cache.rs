//! A write-back cache of refused flows, in front of the residual.
//!
//! A flow that the table has refused gets no entry before the window is over. The filter, the
//! number of flows, the notes of ends and the loop guard have seen it, and see nothing new in a
//! packet that came as the flow's last one did: such a packet is only to be counted. Where few
//! flows have most of the packets it costs one line here in place of a dozen there. What was
//! counted goes to the residual when the flow makes room for another, or when the window is sent.

use calumma_plane::parse::detail::IpFields;
use calumma_sketch::residual::Counts;
use calumma_sketch::table::Order;
use calumma_sketch::{BURST, FlowKey, Key, WideKey};

/// Flows that have room: few enough to stay in a CPU's own caches.
const SLOTS: usize = 4096;

/// How many packets of other flows a flow keeps its slot against at most.
const MOST_CREDIT: u8 = 15;

/// How a packet came, as far as what is recorded of its flow depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Came(u64);

impl Came {
    const SINGLE: u64 = 1 << 48;
    const CLAIMED: u64 = 1 << 49;
    /// Set in all but that of a slot without a flow.
    const TAKEN: u64 = 1 << 63;

    /// By a port, on a side, and whether this is the only switch on the way.
    #[inline(always)]
    pub(super) fn by(port: u16, side: u8, single: bool) -> Self {
        let single = if single { Self::SINGLE } else { 0 };
        Self(Self::TAKEN | u64::from(port) << 24 | u64::from(side) << 40 | single)
    }

    /// The same, with what is a packet's own.
    #[inline(always)]
    pub(super) fn with(self, fields: &IpFields, is_claimed: bool) -> Self {
        let IpFields { ttl, way, .. } = *fields;
        let own = u64::from(ttl) | u64::from(way.hop) << 8 | u64::from(way.length) << 16;
        Self(self.0 | own | if is_claimed { Self::CLAIMED } else { 0 })
    }

    /// The side, as [`Entry::sides`](crate::frames::Entry::sides).
    pub(super) fn side(self) -> u8 {
        (self.0 >> 40) as u8
    }

    /// Whether this is the only switch on the way.
    pub(super) fn is_single(self) -> bool {
        self.0 & Self::SINGLE != 0
    }
}

/// What became of a refused flow's packet, and becomes of all that come as it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// With which order the table refused it.
    pub(super) order: Order,
    /// Whether it goes on claimed.
    pub(super) is_claimed: bool,
}

/// What packets of a flow have counted that the residual does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending<K> {
    pub(super) key: K,
    pub(super) came: Came,
    pub(super) counts: Counts,
}

/// A flow, in a line of its own.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slot<K> {
    key: K,
    came: Came,
    order: Order,
    bytes: u32,
    packets: u16,
    /// How many packets of other flows it outlasts.
    credit: u8,
    is_claimed: bool,
}

const _: () = assert!(size_of::<Slot<FlowKey>>() == 64 && size_of::<Slot<WideKey>>() == 64);

impl<K: Key> Slot<K> {
    /// So many packets and bytes leave room for those of a burst.
    const MOST_PACKETS: u16 = u16::MAX - BURST as u16;
    const MOST_BYTES: u32 = u32::MAX >> 1;

    fn empty() -> Self {
        Self {
            key: K::default(),
            came: Came::default(),
            order: Order::LAST,
            bytes: 0,
            packets: 0,
            credit: 0,
            is_claimed: false,
        }
    }

    fn pending(&self) -> Option<Pending<K>> {
        let Self { key, came, bytes, packets, .. } = *self;
        let counts = Counts { packets: packets.into(), bytes: bytes.into() };
        (packets > 0).then_some(Pending { key, came, counts })
    }
}

/// The flows that one lcore's table refused lately.
#[derive(Clone, Debug)]
pub(super) struct RefusedCache<K>(Box<[Slot<K>; SLOTS]>);

impl<K: Key> RefusedCache<K> {
    /// One without a flow. It takes its memory now.
    pub(super) fn new() -> Self {
        let slots = vec![Slot::empty(); SLOTS].into_boxed_slice();
        Self(slots.try_into().unwrap_or_else(|_| Box::new([Slot::empty(); SLOTS])))
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Whether a packet came as the last one of its flow, a refused one, did: a line. `word` is a
    /// hash of the flow. It can then be [counted](Self::count), before another burst comes.
    #[inline(always)]
    pub(super) fn has(&self, word: u32, key: &K, came: Came) -> bool {
        let slot = &self.0[slot(word)];
        let has_room =
            slot.packets <= Slot::<K>::MOST_PACKETS && slot.bytes <= Slot::<K>::MOST_BYTES;
        // No branch that would be guessed wrong for one packet in three.
        (slot.came == came) & (slot.key == *key) & has_room
    }

    /// Counts a packet of so many bytes, of a flow that it [has](Self::has), and gives what became
    /// of the flow's last one.
    #[inline(always)]
    pub(super) fn count(&mut self, word: u32, bytes: u32) -> Refusal {
        let slot = &mut self.0[slot(word)];
        slot.packets = slot.packets.wrapping_add(1);
        slot.bytes = slot.bytes.wrapping_add(bytes);
        slot.credit = (slot.credit + 1).min(MOST_CREDIT);
        Refusal { order: slot.order, is_claimed: slot.is_claimed }
    }

    /// Notes that a packet was refused, and counted elsewhere. Gives what the flow that made room
    /// for that had counted, which may be the same flow, by packets that came otherwise.
    #[inline(always)]
    pub(super) fn note(
        &mut self,
        word: u32,
        key: &K,
        came: Came,
        refusal: Refusal,
    ) -> Option<Pending<K>> {
        let slot = &mut self.0[slot(word)];
        if slot.credit > 0 && slot.key != *key {
            slot.credit -= 1;
            return None;
        }
        let made_room = slot.pending();
        let (Refusal { order, is_claimed }, credit) = (refusal, slot.credit);
        *slot = Slot { key: *key, came, order, bytes: 0, packets: 0, credit, is_claimed };
        made_room
    }

    /// All that flows have counted.
    pub(super) fn pending(&self) -> impl Iterator<Item = Pending<K>> {
        self.0.iter().filter_map(Slot::pending)
    }

    /// Forgets all flows.
    pub(super) fn clear(&mut self) {
        self.0.fill(Slot::empty());
    }
}

/// The slot of a flow with this hash.
#[inline(always)]
fn slot(word: u32) -> usize {
    word as usize >> (u32::BITS - SLOTS.ilog2())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use calumma_plane::carrier::Way;
    use calumma_sketch::table::{Rank, Words};
    use proptest::prelude::*;

    use super::*;

    fn key(flow: u32) -> FlowKey {
        FlowKey::from_words(flow, 1, 2, 6)
    }

    fn refusal(number: u32) -> Refusal {
        let words = Words { home: 0, tag: 0, tie: 0 };
        Refusal { order: Order::new(Rank::new(2, number), &words), is_claimed: number % 2 == 1 }
    }

    fn fields(ttl: u8) -> IpFields {
        IpFields { ttl, len: 0, way: Way { hop: 3, length: 5 } }
    }

    proptest! {
        /// Each packet is counted once, here or elsewhere, for the side that it came on; and here
        /// only where the flow's last one came in the same way, whose refusal is its own.
        #[test]
        fn packets_are_counted_once_wherever_that_is(
            // Few slots, so that flows make room for each other.
            stream in prop::collection::vec((0..12_u32, 0..3_u8, any::<bool>(), 1..1500_u32), 0..400),
        ) {
            let mut cache = RefusedCache::new();
            let (mut real, mut counted) = (HashMap::new(), HashMap::<_, (u64, u64)>::new());
            let mut add = |of: (FlowKey, u8), packets: u64, bytes: u64| {
                let sum = counted.entry(of).or_default();
                *sum = (sum.0 + packets, sum.1 + bytes);
            };
            let mut last = HashMap::new();
            for (number, (flow, ttl, is_claimed, bytes)) in (0..).zip(stream) {
                let side = 1 + ttl % 2;
                let came = Came::by(7, side, false).with(&fields(ttl), is_claimed);
                let (word, key) = ((flow % 4) << 30, key(flow));
                let sum: &mut (u64, u64) = real.entry((key, side)).or_default();
                *sum = (sum.0 + 1, sum.1 + u64::from(bytes));
                if cache.has(word, &key, came) {
                    let found = cache.count(word, bytes);
                    prop_assert_eq!(last.get(&flow), Some(&(came, found)));
                    continue;
                }
                add((key, side), 1, bytes.into());
                let refusal = refusal(number);
                if let Some(Pending { key, came, counts }) = cache.note(word, &key, came, refusal) {
                    add((key, came.side()), counts.packets, counts.bytes);
                }
                if cache.has(word, &key, came) {
                    last.insert(flow, (came, refusal));
                }
            }
            for Pending { key, came, counts } in cache.pending() {
                add((key, came.side()), counts.packets, counts.bytes);
            }
            prop_assert_eq!(counted, real);
            cache.clear();
            prop_assert_eq!(cache.pending().count(), 0);
        }
    }

    #[test]
    fn what_is_too_much_for_a_slot_is_counted_elsewhere() {
        let mut cache = RefusedCache::new();
        let came = Came::by(0, 1, false).with(&fields(64), true);
        for bytes in [0, u16::MAX.into()] {
            let (mut counted, mut flushed) = (0, Counts::default());
            for _ in 0..300_000 {
                if cache.has(5, &key(1), came) {
                    cache.count(5, bytes);
                    counted += 1;
                } else if let Some(it) = cache.note(5, &key(1), came, refusal(1)) {
                    flushed.packets += it.counts.packets;
                    flushed.bytes += it.counts.bytes;
                }
            }
            let left: Vec<_> = cache.pending().collect();
            assert!(flushed.packets > 0 && left.len() == 1, "{flushed:?}, {left:?}");
            let packets = flushed.packets + left[0].counts.packets;
            let sum = flushed.bytes + left[0].counts.bytes;
            assert_eq!((packets, sum), (counted, counted * u64::from(bytes)));
            cache.clear();
        }
    }

    #[test]
    fn a_flow_of_many_packets_outlasts_many_of_few() {
        let mut cache = RefusedCache::new();
        let came = Came::by(0, 1, true).with(&fields(64), false);
        assert!(came.is_single());
        for number in 0..1000 {
            let flow = if number % 3 > 0 { 0 } else { number + 1 };
            if cache.has(0, &key(flow), came) {
                cache.count(0, 100);
            } else {
                cache.note(0, &key(flow), came, refusal(flow));
            }
        }
        let pending: Vec<_> = cache.pending().collect();
        assert_eq!(pending.len(), 1);
        assert_eq!(pending[0].key, key(0));
        assert!(pending[0].counts.packets > 600, "{pending:?}");
    }
}
