//! Several lcores, one of which hands over before the other, and windows of several lengths: each
//! comes whole, and what an lcore does not finish is kept for a while only.

mod common;

use std::collections::BTreeMap;

use calumma_cfs::frames::Setup;
use calumma_plane::measure::Side;
use calumma_plane::merge::Discarded;
use calumma_plane::worker::{Path, Policy, first};
use calumma_plane::{LcoreMerger, Measurement, Part, Worker, parse};
use calumma_sketch::KeyKind;

use common::{EPOCH_NS, FIRST_EPOCH, begin, clock, flow, frame, secret, session};

/// Epochs of the windows of each system.
const WINDOWS: [u16; 2] = [2, 20];

/// A switch of two lcores, with a system for each length.
struct Switch {
    merger: LcoreMerger,
    workers: Vec<Worker>,
    /// By system and window: packets by side, and seals.
    came: BTreeMap<(usize, u64), (Vec<u64>, usize)>,
}

impl Switch {
    fn new() -> Self {
        let (mut merger, mailboxes) = LcoreMerger::new(2);
        let of = |window_epochs| {
            let (entries, filter_bits) = (256, 1 << 12);
            let setup = Setup { entries, filter_bits, window_epochs, ..Setup::default() };
            begin(&session(1, 2), setup).unwrap()
        };
        let systems = WINDOWS.map(of).into();
        merger.begin(clock(), FIRST_EPOCH, secret(), KeyKind::Dual, systems);
        let worker = |mailbox| Worker::new(Policy::default(), Measurement::new(mailbox));
        let workers = mailboxes.into_iter().map(worker).collect();
        Self { merger, workers, came: BTreeMap::new() }
    }

    /// Lets time run on some lcores, event by event and one lcore after the other, while the
    /// control thread looks between any two.
    fn advance(&mut self, lcores: &[usize], now_ns: u64) {
        loop {
            let due_ns = lcores.iter().map(|&at| self.workers[at].next_due_ns()).min().unwrap();
            for &at in lcores {
                self.workers[at].advance_to(due_ns.min(now_ns));
                self.poll();
            }
            if due_ns > now_ns {
                return;
            }
        }
    }

    fn poll(&mut self) {
        for part in self.merger.poll() {
            match part {
                Part::Side { system, epoch, side, record, .. } => {
                    self.came.entry((system, epoch)).or_default().0.push(record.packets());
                    assert!(side == Side::ByBit || record.packets() == 0);
                    self.merger.recycle(system, side, record);
                }
                Part::Sealed { system, epoch, late_packets, late } => {
                    assert!(late_packets == 0 && late.is_none());
                    self.came.entry((system, epoch)).or_default().1 += 1;
                }
            }
        }
    }

    fn pass(&mut self, lcore: usize) {
        let mut frames = [frame(&flow(lcore as u32, KeyKind::Dual), 64, 20)];
        let (worker, known) = (&mut self.workers[lcore], parse::PlainFlows::NONE);
        worker.begin();
        assert!(worker.pass(Path::Enter, &mut frames, first(1), &known).is_empty());
    }

    /// The windows of a system of which both sides came, and a seal.
    fn whole(&self, system: usize) -> Vec<(u64, u64)> {
        let of_system = self.came.iter().filter(|((of, _), _)| *of == system);
        let whole = of_system.filter(|(_, (sides, seals))| (sides.len(), *seals) == (2, 1));
        whole.map(|((_, epoch), (sides, _))| (*epoch, sides.iter().sum())).collect()
    }
}

#[test]
fn long_windows_come_whole_beside_short_ones_whichever_lcore_is_first() {
    let mut switch = Switch::new();
    let start = clock().start_of(FIRST_EPOCH);
    for epoch in 0..62 {
        switch.advance(&[0, 1], start + epoch * EPOCH_NS + EPOCH_NS / 2);
        (0..2).for_each(|lcore| switch.pass(lcore));
    }
    let windows = |length: u64| {
        let first = (FIRST_EPOCH..FIRST_EPOCH + 60).step_by(length as usize);
        first.map(|epoch| (epoch, 2 * length)).collect::<Vec<_>>()
    };
    assert_eq!((switch.whole(0), switch.whole(1)), (windows(2), windows(20)));
    assert_eq!(switch.merger.discarded(), Discarded::default());
}

/// An lcore that stands still for long leaves its share out of windows that the other has finished:
/// their records are free again after a few windows of the same system.
#[test]
fn what_an_lcore_does_not_finish_is_discarded_after_a_few_windows_of_its_system() {
    let mut switch = Switch::new();
    let start = clock().start_of(FIRST_EPOCH);
    switch.advance(&[0, 1], start + EPOCH_NS / 2);
    (0..2).for_each(|lcore| switch.pass(lcore));
    let discarded = |switch: &mut Switch, epochs: u64| {
        switch.advance(&[0], start + epochs * EPOCH_NS + EPOCH_NS / 2);
        switch.merger.discarded().ingress + switch.merger.discarded().egress
    };
    // Of a window for which no record was left only the seal comes, when the epoch after its next
    // one is armed.
    assert_eq!(discarded(&mut switch, 12), 0);
    assert_eq!(discarded(&mut switch, 13), 1);
    assert_eq!(discarded(&mut switch, 120), 1);
    assert_eq!(discarded(&mut switch, 121), 2);
}
