//! When an lcore does what is not packets, and how many of those it receives at once.

use std::time::Duration;

use crate::config::Settings;
use crate::lcore::clock::TscClock;
use crate::measure::Moment;
use crate::sync::{self, steady_ns, unix_ns};

/// Packets received at once around an epoch event. What they touch is further from the CPU than
/// usual, so that 32 would take longer than in other bursts. Vector drivers receive no fewer.
const SMALL_BURST: usize = 8;

/// How many such bursts there are, the one before which it happens included.
const SMALL_BURSTS: u32 = 4;

/// What the counter is read from.
type Ticks = fn() -> u64;

/// What the system's clocks are read from.
type Clocks = fn() -> (u64, u64);

/// An lcore's clock, the size of its bursts, and its sleep when there is nothing to do.
#[derive(Debug)]
pub struct Pace {
    clock: TscClock<Ticks, Clocks>,
    /// What the last anchor has given.
    set_by_ns: i64,
    small_bursts: u32,
    idle_polls: u32,
}

impl Pace {
    /// Starts the clock.
    pub fn start() -> Self {
        let clocks: Clocks = || (unix_ns(), steady_ns());
        let clock = TscClock::new(sync::tsc_hz(), sync::tsc as Ticks, clocks);
        Self { clock, set_by_ns: 0, small_bursts: 0, idle_polls: 0 }
    }

    /// What the clock has come to when the counter read `tsc`. Every millisecond it is anchored
    /// anew.
    #[inline]
    pub fn moment(&mut self, tsc: u64) -> Moment {
        if !self.clock.is_due(tsc) {
            Moment::Ordinary
        } else if self.clock.is_halfway(tsc) {
            Moment::Instant
        } else {
            self.set_by_ns = self.clock.anchor();
            Moment::Millisecond
        }
    }

    /// By how much the system's clock was set within the last millisecond; see
    /// [`TscClock::anchor`].
    pub fn set_by_ns(&self) -> i64 {
        self.set_by_ns
    }

    /// What the system's clock showed at the last anchor.
    pub fn anchored_ns(&self) -> u64 {
        self.clock.anchored_ns()
    }

    /// Follows the system's clock where that was set back.
    pub fn follow(&mut self) {
        self.clock.follow();
    }

    /// The time at which the counter read `tsc`, in nanoseconds since the Unix epoch.
    #[inline]
    pub fn unix_ns(&mut self, tsc: u64) -> u64 {
        self.clock.unix_ns(tsc)
    }

    /// The next bursts are small if an epoch event has happened.
    #[inline]
    pub fn after(&mut self, event: Moment) {
        if event != Moment::Ordinary {
            self.small_bursts = SMALL_BURSTS;
        }
    }

    /// Packets to receive at most from the next queue.
    #[inline]
    pub fn burst_size(&self) -> usize {
        if self.small_bursts > 0 { SMALL_BURST } else { dpdk::BURST }
    }

    /// A burst has been received.
    #[inline]
    pub fn received(&mut self) {
        self.small_bursts = self.small_bursts.saturating_sub(1);
    }

    /// Ends a round of polling; after so many idle ones as the settings say, sleeps.
    #[inline]
    pub fn end_round(&mut self, idle: bool, settings: &Settings) {
        self.idle_polls = if idle { self.idle_polls.saturating_add(1) } else { 0 };
        if self.idle_polls >= settings.idle_polls && settings.idle_sleep_us > 0 {
            sync::sleep(Duration::from_micros(settings.idle_sleep_us.into()));
        }
    }
}
