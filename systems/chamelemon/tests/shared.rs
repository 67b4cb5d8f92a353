//! Several systems that hash by the same functions: a burst is hashed once for all of them, and
//! each records what it would have recorded alone.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::{Attention, EgressGroup, Hierarchy, IngressGroup, Layout, SwitchHalf};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::slots::AnySlots;
use calumma_plane::system::{FinishedSide, Groups, LcoreHalf, Notes};
use calumma_plane::worker::{Policy, Worker};
use calumma_plane::{
    Carrier, Counters, Flows, LcoreMerger, LcoreSystem, MarkedRun, Measurement, Part, Record, Run,
    Slots, SwitchSystem, measure,
};
use calumma_sketch::{AnyKey, FermatSketch, FlowKey, HashColumns, HashFamily, HashKey, KeyKind};
use calumma_wire::{Secret, Side};

use common::frame;

const EPOCH_NS: u64 = 50_000_000;
const FIRST_EPOCH: u64 = 100;

fn clock() -> EpochClock {
    EpochClock::new(EPOCH_NS, Guards::default()).unwrap()
}

/// ChameleMon with thresholds of its own, in a deployment with this secret.
fn system(t_h: u32, secret: u8) -> Box<dyn SwitchSystem> {
    let layout = Layout { upstream_buckets: 512, downstream_buckets: 256, ..Layout::default() };
    let attention = Attention { t_h, ..Attention::healthy(&layout, 256) };
    let hash_key = HashKey::from_bytes([secret; 32]);
    let plan =
        SessionPlan { layout, hash_key, clock: clock(), first_epoch: FIRST_EPOCH, attention };
    Box::new(SwitchHalf::new(plan).unwrap())
}

/// What a system has recorded: epoch by epoch, both sides.
#[derive(Debug, Default, PartialEq)]
struct Recorded {
    entered: Vec<(u64, IngressGroup)>,
    left: Vec<(u64, FermatSketch)>,
}

/// Lets the systems measure the same packets for a few epochs, which come back a moment later, so
/// that around a flip a burst carries both bits; gives what each has recorded.
fn measured(systems: Vec<Box<dyn SwitchSystem>>) -> Vec<Recorded> {
    let mut recorded: Vec<Recorded> = systems.iter().map(|_| Recorded::default()).collect();
    let (mut merger, mut mailboxes) = LcoreMerger::new(1);
    merger.begin(clock(), FIRST_EPOCH, Secret::new([1; 32]), KeyKind::Ipv4, systems);
    let mut worker = Worker::new(Policy::default(), Measurement::new(mailboxes.remove(0)));
    let start = clock().start_of(FIRST_EPOCH);
    let mut under_way: Vec<Frame> = Vec::new();
    for burst in 0..400 {
        let now_ns = start + burst * 700_000;
        while worker.next_due_ns() <= now_ns {
            worker.advance_to(worker.next_due_ns());
            for part in merger.poll() {
                let Part::Side { system, epoch, side, record, .. } = part else { continue };
                let of = &mut recorded[system];
                match side {
                    measure::Side::Ingress => {
                        let group = &record.get::<IngressGroup<FlowKey>>().unwrap().group;
                        of.entered.push((epoch, group.clone()));
                    }
                    measure::Side::ByBit => {
                        let group = &record.get::<EgressGroup<FlowKey>>().unwrap().group;
                        // The marks are the last system's, and so is the balance.
                        of.left.push((epoch, group.downstream().clone()));
                    }
                }
                merger.recycle(system, side, record);
            }
        }
        worker.advance_to(now_ns);
        // From few runs to all flows different.
        let mut frames: Vec<Frame> =
            (0..32).map(|at| frame((at * (burst % 5) + burst) % 40)).collect();
        worker.ingress(&mut frames);
        under_way.extend(frames.drain(..).skip(3));
        let arrived = under_way.len().saturating_sub(40);
        let mut leaving: Vec<Frame> = under_way.drain(..arrived).collect();
        for burst in leaving.chunks_mut(32) {
            worker.egress(burst);
        }
    }
    recorded
}

#[test]
fn systems_that_share_hashes_record_what_each_would_alone() {
    let alone: Vec<Recorded> = [(20, 1), (90, 1), (50, 2)]
        .into_iter()
        .flat_map(|(t_h, secret)| measured(vec![system(t_h, secret)]))
        .collect();
    assert!(alone.iter().all(|of| of.entered.len() > 3 && of.left.len() > 3));
    assert!(alone[0] != alone[1], "thresholds make a difference");
    // The one between them has other functions, and shares none.
    let together = measured(vec![system(20, 1), system(50, 2), system(90, 1)]);
    assert_eq!(together[0], alone[0]);
    assert_eq!(together[1], alone[2]);
    assert_eq!(together[2], alone[1]);
}

/// A system that reads hashes where they are at hand, and counts the packets they are of.
#[derive(Clone, Debug)]
struct Reader {
    family: Arc<HashFamily>,
    packets: Arc<AtomicU64>,
}

#[derive(Debug)]
struct ReaderOnLcore {
    reader: Reader,
    shared: bool,
    slots: Slots<Nothing, Nothing>,
}

#[derive(Clone, Debug)]
struct Nothing;

impl Record for Nothing {
    type Plan = ();

    fn begin(&mut self, (): &(), _epoch: u64) {}

    fn plan(&self) -> &() {
        &()
    }

    fn merge(&mut self, _other: &Self) {}

    fn clear(&mut self) {}
}

impl LcoreSystem<FlowKey> for ReaderOnLcore {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.slots
    }

    fn hashes_by(&self) -> Option<&HashFamily> {
        Some(&self.reader.family)
    }

    fn share_hashes(&mut self, shared: bool) {
        self.shared = shared;
    }

    fn enter(&mut self, flows: &mut Flows<FlowKey>, counters: &mut Counters) {
        self.leave(flows, counters);
    }

    fn leave(&mut self, flows: &Flows<FlowKey>, _: &mut Counters) {
        let Some(hashes) = flows.hashes().filter(|_| self.shared) else { return };
        for (at, key) in flows.keys().iter().enumerate() {
            assert_eq!(hashes.of(at), self.reader.family.hash(key));
        }
        self.reader.packets.fetch_add(flows.len() as u64, Ordering::Relaxed);
    }

    fn enter_run(&mut self, _: &FlowKey, packets: u32, _: &mut Counters) -> Run {
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, _: &FlowKey, _: &MarkedRun, _: &mut Counters) {}
}

impl SwitchSystem for Reader {
    fn on_lcore(&self, _: KeyKind) -> AnyKey<LcoreHalf> {
        let (reader, slots) = (self.clone(), Slots::new(FIRST_EPOCH, 1, ()));
        let half: Box<dyn LcoreSystem<FlowKey>> =
            Box::new(ReaderOnLcore { reader, shared: false, slots });
        AnyKey::Ipv4(half)
    }

    fn groups(&self, _: KeyKind) -> Groups {
        let nothing = || Box::new(calumma_plane::Recorded::new(Nothing));
        Groups { ingress: nothing(), by_bit: nothing() }
    }

    fn side(&self, _: FinishedSide<'_>) -> Option<(Side, Notes)> {
        None
    }
}

/// A worker with a reader of the deployment with secret 1 beside others, in an epoch.
fn beside(
    mut systems: Vec<Box<dyn SwitchSystem>>,
    carrier: Carrier,
) -> (Worker, LcoreMerger, Reader) {
    let family = Arc::new(HashFamily::new(&HashKey::from_bytes([1; 32])));
    let reader = Reader { family, packets: Arc::default() };
    systems.push(Box::new(reader.clone()));
    let (mut merger, mut mailboxes) = LcoreMerger::new(1);
    merger.begin(clock(), FIRST_EPOCH, Secret::new([1; 32]), KeyKind::Ipv4, systems);
    let policy = Policy { carrier, ..Policy::default() };
    let mut worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
    worker.advance_to(clock().start_of(FIRST_EPOCH) + EPOCH_NS / 2);
    (worker, merger, reader)
}

/// Packets of which a system of the deployment with secret 1 was given the hashes beside others.
fn read_beside(systems: Vec<Box<dyn SwitchSystem>>) -> u64 {
    let (mut worker, _merger, reader) = beside(systems, Carrier::default());
    for burst in 0..10 {
        let mut frames: Vec<Frame> = (burst..burst + 20).map(frame).collect();
        worker.ingress(&mut frames);
    }
    reader.packets.load(Ordering::Relaxed)
}

#[test]
fn a_burst_is_hashed_for_all_that_hash_alike_and_for_none_alone() {
    assert_eq!(read_beside(vec![system(20, 1)]), 200);
    assert_eq!(read_beside(vec![system(20, 2), system(90, 1)]), 200);
    assert_eq!(read_beside(vec![system(20, 2)]), 0);
    assert_eq!(
        read_beside(vec![system(20, 2), system(90, 2)]),
        0,
        "by other functions than its own"
    );
    assert_eq!(read_beside(Vec::new()), 0);
}

/// A packet that can carry no mark, and that none is taken out of, is not measured: the hashes of
/// those behind it are still theirs.
#[test]
fn hashes_are_those_of_the_packets_that_are_measured() {
    let (mut worker, _merger, reader) = beside(vec![system(20, 1)], Carrier::IpId);
    let mut frames: Vec<Frame> = (0..20).map(frame).collect();
    worker.ingress(&mut frames);
    for fragment in [0, 7] {
        frames[fragment].bytes_mut()[20..22].copy_from_slice(&[0, 9]);
    }
    worker.egress(&mut frames);
    assert_eq!(worker.counters.unmeasured.iter().sum::<u64>(), 2);
    assert_eq!(reader.packets.load(Ordering::Relaxed), 20 + 18);
}

/// A record that is given hashes does not make its own.
#[test]
fn hashes_that_are_at_hand_are_used() {
    let layout = Layout { upstream_buckets: 512, downstream_buckets: 256, ..Layout::default() };
    let attention = Attention::healthy(&layout, 256);
    let [family, other] = [1, 2].map(|byte| HashFamily::new(&HashKey::from_bytes([byte; 32])));
    let keys: Vec<FlowKey> = (0..32).map(|n| FlowKey::from_words(n, 7, 9, 17)).collect();
    let mut hashes = HashColumns::default();
    other.hash_columns(&keys, &mut hashes);
    let group = || IngressGroup::new(&layout, attention, FIRST_EPOCH).unwrap();
    let (mut given, mut own, mut hierarchies) = (group(), group(), [Hierarchy::default(); 32]);
    given.record_hashed(&family, &keys, Some(&hashes), &mut hierarchies);
    own.record_burst(&other, &keys, &mut hierarchies);
    assert_eq!(given, own);
}
