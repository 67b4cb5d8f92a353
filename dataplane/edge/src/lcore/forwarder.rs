//! What an lcore does with a burst between receiving and sending.

use std::sync::Arc;

use dpdk::Burst;

use super::PortQueues;
use super::exits::Exits;
use super::stations::{Side, Stations};
use crate::config::Role;
use crate::packet::Packet;
use crate::parse::PlainFlows;
use crate::worker::{Departure, DropMask, Path, Sent, Worker, first};

/// How packets find the port they leave by. An lcore has one, chosen when the switch starts.
pub trait Forwarder {
    /// Does everything but sending with a burst that port `at` received. What stays in `burst` is
    /// for [`flush`](Self::flush) to send.
    fn forward(&mut self, worker: &mut Worker, ports: &[PortQueues], at: usize, burst: &mut Burst);

    /// Sends what [`forward`](Self::forward) has left to be sent; `burst` is empty afterwards. A
    /// full queue is tried `retries` times more. `now_ns` reads the clock.
    fn flush(
        &mut self,
        worker: &mut Worker,
        ports: &mut [PortQueues],
        at: usize,
        burst: &mut Burst,
        retries: u32,
        now_ns: impl FnMut() -> u64,
    );

    /// Sends packets that came from elsewhere than a port; once a round of polling. Gives whether
    /// there were any.
    fn poll(
        &mut self,
        worker: &mut Worker,
        ports: &mut [PortQueues],
        retries: u32,
        now_ns: impl FnMut() -> u64,
    ) -> bool;
}

/// Forwards between port pairs: every port has a peer.
#[derive(Debug, Default)]
pub struct Pairs {
    /// Packets of the burst under way that are not sent.
    drops: DropMask,
    /// Where stations are, if packets for those elsewhere are not to count as having left.
    learning: Option<Learning>,
    /// Whether the switch is an end host's own sink.
    is_host: bool,
    /// What INT stacks say of the ports that packets go by.
    exits: Exits,
}

/// What an lcore knows of stations, together with the others.
#[derive(Debug)]
struct Learning {
    stations: Arc<Stations>,
    /// The unit of age in which stations were forgotten last.
    swept: u16,
}

impl Pairs {
    /// Port pairs that leave packets out of measurement that were flooded: those for stations which
    /// are elsewhere, as `stations` says.
    pub fn learning(stations: Arc<Stations>) -> Self {
        let swept = Stations::unit(dpdk::tsc());
        Self { learning: Some(Learning { stations, swept }), ..Self::default() }
    }

    /// The same, of whose ports INT stacks say this.
    #[must_use]
    pub fn with_exits(self, exits: Exits) -> Self {
        Self { exits, ..self }
    }

    /// Port pairs of an end host's own sink: what the host sends goes on as it is.
    pub fn of_host() -> Self {
        Self { is_host: true, ..Self::default() }
    }
}

impl Learning {
    fn record<P: Packet>(&mut self, worker: &mut Worker, role: Role, burst: &mut [P]) -> DropMask {
        let Self { stations, swept } = self;
        let unit = Stations::unit(dpdk::tsc());
        if unit != *swept {
            *swept = unit;
            stations.sweep(unit);
        }
        match role {
            Role::Host => {
                stations.learn(burst, Side::Host, unit);
                worker.ingress(burst)
            }
            Role::Fabric => {
                stations.learn(burst, Side::Fabric, unit);
                let flooded = stations.elsewhere(burst, unit);
                leave_but(worker, burst, flooded)
            }
        }
    }
}

/// What [`Worker::egress`] does, where packets that `flooded` has a bit for are for stations
/// elsewhere.
pub fn leave_but<P: Packet>(worker: &mut Worker, packets: &mut [P], flooded: u32) -> DropMask {
    let all = first(packets.len());
    worker.counters.fabric_received += packets.len() as u64;
    worker.begin();
    let mut drops = worker.pass(Path::Leave, packets, all & !flooded, &PlainFlows::NONE);
    if all & flooded != 0 {
        drops.0 |= worker.pass(Path::Flooded, packets, all & flooded, &PlainFlows::NONE).0;
    }
    drops
}

impl Forwarder for Pairs {
    #[inline]
    fn forward(&mut self, worker: &mut Worker, ports: &[PortQueues], at: usize, burst: &mut Burst) {
        let (role, packets) = (ports[at].role, burst.as_mut_slice());
        self.drops = match (&mut self.learning, role) {
            (_, Role::Host) if self.is_host => {
                worker.pass_by(packets.len());
                DropMask::default()
            }
            (None, Role::Host) => worker.ingress(packets),
            (None, Role::Fabric) if ports[ports[at].peer].host_sink => worker.hand_on(packets),
            (None, Role::Fabric) => worker.egress(packets),
            (Some(learning), _) => learning.record(worker, role, packets),
        };
    }

    #[inline]
    fn flush(
        &mut self,
        worker: &mut Worker,
        ports: &mut [PortQueues],
        at: usize,
        burst: &mut Burst,
        retries: u32,
        mut now_ns: impl FnMut() -> u64,
    ) {
        let waiting = first(burst.len()) & !self.drops.0;
        discard(burst, self.drops);
        let out = &mut ports[ports[at].peer];
        let mtu = out.mtu;
        if worker.asks_around() != 0 {
            worker.goes(self.exits.of(out.number.into()));
        }
        let departure = || Departure { at_ns: now_ns(), mtu };
        transmit(worker, burst, waiting, departure, |burst| out.send(burst, retries));
    }

    #[inline]
    fn poll(
        &mut self,
        _: &mut Worker,
        _: &mut [PortQueues],
        _: u32,
        _: impl FnMut() -> u64,
    ) -> bool {
        false
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

/// Sends the burst by `send`, which leaves behind what a port's queue refuses; that is dropped. The
/// worker is given what became of each packet: `waiting` has a bit for each packet of the burst, in
/// order, that says its position in the burst that was received. `departure` says when that is, and
/// what the port takes, where the worker has something to put into packets.
#[inline]
pub fn transmit(
    worker: &mut Worker,
    burst: &mut Burst,
    waiting: u32,
    departure: impl FnOnce() -> Departure,
    send: impl FnOnce(&mut Burst),
) {
    if worker.asks_departures() {
        worker.depart(burst.as_mut_slice(), waiting, departure());
    }
    let handed = burst.len();
    send(burst);
    worker.sent(Sent::prefix(waiting, handed - burst.len()));
    burst.clear();
}
