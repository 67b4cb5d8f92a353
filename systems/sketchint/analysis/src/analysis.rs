//! SketchINT in the controller's list, and how the controller runs it.

use std::sync::Arc;

use calumma_analysis::alert::{AlertLimits, Rules};
use calumma_analysis::metrics::ReportMetrics;
use calumma_analysis::{
    Analysis, AnyAnalysis, Collected, Deployment, Node, NodeSetup, Panel, Remembered, Report,
    Steer, System, SystemReport, Table,
};
use calumma_sketchint::frames::{OFFER, Plan, Step};
use calumma_wire::{Offer, Role, Side};
use prometheus::Registry;

use crate::lifecycle::Lifecycle;
use crate::parameters::Parameters;
use crate::report::Found;
use crate::tables::WINDOWS;
use crate::{Delivered, Limits, PANELS, TABLES, Watch, Windows, metrics};

/// The system in the controller's list.
#[derive(Clone, Copy, Debug)]
pub struct SketchInt;

impl System for SketchInt {
    fn name(&self) -> &'static str {
        "sketchint"
    }

    fn offer(&self) -> Offer {
        OFFER
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Edge, Role::Transit, Role::Host]
    }

    /// A stack is known by a bit there.
    fn needs_tos(&self) -> bool {
        true
    }

    fn start(&self, deployment: &Deployment<'_>) -> Result<Option<Box<dyn AnyAnalysis>>, String> {
        Ok(Some(Box::new(Sketching::new(deployment)?)))
    }

    fn tables(&self) -> &'static [&'static dyn Table] {
        &TABLES
    }

    fn reports(&self) -> &'static dyn Table {
        &WINDOWS
    }

    fn read(&self, line: &str) -> Option<Arc<dyn Report>> {
        let report = SystemReport::<Found>::read(line)?;
        let mut report = report.as_type::<SystemReport<Found>>()?.clone();
        report.findings.fill();
        Some(Arc::new(report))
    }

    fn metrics(
        &self,
        registry: &Registry,
        _nodes: &[String],
    ) -> prometheus::Result<Box<dyn ReportMetrics>> {
        metrics::new(registry)
    }

    fn panels(&self) -> &'static [Panel] {
        PANELS
    }

    fn alert_rules(&self, _limits: &AlertLimits, _nodes: &[String]) -> Box<dyn Rules> {
        Box::new(Watch::default())
    }
}

/// The analysis of a deployment.
#[derive(Debug)]
struct Sketching {
    parameters: Parameters,
    lifecycle: Lifecycle,
    windows: Windows,
}

impl Sketching {
    fn new(deployment: &Deployment<'_>) -> Result<Self, String> {
        let parameters = Parameters::of(deployment)?;
        let Parameters { setup, attention, flows_limit, foreign } = &parameters;
        let share = setup.carried_share();
        let limits = Limits { flows: *flows_limit, share, ..Limits::default() };
        let name = |node: &Arc<Node>| (u32::from(node.id), node.name.clone());
        // An end host is no hop.
        let switches = deployment.nodes.iter().filter(|node| node.role != Role::Host);
        let names = switches.map(name).chain(foreign.clone()).collect();
        let windows = Windows::new(setup.layout, limits, deployment.hash_keys.clone(), names);
        let lifecycle = Lifecycle::new(setup, *attention, deployment.clock, deployment.nodes);
        Ok(Self { parameters, lifecycle, windows })
    }
}

impl Analysis for Sketching {
    type Side = Delivered;
    type Report = SystemReport<Found>;

    fn window(&self) -> u64 {
        self.parameters.setup.window_epochs.into()
    }

    fn remembered(&self) -> Option<Arc<dyn Remembered>> {
        Some(self.windows.remembered())
    }

    fn remark(&self) -> Option<String> {
        let port = self.parameters.setup.udp_port?;
        Some(format!(
            "udp_port = {port}: packets with a stack go to that UDP port, TCP's apart; where routers \
             have several paths, flows move to other ones, and back as soon as this is switched off"
        ))
    }

    /// Whatever plan a node is sent later, it begins without putting anything into packets.
    fn setup(&self, _node: &Node, version: u8) -> NodeSetup {
        let setup = self.parameters.setup.for_version(version).encode();
        NodeSetup { setup, plan: Plan::default().encode() }
    }

    fn steer(&self) -> Option<Box<dyn Steer>> {
        Some(Box::new(self.lifecycle.clone()))
    }

    fn decode(&self, node: &Node, _version: u8, side: Side) -> Result<Delivered, String> {
        self.windows.decode(node, &side)
    }

    fn analyse(&mut self, collected: Collected<Delivered>) -> SystemReport<Found> {
        let epochs = Analysis::window(self);
        let from_ns = collected.head.start_unix_ns;
        let to_ns = from_ns.saturating_add(collected.head.length_ms.saturating_mul(1_000_000));
        let (step, waits_for) = self.lifecycle.in_window(from_ns, to_ns);
        let (found, problems) = self.windows.analyse(&collected, epochs, step.name());
        let mut report = SystemReport::new(&collected, found);
        problems.into_iter().for_each(|problem| report.add_problem(problem));
        if step < Step::Sources {
            if waits_for.is_empty() {
                let step = step.name();
                report.add_problem(format!("INT is being switched on: {step} so far"));
            }
            for node in waits_for {
                report.add_problem(format!("INT is not on: {node}"));
            }
        }
        self.windows.remember(&report);
        report
    }
}
