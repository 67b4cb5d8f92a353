//! Packets from the fabric that a router does not send on, or not at once: what is recorded of
//! them, and whether they keep their marks. Not those that pass to a port without being routed.
//!
//! What is for the switch itself, or for a host whose Ethernet address is not known, leaves the
//! network here; what goes no further has come as far as this. A packet that waits for a next hop
//! in the network is on its way: it passes, with its mark, as it would if it did not wait.

use calumma_sketch::burst::ones;
use dpdk::Mbuf;

use super::counters::Reason;
use super::decide::{Task, Verdict};
use super::exchange::Origin;
use super::routed::Routed;
use super::tables::{OutInterface, Tables};
use crate::config::Role;
use crate::parse::PlainFlows;
use crate::worker::{DropMask, Path, Worker};

/// Packets of a burst from the fabric that are not routed on; in each set bit i stands for the
/// burst's i-th.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unrouted {
    /// The slow path gets them: they are for the switch itself, or wait for a next hop.
    handed: u32,
    /// Those of them that wait for a next hop in the network.
    passing: u32,
    /// Those of them that wait for a host with a sink of its own.
    kept: u32,
    /// They go no further.
    lost: u32,
    /// A host may get them quoted in an error.
    exposed: u32,
}

impl Unrouted {
    /// Those of a burst of this origin that `of` has a bit for, which have these verdicts.
    /// `is_sink` says of an interface whether hosts behind it have sinks of their own.
    pub(super) fn of(
        tables: &Tables,
        origin: Origin,
        (verdicts, of): (&[Verdict], u32),
        is_sink: impl Fn(&OutInterface) -> bool,
    ) -> Self {
        let mut these = Self::default();
        if !origin.may_be_marked() {
            return these;
        }
        for (at, verdict) in ones(of).filter_map(|at| Some((at, verdicts.get(at)?))) {
            let bit = 1 << at;
            match verdict {
                Verdict::HandOver(_, Task::Link) => {}
                Verdict::HandOver(_, task) => {
                    these.handed |= bit;
                    let Task::Resolve(on, _) = task else { continue };
                    let Some(on) = tables.interface(*on) else { continue };
                    // What has left goes on as what enters.
                    if on.role == Role::Fabric && origin != Origin::Kept {
                        these.passing |= bit;
                    } else if is_sink(on) {
                        these.kept |= bit;
                    }
                }
                Verdict::Refuse(..) => {
                    these.lost |= bit;
                    these.exposed |= bit;
                }
                Verdict::Drop(Reason::Discard) => these.lost |= bit,
                // Those that pass are measured as if they were routed.
                Verdict::Pass(_) | Verdict::Drop(_) => {}
            }
        }
        these
    }

    /// Records those that were not recorded when they came, and takes out what they must not wait
    /// with. Gives those that are dropped for it.
    pub(super) fn record(
        &self,
        worker: &mut Worker,
        origin: Origin,
        packets: &mut [Mbuf],
        flows: &PlainFlows,
    ) -> DropMask {
        let Self { handed, passing, kept, lost, exposed } = *self;
        let leaving = handed & !passing & !kept;
        match origin {
            Origin::Fabric => {
                // What waits for a host with a sink of its own leaves here as well.
                let ways =
                    [(Path::HandOn, kept), (Path::Leave, leaving), (Path::Transit, lost | passing)];
                let drops = pass(worker, ways, packets, flows);
                let left = if worker.strips() { 0 } else { leaving };
                // What can't be taken out is neither sent to a host nor quoted to one.
                let stacked = exposed | kept | passing | left;
                if stacked == 0 {
                    return drops;
                }
                let of = worker.take_out(packets, stacked);
                DropMask(drops.0 | worker.drop_unstripped(&of))
            }
            Origin::Passing(since) => {
                let of = (passing | kept | leaving, since);
                let outdated = drop_outdated(worker, of, packets, flows);
                let ways = [(Path::HandOn, kept & !outdated), (Path::Leave, leaving & !outdated)];
                DropMask(outdated | pass(worker, ways, packets, flows).0)
            }
            Origin::Kept => pass(worker, [(Path::Unmark, leaving)], packets, flows),
            Origin::Host | Origin::Left | Origin::Own => DropMask::default(),
        }
    }

    /// Where the packet at this position, which was of the burst's origin, is on its way once it is
    /// handed over; `newest` is the newest epoch that packets may carry.
    pub(super) fn origin_of(&self, at: usize, origin: Origin, newest: u64) -> Origin {
        let is_in = |set: u32| set >> at & 1 == 1;
        if is_in(self.passing) {
            match origin {
                Origin::Passing(since) => Origin::Passing(since),
                _ => Origin::Passing(newest),
            }
        } else if is_in(self.kept) {
            Origin::Kept
        } else if is_in(self.handed) {
            Origin::Left
        } else {
            origin
        }
    }
}

/// Records packets that are routed on after they have waited, as far as they were not when they
/// came. Those that `to_sink` has a bit for go to hosts with sinks of their own.
#[cold]
pub(super) fn measure_again(
    worker: &mut Worker,
    origin: Origin,
    (routed, to_sink): (&Routed, u32),
    flows: &PlainFlows,
    packets: &mut [Mbuf],
) -> DropMask {
    let Routed { to_fabric, to_host, .. } = *routed;
    let to_plain = to_host & !to_sink;
    match origin {
        // To the fabric it goes as it is. To a host only where routes have changed since.
        Origin::Passing(since) => {
            let outdated = drop_outdated(worker, (to_fabric | to_host, since), packets, flows);
            let ways = [(Path::HandOn, to_sink & !outdated), (Path::Leave, to_plain & !outdated)];
            DropMask(outdated | pass(worker, ways, packets, flows).0)
        }
        // To another than the host that it waited for only where routes have.
        Origin::Kept => {
            let ways = [(Path::Unmark, to_fabric | to_plain), (Path::Enter, to_fabric)];
            pass(worker, ways, packets, flows)
        }
        _ => pass(worker, [(Path::Enter, to_fabric)], packets, flows),
    }
}

/// Of packets that have passed and waited since an epoch was the newest one, those that `of` has a
/// bit for: drops what has a mark by now that means another epoch, so that it is in none, and the
/// loss that its own epoch's report has is one.
fn drop_outdated(
    worker: &mut Worker,
    (of, since): (u32, u64),
    packets: &mut [Mbuf],
    flows: &PlainFlows,
) -> u32 {
    let outdated = pass(worker, [(Path::Resume(since), of)], packets, flows).0;
    for _ in ones(outdated) {
        worker.counters.routed.drop_for(Reason::MarkOutdated);
    }
    outdated
}

/// Lets packets go these ways, those that each has a bit for. Gives those that are dropped for it.
fn pass(
    worker: &mut Worker,
    ways: impl IntoIterator<Item = (Path, u32)>,
    packets: &mut [Mbuf],
    flows: &PlainFlows,
) -> DropMask {
    let ways = ways.into_iter().filter(|(_, of)| *of != 0);
    DropMask(ways.fold(0, |drops, (path, of)| drops | worker.pass(path, packets, of, flows).0))
}
