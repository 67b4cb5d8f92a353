//! The highest rate at which nothing is lost.

use std::time::Duration;

use super::lcore::{Sent, Transmitter};

/// Halvings of the range in which the rate lies: down to 0.2 % of it.
const STEPS: u32 = 9;

/// A rate is given up after so many trials in which the port refused packets: the machine may have
/// stood still for a moment in one of them.
const TRIALS: u32 = 3;

/// Bisects between nothing and what the port takes when flooded, a trial of `duration` at a time,
/// and gives the last trial without a refusal.
pub(super) fn search(transmitter: &mut Transmitter, duration: Duration) -> Sent {
    let flood = transmitter.send(None, duration);
    let mut best = Sent { seconds: duration.as_secs_f64(), ..Sent::default() };
    let (mut low, mut high) = (0.0, flood.packets as f64 / flood.seconds);
    for _ in 0..STEPS {
        let rate = (low + high) / 2.0;
        let unharmed = (0..TRIALS)
            .map(|_| {
                // What the last trial left in the ring is not this one's.
                transmitter.send(Some(rate / 4.0), duration / 10);
                transmitter.send(Some(rate), duration)
            })
            .find(|sent| sent.refused == 0);
        match unharmed {
            Some(sent) => (low, best) = (rate, sent),
            None => high = rate,
        }
    }
    best
}
