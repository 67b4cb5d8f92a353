//! Sets of packets of a burst: bit i stands for the burst's i-th packet.

pub use calumma_sketch::burst::first;

/// Packets of a burst that are to be dropped: bit i stands for the burst's i-th packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DropMask(pub u32);

impl DropMask {
    /// Whether the burst's packet `at` is to be dropped.
    #[inline]
    pub fn drops(self, at: usize) -> bool {
        self.0 >> at & 1 == 1
    }

    /// Whether the whole burst goes on.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What a transmit queue did with packets of one burst: bit i stands for the i-th packet that was
/// received or, where flows stand beside it, for the i-th of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Packets that the queue has accepted.
    pub accepted: u32,
    /// Packets that it has refused. They are dropped.
    pub refused: u32,
}

impl Sent {
    /// Of the packets in `handed`, a queue has accepted the first `accepted`: DPDK's queues accept
    /// a prefix.
    #[inline]
    pub fn prefix(handed: u32, accepted: usize) -> Self {
        let mut refused = handed;
        if accepted == handed.count_ones() as usize {
            refused = 0;
        } else {
            (0..accepted).for_each(|_| refused &= refused.wrapping_sub(1));
        }
        Self { accepted: handed & !refused, refused }
    }
}

/// The positions in a set, the lowest first.
#[inline(always)]
pub(crate) fn positions(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        lowest
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_accept_a_prefix_of_what_they_are_handed() {
        let sent = |accepted, refused| Sent { accepted, refused };
        assert_eq!(Sent::prefix(0b1011_0100, 4), sent(0b1011_0100, 0));
        assert_eq!(Sent::prefix(0b1011_0100, 2), sent(0b0001_0100, 0b1010_0000));
        assert_eq!(Sent::prefix(u32::MAX, 0), sent(0, u32::MAX));
        assert_eq!(Sent::prefix(u32::MAX, 32), sent(u32::MAX, 0));
        assert_eq!(Sent::prefix(0, 0), sent(0, 0));
    }
}
