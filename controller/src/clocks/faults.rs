//! What was wrong with nodes' clocks, for as long as windows last that it spoils.

use std::ops::Range;

use calumma_epoch::EpochClock;

use super::{COMPARED_NS, ClockState};
use crate::spans::Spans;

/// Time between two looks at all clocks: what a look finds is there for longer.
const LOOK_NS: u64 = 200_000_000;

/// What was wrong with nodes' clocks, and in which epochs, as far as [looks](Self::note) at them
/// showed.
#[derive(Clone, Debug)]
pub struct Faults {
    clock: EpochClock,
    /// When the last look was, in nanoseconds since the Unix epoch.
    looked_ns: Option<u64>,
    nodes: Vec<Fault>,
}

/// The same of one node.
#[derive(Clone, Debug, Default)]
struct Fault {
    spans: Spans,
    /// When nothing was wrong last.
    well_ns: u64,
    /// What was wrong last.
    what: String,
}

impl Faults {
    /// Of so many nodes, with which nothing was wrong yet.
    pub fn new(clock: EpochClock, nodes: usize) -> Self {
        Self { clock, looked_ns: None, nodes: vec![Fault::default(); nodes] }
    }

    /// Whether it is time for another look.
    pub fn is_due(&self, unix_ns: u64) -> bool {
        // The controller's own clock may be set.
        self.looked_ns.is_none_or(|looked_ns| unix_ns.abs_diff(looked_ns) >= LOOK_NS)
    }

    /// Notes what is [wrong](super::wrong) with each node's clock at `unix_ns`. What a clock does
    /// that is not compared shows when it is again.
    pub fn note(&mut self, unix_ns: u64, clocks: &[ClockState], wrong: &[Option<String>]) {
        self.looked_ns = Some(unix_ns);
        let epoch = self.clock.epoch_at(unix_ns);
        for ((node, clock), problem) in self.nodes.iter_mut().zip(clocks).zip(wrong) {
            let Some(problem) = problem else {
                if clock.unknown_for_ns.is_some() || clock.estimate.is_none() {
                    continue;
                }
                node.spans.end(epoch);
                node.well_ns = unix_ns;
                continue;
            };
            if node.what != *problem {
                node.what.clone_from(problem);
            }
            // A clock that is not compared for so long is not known to be wrong yet.
            let since_ns = unix_ns.saturating_sub(COMPARED_NS);
            let since_ns = if node.well_ns == 0 { since_ns } else { since_ns.min(node.well_ns) };
            node.spans.begin(self.clock.epoch_at(since_ns), epoch, epoch);
        }
    }

    /// What was wrong with the clock of the node at a position in a window of these epochs, or
    /// around it.
    pub fn of(&self, node: usize, window: &Range<u64>) -> Option<String> {
        let node = self.nodes.get(node)?;
        node.spans.is_around(window).then(|| node.what.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::ClockEstimate;
    use calumma_epoch::Guards;

    const SECOND: u64 = 1_000_000_000;

    /// Of a clock that has just been compared.
    fn compared() -> ClockState {
        let estimate = ClockEstimate { offset_ns: 0, error_ns: 1000, delay_ns: 1000 };
        ClockState { estimate: Some(estimate), ..ClockState::default() }
    }

    /// A clock that was set in the first seconds of a window of a minute is well long before that
    /// is reported.
    #[test]
    fn what_was_wrong_with_a_clock_is_known_for_as_long_as_windows_last() {
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let mut faults = Faults::new(clock, 2);
        let was_set = || [None, Some("its clock was set".to_owned())];
        let from = 1_700_000_000 * SECOND;
        let seconds = |second: u64| {
            let epoch = clock.epoch_at(from + second * SECOND);
            epoch..epoch + 20
        };
        for tenth in 0..500 {
            let now_ns = from + tenth * SECOND / 10;
            assert_eq!(faults.is_due(now_ns), tenth % 2 == 0);
            if faults.is_due(now_ns) {
                let is_wrong = (40..50).contains(&tenth);
                let wrong = if is_wrong { was_set() } else { [None, None] };
                faults.note(now_ns, &[compared(); 2], &wrong);
            }
        }
        let wrong = |window: Range<u64>| [0, 1].map(|node| faults.of(node, &window).is_some());
        assert_eq!(wrong(seconds(0).start..seconds(49).end), [false, true]);
        // It may have been set a second before that showed.
        let each = (0..8).map(|second| wrong(seconds(second))[1]).collect::<Vec<_>>();
        assert_eq!(each, [false, false, true, true, true, true, false, false]);
        assert_eq!(faults.of(1, &seconds(4)), was_set()[1]);
    }

    /// While the controller is away, say: what nodes hold comes when clocks are compared again.
    #[test]
    fn a_clock_that_was_well_before_and_after_was_not_wrong_in_between() {
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let from = 1_700_000_000 * SECOND;
        let whole = clock.epoch_at(from)..clock.epoch_at(from + 30 * SECOND);
        // Of a node that is not connected nothing is known, not even for how long.
        let unknown =
            [ClockState { unknown_for_ns: Some(SECOND), ..compared() }, ClockState::default()];
        for (was_set, unknown) in
            [false, true].into_iter().flat_map(|was_set| unknown.map(|of| (was_set, of)))
        {
            let mut faults = Faults::new(clock, 1);
            for second in 0..30 {
                let is_away = (10..20).contains(&second);
                let wrong = (was_set && second == 20).then(|| "its clock was set".to_owned());
                let state = if is_away { unknown } else { compared() };
                faults.note(from + second * SECOND, &[state], &[wrong]);
            }
            assert_eq!(faults.of(0, &whole).is_some(), was_set);
            let early = clock.epoch_at(from + 12 * SECOND);
            assert_eq!(faults.of(0, &(early..early + 20)).is_some(), was_set);
        }
    }
}
