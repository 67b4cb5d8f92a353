//! What alerts watch for: too few flows with an entry, loops, superspreaders, black holes.

use calumma_analysis::alert::{Fact, Reading, Rules};
use calumma_analysis::{Report, SystemReport};

use crate::report::{BlackHole, Found, Loop, LoopsNoticed, Spread};

const COVERAGE_LOW: &str = "cfs_coverage_low";
const LOOP: &str = "cfs_loop";
const SUPERSPREADER: &str = "cfs_superspreader";
const BLACK_HOLE: &str = "cfs_black_hole";

/// The rules. What is wanted stands in each report.
#[derive(Debug)]
pub(crate) struct Watch;

impl Rules for Watch {
    fn read(&mut self, report: &dyn Report) -> Option<Vec<Fact>> {
        if report.as_type::<LoopsNoticed>().is_some() {
            return Some(vec![Fact { alert: LOOP, node: None, reading: Reading::Proven }]);
        }
        let report = report.as_type::<SystemReport<Found>>()?;
        let found = &report.findings;
        let coverage = match (found.coverage_low, found.coverage_high) {
            (Some(_), Some(high)) if high < found.thresholds.coverage_wanted => Reading::Bad,
            (Some(low), Some(_)) if low >= found.thresholds.coverage_wanted => Reading::Good,
            (Some(_), Some(_)) => Reading::Between,
            _ => Reading::Unknown,
        };
        // What is not there may have been where nodes are missing, or have not counted all.
        let none = |is_known: bool, is_there: bool, is_certain: bool| match (is_there, is_certain) {
            (true, true) => Reading::Bad,
            (true, false) => Reading::Between,
            (false, _) if report.complete && is_known => Reading::Good,
            (false, _) => Reading::Unknown,
        };
        let is_certain = found.loops.iter().any(|it: &Loop| it.certain);
        let loops = match none(found.loops_watched, !found.loops.is_empty(), is_certain) {
            Reading::Bad => Reading::Proven,
            reading => reading,
        };
        let certain = |spread: &Spread| spread.certain;
        let spreaders = &found.superspreaders;
        let spreaders = none(
            found.knows_superspreaders(),
            !spreaders.is_empty(),
            spreaders.iter().any(certain),
        );
        // Whatever is reported as one is proven.
        let holes = none(found.black_holes_known, !found.black_holes.is_empty(), true);
        let fact = |(alert, reading)| Fact { alert, node: None, reading };
        let readings = [
            (COVERAGE_LOW, coverage),
            (LOOP, loops),
            (SUPERSPREADER, spreaders),
            (BLACK_HOLE, holes),
        ];
        Some(readings.into_iter().map(fact).collect())
    }

    fn text(&self, fact: &Fact, report: &dyn Report, over: bool) -> String {
        if let Some(noticed) = report.as_type::<LoopsNoticed>() {
            return noticed.loops.first().map_or_else(String::new, going_round);
        }
        let found = report.as_type::<SystemReport<Found>>().map(|report| &report.findings);
        let Some(found) = found else { return String::new() };
        match (fact.alert, over) {
            (COVERAGE_LOW, false) => {
                let share = found.coverage.map_or_else(|| "too few".to_owned(), percent);
                format!("{share} of the flows have an entry, fewer than wanted")
            }
            (COVERAGE_LOW, true) => "as many flows have an entry as are wanted".to_owned(),
            (LOOP, false) => {
                let certain = found.loops.iter().find(|it| it.certain);
                certain.map_or_else(String::new, going_round)
            }
            (LOOP, true) => "no packets go round any more".to_owned(),
            (BLACK_HOLE, false) => {
                let most = found.black_holes.iter().max_by_key(|hole| hole.packets);
                most.map_or_else(String::new, |hole| {
                    let (from, to) = (&hole.place.from, hole.end());
                    let BlackHole { flows, packets, .. } = hole;
                    format!(
                        "nothing goes on from {from} to {to}: {packets} packets lost, flows: {flows}"
                    )
                })
            }
            (BLACK_HOLE, true) => "something goes on everywhere again".to_owned(),
            (_, false) => {
                let certain = found.superspreaders.iter().find(|it| it.certain);
                certain.map_or_else(String::new, |it| {
                    format!("{} sends to at least {:.0} destinations", it.address, it.low)
                })
            }
            (_, true) => "no source sends to so many destinations any more".to_owned(),
        }
    }
}

fn going_round(it: &Loop) -> String {
    let nodes = it.nodes.join(", ");
    format!("packets go round, {} hops a turn, by {nodes}: {}", it.length, it.flow)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
