//! Traffic between hosts, made by real applications: iperf3 over TCP and UDP, HTTP, many short
//! TCP connections, and datagrams that look like INT.

pub mod forged;
pub mod http;
mod iperf;
mod mix;
pub mod short;

pub use iperf::{Iperf, Protocol, Totals};
pub use mix::{Mix, Report};
pub(crate) use mix::{serve, start};
