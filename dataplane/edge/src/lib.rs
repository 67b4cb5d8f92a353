//! The software edge switch.
//!
//! A packet's path: [`lcore`] polls it in a burst from a port and hands the burst to
//! [`Worker::ingress`](worker::Worker::ingress) or [`Worker::egress`](worker::Worker::egress) by
//! the port's role; the worker [`parse`]s it, records it in the epoch's sketches ([`measure`]),
//! writes or takes out the mark it carries through the network ([`carrier`]), and the lcore sends
//! it to the port's peer.
//!
//! Everything up to the lcore's loop is free of DPDK and of clocks: the replay of a capture runs
//! the very same worker in virtual time. [`control`] is the thread beside the lcores that talks to
//! the controller and hands empty groups out and full ones on.

pub mod command;
pub mod config;
pub mod control;
pub mod forward;
pub mod lcore;
pub mod live;
pub mod metrics;
pub mod pools;
pub mod process;
pub mod profile;
pub mod reports;
pub mod status;
pub mod switch;
pub mod sync;
pub mod telemetry;
pub mod top;

pub use calumma_plane::{carrier, counters, measure, packet, parse, worker};
