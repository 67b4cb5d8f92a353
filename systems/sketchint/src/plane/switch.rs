//! SketchINT on the control thread of a switch: what is offered, plans, and frames of finished
//! windows.

use std::any::Any;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use calumma_plane::flow_set::SharedSets;
use calumma_plane::int::{Insertion, Instructions};
use calumma_plane::outlet::Outlets;
use calumma_plane::secret::hash_key;
use calumma_plane::system::{
    FinishedSide, Groups, LcoreHalf, LcoreSystem, Notes, Recorded, SessionContext, SwitchSystem,
    System,
};
use calumma_sketch::sketchint::ShapeError;
use calumma_sketch::{AnyKey, FlowKey, HashFamily, Key, KeyKind, WideKey, with_key};
use calumma_wire::{Offer, Role, Side, SideKind, SystemSetup};

use super::attended::LcorePlan;
use super::lcore::{Common, Held, OnEdge, OnTransit};
use super::record::{SinkSetup, SinkWindow};
use crate::frames::{Holding, MEANS_SINCE, OFFER, Passed, Plan, Setup, Step, Window};

/// SketchINT, which runs on edges, on switches between them, and on end hosts that are sinks.
#[derive(Clone, Copy, Debug)]
pub struct SketchInt;

impl System for SketchInt {
    fn name(&self) -> &'static str {
        "sketchint"
    }

    fn offer(&self) -> Offer {
        OFFER
    }

    fn runs_as(&self, _role: Role) -> bool {
        true
    }

    fn hashes(&self) -> bool {
        true
    }

    fn begin(
        &self,
        session: &SessionContext,
        setup: &SystemSetup,
    ) -> Result<Box<dyn SwitchSystem>, String> {
        let (bytes, version) = (setup.setup.clone(), setup.version);
        let plan = Plan::decode(&setup.plan).map_err(|problem| problem.to_string())?;
        let setup = Setup::decode(&bytes).map_err(|problem| problem.to_string())?;
        let node = session.node_id.and_then(NonZeroU16::new);
        let node = node.ok_or("the controller has given this node no number")?;
        if !session.carries_stacks {
            let why = "this switch can be no sink: [sketchint] strip = false, or a [carrier] that \
                       leaves no bit to say of a packet that it has a stack (kind = \"ip-id\"). \
                       Where the controller has chosen \"ip-id\", have it choose anew: \
                       calumma carrier --choose auto";
            return Err(why.to_owned());
        }
        let role = session.role;
        let key = hash_key(&session.hash_key);
        let family = HashFamily::new(&key);
        let Setup { domain, instructions, hops, layout, udp_port, .. } = setup;
        let SessionContext { first_epoch, lcores, clock, .. } = *session;
        let source_from = source_from(first_epoch, plan.step);
        let common = Common {
            setup,
            insertion: Insertion { domain, node, instructions, hops, udp_port },
            family: family.clone(),
            clock,
            source_from: AtomicU64::new(source_from),
        };
        let has_times = instructions.has_times();
        let own = (role != Role::Host).then_some(node.get().into());
        let claims = layout.claims(lcores);
        let sink = SinkSetup { layout, own, family, claims, clock, has_times };
        let holding = Holding { setup: bytes, epoch: first_epoch, plan };
        let (common, sink, hash_key) = (Arc::new(common), Arc::new(sink), key.id());
        let sets = SharedSets::default();
        let outlets = session.outlets.clone();
        let half = OnSwitch {
            common,
            sink,
            hash_key,
            version,
            role,
            first_epoch,
            lcores,
            holding,
            sets,
            outlets,
        };
        half.try_windows()?;
        Ok(Box::new(half))
    }
}

/// From which epoch on a step that holds from `epoch` on lets packets have stacks.
fn source_from(epoch: u64, step: Step) -> u64 {
    if step == Step::Sources { epoch } else { u64::MAX }
}

/// Its half on the control thread.
#[derive(Debug)]
struct OnSwitch {
    common: Arc<Common>,
    sink: Arc<SinkSetup>,
    hash_key: u64,
    /// What the controller speaks.
    version: u8,
    role: Role,
    first_epoch: u64,
    lcores: usize,
    holding: Holding,
    sets: SharedSets,
    outlets: Outlets,
}

impl OnSwitch {
    /// Whether packets for hosts are recorded here.
    fn is_sink(&self) -> bool {
        self.role != Role::Transit
    }

    /// Checks that windows can be made.
    fn try_windows(&self) -> Result<(), String> {
        if !self.is_sink() {
            return Ok(());
        }
        let length = self.sink.layout.check_length(self.lcores);
        length.map_err(|(field, why)| format!("{field}: {why}"))?;
        let window = self.window::<FlowKey>().map(drop);
        window.map_err(|problem| format!("{}: {}", problem.field, problem.why))
    }

    fn window<K: Key>(&self) -> Result<SinkWindow<K, LcorePlan>, ShapeError> {
        let window = SinkWindow::new(self.sink.clone(), LcorePlan::default(), self.lcores)?;
        Ok(if self.outlets.are_there() { window.noting() } else { window })
    }

    fn half<K: Key>(&self) -> Box<dyn LcoreSystem<K>> {
        let common = self.common.clone();
        let plan = LcorePlan::of(&self.holding.plan, &common.family, &self.sets);
        if self.is_sink() {
            let is_host = self.role == Role::Host;
            let outlet = self.outlets.of_lcore();
            Box::new(OnEdge::<K>::new(common, is_host, self.first_epoch, plan, outlet))
        } else {
            Box::new(OnTransit::new(common, self.first_epoch, plan))
        }
    }

    fn empty<K: Key>(&self) -> Groups {
        let held = || Box::new(Recorded::new(Held::new()));
        match self.window::<K>() {
            Ok(window) if self.is_sink() => {
                Groups { ingress: held(), by_bit: Box::new(Recorded::new(window)) }
            }
            _ => Groups { ingress: held(), by_bit: held() },
        }
    }

    fn frame(&self, finished: FinishedSide<'_>) -> Option<Window> {
        let FinishedSide { record, .. } = finished;
        let frame = match record.get::<SinkWindow<FlowKey, LcorePlan>>() {
            Some(record) => self.frame_of(&record.group),
            None => self.frame_of(&record.get::<SinkWindow<WideKey, LcorePlan>>()?.group),
        };
        Some(frame.for_version(self.version, &self.sink.layout))
    }

    fn frame_of<K: Key>(&self, window: &SinkWindow<K, LcorePlan>) -> Window {
        window.renew_claims();
        window.frame(self.hash_key, self.lcores)
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
        let plan = Plan::decode(plan).map_err(|problem| problem.to_string())?;
        Ok(Box::new(LcorePlan::of(&plan, &self.common.family, &self.sets)))
    }

    fn accept(&mut self, epoch: u64, plan: &[u8]) {
        let Ok(plan) = Plan::decode(plan) else { return };
        let was_source = self.holding.plan.step == Step::Sources;
        let step = plan.step;
        (self.holding.epoch, self.holding.plan) = (epoch, plan);
        // Sources that are to stop go on until then; those that have stopped stay so.
        if !was_source && step == Step::Sources {
            self.common.source_from.store(epoch, Ordering::Relaxed);
        }
    }

    fn alone(&self, alone_ns: u64) -> Option<Vec<u8>> {
        let orphan_ns = u64::from(self.common.setup.orphan_seconds) * 1_000_000_000;
        if alone_ns < orphan_ns || self.holding.plan.step != Step::Sources {
            return None;
        }
        // At once, and not with the next window only.
        self.common.source_from.store(u64::MAX, Ordering::Relaxed);
        Some(Plan::of(Step::Transits).encode())
    }

    fn instructions(&self) -> Option<Instructions> {
        Some(self.common.setup.instructions).filter(|_| self.role != Role::Host)
    }

    fn holding(&self) -> Vec<u8> {
        self.holding.encode()
    }

    fn side(&self, finished: FinishedSide<'_>) -> Option<(Side, Notes)> {
        let record = finished.record;
        let (body, notes) = match finished.side {
            SideKind::Ingress if self.role == Role::Edge => {
                let held = &record.get::<Held>()?.group;
                (held.entered.encode(), vec![("inserted", Some(held.entered.inserted))])
            }
            SideKind::Transit if self.sink.has_times || self.version >= MEANS_SINCE => {
                let Held { arrival_error_ns, means, .. } = record.get::<Held>()?.group;
                let means = (self.version >= MEANS_SINCE).then_some(means);
                (Passed { arrival_error_ns, means }.encode(), Vec::new())
            }
            SideKind::Ingress | SideKind::Transit => (Vec::new(), Vec::new()),
            SideKind::Egress | SideKind::Host => {
                let window = self.frame(finished)?;
                let notes = vec![
                    ("rows", Some(window.rows.len() as u64)),
                    ("paths", Some(window.paths.len() as u64)),
                    ("inflated", Some(window.inflated.len() as u64)),
                ];
                (window.encode(), notes)
            }
        };
        Some((finished.frame(OFFER.system, body), notes))
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let Setup { window_epochs, hops, .. } = self.common.setup;
        let step = self.holding.plan.step as u8;
        vec![("step", step.into()), ("window_epochs", window_epochs.into()), ("hops", hops.into())]
    }
}
