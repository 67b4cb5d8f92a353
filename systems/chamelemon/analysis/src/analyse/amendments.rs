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

use std::collections::{HashMap, HashSet, VecDeque};

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
}

/// Remembers the latest epochs for as long as others may show something of them.
#[derive(Debug, Default)]
pub(super) struct Amendments(VecDeque<Past>);

impl Amendments {
    /// Completes a report by what it shows of earlier ones, and they of it. Epochs must come in
    /// order.
    pub(super) fn complete(&mut self, report: &mut EpochReport) {
        let epoch = report.epoch;
        self.0.retain(|past| past.epoch < epoch && past.epoch + MOST_LATE >= epoch);
        let excess = excess(report);
        for past in &mut self.0 {
            let flows = excess.iter().filter_map(|flow| past.losses.remove_entry(flow));
            let of = past.epoch;
            report.amendments.extend(flows.map(|(flow, was)| Amendment {
                epoch: of,
                flow,
                was,
                lost: 0,
                late: None,
                at_most_late: Some(was),
                why: format!(
                    "more packets of this flow left in epoch {epoch} than entered: they may be late"
                ),
            }));
        }
        report.amendments.sort_by_key(|amendment| (amendment.epoch, amendment.flow));
        if let Some(before) = self.0.back().filter(|past| past.epoch + 1 == epoch) {
            let early = report.loss.extract_if(.., |loss| before.excess.contains(&loss.flow));
            report.rewritten.extend(early.map(|loss| Rewritten {
                from: loss.flow,
                to: Some(loss.flow),
                packets: loss.lost,
                what: Change::Mark,
            }));
        }
        let certain = report.loss.iter().filter(|loss| !loss.partial);
        let losses: HashMap<Flow, u64> = certain.map(|loss| (loss.flow, loss.lost)).collect();
        if !losses.is_empty() || !excess.is_empty() {
            self.0.push_back(Past { epoch, losses, excess });
        }
    }
}

/// Flows of which more packets left than entered, at least under one mark.
fn excess(report: &EpochReport) -> HashSet<Flow> {
    let surplus = report.surplus.iter().filter(|surplus| !surplus.partial);
    let marked = report.rewritten.iter().filter(|of| of.what == Change::Mark);
    surplus.map(|surplus| surplus.flow).chain(marked.map(|of| of.from)).collect()
}
