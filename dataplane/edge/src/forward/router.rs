//! One lcore's share of forwarding by routes: what it does with a burst between receiving and sending.
//!
//! Every packet is decided upon ([`decide`](super::decide)), those that go on are measured by where
//! they come from and go to, and wait for a moment in a burst for each port. A packet enters the
//! network when it goes from a host, or from the switch itself, to the fabric; it leaves the network
//! when it comes from the fabric for a host or for the switch itself. From host to host on the same
//! switch it does both. From fabric to fabric it only passes, with the mark it carries.

use crossbeam_channel::{Receiver, Sender};
use dpdk::{Burst, Mbuf};

use super::counters::Reason;
use super::decide::{Arrived, Decider, Task, Verdict};
use super::exchange::{HandOver, Origin, Return};
use super::tables::TablesReader;
use crate::config::Role;
use crate::worker::Worker;

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
    /// Packets of the burst under way, by what they are to the measurement.
    to_fabric: Staged<u16>,
    to_host: Staged<u16>,
    to_slow: Staged<(Arrived, Task)>,
    /// Packets that are to be sent, by port.
    out: Vec<Burst>,
}

/// Packets, and where each goes.
#[derive(Debug)]
struct Staged<T> {
    packets: Burst,
    to: [T; dpdk::BURST],
}

impl<T: Copy> Staged<T> {
    fn new(nowhere: T) -> Self {
        Self { packets: Burst::new(), to: [nowhere; dpdk::BURST] }
    }

    /// Adds a packet. There is room for a whole burst, and no more of it is ever staged.
    #[inline]
    fn push(&mut self, packet: Mbuf, to: T) {
        if let Some(place) = self.to.get_mut(self.packets.len()) {
            *place = to;
            let _ = self.packets.push(packet);
        }
    }
}

impl Router {
    /// A router for a switch of `ports` ports. `seed` makes it spread flows over next hops differently
    /// than other switches.
    pub fn new(tables: TablesReader, rings: Rings, ports: usize, seed: u64) -> Self {
        Self {
            tables,
            rings,
            seed,
            to_fabric: Staged::new(0),
            to_host: Staged::new(0),
            to_slow: Staged::new((0, Task::Own)),
            out: (0..ports).map(|_| Burst::new()).collect(),
        }
    }

    /// Does everything with a burst from `port` but sending it. It is empty afterwards.
    #[inline]
    pub fn forward(&mut self, worker: &mut Worker, port: usize, role: Role, burst: &mut Burst) {
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

    /// Takes in what the slow path gives back, if this lcore is the one that does. Gives whether there
    /// was anything.
    pub fn take_returns(&mut self, worker: &mut Worker) -> bool {
        for taken in 0..MOST_RETURNS {
            let next = match &self.rings.from_slow {
                Some(from_slow) => from_slow.try_recv(),
                None => return false,
            };
            match next {
                Err(_) => return taken > 0,
                Ok(Return::Free(packet)) => drop(packet),
                Ok(Return::Send { packet, port }) => {
                    worker.counters.routed.returned += 1;
                    push_out(&mut self.out, worker, port, packet);
                }
                Ok(Return::Route { packet, port, origin }) => {
                    worker.counters.routed.returned += 1;
                    let mut one = Burst::new();
                    let _ = one.push(packet);
                    self.route(worker, port, origin, &mut one);
                }
            }
        }
        true
    }

    /// The packets that wait to be sent, a burst for each port.
    #[inline]
    pub fn out(&mut self) -> &mut [Burst] {
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
        let mut verdicts = [Verdict::Drop(Reason::Header); dpdk::BURST];
        let tables = self.tables.load();
        let shim = if origin == Origin::Fabric { tables.shim } else { None };
        let own = origin == Origin::Own;
        let decider = Decider { tables, port, own, shim, seed: self.seed };
        decider.decide(burst.as_mut_slice(), &mut verdicts);
        let counters = &mut worker.counters.routed;
        for (packet, verdict) in burst.drain().zip(&verdicts) {
            match *verdict {
                Verdict::Send(interface) => match tables.interface(interface) {
                    Some(out) if out.role == Role::Fabric => self.to_fabric.push(packet, out.port),
                    Some(out) => self.to_host.push(packet, out.port),
                    None => counters.drop_for(Reason::NoInterface),
                },
                Verdict::Pass(to) => {
                    counters.passed += 1;
                    match self.out.get_mut(usize::from(to)).map(|out| out.push(packet)) {
                        Some(Ok(())) => {}
                        _ => worker.counters.dropped_transmit += 1,
                    }
                }
                Verdict::HandOver(arrived, task) => self.to_slow.push(packet, (arrived, task)),
                Verdict::Drop(reason) => counters.drop_for(reason),
                Verdict::Refuse(arrived, refusal) => {
                    counters.drop_for(refusal.reason());
                    let task = Task::Tell(refusal);
                    // Where there is no room, nobody is told.
                    let _ = self.rings.to_slow.try_send(HandOver {
                        packet,
                        port,
                        arrived,
                        origin,
                        task,
                    });
                }
            }
        }
        self.measure_and_stage(worker, origin);
        self.hand_over(worker, port, origin);
    }

    /// Records what enters and leaves the network.
    #[inline]
    fn measure_and_stage(&mut self, worker: &mut Worker, origin: Origin) {
        if !self.to_fabric.packets.is_empty() {
            let packets = self.to_fabric.packets.as_mut_slice();
            let drops = match origin {
                Origin::Host | Origin::Own | Origin::Left => worker.enter(packets),
                Origin::Fabric => Default::default(),
            };
            for (at, packet) in self.to_fabric.packets.drain().enumerate() {
                if !drops.drops(at) {
                    push_out(&mut self.out, worker, self.to_fabric.to[at].into(), packet);
                }
            }
        }
        if !self.to_host.packets.is_empty() {
            let packets = self.to_host.packets.as_mut_slice();
            let drops = match origin {
                Origin::Host => {
                    worker.counters.routed.local += packets.len() as u64;
                    worker.cross(packets)
                }
                Origin::Fabric => worker.exit(packets),
                Origin::Own | Origin::Left => Default::default(),
            };
            for (at, packet) in self.to_host.packets.drain().enumerate() {
                if !drops.drops(at) {
                    push_out(&mut self.out, worker, self.to_host.to[at].into(), packet);
                }
            }
        }
    }

    /// Hands packets to the slow path.
    #[inline]
    fn hand_over(&mut self, worker: &mut Worker, port: usize, origin: Origin) {
        if self.to_slow.packets.is_empty() {
            return;
        }
        for (mut packet, &(arrived, task)) in self.to_slow.packets.drain().zip(&self.to_slow.to) {
            let mut origin = origin;
            if origin == Origin::Fabric && task != Task::Link {
                let drops = worker.exit(std::slice::from_mut(&mut packet));
                if !drops.is_empty() {
                    continue;
                }
                origin = Origin::Left;
            }
            let handed = HandOver { packet, port, arrived, origin, task };
            match self.rings.to_slow.try_send(handed) {
                Ok(()) => worker.counters.routed.handed_over += 1,
                Err(_) => worker.counters.routed.drop_for(Reason::SlowPathFull),
            }
        }
    }
}

/// Lets a packet wait to be sent. There is room for all packets of a burst; should one ever not fit,
/// it is counted as if the port's queue were full.
#[inline]
fn push_out(out: &mut [Burst], worker: &mut Worker, port: usize, packet: Mbuf) {
    match out.get_mut(port).map(|out| out.push(packet)) {
        Some(Ok(())) => {}
        _ => worker.counters.dropped_transmit += 1,
    }
}
