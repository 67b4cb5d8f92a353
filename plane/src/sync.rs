//! The channels by which lcores and the threads beside them hand things to each other.
//!
//! In a switch they are `crossbeam-channel`'s own. Built with `--cfg shuttle` they are the same
//! channels, and before each operation on one a test's scheduler may let another thread go on
//! (`scheduled::point`). All threads of such a test run on one of the system's, so that each order
//! of their operations can be drawn, and shown again.

#[cfg(not(shuttle))]
pub use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};

#[cfg(shuttle)]
pub mod scheduled;

#[cfg(shuttle)]
pub use self::scheduled::{Receiver, Sender, TrySendError, bounded, unbounded};
