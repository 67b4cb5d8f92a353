//! What an entry counts of its flow.

use calumma_plane::parse::detail::IpFields;

use crate::frames::Entry;

/// Packets of one flow. Empty before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) packets: u64,
    /// As [`Entry::bytes`].
    pub(super) bytes: u64,
    /// As [`Entry::differences`].
    pub(super) differences: u64,
    /// As [`Entry::looped`].
    pub(super) looped: u64,
    pub(super) first_us: u32,
    pub(super) last_us: u32,
    /// TTL of the first packet.
    pub(super) ttl: u8,
    /// As [`Entry::sides`], and [`LOCAL`](Self::LOCAL).
    pub(super) sides: u8,
}

impl Counted {
    /// Beside the sides: packets went to a host of the same switch.
    pub(super) const LOCAL: u8 = 1 << 7;

    pub(super) fn is_local(&self) -> bool {
        self.sides & Self::LOCAL != 0
    }

    /// As [`Entry::sides`].
    pub(super) fn sides(&self) -> u8 {
        self.sides & !Self::LOCAL
    }

    /// Adds a packet that came `us` after the window began.
    #[inline(always)]
    pub(super) fn add(&mut self, fields: IpFields, us: u32, side: u8) {
        if self.packets == 0 {
            (self.ttl, self.first_us, self.last_us) = (fields.ttl, us, us);
        }
        self.packets += 1;
        self.bytes += u64::from(fields.len);
        self.sides |= side;
        self.last_us = self.last_us.max(us);
        if fields.ttl != self.ttl {
            self.differences |= Entry::difference(self.ttl, fields.ttl);
            self.looped += 1;
        }
    }

    /// Adds what another table counted of the same flow, from no earlier packet on. Where the first
    /// TTLs differ, packets of the other's that came with any but its first TTL may have had this
    /// one's: they don't count as looped.
    pub(super) fn join(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.sides |= other.sides;
        self.last_us = self.last_us.max(other.last_us);
        if self.ttl == other.ttl {
            self.differences |= other.differences;
            self.looped += other.looped;
        } else {
            self.differences |= Entry::difference(self.ttl, other.ttl);
            self.looped += other.packets - other.looped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(packets: &[(u8, u32)]) -> Counted {
        let mut counted = Counted::default();
        for &(ttl, us) in packets {
            counted.add(IpFields { ttl, len: 100, ..IpFields::default() }, us, Entry::PASSED);
        }
        counted
    }

    #[test]
    fn packets_with_another_ttl_than_the_first_are_looped() {
        let it = counted(&[(60, 5), (58, 6), (60, 9), (56, 8), (61, 9), (58, 9)]);
        assert_eq!((it.packets, it.bytes, it.looped, it.ttl), (6, 600, 4, 60));
        assert_eq!(it.differences, 1 << 2 | 1 << 4 | 1);
        assert_eq!((it.first_us, it.last_us, it.sides), (5, 9, Entry::PASSED));
    }

    #[test]
    fn two_tables_counts_of_a_flow_add_up() {
        let (mut one, other) = (counted(&[(60, 5), (58, 6)]), counted(&[(60, 7), (57, 9)]));
        one.join(&other);
        assert_eq!(one, counted(&[(60, 5), (58, 6), (60, 7), (57, 9)]));
        // Of the other's packets, that with TTL 60 may be any that was not its first.
        let mut one = counted(&[(60, 5), (58, 6)]);
        one.join(&counted(&[(58, 7), (60, 8), (58, 9)]));
        assert_eq!((one.packets, one.looped, one.differences), (5, 3, 1 << 2));
    }
}
