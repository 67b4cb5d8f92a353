//! The poll loop: the only place where packets, ports and the clock meet.
//!
//! Per burst it reads the time stamp counter once and makes no system call; per packet it allocates
//! nothing, takes no lock and cannot panic. How packets find their ports is a [`Forwarder`]'s
//! matter, when epochs change [`Worker::tick`]'s; [`pace`] has the clock and the size of bursts,
//! [`meter`] the profile.

pub mod clock;
pub mod emptied;
pub mod exits;
pub mod forwarder;
pub mod meter;
pub mod pace;
pub mod stations;

use std::sync::atomic::{AtomicBool, Ordering};

use calumma_plane::arrival::Polls;
use calumma_plane::int::Instructions;
use calumma_plane::int::around::{Came, Queued};
use dpdk::{Burst, Mbuf, RxQueue, TxQueue};

use self::emptied::Emptied;
use self::forwarder::Forwarder;
use self::meter::Meter;
use self::pace::Pace;
use crate::config::{Role, Settings};
use crate::control::paths::Order;
use crate::live::{Line, Report, ToLcore};
use crate::measure::{Leaving, Moment};
use crate::sync::tsc;
use crate::worker::Worker;

/// By how much the clock may seem to be set between two readings of it: each takes up to 10 us.
const CLOCK_NOISE_NS: u64 = 50_000;

/// One port as this lcore sees it: its own queues.
pub struct PortQueues {
    /// Packets in.
    pub rx: RxQueue,
    /// Packets out.
    pub tx: TxQueue,
    /// Position among the switch's ports; not all of them need be the lcore's.
    pub number: u16,
    /// What is on the other side.
    pub role: Role,
    /// Whether that is a host with a sink of its own.
    pub host_sink: bool,
    /// Between port pairs, position among the lcore's ports of the one that packets from this one
    /// go to.
    pub peer: usize,
    /// When it was polled, where a system asks when packets arrive.
    pub polls: Polls,
    /// Whether that left it empty.
    pub emptied: Emptied,
    /// Between port pairs: bytes that may follow the Ethernet header of a frame with an INT stack.
    pub mtu: u16,
}

impl PortQueues {
    /// Sends packets from the front of `burst`, and tries a full queue `retries` times more. What
    /// it still refuses stays in the burst.
    #[inline]
    pub fn send(&mut self, burst: &mut Burst, retries: u32) {
        self.tx.tx(burst);
        for _ in 0..retries {
            if burst.is_empty() {
                break;
            }
            self.tx.tx(burst);
        }
    }
}

/// What an lcore leaves behind.
pub struct Finished {
    /// Its queues.
    pub ports: Vec<PortQueues>,
    /// What it had not reported yet.
    pub report: Report,
}

/// Polls all ports in turn until `stop` is set, and then on until the epoch under way has been
/// measured to its end. Gives the forwarder back.
pub fn run<F: Forwarder>(
    worker: Worker,
    ports: Vec<PortQueues>,
    forwarder: F,
    settings: Settings,
    line: Line,
    stop: &AtomicBool,
) -> (Finished, F) {
    let mut lcore = Lcore::start(worker, ports, forwarder, settings, line);
    let (mut burst, mut drained, mut host_ports_open) = (Burst::new(), true, true);
    loop {
        lcore.begin_round(drained);
        // After the tick: no packet may enter an epoch that the switch will not see the end of.
        if stop.load(Ordering::Relaxed) {
            match lcore.worker.leave() {
                Leaving::LastEpoch => {}
                Leaving::EgressOnly => host_ports_open = false,
                Leaving::Done => break,
            }
        }
        let mut idle = true;
        drained = true;
        for at in 0..lcore.ports.len() {
            if !host_ports_open && lcore.ports[at].role == Role::Host {
                continue;
            }
            let most = lcore.pace.burst_size();
            let (received, emptied) = lcore.receive(at, &mut burst, most);
            drained &= emptied;
            if received > 0 {
                idle = false;
                lcore.forward(at, &mut burst);
            }
        }
        lcore.end_round(idle);
    }
    lcore.finish()
}

/// What an lcore works with.
struct Lcore<F> {
    worker: Worker,
    ports: Vec<PortQueues>,
    forwarder: F,
    settings: Settings,
    line: Line,
    pace: Pace,
    meter: Meter,
}

impl<F: Forwarder> Lcore<F> {
    fn start(
        mut worker: Worker,
        ports: Vec<PortQueues>,
        forwarder: F,
        settings: Settings,
        mut line: Line,
    ) -> Self {
        worker.set_policy(settings.policy);
        worker.probes = std::mem::take(&mut line.probes);
        let (pace, meter) = (Pace::start(), Meter::start());
        Self { worker, ports, forwarder, settings, line, pace, meter }
    }

    /// Does what is not packets: the control thread's wishes, and what is due at this time.
    /// `drained` says whether the last round left no port's queue with packets in it.
    #[inline(always)]
    fn begin_round(&mut self, drained: bool) {
        let moment = self.pace.moment(self.meter.now());
        let probe = match moment {
            Moment::Millisecond => self.begin_millisecond(),
            _ => None,
        };
        let event = self.worker.tick(self.pace.unix_ns(self.meter.now()), drained);
        self.pace.after(event);
        self.meter.begin_round(if event == Moment::Ordinary { moment } else { event });
        if let Some(probe) = probe {
            self.send_probes(probe);
        }
    }

    /// Asks the control thread, and compares the clocks. Gives a probe that is to be sent; there
    /// may be more behind it.
    fn begin_millisecond(&mut self) -> Option<Order> {
        let probe = self.poll_control();
        let set_by_ns = self.pace.set_by_ns();
        if self.worker.clock_set(set_by_ns, self.pace.anchored_ns()) {
            self.pace.follow();
        }
        if set_by_ns.unsigned_abs() > CLOCK_NOISE_NS {
            // What they noted was by the clock as it was.
            self.ports.iter_mut().for_each(|port| port.polls = Polls::default());
        }
        probe
    }

    /// Receives `most` packets at most from a port, and says of them what systems ask for. Gives
    /// how many there are, and whether that has left its queue empty.
    #[inline(always)]
    fn receive(&mut self, at: usize, burst: &mut Burst, most: usize) -> (usize, bool) {
        let Self { worker, ports, pace, meter, .. } = self;
        let port = &mut ports[at];
        let began_ns = worker.asks_arrivals().then(|| pace.unix_ns(meter.now()));
        let around = worker.asks_around();
        let asks_queue = around & Instructions::QUEUE != 0;
        let waiting = if asks_queue { port.rx.waiting() } else { None };
        let received = port.rx.rx_at_most(burst, most);
        let emptied = port.emptied.after(received, most);
        if let Some(began_ns) = began_ns {
            let over_ns = if received > 0 { pace.unix_ns(tsc()) } else { began_ns };
            let polled = port.polls.polled(began_ns, over_ns, emptied);
            let last = burst.as_slice().last().filter(|_| received > 0);
            let stamp = last.and_then(Mbuf::rx_timestamp);
            worker.arrived(Some(port.polls.stamped(polled, stamp)));
        }
        if received > 0 && around != 0 {
            let queued = asks_queue.then(|| Queued::of_poll(waiting, received, emptied));
            worker.came(Some(Came::by(port.rx.port(), queued)));
        }
        (received, emptied)
    }

    /// Forwards the packets that a port received.
    #[inline(always)]
    fn forward(&mut self, at: usize, burst: &mut Burst) {
        let Self { worker, ports, forwarder, settings, pace, meter, .. } = self;
        pace.received();
        meter.received();
        // A NIC has put the headers into memory, or another CPU's cache.
        burst.prefetch();
        if worker.probes.wants_sample() && ports[at].role == Role::Host {
            worker.probes.sample(burst.as_slice(), at);
        }
        worker.received_by(ports[at].number);
        forwarder.forward(worker, ports, at, burst);
        meter.worked();
        let now_ns = || pace.unix_ns(tsc());
        forwarder.flush(worker, ports, at, burst, settings.transmit_retries, now_ns);
        meter.sent();
    }

    /// Sends what came from elsewhere than ports; sleeps where there is nothing to do.
    #[inline(always)]
    fn end_round(&mut self, mut idle: bool) {
        let Self { worker, ports, forwarder, settings, pace, meter, .. } = self;
        let now_ns = || pace.unix_ns(tsc());
        idle &= !forwarder.poll(worker, ports, settings.transmit_retries, now_ns);
        pace.end_round(idle, settings);
        meter.end_round(idle);
    }

    fn finish(self) -> (Finished, F) {
        let Self { worker, ports, forwarder, meter, .. } = self;
        let report = Report { counters: worker.counters, profile: meter.profile };
        (Finished { ports, report }, forwarder)
    }

    /// Does what the control thread asks for, once a millisecond: takes new settings, and swaps the
    /// profile for an empty one. Copies a few hundred bytes, and allocates nothing. Gives a probe
    /// that is to be sent; there may be more behind it.
    #[cold]
    fn poll_control(&mut self) -> Option<Order> {
        let Self { line, worker, settings, meter, .. } = self;
        while let Ok(message) = line.inbox.try_recv() {
            match message {
                ToLcore::Settings(new) => {
                    *settings = new;
                    worker.set_policy(new.policy);
                }
                ToLcore::Report(mut report) => {
                    report.counters = worker.counters;
                    std::mem::swap(&mut report.profile, &mut meter.profile);
                    // One report is out at a time, so there is room.
                    let _ = line.outbox.try_send(report);
                }
                ToLcore::ProbeKey(key) => worker.probes.set_key(Some(key)),
                ToLcore::Sample => worker.probes.want_sample(),
                ToLcore::Probe(order) => return Some(order),
            }
        }
        None
    }

    /// Lets probes, this one first, go the way of packets that enter by the same port.
    #[cold]
    fn send_probes(&mut self, first: Order) {
        let mut next = Some(first);
        while let Some(order) = next {
            self.send_probe(&order);
            next = self.poll_control();
        }
    }

    fn send_probe(&mut self, order: &Order) {
        let Self { worker, ports, forwarder, line, .. } = self;
        let packet = line.pool.as_ref().and_then(|pool| pool.alloc_with(&order.frame[..order.len]));
        let Some(packet) = packet.filter(|_| order.port < ports.len()) else { return };
        let mut burst = Burst::new();
        // There is room.
        let _ = burst.push(packet);
        worker.probes.send(order.mark);
        forwarder.forward(worker, ports, order.port, &mut burst);
        // A probe has neither stack nor hop.
        forwarder.flush(worker, ports, order.port, &mut burst, 0, || 0);
        worker.probes.sent();
    }
}
