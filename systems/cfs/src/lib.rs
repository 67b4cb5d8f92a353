//! Cooperative Flow Selection (CFS): exact counts of as many flows as the tables of all switches
//! hold together, each chosen by the switches themselves.
//!
//! [`plane`] is what a switch does, [`frames`] what goes over the wire. What the controller makes
//! of it is `calumma-cfs-analysis`.

pub mod frames;
mod lives;
pub mod plane;
mod sums;
mod turns;

pub use lives::Lives;
pub use plane::Cfs;
pub use sums::Sums;
pub use turns::Turns;
