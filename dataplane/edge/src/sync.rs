//! The tables that are published to lcores, and the clocks that lcores read.
//!
//! In a switch the tables are `arc-swap`'s and the clocks the machine's. Built with `--cfg shuttle`
//! the tables are the same, behind points at which a test's scheduler may let another thread go on,
//! as [`calumma_plane::sync`] says of channels; and the time is what the test says.

#[cfg(shuttle)]
pub mod scheduled;

#[cfg(shuttle)]
pub use self::scheduled::{Published, Reader, sleep, steady_ns, tsc, tsc_hz, unix_ns};

#[cfg(not(shuttle))]
pub use self::real::{Published, Reader, sleep, steady_ns, tsc, tsc_hz, unix_ns};

#[cfg(not(shuttle))]
mod real {
    use std::sync::Arc;
    pub use std::thread::sleep;

    pub use calumma_switch_host::{steady_ns, unix_ns};
    pub use dpdk::{tsc, tsc_hz};

    /// A value in whose place others are put, while threads read it.
    pub type Published<T> = arc_swap::ArcSwap<T>;

    /// What one thread reads it by.
    pub type Reader<T> = arc_swap::Cache<Arc<Published<T>>, Arc<T>>;
}
