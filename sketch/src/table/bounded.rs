//! The table itself: entries, and which of them stay.

mod known;

use super::filter::{Filter, Noted};
use super::index::{Index, Place, tag};
use super::order::{Order, Rank, Words};
use super::refused::Refused;
use super::selection::{PASSES, Selection};
use super::sink::{Flow, Flows, Sink, Turnover};
use crate::burst::{BURST, first, ones};
use crate::hash::{HashColumns, HashFamily, Hashes};
use crate::key::Key;
use crate::memory::{Arena, Array, lines_of};
use crate::simd::{Isa, Work};

/// In place of a slot: there is none.
const NONE: u32 = u32::MAX;

/// Most entries that an admission evicts.
const EVICTIONS: usize = 6;

/// How large a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Flows that it counts. A sixteenth more have an entry for a while, twice that have room.
    pub entries: u32,
    /// Bits of the filter, at least as many as a block has.
    /// [`BITS_OF_A_FLOW`](super::BITS_OF_A_FLOW) for each flow that has no entry are enough.
    pub filter_bits: usize,
}

impl Capacity {
    /// Entries with which the search for those to evict begins, beyond the wanted ones; as many
    /// find room while it goes on.
    fn slack(self) -> usize {
        (self.entries as usize).div_ceil(16).max(64)
    }

    fn slots(self) -> usize {
        self.entries as usize + 2 * self.slack()
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Entry<K, V> {
    key: K,
    value: V,
}

/// What the next admissions have to do.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Nothing.
    Resting,
    /// Finding a lower limit.
    Counting,
    /// Evicting what is above it, from this slot on.
    Sweeping(usize),
}

/// Counts the flows of smallest rank. See the [module](super).
///
/// A packet of a flow with an entry touches a line of the index and one of the entries, a packet of
/// another one of the index and one of the filter.
#[derive(Clone, Debug)]
pub struct BoundedTable<K: Copy, V: Copy> {
    capacity: Capacity,
    entries: Array<Entry<K, V>>,
    /// The order of each slot's flow. Slots that a flow was evicted from are in a list, each naming
    /// the next; those behind the last of the array had none yet.
    orders: Array<Order>,
    first_free: u32,
    len: usize,
    index: Index,
    filter: Filter,
    selection: Selection,
    stage: Stage,
    /// Flows above it are not admitted. It only falls.
    limit: Order,
    turnover: Turnover,
}

impl<K: Key, V: Copy + Default> BoundedTable<K, V> {
    /// An empty table. It takes all its memory now.
    pub fn new(capacity: Capacity) -> Self {
        let mut table = Self::without_memory(capacity.filter_bits);
        table.lie_in(&mut Arena::new(Self::lines(capacity.entries)), capacity.entries);
        table
    }

    /// A table of no entries, with a filter of so many bits, which is to [lie](Self::lie_in) in
    /// memory of an arena.
    pub fn without_memory(filter_bits: usize) -> Self {
        Self {
            capacity: Capacity { entries: 0, filter_bits },
            entries: Array::default(),
            orders: Array::default(),
            first_free: NONE,
            len: 0,
            index: Index::without_memory(),
            filter: Filter::new(filter_bits),
            selection: Selection::new(),
            stage: Stage::Resting,
            limit: Order::LAST,
            turnover: Turnover::default(),
        }
    }

    /// Cache lines that a table of so many entries takes from an arena.
    pub fn lines(entries: u32) -> usize {
        let slots = Capacity { entries, filter_bits: 0 }.slots();
        let of_entries = lines_of::<Entry<K, V>>(slots) + lines_of::<Order>(slots);
        of_entries + Index::lines(slots)
    }

    /// Gives the memory of its entries back, after having been cleared: there are none any more.
    pub fn give_back(&mut self) {
        self.clear();
        self.capacity.entries = 0;
        (self.entries, self.orders) = (Array::default(), Array::default());
        self.index = Index::without_memory();
    }

    /// Lets so many entries lie in memory of an arena, after having been cleared. Touches none of
    /// it. Where the arena has too little left, the table has memory of its own.
    pub fn lie_in(&mut self, arena: &mut Arena, entries: u32) {
        self.clear();
        self.capacity.entries = entries;
        let slots = self.capacity.slots();
        (self.entries, self.orders) = (arena.room(slots), arena.room(slots));
        self.index = Index::new_in(arena, slots);
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.filter.bytes() + self.bytes_of_entries()
    }

    /// Those of them that grow with the entries: all but the filter's.
    pub fn bytes_of_entries(&self) -> usize {
        self.entries.bytes() + self.orders.bytes() + self.index.bytes()
    }

    /// How large it is.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Flows with an entry. Up to an eighth more than wanted (in small tables 128) before
    /// [`finish`](Self::finish), at most as many as wanted behind it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no flow has an entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What happened to flows since the table was cleared.
    pub fn turnover(&self) -> Turnover {
        self.turnover
    }

    /// The largest rank with which flows are still admitted; `None` as long as all are.
    pub fn limit(&self) -> Option<Rank> {
        (self.limit < Order::LAST).then(|| self.limit.rank())
    }

    /// Flows with an entry, with their ranks, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, Rank, &V)> {
        let taken = self.entries.iter().zip(&*self.orders).filter(|(_, order)| order.is_taken());
        taken.map(|(entry, order)| (&entry.key, order.rank(), &entry.value))
    }

    /// What was counted of a flow with an entry.
    pub fn get(&self, family: &HashFamily, key: &K) -> Option<&V> {
        if self.is_empty() {
            return None;
        }
        let words = Words::of(&family.hash(key));
        let slot = family.engine().run(Find { table: self, key, words: &words })?;
        Some(&self.entries[slot as usize].value)
    }

    /// Whether the flow was refused or evicted since the table was cleared. Of flows that were not,
    /// it is wrong about few.
    pub fn kept_out(&self, family: &HashFamily, key: &K) -> bool {
        let words = Words::of(&family.hash(key));
        self.filter.contains(noted(tag(words.tag), Order::new(Rank::default(), &words)))
    }

    /// The flows that were refused or evicted since the table was cleared. Takes memory for them.
    pub fn refused(&self) -> Refused {
        Refused::of(&self.filter)
    }

    /// The flows that [`finish`](Self::finish) would leave, in no order, and behind them those that
    /// it would evict. Takes memory for all of them, and a pass over the table.
    pub fn split(&self) -> (Flows<'_, K, V>, Flows<'_, K, V>) {
        let slots = (0..self.orders.len()).filter(|&at| self.orders[at].is_taken());
        let mut slots: Vec<usize> = slots.collect();
        let wanted = self.capacity.entries as usize;
        if slots.len() > wanted {
            let order = |&at: &usize| (self.orders[at], self.entries[at].key);
            slots.select_nth_unstable_by_key(wanted, order);
        }
        let flow = |&at: &usize| {
            let Entry { key, value } = &self.entries[at];
            Flow { key, rank: self.orders[at].rank(), value }
        };
        let (kept, others) = slots.split_at(wanted.min(slots.len()));
        (kept.iter().map(flow).collect(), others.iter().map(flow).collect())
    }

    /// Forgets all flows. The filter gets large enough for twice as many flows as it had to keep
    /// out since it was cleared last, as far as it can; a table that had none leaves it as it is.
    pub fn clear(&mut self) {
        let Turnover { admitted, evicted, refused, .. } = self.turnover;
        if admitted > 0 {
            self.filter.begin((evicted + refused) as usize, self.capacity.entries as usize);
        }
        self.index.clear();
        self.entries.clear();
        self.orders.clear();
        (self.first_free, self.len) = (NONE, 0);
        self.stage = Stage::Resting;
        self.limit = Order::LAST;
        self.turnover = Turnover::default();
    }

    /// Records packets, a burst at a time, each with its flow's rank. Two cache lines a packet
    /// where flows have entries.
    ///
    /// # Panics
    /// When there are not as many ranks as keys.
    pub fn record_burst(
        &mut self,
        family: &HashFamily,
        keys: &[K],
        ranks: &[Rank],
        sink: &mut impl Sink<K, V>,
    ) {
        assert_eq!(keys.len(), ranks.len(), "a rank for each key");
        for (keys, ranks) in keys.chunks(BURST).zip(ranks.chunks(BURST)) {
            let mut hashes = HashColumns::default();
            family.hash_columns(keys, &mut hashes);
            let words = |packet: usize| Words::of(&hashes.of(packet));
            family.engine().run(Record { table: self, keys, ranks, words, sink });
        }
    }

    /// As [`record_burst`](Self::record_burst), at most [`BURST`] packets with these hashes, of
    /// which `chosen` has a bit for each that is recorded, within work that already runs on `isa`.
    #[inline(always)]
    pub fn record(
        &mut self,
        isa: impl Isa,
        (keys, chosen): (&[K], u32),
        hashes: &HashColumns,
        ranks: &[Rank],
        sink: &mut impl Sink<K, V>,
    ) {
        let words = |packet: usize| Words::of(&hashes.of(packet));
        self.record_by(isa, (keys, chosen), ranks, words, sink);
    }

    /// Notes a run of packets of a flow that was refused with this order: what recording them would
    /// do, which refuses them again.
    #[inline(always)]
    pub fn refuse_again(&mut self, order: Order) {
        self.turnover.filtered += u64::from(order <= self.limit);
    }

    /// Records so many packets of one flow, back to back.
    pub fn record_run(
        &mut self,
        family: &HashFamily,
        key: &K,
        (hashes, rank): (&Hashes, Rank),
        packets: usize,
        sink: &mut impl Sink<K, V>,
    ) {
        let words = Words::of(hashes);
        let place = self.index.place(words.home, words.tag);
        let run = Arrival { start: 0, end: packets, place, order: Order::new(rank, &words) };
        family.engine().run(Take { table: self, key, run: &run, sink });
    }

    #[inline(always)]
    fn record_by(
        &mut self,
        isa: impl Isa,
        (keys, chosen): (&[K], u32),
        ranks: &[Rank],
        words: impl Fn(usize) -> Words,
        sink: &mut impl Sink<K, V>,
    ) {
        let mut runs: [Arrival; BURST] = [Arrival::default(); BURST];
        let mut number = 0_usize;
        for packet in ones(chosen & first(keys.len())) {
            if let Some(last) = number.checked_sub(1)
                && runs[last].end == packet
                && keys[packet - 1] == keys[packet]
            {
                runs[last].end = packet + 1;
                continue;
            }
            let words = words(packet);
            let place = self.index.place(words.home, words.tag);
            self.index.prefetch(isa, place);
            let order = Order::new(ranks[packet], &words);
            runs[number] = Arrival { start: packet, end: packet + 1, place, order };
            number += 1;
        }
        for run in &runs[..number] {
            if let Some(slot) = self.index.guess(isa, run.place) {
                isa.prefetch(&self.entries, slot as usize);
            } else {
                self.filter.prefetch(isa, noted(run.place.tag(), run.order));
            }
        }
        for run in &runs[..number] {
            self.take(isa, &keys[run.start], run, sink);
        }
    }

    /// Records packets of one flow.
    #[inline(always)]
    fn take(&mut self, isa: impl Isa, key: &K, run: &Arrival, sink: &mut impl Sink<K, V>) {
        let packets = run.start..run.end;
        let entries = &self.entries;
        let is_it = |slot: u32| entries.get(slot as usize).is_some_and(|entry| entry.key == *key);
        if let Some(slot) = self.index.find(isa, run.place, is_it) {
            sink.count(&mut self.entries[slot as usize].value, packets);
            return;
        }
        let noted = noted(run.place.tag(), run.order);
        if run.order > self.limit {
            self.turnover.refused += u64::from(!self.filter.insert(noted));
            sink.refuse(packets);
        } else if self.filter.contains(noted) {
            self.turnover.filtered += 1;
            sink.refuse(packets);
        } else if self.admit(isa, key, run, sink) {
            self.go_on(isa, sink);
        } else {
            self.filter.insert(noted);
            self.turnover.refused += 1;
            self.turnover.crowded += 1;
            sink.refuse(packets);
        }
    }

    /// Gives the flow an entry, if there is room.
    #[inline(always)]
    fn admit(&mut self, isa: impl Isa, key: &K, run: &Arrival, sink: &mut impl Sink<K, V>) -> bool {
        let is_new = self.first_free == NONE;
        let slot = if is_new { self.orders.len() as u32 } else { self.first_free };
        let has_slot = !is_new || self.orders.len() < self.orders.most();
        if !has_slot || !self.index.insert(isa, run.place, slot) {
            return false;
        }
        let mut entry = Entry { key: *key, value: V::default() };
        sink.count(&mut entry.value, run.start..run.end);
        if is_new {
            self.entries.push(entry);
            self.orders.push(run.order);
        } else {
            let order = &mut self.orders[slot as usize];
            self.first_free = order.next();
            *order = run.order;
            self.entries[slot as usize] = entry;
        }
        self.len += 1;
        self.turnover.admitted += 1;
        true
    }

    /// Does one admission's share of making room. Of the slack, finding a limit uses up a quarter
    /// at most, looking at all slots an eighth, evicting twice the slack at most a third, and an
    /// eighth is what the limit may be too high by.
    #[inline(always)]
    fn go_on(&mut self, isa: impl Isa, sink: &mut impl Sink<K, V>) {
        let (wanted, slots) = (self.capacity.entries as usize, self.capacity.slots());
        let slack = self.capacity.slack();
        match self.stage {
            Stage::Resting if self.len < wanted + slack => {}
            Stage::Resting => {
                self.selection.begin(self.limit);
                self.stage = Stage::Counting;
            }
            Stage::Counting => {
                let steps = PASSES * slots / (slack / 4);
                let limit = self.selection.step(&self.orders, steps, wanted, slack / 8);
                if let Some(limit) = limit {
                    self.limit = self.limit.min(limit);
                    self.stage = Stage::Sweeping(0);
                }
            }
            Stage::Sweeping(at) => {
                self.stage = match self.sweep(isa, at, slots / (slack / 8), EVICTIONS, sink) {
                    end if end >= self.orders.len() => Stage::Resting,
                    at => Stage::Sweeping(at),
                };
            }
        }
    }

    /// Evicts what is above the limit, `most` entries in `steps` slots, and gives the next slot.
    fn sweep(
        &mut self,
        isa: impl Isa,
        from: usize,
        steps: usize,
        most: usize,
        sink: &mut impl Sink<K, V>,
    ) -> usize {
        let end = self.orders.len().min(from + steps);
        let mut found = 0;
        let mut at = from;
        let mut victims = [0; EVICTIONS];
        while at < end && found < most.min(EVICTIONS) {
            let order = self.orders[at];
            if order > self.limit && order.is_taken() {
                self.index.prefetch_slot(isa, at as u32);
                isa.prefetch(&self.entries, at);
                victims[found] = at as u32;
                found += 1;
            }
            at += 1;
        }
        for &slot in &victims[..found] {
            self.evict(slot, sink);
        }
        at
    }

    fn evict(&mut self, slot: u32, sink: &mut impl Sink<K, V>) {
        let at = slot as usize;
        let order = self.orders[at];
        if let Some(tag) = self.index.remove(slot) {
            self.filter.insert(noted(tag, order));
        }
        let entry = &self.entries[at];
        sink.evict(&entry.key, order.rank(), &entry.value);
        self.orders[at] = Order::free(self.first_free);
        self.first_free = slot;
        self.len -= 1;
        self.turnover.evicted += 1;
    }

    /// Evicts all entries but the wanted ones. A pass over the table or a few, so not for where
    /// packets wait.
    pub fn finish(&mut self, family: &HashFamily, sink: &mut impl Sink<K, V>) {
        family.engine().run(Finish { table: self, sink });
    }

    #[inline(always)]
    fn finish_with(&mut self, isa: impl Isa, sink: &mut impl Sink<K, V>) {
        let (wanted, slots) = (self.capacity.entries as usize, self.orders.len());
        if self.len <= wanted {
            return;
        }
        self.selection.begin(Order::LAST);
        let limit = (0..PASSES).find_map(|_| self.selection.step(&self.orders, slots, wanted, 0));
        self.limit = limit.map_or(self.limit, |limit| self.limit.min(limit));
        let mut at = 0;
        while at < slots {
            at = self.sweep(isa, at, slots, EVICTIONS, sink);
        }
        self.stage = Stage::Resting;
        // Flows that agree in rank and hash are left: the largest key goes.
        while self.len > wanted {
            let ties = (0..slots).filter(|&at| self.orders[at] == self.limit);
            let Some(last) = ties.max_by_key(|&at| self.entries[at].key) else { return };
            self.evict(last as u32, sink);
        }
    }
}

/// Packets of one flow, one after the other.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    start: usize,
    end: usize,
    place: Place,
    order: Order,
}

impl Default for Arrival {
    fn default() -> Self {
        Self { start: 0, end: 0, place: Place::default(), order: Order::LAST }
    }
}

/// Where the filter notes a flow. The order's tie and the tag are all that is left of an evicted
/// flow's hashes.
#[inline(always)]
pub(super) fn noted(tag: u16, order: Order) -> Noted {
    let tie = order.tie();
    Noted { block: tie, bits: u32::from(tag) << 16 | tie >> 3 & 0xFFFF }
}

/// Recording packets whose words are known.
pub(super) struct Record<'a, K: Copy, V: Copy, W, S> {
    pub(super) table: &'a mut BoundedTable<K, V>,
    pub(super) keys: &'a [K],
    pub(super) ranks: &'a [Rank],
    pub(super) words: W,
    pub(super) sink: &'a mut S,
}

impl<K, V, W, S> Work for Record<'_, K, V, W, S>
where
    K: Key,
    V: Copy + Default,
    W: Fn(usize) -> Words,
    S: Sink<K, V>,
{
    type Output = ();

    #[inline(always)]
    fn work(self, isa: impl Isa) {
        self.table.record_by(isa, (self.keys, u32::MAX), self.ranks, self.words, self.sink);
    }
}

struct Take<'a, K: Copy, V: Copy, S> {
    table: &'a mut BoundedTable<K, V>,
    key: &'a K,
    run: &'a Arrival,
    sink: &'a mut S,
}

impl<K: Key, V: Copy + Default, S: Sink<K, V>> Work for Take<'_, K, V, S> {
    type Output = ();

    #[inline(always)]
    fn work(self, isa: impl Isa) {
        self.table.take(isa, self.key, self.run, self.sink);
    }
}

struct Find<'a, K: Copy, V: Copy> {
    table: &'a BoundedTable<K, V>,
    key: &'a K,
    words: &'a Words,
}

impl<K: Key, V: Copy + Default> Work for Find<'_, K, V> {
    type Output = Option<u32>;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> Option<u32> {
        let Self { table, key, words } = self;
        let place = table.index.place(words.home, words.tag);
        table.index.find(isa, place, |slot| table.entries[slot as usize].key == *key)
    }
}

struct Finish<'a, K: Copy, V: Copy, S> {
    table: &'a mut BoundedTable<K, V>,
    sink: &'a mut S,
}

impl<K: Key, V: Copy + Default, S: Sink<K, V>> Work for Finish<'_, K, V, S> {
    type Output = ();

    #[inline(always)]
    fn work(self, isa: impl Isa) {
        self.table.finish_with(isa, self.sink);
    }
}
