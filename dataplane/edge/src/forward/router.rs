//! One lcore's share of forwarding by routes: what it does with a burst between receiving and
//! sending.
//!
//! Every packet is decided upon ([`decide`](super::decide)), those that go on are measured by where
//! they come from and go to, and wait for a moment in a burst for each port. A packet enters the
//! network when it goes from a host, or from the switch itself, to the fabric; it leaves the
//! network when it comes from the fabric for a host or for the switch itself. From host to host on
//! the same switch it does both. From fabric to fabric it only passes, with the mark it carries.

use crossbeam_channel::{Receiver, Sender};
use dpdk::{Burst, Mbuf};

use super::counters::Reason;
use super::decide::{Decider, Decisions, Task, Verdict};
use super::exchange::{HandOver, Origin, Return};
use super::tables::TablesReader;
use crate::config::Role;
use crate::lcore::PortQueues;
use crate::lcore::forwarder::{Forwarder, first, transmit};
use crate::worker::{DropMask, Worker};

/// Most packets of the slow path's that are taken between two polls of the ports.
const MOST_RETURNS: usize = dpdk::BURST;

/// The ends of an lcore's rings.
#[derive(Debug)]
pub struct Rings {
    /// To the slow path.
    pub to_slow: Sender<HandOver<Mbuf>>,
    /// From the slow path; one lcore of a switch has it.
    pub from_slow: Option<Receiver<Return<Mbuf>>>,
}

/// One lcore's router.
#[derive(Debug)]
pub struct Router {
    tables: TablesReader,
    rings: Rings,
    seed: u64,
    decisions: Decisions,
    /// Packets of the burst under way by what they are to the measurement, where they are of
    /// several kinds.
    to_fabric: Burst,
    to_host: Burst,
    passed: Burst,
    /// Packets that are to be sent, by port.
    out: Vec<Waiting>,
}

/// Packets that wait to be sent by a port.
#[derive(Debug, Default)]
pub struct Waiting {
    /// The packets, in the order in which they were received.
    pub packets: Burst,
    /// Their positions in the burst that was received: bit i stands for the i-th.
    positions: u32,
}

impl Router {
    /// A router for a switch of `ports` ports. `seed` makes it spread flows over next hops
    /// differently than other switches.
    pub fn new(tables: TablesReader, rings: Rings, ports: usize, seed: u64) -> Self {
        Self {
            tables,
            rings,
            seed,
            decisions: Decisions::new(),
            to_fabric: Burst::new(),
            to_host: Burst::new(),
            passed: Burst::new(),
            out: (0..ports).map(|_| Waiting::default()).collect(),
        }
    }

    /// Does everything with a burst from `port` but sending it. It is empty afterwards.
    #[inline]
    pub fn receive(&mut self, worker: &mut Worker, port: usize, role: Role, burst: &mut Burst) {
        let packets = burst.len() as u64;
        let origin = match role {
            Role::Host => {
                worker.counters.host_received += packets;
                Origin::Host
            }
            Role::Fabric => {
                worker.counters.fabric_received += packets;
                Origin::Fabric
            }
        };
        self.route(worker, port, origin, burst);
    }

    /// Takes in the next packet that the slow path gives back, if this lcore is the one that does.
    /// Gives whether there was any.
    pub fn take_return(&mut self, worker: &mut Worker) -> bool {
        let Some(Ok(next)) = self.rings.from_slow.as_ref().map(Receiver::try_recv) else {
            return false;
        };
        match next {
            Return::Free(packet) => drop(packet),
            Return::Send { packet, port } => {
                worker.counters.routed.returned += 1;
                wait(&mut self.out, worker, port, packet, 0);
            }
            Return::Route { packet, port, origin } => {
                worker.counters.routed.returned += 1;
                let mut one = Burst::new();
                let _ = one.push(packet);
                self.route(worker, port, origin, &mut one);
            }
        }
        true
    }

    /// The packets that wait to be sent, by port.
    #[inline]
    pub fn out(&mut self) -> &mut [Waiting] {
        &mut self.out
    }

    /// What the slow path gave back and nobody took; for the end.
    pub fn left_over(&self) -> u64 {
        self.rings
            .from_slow
            .iter()
            .flat_map(Receiver::try_iter)
            .map(|left| match left {
                Return::Free(_) => 0,
                Return::Route { .. } | Return::Send { .. } => 1,
            })
            .sum()
    }

    #[inline]
    fn route(&mut self, worker: &mut Worker, port: usize, origin: Origin, burst: &mut Burst) {
        let tables = self.tables.load();
        let shim = if origin == Origin::Fabric { tables.shim } else { None };
        let own = origin == Origin::Own;
        let decider = Decider { tables, port, own, shim, seed: self.seed };
        decider.decide(burst.as_mut_slice(), &mut self.decisions);
        let routed = &self.decisions.routed;
        let all = first(burst.len());
        let to = match (routed.to_fabric == all, routed.to_host == all) {
            (true, _) => Role::Fabric,
            (_, true) => Role::Host,
            _ => return self.split(worker, port, origin, burst),
        };
        let drops = measure(worker, origin, to, burst.as_mut_slice());
        let ports = &routed.ports[..burst.len()];
        if let Some((&port, others)) = ports.split_first()
            && others.iter().fold(0, |differ, other| differ | (port ^ other)) == 0
            && drops.is_empty()
            && let Some(out) = self.out.get_mut(usize::from(port))
            && out.packets.is_empty()
        {
            out.packets.append(burst);
            out.positions = all;
            return;
        }
        for (at, (packet, &port)) in burst.drain().zip(ports).enumerate() {
            if !drops.drops(at) {
                wait(&mut self.out, worker, port.into(), packet, at);
            }
        }
    }

    /// The same for a burst whose packets don't all go to the same side.
    #[inline(never)]
    fn split(&mut self, worker: &mut Worker, port: usize, origin: Origin, burst: &mut Burst) {
        let Decisions { routed, verdicts, .. } = &mut self.decisions;
        let packets = burst.len();
        let is_in = |set: u32, at: usize| set >> at & 1 == 1;
        let mut passed = 0_u32;
        for (at, packet) in burst.drain().enumerate() {
            // Each has room for all packets of the burst.
            if is_in(routed.to_fabric, at) {
                let _ = self.to_fabric.push(packet);
                continue;
            }
            if is_in(routed.to_host, at) {
                let _ = self.to_host.push(packet);
                continue;
            }
            match verdicts[at] {
                Verdict::Pass(to) => {
                    worker.counters.routed.passed += 1;
                    routed.ports[at] = to;
                    passed |= 1 << at;
                    let _ = self.passed.push(packet);
                }
                Verdict::HandOver(arrived, task) => {
                    let handed = HandOver { packet, port, arrived, origin, task };
                    hand_over(&self.rings, worker, handed);
                }
                Verdict::Drop(reason) => worker.counters.routed.drop_for(reason),
                Verdict::Refuse(arrived, refusal) => {
                    worker.counters.routed.drop_for(refusal.reason());
                    let task = Task::Tell(refusal);
                    let handed = HandOver { packet, port, arrived, origin, task };
                    // Where there is no room, no error is sent.
                    let _ = self.rings.to_slow.try_send(handed);
                }
            }
        }
        let drops_of = |worker: &mut Worker, to, packets: &mut Burst| match packets.is_empty() {
            true => DropMask::default(),
            false => measure(worker, origin, to, packets.as_mut_slice()),
        };
        let fabric_drops = drops_of(worker, Role::Fabric, &mut self.to_fabric);
        let host_drops = drops_of(worker, Role::Host, &mut self.to_host);
        let mut to_fabric = self.to_fabric.drain().enumerate();
        let mut to_host = self.to_host.drain().enumerate();
        let mut to_pass = self.passed.drain();
        for at in 0..packets {
            let packet = if is_in(routed.to_fabric, at) {
                to_fabric.next().filter(|&(nth, _)| !fabric_drops.drops(nth)).map(|of| of.1)
            } else if is_in(routed.to_host, at) {
                to_host.next().filter(|&(nth, _)| !host_drops.drops(nth)).map(|of| of.1)
            } else if is_in(passed, at) {
                to_pass.next()
            } else {
                None
            };
            if let Some(packet) = packet {
                wait(&mut self.out, worker, routed.ports[at].into(), packet, at);
            }
        }
    }

    /// Sends all that waits.
    #[inline]
    fn send(&mut self, worker: &mut Worker, ports: &mut [PortQueues], retries: u32) {
        for (at, out) in self.out.iter_mut().enumerate() {
            if !out.packets.is_empty() {
                let positions = std::mem::take(&mut out.positions);
                transmit(worker, ports, at, &mut out.packets, positions, retries);
            }
        }
    }
}

impl Forwarder for Router {
    #[inline]
    fn forward(&mut self, worker: &mut Worker, ports: &[PortQueues], at: usize, burst: &mut Burst) {
        self.receive(worker, at, ports[at].role, burst);
    }

    #[inline]
    fn flush(
        &mut self,
        worker: &mut Worker,
        ports: &mut [PortQueues],
        _: usize,
        _: &mut Burst,
        retries: u32,
    ) {
        self.send(worker, ports, retries);
    }

    #[inline]
    fn poll(&mut self, worker: &mut Worker, ports: &mut [PortQueues], retries: u32) -> bool {
        for taken in 0..MOST_RETURNS {
            if !self.take_return(worker) {
                return taken > 0;
            }
            self.send(worker, ports, retries);
        }
        true
    }
}

/// Records packets that enter, pass or leave the network; gives those that are dropped for it.
#[inline]
fn measure(worker: &mut Worker, origin: Origin, to: Role, packets: &mut [Mbuf]) -> DropMask {
    match (origin, to) {
        (Origin::Host | Origin::Own | Origin::Left, Role::Fabric) => worker.enter(packets),
        (Origin::Host, Role::Host) => {
            worker.counters.routed.local += packets.len() as u64;
            worker.cross(packets)
        }
        (Origin::Fabric, Role::Host) => worker.exit(packets),
        (Origin::Fabric, Role::Fabric) => {
            worker.transit(packets);
            DropMask::default()
        }
        (Origin::Own | Origin::Left, Role::Host) => DropMask::default(),
    }
}

/// Hands a packet to the slow path. One from the fabric that was not only for its link leaves the
/// network here.
#[inline(never)]
fn hand_over(rings: &Rings, worker: &mut Worker, mut handed: HandOver<Mbuf>) {
    if handed.origin == Origin::Fabric && handed.task != Task::Link {
        let drops = worker.exit(std::slice::from_mut(&mut handed.packet));
        if !drops.is_empty() {
            return;
        }
        handed.origin = Origin::Left;
    }
    match rings.to_slow.try_send(handed) {
        Ok(()) => worker.counters.routed.handed_over += 1,
        Err(_) => worker.counters.routed.drop_for(Reason::SlowPathFull),
    }
}

/// Lets the packet at position `at` of its burst wait to be sent. There is room for all packets of
/// a burst; should one ever not fit, it is counted as if the port's queue were full.
#[inline]
fn wait(out: &mut [Waiting], worker: &mut Worker, port: usize, packet: Mbuf, at: usize) {
    if let Some(out) = out.get_mut(port)
        && out.packets.push(packet).is_ok()
    {
        out.positions |= 1 << at;
    } else {
        worker.counters.dropped_transmit += 1;
    }
}
