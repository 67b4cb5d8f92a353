//! Between which switches a flow's packets were lost, by what each of them counted of it.
//!
//! Ways are those of the operator's topology. A switch that did not deliver a sound window counts
//! for nothing, so that what lies around it is one longer segment. Of ways of equal length nobody
//! knows which one a packet took: then a loss has several places. A flow's packets are taken to be
//! for the edges where any of them left; where none did, for any other edge.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use calumma_topology::{Cut, Place, Routes, Segment, Topology};
use calumma_wire::SideKind;

use crate::run::Collected;

/// A flow's packets at a switch in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The switch's position in the topology.
    pub switch: usize,
    /// The side that it counted them on.
    pub side: SideKind,
    /// Packets that it received.
    pub received: Bounds,
    /// Received packets that its transmit queues refused; none where the system does not know.
    pub refused: Bounds,
}

/// A number that lies between two others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The least that it can be.
    pub least: u64,
    /// The most.
    pub most: u64,
}

impl Bounds {
    /// `counted`, and up to `more` that may not have been.
    pub fn counted(counted: u64, more: u64) -> Self {
        Self { least: counted, most: counted.saturating_add(more) }
    }

    fn add(self, other: Self) -> Self {
        let least = self.least.saturating_add(other.least);
        Self { least, most: self.most.saturating_add(other.most) }
    }
}

/// Packets of a flow that were lost in one of some places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// How many at least.
    pub least: u64,
    /// How many at most, which is more than none.
    pub most: u64,
    /// All places where it can have been, at least one.
    pub places: Arc<[Place]>,
}

type Cuts = Arc<[(Cut, Arc<[Place]>)]>;

/// Finds the places of losses in windows, each on its own topology.
#[derive(Debug, Default)]
pub struct Locators(Option<Locator>);

impl Locators {
    /// Begins a window. `None` where nothing can be said about it: without a topology, and where an
    /// edge did not count all of its packets, since flows may have entered or left there.
    pub fn begin<S>(&mut self, window: &Collected<S>) -> Option<&mut Locator> {
        let topology = window.topology.as_ref()?;
        if self.0.as_ref().is_none_or(|last| !Arc::ptr_eq(&last.topology, topology)) {
            self.0 = Some(Locator::new(topology.clone()));
        }
        let locator = self.0.as_mut()?;
        locator.begin(window).then_some(locator)
    }
}

/// Finds the places of losses of a window.
#[derive(Debug)]
pub struct Locator {
    topology: Arc<Topology>,
    routes: Routes,
    /// Which switches counted all packets of the window.
    counting: Vec<bool>,
    /// Cuts by the edges where packets enter and leave, for those switches.
    cuts: HashMap<(Vec<usize>, Vec<usize>), Cuts>,
}

impl Locator {
    fn new(topology: Arc<Topology>) -> Self {
        let counting = vec![false; topology.switches()];
        let routes = Routes::new(&topology);
        Self { topology, routes, counting, cuts: HashMap::new() }
    }

    /// The position of the switch called `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.topology.position(name)
    }

    /// Begins a window, and whether all edges counted all of its packets.
    fn begin<S>(&mut self, window: &Collected<S>) -> bool {
        let mut counting = vec![false; self.topology.switches()];
        for delivery in window.nodes.iter().filter(|delivery| delivery.problem().is_none()) {
            if let Some(at) = self.topology.position(&delivery.node.name) {
                counting[at] = true;
            }
        }
        if counting != self.counting {
            self.counting = counting;
            self.cuts.clear();
        }
        (0..self.topology.edges().len()).all(|edge| self.counting[edge])
    }

    /// Whether the switch at a position counted all packets of the window.
    pub fn counts(&self, switch: usize) -> bool {
        self.counting[switch]
    }

    /// Where packets of one flow were lost, by what every switch that counts has counted of it;
    /// `None` where that contradicts the ways of the topology, or more packets arrived than were
    /// sent.
    pub fn losses(&mut self, passed: &[Passed]) -> Option<Vec<Loss>> {
        let on = |side, most: bool| {
            let packets = move |Bounds { least, most: at_most }| if most { at_most } else { least };
            let seen = move |it: &&Passed| it.side == side && packets(it.received) > 0;
            passed.iter().filter(seen).map(|it| it.switch).collect::<BTreeSet<usize>>()
        };
        let sources = on(SideKind::Ingress, true);
        let destinations = if on(SideKind::Egress, false).is_empty() {
            let elsewhere = |edge: &usize| sources.len() > 1 || !sources.contains(edge);
            (0..self.topology.edges().len()).filter(elsewhere).collect()
        } else {
            on(SideKind::Egress, true)
        };
        let ends = [sources, destinations].map(|ends| ends.into_iter().collect::<Vec<_>>());
        let cuts = self.cuts_between(ends);
        let is_on = |it: &Passed, side: &[usize]| side.contains(&it.switch);
        let on_the_way = |it: &Passed| {
            cuts.iter().any(|(cut, _)| match it.side {
                SideKind::Ingress => is_on(it, &cut.from),
                _ => is_on(it, &cut.to),
            })
        };
        if !passed.iter().filter(|it| it.received.least > 0).all(on_the_way) {
            return None;
        }
        // What a transmit queue refused was lost inside the switch. The rest of what is missing was
        // lost there as well, or on the way to the next switch that counts.
        let refused = passed.iter().filter(|it| it.refused.most > 0).map(|it| {
            let place = self.topology.place(Segment::inside(it.switch));
            let Bounds { least, most } = it.refused;
            Loss { least, most, places: [place].into() }
        });
        let mut losses: Vec<Loss> = refused.collect();
        for (cut, places) in cuts.iter() {
            let from = |it: &&Passed| it.side != SideKind::Egress && is_on(it, &cut.from);
            let to = |it: &&Passed| it.side != SideKind::Ingress && is_on(it, &cut.to);
            let near =
                passed.iter().filter(from).map(handed_over).fold(Bounds::default(), Bounds::add);
            let far = passed.iter().filter(to).map(|it| it.received);
            let far = far.fold(Bounds::default(), Bounds::add);
            let most = near.most.checked_sub(far.least)?;
            if most > 0 {
                let places = places.clone();
                losses.push(Loss { least: near.least.saturating_sub(far.most), most, places });
            }
        }
        Some(losses)
    }

    fn cuts_between(&mut self, [sources, destinations]: [Vec<usize>; 2]) -> Cuts {
        let Self { topology, routes, counting, cuts } = self;
        let known = cuts.entry((sources, destinations)).or_insert_with_key(|(from, to)| {
            let cuts = routes.cuts(from, to, |switch| counting[switch]).into_iter();
            let places = |cut: &Cut| cut.segments.iter().map(|&at| topology.place(at)).collect();
            cuts.map(|cut| (places(&cut), cut)).map(|(places, cut)| (cut, places)).collect()
        });
        known.clone()
    }
}

/// What was received and not refused.
fn handed_over(passed: &Passed) -> Bounds {
    let Passed { received, refused, .. } = passed;
    Bounds {
        least: received.least.saturating_sub(refused.most),
        most: received.most.saturating_sub(refused.least),
    }
}

#[cfg(test)]
mod tests {
    use calumma_wire::Role;

    use super::*;
    use crate::NodeEnd;
    use crate::report::EpochHead;
    use crate::run::{Delivery, Node};

    /// A leaf-spine:2x2, of which the named switches delivered the window.
    fn locator(names: &[&str]) -> (Locator, bool) {
        let topology = Arc::new(named("leaf-spine:2x2"));
        let mut locator = Locator::new(topology.clone());
        let can_tell = locator.begin(&window(names, Some(topology)));
        (locator, can_tell)
    }

    fn named(shape: &str) -> Topology {
        serde_json::from_value(shape.into()).unwrap()
    }

    /// A window that the named switches delivered.
    fn window(names: &[&str], topology: Option<Arc<Topology>>) -> Collected<()> {
        let delivery = |&name: &&str| Delivery {
            node: Arc::new(Node { name: name.to_owned(), role: Role::Edge, id: 1 }),
            sides: vec![(SideKind::Ingress, Some(()))],
            doubts: Vec::new(),
            end: NodeEnd { late_packets: Some(0), ..NodeEnd::default() },
        };
        let head = EpochHead { epoch: 1, start_unix_ns: 0, length_ms: 50 };
        Collected { head, nodes: names.iter().map(delivery).collect(), topology }
    }

    /// Losses of a flow in words: `5 e1:in-s1:in e1:in-s2:in`, or `0..5 ...`.
    fn lost(locator: &mut Locator, counts: &[(&str, SideKind, u64, u64)]) -> Option<Vec<String>> {
        let passed = counts.iter().map(|&(name, side, least, most)| Passed {
            switch: locator.position(name).unwrap(),
            side,
            received: Bounds { least, most },
            refused: Bounds::default(),
        });
        let passed: Vec<_> = passed.collect();
        in_words(locator, &passed)
    }

    fn in_words(locator: &mut Locator, passed: &[Passed]) -> Option<Vec<String>> {
        let words = |loss: Loss| {
            let number = match (loss.least, loss.most) {
                (least, most) if least == most => most.to_string(),
                (least, most) => format!("{least}..{most}"),
            };
            let place = |place: &Place| format!(" {}-{}", place.from, place.to);
            number + &loss.places.iter().map(place).collect::<String>()
        };
        Some(locator.losses(passed)?.into_iter().map(words).collect())
    }

    use SideKind::{Egress, Ingress, Transit};

    #[test]
    fn losses_are_told_apart_as_far_as_ways_and_counts_allow() {
        let (mut all, can_tell) = locator(&["e1", "e2", "s1", "s2"]);
        assert!(can_tell);
        let entered = ("e1", Ingress, 100, 100);
        let none = lost(&mut all, &[entered, ("s1", Transit, 100, 100), ("e2", Egress, 100, 100)]);
        assert_eq!(none.unwrap(), [""; 0]);
        // Those that s1 did not see may have been on their way to s2.
        let some = lost(&mut all, &[entered, ("s1", Transit, 95, 95), ("e2", Egress, 93, 93)]);
        let before = "5 e1:in-s1:in e1:in-s2:in";
        assert_eq!(some.unwrap(), [before, "2 s1:in-e2:in s2:in-e2:in"]);
        let gone = lost(&mut all, &[entered]);
        assert_eq!(gone.unwrap(), ["100 e1:in-s1:in e1:in-s2:in"]);
        // A table that was full counts between 90 and 97 of them.
        let bounds = lost(&mut all, &[entered, ("s1", Transit, 90, 97), ("e2", Egress, 90, 90)]);
        assert_eq!(
            bounds.unwrap(),
            ["3..10 e1:in-s1:in e1:in-s2:in", "0..7 s1:in-e2:in s2:in-e2:in"]
        );
    }

    #[test]
    fn what_a_transmit_queue_refused_was_lost_inside_its_switch() {
        let (mut edges, _) = locator(&["e1", "e2"]);
        let passed = |switch, side, received, refused| Passed {
            switch,
            side,
            received: Bounds::counted(received, 0),
            refused: Bounds::counted(refused, 0),
        };
        let counts = [passed(0, Ingress, 100, 4), passed(1, Egress, 93, 1)];
        let inside = ["4 e1:in-e1:out", "1 e2:in-e2:out"];
        assert_eq!(in_words(&mut edges, &counts).unwrap(), [inside[0], inside[1], "3 e1:in-e2:in"]);
        let more = [passed(0, Ingress, 100, 4), passed(1, Egress, 97, 0)];
        assert_eq!(in_words(&mut edges, &more), None, "a packet that was refused arrived");
    }

    #[test]
    fn a_switch_that_is_missing_makes_segments_longer_and_an_edge_makes_all_unknown() {
        let (mut edges, can_tell) = locator(&["e1", "e2"]);
        assert!(can_tell);
        let counts = [("e1", Ingress, 100, 100), ("e2", Egress, 93, 93)];
        assert_eq!(lost(&mut edges, &counts).unwrap(), ["7 e1:in-e2:in"]);
        assert!(!locator(&["e1", "s1", "s2"]).1);
    }

    #[test]
    fn every_window_is_placed_on_its_own_topology() {
        let (mut locators, edges) = (Locators::default(), ["e1", "e2"]);
        assert!(locators.begin(&window(&edges, None)).is_none());
        let mut switches = |shape: &str| {
            let window = window(&edges, Some(Arc::new(named(shape))));
            locators.begin(&window).unwrap().topology.switches()
        };
        assert_eq!((switches("leaf-spine:2x2"), switches("pair")), (4, 3));
    }

    #[test]
    fn what_contradicts_the_topology_is_not_told() {
        let (mut all, _) = locator(&["e1", "e2", "s1", "s2"]);
        let entered = ("e1", Ingress, 10, 10);
        assert_eq!(lost(&mut all, &[entered, ("e2", Egress, 11, 11)]), None, "one too many");
        assert_eq!(lost(&mut all, &[("s1", Transit, 10, 10)]), None, "it came from nowhere");
        assert_eq!(lost(&mut all, &[entered, ("e1", Egress, 10, 10)]), None, "it never crossed");
    }
}
