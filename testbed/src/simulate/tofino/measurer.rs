//! What a modelled switch does when its controller says so.

use calumma_edge::control::LEAD_NS;
use calumma_switch_host::{self as host, Measurer, SystemOffer};
use calumma_switchd::system::System;
use calumma_wire::{SystemId, SystemSetup};

use super::Tofino;

impl Measurer for Tofino {
    fn systems(&self) -> Vec<SystemOffer> {
        self.system.iter().flat_map(|system| system.offers()).collect()
    }

    fn holding(&self) -> Vec<(SystemId, Vec<u8>)> {
        let running = self.system.and_then(|system| self.of_session(system.id()));
        let holding = running.and_then(|session| {
            let (plan, from_epoch) = &session.holding;
            Some((session.id, session.setup.holding(plan, *from_epoch)?))
        });
        holding.into_iter().collect()
    }

    fn begin(&mut self, session: &host::Session) -> Result<(), String> {
        let asked = self.system.and_then(|system| session.setup_of(system.id()));
        self.session = asked.map(|asked| self.start(session, asked)).transpose()?;
        self.next = None;
        Ok(())
    }

    fn switches_systems(&self) -> bool {
        true
    }

    fn add(&mut self, session: &host::Session, asked: &SystemSetup) -> Result<(), String> {
        let started = self.start(session, asked)?;
        let place = if self.session.is_some() { &mut self.next } else { &mut self.session };
        *place = Some(started);
        Ok(())
    }

    fn remove(&mut self, system: SystemId, end: u64) {
        self.next.take_if(|next| next.id == system);
        if let Some(session) = self.session.as_mut().filter(|session| session.id == system) {
            session.end = session.end.min(end);
        }
    }

    fn rekey(&mut self, session: &host::Session) -> Vec<(SystemId, String)> {
        let hashes = |system: &&dyn System| system.hashes(self.role);
        let Some(system) = self.system.filter(hashes) else { return Vec::new() };
        let Some(asked) = session.setup_of(system.id()) else { return Vec::new() };
        match self.start(session, asked) {
            Ok(started) => {
                self.remove(system.id(), session.first_epoch);
                let place = if self.session.is_some() { &mut self.next } else { &mut self.session };
                *place = Some(started);
                Vec::new()
            }
            Err(problem) => vec![(system.id(), problem)],
        }
    }

    fn check(&self, system: SystemId, plan: &[u8]) -> Result<(), String> {
        self.of_session(system).ok_or("it is not measuring")?.setup.check(plan)
    }

    fn reconfigure(&mut self, system: SystemId, epoch: u64, plan: &[u8]) {
        let all = self.next.iter_mut().chain(&mut self.session);
        for session in all.filter(|session| session.id == system && session.end == u64::MAX) {
            // An epoch that is too late is refused before.
            let _ = session.plans.change(epoch, plan.into());
            session.holding = (plan.into(), epoch);
        }
    }

    /// Tables are filled epoch by epoch here: what is accepted holds from the next window on.
    fn alone(&self, alone_ns: u64) -> Vec<(SystemId, Vec<u8>)> {
        let running = self.system.and_then(|system| self.of_session(system.id()));
        let goes_on = running.and_then(|session| {
            let (plan, _) = session.setup.alone(&session.holding.0, alone_ns)?;
            Some((session.id, plan))
        });
        goes_on.into_iter().collect()
    }

    fn take_clock_set(&mut self) -> Option<i64> {
        self.clock_set.take()
    }

    fn lead_ns(&self) -> u64 {
        LEAD_NS
    }

    fn setup_ns(&self) -> u64 {
        0
    }
}
