//! Between which switches packets get lost, where only some of the switches count them.
//!
//! ```text
//!   e1 ─┬─ s1 ─┬─ e2      e1 and e2 count: one cut, {e1} to {e2}, of one segment
//!       └─ s2 ─┘          s1 and s2 as well: {e1} to {s1, s2}, and {s1, s2} to {e2}
//! ```
//!
//! What has passed one of the switches on a cut's near side and none on its far side was lost
//! between them. Packets are the same on any way of equal length, so with several segments nobody
//! can tell in which.

use std::collections::{BTreeMap, BTreeSet};

use super::{Routes, Segment};

/// Packets that pass a switch of `from` pass one of `to` next, of the switches that count, unless
/// they get lost in one of `segments`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The near side, in the order of positions.
    pub from: Vec<usize>,
    /// The far side.
    pub to: Vec<usize>,
    /// The segments between them, at least one.
    pub segments: Vec<Segment>,
}

impl Routes {
    /// The cuts on all ways from edges where packets enter to edges where they leave, which count
    /// them, past the other switches that do. A switch is on the far side of a cut at most, and on
    /// the near side of one, so all packets that are lost on the way are lost in exactly one.
    pub fn cuts(
        &self,
        sources: &[usize],
        destinations: &[usize],
        counts: impl Fn(usize) -> bool,
    ) -> Vec<Cut> {
        let mut steps = BTreeSet::new();
        for &from in sources {
            for &to in destinations {
                self.follow(from, to, &counts, &mut steps);
            }
        }
        grouped(steps, self.neighbours.len())
    }

    /// Adds every pair of switches that count and that packets pass one after the other.
    fn follow(
        &self,
        from: usize,
        to: usize,
        counts: &impl Fn(usize) -> bool,
        steps: &mut BTreeSet<(usize, usize)>,
    ) {
        // What stays within an edge is not on its way through the network.
        if from == to {
            return;
        }
        let mut known = BTreeSet::from([from]);
        let mut starts = vec![from];
        while let Some(start) = starts.pop() {
            let mut passed = BTreeSet::from([start]);
            let mut reached = vec![start];
            while let Some(at) = reached.pop() {
                for next in self.next_hops(at, to) {
                    if next == to || counts(next) {
                        steps.insert((start, next));
                        if next != to && known.insert(next) {
                            starts.push(next);
                        }
                    } else if passed.insert(next) {
                        reached.push(next);
                    }
                }
            }
        }
    }
}

/// Steps that share a switch on the same side are of one cut.
fn grouped(steps: BTreeSet<(usize, usize)>, switches: usize) -> Vec<Cut> {
    // Near sides first, then far sides: each points to another of its group, or to itself.
    let mut groups: Vec<usize> = (0..2 * switches).collect();
    fn group(groups: &mut [usize], mut at: usize) -> usize {
        while groups[at] != at {
            groups[at] = groups[groups[at]];
            at = groups[at];
        }
        at
    }
    for &(from, to) in &steps {
        let [near, far] = [from, switches + to].map(|at| group(&mut groups, at));
        groups[far] = near;
    }
    let mut cuts: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (from, to) in steps {
        cuts.entry(group(&mut groups, from)).or_default().push((from, to));
    }
    let sorted = |switches: BTreeSet<usize>| switches.into_iter().collect();
    let cut = |steps: Vec<(usize, usize)>| Cut {
        from: sorted(steps.iter().map(|step| step.0).collect()),
        to: sorted(steps.iter().map(|step| step.1).collect()),
        segments: steps.into_iter().map(|(from, to)| Segment::between(from, to)).collect(),
    };
    cuts.into_values().map(cut).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::{LinkQuality, Topology};

    fn load(name: &str) -> Topology {
        Topology::load(name, Path::new("."), LinkQuality::default()).unwrap()
    }

    /// The cuts from e1 to e2 where switches that `counts` names count, in words.
    fn cuts(name: &str, counts: &[&str]) -> Vec<(Vec<String>, Vec<String>, usize)> {
        let topology = load(name);
        let names = |at: &[usize]| at.iter().map(|&at| topology.names()[at].clone()).collect();
        let counting = |at: usize| counts.contains(&topology.names()[at].as_str());
        let cuts = Routes::new(&topology).cuts(&[0], &[1], counting);
        cuts.iter().map(|cut| (names(&cut.from), names(&cut.to), cut.segments.len())).collect()
    }

    fn cut(from: &[&str], to: &[&str], segments: usize) -> (Vec<String>, Vec<String>, usize) {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        (owned(from), owned(to), segments)
    }

    #[test]
    fn the_more_switches_count_the_closer_a_loss_is_told() {
        assert_eq!(cuts("pair", &[]), [cut(&["e1"], &["e2"], 1)]);
        let both = [cut(&["e1"], &["core"], 1), cut(&["core"], &["e2"], 1)];
        assert_eq!(cuts("pair", &["core"]), both);
    }

    #[test]
    fn where_ways_part_nobody_can_tell_on_which_of_them() {
        let name = "leaf-spine:2x2";
        assert_eq!(cuts(name, &[]), [cut(&["e1"], &["e2"], 1)]);
        let all = [cut(&["e1"], &["s1", "s2"], 2), cut(&["s1", "s2"], &["e2"], 2)];
        assert_eq!(cuts(name, &["s1", "s2"]), all);
        // What has not passed s1 either went past s2 or got lost before it.
        assert_eq!(cuts(name, &["s1"]), [cut(&["e1", "s1"], &["e2", "s1"], 3)]);
    }

    proptest! {
        /// Packets go their ways and are lost somewhere: the difference of a cut's two sides is
        /// what was lost in its segments.
        #[test]
        fn a_cut_has_lost_what_its_near_side_counts_and_its_far_side_does_not(
            name in prop_oneof![
                Just("pair"), Just("leaf-spine:3x2"), Just("fat-tree:4x2"), Just("fat-tree:4"),
            ],
            counting: u64,
            packets in prop::collection::vec((any::<u64>(), any::<u64>(), 0_usize..12), 1..200),
        ) {
            let topology = load(name);
            let routes = Routes::new(&topology);
            let edges = topology.edges().len();
            let counts = |at: usize| at < edges || counting >> (at % 64) & 1 == 1;
            // From some edges to the others.
            let (sources, destinations): (Vec<usize>, Vec<usize>) =
                (0..edges).partition(|&edge| edge == 0 || counting >> (63 - edge) & 1 == 1);
            prop_assume!(!destinations.is_empty());
            let drawn = |of: &[usize], at: u64| of[at as usize % of.len()];
            let mut near = vec![0_u64; topology.switches()];
            let mut far = near.clone();
            let mut lost: BTreeMap<(usize, Option<usize>), u64> = BTreeMap::new();
            for (from, hash, survives) in packets {
                let (from, to) = (drawn(&sources, from), drawn(&destinations, hash >> 32));
                let way = routes.way(from, to, hash).unwrap();
                let mut last = from;
                near[from] += 1;
                for (hop, at) in way.switches().enumerate().skip(1) {
                    if hop > survives {
                        // The next one that counts would have been this one.
                        let next = way.switches().skip(hop).find(|&at| counts(at));
                        *lost.entry((last, next)).or_default() += 1;
                        break;
                    }
                    if counts(at) {
                        far[at] += 1;
                        if at != to {
                            near[at] += 1;
                        }
                        last = at;
                    }
                }
            }
            let cuts = routes.cuts(&sources, &destinations, counts);
            let mut located = 0;
            for cut in &cuts {
                let [passed, arrived] = [(&cut.from, &near), (&cut.to, &far)]
                    .map(|(side, counts)| side.iter().map(|&at| counts[at]).sum::<u64>());
                let inside = |&(from, to): &(usize, Option<usize>)| {
                    to.is_some_and(|to| cut.segments.contains(&Segment::between(from, to)))
                };
                let truth: u64 = lost.iter().filter(|(at, _)| inside(at)).map(|(_, n)| n).sum();
                prop_assert_eq!(passed - arrived, truth, "{:?}", cut);
                located += truth;
            }
            prop_assert_eq!(located, lost.values().sum::<u64>());
        }
    }
}
