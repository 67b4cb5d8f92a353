//! What an lcore does with a burst between receiving and sending.

use dpdk::Burst;

use super::PortQueues;
use crate::config::Role;
use crate::worker::{DropMask, Sent, Worker, first};

/// How packets find the port they leave by. An lcore has one, chosen when the switch starts.
pub trait Forwarder {
    /// Does everything but sending with a burst that port `at` received. What stays in `burst` is
    /// for [`flush`](Self::flush) to send.
    fn forward(&mut self, worker: &mut Worker, ports: &[PortQueues], at: usize, burst: &mut Burst);

    /// Sends what [`forward`](Self::forward) has left to be sent; `burst` is empty afterwards. A
    /// full queue is tried `retries` times more.
    fn flush(
        &mut self,
        worker: &mut Worker,
        ports: &mut [PortQueues],
        at: usize,
        burst: &mut Burst,
        retries: u32,
    );

    /// Sends packets that came from elsewhere than a port; once a round of polling. Gives whether
    /// there were any.
    fn poll(&mut self, worker: &mut Worker, ports: &mut [PortQueues], retries: u32) -> bool;
}

/// Forwards between port pairs: every port has a peer.
#[derive(Debug, Default)]
pub struct Pairs {
    /// Packets of the burst under way that are not sent.
    drops: DropMask,
}

impl Forwarder for Pairs {
    #[inline]
    fn forward(&mut self, worker: &mut Worker, ports: &[PortQueues], at: usize, burst: &mut Burst) {
        self.drops = match ports[at].role {
            Role::Host => worker.ingress(burst.as_mut_slice()),
            Role::Fabric => worker.egress(burst.as_mut_slice()),
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
    ) {
        let waiting = first(burst.len()) & !self.drops.0;
        discard(burst, self.drops);
        let peer = ports[at].peer;
        transmit(worker, burst, waiting, |burst| ports[peer].send(burst, retries));
    }

    #[inline]
    fn poll(&mut self, _: &mut Worker, _: &mut [PortQueues], _: u32) -> bool {
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
/// order, that says its position in the burst that was received.
#[inline]
pub fn transmit(
    worker: &mut Worker,
    burst: &mut Burst,
    waiting: u32,
    send: impl FnOnce(&mut Burst),
) {
    let handed = burst.len();
    send(burst);
    worker.sent(Sent::prefix(waiting, handed - burst.len()));
    burst.clear();
}
