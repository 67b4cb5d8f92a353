//! The thread that keeps the epochs on the switch: it flips the timestamp bit, opens and closes
//! each bit's group to packets that leave, and says when a side is finished. All else, which takes
//! longer, is for the [gatherer](crate::gatherer).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use calumma_bfrt::proto::TableEntry;
use calumma_bfrt::{ClientError, Value};
use calumma_epoch::{Due, EpochClock, Event, Rotation, Schedule, timestamp_bit};
use calumma_plane::system::RouteWatch;
use calumma_switch_host::{WatchedClock, unix_ns};
use calumma_wire::Role;
use tracing::warn;

use crate::config::CarrierKind;
use crate::counters::{Counters, cells, left};
use crate::driver::Driver;
use crate::gatherer::{Task, ahead_ns};
use crate::marks::{self, Marks};
use crate::notices::{Readings, Streams};
use crate::system::{Closed, Plan, side_at_flip, side_at_take};

/// Longest sleep, so that a stop is seen soon.
const NAP: Duration = Duration::from_millis(20);

/// The table whose default action has the timestamp bit, and the action.
pub(crate) const TIMESTAMP: &str = "Ingress.timestamp";
pub(crate) const SET_TIMESTAMP: &str = "set_timestamp";

/// Numbers as the driver takes them.
pub(crate) fn values(numbers: Vec<(&'static str, u64)>) -> Vec<(&'static str, Value)> {
    numbers.into_iter().map(|(name, number)| (name, Value::Number(number))).collect()
}

/// Cells of the egress' packet counter: of which the plan has nothing recorded, recorded, and those
/// that found no way to be (or whose bit is closed); and those without a mark.
const CELLS: u32 = 4;

/// A clean group and entries wait for this epoch.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) epoch: u64,
    pub(crate) plan: Plan,
    /// What lets packets of its bit be recorded as they leave.
    pub(crate) gate: Vec<TableEntry>,
}

/// What is known of the group of one timestamp bit.
#[derive(Debug, Default)]
struct Group {
    /// The epoch under way, unless it is not measured.
    measured: Option<Ready>,
    /// The last epoch.
    closed: Option<u64>,
    /// How many packets had not been recorded when it was closed.
    before: u64,
    /// How many packets had not been recorded when the group was opened.
    opened: Option<u64>,
    /// How many packets had come without a mark by then.
    unmarked: u64,
}

/// What is known of a window: all epochs that are recorded in one group, from its clearing to the
/// next.
#[derive(Debug, Default)]
struct Window {
    /// Whether each of its epochs so far was measured.
    is_whole: bool,
    /// By how much its packets were stamped, and its group closed, too late.
    flip_ns: u64,
    take_ns: u64,
    entered: u64,
    late_packets: u64,
    unrecorded: u64,
    foreign_packets: u64,
    unmarked: u64,
}

/// What the pilot keeps: by timestamp bit the epochs, by parity the windows, and what is ready.
#[derive(Debug, Default)]
struct State {
    groups: [Group; 2],
    windows: [Window; 2],
    /// How many packets had entered as the last epoch of each timestamp bit ended.
    entered: [u64; 2],
    /// Which notices are whose.
    readings: Readings,
    /// Epochs to come that are ready.
    ready: VecDeque<Ready>,
}

/// See the [module](self).
pub(crate) struct Pilot {
    pub(crate) driver: Driver,
    pub(crate) role: Role,
    pub(crate) clock: EpochClock,
    /// How many epochs are recorded in one group, and reported together.
    pub(crate) window: u64,
    /// The first epoch, with which a window begins.
    pub(crate) first_epoch: u64,
    /// The first epoch that is not to be reported any more. Its group is opened all the same: its
    /// packets would else be counted as late ones of the epoch before. The timestamp bit flips on.
    pub(crate) end: Arc<AtomicU64>,
    /// None once all that was to be measured is.
    pub(crate) tasks: Option<Sender<Task>>,
    pub(crate) ready: Receiver<Ready>,
    pub(crate) noticing: Option<Noticing>,
    pub(crate) counters: Arc<Counters>,
    /// By how many nanoseconds the clock was set that has ended the session; 0 where none was.
    pub(crate) clock_set: Arc<AtomicI64>,
    /// When the routes changed last.
    pub(crate) routes: RouteWatch,
    pub(crate) marked_by: MarkedBy,
    /// Whether the ingress side is taken out with the last side of its window.
    pub(crate) ingress_at_take: bool,
    /// The counter of packets that entered, by timestamp bit.
    pub(crate) entered: Option<&'static str>,
    /// Tables that are emptied when it stops.
    pub(crate) stopped: Vec<String>,
}

/// Where the program numbers notices, and what it may send.
#[derive(Debug)]
pub(crate) struct Noticing {
    pub(crate) streams: Streams,
    /// By which mirror session, where there is a way for them.
    pub(crate) session: Option<u16>,
    /// The entries of what it may send.
    pub(crate) allowed: Vec<TableEntry>,
}

/// By what packets are marked, and what the switch knows of it.
#[derive(Debug, Default)]
pub(crate) struct MarkedBy {
    pub(crate) carrier: CarrierKind,
    /// Where marks are signed.
    pub(crate) marks: Option<Arc<Marks>>,
    /// The entries of the epochs armed last.
    pub(crate) armed: Vec<TableEntry>,
}

impl Pilot {
    /// Runs until `stop` is set, or the clock is. Where marks are signed, none is then written or
    /// believed any more.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<(), ClientError> {
        let result = self.silence().and_then(|()| self.rotate(stop));
        // A driver that has gone sends none either.
        let _ = self.silence();
        for table in &self.stopped {
            let _ = self.driver.clear(table);
        }
        if self.marked_by.marks.is_some() {
            // A driver that has gone has none either.
            let _ = self.driver.clear(marks::EPOCHS);
        }
        result
    }

    fn rotate(&mut self, stop: &AtomicBool) -> Result<(), ClientError> {
        let ahead_ns = ahead_ns(&self.clock);
        let mut schedule = Schedule::arming_ahead(self.clock, self.first_epoch, ahead_ns);
        let mut state = State::default();
        let mut counted = self.count()?;
        state.groups.iter_mut().for_each(|group| group.before = counted[2]);
        // What enters before the first epoch has the other bit. Its group was clean before that was
        // so, and that of the other one is to be cleared as well. Where marks are signed, it is not
        // marked before the first epoch is armed: it may be too early for that bit.
        self.stamp(self.first_epoch - 1)?;
        state.entered = self.count_entered()?;
        self.discard(self.first_epoch - 2 * self.window);
        let mut clock = WatchedClock::of_system();
        while !stop.load(Ordering::Relaxed) {
            let (now_ns, by_ns) = clock.read();
            if by_ns.unsigned_abs() > self.clock.guards().clock_ns {
                // What the groups hold is of no known time.
                self.clock_set.store(by_ns, Ordering::Relaxed);
                return Ok(());
            }
            match schedule.due(now_ns) {
                Some(Due { event: Event::Arm(epoch), .. }) => {
                    self.arm(epoch, &mut state)?;
                    let is_sealed = state.groups.iter().all(|group| group.closed.is_none());
                    if epoch > self.end() && is_sealed {
                        self.tasks = None;
                    }
                }
                Some(Due { event: Event::Flip(epoch), at_ns }) => {
                    self.flip(epoch, at_ns, &mut state)?;
                }
                Some(Due { event: Event::Take(epoch), at_ns }) if epoch >= self.first_epoch => {
                    counted = self.take(epoch, at_ns, &mut state, counted)?;
                }
                Some(Due { event: Event::Take(epoch), .. }) => {
                    counted = self.count()?;
                    self.discard(self.first(epoch));
                }
                None => {
                    let left = Duration::from_nanos(schedule.next_at_ns() - now_ns);
                    std::thread::sleep(left.min(NAP));
                }
            }
        }
        Ok(())
    }

    /// Opens the group for its next epoch, if it is clean, and seals its last one.
    fn arm(&mut self, epoch: u64, state: &mut State) -> Result<(), ClientError> {
        // Before that: what is marked in the epoch before the last is not to be recorded in this.
        self.arm_marks(epoch)?;
        let State { groups, windows, readings, ready, .. } = state;
        let group = &mut groups[timestamp_bit(epoch)];
        ready.extend(self.ready.try_iter());
        // Those that come too late are of no use.
        ready.retain(|one| one.epoch >= epoch);
        let ready = ready.pop_front_if(|one| one.epoch == epoch && epoch <= self.end());
        match &ready {
            Some(ready) => {
                self.driver.change(&[], &ready.gate)?;
            }
            None if epoch >= self.end() => {}
            None => {
                self.counters.unmeasured.add(1);
                warn!(epoch, "not measured: the switch was still busy with an earlier epoch");
            }
        }
        group.measured = ready;
        let late_ns = unix_ns().saturating_sub(self.clock.arm_time(epoch));
        let [.., counted, unmarked] = self.count()?;
        // These came while it was closed, and may be of either epoch where it is opened late. They
        // count as late of the one before, which makes the controller doubt this one.
        let outside = counted.saturating_sub(group.before);
        if late_ns > 0 && outside > 0 {
            warn!(epoch, late_us = late_ns / 1000, packets = outside, "opened late by the driver");
        }
        group.unmarked = unmarked;
        group.opened = group.measured.is_some().then_some(counted);
        let next = self.numbers()?;
        let begins = (epoch == self.first(epoch)).then(|| self.parity(epoch));
        let numbers = readings.arm(timestamp_bit(epoch), begins, &next);
        let closed = group.closed.take();
        // Before the first epochs there is none that they could count of.
        let has_all = late_ns == 0 || outside == 0 || closed.is_some();
        if let Some(closed) = closed {
            let window = &mut windows[self.parity(closed)];
            window.late_packets += outside;
            let (epoch, late_packets) = (self.first(closed), window.late_packets);
            if self.is_last(closed) && self.is_reported(epoch) {
                self.task(Task::Seal { epoch, late_packets, numbers });
            }
        }
        let window = &mut windows[self.parity(epoch)];
        if begins.is_some() {
            *window = Window { is_whole: true, ..Window::default() };
        }
        window.is_whole &= group.measured.is_some() && has_all;
        self.allow_notices(&next)
    }

    fn flip(&self, epoch: u64, at_ns: u64, state: &mut State) -> Result<(), ClientError> {
        self.stamp(epoch)?;
        let late_ns = unix_ns().saturating_sub(at_ns);
        let before = self.first(epoch - 1);
        let window = &mut state.windows[self.parity(before)];
        // No packet enters with that bit any more until the epoch after this.
        let bit = timestamp_bit(epoch - 1);
        let counted = self.count_entered()?[bit];
        window.entered += counted.saturating_sub(state.entered[bit]);
        state.entered[bit] = counted;
        if late_ns > self.clock.guards().flight_ns && self.shares_bit_with_next_window(epoch - 1) {
            window.flip_ns = window.flip_ns.max(late_ns);
        }
        let is_over = self.is_last(epoch - 1) && self.is_reported(before) && !self.ingress_at_take;
        if let Some(side) = side_at_flip(self.role).filter(|_| is_over)
            && window.is_whole
            && let Some(ready) = &state.groups[timestamp_bit(epoch - 1)].measured
        {
            let plan = ready.plan.clone();
            let closed = Closed {
                stall_ns: window.flip_ns,
                entered: window.entered,
                ..Closed::in_time(before, side, plan)
            };
            self.task(Task::Collect(closed));
        }
        Ok(())
    }

    /// Closes the group of `epoch`, and the window that ends with it; gives the packets counted
    /// just before.
    fn take(
        &self,
        epoch: u64,
        at_ns: u64,
        state: &mut State,
        before: [u64; CELLS as usize],
    ) -> Result<[u64; CELLS as usize], ClientError> {
        let State { groups, windows, readings, .. } = state;
        if epoch >= self.end() {
            let group = std::mem::take(&mut groups[timestamp_bit(epoch)]);
            if let Some(ready) = &group.measured {
                self.driver.change(&ready.gate, &[])?;
            }
            return Ok(before);
        }
        // Read while the group is still open: a packet that leaves between this and the closing is
        // recorded, and one between the closing and any later reading would be in no count at all.
        let counted = self.count()?;
        let next = self.numbers()?;
        let numbers = readings.take(timestamp_bit(epoch), self.parity(epoch), &next);
        // While both groups are open, no packet comes late: one that is not recorded is foreign.
        let both_open = groups[timestamp_bit(epoch + 1)].opened;
        let foreign_packets = both_open.map_or(0, |opened| counted[2].saturating_sub(opened));
        let group = &mut groups[timestamp_bit(epoch)];
        let measured = group.measured.take();
        group.opened = None;
        let unmarked = group.unmarked;
        if let Some(ready) = &measured {
            self.driver.change(&ready.gate, &[])?;
        }
        let now_ns = unix_ns();
        (group.closed, group.before) = (Some(epoch), counted[2]);
        let window = &mut windows[self.parity(epoch)];
        if now_ns >= self.clock.arm_time(epoch + 2) && self.shares_bit_with_next_window(epoch) {
            window.take_ns = window.take_ns.max(now_ns.saturating_sub(at_ns));
        }
        window.unrecorded += counted[0].saturating_sub(before[0]);
        window.foreign_packets += foreign_packets;
        window.unmarked += counted[3].saturating_sub(unmarked);
        if self.is_last(epoch) {
            let epoch = self.first(epoch);
            let measured = measured.filter(|_| window.is_whole && self.is_reported(epoch));
            let flip_ns = window.flip_ns;
            let closed = measured.map(|ready| Closed {
                epoch,
                side: side_at_take(self.role),
                plan: ready.plan,
                stall_ns: window.take_ns,
                entered: 0,
                unrecorded: window.unrecorded,
                foreign_packets: window.foreign_packets,
                unmarked: self.marked_by.marks.as_ref().map(|_| window.unmarked),
                routes_changed: self.routes_changed_since(epoch),
                notices: Vec::new(),
            });
            self.task(Task::Finish { epoch, closed, flip_ns, numbers });
        }
        Ok(counted)
    }

    /// The first epoch of an epoch's window.
    fn first(&self, epoch: u64) -> u64 {
        epoch - epoch % self.window
    }

    /// As of a software switch's groups.
    fn shares_bit_with_next_window(&self, epoch: u64) -> bool {
        Rotation::<(), ()>::new(epoch, self.window).shares_bit_with_next_window(epoch)
    }

    /// Whether the routes changed in a window, or a moment before it: its first packets came from
    /// edges whose clocks are ahead.
    fn routes_changed_since(&self, first: u64) -> bool {
        let clock_ns = self.clock.guards().clock_ns;
        self.routes.changed_since(self.clock.start_of(first).saturating_sub(clock_ns))
    }

    /// Whether a window ends with an epoch.
    fn is_last(&self, epoch: u64) -> bool {
        (epoch + 1).is_multiple_of(self.window)
    }

    /// Which of the windows under way an epoch is in.
    fn parity(&self, epoch: u64) -> usize {
        ((epoch / self.window) & 1) as usize
    }

    /// Whether the window that begins with `first` is reported.
    fn is_reported(&self, first: u64) -> bool {
        first.saturating_add(self.window) <= self.end()
    }

    /// Lets packets be marked and read that enter in the epochs up to `epoch`.
    fn arm_marks(&mut self, epoch: u64) -> Result<(), ClientError> {
        let Some(marks) = &self.marked_by.marks else { return Ok(()) };
        let wanted = self.driver.numbered(&marks.armed(epoch))?;
        self.driver.change(&self.marked_by.armed, &wanted)?;
        self.marked_by.armed = wanted;
        Ok(())
    }

    /// Has packets that enter stamped as those of `epoch`.
    fn stamp(&self, epoch: u64) -> Result<(), ClientError> {
        let values = values(marks::stamp(epoch, self.marked_by.carrier));
        self.driver.set_default(TIMESTAMP, SET_TIMESTAMP, &values)
    }

    /// Has a group cleared of which nothing is to be had.
    fn discard(&self, epoch: u64) {
        self.task(Task::Finish { epoch, closed: None, flip_ns: 0, numbers: Vec::new() });
    }

    fn task(&self, task: Task) {
        if let Some(tasks) = &self.tasks {
            let _ = tasks.send(task);
        }
    }

    /// The numbers of the next notices, by stream.
    fn numbers(&self) -> Result<Vec<u32>, ClientError> {
        let Some(Noticing { streams, .. }) = &self.noticing else { return Ok(Vec::new()) };
        streams.next(|register, count| {
            let cells = self.driver.elements(register, 0..count.into())?;
            Ok(cells.iter().map(|cell| cell.first().map_or(0, |&number| number as u32)).collect())
        })
    }

    /// Lets notices be sent, where there is a way for them.
    fn allow_notices(&mut self, next: &[u32]) -> Result<(), ClientError> {
        let Some(Noticing { streams, session: Some(session), allowed }) = &mut self.noticing else {
            return Ok(());
        };
        let wanted = self.driver.numbered(&streams.allow(next, *session))?;
        self.driver.change(allowed, &wanted)?;
        *allowed = wanted;
        Ok(())
    }

    /// Lets none be sent.
    fn silence(&self) -> Result<(), ClientError> {
        let silence = |of: &Noticing| self.driver.clear(&of.streams.budgets());
        self.noticing.as_ref().map_or(Ok(()), silence)
    }

    fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Packets that have entered and were recorded, by timestamp bit.
    fn count_entered(&self) -> Result<[u64; 2], ClientError> {
        self.entered.map_or(Ok([0; 2]), |counter| cells(&self.driver, counter))
    }

    /// The cells of the egress' packet counter.
    fn count(&self) -> Result<[u64; CELLS as usize], ClientError> {
        left(&self.driver)
    }
}
