//! The thread for finished groups: it takes them out of the switch, clears them, and fills the
//! tables for their next epoch as soon as its configuration is settled.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use calumma_bfrt::ClientError;
use calumma_bfrt::proto::TableEntry;
use calumma_epoch::{EpochClock, Schedule, Timeline, timestamp_bit};
use calumma_switch_host::unix_ns;
use calumma_wire::SideKind;
use tracing::{debug, error, warn};

use crate::collection::Source;
use crate::collector::Collector;
use crate::counters::{Counters, cell, packets};
use crate::driver::Driver;
use crate::marks::{Marks, UNMARKED};
use crate::notices;
use crate::pilot::Ready;
use crate::system::{Closed, EpochEntries, Plan, Setup, Total};

/// How much earlier than the clock says a group is opened, in nanoseconds, so that it is open when
/// the first packets may come, whatever else the driver has to do.
pub(crate) fn ahead_ns(clock: &EpochClock) -> u64 {
    clock.length_ns() / 20
}

/// How long before the clock has it armed the tables of an epoch are filled, and its configuration
/// is settled, in nanoseconds: a fifth of an epoch of 50 ms before its group is opened. Filling
/// takes 2 to 7 ms in the paper's measurements.
pub(crate) fn prepare_ns(clock: &EpochClock) -> u64 {
    (clock.length_ns() / 5).min(100_000_000) + ahead_ns(clock)
}

/// Longest wait, so that a stop is seen soon.
const NAP: Duration = Duration::from_millis(20);

/// What is to be done for a group.
#[derive(Debug)]
pub(crate) enum Task {
    /// Take this side out of it; the epoch's last packets are still to come.
    Collect(Closed),
    /// Take its last side out, if anything is to be had from it, and clear it. The epoch is the
    /// first one that it has been recorded in; its packets were stamped too late by `flip_ns`.
    Finish { epoch: u64, closed: Option<Closed>, flip_ns: u64, numbers: Vec<Range<u32>> },
    /// Say that no packet of the epoch, or of the window that begins with it, can be recorded any
    /// more: so many came too late, and the notices of events with these numbers are of them.
    Seal { epoch: u64, late_packets: u64, numbers: Vec<Range<u32>> },
}

/// What is to be sent to the controller.
#[derive(Debug)]
pub(crate) enum Part {
    /// The words of a side, and with one of an epoch's sides the switch's totals.
    Side { closed: Closed, words: Vec<Vec<u32>>, totals: Option<Vec<(String, u64)>> },
    /// No packet of the epoch, or of the window that begins with it, can be recorded any more.
    Sealed { epoch: u64, late: (u64, Vec<u8>) },
    /// What is reported before the window that begins with the epoch is over.
    Notice { epoch: u64, body: Vec<u8> },
}

/// The plans that hold and will; the controller changes them.
pub(crate) type Plans = Arc<Mutex<Timeline<Plan>>>;

/// See the [module](self).
pub(crate) struct Gatherer {
    driver: Driver,
    collector: Collector,
    setup: Arc<dyn Setup>,
    /// All registers that are cleared before a group's next turn.
    sources: Vec<Source>,
    /// What the program counts besides what every program does.
    totals: Vec<Total>,
    /// How many epochs are recorded in one group.
    window: u64,
    clock: EpochClock,
    end: Arc<AtomicU64>,
    plans: Plans,
    channels: Channels,
    /// What the tables of each timestamp bit hold.
    present: [Vec<TableEntry>; 2],
    /// What tables hold for a window, by its group, and by which plan.
    windows: [(Option<Plan>, Vec<TableEntry>); 2],
    /// Epochs whose groups are clean.
    clean: BTreeSet<u64>,
    /// The plan of the epoch whose tables were filled last.
    plan: Option<Plan>,
    counters: Arc<Counters>,
}

/// The channels of a gatherer.
pub(crate) struct Channels {
    pub(crate) tasks: Receiver<Task>,
    pub(crate) ready: Sender<Ready>,
    pub(crate) parts: Sender<Part>,
}

/// A system as it is measured with.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) setup: Arc<dyn Setup>,
    pub(crate) clock: EpochClock,
    pub(crate) first_epoch: u64,
    /// The first epoch that is not to be reported any more.
    pub(crate) end: Arc<AtomicU64>,
    pub(crate) plans: Plans,
    /// Where marks are signed: by what.
    pub(crate) marks: Option<Arc<Marks>>,
}

impl Gatherer {
    /// A gatherer for a switch whose tables of epochs are empty, and whose groups are to be
    /// cleared.
    pub(crate) fn new(
        driver: Driver,
        collector: Collector,
        run: Run,
        channels: Channels,
        counters: Arc<Counters>,
    ) -> Gatherer {
        let Run { setup, clock, end, plans, marks, .. } = run;
        let (needs, window) = (setup.needs(), setup.window());
        let mut totals = needs.totals;
        totals.extend(marks.map(|_| UNMARKED));
        let clean = BTreeSet::new();
        let (present, windows) = Default::default();
        Gatherer {
            driver,
            collector,
            setup,
            sources: needs.sources,
            totals,
            window,
            clock,
            end,
            plans,
            channels,
            present,
            windows,
            clean,
            plan: None,
            counters,
        }
    }

    /// Runs until `stop` is set, the pilot has nothing more for it, or an error ends it; gives the
    /// collector back.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> (Collector, Result<(), ClientError>) {
        let mut result = Ok(ControlFlow::Continue(()));
        while matches!(result, Ok(ControlFlow::Continue(()))) && !stop.load(Ordering::Relaxed) {
            result = self.step();
        }
        (self.collector, result.map(drop))
    }

    fn step(&mut self) -> Result<ControlFlow<()>, ClientError> {
        self.collector.receive();
        let now_ns = unix_ns();
        self.report(now_ns);
        let mut most = NAP;
        if let Some(&epoch) = self.clean.first() {
            let due_ns = self.clock.arm_time(epoch) - prepare_ns(&self.clock);
            if due_ns <= now_ns {
                let next = epoch + self.window - epoch % self.window;
                let last = if self.setup.is_ahead() { next } else { epoch + 1 };
                let plan = lock(&self.plans).freeze(epoch);
                self.fill_window(epoch, &plan)?;
                for epoch in epoch..last {
                    if self.clean.remove(&epoch) && epoch <= self.end.load(Ordering::Relaxed) {
                        self.prepare(epoch, plan.clone())?;
                    }
                }
                return Ok(ControlFlow::Continue(()));
            }
            // What is planned so far: little is left to write when that is settled.
            let plan = lock(&self.plans).at(epoch).clone();
            self.fill_window(epoch, &plan)?;
            most = most.min(Duration::from_nanos(due_ns - now_ns));
        }
        match self.channels.tasks.recv_timeout(most) {
            Ok(Task::Collect(closed)) => self.side(closed, Vec::new())?,
            Ok(Task::Finish { epoch, closed, flip_ns, numbers }) => {
                if let Some(closed) = closed {
                    if self.setup.ingress_at_take() {
                        // It has whatever came while the group was open, too long or not.
                        let (side, stall_ns) = (SideKind::Ingress, closed.stall_ns.max(flip_ns));
                        self.side(Closed { side, stall_ns, ..closed.clone() }, Vec::new())?;
                    }
                    self.side(closed, numbers)?;
                }
                self.clear(epoch)?;
            }
            Ok(Task::Seal { epoch, late_packets, numbers }) => {
                let notices = self.collector.notices(&numbers);
                let late = self.setup.seal(epoch, late_packets, &notices);
                let _ = self.channels.parts.send(Part::Sealed { epoch, late });
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Lets the system see the notices that have come, and sends what it reports at once.
    fn report(&mut self, now_ns: u64) {
        for (stream, body) in self.collector.news() {
            self.setup.noticed(now_ns, stream, &body);
        }
        if let Some((epoch, body)) = self.setup.notice(now_ns) {
            let _ = self.channels.parts.send(Part::Notice { epoch, body });
        }
    }

    /// When a group that was recorded in from `epoch` on must be out of the switch: as its next
    /// epoch is armed.
    fn deadline(&self, epoch: u64) -> Instant {
        let (clock, next) = (self.clock, epoch + 2 * self.window);
        let due_ns = Schedule::arming_ahead(clock, next, ahead_ns(&clock)).next_at_ns();
        let left_ns = due_ns.saturating_sub(unix_ns());
        Instant::now() + Duration::from_nanos(left_ns)
    }

    /// Takes a side out of the switch; the notices of events with these numbers are of it.
    fn side(&mut self, mut closed: Closed, numbers: Vec<Range<u32>>) -> Result<(), ClientError> {
        let Closed { epoch, side, stall_ns, .. } = closed;
        let (start, until) = (Instant::now(), self.deadline(epoch));
        let sources = self.setup.sources(side);
        let words = self.collector.gather(sources, self.parity(epoch), until)?;
        self.counters.collection_us.add_since(start);
        let Some(words) = words else {
            self.counters.discarded.add(1);
            warn!(epoch, "discarded: not out of the switch before its group's next epoch");
            return Ok(());
        };
        let events = notices::of_side(&*self.setup, &closed, &words, numbers);
        closed.notices = self.collector.notices(&events.numbers);
        if events.begin_anew {
            self.collector.forget(&events.numbers);
        }
        self.counters.gathered.add(1);
        debug!(epoch, side = side.name(), us = start.elapsed().as_micros() as u64, "collected");
        self.counters.stalled.add((stall_ns > 0).into());
        if side != SideKind::Ingress {
            self.counters.measured.add(1);
            self.counters.last_epoch.store(epoch, Ordering::Relaxed);
        }
        // Once an epoch, with the first of its sides.
        let totals = (side != SideKind::Egress).then(|| self.totals()).transpose()?;
        let _ = self.channels.parts.send(Part::Side { closed, words, totals });
        Ok(())
    }

    /// Which of the groups an epoch is recorded in.
    fn parity(&self, epoch: u64) -> u32 {
        ((epoch / self.window) & 1) as u32
    }

    /// Clears the group that was recorded in from `epoch` on, so that it can be measured with
    /// again.
    fn clear(&mut self, epoch: u64) -> Result<(), ClientError> {
        let (start, until) = (Instant::now(), self.deadline(epoch));
        let cleared = self.collector.clear(&self.sources, self.parity(epoch), until)?;
        self.counters.collection_us.add_since(start);
        if cleared {
            self.counters.cleared.add(1);
            let next = epoch + 2 * self.window;
            self.clean.extend(next..next + self.window);
        } else {
            warn!(epoch, "its group was not cleared in time for its next epoch");
        }
        Ok(())
    }

    /// Has tables hold what a plan wants for the whole window of `epoch`, whose group is clean.
    fn fill_window(&mut self, epoch: u64, plan: &Plan) -> Result<(), ClientError> {
        let parity = self.parity(epoch) as usize;
        let (by, present) = &mut self.windows[parity];
        if by.as_ref().is_some_and(|by| Arc::ptr_eq(by, plan)) {
            return Ok(());
        }
        // What is wrong with a plan, is said as its first epoch is prepared.
        let Ok(entries) = self.setup.of_window(epoch, plan) else { return Ok(()) };
        let start = Instant::now();
        let wanted = self.driver.numbered(&entries)?;
        let changed = self.driver.change(present, &wanted)?;
        *present = wanted;
        *by = Some(plan.clone());
        self.counters.changed_entries.add(changed as u64);
        self.counters.tables_us.add_since(start);
        Ok(())
    }

    /// Fills the tables of `epoch` by a plan, all but what opens its group to packets that leave.
    fn prepare(&mut self, epoch: u64, plan: Plan) -> Result<(), ClientError> {
        let start = Instant::now();
        let EpochEntries { gate, rest } = match self.setup.epoch(epoch, &plan) {
            Ok(entries) => entries,
            Err(problem) => {
                error!(epoch, "not measured: {problem}");
                return Ok(());
            }
        };
        let (gate, wanted) = (self.driver.numbered(&gate)?, self.driver.numbered(&rest)?);
        let present = &mut self.present[timestamp_bit(epoch)];
        let changed = self.driver.change(present, &wanted)?;
        *present = wanted;
        debug!(epoch, changed, us = start.elapsed().as_micros() as u64, "tables filled");
        let Counters { filled, reconfigured, changed_entries, tables_us, .. } = &*self.counters;
        filled.add(1);
        let another = self.plan.replace(plan.clone()).is_some_and(|before| before != plan);
        reconfigured.add(another.into());
        changed_entries.add(changed as u64);
        tables_us.add_since(start);
        let _ = self.channels.ready.send(Ready { epoch, plan, gate });
        Ok(())
    }

    /// Totals by name, those that a software edge has under the same names.
    fn totals(&self) -> Result<Vec<(String, u64)>, ClientError> {
        let mut totals = packets(&self.driver)?.to_vec();
        totals.extend(self.counters.named());
        for Total { name, counter, cell: at } in &self.totals {
            let counted = cell(&self.driver, counter, *at)?;
            match totals.iter_mut().find(|(other, _)| other == name) {
                Some((_, sum)) => *sum += counted,
                None => totals.push((name, counted)),
            }
        }
        Ok(totals.into_iter().map(|(name, total)| (name.to_owned(), total)).collect())
    }
}

/// The timeline, whatever became of a thread that held it.
pub(crate) fn lock(plans: &Plans) -> std::sync::MutexGuard<'_, Timeline<Plan>> {
    plans.lock().unwrap_or_else(PoisonError::into_inner)
}
