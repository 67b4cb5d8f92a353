//! Why nodes' numbers may be wrong although all of them came: what was late in the same window, or
//! in the one before with the same timestamp bits.
//!
//! A packet says by one bit which epoch it is of. An epoch that a node ends when packets of the
//! next one with its bit may have come has some of them, and that one lacks them; those of the
//! first that it then finds in its queues are counted in the second. What comes between the two
//! counts as late of the first, and may be early ones of the second; what comes behind late ones
//! may come when the second is open, and so may what others stamped late or held up. Only ends of
//! windows matter: within a window, both are recorded together.
//!
//! Pure. ChameleMon, which knows the flows of late packets, has doubts of its own.

use std::collections::BTreeMap;

use calumma_epoch::EpochClock;

/// For so long after the last that came of a node is it taken to stand still: what waits in its
/// queues then may still be passed on. Whatever comes for as long as that fills any queue, but for
/// links of next to no packets.
const STANDS_STILL_NS: u64 = 10_000_000_000;

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
    /// For how many it may have held packets up that it passed on; 0 where it ended the window in
    /// time, and where others than what counts packets pass them on.
    pub(crate) held_ns: u64,
    /// Whether it may have held packets up for a time that nobody knows: it passes them on itself,
    /// and not all came of it.
    pub(crate) may_hold: bool,
    /// Whether it measured when it first connected.
    pub(crate) measured_before: bool,
}

/// What there is to doubt of a node's numbers in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doubted {
    /// Why they may not be those of every packet, or may have other windows'. Of a node of which
    /// something is missing there is nothing here.
    pub(crate) because: Vec<String>,
    /// Whether packets of other windows may be in them, so that they are not even lower bounds.
    pub(crate) has_others: bool,
}

/// What windows leave in doubt of those after them, window by window.
#[derive(Debug)]
pub(crate) struct Doubts {
    clock: EpochClock,
    /// Epochs of a window.
    window: u64,
    /// The first window.
    since: Option<u64>,
    /// The latest window in which anything came of each node, by its first epoch.
    last: Vec<Option<u64>>,
    /// What came of the latest windows, by their first epochs; of nodes that had not begun,
    /// nothing.
    left: BTreeMap<u64, Vec<Option<Came>>>,
}

impl Doubts {
    /// Of `nodes` nodes, and windows of so many epochs.
    pub(crate) fn new(clock: EpochClock, window: u64, nodes: usize) -> Self {
        Self { clock, window, since: None, last: vec![None; nodes], left: BTreeMap::new() }
    }

    /// What there is to doubt of each node in the window that begins with `epoch`, the next one.
    pub(crate) fn of(&mut self, epoch: u64, nodes: &[Came]) -> Vec<Doubted> {
        let before = epoch.saturating_sub(if self.window == 1 { 2 } else { self.window });
        let since = *self.since.get_or_insert(epoch);
        let left = self.left.get(&before).filter(|_| before >= since);
        let is_lost = before >= since && left.is_none();
        let is_before_all = |at: usize| left.is_none_or(|left| left[at].is_none());
        let now = nodes.iter().enumerate().map(|(at, came)| {
            let may_hold = came.may_hold && (came.any || self.stands_still(at, epoch));
            Came { may_hold, ..*came }
        });
        let goes_on = self.goes_on(epoch, now).map(|how| format!("{how} a later one"));
        let came_on = left.and_then(|left| {
            let left = left.iter().zip(nodes).enumerate().filter_map(|(at, (left, now))| {
                let left = (*left)?;
                // One that is back may have stood still for longer than it is taken to.
                let may_hold = left.may_hold && (now.any || self.stands_still(at, before));
                Some(Came { may_hold, ..left })
            });
            self.goes_on(before, left)
        });
        let came_on = came_on.map(|how| format!("{how} this"));
        let of = |(at, came): (usize, &Came)| {
            let has_begun = self.last[at].is_some();
            let is_unknown = is_lost && has_begun || is_before_all(at) && came.measured_before;
            let left = left.and_then(|left| left[at].as_ref());
            let left = left.and_then(|left| left_by(before, left));
            let left = left.or_else(|| is_unknown.then(|| unknown(before)));
            let has_others = came.take_ns > 0 || left.is_some() || came_on.is_some();
            let mut because = Vec::new();
            if came.take_ns > 0 {
                let late_ms = came.take_ns as f64 / 1e6;
                because.push(format!(
                    "it went on {late_ms:.1} ms too late, when packets of later epochs with the same \
                     timestamp bit may have come: what it counted is left out"
                ));
            }
            if came.flip_ns > 0 {
                let late_ms = came.flip_ns as f64 / 1e6;
                because.push(format!(
                    "it stamped packets as of earlier epochs for {late_ms:.1} ms too long"
                ));
            }
            // Of others it is known that something is missing.
            if came.all {
                because.extend(left);
                because.extend(came_on.clone());
                because.extend(goes_on.clone());
            }
            Doubted { because, has_others }
        };
        let doubts = nodes.iter().enumerate().map(of).collect();
        for (last, _) in self.last.iter_mut().zip(nodes).filter(|(_, came)| came.any) {
            *last = Some(epoch);
        }
        let left = self.last.iter().zip(nodes).map(|(last, came)| last.map(|_| *came));
        self.left.insert(epoch, left.collect());
        self.left = self.left.split_off(&epoch.saturating_sub(self.window));
        doubts
    }

    /// Whether a node of which nothing came from `epoch` on may stand still and have packets that
    /// it will pass on. One of which nothing ever came has none.
    fn stands_still(&self, at: usize, epoch: u64) -> bool {
        let end = |last: u64| last.saturating_add(self.window);
        let ns = |last: u64| epoch.saturating_sub(end(last)).saturating_mul(self.clock.length_ns());
        self.last[at].is_some_and(|last| ns(last) <= STANDS_STILL_NS)
    }

    /// Why packets of the window that began with `epoch` may be anywhere in later ones, if so: up
    /// to what their timestamp bit meant.
    fn goes_on(&self, epoch: u64, nodes: impl Iterator<Item = Came>) -> Option<String> {
        let most = |(flip_ns, held_ns, may_hold): (u64, u64, bool), came: Came| {
            (flip_ns.max(came.flip_ns), held_ns.max(came.held_ns), may_hold | came.may_hold)
        };
        let (flip_ns, held_ns, may_hold) = nodes.fold((0, 0, false), most);
        let guards = self.clock.guards();
        let last_ns = flip_ns.saturating_add(guards.flight_ns).saturating_add(2 * guards.clock_ns);
        let how = if flip_ns > 0 && last_ns >= self.clock.length_ns() {
            let late_ms = flip_ns as f64 / 1e6;
            format!(
                "were stamped as of epoch {epoch} and those after it for {late_ms:.1} ms too long"
            )
        } else if held_ns > 0 {
            let late_ms = held_ns as f64 / 1e6;
            format!(
                "of epoch {epoch} and those after it were held up for {late_ms:.1} ms where a node \
                 stood still"
            )
        } else if may_hold {
            format!(
                "of epoch {epoch} and those after it may have been held up at a node of which not all \
                 came"
            )
        } else {
            return None;
        };
        Some(format!("packets {how}, so that some may have come when their timestamp bit meant"))
    }
}

/// What a node leaves in doubt that went so through the window that began with `epoch`: that some
/// of that window's packets are in the next one with its timestamp bits, and the other way round.
fn left_by(epoch: u64, came: &Came) -> Option<String> {
    if came.take_ns > 0 {
        let late_ms = came.take_ns as f64 / 1e6;
        return Some(format!(
            "what it counted from epoch {epoch} on, which has the same timestamp bits, ended \
             {late_ms:.1} ms late and may have some of these packets, and these some of that: what it \
             counted is left out"
        ));
    }
    if came.late_packets > 0 {
        let late = came.late_packets;
        return Some(format!(
            "{late} packets with its timestamp bits came before it was armed, or long after the \
             epochs from {epoch} on, and more may have come when it was: what it counted is left out; \
             clocks may differ"
        ));
    }
    (!came.all).then(|| unknown(epoch))
}

fn unknown(epoch: u64) -> String {
    format!(
        "not all came of the epochs from {epoch} on, which have the same timestamp bits, so it is not \
         known whether they ended late: what it counted is left out"
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
        held_ns: 0,
        may_hold: false,
        measured_before: false,
    };

    const WELL_BOTH: [Came; 2] = [WELL; 2];

    /// Of two nodes, what there is to doubt in each of the windows that they went through so.
    fn doubted(window: u64, came: &[[Came; 2]]) -> Vec<[Doubted; 2]> {
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let mut doubts = Doubts::new(clock, window, 2);
        let epochs = (0..).map(|number| 100 * window + number * window);
        let of = |(epoch, came): (u64, &[Came; 2])| doubts.of(epoch, came).try_into().unwrap();
        epochs.zip(came).map(of).collect()
    }

    /// Whether there are doubts.
    fn doubtful(window: u64, came: &[[Came; 2]]) -> Vec<[bool; 2]> {
        let all = doubted(window, came).into_iter();
        all.map(|nodes| nodes.map(|of| !of.because.is_empty())).collect()
    }

    /// Whether other windows' packets may be there.
    fn mixed(window: u64, came: &[[Came; 2]]) -> Vec<[bool; 2]> {
        let all = doubted(window, came).into_iter();
        all.map(|nodes| nodes.map(|of| of.has_others)).collect()
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
        assert_eq!(of(38_000_000), [[true, true], [true, true], [false, false]]);
    }

    /// A switch that stood still passes on what it held up, whoever counts it.
    #[test]
    fn packets_that_a_node_held_up_are_in_doubt_everywhere() {
        let stood_still = Came { take_ns: 60_000_000, held_ns: 60_000_000, ..WELL };
        let came = [[stood_still, WELL], [WELL, WELL], [WELL, WELL]];
        assert_eq!(doubtful(20, &came), [[true, true], [true, true], [false, false]]);
        assert_eq!(mixed(20, &came), [[true, false], [true, true], [false, false]]);
        let of_epochs = [came[0], WELL_BOTH, WELL_BOTH, WELL_BOTH];
        assert_eq!(mixed(1, &of_epochs), [[true, false], [false; 2], [true, true], [false; 2]]);
        let [_, doubted] = &doubted(20, &came)[0];
        assert!(doubted.because[0].contains("held up for 60.0 ms"), "{doubted:?}");
    }

    /// How long it stood still, nobody knows of one of which nothing came meanwhile.
    #[test]
    fn packets_of_a_node_that_is_missing_may_have_been_held_up() {
        let missing = Came { any: false, all: false, may_hold: true, ..WELL };
        let came = [WELL_BOTH, [missing, WELL], WELL_BOTH, WELL_BOTH];
        assert_eq!(doubtful(20, &came)[1..], [[false, true], [true, true], [false, false]]);
        assert_eq!(mixed(20, &came)[1..], [[false, false], [true, true], [false, false]]);
        let [_, doubted] = &doubted(20, &came)[1];
        assert!(doubted.because[0].contains("may have been held up"), "{doubted:?}");
        // One that had not begun holds nothing, nor does one that is gone.
        let came = [[missing, WELL], [missing, WELL], WELL_BOTH];
        assert_eq!(doubtful(20, &came), [[false; 2]; 3]);
        let gone = Came { may_hold: false, ..missing };
        let came = [WELL_BOTH, [gone, WELL], WELL_BOTH, WELL_BOTH];
        assert_eq!(doubtful(20, &came)[1..], [[false; 2], [true, false], [false; 2]]);
    }

    /// Nobody waits for ever for what a node may still pass on. Where it is back it may have done
    /// so, however long it was missing.
    #[test]
    fn a_node_that_is_missing_for_long_holds_nothing_until_it_is_back() {
        let missing = Came { any: false, all: false, may_hold: true, ..WELL };
        let mut came = vec![[WELL; 2]];
        came.extend([[missing, WELL]; 15]);
        came.extend([WELL_BOTH; 2]);
        let of_the_other: Vec<bool> = doubtful(20, &came).iter().map(|of| of[1]).collect();
        // Windows of a second: those that begin within ten, and what the last of these leaves.
        let mut expected = [vec![false], vec![true; 12], vec![false; 3]].concat();
        expected.extend([true, false]);
        assert_eq!(of_the_other, expected);
        // However long windows are.
        let of_the_other = doubtful(1000, &came[..4]).into_iter().map(|of| of[1]);
        assert_eq!(of_the_other.collect::<Vec<_>>(), [false, true, true, false]);
    }

    /// Whatever of the window before may be counted in this one makes no lower bound of it.
    #[test]
    fn what_may_have_come_from_the_window_before_bounds_nothing() {
        let late = Came { late_packets: 3, ..WELL };
        let missing = Came { all: false, ..WELL };
        let taken_late = Came { take_ns: 60_000_000, ..WELL };
        for (left, itself) in [(late, false), (missing, false), (taken_late, true)] {
            let came = [[left, WELL], [WELL, WELL], [WELL, WELL]];
            assert_eq!(mixed(20, &came), [[itself, false], [true, false], [false, false]]);
        }
        // Though it be known that the next one is not whole.
        let came = [[late, WELL], [missing, WELL], [WELL, WELL]];
        assert_eq!(mixed(20, &came), [[false, false], [true, false], [true, false]]);
        let stamped_late = Came { flip_ns: 38_000_000, ..WELL };
        let came = [[stamped_late, WELL], [WELL, WELL], [WELL, WELL]];
        assert_eq!(mixed(20, &came), [[false, false], [true, true], [false, false]]);
        let went_on = Came { measured_before: true, ..WELL };
        assert_eq!(mixed(20, &[[went_on, WELL], [went_on, WELL]]), [[true, false], [false; 2]]);
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
        assert!(doubts.of(2000, &[WELL])[0].because.is_empty());
        let [doubt] = &doubts.of(4000, &[WELL])[0].because[..] else { panic!("one doubt") };
        assert!(doubt.contains("from 3980 on"), "{doubt}");
    }
}
