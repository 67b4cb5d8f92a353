//! The poll loop: the only place where packets, ports and the clock meet.
//!
//! Per burst it reads the time stamp counter once and makes no system call; per packet it allocates
//! nothing, takes no lock and cannot panic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dpdk::{Burst, RxQueue, TxQueue};

use crate::config::{Role, Settings};
use crate::control::unix_ns;
use crate::forward::router::Router;
use crate::live::{Line, Report, ToLcore};
use crate::measure::{Leaving, Moment};
use crate::profile::Profile;
use crate::worker::{DropMask, Worker};

/// Packets that are received at once where something happens to the epochs, and after it: what they meet
/// lies further from the CPU than usual, so that 32 would take longer than in other bursts. Vector drivers
/// receive no fewer.
const SMALL_BURST: usize = 8;

/// How many such bursts there are, the one before which it happens included.
const SMALL_BURSTS: u32 = 4;

/// One port as this lcore sees it: its own queues.
pub struct PortQueues {
    /// Packets in.
    pub rx: RxQueue,
    /// Packets out.
    pub tx: TxQueue,
    /// What is on the other side.
    pub role: Role,
    /// Between port pairs, position among the lcore's ports of the one that packets from this one go to.
    pub peer: usize,
}

/// What an lcore leaves behind.
pub struct Finished {
    /// Its queues.
    pub ports: Vec<PortQueues>,
    /// What it had not reported yet.
    pub report: Report,
    /// Its router, where packets are forwarded by routes.
    pub router: Option<Router>,
}

/// Polls all ports in turn until `stop` is set, and then on until the epoch under way has been
/// measured to its end.
pub fn run(
    mut worker: Worker,
    mut ports: Vec<PortQueues>,
    mut router: Option<Router>,
    mut settings: Settings,
    line: &Line,
    stop: &AtomicBool,
) -> Finished {
    let mut clock = TscClock::new();
    let mut profile = Box::new(Profile::new(dpdk::tsc_hz()));
    let mut burst = Burst::new();
    let mut drained = true;
    let mut small_bursts = 0;
    let mut idle_polls = 0_u32;
    let mut host_ports_open = true;
    let mut tsc = dpdk::tsc();
    worker.set_policy(settings.policy);
    loop {
        let mut began = tsc;
        let mut moment = Moment::Ordinary;
        if clock.is_due(tsc) {
            moment = if clock.was_halfway() {
                Moment::Instant
            } else {
                clock.anchor();
                listen(line, &mut worker, &mut settings, &mut profile);
                Moment::Millisecond
            };
        }
        let happened = worker.tick(clock.unix_ns(tsc), drained);
        if happened != Moment::Ordinary {
            moment = happened;
            small_bursts = SMALL_BURSTS;
        }
        // After the tick: no packet may enter an epoch that the switch will not see the end of.
        if stop.load(Ordering::Relaxed) {
            match worker.leave() {
                Leaving::LastEpoch => {}
                Leaving::EgressOnly => host_ports_open = false,
                Leaving::Done => break,
            }
        }
        drained = true;
        let mut idle = true;
        for at in 0..ports.len() {
            if ports[at].role == Role::Host && !host_ports_open {
                continue;
            }
            let most = if small_bursts > 0 { SMALL_BURST } else { burst.capacity() };
            let received = ports[at].rx.rx_at_most(&mut burst, most);
            if received == 0 {
                continue;
            }
            small_bursts = small_bursts.saturating_sub(1);
            let sampled = profile.samples();
            let polled = if sampled { dpdk::tsc() } else { 0 };
            idle = false;
            drained &= received < most;
            // A NIC has put the headers into memory, or another CPU's cache.
            burst.prefetch();
            match &mut router {
                Some(router) => router.forward(&mut worker, at, ports[at].role, &mut burst),
                None => {
                    let drops = match ports[at].role {
                        Role::Host => worker.ingress(burst.as_mut_slice()),
                        Role::Fabric => worker.egress(burst.as_mut_slice()),
                    };
                    discard(&mut burst, drops);
                }
            }
            let worked = if sampled { dpdk::tsc() } else { 0 };
            match &mut router {
                Some(router) => {
                    transmit_all(&mut worker, &mut ports, router, settings.transmit_retries);
                }
                None => {
                    let peer = ports[at].peer;
                    let tx = &mut ports[peer].tx;
                    transmit(&mut worker, tx, &mut burst, settings.transmit_retries);
                }
            }
            tsc = dpdk::tsc();
            profile.burst(tsc - began, moment);
            if sampled {
                profile.stages(polled - began, worked - polled, tsc - worked);
            }
            (began, moment) = (tsc, Moment::Ordinary);
        }
        if let Some(router) = &mut router
            && router.take_returns(&mut worker)
        {
            transmit_all(&mut worker, &mut ports, router, settings.transmit_retries);
            idle = false;
        }
        idle_polls = if idle { idle_polls.saturating_add(1) } else { 0 };
        if idle_polls >= settings.idle_polls && settings.idle_sleep_us > 0 {
            std::thread::sleep(Duration::from_micros(settings.idle_sleep_us.into()));
        }
        if idle {
            let woken = dpdk::tsc();
            profile.idle(woken - tsc);
            tsc = woken;
        }
    }
    Finished { ports, router, report: Report { counters: worker.counters, profile } }
}

/// Does what the control thread asks for, once a millisecond: takes new settings, and swaps the
/// profile for an empty one. Copies a few hundred bytes, and allocates nothing.
#[cold]
fn listen(line: &Line, worker: &mut Worker, settings: &mut Settings, profile: &mut Box<Profile>) {
    while let Ok(message) = line.inbox.try_recv() {
        match message {
            ToLcore::Settings(new) => {
                *settings = new;
                worker.set_policy(new.policy);
            }
            ToLcore::Report(mut report) => {
                report.counters = worker.counters;
                std::mem::swap(&mut report.profile, profile);
                // One report is out at a time, so there is room.
                let _ = line.outbox.try_send(report);
            }
        }
    }
}

/// Frees the packets that `drops` names.
#[inline]
fn discard(burst: &mut Burst, drops: DropMask) {
    if !drops.is_empty() {
        let mut at = 0;
        burst.retain(|_| {
            at += 1;
            !drops.drops(at - 1)
        });
    }
}

/// Sends the burst; what a full queue still refuses after all retries is dropped and counted.
#[inline]
fn transmit(worker: &mut Worker, tx: &mut TxQueue, burst: &mut Burst, retries: u32) {
    let mut sent = tx.tx(burst);
    for _ in 0..retries {
        if burst.is_empty() {
            break;
        }
        sent += tx.tx(burst);
    }
    worker.counters.transmitted += sent as u64;
    worker.counters.dropped_transmit += burst.len() as u64;
    burst.clear();
}

/// Sends all that a router has put out.
#[inline]
fn transmit_all(worker: &mut Worker, ports: &mut [PortQueues], router: &mut Router, retries: u32) {
    for (port, out) in ports.iter_mut().zip(router.out()) {
        if !out.is_empty() {
            transmit(worker, &mut port.tx, out, retries);
        }
    }
}

/// The system's time, read off the time stamp counter: a handful of nanoseconds instead of the tens
/// that a call of the system's clock takes.
///
/// Tied to the system's clock anew every millisecond, so that its corrections are followed; never
/// runs backwards.
struct TscClock {
    anchor_tsc: u64,
    anchor_ns: u64,
    next_anchor_tsc: u64,
    /// That, or the middle of the time until then where it is still to come.
    due_tsc: u64,
    ticks_a_ms: u64,
    /// Nanoseconds a tick, times 2^32.
    scale: u128,
    last_ns: u64,
}

impl TscClock {
    fn new() -> Self {
        let hz = dpdk::tsc_hz().max(1);
        let mut clock = Self {
            anchor_tsc: 0,
            anchor_ns: 0,
            next_anchor_tsc: 0,
            due_tsc: 0,
            ticks_a_ms: hz / 1000,
            scale: (1_000_000_000_u128 << 32) / u128::from(hz),
            last_ns: 0,
        };
        while clock.anchor_ns == 0 {
            clock.anchor();
        }
        clock
    }

    /// Reads both clocks. Where the lcore was off its CPU between the readings they don't belong
    /// together, and the old anchor holds a little longer.
    #[cold]
    fn anchor(&mut self) {
        let before = dpdk::tsc();
        let now_ns = unix_ns();
        let after = dpdk::tsc();
        if after - before < self.ticks_a_ms / 100 {
            self.anchor_tsc = before + (after - before) / 2;
            self.anchor_ns = now_ns;
            self.next_anchor_tsc = after + self.ticks_a_ms;
            self.due_tsc = after + self.ticks_a_ms / 2;
        }
    }

    /// Whether the last anchor is a millisecond old, or half of one for the first time.
    #[inline]
    fn is_due(&self, tsc: u64) -> bool {
        tsc >= self.due_tsc
    }

    /// Of what is due: whether it was half a millisecond, at which nothing is to be done.
    #[inline]
    fn was_halfway(&mut self) -> bool {
        let halfway = self.due_tsc < self.next_anchor_tsc;
        self.due_tsc = self.next_anchor_tsc;
        halfway
    }

    /// The time at which the counter read `tsc`, a moment ago.
    #[inline]
    fn unix_ns(&mut self, tsc: u64) -> u64 {
        let ticks = tsc.saturating_sub(self.anchor_tsc);
        let now_ns = self.anchor_ns + ((u128::from(ticks) * self.scale) >> 32) as u64;
        self.last_ns = self.last_ns.max(now_ns);
        self.last_ns
    }
}
