//! What SketchINT puts into the envelope. All numbers are little-endian.
//!
//! A [`Setup`] is what all switches of a network have in common, a [`Plan`] how far INT is switched
//! on in it. The body of an edge's egress side is a [`Window`], that of its ingress side an
//! [`Entered`], that of a transit's side a [`Passed`] or, of a switch that knows nothing of it,
//! empty; all other sides are empty.

mod columns;
mod entered;
mod layout;
mod links;
mod means;
mod nodes;
mod passed;
mod paths;
mod plan;
mod quarters;
mod setup;
mod watch;
mod window;

use calumma_wire::{Offer, SystemId};

pub use self::entered::Entered;
pub use self::layout::Layout;
pub use self::passed::Passed;
pub use self::paths::PathSeen;
pub use self::plan::{Plan, Step};
pub use self::setup::{Holding, Setup};
pub use self::watch::{WatchList, WatchRule};
pub use self::window::{NO_TIME, Window};

/// The first version in which sinks without paths may have stacks of single packets of large flows.
pub const STACKS_SINCE: u8 = 6;

/// The first version in which sinks may count latencies of flows by size.
pub const QUANTILES_SINCE: u8 = 6;

/// The first version in which there may be any number of sets of rows, and inflated latencies by an
/// estimate of the mean.
pub const ESTIMATES_SINCE: u8 = 6;

/// The first version in which switches say by what means they know what they put into stacks.
pub const MEANS_SINCE: u8 = 7;

/// The first version in which a UDP port may mark packets with stacks. A switch of one before finds
/// bytes in such a setup that it does not know, and declines it.
pub const PORT_SINCE: u8 = 8;

/// What a switch that runs it offers.
pub const OFFER: Offer = Offer { system: SystemId::SKETCHINT, lowest: 5, highest: PORT_SINCE };
