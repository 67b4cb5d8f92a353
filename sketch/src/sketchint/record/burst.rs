//! A burst's packets, in passes.

use super::super::flow_word;
use super::super::inflation::Limits;
use super::super::met::Met;
use super::super::rows::Matches;
use super::super::sink::Sink;
use super::super::watch::Watch;
use super::{Words, of_packet};
use crate::burst::{BURST, Column};
use crate::hash::HashColumns;
use crate::key::Key;
use crate::simd::{Isa, Work};
use crate::tower::Rule;

/// Records packets, as [`Sink::record_burst_for`] does.
pub(super) struct RecordBurst<'a, K, W> {
    pub(super) sink: &'a mut Sink<K>,
    pub(super) watch: &'a mut W,
    pub(super) hashes: &'a HashColumns,
    pub(super) keys: &'a [K],
    pub(super) met: &'a [Option<Met<'a>>],
    pub(super) at_us: u32,
}

/// Packets that have been counted in rows, and whose latencies have still to be: each one's number
/// in the burst, its row, and whether the flow was whole.
struct Counted {
    packets: [(u16, bool, u32); BURST],
    len: usize,
}

impl<K: Key, W: Watch> Work for RecordBurst<'_, K, W> {
    type Output = Words;

    #[inline(always)]
    fn work(mut self, isa: impl Isa) -> Words {
        let Self { sink, hashes, keys, met, .. } = &mut self;
        let packets = keys.len().min(BURST);
        let met = &met[..packets.min(met.len())];
        let mut words: Words = [0; BURST];
        for (at, word) in words.iter_mut().enumerate() {
            *word = flow_word(&hashes.of(at));
        }
        let mut of_flows = [Matches::NONE; BURST];
        if let Some(rows) = &sink.share.rows {
            for (alike, &word) in of_flows.iter_mut().zip(&words[..packets]) {
                *alike = rows.tagged(isa, word);
                if let Some(row) = alike.first() {
                    rows.prefetch(isa, row);
                }
            }
        }
        let sizes = match sink.shape.rule {
            Rule::Cm => sink.sizes.insert_burst::<true>(packets, hashes),
            rule => {
                let mut sizes = Column::ZERO;
                for (at, size) in sizes.0[..packets].iter_mut().enumerate() {
                    *size = sink.sizes.insert_weight(&hashes.of(at), 1, rule);
                }
                sizes
            }
        };
        let (own, share) = (sink.own, &mut sink.share);
        share.totals.packets += packets as u64;
        if let Some(rows) = &share.rows {
            for (of_flow, key) in of_flows.iter_mut().zip(*keys) {
                *of_flow = rows.of_key(*of_flow, key);
            }
        }
        let mut numbers = [Some(0); BURST];
        let plain = share.count_paths(met, own, &of_flows, &mut numbers);
        for at in 0..packets {
            if of_flows[at].len() == 0
                && let Some(met) = of_packet(met, at)
            {
                sink.pairs.prefetch(isa, words[at], &met);
            }
        }
        self.record_in_rows(isa, (&words, &sizes), (of_flows, plain), &numbers);
        words
    }
}

impl<K: Key, W: Watch> RecordBurst<'_, K, W> {
    /// Counts packets in rows, or in pair towers. `of_flows` are the rows of each one's flow, and
    /// `plain` has a bit for each whose path comes by no switch twice.
    #[inline(always)]
    fn record_in_rows(
        &mut self,
        isa: impl Isa,
        (words, sizes): (&Words, &Column),
        (of_flows, plain): ([Matches; BURST], u32),
        numbers: &[Option<u16>; BURST],
    ) {
        let rows = self.sink.share.rows.as_ref();
        let changes = rows.map_or(0, |rows| rows.changes());
        let by_size = rows.is_some_and(|rows| rows.counts_by_size());
        let mut counted = Counted { packets: [(0, false, 0); BURST], len: 0 };
        for at in 0..self.keys.len().min(BURST) {
            let of = (words[at], &self.keys[at], sizes.0[at]);
            // Rows that came or went have changed those of others as well.
            let of_flow = match &self.sink.share.rows {
                Some(rows) if rows.changes() != changes => rows.of_flow(isa, of.0, of.1),
                _ => of_flows[at],
            };
            let met = of_packet(self.met, at);
            let is_plain = met.is_none() || plain >> at & 1 == 1;
            if is_plain
                && let Some(number) = numbers[at]
                && met.is_none_or(|met| met.hops <= self.sink.shape.hops)
                && let Some((row, is_whole)) = self.sink.count_in_only_row(of_flow, number)
            {
                let head = (at, &mut *self.watch);
                self.sink.keep_large(of, Some(row), head);
                if met.is_some() {
                    counted.packets[counted.len % BURST] = (at as u16, is_whole, row as u32);
                    counted.len += 1;
                }
                // Which rows have their latencies counted by size depends on the packets so far.
                if by_size {
                    self.add_latencies(isa, words, &mut counted);
                }
                continue;
            }
            self.add_latencies(isa, words, &mut counted);
            let met = met.map(|met| (numbers[at], met));
            let (at_us, of) = (self.at_us, (of, of_flow));
            let has_row = self.sink.record_in_row(isa, of, met, at_us, (at, &mut *self.watch));
            if !has_row && let Some((_, met)) = met {
                self.sink.record_in_pairs((words[at], &self.keys[at]), &met, at_us);
            }
        }
        self.add_latencies(isa, words, &mut counted);
    }

    /// Adds the latencies of packets that have been counted in their flows' only rows.
    #[inline(always)]
    fn add_latencies(&mut self, isa: impl Isa, words: &Words, counted: &mut Counted) {
        let Self { sink, watch, keys, met, at_us, .. } = self;
        let Sink { shape, own, inflation_percent: percent, pairs, share, .. } = &mut **sink;
        let (own, percent, at_us, unit_ns) = (*own, *percent, *at_us, shape.unit_ns);
        for &(at, is_whole, row) in &counted.packets[..counted.len.min(BURST)] {
            let at = usize::from(at) % BURST;
            let Some(met) = of_packet(met, at) else { continue };
            let limits = Limits { own, percent, at_us, pairs, unit_ns };
            let of = (words[at], &keys[at], (row as usize, is_whole));
            share.add_plainly(isa, of, &met, limits, (at, &mut **watch));
        }
        counted.len = 0;
    }
}

/// Records latencies at the sink itself, as [`Sink::record_owns`] does.
pub(super) struct RecordOwns<'a, K> {
    pub(super) sink: &'a mut Sink<K>,
    pub(super) packets: &'a [(u64, K, u32)],
    pub(super) at_us: u32,
}

impl<K: Key> Work for RecordOwns<'_, K> {
    type Output = ();

    #[inline(always)]
    fn work(self, isa: impl Isa) {
        let Self { sink, packets, at_us } = self;
        let Some(node) = sink.own else { return };
        // Packets that were found together often have the same latency.
        for run in packets.chunk_by(|one, next| one.2 == next.2) {
            sink.share.nodes.count_own(node, run[0].2, run.len() as u32);
        }
        // No row comes or goes in between.
        let mut of_flows = [Matches::NONE; BURST];
        for (of_flow, (word, key, _)) in of_flows.iter_mut().zip(packets) {
            *of_flow = sink.share.of_flow(isa, *word, key);
        }
        for (of_flow, &(word, ref key, latency)) in of_flows.into_iter().zip(packets) {
            sink.record_own_in_row((word, key, of_flow), (node, latency), at_us, &mut ());
        }
    }
}
