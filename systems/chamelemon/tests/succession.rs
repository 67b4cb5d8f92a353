//! A system goes on by another hash key while packets flow: nothing that it would have recorded is
//! missing, twice, or hashed by the wrong key.

mod common;

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::{Attention, EgressGroup, IngressGroup, Layout, SwitchHalf};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::packet::Frame;
use calumma_plane::worker::{Policy, Worker};
use calumma_plane::{Counters, LcoreMerger, Measurement, Part, SwitchSystem, measure};
use calumma_sketch::{FlowKey, HashFamily, HashKey, KeyKind};
use calumma_wire::Secret;

use common::frame;

const FIRST_EPOCH: u64 = 100;
const CHANGED: u64 = 104;
const LAST_EPOCH: u64 = 108;

fn clock() -> EpochClock {
    EpochClock::new(50_000_000, Guards::default()).unwrap()
}

fn layout() -> Layout {
    Layout { upstream_buckets: 512, downstream_buckets: 256, ..Layout::default() }
}

fn key(secret: u8) -> HashKey {
    HashKey::from_bytes([secret; 32])
}

/// ChameleMon in a deployment with this secret, from `first_epoch` on.
fn system(secret: u8, first_epoch: u64) -> Box<dyn SwitchSystem> {
    let (layout, hash_key) = (layout(), key(secret));
    let attention = Attention::healthy(&layout, 256);
    let plan = SessionPlan { layout, hash_key, clock: clock(), first_epoch, attention };
    Box::new(SwitchHalf::new(plan).unwrap())
}

/// What comes of a run: each finished side with its packets and whether it decodes by the key of
/// its epoch, each seal with its late packets, and what the lcores have counted.
#[derive(Debug, PartialEq)]
struct Run {
    sides: Vec<(u64, bool, u64)>,
    seals: Vec<(u64, u64)>,
    counters: Counters,
}

/// Lets packets enter and come back a moment later, so that around a flip a burst carries both bits
/// and a few come late. The key changes where it is to, of which the lcores learn in epoch `asked`.
fn run(asked: Option<u64>) -> Run {
    let (mut merger, mailboxes) = LcoreMerger::new(2);
    let secret = |byte| Secret::new([byte; 32]);
    merger.begin(clock(), FIRST_EPOCH, secret(1), KeyKind::Ipv4, vec![system(1, FIRST_EPOCH)]);
    let worker = |mailbox| Worker::new(Policy::default(), Measurement::new(mailbox));
    let mut workers: Vec<Worker> = mailboxes.into_iter().map(worker).collect();
    let mut out = Run { sides: Vec::new(), seals: Vec::new(), counters: Counters::default() };
    let mut under_way = [Vec::new(), Vec::new()];
    let (mut left, mut asked) = (Vec::new(), asked);
    let mut now_ns = clock().arm_time(FIRST_EPOCH) - 1_000_000;
    for burst in 0_u64.. {
        now_ns += 700_000;
        let epoch = clock().epoch_at(now_ns);
        if epoch == LAST_EPOCH {
            break;
        }
        if asked.take_if(|asked| epoch == *asked).is_some() {
            merger.sign(CHANGED, secret(2));
            left.push(merger.succeed(0, CHANGED, system(2, CHANGED)).unwrap());
        }
        for (worker, under_way) in workers.iter_mut().zip(&mut under_way) {
            worker.advance_to(now_ns);
            if epoch >= FIRST_EPOCH {
                let mut frames: Vec<Frame> =
                    (0..32).map(|at| frame(at % (burst % 32 + 1))).collect();
                worker.ingress(&mut frames);
                under_way.append(&mut frames);
            }
            // Some lie in a queue until their epoch is over and more.
            let kept = if (40..110).contains(&(burst % 150)) { 2500 } else { 40 };
            let arrived = under_way.len().saturating_sub(kept);
            let mut leaving: Vec<Frame> = under_way.drain(..arrived).collect();
            for burst in leaving.chunks_mut(32) {
                worker.egress(burst);
            }
        }
        for part in merger.poll() {
            match part {
                Part::Side { system, epoch, side, record, mixed_plan, .. } => {
                    assert!(!mixed_plan);
                    let is_new = left.first() == Some(&system);
                    assert_eq!(is_new, !left.is_empty() && epoch >= CHANGED, "epoch {epoch}");
                    let family = HashFamily::new(&key(if is_new { 2 } else { 1 }));
                    let hh = Attention::healthy(&layout(), 256).partition.hh_part();
                    let decodes = match side {
                        measure::Side::Ingress => {
                            let group = &record.get::<IngressGroup<FlowKey>>().unwrap().group;
                            group.upstream().part(&hh).decode(&family).is_complete()
                        }
                        measure::Side::ByBit => record.get::<EgressGroup<FlowKey>>().is_some(),
                    };
                    assert!(decodes, "epoch {epoch}, {side:?}");
                    out.sides.push((epoch, side == measure::Side::Ingress, record.packets()));
                    merger.recycle(system, side, record);
                }
                Part::Sealed { system, epoch, late_packets, late } => {
                    out.seals.push((epoch, late_packets));
                    late.into_iter().for_each(|late| merger.recycle_late(system, late));
                }
            }
        }
    }
    out.sides.sort_unstable();
    out.seals.sort_unstable();
    workers.iter().for_each(|worker| out.counters += &worker.counters);
    out
}

#[test]
fn a_change_of_the_key_adds_and_takes_away_nothing() {
    let usual = run(None);
    assert!(usual.sides.len() > 10 && usual.counters.egress_late > 1000, "{usual:?}");
    let counted = usual.counters;
    let left = counted.egress_recorded + counted.egress_late + counted.egress_unrecorded;
    assert_eq!(left, counted.fabric_received);
    for asked in [101, 102] {
        let changed = run(Some(asked));
        assert_eq!(changed.sides, usual.sides, "asked in {asked}");
        assert_eq!(changed.seals, usual.seals, "asked in {asked}");
        assert_eq!(changed.counters, usual.counters, "asked in {asked}");
    }
}

/// Lcores that learn of it too late hash by the old key as long as they must, and whoever merges
/// them sees that.
#[test]
fn a_change_that_comes_too_late_is_seen() {
    let (mut merger, mailboxes) = LcoreMerger::new(1);
    let first = vec![system(1, FIRST_EPOCH)];
    merger.begin(clock(), FIRST_EPOCH, Secret::new([1; 32]), KeyKind::Ipv4, first);
    let mut worker =
        Worker::new(Policy::default(), Measurement::new(mailboxes.into_iter().next().unwrap()));
    let mut by_new = Vec::new();
    for epoch in FIRST_EPOCH..LAST_EPOCH {
        worker.advance_to(clock().start_of(epoch) + 10_000_000);
        if epoch == CHANGED + 1 {
            assert_eq!(merger.succeed(0, CHANGED, system(2, CHANGED)), Ok(1));
        }
        for part in merger.poll() {
            if let Part::Side { system, epoch, side, record, .. } = part {
                by_new.push((epoch, system == 1));
                merger.recycle(system, side, record);
            }
        }
    }
    by_new.sort_unstable();
    by_new.dedup();
    // The epoch that had been armed already, and the one under way, are the old one's.
    assert!(by_new.iter().all(|&(epoch, new)| new == (epoch > CHANGED + 1)), "{by_new:?}");
    assert!(by_new.iter().any(|&(_, new)| new), "{by_new:?}");
}
