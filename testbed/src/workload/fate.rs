//! What happens to a flow's packets on their way.

use std::ops::Range;

use super::Draw;

/// What a fate's numbers are drawn for, beside what a flow's are drawn for.
mod purpose {
    pub(super) const LINK_LOSS: u64 = 12;
    pub(super) const DOUBLED: u64 = 13;
    pub(super) const LATE: u64 = 16;
    pub(super) const COPY: u64 = 17;
    pub(super) const REMARKED: u64 = 18;
    pub(super) const HELD_UP: u64 = 19;
}

/// What happens to a flow's packets of an epoch.
///
/// A victim flow of rate r loses every (1/r)-th packet, from a random one on, so that each loses
/// the number expected of it. What links do to each packet is drawn by chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fate {
    victim_rate: f64,
    phase: f64,
    draw: Draw,
}

/// What links do to packets by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chance {
    /// Lose them.
    Loss,
    /// Deliver them twice.
    Copy,
    /// Delay them.
    Delay,
    /// Set their DSCP.
    Remark,
    /// Hold them up for long.
    HoldUp,
}

impl Fate {
    /// That of a flow which loses packets at `victim_rate`, the first of them by `phase`.
    pub(super) fn new(victim_rate: f64, phase: f64, draw: Draw) -> Self {
        Self { victim_rate, phase, draw }
    }

    /// How many of the first `packets` packets the flow loses wherever it goes.
    pub fn lost_among(&self, packets: u32) -> u32 {
        (f64::from(packets) * self.victim_rate + self.phase) as u32
    }

    /// Whether the flow loses packet `number`, counted from 0, wherever it goes.
    pub fn is_lost(&self, number: u32) -> bool {
        self.lost_among(number + 1) > self.lost_among(number)
    }

    /// Those of the packets `numbers` that the flow loses wherever it goes, in order.
    pub fn lost_of(self, numbers: Range<u32>) -> impl Iterator<Item = u32> {
        let counts = self.lost_among(numbers.start)..self.lost_among(numbers.end);
        counts.map(move |before| self.lost_after(before))
    }

    /// The packet that it loses after `before` others.
    fn lost_after(&self, before: u32) -> u32 {
        let expected = (f64::from(before) + 1.0 - self.phase) / self.victim_rate;
        // Good to a packet, and rounded as `is_lost` rounds.
        let mut number = (expected as u32).saturating_sub(1);
        while self.lost_among(number + 1) <= before {
            number += 1;
        }
        while self.lost_among(number) > before {
            number -= 1;
        }
        number
    }

    /// Whether the flow loses packets wherever it goes.
    pub fn is_victim(&self) -> bool {
        self.victim_rate > 0.0
    }

    /// What decides whether link `link` does `what` to packet `number`.
    pub fn draw(&self, what: Chance, link: usize, number: u32) -> Draw {
        let purpose = match what {
            Chance::Loss => purpose::LINK_LOSS,
            Chance::Copy => purpose::DOUBLED,
            Chance::Delay => purpose::LATE,
            Chance::Remark => purpose::REMARKED,
            Chance::HoldUp => purpose::HELD_UP,
        };
        self.draw.of(purpose).of(link as u64).of(number.into())
    }

    /// What happens to copies that link `link` made of packets.
    #[must_use]
    pub fn of_copies(&self, link: usize) -> Self {
        Self { draw: self.draw.of(purpose::COPY).of(link as u64), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_lost_packets_of_a_range_are_those_of_it_that_are_lost(
            victim_rate in prop_oneof![0.0..=1.0, Just(1.0), Just(0.1), 0.0..1e-3],
            phase in 0.0..1.0,
            start in 0u32..3_000_000,
            length in 0u32..3000,
        ) {
            // A phase must not add a packet to all of them.
            let phase = if victim_rate < 1.0 { phase } else { 0.0 };
            let fate = Fate { victim_rate, phase, draw: Draw::new(1) };
            for start in [0, start] {
                let numbers = start..start + length;
                let one_by_one = numbers.clone().filter(|&number| fate.is_lost(number));
                prop_assert!(fate.lost_of(numbers).eq(one_by_one));
            }
        }
    }
}
