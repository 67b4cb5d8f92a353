//! What the packets of a burst say of their marks, side by side.

use calumma_sketch::BURST;

use super::{Mark, signed};
use crate::mark::Hierarchy;

/// What a carrier has read in a burst, by the packets' numbers.
///
/// Marks go from a carrier to the flows in as many bits as they have: an `Option<Mark>` for each
/// packet would go through memory, written in pieces and read as a whole, for which a CPU waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Seen {
    /// The mark that each packet says, valid or not, in the form of [`signed`]; 0 where there is
    /// none.
    fields: [u8; BURST],
    /// A bit for each packet: whether its mark is valid.
    valid: u32,
    /// A bit for each packet: whether it says one that is not valid.
    unproven: u32,
    /// Whether marks say the bits of the epoch's number above the timestamp bit: all do, or none.
    dated: bool,
}

/// A bit of each of eight bytes, the lowest.
const LOWEST: u64 = 0x0101_0101_0101_0101;

/// What moves these side by side into the uppermost byte, the first byte's lowest.
const SIDE_BY_SIDE: u64 = 0x0102_0408_1020_4080;

impl Seen {
    /// Notes what packet `number` says: its mark, or what it says without a valid one.
    #[inline(always)]
    pub(crate) fn note(&mut self, number: usize, mark: Option<Mark>, unproven: Option<Mark>) {
        let said = |mark: Mark| (signed::fields(mark), mark.epoch.get().is_some());
        if let Some((fields, dated)) = mark.or(unproven).map(said) {
            self.fields[number % BURST] = fields;
            self.dated |= dated;
            self.valid |= u32::from(mark.is_some()) << number;
            self.unproven |= u32::from(mark.is_none()) << number;
        }
    }

    /// The same of the fields of a signed mark.
    #[inline(always)]
    pub(super) fn note_signed(
        &mut self,
        number: usize,
        fields: Option<u8>,
        unproven: impl FnOnce() -> Option<Mark>,
    ) {
        match fields {
            Some(fields) => {
                self.fields[number % BURST] = fields & !signed::RESERVED;
                self.valid |= 1 << number;
                self.dated = true;
            }
            None => self.note(number, None, unproven()),
        }
    }

    /// A bit for each packet: whether its mark is valid.
    #[inline]
    pub(crate) fn valid(&self) -> u32 {
        self.valid
    }

    /// A bit for each packet: whether it says a mark, valid or not.
    #[inline]
    pub(crate) fn said(&self) -> u32 {
        self.valid | self.unproven
    }

    /// A bit for each packet: whether it says one that is dated.
    #[inline]
    pub(crate) fn dated(&self) -> u32 {
        if self.dated { self.said() } else { 0 }
    }

    /// A bit for each packet: the lower three of the number of the epoch that it says, the
    /// timestamp bit first.
    #[inline]
    pub(crate) fn epochs(&self) -> [u32; 3] {
        let mut columns = [0; 3];
        for (at, bytes) in self.fields.as_chunks::<8>().0.iter().enumerate() {
            let eight = u64::from_le_bytes(*bytes) >> signed::EPOCH_SHIFT;
            for (bit, column) in columns.iter_mut().enumerate() {
                let bits = (eight >> bit & LOWEST).wrapping_mul(SIDE_BY_SIDE) >> 56;
                *column |= (bits as u32) << (8 * at);
            }
        }
        columns
    }

    /// The hierarchy that each packet says.
    #[inline]
    pub(crate) fn hierarchies(&self) -> [Hierarchy; BURST] {
        self.fields.map(signed::hierarchy)
    }
}
