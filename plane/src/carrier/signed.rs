//! The eight bits that signed marks begin with: `eet hh ics`.
//!
//! The low three bits of the epoch's number, the last of which is the timestamp bit, the hierarchy,
//! and a bit each for what other systems put into packets: an INT stack, a claim, a sketchlet. The
//! claim is there in epochs in which packets have one ([`LcoreSystem::has_claims`]). Else these are
//! 0, and a mark that has one set is not valid.
//!
//! [`LcoreSystem::has_claims`]: crate::LcoreSystem::has_claims

use super::{EpochBits, Mark};
use crate::mark::Hierarchy;

pub(super) const EPOCH_SHIFT: u32 = 5;
const HIERARCHY_SHIFT: u32 = 3;
/// Those of other systems.
pub(super) const RESERVED: u8 = 0b111;

/// The bit of a claim.
pub(super) const CLAIM: u8 = 0b010;

/// The fields that say a mark.
#[inline(always)]
pub(super) fn fields(mark: Mark) -> u8 {
    let epoch = mark.epoch.get().unwrap_or_default() << 1 | (mark.bit as u8 & 1);
    epoch << EPOCH_SHIFT | mark.hierarchy.bits() << HIERARCHY_SHIFT
}

/// Whether fields say a mark, where packets may have claims in epochs with the timestamp bits
/// `claims`, bit 0 for 0 and bit 1 for 1.
#[inline(always)]
pub(super) fn is_valid(fields: u8, claims: u8) -> bool {
    let allowed = if claims >> (epoch(fields) & 1) & 1 == 1 { CLAIM } else { 0 };
    fields & RESERVED & !allowed == 0
}

/// The mark that valid fields say.
#[inline(always)]
pub(super) fn said(fields: u8) -> Mark {
    let epoch = epoch(fields);
    Mark {
        bit: usize::from(epoch & 1),
        hierarchy: hierarchy(fields),
        epoch: EpochBits::of(epoch.into()),
        way: None,
    }
}

/// The mark that these fields say where their signature does not fit: of an epoch that is over,
/// perhaps, in which packets may have had claims.
#[cold]
pub(super) fn unproven(fields: u8) -> Option<Mark> {
    is_valid(fields, 0b11).then(|| said(fields))
}

/// The epoch's low three bits in these fields.
#[inline(always)]
pub(super) fn epoch(fields: u8) -> u8 {
    fields >> EPOCH_SHIFT
}

/// The hierarchy in these fields.
#[inline(always)]
pub(super) fn hierarchy(fields: u8) -> Hierarchy {
    Hierarchy::from_bits(fields >> HIERARCHY_SHIFT)
}
