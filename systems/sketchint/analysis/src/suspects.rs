//! Where packets may have been lost: flows that lost some vote for the links of their paths.
//!
//! Which flows lost packets, another system says. A flow's votes are as many as the packets that it
//! lost, and each link of its paths has the same share of them; the links that many such flows have
//! in common have most. Votes are no proof.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use calumma_analysis::Flow;
use calumma_topology::Place;
use serde::{Deserialize, Serialize};

use crate::report::{Found, PathReport};

/// A link by which flows came that lost packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suspect {
    /// The link, with all that stands on it.
    pub place: Place,
    /// Its share of the packets that flows with known paths lost.
    pub votes: f64,
    /// Of the flows with known paths that lost packets, the share that came by it.
    pub explained: f64,
}

/// What votes came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Suspects {
    /// Flows that lost packets.
    pub victims: u64,
    /// Those of them whose paths are known and whole: they voted.
    pub placed: u64,
    /// The links that have votes, those of most first.
    pub suspects: Vec<Suspect>,
}

impl Suspects {
    /// The votes of flows that lost packets in a window: each flow with how many.
    pub fn of(found: &Found, lost: &[(Flow, u64)]) -> Self {
        let lost: BTreeMap<Flow, u64> = lost.iter().copied().filter(|of| of.1 > 0).collect();
        let mut paths: HashMap<Flow, Vec<&PathReport>> = HashMap::new();
        for flow in found.flows.iter().filter(|flow| lost.contains_key(&flow.flow)) {
            paths.entry(flow.flow).or_default().extend(&flow.paths);
        }
        // Of a path that may lack switches, neighbours are no neighbours.
        let is_whole = |paths: &Vec<&PathReport>| {
            !paths.is_empty() && paths.iter().all(|path| !path.partial && path.path.len() > 1)
        };
        paths.retain(|_, paths| is_whole(paths));
        let mut votes: BTreeMap<(&str, &str), (f64, u64)> = BTreeMap::new();
        let mut all = 0.0;
        for (flow, paths) in &paths {
            let lost = lost[flow] as f64;
            all += lost;
            let packets = paths.iter().map(|path| path.at_least).fold(0, u64::saturating_add);
            let mut came_by: BTreeSet<(&str, &str)> = BTreeSet::new();
            for path in paths {
                let share = path.at_least as f64 / packets.max(1) as f64;
                let links = path.path.windows(2).map(|link| (&*link[0], &*link[1]));
                for link in links {
                    let vote = lost * share / (path.path.len() - 1) as f64;
                    votes.entry(link).or_default().0 += vote;
                    came_by.insert(link);
                }
            }
            for link in came_by {
                votes.entry(link).or_default().1 += 1;
            }
        }
        let placed = paths.len() as u64;
        let suspect = |((from, to), (of_link, flows)): ((&str, &str), (f64, u64))| Suspect {
            place: Place { from: format!("{from}:out"), to: format!("{to}:in") },
            votes: of_link / all,
            explained: flows as f64 / placed as f64,
        };
        let mut suspects: Vec<Suspect> = votes.into_iter().map(suspect).collect();
        suspects.sort_by(|one, other| other.votes.total_cmp(&one.votes));
        Self { victims: lost.len() as u64, placed, suspects }
    }
}
