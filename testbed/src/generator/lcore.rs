//! The lcore that sends.

use std::time::Duration;

use dpdk::{Burst, Mempool, TxQueue};

use super::FlowSent;
use super::flows::{Frames, HEAD, Mix, flow};

/// Frames whose beginning is fetched ahead of their turn.
const AHEAD: usize = 16;

/// What became of the packets of a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sent {
    /// Packets that the port took.
    pub packets: u64,
    /// Packets that it had no room for.
    pub refused: u64,
    /// Seconds that passed.
    pub seconds: f64,
}

/// A transmit queue and all that goes into it.
pub(super) struct Transmitter {
    frames: Frames,
    /// Where in the sequence the next packet is.
    next: usize,
    /// Packets sent of each flow.
    counts: Vec<u64>,
    mix: Mix,
    pool: Mempool,
    tx: TxQueue,
    hz: f64,
}

impl Transmitter {
    /// Sends the `frames` of `mix` into `tx`, in mbufs of `pool`.
    pub(super) fn new(frames: Frames, mix: Mix, pool: Mempool, tx: TxQueue) -> Self {
        let counts = vec![0; frames.heads.len()];
        Self { frames, next: 0, counts, mix, pool, tx, hz: dpdk::tsc_hz() as f64 }
    }

    /// Sends for as long as `duration`, at `pps` packets a second or, without, as fast as the port
    /// takes them.
    pub(super) fn send(&mut self, pps: Option<f64>, duration: Duration) -> Sent {
        let begin = dpdk::tsc();
        let end = begin + (duration.as_secs_f64() * self.hz) as u64;
        let mut burst = Burst::<{ dpdk::BURST }>::new();
        let mut sent = Sent::default();
        let a_burst = pps.map_or(0.0, |pps| burst.capacity() as f64 / pps * self.hz);
        let mut due = begin as f64;
        loop {
            let now = dpdk::tsc();
            if now >= end {
                sent.seconds = (now - begin) as f64 / self.hz;
                return sent;
            }
            if pps.is_some() {
                if (now as f64) < due {
                    std::hint::spin_loop();
                    continue;
                }
                due += a_burst;
            }
            self.send_burst(&mut burst, pps.is_none(), end, &mut sent);
        }
    }

    /// Sends a burst; what the port has no room for is tried again until `end` where `again` says
    /// so.
    #[inline]
    fn send_burst(&mut self, burst: &mut Burst, again: bool, end: u64, sent: &mut Sent) {
        // The pool holds more than a port's ring: it is empty only until the driver has given some
        // back.
        if self.pool.alloc_burst(burst) == 0 {
            return;
        }
        let Frames { heads, lines, lengths, sequence } = &self.frames;
        let from = self.next;
        let len = burst.len();
        for (at, packet) in burst.as_mut_slice().iter_mut().enumerate() {
            let flow = sequence[(from + at) % sequence.len()] as usize;
            let ahead = sequence[(from + at + AHEAD) % sequence.len()] as usize;
            dpdk::prefetch(&heads[ahead * lines]);
            if let Some(data) = packet.append(lengths[flow].into()) {
                data[..HEAD].copy_from_slice(&heads[flow * lines].0);
                // Of packets with a stack, which need not fill the second line.
                if *lines > 1 {
                    let behind = data.len().min(2 * HEAD) - HEAD;
                    let line = &heads[flow * lines + 1].0;
                    data[HEAD..HEAD + behind].copy_from_slice(&line[..behind]);
                }
            }
        }
        let mut taken = self.tx.tx(burst);
        while again && !burst.is_empty() && dpdk::tsc() < end {
            taken += self.tx.tx(burst);
        }
        burst.clear();
        for at in from..from + taken {
            self.counts[sequence[at % sequence.len()] as usize] += 1;
        }
        self.next = (from + taken) % sequence.len();
        sent.packets += taken as u64;
        sent.refused += (len - taken) as u64;
    }

    /// What was sent so far of the flows of which anything was.
    pub(super) fn truth(&self) -> Vec<FlowSent> {
        let sent = |(at, &packets)| FlowSent { flow: flow(at, &self.mix), packets };
        self.counts.iter().enumerate().map(sent).filter(|flow| flow.packets > 0).collect()
    }
}
