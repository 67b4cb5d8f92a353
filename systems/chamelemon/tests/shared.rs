//! Several systems that hash by the same functions: a burst is hashed once for all of them, and
//! each records what it would have recorded alone.

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::{Attention, EgressGroup, Hierarchy, IngressGroup, Layout, SwitchHalf};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::measure::Side;
use calumma_plane::packet::Frame;
use calumma_plane::worker::{Policy, Worker};
use calumma_plane::{LcoreMerger, Measurement, Part, SwitchSystem};
use calumma_sketch::{FlowKey, HashColumns, HashFamily, HashKey, KeyKind};

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

/// A UDP packet of flow `n`.
fn frame(n: u64) -> Frame {
    let mut bytes = vec![0; 42];
    bytes[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 28]);
    bytes[23] = 17;
    bytes[26..38].copy_from_slice(&[10, 0, 0, n as u8, 10, 200, 0, 1, 0x30, 0x39, 0, 80]);
    Frame::new(bytes)
}

/// What a system has recorded: epoch by epoch, both sides.
#[derive(Debug, Default, PartialEq)]
struct Recorded {
    entered: Vec<(u64, IngressGroup)>,
    left: Vec<(u64, EgressGroup)>,
}

/// Lets the systems measure the same packets for a few epochs, which come back a moment later, so
/// that around a flip a burst carries both bits; gives what each has recorded.
fn measured(systems: Vec<Box<dyn SwitchSystem>>) -> Vec<Recorded> {
    let mut recorded: Vec<Recorded> = systems.iter().map(|_| Recorded::default()).collect();
    let (mut merger, mut mailboxes) = LcoreMerger::new(1);
    merger.begin(clock(), FIRST_EPOCH, KeyKind::Ipv4, systems);
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
                    Side::Ingress => {
                        let group = &record.get::<IngressGroup<FlowKey>>().unwrap().group;
                        of.entered.push((epoch, group.clone()));
                    }
                    Side::ByBit => {
                        let group = &record.get::<EgressGroup<FlowKey>>().unwrap().group;
                        of.left.push((epoch, group.clone()));
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
