//! Playing scenarios in live fabrics.

use std::path::Path;

use calumma_testbed::live::Live;
use calumma_testbed::scenario::{EpochSummary, Played, Scenario, play_in};
use calumma_testbed::simulate::Outcome;

use crate::machine::unless_torn;

/// The program that switches and routers of a fabric are started with.
const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");

/// Epochs of which is said why they were incomplete.
const NAMED: usize = 8;

/// A scenario in a live fabric.
pub(crate) struct Play<'a> {
    /// The scenario.
    pub(crate) scenario: &'a Scenario,
    /// The folder that systems other than ChameleMon write their reports to, if any.
    pub(crate) out: Option<&'a Path>,
}

impl Play<'_> {
    /// Plays it and gives what came of it, with the fabric, which has ended. It fails where a
    /// report is wrong, or hosts, routers and reports count differently in all. Where something is
    /// not as expected it is played again as often as [`unless_torn`] does, and `watch` sees the
    /// epochs of every time.
    pub(crate) fn run(&self, mut watch: impl FnMut(&Outcome, &EpochSummary)) -> (Played, Live) {
        let &Self { scenario, out } = self;
        let title = &scenario.title;
        let once = || {
            let live = Live::start(scenario, Path::new(TESTBED));
            let mut live = live.unwrap_or_else(|error| panic!("{title}: {error:#}"));
            if let Some(out) = out {
                live.write_to(out).expect("a folder for the reports");
            }
            let played = play_in(&mut live, scenario, |outcome, epoch| {
                watch(outcome, epoch);
                Ok(())
            });
            let played = played.unwrap_or_else(|error| panic!("{title}: {error:#}"));
            let wrong: Vec<_> = played.contradictions().collect();
            assert!(wrong.is_empty(), "{title}: {wrong:?}, {:?}", played.doubts);
            (played, live)
        };
        let (played, live) = unless_torn(once, |(played, _)| missed(played));
        let missed = missed(&played);
        assert!(missed.is_none(), "{title}: {}", missed.unwrap_or_default());
        (played, live)
    }
}

/// What was not as expected, and what may have been the cause.
fn missed(played: &Played) -> Option<String> {
    if played.holds() {
        return None;
    }
    let failed: Vec<_> = played.verdicts.iter().filter(|verdict| !verdict.holds).collect();
    let because = played.epochs.iter().filter(|epoch| !epoch.incomplete_because.is_empty());
    let of_chamelemon = because.map(|epoch| (epoch.epoch, &epoch.incomplete_because));
    let because = played.systems.iter().filter(|of| !of.incomplete_because.is_empty());
    let of_others = because.map(|of| (of.epoch, &of.incomplete_because));
    let because: Vec<_> = of_chamelemon.take(NAMED).chain(of_others.take(NAMED)).collect();
    let growths: Vec<String> = played.growths().collect();
    let doubts = &played.doubts;
    Some(format!("{failed:?}, {growths:?}, {doubts:?}; incomplete: {because:?}"))
}
