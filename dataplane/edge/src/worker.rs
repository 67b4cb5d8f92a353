//! What one lcore does to a burst of packets, whatever they came from.

mod run;

use calumma_chamelemon::Hierarchy;
use calumma_epoch::timestamp_bit;
use calumma_sketch::BURST;
use calumma_sketch::{FlowKey, Key, KeyKind, WideKey};

use crate::carrier::{Carrier, Carry, Mark};
use crate::counters::Counters;
use crate::measure::{Active, Leaving, Measurement, Moment};
use crate::packet::Packet;
use crate::parse::tunnel::{self, Tunnels};
use crate::parse::{Parsed, Unmeasured, header_by_header, plain};

pub use self::run::MarkedRun;

/// What to do with packets that can't be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Treatment {
    /// Pass them through as they are.
    #[default]
    Forward,
    /// Drop them.
    Drop,
}

/// How a worker treats packets beyond measuring them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Policy {
    /// Packets whose headers can't be read to the ports.
    pub malformed: Treatment,
    /// Well-formed packets that are not measured.
    pub unmeasured: Treatment,
    /// How packets carry their marks.
    pub carrier: Carrier,
    /// By which header packets in tunnels are measured.
    pub tunnels: Tunnels,
}

/// Packets of a burst that are to be dropped: bit i stands for the burst's i-th packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DropMask(pub u32);

impl DropMask {
    /// Whether the burst's packet `at` is to be dropped.
    #[inline]
    pub fn drops(self, at: usize) -> bool {
        self.0 >> at & 1 == 1
    }

    /// Whether the whole burst goes on.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// One lcore's share of the switch: its sketches, its counters, its policy.
#[derive(Debug)]
pub struct Worker {
    policy: Policy,
    measurement: Measurement,
    /// The lcore's totals; what happens to packets outside of the worker is counted by the lcore.
    pub counters: Counters,
}

/// Keys that packets are measured by.
trait Measured: Key + From<FlowKey> {
    /// The key of a packet and the offset of its outermost IP header; `None` where these keys can't
    /// tell its flow, or it has none.
    fn of_packet(parsed: &Parsed) -> Option<(Self, usize)>;
}

impl Measured for FlowKey {
    #[inline(always)]
    fn of_packet(parsed: &Parsed) -> Option<(Self, usize)> {
        match *parsed {
            Parsed::Flow { key, ip_offset } => Some((key, ip_offset)),
            _ => None,
        }
    }
}

impl Measured for WideKey {
    #[inline(always)]
    fn of_packet(parsed: &Parsed) -> Option<(Self, usize)> {
        match *parsed {
            Parsed::Flow { key, ip_offset } => Some((key.into(), ip_offset)),
            Parsed::Flow6 { key, ip_offset } => Some((Self::from_bytes(key), ip_offset)),
            _ => None,
        }
    }
}

/// The measurable packets of a burst.
struct Flows<K> {
    keys: [K; BURST],
    /// Position in the burst and offset of the outermost IP header.
    places: [(u16, u16); BURST],
    len: usize,
    drops: DropMask,
}

impl Worker {
    /// A worker that treats packets by `policy` and measures with `measurement`.
    pub fn new(policy: Policy, measurement: Measurement) -> Self {
        Self { policy, measurement, counters: Counters::default() }
    }

    /// Does what is due in the measurement: see [`Measurement::tick`].
    #[inline]
    pub fn tick(&mut self, now_ns: u64, drained: bool) -> Moment {
        self.measurement.tick(now_ns, drained, &self.counters)
    }

    /// Treats packets by `policy` from here on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Lets the epoch under way be the last one: see [`Measurement::leave`].
    pub fn leave(&mut self) -> Leaving {
        self.measurement.leave()
    }

    /// When something is due next in the measurement, in nanoseconds since the Unix epoch.
    pub fn next_due_ns(&self) -> u64 {
        self.measurement.next_due_ns()
    }

    /// Lets virtual time run to `now_ns`: every event happens exactly when it is due. For replays and
    /// simulations, whose receive queues are always empty between two packets.
    pub fn advance_to(&mut self, now_ns: u64) {
        loop {
            let due_ns = self.next_due_ns();
            self.tick(due_ns.min(now_ns), true);
            if due_ns > now_ns {
                return;
            }
        }
    }

    /// Packets received from hosts that enter the network: see [`enter`](Self::enter).
    ///
    /// # Panics
    /// When there are more than [`BURST`].
    pub fn ingress<P: Packet>(&mut self, packets: &mut [P]) -> DropMask {
        self.counters.host_received += packets.len() as u64;
        self.enter(packets)
    }

    /// Packets received from the fabric that leave the network: see [`exit`](Self::exit).
    ///
    /// # Panics
    /// When there are more than [`BURST`].
    pub fn egress<P: Packet>(&mut self, packets: &mut [P]) -> DropMask {
        self.counters.fabric_received += packets.len() as u64;
        self.exit(packets)
    }

    /// Packets that enter the network: records and marks them. At most [`BURST`] of them.
    ///
    /// # Panics
    /// When there are more.
    pub fn enter<P: Packet>(&mut self, packets: &mut [P]) -> DropMask {
        match self.measurement.keys() {
            KeyKind::Ipv4 => self.enter_as::<FlowKey, P>(packets),
            KeyKind::Dual => self.enter_as::<WideKey, P>(packets),
        }
    }

    #[inline]
    fn enter_as<K: Measured, P: Packet>(&mut self, packets: &mut [P]) -> DropMask {
        match self.policy.carrier {
            Carrier::Tos(tos) => self.enter_by::<K, P>(tos, packets),
            Carrier::SignedTos(tos) => self.enter_by::<K, P>(tos, packets),
            Carrier::FlowLabel(label) => self.enter_by::<K, P>(label, packets),
            Carrier::Shim(shim) => self.enter_by::<K, P>(shim, packets),
        }
    }

    /// Packets that enter the network and leave it on the same switch, from host to host: records them
    /// on both sides. They carry no mark in between. At most [`BURST`] of them.
    ///
    /// # Panics
    /// When there are more.
    pub fn cross<P: Packet>(&mut self, packets: &mut [P]) -> DropMask {
        match self.measurement.keys() {
            KeyKind::Ipv4 => self.cross_as::<FlowKey, P>(packets),
            KeyKind::Dual => self.cross_as::<WideKey, P>(packets),
        }
    }

    #[inline]
    fn cross_as<K: Measured, P: Packet>(&mut self, packets: &mut [P]) -> DropMask {
        let flows: Flows<K> = match self.policy.carrier {
            Carrier::Tos(tos) => self.flows(packets, tos, |_, _| true),
            Carrier::SignedTos(tos) => self.flows(packets, tos, |_, _| true),
            Carrier::FlowLabel(label) => self.flows(packets, label, |_, _| true),
            Carrier::Shim(shim) => self.flows(packets, shim, |_, _| true),
        };
        let (bit, hierarchies) = self.record_ingress(&flows);
        if flows.len > 0 {
            self.record_egress(bit, &Marked { keys: flows.keys, hierarchies, len: flows.len });
        }
        flows.drops
    }

    #[inline]
    fn enter_by<K: Measured, P: Packet>(
        &mut self,
        carrier: impl Carry,
        packets: &mut [P],
    ) -> DropMask {
        let flows: Flows<K> =
            self.flows(packets, carrier, |packet, ip_offset| carrier.can_carry(packet, ip_offset));
        let (bit, hierarchies) = self.record_ingress(&flows);
        for (&(at, ip_offset), &hierarchy) in flows.places().iter().zip(&hierarchies) {
            let packet = &mut packets[usize::from(at)];
            carrier.write(packet, usize::from(ip_offset), Mark { bit, hierarchy });
        }
        flows.drops
    }

    /// Records what enters; gives the timestamp bit and the hierarchies to mark it with.
    #[inline]
    fn record_ingress<K: Measured>(&mut self, flows: &Flows<K>) -> (usize, [Hierarchy; BURST]) {
        let mut by_packet = [Hierarchy::NonSampledLl; BURST];
        let hierarchies = &mut by_packet[..flows.len];
        let mut bit = 0;
        if let Some(active) = self.measurement.active() {
            bit = timestamp_bit(active.rotation.epoch());
            let Active { family, rotation, .. } = active;
            if let Some(record) = rotation.ingress()
                && let Some(group) = record.group.get_mut::<K>()
            {
                group.record_burst(family, flows.keys(), hierarchies);
                record.packets += flows.len as u64;
                self.counters.ingress_recorded += flows.len as u64;
            } else {
                self.counters.ingress_unrecorded += flows.len as u64;
            }
        } else {
            self.counters.ingress_unrecorded += flows.len as u64;
        }
        (bit, by_packet)
    }

    /// Packets that leave the network: records them by the marks they carry, and takes these out.
    /// At most [`BURST`] of them.
    ///
    /// # Panics
    /// When there are more.
    pub fn exit<P: Packet>(&mut self, packets: &mut [P]) -> DropMask {
        match self.measurement.keys() {
            KeyKind::Ipv4 => self.exit_as::<FlowKey, P>(packets),
            KeyKind::Dual => self.exit_as::<WideKey, P>(packets),
        }
    }

    #[inline]
    fn exit_as<K: Measured, P: Packet>(&mut self, packets: &mut [P]) -> DropMask {
        match self.policy.carrier {
            Carrier::Tos(tos) => self.exit_by::<K, P>(tos, packets),
            Carrier::SignedTos(tos) => self.exit_by::<K, P>(tos, packets),
            Carrier::FlowLabel(label) => self.exit_by::<K, P>(label, packets),
            Carrier::Shim(shim) => self.exit_by::<K, P>(shim, packets),
        }
    }

    #[inline]
    fn exit_by<K: Measured, P: Packet>(
        &mut self,
        carrier: impl Carry,
        packets: &mut [P],
    ) -> DropMask {
        let detached = carrier.detach(packets);
        let flows: Flows<K> = self.flows(packets, carrier, |_, _| true);
        let mut by_bit = [Marked::default(), Marked::default()];
        for (key, &(at, ip_offset)) in flows.keys().iter().zip(flows.places()) {
            let at = usize::from(at);
            match carrier.take(&detached, at, &mut packets[at], usize::from(ip_offset)) {
                Some(mark) => by_bit[mark.bit].push(*key, mark.hierarchy),
                None => self.counters.egress_unmarked += 1,
            }
        }
        for (bit, marked) in by_bit.iter().enumerate() {
            if marked.len > 0 {
                self.record_egress(bit, marked);
            }
        }
        flows.drops
    }

    fn record_egress<K: Measured>(&mut self, bit: usize, marked: &Marked<K>) {
        let packets = marked.len as u64;
        let Some(active) = self.measurement.active() else {
            self.counters.egress_unrecorded += packets;
            return;
        };
        let Active { family, rotation, .. } = active;
        if let Some(record) = rotation.egress(bit)
            && let Some(group) = record.group.get_mut::<K>()
        {
            let foreign = group.record_burst(
                family,
                &marked.keys[..marked.len],
                &marked.hierarchies[..marked.len],
            );
            record.packets += packets;
            record.foreign_packets += u64::from(foreign);
            self.counters.egress_recorded += packets;
        } else {
            let late = marked.hierarchies[..marked.len]
                .iter()
                .filter(|&&hierarchy| hierarchy != Hierarchy::NonSampledLl)
                .count() as u64;
            rotation.late(bit, late);
            self.counters.egress_late += late;
            self.counters.egress_unrecorded += packets - late;
        }
    }

    /// Reads the headers of a burst, and counts what can't be measured, packets that `can_carry` no
    /// mark among it.
    #[inline]
    fn flows<K: Measured, P: Packet>(
        &mut self,
        packets: &[P],
        carrier: impl Carry,
        can_carry: impl Fn(&P, usize) -> bool,
    ) -> Flows<K> {
        assert!(packets.len() <= BURST, "a burst of at most {BURST} packets");
        let mut flows = Flows {
            keys: [K::default(); BURST],
            places: [(0, 0); BURST],
            len: 0,
            drops: DropMask::default(),
        };
        let tunnels = self.policy.tunnels;
        for (at, packet) in packets.iter().enumerate() {
            if tunnels == Tunnels::Outer
                && let Some((key, ip_offset)) = plain(packet.bytes(), packet.wire_len())
                && can_carry(packet, ip_offset)
            {
                flows.push(key.into(), at, ip_offset);
                continue;
            }
            let parsed = match tunnels {
                Tunnels::Outer => header_by_header(packet.bytes(), packet.wire_len()),
                Tunnels::Inner => self.parse_inner(packet),
            };
            let measured = K::of_packet(&parsed);
            if let Some((key, ip_offset)) = measured
                && can_carry(packet, ip_offset)
            {
                flows.push(key, at, ip_offset);
                continue;
            }
            let treatment = match parsed {
                Parsed::Flow { .. } | Parsed::Flow6 { .. } if measured.is_some() => {
                    self.unmeasured(Unmeasured::NoCarrier)
                }
                Parsed::Flow { .. } | Parsed::Flow6 { .. } => self.unmeasured(Unmeasured::Ipv6),
                Parsed::Unmeasured(_) if carrier.is_foreign(packet) => {
                    self.unmeasured(Unmeasured::ForeignShim)
                }
                Parsed::Unmeasured(kind) => self.unmeasured(kind),
                Parsed::Malformed(kind) => {
                    self.counters.malformed[kind as usize] += 1;
                    self.counters.dropped_malformed +=
                        u64::from(self.policy.malformed == Treatment::Drop);
                    self.policy.malformed
                }
            };
            flows.drops.0 |= u32::from(treatment == Treatment::Drop) << at;
        }
        flows
    }

    /// Counts a packet that is not measured, and says what to do with it.
    #[inline(never)]
    fn unmeasured(&mut self, kind: Unmeasured) -> Treatment {
        let treatment = match kind {
            Unmeasured::ForeignShim => Treatment::Drop,
            _ => self.policy.unmeasured,
        };
        self.counters.unmeasured[kind as usize] += 1;
        self.counters.dropped_unmeasured += u64::from(treatment == Treatment::Drop);
        treatment
    }

    #[inline(never)]
    fn parse_inner<P: Packet>(&mut self, packet: &P) -> Parsed {
        let (parsed, inside) = tunnel::parse(packet.bytes(), packet.wire_len());
        if let Some(inside) = inside {
            self.counters.tunnelled[inside as usize] += 1;
        }
        parsed
    }
}

impl<K> Flows<K> {
    #[inline(always)]
    fn push(&mut self, key: K, at: usize, ip_offset: usize) {
        self.keys[self.len] = key;
        self.places[self.len] = (at as u16, ip_offset as u16);
        self.len += 1;
    }

    #[inline]
    fn keys(&self) -> &[K] {
        &self.keys[..self.len]
    }

    #[inline]
    fn places(&self) -> &[(u16, u16)] {
        &self.places[..self.len]
    }
}

/// Packets of a burst that carry the same timestamp bit.
struct Marked<K> {
    keys: [K; BURST],
    hierarchies: [Hierarchy; BURST],
    len: usize,
}

impl<K: Measured> Default for Marked<K> {
    fn default() -> Self {
        Self { keys: [K::default(); BURST], hierarchies: [Hierarchy::NonSampledLl; BURST], len: 0 }
    }
}

impl<K> Marked<K> {
    #[inline]
    fn push(&mut self, key: K, hierarchy: Hierarchy) {
        self.keys[self.len] = key;
        self.hierarchies[self.len] = hierarchy;
        self.len += 1;
    }
}
