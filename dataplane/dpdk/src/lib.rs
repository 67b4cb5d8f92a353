//! Safe Rust over DPDK: as much of it as a packet-processing program needs, and no more.
//!
//! [`Eal`] stands for the initialised library; everything else keeps it alive. A [`Port`] gives its
//! queues away, each to exactly one owner; an [`RxQueue`] fills a [`Burst`] with [`Mbuf`]s, a
//! [`TxQueue`] takes them out again. An mbuf is owned in one place, moves, and is freed when it is
//! dropped; it can't be cloned.
//!
//! What the `unsafe` in here relies on: the EAL outlives ports and pools (they hold it), pools
//! outlive ports (these hold them) and mbufs (a pool with mbufs at large is leaked, never freed),
//! a queue has one owner at a time (it is neither `Clone` nor `Sync`), and only the thread that
//! initialised the EAL gives work to lcores and waits for them.

#![allow(unsafe_code)]

mod burst;
mod eal;
mod error;
mod lcore;
mod mbuf;
mod mempool;
mod port;
mod queue;

pub use burst::{BURST, Burst};
pub use eal::{Eal, tsc, tsc_hz, version};
pub use error::{Error, Result};
pub use lcore::LcoreHandle;
pub use mbuf::Mbuf;
pub use mempool::{Mempool, MempoolConfig};
pub use port::{Link, Port, PortConfig, PortInfo, PortStats};
pub use queue::{RxQueue, TxQueue};
