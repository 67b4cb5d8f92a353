//! The switch's pools of mbufs: which thread takes from which, and how large they are.
//!
//! A pool keeps free mbufs in a ring. Who takes from the ring or puts into it waits at the end for
//! those that began the same before. Lcores keep their CPUs, but the slow path's thread may lose
//! its own in the middle of that, and an lcore would wait until the kernel lets it run again. So
//! there are three pools, and that thread does nothing at any of them that an lcore does at the
//! same:
//!
//! | pool | what for | taken by | given back by |
//! |---|---|---|---|
//! | `packets` | what ports receive, probes | lcores | lcores |
//! | `slow path` | what the slow path makes | its thread | lcores |
//! | `advice` | what errors about the room for an INT stack quote | lcores | lcores |
//!
//! Those that take never wait for those that put in, nor the other way round. What lcores hand over
//! comes back to an lcore to be freed ([`Return::Free`](crate::forward::exchange::Return)). Once
//! lcores have ended, any thread may free what is left.
//!
//! DPDK has rings that make nobody wait at the end (`ring_mt_rts`), but only as long as an eighth
//! of the ring is under way, and they cost an lcore more whenever its cache runs empty or full.
//! What the slow path holds is bounded ([`most_parked`]), and the pools are large enough for all of
//! it at once.

use dpdk::{Eal, Mempool, MempoolConfig};

use crate::config::Config;
use crate::forward::advice::QUOTED;
use crate::forward::config::Mode;
use crate::forward::thread::{most_made, most_parked};

/// Mbufs beyond those that are reckoned: bursts, a device's own.
const SPARE: u32 = 4096;

/// Beginnings of packets that an lcore has copied and that are not free again, at most: it copies
/// 200 a second. Where the slow path takes longer, other packets will do.
const ADVICE_OF_LCORE: u32 = 32;

/// Mbufs to receive into that a switch of so many lcores needs: for all that may lie in descriptors
/// and with the slow path at once and in lcores' caches, and some.
pub fn to_receive(config: &Config, lcores: usize) -> u32 {
    let parked = match config.forwarding.mode {
        Mode::Pairs => 0,
        Mode::Routed => most_parked(config.ports.len(), lcores) as u32,
    };
    let descriptors: u32 = config
        .ports
        .iter()
        .map(|port| u32::from(port.rx_descriptors) + u32::from(port.tx_descriptors))
        .sum();
    (descriptors + Mempool::MOST_CACHED) * lcores as u32 + parked + SPARE
}

/// Mbufs for what the slow path makes: for all that may be with it, with the one lcore that takes
/// it, and in descriptors of that lcore's queues, where some drivers leave what they have sent
/// until they need the room.
pub fn to_make(config: &Config) -> u32 {
    let descriptors: u32 = config.ports.iter().map(|port| u32::from(port.tx_descriptors)).sum();
    descriptors + most_made() as u32 + Mempool::MOST_CACHED
}

/// The pool for advice in a switch of so many lcores. They keep none at hand: it is small, and
/// nobody needs many.
///
/// # Errors
/// When there is not as much memory, or a pool of this name.
pub fn advice(eal: &Eal, name: &str, lcores: usize) -> dpdk::Result<Mempool> {
    let mbufs = ADVICE_OF_LCORE * lcores as u32;
    let config = MempoolConfig { mbufs, cache: 0, data_room: QUOTED as u16, socket: None };
    Mempool::with_config(eal, name, config)
}
