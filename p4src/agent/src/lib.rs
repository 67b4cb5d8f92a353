//! The control plane of a hardware edge switch: what its P4 program is built with, what its tables
//! hold, and the daemon that keeps epochs on it and speaks with the controller.
//!
//! The numbers come from the functions that the software edge uses, so that both kinds of switch
//! agree bit for bit ([`hashes`] and [`program`] write the constants that the P4 program includes, [`entries`] the
//! table entries of a deployment and of an epoch).
//!
//! [`daemon::run`] is the daemon. Three threads share its work: the daemon's own talks with the
//! controller, the *pilot* flips and closes on time, and the *gatherer* takes finished groups out of
//! the switch ([`collector`], by the packets of [`collection`]), clears them, and fills tables ahead
//! of their epoch. All of them reach the switch through its [`driver`].

pub mod collection;
pub mod collector;
pub mod config;
pub mod daemon;
pub mod driver;
pub mod entries;
pub mod figures;
pub mod fits;
pub mod forwarding;
mod gatherer;
pub mod hashes;
mod measuring;
mod metrics;
mod pilot;
mod ports;
pub mod program;
pub mod routes;
pub mod sketches;
