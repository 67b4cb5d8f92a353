//! CFS on an lcore: which window a packet belongs to.

use std::sync::Arc;

use calumma_plane::parse::detail::IpFields;
use calumma_plane::slots::AnySlots;
use calumma_plane::system::LcoreSystem;
use calumma_plane::{Counters, Flows, MarkedRun, Recorded, Run, Slots};
use calumma_sketch::burst::ones;
use calumma_sketch::grade::Claims;
use calumma_sketch::{BURST, HashFamily, Key};

use super::notices::Noticing;
use super::record::{Common, Entering, Packets, Plan, Window};
use crate::frames::{Entry, Hop};

/// CFS's half on an lcore.
///
/// All packets of a window are in one table, recorded by the timestamp bit that they carry; those
/// that enter by the one that they are stamped with.
#[derive(Debug)]
pub(super) struct OnLcore<K: Key> {
    common: Arc<Common>,
    slots: Slots<Entering, Window<K>>,
    /// Those of the last window that packets were recorded in and that claims flows.
    claims: Claims,
    noticing: Noticing,
    /// Whether flows have their hashes with them.
    shared: bool,
}

impl<K: Key> OnLcore<K> {
    /// No records yet; `plan` holds from `first_epoch` on.
    pub(super) fn new(
        common: Arc<Common>,
        first_epoch: u64,
        plan: Plan,
        noticing: Noticing,
    ) -> Self {
        let slots = Slots::new(first_epoch, common.setup.window_epochs.into(), plan);
        Self { common, slots, claims: Claims::default(), noticing, shared: false }
    }

    /// Records the packets of a side that have marks. Those whose window is over are late. Gives a
    /// bit for each packet that goes on claimed.
    #[inline]
    fn record(&mut self, flows: &Flows<K>, side: u8) -> u32 {
        let (polled_ns, port, single) = (flows.polled_ns(), flows.port(), flows.are_local());
        let goes_on = side != Entry::LEFT && !single;
        let Self { common, slots, claims, noticing, shared } = self;
        let mut claimed_out = flows.claimed();
        flows.by_bit(|of| {
            let packets = of.keys.len() as u64;
            let hashes = of.hashes.filter(|_| *shared);
            let Some(window) = window(slots, claims, of.bit) else {
                // What enters when no window runs is nobody's.
                if side != Entry::ENTERED {
                    slots.late(of.bit, packets);
                }
                return;
            };
            let all = flows.ip();
            let is_all = of.keys.len() == all.len();
            let mut some = [IpFields::default(); BURST];
            let ip = if is_all {
                all
            } else {
                let which = ones(of.which).filter_map(|at| all.get(at));
                some.iter_mut().zip(which).for_each(|(some, fields)| *some = *fields);
                &some[..of.keys.len()]
            };
            let came = flows.claimed() & of.which;
            let claimed = if is_all || came == 0 { came } else { gathered(came, of.which) };
            let keys = of.keys;
            let packets_of = Packets { keys, hashes, ip, polled_ns, port, side, single, claimed };
            let out = window.group.record(common, &packets_of, noticing);
            window.packets += packets;
            if goes_on {
                window.group.share.sums.claimed_out += u64::from(out.count_ones());
                let out = if is_all { out } else { spread(out, of.which) };
                claimed_out = claimed_out & !of.which | out;
            }
        });
        claimed_out
    }

    /// The same, where packets may also have no marks, or old ones.
    #[inline]
    fn record_marked(&mut self, flows: &Flows<K>, side: u8) -> u32 {
        let claimed = self.record(flows, side);
        for (at, _) in flows.stale() {
            self.slots.outdated(flows.mark(at).bit, 1);
        }
        self.note_unmarked(flows.unmarked().into());
        claimed
    }

    /// Notes packets that nobody can say the window of: each may be of any window that is open.
    /// Around a boundary these are two.
    #[inline]
    fn note_unmarked(&mut self, packets: u64) {
        if packets == 0 {
            return;
        }
        for (nth, Recorded { group, .. }) in self.slots.open().enumerate() {
            group.share.sums.unmarked += packets;
            if nth > 0 {
                group.share.sums.unmarked_again += packets;
            }
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

    fn has_claims(&self) -> bool {
        self.common.setup.claim
    }

    fn marks_hops(&self) -> Option<u8> {
        match self.common.setup.hop {
            Hop::Mark { length } => Some(length),
            Hop::Ttl(_) | Hop::Port(_) | Hop::None => None,
        }
    }

    fn hashes_by(&self) -> Option<&HashFamily> {
        Some(&self.common.family)
    }

    fn share_hashes(&mut self, shared: bool) {
        self.shared = shared;
    }

    #[inline]
    fn enter(&mut self, flows: &mut Flows<K>, _counters: &mut Counters) {
        // What has waited here for its next hop was recorded when it came.
        if !flows.were_recorded() {
            let claimed = self.record(flows, Entry::ENTERED);
            flows.set_claimed(claimed);
        }
    }

    #[inline]
    fn transit(&mut self, flows: &mut Flows<K>, _counters: &mut Counters) {
        let claimed = self.record_marked(flows, Entry::PASSED);
        flows.set_claimed(claimed);
    }

    /// Packets from host to host were recorded as they entered; those that have waited here for a
    /// next hop in the network, and go to a host since routes have changed, as they came.
    #[inline]
    fn leave(&mut self, flows: &Flows<K>, _counters: &mut Counters) {
        if !flows.are_local() && !flows.were_recorded() {
            self.record_marked(flows, Entry::LEFT);
        }
    }

    /// Packets of a run have no headers to be read: they are not recorded, and that is counted.
    fn enter_run(&mut self, _key: &K, packets: u32, _counters: &mut Counters) -> Run {
        // They are stamped with the epoch that runs.
        if let Some(Recorded { group, .. }) = self.slots.current() {
            group.share.sums.unmarked += u64::from(packets);
        }
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, _key: &K, marked: &MarkedRun, _counters: &mut Counters) {
        self.note_unmarked(marked.run.packets().into());
    }
}

/// The window of packets that carry `bit`. With its first packet it begins.
#[inline]
fn window<'a, K: Key>(
    slots: &'a mut Slots<Entering, Window<K>>,
    claims: &mut Claims,
    bit: usize,
) -> Option<&'a mut Recorded<Window<K>>> {
    if slots.by_bit(bit)?.group.share.claims.is_none() {
        begin(slots, claims, bit);
    }
    slots.by_bit(bit)
}

/// Lets a window begin with the claims that follow from the one before, which is open still if
/// packets came in it lately: they are the same for all of the window's packets.
#[cold]
fn begin<K: Key>(slots: &mut Slots<Entering, Window<K>>, claims: &mut Claims, bit: usize) {
    let before = slots.by_bit(bit ^ 1).filter(|before| before.group.share.claims.is_some());
    let worst = before.map(|before| before.group.worst());
    let Some(window) = slots.by_bit(bit) else { return };
    if window.group.claim
        && let Some(worst) = worst
    {
        *claims = claims.next(worst);
    }
    window.group.share.claims = Some(if window.group.claim { *claims } else { Claims::NONE });
}

/// Those of the bits that `which` names, side by side.
fn gathered(bits: u32, which: u32) -> u32 {
    ones(which).enumerate().fold(0, |all, (at, from)| all | (bits >> from & 1) << at)
}

/// The opposite.
fn spread(bits: u32, which: u32) -> u32 {
    ones(which).enumerate().fold(0, |all, (at, to)| all | (bits >> at & 1) << to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_gathered_spreads_again(bits: u32, which: u32) {
            let gathered = gathered(bits, which);
            prop_assert_eq!(u64::from(gathered) >> which.count_ones(), 0);
            prop_assert_eq!(spread(gathered, which), bits & which);
            prop_assert_eq!(gathered.count_ones(), (bits & which).count_ones());
        }
    }
}
