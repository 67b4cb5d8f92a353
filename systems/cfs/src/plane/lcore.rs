//! CFS on an lcore: which window a packet belongs to.

use std::sync::Arc;

use calumma_plane::parse::detail::IpFields;
use calumma_plane::slots::{AnySlots, CountOnly};
use calumma_plane::system::LcoreSystem;
use calumma_plane::{Counters, Flows, MarkedRun, Recorded, Run, Slots};
use calumma_sketch::grade::Claims;
use calumma_sketch::{BURST, HashFamily, Key};

use super::record::{Common, Packets, Window};
use crate::frames::Entry;

/// CFS's half on an lcore.
///
/// All packets of a window are in one table, recorded by the timestamp bit that they carry; those
/// that enter by the one that they are stamped with.
#[derive(Debug)]
pub(super) struct OnLcore<K: Key> {
    common: Arc<Common>,
    slots: Slots<CountOnly, Window<K>>,
    /// Those of the last window that packets were recorded in.
    claims: Claims,
    /// Whether flows have their hashes with them.
    shared: bool,
}

impl<K: Key> OnLcore<K> {
    /// No records yet.
    pub(super) fn new(common: Arc<Common>, first_epoch: u64) -> Self {
        let slots = Slots::new(first_epoch, common.setup.window_epochs.into(), ());
        let claims = if common.setup.claim { Claims::default() } else { Claims::NONE };
        Self { common, slots, claims, shared: false }
    }

    /// The window of packets that carry `bit`. With its first packet the claims of the window
    /// before, which is open still if packets came in it lately, become its own: they are the same
    /// for all its packets.
    #[inline]
    fn window(&mut self, bit: usize) -> Option<&mut Recorded<Window<K>>> {
        if self.slots.by_bit(bit)?.group.share.claims.is_none() {
            self.begin(bit);
        }
        self.slots.by_bit(bit)
    }

    #[cold]
    fn begin(&mut self, bit: usize) {
        if self.common.setup.claim
            && let Some(before) = self.slots.by_bit(bit ^ 1)
            && let Some(claims) = before.group.share.claims
        {
            self.claims = claims.next(before.group.worst());
        }
        if let Some(window) = self.slots.by_bit(bit) {
            window.group.share.claims = Some(self.claims);
        }
    }

    /// Records the packets of a side that have marks. Those whose window is over are late.
    #[inline]
    fn record(&mut self, flows: &Flows<K>, side: u8) {
        let (polled_ns, single) = (flows.polled_ns(), flows.are_local());
        flows.by_bit(|of| {
            let packets = of.keys.len() as u64;
            let hashes = of.hashes.filter(|_| self.shared);
            let Some(window) = self.window(of.bit) else {
                // What enters when no window runs is nobody's.
                if side != Entry::ENTERED {
                    self.slots.late(of.bit, packets);
                }
                return;
            };
            let all = flows.ip();
            let mut some = [IpFields::default(); BURST];
            let ip = if of.keys.len() == all.len() {
                all
            } else {
                let which = (0..all.len()).filter(|at| of.which >> at & 1 == 1);
                some.iter_mut().zip(which).for_each(|(some, at)| *some = all[at]);
                &some[..of.keys.len()]
            };
            window.group.record(&Packets { keys: of.keys, hashes, ip, polled_ns, side, single });
            window.packets += packets;
        });
    }

    #[inline]
    fn record_marked(&mut self, flows: &Flows<K>, side: u8) {
        self.record(flows, side);
        for (at, _) in flows.stale() {
            self.slots.outdated(flows.mark(at).bit, 1);
        }
        self.note_unmarked(flows.unmarked().into());
    }

    /// Notes packets that nobody can say the window of.
    #[inline]
    fn note_unmarked(&mut self, packets: u64) {
        if packets > 0
            && let Some(window) = self.slots.current()
        {
            window.group.share.sums.unmarked += packets;
        }
    }
}

impl<K: Key> LcoreSystem<K> for OnLcore<K> {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.slots
    }

    fn wants_transit(&self) -> bool {
        true
    }

    fn wants_ip(&self) -> bool {
        true
    }

    fn hashes_by(&self) -> Option<&HashFamily> {
        Some(&self.common.family)
    }

    fn share_hashes(&mut self, shared: bool) {
        self.shared = shared;
    }

    #[inline]
    fn enter(&mut self, flows: &mut Flows<K>, _counters: &mut Counters) {
        self.record(flows, Entry::ENTERED);
    }

    #[inline]
    fn transit(&mut self, flows: &Flows<K>, _counters: &mut Counters) {
        self.record_marked(flows, Entry::PASSED);
    }

    /// Packets from host to host were recorded as they entered.
    #[inline]
    fn leave(&mut self, flows: &Flows<K>, _counters: &mut Counters) {
        if !flows.are_local() {
            self.record_marked(flows, Entry::LEFT);
        }
    }

    /// Packets of a run have no headers to be read: they are not recorded, and that is counted.
    fn enter_run(&mut self, _key: &K, packets: u32, _counters: &mut Counters) -> Run {
        self.note_unmarked(packets.into());
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, _key: &K, marked: &MarkedRun, _counters: &mut Counters) {
        self.note_unmarked(marked.run.packets().into());
    }
}
