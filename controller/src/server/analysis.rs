//! A system's thread: frames in, reports out.
//!
//! Bodies are decoded and epochs collected and analysed here, for every system but ChameleMon. A
//! panic ends this system's reports and no other's.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use calumma_analysis::run::AnySide;
use calumma_analysis::{AnyAnalysis, Collected, Delivery, EpochHead, Node};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{error, info};

use super::hub::Hub;
use super::lane::{FRAMES_WAITING, Inbound, Lane, NodeFrame};
use super::{Publisher, unix_ns, yield_to_others};
use crate::collect::{Collector, Ends, Frame, Receipt, Sides, Step, sides_of};

/// Epochs that may be pending at once: as many as nodes hold for a controller that was away.
const EPOCHS_PENDING: usize = 1200;

/// Time between looks where nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

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
    of: Analysing,
    window: u64,
    /// Positions in `of.nodes` by that among all nodes.
    places: HashMap<usize, usize>,
    collector: Collector<AnySide>,
    /// Epochs whose sides have been given out.
    open: BTreeMap<u64, Sides<AnySide>>,
}

impl Running {
    fn new(of: Analysing) -> Self {
        let sides = of.nodes.iter().map(|(_, node)| sides_of(node.role)).collect();
        let grace_ns = of.hub.config().grace_ms.saturating_mul(1_000_000);
        let window = of.analysis.window().max(1);
        let collector = Collector::new(sides, of.hub.clock(), grace_ns).with_window(window);
        let places = of.nodes.iter().zip(0..).map(|((position, _), at)| (*position, at)).collect();
        Self { of, window, places, collector, open: BTreeMap::new() }
    }

    fn run(mut self, handle: &Handle, mut frames: mpsc::Receiver<Inbound>) {
        let lane = self.of.lane.clone();
        let mut is_ending = false;
        loop {
            let wait = self.collector.next_deadline().map_or(IDLE, |deadline| {
                Duration::from_nanos(deadline.saturating_sub(unix_ns())).min(IDLE)
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
            first.into_iter().for_each(|frame| self.take(frame));
            self.take_waiting(&mut frames);
            if !lane.is_on() && !is_ending {
                is_ending = true;
                self.collector.end_at(lane.end());
            }
            while let Some(step) = self.collector.step(unix_ns()) {
                self.follow(step);
                self.take_waiting(&mut frames);
            }
            if lane.is_stopping() {
                break;
            }
            if self.collector.has_ended(unix_ns()) {
                return;
            }
        }
        frames.close();
        while let Ok(frame) = frames.try_recv() {
            self.take(frame);
        }
        while let Some(step) = self.collector.finish() {
            self.follow(step);
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
        if self.collector.pending() >= EPOCHS_PENDING {
            return self.of.lane.drop_frame();
        }
        let hub = &self.of.hub;
        let (epoch, frame) = match frame {
            NodeFrame::Sealed { epoch, late_packets, .. } => {
                (epoch, Frame::Sealed { late_packets })
            }
            NodeFrame::Side(mut side) => {
                let (epoch, kind) = (side.epoch, side.side);
                hub.note_counters(position, std::mem::take(&mut side.counters));
                match self.of.analysis.decode(&self.of.nodes[at].1, version, *side) {
                    Ok(side) => (epoch, Frame::Side(kind, side)),
                    Err(problem) => {
                        let problem = format!("{}: {problem}", self.of.lane.system.name());
                        return hub.close(position, connection, problem);
                    }
                }
            }
        };
        let receipt: Receipt = self.collector.take(at, epoch, frame, received_ns);
        hub.note_frame(position, epoch, receipt);
    }

    fn follow(&mut self, step: Step<AnySide>) {
        match step {
            Step::Decode(sides) => {
                self.open.insert(sides.epoch, sides);
            }
            Step::Report(ends) => {
                if let Some(sides) = self.open.remove(&ends.epoch) {
                    self.report(sides, ends);
                }
            }
        }
    }

    fn report(&mut self, sides: Sides<AnySide>, ends: Ends) {
        let Analysing { hub, lane, analysis, nodes, publisher } = &mut self.of;
        let clock = hub.clock();
        let mut problems = hub.clock_problems_of_all(unix_ns());
        let delivered = nodes.iter().zip(sides.nodes).zip(ends.nodes);
        let delivered = delivered.map(|(((position, node), mut sides), mut end)| {
            end.clock = problems[*position].take();
            let sides = sides_of(node.role).iter().map(|&kind| (kind, sides.take(kind)));
            Delivery { node: node.clone(), sides: sides.collect(), end }
        });
        let head = EpochHead {
            epoch: ends.epoch,
            start_unix_ns: clock.start_of(ends.epoch),
            length_ms: clock.length_ns().saturating_mul(self.window) / 1_000_000,
        };
        match analysis.analyse(Collected { head, nodes: delivered.collect() }) {
            Ok(published) => {
                lane.history.remember(&published);
                publisher.publish(&*published.report, &published.json);
            }
            Err(problem) => {
                let (system, epoch) = (lane.system.name(), ends.epoch);
                error!(system, epoch, "its report is no JSON: {problem}");
            }
        }
        hub.reported(lane, ends.epoch + self.window);
    }
}
