//! Losses on paths of which it is not known yet whether marks come through.
//!
//! Where a network rewrites the marks of all packets from the first one on, nothing need show it in
//! a flow's own numbers: its packets leave under hierarchy 0, which is encoded nowhere, and seem to
//! be lost. Until probes have come through with each mark, an epoch in which something is missing
//! on such a path is incomplete.

use std::collections::BTreeMap;

use calumma_analysis::Unprobed;

use super::entered::Entered;
use super::input::EpochInput;
use crate::report::{Cause, CauseKind, Loss};

/// By edge, how many packets are missing that may have left under another mark.
pub(super) fn causes(losses: &[Loss], input: &EpochInput, entered: &Entered<'_>) -> Vec<Cause> {
    let edges = input.edges.iter();
    let edges = edges.filter_map(|edge| Some((edge.edge.as_str(), edge.unprobed.as_ref()?)));
    let unprobed: BTreeMap<&str, &Unprobed> = edges.collect();
    if unprobed.is_empty() {
        return Vec::new();
    }
    let mut by_edge: BTreeMap<&str, u64> = BTreeMap::new();
    for loss in losses {
        let takes =
            |edge: &&str| unprobed.get(edge).is_some_and(|paths| paths.concerns(&loss.flow.dst));
        if let Some(edge) = entered.edges_of(&loss.flow).into_iter().find(takes) {
            *by_edge.entry(edge).or_default() += loss.lost;
        }
    }
    let cause = |(edge, packets): (&str, u64)| {
        let what = "no probe with each mark has come through yet on all ways from here, so what is \
                    missing may have left under another mark";
        Cause::at(edge, CauseKind::Mark, what).of_packets(packets)
    };
    by_edge.into_iter().map(cause).collect()
}
