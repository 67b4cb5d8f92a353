//! Two edges whose lcores stand still now and then, for longer than an epoch and at the worst of
//! times: what is reported as certain is what happened, all the same.
//!
//! Time is virtual, and every packet a flow of its own, so that reports can be held against it one
//! by one, whatever epoch an lcore that woke up late put it into.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::frames::{Defects, Egress, Ingress, Upstream};
use calumma_chamelemon::lcores::{LcoreGroups, Part};
use calumma_chamelemon::{Attention, Layout};
use calumma_controller::report::Flow;
use calumma_controller::{Analyser, EdgeInput, EpochInput, EpochReport, Tasks};
use calumma_edge::measure::Measurement;
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::worker::{Policy, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::{AnyKey, HashKey, Level};
use proptest::prelude::*;

const LENGTH_NS: u64 = 50_000_000;
const FIRST: u64 = 1000;
const EPOCHS: u64 = 16;

/// An lcore does one thing after the other: look at the clock, receive, send.
const STEP_NS: u64 = 50_000;

/// Packets are this far apart, and this long on their way.
const GAP_NS: u64 = 400_000;
const FLIGHT_NS: u64 = 300_000;

/// The UDP packet `number`, which is a flow of its own.
fn frame(number: u64) -> Frame {
    let mut bytes = vec![2; 12];
    bytes.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 9, 0, 1]);
    bytes.extend((number as u16).to_be_bytes());
    bytes.extend([0, 80, 0, 8, 0, 0]);
    Frame::new(bytes)
}

fn plan() -> SessionPlan {
    let layout = Layout {
        upstream_buckets: 512,
        downstream_buckets: 384,
        classifier: vec![Level::new(8, 1024)],
        ..Layout::default()
    };
    SessionPlan {
        attention: Attention::healthy(&layout, 128),
        layout,
        hash_key: HashKey::from_bytes([5; 32]),
        clock: EpochClock::new(LENGTH_NS, Guards::default()).unwrap(),
        first_epoch: FIRST,
    }
}

/// An edge of one lcore, its receive queues, and what it has finished.
struct Edge {
    worker: Worker,
    collector: LcoreGroups,
    from_hosts: VecDeque<Frame>,
    /// With the times at which packets arrive.
    from_fabric: VecDeque<(u64, Frame)>,
    /// Stamped, and not sent yet.
    stamped: Vec<Frame>,
    doing: usize,
    stands_until_ns: u64,
    drained: bool,
    sides: BTreeMap<u64, EdgeInput>,
}

impl Edge {
    fn new(plan: &SessionPlan) -> Self {
        let (mut collector, mailboxes) = LcoreGroups::new(1);
        collector.begin(plan).unwrap();
        let [mailbox] = mailboxes.try_into().unwrap();
        Self {
            worker: Worker::new(Policy::default(), Measurement::new(mailbox)),
            collector,
            from_hosts: VecDeque::new(),
            from_fabric: VecDeque::new(),
            stamped: Vec::new(),
            doing: 0,
            stands_until_ns: 0,
            drained: true,
            sides: BTreeMap::new(),
        }
    }

    /// Does its next thing, and gives what it sends.
    fn step(&mut self, now_ns: u64) -> Vec<Frame> {
        if now_ns < self.stands_until_ns {
            return Vec::new();
        }
        self.doing = (self.doing + 1) % 3;
        match self.doing {
            0 => {
                self.worker.tick(now_ns, self.drained);
                self.collect();
            }
            1 => {
                let arrived = self.from_fabric.iter().take_while(|(at_ns, _)| *at_ns <= now_ns);
                let arrived = arrived.count().min(32);
                let mut leaving: Vec<Frame> =
                    self.from_fabric.drain(..arrived).map(|(_, frame)| frame).collect();
                self.worker.egress(&mut leaving);
                let entering = self.from_hosts.len().min(32);
                self.drained = entering < 32 && arrived < 32;
                self.stamped = self.from_hosts.drain(..entering).collect();
                self.worker.ingress(&mut self.stamped);
            }
            _ => return std::mem::take(&mut self.stamped),
        }
        Vec::new()
    }

    /// Keeps what is finished, as the controller gets it.
    fn collect(&mut self) {
        for part in self.collector.poll() {
            match part {
                Part::Ingress { epoch, record, .. } => {
                    let AnyKey::Ipv4(group) = &record.group else { panic!("keys of IPv4") };
                    let side = Ingress {
                        epoch,
                        attention: *group.attention(),
                        defects: Defects { stall_ns: record.stall_ns, ..Defects::default() },
                        packets_in: record.packets,
                        counters: Vec::new(),
                        classifier: group.classifier().clone(),
                        upstream: Upstream::undecoded(group.upstream().clone()),
                        balance: Some(group.balance()),
                        key: None,
                        lcores: Some(group.lcores()),
                    };
                    self.sides.entry(epoch).or_default().ingress = Some(Box::new(side));
                    self.collector.recycle(record);
                }
                Part::Egress { epoch, record, .. } => {
                    let AnyKey::Ipv4(group) = &record.group else { panic!("keys of IPv4") };
                    let (stall_ns, foreign_packets) = (record.stall_ns, record.foreign_packets);
                    let side = Egress {
                        epoch,
                        attention: *group.attention(),
                        defects: Defects { stall_ns, foreign_packets, ..Defects::default() },
                        packets_out: record.packets,
                        counters: Vec::new(),
                        downstream: group.downstream().clone().into(),
                        balance: Some(group.balance()),
                        strays: Some(AnyKey::Ipv4(group.strays())),
                        unmarked: Some(AnyKey::Ipv4(group.unmarked())),
                        key: None,
                    };
                    self.sides.entry(epoch).or_default().egress = Some(Box::new(side));
                    self.collector.recycle(record);
                }
                Part::Sealed { epoch, late_packets, late } => {
                    let side = self.sides.entry(epoch).or_default();
                    side.late_packets = Some(late_packets);
                    side.late = Some(late);
                }
            }
        }
    }
}

/// Sends a packet every so often from the first edge to the second, and loses those that `lost`
/// says. Each stall is of an edge, from a time on, for a time. Gives the reports.
fn reports(stalls: &[(usize, u64, u64)], lost: impl Fn(u64) -> bool) -> Vec<EpochReport> {
    let plan = plan();
    let begin_ns = plan.clock.start_of(FIRST);
    let mut edges = [Edge::new(&plan), Edge::new(&plan)];
    let mut now_ns = begin_ns - LENGTH_NS;
    let mut sent = 0;
    while now_ns < begin_ns + (EPOCHS + 4) * LENGTH_NS {
        now_ns += STEP_NS;
        for &(edge, from_ns, for_ns) in stalls {
            if (now_ns - STEP_NS..now_ns).contains(&(begin_ns + from_ns)) {
                edges[edge].stands_until_ns = now_ns + for_ns;
            }
        }
        if now_ns.is_multiple_of(GAP_NS) && now_ns < begin_ns + EPOCHS * LENGTH_NS {
            edges[0].from_hosts.push_back(frame(sent));
            sent += 1;
        }
        let [first, second] = &mut edges;
        for frame in first.step(now_ns) {
            let number = u16::from_be_bytes([frame.bytes()[34], frame.bytes()[35]]);
            if !lost(number.into()) {
                second.from_fabric.push_back((now_ns + FLIGHT_NS, frame));
            }
        }
        second.step(now_ns);
    }
    // Every flow is a heavy hitter: reports say who entered.
    let tasks = Tasks { heavy_hitter: 0, ..Tasks::default() };
    let mut analyser = Analyser::new(plan.layout, &plan.hash_key, plan.clock, tasks);
    let mut analyse = |epoch| {
        let inputs = edges.iter_mut().zip(["e1", "e2"]).map(|(edge, name)| {
            let side = edge.sides.remove(&epoch).unwrap_or_default();
            EdgeInput { edge: name.to_owned(), ..side }
        });
        let input = EpochInput { epoch, planned: plan.attention, edges: inputs.collect() };
        analyser.analyse(input)
    };
    // An edge that was not there yet when an epoch's packets came says so of the epoch two before.
    (FIRST - 2..FIRST + EPOCHS).map(&mut analyse).skip(2).collect()
}

/// What is wrong with a report that claims to be certain.
fn wrong(report: &EpochReport, lost: impl Fn(u64) -> bool) -> Option<String> {
    if !report.losses_are_exact() {
        return None;
    }
    let number = |flow: &Flow| u64::from(flow.sport);
    let entered = report.edges[0].heavy_hitters.iter().map(|hitter| number(&hitter.flow));
    let truth: BTreeSet<u64> = entered.filter(|&number| lost(number)).collect();
    let named: BTreeSet<u64> = report.loss.iter().map(|loss| number(&loss.flow)).collect();
    let surplus: Vec<u64> = report.surplus.iter().map(|surplus| number(&surplus.flow)).collect();
    (truth != named || !surplus.is_empty()).then(|| {
        let epoch = report.epoch - FIRST;
        format!("epoch {epoch}: lost {truth:?}, named {named:?}, too many {surplus:?}")
    })
}

fn one_in_nine(number: u64) -> bool {
    number.is_multiple_of(9)
}

#[test]
fn where_nobody_stands_still_every_epoch_is_certain() {
    let reports = reports(&[], one_in_nine);
    assert!(reports.iter().all(EpochReport::losses_are_exact), "{reports:?}");
    assert_eq!(reports.iter().find_map(|report| wrong(report, one_in_nine)), None);
    assert!(reports.iter().all(|report| report.loss.len() >= 13));
}

/// The egress edge wakes up when the next epoch with the same timestamp bit has begun, and takes
/// that one's first packets for the old one's.
#[test]
fn packets_that_an_edge_woke_up_too_late_for_are_not_reported_lost() {
    let reports = reports(&[(1, 55 * 1_000_000, 60 * 1_000_000)], one_in_nine);
    assert_eq!(reports.iter().find_map(|report| wrong(report, one_in_nine)), None);
    let certain: Vec<bool> = reports.iter().map(EpochReport::losses_are_exact).collect();
    assert_eq!(certain[..6], [false, false, false, false, true, true]);
    let reasons = reports[2].incomplete_because.join("; ");
    assert!(reasons.contains("e2: its egress rotation out of epoch 1000 came"), "{reasons}");
}

/// The egress edge stands still as soon as it measures, and wakes up when the second epoch was to
/// be armed.
#[test]
fn packets_that_came_before_an_edge_had_armed_its_first_epochs_are_not_reported_lost() {
    for at_us in (40_000..51_000).step_by(50) {
        for from in [0, LENGTH_NS] {
            let reports = reports(&[(1, from, at_us * 1000)], one_in_nine);
            let wrong = reports.iter().find_map(|report| wrong(report, one_in_nine));
            assert_eq!(wrong, None, "{at_us} us from {from}");
        }
    }
}

/// The ingress edge stamps packets, stands still, and sends them an epoch later.
#[test]
fn packets_that_are_sent_an_epoch_late_are_no_surplus_of_another() {
    for at_us in (48_000..50_000).step_by(50) {
        let reports = reports(&[(0, at_us * 1000, 60 * 1_000_000)], one_in_nine);
        assert_eq!(reports.iter().find_map(|report| wrong(report, one_in_nine)), None, "{at_us}");
    }
}

/// Both: packets are sent late, and wait in the queue of an edge that wakes up when the next epoch
/// with their timestamp bit has been armed.
#[test]
fn packets_that_were_sent_late_and_waited_besides_are_no_surplus_either() {
    let stalls = [(0, 49_900_000, 36_000_000), (1, 80_000_000, 25_000_000)];
    let reports = reports(&stalls, one_in_nine);
    assert_eq!(reports.iter().find_map(|report| wrong(report, one_in_nine)), None);
    let reasons = reports[2].incomplete_because.join("; ");
    assert!(reasons.contains("e1: its ingress rotation out of epoch 1000 came"), "{reasons}");
    assert!(!reports[0].complete && reports[4].complete);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_stands_still_what_is_reported_as_certain_is_what_happened(
        stalls in prop::collection::vec(
            (0..2_usize, 0..EPOCHS * LENGTH_NS, 1_000_000..160_000_000_u64), 0..6),
        every in 3..40_u64,
    ) {
        let lost = |number: u64| number.is_multiple_of(every);
        let reports = reports(&stalls, lost);
        prop_assert_eq!(reports.iter().find_map(|report| wrong(report, lost)), None);
    }
}
