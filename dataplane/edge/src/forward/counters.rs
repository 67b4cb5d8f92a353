//! What forwarding by routes counts, and the names under which it is reported.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why an lcore did not forward a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Its VLAN, or its port, has no interface.
    NoInterface,
    /// Addressed to another station on the link.
    OtherStation,
    /// Neither IPv4, IPv6 nor ARP, or behind more than one VLAN tag.
    Unknown,
    /// To a group of stations, and nothing that the switch answers.
    Multicast,
    /// An Ethernet or IP header that is cut, contradicts itself, or has a wrong checksum.
    Header,
    /// From or to an address that never goes over a link, or never beyond one.
    Martian,
    /// Had passed as many routers as it may.
    TtlExpired,
    /// No route to its destination.
    NoRoute,
    /// A route that discards.
    Discard,
    /// Longer than the MTU of the interface it was to leave by.
    TooBig,
    /// No room in memory for a VLAN tag.
    NoHeadroom,
    /// The slow path had as much to do as it can hold.
    SlowPathFull,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::NoInterface,
        Self::OtherStation,
        Self::Unknown,
        Self::Multicast,
        Self::Header,
        Self::Martian,
        Self::TtlExpired,
        Self::NoRoute,
        Self::Discard,
        Self::TooBig,
        Self::NoHeadroom,
        Self::SlowPathFull,
    ];

    /// The reason's name in counters and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoInterface => "no_interface",
            Self::OtherStation => "other_station",
            Self::Unknown => "unknown",
            Self::Multicast => "multicast",
            Self::Header => "header",
            Self::Martian => "martian",
            Self::TtlExpired => "ttl_expired",
            Self::NoRoute => "no_route",
            Self::Discard => "discard",
            Self::TooBig => "too_big",
            Self::NoHeadroom => "no_headroom",
            Self::SlowPathFull => "slow_path_full",
        }
    }
}

/// What an lcore counts of forwarding by routes.
///
/// Packets received and those that came back from the slow path are transmitted, dropped for one
/// reason, or handed to the slow path:
/// `received + returned = transmitted + dropped + handed_over`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routed {
    /// Packets dropped, by reason.
    pub dropped: [u64; Reason::ALL.len()],
    /// Packets handed to the slow path: for the switch itself, or whose next hop it has to find.
    pub handed_over: u64,
    /// Packets that the slow path gave back, or made.
    pub returned: u64,
    /// Frames sent as they came to the port for unknown traffic or multicast.
    pub passed: u64,
    /// Packets that entered at a host's port and left at another one of this switch.
    pub local: u64,
}

impl Routed {
    /// Packets dropped, whatever the reason.
    pub fn dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Counts a packet that is dropped.
    #[inline]
    pub fn drop_for(&mut self, reason: Reason) {
        self.dropped[reason as usize] += 1;
    }

    /// Every counter with its name.
    pub fn named(&self) -> Vec<(String, u64)> {
        let plain = [
            ("slow_path.handed_over", self.handed_over),
            ("slow_path.returned", self.returned),
            ("routed.passed", self.passed),
            ("routed.local", self.local),
        ];
        let plain = plain.into_iter().map(|(name, value)| (name.to_owned(), value));
        let dropped = Reason::ALL
            .into_iter()
            .map(|reason| (format!("dropped.{}", reason.name()), self.dropped[reason as usize]));
        plain.chain(dropped).collect()
    }
}

impl AddAssign<&Self> for Routed {
    fn add_assign(&mut self, other: &Self) {
        self.handed_over += other.handed_over;
        self.returned += other.returned;
        self.passed += other.passed;
        self.local += other.local;
        for (mine, theirs) in self.dropped.iter_mut().zip(other.dropped) {
            *mine += theirs;
        }
    }
}

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
    /// The lcores had more to take back than they did, or there was no memory for what the switch made.
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
/// Packets handed over and those it made itself are given back, taken by the switch itself, dropped,
/// or still waiting: `handed_over + made = returned + taken + dropped + waiting`.
#[derive(Debug, Default)]
pub struct SlowCounters {
    /// Packets that were for the switch itself: ARP, neighbour discovery, pings, all else to its own
    /// addresses.
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

    /// Every counter with its name.
    pub fn named(&self) -> Vec<(String, u64)> {
        let plain = [
            ("slow_path.taken", &self.taken),
            ("slow_path.made", &self.made),
            ("slow_path.waiting", &self.waiting),
            ("icmp_errors.sent", &self.icmp_errors),
            ("icmp_errors.withheld", &self.icmp_errors_withheld),
            ("neighbours", &self.neighbours),
        ];
        let plain = plain.into_iter().map(|(name, counter)| (name.to_owned(), counter));
        let dropped = SlowReason::ALL
            .into_iter()
            .map(|reason| (format!("dropped.{}", reason.name()), &self.dropped[reason as usize]));
        let get = |(name, counter): (String, &AtomicU64)| (name, counter.load(Ordering::Relaxed));
        plain.chain(dropped).map(get).collect()
    }
}
