//! Probes among the packets of a burst: see [`crate::probe`].

use calumma_sketch::{Key, either};

use super::marks::Marks;
use super::masks::{DropMask, first, positions};
use super::{Path, Worker};
use crate::carrier::{Detached, Mark};
use crate::counters::Counters;
use crate::flows::Flows;
use crate::packet::Packet;
use crate::parse::ether_type;
use crate::probe::{LcoreProbes, payload_of};

impl Worker {
    /// Marks probes of this switch's own that enter the network, and records nothing. One that does
    /// not, or can't be marked, is dropped.
    #[cold]
    pub(super) fn pass_probes<P: Packet>(
        &mut self,
        path: Path,
        packets: &mut [P],
        of: u32,
        mark: Mark,
    ) -> DropMask {
        let Self { policy, measurement, numbers, counters, .. } = self;
        let active = measurement.active().filter(|_| path == Path::Enter);
        let active =
            active.map(|active| either!(&*active, active => (&active.signer, active.fabric_mtu())));
        let (signer, fabric_mtu) = active.unzip();
        let fabric_mtu = fabric_mtu.unwrap_or(u16::MAX);
        let mut drops = DropMask::default();
        for at in positions(of) {
            let Some(packet) = packets.get_mut(at) else { break };
            let ip_offset = ether_type(packet.bytes()).map_or(usize::MAX, |(_, offset)| offset);
            let carrier = policy.carrier;
            let marks = Marks::of_own(carrier, (signer, fabric_mtu), numbers);
            if signer.is_some() && marks.write_one(packet, ip_offset, mark) {
                counters.probe_sent += 1;
            } else {
                drops.0 |= 1 << at;
                counters.probe_unsent += 1;
            }
        }
        drops
    }

    /// Counts a probe of this switch's own that finds no way.
    pub fn drop_probe(&mut self) {
        self.counters.probe_unsent += 1;
    }
}

/// Takes the probes out of what has come from the fabric: `maybe` has a bit for the position of
/// each packet that may be one. Those that pass to the fabric stay, unrecorded. Gives those that
/// are to be dropped.
#[cold]
pub(super) fn take<K: Key, P: Packet>(
    (probes, marks, detached): (&LcoreProbes, Marks<'_>, Option<&Detached>),
    path: Path,
    counters: &mut Counters,
    packets: &[P],
    (flows, maybe): (&mut Flows<K>, u32),
) -> u32 {
    let (mut keep, mut drops) = (first(flows.len()), 0);
    for (number, &(at, ip_offset)) in flows.places().iter().enumerate() {
        let (at, ip_offset) = (usize::from(at), usize::from(ip_offset));
        let Some(packet) = packets.get(at).filter(|_| maybe >> at & 1 == 1) else { continue };
        let payload = payload_of(packet.bytes(), ip_offset);
        let Some(read) = payload.and_then(|payload| probes.read(payload)) else { continue };
        keep &= !(1 << number);
        if path == Path::Transit {
            continue;
        }
        drops |= 1 << at;
        let Some(probe) = read else {
            counters.probe_unread += 1;
            continue;
        };
        counters.probe_received += 1;
        if let Some(ip) = packet.bytes().get(ip_offset..) {
            probes.saw(probe, marks.read_one(detached, packets, (at, ip_offset)), ip);
        }
    }
    flows.retain(keep);
    drops
}
