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
//!
//! # EAL arguments that matter (DPDK 22.11)
//!
//! - Without hugepages: `--no-huge -m 1024`. Beside other DPDK programs add `--no-shconf`, or a
//!   `--file-prefix` of its own; `--in-memory` can't go with `--no-huge`.
//! - With hugepages reserved, but no hugetlbfs mounted: `--in-memory`.
//! - `net_af_packet` works either way; its `framesz` must hold a frame and its header (2048 for
//!   1500-byte packets).
//! - `net_memif` works either way, but `zero-copy=yes` needs hugepages and
//!   `--single-file-segments`. A client starts only while its server listens. Stop polling a memif
//!   port before its peer leaves: the driver unmaps the rings from a thread of its own, and a poll
//!   at that moment can crash.
//!
//! # With the address sanitizer
//!
//! It watches Rust and the shim, not what lies in DPDK's own memory. From the workspace's root:
//!
//! ```text
//! CC=clang CFLAGS=-fsanitize=address RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 \
//!     cargo +nightly test -p dpdk --tests --target x86_64-unknown-linux-gnu --target-dir target/asan
//! ```

#![allow(unsafe_code)]

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(test)]
extern crate self as dpdk;

mod burst;
mod cache;
mod eal;
mod error;
mod fib;
mod hash;
mod lcore;
mod mbuf;
mod member;
mod memory;
mod mempool;
mod port;
mod queue;
mod telemetry;

pub use burst::{BURST, Burst, Drain};
pub use cache::prefetch;
pub use eal::{Eal, tsc, tsc_hz, version};
pub use error::{Error, Result};
pub use fib::{Fib4, Fib6, NextHop};
pub use hash::HashTable;
pub use lcore::LcoreHandle;
pub use mbuf::Mbuf;
pub use member::{MemberSketch, MemberSketchConfig};
pub use memory::Words;
pub use mempool::{Mempool, MempoolConfig};
pub use port::{Link, Port, PortConfig, PortInfo, PortStats};
pub use queue::{RxQueue, TxQueue};
pub use telemetry::{Answer, Value};
