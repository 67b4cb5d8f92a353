//! What a live fabric's reports are held against: the log of its routers epoch by epoch, and in the
//! end the kernel's counters.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use calumma_controller::report::EpochReport;
use calumma_sketch::{Key, WideKey};
use calumma_sketchint_analysis::SketchInt;

use super::mutants::Mutants;
use super::witness::{Logs, Witness};
use super::{Comparison, Live, unlogged};
use crate::carrier::Carrier;
use crate::fabric::{faults, frames, link};
use crate::scenario::{Balance, Stacks};
use crate::simulate::{EpochTruth, Outcome};
use crate::system;

/// How long after an epoch's end its last packets have surely been logged.
const SETTLED: Duration = Duration::from_millis(200);

/// Epochs of which it is known what happened to packets; a report that comes later is on an epoch
/// of which nothing is known.
const REMEMBERED: u64 = 2400;

impl Live {
    /// Packets that each transit has received, by name, once all is finished.
    pub fn transited(&self) -> &BTreeMap<String, u64> {
        &self.transited
    }

    /// The MTUs that kernels have found paths to have, where these are less than their links': from
    /// the first host of an edge to the last one of another, by the positions of the edges and the
    /// IP version, once all is finished, of a scenario whose edges send hosts MTUs.
    pub fn path_mtus(&self) -> Option<&BTreeMap<(usize, usize, u8), u16>> {
        self.path_mtus.as_ref()
    }

    /// What switches that were not started anew have counted, hosts' own sinks among them, by their
    /// names and those of the counters, once all is finished.
    pub fn totals(&self) -> &BTreeMap<String, BTreeMap<String, u64>> {
        &self.totals
    }

    /// What SketchINT reported beside what captures say, once all is finished.
    pub fn compared(&self) -> Option<&Comparison> {
        self.compared.as_ref()
    }

    /// The same, to be kept for longer.
    pub fn take_compared(&mut self) -> Option<Comparison> {
        self.compared.take()
    }

    /// Reports on settled epochs, each beside what happened.
    pub(super) fn outcomes(&mut self) -> Result<Vec<Outcome>> {
        let fresh = self.take_reports();
        self.pending.extend(fresh);
        let read_until_ns = self.witness.as_ref().map_or(0, Witness::read_until_ns);
        let settled_ns = read_until_ns.saturating_sub(SETTLED.as_nanos() as u64);
        if let Some(witness) = self.witness.take() {
            self.hold_systems(&witness, settled_ns)?;
            witness.forget_before(self.clock.epoch_at(settled_ns).saturating_sub(REMEMBERED));
            self.witness = Some(witness);
        }
        let end_of = |report: &EpochReport| self.clock.start_of(report.epoch + 1);
        let ready = self.pending.iter().take_while(|report| end_of(report) <= settled_ns).count();
        let ready: Vec<EpochReport> = self.pending.drain(..ready).collect();
        ready.into_iter().filter_map(|report| self.outcome(report).transpose()).collect()
    }

    /// A report in the scenario's terms, beside what happened; none where it is on an epoch that is
    /// none of the scenario's.
    fn outcome(&mut self, mut report: EpochReport) -> Result<Option<Outcome>> {
        let flows = match &self.witness {
            Some(witness) => witness.of(report.epoch)?,
            None => Vec::new(),
        };
        if let Some(archived) = &mut self.archived {
            archived.note(report.epoch, report.complete);
        }
        if report.epoch >= self.next_report {
            let in_all = report.edges.iter().filter_map(|edge| edge.packets_in).sum::<u64>();
            let goes_on = report.complete && report.epoch == self.next_report;
            self.counted = self.counted.filter(|_| goes_on).map(|counted| counted + in_all);
            self.next_report = report.epoch + 1;
        }
        report.amendments.retain_mut(|amendment| {
            let number = self.of_systems.numbers.get(&amendment.epoch);
            number.is_some_and(|&number| {
                amendment.epoch = number;
                true
            })
        });
        let Some((number, entered)) = self.entered.remove(&report.epoch) else {
            // While something changes, reports still amend those of the scenario's epochs.
            self.amendments.append(&mut report.amendments);
            return Ok(None);
        };
        report.amendments.append(&mut self.amendments);
        if let Some(plan) = &mut report.plan {
            plan.effective_epoch = number + plan.effective_epoch.saturating_sub(report.epoch);
        }
        report.epoch = number;
        let mut disturbed = self.disturbed.packets.clone();
        self.mutants.iter().for_each(|mutants| mutants.add_to(&mut disturbed));
        let response_ms = report.timing.map_or(0.0, |timing| timing.planned_ms - timing.egress_ms);
        Ok(Some(Outcome {
            truth: EpochTruth { flows, entered: Some(entered), disturbed, ..EpochTruth::default() },
            frame_bytes: None,
            response: Duration::from_secs_f64(response_ms.max(0.0) / 1e3),
            report,
        }))
    }

    /// Stops everything, and holds what was seen on the way against the kernel's counters.
    pub(super) fn account(&mut self) -> Result<()> {
        let [from_hosts, from_routers] = self.mutants.take().map_or(Ok([0; 2]), Mutants::finish)?;
        let with_applications = std::mem::take(&mut self.applications).finish()? || from_hosts > 0;
        self.wiring.wait_quiet()?;
        if let Some(mtus) = &mut self.path_mtus {
            *mtus = self.wiring.path_mtus()?;
        }
        self.compare()?;
        let sent = self.wiring.moved_by_hosts()?.1 - self.sent_before;
        let mut unlogged = unlogged::by_kernel(&self.wiring, &self.before)?;
        let kernel = link::all_counters(self.wiring.switches())?;
        for (edge, name) in self.topology.edges().iter().enumerate() {
            let Some(switch) = self.edges[edge].take() else { continue };
            let totals = switch.stop()?;
            if let Some(totals) = totals.filter(|_| !self.restarted.contains(&edge)) {
                let interfaces = self.wiring.ports(edge).concat();
                unlogged.add(unlogged::by_switch(name, &interfaces, &kernel, &totals));
                self.totals.insert(name.clone(), totals);
            }
        }
        let names: Vec<String> = self.topology.host_sinks().map(|sink| sink.2).collect();
        let sinks = std::mem::take(&mut self.sinks).into_iter().zip(self.wiring.sinks());
        for (((edge, host, sink), namespace), name) in sinks.zip(names) {
            let kernel = link::all_counters(namespace)?;
            if let Some(totals) = sink.stop()? {
                let interfaces = self.wiring.sink_ports(edge, host);
                unlogged.add(unlogged::by_switch(&name, &interfaces, &kernel, &totals));
                self.totals.insert(name, totals);
            }
        }
        for transit in std::mem::take(&mut self.transits) {
            let (name, interfaces) =
                (transit.name().to_owned(), transit.interfaces(&self.topology));
            let kernel = link::all_counters(&self.wiring.transits()[&transit.at()])?;
            let totals = transit.stop()?;
            let there = interfaces.iter().filter_map(|of| kernel.get(of));
            let received = match totals {
                Some(totals) => {
                    unlogged.add(unlogged::by_switch(&name, &interfaces, &kernel, &totals));
                    let received = totals.get("received.fabric").copied();
                    self.totals.insert(name.clone(), totals);
                    received.unwrap_or_default()
                }
                None => there.map(|counted| counted.rx.packets).sum(),
            };
            self.transited.insert(name, received);
        }
        if let Some((controller, _)) = self.controller.take() {
            controller.stop()?;
        }
        self.check_archive()?;
        let witnessed = self.witness.take().map(Witness::finish).transpose()?;
        let Logs { lost: logged, doubled, stacks } = witnessed.unwrap_or_default();
        self.doubts = unlogged.lines;
        self.balance_stacks(stacks, unlogged.lost)?;
        let lost = self.lost_by_routers(&logged)?;
        let (received, sent_in_all) = self.wiring.moved_by_hosts()?;
        let inside = self.disturbed.from_inside + from_routers;
        let errors = self.totals.values().filter_map(|of| of.get("icmp_errors.sent")).sum::<u64>();
        let came = sent_in_all + inside + doubled + errors;
        let went = received - self.announced + lost + from_hosts;
        if came != went {
            self.doubts.push(format!(
                "hosts sent {sent_in_all} packets, routers {inside}, which doubled {doubled} \
                 besides, and switches {errors} errors, but {went} were received or lost on purpose"
            ));
        }
        // Applications may send on after the last epoch.
        if let Some(counted) = self.counted.filter(|_| !with_applications) {
            ensure!(
                counted == sent,
                "hosts sent {sent} packets, but {counted} entered by the reports"
            );
        }
        Ok(())
    }

    /// Packets that routers lost by their own counters, with which the log of lost packets has to
    /// agree.
    fn lost_by_routers(&self, logged: &HashMap<WideKey, u64>) -> Result<u64> {
        let routers = self.wiring.routers();
        let in_log = logged.values().sum::<u64>();
        if self.carrier == Carrier::Shim {
            // Wires can't tell flows apart.
            let lost = routers.iter().map(frames::lost).sum::<Result<u64>>()?;
            ensure!(lost == in_log, "wires counted {lost} lost packets, but logged {in_log}");
            return Ok(lost);
        }
        let mut counters: HashMap<WideKey, u64> = HashMap::new();
        for router in routers {
            for loss in faults::losses(router)? {
                let flow = loss.flow;
                let key = WideKey::new(flow.src, flow.dst, flow.sport, flow.dport, flow.proto)
                    .with_context(|| format!("{flow:?}: addresses of two families"))?;
                *counters.entry(key).or_default() += loss.lost;
            }
        }
        let lost = counters.values().sum::<u64>();
        ensure!(
            *logged == counters,
            "routers counted losses of {} flows, {lost} packets, but logged {} flows, {in_log} of them",
            counters.len(),
            logged.len()
        );
        Ok(lost)
    }

    /// Holds what sources say that they put stacks into against what others took out, and what
    /// routers logged as lost and doubled. As many too few as packets were lost beside the log may
    /// be those.
    fn balance_stacks(&mut self, [lost, doubled]: [u64; 2], unlogged: u64) -> Result<()> {
        let Some(compared) = &self.compared else { return Ok(()) };
        let Comparison { windows, moved, leaked, changed, .. } = *compared;
        let count = |name: &str| -> u64 {
            let name = format!("sketchint.{name}");
            self.totals.values().filter_map(|of| of.get(&name)).sum()
        };
        let balance = self.restarted.is_empty() && self.counts_all();
        let balance = balance.then(|| Balance {
            inserted: count("inserted") + doubled,
            taken_out: count("stripped") + count("taken_out"),
            dropped: count("discarded") + count("unstripped"),
            lost,
        });
        self.stacks = Some(Stacks { windows, moved, leaked, changed, balance });
        let Some(balance) = balance.filter(|of| of.inserted != of.accounted()) else {
            return Ok(());
        };
        let complaint = format!("stacks do not balance: {balance:?}");
        match balance.may_lack(unlogged) {
            true => self.doubts.push(complaint),
            false => self.complain_of_int(&complaint)?,
        }
        Ok(())
    }

    /// Whether the totals of all switches that may put stacks in or take some out are known.
    fn counts_all(&self) -> bool {
        let sinks = self.topology.host_sinks().map(|sink| sink.2);
        let others = self.topology.edges().iter().chain(self.transited.keys()).cloned();
        others.chain(sinks).all(|name| self.totals.contains_key(&name))
    }

    /// What is wrong with all that SketchINT did counts as its last report's.
    fn complain_of_int(&mut self, complaint: &str) -> Result<()> {
        let name = system::name(&SketchInt);
        let reported = &mut self.of_systems.reported;
        let last = reported.iter_mut().rfind(|of| of.system == name);
        let last = last.with_context(|| format!("no report of {name}, but {complaint}"))?;
        last.contradiction.get_or_insert(format!("{name}: {complaint}"));
        Ok(())
    }

    /// Holds what SketchINT reported against what was captured, where it ran.
    fn compare(&mut self) -> Result<()> {
        let Some(captures) = self.captures.take() else { return Ok(()) };
        let observed = captures.finish(&self.topology)?;
        let reports = &self.of_systems.of_int;
        let compared = Comparison::new(&observed, reports, self.clock.length_ns());
        let complaint = compared.complaint();
        self.compared = Some(compared);
        complaint.map_or(Ok(()), |complaint| self.complain_of_int(&complaint))
    }
}
