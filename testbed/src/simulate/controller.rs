//! The controller in the simulation: the live one's collector, analyser and planner behind real
//! frames.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use calumma_chamelemon::Attention;
use calumma_chamelemon::frames::{FrameReader, Message};
use calumma_controller::analyse::{Analyser, DecodedEpoch};
use calumma_controller::attention::{Observation, Planner};
use calumma_controller::chamelemon::collect::{Collector, Step};
use calumma_controller::report::{EpochReport, PlanReport};
use calumma_epoch::Timeline;

use super::Setup;

/// Time that a message gets to reach an edge before the epoch it is about is armed: what the live
/// one gives where it has not measured how far the edges are.
const LEAD_NS: u64 = 20_000_000;

/// Virtual time between the last side of an epoch and the plan that is made from it. What it really
/// takes is measured, but must not change what happens.
const RESPONSE_NS: u64 = 10_000_000;

/// What the controller has done.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Epochs it has reported.
    pub(super) reports: Vec<Reported>,
    /// What it has to send to all edges, [`RESPONSE_NS`] from now.
    pub(super) reconfigure: Option<(u64, Vec<u8>)>,
    /// What it has to send to all edges at once.
    pub(super) reported: Vec<Vec<u8>>,
}

/// An epoch that has been reported, and what it cost.
#[derive(Debug)]
pub(super) struct Reported {
    pub(super) report: EpochReport,
    /// Bytes of all its frames.
    pub(super) frame_bytes: u64,
    /// From its last side to the plan, by this machine's clock.
    pub(super) response: Duration,
}

/// An epoch that is measured, but not over yet.
#[derive(Debug)]
struct Measured {
    decoded: DecodedEpoch,
    plan: Option<PlanReport>,
    response: Duration,
}

/// A change of attention: the first epoch that it holds for, and the frame that tells the edges.
type Change = (u64, Vec<u8>);

/// A controller that runs.
#[derive(Debug)]
pub(super) struct Controller {
    setup: Setup,
    edges: Vec<String>,
    readers: Vec<FrameReader>,
    collector: Collector,
    analyser: Analyser,
    planner: Option<Planner>,
    measured: BTreeMap<u64, Measured>,
    timeline: Timeline<Attention>,
    /// What was planned last.
    standing: Attention,
    /// Bytes of the frames of each epoch that has not been reported.
    frame_bytes: BTreeMap<u64, u64>,
}

impl Controller {
    /// # Errors
    /// When the planner's bounds don't fit the layout.
    pub(super) fn new(setup: &Setup, edges: &[String]) -> Result<Self> {
        let planner = setup.planner.map(|bounds| Planner::new(setup.layout.clone(), bounds));
        Ok(Self {
            planner: planner.transpose().map_err(anyhow::Error::msg)?,
            measured: BTreeMap::new(),
            standing: setup.attention,
            frame_bytes: BTreeMap::new(),
            readers: edges.iter().map(|_| FrameReader::new()).collect(),
            collector: Collector::new(edges.to_vec(), setup.clock, setup.grace_ns),
            analyser: Analyser::new(
                setup.layout.clone(),
                &setup.hash_key,
                setup.clock,
                setup.tasks,
            ),
            timeline: Timeline::new(setup.attention),
            edges: edges.to_vec(),
            setup: setup.clone(),
        })
    }

    /// Forgets what an edge had begun to send on its last connection.
    pub(super) fn connected(&mut self, edge: usize) {
        self.readers[edge] = FrameReader::new();
    }

    /// Receives the bytes of an edge, and gives the answers to it.
    ///
    /// # Errors
    /// When the bytes are no frame, which edges never send.
    pub(super) fn receive(
        &mut self,
        edge: usize,
        bytes: &[u8],
        now_ns: u64,
    ) -> Result<Vec<Vec<u8>>> {
        let mut answers = Vec::new();
        self.readers[edge].push(bytes);
        while let Some(message) = self.readers[edge]
            .next(Some(&self.setup.layout))
            .with_context(|| format!("a frame of {}", self.edges[edge]))?
        {
            match message {
                Message::Hello { .. } => {
                    let effective_epoch = self.earliest_epoch(now_ns);
                    let mut welcome = Vec::new();
                    Message::Welcome {
                        layout: self.setup.layout.clone(),
                        hash_key: self.setup.hash_key,
                        epoch_length_ns: self.setup.clock.length_ns(),
                        guards: self.setup.clock.guards(),
                        attention: *self.timeline.at(effective_epoch),
                        effective_epoch,
                    }
                    .encode(&mut welcome);
                    answers.push(welcome);
                }
                message => {
                    let epoch = match &message {
                        Message::Ingress(side) => Some(side.epoch),
                        Message::Egress(side) => Some(side.epoch),
                        Message::Sealed { epoch, .. } => Some(*epoch),
                        _ => None,
                    };
                    if let Some(epoch) = epoch {
                        let bytes = self.readers[edge].frame_bytes() as u64;
                        *self.frame_bytes.entry(epoch).or_default() += bytes;
                    }
                    self.collector.take(edge, message, now_ns);
                }
            }
        }
        Ok(answers)
    }

    /// The first epoch that a message sent at `now_ns` can change on every switch.
    fn earliest_epoch(&self, now_ns: u64) -> u64 {
        // An epoch is armed before it begins, by the clock guard.
        let lead = self.setup.clock.guards().clock_ns + LEAD_NS;
        self.setup.clock.epoch_at(now_ns + lead) + 1
    }

    /// Decodes the epochs that are measured at `now_ns` and plans from them; reports those that are
    /// over or whose time is up.
    pub(super) fn work(&mut self, now_ns: u64) -> Work {
        let mut work = Work::default();
        while let Some(step) = self.collector.step(now_ns, |epoch| self.timeline.freeze(epoch)) {
            match step {
                Step::Decode(input, _) => {
                    let begun = Instant::now();
                    let decoded = self.analyser.decoder().decode(input);
                    let (plan, message) = self.plan(&decoded, now_ns + RESPONSE_NS).unzip();
                    work.reconfigure = message.flatten().or(work.reconfigure);
                    let measured = Measured { response: begun.elapsed(), plan, decoded };
                    self.measured.insert(measured.decoded.epoch(), measured);
                }
                Step::Report(ends) => {
                    let mut reported = Vec::new();
                    Message::Reported { epoch: ends.epoch }.encode(&mut reported);
                    work.reported.push(reported);
                    if let Some(mut measured) = self.measured.remove(&ends.epoch) {
                        measured.decoded.end(ends.nodes);
                        let mut report = self.analyser.report(measured.decoded);
                        report.plan = measured.plan;
                        let later = self.frame_bytes.split_off(&(ends.epoch + 1));
                        let earlier = std::mem::replace(&mut self.frame_bytes, later);
                        work.reports.push(Reported {
                            report,
                            frame_bytes: earlier.get(&ends.epoch).copied().unwrap_or(0),
                            response: measured.response,
                        });
                    }
                }
            }
        }
        work
    }

    /// Plans from an epoch, and gives what is to be said to all edges, at `now_ns`, where something
    /// changes.
    fn plan(
        &mut self,
        decoded: &DecodedEpoch,
        now_ns: u64,
    ) -> Option<(PlanReport, Option<Change>)> {
        let observation = Observation::of(decoded, self.analyser.family())?;
        let plan = self.planner.as_mut()?.next(&observation, &self.standing);
        let applied = plan.attention != self.standing;
        let mut effective_epoch = self.earliest_epoch(now_ns);
        let mut message = None;
        if applied {
            if let Err(late) = self.timeline.change(effective_epoch, plan.attention) {
                effective_epoch = late.earliest;
                // Now it is not too late.
                let _ = self.timeline.change(effective_epoch, plan.attention);
            }
            self.standing = plan.attention;
            let mut frame = Vec::new();
            Message::Reconfigure { effective_epoch, attention: plan.attention }.encode(&mut frame);
            message = Some((now_ns, frame));
        }
        let report = PlanReport {
            effective_epoch,
            state: plan.state,
            config: (&plan.attention).into(),
            applied,
            reasons: plan.reasons,
        };
        Some((report, message))
    }

    /// When it gives up waiting for the next epoch.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.collector.next_deadline()
    }
}
