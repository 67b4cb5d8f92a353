//! Traffic between the two hosts of a [`Pair`](crate::fabric::Pair), made by real applications: iperf3 over TCP and UDP,
//! HTTP,
//! and many short TCP connections of our own.

pub mod http;
mod iperf;
mod mix;
pub mod short;

pub use iperf::{Iperf, Protocol, Totals};
pub use mix::{Mix, Report};
pub(crate) use mix::{SHORT_PORT, serve, start};
