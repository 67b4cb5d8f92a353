//! What alerts watch for: inflated latencies, changed paths, loops, too few packets with INT.

use calumma_analysis::alert::{Fact, Reading, Rules};
use calumma_analysis::{Report, SystemReport};
use calumma_plane::int::push::NotCarried;

use crate::report::Found;

const INFLATED: &str = "sketchint_inflated";
const PATH_CHANGES: &str = "sketchint_path_changes";
const LOOP: &str = "sketchint_loop";
const COVERAGE: &str = "sketchint_coverage";

/// The rules. What is wanted stands in each report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// The first epoch after the last window, where that was complete.
    next: Option<u64>,
}

impl Rules for Watch {
    fn read(&mut self, report: &dyn Report) -> Option<Vec<Fact>> {
        let report = report.as_type::<SystemReport<Found>>()?;
        let found = &report.findings;
        // What is not there may have been where sinks are missing, or nothing came with INT.
        let says = report.complete && found.coverage.sinks.int_packets > 0;
        let none = |is_there: bool| match is_there {
            true => Reading::Bad,
            false if says => Reading::Good,
            false => Reading::Unknown,
        };
        let counts_all = found.nodes.iter().all(|node| node.inflated.is_some());
        let inflated = match none(!found.inflated.is_empty()) {
            Reading::Good if !counts_all => Reading::Unknown,
            reading => reading,
        };
        // Paths change against the window before.
        let [first, last] = found.window;
        let is_compared = self.next == Some(first);
        self.next = report.complete.then_some(last.saturating_add(1));
        let path_changes = match none(!found.path_changes.is_empty()) {
            Reading::Good if !is_compared => Reading::Unknown,
            reading => reading,
        };
        let readings = [
            (INFLATED, inflated),
            (PATH_CHANGES, path_changes),
            (LOOP, none(!found.loops.is_empty())),
            (COVERAGE, coverage(report)),
        ];
        let fact = |(alert, reading)| Fact { alert, node: None, reading };
        Some(readings.into_iter().map(fact).collect())
    }

    fn text(&self, fact: &Fact, report: &dyn Report, over: bool) -> String {
        let found = report.as_type::<SystemReport<Found>>().map(|report| &report.findings);
        let Some(found) = found else { return String::new() };
        match (fact.alert, over) {
            (INFLATED, false) => found.inflated.first().map_or_else(String::new, |it| {
                format!("{} waited up to {:.0} us at {}", it.flow, it.max_us, it.node)
            }),
            (INFLATED, true) => "no flow waits longer than usual any more".to_owned(),
            (PATH_CHANGES, false) => {
                let first = found.path_changes.first().map(|it| it.flow.to_string());
                let (flows, first) = (found.path_changes.len(), first.unwrap_or_default());
                format!("{flows} flows came by another path, among them {first}")
            }
            (PATH_CHANGES, true) => "paths are the same again".to_owned(),
            (LOOP, false) => found.loops.first().map_or_else(String::new, |it| {
                format!("packets come by {} again: {}", it.nodes.join(", "), it.path.join(", "))
            }),
            (LOOP, true) => "no packets come by a switch twice any more".to_owned(),
            (_, false) => {
                let (with_int, all) = (found.coverage.sinks.int_packets, wanted(found));
                format!("{with_int} of {all} packets came with INT, fewer than wanted")
            }
            (_, true) => "as many packets come with INT as are wanted".to_owned(),
        }
    }
}

/// Packets for hosts that were to come with INT, those left out by share or watch list not among
/// them.
pub(crate) fn wanted(found: &Found) -> u64 {
    let not_carried = found.coverage.not_carried.iter().flatten();
    let by_choice = |why: &str| {
        [NotCarried::Share, NotCarried::Watch].into_iter().any(|choice| choice.name() == why)
    };
    let left_out = not_carried.filter(|(why, _)| by_choice(why)).map(|(_, &packets)| packets);
    let left_out = left_out.fold(0, u64::saturating_add);
    found.coverage.sinks.packets.saturating_sub(left_out)
}

/// Too few begin where wanted, and are over a tenth above it.
fn coverage(report: &SystemReport<Found>) -> Reading {
    let found = &report.findings;
    let covered = &found.coverage.sinks;
    let (with_int, all) = (covered.int_packets as f64, wanted(found) as f64);
    let wanted = found.config.coverage_wanted;
    match with_int / all {
        _ if all == 0.0 || found.state != "on" || !report.complete => Reading::Unknown,
        share if share < wanted => Reading::Bad,
        share if share >= (1.1 * wanted).min(1.0) => Reading::Good,
        _ => Reading::Between,
    }
}
