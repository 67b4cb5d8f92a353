//! The control plane of a Tofino switch: what its P4 program is built with, what its tables hold,
//! and the daemon that keeps epochs on it and speaks with the controller.
//!
//! The daemon runs any measurement system by a description ([`system`]) of its program; [`SYSTEMS`]
//! are those of the product: [`chamelemon`] on edges, [`sketchint`] and [`cfs`] on switches between
//! them. A switch runs one at a time: the one whose program is loaded.
//!
//! [`daemon::run`] is the daemon. Three threads share its work: the daemon's own talks with the
//! controller, the *pilot* flips and closes on time, and the *gatherer* takes finished groups out
//! of the switch ([`collector`], by the packets of [`collection`]), clears them, and fills tables
//! ahead of their epoch. All of them reach the switch through its [`driver`].

pub mod cfs;
pub mod chamelemon;
pub mod collection;
pub mod collector;
pub mod command;
pub mod config;
pub mod counters;
pub mod daemon;
pub mod driver;
pub mod fits;
pub mod forwarding;
mod gatherer;
pub mod hashes;
pub mod marks;
mod measuring;
mod metrics;
pub mod notices;
mod pilot;
mod pipes;
mod ports;
pub mod routes;
pub mod sketchint;
pub mod system;
pub mod tables;

/// The systems of the product.
pub static SYSTEMS: [&dyn system::System; 3] =
    [&chamelemon::ChameleMon, &sketchint::SketchInt, &cfs::Cfs];
