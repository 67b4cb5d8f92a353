//! Losses of a window by flow and by place, from what every switch counted of each flow.

use std::collections::BTreeMap;

use calumma_topology::Place;
use calumma_wire::SideKind;
use serde::{Deserialize, Serialize};

use crate::flow::Flow;
use crate::places::{Locator, Passed};

/// Packets of a flow that were lost somewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// How many; absent where only bounds are known.
    pub lost: Option<u64>,
    /// How many at least.
    pub at_least: u64,
    /// And at most; absent where that is not known.
    pub at_most: Option<u64>,
    /// The places where it can have been; absent where what the switches counted contradicts the
    /// topology.
    pub places: Option<Vec<Place>>,
}

/// What was lost in a place, of all flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostAt {
    /// The place.
    pub place: Place,
    /// How many; absent where only bounds are known.
    pub lost: Option<u64>,
    /// How many at least.
    pub at_least: u64,
    /// And at most; absent where that is not known.
    pub at_most: Option<u64>,
}

/// What switches counted of the flows of a window.
#[derive(Clone, Debug, Default)]
pub struct FlowCounts {
    flows: BTreeMap<Flow, Vec<Passed>>,
    unlisted: Vec<Passed>,
}

impl FlowCounts {
    /// Adds a switch's count of a flow.
    pub fn add(&mut self, flow: Flow, passed: Passed) {
        self.flows.entry(flow).or_default().push(passed);
    }

    /// Adds what a side may have had of any flow that it did not list, as one whose table was full.
    pub fn add_unlisted(&mut self, passed: Passed) {
        self.unlisted.push(passed);
    }

    /// The losses that are certain, flow by flow, and all losses by place.
    pub fn losses(self, locator: &mut Locator) -> (Vec<Lost>, Vec<LostAt>) {
        let Self { flows, unlisted } = self;
        let mut losses = Vec::new();
        let mut places: BTreeMap<Place, (u64, u64)> = BTreeMap::new();
        let mut bounded = unlisted.is_empty();
        for (flow, mut passed) in flows {
            let is_listed =
                |at: &Passed| passed.iter().any(|it| (it.switch, it.side) == (at.switch, at.side));
            let others: Vec<Passed> =
                unlisted.iter().filter(|at| !is_listed(at)).copied().collect();
            passed.extend(others);
            let Some(found) = locator.losses(&passed) else {
                bounded = false;
                losses.push(nowhere(flow, &passed));
                continue;
            };
            for loss in found {
                for place in loss.places.iter() {
                    let (least, most) = places.entry(place.clone()).or_default();
                    *least += if loss.places.len() == 1 { loss.least } else { 0 };
                    *most += loss.most;
                }
                if loss.least > 0 {
                    losses.push(Lost {
                        flow,
                        lost: (loss.least == loss.most).then_some(loss.least),
                        at_least: loss.least,
                        at_most: Some(loss.most),
                        places: Some(loss.places.to_vec()),
                    });
                }
            }
        }
        let at = |(place, (least, most)): (Place, (u64, u64))| LostAt {
            place,
            lost: (bounded && least == most).then_some(least),
            at_least: least,
            at_most: bounded.then_some(most),
        };
        (losses, places.into_iter().map(at).collect())
    }
}

/// A flow that the topology has no way for.
fn nowhere(flow: Flow, passed: &[Passed]) -> Lost {
    let on = |side: SideKind| passed.iter().filter(move |it| it.side == side);
    let entered = on(SideKind::Ingress).map(|it| it.received.least).fold(0, u64::saturating_add);
    let left = on(SideKind::Egress).map(|it| it.received.most).fold(0, u64::saturating_add);
    let at_least = entered.saturating_sub(left);
    Lost { flow, lost: None, at_least, at_most: None, places: None }
}
