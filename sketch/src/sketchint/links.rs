//! How long packets were between switches, by the stamps of both.
//!
//! A stack with timestamps says when each switch sent the packet and when the next one received it,
//! each by its own clock. The difference is how long the packet was on the link, and how far the
//! two clocks are apart; it may be negative. Sums are kept for each link, whatever flow came by.

use super::bounded::Bounded;
use crate::hash::mixed;

/// What one switch's stamp says less another's, for packets that came from one to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSums {
    /// The switch that sent them.
    pub from: u32,
    /// The switch that received them.
    pub to: u32,
    /// Packets of which both switches said when, each as often as it came by.
    pub packets: u64,
    /// The sum of the differences, in nanoseconds.
    pub sum_ns: i64,
    /// The least difference.
    pub min_ns: i64,
    /// The largest.
    pub max_ns: i64,
}

impl LinkSums {
    /// The largest difference, either way: 4.3 s. Larger ones are counted as this, so that sums
    /// don't overflow, and the link [is cut](Self::is_cut).
    pub const MOST_NS: u64 = 1 << 32;

    fn none(from: u32, to: u32) -> Self {
        Self { from, to, packets: 0, sum_ns: 0, min_ns: i64::MAX, max_ns: i64::MIN }
    }

    /// Whether a difference may have been larger than it was counted: clocks that are so far apart
    /// measure nothing.
    pub fn is_cut(&self) -> bool {
        let largest_ns = self.min_ns.unsigned_abs().max(self.max_ns.unsigned_abs());
        largest_ns >= Self::MOST_NS
    }

    /// Adds what others have summed up of the same link.
    pub fn merge(&mut self, other: &Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// The links that packets of a window came by.
#[derive(Clone, Debug)]
pub struct Links {
    table: Bounded<(u32, u32)>,
    sums: Vec<LinkSums>,
    capacity: usize,
}

impl Links {
    /// Room for so many links. It takes its memory now.
    pub fn new(capacity: usize) -> Self {
        Self { table: Bounded::new(capacity), sums: Vec::with_capacity(capacity), capacity }
    }

    /// The sums of a link, empty ones where it is new; `None` where there is no room, which is
    /// counted.
    #[inline]
    fn of(&mut self, from: u32, to: u32) -> Option<&mut LinkSums> {
        let hash = mixed(u64::from(from) << 32 | u64::from(to));
        let at = self.table.place(hash, &(from, to))?;
        if at == self.sums.len() {
            self.sums.push(LinkSums::none(from, to));
        }
        self.sums.get_mut(at)
    }

    /// Adds a packet that one switch sent at `sent_ns` and the next one received at `received_ns`,
    /// each by its own clock. Differences beyond [`LinkSums::MOST_NS`] count as that.
    #[inline]
    pub fn add(&mut self, (from, sent_ns): (u32, u64), (to, received_ns): (u32, u64)) {
        let apart_ns = received_ns.abs_diff(sent_ns).min(LinkSums::MOST_NS).cast_signed();
        let ns = if received_ns < sent_ns { -apart_ns } else { apart_ns };
        if let Some(of) = self.of(from, to) {
            of.merge(&LinkSums { from, to, packets: 1, sum_ns: ns, min_ns: ns, max_ns: ns });
        }
    }

    /// Adds what others have summed up.
    pub fn merge(&mut self, other: &Self) {
        for theirs in &other.sums {
            match self.of(theirs.from, theirs.to) {
                Some(mine) => mine.merge(theirs),
                // One of them is counted.
                None => self.table.refuse(theirs.packets.saturating_sub(1)),
            }
        }
        self.table.refuse(other.refused());
    }

    /// The links, in order of their switches.
    pub fn sums(&self) -> Vec<LinkSums> {
        let mut sums = self.sums.clone();
        sums.sort_unstable_by_key(|of| (of.from, of.to));
        sums
    }

    /// How often a packet's link found no room.
    pub fn refused(&self) -> u64 {
        self.table.refused()
    }

    /// Bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.capacity * size_of::<LinkSums>()
    }

    /// Forgets all links.
    pub fn clear(&mut self) {
        self.table.clear();
        self.sums.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// By however many lcores, and whatever finds no room.
        #[test]
        fn differences_are_summed_up_link_by_link(
            packets in prop::collection::vec(
                (0..3_usize, (0..4_u32, 0..4_u32), 0..9_000_u64, 0..9_000_u64), 0..200),
            capacity in 1..20_usize,
        ) {
            let mut lcores = vec![Links::new(capacity); 3];
            let mut truth: BTreeMap<(u32, u32), Vec<i64>> = BTreeMap::new();
            for &(lcore, (from, to), sent_ns, received_ns) in &packets {
                lcores[lcore].add((from, sent_ns), (to, received_ns));
                let ns = received_ns as i64 - sent_ns as i64;
                truth.entry((from, to)).or_default().push(ns);
            }
            let [mut all, second, third] = <[Links; 3]>::try_from(lcores).unwrap();
            all.merge(&second);
            all.merge(&third);
            let sums = all.sums();
            let (counted, came) = (sums.iter().map(|of| of.packets).sum::<u64>(), packets.len());
            if all.refused() == 0 {
                prop_assert_eq!(counted, came as u64);
                for of in &sums {
                    let truth = &truth[&(of.from, of.to)];
                    prop_assert_eq!(of.packets, truth.len() as u64);
                    prop_assert_eq!(of.sum_ns, truth.iter().sum::<i64>());
                    prop_assert_eq!(Some(&of.min_ns), truth.iter().min());
                    prop_assert_eq!(Some(&of.max_ns), truth.iter().max());
                }
            } else {
                prop_assert!(truth.len() > capacity && sums.len() <= capacity);
                prop_assert_eq!(counted + all.refused(), came as u64);
            }
        }
    }

    #[test]
    fn links_are_cut_where_clocks_are_seconds_apart() {
        let mut links = Links::new(4);
        let most = LinkSums::MOST_NS as i64;
        links.add((1, LinkSums::MOST_NS - 1), (2, 0));
        links.add((1, 0), (2, LinkSums::MOST_NS - 1));
        links.add((3, u64::MAX), (2, 0));
        links.add((4, 0), (2, LinkSums::MOST_NS + 1));
        let of = |from, packets, sum_ns, (min_ns, max_ns)| LinkSums {
            from,
            to: 2,
            packets,
            sum_ns,
            min_ns,
            max_ns,
        };
        let all = [
            of(1, 2, 0, (1 - most, most - 1)),
            of(3, 1, -most, (-most, -most)),
            of(4, 1, most, (most, most)),
        ];
        assert_eq!((links.sums(), links.refused()), (all.to_vec(), 0));
        assert_eq!(all.map(|of| of.is_cut()), [false, true, true]);
        links.clear();
        assert_eq!(links.sums(), []);
    }
}
