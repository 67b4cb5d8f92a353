//! What plans say: which flows all switches count, whatever their hashes (those that an operator
//! has named, and those that ChameleMon found to lose packets or to be large), and which share of
//! their memory the tables have.
//!
//! A plan holds for whole windows. The next one is made once every node that takes plans applies
//! the last one, so that none waits for ever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use calumma_analysis::steer::first_keys;
use calumma_analysis::{
    Applied, Flow, Node, Noticed, Pins, RecentlyNoticed, Standing, Steer, TableShare, TableShares,
};
use calumma_cfs::frames::{self, ALPHA_SINCE, Holding, PINS_SINCE, Plan, Setup};
use calumma_epoch::EpochClock;
use calumma_sketch::WideKey;

use crate::alpha::Fared;
use crate::dividing::Dividing;

/// What is pinned without an operator's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Automatic {
    /// Flows that lost packets.
    pub(crate) victims: bool,
    /// Heavy hitters.
    pub(crate) heavy: bool,
}

/// The pins of a network, shared by who decides and who sets nodes up.
#[derive(Clone, Debug)]
pub(crate) struct Pinning(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    clock: EpochClock,
    setup: Setup,
    most: usize,
    automatic: Automatic,
    nodes: Vec<Arc<Node>>,
    /// By which version each node measures; `None` where it has not come yet.
    versions: Vec<Option<u8>>,
    dividing: Dividing,
    /// What an operator has named, in the order of importance.
    wanted: Vec<Flow>,
    noticed: RecentlyNoticed,
    /// The plan that nodes have been sent last.
    sent: Plan,
}

impl Pinning {
    /// No pins yet, and at most so many.
    pub(crate) fn new(
        (most, automatic): (usize, Automatic),
        dividing: Dividing,
        clock: EpochClock,
        nodes: &[Arc<Node>],
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            clock,
            setup: dividing.setup(),
            most,
            automatic,
            nodes: nodes.to_vec(),
            versions: vec![None; nodes.len()],
            dividing,
            wanted: Vec::new(),
            noticed: RecentlyNoticed::new(most),
            sent: Plan::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it is ever left half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes by which version a node measures.
    pub(crate) fn note_version(&self, node: &Node, version: u8) {
        let mut state = self.lock();
        if let Some(at) = state.nodes.iter().position(|of| of.id == node.id) {
            state.versions[at] = Some(version);
        }
    }

    /// Takes the outcome of a window that all nodes delivered, in which tables had this share.
    pub(crate) fn learn(&self, alpha: u8, fared: Fared) {
        self.lock().dividing.learn(alpha, fared);
    }
}

impl State {
    fn is_able(&self, at: usize) -> bool {
        self.is_since(at, PINS_SINCE) == Some(true)
    }

    /// Whether a node measures by this version or a later one; `None` where it has not come yet.
    fn is_since(&self, at: usize, version: u8) -> Option<bool> {
        Some(self.versions.get(at).copied().flatten()? >= version)
    }

    /// The nodes that are older than this version.
    fn without(&self, version: u8) -> Vec<String> {
        let older = self.nodes.iter().enumerate();
        let older = older.filter(|(at, _)| self.is_since(*at, version) == Some(false));
        older.map(|(_, node)| node.name.clone()).collect()
    }

    /// Whether the node at a position applies what it was sent last, or can't.
    fn is_settled(&self, at: usize, node: &Standing, now_ns: u64) -> bool {
        if !self.is_able(at) || node.away_since_ns.is_some() || node.problem.is_some() {
            return true;
        }
        let window = u64::from(self.setup.window_epochs);
        let nothing = self.sent == Plan::default();
        let in_force = node.applied.as_ref().map_or(nothing, |applied| {
            let epoch = applied.epoch.div_ceil(window).saturating_mul(window);
            now_ns >= self.clock.start_of(epoch)
        });
        in_force && node.unanswered.is_empty()
    }

    /// The flows to be pinned next: of more than there is room for, those of the operator, then
    /// those that lost packets, then heavy hitters, and of each kind the newest.
    fn next_pins(&self) -> Vec<WideKey> {
        let Automatic { victims, heavy } = self.automatic;
        let victims = self.noticed.victims().filter(|_| victims);
        let heavy = self.noticed.heavy_hitters().filter(|_| heavy);
        first_keys(self.wanted.iter().chain(victims).chain(heavy), self.most)
    }
}

impl Steer for Pinning {
    fn held(&self, setup: &[u8], holding: &[u8]) -> Option<Applied> {
        let Holding { setup: of, epoch, plan } = Holding::decode(holding).ok()?;
        if of != setup {
            return None;
        }
        let known = Setup::decode(setup).ok();
        if let Some(Ok(held)) = known.map(|setup| Plan::decode(&plan, &setup)) {
            self.lock().dividing.take_over(held.alpha);
        }
        Some(Applied { epoch, plan })
    }

    fn plans(&mut self, nodes: &[Standing], now_ns: u64) -> Vec<Option<Vec<u8>>> {
        let mut state = self.lock();
        let mut all = nodes.iter().enumerate();
        if all.all(|(at, node)| state.is_settled(at, node, now_ns)) {
            let pins = frames::Pins { flows: state.next_pins().into() };
            state.sent = Plan { alpha: state.dividing.wanted(), pins };
        }
        let moves = [false, true].map(|moves| {
            let alpha_moves = moves && state.setup.alpha_moves;
            state.sent.encode(&Setup { alpha_moves, ..state.setup })
        });
        let of_node = |(at, node): (usize, &Standing)| {
            let plan = &moves[usize::from(state.is_since(at, ALPHA_SINCE) == Some(true))];
            // One that was set up without pins need not be sent that there are none.
            let has_none = node.possible().next().is_none() && plan.is_empty();
            (state.is_able(at) && !has_none).then(|| plan.clone())
        };
        nodes.iter().enumerate().map(of_node).collect()
    }

    fn wants_noticed(&self) -> bool {
        let state = self.lock();
        state.automatic != Automatic::default() && state.most > 0
    }

    fn notice(&mut self, noticed: &Noticed) {
        self.lock().noticed.add(noticed);
    }

    fn pin(&mut self, flows: &[Flow]) -> Result<(), String> {
        let mut state = self.lock();
        if flows.len() > state.most {
            return Err(format!("{} flows: [cfs] pins is {}", flows.len(), state.most));
        }
        if let Some(flow) = flows.iter().find(|flow| flow.key::<WideKey>().is_none()) {
            return Err(format!("{flow}: its addresses are of two kinds"));
        }
        state.wanted = flows.to_vec();
        Ok(())
    }

    fn pins(&self) -> Option<Pins> {
        let state = self.lock();
        Some(Pins {
            most: state.most,
            wanted: state.wanted.clone(),
            sent: state.sent.pins.flows.iter().map(Flow::from).collect(),
            without: state.without(PINS_SINCE),
        })
    }

    fn share(&mut self, wanted: TableShare) -> Result<(), String> {
        self.lock().dividing.say(wanted)
    }

    fn shares(&self) -> Option<TableShares> {
        let state = self.lock();
        let wanted = state.dividing.said()?;
        let sent = state.setup.share(state.sent.alpha);
        Some(TableShares { wanted, sent, without: state.without(ALPHA_SINCE) })
    }
}

#[cfg(test)]
mod tests {
    use calumma_epoch::Guards;
    use calumma_wire::Role;

    use super::*;

    const EPOCH_NS: u64 = 50_000_000;

    fn flow(sport: u16) -> Flow {
        let (src, dst) = ([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
        Flow { src, dst, sport, dport: 80, proto: 6 }
    }

    fn noticed(epoch: u64, victims: &[u16], heavy: &[u16]) -> Noticed {
        let flows = |ports: &[u16]| ports.iter().copied().map(flow).collect();
        Noticed { epoch, victims: flows(victims), heavy_hitters: flows(heavy) }
    }

    /// Three nodes, the last of which is one release older.
    fn pinning(most: usize) -> Pinning {
        of(most, Setup::default())
    }

    fn of(most: usize, setup: Setup) -> Pinning {
        let node = |id: u16| Arc::new(Node { name: format!("e{id}"), role: Role::Edge, id });
        let nodes: Vec<_> = (1..=3).map(node).collect();
        let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
        let automatic = Automatic { victims: true, heavy: true };
        let dividing = Dividing::new(setup, false);
        let pinning = Pinning::new((most, automatic), dividing, clock, &nodes);
        for (node, version) in nodes.iter().zip([PINS_SINCE, PINS_SINCE, PINS_SINCE - 1]) {
            pinning.note_version(node, version);
        }
        pinning
    }

    fn ports(plan: Option<&Vec<u8>>) -> Option<Vec<u16>> {
        let pins = frames::Pins::decode(plan?, 1 << 20).unwrap();
        Some(pins.flows.iter().map(|key| Flow::from(key).sport).collect())
    }

    #[test]
    fn the_operators_flows_come_before_victims_and_these_before_heavy_hitters() {
        let mut pinning = pinning(3);
        let come = Standing { has_come: true, ..Standing::default() };
        let nodes = [come.clone(), come.clone(), come];
        assert_eq!(pinning.plans(&nodes, 0), [const { None::<Vec<u8>> }; 3], "nothing to pin");
        pinning.notice(&noticed(1, &[7], &[1, 2]));
        pinning.pin(&[flow(9)]).unwrap();
        let plans = pinning.plans(&nodes, 0);
        assert_eq!(ports(plans[0].as_ref()), Some(vec![1, 7, 9]));
        assert_eq!((&plans[0], plans[2].as_ref()), (&plans[1], None), "an older one goes on");
        let pins = pinning.pins().unwrap();
        assert_eq!((pins.most, pins.sent.len(), &*pins.wanted), (3, 3, &[flow(9)][..]));
        assert_eq!(pins.without, ["e3"]);
        let many = pinning.pin(&[1, 2, 3, 4].map(flow)).unwrap_err();
        assert_eq!(many, "4 flows: [cfs] pins is 3");
        let mixed = Flow { dst: "2001:db8::1".parse().unwrap(), ..flow(1) };
        assert!(pinning.pin(&[mixed]).unwrap_err().ends_with("of two kinds"));
    }

    #[test]
    fn a_plan_holds_for_a_window_at_least_at_every_node() {
        let mut pinning = pinning(8);
        pinning.pin(&[flow(9)]).unwrap();
        let come = Standing { has_come: true, ..Standing::default() };
        let mut nodes = [come.clone(), come.clone(), come];
        let first = pinning.plans(&nodes, 0)[0].clone().unwrap();
        let applied = |epoch| Some(Applied { epoch, plan: first.clone() });
        nodes[0].applied = applied(20);
        nodes[1].unanswered.extend(applied(20));
        pinning.pin(&[flow(5)]).unwrap();
        let begun = 20 * EPOCH_NS;
        assert_eq!(pinning.plans(&nodes, begun)[0], Some(first.clone()), "one has not answered");
        nodes[1].unanswered.clear();
        // It came too late there, and holds one window later.
        nodes[1].applied = applied(40);
        assert_eq!(pinning.plans(&nodes, begun)[0], Some(first.clone()));
        let next = pinning.plans(&nodes, 2 * begun)[0].clone();
        assert_eq!(ports(next.as_ref()), Some(vec![5]));
        // That there are none any more is a plan as well.
        nodes[..2].iter_mut().for_each(|of| of.applied = applied(40));
        pinning.pin(&[]).unwrap();
        assert_eq!(pinning.plans(&nodes, 2 * begun)[1], Some(Vec::new()));
    }

    #[test]
    fn a_node_that_comes_back_keeps_its_pins_unless_its_setup_is_another() {
        let pinning = pinning(8);
        let holding = Holding { setup: vec![1], epoch: 40, plan: vec![2] };
        let held = pinning.held(&[1], &holding.encode());
        assert_eq!(held, Some(Applied { epoch: 40, plan: vec![2] }));
        assert_eq!(pinning.held(&[3], &holding.encode()), None);
        assert_eq!(pinning.held(&[1], &[]), None, "one that pins none holds nothing");
    }
    #[test]
    fn a_share_goes_to_nodes_that_can_divide_their_memory_and_pins_to_all() {
        let setup = Setup { residual: Some(1024), alpha_moves: true, ..Setup::default() };
        let mut pinning = of(8, setup);
        for (at, version) in [(0, ALPHA_SINCE), (1, ALPHA_SINCE), (2, ALPHA_SINCE - 1)] {
            let node = pinning.lock().nodes[at].clone();
            pinning.note_version(&node, version);
        }
        let come = Standing { has_come: true, ..Standing::default() };
        let nodes = [come.clone(), come.clone(), come];
        assert_eq!(pinning.plans(&nodes, 0), [const { None::<Vec<u8>> }; 3], "as the setup says");
        pinning.share(TableShare::Fixed(0.8)).unwrap();
        assert_eq!(pinning.plans(&nodes, 0), [Some(vec![80]), Some(vec![80]), None]);
        pinning.pin(&[flow(9)]).unwrap();
        let plans = pinning.plans(&nodes, 0);
        assert_eq!(plans[0], Some(vec![80]), "that must hold first");
        let holding = |plan: Vec<u8>| Holding { setup: setup.encode(), epoch: 20, plan }.encode();
        assert!(pinning.held(&setup.encode(), &holding(vec![80])).is_some());
        let applied = pinning.held(&setup.encode(), &holding(vec![80]));
        let nodes = nodes.map(|of| Standing { applied: applied.clone(), ..of });
        let plans = pinning.plans(&nodes, 20 * EPOCH_NS);
        let read = |at: usize, setup| Plan::decode(plans[at].as_ref().unwrap(), &setup).unwrap();
        let (new, old) = (read(0, setup), read(2, Setup { alpha_moves: false, ..setup }));
        assert_eq!((new.alpha, old.alpha, new.pins), (80, 0, old.pins));
        let shares = pinning.shares().unwrap();
        assert_eq!((shares.wanted, shares.sent), (TableShare::Fixed(0.8), Some(0.8)));
        assert_eq!(shares.without, ["e3"]);
    }
}
