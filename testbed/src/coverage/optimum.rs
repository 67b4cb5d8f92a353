//! The most flows that the switches of a network can count, each in one place, if somebody who
//! knows all ways tells every switch what to count.
//!
//! Flows on the same switches are one class. A maximum flow from the source over the classes and
//! the switches on their ways to the sink, found by Dinic's algorithm, is exact; the network that
//! section III-I of the CFS paper sends it through has links in place of classes and lets flows
//! pass where none goes.

use std::collections::HashMap;
use std::collections::VecDeque;

/// How many of the flows can be counted. Each way is the switches of so many flows, and `entries`
/// says how many flows each switch has room for.
pub fn most_counted(ways: &HashMap<Vec<usize>, u64>, entries: &[u64]) -> u64 {
    let mut network = Network::new(2 + entries.len() + ways.len());
    for (switch, &entries) in entries.iter().enumerate() {
        network.connect(2 + switch, SINK, entries);
    }
    for (class, (way, &flows)) in ways.iter().enumerate() {
        let class = 2 + entries.len() + class;
        network.connect(SOURCE, class, flows);
        way.iter().for_each(|&switch| network.connect(class, 2 + switch, flows));
    }
    network.maximum()
}

const SOURCE: usize = 0;
const SINK: usize = 1;

/// An arc and what it can still take; number `n ^ 1` is the one back.
struct Arc {
    to: usize,
    left: u64,
}

struct Network {
    arcs: Vec<Arc>,
    from: Vec<Vec<usize>>,
}

impl Network {
    fn new(places: usize) -> Self {
        Self { arcs: Vec::new(), from: vec![Vec::new(); places] }
    }

    fn connect(&mut self, from: usize, to: usize, capacity: u64) {
        self.from[from].push(self.arcs.len());
        self.arcs.push(Arc { to, left: capacity });
        self.from[to].push(self.arcs.len());
        self.arcs.push(Arc { to: from, left: 0 });
    }

    fn maximum(mut self) -> u64 {
        let mut flow = 0;
        while let Some(levels) = self.levels() {
            let mut next = vec![0; self.from.len()];
            loop {
                match self.push(SOURCE, u64::MAX, &levels, &mut next) {
                    0 => break,
                    pushed => flow += pushed,
                }
            }
        }
        flow
    }

    /// Distances from the source, if the sink can still be reached.
    fn levels(&self) -> Option<Vec<usize>> {
        let mut levels = vec![usize::MAX; self.from.len()];
        levels[SOURCE] = 0;
        let mut reached = VecDeque::from([SOURCE]);
        while let Some(at) = reached.pop_front() {
            for arc in self.from[at].iter().map(|&arc| &self.arcs[arc]) {
                if arc.left > 0 && levels[arc.to] == usize::MAX {
                    levels[arc.to] = levels[at] + 1;
                    reached.push_back(arc.to);
                }
            }
        }
        (levels[SINK] != usize::MAX).then_some(levels)
    }

    /// Sends at most `most` on, always away from the source.
    fn push(&mut self, at: usize, most: u64, levels: &[usize], next: &mut [usize]) -> u64 {
        if at == SINK {
            return most;
        }
        while let Some(&arc) = self.from[at].get(next[at]) {
            let Arc { to, left } = self.arcs[arc];
            if left > 0 && levels[to] == levels[at] + 1 {
                let pushed = self.push(to, most.min(left), levels, next);
                if pushed > 0 {
                    self.arcs[arc].left -= pushed;
                    self.arcs[arc ^ 1].left += pushed;
                    return pushed;
                }
            }
            next[at] += 1;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The smallest cut: for each set of switches, what they have room for, and the flows on ways
    /// that are not all within it.
    fn smallest_cut(ways: &HashMap<Vec<usize>, u64>, entries: &[u64]) -> u64 {
        let cut = |set: u32| {
            let within = |&switch: &usize| set >> switch & 1 == 1;
            let room: u64 = (0..entries.len()).filter(within).map(|switch| entries[switch]).sum();
            let others = ways.iter().filter(|(way, _)| !way.iter().all(within));
            room + others.map(|(_, flows)| flows).sum::<u64>()
        };
        (0..1 << entries.len()).map(cut).min().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn the_optimum_is_the_smallest_cut_found_by_trying_all(
            entries in prop::collection::vec(0_u64..9, 1..7),
            ways in prop::collection::vec((prop::collection::btree_set(0_usize..6, 1..5), 0_u64..12), 0..12),
        ) {
            let mut classes = HashMap::new();
            for (way, flows) in ways {
                let way: Vec<usize> = way.into_iter().filter(|&s| s < entries.len()).collect();
                *classes.entry(way).or_insert(0) += flows;
            }
            prop_assert_eq!(most_counted(&classes, &entries), smallest_cut(&classes, &entries));
        }
    }

    #[test]
    fn three_switches_share_what_none_can_count_alone() {
        let ways = HashMap::from([(vec![0, 1], 10), (vec![1, 2], 10), (vec![2], 10)]);
        assert_eq!(most_counted(&ways, &[10, 10, 10]), 30);
        assert_eq!(most_counted(&ways, &[30, 0, 0]), 10);
        assert_eq!(most_counted(&ways, &[0, 0, 30]), 20);
    }
}
