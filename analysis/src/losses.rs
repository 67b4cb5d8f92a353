//! Losses of a window by flow and by place, from what every switch counted of each flow.

use std::collections::BTreeMap;

use calumma_topology::Place;
use calumma_wire::SideKind;
use serde::{Deserialize, Serialize};

use crate::flow::Flow;
use crate::places::{Bounds, Locator, Locators, Passed};
use crate::run::Collected;

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
    /// How many at most; absent where that is not known.
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
    /// How many at most; absent where that is not known.
    pub at_most: Option<u64>,
}

/// Packets that a switch counted on a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets that it received.
    pub received: u64,
    /// Received packets that its transmit queues refused; none where the system does not know.
    pub refused: u64,
}

/// The losses of a window that are certain, flow by flow, and all losses by place; `None` where
/// nothing can be said about them. `listed` gives the flows that a side lists, each once, and the
/// packets of those that it does not list, as one whose table was full.
pub fn losses<'a, S, I>(
    locators: &mut Locators,
    window: &'a Collected<S>,
    listed: impl Fn(&'a S) -> (I, Counted),
) -> Option<(Vec<Lost>, Vec<LostAt>)>
where
    I: IntoIterator<Item = (Flow, Counted)>,
{
    let locator = locators.begin(window)?;
    let mut all = FlowCounts::default();
    for delivery in &window.nodes {
        let at = locator.position(&delivery.node.name).filter(|&at| locator.counts(at));
        let Some(switch) = at else { continue };
        for (side, counts) in delivery.came() {
            let (flows, others) = listed(counts);
            let passed = |of: Counted| Passed {
                switch,
                side,
                received: Bounds::counted(of.received, others.received),
                refused: Bounds::counted(of.refused, others.refused),
            };
            if others.received > 0 {
                all.add_unlisted(passed(Counted::default()));
            }
            flows.into_iter().for_each(|(flow, of_flow)| all.add(flow, passed(of_flow)));
        }
    }
    Some(all.losses(locator))
}

/// What switches counted of the flows of a window.
#[derive(Default)]
struct FlowCounts {
    flows: BTreeMap<Flow, Vec<Passed>>,
    unlisted: Vec<Passed>,
}

impl FlowCounts {
    /// Adds a switch's count of a flow.
    fn add(&mut self, flow: Flow, passed: Passed) {
        self.flows.entry(flow).or_default().push(passed);
    }

    /// Adds what a side may have had of any flow that it did not list, as one whose table was full.
    fn add_unlisted(&mut self, passed: Passed) {
        self.unlisted.push(passed);
    }

    /// The losses that are certain, flow by flow, and all losses by place.
    fn losses(self, locator: &mut Locator) -> (Vec<Lost>, Vec<LostAt>) {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use calumma_topology::Topology;
    use calumma_wire::Role;

    use super::*;
    use crate::NodeEnd;
    use crate::report::EpochHead;
    use crate::run::{Delivery, Node};

    /// Flows with packets, and packets of others.
    type Counts = (Vec<(Flow, Counted)>, Counted);

    fn flow(sport: u16) -> Flow {
        let (src, dst) = ([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
        Flow { src, dst, sport, dport: 2, proto: 17 }
    }

    fn counted(received: u64, refused: u64) -> Counted {
        Counted { received, refused }
    }

    /// Two edges behind one another, of which each delivered such counts on its side; none, of the
    /// window as a whole.
    fn window(e1: Counts, e2: Option<Counts>) -> Collected<Counts> {
        let topology: Topology = serde_json::from_value("pair".into()).unwrap();
        let delivery =
            |(name, role, kind, side): (&str, Role, SideKind, Option<Counts>)| Delivery {
                node: Arc::new(Node { name: name.to_owned(), role, id: 1 }),
                sides: vec![(kind, side)],
                doubts: Vec::new(),
                end: NodeEnd { late_packets: Some(0), ..NodeEnd::default() },
            };
        let nodes = [
            ("e1", Role::Edge, SideKind::Ingress, Some(e1)),
            ("e2", Role::Edge, SideKind::Egress, e2),
        ];
        let head = EpochHead { epoch: 1, start_unix_ns: 0, length_ms: 50 };
        let nodes = nodes.into_iter().map(delivery).collect();
        Collected { head, nodes, topology: Some(Arc::new(topology)) }
    }

    fn losses_of(window: &Collected<Counts>) -> Option<(Vec<Lost>, Vec<LostAt>)> {
        let listed = |counts: &Counts| (counts.0.clone(), counts.1);
        losses(&mut Locators::default(), window, listed)
    }

    #[test]
    fn what_one_switch_has_and_the_next_lacks_is_lost_where_it_was() {
        let none = Counted::default();
        let entered = vec![(flow(1), counted(10, 2)), (flow(2), counted(5, 0))];
        let left = vec![(flow(1), counted(7, 0)), (flow(2), counted(5, 0))];
        let all = window((entered, none), Some((left, none)));
        let (flows, places) = losses_of(&all).unwrap();
        let of_flow = |lost: &Lost| (lost.flow.sport, lost.lost, lost.places.clone().unwrap());
        let place = |from: &str, to: &str| Place { from: from.to_owned(), to: to.to_owned() };
        let (inside, between) = (place("e1:in", "e1:out"), place("e1:in", "e2:in"));
        assert_eq!(
            flows.iter().map(of_flow).collect::<Vec<_>>(),
            [(1, Some(2), vec![inside.clone()]), (1, Some(1), vec![between.clone()])]
        );
        let places: Vec<_> = places.into_iter().map(|at| (at.place, at.lost)).collect();
        assert_eq!(places, [(inside, Some(2)), (between, Some(1))]);
    }

    #[test]
    fn packets_of_flows_that_are_not_listed_widen_the_bounds() {
        let entered = vec![(flow(1), counted(10, 0))];
        let left = (Vec::new(), counted(4, 0));
        let (flows, places) =
            losses_of(&window((entered, Counted::default()), Some(left))).unwrap();
        let bounds = |of: &Lost| (of.flow.sport, of.lost, of.at_least, of.at_most);
        assert_eq!(flows.iter().map(bounds).collect::<Vec<_>>(), [(1, None, 6, Some(10))]);
        let bounds = |at: &LostAt| (at.lost, at.at_least, at.at_most);
        assert_eq!(places.iter().map(bounds).collect::<Vec<_>>(), [(None, 6, None)]);
    }

    #[test]
    fn nothing_is_said_where_an_edge_is_missing() {
        let entered = vec![(flow(1), counted(10, 0))];
        assert_eq!(losses_of(&window((entered, Counted::default()), None)), None);
    }
}
