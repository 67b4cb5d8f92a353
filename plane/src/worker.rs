//! What one lcore does to a burst of packets, whatever they came from.
//!
//! Passes over the burst, with arrays in between: headers are read into
//! [`Flows`](crate::Flows), marks are read or written, and every system records the whole burst.
//! Generic code is instantiated for each kind of key, for each carrier, and for each system and
//! key: a sum, not a product.

mod headers;
mod marks;
pub(crate) mod masks;
mod path;
mod probes;
mod stacks;
mod walk;

use calumma_epoch::timestamp_bit;
use calumma_sketch::{AnyKey, FlowKey, Key, KeyKind, WideKey, either};

use crate::arrival::{Arrival, BurstArrival};
use crate::carrier::{Carrier, Numbers};
use crate::counters::Counters;
use crate::measure::{Leaving, Measurement, Moment, Sessions};
use crate::packet::Packet;
use crate::parse::tunnel::Tunnels;
use crate::parse::{Parsed, PlainFlows};
use crate::probe::LcoreProbes;
use crate::run::{MarkedRun, Run};

pub use self::masks::{DropMask, Sent, first};
pub use self::path::Path;
use self::stacks::PendingStacks;
pub use self::stacks::{Departure, MostAdded, TakenOut};
use self::walk::{By, walk};

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
    /// Keys that are assumed before the first session. If unknown, packets of both families are
    /// treated as marked: a host may lose its DSCP, but never sees a mark.
    pub keys: Option<KeyKind>,
    /// Whether INT stacks are taken out of packets on their way to hosts.
    pub strip: bool,
}

/// One lcore's share of the switch: its measurement, its counters, its policy.
#[derive(Debug)]
pub struct Worker {
    /// What packets are treated by, with the carrier of the session where that says one.
    policy: Policy,
    /// The carrier of sessions that say none.
    carrier: Carrier,
    measurement: Measurement,
    /// For packets that leave and may become fragments.
    numbers: Numbers,
    /// What is to be put into packets of the burst under way.
    stacks: PendingStacks,
    /// How probes are treated.
    pub probes: LcoreProbes,
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

impl Worker {
    /// A worker that treats packets by `policy` and measures with `measurement`.
    pub fn new(policy: Policy, measurement: Measurement) -> Self {
        let (numbers, probes) = (Numbers::new(), LcoreProbes::default());
        let (stacks, counters) = (PendingStacks::default(), Counters::default());
        let carrier = policy.carrier;
        Self { policy, carrier, measurement, numbers, stacks, probes, counters }
    }

    /// Does what is due in the measurement: see [`Measurement::tick`].
    #[inline]
    pub fn tick(&mut self, now_ns: u64, drained: bool) -> Moment {
        self.probes.now_ns = now_ns;
        let is_due = now_ns >= self.measurement.next_due_ns();
        let moment = self.measurement.tick(now_ns, drained, &self.counters);
        if is_due {
            self.follow_session();
        }
        if moment >= Moment::ArmOrTake {
            self.after_events();
        }
        moment
    }

    /// The clock was set: see [`Measurement::clock_set`].
    pub fn clock_set(&mut self, by_ns: i64, now_ns: u64) -> bool {
        self.measurement.clock_set(by_ns, now_ns)
    }

    /// Treats packets by `policy` from here on.
    pub fn set_policy(&mut self, policy: Policy) {
        (self.policy, self.carrier) = (policy, policy.carrier);
        self.follow_session();
    }

    /// Takes the carrier of the session that may just have begun.
    fn follow_session(&mut self) {
        self.policy.carrier = self.measurement.carrier().unwrap_or(self.carrier);
    }

    /// Lets the epoch under way be the last one: see [`Measurement::leave`].
    pub fn leave(&mut self) -> Leaving {
        self.measurement.leave()
    }

    /// By which keys packets are measured; `None` where there is no session.
    pub fn keys(&self) -> Option<KeyKind> {
        self.measurement.keys()
    }

    /// When something is due next in the measurement, in nanoseconds since the Unix epoch.
    pub fn next_due_ns(&self) -> u64 {
        self.measurement.next_due_ns()
    }

    /// Lets virtual time run to `now_ns`: every event happens exactly when it is due. For replays
    /// and simulations, whose receive queues are always empty between two packets.
    pub fn advance_to(&mut self, now_ns: u64) {
        loop {
            let due_ns = self.next_due_ns();
            self.tick(due_ns.min(now_ns), true);
            if due_ns > now_ns {
                return self.arrived(Some(Arrival::at(now_ns).into()));
            }
        }
    }

    /// Packets received from hosts that enter the network: begins a burst, and
    /// [records](Self::pass) all of it.
    ///
    /// # Panics
    /// When there are more than [`BURST`](calumma_sketch::BURST).
    pub fn ingress<P: Packet>(&mut self, packets: &mut [P]) -> DropMask {
        self.counters.host_received += packets.len() as u64;
        self.begin();
        self.pass(Path::Enter, packets, first(packets.len()), &PlainFlows::NONE)
    }

    /// Packets received from the fabric that leave the network: begins a burst, and
    /// [records](Self::pass) all of it.
    ///
    /// # Panics
    /// When there are more than [`BURST`](calumma_sketch::BURST).
    pub fn egress<P: Packet>(&mut self, packets: &mut [P]) -> DropMask {
        self.counters.fabric_received += packets.len() as u64;
        self.begin();
        self.pass(Path::Leave, packets, first(packets.len()), &PlainFlows::NONE)
    }

    /// Packets received from the fabric that go on to the fabric: begins a burst, and
    /// [records](Self::pass) all of it.
    ///
    /// # Panics
    /// When there are more than [`BURST`](calumma_sketch::BURST).
    pub fn transit<P: Packet>(&mut self, packets: &mut [P]) {
        self.begin();
        self.pass(Path::Transit, packets, first(packets.len()), &PlainFlows::NONE);
    }

    /// Whether a system asks when packets [arrived](Self::arrived).
    #[inline]
    pub fn asks_arrivals(&self) -> bool {
        self.measurement.asks_arrivals()
    }

    /// Says when the packets of the bursts that follow arrived, as far as that is known.
    #[inline]
    pub fn arrived(&mut self, arrival: Option<BurstArrival>) {
        if let Some(active) = self.measurement.active() {
            either!(active, active => active.arrival = arrival);
        }
    }

    /// Says by which port of the switch, from 0, the bursts that follow are received.
    #[inline]
    pub fn received_by(&mut self, port: u16) {
        if let Some(active) = self.measurement.active() {
            either!(active, active => active.port = port);
        }
    }

    /// Begins a burst, whose packets are recorded by one or several calls of [`pass`](Self::pass)
    /// and then handed to transmit queues, of which [`sent`](Self::sent) is to be called.
    #[inline]
    pub fn begin(&mut self) {
        self.stacks.begin();
        if let Some(active) = self.measurement.active() {
            either!(active, active => active.begin());
        }
    }

    /// Measures those packets of the burst under way whose bit is set in `of`: all take the same
    /// `path`. At most [`BURST`](calumma_sketch::BURST).
    ///
    /// Those that enter the network are recorded and marked; those that leave it are recorded by
    /// the marks they carry, which are taken out; those that do both on the same switch, from host
    /// to host, are recorded on both sides and carry no mark in between; those that pass from
    /// fabric to fabric with their marks are recorded where a system that is on does so. For hosts
    /// with sinks of their own packets are recorded as leaving, and keep marks and stacks. Headers
    /// of packets in `known` are not read again.
    ///
    /// # Panics
    /// When the burst is longer.
    #[inline]
    pub fn pass<P: Packet>(
        &mut self,
        path: Path,
        packets: &mut [P],
        of: u32,
        known: &PlainFlows,
    ) -> DropMask {
        if let Some(mark) = self.probes.sending() {
            return self.pass_probes(path, packets, of, mark);
        }
        let Self { policy, measurement, numbers, stacks, probes, counters, .. } = self;
        let asks = |active: &mut AnyKey<Sessions>| either!(active, active => (active.transit, active.insertion.is_some()));
        if path.goes_on(policy.strip) {
            let (wanted, inserts) = measurement.active().map_or((false, false), asks);
            if inserts && path.is_from_fabric() {
                stacks.pass(of);
            }
            if path == Path::Transit && !wanted {
                return DropMask::default();
            }
        }
        let by = By { policy, numbers, probes, domains: stacks.domains() };
        let which = (of, known, stacks);
        let keys = measurement.last_keys().or(policy.keys).unwrap_or(KeyKind::Dual);
        match (measurement.active(), keys) {
            (Some(AnyKey::Ipv4(active)), _) => {
                walk::<FlowKey, P>(path, Some(active), by, counters, packets, which)
            }
            (Some(AnyKey::Dual(active)), _) => {
                walk::<WideKey, P>(path, Some(active), by, counters, packets, which)
            }
            (None, KeyKind::Ipv4) => walk::<FlowKey, P>(path, None, by, counters, packets, which),
            (None, KeyKind::Dual) => walk::<WideKey, P>(path, None, by, counters, packets, which),
        }
    }

    /// What a transmit queue did with packets of the burst under way, after they were recorded.
    /// Once for each port that packets were handed to. Systems that record it are given their
    /// flows.
    #[inline]
    pub fn sent(&mut self, sent: Sent) {
        let Self { measurement, counters, .. } = self;
        counters.transmitted += u64::from(sent.accepted.count_ones());
        counters.dropped_transmit += u64::from(sent.refused.count_ones());
        if let Some(active) = measurement.active() {
            either!(active, active => active.sent(sent, counters));
        }
    }

    /// `packets` packets of one flow enter the network back to back: records them and gives their
    /// marks. Keys of another kind than the session's go unrecorded.
    pub fn enter_run<K: Key>(&mut self, key: &K, packets: u32) -> MarkedRun {
        let Self { measurement, counters, .. } = self;
        counters.host_received += u64::from(packets);
        let (mut bit, mut run) = (0, None);
        if let Some(any) = measurement.active() {
            bit = either!(&*any, active => timestamp_bit(active.epoch));
            if let Some(active) = any.get_mut::<K>() {
                for system in active.systems.recording.iter_mut().filter(|system| system.enters) {
                    let of_system = system.half.enter_run(key, packets, counters);
                    // One system at most gives hierarchies.
                    if run.is_none() || of_system != Run::unencoded(packets) {
                        run = Some(of_system);
                    }
                }
            }
        }
        if run.is_none() {
            counters.ingress_unrecorded += u64::from(packets);
        }
        MarkedRun { bit, run: run.unwrap_or(Run::unencoded(packets)) }
    }

    /// What is left of a run leaves the network: records it by the marks it carries.
    pub fn leave_run<K: Key>(&mut self, key: &K, marked: MarkedRun) {
        let Self { measurement, counters, .. } = self;
        let total = u64::from(marked.run.packets());
        counters.fabric_received += total;
        match measurement.active().and_then(|any| any.get_mut::<K>()) {
            Some(active) => {
                let of_bit = |bits: u8| bits >> (marked.bit & 1) & 1 == 1;
                let recording = active.systems.recording.iter_mut();
                for system in recording.filter(|system| of_bit(system.bits)) {
                    system.half.leave_run(key, &marked, counters);
                }
            }
            None => counters.egress_unrecorded += total,
        }
    }
}
