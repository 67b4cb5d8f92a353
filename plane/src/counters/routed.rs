//! What forwarding by routes counts, and the names under which it is reported.

use std::ops::AddAssign;

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
    /// It waited for its next hop until its mark meant another epoch.
    MarkOutdated,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 13] = [
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
        Self::MarkOutdated,
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
            Self::MarkOutdated => "mark_outdated",
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
