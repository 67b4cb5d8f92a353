//! Tables and clocks of a test whose scheduler puts what threads do in order.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};
use calumma_plane::sync::scheduled::point;

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
}

/// Sets the time that all clocks show, in nanoseconds since the Unix epoch.
pub fn set_now_ns(now_ns: u64) {
    NOW_NS.set(now_ns);
}

/// The time that was set last.
pub fn unix_ns() -> u64 {
    NOW_NS.get()
}

/// The same.
pub fn steady_ns() -> u64 {
    NOW_NS.get()
}

/// A counter of one tick a nanosecond.
pub fn tsc() -> u64 {
    point();
    NOW_NS.get()
}

/// Its ticks in a second.
pub fn tsc_hz() -> u64 {
    1_000_000_000
}

/// Lets another thread go on.
pub fn sleep(_: Duration) {
    point();
}

/// As `arc_swap::ArcSwap`.
pub struct Published<T>(Arc<ArcSwap<T>>);

impl<T> Published<T> {
    /// As `arc_swap::ArcSwap::from_pointee`.
    pub fn from_pointee(value: T) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(value)))
    }

    /// As `arc_swap::ArcSwap::load_full`.
    pub fn load_full(&self) -> Arc<T> {
        point();
        self.0.load_full()
    }

    /// As `arc_swap::ArcSwap::swap`.
    pub fn swap(&self, value: Arc<T>) -> Arc<T> {
        point();
        self.0.swap(value)
    }
}

impl<T> fmt::Debug for Published<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Published")
    }
}

/// As `arc_swap::Cache`.
pub struct Reader<T>(Cache<Arc<ArcSwap<T>>, Arc<T>>);

impl<T> Reader<T> {
    /// As `arc_swap::Cache::new`.
    pub fn new(published: Arc<Published<T>>) -> Self {
        Self(Cache::new(published.0.clone()))
    }

    /// As `arc_swap::Cache::load`.
    pub fn load(&mut self) -> &Arc<T> {
        point();
        self.0.load()
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Reader")
    }
}
