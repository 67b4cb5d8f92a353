//! Superspreaders: sources of flows to many destinations (section IV-C of the paper), and the
//! same the other way round.
//!
//! Of the flows of a source a share is monitored, its coverage c. A destination is seen where one
//! of the k flows to it is monitored, with probability 1 - (1 - c)^k. The paper compares with c
//! times the threshold, which is right only where k is 1. Here k is not known either, but what is
//! seen of each destination says something about it, and so does what is seen of those of other
//! sources ([`Pairs`]): that makes the estimate. And bounds, by the source's own alone:
//!
//! * at least: were all destinations of one k, that of the mean flows of those seen, as many would
//!   be seen as are. Where they differ, there are more.
//! * at most: each destination seen stands for 1 / (1 - (1 - c)^m) of them, m being the flows to it
//!   that are monitored (Horvitz and Thompson). It has k >= m, so that is too many.
//!
//! These suppose that flows are monitored alike, those to one edge as those to another, which
//! nobody knows. What holds whatever is monitored elsewhere: at least there are as many as are
//! seen, and as the flows say that the source's edge itself chose by their hashes ([`Chosen`]); at
//! most one more for each flow that is not monitored.

use std::net::{IpAddr, Ipv6Addr};

use calumma_cfs::frames::{Entry, Graded, Setup};
use calumma_sketch::table::Rank;
use calumma_wire::Role;

use crate::addresses::Ranked;
use crate::coverage::{Coverage, Local, Z95};
use crate::flows::Judged;
use crate::report::{KeptIn, Spread};
use crate::seen::{Seen, UNCLAIMED};
use crate::view::{NodeView, View};

/// How many peers an address has flows to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peers {
    /// About so many.
    pub estimate: f64,
    /// At least so many, 95 times out of 100.
    pub low: f64,
    /// At most so many, 95 times out of 100.
    pub high: f64,
}

impl Peers {
    /// These, and others that are known.
    fn and(self, known: u64) -> Self {
        let known = known as f64;
        let Self { estimate, low, high } = self;
        Self { estimate: estimate + known, low: low + known, high: high + known }
    }

    /// The same where there are so many at least, and at most as far as that is known.
    fn within(self, low: f64, high: Option<f64>) -> Self {
        let high = high.unwrap_or(f64::INFINITY);
        let [estimate, least, most] =
            [self.estimate, self.low, self.high].map(|of| of.clamp(low, high.max(low)));
        Self { estimate, low: least, high: most }
    }
}

/// The mean of what is not seen at all 39 times out of 40.
const NONE_SEEN: f64 = 3.69;

/// Addresses with flows to, or from, many others.
#[derive(Debug, Default)]
pub(crate) struct Spreads {
    /// The largest first.
    pub(crate) found: Vec<Spread>,
    /// Whether no other address has as many peers, 95 times out of 100.
    pub(crate) are_all: bool,
    /// The same, if an edge's flows are monitored alike.
    pub(crate) are_likely_all: bool,
}

/// Sources of flows to at least `threshold` destinations, and destinations of flows from so many
/// sources. Without `coverage` those that are seen to be so.
pub(crate) fn find(
    view: &View<'_>,
    flows: &[Judged],
    coverage: Option<&Local>,
    threshold: u64,
) -> [Spreads; 2] {
    [Entry::ENTERED, Entry::LEFT].map(|side| {
        let chosen = Chosen::on(view, side);
        let found = |(number, (key, flow)): (usize, (&Ranked, &Judged))| {
            let [one, other] = key.ends;
            let (at, comes_first) = (chosen.of(view, number), flow.comes_first);
            Found { one, other, at, comes_first }
        };
        let mut found: Vec<Found> = view.keys().iter().zip(flows).enumerate().map(found).collect();
        if side == Entry::LEFT {
            found = turned(&found, view.addresses.len());
        }
        of_each(view, (&found, &chosen), coverage, threshold)
    })
}

/// A flow with a count.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The ranks of the address that peers are counted of, and of the peer's.
    one: u32,
    other: u32,
    /// The edge whose table chose it by its hash alone, as [`Chosen::of`] has it.
    at: Option<u16>,
    /// As [`Judged::comes_first`].
    comes_first: bool,
}

/// Flows that came to edges on a side, and have an entry there since they have a small grade: what
/// grade is small enough is the same for all of them, and hashes draw grades. So such flows are
/// drawn from all that came, each with the same chance.
struct Chosen {
    side: u8,
    /// Of each node the chance, at most; `None` where nothing is known of it.
    chances: Vec<Option<f64>>,
}

impl Chosen {
    fn on(view: &View<'_>, side: u8) -> Self {
        let chance = |node: &NodeView<'_>| {
            let setup = view.setup.with(node.window.overrides.unwrap_or_default());
            // What is claimed on its way goes by its grades there as well.
            let is_drawn = side == Entry::ENTERED || !setup.claim;
            (node.role == Role::Edge && is_drawn).then(|| chance_of(&setup, node.window.limit))
        };
        Self { side, chances: view.nodes.iter().map(chance).collect() }
    }

    /// The edge that has so chosen the flow of this number.
    fn of(&self, view: &View<'_>, flow: usize) -> Option<u16> {
        let is_chosen = |seen: &&Seen<'_>| {
            seen.from == KeptIn::Table
                && seen.sides & self.side != 0
                && seen.entry.rank.class() == UNCLAIMED
                && self.chances[seen.node()].is_some()
        };
        let seen = view.seen_of(flow).iter().find(is_chosen)?;
        u16::try_from(seen.node()).ok()
    }

    /// Peers at least, 95 times out of 100, of which these flows are seen. Whoever sends by several
    /// edges sends so many by that one which has most of them.
    fn at_least(&self, flows_of_one: &[Found]) -> f64 {
        let mut edges: Vec<u16> = flows_of_one.iter().filter_map(|flow| flow.at).collect();
        edges.sort_unstable();
        let most = edges.chunk_by(|one, other| one == other).max_by_key(|of| of.len());
        let Some(&[edge, ..]) = most else { return 0.0 };
        let chance = self.chances[usize::from(edge)].unwrap_or(1.0);
        let (mut seen, mut first) = (Vec::new(), 0);
        for flows in flows_of_one.chunk_by(|a, b| a.other == b.other) {
            let here = flows.iter().filter(|flow| flow.at == Some(edge)).count();
            if flows.iter().any(|flow| flow.comes_first) {
                first += 1;
            } else if here > 0 {
                seen.push(here as u32);
            }
        }
        at_least(&seen, chance) + f64::from(first)
    }
}

/// The chance that a flow's grade is small enough, where no table went beyond `limit`.
fn chance_of(setup: &Setup, limit: Option<Rank>) -> f64 {
    let Some(limit) = limit.filter(|limit| limit.class() <= UNCLAIMED) else { return 1.0 };
    // All but random grades are distances from a point, to both of its sides.
    let sides = if setup.grade == Graded::Random { 1.0 } else { 2.0 };
    let grade = if limit.class() == UNCLAIMED { f64::from(limit.grade()) } else { 0.0 };
    (sides * (grade + 1.0) / f64::exp2(32.0)).min(1.0)
}

/// Flows in the order of their sources, out of so many addresses, turned: in that of destinations,
/// and of each by its sources.
fn turned(flows: &[Found], addresses: usize) -> Vec<Found> {
    let mut begins = vec![0_u32; addresses];
    flows.iter().for_each(|flow| begins[flow.other as usize] += 1);
    let mut all = 0;
    for begin in &mut begins {
        (*begin, all) = (all, all + *begin);
    }
    let mut turned = flows.to_vec();
    for &flow in flows {
        let begin = &mut begins[flow.other as usize];
        turned[*begin as usize] = Found { one: flow.other, other: flow.one, ..flow };
        *begin += 1;
    }
    turned
}

/// Flows seen of each peer of one address, and how many more peers have a flow that comes first:
/// such a peer was to be seen, whatever share is monitored.
fn seen_of(flows_of_one: &[Found]) -> (Vec<u32>, u64) {
    let (mut seen, mut first) = (Vec::new(), 0);
    for flows in flows_of_one.chunk_by(|a, b| a.other == b.other) {
        if flows.iter().any(|flow| flow.comes_first) {
            first += 1;
        } else {
            seen.push(flows.len() as u32);
        }
    }
    (seen, first)
}

/// Of flows in the order of one address and then the other.
fn of_each(
    view: &View<'_>,
    (flows, chosen): (&[Found], &Chosen),
    coverage: Option<&Local>,
    threshold: u64,
) -> Spreads {
    let wanted = threshold as f64;
    let addresses = || flows.chunk_by(|a, b| a.one == b.one);
    let pairs = coverage.map(|local| {
        let of_one = |of: &[Found]| Some((seen_of(of).0, local.of(of[0].one)?));
        Pairs::learn(addresses().filter_map(of_one), threshold)
    });
    // Of addresses without any monitored flow.
    let none_seen = |least: f64| if least < 1.0 { NONE_SEEN / chance(least, 1.0) } else { 0.0 };
    let least = coverage.and_then(Local::least);
    let mut all = Spreads {
        found: Vec::new(),
        are_all: coverage.is_some_and(|of| of.others() < wanted),
        are_likely_all: least.is_some_and(|least| none_seen(least) < wanted)
            && coverage.is_some_and(|of| of.hidden() < wanted),
    };
    for of_one in addresses() {
        let (seen, first) = seen_of(of_one);
        let number = seen.len() as u64 + first;
        let one = of_one[0].one;
        let host = view.addresses.get(one);
        // Flows to a host may have come to no edge, and one that moves sends to several.
        let is_there = chosen.side == Entry::ENTERED && !view.may_be_anywhere(host);
        let others = |of: &Local| if is_there { of.others_from(one) } else { of.others_of(one) };
        let high = coverage.map(|of| number as f64 + others(of));
        let low = chosen.at_least(of_one).max(number as f64);
        let low = high.map_or(low, |high| low.min(high));
        let both = coverage.zip(pairs.as_ref());
        let peers = both.and_then(|(of, pairs)| {
            let peers = peers(&seen, of.of(one)?, pairs).and(first);
            Some(peers.within(low, high))
        });
        if peers.map_or(low, |peers| peers.estimate) < wanted {
            all.are_all &= high.is_some_and(|high| high < wanted);
            all.are_likely_all &= peers.is_some_and(|peers| peers.high < wanted);
            continue;
        }
        all.found.push(Spread {
            address: IpAddr::from(Ipv6Addr::from(*host)).to_canonical(),
            seen: number,
            estimate: peers.map(|peers| peers.estimate),
            estimate_low: peers.map(|peers| peers.low),
            estimate_high: peers.map(|peers| peers.high),
            low,
            high,
            certain: low >= wanted,
        });
    }
    let size = |spread: &Spread| spread.estimate.unwrap_or(spread.low);
    all.found.sort_by(|a, b| size(b).total_cmp(&size(a)));
    all
}

/// How many flows pairs have, as addresses that may have many peers show it together: shares of
/// these addresses, by the mean of what is taken for a Poisson distribution that every peer with a
/// flow is drawn from.
///
/// Of a single address with a small share of its flows monitored hardly any peer is seen twice, and
/// that says nothing; of all together it does. Each has its own mean, and what is seen of it counts
/// as much as it says (a nonparametric empirical Bayes estimate; Kiefer and Wolfowitz, 1956).
#[derive(Clone, Debug)]
pub struct Pairs {
    shares: [f64; MEANS],
}

/// Means that are distinguished: 0, which is one flow each, and half octaves from 1/4 to 1024.
const MEANS: usize = 26;

fn mean(at: usize) -> f64 {
    if at == 0 { 0.0 } else { f64::exp2(0.5 * at as f64 - 2.5) }
}

/// Addresses that are learned from at most, and rounds of learning.
const MOST_LEARNED: usize = 1000;
const ROUNDS: usize = 100;

impl Pairs {
    /// By the monitored flows of each peer seen of each address, and the share of its flows that is
    /// monitored. Those count that would have `threshold` peers, had each one flow.
    pub fn learn(addresses: impl Iterator<Item = (Vec<u32>, Coverage)>, threshold: u64) -> Self {
        let may_have = |(seen, coverage): &(Vec<u32>, Coverage)| {
            !seen.is_empty() && seen.len() as f64 >= threshold as f64 * coverage.value
        };
        let all: Vec<_> = addresses
            .filter(may_have)
            .map(|(seen, coverage)| likelihoods(&seen, coverage.value))
            .collect();
        let mut shares = [1.0 / MEANS as f64; MEANS];
        let every = all.len().div_ceil(MOST_LEARNED).max(1);
        let learned = all.len().div_ceil(every);
        for _ in 0..if all.is_empty() { 0 } else { ROUNDS } {
            let mut sums = [0.0; MEANS];
            for of in all.iter().step_by(every) {
                let chances = chances(&shares, of);
                sums.iter_mut().zip(chances).for_each(|(sum, chance)| *sum += chance);
            }
            shares = sums.map(|sum| sum / learned as f64);
        }
        Self { shares }
    }

    /// Peers of an address of which these are seen.
    fn estimate(&self, seen: &[u32], coverage: f64) -> f64 {
        let number = seen.len() as f64;
        let all = |mean: f64| match mean {
            0.0 => number / coverage,
            _ => number * f64::exp_m1(-mean) / f64::exp_m1(-mean * coverage),
        };
        let chances = chances(&self.shares, &likelihoods(seen, coverage));
        (0..).map(mean).zip(chances).map(|(mean, chance)| chance * all(mean)).sum()
    }
}

/// How likely each of the means makes what is seen of an address, through what the likeliest does.
fn likelihoods(seen: &[u32], coverage: f64) -> [f64; MEANS] {
    let number = seen.len() as f64;
    let flows: f64 = seen.iter().copied().map(f64::from).sum();
    let logs: [f64; MEANS] = std::array::from_fn(|at| {
        // Of those monitored the mean is a share; peers without any are not seen.
        let mean = mean(at) * coverage;
        if at > 0 {
            flows * mean.ln() - number * (mean + f64::ln(-f64::exp_m1(-mean)))
        } else if flows > number {
            f64::NEG_INFINITY
        } else {
            0.0
        }
    });
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    logs.map(|log| f64::exp(log - most))
}

/// The chance of each mean, of which so many addresses have each and so likely it is.
fn chances(shares: &[f64; MEANS], likelihoods: &[f64; MEANS]) -> [f64; MEANS] {
    let both: [f64; MEANS] = std::array::from_fn(|at| shares[at] * likelihoods[at]);
    let sum: f64 = both.iter().sum();
    // What no address has that was learned from: by itself.
    let (both, sum) =
        if sum > 1e-200 { (both, sum) } else { (*likelihoods, likelihoods.iter().sum()) };
    both.map(|chance| chance / sum)
}

/// How many peers there are, of those seen each with so many monitored flows (section IV-C of the
/// paper, where a pair may have several flows); `pairs` says what is seen of others.
pub fn peers(seen: &[u32], coverage: Coverage, pairs: &Pairs) -> Peers {
    let number = seen.len() as f64;
    if coverage.low >= 1.0 {
        return Peers { estimate: number, low: number, high: number };
    }
    if seen.is_empty() {
        return Peers { estimate: 0.0, low: 0.0, high: NONE_SEEN / chance(coverage.low, 1.0) };
    }
    let low = at_least(seen, coverage.high);
    let high = {
        let (all, variance) = seen.iter().fold((0.0, 0.0), |(all, variance), &flows| {
            let seen_share = chance(coverage.low, flows.into());
            let one = seen_share.recip();
            (all + one, variance + (1.0 - seen_share) * one * one)
        });
        all + Z95 * f64::sqrt(variance)
    };
    let c = coverage.value;
    let estimate = if c >= 0.5 {
        // Unbiased for any k: the mean of x^m is (1 - c + c x)^k, which is none here.
        let x = -(1.0 - c) / c;
        seen.iter().map(|&flows| 1.0 - x.powf(flows.into())).sum()
    } else {
        pairs.estimate(seen, c)
    };
    Peers { estimate: f64::clamp(estimate, low, high.max(low)), low, high: high.max(low) }
}

/// Peers at least, of those seen each with so many flows, of which each was drawn with this chance
/// at most.
fn at_least(seen: &[u32], coverage: f64) -> f64 {
    let number = seen.len() as f64;
    if seen.is_empty() || coverage >= 1.0 {
        return number;
    }
    let flows: f64 = seen.iter().copied().map(f64::from).sum();
    // A few more destinations with several flows might have been seen.
    let repeated = flows - number;
    let more = flows + Z95 * (repeated + 1.0).sqrt();
    let seen_share = chance(coverage, alike(coverage, number, more));
    let all = number / seen_share;
    (all - Z95 * (number * (1.0 - seen_share)).sqrt() / seen_share).max(number)
}

/// The chance that one of so many flows is monitored.
fn chance(coverage: f64, flows: f64) -> f64 {
    -f64::exp_m1(flows * f64::ln_1p(-coverage.min(1.0 - 1e-12)))
}

/// Flows that each peer has, at least one, if all have as many and `number` of them are seen with
/// `flows` together.
fn alike(coverage: f64, number: f64, flows: f64) -> f64 {
    // Flows seen for each peer seen, which rises with what each peer has.
    let seen = |each: f64| each * coverage / chance(coverage, each);
    let wanted = flows / number;
    let (mut low, mut high) = (1.0, 1.0 + wanted / coverage);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if seen(middle) < wanted { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn exactly(value: f64) -> Coverage {
        Coverage { value, low: value, high: value }
    }

    /// How many flows of each peer are monitored, of those of which any is.
    fn seen(rng: &mut StdRng, flows: impl Iterator<Item = u32>, coverage: f64) -> Vec<u32> {
        let monitored = flows.map(|flows| (0..flows).filter(|_| rng.random_bool(coverage)).count());
        monitored.filter(|&flows| flows > 0).map(|flows| flows as u32).collect()
    }

    #[test]
    fn the_truth_lies_in_the_range_whatever_number_of_flows_peers_have() {
        let mut rng = StdRng::seed_from_u64(3);
        type Flows = fn(u32) -> u32;
        let mut kinds: [(&str, Flows); 4] = [
            ("a scan", |_| 1),
            ("a few", |peer| 1 + peer % 3),
            ("many", |_| 12),
            ("both", |peer| if peer.is_multiple_of(10) { 40 } else { 1 }),
        ];
        for (name, flows) in &mut kinds {
            for (coverage, peers_there) in [(0.02, 4000_u32), (0.1, 1000), (0.5, 300), (0.9, 100)] {
                let mut outside = 0;
                let mut sum = 0.0;
                for _ in 0..200 {
                    let mut of_one = || seen(&mut rng, (0..peers_there).map(&mut *flows), coverage);
                    // Others whose pairs are alike.
                    let others = (0..4).map(|_| (of_one(), exactly(coverage)));
                    let pairs = Pairs::learn(others, 100);
                    let seen = of_one();
                    let Peers { estimate, low, high } = peers(&seen, exactly(coverage), &pairs);
                    let there = f64::from(peers_there);
                    outside += u32::from(there < low || there > high);
                    sum += estimate / there;
                    assert!(low >= seen.len() as f64 && (low..=high).contains(&estimate));
                }
                assert!(outside <= 12, "{name} at {coverage}: {outside} of 200 outside");
                let mean = sum / 200.0;
                // Where destinations differ, few that are seen say little about the others.
                let least = match coverage {
                    0.5.. => 0.9,
                    _ if *name == "both" => 0.15,
                    _ => 0.9,
                };
                assert!((least..1.2).contains(&mean), "{name} at {coverage}: {mean} of the truth");
            }
        }
    }

    #[test]
    fn what_is_all_monitored_is_exact() {
        let all = peers(&[1, 5, 2], exactly(1.0), &Pairs::learn(std::iter::empty(), 1));
        assert_eq!(all, Peers { estimate: 3.0, low: 3.0, high: 3.0 });
    }

    /// Sources of 1,000 destinations, of which one in four has three flows and the others one, are
    /// kept apart from sources of 1,400 with one each, although hardly any is seen twice.
    #[test]
    fn what_is_seen_of_all_addresses_tells_how_many_flows_pairs_have() {
        let mut rng = StdRng::seed_from_u64(5);
        let coverage = exactly(0.03);
        let mut of = |there: u32, flows: fn(u32) -> u32| {
            let all: Vec<Vec<u32>> =
                (0..30).map(|_| seen(&mut rng, (0..there).map(flows), coverage.value)).collect();
            let pairs = Pairs::learn(all.iter().map(|seen| (seen.clone(), coverage)), 500);
            let mean = |of: &dyn Fn(&Vec<u32>) -> f64| all.iter().map(of).sum::<f64>() / 30.0;
            let by_paper = mean(&|seen| seen.len() as f64 / coverage.value);
            let alone = mean(&|seen| {
                let own = Pairs::learn(std::iter::once((seen.clone(), coverage)), 1);
                peers(seen, coverage, &own).estimate
            });
            (mean(&|seen| peers(seen, coverage, &pairs).estimate), by_paper, alone)
        };
        let (together, by_paper, alone) =
            of(1_000, |peer| if peer.is_multiple_of(4) { 3 } else { 1 });
        assert!((800.0..1_200.0).contains(&together), "{together}");
        assert!(by_paper > 1_300.0 && alone > together + 50.0, "{by_paper} and {alone}");
        let (together, _, _) = of(1_400, |_| 1);
        assert!((1_250.0..1_550.0).contains(&together), "{together}");
    }
}
