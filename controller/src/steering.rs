//! Plans of a system that change while it runs, on their way to its nodes.
//!
//! The system's [`Steer`] says which plan every node is to have; this sends it for an epoch, again
//! where it came too late or nobody answered, and keeps what each node has said. Pure: answers and
//! the time are passed in. Nothing is kept on disk: a node that comes back says what it measures
//! by, and so does every node to a controller that was restarted.

use std::collections::BTreeMap;

use calumma_analysis::{Applied, Flow, NodeSetup, Noticed, Pins, Standing, Steer};
use calumma_wire::{Message, Outcome, SystemId};
use serde_json::{Map, Value};

use crate::report::EpochReport;

/// How long an answer is waited for before a plan is sent again, in nanoseconds.
const ANSWER_NS: u64 = 2_000_000_000;

/// Plans without an answer that are kept of a node.
const MOST_UNANSWERED: usize = 8;

/// The plans of one system.
#[derive(Debug)]
pub struct Steering {
    steer: Box<dyn Steer>,
    system: SystemId,
    /// Epochs of a window.
    window: u64,
    /// By position among all nodes.
    nodes: BTreeMap<usize, OfNode>,
}

#[derive(Debug)]
struct OfNode {
    standing: Standing,
    /// When it was sent a plan last.
    sent_ns: u64,
}

impl OfNode {
    /// The plan that it was sent last, or measures by.
    fn newest(&self) -> Option<&Applied> {
        self.standing.unanswered.last().or(self.standing.applied.as_ref())
    }

    fn expect(&mut self, sent: Applied) {
        let unanswered = &mut self.standing.unanswered;
        if unanswered.len() >= MOST_UNANSWERED
            && let Some(same) = unanswered.iter().position(|other| other.plan == sent.plan)
        {
            unanswered.remove(same);
        }
        unanswered.push(sent);
    }
}

impl Steering {
    /// The plans of `system`, which sums over windows of so many epochs, at the nodes at these
    /// positions. None of them has come at `now_ns`.
    pub fn new(
        steer: Box<dyn Steer>,
        (system, window): (SystemId, u64),
        positions: impl IntoIterator<Item = usize>,
        now_ns: u64,
    ) -> Self {
        let standing = Standing { away_since_ns: Some(now_ns), ..Standing::default() };
        let node = |at| (at, OfNode { standing: standing.clone(), sent_ns: 0 });
        let nodes = positions.into_iter().map(node).collect();
        Self { steer, system, window: window.max(1), nodes }
    }

    /// Takes in by which version of the system a node measures that has come.
    pub fn note_version(&mut self, node: usize, version: u8) {
        if let Some(place) = self.nodes.keys().position(|&of| of == node) {
            self.steer.note_version(place, version);
        }
    }

    /// What a node is sent that has just come, or is to run the system from now on, and says that
    /// it is `holding` this. One that measures already goes on by the plan that it has.
    pub fn begin(&mut self, node: usize, setup: &NodeSetup, holding: Option<&[u8]>) -> NodeSetup {
        let Some(of) = self.nodes.get_mut(&node) else { return setup.clone() };
        let held = holding.and_then(|holding| self.steer.held(&setup.setup, holding));
        let plan = held.as_ref().map_or(&setup.plan, |held| &held.plan).clone();
        of.standing = Standing { has_come: true, applied: held, ..Standing::default() };
        NodeSetup { setup: setup.setup.clone(), plan }
    }

    /// What a node is sent that runs the system, and is sent all that it measures by once more, for
    /// `epoch`: the plan stays as it was sent last.
    pub fn repeat(&mut self, node: usize, setup: &NodeSetup, epoch: u64) -> NodeSetup {
        let Some(of) = self.nodes.get_mut(&node) else { return setup.clone() };
        let plan = of.newest().map_or(&setup.plan, |newest| &newest.plan).clone();
        if !of.standing.unanswered.is_empty() {
            // Where it came too late, this may be the message that it is accepted by.
            of.expect(Applied { epoch, plan: plan.clone() });
        }
        NodeSetup { setup: setup.setup.clone(), plan }
    }

    /// A node is not connected from `now_ns` on.
    pub fn left(&mut self, node: usize, now_ns: u64) {
        if let Some(of) = self.nodes.get_mut(&node) {
            of.standing.away_since_ns.get_or_insert(now_ns);
        }
    }

    /// A node that has come can't run the system.
    pub fn lacks(&mut self, node: usize, problem: String) {
        if let Some(of) = self.nodes.get_mut(&node) {
            let problem = Some(problem);
            of.standing = Standing { has_come: true, problem, ..Standing::default() };
        }
    }

    /// Takes in what became of the plan for `epoch` at a node. Gives what it is to be sent because
    /// of that.
    pub fn answered(
        &mut self,
        node: usize,
        epoch: u64,
        outcome: &Outcome,
        now_ns: u64,
    ) -> Option<Message> {
        let (system, window) = (self.system, self.window);
        let of = self.nodes.get_mut(&node)?;
        let unanswered = &mut of.standing.unanswered;
        let at = unanswered.iter().position(|sent| sent.epoch == epoch);
        match outcome {
            Outcome::Accepted => {
                // What it was sent before, it has answered before, or never got.
                of.standing.applied = unanswered.drain(..=at?).next_back();
                None
            }
            Outcome::TooLate { earliest } => {
                let at = at?;
                let late = unanswered.remove(at);
                if at < unanswered.len() {
                    return None;
                }
                // One more epoch, so that the answer is not too late again.
                let epoch = window_from(earliest.saturating_add(1), window);
                let again = Applied { epoch, plan: late.plan };
                of.sent_ns = now_ns;
                of.expect(again.clone());
                Some(reconfigure(system, again))
            }
            Outcome::Invalid { reason } => {
                match at {
                    Some(at) => drop(unanswered.remove(at)),
                    // It can't measure by the setup.
                    None => of.standing.applied = None,
                }
                of.standing.problem = Some(reason.clone());
                None
            }
        }
    }

    /// What nodes are to be sent now, where `earliest` is the first epoch that this can change on
    /// all of them.
    pub fn step(&mut self, earliest: u64, now_ns: u64) -> Vec<(usize, Message)> {
        let standings: Vec<Standing> = self.nodes.values().map(|of| of.standing.clone()).collect();
        let plans = self.steer.plans(&standings, now_ns);
        let epoch = window_from(earliest, self.window);
        let mut messages = Vec::new();
        for ((&at, of), plan) in self.nodes.iter_mut().zip(plans) {
            let Standing { away_since_ns, has_come, problem, unanswered, .. } = &of.standing;
            if away_since_ns.is_some() || !has_come || problem.is_some() {
                continue;
            }
            let Some(plan) = plan else { continue };
            let is_new = of.newest().is_none_or(|newest| newest.plan != plan);
            let is_lost = !unanswered.is_empty() && now_ns.saturating_sub(of.sent_ns) >= ANSWER_NS;
            if is_new || is_lost {
                let sent = Applied { epoch, plan };
                of.sent_ns = now_ns;
                of.expect(sent.clone());
                messages.push((at, reconfigure(self.system, sent)));
            }
        }
        messages
    }

    /// Whether the system wants to know of flows that ChameleMon finds.
    pub fn wants_noticed(&self) -> bool {
        self.steer.wants_noticed()
    }

    /// Takes in what ChameleMon reports of an epoch.
    pub fn notice(&mut self, noticed: &Noticed) {
        self.steer.notice(noticed);
    }

    /// Pins these flows, and none that were pinned by this before, from a window to come on.
    ///
    /// # Errors
    /// Why they stay as they are.
    pub fn pin(&mut self, flows: &[Flow]) -> Result<(), String> {
        self.steer.pin(flows)
    }

    /// Flows that are pinned; `None` where the system pins none.
    pub fn pins(&self) -> Option<Pins> {
        self.steer.pins()
    }

    /// Takes over what may change of a section that was read again, as [`Steer::reload`] does.
    ///
    /// # Errors
    /// What is wrong with it. Then all stays as it is.
    pub fn reload(&mut self, section: &Value) -> Result<Vec<String>, String> {
        self.steer.reload(section)
    }

    /// Changes these fields of the section from a window to come on.
    ///
    /// # Errors
    /// What is wrong with one, or why it can't change. Then all stay as they are.
    pub fn amend(&mut self, changes: &Map<String, Value>) -> Result<(), String> {
        self.steer.amend(changes)
    }

    /// The fields that may change, and what nodes were sent of them; `None` where none may.
    pub fn settings(&self) -> Option<Value> {
        self.steer.settings()
    }

    /// How a node stands.
    pub fn standing(&self, node: usize) -> Option<&Standing> {
        self.nodes.get(&node).map(|of| &of.standing)
    }
}

/// The flows that ChameleMon reports, those of most packets first.
pub fn noticed_in(report: &EpochReport) -> Noticed {
    let mut lost: Vec<_> = report.loss.iter().map(|loss| (loss.lost, loss.flow)).collect();
    lost.sort_by_key(|(lost, _)| std::cmp::Reverse(*lost));
    let heavy = report.edges.iter().flat_map(|edge| &edge.heavy_hitters);
    let mut heavy: Vec<_> = heavy.map(|of| (of.size, of.flow)).collect();
    heavy.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    let flows = |of: Vec<(u64, Flow)>| of.into_iter().map(|(_, flow)| flow).collect();
    Noticed { epoch: report.epoch, victims: flows(lost), heavy_hitters: flows(heavy) }
}

/// The first epoch of the first window that begins with `epoch` or after it.
fn window_from(epoch: u64, window: u64) -> u64 {
    epoch.div_ceil(window).saturating_mul(window)
}

fn reconfigure(system: SystemId, of: Applied) -> Message {
    Message::Reconfigure { system, effective_epoch: of.epoch, plan: of.plan }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEM: SystemId = SystemId(200);
    const SECOND: u64 = 1_000_000_000;

    /// Wants the same of all nodes; holdings are the setup, the epoch and the plan, a byte each.
    #[derive(Debug, Default)]
    struct Same(Option<u8>);

    impl Steer for Same {
        fn held(&self, setup: &[u8], holding: &[u8]) -> Option<Applied> {
            let &[of, epoch, plan] = holding else { return None };
            (setup == [of]).then(|| Applied { epoch: epoch.into(), plan: vec![plan] })
        }

        fn plans(&mut self, nodes: &[Standing], _now_ns: u64) -> Vec<Option<Vec<u8>>> {
            vec![self.0.map(|plan| vec![plan]); nodes.len()]
        }
    }

    fn steering(plan: u8) -> Steering {
        Steering::new(Box::new(Same(Some(plan))), (SYSTEM, 10), [3, 5], SECOND)
    }

    fn setup() -> NodeSetup {
        NodeSetup { setup: vec![7], plan: vec![0] }
    }

    fn message(epoch: u64, plan: u8) -> Message {
        Message::Reconfigure { system: SYSTEM, effective_epoch: epoch, plan: vec![plan] }
    }

    fn applied(epoch: u64, plan: u8) -> Applied {
        Applied { epoch, plan: vec![plan] }
    }

    #[test]
    fn a_plan_is_sent_for_a_window_to_those_that_have_come_and_is_known_once_accepted() {
        let mut steering = steering(1);
        assert!(steering.step(101, SECOND).is_empty(), "nobody has come");
        assert_eq!(steering.begin(5, &setup(), None), setup());
        assert_eq!(steering.step(101, SECOND), [(5, message(110, 1))]);
        assert!(steering.step(102, SECOND + 1).is_empty(), "it has been sent");
        assert_eq!(steering.standing(5).unwrap().applied, None);
        assert_eq!(steering.answered(5, 110, &Outcome::Accepted, SECOND), None);
        let standing = steering.standing(5).unwrap();
        assert_eq!(standing.applied, Some(applied(110, 1)));
        assert!(standing.unanswered.is_empty());
        assert!(steering.standing(3).unwrap().away_since_ns == Some(SECOND));
    }

    /// Systems know nodes by their places, whoever else there is.
    #[test]
    fn versions_are_noted_of_nodes_that_run_the_system() {
        #[derive(Debug)]
        struct Noting(std::sync::mpsc::Sender<(usize, u8)>);

        impl Steer for Noting {
            fn held(&self, _: &[u8], _: &[u8]) -> Option<Applied> {
                None
            }

            fn plans(&mut self, nodes: &[Standing], _: u64) -> Vec<Option<Vec<u8>>> {
                vec![None; nodes.len()]
            }

            fn note_version(&mut self, node: usize, version: u8) {
                self.0.send((node, version)).unwrap();
            }
        }

        let (give, noted) = std::sync::mpsc::channel();
        let mut steering = Steering::new(Box::new(Noting(give)), (SYSTEM, 10), [3, 5], SECOND);
        for (node, version) in [(5, 2), (4, 9), (3, 1)] {
            steering.note_version(node, version);
        }
        assert_eq!(noted.try_iter().collect::<Vec<_>>(), [(1, 2), (0, 1)]);
    }

    #[test]
    fn what_came_too_late_is_sent_for_a_later_window_and_what_got_no_answer_again() {
        let mut steering = steering(1);
        steering.begin(3, &setup(), None);
        steering.step(100, SECOND);
        let late = Outcome::TooLate { earliest: 100 };
        assert_eq!(steering.answered(3, 100, &late, SECOND), Some(message(110, 1)));
        assert!(steering.step(105, 2 * SECOND).is_empty());
        assert_eq!(steering.step(145, 3 * SECOND), [(3, message(150, 1))]);
        assert_eq!(steering.standing(3).unwrap().possible().count(), 2, "either may hold");
        // However long it takes, no more are kept than there is room for.
        for at in 2..100 {
            steering.step(150 + 10 * at, 3 * at * SECOND);
        }
        assert_eq!(steering.standing(3).unwrap().unanswered.len(), MOST_UNANSWERED);
        let last = steering.standing(3).unwrap().unanswered.last().unwrap().clone();
        steering.answered(3, last.epoch, &Outcome::Accepted, 0);
        assert_eq!(steering.standing(3).unwrap().possible().collect::<Vec<_>>(), [&last]);
    }

    #[test]
    fn a_node_that_comes_back_goes_on_by_what_it_holds_unless_its_setup_is_another() {
        let mut steering = steering(1);
        // To a controller that was restarted as well.
        let sent = steering.begin(3, &setup(), Some(&[7, 90, 1]));
        assert_eq!(sent, NodeSetup { plan: vec![1], ..setup() });
        assert!(steering.step(100, SECOND).is_empty(), "it has that plan already");
        steering.left(3, 2 * SECOND);
        assert_eq!(steering.standing(3).unwrap().away_since_ns, Some(2 * SECOND));
        assert_eq!(steering.begin(3, &setup(), Some(&[8, 90, 1])), setup());
        assert_eq!(steering.step(100, 3 * SECOND), [(3, message(100, 1))]);
        // A plan that was lost with the connection may hold as long as nobody knows better.
        steering.left(3, 4 * SECOND);
        assert_eq!(steering.standing(3).unwrap().possible().count(), 1);
        steering.begin(3, &setup(), Some(&[7, 100, 1]));
        assert_eq!(steering.standing(3).unwrap().applied, Some(applied(100, 1)));
    }

    #[test]
    fn what_keeps_a_node_from_measuring_is_known_until_it_comes_back() {
        let mut steering = steering(1);
        steering.lacks(5, "it is too old".to_owned());
        assert!(steering.step(100, SECOND).is_empty());
        assert_eq!(steering.standing(5).unwrap().problem.as_deref(), Some("it is too old"));
        steering.begin(5, &setup(), None);
        let reason = "no memory".to_owned();
        steering.answered(5, 77, &Outcome::Invalid { reason }, SECOND);
        assert_eq!(steering.standing(5).unwrap().problem.as_deref(), Some("no memory"));
        assert!(steering.step(100, SECOND).is_empty());
        steering.begin(5, &setup(), None);
        assert_eq!(steering.step(100, SECOND), [(5, message(100, 1))]);
    }

    #[test]
    fn a_setup_that_is_sent_once_more_says_the_newest_plan() {
        let mut steering = steering(1);
        steering.begin(3, &setup(), None);
        assert_eq!(steering.repeat(3, &setup(), 98), setup());
        steering.step(100, SECOND);
        assert_eq!(steering.repeat(3, &setup(), 103).plan, [1]);
        steering.answered(3, 103, &Outcome::Accepted, SECOND);
        assert_eq!(steering.standing(3).unwrap().applied, Some(applied(103, 1)));
        assert!(steering.standing(3).unwrap().unanswered.is_empty());
    }
}
