//! The most flows that all tables together could count, each flow in one of them, if somebody who
//! knows all ways chose for every switch what to count; and with more room at one of them.
//!
//! A maximum flow from flows over the switches on their ways to these switches' room is as large as
//! the smallest cut (Ford and Fulkerson): over all sets of switches, the flows that pass any of the
//! set, and the room of the others, is least. How many flows pass any of several switches, their
//! merged registers show, without the way of any flow being known. So every set gives an upper
//! bound, and what tables have counted is a lower one. Where every switch has a count of each flow
//! that it saw, ways are known, and the number is exact.

use std::collections::{BTreeMap, HashMap};

use calumma_sketch::HyperLogLog;
use calumma_topology::optimum::most_counted_with;

use crate::coverage::{Coverage, Total};
use crate::view::{NodeView, View};

/// By which part of its room a switch's is larger where it has more.
const MORE: u64 = 10;

/// Steps in which switches are put in the order in which sets have them: all of them where there
/// are no more, else several at once.
const STEPS: usize = 24;

/// Sets of which bounds are looked at, at most, besides those of none and of all.
const SETS: usize = 128;

/// Shares of all flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// What tables could count.
    pub share: Coverage,
    /// For each table, what they could if it had room for a tenth more.
    pub with_more: Vec<Coverage>,
}

/// A switch's table, and the flows that passed the switch.
#[derive(Clone, Debug)]
pub struct Room {
    /// How many flows it holds.
    pub entries: u64,
    /// All flows that passed.
    pub passed: HyperLogLog,
    /// Those of them that the switch has a count of.
    pub counted: HyperLogLog,
}

impl Optimum {
    /// That of a window in which all nodes delivered; `None` where some are not sound. Of
    /// `monitored` flows, `in_tables` are in any node's table. `room` is how many flows each table
    /// holds.
    pub(crate) fn of(
        view: &View<'_>,
        total: Option<Total>,
        (monitored, in_tables): (u64, u64),
        room: &[u64],
    ) -> Option<Self> {
        let total = total.filter(|_| view.nodes.iter().all(|node| node.is_sound))?;
        let is_all = total.error() == 0.0;
        if is_all && in_tables == monitored {
            return Some(Self { share: Coverage::ALL, with_more: vec![Coverage::ALL; room.len()] });
        }
        if is_all && view.nodes.iter().all(NodeView::has_all) {
            return Some(Self::exactly(view, monitored, room));
        }
        let tables = Room::all(view, room)?;
        let flows = view.seen_at().map(|nodes| nodes.iter().map(|&node| node as usize));
        Some(Self::within(tables, flows, (total, in_tables)))
    }

    /// As far as registers show it, where there were so many flows, and tables have counted some.
    /// `flows` are the switches that have a count of each flow.
    pub fn within(
        tables: Vec<Room>,
        flows: impl Iterator<Item = impl Iterator<Item = usize>>,
        (total, in_tables): (Total, u64),
    ) -> Self {
        Cuts::between(tables, flows).optimum(total, in_tables)
    }

    /// Where every switch has a count of each flow that it saw, by the ways that flows took.
    fn exactly(view: &View<'_>, monitored: u64, room: &[u64]) -> Self {
        let mut ways: HashMap<Vec<usize>, u64> = HashMap::new();
        let mut way = Vec::new();
        for nodes in view.seen_at() {
            way.clear();
            way.extend(nodes.iter().map(|&node| node as usize));
            match ways.get_mut(&way) {
                Some(flows) => *flows += 1,
                None => drop(ways.insert(way.clone(), 1)),
            }
        }
        let ways: BTreeMap<Vec<usize>, u64> = ways.into_iter().collect();
        let (most, with_more) = most_counted_with(|switch| more(room[switch]), &ways, room);
        let share = |flows: u64| {
            let value = flows as f64 / monitored.max(1) as f64;
            Coverage { value, low: value, high: value }
        };
        Self { share: share(most), with_more: with_more.into_iter().map(share).collect() }
    }
}

/// What is added to a table's room where it has more.
fn more(room: u64) -> u64 {
    room / MORE
}

impl Room {
    /// All of a view; `None` where their registers are not of the same words.
    fn all(view: &View<'_>, room: &[u64]) -> Option<Vec<Self>> {
        let first = view.nodes.first()?;
        let bits = first.window.flows.bits();
        let is_like =
            |node: &NodeView<'_>| node.words == first.words && node.window.flows.bits() == bits;
        if !view.nodes.iter().all(is_like) {
            return None;
        }
        let empty = HyperLogLog::new(bits);
        let switch = |(node, &entries): (&NodeView<'_>, &u64)| Self {
            entries,
            passed: node.window.flows.clone(),
            counted: empty.clone(),
        };
        let mut all: Vec<Self> = view.nodes.iter().zip(room).map(switch).collect();
        for (nodes, hashes) in view.seen_at().zip(view.hashes(first.words)) {
            let Some(hashes) = hashes else { continue };
            nodes.iter().for_each(|&node| all[node as usize].counted.insert(hashes));
        }
        // A count shows that the flow passed, whatever registers say.
        let are_alike = all.iter_mut().all(|of| of.passed.merge(&of.counted));
        are_alike.then_some(all)
    }
}

/// The place of each switch in an order of all.
fn places(order: &[usize]) -> Vec<usize> {
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &switch)| places[switch] = place);
    places
}

/// How many flows have a count at a switch, and at none before it in this order of all.
fn first_counts(
    flows: impl Iterator<Item = impl Iterator<Item = usize>>,
    order: &[usize],
) -> Vec<u64> {
    let (places, mut counts) = (places(order), vec![0; order.len()]);
    for switches in flows {
        if let Some(first) = switches.map(|switch| places[switch]).min() {
            counts[first] += 1;
        }
    }
    counts
}

/// Cuts by sets of switches that are each within the next one.
#[derive(Debug)]
struct Cuts {
    room: Vec<u64>,
    /// All switches, in the order in which sets have them.
    order: Vec<usize>,
    /// How many switches a set has, and how many flows are cut.
    cuts: Vec<(usize, Total)>,
}

impl Cuts {
    /// As [`Optimum::within`] has it.
    fn between(
        switches: Vec<Room>,
        flows: impl Iterator<Item = impl Iterator<Item = usize>>,
    ) -> Self {
        let order = order(&switches);
        let counts = first_counts(flows, &order);
        let mut without: u64 = switches.iter().map(|of| of.entries).sum();
        let mut cuts = vec![(0, Total::exactly(without))];
        let mut registers: Option<(HyperLogLog, HyperLogLog)> = None;
        let (mut counted, every) = (0, order.len().div_ceil(SETS).max(1));
        for (at, &switch) in order.iter().enumerate() {
            let Room { entries, passed, counted: of_counted } = &switches[switch];
            without -= entries;
            counted += counts[at];
            let (all, known) = match registers.as_mut() {
                Some((all, known)) => {
                    let are_alike = all.merge(passed) && known.merge(of_counted);
                    if !are_alike {
                        break;
                    }
                    (all, known)
                }
                None => {
                    let first = registers.insert((passed.clone(), of_counted.clone()));
                    (&mut first.0, &mut first.1)
                }
            };
            // The set of all cuts all flows, which is no bound.
            if (at + 1).is_multiple_of(every)
                && at + 1 < order.len()
                && let Some(beyond) = all.beyond(known)
            {
                cuts.push((at + 1, Total::with(without + counted, beyond)));
            }
        }
        Self { room: switches.into_iter().map(|of| of.entries).collect(), order, cuts }
    }

    /// Out of so many flows, of which tables have counted some.
    fn optimum(&self, total: Total, in_tables: u64) -> Optimum {
        let share = |flows: f64, of: f64| if of > flows { flows / of } else { 1.0 };
        let low = share(in_tables as f64, total.high);
        let bounded = |[value, high]: [f64; 2]| {
            let high = high.max(low);
            Coverage { value: value.clamp(low, high), low, high }
        };
        // The smallest share of a cut, and the smallest that it is at most.
        let least = |least: [f64; 2], flows: Total, more: u64| {
            let [value, high] = [flows.flows, flows.high].map(|of| of + more as f64);
            [least[0].min(share(value, total.flows)), least[1].min(share(high, total.low))]
        };
        let all = self.cuts.iter().fold([1.0; 2], |so_far, &(_, flows)| least(so_far, flows, 0));
        let with_more = self.room.iter().zip(places(&self.order)).map(|(&room, place)| {
            bounded(self.cuts.iter().fold([1.0; 2], |so_far, &(set, flows)| {
                // Whose switches count nothing that is not cut already.
                least(so_far, flows, if place < set { 0 } else { more(room) })
            }))
        });
        Optimum { share: bounded(all), with_more: with_more.collect() }
    }
}

/// Switches in the order in which sets have them: next comes the one that adds the fewest flows for
/// the room that no longer counts.
fn order(switches: &[Room]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(switches.len());
    let mut left: Vec<usize> = (0..switches.len()).collect();
    let at_once = switches.len().div_ceil(STEPS).max(1);
    let mut all: Option<HyperLogLog> = None;
    while left.len() > 1 {
        let adds = |&switch: &usize| {
            let Room { entries, passed, .. } = &switches[switch];
            let mut with = passed.clone();
            if all.as_ref().is_some_and(|all| !with.merge(all)) {
                return f64::INFINITY;
            }
            with.estimate().value - *entries as f64
        };
        let mut next: Vec<(f64, usize)> = left.iter().map(|of| (adds(of), *of)).collect();
        next.sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        next.truncate(at_once);
        for (_, switch) in next {
            let passed = &switches[switch].passed;
            match all.as_mut() {
                Some(all) => drop(all.merge(passed)),
                None => all = Some(passed.clone()),
            }
            order.push(switch);
        }
        left.retain(|switch| !order.contains(switch));
    }
    order.extend(left);
    order
}
