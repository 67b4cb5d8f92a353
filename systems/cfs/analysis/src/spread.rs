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

use std::net::{IpAddr, Ipv6Addr};

use crate::addresses::Ranked;
use crate::coverage::{Coverage, Local, Z95};
use crate::flows::Judged;
use crate::report::Spread;
use crate::view::View;

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
}

/// The mean of what is not seen at all 39 times out of 40.
const NONE_SEEN: f64 = 3.69;

/// Sources of flows to at least `threshold` destinations, and destinations of flows from so many
/// sources; the largest first. Without `coverage` those that are seen to be so.
pub(crate) fn find(
    view: &View<'_>,
    flows: &[Judged],
    coverage: Option<&Local>,
    threshold: u64,
) -> (Vec<Spread>, Vec<Spread>) {
    let found = |(key, flow): (&Ranked, &Judged)| {
        let [one, other] = key.ends;
        Found { one, other, pinned: flow.pinned }
    };
    let found: Vec<Found> = view.keys().iter().zip(flows).map(found).collect();
    let sources = of_each(view, &found, coverage, threshold);
    let found = turned(&found, view.addresses.len());
    let destinations = of_each(view, &found, coverage, threshold);
    (sources, destinations)
}

/// A flow with a count.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The ranks of the address that peers are counted of, and of the peer's.
    one: u32,
    other: u32,
    /// Whether the flow was pinned.
    pinned: bool,
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
    for &Found { one, other, pinned } in flows {
        let begin = &mut begins[other as usize];
        turned[*begin as usize] = Found { one: other, other: one, pinned };
        *begin += 1;
    }
    turned
}

/// Flows seen of each peer of one address, and how many more peers have a flow that was pinned:
/// such a peer was to be seen, whatever share is monitored.
fn seen_of(flows_of_one: &[Found]) -> (Vec<u32>, u64) {
    let (mut seen, mut pinned) = (Vec::new(), 0);
    for flows in flows_of_one.chunk_by(|a, b| a.other == b.other) {
        if flows.iter().any(|flow| flow.pinned) {
            pinned += 1;
        } else {
            seen.push(flows.len() as u32);
        }
    }
    (seen, pinned)
}

/// Of flows in the order of one address and then the other.
fn of_each(
    view: &View<'_>,
    flows: &[Found],
    coverage: Option<&Local>,
    threshold: u64,
) -> Vec<Spread> {
    let mut found = Vec::new();
    let addresses = || flows.chunk_by(|a, b| a.one == b.one);
    let pairs = coverage.map(|local| {
        let of_one = |of: &[Found]| (seen_of(of).0, local.of(of[0].one));
        Pairs::learn(addresses().map(of_one), threshold)
    });
    for of_one in addresses() {
        let (seen, pinned) = seen_of(of_one);
        let address = of_one[0].one;
        let both = coverage.zip(pairs.as_ref());
        let peers = both.map(|(of, pairs)| peers(&seen, of.of(address), pairs).and(pinned));
        let number = seen.len() as u64 + pinned;
        let low = peers.map_or(number as f64, |peers| peers.low);
        if peers.map_or(low, |peers| peers.estimate) < threshold as f64 {
            continue;
        }
        let address = Ipv6Addr::from(*view.addresses.get(address));
        let address = IpAddr::from(address).to_canonical();
        found.push(Spread {
            address,
            seen: number,
            estimate: peers.map(|peers| peers.estimate),
            low,
            high: peers.map(|peers| peers.high),
            certain: low >= threshold as f64,
        });
    }
    let size = |spread: &Spread| spread.estimate.unwrap_or(spread.low);
    found.sort_by(|a, b| size(b).total_cmp(&size(a)));
    found
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
    let flows: f64 = seen.iter().copied().map(f64::from).sum();
    // A few more destinations with several flows might have been seen.
    let repeated = flows - number;
    let more = flows + Z95 * (repeated + 1.0).sqrt();
    let low = {
        let seen_share = chance(coverage.high, alike(coverage.high, number, more));
        let all = number / seen_share;
        (all - Z95 * (all * (1.0 - seen_share)).sqrt() / seen_share).max(number)
    };
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
