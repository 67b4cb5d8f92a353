//! What lcores and the control thread say to each other while packets run.
//!
//! Not the sketches: those go through [`measure`](crate::measure). Once a millisecond an lcore
//! looks into its inbox. It finds new settings there, or an empty report that it fills by swapping
//! its profile in: an lcore copies a few hundred bytes and neither allocates nor waits.

use std::sync::Arc;

use calumma_plane::probe::{FromLcore, LcoreProbes, ProbeKey, ProbeLine};
use calumma_plane::sync::{Receiver, Sender, bounded};
use dpdk::Mempool;

use crate::config::Settings;
use crate::control::paths::Order;
use crate::counters::Counters;
use crate::profile::Profile;

/// Messages that an lcore's inbox holds: a report, settings that change faster than it looks,
/// probes.
const INBOX: usize = 64;

/// What the control thread says to an lcore.
#[derive(Debug)]
pub enum ToLcore {
    /// Go by these settings.
    Settings(Settings),
    /// Fill this, and send it back.
    Report(Box<Report>),
    /// Know probes by this key.
    ProbeKey(ProbeKey),
    /// Note the headers of a packet that a host sends.
    Sample,
    /// Send this probe.
    Probe(Order),
}

/// What an lcore tells of itself.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its totals.
    pub counters: Counters,
    /// Where its time went since its last report.
    pub profile: Box<Profile>,
}

impl Report {
    fn empty(tsc_hz: u64) -> Self {
        Self { counters: Counters::default(), profile: Box::new(Profile::new(tsc_hz)) }
    }
}

/// An lcore's end of its line to the control thread.
#[derive(Debug)]
pub struct Line {
    /// From the control thread.
    pub inbox: Receiver<ToLcore>,
    /// To the control thread.
    pub outbox: Sender<Box<Report>>,
    /// The lcore's end of what it does with probes, for its worker.
    pub probes: LcoreProbes,
    /// Where probes that are sent get their memory from.
    pub pool: Option<Mempool>,
}

/// The control thread's ends of the lines to all lcores, and what came on them.
#[derive(Debug)]
pub struct Lines {
    lcores: Vec<Lcore>,
}

#[derive(Debug)]
struct Lcore {
    to: Sender<ToLcore>,
    from: Receiver<Box<Report>>,
    probes: ProbeLine,
    /// The report that is asked for next; none while the lcore has it.
    blank: Option<Box<Report>>,
    /// Counters as of the last report, and the sum of all profiles.
    totals: Arc<Report>,
}

impl Lines {
    /// Lines to `lcores` lcores of a machine whose time stamp counter runs at `tsc_hz`.
    pub fn new(lcores: usize, tsc_hz: u64) -> (Self, Vec<Line>) {
        let (lcores, lines) = (0..lcores)
            .map(|_| {
                let (to, inbox) = bounded(INBOX);
                let (outbox, from) = bounded(1);
                let (of_lcore, probes) = LcoreProbes::new();
                let blank = Some(Box::new(Report::empty(tsc_hz)));
                let totals = Arc::new(Report::empty(tsc_hz));
                let line = Line { inbox, outbox, probes: of_lcore, pool: None };
                (Lcore { to, from, probes, blank, totals }, line)
            })
            .unzip();
        (Self { lcores }, lines)
    }

    /// Lets all lcores go by `settings`; false where one has not listened for so long that it can't
    /// be told.
    pub fn set(&self, settings: Settings) -> bool {
        let send = |lcore: &Lcore| lcore.to.try_send(ToLcore::Settings(settings)).is_ok();
        self.lcores.iter().filter(|lcore| !send(lcore)).count() == 0
    }

    /// What lcores have found of probes, each with the number of its lcore.
    pub fn found(&self) -> impl Iterator<Item = (usize, FromLcore)> {
        let lcores = self.lcores.iter().enumerate();
        lcores.flat_map(|(number, lcore)| lcore.probes.found().map(move |found| (number, found)))
    }

    /// Lets all lcores know probes by a key.
    pub fn set_probe_key(&self, key: &ProbeKey) {
        for lcore in &self.lcores {
            // One that does not listen takes no probes in.
            let _ = lcore.to.try_send(ToLcore::ProbeKey(key.clone()));
        }
    }

    /// Asks all lcores for the headers of a packet that a host sends.
    pub fn sample(&self) {
        for lcore in &self.lcores {
            let _ = lcore.to.try_send(ToLcore::Sample);
        }
    }

    /// Lets an lcore send a probe. Where it does not listen, none is sent.
    pub fn send_probe(&self, order: Order) {
        if let Some(lcore) = self.lcores.get(order.lcore) {
            let _ = lcore.to.try_send(ToLcore::Probe(order));
        }
    }

    /// Takes in what the lcores have reported, and asks them anew.
    pub fn poll(&mut self) {
        for lcore in &mut self.lcores {
            if let Ok(report) = lcore.from.try_recv() {
                lcore.take_in(report);
            }
            if let Some(blank) = lcore.blank.take()
                && let Err(unsent) = lcore.to.try_send(ToLcore::Report(blank))
                && let ToLcore::Report(blank) = unsent.into_inner()
            {
                lcore.blank = Some(blank);
            }
        }
    }

    /// Takes in what the lcores have left behind at their ends, in their order.
    pub fn finish(&mut self, left: Vec<Report>) {
        for (lcore, report) in self.lcores.iter_mut().zip(left) {
            if let Ok(report) = lcore.from.try_recv() {
                lcore.take_in(report);
            }
            lcore.take_in(Box::new(report));
        }
    }

    /// Each lcore's totals as of its last report.
    pub fn totals(&self) -> Vec<Arc<Report>> {
        self.lcores.iter().map(|lcore| lcore.totals.clone()).collect()
    }
}

impl Lcore {
    fn take_in(&mut self, mut report: Box<Report>) {
        // Copied only where somebody is still looking at the last state.
        let totals = Arc::make_mut(&mut self.totals);
        totals.counters = report.counters;
        totals.profile.add(&report.profile);
        report.profile.clear();
        self.blank = Some(report);
    }
}

/// The sum over some lcores.
pub fn sum(reports: &[Arc<Report>], tsc_hz: u64) -> Report {
    let mut sum = Report::empty(tsc_hz);
    for report in reports {
        sum.counters += &report.counters;
        sum.profile.add(&report.profile);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PollingConfig;
    use crate::measure::Moment;
    use crate::worker::Policy;

    const HZ: u64 = 1_000_000_000;

    fn cycles(report: &Report) -> u64 {
        let named = report.profile.named();
        named.iter().find(|(name, _)| name == "cycles.work").unwrap().1
    }

    fn worked(report: &mut Report, cycles: u64) {
        report.profile.burst(cycles, Moment::Ordinary);
        report.profile.stages(0, cycles, 0);
    }

    #[test]
    fn reports_add_up_whether_asked_for_or_left_behind() {
        let (mut lines, lcores) = Lines::new(2, HZ);
        lines.poll();
        for round in 1..=3 {
            for lcore in &lcores {
                let Ok(ToLcore::Report(mut report)) = lcore.inbox.try_recv() else {
                    panic!("a report is asked for in round {round}");
                };
                assert_eq!(cycles(&report), 0, "what was reported is not reported again");
                report.counters.transmitted = round * 10;
                worked(&mut report, 5);
                lcore.outbox.try_send(report).unwrap();
            }
            if round < 3 {
                lines.poll();
            }
        }
        let mut last = Report::empty(HZ);
        last.counters.transmitted = 40;
        worked(&mut last, 1);
        lines.finish(vec![last.clone(), last]);
        let sum = sum(&lines.totals(), HZ);
        assert_eq!((sum.counters.transmitted, cycles(&sum)), (80, 32));
    }

    #[test]
    fn an_lcore_that_does_not_listen_is_not_waited_for() {
        let (mut lines, lcores) = Lines::new(1, HZ);
        let polling = PollingConfig::default();
        let settings = Settings {
            policy: Policy::default(),
            idle_sleep_us: polling.idle_sleep_us,
            idle_polls: polling.idle_polls,
            transmit_retries: polling.transmit_retries,
        };
        assert!((0..INBOX).all(|_| lines.set(settings)));
        assert!(!lines.set(settings));
        lines.poll();
        lcores[0].inbox.try_iter().for_each(drop);
        lines.poll();
        assert!(matches!(lcores[0].inbox.try_recv(), Ok(ToLcore::Report(_))), "asked again");
    }
}
