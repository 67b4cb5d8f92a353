//! The thread that looks after finished groups: takes them out of the switch, makes sketches of them,
//! clears them, and fills the tables for their next epoch as soon as its configuration is settled.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use calumma_bfrt::ClientError;
use calumma_bfrt::proto::TableEntry;
use calumma_chamelemon::Attention;
use calumma_chamelemon::frames::SessionPlan;
use calumma_epoch::{EpochClock, Timeline, timestamp_bit};
use calumma_sketch::{FermatSketch, TowerSketch};
use calumma_switch_host::unix_ns;
use tracing::{debug, error, warn};

use crate::collection::Source;
use crate::collector::Collector;
use crate::driver::Driver;
use crate::entries;
use crate::figures::{Figures, packets};
use crate::pilot::Ready;
use crate::sketches::{EgressSketches, IngressSketches};

/// How long before its arming the tables of an epoch are filled, and its configuration is settled, in
/// nanoseconds: a fifth of an epoch of 50 ms. Filling takes 2 to 7 ms in the paper's measurements.
pub(crate) fn prepare_ns(clock: &EpochClock) -> u64 {
    (clock.length_ns() / 5).min(100_000_000)
}

/// Longest wait, so that a stop is seen soon.
const NAP: Duration = Duration::from_millis(20);

/// A finished group.
#[derive(Debug)]
pub(crate) enum Task {
    /// Its ingress side.
    Ingress { epoch: u64, attention: Attention, stall_ns: u64 },
    /// Its egress side; of `unencoded` packets nothing was recorded, and `foreign_packets` carried a
    /// hierarchy without buckets.
    Egress { epoch: u64, attention: Attention, unencoded: u64, foreign_packets: u64, stall_ns: u64 },
    /// Nothing is to be had from it.
    Clear { epoch: u64 },
}

/// What is to be sent to the controller.
#[derive(Debug)]
pub(crate) enum Part {
    Ingress {
        epoch: u64,
        attention: Attention,
        stall_ns: u64,
        packets: u64,
        classifier: TowerSketch,
        upstream: FermatSketch,
        totals: Vec<(String, u64)>,
    },
    Egress {
        epoch: u64,
        attention: Attention,
        stall_ns: u64,
        foreign_packets: u64,
        packets: u64,
        downstream: FermatSketch,
    },
    Sealed {
        epoch: u64,
        late_packets: u64,
    },
}

/// What holds and what will; changed at the controller's word.
pub(crate) type Plans = Arc<Mutex<Timeline<Attention>>>;

/// See the [module](self).
pub(crate) struct Gatherer {
    pub(crate) driver: Driver,
    pub(crate) collector: Collector,
    pub(crate) plan: SessionPlan,
    pub(crate) plans: Plans,
    pub(crate) tasks: Receiver<Task>,
    pub(crate) ready: Sender<Ready>,
    pub(crate) parts: Sender<Part>,
    /// What the tables of each timestamp bit hold.
    present: [Vec<TableEntry>; 2],
    /// Epochs whose groups are clean.
    clean: BTreeSet<u64>,
    /// The attention of the epoch whose tables were filled last.
    attention: Option<Attention>,
    figures: Arc<Figures>,
}

/// The channels of a gatherer.
pub(crate) struct Channels {
    pub(crate) tasks: Receiver<Task>,
    pub(crate) ready: Sender<Ready>,
    pub(crate) parts: Sender<Part>,
}

impl Gatherer {
    /// A gatherer for a switch whose groups are clean and whose tables of epochs are empty.
    pub(crate) fn new(
        driver: Driver,
        collector: Collector,
        plan: SessionPlan,
        plans: Plans,
        channels: Channels,
        figures: Arc<Figures>,
    ) -> Gatherer {
        let Channels { tasks, ready, parts } = channels;
        let clean = BTreeSet::from([plan.first_epoch, plan.first_epoch + 1]);
        let present = [Vec::new(), Vec::new()];
        Gatherer {
            driver,
            collector,
            plan,
            plans,
            tasks,
            ready,
            parts,
            present,
            clean,
            attention: None,
            figures,
        }
    }

    /// Runs until `stop` is set or an error ends it; gives the collector back.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> (Collector, Result<(), ClientError>) {
        let mut result = Ok(());
        while result.is_ok() && !stop.load(Ordering::Relaxed) {
            result = self.step();
        }
        (self.collector, result)
    }

    fn step(&mut self) -> Result<(), ClientError> {
        let now_ns = unix_ns();
        let mut most = NAP;
        if let Some(&epoch) = self.clean.first() {
            let due_ns = self.clock().arm_time(epoch) - prepare_ns(self.clock());
            if due_ns <= now_ns {
                self.clean.remove(&epoch);
                return self.prepare(epoch);
            }
            most = most.min(Duration::from_nanos(due_ns - now_ns));
        }
        match self.tasks.recv_timeout(most) {
            Ok(Task::Ingress { epoch, attention, stall_ns }) => {
                self.ingress(epoch, attention, stall_ns)
            }
            Ok(Task::Egress { epoch, attention, unencoded, foreign_packets, stall_ns }) => {
                self.egress(epoch, attention, unencoded, foreign_packets, stall_ns)?;
                self.clear(epoch)
            }
            Ok(Task::Clear { epoch }) => self.clear(epoch),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            // The pilot has ended; so will this thread be told to.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(NAP);
                Ok(())
            }
        }
    }

    fn clock(&self) -> &EpochClock {
        &self.plan.clock
    }

    /// When a group must be out of the switch: as its next epoch is armed.
    fn deadline(&self, epoch: u64) -> Instant {
        let left_ns = self.clock().arm_time(epoch + 2).saturating_sub(unix_ns());
        Instant::now() + Duration::from_nanos(left_ns)
    }

    fn gather(
        &mut self,
        epoch: u64,
        sources: &[Source],
    ) -> Result<Option<Vec<Vec<u32>>>, ClientError> {
        let start = Instant::now();
        let until = self.deadline(epoch);
        let words = self.collector.gather(sources, timestamp_bit(epoch) as u32, until)?;
        self.figures.collection_us.add_since(start);
        match words {
            Some(_) => {
                self.figures.gathered.add(1);
                debug!(epoch, ?sources, us = start.elapsed().as_micros() as u64, "collected");
            }
            None => {
                self.figures.given_up.add(1);
                warn!(epoch, "given up: not out of the switch before its group's next epoch");
            }
        }
        Ok(words)
    }

    fn ingress(
        &mut self,
        epoch: u64,
        attention: Attention,
        stall_ns: u64,
    ) -> Result<(), ClientError> {
        let Some(words) = self.gather(epoch, &Source::INGRESS)? else { return Ok(()) };
        match IngressSketches::new(&self.plan.layout, &words) {
            Ok(IngressSketches { packets, classifier, upstream }) => {
                self.figures.stalled.add((stall_ns > 0).into());
                let totals = self.totals()?;
                let _ = self.parts.send(Part::Ingress {
                    epoch,
                    attention,
                    stall_ns,
                    packets,
                    classifier,
                    upstream,
                    totals,
                });
            }
            Err(problem) => error!(epoch, "{problem}"),
        }
        Ok(())
    }

    fn egress(
        &mut self,
        epoch: u64,
        attention: Attention,
        unencoded: u64,
        foreign_packets: u64,
        stall_ns: u64,
    ) -> Result<(), ClientError> {
        let Some(words) = self.gather(epoch, &Source::EGRESS)? else { return Ok(()) };
        match EgressSketches::new(&self.plan.layout, &words) {
            Ok(EgressSketches { encoded, downstream }) => {
                let packets = encoded + unencoded;
                self.figures.measured.add(1);
                self.figures.stalled.add((stall_ns > 0).into());
                self.figures.last_epoch.store(epoch, Ordering::Relaxed);
                let _ = self.parts.send(Part::Egress {
                    epoch,
                    attention,
                    stall_ns,
                    foreign_packets,
                    packets,
                    downstream,
                });
            }
            Err(problem) => error!(epoch, "{problem}"),
        }
        Ok(())
    }

    /// Clears the group of `epoch`, so that it can be measured with again.
    fn clear(&mut self, epoch: u64) -> Result<(), ClientError> {
        let (start, until) = (Instant::now(), self.deadline(epoch));
        let cleared = self.collector.clear(&Source::ALL, timestamp_bit(epoch) as u32, until)?;
        self.figures.collection_us.add_since(start);
        if cleared {
            self.figures.cleared.add(1);
            self.clean.insert(epoch + 2);
        } else {
            warn!(epoch, "its group was not cleared in time for its next epoch");
        }
        Ok(())
    }

    /// Settles the configuration of `epoch` and fills its tables, all but what opens the downstream
    /// encoder.
    fn prepare(&mut self, epoch: u64) -> Result<(), ClientError> {
        let start = Instant::now();
        let attention = lock(&self.plans).freeze(epoch);
        let all = entries::epoch(&self.plan.layout, &attention, epoch);
        let (gate, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|entry| entry.table == entries::MASKS);
        let (gate, wanted) = (self.driver.numbered(&gate)?, self.driver.numbered(&rest)?);
        let present = &mut self.present[timestamp_bit(epoch)];
        let changed = self.driver.change(present, &wanted)?;
        *present = wanted;
        debug!(epoch, changed, us = start.elapsed().as_micros() as u64, "tables filled");
        let Figures { filled, reconfigured, changed_entries, tables_us, .. } = &*self.figures;
        filled.add(1);
        let another = self.attention.replace(attention).is_some_and(|before| before != attention);
        reconfigured.add(another.into());
        changed_entries.add(changed as u64);
        tables_us.add_since(start);
        let _ = self.ready.send(Ready { epoch, attention, gate });
        Ok(())
    }

    /// Totals by name, those that a software edge has under the same names.
    fn totals(&self) -> Result<Vec<(String, u64)>, ClientError> {
        let totals = packets(&self.driver)?.into_iter().chain(self.figures.named());
        Ok(totals.map(|(name, total)| (name.to_owned(), total)).collect())
    }
}

/// The timeline, whatever became of a thread that held it.
pub(crate) fn lock(plans: &Plans) -> std::sync::MutexGuard<'_, Timeline<Attention>> {
    plans.lock().unwrap_or_else(PoisonError::into_inner)
}
