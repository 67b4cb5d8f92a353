//! Where packets were lost: what every switch counted of a flow, on the network's topology.

use std::collections::BTreeMap;

use calumma_analysis::places::{Bounds, Locators, Passed};
use calumma_analysis::{Collected, Flow};
use calumma_hops::frames::{Counts, Packets};
use calumma_sketch::WideKey;
use calumma_topology::Place;
use calumma_wire::SideKind;
use serde::{Deserialize, Serialize};

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

/// Losses of a window by flow, those that are certain, and by place.
pub(crate) type Losses = (Vec<Lost>, Vec<LostAt>);

/// The losses of a window; `None` where nothing can be said about them.
pub(crate) fn find(locators: &mut Locators, window: &Collected<(u64, Counts)>) -> Option<Losses> {
    let locator = locators.begin(window)?;
    let mut flows: BTreeMap<&WideKey, Vec<Passed>> = BTreeMap::new();
    // Sides whose table was full: any flow may have passed there uncounted.
    let mut full: Vec<Passed> = Vec::new();
    for delivery in &window.nodes {
        let at = locator.position(&delivery.node.name).filter(|&at| locator.counts(at));
        let Some(switch) = at else { continue };
        for (side, (_, Counts { flows: counted, others })) in delivery.came() {
            let passed = |of_flow: Packets| Passed {
                switch,
                side,
                received: Bounds::counted(of_flow.received, others.received),
                refused: Bounds::counted(of_flow.refused, others.refused),
            };
            if others.received > 0 {
                full.push(passed(Packets::default()));
            }
            for (key, packets) in counted {
                flows.entry(key).or_default().push(passed(*packets));
            }
        }
    }
    let mut losses = Vec::new();
    let mut places: BTreeMap<Place, (u64, u64)> = BTreeMap::new();
    let mut bounded = full.is_empty();
    for (key, mut passed) in flows {
        let is_listed =
            |at: &Passed| passed.iter().any(|it| (it.switch, it.side) == (at.switch, at.side));
        let unlisted: Vec<Passed> = full.iter().filter(|at| !is_listed(at)).copied().collect();
        passed.extend(unlisted);
        let flow = Flow::from(key);
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
    Some((losses, places.into_iter().map(at).collect()))
}

/// A flow that the topology has no way for.
fn nowhere(flow: Flow, passed: &[Passed]) -> Lost {
    let on = |side: SideKind| passed.iter().filter(move |it| it.side == side);
    let entered: u64 = on(SideKind::Ingress).map(|it| it.received.least).sum();
    let left = on(SideKind::Egress).fold(0_u64, |left, it| left.saturating_add(it.received.most));
    let at_least = entered.saturating_sub(left);
    Lost { flow, lost: None, at_least, at_most: None, places: None }
}
