//! Networks to try edge switches on, made of Linux network namespaces.
//!
//! `Wiring` builds any topology: hosts, the places of edge switches, and behind them namespaces
//! that route. `faults` has these drop packets at random, counting each drop by its 5-tuple:
//! switches of which nothing is ours, and a list of losses to compare with. [`Pair`] is the least
//! of these networks.
//!
//! Everything is made with the `ip`, `nft`, `ethtool` and `sysctl` commands and taken away again
//! when its value is dropped, also after an error and on Ctrl-C ([`interrupt`]). What a killed run
//! left behind is removed by its guard ([`guard`]), and by the next run ([`Run`]) at the latest.
//! Needs root and Linux.

mod command;
pub(crate) mod drops;
pub(crate) mod faults;
pub(crate) mod frames;
pub mod guard;
pub mod interrupt;
pub(crate) mod link;
pub(crate) mod loss;
mod namespace;
mod pair;
mod process;
mod run;
mod testpmd;
mod tunnel;
pub(crate) mod wires;
pub(crate) mod wiring;

pub use drops::{Drops, Hop, Passage};
pub use loss::FlowLoss;
pub use namespace::Namespace;
pub use pair::Pair;
pub use process::{Process, wait_until};
pub use run::Run;
pub use testpmd::Testpmd;
pub use tunnel::Tunnel;
