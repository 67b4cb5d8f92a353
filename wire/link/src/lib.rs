//! A switch's side of its conversation with the controller, the same for every kind of switch: the
//! connection and its upkeep, the answers, and the frames about epochs that are held until the
//! controller has reported them.
//!
//! A [`Conversation`] is driven in steps by a thread of the switch and never blocks it; what there
//! is to do it tells a [`Measurer`]. How a switch measures is its own business, and so are threads.
//!
//! [`Signals`], [`Supervisor`] and [`figures`] are the same for every kind of switch as well: its host's
//! side.

mod conversation;
pub mod figures;
mod link;
mod queue;
mod service;

pub use conversation::{
    Conversation, EgressSide, Identity, IngressSide, Measurer, SessionPlan, Told, UNDELIVERED,
};
pub use link::MOST_HELD;
pub use service::{Signals, Supervisor};

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since the Unix epoch by the system's clock.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
