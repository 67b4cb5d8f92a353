//! What an lcore counts beside the sketches, and the names under which it is reported.

pub mod int;
pub mod routed;

use std::ops::AddAssign;

use self::int::IntCounters;
use self::routed::Routed;
use crate::parse::tunnel::Inside;
use crate::parse::{Malformed, Unmeasured};

/// Totals since the worker started. Every packet received is transmitted, or dropped for exactly
/// one reason: `received = transmitted + dropped()`. Where packets are forwarded by routes, some go
/// to the slow path and come back: see [`Routed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets received from host-facing ports.
    pub host_received: u64,
    /// Packets received from fabric-facing ports.
    pub fabric_received: u64,
    /// Packets handed to a port's transmit queue.
    pub transmitted: u64,
    /// Packets dropped since the transmit queue stayed full.
    pub dropped_transmit: u64,
    /// Malformed packets dropped by policy.
    pub dropped_malformed: u64,
    /// Unmeasured packets dropped by policy, and those that bear a foreign shim.
    pub dropped_unmeasured: u64,
    /// Packets recorded by an ingress group.
    pub ingress_recorded: u64,
    /// Measurable packets that entered while no group was there to record them.
    pub ingress_unrecorded: u64,
    /// Packets that entered and are from or to hosts outside the deployment's domain.
    pub ingress_outside: u64,
    /// Packets recorded by an egress group, those that carry no encoding included.
    pub egress_recorded: u64,
    /// Of these, packets of a hierarchy that has no buckets in their epoch.
    pub egress_foreign: u64,
    /// Marked packets that left while no epoch with their timestamp bit was open.
    pub egress_late: u64,
    /// Packets without an encoding that left while no epoch with their timestamp bit was open.
    pub egress_unrecorded: u64,
    /// Measurable packets that came from the network without a valid mark.
    pub egress_unmarked: u64,
    /// Measurable packets that came from the network for stations behind other edges.
    pub egress_flooded: u64,
    /// Packets that left and are from or to hosts outside the deployment's domain.
    pub egress_outside: u64,
    /// Packets that came from hosts with the bit set that carries a claim. It was cleared.
    pub claim_bits: u64,
    /// Probes of the switch's own that have entered the network.
    pub probe_sent: u64,
    /// Probes of the switch's own that could not enter the network: there was no session, or no
    /// route. They are dropped.
    pub probe_unsent: u64,
    /// Probes of other edges that were taken out.
    pub probe_received: u64,
    /// Packets that begin like a probe and were taken out unread: there was no key yet, or there
    /// were more of them than are looked at.
    pub probe_unread: u64,
    /// Malformed packets by kind.
    pub malformed: [u64; Malformed::ALL.len()],
    /// Unmeasured packets by kind.
    pub unmeasured: [u64; Unmeasured::ALL.len()],
    /// What forwarding by routes counts.
    pub routed: Routed,
    /// What is counted of INT stacks.
    pub int: IntCounters,
    /// Packets in tunnels, where these are measured by what is inside. They are counted elsewhere,
    /// too.
    pub tunnelled: [u64; Inside::ALL.len()],
}

impl Counters {
    /// Packets received.
    pub fn received(&self) -> u64 {
        self.host_received + self.fabric_received
    }

    /// Packets dropped, whatever the reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_transmit
            + self.dropped_malformed
            + self.dropped_unmeasured
            + self.probe_unsent
            + self.probe_received
            + self.probe_unread
            + self.routed.dropped()
            + self.int.dropped()
    }

    /// Every counter with its name.
    pub fn named(&self) -> Vec<(String, u64)> {
        let plain = [
            ("received.host", self.host_received),
            ("received.fabric", self.fabric_received),
            ("transmitted", self.transmitted),
            ("dropped.transmit_queue_full", self.dropped_transmit),
            ("dropped.malformed", self.dropped_malformed),
            ("dropped.unmeasured", self.dropped_unmeasured),
            ("ingress.recorded", self.ingress_recorded),
            ("ingress.unrecorded", self.ingress_unrecorded),
            ("ingress.outside", self.ingress_outside),
            ("egress.recorded", self.egress_recorded),
            ("egress.foreign", self.egress_foreign),
            ("egress.late", self.egress_late),
            ("egress.unrecorded", self.egress_unrecorded),
            ("egress.unmarked", self.egress_unmarked),
            ("egress.flooded", self.egress_flooded),
            ("egress.outside", self.egress_outside),
            ("cfs.bit_taken", self.claim_bits),
            ("probe.sent", self.probe_sent),
            ("probe.unsent", self.probe_unsent),
            ("probe.received", self.probe_received),
            ("probe.unread", self.probe_unread),
        ];
        let plain = plain.into_iter().map(|(name, value)| (name.to_owned(), value));
        let malformed = Malformed::ALL
            .into_iter()
            .map(|kind| (format!("malformed.{}", kind.name()), self.malformed[kind as usize]));
        let unmeasured = Unmeasured::ALL
            .into_iter()
            .map(|kind| (format!("unmeasured.{}", kind.name()), self.unmeasured[kind as usize]));
        let tunnelled = Inside::ALL
            .into_iter()
            .map(|kind| (format!("tunnel.{}", kind.name()), self.tunnelled[kind as usize]));
        plain
            .chain(malformed)
            .chain(unmeasured)
            .chain(tunnelled)
            .chain(self.routed.named())
            .chain(self.int.named())
            .collect()
    }
}

impl AddAssign<&Self> for Counters {
    fn add_assign(&mut self, other: &Self) {
        self.host_received += other.host_received;
        self.fabric_received += other.fabric_received;
        self.transmitted += other.transmitted;
        self.dropped_transmit += other.dropped_transmit;
        self.dropped_malformed += other.dropped_malformed;
        self.dropped_unmeasured += other.dropped_unmeasured;
        self.ingress_recorded += other.ingress_recorded;
        self.ingress_unrecorded += other.ingress_unrecorded;
        self.ingress_outside += other.ingress_outside;
        self.egress_outside += other.egress_outside;
        self.egress_recorded += other.egress_recorded;
        self.egress_foreign += other.egress_foreign;
        self.egress_late += other.egress_late;
        self.egress_unrecorded += other.egress_unrecorded;
        self.routed += &other.routed;
        self.int += &other.int;
        self.egress_unmarked += other.egress_unmarked;
        self.egress_flooded += other.egress_flooded;
        self.claim_bits += other.claim_bits;
        self.probe_sent += other.probe_sent;
        self.probe_unsent += other.probe_unsent;
        self.probe_received += other.probe_received;
        self.probe_unread += other.probe_unread;
        for (mine, theirs) in self.malformed.iter_mut().zip(other.malformed) {
            *mine += theirs;
        }
        for (mine, theirs) in self.unmeasured.iter_mut().zip(other.unmeasured) {
            *mine += theirs;
        }
        for (mine, theirs) in self.tunnelled.iter_mut().zip(other.tunnelled) {
            *mine += theirs;
        }
    }
}
