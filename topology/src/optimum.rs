//! The most flows that the switches of a network can count, each in one place, if somebody who
//! knows all ways tells every switch what to count.
//!
//! Flows on the same switches are one class. A maximum flow from the source over the classes and
//! the switches on their ways to the sink, found by Dinic's algorithm, is exact. The network that
//! section III-I of the CFS paper sends it through has links in place of classes and lets flows
//! pass where none goes, so what it finds is an upper bound: [`most_by_links`].
//!
//! Of several assignments that count as many, the same one is found for the same ways.

use std::collections::{BTreeMap, VecDeque};

/// How many of the flows can be counted. Each way is the switches of so many flows, in any order,
/// and `entries` says how many flows each switch has room for.
pub fn most_counted(ways: &BTreeMap<Vec<usize>, u64>, entries: &[u64]) -> u64 {
    solve(ways, entries).0
}

/// For each way, its switches in rising order, how many flows of it each of them counts.
pub type Shares = BTreeMap<Vec<usize>, Vec<(usize, u64)>>;

/// Which switches count how many flows, so that the most are counted; as [`most_counted`].
pub fn assignment(ways: &BTreeMap<Vec<usize>, u64>, entries: &[u64]) -> Shares {
    solve(ways, entries).1
}

/// As [`most_counted`]; and for each switch, how many could be counted if it had room for so many
/// more, and the others for as many as they have.
pub fn most_counted_with(
    more: impl Fn(usize) -> u64,
    ways: &BTreeMap<Vec<usize>, u64>,
    entries: &[u64],
) -> (u64, Vec<u64>) {
    let Laid { mut network, classes, .. } = Laid::out(ways, entries);
    let most = network.maximum();
    let all: u64 = classes.values().sum();
    let with = |switch| most + network.gain(2 + switch, more(switch).min(all - most));
    let with_more = (0..entries.len()).map(with).collect();
    (most, with_more)
}

fn solve(ways: &BTreeMap<Vec<usize>, u64>, entries: &[u64]) -> (u64, Shares) {
    let Laid { mut network, classes, arcs } = Laid::out(ways, entries);
    let most = network.maximum();
    let sent = |way: &Vec<usize>, first: usize| {
        // What an arc has sent is what the one back can take.
        let back = |(at, &switch): (usize, &usize)| (switch, network.arcs[first + 2 * at + 1].left);
        way.iter().enumerate().map(back).collect()
    };
    let shares = classes.into_keys().zip(arcs);
    (most, shares.map(|(way, first)| (way.clone(), sent(&way, first))).collect())
}

/// A network from the source over classes and switches to the sink.
struct Laid {
    network: Network,
    /// Flows of each class, by its switches.
    classes: BTreeMap<Vec<usize>, u64>,
    /// The first arc of each class to a switch, in their order.
    arcs: Vec<usize>,
}

impl Laid {
    fn out(ways: &BTreeMap<Vec<usize>, u64>, entries: &[u64]) -> Self {
        let mut classes: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
        for (way, flows) in ways {
            let mut class = way.clone();
            class.sort_unstable();
            class.dedup();
            *classes.entry(class).or_insert(0) += flows;
        }
        let mut network = Network::new(2 + entries.len() + classes.len());
        for (switch, &entries) in entries.iter().enumerate() {
            network.connect(2 + switch, SINK, entries);
        }
        let mut arcs = Vec::with_capacity(classes.len());
        for (class, (way, &flows)) in classes.iter().enumerate() {
            let at = 2 + entries.len() + class;
            network.connect(SOURCE, at, flows);
            arcs.push(network.arcs.len());
            way.iter().for_each(|&switch| network.connect(at, 2 + switch, flows));
        }
        Self { network, classes, arcs }
    }
}

/// What section III-I of the CFS paper takes for the optimum: flows begin at the first switch of
/// their ways, whose switches are in order here, go on over any links that have carried as many,
/// and end where there is an entry. At least [`most_counted`].
pub fn most_by_links(ways: &BTreeMap<Vec<usize>, u64>, entries: &[u64]) -> u64 {
    let mut begin = vec![0; entries.len()];
    let mut links: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (way, &flows) in ways {
        if let Some(&first) = way.first() {
            begin[first] += flows;
        }
        for link in way.windows(2) {
            *links.entry((link[0], link[1])).or_insert(0) += flows;
        }
    }
    let mut network = Network::new(2 + entries.len());
    for (switch, (&entries, flows)) in entries.iter().zip(begin).enumerate() {
        network.connect(SOURCE, 2 + switch, flows);
        network.connect(2 + switch, SINK, entries);
    }
    for ((from, to), flows) in links {
        network.connect(2 + from, 2 + to, flows);
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

    /// The largest flow from source to sink, which then is in the arcs.
    fn maximum(&mut self) -> u64 {
        self.send(u64::MAX)
    }

    /// Sends as much as can be sent on top of what is in the arcs, at most `most`.
    fn send(&mut self, most: u64) -> u64 {
        let mut flow = 0;
        while flow < most
            && let Some(levels) = self.levels()
        {
            let mut next = vec![0; self.from.len()];
            loop {
                match self.push(SOURCE, most - flow, &levels, &mut next) {
                    0 => break,
                    pushed => flow += pushed,
                }
            }
        }
        flow
    }

    /// By how much the largest flow, which is in the arcs, would be larger if this place could send
    /// so much more to the sink. What is in the arcs is a largest flow again, then.
    fn gain(&mut self, place: usize, more: u64) -> u64 {
        // Flows of classes that pass there, and that no place counts, can be counted at once.
        let mut unsent = 0_u64;
        for &Arc { to: class, .. } in self.from[place].iter().map(|&arc| &self.arcs[arc]) {
            let from_source = self.arc(class, SOURCE).filter(|_| class != SINK);
            unsent += from_source.map_or(0, |back| self.arcs[back ^ 1].left);
            if unsent >= more {
                return more;
            }
        }
        let Some(to_sink) = self.arc(place, SINK) else { return 0 };
        self.arcs[to_sink].left += more;
        // No other place that has room left can be reached, so all of it comes by this one.
        let gain = self.send(more);
        self.arcs[to_sink].left -= more - gain;
        self.arcs[to_sink ^ 1].left -= gain;
        let mut back = gain;
        for at in 0..self.from[place].len() {
            let arc = self.from[place][at];
            let Arc { to: class, left } = self.arcs[arc];
            if class == SINK || back == 0 || left == 0 {
                continue;
            }
            let taken = left.min(back);
            back -= taken;
            for arc in [Some(arc), self.arc(class, SOURCE)].into_iter().flatten() {
                self.arcs[arc].left -= taken;
                self.arcs[arc ^ 1].left += taken;
            }
        }
        gain
    }

    /// The first arc from one place to another.
    fn arc(&self, from: usize, to: usize) -> Option<usize> {
        self.from[from].iter().copied().find(|&arc| self.arcs[arc].to == to)
    }

    /// Distances from the source, as far as the sink, if that can still be reached.
    fn levels(&self) -> Option<Vec<usize>> {
        let mut levels = vec![usize::MAX; self.from.len()];
        levels[SOURCE] = 0;
        let mut reached = VecDeque::from([SOURCE]);
        while let Some(at) = reached.pop_front() {
            for arc in self.from[at].iter().map(|&arc| &self.arcs[arc]) {
                if arc.left > 0 && levels[arc.to] == usize::MAX {
                    levels[arc.to] = levels[at] + 1;
                    if arc.to == SINK {
                        return Some(levels);
                    }
                    reached.push_back(arc.to);
                }
            }
        }
        None
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
    fn smallest_cut(ways: &BTreeMap<Vec<usize>, u64>, entries: &[u64]) -> u64 {
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
            let mut classes = BTreeMap::new();
            for (way, flows) in ways {
                let way: Vec<usize> = way.into_iter().filter(|&s| s < entries.len()).collect();
                *classes.entry(way).or_insert(0) += flows;
            }
            let most = most_counted(&classes, &entries);
            prop_assert_eq!(most, smallest_cut(&classes, &entries));
            // Shares are of flows that there are, in entries that there are.
            let shares = assignment(&classes, &entries);
            let mut used = vec![0; entries.len()];
            for (way, shares) in &shares {
                prop_assert!(shares.iter().map(|share| share.1).sum::<u64>() <= classes[way]);
                for &(switch, flows) in shares {
                    prop_assert!(way.contains(&switch));
                    used[switch] += flows;
                }
            }
            prop_assert!(used.iter().zip(&entries).all(|(used, entries)| used <= entries));
            prop_assert_eq!(used.iter().sum::<u64>(), most);
            // More room at one switch, and then at the next one.
            let more = |switch: usize| 1 + switch as u64 % 3;
            let (same, with_more) = most_counted_with(more, &classes, &entries);
            prop_assert_eq!(same, most);
            for (switch, with_more) in with_more.into_iter().enumerate() {
                let mut entries = entries.clone();
                entries[switch] += more(switch);
                prop_assert_eq!(with_more, smallest_cut(&classes, &entries), "at {}", switch);
            }
        }

        #[test]
        fn the_papers_optimum_is_the_smallest_cut_of_links_and_no_less_than_ours(
            entries in prop::collection::vec(0_u64..9, 6),
            ways in prop::collection::vec((prop::collection::vec(0_usize..6, 1..5), 0_u64..12), 0..12),
        ) {
            let mut routed = BTreeMap::new();
            for (mut way, flows) in ways {
                // No way passes a switch twice.
                let mut seen = std::collections::HashSet::new();
                way.retain(|&switch| seen.insert(switch));
                *routed.entry(way).or_insert(0) += flows;
            }
            let cut = |near: u32| {
                let is_near = |switch: usize| near >> switch & 1 == 1;
                let room: u64 = (0..6).filter(|&at| is_near(at)).map(|at| entries[at]).sum();
                let across = routed.iter().map(|(way, flows)| {
                    let begins = u64::from(!is_near(way[0]));
                    let leaves = way.windows(2).filter(|link| is_near(link[0]) && !is_near(link[1]));
                    flows * (begins + leaves.count() as u64)
                });
                room + across.sum::<u64>()
            };
            let most = most_by_links(&routed, &entries);
            prop_assert_eq!(most, (0..1 << 6).map(cut).min().unwrap());
            prop_assert!(most >= most_counted(&routed, &entries));
        }
    }

    #[test]
    fn three_switches_share_what_none_can_count_alone() {
        let ways = BTreeMap::from([(vec![0, 1], 10), (vec![1, 2], 10), (vec![2], 10)]);
        assert_eq!(most_counted(&ways, &[10, 10, 10]), 30);
        assert_eq!(most_counted(&ways, &[30, 0, 0]), 10);
        assert_eq!(most_counted(&ways, &[0, 0, 30]), 20);
        assert_eq!(assignment(&ways, &[30, 0, 0])[&vec![0, 1]], [(0, 10), (1, 0)]);
    }

    #[test]
    fn links_let_flows_pass_where_none_goes() {
        // Flows of 0 end at 1, those that go from 1 to 2 begin there.
        let ways = BTreeMap::from([(vec![0, 1], 10), (vec![1, 2], 10)]);
        assert_eq!((most_counted(&ways, &[0, 0, 20]), most_by_links(&ways, &[0, 0, 20])), (10, 10));
        let ways = BTreeMap::from([(vec![0, 1], 10), (vec![3, 1, 2], 10)]);
        let entries = [0, 0, 10, 10];
        assert_eq!((most_counted(&ways, &entries), most_by_links(&ways, &entries)), (10, 20));
    }
}
