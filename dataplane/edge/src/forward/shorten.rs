//! Packets that are too long for their next link only since they carry an INT stack.

use super::decide::{Decider, Decisions, Refusal, Routed, Verdict};
use crate::packet::Packet;
use crate::worker::Worker;

impl Routed {
    /// A bit for each packet that has its new headers.
    #[inline]
    pub(super) fn all(&self) -> u32 {
        self.to_fabric | self.to_host
    }
}

/// Takes the INT stacks out of packets of a burst that are too long for their next link, and
/// decides upon these once more: none is dropped for its stack.
#[cold]
pub(super) fn shorten<P: Packet>(
    worker: &mut Worker,
    decider: &Decider<'_>,
    packets: &mut [P],
    decisions: &mut Decisions,
) {
    let Decisions { routed, verdicts, flows, .. } = decisions;
    let too_big = |at: usize| matches!(verdicts[at], Verdict::Refuse(_, Refusal::TooBig(_)));
    let refused = (0..packets.len()).filter(|at| routed.all() >> at & 1 == 0);
    let long = refused.filter(|at| too_big(*at)).fold(0, |long, at| long | 1 << at);
    if long == 0 {
        return;
    }
    let taken = worker.take_out(packets, long).taken;
    for at in (0..packets.len()).filter(|at| taken >> at & 1 == 1) {
        let mut one = Decisions::new();
        decider.decide(&mut packets[at..=at], &mut one);
        routed.to_fabric |= (one.routed.to_fabric & 1) << at;
        routed.to_host |= (one.routed.to_host & 1) << at;
        (routed.ports[at], verdicts[at]) = (one.routed.ports[0], one.verdicts[0]);
    }
    flows.forget(taken);
    flows.lower(routed.all());
}
