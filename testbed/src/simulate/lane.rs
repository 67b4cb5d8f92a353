//! A system that runs in the simulated controller: from its nodes' frames to its reports.
//!
//! Collecting, decoding, analysing and planning are the live controller's own; where that has a
//! thread for each lane, all is done at once here, in virtual time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use calumma_analysis::{
    ClockOffset, Deployment, HashKeys, Node, NodeSetup, Notice, Published, System, Unprobed,
};
use calumma_chamelemon::frames;
use calumma_chamelemon::{Attention, Layout};
use calumma_controller::analyse::{Analyser, DecodedEpoch, Decoder};
use calumma_controller::analysing::{Analysing, Topologies};
use calumma_controller::attention::{Observation, Planner};
use calumma_controller::chamelemon::collect::{Collector, Step};
use calumma_controller::clocks::NodeState;
use calumma_controller::collect::sides_of;
use calumma_controller::report::{EpochReport, PlanReport};
use calumma_controller::steering::Steering;
use calumma_epoch::{EpochClock, Timeline};
use calumma_wire::{self as wire, Offer, Role, SystemId, SystemSetup};
use serde_json::Value;

use super::Setup;
use super::systems::DEPLOYMENT;
use crate::topology::Topology;

/// How an epoch ended at each node, as far as frames don't say it.
pub(super) struct Ends<'a> {
    pub(super) clock: EpochClock,
    /// What is wrong with each node in an epoch.
    pub(super) problems: &'a dyn Fn(u64) -> Vec<Option<String>>,
    /// What was wrong with each in a window of these epochs, or around it.
    pub(super) problems_around: &'a dyn Fn(&Range<u64>) -> Vec<Option<String>>,
    /// How far a node's clock was from the controller's since a time.
    pub(super) offset: &'a dyn Fn(usize, u64) -> Option<ClockOffset>,
    /// What kind of switch a node is.
    pub(super) kind: &'a dyn Fn(usize) -> Option<&'static str>,
    /// Whether a node measured when it first connected.
    pub(super) measured_before: &'a dyn Fn(usize) -> bool,
    /// Whether a node was gone before a time was over.
    pub(super) is_gone: &'a dyn Fn(usize, &Range<u64>) -> bool,
    /// By edge: the paths from it that are not known to let marks through.
    pub(super) unprobed: &'a dyn Fn(u64) -> Vec<Option<Unprobed>>,
}

/// Which attention holds from which epoch on.
#[derive(Debug)]
pub(super) struct Plan {
    timeline: Timeline<Attention>,
    /// The last change: its epoch and what holds from then on.
    last: (u64, Attention),
}

impl Plan {
    pub(super) fn new(attention: Attention) -> Self {
        Self { timeline: Timeline::new(attention), last: (0, attention) }
    }

    /// The change that is still to come at `epoch`.
    pub(super) fn change_after(&self, epoch: u64) -> Option<wire::Message> {
        let (effective_epoch, attention) = self.last;
        let change = frames::Message::Reconfigure { effective_epoch, attention };
        (effective_epoch > epoch).then(|| change.to_wire())
    }

    /// Lets `attention` hold from `epoch` on, or from the first later one that can still change.
    fn change(&mut self, epoch: u64, attention: Attention) -> u64 {
        let mut effective_epoch = epoch;
        if let Err(late) = self.timeline.change(effective_epoch, attention) {
            effective_epoch = late.earliest;
            // Now it is not too late.
            let _ = self.timeline.change(effective_epoch, attention);
        }
        self.last = (effective_epoch, attention);
        effective_epoch
    }
}

/// A frame about an epoch.
#[derive(Debug)]
pub(super) struct Inbound {
    /// Position of its node, and what that does in the network.
    pub(super) node: usize,
    pub(super) role: Role,
    /// Version of the system's bodies that the node writes.
    pub(super) version: u8,
    pub(super) message: wire::Message,
    /// Bytes of the frame.
    pub(super) bytes: u64,
    pub(super) received_ns: u64,
}

/// What a node is known to do before it is sent what it is to run.
pub(super) enum Before<'a> {
    /// It has just come, and says that it measures by this.
    Hello(&'a [(SystemId, Vec<u8>)]),
    /// It was sent these before.
    Runs(&'a [(SystemId, u8)]),
}

/// What a system has done.
#[derive(Debug)]
pub(super) enum Done {
    /// ChameleMon has reported an epoch.
    ChameleMon {
        report: Box<EpochReport>,
        /// Bytes of all its frames.
        frame_bytes: u64,
        /// From its last side to the plan, by this machine's clock.
        response: Duration,
    },
    /// Another system has; of one that sums over windows, the epochs before `next`.
    Other { next: u64, report: serde_json::Result<Published> },
    /// Attention changes: what ChameleMon's edges are to be sent.
    Change(wire::Message),
}

/// A system that runs.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) system: &'static dyn System,
    pub(super) first_epoch: u64,
    /// The epochs of its windows; 1 where it has none.
    pub(super) window: u64,
    /// The first epoch that it does not run in any more, once it has been switched off.
    end: Option<u64>,
    /// The first epoch that it has not reported.
    pub(super) unreported: u64,
    /// Its plans, where they change while it runs.
    pub(super) steering: Option<Steering>,
    analysis: Analysis,
}

#[derive(Debug)]
enum Analysis {
    ChameleMon(Box<ChameleMon>),
    /// With the positions among all nodes of those that it runs on.
    Other(Box<Analysing>, Vec<usize>),
}

impl Lane {
    /// A system that runs from `first_epoch` on.
    ///
    /// # Errors
    /// What is wrong with its section, or with the planner's bounds.
    pub(super) fn new(
        system: &'static dyn System,
        setup: &Setup,
        topology: &Topology,
        (nodes, keys): (&[Arc<Node>], &HashKeys),
        (first_epoch, now_ns): (u64, u64),
    ) -> Result<Self> {
        let (mut steering, mut window) = (None, 1);
        let name = system.name();
        let runs_on = |node: &Arc<Node>| system.roles().contains(&node.role);
        let at: Vec<usize> = (0..nodes.len()).filter(|&at| runs_on(&nodes[at])).collect();
        let nodes: Vec<Arc<Node>> = at.iter().map(|&at| nodes[at].clone()).collect();
        let analysis = if system.offer().system == frames::ID {
            Analysis::ChameleMon(Box::new(ChameleMon::new(setup, &nodes, keys)?))
        } else {
            let section = setup.systems.sections.get(name).unwrap_or(&Value::Null);
            let clock = setup.clock;
            let deployment =
                Deployment { section, hash_keys: keys, clock, nodes: &nodes, id: DEPLOYMENT };
            let analysis = system.start(&deployment);
            let analysis = analysis.map_err(|problem| anyhow!("[{name}]: {problem}"))?;
            let analysis = analysis.with_context(|| format!("{name} has no analysis"))?;
            window = analysis.window().max(1);
            let of = (system.offer().system, window);
            let steer = analysis.steer();
            steering = steer.map(|steer| Steering::new(steer, of, at.iter().copied(), now_ns));
            let topologies = Arc::new(Topologies::new(Some(topology.clone())));
            let analysing = Analysing::new(analysis, nodes, clock, setup.grace_ns, topologies);
            Analysis::Other(Box::new(analysing), at)
        };
        let (end, unreported) = (None, first_epoch);
        Ok(Self { system, first_epoch, window, end, unreported, steering, analysis })
    }

    pub(super) fn id(&self) -> SystemId {
        self.system.offer().system
    }

    /// Whether it has plans, which change while it runs.
    pub(super) fn plans(&self) -> bool {
        matches!(self.analysis, Analysis::ChameleMon(_))
    }

    /// Whether it has not been switched off.
    pub(super) fn is_on(&self) -> bool {
        self.end.is_none()
    }

    /// Switches it off: it reports the epochs before `epoch`, and ends.
    pub(super) fn end_at(&mut self, epoch: u64) {
        self.end = Some(epoch);
        match &mut self.analysis {
            Analysis::ChameleMon(of) => of.collector.end_at(epoch),
            Analysis::Other(of, _) => of.end_at(epoch),
        }
    }

    /// Whether everything before its end has been reported.
    pub(super) fn has_ended(&self, now_ns: u64) -> bool {
        match &self.analysis {
            Analysis::ChameleMon(of) => of.collector.has_ended(now_ns),
            Analysis::Other(of, _) => of.has_ended(now_ns),
        }
    }

    /// When there is something to do at the latest.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        match &self.analysis {
            Analysis::ChameleMon(of) => of.collector.next_deadline(),
            Analysis::Other(of, _) => of.next_deadline(),
        }
    }

    /// The version that a node of a role with these offers runs it in; `None` where it does not.
    pub(super) fn version_of(&self, role: Role, offers: &[Offer]) -> Option<u8> {
        let runs_there = self.system.roles().contains(&role);
        self.system.offer().common_with(offers).filter(|_| runs_there)
    }

    /// What the node at position `node` is sent that is to run `version` from `epoch` on.
    pub(super) fn setup(
        &mut self,
        (node, version): (usize, u8),
        plan: &Plan,
        epoch: u64,
        before: &Before<'_>,
    ) -> SystemSetup {
        let system = self.id();
        match &self.analysis {
            Analysis::ChameleMon(of) => frames::setup(&of.layout, plan.timeline.at(epoch), version),
            Analysis::Other(of, at) => {
                let place = at.binary_search(&node).expect("a node that it runs on");
                let mut setup = of.setup(place, version);
                if let Some(steering) = &mut self.steering {
                    steering.note_version(node, version);
                    let is_of = |of: &SystemId| *of == system;
                    setup = match before {
                        Before::Hello(held) => {
                            let held = held.iter().find(|(of, _)| is_of(of));
                            let held = held.map(|(_, holding)| holding.as_slice());
                            steering.begin(node, &setup, held)
                        }
                        Before::Runs(runs) if runs.iter().any(|(of, _)| is_of(of)) => {
                            steering.repeat(node, &setup, epoch)
                        }
                        Before::Runs(_) => steering.begin(node, &setup, None),
                    };
                }
                let NodeSetup { setup, plan } = setup;
                SystemSetup { system, version, setup, plan }
            }
        }
    }

    /// Takes in a frame about an epoch; nothing where the system does not run in it. Gives what is
    /// published at once.
    ///
    /// # Errors
    /// What can't be read, or is not to come from such a node.
    pub(super) fn take(&mut self, inbound: Inbound) -> Result<Option<Published>> {
        let Inbound { node, role, version, message, bytes, received_ns } = inbound;
        let epoch = match &message {
            wire::Message::Side(side) => {
                let kind = side.side;
                ensure!(sides_of(role).contains(&kind), "a side that no {} has", role.name());
                side.epoch
            }
            wire::Message::Sealed { epoch, .. } | wire::Message::Notice { epoch, .. } => *epoch,
            _ => return Ok(None),
        };
        if epoch < self.first_epoch || self.end.is_some_and(|end| epoch >= end) {
            return Ok(None);
        }
        match &mut self.analysis {
            Analysis::ChameleMon(of) => {
                *of.frame_bytes.entry(epoch).or_default() += bytes;
                if let Some(message) = frames::Message::read(message, Some(&of.layout))? {
                    of.collector.take(node, message, received_ns);
                }
            }
            Analysis::Other(of, at) => {
                let place = at.binary_search(&node).map_err(|_| anyhow!("it does not run it"))?;
                if let wire::Message::Side(side) = message {
                    let receipt = of.side(place, version, *side, received_ns);
                    receipt.map_err(anyhow::Error::msg)?;
                } else if let wire::Message::Sealed { late_packets, body, .. } = message {
                    of.sealed(place, epoch, (late_packets, body), received_ns);
                } else if let wire::Message::Notice { body, .. } = message {
                    let notice = Notice { epoch, version, body: &body };
                    return of.notice(place, notice, received_ns).map_err(anyhow::Error::msg);
                }
            }
        }
        Ok(None)
    }

    /// What is to be done at `now_ns`, if anything; ask until there is nothing. A message about a
    /// plan that is made now can change `earliest_epoch` on every switch, and none before.
    /// `ends` says how an epoch ended at each node.
    pub(super) fn step(
        &mut self,
        now_ns: u64,
        plan: &mut Plan,
        earliest_epoch: u64,
        ends: &Ends<'_>,
    ) -> Option<Done> {
        match &mut self.analysis {
            Analysis::ChameleMon(of) => {
                let done = of.step(now_ns, plan, earliest_epoch, ends)?;
                if let Done::ChameleMon { report, .. } = &done {
                    self.unreported = report.epoch + 1;
                }
                Some(done)
            }
            Analysis::Other(of, at) => {
                let clock = ends.clock;
                let of_nodes = |window: Range<u64>| {
                    let since_ns = clock.start_of(window.start);
                    let time_ns = since_ns..clock.start_of(window.end);
                    let mut all = (ends.problems_around)(&window);
                    let of_node = |&at: &usize| NodeState {
                        problem: all[at].take(),
                        offset: (ends.offset)(at, since_ns),
                        kind: (ends.kind)(at),
                        measured_before: (ends.measured_before)(at),
                        is_gone: (ends.is_gone)(at, &time_ns),
                    };
                    at.iter().map(of_node).collect()
                };
                let analysed = of.step(now_ns, of_nodes)?;
                self.unreported = analysed.next;
                Some(Done::Other { next: analysed.next, report: analysed.report })
            }
        }
    }
}

/// ChameleMon, which plans by what it finds.
#[derive(Debug)]
struct ChameleMon {
    layout: Layout,
    collector: Collector,
    analyser: Analyser,
    planner: Option<Planner>,
    losses_only: bool,
    measured: BTreeMap<u64, Measured>,
    /// Bytes of the frames of each epoch that has not been reported.
    frame_bytes: BTreeMap<u64, u64>,
}

/// An epoch that is measured, but not over yet.
#[derive(Debug)]
struct Measured {
    decoded: DecodedEpoch,
    plan: Option<PlanReport>,
    response: Duration,
}

impl ChameleMon {
    fn new(setup: &Setup, edges: &[Arc<Node>], keys: &HashKeys) -> Result<Self> {
        let layout = setup.layout.clone();
        let planner = setup.planner.map(|bounds| Planner::new(layout.clone(), bounds));
        let edges = edges.iter().map(|edge| edge.name.clone()).collect();
        let decoder = Decoder::new(layout.clone(), keys.clone(), setup.clock);
        decoder.set_dated(!setup.carrier.is_tos());
        Ok(Self {
            planner: planner.transpose().map_err(anyhow::Error::msg)?,
            collector: Collector::new(edges, setup.clock, setup.grace_ns),
            analyser: Analyser::with(decoder, setup.tasks),
            layout,
            losses_only: setup.losses_only,
            measured: BTreeMap::new(),
            frame_bytes: BTreeMap::new(),
        })
    }

    /// Decodes an epoch that is measured and plans from it, or reports one that is over or whose
    /// time is up.
    fn step(
        &mut self,
        now_ns: u64,
        plan: &mut Plan,
        earliest_epoch: u64,
        of_nodes: &Ends<'_>,
    ) -> Option<Done> {
        loop {
            match self.collector.step(now_ns, |epoch| plan.timeline.freeze(epoch))? {
                Step::Decode(input, _) => {
                    let begun = Instant::now();
                    let decoded = self.analyser.decoder().decode(input);
                    let planned = self.next(&decoded, plan, earliest_epoch);
                    let response = begun.elapsed();
                    let (report, change) = planned.unzip();
                    let measured = Measured { decoded, plan: report, response };
                    self.measured.insert(measured.decoded.epoch(), measured);
                    if let Some(change) = change.flatten() {
                        return Some(Done::Change(change));
                    }
                }
                Step::Report(mut ends) => {
                    let problems = (of_nodes.problems)(ends.epoch).into_iter();
                    let of_edges = problems.zip((of_nodes.unprobed)(ends.epoch));
                    for (at, (end, of_edge)) in ends.nodes.iter_mut().zip(of_edges).enumerate() {
                        (end.clock, end.unprobed) = of_edge;
                        end.measured_before = (of_nodes.measured_before)(at);
                    }
                    let Some(mut measured) = self.measured.remove(&ends.epoch) else { continue };
                    measured.decoded.end(ends.nodes);
                    let mut report = match self.losses_only {
                        true => self.analyser.report_losses_only(measured.decoded),
                        false => self.analyser.report(measured.decoded),
                    };
                    report.plan = measured.plan;
                    let later = self.frame_bytes.split_off(&(ends.epoch + 1));
                    let earlier = std::mem::replace(&mut self.frame_bytes, later);
                    return Some(Done::ChameleMon {
                        report: Box::new(report),
                        frame_bytes: earlier.get(&ends.epoch).copied().unwrap_or(0),
                        response: measured.response,
                    });
                }
            }
        }
    }

    /// Plans from an epoch, and gives what edges are to be sent where something changes.
    fn next(
        &mut self,
        decoded: &DecodedEpoch,
        plan: &mut Plan,
        earliest_epoch: u64,
    ) -> Option<(PlanReport, Option<wire::Message>)> {
        let observation = Observation::of(decoded)?;
        let (_, standing) = plan.last;
        let planned = self.planner.as_mut()?.next(&observation, &standing);
        let applied = planned.attention != standing;
        let mut effective_epoch = earliest_epoch;
        let mut change = None;
        if applied {
            effective_epoch = plan.change(earliest_epoch, planned.attention);
            change = plan.change_after(0);
        }
        let report = PlanReport {
            effective_epoch,
            state: planned.state,
            config: (&planned.attention).into(),
            applied,
            reasons: planned.reasons,
        };
        Some((report, change))
    }
}
