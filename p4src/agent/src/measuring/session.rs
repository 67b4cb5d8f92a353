//! What the controller wants of a switch: which system runs, from when on and until when.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use calumma_epoch::Timeline;
use calumma_switch_host::{Measurer, Session, SystemOffer};
use calumma_wire::{SystemId, SystemSetup};
use tracing::warn;

use super::{Measuring, Running, SETUP_NS};
use crate::config::CarrierKind;
use crate::fits;
use crate::gatherer::{Run, lock, prepare_ns};
use crate::marks::{self, Marks};
use crate::system::{Plan, System, Target};

/// Why a session with a domain is declined: the program records every packet, and those that a
/// software edge does not count where they enter would be too many here, others lost there.
const NO_DOMAIN: &str =
    "[domain] prefixes are set, and a Tofino measures the packets of all hosts: take them out";

impl Measuring {
    /// Has a system run as the session says: on, where it runs so already, or from the session's
    /// first epoch on.
    fn measure(
        &mut self,
        system: &'static dyn System,
        setup: &SystemSetup,
        session: &Session,
    ) -> Result<(), String> {
        let id = system.id();
        if let Some(running) = self.running.as_mut()
            && running.id == id
            && !running.left
            && goes_on(id, &running.session, session)
        {
            if *running.holding.0 != *setup.plan {
                running.run.setup.check(&setup.plan)?;
                running.reconfigure(session.first_epoch, &setup.plan);
            }
            return Ok(());
        }
        let running = self.begin_one(system, setup, session)?;
        self.stop();
        self.running = Some(running);
        Ok(())
    }

    /// What runs for a system from a session's first epoch on, where this switch can run it.
    fn begin_one(
        &self,
        system: &'static dyn System,
        setup: &SystemSetup,
        session: &Session,
    ) -> Result<Running, String> {
        if !session.domain.is_everything() {
            return Err(NO_DOMAIN.to_owned());
        }
        let plan = Plan::from(&*setup.plan);
        let on = (self.role(), Target::Built(&self.program));
        let setup = system.setup(on, session, setup)?;
        if let Some(driver) = &self.driver {
            let carrier = self.config.carrier.kind;
            fits::check(driver.info(), &setup.needs())
                .and_then(|()| marks::check(driver.info(), carrier))
                .map_err(|problem| problem.to_string())?;
        }
        let Session { clock, first_epoch, hash_key, .. } = *session;
        let is_signed = self.config.carrier.kind == CarrierKind::IpId;
        let marks =
            is_signed.then(|| Arc::new(Marks::new(hash_key.key, session.domain.fabric_mtu())));
        let plans = Arc::new(Mutex::new(Timeline::new(plan.clone())));
        Ok(Running {
            id: system.id(),
            run: Run { setup, clock, first_epoch, end: Arc::new(u64::MAX.into()), plans, marks },
            session: session.clone(),
            holding: (plan, first_epoch),
            left: false,
        })
    }

    /// Ends what runs; what it has finished belongs to no session any more.
    fn stop(&mut self) {
        self.end();
        while self.parts.try_recv().is_ok() {}
        self.rest.clear();
        (self.running, self.next) = (None, None);
        self.retry_at = Instant::now();
    }

    /// A system of the session that runs here, or will once the one before is done.
    fn of_session(&self, system: SystemId) -> Option<&Running> {
        let all = self.running.iter().chain(&self.next);
        all.into_iter().find(|running| running.id == system && !running.left)
    }

    /// Which of the systems of a session to run: the only one, or the one whose program is loaded.
    /// A switch has one program at a time.
    fn choose<'a>(
        &self,
        session: &'a Session,
    ) -> Result<Option<(&'static dyn System, &'a SystemSetup)>, String> {
        let asked = |system: &'static dyn System| Some((system, session.setup_of(system.id())?));
        let asked: Vec<_> = self.offered().filter_map(asked).collect();
        if let [] | [_] = asked[..] {
            return Ok(asked.first().copied());
        }
        let is_loaded = |(system, _): &(&dyn System, _)| self.loaded == Some(system.id());
        let chosen = asked.iter().copied().find(is_loaded).map(Some);
        chosen.ok_or_else(|| {
            let programs: Vec<_> = asked.iter().map(|(system, _)| system.program()).collect();
            format!(
                "a Tofino runs one P4 program at a time, and none of {} is loaded on this one",
                programs.join(", ")
            )
        })
    }
}

/// Why a system is declined beside the one that runs.
fn one_at_a_time(other: &dyn System, running: &dyn System) -> String {
    format!(
        "{} is not run here: a Tofino runs one P4 program at a time, and {} is loaded, which is \
         for {}; load {} instead",
        other.name(),
        running.program(),
        running.name(),
        other.program()
    )
}

/// Whether what runs by one session for a system can go on in another.
fn goes_on(id: SystemId, one: &Session, other: &Session) -> bool {
    let fixed =
        |session: &Session| session.setup_of(id).map(|setup| (setup.version, setup.setup.clone()));
    let named = one.node_id.is_some() && other.node_id.is_some();
    (!named || one.node_id == other.node_id)
        && one.hash_key == other.hash_key
        && one.clock == other.clock
        && one.domain == other.domain
        && fixed(one) == fixed(other)
}

impl Measurer for Measuring {
    fn systems(&self) -> Vec<SystemOffer> {
        self.offered().flat_map(System::offers).collect()
    }

    fn holding(&self) -> Vec<(SystemId, Vec<u8>)> {
        let of_session = self.running.iter().chain(&self.next).filter(|running| !running.left);
        let holding = of_session.filter_map(|running| {
            let (plan, from_epoch) = &running.holding;
            Some((running.id, running.run.setup.holding(plan, *from_epoch)?))
        });
        holding.collect()
    }

    fn begin(&mut self, session: &Session) -> Result<(), String> {
        let Some((system, setup)) = self.choose(session)? else {
            self.stop();
            self.declined.clear();
            self.news.clear();
            return Ok(());
        };
        self.measure(system, setup, session)?;
        let others = self.offered().filter(|other| other.id() != system.id());
        let others = others.filter(|other| session.setup_of(other.id()).is_some());
        self.declined = others.map(|other| (other.id(), one_at_a_time(other, system))).collect();
        self.news = self.declined.clone().into();
        Ok(())
    }

    fn switches_systems(&self) -> bool {
        true
    }

    fn add(&mut self, session: &Session, setup: &SystemSetup) -> Result<(), String> {
        let known = self.offered().find(|system| system.id() == setup.system);
        let system = known.ok_or_else(|| format!("{} does not run here", setup.system))?;
        let mut ids = self.running.iter().chain(&self.next).filter(|running| !running.left);
        let chosen = match ids.next().map(|running| running.id) {
            Some(id) => self.offered().find(|system| system.id() == id),
            None => self.choose(session)?.map(|(chosen, _)| chosen),
        };
        if let Some(chosen) = chosen.filter(|chosen| chosen.id() != system.id()) {
            return Err(one_at_a_time(system, chosen));
        }
        let running = self.begin_one(system, setup, session)?;
        if self.running.is_some() {
            self.next = Some(running);
        } else {
            self.running = Some(running);
            self.retry_at = Instant::now();
        }
        Ok(())
    }

    fn remove(&mut self, system: SystemId, end: u64) {
        self.declined.retain(|(id, _)| *id != system);
        self.next.take_if(|next| next.id == system);
        if let Some(running) = self.running.as_mut().filter(|running| running.id == system) {
            running.left = true;
            running.run.end.fetch_min(end, Ordering::Relaxed);
        }
    }

    fn rekey(&mut self, session: &Session) -> Vec<(SystemId, String)> {
        let Some(running) = self.running.iter().chain(&self.next).find(|of| !of.left) else {
            return Vec::new();
        };
        let known = self.offered().find(|system| system.id() == running.id);
        let role = self.role();
        let Some(system) = known.filter(|system| system.hashes(role)) else { return Vec::new() };
        let Some(setup) = session.setup_of(system.id()) else { return Vec::new() };
        match self.begin_one(system, setup, session) {
            Ok(new) => {
                self.remove(system.id(), session.first_epoch);
                if self.running.is_some() {
                    self.next = Some(new);
                } else {
                    self.running = Some(new);
                }
                Vec::new()
            }
            Err(problem) => vec![(system.id(), problem)],
        }
    }

    fn check(&self, system: SystemId, plan: &[u8]) -> Result<(), String> {
        if let Some((_, reason)) = self.declined.iter().find(|(id, _)| *id == system) {
            return Err(reason.clone());
        }
        self.of_session(system).ok_or("it is not measuring")?.run.setup.check(plan)
    }

    fn reconfigure(&mut self, system: SystemId, epoch: u64, plan: &[u8]) {
        let all = self.running.iter_mut().chain(&mut self.next);
        let of_session = all.filter(|running| running.id == system && !running.left);
        let mut at_once = Vec::new();
        of_session.for_each(|running| {
            running.reconfigure(epoch, plan);
            at_once.extend(running.run.setup.at_once(plan));
        });
        self.put(&at_once);
    }

    fn alone(&self, alone_ns: u64) -> Vec<(SystemId, Vec<u8>)> {
        let of_session = self.running.iter().chain(&self.next).filter(|running| !running.left);
        let goes_on = of_session.filter_map(|running| {
            let (plan, at_once) = running.run.setup.alone(&running.holding.0, alone_ns)?;
            self.put(&at_once);
            Some((running.id, plan))
        });
        goes_on.collect()
    }

    fn take_clock_set(&mut self) -> Option<i64> {
        let by_ns = self.clock_set.swap(0, Ordering::Relaxed);
        if by_ns == 0 {
            return None;
        }
        self.stop();
        Some(by_ns)
    }

    fn lead_ns(&self) -> u64 {
        // A thread may be late.
        let run = self.running.as_ref().map(|running| &running.run);
        let ahead_ns = |run: &Run| prepare_ns(&run.clock) + run.setup.writing_ns();
        run.map_or(0, ahead_ns) + 2_000_000
    }

    fn setup_ns(&self) -> u64 {
        SETUP_NS
    }
}

impl Running {
    fn reconfigure(&mut self, epoch: u64, plan: &[u8]) {
        let plan = Plan::from(plan);
        if let Err(problem) = lock(&self.run.plans).change(epoch, plan.clone()) {
            // Its sketches will say under what they were measured.
            warn!("plan of epoch {epoch}: {problem}");
        }
        self.holding = (plan, epoch);
    }
}
