//! By what means a switch knows what it says of itself in stacks.

use crate::arrival::Arrival;

/// By what means a switch knows what it says of itself in the stacks of some packets, and by how
/// much that may be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Means {
    bits: u8,
    /// By how much the arrival of a packet, which its latency is from, may be wrong at most, in
    /// nanoseconds.
    pub arrival_error_ns: u64,
}

impl Means {
    /// The device's stamps said when packets arrived.
    pub const DEVICE: u8 = 1;
    /// The polls that found them said it, between bounds.
    pub const POLL: u8 = 1 << 1;
    /// The driver said how many packets waited in receive queues.
    pub const QUEUE_ASKED: u8 = 1 << 2;
    /// Polls said it: it is what they found.
    pub const QUEUE_FOUND: u8 = 1 << 3;
    /// Of some queues polls found no fewer than they took, and there may have been more.
    pub const QUEUE_AT_LEAST: u8 = 1 << 4;

    /// The bits that have a meaning.
    const KNOWN: u8 =
        Self::DEVICE | Self::POLL | Self::QUEUE_ASKED | Self::QUEUE_FOUND | Self::QUEUE_AT_LEAST;

    /// The means of these bits; `None` where one has no meaning.
    pub const fn new(bits: u8, arrival_error_ns: u64) -> Option<Self> {
        if bits & !Self::KNOWN == 0 { Some(Self { bits, arrival_error_ns }) } else { None }
    }

    /// The means as bits.
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// Whether one of these bits is among them.
    #[inline]
    pub const fn has(self, bits: u8) -> bool {
        self.bits & bits != 0
    }

    /// Notes that a packet's arrival was known so well, by its device's stamp or by polls alone. Of
    /// one of which nothing is known nothing is said.
    #[inline]
    pub fn note(&mut self, arrival: Arrival, is_stamped: bool) {
        if let Some((_, error_ns)) = arrival.middle_ns() {
            self.bits |= if is_stamped { Self::DEVICE } else { Self::POLL };
            self.arrival_error_ns = self.arrival_error_ns.max(error_ns);
        }
    }

    /// Adds those of other packets.
    #[inline]
    pub fn add(&mut self, others: Self) {
        self.bits |= others.bits;
        self.arrival_error_ns = self.arrival_error_ns.max(others.arrival_error_ns);
    }

    /// Whether [adding](Self::add) others would change nothing.
    #[inline]
    pub const fn covers(self, others: Self) -> bool {
        others.bits & !self.bits == 0 && others.arrival_error_ns <= self.arrival_error_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_add_up_to_all_that_were_used_and_the_largest_error() {
        let mut means = Means::default();
        // Of a queue that was never seen empty.
        means.note(Arrival { earliest_ns: 0, latest_ns: 700 }, false);
        assert_eq!(means, Means::default());
        means.note(Arrival { earliest_ns: 100, latest_ns: 201 }, false);
        assert_eq!(Some(means), Means::new(Means::POLL, 51));
        let mut stamped = Means::default();
        stamped.note(Arrival::at(150), true);
        assert_eq!(Some(stamped), Means::new(Means::DEVICE, 0));
        assert!(!means.covers(stamped) && !stamped.covers(means));
        means.add(stamped);
        assert_eq!(Some(means), Means::new(Means::DEVICE | Means::POLL, 51));
        assert!(means.covers(stamped) && means.has(Means::DEVICE));
        assert!(!means.covers(Means { arrival_error_ns: 52, ..means }));
        assert_eq!(Means::new(0x80, 0), None);
    }
}
