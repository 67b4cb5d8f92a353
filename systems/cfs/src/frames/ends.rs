//! Which flows without an entry entered at an edge, and which left there: what another edge has to
//! know before it calls a count of its own all of a flow.
//!
//! ```text
//! filters of flows that entered, and of those that left: see `filters`, each of half of the bits
//! from version 10 on: packets without an entry (8), and the weighted sum of those that entered (8)
//! ```

use calumma_sketch::Hashes;
use calumma_sketch::table::Refused;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u64};

use super::entries::Entry;
use super::filters;
use super::setup::Setup;

/// Flows of an edge with packets that no entry has, one filter of each lcore. What is in a filter
/// is found; of other flows it is wrong about few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Those of which such packets came from hosts.
    pub entered: Vec<Refused>,
    /// Those of which such packets went to hosts, be it of the same edge.
    pub left: Vec<Refused>,
    /// What they add up to, where that is wanted.
    pub sums: Option<Unentered>,
}

/// What packets without an entry add up to at an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unentered {
    /// All of them.
    pub packets: u64,
    /// Those that entered, each times a 64-bit word of its flow's hashes, modulo 2^64. Counts of
    /// flows add up to the same only if they are of these flows and right, but for chance.
    pub weighted: u64,
}

impl Unentered {
    /// Adds packets of a flow with these hashes that came on these sides.
    #[inline(always)]
    pub fn add(&mut self, hashes: &Hashes, sides: u8, packets: u64) {
        self.packets += packets;
        if sides & Entry::ENTERED != 0 {
            self.weigh(hashes, packets);
        }
    }

    /// Adds packets of a flow with these hashes to the weighted sum.
    #[inline(always)]
    pub fn weigh(&mut self, hashes: &Hashes, packets: u64) {
        let word = u64::from(hashes.array_word(1)) << 32 | u64::from(hashes.array_word(2));
        self.weighted = self.weighted.wrapping_add(word.wrapping_mul(packets));
    }
}

impl Ends {
    /// Whether packets of a flow that no entry has may have entered or left
    /// ([`Entry::ENTERED`], [`Entry::LEFT`]).
    pub fn may_have(&self, side: u8, hashes: &Hashes) -> bool {
        self.filters(side).iter().any(|filter| filter.contains(hashes))
    }

    /// The filters that say so, of each lcore.
    pub fn filters(&self, side: u8) -> &[Refused] {
        if side == Entry::ENTERED { &self.entered } else { &self.left }
    }
}

/// Bits of the filters of one side.
pub(crate) fn bits(filter_bits: u32) -> u32 {
    filter_bits / 2
}

pub(super) fn put(out: &mut Vec<u8>, ends: &Ends) {
    filters::put(out, &ends.entered);
    filters::put(out, &ends.left);
    if let Some(Unentered { packets, weighted }) = ends.sums {
        put_u64(out, packets);
        put_u64(out, weighted);
    }
}

pub(super) fn read(body: &mut Body<'_>, setup: &Setup) -> Result<Ends, DecodeError> {
    let bits = bits(setup.filter_bits);
    let (entered, left) = (filters::read(body, bits)?, filters::read(body, bits)?);
    let sums = if setup.sums {
        let packets = body.u64("packets without an entry")?;
        Some(Unentered { packets, weighted: body.u64("weighted sum")? })
    } else {
        None
    };
    Ok(Ends { entered, left, sums })
}
