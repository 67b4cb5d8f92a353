//! How much of their links' speed the switch's ports use, for INT stacks that say so.

use std::time::{Duration, Instant};

use dpdk::Port;

use crate::lcore::exits::Exits;

/// Over how long a share is measured.
const PERIOD: Duration = Duration::from_millis(10);

/// How many of these go by before a link's speed is asked for anew.
const PERIODS_OF_SPEED: u32 = 100;

/// What a frame takes on the wire beside the bytes that are counted of it: preamble, checksum, and
/// the gap behind it.
const AROUND_FRAME: u64 = 24;

/// The links of a switch's ports.
pub struct Links {
    ports: Vec<Port>,
    exits: Exits,
    /// What was counted last, by port, and when; none where nobody asks for shares.
    last: Vec<Option<Sample>>,
    /// The speed of each link, in megabits a second, and for how many periods it counts.
    mbps: Vec<Option<u32>>,
    periods: u32,
}

/// What a port had sent at some moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    packets: u64,
    bytes: u64,
}

/// The share of a link's speed that was used between two moments, in 1/10,000; `None` where the
/// port does not count what is needed for it.
fn share(before: Sample, now: Sample, mbps: u32) -> Option<u32> {
    let ns = now.at.checked_duration_since(before.at)?.as_nanos();
    let packets = now.packets.checked_sub(before.packets)?;
    let bytes = now.bytes.checked_sub(before.bytes)?;
    if ns == 0 || mbps == 0 || (packets > 0 && bytes == 0) {
        return None;
    }
    let bits = 8 * (u128::from(bytes) + u128::from(AROUND_FRAME) * u128::from(packets));
    // Bits in so many nanoseconds of so many megabits a second.
    let share = bits * 10_000 * 1_000 / (u128::from(mbps) * ns);
    Some(u32::try_from(share).unwrap_or(u32::MAX))
}

impl Links {
    /// Those of these ports; what they use is said in `exits`.
    pub fn new(ports: Vec<Port>, exits: Exits) -> Self {
        let (last, mbps) = (vec![None; ports.len()], vec![None; ports.len()]);
        Self { ports, exits, last, mbps, periods: 0 }
    }

    /// Measures anew, where shares are asked for and it is time. Else costs nothing.
    pub fn measure(&mut self, are_asked: bool) {
        if !are_asked {
            if self.last.iter().any(Option::is_some) {
                self.last.fill(None);
                (0..self.ports.len()).for_each(|at| self.exits.set_utilisation(at, None));
            }
            return;
        }
        let is_early = |last: &Option<Sample>| last.is_some_and(|it| it.at.elapsed() < PERIOD);
        if self.last.iter().any(is_early) {
            return;
        }
        let asks_speed = self.periods == 0 || self.last.iter().any(Option::is_none);
        self.periods = if asks_speed { PERIODS_OF_SPEED } else { self.periods - 1 };
        for (at, port) in self.ports.iter().enumerate() {
            if asks_speed {
                let link = port.link().ok().filter(|link| link.up);
                self.mbps[at] = link.and_then(|link| link.mbps);
            }
            let before = self.last[at].take();
            let Ok(stats) = port.stats() else {
                self.exits.set_utilisation(at, None);
                continue;
            };
            let (packets, bytes) = (stats.tx_packets, stats.tx_bytes);
            let now = Sample { at: Instant::now(), packets, bytes };
            let of = before.zip(self.mbps[at]).and_then(|(before, mbps)| share(before, now, mbps));
            self.exits.set_utilisation(at, of);
            self.last[at] = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_what_frames_take_on_the_wire() {
        let at = Instant::now();
        let before = Sample { at, packets: 100, bytes: 70_000 };
        let after = |ms, packets: u64, bytes: u64| Sample {
            at: at + Duration::from_millis(ms),
            packets: 100 + packets,
            bytes: 70_000 + bytes,
        };
        // 10 ms of 10 Gbit/s are 100 Mbit: 12.5 MB.
        assert_eq!(share(before, after(10, 0, 0), 10_000), Some(0));
        assert_eq!(share(before, after(10, 1_000, 1_000_000), 10_000), Some(819));
        assert_eq!(share(before, after(20, 1_000, 1_000_000), 10_000), Some(409));
        // A link that is said to be slower than it is.
        assert_eq!(share(before, after(10, 1_000, 1_000_000), 100), Some(81_920));
        // No bytes are counted; totals were reset; no time has gone by.
        assert_eq!(share(before, after(10, 5, 0), 10_000), None);
        assert_eq!(share(after(0, 1, 1), Sample { packets: 0, ..before }, 10_000), None);
        assert_eq!(share(before, before, 10_000), None);
    }
}
