//! Which flows without an entry entered at an edge, and which left there: what another edge has to
//! know before it calls a count of its own all of a flow.
//!
//! ```text
//! filters of flows that entered, and of those that left: see `filters`, each of half of the bits
//! ```

use calumma_sketch::Hashes;
use calumma_sketch::table::Refused;
use calumma_wire::DecodeError;
use calumma_wire::body::Body;

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
}

impl Ends {
    /// Whether packets of a flow that no entry has may have entered or left
    /// ([`Entry::ENTERED`], [`Entry::LEFT`]).
    pub fn may_have(&self, side: u8, hashes: &Hashes) -> bool {
        let filters = if side == Entry::ENTERED { &self.entered } else { &self.left };
        filters.iter().any(|filter| filter.contains(hashes))
    }
}

/// Bits of the filters of one side.
pub(crate) fn bits(filter_bits: u32) -> u32 {
    filter_bits / 2
}

pub(super) fn put(out: &mut Vec<u8>, ends: &Ends) {
    filters::put(out, &ends.entered);
    filters::put(out, &ends.left);
}

pub(super) fn read(body: &mut Body<'_>, setup: &Setup) -> Result<Ends, DecodeError> {
    let bits = bits(setup.filter_bits);
    Ok(Ends { entered: filters::read(body, bits)?, left: filters::read(body, bits)? })
}
