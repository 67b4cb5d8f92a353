//! Lanes: a system's way from its nodes' frames to its reports.
//!
//! Each system that runs has one, with a bounded queue and threads of its own, so that a slow or
//! hostile node of one system delays no other system's reports. ChameleMon's threads are in
//! [`crate::chamelemon`]; those of the others in [`super::analysis`]. A lane knows from which epoch
//! on its system runs and, once it is switched off, before which it ends.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use calumma_analysis::{NodeSetup, Published, Remembered, System};
use calumma_wire::{Message, Offer, Role, Side, SystemId};
use serde_json::Value;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tracing::warn;

use super::hub::lock;
use crate::chamelemon::EdgeFrame;
use crate::config::Config;
use crate::steering::Steering;

/// Frames that may wait in a lane.
pub(crate) const FRAMES_WAITING: usize = 256;

/// Reported epochs that may wait for the archive. Where it fails for longer, the oldest are let go.
const MOST_UNARCHIVED: usize = 4096;

/// How long a node that runs several systems waits for room in the lane of one that works off a
/// backlog, as after the controller's start.
const BACKLOG_WAIT: Duration = Duration::from_millis(200);

/// What a node sends about an epoch of a system.
#[derive(Debug)]
pub(crate) enum NodeFrame {
    /// What was recorded on a side.
    Side(Box<Side>),
    /// Nothing of the epoch can be recorded any more.
    Sealed {
        /// The system.
        system: SystemId,
        /// The epoch.
        epoch: u64,
        /// Packets of it that came too late to be recorded.
        late_packets: u64,
        /// What else is known of them, in the system's own format.
        body: Vec<u8>,
    },
    /// What is reported before the epoch is over.
    Notice {
        /// The system.
        system: SystemId,
        /// The epoch.
        epoch: u64,
        /// What is reported, in the system's own format.
        body: Vec<u8>,
    },
}

impl NodeFrame {
    /// The system that it is about.
    pub(crate) fn system(&self) -> SystemId {
        match self {
            Self::Side(side) => side.system,
            Self::Sealed { system, .. } | Self::Notice { system, .. } => *system,
        }
    }

    /// The epoch that it is about.
    pub(crate) fn epoch(&self) -> u64 {
        match self {
            Self::Side(side) => side.epoch,
            Self::Sealed { epoch, .. } | Self::Notice { epoch, .. } => *epoch,
        }
    }
}

impl From<NodeFrame> for Message {
    fn from(frame: NodeFrame) -> Self {
        match frame {
            NodeFrame::Side(side) => Self::Side(side),
            NodeFrame::Sealed { system, epoch, late_packets, body } => {
                Self::Sealed { system, epoch, late_packets, body }
            }
            NodeFrame::Notice { system, epoch, body } => Self::Notice { system, epoch, body },
        }
    }
}

/// A frame on its way to a system's analysis.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Position of its node.
    pub(crate) node: usize,
    /// Number of the node's connection.
    pub(crate) connection: u64,
    /// Version of the system's bodies that the node writes.
    pub(crate) version: u8,
    /// What came.
    pub(crate) frame: NodeFrame,
    /// When its last byte was received.
    pub(crate) received_ns: u64,
}

/// The queue into a lane.
#[derive(Debug)]
pub(crate) enum Inlet {
    /// ChameleMon's, whose frames are decoded before they get there.
    ChameleMon(mpsc::Sender<EdgeFrame>),
    /// Any other system's, with what its nodes are sent by position and version.
    Analysis(mpsc::Sender<Inbound>, HashMap<(usize, u8), NodeSetup>),
}

/// A report that the archive is to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported {
    /// Its epoch.
    pub(crate) epoch: u64,
    /// The next epoch to be reported.
    pub(crate) next: u64,
    /// Its number among all systems' reports.
    pub(crate) number: u64,
}

/// A system that runs.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) system: &'static dyn System,
    pub(crate) inlet: Inlet,
    /// Its plans, where they change while it runs. Its lock is taken after all others.
    pub(crate) steering: Option<Mutex<Steering>>,
    /// What its analysis remembers beside its reports.
    pub(crate) remembered: Option<Arc<dyn Remembered>>,
    /// The first epoch that it runs in.
    pub(crate) first_epoch: u64,
    /// Its section of the configuration, as far as it has been taken over.
    section: Mutex<Value>,
    /// The first epoch that it does not run in any more; all bits set while it is on.
    end: AtomicU64,
    stopping: AtomicBool,
    /// Wakes the lane when one of both changes.
    changed: Notify,
    /// How often its collector has begun anew, and the first epoch that it still collects.
    collecting: Mutex<(u64, u64)>,
    /// The first epoch that has not been reported; all bits set once the lane has ended.
    unreported: AtomicU64,
    /// Reports that are not in the archive yet; `None` where there is no archive.
    unarchived: Option<Mutex<VecDeque<Reported>>>,
    /// Whether a node waited for room in vain, and there has been none since.
    stuck: AtomicBool,
    /// Frames that found its queue full.
    dropped: AtomicU64,
    pub(crate) history: History,
}

impl Lane {
    /// A system that runs from `first_epoch` on by its section of `config`.
    pub(crate) fn new(
        system: &'static dyn System,
        inlet: Inlet,
        first_epoch: u64,
        config: &Config,
    ) -> Self {
        Self {
            system,
            inlet,
            steering: None,
            remembered: None,
            first_epoch,
            section: Mutex::new(config.section(system.name()).clone()),
            end: AtomicU64::new(u64::MAX),
            stopping: AtomicBool::new(false),
            changed: Notify::new(),
            collecting: Default::default(),
            unreported: AtomicU64::new(first_epoch),
            unarchived: config.archive.as_ref().map(|_| Mutex::default()),
            stuck: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            history: History::new(config.history),
        }
    }

    /// The same with plans that change while it runs.
    pub(crate) fn steered(self, steering: Option<Steering>) -> Self {
        Self { steering: steering.map(Mutex::new), ..self }
    }

    /// The same with an analysis that remembers this beside its reports.
    pub(crate) fn remembering(self, remembered: Option<Arc<dyn Remembered>>) -> Self {
        Self { remembered, ..self }
    }

    /// Takes over what may change while the system runs of a section that was read again. Gives
    /// what of it waits until the system is switched on again, and why.
    ///
    /// # Errors
    /// What is wrong with it, or that nothing of it may change. Then all stays as it is.
    pub(crate) fn reload(&self, read: &Value) -> Result<Vec<String>, String> {
        let mut section = lock(&self.section);
        if *section == *read {
            return Ok(Vec::new());
        }
        let never = || Err("switch it off and on again".to_owned());
        let steering = self.steering.as_ref().map(lock);
        let waiting = steering.map_or_else(never, |mut steering| steering.reload(read))?;
        if waiting.is_empty() {
            section.clone_from(read);
        }
        Ok(waiting)
    }

    pub(crate) fn id(&self) -> SystemId {
        self.system.offer().system
    }

    /// Whether nodes of a role are to run it.
    pub(crate) fn is_for(&self, role: Role) -> bool {
        self.is_on() && self.system.roles().contains(&role)
    }

    /// The version that a node with these offers runs it in; `None` where it can't.
    pub(crate) fn version_of(&self, offers: &[Offer]) -> Option<u8> {
        self.system.offer().common_with(offers)
    }

    /// Whether an epoch is one that the system runs in.
    pub(crate) fn covers(&self, epoch: u64) -> bool {
        (self.first_epoch..self.end()).contains(&epoch)
    }

    /// Whether it has not been switched off.
    pub(crate) fn is_on(&self) -> bool {
        self.end() == u64::MAX
    }

    /// The first epoch that it does not run in any more.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Switches it off: it reports the epochs before `epoch`, and ends.
    pub(crate) fn end_at(&self, epoch: u64) {
        self.end.store(epoch, Ordering::Release);
        self.changed.notify_one();
    }

    /// Ends it at once, with what it has.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Returns when it is to end or to stop.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// How often its collector has begun anew, and the first epoch that it still collects: what is
    /// before is late. Behind the collector by what it is about to do.
    pub(crate) fn collecting(&self) -> (u64, u64) {
        *lock(&self.collecting)
    }

    /// Notes the same.
    pub(crate) fn set_collecting(&self, begun: u64, open_from: u64) {
        *lock(&self.collecting) = (begun, open_from);
    }

    /// The first epoch that has not been reported.
    pub(crate) fn unreported(&self) -> u64 {
        self.unreported.load(Ordering::Acquire)
    }

    /// Notes that everything before `epoch` has been reported, and no more; all bits set where
    /// nothing will be any more.
    pub(crate) fn set_unreported(&self, epoch: u64) {
        self.unreported.store(epoch, Ordering::Release);
    }

    /// Notes a report that is about to be published.
    pub(crate) fn reporting(&self, reported: Reported) {
        if let Some(unarchived) = &self.unarchived {
            let mut unarchived = lock(unarchived);
            if unarchived.len() == MOST_UNARCHIVED {
                unarchived.pop_front();
            }
            unarchived.push_back(reported);
        }
    }

    /// Whether nodes hold what they have sent until it is in the archive.
    pub(crate) fn is_archived(&self) -> bool {
        self.unarchived.is_some()
    }

    /// Notes that the report on `epoch` is in the archive, and gives it, unless a later one was
    /// archived already. One before that is not was lost to it.
    pub(crate) fn archived(&self, epoch: u64) -> Option<Reported> {
        let mut unarchived = lock(self.unarchived.as_ref()?);
        let at = unarchived.iter().position(|of| of.epoch == epoch)?;
        unarchived.drain(..=at).next_back()
    }

    /// Whether the archive has all of its reports that it did not lose.
    pub(crate) fn has_archived_all(&self) -> bool {
        self.unarchived.as_ref().is_none_or(|unarchived| lock(unarchived).is_empty())
    }

    /// Frames that found its queue full.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Notes a frame for which there was no room. What it held is missing in its epoch.
    pub(crate) fn drop_frame(&self) {
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        if dropped.is_power_of_two() {
            let system = self.system.name();
            warn!(system, dropped, "its analysis can't keep up: frames are dropped");
        }
    }

    /// Puts a frame into the lane's queue. A node that runs this system `alone` waits for room; one
    /// that runs others as well must not hold those up, so it waits for a while, and not at all for
    /// a lane that is stuck.
    pub(crate) async fn put<T>(&self, queue: &mpsc::Sender<T>, frame: T, alone: bool) {
        if alone {
            // Closed where the lane has ended, and nobody wants the frame.
            let _ = queue.send(frame).await;
            return;
        }
        match queue.try_send(frame) {
            Ok(()) => self.stuck.store(false, Ordering::Relaxed),
            Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) if self.stuck.load(Ordering::Relaxed) => self.drop_frame(),
            Err(TrySendError::Full(frame)) => {
                if timeout(BACKLOG_WAIT, queue.send(frame)).await.is_err() {
                    self.stuck.store(true, Ordering::Relaxed);
                    self.drop_frame();
                }
            }
        }
    }
}

/// The latest reports of a system as lines of JSON.
#[derive(Debug)]
pub(crate) struct History {
    kept: usize,
    lines: Mutex<VecDeque<(u64, Arc<str>)>>,
}

impl History {
    fn new(kept: usize) -> Self {
        Self { kept: kept.max(1), lines: Mutex::default() }
    }

    /// Takes a report.
    pub(crate) fn remember(&self, published: &Published) {
        let mut lines = lock(&self.lines);
        let excess = (lines.len() + 1).saturating_sub(self.kept);
        lines.drain(..excess);
        let epoch = published.report.head().epoch;
        // After the controller's clock was set back, epochs come anew.
        while lines.back().is_some_and(|&(last, _)| last >= epoch) {
            lines.pop_back();
        }
        lines.push_back((epoch, published.json.as_str().into()));
    }

    /// The last `last` reports, oldest first.
    pub(crate) fn last(&self, last: usize) -> Vec<Arc<str>> {
        let lines = lock(&self.lines);
        let skipped = lines.len().saturating_sub(last);
        lines.iter().skip(skipped).map(|(_, line)| line.clone()).collect()
    }

    /// The report on one epoch.
    pub(crate) fn of(&self, epoch: u64) -> Option<Arc<str>> {
        let lines = lock(&self.lines);
        let at = lines.partition_point(|&(other, _)| other < epoch);
        lines.get(at).filter(|(found, _)| *found == epoch).map(|(_, line)| line.clone())
    }

    /// The last epoch that was reported.
    pub(crate) fn last_epoch(&self) -> Option<u64> {
        lock(&self.lines).back().map(|&(epoch, _)| epoch)
    }
}

/// Tells the controller to stop when a thread panics that it can't do without.
pub(crate) struct Ending(pub(crate) watch::Sender<bool>);

impl Drop for Ending {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Fails only where every task has ended already.
            let _ = self.0.send(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_backlog_is_waited_for_and_a_stuck_lane_is_not() {
        let (queue, mut frames) = mpsc::channel::<Inbound>(1);
        let config = Config::parse("edges = ['e1', 'e2']", "a test").unwrap();
        let inlet = Inlet::Analysis(queue.clone(), HashMap::new());
        let lane = Lane::new(calumma_systems::SYSTEMS[0], inlet, 7, &config);
        let frame = |epoch| {
            let frame =
                NodeFrame::Sealed { system: lane.id(), epoch, late_packets: 0, body: Vec::new() };
            Inbound { node: 0, connection: 0, version: 1, frame, received_ns: 0 }
        };
        lane.put(&queue, frame(7), false).await;
        // Room comes while the next one waits.
        let (first, ()) = tokio::join!(frames.recv(), lane.put(&queue, frame(8), false));
        assert_eq!((first.unwrap().frame.epoch(), lane.dropped()), (7, 0));

        lane.put(&queue, frame(9), false).await;
        assert_eq!(lane.dropped(), 1, "nobody takes it");
        let at_once = timeout(Duration::ZERO, lane.put(&queue, frame(10), false)).await;
        assert!(at_once.is_ok() && lane.dropped() == 2, "nor is it waited for again");

        // Once it works again, backlogs are waited for again.
        assert_eq!(frames.recv().await.unwrap().frame.epoch(), 8);
        lane.put(&queue, frame(11), false).await;
        let (next, ()) = tokio::join!(frames.recv(), lane.put(&queue, frame(12), false));
        assert_eq!((next.unwrap().frame.epoch(), lane.dropped()), (11, 2));
    }
}
