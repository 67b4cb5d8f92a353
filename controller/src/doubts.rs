//! Why nodes' numbers may be wrong although all of them came: what was late in the same window, or
//! in the one before with the same timestamp bits.
//!
//! A packet says by one bit which epoch it is of. An epoch that a node ends when packets of the
//! next one with its bit may have come has some of them, and that one lacks them. What comes
//! between the two counts as late of the first, and may be early ones of the second. Only ends of
//! windows matter: within a window, both are recorded together.
//!
//! Pure. ChameleMon, which knows the flows of late packets, has doubts of its own.

use std::collections::BTreeMap;

use calumma_epoch::EpochClock;

/// What is known of how a node went through a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Came {
    /// Whether anything came of it.
    pub(crate) any: bool,
    /// Whether all did.
    pub(crate) all: bool,
    /// Packets that it counted as late.
    pub(crate) late_packets: u64,
    /// By how many nanoseconds it stamped packets too late; 0 where it did not.
    pub(crate) flip_ns: u64,
    /// By how many it ended the window too late; 0 where it did not.
    pub(crate) take_ns: u64,
    /// Whether it measured when it first connected.
    pub(crate) measured_before: bool,
}

/// What windows leave in doubt of those after them, window by window.
#[derive(Debug)]
pub(crate) struct Doubts {
    clock: EpochClock,
    /// Epochs of a window.
    window: u64,
    /// The first window.
    since: Option<u64>,
    /// Nodes of which anything has come.
    begun: Vec<bool>,
    /// What came of the latest windows, by their first epochs; of nodes that had not begun,
    /// nothing.
    left: BTreeMap<u64, Vec<Option<Came>>>,
}

impl Doubts {
    /// Of `nodes` nodes, and windows of so many epochs.
    pub(crate) fn new(clock: EpochClock, window: u64, nodes: usize) -> Self {
        Self { clock, window, since: None, begun: vec![false; nodes], left: BTreeMap::new() }
    }

    /// What there is to doubt of each node in the window that begins with `epoch`, the next one.
    pub(crate) fn of(&mut self, epoch: u64, nodes: &[Came]) -> Vec<Vec<String>> {
        let before = epoch.saturating_sub(if self.window == 1 { 2 } else { self.window });
        let since = *self.since.get_or_insert(epoch);
        let left = self.left.get(&before).filter(|_| before >= since);
        let is_lost = before >= since && left.is_none();
        let is_before_all = |at: usize| left.is_none_or(|left| left[at].is_none());
        let stamped = left.and_then(|left| self.stamped_late(before, left));
        let of = |(at, came): (usize, &Came)| {
            let mut doubts = Vec::new();
            if came.take_ns > 0 {
                let late_ms = came.take_ns as f64 / 1e6;
                doubts.push(format!(
                    "it went on {late_ms:.1} ms too late, when packets of later epochs with the same \
                     timestamp bit may have come: what it counted is left out"
                ));
            }
            if came.flip_ns > 0 {
                let late_ms = came.flip_ns as f64 / 1e6;
                doubts.push(format!(
                    "it stamped packets as of earlier epochs for {late_ms:.1} ms too long"
                ));
            }
            // Of others it is known that something is missing.
            if came.all {
                let is_unknown =
                    is_lost && self.begun[at] || is_before_all(at) && came.measured_before;
                let left = left.and_then(|left| left[at].as_ref());
                doubts.extend(left.and_then(|left| left_by(before, left)));
                doubts.extend(is_unknown.then(|| unknown(before)));
                doubts.extend(stamped.clone());
            }
            doubts
        };
        let doubts = nodes.iter().enumerate().map(of).collect();
        for (begun, came) in self.begun.iter_mut().zip(nodes) {
            *begun |= came.any;
        }
        let left = self.begun.iter().zip(nodes).map(|(begun, came)| begun.then_some(*came));
        self.left.insert(epoch, left.collect());
        self.left = self.left.split_off(&epoch.saturating_sub(self.window));
        doubts
    }

    /// Why packets of the window that began with `epoch` may be anywhere in later ones, if so.
    fn stamped_late(&self, epoch: u64, left: &[Option<Came>]) -> Option<String> {
        let flip_ns = left.iter().flatten().map(|came| came.flip_ns).max()?;
        let guards = self.clock.guards();
        let last_ns = flip_ns.saturating_add(guards.flight_ns).saturating_add(2 * guards.clock_ns);
        (flip_ns > 0 && last_ns >= self.clock.length_ns()).then(|| {
            let late_ms = flip_ns as f64 / 1e6;
            format!(
                "packets were stamped as of epoch {epoch} and those after it for {late_ms:.1} ms too \
                 long, so that some may have come when their timestamp bit meant this"
            )
        })
    }
}

/// What a node leaves in doubt that went so through the window that began with `epoch`.
fn left_by(epoch: u64, came: &Came) -> Option<String> {
    if came.take_ns > 0 {
        let late_ms = came.take_ns as f64 / 1e6;
        return Some(format!(
            "what it counted from epoch {epoch} on, which has the same timestamp bits, ended \
             {late_ms:.1} ms late and may have some of these packets"
        ));
    }
    if came.late_packets > 0 {
        let late = came.late_packets;
        return Some(format!(
            "{late} packets with its timestamp bits came before it was armed, or long after the \
             epochs from {epoch} on: clocks may differ"
        ));
    }
    (!came.all).then(|| unknown(epoch))
}

fn unknown(epoch: u64) -> String {
    format!(
        "not all came of the epochs from {epoch} on, which have the same timestamp bits, so it is not \
         known whether they ended late"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_epoch::Guards;

    const WELL: Came = Came {
        any: true,
        all: true,
        late_packets: 0,
        flip_ns: 0,
        take_ns: 0,
        measured_before: false,
    };

    /// Of two nodes, whether there are doubts in each of the windows that they went through so.
    fn doubtful(window: u64, came: &[[Came; 2]]) -> Vec<[bool; 2]> {
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let mut doubts = Doubts::new(clock, window, 2);
        let epochs = (0..).map(|number| 100 * window + number * window);
        let of = |(epoch, came): (u64, &[Came; 2])| {
            let of = doubts.of(epoch, came);
            [!of[0].is_empty(), !of[1].is_empty()]
        };
        epochs.zip(came).map(of).collect()
    }

    #[test]
    fn what_a_node_was_late_with_is_in_doubt_where_its_timestamp_bits_come_again() {
        let late = Came { late_packets: 3, ..WELL };
        let missing = Came { all: false, ..WELL };
        for left in [late, missing] {
            let came = [[left, WELL], [WELL, WELL], [WELL, WELL], [WELL, WELL]];
            let next = doubtful(20, &came);
            assert_eq!(next, [[false, false], [true, false], [false, false], [false, false]]);
            let after_next = doubtful(1, &came);
            assert_eq!(after_next, [[false, false], [false, false], [true, false], [false, false]]);
        }
        let taken_late = Came { take_ns: 60_000_000, ..WELL };
        let came = [[WELL, WELL], [taken_late, WELL], [WELL, WELL], [WELL, WELL]];
        let own_and_next = doubtful(20, &came);
        assert_eq!(own_and_next, [[false, false], [true, false], [true, false], [false, false]]);
    }

    #[test]
    fn packets_that_were_stamped_late_by_an_epoch_are_in_doubt_everywhere() {
        let of = |flip_ns| {
            let came = [[Came { flip_ns, ..WELL }, WELL], [WELL, WELL], [WELL, WELL]];
            doubtful(20, &came)
        };
        assert_eq!(of(20_000_000), [[true, false], [false, false], [false, false]]);
        assert_eq!(of(38_000_000), [[true, false], [true, true], [false, false]]);
    }

    #[test]
    fn what_a_node_measured_before_anything_came_leaves_the_first_windows_in_doubt() {
        let went_on = Came { measured_before: true, ..WELL };
        let before_it = Came { any: false, all: false, ..went_on };
        let came = [[went_on, WELL], [went_on, WELL], [went_on, WELL]];
        assert_eq!(doubtful(20, &came), [[true, false], [false, false], [false, false]]);
        assert_eq!(doubtful(1, &came), [[true, false], [true, false], [false, false]]);
        // It came to the controller later than the other one.
        let came = [[before_it, WELL], [before_it, WELL], [went_on, WELL], [went_on, WELL]];
        let next = doubtful(20, &came);
        assert_eq!(next, [[false, false], [false, false], [true, false], [false, false]]);
        let after_next = doubtful(1, &came);
        assert_eq!(after_next, [[false, false], [false, false], [true, false], [true, false]]);
    }

    #[test]
    fn a_node_that_had_not_begun_leaves_nothing_and_one_of_a_lost_window_does() {
        let none = Came::default();
        let came = [[WELL, none], [WELL, none], [WELL, WELL], [WELL, WELL]];
        assert_eq!(doubtful(20, &came), [[false; 2]; 4]);
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let mut doubts = Doubts::new(clock, 20, 1);
        assert!(doubts.of(2000, &[WELL])[0].is_empty());
        let [doubt] = &doubts.of(4000, &[WELL])[0][..] else { panic!("one doubt") };
        assert!(doubt.contains("from 3980 on"), "{doubt}");
    }
}
