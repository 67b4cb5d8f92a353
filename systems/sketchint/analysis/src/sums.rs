//! Latencies of a flow at a switch, added up from its rows, and what follows from that.

use calumma_sketch::sketchint::{Cell, Quarters};

use crate::delays::{LONGEST_NS, least_ns};

/// What some of the latencies don't exceed, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantile {
    /// About how much; `None` where no latencies were counted by size and the bounds differ.
    pub(crate) number: Option<f64>,
    /// No less than this.
    pub(crate) low: f64,
    /// And no more; infinite where it is as long as a stack can say, or longer.
    pub(crate) high: f64,
}

/// Cells added up.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    pub(crate) sum: u128,
    pub(crate) known: u64,
    /// The least, `None` where it is not known; of none the largest number.
    pub(crate) min: Option<u32>,
    pub(crate) max: u32,
    /// Some of them by size, where they were counted so.
    by_size: Option<Quarters>,
}

impl Default for Sum {
    fn default() -> Self {
        Self { sum: 0, known: 0, min: Some(u32::MAX), max: 0, by_size: None }
    }
}

impl Sum {
    /// Adds a cell, and those of its latencies that were counted by size.
    pub(crate) fn add(&mut self, cell: &Cell, by_size: Option<&Quarters>) {
        if cell.known > 0 {
            self.min = self.min.zip(least_ns(cell)).map(|(one, other)| one.min(other));
        }
        self.sum += u128::from(cell.sum_ns);
        self.known += u64::from(cell.known);
        self.max = self.max.max(cell.max_ns);
        match (&mut self.by_size, by_size) {
            (Some(all), Some(more)) => all.merge(more),
            (None, more) => self.by_size = more.cloned(),
            (Some(_), None) => {}
        }
    }

    /// What so many of 100 of the latencies don't exceed, none of which is below `least`; `None`
    /// where none is known.
    pub(crate) fn quantile(&self, percent: u64, least: u32) -> Option<Quantile> {
        // Latencies that are cut have the order that they had: where one is not as long as a stack
        // can say, neither was it before.
        let of = self.quantile_of_cut(percent, least)?;
        let is_known = of.high < f64::from(LONGEST_NS);
        let (number, high) = if is_known { (of.number, of.high) } else { (None, f64::INFINITY) };
        Some(Quantile { number, high, ..of })
    }

    /// The same of the latencies as stacks say them.
    fn quantile_of_cut(&self, percent: u64, least: u32) -> Option<Quantile> {
        let rank = (self.known * percent).div_ceil(100).max(1);
        let (mut low, mut high) = self.by_sum(rank, least)?;
        let mut number = None;
        if let Some(by_size) = self.by_size.as_ref().filter(|of| of.count() > 0) {
            // The others may all be shorter, or all longer.
            let counted = by_size.count();
            let others = self.known.saturating_sub(counted);
            let shorter = rank.checked_sub(others).filter(|&rank| rank > 0);
            let shorter = shorter.and_then(|rank| by_size.at_rank(rank));
            let from = low.max(shorter.map_or(0.0, |of| of.0.into()));
            let to = high.min(by_size.at_rank(rank).map_or(f64::INFINITY, |of| of.1.into()));
            let alike = (counted * percent).div_ceil(100).max(1);
            let middle = by_size.at_rank(alike).map(|of| f64::from(of.0) * f64::from(of.1));
            // Numbers of one who sends what can't be contradict each other.
            if from <= to {
                (low, high) = (from, to);
                number = middle.map(|square| square.sqrt().clamp(low, high));
            }
        }
        if low == high {
            number = Some(low);
        }
        Some(Quantile { number, low, high })
    }

    /// Bounds of the latency that is `rank`th in order of size, by their number, sum and maximum,
    /// none of which is below `least`; `None` where there are not as many.
    ///
    /// The latencies behind it are at most the maximum, so that those up to it have what is left of
    /// the sum. Those before it are at least `least`, and the last is the maximum, so that it and
    /// those between share no more than the rest. All are whole numbers.
    fn by_sum(&self, rank: u64, least: u32) -> Option<(f64, f64)> {
        let behind = self.known.checked_sub(rank)?;
        let (least, max) = (u128::from(least), u128::from(self.max));
        let (up_to, others) = (u128::from(rank), u128::from(behind));
        if others == 0 {
            return Some((max as f64, max as f64));
        }
        let low = self.sum.saturating_sub(others * max).div_ceil(up_to).max(least);
        let rest = self.sum.saturating_sub(max + (up_to - 1) * least);
        let high = (rest / others).min(max);
        Some((low as f64, high as f64))
    }

    /// Bounds of the mean of these and at most `others` more packets, whose latencies are at most
    /// `latency` together and each within `range`.
    pub(crate) fn mean_with(
        &self,
        others: Option<u64>,
        latency: Option<f64>,
        (least, longest): (f64, f64),
    ) -> (f64, f64) {
        let (sum, known) = (self.sum as f64, self.known as f64);
        let others = others.map_or(f64::INFINITY, |others| others as f64);
        let latency = latency.unwrap_or(f64::INFINITY);
        // The more of the shortest, the lower the mean.
        let low = match others.is_finite() && known > 0.0 {
            true => (sum + others * least) / (known + others),
            false => least,
        };
        // The longest ones, as many as their sum allows.
        let most = if longest > 0.0 { (latency / longest).min(others) } else { 0.0 };
        let high = match most.is_finite() && known > 0.0 {
            true => (sum + (most * longest).min(latency)) / (known + most),
            false => longest.min(latency),
        };
        (low.clamp(least, longest), high.clamp(least, longest))
    }
}
