//! What CFS puts into the envelope. All numbers are little-endian.
//!
//! A [`Setup`] is what all switches of a network have in common. A [`Plan`] has what may change
//! from window to window: [`Pins`], the table's share of the memory, and [`Overrides`] of the
//! setup. The body of a side is a [`Window`], except that of the ingress side, which is empty:
//! packets that enter the network are recorded in the same table as those that leave it, by the bit
//! that they are stamped with. The body of a notice is a [`Notice`].

mod ends;
mod entries;
mod filters;
mod flow_radar;
mod graded;
mod hop;
mod notice;
mod overrides;
mod pins;
mod residual;
mod setup;
mod suspects;
mod window;

use calumma_sketch::residual::Kind;
use calumma_wire::{Offer, SystemId};

pub(crate) use self::ends::bits as bits_of_ends;
pub use self::ends::{Ends, Unentered};
pub use self::entries::Entry;
pub use self::graded::Graded;
pub(crate) use self::graded::even;
pub use self::hop::{Hop, PortHops};
pub use self::notice::Notice;
pub use self::overrides::Overrides;
pub use self::pins::{Holding, Pins, Plan};
pub use self::residual::{Residual, Residuals, Uncounted};
pub use self::setup::{Setup, Sizes, salt};
pub use self::suspects::{Suspect, Suspects};
pub use self::window::{Totals, Window};

/// The first version in which flows without an entry are watched for loops.
pub const GUARD_SINCE: u8 = 2;

/// The first version in which loops are reported before a window is over.
pub const NOTICE_SINCE: u8 = 3;

/// The first version in which flows can be pinned.
pub const PINS_SINCE: u8 = 4;

/// The first version in which a flow's word, and its place among HyperLogLog's registers, follow
/// from its wide key alone. In those before they followed from the key that the switch measured by.
pub const WORDS_SINCE: u8 = 5;

/// The first version in which plans may divide the memory of table and residual anew.
pub const ALPHA_SINCE: u8 = 6;

/// The first version in which edges may say where flows without an entry entered and left.
pub const ENDS_SINCE: u8 = 7;

/// The first version in which a residual may be a FlowRadar.
pub const FLOW_RADAR_SINCE: u8 = 8;

/// The first version in which ports may say which hop a switch is at.
pub const PORTS_SINCE: u8 = 9;

/// The first version in which edges sum up what entered without an entry.
pub const SUMS_SINCE: u8 = 10;

/// The first version in which marks may say which hop a switch is at.
pub const MARKS_SINCE: u8 = 11;

/// The first version in which plans may override what the setup says.
pub const OVERRIDES_SINCE: u8 = 12;

/// What a software switch that runs it offers. Its next version is 15.
pub const OFFER: Offer = Offer { system: SystemId::CFS, lowest: 1, highest: OVERRIDES_SINCE };

/// The version of switches whose tables have rows, which offer it beside their first one: flows can
/// be pinned, and words are those of wide keys, but there is nothing else of versions 2 to 12.
pub const ROWS: u8 = 13;

/// The version of such switches that watch flows for loops, and report them before a window is
/// over.
pub const ROWS_GUARD: u8 = 14;

const _: () = assert!(OFFER.highest < ROWS, "no software switch has them");

/// What a controller reads.
pub const READ: Offer = Offer { highest: ROWS_GUARD, ..OFFER };

/// Whether a version has what is there since another one.
pub const fn knows(version: u8, since: u8) -> bool {
    match version {
        ROWS => matches!(since, PINS_SINCE | WORDS_SINCE),
        ROWS_GUARD => matches!(since, GUARD_SINCE | NOTICE_SINCE | PINS_SINCE | WORDS_SINCE),
        _ => version >= since,
    }
}

impl Setup {
    /// What of it a switch measures by that knows this version.
    #[must_use]
    pub fn known_to(self, version: u8) -> Self {
        let knows = |since| knows(version, since);
        let has_residual = self.kind == Kind::Fermat || knows(FLOW_RADAR_SINCE);
        let ends = self.ends && knows(ENDS_SINCE);
        Self {
            guard: self.guard && knows(GUARD_SINCE),
            alpha_moves: self.alpha_moves && knows(ALPHA_SINCE),
            ends,
            sums: ends && knows(SUMS_SINCE),
            residual: self.residual.filter(|_| has_residual),
            kind: if has_residual { self.kind } else { Kind::Fermat },
            overrides: self.overrides && knows(OVERRIDES_SINCE),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_with_rows_know_pins_and_then_loops_and_nothing_else_that_is_new() {
        let all = [GUARD_SINCE, NOTICE_SINCE, PINS_SINCE, WORDS_SINCE, ALPHA_SINCE, ENDS_SINCE];
        let later = [FLOW_RADAR_SINCE, PORTS_SINCE, SUMS_SINCE, MARKS_SINCE, OVERRIDES_SINCE];
        let known = |version| {
            let all = all.into_iter().chain(later);
            all.filter(|&since| knows(version, since)).collect::<Vec<_>>()
        };
        assert_eq!(known(ROWS), [PINS_SINCE, WORDS_SINCE]);
        assert_eq!(known(ROWS_GUARD), [GUARD_SINCE, NOTICE_SINCE, PINS_SINCE, WORDS_SINCE]);
        assert!(known(1).is_empty());
        assert_eq!(known(PINS_SINCE), [GUARD_SINCE, NOTICE_SINCE, PINS_SINCE]);
        assert_eq!(known(OFFER.highest).len(), all.len() + later.len());
        let setup =
            Setup { guard: true, ends: true, sums: true, overrides: true, ..Setup::default() };
        assert_eq!(setup.known_to(ROWS), Setup::default());
        let guarded = Setup { guard: true, ..Setup::default() };
        assert_eq!(setup.known_to(ROWS_GUARD), guarded);
        assert_eq!(setup.known_to(OFFER.highest), setup);
    }
}
