//! CFS on the control thread of a switch: what is offered, and frames of finished windows.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use calumma_plane::FlowSet;
use calumma_plane::flow_set::SharedSets;
use calumma_plane::secret::hash_key;
use calumma_plane::system::{
    FinishedSide, Groups, LcoreHalf, LcoreSystem, Notes, Recorded, RouteWatch, SessionContext,
    SwitchSystem, System,
};
use calumma_sketch::{AnyKey, FlowKey, HashFamily, Key, KeyKind, WideKey, with_key};
use calumma_wire::{Offer, Role, Side, SideKind, SystemSetup};

use super::lcore::OnLcore;
use super::notices::Notices;
use super::record::{Common, Entering, Plan, Window};
use crate::Sums;
use crate::frames::{
    self, Graded, Holding, Hop, NOTICE_SINCE, OFFER, PINS_SINCE, Setup, WORDS_SINCE, salt,
};

/// Why a setup with hops by mark is declined where marks have none.
const NO_HOPS: &str = "hop = \"mark\" needs the shim carrier, with hops: set [carrier] kind = \
                       \"shim\" and hops = true at all switches";

/// Why random grades are declined where no salt makes them differ from other switches'.
const NO_NUMBER: &str = "grade = \"random\": the controller has given this node no number";

/// CFS, which runs on edges and on switches between them.
#[derive(Clone, Copy, Debug)]
pub struct Cfs;

impl System for Cfs {
    fn name(&self) -> &'static str {
        "cfs"
    }

    fn offer(&self) -> Offer {
        OFFER
    }

    fn runs_as(&self, role: Role) -> bool {
        matches!(role, Role::Edge | Role::Transit)
    }

    fn hashes(&self) -> bool {
        true
    }

    fn begin(
        &self,
        session: &SessionContext,
        setup: &SystemSetup,
    ) -> Result<Box<dyn SwitchSystem>, String> {
        let notices = (setup.version >= NOTICE_SINCE).then(RefCell::default);
        let by_wide = setup.version >= WORDS_SINCE;
        let holding = (setup.version >= PINS_SINCE).then(|| Holding {
            setup: setup.setup.clone(),
            epoch: session.first_epoch,
            plan: setup.plan.clone(),
        });
        let setup = Setup::decode(&setup.setup).map_err(|problem| problem.to_string())?;
        if setup.claim && !session.carries_claims {
            let why = "claim = true: the bit of the claim is part of the carrier's signature";
            return Err(why.to_owned());
        }
        if let (Hop::Port(hops), Some((name, ports))) = (setup.hop, &session.ports)
            && let without = hops.numbers().len()
            && without < *ports
        {
            return Err(format!("hop = \"port\": node {name} has no number for port {without}"));
        }
        if matches!(setup.hop, Hop::Mark { .. }) && !session.carries_hops {
            return Err(NO_HOPS.to_owned());
        }
        if setup.grade == Graded::Random && session.node_id.is_none() {
            return Err(NO_NUMBER.to_owned());
        }
        let key = hash_key(&session.hash_key);
        let (family, salt) = (HashFamily::new(&key), salt(session.node_id.unwrap_or_default()));
        let is_edge = session.role == Role::Edge;
        let clock = session.clock;
        let common = Arc::new(Common { setup, family, salt, is_edge, by_wide, clock });
        let SessionContext { first_epoch, lcores, .. } = *session;
        let (hash_key, routes) = (key.id(), session.routes.clone());
        let is_numbered = session.node_id.is_some();
        let (counted, sets) = (Cell::default(), SharedSets::default());
        let half = OnSwitch {
            common,
            hash_key,
            first_epoch,
            lcores,
            routes,
            counted,
            notices,
            holding,
            is_numbered,
            sets,
        };
        half.first_plan()?;
        Ok(Box::new(half))
    }
}

/// CFS's half on the control thread.
#[derive(Debug)]
struct OnSwitch {
    common: Arc<Common>,
    hash_key: u64,
    first_epoch: u64,
    lcores: usize,
    routes: RouteWatch,
    counted: Cell<Sums>,
    /// Flows that go round, for a controller that reads notices.
    notices: Option<RefCell<Notices>>,
    /// What it measures by, for a controller that pins flows.
    holding: Option<Holding>,
    /// Whether the controller has given this node a number.
    is_numbered: bool,
    sets: SharedSets,
}

impl OnSwitch {
    /// What a plan says, for lcores to have.
    fn plan_of(&self, plan: &[u8]) -> Result<Plan, String> {
        if self.holding.is_none() && !plan.is_empty() {
            return Err("there is nothing to plan in this version".to_owned());
        }
        let plan = frames::Plan::decode(plan, &self.common.setup);
        let frames::Plan { alpha, pins, overrides } =
            plan.map_err(|problem| problem.to_string())?;
        let pins = self.sets.share(FlowSet::of(&pins.flows, &self.common.family));
        if self.common.setup.with(overrides).grade == Graded::Random && !self.is_numbered {
            return Err(NO_NUMBER.to_owned());
        }
        Ok(Plan { pins, alpha, overrides })
    }

    /// What holds from the start on.
    fn first_plan(&self) -> Result<Plan, String> {
        self.plan_of(self.holding.as_ref().map_or(&[], |holding| &holding.plan))
    }

    fn half<K: Key>(&self) -> Box<dyn LcoreSystem<K>> {
        // That they can be read was seen when it began, or when they were accepted.
        let plan = self.first_plan().unwrap_or_default();
        let noticing = self.notices.as_ref().map(|notices| notices.borrow_mut().lcore());
        let noticing = noticing.unwrap_or_default();
        Box::new(OnLcore::new(self.common.clone(), self.first_epoch, plan, noticing))
    }

    fn empty<K: Key>(&self) -> Groups {
        let window = Window::<K>::new(self.common.clone(), self.lcores);
        Groups {
            ingress: Box::new(Recorded::new(Entering::default())),
            by_bit: Box::new(Recorded::new(window)),
        }
    }

    /// What is sent of a window, and how many of its packets without a mark are noted with another
    /// one, too.
    fn window(&self, finished: FinishedSide<'_>) -> Option<(frames::Window, u64)> {
        let narrow = finished.record.get::<Window<FlowKey>>();
        let wide = finished.record.get::<Window<WideKey>>();
        // Its first packets came from edges whose clocks are ahead.
        let clock = self.common.clock;
        let since_ns = clock.start_of(finished.epoch).saturating_sub(clock.guards().clock_ns);
        let changed = self.routes.changed_since(since_ns);
        if let Some(record) = narrow {
            let Recorded { group, .. } = record;
            return Some((group.frame(self.hash_key, changed), group.unmarked_again()));
        }
        let Recorded { group, .. } = wide?;
        Some((group.frame(self.hash_key, changed), group.unmarked_again()))
    }
}

impl SwitchSystem for OnSwitch {
    fn on_lcore(&self, keys: KeyKind) -> AnyKey<LcoreHalf> {
        with_key!(keys, K => K::any(self.half()))
    }

    fn groups(&self, keys: KeyKind) -> Groups {
        with_key!(keys, K => self.empty::<K>())
    }

    fn plan(&self, plan: &[u8]) -> Result<Box<dyn Any + Send>, String> {
        Ok(Box::new(self.plan_of(plan)?))
    }

    fn accept(&mut self, epoch: u64, plan: &[u8]) {
        if let Some(holding) = &mut self.holding {
            (holding.epoch, holding.plan) = (epoch, plan.to_vec());
        }
    }

    fn holding(&self) -> Vec<u8> {
        self.holding.as_ref().map_or(Vec::new(), Holding::encode)
    }

    fn side(&self, finished: FinishedSide<'_>) -> Option<(Side, Notes)> {
        let (body, notes) = match finished.side {
            SideKind::Ingress => (Vec::new(), Vec::new()),
            SideKind::Egress | SideKind::Transit => {
                let (window, unmarked_again) = self.window(finished)?;
                let mut counted = self.counted.get();
                counted.add(&window);
                counted.leave_out_unmarked(unmarked_again);
                self.counted.set(counted);
                let notes = vec![
                    ("entries", Some(window.entries.len() as u64)),
                    ("evicted", Some(window.totals.evicted)),
                    ("refused", Some(window.totals.refused)),
                ];
                (window.encode(), notes)
            }
            SideKind::Host => return None,
        };
        Some((finished.frame(OFFER.system, body), notes))
    }

    fn notice(&self, now_ns: u64) -> Option<(u64, Vec<u8>)> {
        let pause_ns = self.common.clock.length_ns();
        let (epoch, notice) = self.notices.as_ref()?.borrow_mut().take(now_ns, pause_ns)?;
        Some((epoch, notice.encode()))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counted.get().named().to_vec()
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let Setup { entries, filter_bits, window_epochs, residual, .. } = self.common.setup;
        vec![
            ("entries", entries.into()),
            ("filter_bits", filter_bits.into()),
            ("window_epochs", window_epochs.into()),
            ("residual_buckets", residual.unwrap_or(0).into()),
        ]
    }
}
