//! Receive queues that are never found empty put the taking of an epoch off, but not for long.

use calumma_epoch::{EpochClock, Guards};
use calumma_plane::measure::Side;
use calumma_plane::slots::{AnySlots, CountOnly};
use calumma_plane::system::{FinishedSide, Groups, LcoreHalf, Notes, Recorded};
use calumma_plane::worker::Policy;
use calumma_plane::{
    Counters, Flows, LcoreMerger, LcoreSystem, MarkedRun, Measurement, Part, Run, Slots,
    SwitchSystem, Worker,
};
use calumma_sketch::{AnyKey, FlowKey, KeyKind};
use calumma_wire::Secret;

const FIRST: u64 = 100;

/// A system that keeps nothing.
#[derive(Debug)]
struct Idle;

#[derive(Debug)]
struct OnLcore(Slots<CountOnly, CountOnly>);

impl LcoreSystem<FlowKey> for OnLcore {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.0
    }

    fn enter(&mut self, _: &mut Flows<FlowKey>, _: &mut Counters) {}

    fn leave(&mut self, _: &Flows<FlowKey>, _: &mut Counters) {}

    fn enter_run(&mut self, _: &FlowKey, packets: u32, _: &mut Counters) -> Run {
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, _: &FlowKey, _: &MarkedRun, _: &mut Counters) {}
}

impl SwitchSystem for Idle {
    fn on_lcore(&self, _: KeyKind) -> AnyKey<LcoreHalf> {
        let half: Box<dyn LcoreSystem<FlowKey>> = Box::new(OnLcore(Slots::new(FIRST, 1, ())));
        AnyKey::Ipv4(half)
    }

    fn groups(&self, _: KeyKind) -> Groups {
        let nothing = || Box::new(Recorded::new(CountOnly));
        Groups { ingress: nothing(), by_bit: nothing() }
    }

    fn side(&self, _: FinishedSide<'_>) -> Option<(calumma_wire::Side, Notes)> {
        None
    }
}

/// When epochs of this length are taken after that is due, in microseconds, where queues are found
/// empty or never; none may be taken too late.
fn taken_after_us(length_ns: u64, drained: bool) -> Vec<u64> {
    let clock = EpochClock::new(length_ns, Guards::default()).unwrap();
    let (mut merger, mut mailboxes) = LcoreMerger::new(1);
    let systems: Vec<Box<dyn SwitchSystem>> = vec![Box::new(Idle)];
    merger.begin(clock, FIRST, Secret::new([1; 32]), KeyKind::Ipv4, systems);
    let mut worker = Worker::new(Policy::default(), Measurement::new(mailboxes.remove(0)));
    let mut after_us = Vec::new();
    let (begin, end) = (clock.start_of(FIRST - 1), clock.start_of(FIRST + 8));
    for now_ns in (begin..end).step_by(50_000) {
        worker.tick(now_ns, drained);
        for part in merger.poll() {
            let Part::Side { system, epoch, side, record, .. } = part else { continue };
            if side == Side::ByBit {
                assert_eq!(record.stall_ns(), 0, "epoch {epoch}");
                after_us.push((now_ns - clock.take_time(epoch)) / 1000);
            }
            merger.recycle(system, side, record);
        }
    }
    assert!(after_us.len() >= 6, "{after_us:?}");
    after_us
}

#[test]
fn an_epoch_is_taken_in_time_though_queues_are_never_found_empty() {
    for (length_ms, wanted_us) in [(50, 2_000), (16, 2_000), (14, 1_000), (13, 500)] {
        for (drained, wanted_us) in [(true, 0), (false, wanted_us)] {
            let after_us = taken_after_us(length_ms * 1_000_000, drained);
            let fits = |us: &u64| (wanted_us..=wanted_us + 150).contains(us);
            assert!(after_us.iter().all(fits), "{length_ms} ms, {drained}: {after_us:?}");
        }
    }
}
