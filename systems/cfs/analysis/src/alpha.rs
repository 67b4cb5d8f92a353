//! Which share of a switch's bytes its table has and which its residual, where nobody says.
//!
//! A larger table counts more flows by itself; a residual that is too small for the flows that are
//! left counts none of them. What is best follows from the load, which nobody knows before. So the
//! residual grows while residuals don't decode, and shrinks while they have room to spare; a share
//! at which they failed is not tried again until there are fewer flows.

use std::ops::RangeInclusive;

use calumma_cfs::frames::Setup;
use calumma_sketch::residual::ARRAYS;

/// Bytes of an entry and of all that finds it, and of a bucket of a residual, with IPv4 keys.
pub(crate) const ENTRY_BYTES: f64 = Setup::ENTRY_BYTES as f64;
pub(crate) const BUCKET_BYTES: f64 = Setup::BUCKETS_BYTES as f64 / ARRAYS as f64;

/// Hundredths that the table has of table and residual at the start.
const FIRST: u8 = 90;

/// Hundredths that the table loses where residuals do not decode, and that it gains where they have
/// room to spare.
const DOWN: u8 = 4;
const UP: u8 = 2;

/// Windows of one share in which residuals don't decode before it changes, and when all are tried
/// once more: what switches claim follows from the windows before.
const PATIENCE: u8 = 2;
const MORE_PATIENCE: u8 = 8;

/// Flows that no table has for each bucket of the fullest residual, up to which the table takes
/// bytes. Residuals decode up to 0.8, small ones less.
const ROOMY: f64 = 0.6;

/// Flows that the bytes of a table count where the table has the smallest share of them and each
/// other flow is in one residual, for each flow that they count as a table alone: the most that a
/// smaller table brings.
const GAIN: f64 = 1.08;

/// Windows until all shares are tried again where none was enough, and the most of them.
const WAIT: u32 = 8;
const LONGEST_WAIT: u32 = 128;

/// With fewer flows than this share of those with which a table was too large it may be tried again.
const FEWER: f64 = 0.9;

/// How residuals fared in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fared {
    /// Flows that no table has for each bucket of the fullest residual; `None` where some residual
    /// did not decode.
    pub load: Option<f64>,
    /// Flows of the network in all.
    pub flows: f64,
    /// Those of them that were counted.
    pub counted: f64,
}

/// What is being done about residuals that do not decode.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Search {
    /// Nothing: they decode, or did lately.
    Settled,
    /// The table gives bytes away.
    Down,
    /// The same once more, from the largest table on, and slower.
    All,
    /// No share was enough with so many flows: all are tried again after these windows.
    Waiting { windows: u32, flows: f64 },
}

/// A share of the bytes of table and residual that the table has, for the window to come, the same
/// at all switches.
#[derive(Clone, Debug, PartialEq)]
pub struct Alpha {
    hundredths: u8,
    /// Windows in a row in which some residual of this share did not decode.
    failed: u8,
    search: Search,
    /// The share of all flows that was counted at most in a search, with the table's share.
    best: Option<(f64, u8)>,
    /// The share at which they failed before the table gave bytes away, and the flows then.
    ceiling: Option<(u8, f64)>,
    /// How long the next wait is.
    wait: u32,
}

impl Default for Alpha {
    fn default() -> Self {
        Self {
            hundredths: FIRST,
            failed: 0,
            search: Search::Settled,
            best: None,
            ceiling: None,
            wait: WAIT,
        }
    }
}

impl Alpha {
    /// What it may be, in hundredths.
    pub const RANGE: RangeInclusive<u8> = Setup::ALPHA;

    /// One that begins with so many hundredths, as far as it may be.
    pub(crate) fn at(hundredths: u8) -> Self {
        let hundredths = hundredths.clamp(*Self::RANGE.start(), *Self::RANGE.end());
        Self { hundredths, ..Self::default() }
    }

    /// The share in hundredths.
    pub(crate) fn hundredths(&self) -> u8 {
        self.hundredths
    }

    /// The share, 0.6 to 0.97.
    pub fn share(&self) -> f64 {
        f64::from(self.hundredths) / 100.0
    }

    /// Takes the outcome of a window that was measured by this share.
    pub fn learn(&mut self, fared: Fared) {
        match fared.load {
            None => self.failed(fared),
            Some(load) => self.decoded(load, fared.flows),
        }
    }

    fn failed(&mut self, Fared { flows, counted, .. }: Fared) {
        let (least, most) = (*Self::RANGE.start(), *Self::RANGE.end());
        if let Search::Waiting { windows, flows: then } = &mut self.search {
            *windows = windows.saturating_sub(1);
            if *windows == 0 || flows < FEWER * *then {
                (self.hundredths, self.failed, self.best) = (most, 0, None);
                self.search = Search::All;
            }
            return;
        }
        self.failed += 1;
        let patience = if self.search == Search::All { MORE_PATIENCE } else { PATIENCE };
        if self.failed < patience {
            return;
        }
        self.failed = 0;
        let share = counted / flows.max(1.0);
        if self.best.is_none_or(|(best, _)| share > best) {
            self.best = Some((share, self.hundredths));
        }
        if self.search == Search::Settled {
            self.ceiling = Some((self.hundredths, flows));
            self.search = Search::Down;
        }
        if self.hundredths > least && share * GAIN >= self.share() {
            self.hundredths = self.hundredths.saturating_sub(DOWN).max(least);
        } else if self.search == Search::Down {
            (self.hundredths, self.search) = (most, Search::All);
        } else {
            // Once switches have learnt what to claim, residuals may decode there yet.
            self.hundredths = self.best.map_or(most, |(_, best)| best);
            self.search = Search::Waiting { windows: self.wait, flows };
            self.wait = (self.wait * 2).min(LONGEST_WAIT);
        }
    }

    fn decoded(&mut self, load: f64, flows: f64) {
        (self.failed, self.best, self.search, self.wait) = (0, None, Search::Settled, WAIT);
        if self.ceiling.is_some_and(|(_, then)| flows < FEWER * then) {
            self.ceiling = None;
        }
        let larger = (self.hundredths + UP).min(*Self::RANGE.end());
        let shrinks_to = f64::from(100 - larger) / f64::from(100 - self.hundredths);
        let is_free = self.ceiling.is_none_or(|(ceiling, _)| larger < ceiling);
        // Where they are fuller a smaller table may have them overflow: it depends on ways how many
        // residuals each flow is in that has no entry any more.
        if load < ROOMY * shrinks_to && is_free {
            self.hundredths = larger;
        }
    }
}

/// Entries of the table and buckets of all arrays of the residual, where both have the bytes of so
/// many entries, and the table this share of them.
pub fn shared(entries: u32, share: f64) -> (u32, usize) {
    let bytes = f64::from(entries) * ENTRY_BYTES;
    let of_table = (bytes * share / ENTRY_BYTES) as u32;
    let buckets = (bytes * (1.0 - share) / BUCKET_BYTES) as usize;
    (of_table.max(1), (buckets / ARRAYS).max(1) * ARRAYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network with the bytes of so many entries in all, of which residuals decode up to 0.8.
    fn window(alpha: &mut Alpha, entries: f64, flows: f64) -> bool {
        let (of_table, buckets) = shared(entries as u32, alpha.share());
        let load = (flows - f64::from(of_table)).max(0.0) / buckets as f64;
        let load = (load < 0.8).then_some(load);
        let counted = if load.is_some() { flows } else { f64::from(of_table) };
        alpha.learn(Fared { load, flows, counted });
        load.is_some()
    }

    /// Windows until a share is left no more, of which residuals decode.
    fn settles(alpha: &mut Alpha, entries: f64, flows: f64) -> Option<usize> {
        for number in 0..60 {
            let before = alpha.clone();
            let decodes = window(alpha, entries, flows);
            if decodes && alpha.hundredths == before.hundredths {
                let now = alpha.hundredths;
                let stays =
                    (0..200).all(|_| window(alpha, entries, flows) && alpha.hundredths == now);
                assert!(stays, "{alpha:?} moves on");
                return Some(number);
            }
        }
        None
    }

    #[test]
    fn it_settles_where_residuals_decode_and_stays() {
        for flows in [500.0, 900.0, 1_000.0, 1_030.0, 1_050.0, 1_070.0] {
            let mut alpha = Alpha::default();
            let windows = settles(&mut alpha, 1_000.0, flows);
            assert!(windows.is_some_and(|windows| windows < 30), "{flows}: {windows:?}");
            let again = settles(&mut alpha, 1_000.0, flows);
            assert_eq!(again, Some(0), "{flows}");
        }
        let mut alpha = Alpha::default();
        settles(&mut alpha, 1_000.0, 500.0).unwrap();
        assert_eq!(alpha.hundredths, *Alpha::RANGE.end(), "the table has all that it can use");
        // The load doubles, and halves again.
        let doubled = settles(&mut alpha, 1_000.0, 1_050.0);
        assert!(doubled.is_some_and(|windows| windows < 30), "{doubled:?}");
        settles(&mut alpha, 1_000.0, 500.0).unwrap();
        assert_eq!(alpha.hundredths, *Alpha::RANGE.end());
    }

    #[test]
    fn where_no_share_is_enough_the_best_stays_and_all_are_tried_ever_more_rarely() {
        let mut alpha = Alpha::default();
        let share = |_| {
            assert!(!window(&mut alpha, 1_000.0, 4_000.0));
            alpha.hundredths
        };
        let shares: Vec<u8> = (0..400).map(share).collect();
        // No smaller table could bring as much.
        let (first, most) = (FIRST, *Alpha::RANGE.end());
        assert!(shares.iter().all(|share| [first, most].contains(share)), "{shares:?}");
        assert!(shares[4..].iter().all(|&share| share == most), "{shares:?}");
        // And once there are fewer flows, one is found.
        assert!(settles(&mut alpha, 1_000.0, 1_030.0).is_some());
    }

    #[test]
    fn a_share_that_failed_is_left_alone_until_there_are_fewer_flows() {
        let mut alpha = Alpha { hundredths: 80, ..Alpha::default() };
        let roomy = |flows| Fared { load: Some(0.1), flows, counted: flows };
        alpha.learn(roomy(1_000.0));
        assert_eq!(alpha.hundredths, 82);
        let failed = Fared { load: None, flows: 1_000.0, counted: 900.0 };
        alpha.learn(failed);
        assert_eq!(alpha.hundredths, 82, "once may be chance");
        alpha.learn(failed);
        assert_eq!(alpha.hundredths, 78);
        (0..9).for_each(|_| alpha.learn(roomy(1_000.0)));
        assert_eq!(alpha.hundredths, 80);
        (0..9).for_each(|_| alpha.learn(roomy(800.0)));
        assert_eq!(alpha.hundredths, 97);
    }

    #[test]
    fn bytes_stay_what_they_are_whatever_the_share() {
        for share in Alpha::RANGE {
            let (entries, buckets) = shared(10_000, f64::from(share) / 100.0);
            let bytes = f64::from(entries) * ENTRY_BYTES + buckets as f64 * BUCKET_BYTES;
            assert!((599_700.0..=600_000.0).contains(&bytes), "{share}: {bytes}");
        }
    }
}
