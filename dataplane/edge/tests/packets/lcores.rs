//! What several lcores measure, merged, is what one lcore would have measured of the same packets:
//! the encoders always, the classifier as sums that stop at a counter's most. And where lcores, or
//! the thread beside them, stand still for long, what was recorded is either sent or counted as
//! discarded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::lcores::{LcoreGroups, Part};
use calumma_chamelemon::{Attention, EgressGroups, IngressGroup, IngressGroups, Layout};
use calumma_edge::measure::Measurement;
use calumma_edge::packet;
use calumma_edge::worker::{Policy, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::merge::Discarded;
use calumma_sketch::{AnyKey, FlowKey, HashKey, Key, Level};
use proptest::prelude::*;

const FIRST_EPOCH: u64 = 100;
const LENGTH_NS: u64 = 50_000_000;

type Frame = packet::Frame<[u8; 42]>;

/// A UDP packet of flow `n` without payload.
fn frame(n: u8) -> Frame {
    let mut bytes = [0; 42];
    bytes[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 28]);
    bytes[23] = 17;
    bytes[26..38].copy_from_slice(&[10, 0, 0, n, 10, 200, 0, 1, 0x30, 0x39, 0, 80]);
    Frame::new(bytes)
}

fn plan() -> SessionPlan {
    let layout = Layout {
        upstream_buckets: 512,
        downstream_buckets: 256,
        // Counters that a few packets fill.
        classifier: vec![Level::new(4, 512), Level::new(8, 128)],
        ..Layout::default()
    };
    SessionPlan {
        // Whatever part of a flow an lcore sees, it goes into the HL encoders.
        attention: Attention { t_h: u32::MAX, ..Attention::healthy(&layout, 256) },
        layout,
        hash_key: HashKey::from_bytes([3; 32]),
        clock: EpochClock::new(LENGTH_NS, Guards::default()).unwrap(),
        first_epoch: FIRST_EPOCH,
    }
}

/// A switch of `lcores` lcores that measures by `plan`.
fn switch(lcores: usize, plan: &SessionPlan) -> (LcoreGroups, Vec<Worker>) {
    let (mut collector, mailboxes) = LcoreGroups::new(lcores);
    collector.begin(plan).unwrap();
    let worker = |mailbox| Worker::new(Policy::default(), Measurement::new(mailbox));
    (collector, mailboxes.into_iter().map(worker).collect())
}

/// Both sides' groups of an epoch.
type Groups = (Option<AnyKey<IngressGroups>>, Option<AnyKey<EgressGroups>>);

/// What a switch of `lcores` lcores measures, epoch by epoch, of packets (when, of which flow) each
/// of which `lcore_of` its number gives a lcore, in bursts of up to `burst`.
fn measured(
    lcores: usize,
    burst: usize,
    packets: &[(u64, u8)],
    lcore_of: impl Fn(usize) -> usize,
) -> BTreeMap<u64, Groups> {
    let plan = plan();
    let start = plan.clock.start_of(FIRST_EPOCH);
    let (mut collector, mut workers) = switch(lcores, &plan);
    let mut groups: BTreeMap<u64, Groups> = BTreeMap::new();
    let mut take_in = |collector: &mut LcoreGroups| {
        for part in collector.poll() {
            match part {
                Part::Ingress { epoch, record, mixed_attention, .. } => {
                    assert!(!mixed_attention);
                    groups.entry(epoch).or_default().0 = Some(record.group.clone());
                    collector.recycle(record);
                }
                Part::Egress { epoch, record, .. } => {
                    groups.entry(epoch).or_default().1 = Some(record.group.clone());
                    collector.recycle(record);
                }
                Part::Sealed { .. } => {}
            }
        }
    };
    let mut waiting: Vec<Vec<Frame>> = vec![Vec::new(); lcores];
    let mut before = start;
    workers.iter_mut().for_each(|worker| worker.advance_to(start));
    for (number, &(at, flow)) in packets.iter().enumerate() {
        let at = start + at;
        let lcore = lcore_of(number) % lcores;
        // A burst holds packets of one moment.
        if at != before || waiting[lcore].len() == burst {
            for (worker, waiting) in workers.iter_mut().zip(&mut waiting) {
                worker.ingress(waiting);
                worker.egress(waiting);
                waiting.clear();
            }
            workers.iter_mut().for_each(|worker| worker.advance_to(at));
            take_in(&mut collector);
        }
        before = at;
        waiting[lcore].push(frame(flow));
    }
    for (worker, waiting) in workers.iter_mut().zip(&mut waiting) {
        worker.ingress(waiting);
        worker.egress(waiting);
    }
    workers.iter_mut().for_each(|worker| worker.advance_to(before + 4 * LENGTH_NS));
    take_in(&mut collector);
    groups
}

/// Packets by what became of them.
#[derive(Debug, Default, PartialEq)]
struct Accounts {
    /// Recorded by the lcores, as they entered and as they left.
    recorded: [u64; 2],
    /// In what the switch finished.
    reported: [u64; 2],
    discarded: Discarded,
}

impl Accounts {
    /// Receives what lcores have finished.
    fn receive(&mut self, collector: &mut LcoreGroups) {
        for part in collector.poll() {
            match part {
                Part::Ingress { record, .. } => {
                    self.reported[0] += record.packets;
                    collector.recycle(record);
                }
                Part::Egress { record, .. } => {
                    self.reported[1] += record.packets;
                    collector.recycle(record);
                }
                Part::Sealed { .. } => {}
            }
        }
    }

    /// With what was discarded, and what lcores have recorded.
    fn finish(mut self, mut collector: LcoreGroups, workers: &[Worker]) -> Self {
        collector.finish();
        self.discarded = collector.discarded();
        for Worker { counters, .. } in workers {
            self.recorded[0] += counters.ingress_recorded;
            self.recorded[1] += counters.egress_recorded;
        }
        self
    }
}

/// Lets a packet enter and leave at each lcore every millisecond for ten epochs, while some stand
/// still: an lcore by its number, or the thread beside them by the number after the last, from a
/// millisecond on, for some milliseconds.
fn accounts(lcores: usize, stalls: &[(usize, u64, u64)]) -> Accounts {
    const MILLISECOND: u64 = 1_000_000;
    let plan = plan();
    let begin = plan.clock.start_of(FIRST_EPOCH - 1);
    let (mut collector, mut workers) = switch(lcores, &plan);
    let mut accounts = Accounts::default();
    // Those who stood still have time to come to an end.
    for millisecond in 0..1500 {
        let stands = |who: usize| {
            stalls.iter().any(|&(standing, from, length)| {
                standing == who && (from..from + length).contains(&millisecond)
            })
        };
        let now = begin + millisecond * MILLISECOND;
        for (at, worker) in workers.iter_mut().enumerate().filter(|(at, _)| !stands(*at)) {
            // A few turns of an lcore's loop: some events wait for another.
            for turn in 0..4 {
                worker.tick(now + 2_000 * turn, true);
            }
            if millisecond < 500 {
                let mut burst = [frame(at as u8)];
                worker.ingress(&mut burst);
                worker.egress(&mut burst);
            }
        }
        if stands(lcores) {
            continue;
        }
        accounts.receive(&mut collector);
    }
    accounts.finish(collector, &workers)
}

#[test]
fn what_one_lcore_recorded_while_another_stood_still_is_counted_as_discarded() {
    let undisturbed = accounts(2, &[]);
    assert_eq!(undisturbed.discarded, Discarded::default());
    assert!(undisturbed.recorded[0] > 800 && undisturbed.recorded == undisturbed.reported);
    let disturbed = accounts(2, &[(1, 120, 350)]);
    assert!(disturbed.discarded.ingress > 50 && disturbed.discarded.egress > 50, "{disturbed:?}");
}

/// Lcores on threads of their own beside the one that receives what they finish, as on a switch:
/// nothing orders what they do but the mailboxes between them. ThreadSanitizer runs it as well.
#[test]
fn threads_hand_over_every_record_once() {
    const LCORES: usize = 3;
    const MILLISECONDS: u64 = 1500;
    let plan = plan();
    let begin = plan.clock.start_of(FIRST_EPOCH - 1);
    let (mut collector, workers) = switch(LCORES, &plan);
    // A time that all read and nobody waits for.
    let now = AtomicU64::new(0);
    let mut accounts = Accounts::default();
    let work = |at: usize, mut worker: Worker| {
        loop {
            let millisecond = now.load(Relaxed);
            for turn in 0..4 {
                worker.tick(begin + millisecond * 1_000_000 + 2_000 * turn, true);
            }
            if millisecond >= MILLISECONDS {
                return worker;
            }
            if millisecond < MILLISECONDS / 2 {
                let mut burst = [frame(at as u8), frame(9)];
                worker.ingress(&mut burst);
                worker.egress(&mut burst);
            }
            std::thread::yield_now();
        }
    };
    let workers: Vec<Worker> = std::thread::scope(|scope| {
        let lcores = workers.into_iter().enumerate();
        let lcores: Vec<_> =
            lcores.map(|(at, worker)| scope.spawn(move || work(at, worker))).collect();
        while now.fetch_add(1, Relaxed) < MILLISECONDS {
            accounts.receive(&mut collector);
            std::thread::sleep(Duration::from_micros(100));
        }
        lcores.into_iter().map(|lcore| lcore.join().unwrap()).collect()
    });
    accounts.receive(&mut collector);
    let Accounts { recorded, reported, discarded } = accounts.finish(collector, &workers);
    assert!(reported[0] > 100, "the machine gave them hardly any time: {reported:?}");
    assert_eq!(recorded, [reported[0] + discarded.ingress, reported[1] + discarded.egress]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_recorded_is_reported_or_discarded_whoever_stands_still(
        lcores in 1usize..4,
        stalls in prop::collection::vec((0usize..4, 0u64..500, 1u64..400), 0..6),
    ) {
        let Accounts { recorded, reported, discarded } = accounts(lcores, &stalls);
        let sums = [reported[0] + discarded.ingress, reported[1] + discarded.egress];
        prop_assert_eq!(recorded, sums);
    }

    #[test]
    fn the_sum_over_lcores_is_what_one_lcore_measures(
        mut packets in prop::collection::vec((0..3 * LENGTH_NS / 1_000_000, 0u8..40), 1..3000),
        lcores in 2usize..5,
        burst in 1usize..33,
        spread: u64,
    ) {
        packets.iter_mut().for_each(|(at, _)| *at *= 1_000_000);
        packets.sort_by_key(|&(at, _)| at);
        let one = measured(1, 32, &packets, |_| 0);
        // Not even the packets of one flow keep together.
        let several = measured(lcores, burst, &packets, |number| {
            (number as u64).wrapping_mul(spread | 1) as usize >> 7
        });
        prop_assert!(one.len() >= 3);
        let recorded: i64 = one.values().flat_map(|(group, _)| group).map(|g| FlowKey::of(g).unwrap().upstream().packets()).sum();
        prop_assert_eq!(recorded, packets.len() as i64);
        // All but by how many lcores it was measured.
        let sums = |of: &BTreeMap<u64, Groups>, most: usize| -> Vec<_> {
            let group = |of: &AnyKey<IngressGroups>| {
                let group: &IngressGroup<FlowKey> = FlowKey::of(of).unwrap();
                assert!(group.lcores() as usize <= most);
                (group.classifier().clone(), group.upstream().clone(), group.balance())
            };
            let each = |(epoch, (ingress, egress)): (&u64, &Groups)| {
                (*epoch, ingress.as_ref().map(group), egress.clone())
            };
            of.iter().map(each).collect()
        };
        prop_assert_eq!(sums(&one, 1), sums(&several, lcores));
    }
}

/// What the switch has finished: epochs, and packets that entered in them.
fn entered(collector: &mut LcoreGroups) -> BTreeMap<u64, u64> {
    let mut entered = BTreeMap::new();
    for part in collector.poll() {
        if let Part::Ingress { epoch, record, .. } = part {
            entered.insert(epoch, record.packets);
        }
    }
    entered
}

/// The clock is set by more than the guard: of the epoch under way nothing is sent, and lcores that
/// notice one after the other measure the same new session.
#[test]
fn a_clock_that_is_set_ends_the_session_on_every_lcore() {
    for by_ns in [-3_000_000_000_i64, -40_000_000, 40_000_000, 3_000_000_000] {
        for noticed_first in [true, false] {
            let mut plan = plan();
            let (mut collector, mut workers) = switch(2, &plan);
            let before = plan.clock.start_of(FIRST_EPOCH + 2) + 20_000_000;
            for worker in &mut workers {
                worker.advance_to(before);
                assert!(!worker.clock_set(-900_000, before), "less than the guard");
                worker.ingress(&mut [frame(1)]);
            }
            assert_eq!(entered(&mut collector), [(100, 0), (101, 0)].into());

            let after = before.saturating_add_signed(by_ns);
            assert!(workers[0].clock_set(by_ns, after));
            workers[0].advance_to(after + 1_000_000);
            assert!(entered(&mut collector).is_empty());
            assert_eq!(collector.take_clock_set(), Some(by_ns));
            plan.first_epoch = plan.clock.first_after_step(after + 2_000_000);
            collector.begin(&plan).unwrap();
            if !noticed_first {
                // It has not read its clock yet, and its time stands still or goes on.
                workers[1].tick(before, true);
            }
            assert!(workers[1].clock_set(by_ns, after + 3_000_000));
            for worker in &mut workers {
                worker.advance_to(plan.clock.start_of(plan.first_epoch) - 5_000_000);
                worker.ingress(&mut [frame(2)]);
                worker.advance_to(plan.clock.start_of(plan.first_epoch) + 5_000_000);
                worker.ingress(&mut [frame(3), frame(4)]);
                worker.advance_to(plan.clock.start_of(plan.first_epoch + 2) + 5_000_000);
            }
            let first = plan.first_epoch;
            assert_eq!(entered(&mut collector), [(first, 4), (first + 1, 0)].into(), "{by_ns}");
            assert_eq!(collector.take_clock_set(), None);
        }
    }
}
