//! What sources did with packets from hosts: each for itself, and all together.

use std::collections::BTreeMap;

use calumma_analysis::{Collected, Delivery};
use calumma_plane::int::push::NotCarried;
use calumma_sketchint::frames::Entered;
use calumma_wire::Role;
use serde::{Deserialize, Serialize};

use crate::windows::Delivered;

/// What one source did with packets from its hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceReport {
    /// Its name.
    pub edge: String,
    /// Whether it delivered all of the window, in time and by a clock that is right. Packets of the
    /// window may be missing in its numbers where it did not.
    pub sound: bool,
    /// Packets that went on with a stack.
    pub inserted: u64,
    /// Packets that entered while nothing was put into any.
    pub idle: u64,
    /// Packets that went on without a stack all the same, by the reason.
    pub not_carried: BTreeMap<String, u64>,
}

/// The edges, and what each delivered.
fn of_edges(
    collected: &Collected<Delivered>,
) -> impl Iterator<Item = (&Delivery<Delivered>, Option<Entered>)> {
    let edges = collected.nodes.iter().filter(|delivery| delivery.node.role == Role::Edge);
    edges.map(|delivery| (delivery, delivery.came().find_map(|(_, side)| side.entered)))
}

/// Every source that delivered.
pub(crate) fn all(collected: &Collected<Delivered>) -> Vec<SourceReport> {
    let delivered = of_edges(collected).filter_map(|(delivery, entered)| {
        let (end, entered) = (&delivery.end, entered?);
        let is_in_time = end.clock.is_none() && delivery.doubts.is_empty();
        Some(SourceReport {
            edge: delivery.node.name.clone(),
            sound: delivery.is_whole() && end.late_packets == Some(0) && is_in_time,
            inserted: entered.inserted,
            idle: entered.idle,
            not_carried: by_reason(&entered),
        })
    });
    delivered.collect()
}

/// What all sources did; `None` where an edge did not deliver it.
pub(crate) fn sum(collected: &Collected<Delivered>) -> Option<Entered> {
    of_edges(collected).try_fold(Entered::default(), |mut sum, (_, more)| {
        sum.add(&more?);
        Some(sum)
    })
}

/// Packets that went on without a stack, by the reasons that there were.
pub(crate) fn by_reason(entered: &Entered) -> BTreeMap<String, u64> {
    let reasons = NotCarried::ALL.into_iter().zip(entered.not_carried);
    let reasons = reasons.filter(|(_, packets)| *packets > 0);
    reasons.map(|(why, packets)| (why.name().to_owned(), packets)).collect()
}
