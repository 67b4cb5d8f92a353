//! A table of rows, as a switching chip can keep it.
//!
//! A flow's hash chooses a row, and the row has the flows of smallest rank among those that chose
//! it, in order: on a chip its places are columns, one pipeline stage behind the other, and a flow
//! that comes in moves those behind it by one (section III-H of the paper on cooperative flow
//! selection, CFS). So the table has not the flows of smallest rank of all, as a
//! [`BoundedTable`](super::BoundedTable) has, but takes no search for those to evict.
//!
//! Counts are exact for the same reasons: the largest rank in a full row only falls, and a filter
//! remembers whom the table did not take or did not keep. A flow is found by its key whatever its
//! rank is by now, so that packets that come back by another way do not make a second entry.

use super::bounded::noted;
use super::filter::Filter;
use super::order::{Order, Rank, Words};
use super::{Sink, Turnover};
use crate::burst::BURST;
use crate::hash::{HashColumns, HashFamily, Hashes};
use crate::key::Key;
use crate::memory::filled;
use crate::simd::{Isa, Work};

/// The shape of a table of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows, 1 to 2^16: what half a hash word can name.
    pub rows: u32,
    /// Flows of a row, at least one.
    pub columns: u8,
    /// Bits of the filter, as [`Capacity::filter_bits`](super::Capacity::filter_bits).
    pub filter_bits: usize,
}

impl Shape {
    fn rows(self) -> usize {
        self.rows.clamp(1, 1 << 16) as usize
    }

    fn columns(self) -> usize {
        self.columns.max(1).into()
    }

    /// Flows that the table has room for.
    pub fn entries(self) -> usize {
        self.columns() * self.rows()
    }
}

/// What lies in a place; whether a flow is there, its order says.
#[derive(Clone, Copy, Debug, Default)]
struct Entry<K, V> {
    key: K,
    value: V,
    tag: u16,
}

/// Counts the flows of smallest rank of each row. See the module.
#[derive(Clone, Debug)]
pub struct RowTable<K, V> {
    shape: Shape,
    /// Row by row, the smallest order first, free places last.
    orders: Box<[Order]>,
    /// Likewise.
    entries: Box<[Entry<K, V>]>,
    len: usize,
    filter: Filter,
    turnover: Turnover,
}

/// A place without a flow: behind all orders.
const FREE: Order = Order(u64::MAX);

impl<K: Key, V: Copy + Default> RowTable<K, V> {
    /// An empty table. It takes all its memory now.
    pub fn new(shape: Shape) -> Self {
        let empty = Entry { key: K::default(), value: V::default(), tag: 0 };
        Self {
            shape,
            orders: filled(shape.entries(), FREE),
            entries: filled(shape.entries(), empty),
            len: 0,
            filter: Filter::new(shape.filter_bits),
            turnover: Turnover::default(),
        }
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.filter.bytes() + size_of_val(&*self.orders) + size_of_val(&*self.entries)
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Flows with an entry.
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

    /// Flows with an entry, with their ranks, row by row and the smallest first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, Rank, &V)> {
        let places = self.entries.iter().zip(&self.orders).filter(|(_, order)| order.is_taken());
        places.map(|(entry, order)| (&entry.key, order.rank(), &entry.value))
    }

    /// What was counted of a flow with an entry.
    pub fn get(&self, family: &HashFamily, key: &K) -> Option<&V> {
        let row = self.row(&Words::of(&family.hash(key)));
        let mut places = row..row + self.shape.columns();
        let at = places.find(|&at| self.orders[at].is_taken() && self.entries[at].key == *key)?;
        Some(&self.entries[at].value)
    }

    /// Whether the flow was refused or evicted since the table was cleared. Of flows that were not,
    /// it is wrong about few.
    pub fn kept_out(&self, family: &HashFamily, key: &K) -> bool {
        let words = Words::of(&family.hash(key));
        self.filter.contains(noted(words.tag as u16, Order::new(Rank::default(), &words)))
    }

    /// Forgets all flows; the filter becomes as large as those of the last window need.
    pub fn clear(&mut self) {
        let Turnover { admitted, evicted, refused, .. } = self.turnover;
        if admitted > 0 {
            self.filter.begin((evicted + refused) as usize, self.shape.entries());
        }
        self.orders.fill(FREE);
        self.len = 0;
        self.turnover = Turnover::default();
    }

    /// Records packets, a burst at a time, each with its flow's rank.
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
            family.engine().run(Record { table: self, keys, hashes: &hashes, ranks, sink });
        }
    }

    /// As [`record_burst`](Self::record_burst), at most [`BURST`] packets with these hashes, within
    /// work that already runs on `isa`.
    #[inline(always)]
    pub fn record(
        &mut self,
        isa: impl Isa,
        keys: &[K],
        hashes: &HashColumns,
        ranks: &[Rank],
        sink: &mut impl Sink<K, V>,
    ) {
        for packet in 0..keys.len() {
            let row = self.row(&Words::of(&hashes.of(packet)));
            isa.prefetch(&self.orders, row);
            isa.prefetch(&self.entries, row);
        }
        for (packet, (key, rank)) in keys.iter().zip(ranks).enumerate() {
            let words = Words::of(&hashes.of(packet));
            self.take(key, (&words, *rank), packet..packet + 1, sink);
        }
    }

    /// Records so many packets of one flow, back to back.
    pub fn record_run(
        &mut self,
        key: &K,
        (hashes, rank): (&Hashes, Rank),
        packets: usize,
        sink: &mut impl Sink<K, V>,
    ) {
        self.take(key, (&Words::of(hashes), rank), 0..packets, sink);
    }

    /// Where the row of a flow begins. The lower half of the word is what chips have; where rows
    /// are a power of two, its upper bits are the row.
    #[inline(always)]
    fn row(&self, words: &Words) -> usize {
        let row = ((words.home as usize & 0xFFFF) * self.shape.rows()) >> 16;
        row * self.shape.columns()
    }

    /// Records packets of one flow, named by their places in the burst.
    #[inline(always)]
    fn take(
        &mut self,
        key: &K,
        (words, rank): (&Words, Rank),
        packets: std::ops::Range<usize>,
        sink: &mut impl Sink<K, V>,
    ) {
        let (first, order) = (self.row(words), Order::new(rank, words));
        let last = first + self.shape.columns() - 1;
        let (orders, entries) = (&self.orders[first..=last], &mut self.entries[first..=last]);
        let mut places = entries.iter_mut().zip(orders);
        if let Some((entry, _)) = places.find(|(it, order)| order.is_taken() && it.key == *key) {
            sink.count(&mut entry.value, packets);
            return;
        }
        let noted_at = noted(words.tag as u16, order);
        if order >= self.orders[last] {
            self.turnover.refused += u64::from(!self.filter.insert(noted_at));
            sink.refuse(packets);
        } else if self.filter.contains(noted_at) {
            self.turnover.filtered += 1;
            sink.refuse(packets);
        } else {
            self.make_room(last, sink);
            let mut at = last;
            while at > first && self.orders[at - 1] > order {
                (self.orders[at], self.entries[at]) = (self.orders[at - 1], self.entries[at - 1]);
                at -= 1;
            }
            self.orders[at] = order;
            self.entries[at] = Entry { key: *key, value: V::default(), tag: words.tag as u16 };
            sink.count(&mut self.entries[at].value, packets);
            self.len += 1;
            self.turnover.admitted += 1;
        }
    }

    /// Evicts the flow of the last place, if there is one.
    #[inline(always)]
    fn make_room(&mut self, last: usize, sink: &mut impl Sink<K, V>) {
        let order = self.orders[last];
        if order.is_taken() {
            let Entry { key, value, tag } = &self.entries[last];
            self.filter.insert(noted(*tag, order));
            sink.evict(key, order.rank(), value);
            self.len -= 1;
            self.turnover.evicted += 1;
        }
    }
}

/// Recording a burst.
struct Record<'a, K, V, S> {
    table: &'a mut RowTable<K, V>,
    keys: &'a [K],
    hashes: &'a HashColumns,
    ranks: &'a [Rank],
    sink: &'a mut S,
}

impl<K: Key, V: Copy + Default, S: Sink<K, V>> Work for Record<'_, K, V, S> {
    type Output = ();

    #[inline(always)]
    fn work(self, isa: impl Isa) {
        self.table.record(isa, self.keys, self.hashes, self.ranks, self.sink);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, HashMap};
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;
    use crate::{FlowKey, HashKey, WideKey};

    /// Packets by flow, as they were handed on.
    #[derive(Debug)]
    struct Others<K> {
        keys: Vec<K>,
        refused: HashMap<K, u64>,
        evicted: HashMap<K, u64>,
    }

    impl<K: Key> Sink<K, u64> for Others<K> {
        fn count(&mut self, value: &mut u64, packets: Range<usize>) {
            *value += packets.len() as u64;
        }

        fn refuse(&mut self, packets: Range<usize>) {
            *self.refused.entry(self.keys[packets.start]).or_default() += packets.len() as u64;
        }

        fn evict(&mut self, key: &K, _: Rank, value: &u64) {
            *self.evicted.entry(*key).or_default() += value;
        }
    }

    /// Rows as sorted lists.
    struct Model<K> {
        columns: usize,
        rows: BTreeMap<u32, Vec<(Order, K, u64)>>,
        out: BTreeSet<K>,
    }

    impl<K: Key> Model<K> {
        fn packet(&mut self, row: u32, key: K, order: Order, kept_out: bool) {
            let row = self.rows.entry(row).or_default();
            if let Some((_, _, packets)) = row.iter_mut().find(|(_, other, _)| *other == key) {
                *packets += 1;
                return;
            }
            if kept_out || self.out.contains(&key) {
                self.out.insert(key);
                return;
            }
            // Behind all of the same order.
            let at = row.partition_point(|(other, ..)| *other <= order);
            row.insert(at, (order, key, 1));
            if row.len() > self.columns {
                self.out.extend(row.pop().map(|(_, key, _)| key));
            }
        }
    }

    fn key<K: Key>(flow: u32) -> K {
        K::from_word_fn(|word| flow.wrapping_mul(word as u32 * 2 + 1), 6)
    }

    fn family() -> HashFamily {
        HashFamily::new(&HashKey::from_bytes([5; 32]))
    }

    /// Flows of which some change their rank, few grades among them.
    fn stream() -> impl Strategy<Value = Vec<(u32, Rank)>> {
        let packet = (0_u32..200, 0_u32..3, any::<bool>()).prop_map(|(flow, change, crowd)| {
            let grade = flow.wrapping_mul(0x9E37_79B9) >> if crowd { 29 } else { 0 };
            let moved = if flow % 5 == 0 { change << 29 } else { 0 };
            (flow, Rank::new(2, grade ^ moved))
        });
        prop::collection::vec(packet, 0..1500)
    }

    fn after_every_packet<K: Key>(
        packets: &[(u32, Rank)],
        columns: u8,
        filter_bits: usize,
    ) -> Result<(), TestCaseError> {
        let family = family();
        let mut table = RowTable::<K, u64>::new(Shape { rows: 8, columns, filter_bits });
        for _window in 0..2 {
            let mut sink =
                Others { keys: Vec::new(), refused: HashMap::new(), evicted: HashMap::new() };
            let rows = BTreeMap::new();
            let mut model = Model { columns: columns.into(), rows, out: BTreeSet::new() };
            let mut all: HashMap<K, u64> = HashMap::new();
            for &(flow, rank) in packets {
                let key = key::<K>(flow);
                let words = Words::of(&family.hash(&key));
                let kept_out = table.kept_out(&family, &key);
                model.packet(words.home >> 13 & 7, key, Order::new(rank, &words), kept_out);
                *all.entry(key).or_default() += 1;
                sink.keys = vec![key];
                table.record_burst(&family, &[key], &[rank], &mut sink);
            }
            let listed: Vec<_> = table.iter().map(|(key, rank, n)| (*key, rank, *n)).collect();
            let modelled = model.rows.values().flatten();
            let modelled: Vec<_> =
                modelled.map(|(order, key, packets)| (*key, order.rank(), *packets)).collect();
            prop_assert_eq!(&listed, &modelled);
            prop_assert_eq!(table.len(), listed.len());
            for (key, packets) in &all {
                let handed_on = [&sink.refused, &sink.evicted].map(|of| of.get(key).copied());
                let others: u64 = handed_on.into_iter().flatten().sum();
                match table.get(&family, key) {
                    Some(counted) => {
                        prop_assert_eq!((counted, others), (packets, 0), "since its first packet");
                    }
                    None => {
                        prop_assert_eq!(others, *packets);
                        prop_assert!(table.kept_out(&family, key));
                    }
                }
            }
            let Turnover { admitted, evicted, .. } = table.turnover();
            prop_assert_eq!(admitted - evicted, listed.len() as u64);
            table.clear();
            prop_assert!(table.is_empty() && table.iter().next().is_none());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn rows_have_their_flows_of_smallest_rank(
            packets in stream(),
            columns in 1_u8..7,
            filter_bits in prop::sample::select(vec![1 << 8, 1 << 14]),
        ) {
            after_every_packet::<FlowKey>(&packets, columns, filter_bits)?;
            after_every_packet::<WideKey>(&packets, columns, filter_bits)?;
        }

        #[test]
        fn a_burst_is_its_packets_one_after_the_other(packets in stream(), columns in 1_u8..5) {
            let family = family();
            let shape = Shape { rows: 13, columns, filter_bits: 1 << 12 };
            let mut tables = [(); 3].map(|()| RowTable::<FlowKey, u64>::new(shape));
            let (keys, ranks): (Vec<FlowKey>, Vec<Rank>) =
                packets.iter().map(|&(flow, rank)| (key::<FlowKey>(flow), rank)).unzip();
            let [by_burst, by_packet, by_run] = &mut tables;
            by_burst.record_burst(&family, &keys, &ranks, &mut Uncounted);
            for (key, rank) in keys.iter().zip(&ranks) {
                by_packet.record_burst(&family, &[*key], &[*rank], &mut Uncounted);
                by_run.record_run(key, (&family.hash(key), *rank), 1, &mut Uncounted);
            }
            let flows = |table: &RowTable<FlowKey, u64>| {
                let flows = table.iter().map(|(key, rank, packets)| (*key, rank, *packets));
                (flows.collect::<Vec<_>>(), table.turnover())
            };
            prop_assert_eq!(flows(by_burst), flows(by_packet));
            prop_assert_eq!(flows(by_burst), flows(by_run));
        }
    }

    struct Uncounted;

    impl<K> Sink<K, u64> for Uncounted {
        fn count(&mut self, value: &mut u64, packets: Range<usize>) {
            *value += packets.len() as u64;
        }

        fn refuse(&mut self, _: Range<usize>) {}

        fn evict(&mut self, _: &K, _: Rank, _: &u64) {}
    }
}
