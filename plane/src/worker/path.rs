//! The ways that packets go by a switch, and those of them that end hosts' own sinks are on.

use calumma_sketch::{Key, either};

use super::Worker;
use super::marks::Marks;
use super::masks::{DropMask, first, positions};
use crate::carrier::{Detached, Mark};
use crate::flows::Flows;
use crate::int::header::ip_offset;
use crate::mark::Hierarchy;
use crate::packet::Packet;
use crate::parse::PlainFlows;

/// Where packets come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// From a host to the fabric.
    Enter,
    /// From fabric to fabric.
    Transit,
    /// From the fabric to a host.
    Leave,
    /// The same to a station that is behind another edge: marks are taken out, nothing is recorded.
    Flooded,
    /// From host to host on the same switch.
    Cross,
    /// From the fabric to a host with a sink of its own: packets keep marks and INT stacks.
    HandOn,
    /// From a host to another one on the same switch that has a sink of its own: packets get marks
    /// and INT stacks as if they went to the fabric.
    CrossOn,
    /// From the fabric, kept with their marks after they were recorded, and going on without:
    /// marks are taken out, nothing is recorded or counted.
    Unmark,
    /// From fabric to fabric, after it has [passed](Self::Transit) and waited since the epoch that
    /// was the newest one then: nothing is recorded or changed again, and what has a mark by now
    /// that means another epoch is to be dropped.
    Resume(u64),
}

impl Path {
    /// Whether packets may have marks and stacks when they come.
    #[inline]
    pub(super) fn is_from_fabric(self) -> bool {
        !matches!(self, Self::Enter | Self::Cross | Self::CrossOn)
    }

    /// Whether packets go on with their stacks, on a switch that takes them out for hosts or not.
    #[inline]
    pub(super) fn goes_on(self, strips: bool) -> bool {
        (matches!(self, Self::Transit | Self::HandOn) || !strips)
            && !matches!(self, Self::Resume(_))
    }

    /// Whether it is counted here what can't be measured: what passes, its edges count and treat.
    #[inline]
    pub(super) fn is_counted(self) -> bool {
        !matches!(self, Self::Transit | Self::Unmark | Self::Resume(_))
    }

    /// Whether probes of other edges may come, which were not noticed before.
    #[inline]
    pub(super) fn meets_probes(self) -> bool {
        self.is_from_fabric() && !matches!(self, Self::Resume(_))
    }
}

/// Packets that have waited since the first of these epochs was the newest one go on as they are;
/// `None` while nothing is measured. A bit for each whose mark means another epoch now that the
/// second one is.
pub(super) fn resume<K: Key, P: Packet>(
    mut marks: Marks<'_>,
    epochs: Option<(u64, u64)>,
    detached: Option<Detached>,
    packets: &mut [P],
    flows: &mut Flows<K>,
) -> u32 {
    marks.read(detached.as_ref(), packets, flows);
    let outdated = epochs.map_or(0, |(since, newest)| {
        flows.date(newest);
        flows.outdated(since)
    });
    marks.raises = false;
    let claimed = flows.claimed();
    marks.pass_on(detached, packets, flows, claimed);
    outdated
}

impl Worker {
    /// The newest epoch that packets may carry; 0 while nothing is measured.
    pub fn newest_epoch(&mut self) -> u64 {
        self.measurement.active().map_or(0, |active| either!(active, active => active.newest))
    }

    /// Packets received from the fabric for a host with a sink of its own: begins a burst, and
    /// [records](Self::pass) all of it.
    ///
    /// # Panics
    /// When there are more than [`BURST`](calumma_sketch::BURST).
    pub fn hand_on<P: Packet>(&mut self, packets: &mut [P]) -> DropMask {
        self.counters.fabric_received += packets.len() as u64;
        self.begin();
        self.pass(Path::HandOn, packets, first(packets.len()), &PlainFlows::NONE)
    }

    /// Packets that an end host sends by its own sink: begins a burst, and leaves them as they are.
    /// They enter the network at an edge.
    pub fn pass_by(&mut self, packets: usize) {
        self.counters.host_received += packets as u64;
        self.begin();
    }

    /// Marks packets that the switch has made for a host with a sink of its own with the epoch
    /// under way, so that the sink counts them in it. Records nothing. `of` has a bit for each.
    #[cold]
    pub fn stamp<P: Packet>(&mut self, packets: &mut [P], of: u32) {
        let Self { policy, measurement, numbers, .. } = self;
        let carrier = policy.carrier;
        let Some(active) = measurement.active() else { return };
        let (epoch, signer, fabric_mtu) =
            either!(&*active, active => (active.epoch, &active.signer, active.fabric_mtu()));
        let marks = Marks::of_own(carrier, (Some(signer), fabric_mtu), numbers);
        let mark = Mark::of_epoch(epoch, Hierarchy::NonSampledLl);
        for at in positions(of) {
            let Some(packet) = packets.get_mut(at) else { break };
            if let Some(ip_offset) = ip_offset(packet.bytes(), carrier) {
                marks.write_one(packet, ip_offset, mark);
            }
        }
    }
}
