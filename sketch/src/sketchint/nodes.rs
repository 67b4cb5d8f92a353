//! What is known of each switch over all packets.
//!
//! Of paths of few hops, which nearly all are, sums and extremes are kept by path, hop beside hop,
//! so that a packet costs as many instructions as one hop would. They are the switches' once they
//! are asked for.

use super::bounded::Bounded;
use super::histogram::{BINS, Histogram};
use super::met::{Met, UNKNOWN};
use super::paths::{MOST_HOPS, OfPath, Path, Paths, Ways};
use crate::burst::{BURST, ones};
use crate::hash::mixed;

/// Hops of a path whose sums are kept by path.
pub(super) const FEW_HOPS: usize = 8;

/// Counters of a switch: the bins of its histogram, one of latencies that are not known, and as
/// many as the last cache line has room for.
const STRETCH: usize = BINS + 16;

/// What packets met at a switch, but for the histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) packets: u64,
    pub(super) sum_ns: u64,
    pub(super) min_ns: u32,
    pub(super) max_ns: u32,
    pub(super) queued: u64,
    pub(super) queue_sum: u64,
    pub(super) queue_max: u32,
}

impl Node {
    pub(super) const NONE: Self = Self {
        packets: 0,
        sum_ns: 0,
        min_ns: u32::MAX,
        max_ns: 0,
        queued: 0,
        queue_sum: 0,
        queue_max: 0,
    };

    /// Adds that so many packets found a queue of one length.
    #[inline(always)]
    fn add_queue(&mut self, queued: u32, packets: u32) {
        if queued != UNKNOWN {
            self.queued += u64::from(packets);
            self.queue_sum += u64::from(queued) * u64::from(packets);
            self.queue_max = self.queue_max.max(queued);
        }
    }
}

/// The switches of a window.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    numbers: Bounded<u32>,
    of: Box<[Node]>,
    /// The counters of each, and behind them those of all that are not distinguished.
    counters: Box<[u32]>,
    /// The number of the sink itself among them, once it has recorded a latency of its own.
    own: Option<usize>,
}

impl Nodes {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            numbers: Bounded::new(capacity),
            of: vec![Node::NONE; capacity].into_boxed_slice(),
            counters: vec![0; (capacity + 1) * STRETCH].into_boxed_slice(),
            own: None,
        }
    }

    /// What there is to find out of a path.
    #[inline(never)]
    pub(super) fn ways(&mut self, path: &Path, own: Option<u32>) -> Ways {
        let mut ways = Ways { nodes: [u16::MAX; MOST_HOPS], unknown: 0, is_plain: true };
        for (at, (&node, place)) in path.nodes().iter().zip(&mut ways.nodes).enumerate() {
            let (hash, numbers) = (mixed(node.into()), &mut self.numbers);
            let known = numbers.find(hash, &node);
            let place_new = || if numbers.is_full() { None } else { numbers.place(hash, &node) };
            match known.or_else(place_new) {
                Some(number) => *place = number as u16,
                // It is counted with each packet.
                None => ways.unknown += 1,
            }
            ways.is_plain &= own != Some(node) && !path.nodes()[..at].contains(&node);
        }
        ways
    }

    /// Counts packets of a burst: what each says of the switches that it came by, on the path with
    /// its number. In passes, each so short that the CPU has many packets in it at once. Gives a
    /// bit for each whose path comes by no switch twice.
    #[inline(always)]
    pub(super) fn count(
        &mut self,
        paths: &mut Paths,
        met: &[Option<Met<'_>>],
        numbers: &[Option<u16>; BURST],
    ) -> u32 {
        let (mut short, mut plain) = (0_u32, 0);
        let mut places = [[0; FEW_HOPS]; BURST];
        for (at, met) in met.iter().enumerate().take(BURST) {
            let Some(met) = met else { continue };
            let Some(of_path) = numbers[at].and_then(|number| paths.of_mut(number)) else {
                self.count_singly(met);
                continue;
            };
            of_path.packets += 1;
            let ways = &of_path.ways;
            plain |= u32::from(ways.is_plain) << at;
            if ways.unknown > 0 {
                self.numbers.refuse(ways.unknown.into());
            }
            if let (Some(latencies), Some(numbers)) =
                (met.column.first_chunk(), ways.nodes.first_chunk())
                && met.len() <= FEW_HOPS
            {
                self.find_places(numbers, latencies, &mut places[at]);
                of_path.sums.add(latencies);
                short |= 1 << at;
            }
            if short >> at & 1 == 0 || met.queued.is_some() {
                self.count_rest(&of_path.ways, met);
            }
        }
        for at in ones(short) {
            let hops = met[at].map_or(0, |met| met.len());
            for &place in &places[at][..hops.min(FEW_HOPS)] {
                if let Some(counter) = self.counters.get_mut(place as usize) {
                    *counter = counter.saturating_add(1);
                }
            }
        }
        plain
    }

    /// Where latencies are counted at the switches with these numbers.
    #[inline(always)]
    fn find_places(
        &self,
        numbers: &[u16; FEW_HOPS],
        latencies: &[u32; FEW_HOPS],
        places: &mut [u32; FEW_HOPS],
    ) {
        let others = self.of.len() as u32;
        let bins = Histogram::places(latencies);
        for hop in 0..FEW_HOPS {
            places[hop] = u32::from(numbers[hop]).min(others) * STRETCH as u32 + bins[hop];
        }
    }

    /// Counts what few packets say: of long paths, and of queues.
    #[inline(never)]
    fn count_rest(&mut self, ways: &Ways, met: &Met<'_>) {
        for (hop, (&number, &latency)) in ways.nodes.iter().zip(met.latencies()).enumerate() {
            if met.len() > FEW_HOPS {
                self.add(number.into(), latency, 1);
            }
            if let Some((of, queued)) = self.of.get_mut(usize::from(number)).zip(met.queued) {
                of.add_queue(queued[hop], 1);
            }
        }
    }

    /// The same of a packet whose path is not distinguished.
    #[inline(never)]
    fn count_singly(&mut self, met: &Met<'_>) {
        for (hop, (&node, &latency)) in met.nodes().iter().zip(met.latencies()).enumerate() {
            let Some(number) = self.numbers.place(mixed(node.into()), &node) else { continue };
            self.add(number, latency, 1);
            if let Some((of, queued)) = self.of.get_mut(number).zip(met.queued) {
                of.add_queue(queued[hop], 1);
            }
        }
    }

    /// Counts so many packets of one latency at the sink itself.
    #[inline(always)]
    pub(super) fn count_own(&mut self, node: u32, latency: u32, packets: u32) {
        for packet in 0..packets {
            let Self { numbers, own, .. } = self;
            *own = own.or_else(|| numbers.place(mixed(node.into()), &node));
            if let Some(number) = *own {
                return self.add(number, latency, packets - packet);
            }
        }
    }

    /// Counts how many waited in the sink's own queue where so many packets came that have been
    /// [counted](Self::count_own) there.
    pub(super) fn count_own_queue(&mut self, queued: u32, packets: u32) {
        if packets > 0
            && let Some(of) = self.own.and_then(|number| self.of.get_mut(number))
        {
            of.add_queue(queued, packets);
        }
    }

    /// Counts so many packets of one latency at the switch with this number, if there is one.
    #[inline(always)]
    fn add(&mut self, number: usize, latency: u32, packets: u32) {
        let Some(of) = self.of.get_mut(number) else { return };
        of.packets += u64::from(packets);
        if latency == UNKNOWN {
            return;
        }
        of.sum_ns += u64::from(latency) * u64::from(packets);
        of.min_ns = of.min_ns.min(latency);
        of.max_ns = of.max_ns.max(latency);
        if let Some(counter) = self.counters.get_mut(number * STRETCH + Histogram::bin(latency)) {
            *counter = counter.saturating_add(packets);
        }
    }

    /// Each switch, with what packets met there in all, and the bins of its histogram. Takes
    /// memory.
    pub(super) fn all(&self, paths: &Paths) -> Vec<(u32, Node, &[u32])> {
        let mut of = self.of.clone();
        for (path, of_path) in paths.iter() {
            of_path.give_sums(path, &mut of);
        }
        let counters = self.counters.chunks(STRETCH).map(|counters| &counters[..BINS]);
        let of = self.numbers.iter().zip(of).zip(counters);
        of.map(|((&node, of), bins)| (node, of, bins)).collect()
    }

    /// Packets at switches that were not distinguished.
    pub(super) fn refused(&self) -> u64 {
        self.numbers.refused()
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.bytes() + size_of_val(&*self.of) + size_of_val(&*self.counters)
    }

    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.of.fill(Node::NONE);
        self.counters.fill(0);
        self.own = None;
    }
}

/// Latencies at the first hops of a path, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    sums: [u64; FEW_HOPS],
    /// The least; all bits set where none is known.
    least: [u32; FEW_HOPS],
    most: [u32; FEW_HOPS],
}

impl Sums {
    pub(super) const NONE: Self =
        Self { sums: [0; FEW_HOPS], least: [u32::MAX; FEW_HOPS], most: [0; FEW_HOPS] };

    /// Adds a packet's. Of what stands behind the path's last hop nobody makes anything.
    #[inline(always)]
    fn add(&mut self, latencies: &[u32; FEW_HOPS]) {
        for hop in 0..FEW_HOPS {
            let ns = latencies[hop];
            let known = if ns == UNKNOWN { 0 } else { ns };
            self.sums[hop] = self.sums[hop].wrapping_add(known.into());
            // What is not known is all bits set.
            self.least[hop] = self.least[hop].min(ns);
            self.most[hop] = self.most[hop].max(known);
        }
    }
}

impl OfPath {
    /// Gives what it has of each switch to that.
    fn give_sums(&self, path: &Path, nodes: &mut [Node]) {
        if path.nodes().len() > FEW_HOPS {
            return;
        }
        for (hop, &number) in self.ways.nodes[..path.nodes().len()].iter().enumerate() {
            let Some(of) = nodes.get_mut(usize::from(number)) else { continue };
            of.packets += self.packets;
            of.sum_ns += self.sums.sums[hop];
            of.min_ns = of.min_ns.min(self.sums.least[hop]);
            of.max_ns = of.max_ns.max(self.sums.most[hop]);
        }
    }
}
