//! Which rows have their latencies counted by size, and the counts.
//!
//! Memory is for so many rows. As long as there is room, each row has some from its first packet
//! on. Where there is none left, a row that grows takes that of one with a quarter of its packets
//! at most, if a look at a few finds such a one.

use super::quarters::Quarters;

/// Packets from which on a row looks for room that another one has.
const GROWN: u32 = 8;

/// Others that it looks at.
const LOOKS: usize = 8;

/// How many times as many packets it has, to take their room.
const TIMES: u32 = 4;

/// The counts of so many rows.
#[derive(Clone, Debug)]
pub(super) struct Detail {
    /// By row the number of its counts, plus one; 0 where it has none.
    of_row: Box<[u16]>,
    /// The row that has them.
    taken: Box<[u32]>,
    /// Those that nobody has.
    free: Vec<u16>,
    /// Of each row those of its hops, and of the sink itself.
    counts: Box<[Quarters]>,
    width: usize,
    /// Which are looked at next.
    next: usize,
}

impl Detail {
    /// For none of the rows.
    pub(super) fn none() -> Self {
        Self::new(0, 0, 1)
    }

    /// For so many of `rows` rows, of `width` places each.
    pub(super) fn new(of: u16, rows: usize, width: usize) -> Self {
        let (places, rows) = if of == 0 { (0, 0) } else { (usize::from(of), rows) };
        Self {
            of_row: vec![0; rows].into_boxed_slice(),
            taken: vec![0; places].into_boxed_slice(),
            free: (0..of).rev().collect(),
            counts: vec![Quarters::EMPTY; places * width].into_boxed_slice(),
            width,
            next: 0,
        }
    }

    /// The counts of a row that now has so many packets, if it has any.
    #[inline(always)]
    pub(super) fn of_mut(
        &mut self,
        row: usize,
        packets: u32,
        packets_of: impl Fn(usize) -> u32,
    ) -> Option<&mut [Quarters]> {
        let at = match usize::from(*self.of_row.get(row)?).checked_sub(1) {
            Some(at) => at,
            None if packets.is_power_of_two() || !self.free.is_empty() => {
                self.give(row, packets, packets_of)?
            }
            None => return None,
        };
        self.counts.get_mut(at * self.width..(at + 1) * self.width)
    }

    #[inline(never)]
    fn give(
        &mut self,
        row: usize,
        packets: u32,
        packets_of: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        let looks = if packets < GROWN { 0 } else { LOOKS.min(self.taken.len()) };
        for _ in 0..looks {
            if !self.free.is_empty() {
                break;
            }
            let other = self.taken[self.next] as usize;
            self.next = (self.next + 1) % self.taken.len();
            if packets_of(other) <= packets / TIMES {
                self.release(other);
            }
        }
        let at = self.free.pop()?;
        (self.of_row[row], self.taken[usize::from(at)]) = (at + 1, row as u32);
        let at = usize::from(at);
        self.counts[at * self.width..(at + 1) * self.width].fill(Quarters::EMPTY);
        Some(at)
    }

    /// Takes a row's counts from it, if it has any.
    pub(super) fn release(&mut self, row: usize) {
        let at = self.of_row.get_mut(row).map_or(0, std::mem::take);
        self.free.extend(at.checked_sub(1));
    }

    /// The counts of a row; nothing where it has none.
    pub(super) fn of(&self, row: usize) -> &[Quarters] {
        let at = self.of_row.get(row).and_then(|&at| usize::from(at).checked_sub(1));
        at.and_then(|at| self.counts.get(at * self.width..(at + 1) * self.width)).unwrap_or(&[])
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let numbers = size_of_val(&*self.of_row) + size_of_val(&*self.taken);
        numbers + self.free.capacity() * size_of::<u16>() + size_of_val(&*self.counts)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.of_row.fill(0);
        self.free.clear();
        self.free.extend((0..self.taken.len() as u16).rev());
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of rows, one after the other; what each row has of its packets counted.
    fn play(of: u16, rows: usize, order: impl Iterator<Item = usize>) -> (Detail, Vec<u32>) {
        let (mut detail, mut packets) = (Detail::new(of, rows, 2), vec![0_u32; rows]);
        for row in order {
            packets[row] += 1;
            if let Some(counts) = detail.of_mut(row, packets[row], |row| packets[row]) {
                assert_eq!(counts.len(), 2);
                counts[0].add(100 * row as u32);
            }
        }
        (detail, packets)
    }

    fn counted(detail: &Detail, row: usize) -> u64 {
        detail.of(row).first().map_or(0, Quarters::count)
    }

    #[test]
    fn where_there_is_room_all_is_counted_from_the_first_packet_on() {
        let (mut detail, packets) = play(5, 5, (0..100).map(|at| at * at % 5));
        for (row, &packets) in packets.iter().enumerate() {
            assert_eq!(counted(&detail, row), packets.into());
        }
        detail.release(1);
        assert!(detail.of(1).is_empty() && !detail.of(0).is_empty());
        detail.clear();
        assert!((0..5).all(|row| detail.of(row).is_empty()));
        let (none, _) = play(0, 5, 0..5);
        assert_eq!((none.bytes(), none.of(0).len()), (0, 0));
    }

    #[test]
    fn rows_of_like_sizes_leave_each_other_what_they_have() {
        let (detail, packets) = play(16, 40, (0..40_000).map(|at| at % 40));
        for (row, &packets) in packets.iter().enumerate() {
            assert_eq!(counted(&detail, row), if row < 16 { packets.into() } else { 0 });
        }
    }

    #[test]
    fn where_there_is_not_the_largest_rows_have_their_latencies_counted() {
        // Small rows come first and take all room, then some of many packets among them.
        let small = 8..500;
        let large = (0..8_000).map(|at| if at % 2 == 0 { at / 2 % 8 } else { 8 + at % 492 });
        let (detail, packets) = play(16, 500, small.chain(large));
        assert_eq!((0..500).filter(|&row| !detail.of(row).is_empty()).count(), 16);
        for row in 0..8 {
            let counted = counted(&detail, row);
            assert!(counted * 10 > u64::from(packets[row]) * 9, "{counted} of {}", packets[row]);
        }
        for (row, &packets) in packets.iter().enumerate() {
            // Counts are of the row that has them, of nothing before it had them.
            assert!(counted(&detail, row) <= packets.into());
            let bins = detail.of(row).first().into_iter().flat_map(|of| of.bins());
            assert!(bins.filter(|&&bin| bin > 0).count() <= 1);
        }
    }
}
