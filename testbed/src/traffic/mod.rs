//! Traffic between hosts, made by real applications: iperf3 over TCP and UDP, HTTP, and many short
//! TCP connections.

pub mod http;
mod iperf;
mod mix;
pub mod short;

pub use iperf::{Iperf, Protocol, Totals};
pub use mix::{Mix, Report};
pub(crate) use mix::{serve, start};
