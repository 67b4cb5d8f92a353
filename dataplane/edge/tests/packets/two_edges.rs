//! Packets through two edge switches in virtual time, with losses and reordering in between: what
//! the ingress edge recorded minus what the egress edge recorded is exactly what was lost, epoch
//! by epoch, whatever the number of lcores and the carrier.

use std::collections::BTreeMap;

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::lcores::{LcoreGroups, Part};
use calumma_chamelemon::{Attention, Layout};
use calumma_edge::carrier::{Carrier, Shim, SignedTos};
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
    bytes.extend_from_slice(&[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0]);
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
    bytes.extend_from_slice(&[0x86, 0xDD, 0x60, 0, 0, n as u8, 0, 8, 17, 64]);
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
    ])
}

fn packets() -> impl Strategy<Value = Vec<Sent>> {
    let flight = prop_oneof![9 => (0..10_000_000_u64).prop_map(Some), 1 => Just(None)];
    prop::collection::vec((0..6 * LENGTH_NS, 0u32..300, flight), 1..2000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn upstream_minus_downstream_is_what_was_lost_in_each_epoch(
        sent in packets(), ingress_lcores in 1usize..4, egress_lcores in 1usize..4,
        carrier in carriers(), dual: bool,
    ) {
        let lcores = [ingress_lcores, egress_lcores];
        if dual {
            assert_losses_are_found(&sent, lcores, carrier, dual_frame, dual_flow)?;
        } else {
            assert_losses_are_found(&sent, lcores, carrier, frame, flow)?;
        }
    }
}

/// Sends packets from one switch to the other, both measuring by the key that `flow` gives, and
/// compares.
fn assert_losses_are_found<K: Key>(
    sent: &[Sent],
    [ingress_lcores, egress_lcores]: [usize; 2],
    carrier: Carrier,
    frame: fn(u32) -> Frame,
    flow: fn(u32) -> K,
) -> Result<(), TestCaseError> {
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
    let end = start + 10 * LENGTH_NS;
    entry.advance_to(end);
    exit.advance_to(end);

    let mut lost: BTreeMap<u64, BTreeMap<K, i64>> = BTreeMap::new();
    for &(at, n, flight) in sent {
        let of_epoch = lost.entry(plan.clock.epoch_at(start + at)).or_default();
        if flight.is_none() {
            *of_epoch.entry(flow(n)).or_default() += 1;
        }
    }
    let family = HashFamily::new(&plan.hash_key);
    let hl = plan.attention.partition.hl_part();
    for (epoch, lost) in lost {
        let mut delta = entry.upstream[&epoch].part(&hl);
        delta.subtract(&exit.downstream[&epoch].part(&hl)).unwrap();
        let decoded = delta.decode(&family);
        prop_assert!(decoded.is_complete());
        prop_assert_eq!(decoded.into_flowset().into_iter().collect::<BTreeMap<_, _>>(), lost);
    }
    let entered: u64 = entry.packets.values().map(|packets| packets.0).sum();
    let left: u64 = exit.packets.values().map(|packets| packets.1).sum();
    prop_assert_eq!(entered, sent.len() as u64);
    prop_assert_eq!(left, sent.iter().filter(|packet| packet.2.is_some()).count() as u64);
    prop_assert_eq!(entry.late_packets + exit.late_packets, 0);
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
