//! How INT is switched on and off in a network: step by step, each once everybody has taken the one
//! before, and back in reverse.
//!
//! ```text
//! off > sinks > transits > sources
//! ```
//!
//! Sinks take stacks out of packets whether a controller is there or not; the steps see to it that
//! no source puts one in before every edge has said that it does. A node counts as ready for a step
//! once the window has begun from which on it applies it, and packets of the one before are no
//! longer under way. One that is away goes on as it is, and counts so, for as long as a source goes
//! on without a controller; then no source is left that nobody knows of.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use calumma_analysis::steer::first_keys;
use calumma_analysis::{Applied, Node, Noticed, RecentlyNoticed, Standing, Steer};
use calumma_epoch::EpochClock;
use calumma_sketch::WideKey;
use calumma_sketchint::frames::{Holding, Plan, Setup, Step};
use calumma_wire::Role;

/// How much longer than it has to a source may go on without a controller: until it notices, and
/// for what its clock differs.
const ORPHAN_MARGIN_NS: u64 = 6_000_000_000;

/// Decisions that are remembered, for windows that are reported later.
const MOST_DECISIONS: usize = 64;

/// Where a network stands, shared by who decides and who reports it.
#[derive(Clone, Debug)]
pub(crate) struct Lifecycle(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    clock: EpochClock,
    window: u64,
    /// How long a node that is away counts as it was.
    orphan_ns: u64,
    nodes: Vec<Arc<Node>>,
    /// The step that each node has been known to be at, before what it applies from a window to
    /// come.
    known: Vec<Option<Step>>,
    /// What nodes are to do now; `None` until a controller that was started knows what they do.
    at: Option<Step>,
    /// The steps that held everywhere, each from when on, in nanoseconds since the Unix epoch.
    decisions: VecDeque<(u64, Step)>,
    /// What it waits for, in words.
    waits_for: Vec<String>,
    /// Flows that carry stacks whatever the share; `None` where there are to be none.
    attention: Option<Attention>,
}

/// Flows that carry stacks whatever the share.
#[derive(Debug)]
struct Attention {
    /// What ChameleMon found in the last epochs.
    noticed: RecentlyNoticed,
    /// The flows of the plan that edges have been sent last.
    sent: Arc<[WideKey]>,
}

impl Default for Attention {
    fn default() -> Self {
        Self { noticed: RecentlyNoticed::new(Plan::MOST_ATTENDED), sent: Arc::default() }
    }
}

impl Attention {
    /// The flows of the last epochs, as many as there is room for: those that lost packets before
    /// heavy hitters, and those of newer epochs first.
    fn flows(&self) -> Arc<[WideKey]> {
        let all = self.noticed.victims().chain(self.noticed.heavy_hitters());
        first_keys(all, Plan::MOST_ATTENDED).into()
    }
}

impl Lifecycle {
    /// That of `nodes`, of which nothing is known yet.
    pub(crate) fn new(
        setup: &Setup,
        attention: bool,
        clock: EpochClock,
        nodes: &[Arc<Node>],
    ) -> Self {
        let orphan_ns = u64::from(setup.orphan_seconds) * 1_000_000_000 + ORPHAN_MARGIN_NS;
        Self(Arc::new(Mutex::new(State {
            clock,
            window: setup.window_epochs.max(1).into(),
            orphan_ns,
            known: vec![None; nodes.len()],
            nodes: nodes.to_vec(),
            at: None,
            decisions: VecDeque::new(),
            waits_for: Vec::new(),
            attention: attention.then(Attention::default),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it is ever left half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The least step that held everywhere in a window, and what keeps the network from the next
    /// one, in words.
    pub(crate) fn in_window(&self, from_ns: u64, to_ns: u64) -> (Step, Vec<String>) {
        let state = self.lock();
        let before = state.decisions.iter().rev().find(|(since_ns, _)| *since_ns <= from_ns);
        let within = state.decisions.iter().filter(|(at, _)| (from_ns..to_ns).contains(at));
        let before = before.map_or(Step::Off, |(_, step)| *step);
        let step = within.map(|(_, step)| *step).fold(before, Step::min);
        (step, state.waits_for.clone())
    }
}

impl State {
    /// When a plan holds everywhere at a node, and no packet from before it is under way any more.
    fn in_force(&self, applied: &Applied, now_ns: u64) -> bool {
        let epoch = applied.epoch.div_ceil(self.window).saturating_mul(self.window);
        let guards = self.clock.guards();
        let settled_ns = guards.clock_ns.saturating_add(guards.flight_ns);
        now_ns >= self.clock.start_of(epoch).saturating_add(settled_ns)
    }

    /// Whether a node that is away has been so for longer than a source goes on.
    fn is_lost(&self, node: &Standing, now_ns: u64) -> bool {
        let since_ns = node.away_since_ns;
        since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= self.orphan_ns)
    }

    /// The step that the node at a position is at, as far as it has said.
    fn at(&self, position: usize, node: &Standing, now_ns: u64) -> Option<Step> {
        let applied = node.applied.as_ref()?;
        let step = step_of(applied);
        if self.in_force(applied, now_ns) {
            return Some(step);
        }
        let before = self.known.get(position).copied().flatten();
        before.map(|before| before.min(step))
    }

    /// Why the node at a position is not ready for `step`; `None` where it is.
    fn lacks(&self, at: usize, node: &Standing, step: Step, now_ns: u64) -> Option<String> {
        if let Some(problem) = &node.problem {
            return Some(problem.clone());
        }
        if !node.has_come {
            return Some("it has not come yet".to_owned());
        }
        if self.is_lost(node, now_ns) {
            return Some("it is away".to_owned());
        }
        if self.at(at, node, now_ns) >= Some(step) {
            return None;
        }
        let is_asked = node.unanswered.iter().any(|of| step_of(of) >= step);
        let is_to_come = node.applied.as_ref().is_some_and(|of| step_of(of) >= step);
        let why = match (is_to_come, is_asked) {
            (true, _) => "its window is to come",
            (false, true) => "it has not answered yet",
            (false, false) => "it has not been asked yet",
        };
        Some(why.to_owned())
    }

    /// The names of those that are not ready for `step`, and why.
    fn lacking(&self, nodes: &[Standing], step: Step, now_ns: u64) -> Vec<String> {
        let named = self.nodes.iter().zip(nodes).enumerate();
        let lacking = named.filter_map(|(at, (node, standing))| {
            let why = self.lacks(at, standing, step, now_ns)?;
            Some(format!("{}: {why}", node.name))
        });
        lacking.collect()
    }

    /// Whether a node may still put stacks into packets, or have some under way.
    fn may_source(&self, node: &Standing, now_ns: u64) -> bool {
        if self.is_lost(node, now_ns) {
            return false;
        }
        if node.away_since_ns.is_some() && !node.has_come {
            // It may go on by what a controller before this one has sent it.
            return true;
        }
        let stopped = |of: &Applied| step_of(of) < Step::Sources && self.in_force(of, now_ns);
        node.possible().any(|of| step_of(of) == Step::Sources)
            || node.applied.as_ref().is_some_and(|applied| !stopped(applied))
    }

    /// The step that is to be taken next.
    fn next(&mut self, nodes: &[Standing], now_ns: u64) -> Option<Step> {
        let Some(at) = self.at else {
            // What there is to go on with is known once everybody has come, or counts as lost.
            let is_known = |of: &Standing| of.has_come || self.is_lost(of, now_ns);
            if !nodes.iter().all(is_known) {
                return None;
            }
            let held = nodes.iter().flat_map(Standing::possible).map(step_of).max();
            let held = held.unwrap_or(Step::Sinks).max(Step::Sinks);
            // All of them are, or none.
            let all = self.lacking(nodes, Step::Transits, now_ns).is_empty();
            return Some(if all { held } else { held.min(Step::Transits) });
        };
        let all = |step| self.lacking(nodes, step, now_ns).is_empty();
        let none_sources = || !nodes.iter().any(|of| self.may_source(of, now_ns));
        Some(match at {
            Step::Off => Step::Sinks,
            Step::Sinks if all(Step::Sinks) => Step::Transits,
            Step::Transits if all(Step::Transits) => Step::Sources,
            // Sources first, and the others once nothing is under way any more.
            Step::Sources if !all(Step::Sinks) => Step::Transits,
            Step::Transits if !all(Step::Sinks) && none_sources() => Step::Sinks,
            stays => stays,
        })
    }

    fn decide(&mut self, nodes: &[Standing], now_ns: u64) {
        let known = nodes.iter().enumerate().map(|(at, node)| self.at(at, node, now_ns));
        self.known = known.collect();
        if let Some(step) = self.next(nodes, now_ns) {
            self.at = Some(step);
        }
        // Sources begin with their window: until all have, some packets have no stacks.
        let held = self.at.map(|at| match at {
            Step::Sources if !self.lacking(nodes, at, now_ns).is_empty() => Step::Transits,
            at => at,
        });
        let last = self.decisions.back().map(|(_, step)| *step);
        if let Some(step) = held.filter(|_| held != last) {
            if self.decisions.len() == MOST_DECISIONS {
                self.decisions.pop_front();
            }
            self.decisions.push_back((now_ns, step));
        }
        // What keeps it from the step after, and from being on where that is the last one.
        let wanted = match self.at {
            None | Some(Step::Off | Step::Sinks) => Step::Sinks,
            Some(Step::Transits) => Step::Transits,
            Some(Step::Sources) => Step::Sources,
        };
        self.waits_for = self.lacking(nodes, wanted, now_ns);
    }

    /// Looks which flows carry stacks whatever the share, once every node applies what it was sent
    /// last: a plan is never replaced before its window, so that none waits for ever.
    fn turn_attention(&mut self, nodes: &[Standing], now_ns: u64) {
        let is_settled = |of: &Standing| {
            let applied = of.applied.as_ref().is_some_and(|of| self.in_force(of, now_ns));
            applied && of.unanswered.is_empty() && of.away_since_ns.is_none()
        };
        let may_turn = self.at == Some(Step::Sources) && nodes.iter().all(is_settled);
        let Some(attention) = self.attention.as_mut().filter(|_| may_turn) else { return };
        attention.sent = attention.flows();
    }

    /// What the node at a position is to do at a step.
    fn plan(&self, position: usize, step: Step) -> Plan {
        let is_source = self.nodes.get(position).is_some_and(|node| node.role == Role::Edge);
        let attention = self.attention.as_ref().filter(|_| is_source && step == Step::Sources);
        let attended = attention.map(|attention| attention.sent.clone()).unwrap_or_default();
        Plan { step, attended }
    }
}

impl Steer for Lifecycle {
    fn held(&self, setup: &[u8], holding: &[u8]) -> Option<Applied> {
        let holding = Holding::decode(holding).ok()?;
        (holding.setup == setup)
            .then(|| Applied { epoch: holding.epoch, plan: holding.plan.encode() })
    }

    fn plans(&mut self, nodes: &[Standing], now_ns: u64) -> Vec<Option<Vec<u8>>> {
        let mut state = self.lock();
        state.decide(nodes, now_ns);
        state.turn_attention(nodes, now_ns);
        let at = state.at;
        let plan = |(position, node): (usize, &Standing)| match at {
            Some(step) => Some(state.plan(position, step).encode()),
            // To take stacks out is right whatever others do.
            None if node.applied.is_none() => Some(Plan::of(Step::Sinks).encode()),
            None => None,
        };
        nodes.iter().enumerate().map(plan).collect()
    }

    fn wants_noticed(&self) -> bool {
        self.lock().attention.is_some()
    }

    fn notice(&mut self, noticed: &Noticed) {
        if let Some(attention) = &mut self.lock().attention {
            attention.noticed.add(noticed);
        }
    }
}

/// The step of a plan that was sent or is held.
fn step_of(of: &Applied) -> Step {
    Step::of_plan(&of.plan)
}

#[cfg(test)]
#[path = "lifecycle/tests.rs"]
mod tests;
