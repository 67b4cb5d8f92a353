//! A system's thread: frames in, reports out.
//!
//! Bodies are decoded and epochs collected and analysed here, for every system but ChameleMon. A
//! panic ends this system's reports and no other's.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use calumma_analysis::{AnyAnalysis, Node, Notice, Published};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{error, info};

use super::hub::Hub;
use super::lane::{FRAMES_WAITING, Inbound, Lane, NodeFrame};
use super::{Publisher, unix_ns, yield_to_others};
use crate::analysing::{self, Analysed};
use crate::clocks::NodeState;

/// Epochs that may be pending at once: as many as nodes hold for a controller that was away.
const EPOCHS_PENDING: usize = 1200;

/// Time between looks where nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

/// The same where the system's plans change.
const STEERED: Duration = Duration::from_millis(50);

/// A system that is analysed.
pub(super) struct Analysing {
    pub(super) hub: Arc<Hub>,
    pub(super) lane: Arc<Lane>,
    pub(super) analysis: Box<dyn AnyAnalysis>,
    /// The nodes that it runs on, each with its position among all nodes.
    pub(super) nodes: Vec<(usize, Arc<Node>)>,
    pub(super) publisher: Arc<Publisher>,
}

/// Starts the thread. It ends when the lane does.
pub(super) fn start(
    analysing: Analysing,
    frames: mpsc::Receiver<Inbound>,
) -> std::io::Result<JoinHandle<anyhow::Result<()>>> {
    let handle = Handle::current();
    let name = analysing.lane.system.name().to_owned();
    std::thread::Builder::new().name(name).spawn(move || {
        let _ended = Ended(analysing.hub.clone(), analysing.lane.clone());
        analysing.hub.pin();
        yield_to_others();
        Running::new(analysing).run(&handle, frames);
        Ok(())
    })
}

/// Takes the lane out when its thread ends, though it were by a panic.
struct Ended(Arc<Hub>, Arc<Lane>);

impl Drop for Ended {
    fn drop(&mut self) {
        let Self(hub, lane) = self;
        let system = lane.system.name();
        if std::thread::panicking() {
            error!(system, "its analysis failed; it is off until it is switched on again");
        } else {
            info!(system, "off");
        }
        hub.lane_has_ended(lane);
    }
}

struct Running {
    hub: Arc<Hub>,
    lane: Arc<Lane>,
    publisher: Arc<Publisher>,
    system: analysing::Analysing,
    /// Positions among all nodes of those that the system runs on.
    positions: Vec<usize>,
    /// The other way round.
    places: HashMap<usize, usize>,
}

impl Running {
    fn new(of: Analysing) -> Self {
        let Analysing { hub, lane, analysis, nodes, publisher } = of;
        let grace_ns = hub.config().grace_ms.saturating_mul(1_000_000);
        let (positions, nodes): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
        let places = positions.iter().copied().zip(0..).collect();
        let topologies = hub.topologies().clone();
        let system = analysing::Analysing::new(analysis, nodes, hub.clock(), grace_ns, topologies);
        Self { hub, lane, publisher, system, positions, places }
    }

    fn run(mut self, handle: &Handle, mut frames: mpsc::Receiver<Inbound>) {
        let lane = self.lane.clone();
        let idle = if lane.steering.is_some() { STEERED } else { IDLE };
        let mut is_ending = false;
        loop {
            let wait = self.system.next_deadline().map_or(idle, |deadline| {
                Duration::from_nanos(deadline.saturating_sub(unix_ns())).min(idle)
            });
            let first = handle.block_on(async {
                tokio::select! {
                    // Frames first: an epoch's last one may wait here when its time is over.
                    biased;
                    frame = frames.recv() => frame,
                    () = lane.changed() => None,
                    () = tokio::time::sleep(wait) => None,
                }
            });
            self.hub.steer(&lane);
            first.into_iter().for_each(|frame| self.take(frame));
            self.take_waiting(&mut frames);
            if !lane.is_on() && !is_ending {
                is_ending = true;
                self.system.end_at(lane.end());
            }
            while let Some(analysed) =
                self.system.step(unix_ns(), |window| states(&self.hub, &self.positions, window))
            {
                self.publish(analysed);
                self.take_waiting(&mut frames);
            }
            let (begun, open_from) = self.system.open_from();
            lane.set_collecting(begun, open_from);
            if lane.is_stopping() {
                break;
            }
            if self.system.has_ended(unix_ns()) {
                return;
            }
        }
        frames.close();
        while let Ok(frame) = frames.try_recv() {
            self.take(frame);
        }
        while let Some(analysed) =
            self.system.finish(|window| states(&self.hub, &self.positions, window))
        {
            self.publish(analysed);
        }
    }

    /// Takes in what waits, but no more than can have waited already.
    fn take_waiting(&mut self, frames: &mut mpsc::Receiver<Inbound>) {
        for _ in 0..FRAMES_WAITING {
            let Ok(frame) = frames.try_recv() else { return };
            self.take(frame);
        }
    }

    fn take(&mut self, inbound: Inbound) {
        let Inbound { node: position, connection, version, frame, received_ns } = inbound;
        let Some(&at) = self.places.get(&position) else { return };
        if self.system.pending() >= EPOCHS_PENDING {
            return self.lane.drop_frame();
        }
        let epoch = frame.epoch();
        let problem = |problem| format!("{}: {problem}", self.lane.system.name());
        let receipt = match frame {
            NodeFrame::Notice { body, .. } => {
                let of = Notice { epoch, version, body: &body };
                match self.system.notice(at, of, received_ns) {
                    Ok(noticed) => noticed.iter().for_each(|noticed| self.notice(noticed)),
                    Err(wrong) => self.hub.close(position, connection, problem(wrong)),
                }
                return;
            }
            NodeFrame::Sealed { late_packets, body, .. } => {
                self.system.sealed(at, epoch, (late_packets, body), received_ns)
            }
            NodeFrame::Side(side) => match self.system.side(at, version, *side, received_ns) {
                Ok(receipt) => receipt,
                Err(wrong) => return self.hub.close(position, connection, problem(wrong)),
            },
        };
        self.hub.note_frame(position, epoch, receipt);
    }

    /// Publishes what nodes have reported before an epoch is over.
    fn notice(&self, noticed: &Published) {
        self.publisher.notice(&*noticed.report, &noticed.json);
        self.hub.noticed(&noticed.json);
    }

    fn publish(&self, analysed: Analysed) {
        let Self { hub, lane, publisher, .. } = self;
        let Analysed { epoch, next, report } = analysed;
        match report {
            Ok(published) => {
                hub.reporting(lane, epoch, next);
                lane.history.remember(&published);
                publisher.publish(&*published.report, &published.json);
            }
            Err(problem) => {
                let system = lane.system.name();
                error!(system, epoch, "its report is no JSON: {problem}");
            }
        }
        hub.reported(lane, next);
    }
}

/// What there is to say of the nodes at these positions, of a window of these epochs and all of the
/// time since it began.
fn states(hub: &Hub, positions: &[usize], window: Range<u64>) -> Vec<NodeState> {
    let since_unix_ns = hub.clock().start_of(window.start);
    let time_ns = since_unix_ns..hub.clock().start_of(window.end);
    let mut problems = hub.problems_of_all(&window);
    let of_node = |&position: &usize| NodeState {
        problem: problems[position].take(),
        offset: hub.clock_offset(position, since_unix_ns),
        kind: hub.kind(position),
        measured_before: hub.measured_before(position),
        is_gone: hub.is_gone(position, &time_ns),
    };
    positions.iter().map(of_node).collect()
}
