//! Networks to try edge switches on, made of Linux network namespaces.
//!
//! [`Pair`] is two hosts, the places of two edge switches, and between them a namespace that routes
//! and drops packets at random, counting each drop by its 5-tuple: a core switch of which nothing
//! is ours, and a list of losses to compare with.
//!
//! Everything is made with the `ip`, `nft`, `ethtool` and `sysctl` commands and taken away again
//! when its value is dropped, also after an error and on Ctrl-C ([`interrupt`]). What a killed run
//! left behind is removed by its guard ([`guard`]), and by the next run ([`Run`]) at the latest.
//! Needs root and Linux.

mod command;
pub(crate) mod drops;
pub mod guard;
pub mod interrupt;
pub(crate) mod link;
pub(crate) mod loss;
mod namespace;
mod pair;
mod process;
mod run;
mod testpmd;

pub use drops::{Drops, Hop, Passage};
pub use loss::FlowLoss;
pub use namespace::Namespace;
pub use pair::{Edge, H1_ADDRESS, H2_ADDRESS, H2_ADDRESS6, Pair, SWITCHES_ADDRESS};
pub use process::{Process, wait_until};
pub use run::Run;
pub use testpmd::Testpmd;
