//! What plans say: which flows all switches count, whatever their hashes (those that an operator
//! has named, those that ChameleMon found to lose packets or to be large, and large ones that
//! switches counted in the window before), which share of their memory the tables have, and what is
//! otherwise than switches were set up.
//!
//! A plan holds for whole windows. The next one is made once every node that takes plans applies
//! the last one, so that none waits for ever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use calumma_analysis::steer::first_keys;
use calumma_analysis::{Applied, Flow, Node, Noticed, Pins, RecentlyNoticed, Standing, Steer};
use calumma_cfs::frames::{
    self, ALPHA_SINCE, Holding, OVERRIDES_SINCE, Overrides, PINS_SINCE, Plan, Setup, knows,
};
use calumma_epoch::EpochClock;
use calumma_sketch::WideKey;
use serde_json::{Map, Value, json};

use crate::alpha::Fared;
use crate::dividing::{By, Dividing};
use crate::parameters::Thresholds;
use crate::settings::Settings;

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
    settings: Settings,
    nodes: Vec<Arc<Node>>,
    /// By which version each node measures; `None` where it has not come yet.
    versions: Vec<Option<u8>>,
    dividing: Dividing,
    /// What an operator has named, in the order of importance.
    wanted: Vec<Flow>,
    noticed: RecentlyNoticed,
    /// Heavy hitters of the last window, as far as they were counted.
    counted: Vec<Flow>,
    /// The plan that nodes have been sent last.
    sent: Plan,
}

impl Pinning {
    /// No pins yet.
    pub(crate) fn new(settings: Settings, clock: EpochClock, nodes: &[Arc<Node>]) -> Self {
        let dividing = Dividing::new(settings.first().setup, settings.share());
        let noticed = RecentlyNoticed::new(settings.now().pins);
        Self(Arc::new(Mutex::new(State {
            clock,
            settings,
            nodes: nodes.to_vec(),
            versions: vec![None; nodes.len()],
            dividing,
            wanted: Vec::new(),
            noticed,
            counted: Vec::new(),
            sent: Plan::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it is ever left half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the outcome of a window that all nodes delivered, in which tables had this share.
    pub(crate) fn learn(&self, alpha: u8, fared: Fared) {
        self.lock().dividing.learn(alpha, fared);
    }

    /// Takes the heavy hitters that were counted in a window, the most important first.
    pub(crate) fn note_counted(&self, heavy: impl Iterator<Item = Flow>) {
        let mut state = self.lock();
        // Where flows are graded alike in all windows, who was counted once is so in all.
        let most = if state.setup().reseed { state.most() } else { 0 };
        state.counted = heavy.take(most).collect();
    }

    /// How many flows a report lists, and from when on it lists what.
    pub(crate) fn listed(&self) -> (usize, Thresholds) {
        let state = self.lock();
        let now = state.settings.now();
        (now.flows_listed, now.thresholds)
    }
}

impl State {
    /// What switches were set up by.
    fn setup(&self) -> &Setup {
        &self.settings.first().setup
    }

    /// Most flows that are pinned.
    fn most(&self) -> usize {
        self.settings.now().pins
    }

    /// Goes by settings that have changed.
    fn apply(&mut self, settings: Settings) {
        let (before, by) = (self.settings.share(), settings.share());
        // The rule goes on where it stays.
        let by = if by == before { self.dividing.by() } else { by };
        self.dividing.say(settings.now().setup, by);
        if settings.now().pins != self.most() {
            self.noticed = RecentlyNoticed::new(settings.now().pins);
        }
        self.settings = settings;
    }

    /// The plan in the bytes of a node with this version.
    fn encoded(&self, version: u8) -> Vec<u8> {
        self.sent.encode(&self.setup().known_to(version))
    }

    fn is_able(&self, at: usize) -> bool {
        self.is_since(at, PINS_SINCE) == Some(true)
    }

    /// Whether a node measures by a version that has what this one brought; `None` where it has not
    /// come yet.
    fn is_since(&self, at: usize, version: u8) -> Option<bool> {
        Some(knows(self.versions.get(at).copied().flatten()?, version))
    }

    /// The nodes whose versions have not what this one brought.
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
        let window = u64::from(self.setup().window_epochs);
        // One whose version knows nothing of what was sent need not be sent it.
        let version = self.versions.get(at).copied().flatten();
        let nothing = version.is_none_or(|version| self.encoded(version).is_empty());
        let in_force = node.applied.as_ref().map_or(nothing, |applied| {
            let epoch = applied.epoch.div_ceil(window).saturating_mul(window);
            now_ns >= self.clock.start_of(epoch)
        });
        in_force && node.unanswered.is_empty()
    }

    /// The flows to be pinned next: of more than there is room for, those of the operator, then
    /// those that lost packets, then ChameleMon's heavy hitters, and of each kind the newest; and
    /// last those that switches counted, which are the largest.
    fn next_pins(&self) -> Vec<WideKey> {
        let Automatic { victims, heavy } = self.settings.now().pin;
        let victims = self.noticed.victims().filter(|_| victims);
        let of_both = self.noticed.heavy_hitters().chain(&self.counted);
        let heavy = of_both.filter(|_| heavy);
        first_keys(self.wanted.iter().chain(victims).chain(heavy), self.most())
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

    fn note_version(&mut self, node: usize, version: u8) {
        if let Some(of_node) = self.lock().versions.get_mut(node) {
            *of_node = Some(version);
        }
    }

    fn plans(&mut self, nodes: &[Standing], now_ns: u64) -> Vec<Option<Vec<u8>>> {
        let mut state = self.lock();
        let mut all = nodes.iter().enumerate();
        if all.all(|(at, node)| state.is_settled(at, node, now_ns)) {
            let pins = frames::Pins { flows: state.next_pins().into() };
            let (alpha, overrides) = (state.dividing.wanted(), state.settings.overrides());
            state.sent = Plan { alpha, pins, overrides };
        }
        // One of each kind of version.
        let plans = [PINS_SINCE, ALPHA_SINCE, OVERRIDES_SINCE].map(|since| state.encoded(since));
        let of_node = |(at, node): (usize, &Standing)| {
            let is_since = |version| state.is_since(at, version) == Some(true);
            let kind = [ALPHA_SINCE, OVERRIDES_SINCE].map(is_since).map(usize::from);
            let plan = &plans[kind.iter().sum::<usize>()];
            // One that was set up without pins need not be sent that there are none.
            let has_none = node.possible().next().is_none() && plan.is_empty();
            (state.is_able(at) && !has_none).then(|| plan.clone())
        };
        nodes.iter().enumerate().map(of_node).collect()
    }

    fn wants_noticed(&self) -> bool {
        let state = self.lock();
        state.settings.now().pin != Automatic::default() && state.most() > 0
    }

    fn notice(&mut self, noticed: &Noticed) {
        self.lock().noticed.add(noticed);
    }

    fn pin(&mut self, flows: &[Flow]) -> Result<(), String> {
        let mut state = self.lock();
        if flows.len() > state.most() {
            return Err(format!("{} flows: [cfs] pins is {}", flows.len(), state.most()));
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
            most: state.most(),
            wanted: state.wanted.clone(),
            sent: state.sent.pins.flows.iter().map(Flow::from).collect(),
            without: state.without(PINS_SINCE),
        })
    }

    fn reload(&mut self, section: &Value) -> Result<Vec<String>, String> {
        let mut state = self.lock();
        let mut settings = state.settings.clone();
        let waiting = settings.reload(section)?;
        state.apply(settings);
        Ok(waiting)
    }

    fn amend(&mut self, changes: &Map<String, Value>) -> Result<(), String> {
        let mut state = self.lock();
        let mut settings = state.settings.clone();
        settings.amend(changes)?;
        state.apply(settings);
        Ok(())
    }

    fn settings(&self) -> Option<Value> {
        let state = self.lock();
        let mut fields = state.settings.fields();
        let share = |alpha| state.settings.now().setup.share(alpha);
        let alpha = if state.dividing.by() == By::Rule {
            json!("auto")
        } else {
            json!(share(state.dividing.wanted()))
        };
        fields.insert("alpha".to_owned(), alpha);
        let Plan { alpha, overrides, .. } = state.sent;
        let sent = state.setup().with(overrides);
        let sent = json!({
            "entries": sent.entries,
            "alpha": sent.share(alpha),
            "grade": sent.grade.name(),
            "claim": sent.claim,
        });
        fields.insert("sent".to_owned(), sent);
        let is_otherwise = state.settings.overrides() != Overrides::default();
        let since = if is_otherwise { OVERRIDES_SINCE } else { ALPHA_SINCE };
        fields.insert("without".to_owned(), json!(state.without(since)));
        Some(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use calumma_analysis::{Deployment, HashKeys};
    use calumma_cfs::frames::ROWS;
    use calumma_epoch::Guards;
    use calumma_sketch::HashKey;
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
        of(&json!({ "pins": most }), [PINS_SINCE, PINS_SINCE, PINS_SINCE - 1])
    }

    fn of(section: &Value, versions: [u8; 3]) -> Pinning {
        let node = |id: u16| Arc::new(Node { name: format!("e{id}"), role: Role::Edge, id });
        let nodes: Vec<_> = (1..=3).map(node).collect();
        let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
        let hash_keys = HashKeys::new(HashKey::from_bytes([1; 32]));
        let id = std::num::NonZeroU16::MIN;
        let of = Deployment { section, hash_keys: &hash_keys, clock, nodes: &nodes, id };
        let mut pinning = Pinning::new(Settings::new(&of).unwrap(), clock, &nodes);
        (0..).zip(versions).for_each(|(node, version)| pinning.note_version(node, version));
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

    /// One that was counted by chance is counted from then on, as long as it is large.
    #[test]
    fn heavy_hitters_that_switches_counted_are_pinned_where_flows_are_graded_anew() {
        let pinned = |section: Value| {
            let mut pinning = of(&section, [PINS_SINCE; 3]);
            let come = Standing { has_come: true, ..Standing::default() };
            let nodes = [come.clone(), come.clone(), come];
            pinning.notice(&noticed(1, &[], &[2]));
            pinning.note_counted([1, 9].map(flow).into_iter());
            pinning.note_counted([3, 5, 4].map(flow).into_iter());
            ports(pinning.plans(&nodes, 0)[0].as_ref())
        };
        assert_eq!(pinned(json!({ "pins": 3 })), Some(vec![2, 3, 5]));
        assert_eq!(pinned(json!({ "pins": 3, "reseed": false })), Some(vec![2]));
        assert_eq!(pinned(json!({ "pins": 3, "pin": ["victims"] })), None);
    }

    #[test]
    fn switches_whose_tables_have_rows_are_sent_pins_and_nothing_else() {
        let mut pinning = of(&json!({ "pins": 8 }), [OVERRIDES_SINCE, ROWS, 1]);
        let come = Standing { has_come: true, ..Standing::default() };
        let nodes = [come.clone(), come.clone(), come];
        pinning.pin(&[flow(9)]).unwrap();
        pinning.amend(json!({ "grade": "greedy" }).as_object().unwrap()).unwrap();
        let plans = pinning.plans(&nodes, 0);
        assert_eq!(ports(plans[1].as_ref()), Some(vec![9]));
        assert_ne!(plans[0], plans[1]);
        assert_eq!((plans[2].as_ref(), pinning.pins().unwrap().without), (None, vec!["e3".into()]));
        assert_eq!(pinning.settings().unwrap()["without"], json!(["e2", "e3"]));
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

    /// What a node of a version reads of its plan.
    fn read(pinning: &Pinning, plan: Option<&Vec<u8>>, version: u8) -> Plan {
        let setup = *pinning.lock().setup();
        let (alpha_moves, overrides) = (version >= ALPHA_SINCE, version >= OVERRIDES_SINCE);
        Plan::decode(plan.unwrap(), &Setup { alpha_moves, overrides, ..setup }).unwrap()
    }

    fn amend(pinning: &mut Pinning, changes: &Value) {
        pinning.amend(changes.as_object().unwrap()).unwrap();
    }

    #[test]
    fn each_node_is_sent_what_its_version_knows() {
        let versions = [OVERRIDES_SINCE, ALPHA_SINCE, ALPHA_SINCE - 1];
        let mut pinning = of(&json!({ "residual": "fermat", "claim": true }), versions);
        let come = Standing { has_come: true, ..Standing::default() };
        let nodes = [come.clone(), come.clone(), come];
        assert_eq!(pinning.plans(&nodes, 0), [const { None::<Vec<u8>> }; 3], "as the setup says");
        amend(&mut pinning, &json!({ "alpha": 0.8 }));
        let plans = pinning.plans(&nodes, 0);
        let alone = Plan { alpha: 80, ..Plan::default() };
        assert_eq!(read(&pinning, plans[0].as_ref(), versions[0]), alone);
        assert_eq!(plans[1..], [Some(vec![80]), None]);
        assert_eq!(pinning.settings().unwrap()["without"], json!(["e3"]));
        amend(&mut pinning, &json!({ "entries": 512, "claim": false }));
        pinning.pin(&[flow(9)]).unwrap();
        assert_eq!(pinning.plans(&nodes, 0), plans, "that must hold first");
        let applied = |at: usize| plans[at].clone().map(|plan| Applied { epoch: 20, plan });
        let mut at = 0..;
        let nodes = nodes.map(|of| Standing { applied: applied(at.next().unwrap()), ..of });
        let plans = pinning.plans(&nodes, 20 * EPOCH_NS);
        let mut at = 0..;
        let [new, old, oldest] =
            versions.map(|version| read(&pinning, plans[at.next().unwrap()].as_ref(), version));
        let overrides = Overrides { entries: Some(512), unclaimed: true, ..Overrides::default() };
        assert_eq!((new.alpha, new.overrides), (80, overrides));
        assert_eq!((old.alpha, old.overrides), (80, Overrides::default()));
        assert_eq!((oldest.alpha, oldest.pins), (0, new.pins));
        let settings = pinning.settings().unwrap();
        assert_eq!(settings["without"], json!(["e2", "e3"]));
        let sent = json!({ "entries": 512, "alpha": 0.8, "grade": "fold", "claim": false });
        assert_eq!((&settings["sent"], &settings["entries"]), (&sent, &json!(512)));
        assert_eq!((&settings["alpha"], &settings["pins"]), (&json!(0.8), &json!(128)));
    }

    #[test]
    fn a_share_that_moves_goes_on_whatever_else_changes() {
        let versions = [OVERRIDES_SINCE; 3];
        let mut pinning = of(&json!({ "residual": "fermat", "alpha": "auto" }), versions);
        let crowded = Fared { decoded: false, flows: 200.0, counted: 90.0, in_tables: 90.0 };
        (0..8).for_each(|_| pinning.learn(90, crowded));
        assert_eq!(pinning.lock().dividing.wanted(), 97);
        amend(&mut pinning, &json!({ "heavy_packets": 3 }));
        assert_eq!(pinning.lock().dividing.wanted(), 97);
        assert_eq!(pinning.listed().1.heavy_packets, 3);
        assert_eq!(pinning.settings().unwrap()["alpha"], "auto");
        pinning.reload(&json!({ "residual": "fermat", "alpha": 0.7 })).unwrap();
        assert_eq!(pinning.listed().1.heavy_packets, 10_000);
        assert_eq!(pinning.lock().dividing.wanted(), 70);
    }
}
