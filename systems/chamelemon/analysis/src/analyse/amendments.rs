//! What an epoch shows of the losses of others.
//!
//! A packet says only whether its epoch is even or odd. One that is late by more than the guards
//! and an epoch is counted where it arrives, in a later epoch with its timestamp bit: a loss in the
//! one that it belongs to, and one too many in the other. One whose timestamp bit was changed on
//! its way is counted in the epoch before or after. So a flow that has too many packets in an epoch
//! makes what it lost in those around it uncertain.
//!
//! How uncertain? In the epoch where they arrive, late packets make up for others of the same flow
//! that were lost there. What is too many is therefore no bound for what was late, and nothing that
//! the flow is said to have lost before is certain any more: an amendment leaves 0 as the least.
//! Where late packets make up for as many lost ones or more, there is nothing too many and nothing
//! to be seen; nor is there in an epoch that is incomplete.
//!
//! Packets that no sketch holds ([`strays`](super::strays)) are in no balance, so these do bound
//! what they may explain: old ones, whose mark says which epoch they are of, were late in that one,
//! exactly as many. Misfits make their flow's losses in the epoch before uncertain, since they may
//! have left after its end.

use std::collections::{HashMap, HashSet, VecDeque};

use super::strays::EpochStrays;
use crate::report::{Amendment, Change, EpochReport, Flow, Rewritten};

/// Epochs by which a packet may be late and yet be seen to be: 400 ms at the default length.
const MOST_LATE: u64 = 8;

/// An epoch that has been reported.
#[derive(Debug)]
struct Past {
    epoch: u64,
    /// Flows that are said to have lost packets, as far as that is certain, and how many.
    losses: HashMap<Flow, u64>,
    /// Flows that had packets too many.
    excess: HashSet<Flow>,
    /// Late packets that are among them, which may have been early for the next epoch with the
    /// same timestamp bit.
    early: HashMap<Flow, u64>,
}

/// What is known of packets that were late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Exactly(u64),
    AtMost(u64),
}

impl Past {
    /// Says of a flow that packets which it is said to have lost were late.
    fn amend(&mut self, flow: Flow, known: Known, why: &str) -> Option<Amendment> {
        let was = *self.losses.get(&flow)?;
        let (Known::Exactly(packets) | Known::AtMost(packets)) = known;
        let packets = packets.min(was);
        let lost = was - packets;
        if lost == 0 {
            self.losses.remove(&flow);
        } else {
            self.losses.insert(flow, lost);
        }
        let (late, at_most_late) = match known {
            Known::Exactly(late) if late <= was => (Some(packets), None),
            // Copies had made up for some of them.
            Known::Exactly(_) | Known::AtMost(_) => (None, Some(packets)),
        };
        let (epoch, why) = (self.epoch, why.to_owned());
        Some(Amendment { epoch, flow, was, lost, late, at_most_late, why })
    }

    /// Says of all flows that so many packets of any of them may not have been lost.
    fn amend_all(&mut self, packets: u64, why: &str) -> Vec<Amendment> {
        if packets == 0 {
            return Vec::new();
        }
        let flows: Vec<Flow> = self.losses.keys().copied().collect();
        let amend = |flow| self.amend(flow, Known::AtMost(packets), why);
        flows.into_iter().filter_map(amend).collect()
    }
}

/// Remembers the latest epochs for as long as others may show something of them.
#[derive(Debug, Default)]
pub(super) struct Amendments(VecDeque<Past>);

impl Amendments {
    /// Completes a report by what it shows of earlier ones, and they of it; `excess` has the flows
    /// of which more packets left than entered. Epochs must come in order.
    pub(super) fn complete(
        &mut self,
        report: &mut EpochReport,
        excess: HashSet<Flow>,
        strays: &EpochStrays,
    ) {
        let epoch = report.epoch;
        self.0.retain(|past| past.epoch < epoch && past.epoch + MOST_LATE >= epoch);
        report.amendments = self.shown(epoch, &excess, strays);
        report.amendments.sort_by_key(|amendment| (amendment.epoch, amendment.flow));
        self.take_back(report);
        let certain = report.loss.iter().filter(|loss| !loss.partial);
        let losses: HashMap<Flow, u64> = certain.map(|loss| (loss.flow, loss.lost)).collect();
        let early: HashMap<Flow, u64> = report
            .surplus
            .iter()
            .filter_map(|surplus| {
                let late = strays.late.get(&surplus.flow)?;
                Some((surplus.flow, (late.heavy + late.light).min(surplus.packets)))
            })
            .collect();
        if !losses.is_empty() || !excess.is_empty() {
            self.0.push_back(Past { epoch, losses, excess, early });
        }
    }

    /// What an epoch shows of those before.
    fn shown(
        &mut self,
        epoch: u64,
        excess: &HashSet<Flow>,
        strays: &EpochStrays,
    ) -> Vec<Amendment> {
        let too_many = format!(
            "more packets of this flow left in epoch {epoch} than entered: they may be late"
        );
        let misfit =
            format!("packets of this flow left in epoch {epoch} with marks that do not fit");
        let old = format!("packets that left in epoch {epoch} carried the number of this one");
        let unknown = format!("packets left in epoch {epoch} whose flow or epoch is not known");
        let mut amendments = Vec::new();
        for past in &mut self.0 {
            let by = epoch - past.epoch;
            // Late, or with the other timestamp bit.
            let may_have_come = by == 1 || by.is_multiple_of(2);
            let exact = strays.old.iter().filter(|((_, back), _)| *back == by);
            let exact = exact.map(|((flow, _), packets)| (*flow, Known::Exactly(*packets), &old));
            let excess = excess
                .iter()
                .filter(|_| may_have_come)
                .map(|flow| (*flow, Known::AtMost(u64::MAX), &too_many));
            let misfits = strays.misfit.keys().filter(|_| by == 1);
            let misfits = misfits.map(|flow| (*flow, Known::AtMost(u64::MAX), &misfit));
            let of_flows = exact.chain(excess).chain(misfits);
            amendments
                .extend(of_flows.filter_map(|(flow, known, why)| past.amend(flow, known, why)));
            let anybody = match by {
                1 => strays.anybody,
                2 | 4 | 6 => strays.perhaps_old,
                _ => 0,
            };
            amendments.extend(past.amend_all(anybody, &unknown));
        }
        amendments
    }

    /// Sets aside of a report's losses what was counted in epochs before it.
    fn take_back(&self, report: &mut EpochReport) {
        let past = |by: u64| self.0.iter().find(|past| past.epoch + by == report.epoch);
        let (before, with_its_bit) = (past(1), past(2));
        for loss in report.loss.iter_mut().filter(|loss| !loss.partial) {
            let early = with_its_bit.and_then(|past| past.early.get(&loss.flow)).copied();
            let marked = before.is_some_and(|past| past.excess.contains(&loss.flow));
            let packets = if marked { loss.lost } else { early.unwrap_or(0).min(loss.lost) };
            if packets > 0 {
                (loss.lost, loss.at_least) = (loss.lost - packets, true);
                let (from, to) = (loss.flow, Some(loss.flow));
                report.rewritten.push(Rewritten { from, to, packets, what: Change::Epoch });
            }
        }
        report.loss.retain(|loss| loss.lost > 0);
    }
}
