//! The measurement systems of a switch: what it offers, which of them run, what they have finished.
//!
//! No I/O and no clock: the control thread drives it on a switch, the simulator in virtual time.
//! What a system records and sends is in its own crate (`systems/`).

use calumma_cfs::Cfs;
use calumma_chamelemon::ChameleMon;
use calumma_plane::int::Instructions;
use calumma_plane::measure::{self, Mailbox};
use calumma_plane::merge::{Discarded, Part};
use calumma_plane::outlet::Outlets;
use calumma_plane::system::{
    FinishedSide, Notes, RouteWatch, SessionContext, SwitchSystem, System,
};
use calumma_plane::{Carrier, LcoreMerger};
use calumma_sketch::KeyKind;
use calumma_sketchint::SketchInt;
use calumma_switch_host::{Measurer, Session, SystemOffer};
use calumma_wire::{
    Message, Offer, PathsWanted, Role, Side, SideKind, SystemId, SystemSetup, parts,
};
use tracing::{error, warn};

use super::LEAD_NS;
use super::paths::Paths;

/// The systems of the software switch. One is added by adding it here.
pub static SYSTEMS: &[&dyn System] = &[&ChameleMon, &SketchInt, &Cfs];

/// The systems of one switch.
#[derive(Debug)]
pub struct Systems {
    known: &'static [&'static dyn System],
    role: Role,
    /// Where packets carry their marks.
    carrier: Carrier,
    /// Where they may, each by its name, when a session says it; none where it does not.
    choices: Vec<(String, Carrier)>,
    /// The smallest MTU of the switch's links to others, in bytes, where it is known.
    fabric_mtu: Option<u16>,
    /// Whether INT stacks are taken out of packets for hosts.
    strips: bool,
    /// The switch's name, and how many ports it has, where workers know which one receives.
    ports: Option<(String, usize)>,
    /// When the switch's routes changed.
    routes: RouteWatch,
    /// By which lcores hand on packets that are to be reported at once.
    outlets: Outlets,
    merger: LcoreMerger,
    /// Those of the session, and those that have left it of which something may still come.
    running: Vec<Running>,
    /// The paths to other edges.
    pub paths: Paths,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    system: &'static dyn System,
    /// Its number in the session, by which lcores know it.
    number: usize,
    /// Whether it has left the session.
    left: bool,
}

/// Systems that begin a session, their halves on the control thread, and their keys.
type Begun = (Vec<&'static dyn System>, Vec<Box<dyn SwitchSystem>>, KeyKind);

/// What a system has finished.
#[derive(Debug)]
pub struct Finished {
    /// The system.
    pub system: &'static dyn System,
    /// What it has finished.
    pub what: What,
}

/// What there is to send of an epoch.
#[derive(Debug)]
pub enum What {
    /// A side.
    Side {
        /// Its frame, without totals.
        side: Side,
        /// What else the switch's status shows of it.
        notes: Notes,
        /// The lcores' totals.
        counters: Box<calumma_plane::Counters>,
    },
    /// No packet of the epoch can be recorded any more.
    Sealed {
        /// The epoch.
        epoch: u64,
        /// Packets that came too late to be recorded.
        late_packets: u64,
        /// What else is known of them, in the system's own format.
        body: Vec<u8>,
    },
}

impl Systems {
    /// Systems for a switch of `role` with `lcores` lcores, of those in `known` that run there; and
    /// the lcores' mailboxes.
    pub fn new(
        known: &'static [&'static dyn System],
        role: Role,
        lcores: usize,
    ) -> (Self, Vec<Mailbox>) {
        let (merger, mailboxes) = LcoreMerger::new(lcores);
        let (running, paths) = (Vec::new(), Paths::default());
        let (carrier, choices, strips) = (Carrier::default(), Vec::new(), true);
        let fabric_mtu = None;
        let (ports, routes, outlets) = (None, RouteWatch::default(), Outlets::default());
        let systems = Self {
            known,
            role,
            carrier,
            choices,
            fabric_mtu,
            strips,
            ports,
            routes,
            outlets,
            merger,
            running,
            paths,
        };
        (systems, mailboxes)
    }

    /// The same on a switch of this name that has so many ports, and tells its workers which of
    /// them receives packets.
    #[must_use]
    pub fn with_ports(self, name: &str, ports: usize) -> Self {
        Self { ports: Some((name.to_owned(), ports)), ..self }
    }

    /// The same on a switch whose routes change as these do.
    #[must_use]
    pub fn with_routes(self, routes: RouteWatch) -> Self {
        Self { routes, ..self }
    }

    /// The same on a switch that reports packets which lcores hand on so.
    #[must_use]
    pub fn with_outlets(self, outlets: Outlets) -> Self {
        Self { outlets, ..self }
    }

    /// What has become of these, by name.
    pub fn reported(&self) -> Vec<(String, u64)> {
        self.outlets.named()
    }

    /// The same where packets carry marks so.
    #[must_use]
    pub fn with_carrier(self, carrier: Carrier) -> Self {
        Self { carrier, ..self }
    }

    /// The same where each session says which of these it is, by its name; none where none does.
    #[must_use]
    pub fn with_carriers(self, choices: Vec<(String, Carrier)>) -> Self {
        Self { choices, ..self }
    }

    /// The same on a switch whose links to others take packets of so many bytes.
    #[must_use]
    pub fn with_fabric_mtu(self, fabric_mtu: Option<u16>) -> Self {
        Self { fabric_mtu, ..self }
    }

    /// The same from the next session on, where that has changed.
    pub fn set_fabric_mtu(&mut self, fabric_mtu: Option<u16>) {
        self.fabric_mtu = fabric_mtu;
    }

    /// The same on a switch that takes INT stacks out of packets for hosts, or does not. One that
    /// does not can be no sink.
    #[must_use]
    pub fn with_strip(self, strips: bool) -> Self {
        Self { strips, ..self }
    }

    /// Those that run on this switch.
    fn offered(&self) -> impl Iterator<Item = &'static dyn System> {
        let role = self.role;
        self.known.iter().copied().filter(move |system| system.runs_as(role))
    }

    /// A system's half for a session, and the system.
    fn begin_one(
        &self,
        session: &Session,
        setup: &SystemSetup,
    ) -> Result<(&'static dyn System, Box<dyn SwitchSystem>), String> {
        let system = self.offered().find(|system| system.offer().system == setup.system);
        let system = system.ok_or_else(|| format!("{} does not run here", setup.system))?;
        let context = SessionContext {
            role: self.role,
            node_id: session.node_id,
            hash_key: session.hash_key,
            clock: session.clock,
            first_epoch: session.first_epoch,
            lcores: self.merger.lcores(),
            ports: self.ports.clone(),
            routes: self.routes.clone(),
            outlets: self.outlets.clone(),
            carries_claims: self.carrier.carries_claims(),
            carries_hops: self.carrier.carries_hops(),
            carries_stacks: self.carrier.carries_stacks()
                && (self.strips || self.role == Role::Transit),
        };
        Ok((system, system.begin(&context, setup)?))
    }

    /// Where packets carry their marks in a session, where sessions say it.
    fn chosen(&self, session: &Session) -> Result<Option<Carrier>, String> {
        if self.choices.is_empty() {
            return Ok(None);
        }
        let chosen = self.choices.iter().find(|(name, _)| *name == session.carrier);
        let (_, carrier) = chosen
            .ok_or_else(|| format!("packets are not marked by {:?} here", session.carrier))?;
        Ok(Some(*carrier))
    }

    /// Checks that the switch itself cuts no packet whose identification carries a mark.
    fn check_mtu(&self, session: &Session) -> Result<(), String> {
        let longest = session.domain.fabric_mtu();
        match self.fabric_mtu {
            Some(mtu) if mtu < longest && self.carrier == Carrier::IpId => Err(format!(
                "an interface of the fabric has an MTU of {mtu}, and packets of up to {longest} \
                 bytes are marked by \"ip-id\", of which hosts may put pieces together that are not \
                 of one: set the controller's [domain] fabric_mtu = {mtu}"
            )),
            _ => Ok(()),
        }
    }

    /// All systems' halves for a session, and by which keys they measure.
    fn begin_all(&self, session: &Session) -> Result<Begun, String> {
        let begun: Result<Vec<_>, String> =
            session.systems.iter().map(|setup| self.begin_one(session, setup)).collect();
        let (systems, halves): (Vec<_>, Vec<Box<dyn SwitchSystem>>) = begun?.into_iter().unzip();
        let Some(keys) = common_keys(halves.iter().map(|half| half.keys())) else {
            return Err("the systems measure by different keys; let them run one by one".to_owned());
        };
        Ok((systems, halves, keys))
    }

    fn running(&self, system: SystemId) -> Option<Running> {
        let mut running = self.running.iter().filter(|running| !running.left);
        running.find(|running| running.system.offer().system == system).copied()
    }

    /// Lets a system that runs go on by what another session says of it.
    fn succeed(
        &mut self,
        before: Running,
        session: &Session,
        setup: &SystemSetup,
    ) -> Result<(), String> {
        let (system, half) = self.begin_one(session, setup)?;
        let number = self.merger.succeed(before.number, session.first_epoch, half)?;
        let left = self.running.iter_mut().filter(|running| running.number == before.number);
        left.for_each(|running| running.left = true);
        self.running.push(Running { system, number, left: false });
        Ok(())
    }

    /// Takes what the lcores have finished since the last call, and gives what is now finished on
    /// all of them, as it is to be sent.
    pub fn poll(&mut self) -> Vec<Finished> {
        let parts = self.merger.poll();
        let finished = parts.into_iter().filter_map(|part| self.finish_part(part)).collect();
        let Self { running, merger, .. } = self;
        running.retain(|running| merger.system(running.number).is_some());
        finished
    }

    fn finish_part(&mut self, part: Part) -> Option<Finished> {
        let (Part::Side { system: number, .. } | Part::Sealed { system: number, .. }) = part;
        let running = self.running.iter().find(|running| running.number == number)?;
        let system = running.system;
        let what = match part {
            Part::Sealed { epoch, late_packets, late, .. } => {
                let half = self.merger.system(number);
                let body = half.map(|half| half.seal(late_packets, late.as_deref()));
                late.into_iter().for_each(|late| self.merger.recycle_late(number, late));
                What::Sealed { epoch, late_packets, body: body.unwrap_or_default() }
            }
            Part::Side { epoch, side, record, mixed_plan, counters, .. } => {
                let of_wire = match (self.role, side) {
                    (Role::Edge, measure::Side::Ingress) => Some(SideKind::Ingress),
                    (Role::Edge, measure::Side::ByBit) => Some(SideKind::Egress),
                    (Role::Transit, measure::Side::ByBit) => Some(SideKind::Transit),
                    (Role::Host, measure::Side::ByBit) => Some(SideKind::Host),
                    // Nothing enters the network there.
                    (Role::Transit | Role::Host, measure::Side::Ingress) => None,
                };
                let half = self.merger.system(number);
                let sent = of_wire.zip(half).and_then(|(side, half)| {
                    half.side(FinishedSide { epoch, side, record: &*record, mixed_plan })
                });
                self.merger.recycle(number, side, record);
                let (side, notes) = sent?;
                What::Side { side, notes, counters: Box::new(counters) }
            }
        };
        Some(Finished { system, what })
    }

    /// Discards the epochs of which shares are still to come: the switch stops.
    pub fn finish(&mut self) {
        self.merger.finish();
    }

    /// What systems report before their epochs are over.
    pub fn notices(&self, now_ns: u64) -> impl Iterator<Item = Message> {
        self.halves().filter_map(move |(system, half)| {
            let (epoch, body) = half.notice(now_ns)?;
            Some(Message::Notice { system: system.offer().system, epoch, body })
        })
    }

    /// Packets that were recorded and are in no frame.
    pub fn discarded(&self) -> Discarded {
        self.merger.discarded()
    }

    /// The systems that run, with their halves on the control thread.
    pub fn halves(&self) -> impl Iterator<Item = (&'static dyn System, &dyn SwitchSystem)> {
        let running = self.running.iter().filter(|running| !running.left);
        running.filter_map(|running| Some((running.system, self.merger.system(running.number)?)))
    }

    /// Whether INT stacks say how much of their links' speed ports use.
    pub fn ask_utilisation(&self) -> bool {
        let asks = |of: Instructions| of.bits() & Instructions::UTILISATION != 0;
        self.halves().any(|(_, half)| half.instructions().is_some_and(asks))
    }
}

impl Measurer for Systems {
    fn systems(&self) -> Vec<SystemOffer> {
        let offer = |of: &dyn System| SystemOffer { offer: of.offer(), held: of.is_held() };
        let probes = Offer { system: SystemId::PROBES, lowest: 1, highest: 1 };
        let parts =
            Offer { system: SystemId::PARTS, lowest: parts::VERSION, highest: parts::VERSION };
        let no_systems = [probes, parts].map(|offer| SystemOffer { offer, held: false });
        self.offered().map(offer).chain(no_systems).collect()
    }

    fn holding(&self) -> Vec<(SystemId, Vec<u8>)> {
        self.halves().map(|(system, half)| (system.offer().system, half.holding())).collect()
    }

    fn begin(&mut self, session: &Session) -> Result<(), String> {
        let before = self.carrier;
        let chosen = self.chosen(session)?;
        self.carrier = chosen.unwrap_or(before);
        let begun = self.check_mtu(session).and_then(|()| self.begin_all(session));
        let (systems, halves, keys) = match begun {
            Ok(begun) => begun,
            Err(problem) => {
                // The session before goes on.
                self.carrier = before;
                return Err(problem);
            }
        };
        self.merger.set_carrier(chosen);
        let Session { clock, first_epoch, hash_key, .. } = *session;
        self.merger.set_domain(session.domain.clone());
        self.merger.begin(clock, first_epoch, hash_key, keys, halves);
        let numbered = systems.into_iter().enumerate();
        let running = |(number, system)| Running { system, number, left: false };
        self.running = numbered.map(running).collect();
        self.paths.begin(session, keys == KeyKind::Dual);
        Ok(())
    }

    fn switches_systems(&self) -> bool {
        true
    }

    fn add(&mut self, session: &Session, setup: &SystemSetup) -> Result<(), String> {
        let (system, half) = self.begin_one(session, setup)?;
        if half.keys().is_some_and(|keys| keys != self.merger.keys()) {
            let running: Vec<_> = self.halves().map(|(system, _)| system.name()).collect();
            return Err(format!(
                "it measures by other keys than the running {}; switch those off first, and restart \
                 the switch",
                running.join(", ")
            ));
        }
        // It may have left a moment ago, of which lcores learn together with its return.
        let mut before = self.running.iter().rev();
        let before = before.find(|running| running.system.offer().system == setup.system);
        let number = match before {
            Some(before) => self.merger.succeed(before.number, session.first_epoch, half)?,
            None => self.merger.add(session.first_epoch, half)?,
        };
        self.running.push(Running { system, number, left: false });
        Ok(())
    }

    fn remove(&mut self, system: SystemId, end: u64) {
        let Some(Running { number, .. }) = self.running(system) else { return };
        self.merger.remove(number, end);
        let left = self.running.iter_mut().filter(|running| running.number == number);
        left.for_each(|running| running.left = true);
    }

    fn rekey(&mut self, session: &Session) -> Vec<(SystemId, String)> {
        self.merger.sign(session.first_epoch, session.hash_key);
        self.paths.rekey(session);
        let mut problems = Vec::new();
        for setup in &session.systems {
            let Some(before) = self.running(setup.system).filter(|of| of.system.hashes()) else {
                continue;
            };
            if let Err(problem) = self.succeed(before, session, setup) {
                // What it measures from then on is of another key, and says so.
                problems.push((setup.system, problem));
            }
        }
        problems
    }

    fn check(&self, system: SystemId, plan: &[u8]) -> Result<(), String> {
        let running = self.running(system).ok_or("it is not measuring")?;
        let half = self.merger.system(running.number).ok_or("it is not measuring")?;
        half.plan(plan).map(drop)
    }

    fn reconfigure(&mut self, system: SystemId, epoch: u64, plan: &[u8]) {
        let Some(Running { number, .. }) = self.running(system) else {
            return warn!(epoch, "{system} does not run any more and can't be reconfigured");
        };
        if let Err(problem) = self.merger.reconfigure(number, epoch, plan) {
            error!(epoch, "a plan of {system} was accepted and can't hold: {problem}");
        }
    }

    fn alone(&self, alone_ns: u64) -> Vec<(SystemId, Vec<u8>)> {
        let plan = |(system, half): (&dyn System, &dyn SwitchSystem)| {
            half.alone(alone_ns).map(|plan| (system.offer().system, plan))
        };
        self.halves().filter_map(plan).collect()
    }

    fn want_paths(&mut self, wanted: Option<PathsWanted>) {
        match wanted {
            Some(wanted) => self.paths.want(wanted),
            None => self.paths.stop(),
        }
    }

    fn take_clock_set(&mut self) -> Option<i64> {
        self.merger.take_clock_set()
    }

    fn lead_ns(&self) -> u64 {
        LEAD_NS
    }

    fn setup_ns(&self) -> u64 {
        0
    }
}

/// The keys that suit all systems; `None` where there are none such. Without a wish of any of them,
/// those that tell all packets apart.
fn common_keys(wanted: impl Iterator<Item = Option<KeyKind>>) -> Option<KeyKind> {
    let mut common = None;
    for keys in wanted.flatten() {
        if *common.get_or_insert(keys) != keys {
            return None;
        }
    }
    Some(common.unwrap_or(KeyKind::Dual))
}

#[cfg(test)]
mod tests {
    use calumma_epoch::{EpochClock, Guards};
    use calumma_wire::{Domain, Secret};

    use super::*;

    #[test]
    fn a_session_is_held_against_the_mtu_of_the_interfaces_as_they_are() {
        let session = Session {
            node_id: Some(1),
            hash_key: Secret::new([1; 32]),
            clock: EpochClock::new(50_000_000, Guards::default()).unwrap(),
            first_epoch: 10,
            systems: Vec::new(),
            domain: Domain::default().with_fabric_mtu(1500).unwrap(),
            carrier: "ip-id".to_owned(),
        };
        let (systems, _mailboxes) = Systems::new(SYSTEMS, Role::Edge, 1);
        let mut systems = systems.with_carrier(Carrier::IpId).with_fabric_mtu(Some(1400));
        for (mtu, accepts) in [(1400, false), (1500, true), (1499, false), (9000, true)] {
            systems.set_fabric_mtu(Some(mtu));
            assert_eq!(systems.begin(&session).is_ok(), accepts, "{mtu}");
        }
    }

    #[test]
    fn systems_agree_on_keys_or_not() {
        let (narrow, wide) = (Some(KeyKind::Ipv4), Some(KeyKind::Dual));
        assert_eq!(common_keys([None, narrow, narrow].into_iter()), narrow);
        assert_eq!(common_keys([wide, None].into_iter()), wide);
        assert_eq!(common_keys([narrow, wide].into_iter()), None);
        assert_eq!(common_keys([None].into_iter()), wide);
    }

    #[test]
    fn a_switch_offers_the_systems_of_its_role() {
        // Probes beside them, and messages in parts, in any.
        let offers = |role| {
            let offers = Systems::new(SYSTEMS, role, 1).0.systems();
            offers.into_iter().map(|of| of.offer.system).collect::<Vec<_>>()
        };
        let (chamelemon, cfs, probes) = (SystemId::CHAMELEMON, SystemId::CFS, SystemId::PROBES);
        let (sketchint, parts) = (SystemId::SKETCHINT, SystemId::PARTS);
        assert_eq!(offers(Role::Transit), [sketchint, cfs, probes, parts]);
        assert_eq!(offers(Role::Edge), [chamelemon, sketchint, cfs, probes, parts]);
        assert_eq!(offers(Role::Host), [sketchint, probes, parts]);
    }
}
