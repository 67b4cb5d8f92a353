//! A switch of some lcores without ports: what its packets come from, and the time that passes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use calumma_edge::config::{PollingConfig, Settings};
use calumma_edge::control::systems::Systems;
use calumma_edge::lcore::forwarder::Forwarder;
use calumma_edge::lcore::{self, PortQueues};
use calumma_edge::live::{Line, Lines, Report};
use calumma_edge::measure::{Mailbox, Measurement};
use calumma_edge::packet;
use calumma_edge::sync::scheduled::{set_now_ns, unix_ns};
use calumma_edge::worker::{Policy, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::sync::scheduled::point;
use calumma_wire::Role;
use dpdk::Burst;
use shuttle::thread;

use super::book::{Book, SYSTEMS};
use super::draw;

/// The first epoch that there is.
const FIRST_EPOCH: usize = 100;

/// Nanoseconds that pass at once, at most: some of them make an epoch.
const MOST_PASS_NS: usize = 3_000_000;

type Frame = packet::Frame<[u8; 42]>;

/// Epochs of 10 ms.
pub(crate) fn clock() -> EpochClock {
    let guards = Guards { clock_ns: 500_000, flight_ns: 2_000_000 };
    EpochClock::new(10_000_000, guards).expect("guards that fit")
}

/// What an lcore goes by.
pub(crate) fn settings() -> Settings {
    let PollingConfig { transmit_retries, .. } = PollingConfig::default();
    Settings { policy: Policy::default(), idle_sleep_us: 10, idle_polls: 3, transmit_retries }
}

/// A UDP packet of a flow of its own.
fn frame(number: u32) -> Frame {
    let mut bytes = [0; 42];
    bytes[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 28]);
    bytes[23] = 17;
    bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 200, 0, 1]);
    bytes[34..38].copy_from_slice(&number.to_be_bytes());
    bytes[38..40].copy_from_slice(&[0, 8]);
    Frame::new(bytes)
}

/// Packets that enter, and leave then or later, in place of those that ports receive.
struct Traffic<'a> {
    stop: &'a AtomicBool,
    on_way: VecDeque<Frame>,
    /// When it was polled first and last.
    polled_ns: Option<(u64, u64)>,
}

impl Forwarder for Traffic<'_> {
    fn forward(&mut self, _: &mut Worker, _: &[PortQueues], _: usize, _: &mut Burst) {}

    fn flush(
        &mut self,
        _: &mut Worker,
        _: &mut [PortQueues],
        _: usize,
        _: &mut Burst,
        _: u32,
        _: impl FnMut() -> u64,
    ) {
    }

    fn poll(
        &mut self,
        worker: &mut Worker,
        _: &mut [PortQueues],
        _: u32,
        _: impl FnMut() -> u64,
    ) -> bool {
        point();
        let (first_ns, _) = self.polled_ns.unwrap_or((unix_ns(), 0));
        self.polled_ns = Some((first_ns, unix_ns()));
        // A switch that stops receives no more of hosts than it can see the end of; here, nothing.
        if !self.stop.load(Relaxed) {
            let numbers: Vec<u32> = (0..draw(3)).map(|_| Book::with(Book::packet)).collect();
            let mut burst: Vec<Frame> = numbers.into_iter().map(frame).collect();
            worker.ingress(&mut burst);
            self.on_way.extend(burst);
        }
        let leave = draw(self.on_way.len() + 1);
        let mut burst: Vec<Frame> = self.on_way.drain(..leave.min(32)).collect();
        worker.egress(&mut burst);
        thread::yield_now();
        false
    }
}

/// Runs a switch of up to three lcores beside what `control` makes of its control thread, until it
/// is asked to stop at a drawn time. What lcores report of their time is held against it.
pub(crate) fn run(control: impl FnOnce(Systems, Lines, &AtomicBool) -> Lines + Send) {
    let clock = clock();
    let begin_ns = clock.start_of(FIRST_EPOCH as u64 - 1) + draw(10_000_000) as u64;
    Book::open(clock, begin_ns);
    let (stop, over, running) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
    let lcores = 1 + draw(3);
    let (systems, mailboxes) = Systems::new(SYSTEMS, Role::Edge, lcores);
    let (lines, ends) = Lines::new(lcores, 1_000_000_000);
    let run_lcore = |mailbox: Mailbox, line: Line| {
        Book::with(Book::begin_lcore);
        let worker = Worker::new(settings().policy, Measurement::new(mailbox));
        let traffic = Traffic { stop: &stop, on_way: VecDeque::new(), polled_ns: None };
        let (finished, traffic) = lcore::run(worker, Vec::new(), traffic, settings(), line, &stop);
        running.fetch_sub(1, Relaxed);
        let (first_ns, last_ns) = traffic.polled_ns.unwrap_or_default();
        (finished.report, last_ns - first_ns)
    };
    let (ended, mut lines) = thread::scope(|scope| {
        let run_lcore = &run_lcore;
        running.store(lcores, Relaxed);
        let lcores: Vec<_> = mailboxes
            .into_iter()
            .zip(ends)
            .map(|(mailbox, line)| scope.spawn(move || run_lcore(mailbox, line)))
            .collect();
        let over = &over;
        let control = scope.spawn(move || control(systems, lines, over));
        // How many steps others have meanwhile: few are a machine that hardly gets to anything.
        let (steps, others) = (1 + draw(60), 1 + draw(30));
        let pass = || {
            set_now_ns(unix_ns() + draw(MOST_PASS_NS) as u64);
            (0..others).for_each(|_| point());
            thread::yield_now();
        };
        (0..steps).for_each(|_| pass());
        Book::with(|book| book.stops = true);
        stop.store(true, Relaxed);
        while running.load(Relaxed) > 0 {
            pass();
        }
        let ended: Vec<_> = lcores.into_iter().map(|of| of.join().expect("an lcore")).collect();
        over.store(true, Relaxed);
        (ended, control.join().expect("the control thread"))
    });
    let (reports, least_ns): (Vec<Report>, Vec<u64>) = ended.into_iter().unzip();
    lines.finish(reports);
    // All their time went by idle, and each part of it is in one of their reports.
    for (report, least_ns) in lines.totals().iter().zip(least_ns) {
        let named = report.profile.named();
        let idle = named.iter().find(|(name, _)| name == "cycles.idle");
        let idle_ns = idle.expect("a profile has that").1;
        assert!(
            (least_ns..=unix_ns() - begin_ns).contains(&idle_ns),
            "{idle_ns} ns, not {least_ns}"
        );
    }
}
