//! Turns of a loop, as the times to live show them with which a flow's packets came to a switch.
//!
//! A packet in a loop of `length` hops comes by each of its nodes again with so much less time to
//! live, until it has none. So differences from the first packet are all multiples of the length,
//! from the first on.

use crate::frames::Suspect;

/// Times to live that make a loop.
const LEAST: u32 = 3;

/// Times to live that make one for certain: chance makes so many equal steps down to the end in no
/// host's packets, whatever times to live it draws.
const CERTAIN: u32 = 6;

/// A flow's turns at a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The first time to live.
    pub ttl: u8,
    /// Hops of a turn.
    pub length: u8,
    /// Times to live, the first included.
    pub number: u32,
    /// Whether they go on for as long as packets live, or as differences show.
    pub to_the_end: bool,
}

impl Turns {
    /// The turns that a flow's times to live show, if they show a loop: the first of them, and
    /// differences from it as those of [`Entry::differences`](crate::frames::Entry::differences).
    pub fn of(ttl: u8, differences: u64) -> Option<Self> {
        if differences & 1 != 0 && differences.count_ones() == 1 {
            return None;
        }
        let length = (differences & !1).trailing_zeros() as u8;
        // No packet comes again with one less: it would have met no other router.
        if !(Suspect::LEAST_LENGTH..64).contains(&length) {
            return None;
        }
        // Packets live on for so many hops; beyond 63 all are one bit.
        let most = u32::from(ttl.saturating_sub(1).min(63) / length);
        let seen = (1..=most).take_while(|turn| differences >> (turn * u32::from(length)) & 1 == 1);
        let seen = seen.count() as u32;
        let multiples = (1..=seen).fold(0_u64, |bits, turn| bits | 1 << (turn * u32::from(length)));
        let number = seen + 1;
        if number < LEAST || differences & !1 != multiples {
            return None;
        }
        // The one bit for all others is set where packets came again with more than 63 less.
        let lives_longer = u32::from(ttl.saturating_sub(1) / length) > most;
        let to_the_end = seen == most && (differences & 1 != 0) == lives_longer;
        Some(Self { ttl, length, number, to_the_end })
    }

    /// The times to live, the first before all others.
    pub fn ttls(&self) -> Vec<u8> {
        (0..self.number).map(|turn| self.ttl - turn as u8 * self.length).collect()
    }

    /// Whether no host sends so, whatever times to live it draws.
    pub fn are_certain(&self) -> bool {
        self.to_the_end && self.number >= CERTAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Entry;

    /// What is made of packets that came with these times to live, in this order.
    fn of(ttls: impl IntoIterator<Item = u8>) -> Option<(u8, u32, bool)> {
        let ttls: Vec<u8> = ttls.into_iter().collect();
        let others = ttls.iter().filter(|&&ttl| ttl != ttls[0]);
        let differences = others.fold(0, |bits, &ttl| bits | Entry::difference(ttls[0], ttl));
        let turns = Turns::of(ttls[0], differences);
        turns.map(|turns| (turns.length, turns.number, turns.are_certain()))
    }

    #[test]
    fn packets_that_go_round_until_they_die_are_in_a_loop_for_certain() {
        for length in 2..=7 {
            for first in [30, 62, 64, 65, 126, 250] {
                let all = (1..=first).rev().step_by(length.into());
                let (found, number, certain) =
                    of(all).unwrap_or_else(|| panic!("{first} {length}"));
                // Only of a long loop and packets that begin with little is it uncertain.
                let is_enough = number >= CERTAIN;
                assert_eq!((found, certain), (length, is_enough), "{first} {length}");
                assert!(is_enough || first == 30 && length > 5, "{first} {length}");
            }
        }
        // One that is repaired in the middle may have been a host.
        assert_eq!(of([63, 61, 59]), Some((2, 3, false)));
    }

    #[test]
    fn a_change_of_path_is_no_loop() {
        assert_eq!(of([63, 61, 61]), None);
        assert_eq!(of([63, 62, 60]), None);
        assert_eq!(of([61, 63]), None);
        // A traceroute that keeps its ports.
        assert_eq!(of(1..30), None);
        assert_eq!(of((1..30).rev()), None);
        // Two hosts behind one address, each with its own system.
        assert_eq!(of([127, 63, 127, 63]), None);
    }
}
