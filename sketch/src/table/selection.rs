//! Finds the limit that a given number of entries do not exceed, a few steps at a time.
//!
//! A selection by radix: a pass over all orders counts them by their upper eleven bits, and further
//! passes those that agree with the wanted one so far, until few enough lie between. Six passes
//! find it exactly, whatever the orders are.
//!
//! Entries may be added between the steps, and none may go. An added one that a pass counts is
//! there just as the others are, so what is found is never below the limit, however the counts of
//! two passes came about.

use super::order::Order;

/// Bits that a pass looks at.
const DIGIT: u32 = 11;

/// Passes that are always enough.
pub(crate) const PASSES: usize = 63_usize.div_ceil(DIGIT as usize);

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    counts: Box<[u32; 1 << DIGIT]>,
    /// The lowest order that the pass counts one by one, and how many entries are below it.
    low: u64,
    below: usize,
    /// Bits of an order that the pass does not look at.
    shift: u32,
    /// Orders looked at in this pass.
    at: usize,
}

impl Selection {
    pub(crate) fn new() -> Self {
        Self { counts: Box::new([0; 1 << DIGIT]), low: 0, below: 0, shift: 0, at: 0 }
    }

    /// Begins anew; no order is above `last`.
    pub(crate) fn begin(&mut self, last: Order) {
        let bits = 64 - last.0.leading_zeros();
        (self.low, self.below, self.at) = (0, 0, 0);
        self.shift = bits.saturating_sub(DIGIT);
        self.counts.fill(0);
    }

    /// Looks at `steps` orders more. Gives the limit when it is found: at least `wanted` entries do
    /// not exceed it, and of those counted at most `spare` more. There must be as many as `wanted`.
    pub(crate) fn step(
        &mut self,
        orders: &[Order],
        steps: usize,
        wanted: usize,
        spare: usize,
    ) -> Option<Order> {
        let end = orders.len().min(self.at.saturating_add(steps));
        for order in &orders[self.at..end] {
            let digit = order.0.wrapping_sub(self.low) >> self.shift;
            if let Some(count) = self.counts.get_mut(digit as usize) {
                *count += 1;
            }
        }
        self.at = end;
        if end < orders.len() { None } else { self.choose(wanted, spare) }
    }

    /// Ends a pass.
    fn choose(&mut self, wanted: usize, spare: usize) -> Option<Order> {
        let mut reached = self.below;
        let mut digits = self.counts.iter().zip(0_u64..);
        let (within, digit) = digits.find_map(|(&count, digit)| {
            let below = reached;
            reached += count as usize;
            (reached >= wanted).then_some((below, digit))
        })?;
        let low = self.low + (digit << self.shift);
        if reached - wanted <= spare || self.shift == 0 {
            return Some(Order(low + (1 << self.shift) - 1));
        }
        (self.low, self.below, self.at) = (low, within, 0);
        self.shift = self.shift.saturating_sub(DIGIT);
        self.counts.fill(0);
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Orders of all kinds of crowds: equal ones, neighbours, and any.
    fn orders() -> impl Strategy<Value = Vec<Order>> {
        let order = prop_oneof![
            0_u64..4,
            (0_u64..300).prop_map(|n| 5 << 61 | n),
            (0_u64..300).prop_map(|n| (1 << 62) + (n << 20)),
            any::<u64>().prop_map(|n| n >> 1),
        ];
        prop::collection::vec(order.prop_map(|order| Order(order & Order::LAST.0)), 1..200)
    }

    proptest! {
        #[test]
        fn the_limit_is_that_of_a_sorted_list(
            orders in orders(), steps in 1_usize..50, wanted: prop::sample::Index,
            spare in 0_usize..20,
        ) {
            let wanted = wanted.index(orders.len()) + 1;
            let with_gaps: Vec<_> = orders.iter().flat_map(|&o| [o, Order::free(3)]).collect();
            let mut selection = Selection::new();
            selection.begin(orders.iter().copied().max().unwrap());
            let most = PASSES * with_gaps.len().div_ceil(steps);
            let limit = (0..most).find_map(|_| selection.step(&with_gaps, steps, wanted, spare));
            let limit = limit.expect("a limit after six passes");

            let mut sorted = orders.clone();
            sorted.sort_unstable();
            prop_assert!(limit >= sorted[wanted - 1]);
            let within = orders.iter().filter(|&&order| order <= limit).count();
            let equal = orders.iter().filter(|&&order| order == sorted[wanted - 1]).count();
            prop_assert!(within <= wanted + spare.max(equal - 1), "{} of {}", within, wanted);
        }
    }
}
