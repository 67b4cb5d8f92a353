//! An inner switch that is a software switch, in the simulation: the live one's worker as a
//! transit.
//!
//! It measures with whatever systems its merger begins; ChameleMon runs on edges alone.

use calumma_plane::worker::{Policy, Sent};
use calumma_plane::{Counters, LcoreMerger, Measurement, Worker};
use calumma_sketch::BURST;

use super::clock::SwitchClock;
use super::network::Bytes;

/// A switch of one lcore.
#[derive(Debug)]
pub(super) struct Transit {
    clock: SwitchClock,
    worker: Worker,
    /// Where sessions begin, and what is measured comes together.
    merger: LcoreMerger,
    /// True time at which it has something to do next.
    pub(super) due_ns: u64,
}

impl Transit {
    pub(super) fn new(clock: SwitchClock) -> Self {
        let (merger, mailboxes) = LcoreMerger::new(1);
        let [mailbox] = mailboxes.try_into().expect("one mailbox for one lcore");
        let worker = Worker::new(Policy::default(), Measurement::new(mailbox));
        Self { clock, worker, merger, due_ns: 0 }
    }

    /// Does what is due at true time `now_ns`.
    pub(super) fn run_until(&mut self, now_ns: u64) {
        let shown_ns = self.clock.at(now_ns);
        match self.worker.next_due_ns() {
            // It has just been started, and looks out for a session from now on.
            0 => {
                self.worker.tick(shown_ns, true);
            }
            _ => self.worker.advance_to(shown_ns),
        }
        self.merger.poll();
        self.due_ns = self.clock.when(self.worker.next_due_ns(), now_ns);
    }

    /// A burst of packets passes from fabric to fabric; its transmit queue takes those that are
    /// `accepted`, by position.
    ///
    /// # Panics
    /// When there are more than [`BURST`].
    pub(super) fn pass(&mut self, packets: &mut [Bytes], accepted: impl Fn(usize) -> bool) {
        assert!(packets.len() <= BURST, "a burst of at most {BURST} packets");
        self.worker.counters.fabric_received += packets.len() as u64;
        self.worker.transit(packets);
        let mut sent = Sent { accepted: 0, refused: 0 };
        for at in 0..packets.len() {
            let queue = if accepted(at) { &mut sent.accepted } else { &mut sent.refused };
            *queue |= 1 << at;
        }
        self.worker.sent(sent);
    }

    /// Its totals.
    pub(super) fn counters(&self) -> &Counters {
        &self.worker.counters
    }
}
