//! What CFS puts into the envelope. All numbers are little-endian.
//!
//! A [`Setup`] is what all switches of a network have in common. There is nothing to plan. The body
//! of a side is a [`Window`], except that of the ingress side, which is empty: packets that enter
//! the network are recorded in the same table as those that leave it, by the bit that they are
//! stamped with.

mod entries;
mod residual;
mod setup;
mod window;

use calumma_wire::{Offer, SystemId};

pub use self::entries::Entry;
pub use self::residual::{Residual, Residuals, Uncounted};
pub use self::setup::{Graded, Hop, Setup, salt};
pub use self::window::{Totals, Window};

/// What a switch that runs it offers.
pub const OFFER: Offer = Offer { system: SystemId::CFS, lowest: 1, highest: 1 };
