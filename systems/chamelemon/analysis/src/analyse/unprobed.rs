//! Losses on paths of which it is not known yet whether marks come through.
//!
//! Where a network rewrites the marks of all packets from the first one on, nothing need show it in
//! a flow's own numbers: its packets leave under hierarchy 0, which is encoded nowhere, and seem to
//! be lost. Until probes have come through with each mark, what is missing of a flow is not
//! believed to be.

use std::collections::BTreeMap;

use calumma_analysis::Unprobed;

use super::entered::Entered;
use super::input::EpochInput;
use crate::report::{Cause, CauseKind, Change, EpochReport, Rewritten};

/// Sets aside what a report says was lost, as far as it may have left under another mark, and says
/// why.
pub(super) fn set_aside(report: &mut EpochReport, input: &EpochInput, entered: &Entered<'_>) {
    let edges = input.edges.iter();
    let edges = edges.filter_map(|edge| Some((edge.edge.as_str(), edge.unprobed.as_ref()?)));
    let unprobed: BTreeMap<&str, &Unprobed> = edges.collect();
    if unprobed.is_empty() {
        return;
    }
    let mut by_edge: BTreeMap<&str, u64> = BTreeMap::new();
    let mut is_in_doubt = |of: &crate::report::Loss| {
        let takes =
            |edge: &&str| unprobed.get(edge).is_some_and(|paths| paths.concerns(&of.flow.dst));
        let from = entered.edges_of(&of.flow).into_iter().find(takes);
        from.map(|edge| *by_edge.entry(edge).or_default() += of.lost).is_some()
    };
    let set_aside = report.loss.extract_if(.., |loss| !loss.partial && is_in_doubt(loss));
    report.rewritten.extend(set_aside.map(|loss| {
        let (from, to) = (loss.flow, Some(loss.flow));
        Rewritten { from, to, packets: loss.lost, what: Change::Mark }
    }));
    report.causes.extend(by_edge.into_iter().map(|(edge, packets)| {
        let what = "no probe with each mark has come through yet on all ways from here, so what is \
                    missing may have left under another mark";
        Cause::at(edge, CauseKind::Mark, what).of_packets(packets)
    }));
}
