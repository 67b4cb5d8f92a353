//! Packets through two edge switches in virtual time, with losses and reordering in between: what
//! the ingress edge recorded minus what the egress edge recorded is exactly what was lost, epoch
//! by epoch, whatever the number of lcores and the carrier.

use std::collections::BTreeMap;

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::lcores::{LcoreGroups, Part};
use calumma_chamelemon::{Attention, Layout};
use calumma_edge::carrier::{Carrier, Shim, SignedTos};
use calumma_edge::lcore::forwarder::leave_but;
use calumma_edge::measure::Measurement;
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::Unmeasured;
use calumma_edge::worker::{Policy, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::{FermatSketch, FlowKey, HashFamily, HashKey, Key, WideKey, either};
use proptest::prelude::*;

const LENGTH_NS: u64 = 50_000_000;
const FIRST_EPOCH: u64 = 100;

/// A UDP packet of flow `n` without payload.
fn frame(n: u32) -> Frame {
    let mut bytes = vec![2; 12];
    bytes.extend_from_slice(&[8, 0, 0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0]);
    bytes.extend_from_slice(&(n as u16).to_be_bytes());
    bytes.extend_from_slice(&[10, 200, 0, 1, 0x30, 0x39, 0, 80, 0, 8, 0, 0]);
    Frame::with_headroom(8, &bytes)
}

fn flow(n: u32) -> FlowKey {
    let [high, low] = (n as u16).to_be_bytes();
    FlowKey::v4([10, 0, high, low].into(), [10, 200, 0, 1].into(), 12_345, 80, 17)
}

/// The same of IPv6 where `n` is odd.
fn dual_frame(n: u32) -> Frame {
    if n.is_multiple_of(2) {
        return frame(n);
    }
    let mut bytes = vec![2; 12];
    bytes.extend_from_slice(&[0x86, 0xDD, 0x60, 0, 0, 0, 0, 8, 17, 64]);
    bytes.extend_from_slice(dual_flow(n).as_bytes().first_chunk::<36>().unwrap());
    bytes.extend_from_slice(&[0, 8, 0, 0]);
    Frame::with_headroom(8, &bytes)
}

fn dual_flow(n: u32) -> WideKey {
    if n.is_multiple_of(2) {
        return flow(n).into();
    }
    let end = |net: u16| [0x2001, 0xDB8, net, 0, 0, 0, 0, n as u16].into();
    WideKey::v6(end(1), end(2), 12_345, 80, 17)
}

/// A switch of several lcores; a flow's packets always meet the same one, as under RSS.
struct Switch<K: Key = FlowKey> {
    collector: LcoreGroups,
    lcores: Vec<Worker>,
    upstream: BTreeMap<u64, FermatSketch<K>>,
    downstream: BTreeMap<u64, FermatSketch<K>>,
    packets: BTreeMap<u64, (u64, u64)>,
    late_packets: u64,
}

impl<K: Key> Switch<K> {
    fn new(lcores: usize, plan: &SessionPlan) -> Self {
        Self::with_carrier(lcores, plan, Carrier::default())
    }

    fn with_carrier(lcores: usize, plan: &SessionPlan, carrier: Carrier) -> Self {
        let policy = Policy { carrier, ..Policy::default() };
        let (mut collector, mailboxes) = LcoreGroups::new(lcores);
        collector.begin(plan).unwrap();
        let lcores = mailboxes
            .into_iter()
            .map(|mailbox| Worker::new(policy, Measurement::new(mailbox)))
            .collect();
        let (upstream, downstream, packets) = Default::default();
        Self { collector, lcores, upstream, downstream, packets, late_packets: 0 }
    }

    /// Lets time run, one event after the other, so that groups come back in time for the next one.
    fn advance_to(&mut self, now_ns: u64) {
        loop {
            let due_ns = self.lcores.iter().map(Worker::next_due_ns).min().unwrap();
            self.lcores.iter_mut().for_each(|lcore| lcore.advance_to(due_ns.min(now_ns)));
            self.collect();
            if due_ns > now_ns {
                return;
            }
        }
    }

    fn collect(&mut self) {
        for part in self.collector.poll() {
            match part {
                Part::Ingress { epoch, record, mixed_attention, .. } => {
                    assert!(!mixed_attention && record.stall_ns == 0);
                    self.packets.entry(epoch).or_default().0 = record.packets;
                    let group = record.group.get::<K>().unwrap();
                    self.upstream.insert(epoch, group.upstream().clone());
                    self.collector.recycle(record);
                }
                Part::Egress { epoch, record, mixed_attention } => {
                    assert!(!mixed_attention && record.stall_ns == 0);
                    assert_eq!(record.foreign_packets, 0);
                    self.packets.entry(epoch).or_default().1 = record.packets;
                    let group = record.group.get::<K>().unwrap();
                    self.downstream.insert(epoch, group.downstream().clone());
                    self.collector.recycle(record);
                }
                Part::Sealed { late_packets, .. } => self.late_packets += late_packets,
            }
        }
    }

    fn lcore_of(&mut self, n: u32) -> &mut Worker {
        let lcores = self.lcores.len();
        &mut self.lcores[n as usize % lcores]
    }
}

fn plan() -> SessionPlan {
    let layout = Layout { upstream_buckets: 512, downstream_buckets: 256, ..Layout::default() };
    SessionPlan {
        // Every packet into the HL encoders, so that the difference is the loss.
        attention: Attention { t_h: u32::MAX, ..Attention::healthy(&layout, 256) },
        layout,
        hash_key: HashKey::from_bytes([3; 32]),
        clock: EpochClock::new(LENGTH_NS, Guards::default()).unwrap(),
        first_epoch: FIRST_EPOCH,
    }
}

/// One packet: when it is sent after the start of measurement, of which flow, how long it travels
/// (nothing where it is lost).
type Sent = (u64, u32, Option<u64>);

/// The carriers of IPv4.
fn carriers() -> impl Strategy<Value = Carrier> {
    prop::sample::select(vec![
        Carrier::default(),
        Carrier::SignedTos(SignedTos::default()),
        Carrier::Shim(Shim::default()),
        Carrier::IpId,
    ])
}

/// Packets that travel for at most so long.
fn packets(longest_ns: u64) -> impl Strategy<Value = Vec<Sent>> {
    let flight = prop_oneof![9 => (0..longest_ns).prop_map(Some), 1 => Just(None)];
    prop::collection::vec((0..6 * LENGTH_NS, 0u32..300, flight), 1..2000)
}

/// As long as all bits of an epoch's number tell packets apart, wherever in their epoch they were
/// sent: seven epochs, less what the eighth is armed ahead of its time.
const TOLD_APART_NS: u64 = 7 * LENGTH_NS - 1_000_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn upstream_minus_downstream_is_what_was_lost_in_each_epoch(
        sent in packets(10_000_000), ingress_lcores in 1usize..4, egress_lcores in 1usize..4,
        carrier in carriers(), dual: bool,
    ) {
        let lcores = [ingress_lcores, egress_lcores];
        if dual {
            assert_losses_are_found(&sent, lcores, carrier, dual_frame, dual_flow)?;
        } else {
            assert_losses_are_found(&sent, lcores, carrier, frame, flow)?;
        }
    }

    /// However late a packet is, up to seven epochs: it is recorded in its own or counted as late.
    #[test]
    fn a_packet_of_an_older_epoch_is_late_and_in_no_other(
        sent in packets(TOLD_APART_NS), dual: bool,
        carrier in prop::sample::select(vec![Carrier::Shim(Shim::default()), Carrier::IpId]),
    ) {
        if dual {
            assert_late_or_right(&sent, carrier, dual_frame, dual_flow)?;
        } else {
            assert_late_or_right(&sent, carrier, frame, flow)?;
        }
    }
}

/// What two switches have measured of packets that went from one to the other.
struct Flight<K: Key> {
    entry: Switch<K>,
    exit: Switch<K>,
    /// What was lost of the packets of each epoch.
    lost: BTreeMap<u64, BTreeMap<K, i64>>,
    plan: SessionPlan,
}

/// Sends packets from one switch to the other, both measuring by the key that `flow` gives.
fn fly<K: Key>(
    sent: &[Sent],
    [ingress_lcores, egress_lcores]: [usize; 2],
    carrier: Carrier,
    frame: fn(u32) -> Frame,
    flow: fn(u32) -> K,
) -> Result<Flight<K>, TestCaseError> {
    let mut plan = plan();
    plan.layout.keys = K::KIND;
    let start = plan.clock.start_of(FIRST_EPOCH);
    let mut entry = Switch::<K>::with_carrier(ingress_lcores, &plan, carrier);
    let mut exit = Switch::<K>::with_carrier(egress_lcores, &plan, carrier);

    let mut steps = Vec::new();
    for (id, &(at, n, flight)) in sent.iter().enumerate() {
        steps.push((start + at, id, n, false));
        if let Some(flight) = flight {
            steps.push((start + at + flight, id, n, true));
        }
    }
    steps.sort_by_key(|&(at, id, _, arrives)| (at, arrives, id));
    let mut travelling = BTreeMap::new();
    for (at, id, n, arrives) in steps {
        entry.advance_to(at);
        exit.advance_to(at);
        let mut packet = travelling.remove(&id).unwrap_or_else(|| frame(n));
        if arrives {
            exit.lcore_of(n).egress(std::slice::from_mut(&mut packet));
            let sent = frame(n);
            prop_assert_eq!(packet.bytes(), sent.bytes(), "the mark is taken out again");
        } else {
            entry.lcore_of(n).ingress(std::slice::from_mut(&mut packet));
            travelling.insert(id, packet);
        }
    }
    let end = start + 20 * LENGTH_NS;
    entry.advance_to(end);
    exit.advance_to(end);

    let mut lost: BTreeMap<u64, BTreeMap<K, i64>> = BTreeMap::new();
    for &(at, n, flight) in sent {
        let of_epoch = lost.entry(plan.clock.epoch_at(start + at)).or_default();
        if flight.is_none() {
            *of_epoch.entry(flow(n)).or_default() += 1;
        }
    }
    Ok(Flight { entry, exit, lost, plan })
}

impl<K: Key> Flight<K> {
    /// What entered less what left, of each epoch in which packets were sent or recorded.
    fn deltas(&self) -> Result<BTreeMap<u64, BTreeMap<K, i64>>, TestCaseError> {
        let family = HashFamily::new(&self.plan.hash_key);
        let hl = self.plan.attention.partition.hl_part();
        let mut deltas = BTreeMap::new();
        for (epoch, upstream) in &self.entry.upstream {
            let Some(downstream) = self.exit.downstream.get(epoch) else { continue };
            let mut delta = upstream.part(&hl);
            delta.subtract(&downstream.part(&hl)).unwrap();
            let decoded = delta.decode(&family);
            prop_assert!(decoded.is_complete());
            deltas.insert(*epoch, decoded.into_flowset().into_iter().collect());
        }
        Ok(deltas)
    }
}

/// Compares what two switches say was lost with what was.
fn assert_losses_are_found<K: Key>(
    sent: &[Sent],
    lcores: [usize; 2],
    carrier: Carrier,
    frame: fn(u32) -> Frame,
    flow: fn(u32) -> K,
) -> Result<(), TestCaseError> {
    let flight = fly(sent, lcores, carrier, frame, flow)?;
    let deltas = flight.deltas()?;
    for (epoch, lost) in &flight.lost {
        prop_assert_eq!(&deltas[epoch], lost);
    }
    let Flight { entry, exit, .. } = flight;
    let entered: u64 = entry.packets.values().map(|packets| packets.0).sum();
    let left: u64 = exit.packets.values().map(|packets| packets.1).sum();
    prop_assert_eq!(entered, sent.len() as u64);
    prop_assert_eq!(left, sent.iter().filter(|packet| packet.2.is_some()).count() as u64);
    prop_assert_eq!(entry.late_packets + exit.late_packets, 0);
    Ok(())
}

/// In no epoch and flow less is missing than was lost, and beyond it as much as was late.
fn assert_late_or_right<K: Key>(
    sent: &[Sent],
    carrier: Carrier,
    frame: fn(u32) -> Frame,
    flow: fn(u32) -> K,
) -> Result<(), TestCaseError> {
    let mut flight = fly(sent, [1, 2], carrier, frame, flow)?;
    let mut late = 0;
    for (epoch, delta) in flight.deltas()? {
        let mut lost = flight.lost.remove(&epoch).unwrap_or_default();
        for (flow, missing) in delta {
            let lost = lost.remove(&flow).unwrap_or(0);
            prop_assert!(missing >= lost, "{} missing of {} lost in {}", missing, lost, epoch);
            late += (missing - lost) as u64;
        }
        prop_assert!(lost.is_empty(), "not seen in {}: {:?}", epoch, lost);
    }
    prop_assert!(flight.lost.is_empty());
    prop_assert_eq!((flight.entry.late_packets, flight.exit.late_packets), (0, late));
    Ok(())
}

#[test]
fn ipv6_is_not_measured_by_ipv4_keys_but_forwarded_and_counted() {
    let plan = plan();
    let mut entry = Switch::<FlowKey>::new(1, &plan);
    entry.advance_to(plan.clock.start_of(FIRST_EPOCH) + 1);
    let mut packet = dual_frame(1);
    assert!(entry.lcore_of(1).ingress(std::slice::from_mut(&mut packet)).is_empty());
    assert_eq!(packet.bytes(), dual_frame(1).bytes());
    let counters = entry.lcores[0].counters;
    assert_eq!(counters.unmeasured[Unmeasured::Ipv6 as usize], 1);
    assert_eq!(counters.ingress_recorded, 0);
}

#[test]
fn a_packet_that_travels_longer_than_the_guard_is_seen_to_be_late() {
    let plan = plan();
    let start = plan.clock.start_of(FIRST_EPOCH);
    let mut entry = Switch::<FlowKey>::new(1, &plan);
    let mut exit = Switch::<FlowKey>::new(1, &plan);
    entry.advance_to(start + 1);
    let mut packet = frame(1);
    entry.lcore_of(1).ingress(std::slice::from_mut(&mut packet));
    exit.advance_to(start + LENGTH_NS + 20_000_000);
    exit.lcore_of(1).egress(std::slice::from_mut(&mut packet));
    exit.advance_to(start + 3 * LENGTH_NS);
    assert_eq!(exit.late_packets, 1);
    assert_eq!(exit.packets[&FIRST_EPOCH], (0, 0));
}

/// Sends a packet in the first epoch, lets it arrive so many epochs and 20 ms after its end, and
/// gives the switch that it arrived at, when three more are over.
fn late_by(epochs: u64, carrier: Carrier) -> Switch {
    let plan = plan();
    let start = plan.clock.start_of(FIRST_EPOCH);
    let [mut entry, mut exit] = [(); 2].map(|()| Switch::with_carrier(1, &plan, carrier));
    entry.advance_to(start + 1);
    let mut packet = frame(1);
    entry.lcore_of(1).ingress(std::slice::from_mut(&mut packet));
    let end = start + (epochs + 1) * LENGTH_NS + 20_000_000;
    exit.advance_to(end);
    exit.lcore_of(1).egress(std::slice::from_mut(&mut packet));
    exit.advance_to(end + 4 * LENGTH_NS);
    exit
}

/// What the timestamp bit alone can't tell, and what remains where there are two bits more.
#[test]
fn a_bit_alone_tells_an_epoch_from_the_next_and_three_tell_eight() {
    let counted_in = |exit: &Switch| {
        let counted = exit.packets.iter().find(|(_, packets)| packets.1 > 0);
        counted.map(|(epoch, _)| epoch - FIRST_EPOCH)
    };
    for (carrier, apart) in [
        (Carrier::default(), 2),
        (Carrier::SignedTos(SignedTos::default()), 2),
        (Carrier::Shim(Shim::default()), 8),
        (Carrier::IpId, 8),
    ] {
        for epochs in 0..apart - 1 {
            let exit = late_by(epochs, carrier);
            assert_eq!((counted_in(&exit), exit.late_packets), (None, 1), "{carrier:?}, {epochs}");
        }
        let exit = late_by(apart - 1, carrier);
        if carrier.needs_session() {
            // Its signature is that of an epoch of which no packet is believed any more.
            assert_eq!((counted_in(&exit), exit.late_packets), (None, 0));
            assert_eq!(exit.lcores[0].counters.egress_unmarked, 1);
        } else {
            assert_eq!((counted_in(&exit), exit.late_packets), (Some(apart), 0), "{carrier:?}");
        }
    }
}

/// The fabric sends a packet to two edges, as it does not know where its station is.
#[test]
fn a_flooded_packet_leaves_where_its_station_is_and_nowhere_else() {
    let carriers = [
        Carrier::default(),
        Carrier::SignedTos(SignedTos::default()),
        Carrier::Shim(Shim::default()),
    ];
    for carrier in carriers {
        let plan = plan();
        let start = plan.clock.start_of(FIRST_EPOCH);
        let switch = || Switch::<FlowKey>::with_carrier(1, &plan, carrier);
        let [mut entry, mut exit, mut other] = [switch(), switch(), switch()];
        for switch in [&mut entry, &mut exit, &mut other] {
            switch.advance_to(start + 1);
        }
        let mut packet = frame(1);
        entry.lcore_of(1).ingress(std::slice::from_mut(&mut packet));
        let mut copy = packet.clone();
        exit.lcore_of(1).egress(std::slice::from_mut(&mut packet));
        leave_but(other.lcore_of(1), std::slice::from_mut(&mut copy), 1);
        assert_eq!((packet.bytes(), copy.bytes()), (frame(1).bytes(), frame(1).bytes()));
        let left = |switch: &mut Switch| {
            switch.advance_to(start + 3 * LENGTH_NS);
            let counters = switch.lcores[0].counters;
            assert_eq!(counters.egress_recorded, switch.packets[&FIRST_EPOCH].1);
            (counters.egress_recorded, counters.egress_flooded, counters.fabric_received)
        };
        assert_eq!((left(&mut exit), left(&mut other)), ((1, 0, 1), (0, 1, 1)));
    }
}

#[test]
fn attention_takes_effect_at_its_epoch_and_on_all_lcores() {
    let plan = plan();
    let mut switch = Switch::<FlowKey>::new(2, &plan);
    let sharper = Attention { t_h: 7, ..plan.attention };
    switch.collector.reconfigure(FIRST_EPOCH + 2, sharper).unwrap();
    let end = plan.clock.start_of(FIRST_EPOCH + 4) + 1;
    let mut seen = Vec::new();
    switch.lcores.iter_mut().for_each(|lcore| lcore.advance_to(end));
    for part in switch.collector.poll() {
        if let Part::Ingress { epoch, record, mixed_attention, .. } = part {
            assert!(!mixed_attention);
            let t_h = either!(&record.group, group => group.attention().t_h);
            seen.push((epoch - FIRST_EPOCH, t_h));
        }
    }
    assert_eq!(seen, [(0, u32::MAX), (1, u32::MAX), (2, 7), (3, 7)]);
}

proptest! {
    #[test]
    fn any_bytes_pass_through_both_roles_and_come_out_as_they_went_in(
        mut packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..32),
        ip: bool,
    ) {
        let plan = plan();
        let mut entry = Switch::<FlowKey>::new(1, &plan);
        let mut exit = Switch::<FlowKey>::new(1, &plan);
        entry.advance_to(plan.clock.start_of(FIRST_EPOCH));
        exit.advance_to(plan.clock.start_of(FIRST_EPOCH));
        for bytes in packets.iter_mut().filter(|bytes| ip && bytes.len() > 33) {
            let tos = bytes[15] & 0x1F;
            bytes[12..16].copy_from_slice(&[8, 0, 0x45, tos]);
            let total = (bytes.len() - 14) as u16;
            bytes[16..18].copy_from_slice(&total.to_be_bytes());
            // A checksum that no header has comes back as another one that stands for it.
            bytes[24..26].copy_from_slice(&[0x12, 0x34]);
        }
        let mut frames: Vec<Frame> = packets.iter().cloned().map(Frame::new).collect();
        entry.lcores[0].ingress(&mut frames);
        if ip {
            let marked = frames.iter().zip(&packets).filter(|(frame, bytes)| frame.bytes() != **bytes);
            prop_assert_eq!(marked.count() as u64, entry.lcores[0].counters.ingress_recorded);
        }
        exit.lcores[0].egress(&mut frames);
        let out: Vec<Vec<u8>> = frames.iter().map(|frame| frame.bytes().to_vec()).collect();
        if ip {
            prop_assert_eq!(out, packets);
        }
        let counters = &entry.lcores[0].counters;
        prop_assert_eq!(counters.host_received, counters.ingress_recorded
            + counters.malformed.iter().sum::<u64>() + counters.unmeasured.iter().sum::<u64>());
        prop_assert_eq!(exit.lcores[0].counters.egress_recorded, counters.ingress_recorded);
    }
}
