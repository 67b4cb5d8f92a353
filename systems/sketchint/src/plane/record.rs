//! What one lcore of a sink keeps of a window.

use std::fmt::Debug;
use std::sync::Arc;

use calumma_epoch::EpochClock;
use calumma_plane::Record;
use calumma_plane::arrival::Arrival;
use calumma_plane::int::Stack;
use calumma_plane::int::around::Queued;
use calumma_plane::int::means::Means;
use calumma_sketch::sketchint::{
    Claims, FlowRow, Inflation, Links, Merged, Met, Notes, ShapeError, Sink, Words,
};
use calumma_sketch::{BURST, HashColumns, HashFamily, Key, WideKey};

use crate::frames::{self, Layout};

/// What all of a sink's records have in common.
#[derive(Debug)]
pub struct SinkSetup {
    /// Sizes and thresholds.
    pub layout: Layout,
    /// The sink's number, where it is a switch: an end host is no hop.
    pub own: Option<u32>,
    /// The deployment's functions.
    pub family: HashFamily,
    /// The flows that have claims to rows: those with more packets than either threshold in the
    /// window that last [renewed](SinkWindow::renew_claims) them.
    pub claims: Arc<Claims>,
    /// The deployment's epochs.
    pub clock: EpochClock,
    /// Whether stacks say when switches received and sent the packet.
    pub has_times: bool,
}

/// Packets of one window, at most [`BURST`].
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a, K> {
    /// Each packet's key.
    pub keys: &'a [K],
    /// Their hashes, where they are at hand.
    pub hashes: Option<&'a HashColumns>,
    /// When they were found, in nanoseconds since the Unix epoch.
    pub polled_ns: u64,
}

/// One lcore's sketches of a window, under plans of type `P`.
#[derive(Clone, Debug)]
pub struct SinkWindow<K: Key, P> {
    setup: Arc<SinkSetup>,
    plan: P,
    start_ns: u64,
    unmarked: u64,
    /// Packets into which a switch did not push: for their length, and for want of hops.
    exceeded: [u64; 2],
    sink: Sink<K>,
    /// How long packets were on links, where stacks say so.
    links: Option<Links>,
    /// The most by which an arrival at the switch itself may be wrong.
    arrival_error_ns: u64,
    /// By what means the switch knows what it has put into stacks, and its own latencies.
    means: Means,
    /// What is remarkable about packets of the burst, where that is reported at once.
    notes: Option<Box<Notes>>,
}

impl<K: Key, P> SinkWindow<K, P> {
    /// An empty record for one of so many lcores. It takes its memory now.
    ///
    /// # Errors
    /// Where the layout can't be built.
    pub fn new(setup: Arc<SinkSetup>, plan: P, lcores: usize) -> Result<Self, ShapeError> {
        let Layout { inflation_percent, .. } = setup.layout;
        let shape = setup.layout.of_lcore(lcores);
        let key_packets = setup.layout.key_packets(lcores);
        let sink = Sink::new(shape, setup.own, key_packets, inflation_percent)?;
        let sink = sink.with_claims(&setup.claims, setup.layout.large_packets());
        let links = setup.has_times.then(|| Links::new(shape.links().into()));
        Ok(Self {
            setup,
            plan,
            start_ns: 0,
            unmarked: 0,
            exceeded: [0; 2],
            sink,
            links,
            arrival_error_ns: 0,
            means: Means::default(),
            notes: None,
        })
    }

    /// The same, which [takes note](Self::notes) of what is remarkable about packets.
    #[must_use]
    pub fn noting(self) -> Self {
        let Layout { shape, heavy_packets, .. } = self.setup.layout;
        Self { notes: Some(Box::new(Notes::new(heavy_packets, shape.keys))), ..self }
    }

    /// What is remarkable about the packets that were [recorded](Self::record) last, by their order
    /// there.
    pub fn notes(&self) -> Option<&Notes> {
        self.notes.as_deref()
    }

    /// Records packets for hosts, each with the stack that it came with, or none. One that goes
    /// from a host to a host of the same switch has an empty stack. Gives a word of each one's
    /// flow, for [`record_owns`](Self::record_owns).
    #[inline]
    pub fn record(&mut self, packets: &Leaving<'_, K>, stacks: &[Option<&Stack>]) -> Words {
        let at_us = self.since_start_us(packets.polled_ns);
        let Self { setup, sink, notes, .. } = self;
        let mut computed = HashColumns::default();
        let keys = &packets.keys[..packets.keys.len().min(BURST)];
        let hashes = hashes(&setup.family, packets, &mut computed);
        let mut met = [None; BURST];
        for (met, stack) in met.iter_mut().zip(stacks) {
            *met = stack.map(|stack| {
                let columns = (stack.latency_column(), stack.queue_column());
                Met::new((stack.nodes(), stack.len()), columns, stack.is_partial)
            });
        }
        let met = &met[..keys.len().min(stacks.len())];
        let engine = setup.family.engine();
        match notes {
            None => sink.record_burst(engine, (hashes, keys), met, at_us),
            Some(notes) => {
                notes.begin();
                sink.record_burst_for(engine, (hashes, keys), met, at_us, &mut **notes)
            }
        }
    }

    /// Notes how long packets that have been [recorded](Self::record) in this window were on the
    /// links between the switches that their stacks name, and on the last one, to the sink itself,
    /// where they arrived as `arrivals` has it, packet by packet.
    #[inline]
    pub fn record_links(&mut self, stacks: &[Option<&Stack>], arrivals: &[Option<Arrival>]) {
        let Some(links) = &mut self.links else { return };
        let known = |ns: u64| Some(ns).filter(|&ns| ns != u64::MAX);
        for (stack, arrival) in stacks.iter().zip(arrivals) {
            // Where a switch may not have pushed, neighbours in the stack may be none.
            let Some(stack) = stack.filter(|stack| !stack.is_partial) else { continue };
            for (from, to) in stack.hops().zip(stack.hops().skip(1)) {
                if let Some((sent, received)) = known(from.egress_ns).zip(known(to.ingress_ns)) {
                    links.add((from.node, sent), (to.node, received));
                }
            }
            let (Some(last), Some(own)) = (stack.hops().next_back(), self.setup.own) else {
                continue;
            };
            let arrived = arrival.and_then(Arrival::middle_ns);
            if let Some((sent, (received, error_ns))) = known(last.egress_ns).zip(arrived) {
                links.add((last.node, sent), (own, received));
                self.arrival_error_ns = self.arrival_error_ns.max(error_ns);
            }
        }
    }

    /// Notes by how much arrivals at the switch itself may be wrong, of packets of this window that
    /// it passes on.
    #[inline]
    pub fn note_arrivals(&mut self, error_ns: u64) {
        self.arrival_error_ns = self.arrival_error_ns.max(error_ns);
    }

    /// Notes by what means the switch knows what it has put into packets that may be of this
    /// window, or how long it had those of this window.
    #[inline]
    pub fn note_means(&mut self, means: Means) {
        self.means.add(means);
    }

    /// Records the latencies at the switch itself, in nanoseconds, of up to [`BURST`] packets that
    /// have been [recorded](Self::record) in this window, each with the word and the key of its
    /// flow; `u32::MAX` where one is not known.
    #[inline]
    pub fn record_owns(&mut self, packets: &[(u64, K, u32)], polled_ns: u64) {
        let at_us = self.since_start_us(polled_ns);
        self.sink.record_owns(self.setup.family.engine(), packets, at_us);
    }

    /// Records the latency at the switch itself of one of them; gives node and latency where that
    /// is inflated.
    pub fn record_own_noting(
        &mut self,
        word: u64,
        key: &K,
        latency: u32,
        polled_ns: u64,
    ) -> Option<(u32, u32)> {
        let (at_us, mut inflated) = (self.since_start_us(polled_ns), None);
        self.sink.record_own_for((word, key), latency, at_us, &mut inflated);
        inflated
    }

    /// Records the latencies at the switch itself, in nanoseconds, of packets that have been
    /// [recorded](Self::record) in this window; `u32::MAX` where one is not known.
    #[inline]
    pub fn record_own(&mut self, packets: &Leaving<'_, K>, latencies: &[u32]) {
        let at_us = self.since_start_us(packets.polled_ns);
        let mut computed = HashColumns::default();
        let hashes = hashes(&self.setup.family, packets, &mut computed);
        for (at, (key, &latency)) in packets.keys.iter().take(BURST).zip(latencies).enumerate() {
            self.sink.record_own(&hashes.of(at), key, latency, at_us);
        }
    }

    /// Records how many waited in the switch's own queue where so many packets came whose latencies
    /// at the switch itself have been [recorded](Self::record_owns) in this window.
    #[inline]
    pub fn record_own_queue(&mut self, queued: Queued, packets: u32) {
        if packets > 0 {
            self.sink.record_own_queue(queued.packets, packets);
            self.note_means(queued.known_by());
        }
    }

    /// Notes packets for hosts that nobody can say the window of.
    #[inline]
    pub fn note_unmarked(&mut self, packets: u64) {
        self.unmarked += packets;
    }

    /// Notes a packet that has been [recorded](Self::record) in this window: whether a switch did
    /// not push into it since it would have been too long, and since its stack may have no more
    /// hops.
    #[inline]
    pub fn note_exceeded(&mut self, (mtu, hops): (bool, bool)) {
        self.exceeded[0] += u64::from(mtu);
        self.exceeded[1] += u64::from(hops);
    }

    #[inline]
    fn since_start_us(&self, ns: u64) -> u32 {
        u32::try_from(ns.saturating_sub(self.start_ns) / 1000).unwrap_or(u32::MAX)
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let notes = self.notes.as_ref().map_or(0, |notes| notes.bytes());
        self.sink.bytes() + self.links.as_ref().map_or(0, Links::bytes) + notes
    }

    /// Gives [claims](SinkSetup::claims) to rows to the flows that have large ones in this window,
    /// and takes all others back. Takes memory.
    pub fn renew_claims(&self) {
        let SinkSetup { layout, claims, .. } = &*self.setup;
        claims.renew(self.sink.large_in_rows(layout.large_packets().into()));
    }

    /// What is sent of it by a switch whose hash key has this number, and that measures with so
    /// many lcores. Takes memory for all of it.
    pub fn frame(&self, hash_key: u64, lcores: usize) -> frames::Window {
        let Merged { totals, paths, nodes, rows, keys, inflated } = Merged::of(&self.sink);
        // Keys of both kinds have the same order.
        let rows = rows.into_iter().filter_map(|row| {
            let FlowRow { path, packets, is_exact, has_inflation, hops, own, quarters, .. } = row;
            let key = wide(&row.key)?;
            Some(FlowRow { key, path, packets, is_exact, has_inflation, hops, own, quarters })
        });
        let inflated = inflated.into_iter().filter_map(|of| {
            let Inflation { key, node, count, max_ns, last_us } = of;
            Some(Inflation { key: wide(&key)?, node, count, max_ns, last_us })
        });
        frames::Window {
            keys: K::KIND,
            hash_key,
            own: self.setup.own,
            memory: (self.bytes() * lcores.max(1)) as u64,
            totals,
            unmarked: self.unmarked,
            unclassified: 0,
            mtu_exceeded: self.exceeded[0],
            hops_exceeded: self.exceeded[1],
            paths,
            nodes,
            links: self.links.as_ref().map(Links::sums).unwrap_or_default(),
            links_full: self.links.as_ref().map_or(0, Links::refused),
            arrival_error_ns: self.arrival_error_ns,
            rows: rows.collect(),
            large: keys.iter().filter_map(wide).collect(),
            inflated: inflated.collect(),
            seen: Vec::new(),
            sizes: self.sink.sizes().clone(),
            pairs: self.sink.pairs().clone(),
            // An end host is no hop.
            means: self.setup.own.map(|_| self.means),
        }
    }
}

/// The packets' hashes, computed where they are not at hand.
#[inline]
fn hashes<'a, K: Key>(
    family: &HashFamily,
    packets: &Leaving<'a, K>,
    computed: &'a mut HashColumns,
) -> &'a HashColumns {
    match packets.hashes {
        Some(hashes) => hashes,
        None => {
            family.hash_columns(&packets.keys[..packets.keys.len().min(BURST)], computed);
            computed
        }
    }
}

impl<K, P> Record for SinkWindow<K, P>
where
    K: Key,
    P: Clone + PartialEq + Debug + Send + 'static,
{
    type Plan = P;

    fn begin(&mut self, plan: &P, epoch: u64) {
        self.plan = plan.clone();
        self.start_ns = self.setup.clock.start_of(epoch);
    }

    fn plan(&self) -> &P {
        &self.plan
    }

    /// Keeps a copy of the other's tables: what is exact depends on all of them. Takes memory,
    /// until the record is cleared.
    fn merge(&mut self, other: &Self) {
        self.sink.merge(&other.sink);
        if let Some((mine, theirs)) = self.links.as_mut().zip(other.links.as_ref()) {
            mine.merge(theirs);
        }
        self.arrival_error_ns = self.arrival_error_ns.max(other.arrival_error_ns);
        self.means.add(other.means);
        self.unmarked += other.unmarked;
        for (mine, theirs) in self.exceeded.iter_mut().zip(other.exceeded) {
            *mine += theirs;
        }
    }

    fn clear(&mut self) {
        self.sink.clear();
        self.links.iter_mut().for_each(Links::clear);
        self.notes.iter_mut().for_each(|notes| notes.clear());
        (self.unmarked, self.exceeded, self.arrival_error_ns) = (0, [0; 2], 0);
        self.means = Means::default();
    }
}

fn wide<K: Key>(key: &K) -> Option<WideKey> {
    let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
    WideKey::new(src, dst, sport, dport, key.protocol())
}
