//! Packets that are too long for their next link only since they carry an INT stack.

use super::decide::{Decider, Decisions, Refusal, Verdict};
use crate::packet::Packet;
use crate::worker::Worker;

/// What packets lose where they leave the network, beyond which they may be too long for the port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost<'a> {
    bytes: u16,
    /// By port, whether a host with a sink of its own is behind it, for which they keep it.
    kept: &'a [bool],
}

impl Lost<'_> {
    /// How many bytes, where they leave by this port.
    #[inline]
    pub(super) fn by(&self, port: u16) -> u16 {
        if self.kept.get(usize::from(port)) == Some(&true) { 0 } else { self.bytes }
    }
}

/// Decides once more upon packets of a burst that are too long for their next link: none is dropped
/// for its INT stack. Those that leave the network here keep it until it is read; out of others it
/// is taken. `sinks` says by port whether a host with a sink of its own is behind it.
#[cold]
pub(super) fn shorten<P: Packet>(
    worker: &mut Worker,
    (decider, sinks): (&Decider<'_>, &[bool]),
    packets: &mut [P],
    decisions: &mut Decisions,
) {
    let Decisions { routed, verdicts, flows, .. } = decisions;
    let too_big = |verdict: &Verdict| matches!(verdict, Verdict::Refuse(_, Refusal::TooBig(_)));
    let refused = (0..packets.len()).filter(|at| routed.all() >> at & 1 == 0);
    let mut long = refused.filter(|&at| too_big(&verdicts[at])).fold(0, |long, at| long | 1 << at);
    if long == 0 {
        return;
    }
    let (mut one, mut changed) = (Decisions::new(), 0);
    let mut again = |decider: &Decider<'_>, packets: &mut [P], at: usize| {
        decider.decide(&mut packets[at..=at], &mut one);
        routed.to_fabric |= (one.routed.to_fabric & 1) << at;
        routed.to_host |= (one.routed.to_host & 1) << at;
        (routed.ports[at], verdicts[at]) = (one.routed.ports[0], one.verdicts[0]);
        one.routed.all() & 1 == 1 || !too_big(&verdicts[at])
    };
    for at in (0..packets.len()).filter(|at| long >> at & 1 == 1) {
        let bytes = worker.lost_by_leaving(&packets[at]);
        let decider = Decider { lost: Lost { bytes, kept: sinks }, ..*decider };
        changed |= u32::from(bytes > 0 && again(&decider, packets, at)) << at;
    }
    long &= !changed;
    let taken = if long == 0 { 0 } else { worker.take_out(packets, long).taken };
    for at in (0..packets.len()).filter(|at| taken >> at & 1 == 1) {
        again(decider, packets, at);
    }
    flows.forget(changed | taken);
    flows.lower(routed.all());
}
