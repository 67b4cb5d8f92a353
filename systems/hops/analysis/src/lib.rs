//! What the controller makes of `hops`: every flow's packets at every node, and where they were
//! lost, in a report, a table of the archive, metrics, an alert and a panel of the dashboard.
//!
//! Beside [`calumma_hops`], which has the switch's part, this is all that the example consists of.

use std::sync::Arc;

use calumma_analysis::alert::{AlertLimits, Fact, Reading, Rules};
use calumma_analysis::losses::{FlowCounts, Lost, LostAt};
use calumma_analysis::metrics::{ReportMetrics, counters};
use calumma_analysis::places::{Bounds, Locators, Passed};
use calumma_analysis::table::{
    OfFlow, Row, Table, TableOf, complete, dport, dst, epoch, proto, sport, src, start, text, u64,
};
use calumma_analysis::{
    Analysis, AnyAnalysis, Collected, Deployment, Findings, Flow, Node, NodeSetup, Panel, Report,
    System, SystemReport,
};
use calumma_hops::frames::{Counts, OFFER, Packets, Setup};
use calumma_wire::{Offer, Role, Side, SideKind};
use prometheus::{IntCounterVec, Registry};
use serde::{Deserialize, Serialize};

/// The system in the controller's list.
#[derive(Clone, Copy, Debug)]
pub struct Hops;

/// The section `[hops]` of the controller's file.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    /// Flows that a node counts one by one in a window.
    flows: u16,
    /// Epochs of a window.
    window: u16,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { flows: 1024, window: 1 }
    }
}

impl System for Hops {
    fn name(&self) -> &'static str {
        Found::SYSTEM
    }

    fn offer(&self) -> Offer {
        OFFER
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Edge, Role::Transit]
    }

    fn start(&self, deployment: &Deployment<'_>) -> Result<Option<Box<dyn AnyAnalysis>>, String> {
        let Parameters { flows, window } = deployment.parameters()?;
        if flows == 0 || window == 0 {
            return Err("flows and window are at least 1".to_owned());
        }
        let setup = Setup { flows, window };
        Ok(Some(Box::new(Counting { setup, locators: Locators::default() })))
    }

    fn tables(&self) -> &'static [&'static dyn Table] {
        static TABLES: [&dyn Table; 1] = [&COUNTS];
        &TABLES
    }

    fn reports(&self) -> &'static dyn Table {
        &COUNTS
    }

    fn read(&self, line: &str) -> Option<Arc<dyn Report>> {
        SystemReport::<Found>::read(line)
    }

    fn metrics(
        &self,
        registry: &Registry,
        _nodes: &[String],
    ) -> prometheus::Result<Box<dyn ReportMetrics>> {
        let help = "Packets that a node has counted.";
        let packets = counters(registry, "hops_packets_total", help, &["node", "side"])?;
        Ok(Box::new(Metrics { packets }))
    }

    fn panels(&self) -> &'static [Panel] {
        const SCRIPT: &str = include_str!("losses.js");
        &[Panel { name: "losses", title: "Losses between switches", script: SCRIPT }]
    }

    fn alert_rules(&self, _limits: &AlertLimits, nodes: &[String]) -> Box<dyn Rules> {
        Box::new(TableIsFull(nodes.to_vec()))
    }
}

/// A flow's packets at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The node.
    pub node: String,
    /// Its side: `ingress`, `transit` or `egress`.
    pub side: String,
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Packets of the flow that were counted.
    pub packets: u64,
    /// Packets that the flow had at most: as many as were counted, unless the table was full.
    /// `None` where the node may not have counted all.
    pub at_most: Option<u64>,
    /// Packets of the flow, of those counted, that the node did not send: since its transmit queues
    /// were full, and on a Tofino for whatever reason.
    pub refused: u64,
    /// Packets of the flow that it did not send at most, likewise.
    pub refused_at_most: Option<u64>,
}

/// What a node counted on a side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTotal {
    /// The node.
    pub node: String,
    /// Its side.
    pub side: String,
    /// All packets.
    pub packets: u64,
    /// Those that found no place in its table.
    pub others: u64,
    /// Those that it did not send.
    pub refused: u64,
}

/// What was found in a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What each node counted.
    pub nodes: Vec<NodeTotal>,
    /// Every flow at every node.
    pub counts: Vec<Count>,
    /// Flows that certainly lost packets, and where; absent without a topology, and where an edge
    /// did not deliver all of the window.
    pub losses: Option<Vec<Lost>>,
    /// What was lost in each place; absent likewise.
    pub lost_at: Option<Vec<LostAt>>,
}

impl Findings for Found {
    const SYSTEM: &'static str = "hops";
}

/// The analysis: there is next to none.
#[derive(Debug)]
struct Counting {
    setup: Setup,
    locators: Locators,
}

impl Analysis for Counting {
    type Side = (u64, Counts);
    type Report = SystemReport<Found>;

    fn window(&self) -> u64 {
        self.setup.window.into()
    }

    fn setup(&self, _node: &Node, _version: u8) -> NodeSetup {
        NodeSetup { setup: self.setup.encode(), plan: Vec::new() }
    }

    fn decode(&self, _node: &Node, _version: u8, side: Side) -> Result<Self::Side, String> {
        let counts = Counts::decode(&side.body).map_err(|error| error.to_string())?;
        let all = || counts.flows.iter().map(|(_, of_flow)| of_flow).chain([&counts.others]);
        let received = all().try_fold(0_u64, |sum, of| sum.checked_add(of.received));
        if received != Some(side.packets) {
            return Err(format!("its flows have other than {} packets together", side.packets));
        }
        if all().any(|of| of.refused > of.received) {
            return Err("more packets of a flow were refused than it had".to_owned());
        }
        Ok((side.packets, counts))
    }

    fn analyse(&mut self, epoch: Collected<Self::Side>) -> SystemReport<Found> {
        let (losses, lost_at) = losses(&mut self.locators, &epoch).unzip();
        let mut found = Found { nodes: Vec::new(), counts: Vec::new(), losses, lost_at };
        for delivery in &epoch.nodes {
            let has_all = delivery.problem().is_none();
            for (side, (packets, Counts { flows, others })) in delivery.came() {
                let (node, side) = (delivery.node.name.clone(), SideKind::name(side).to_owned());
                found.counts.extend(flows.iter().map(|(key, packets)| Count {
                    node: node.clone(),
                    side: side.clone(),
                    flow: Flow::from(key),
                    packets: packets.received,
                    at_most: has_all.then_some(packets.received + others.received),
                    refused: packets.refused,
                    refused_at_most: has_all.then_some(packets.refused + others.refused),
                }));
                let refused = flows.iter().map(|(_, of_flow)| of_flow.refused).sum::<u64>();
                let (packets, refused) = (*packets, refused + others.refused);
                found.nodes.push(NodeTotal {
                    node,
                    side,
                    packets,
                    others: others.received,
                    refused,
                });
            }
        }
        SystemReport::new(&epoch, found)
    }
}

/// Losses of a window by flow, those that are certain, and by place; `None` where nothing can be
/// said about them.
fn losses(
    locators: &mut Locators,
    window: &Collected<(u64, Counts)>,
) -> Option<(Vec<Lost>, Vec<LostAt>)> {
    let locator = locators.begin(window)?;
    let mut all = FlowCounts::default();
    for delivery in &window.nodes {
        let at = locator.position(&delivery.node.name).filter(|&at| locator.counts(at));
        let Some(switch) = at else { continue };
        for (side, (_, Counts { flows, others })) in delivery.came() {
            let passed = |of_flow: Packets| Passed {
                switch,
                side,
                received: Bounds::counted(of_flow.received, others.received),
                refused: Bounds::counted(of_flow.refused, others.refused),
            };
            if others.received > 0 {
                all.add_unlisted(passed(Packets::default()));
            }
            flows.iter().for_each(|(key, of_flow)| all.add(Flow::from(key), passed(*of_flow)));
        }
    }
    Some(all.losses(locator))
}

impl OfFlow for Count {
    fn flow(&self) -> &Flow {
        &self.flow
    }
}

static COUNTS: TableOf<SystemReport<Found>, Count> = TableOf {
    name: "hops_counts",
    help: "a flow at a node in a window",
    columns: &[
        epoch(),
        start(),
        text("node", "name of the node", |row| Some(row.node.into())),
        text("side", "ingress, transit or egress", |row| Some((&*row.item.side).into())),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        u64("packets", "packets counted", |row| Some(row.item.packets)),
        u64("at_most", "packets that there were at most", |row| row.item.at_most),
        u64("refused", "of those counted, not sent by the node", |row| Some(row.item.refused)),
        u64("refused_at_most", "packets lost so at most", |row| row.item.refused_at_most),
        complete(),
    ],
    rows: |report, rows| {
        rows.extend(report.findings.counts.iter().map(|item| Row {
            head: report.head,
            node: &item.node,
            item,
        }));
    },
};

#[derive(Debug)]
struct Metrics {
    packets: IntCounterVec,
}

impl ReportMetrics for Metrics {
    fn record(&self, report: &dyn Report) {
        let Some(report) = report.as_type::<SystemReport<Found>>() else { return };
        for NodeTotal { node, side, packets, .. } in &report.findings.nodes {
            self.packets.with_label_values(&[node, side]).inc_by(*packets);
        }
    }
}

/// Warns of nodes, which it lists, that saw more flows than their tables hold.
#[derive(Debug)]
struct TableIsFull(Vec<String>);

impl Rules for TableIsFull {
    fn read(&mut self, report: &dyn Report) -> Option<Vec<Fact>> {
        let report = report.as_type::<SystemReport<Found>>()?;
        let nodes = &report.findings.nodes;
        let fact = |node: &String| {
            let others = nodes.iter().filter(|total| total.node == *node).map(|total| total.others);
            let reading = match others.max() {
                Some(0) if report.complete => Reading::Good,
                None | Some(0) => Reading::Unknown,
                Some(_) => Reading::Bad,
            };
            Fact { alert: "hops-table-full", node: Some(node.clone()), reading }
        };
        Some(self.0.iter().map(fact).collect())
    }

    fn text(&self, fact: &Fact, _report: &dyn Report, over: bool) -> String {
        let node = fact.node.as_deref().unwrap_or_default();
        let now = if over { "again holds all flows" } else { "holds fewer flows than there are" };
        format!("the table of {node} {now}")
    }
}
