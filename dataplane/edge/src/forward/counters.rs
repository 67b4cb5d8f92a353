//! What the slow path counts, and the names under which it is reported.

use std::sync::atomic::{AtomicU64, Ordering};

pub use calumma_plane::counters::routed::{Reason, Routed};

/// Why the slow path did not give a packet back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SlowReason {
    /// Its next hop did not say its Ethernet address.
    NeighbourUnresolved,
    /// Its next hop is behind a port without a link.
    LinkDown,
    /// As many packets as are kept waited for Ethernet addresses.
    NeighbourQueueFull,
    /// The lcores had more to take back than they did, or there was no memory for what the switch
    /// made.
    ReturnsFull,
    /// On its way when the switch stopped.
    Stopped,
}

impl SlowReason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::NeighbourUnresolved,
        Self::LinkDown,
        Self::NeighbourQueueFull,
        Self::ReturnsFull,
        Self::Stopped,
    ];

    /// The reason's name in counters and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NeighbourUnresolved => "neighbour_unresolved",
            Self::LinkDown => "link_down",
            Self::NeighbourQueueFull => "neighbour_queue_full",
            Self::ReturnsFull => "returns_full",
            Self::Stopped => "stopped",
        }
    }
}

/// What the slow path counts. Written by its thread, read by any.
///
/// Packets handed over and those it made itself are given back, taken by the switch itself,
/// dropped, or still waiting: `handed_over + made = returned + taken + dropped + waiting`.
#[derive(Debug, Default)]
pub struct SlowCounters {
    /// Packets that were for the switch itself: ARP, neighbour discovery, pings, all else to its
    /// own addresses.
    pub taken: AtomicU64,
    /// Packets that the switch made: answers, questions, errors.
    pub made: AtomicU64,
    /// ICMP errors among these.
    pub icmp_errors: AtomicU64,
    /// ICMP errors that were not sent since there were too many.
    pub icmp_errors_withheld: AtomicU64,
    /// Neighbours known at present.
    pub neighbours: AtomicU64,
    /// Packets that wait for a neighbour at present.
    pub waiting: AtomicU64,
    dropped: [AtomicU64; SlowReason::ALL.len()],
}

impl SlowCounters {
    /// Adds to a counter.
    pub(super) fn add(counter: &AtomicU64, packets: u64) {
        counter.fetch_add(packets, Ordering::Relaxed);
    }

    /// Counts packets that are dropped.
    pub(super) fn drop_for(&self, reason: SlowReason, packets: u64) {
        Self::add(&self.dropped[reason as usize], packets);
    }

    /// Packets dropped, whatever the reason.
    pub fn dropped(&self) -> u64 {
        self.dropped.iter().map(|dropped| dropped.load(Ordering::Relaxed)).sum()
    }

    /// What there is at present, with its name.
    pub fn gauges(&self) -> [(&'static str, u64); 2] {
        [("neighbours", &self.neighbours), ("slow_path.waiting", &self.waiting)]
            .map(|(name, of)| (name, of.load(Ordering::Relaxed)))
    }

    /// Every counter with its name.
    pub fn named(&self) -> Vec<(String, u64)> {
        let plain = [
            ("slow_path.taken", &self.taken),
            ("slow_path.made", &self.made),
            ("icmp_errors.sent", &self.icmp_errors),
            ("icmp_errors.withheld", &self.icmp_errors_withheld),
        ];
        let plain = plain.into_iter().map(|(name, counter)| (name.to_owned(), counter));
        let dropped = SlowReason::ALL
            .into_iter()
            .map(|reason| (format!("dropped.{}", reason.name()), &self.dropped[reason as usize]));
        let get = |(name, counter): (String, &AtomicU64)| (name, counter.load(Ordering::Relaxed));
        plain.chain(dropped).map(get).collect()
    }
}
