//! The eight bits that signed marks begin with: `eet hh ics`.
//!
//! The low three bits of the epoch's number, the last of which is the timestamp bit, the hierarchy,
//! and a bit each for what other systems put into packets: an INT stack, a claim, a sketchlet. No
//! system does yet, so the last three are 0, and a mark that has one is not valid.

use super::{EpochBits, Mark};
use crate::mark::Hierarchy;

const EPOCH_SHIFT: u32 = 5;
const HIERARCHY_SHIFT: u32 = 3;
const RESERVED: u8 = 0b111;

/// The fields that say a mark.
#[inline(always)]
pub(super) fn fields(mark: Mark) -> u8 {
    let epoch = mark.epoch.get().unwrap_or_default() << 1 | (mark.bit as u8 & 1);
    epoch << EPOCH_SHIFT | mark.hierarchy.bits() << HIERARCHY_SHIFT
}

/// The mark that these fields say.
#[inline(always)]
pub(super) fn mark(fields: u8) -> Option<Mark> {
    let epoch = epoch(fields);
    let mark = Mark {
        bit: usize::from(epoch & 1),
        hierarchy: Hierarchy::from_bits(fields >> HIERARCHY_SHIFT),
        epoch: EpochBits::of(epoch.into()),
    };
    (fields & RESERVED == 0).then_some(mark)
}

/// The epoch's low three bits in these fields.
#[inline(always)]
pub(super) fn epoch(fields: u8) -> u8 {
    fields >> EPOCH_SHIFT
}
