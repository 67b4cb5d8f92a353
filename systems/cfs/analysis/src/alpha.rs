//! Which share of a switch's bytes its table has and which its residual, where nobody says.
//!
//! A larger table counts more flows by itself; a residual that is too small for the flows that are
//! left counts none of them. What is best follows from the load, which nobody knows before. So the
//! share is the usual one as long as residuals decode by it. Where they don't in eight windows in a
//! row, there are too many flows for them, and tables get what they may have at most. That is not
//! tried where residuals of some switches decode at the usual share. It ends where it counts fewer
//! flows, and where there are fewer, of which the usual share may count all.
//!
//! Smaller tables are not tried: while one that is too small is found out, far fewer flows are
//! counted, and where switches claim flows none needs less memory to count all.

use std::ops::RangeInclusive;

use calumma_cfs::frames::Setup;
use calumma_sketch::residual::ARRAYS;

/// Bytes of an entry and of all that finds it, and of a bucket of a residual, with IPv4 keys.
pub(crate) const ENTRY_BYTES: f64 = Setup::ENTRY_BYTES as f64;
pub(crate) const BUCKET_BYTES: f64 = Setup::BUCKETS_BYTES as f64 / ARRAYS as f64;

/// Hundredths that the table has of table and residual where residuals decode.
const USUAL: u8 = 90;

/// Windows in a row in which residuals don't decode before larger tables are tried, and for how
/// many they are: switches claim by the windows before, and take some to learn it.
const PATIENCE: u32 = 8;

/// The share of all flows that residuals may count beside tables where larger tables are tried
/// nevertheless.
const SPARED: f64 = 0.005;

/// Where there are fewer flows than this share of those that were too many, the usual share is used
/// again. The number of flows is estimated, with a standard error of 0.016.
const FEWER: f64 = 0.95;

/// How often [`PATIENCE`] windows have to pass at most before larger tables are tried again that
/// counted fewer flows.
const MOST_WAITS: u32 = 16;

/// How residuals fared in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fared {
    /// Whether all residuals decoded.
    pub decoded: bool,
    /// Flows of the network in all.
    pub flows: f64,
    /// Those of them that were counted.
    pub counted: f64,
    /// Those of them that tables had.
    pub in_tables: f64,
}

/// Windows in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    windows: u32,
    flows: f64,
    counted: f64,
    in_tables: f64,
    /// The smallest number of flows.
    fewest: f64,
}

impl Sums {
    fn add(&mut self, Fared { flows, counted, in_tables, .. }: Fared) {
        self.fewest = if self.windows == 0 { flows } else { self.fewest.min(flows) };
        self.windows += 1;
        self.flows += flows;
        self.counted += counted;
        self.in_tables += in_tables;
    }

    /// Flows counted in a window. Full tables count as many of more flows.
    fn counted_each(&self) -> f64 {
        self.counted / f64::from(self.windows.max(1))
    }
}

/// Which share there is, and since when.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The usual one, and residuals don't decode since so many windows. Until larger tables are
    /// tried these windows pass as often as `left` says.
    Usual { failed: Sums, left: u32 },
    /// The largest tables, after those windows of the usual share.
    Largest { before: Sums, since: Sums },
    /// One that somebody else has chosen.
    Given,
}

impl State {
    fn usual(left: u32) -> Self {
        Self::Usual { failed: Sums::default(), left }
    }
}

/// A share of the bytes of table and residual that the table has, for the window to come, the same
/// at all switches.
#[derive(Clone, Debug, PartialEq)]
pub struct Alpha {
    hundredths: u8,
    state: State,
    /// How often [`PATIENCE`] windows have to pass before larger tables are tried.
    waits: u32,
}

impl Default for Alpha {
    fn default() -> Self {
        Self { hundredths: USUAL, state: State::usual(1), waits: 1 }
    }
}

impl Alpha {
    /// What it may be, in hundredths.
    pub const RANGE: RangeInclusive<u8> = Setup::ALPHA;

    /// Windows of steady load after which it stays, or larger tables have been tried in vain.
    pub const SETTLES: u32 = 3 * PATIENCE;

    /// One that begins with so many hundredths, as far as it may be, and keeps them as long as
    /// residuals decode.
    pub(crate) fn at(hundredths: u8) -> Self {
        let hundredths = hundredths.clamp(*Self::RANGE.start(), *Self::RANGE.end());
        match hundredths {
            USUAL => Self::default(),
            _ => Self { hundredths, state: State::Given, waits: 1 },
        }
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
        self.state = match self.state {
            State::Usual { .. } if fared.decoded => self.anew(),
            State::Usual { mut failed, left } => {
                failed.add(fared);
                after_failing(failed, left)
            }
            State::Largest { before, .. } if fared.flows < FEWER * before.fewest => self.anew(),
            State::Largest { before, mut since } => {
                since.add(fared);
                if since.windows == PATIENCE && since.counted_each() < before.counted_each() {
                    self.waits = (2 * self.waits).min(MOST_WAITS);
                    State::usual(self.waits)
                } else {
                    State::Largest { before, since }
                }
            }
            State::Given if fared.decoded => State::Given,
            State::Given => self.anew(),
        };
        self.hundredths = match self.state {
            State::Usual { .. } => USUAL,
            State::Largest { .. } => *Self::RANGE.end(),
            State::Given => self.hundredths,
        };
    }

    fn anew(&mut self) -> State {
        self.waits = 1;
        State::usual(self.waits)
    }
}

/// What is to be done after these windows of the usual share in which residuals didn't decode.
fn after_failing(failed: Sums, left: u32) -> State {
    if failed.windows < PATIENCE {
        return State::Usual { failed, left };
    }
    // What residuals count beside tables would be lost at first, and perhaps for good.
    let is_spared = failed.counted - failed.in_tables <= SPARED * failed.flows;
    match left {
        0 | 1 if is_spared => State::Largest { before: failed, since: Sums::default() },
        _ => State::usual(left.saturating_sub(1).max(1)),
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
    use proptest::prelude::*;

    use super::*;

    /// A network with the bytes of 1,000 entries in all, of which residuals decode up to 0.8.
    fn window(share: f64, flows: f64) -> Fared {
        let (of_table, buckets) = shared(1_000, share);
        let in_tables = flows.min(f64::from(of_table));
        let decoded = flows - in_tables < 0.8 * buckets as f64;
        Fared { decoded, flows, counted: if decoded { flows } else { in_tables }, in_tables }
    }

    /// The shares of windows with so many flows.
    fn shares(alpha: &mut Alpha, windows: usize, flows: f64) -> Vec<u8> {
        let share = |_| {
            alpha.learn(window(alpha.share(), flows));
            alpha.hundredths
        };
        (0..windows).map(share).collect()
    }

    #[test]
    fn it_stays_where_residuals_decode_and_tables_get_all_where_they_do_not() {
        let mut alpha = Alpha::default();
        for flows in [0.0, 500.0, 900.0, 1_010.0] {
            assert_eq!(shares(&mut alpha, 100, flows), [USUAL; 100], "{flows}");
        }
        let most = *Alpha::RANGE.end();
        let crowded = shares(&mut alpha, 300, 1_500.0);
        assert_eq!(crowded[..7], [USUAL; 7]);
        assert!(crowded[7..].iter().all(|share| *share == most), "{crowded:?}");
        // Ever more flows change nothing, and a few less neither.
        assert_eq!(shares(&mut alpha, 50, 3_000.0), [most; 50]);
        assert_eq!(shares(&mut alpha, 50, 1_450.0), [most; 50]);
        assert_eq!(shares(&mut alpha, 50, 1_010.0), [USUAL; 50]);
    }

    #[test]
    fn what_residuals_of_some_switches_count_is_not_given_up() {
        let mut alpha = Alpha::default();
        let mut partly = window(0.9, 1_500.0);
        partly.counted += 30.0;
        for _ in 0..100 {
            alpha.learn(partly);
            assert_eq!(alpha.hundredths, USUAL);
        }
    }

    /// Larger tables that count fewer flows, as where residuals of some switches had decoded, are
    /// tried ever more rarely.
    #[test]
    fn what_counts_fewer_flows_is_left_and_tried_again_ever_more_rarely() {
        let mut alpha = Alpha::default();
        let mut tried = Vec::new();
        for number in 0..2_000 {
            let before = alpha.hundredths;
            let is_usual = before == USUAL;
            let counted = if is_usual { 900.0 } else { 890.0 };
            alpha.learn(Fared { decoded: false, flows: 1_500.0, counted, in_tables: counted });
            if is_usual && alpha.hundredths != USUAL {
                tried.push(number);
            }
        }
        let apart: Vec<u32> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(apart[..5], [24, 40, 72, 136, 136], "{tried:?}");
    }

    #[test]
    fn a_share_that_is_given_stays_as_long_as_residuals_decode() {
        let mut alpha = Alpha::at(75);
        assert_eq!(shares(&mut alpha, 20, 1_040.0), [75; 20]);
        assert_eq!(shares(&mut alpha, 1, 1_500.0), [USUAL]);
        assert_eq!((Alpha::at(90), Alpha::at(10).hundredths), (Alpha::default(), 60));
    }

    proptest! {
        /// In no window it counts fewer flows than the usual share does, but for the first one
        /// after a fall to a load of which that counts all and larger tables do not.
        #[test]
        fn the_usual_share_counts_no_more_flows(
            first in 200.0..4_000.0_f64,
            loads in proptest::collection::vec((0..3_usize, 1..60_usize), 1..12),
        ) {
            let (mut alpha, mut flows) = (Alpha::default(), first);
            for (change, windows) in loads {
                flows *= [0.5, 1.0, 2.0][change];
                flows = flows.clamp(100.0, 10_000.0);
                for number in 0..windows {
                    let now = window(alpha.share(), flows);
                    let usual = window(f64::from(USUAL) / 100.0, flows);
                    let less = (usual.counted - now.counted) / flows;
                    prop_assert!(less <= if number == 0 { 0.05 } else { 0.0 }, "{less}");
                    alpha.learn(now);
                }
            }
            let rest = shares(&mut alpha, 300, flows)[200..].to_vec();
            prop_assert!(rest.iter().all(|share| *share == rest[0]), "{rest:?}");
        }
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
