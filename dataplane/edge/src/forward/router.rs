//! One lcore's share of forwarding by routes: what it does with a burst between receiving and
//! sending.
//!
//! Every packet is decided upon ([`decide`](super::decide)), those that go on are measured by where
//! they come from and go to, and wait for a moment in a burst for each port. A packet enters the
//! network when it goes from a host, or from the switch itself, to the fabric; it leaves the
//! network when it comes from the fabric for a host or for the switch itself. From host to host on
//! the same switch it does both. From fabric to fabric it only passes, with the mark it carries.
//! What goes to a port without being routed, as multicast may, is measured in the same way.

use calumma_plane::int::Instructions;
use calumma_plane::int::around::Going;
use calumma_plane::sync::Receiver;
use calumma_sketch::BURST;
use dpdk::{Burst, Mbuf};

use super::advice::{Advice, Copied};
use super::counters::Reason;
use super::decide::{Decider, Decisions, Task, Verdict};
use super::exchange::{HandOver, Origin, Return, ToSlow};
use super::header;
use super::routed::Routed;
use super::shorten::{Lost, shorten};
use super::tables::{Tables, TablesReader};
use super::unrouted::{Unrouted, measure_again};
use crate::config::Role;
use crate::lcore::PortQueues;
use crate::lcore::exits::Exits;
use crate::lcore::forwarder::{Forwarder, transmit};
use crate::parse::PlainFlows;
use crate::worker::{Departure, DropMask, Path, Sent, Worker, first};

/// Most packets of the slow path's that are taken between two polls of the ports.
const MOST_RETURNS: usize = dpdk::BURST;

/// The ends of an lcore's rings.
#[derive(Debug)]
pub struct Rings {
    /// To the slow path.
    pub to_slow: ToSlow<Mbuf>,
    /// From the slow path; one lcore of a switch has it.
    pub from_slow: Option<Receiver<Return<Mbuf>>>,
}

/// One lcore's router.
#[derive(Debug)]
pub struct Router {
    tables: TablesReader,
    routing: Routing,
}

/// What a router has beside its tables. Those are read once a burst and lent to it: a burst is
/// decided by the tables whose number it is handed over with.
#[derive(Debug)]
struct Routing {
    rings: Rings,
    seed: u64,
    decisions: Decisions,
    /// Packets that are to be sent, by port.
    out: Vec<Waiting>,
    /// Ports behind which hosts have sinks of their own.
    sinks: Sinks,
    /// Where hosts are sent the MTU that leaves room for INT stacks.
    advice: Option<Advice>,
    /// What INT stacks say of the ports that packets go by.
    exits: Exits,
}

/// By port, whether a host with a sink of its own is behind it.
#[derive(Debug, Default)]
struct Sinks {
    ports: Vec<bool>,
    any: bool,
}

impl Sinks {
    fn has(&self, port: usize) -> bool {
        self.ports.get(port).copied().unwrap_or(false)
    }

    /// Those of a burst's packets for hosts that go to such a port.
    #[inline]
    fn of(&self, routed: &Routed) -> u32 {
        if !self.any {
            return 0;
        }
        let goes = |at: usize| self.has(routed.ports[at].into());
        (0..BURST)
            .filter(|&at| routed.to_host >> at & 1 == 1 && goes(at))
            .fold(0, |of, at| of | 1 << at)
    }
}

/// Packets that wait to be sent by a port.
#[derive(Debug, Default)]
struct Waiting {
    /// The packets, in the order in which they were received.
    packets: Burst,
    /// Their positions in the burst that was received: bit i stands for the i-th.
    positions: u32,
}

impl Router {
    /// A router for a switch of `ports` ports. `seed` makes it spread flows over next hops
    /// differently than other switches.
    pub fn new(tables: TablesReader, rings: Rings, ports: usize, seed: u64) -> Self {
        let routing = Routing {
            rings,
            seed,
            decisions: Decisions::new(),
            out: (0..ports).map(|_| Waiting::default()).collect(),
            sinks: Sinks::default(),
            advice: None,
            exits: Exits::default(),
        };
        Self { tables, routing }
    }

    /// The same, of whose ports INT stacks say this.
    #[must_use]
    pub fn with_exits(self, exits: Exits) -> Self {
        Self { routing: Routing { exits, ..self.routing }, ..self }
    }

    /// The same where hosts are sent the MTU that leaves room for INT stacks.
    #[must_use]
    pub fn with_advice(self, advice: Advice) -> Self {
        Self { routing: Routing { advice: Some(advice), ..self.routing }, ..self }
    }

    /// The same where hosts behind some of the ports have sinks of their own.
    #[must_use]
    pub fn with_host_sinks(self, ports: Vec<bool>) -> Self {
        let sinks = Sinks { any: ports.contains(&true), ports };
        Self { routing: Routing { sinks, ..self.routing }, ..self }
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
        worker.begin();
        self.routing.route(self.tables.load(), worker, (port, origin), burst);
    }

    /// Takes in the next packet that the slow path gives back, if this lcore is the one that does.
    /// Gives whether there was any.
    pub fn take_return(&mut self, worker: &mut Worker) -> bool {
        let Self { tables, routing } = self;
        let Some(Ok(next)) = routing.rings.from_slow.as_ref().map(Receiver::try_recv) else {
            return false;
        };
        worker.arrived(None);
        worker.came(None);
        match next {
            Return::Free(packet) => drop(packet),
            Return::Send { mut packet, port } => {
                worker.counters.routed.returned += 1;
                worker.begin();
                if routing.sinks.has(port) {
                    worker.stamp(std::slice::from_mut(&mut packet), 1);
                }
                wait(&mut routing.out, worker, port, packet, 0);
            }
            Return::Route { packet, port, origin } => {
                worker.counters.routed.returned += 1;
                let mut one = Burst::new();
                let _ = one.push(packet);
                // What the switch made came by no port, and counts for the first: there is no hop
                // but those of ports.
                worker.received_by(u16::try_from(port).unwrap_or(0));
                worker.begin();
                worker.have_waited();
                routing.route(tables.load(), worker, (port, origin), &mut one);
            }
        }
        true
    }

    /// Sends all that waits: `send` is given the position of a port and its packets, and leaves
    /// behind what the port's queue refuses. `now_ns` reads the clock.
    #[inline]
    pub fn send(
        &mut self,
        worker: &mut Worker,
        mut now_ns: impl FnMut() -> u64,
        mut send: impl FnMut(usize, &mut Burst),
    ) {
        let Self { tables, routing } = self;
        for (at, out) in routing.out.iter_mut().enumerate() {
            if !out.packets.is_empty() {
                let positions = std::mem::take(&mut out.positions);
                if worker.asks_around() != 0 {
                    let goes = routing.exits.of(at);
                    say_exit(worker, tables.load(), (at, goes), &out.packets, positions);
                }
                let departure = || Departure { at_ns: now_ns(), mtu: tables.load().port_mtu(at) };
                let send = |packets: &mut Burst| send(at, packets);
                transmit(worker, &mut out.packets, positions, departure, send);
            }
        }
    }

    /// What the slow path gave back and nobody took; for the end.
    pub fn left_over(&self) -> u64 {
        self.routing
            .rings
            .from_slow
            .iter()
            .flat_map(Receiver::try_iter)
            .map(|left| match left {
                Return::Free(_) => 0,
                Return::Route { .. } | Return::Send { .. } => 1,
            })
            .sum()
    }
}

impl Routing {
    #[inline]
    fn route(
        &mut self,
        tables: &Tables,
        worker: &mut Worker,
        (port, origin): (usize, Origin),
        burst: &mut Burst,
    ) {
        let shim = if origin.may_be_marked() { tables.shim } else { None };
        let own = origin == Origin::Own;
        if worker.asks_around() & Instructions::INTERFACES != 0 {
            say_entry(worker, tables, (port, shim), burst.as_slice());
        }
        let lost = Lost::default();
        let decider = Decider { tables, port, own, shim, lost, seed: self.seed };
        decider.decide(burst.as_mut_slice(), &mut self.decisions);
        if origin == Origin::Fabric && self.decisions.routed.all() != first(burst.len()) {
            let decider = (&decider, &*self.sinks.ports);
            shorten(worker, decider, burst.as_mut_slice(), &mut self.decisions);
        }
        if origin.was_recorded() {
            self.decisions.flows.note_recorded();
        }
        let Decisions { routed, flows, .. } = &self.decisions;
        let all = first(burst.len());
        if routed.all() != all {
            return self.route_some(tables, worker, (port, origin), burst);
        }
        let to_sink = self.sinks.of(routed);
        let on_way = (origin, port, to_sink);
        let copied = copy(&mut self.advice, worker, tables, on_way, routed, burst.as_slice());
        let drops = measure(worker, origin, (routed, to_sink), flows, burst.as_mut_slice());
        if let Some(copied) = copied {
            copied.hand_over(worker, &self.rings.to_slow);
        }
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

    /// The same for a burst of which not all packets are routed on by these tables.
    #[inline(never)]
    fn route_some(
        &mut self,
        tables: &Tables,
        worker: &mut Worker,
        (port, origin): (usize, Origin),
        burst: &mut Burst,
    ) {
        if worker.probes.sending().is_some() {
            // No neighbour is resolved and no ICMP error sent for a probe.
            burst.drain().for_each(|_| worker.drop_probe());
            return;
        }
        let Decisions { routed, verdicts, flows, .. } = &self.decisions;
        let (is_routed, sinks) = (routed.all(), &self.sinks);
        let of = (&verdicts[..], first(burst.len()) & !is_routed);
        let packets = burst.as_mut_slice();
        let to_sink = sinks.of(routed);
        let on_way = (origin, port, to_sink);
        let unrouted = Unrouted::of(tables, origin, of, |on| sinks.has(on.port.into()));
        let copied = copy(&mut self.advice, worker, tables, on_way, routed, packets);
        let mut drops = measure(worker, origin, (routed, to_sink), flows, packets);
        if let Some(copied) = copied {
            copied.hand_over(worker, &self.rings.to_slow);
        }
        let passed = Routed::passed(verdicts, of.1);
        let on = (&passed, sinks.of(&passed));
        drops.0 |= measure(worker, origin, on, flows, packets).0;
        drops.0 |= unrouted.record(worker, origin, packets, flows).0;
        let (generation, newest) = (tables.generation, worker.newest_epoch());
        for (at, mut packet) in burst.drain().enumerate() {
            if drops.drops(at) {
                continue;
            }
            if is_routed >> at & 1 == 1 {
                wait(&mut self.out, worker, routed.ports[at].into(), packet, at);
                continue;
            }
            match verdicts[at] {
                Verdict::Pass(to) => {
                    worker.counters.routed.passed += 1;
                    wait(&mut self.out, worker, to.port.into(), packet, at);
                }
                Verdict::HandOver(arrived, task) => {
                    packet.cut_to_first_segment();
                    let origin = unrouted.origin_of(at, origin, newest);
                    let handed = HandOver { packet, port, arrived, origin, task, generation };
                    if self.rings.to_slow.hand_over(handed) {
                        worker.counters.routed.handed_over += 1;
                    } else {
                        worker.counters.routed.drop_for(Reason::SlowPathFull);
                    }
                }
                Verdict::Drop(reason) => worker.counters.routed.drop_for(reason),
                Verdict::Refuse(arrived, refusal) => {
                    worker.counters.routed.drop_for(refusal.reason());
                    let task = Task::Tell(refusal);
                    packet.cut_to_first_segment();
                    let handed = HandOver { packet, port, arrived, origin, task, generation };
                    // Where there is no room, no error is sent.
                    let _ = self.rings.to_slow.hand_over(handed);
                }
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
        now_ns: impl FnMut() -> u64,
    ) {
        self.send(worker, now_ns, |at, packets| ports[at].send(packets, retries));
    }

    #[inline]
    fn poll(
        &mut self,
        worker: &mut Worker,
        ports: &mut [PortQueues],
        retries: u32,
        mut now_ns: impl FnMut() -> u64,
    ) -> bool {
        for taken in 0..MOST_RETURNS {
            if !self.take_return(worker) {
                return taken > 0;
            }
            self.send(worker, &mut now_ns, |at, packets| ports[at].send(packets, retries));
        }
        true
    }
}

/// Says by which interfaces the packets of a burst came.
#[cold]
fn say_entry(
    worker: &mut Worker,
    tables: &Tables,
    (port, shim): (usize, Option<u16>),
    packets: &[Mbuf],
) {
    let Some(came) = worker.came_mut() else { return };
    for (at, packet) in packets.iter().enumerate() {
        let link = header::link(packet.data(), shim);
        came.set_interface(at, link.and_then(|link| tables.arriving(port, link.vlan)));
    }
}

/// Says by what packets go that are about to be sent by a port, which have these positions in their
/// burst.
#[cold]
fn say_exit(
    worker: &mut Worker,
    tables: &Tables,
    (port, mut goes): (usize, Going),
    packets: &Burst,
    positions: u32,
) {
    if worker.asks_around() & Instructions::INTERFACES != 0 {
        let positions = (0..BURST).filter(|at| positions >> at & 1 == 1);
        for (packet, at) in packets.as_slice().iter().zip(positions) {
            let link = header::link(packet.data(), tables.shim);
            goes.set_interface(at, link.and_then(|link| tables.arriving(port, link.vlan)));
        }
    }
    worker.goes(goes);
}

/// Copies one of a burst's packets that leaves no room for a whole INT stack, where its host is to
/// be sent the MTU that does. `to_sink` has a bit for each to a host with a sink of its own.
#[inline]
fn copy(
    advice: &mut Option<Advice>,
    worker: &mut Worker,
    tables: &Tables,
    (origin, port, to_sink): (Origin, usize, u32),
    routed: &Routed,
    packets: &[Mbuf],
) -> Option<Copied> {
    let advice = advice.as_mut().filter(|_| origin == Origin::Host)?;
    let of = routed.to_fabric | to_sink;
    advice.copy(worker, (tables, port), (of, &routed.ports), packets)
}

/// Records those of a burst's packets that enter, pass or leave the network; gives those that are
/// dropped for it. Those that `to_sink` has a bit for go to hosts with sinks of their own.
#[inline]
fn measure(
    worker: &mut Worker,
    origin: Origin,
    (routed, to_sink): (&Routed, u32),
    flows: &PlainFlows,
    packets: &mut [Mbuf],
) -> DropMask {
    if origin.was_recorded() {
        return measure_again(worker, origin, (routed, to_sink), flows, packets);
    }
    let Routed { to_fabric, to_host, .. } = *routed;
    let mut drops = DropMask::default();
    if to_fabric != 0 {
        let path = if origin == Origin::Fabric { Path::Transit } else { Path::Enter };
        drops = worker.pass(path, packets, to_fabric, flows);
    }
    if to_host != 0 {
        let path = match origin {
            Origin::Host => Path::Cross,
            Origin::Fabric => Path::Leave,
            _ => {
                if to_sink != 0 {
                    worker.stamp(packets, to_sink);
                }
                return drops;
            }
        };
        if path == Path::Cross {
            worker.counters.routed.local += u64::from(to_host.count_ones());
        }
        if to_host & !to_sink != 0 {
            drops.0 |= worker.pass(path, packets, to_host & !to_sink, flows).0;
        }
        if to_sink != 0 {
            let path = if path == Path::Cross { Path::CrossOn } else { Path::HandOn };
            drops.0 |= worker.pass(path, packets, to_sink, flows).0;
        }
    }
    drops
}

/// Lets the packet at position `at` of its burst wait to be sent. There is room for all packets of
/// a burst; should one ever not fit, it is as if the port's queue were full.
#[inline]
fn wait(out: &mut [Waiting], worker: &mut Worker, port: usize, packet: Mbuf, at: usize) {
    if let Some(out) = out.get_mut(port)
        && out.packets.push(packet).is_ok()
    {
        out.positions |= 1 << at;
    } else {
        worker.sent(Sent { accepted: 0, refused: 1 << at });
    }
}
