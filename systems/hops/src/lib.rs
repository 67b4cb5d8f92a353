//! An example of a measurement system: every flow's packets, counted at every switch of their way.
//!
//! The smallest system that uses all of what a system can be: docs/adding-a-system.md walks through
//! it. It is in no product's list, since a table of flows is either too small or too large; tests
//! run it beside the others.
//!
//! [`plane`] is what a switch does, [`frames`] what it sends.

pub mod frames;
pub mod plane;

pub use plane::Hops;
