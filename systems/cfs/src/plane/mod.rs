//! What a switch does for CFS: a bounded table of exact counts for each window, filled by every
//! packet that the switch receives, once.
//!
//! The halves on lcores (`lcore`) record into a window's `record` (`recording`); packets of flows
//! that were refused lately go by its `cache`. That on the control thread (`switch`) puts the
//! lcores' tables together (`union`) and makes a frame of them. Not here: how a table chooses
//! (`calumma-sketch`), and what the controller makes of the frames.

mod cache;
mod counted;
mod ends;
mod guard;
mod lcore;
mod notices;
mod record;
mod recording;
mod switch;
mod union;

pub use self::switch::Cfs;
