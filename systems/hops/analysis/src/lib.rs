//! What the controller makes of `hops`: every flow's packets at every node, and where they were
//! lost, in a report, a table of the archive, metrics, an alert and a panel of the dashboard.
//!
//! Beside [`calumma_hops`], which has the switch's part, this is all that the example consists of.

use std::sync::Arc;

use calumma_analysis::alert::{AlertLimits, NodeAlert, Rules};
use calumma_analysis::losses::{Counted, Lost, LostAt, losses};
use calumma_analysis::metrics::{ReportMetrics, TotalOf};
use calumma_analysis::places::Locators;
use calumma_analysis::table::{
    Row, Table, TableOf, complete, dport, dst, epoch, proto, sport, src, start, text, u64,
};
use calumma_analysis::{
    Analysis, AnyAnalysis, Collected, Deployment, Findings, Flow, Node, NodeSetup, Panel, Report,
    System, SystemReport,
};
use calumma_hops::frames::{Counts, OFFER, Packets, Setup};
use calumma_wire::{Offer, Role, Side};
use prometheus::Registry;
use serde::{Deserialize, Serialize};

/// The system in the controller's list.
#[derive(Clone, Copy, Debug)]
pub struct Hops;

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

    /// The section `[hops]` is the setup, with the limits that switches hold it to.
    fn start(&self, deployment: &Deployment<'_>) -> Result<Option<Box<dyn AnyAnalysis>>, String> {
        let setup = deployment.parameters::<Setup>()?.encode();
        let setup = Setup::decode(&setup).map_err(|problem| problem.to_string())?;
        Ok(Some(Box::new(Counting { setup, locators: Locators::default() })))
    }

    fn tables(&self) -> &'static [&'static dyn Table] {
        static TABLES: [&dyn Table; 1] = [&COUNTS];
        &TABLES
    }

    fn read(&self, line: &str) -> Option<Arc<dyn Report>> {
        SystemReport::<Found>::read(line)
    }

    fn metrics(
        &self,
        registry: &Registry,
        _nodes: &[String],
    ) -> prometheus::Result<Box<dyn ReportMetrics>> {
        TotalOf::register(registry, &TOTALS)
    }

    fn panels(&self) -> &'static [Panel] {
        const SCRIPT: &str = include_str!("losses.js");
        &[Panel { name: "losses", title: "Losses between switches", script: SCRIPT }]
    }

    fn alert_rules(&self, _limits: &AlertLimits, nodes: &[String]) -> Box<dyn Rules> {
        TABLE_FULL.watch(nodes)
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
    type Side = Counts;
    type Report = SystemReport<Found>;

    fn window(&self) -> u64 {
        self.setup.window.into()
    }

    fn setup(&self, _node: &Node, _version: u8) -> NodeSetup {
        NodeSetup { setup: self.setup.encode(), plan: Vec::new() }
    }

    fn decode(&self, _node: &Node, _version: u8, side: Side) -> Result<Counts, String> {
        let counts = Counts::decode(&side.body).map_err(|error| error.to_string())?;
        let received = counts.values().try_fold(0_u64, |sum, of| sum.checked_add(of.received));
        if received != Some(side.packets) {
            return Err(format!("its flows have other than {} packets together", side.packets));
        }
        if counts.values().any(|of| of.refused > of.received) {
            return Err("more packets of a flow were refused than it had".to_owned());
        }
        Ok(counts)
    }

    fn analyse(&mut self, epoch: Collected<Counts>) -> SystemReport<Found> {
        let counted = |of: Packets| Counted { received: of.received, refused: of.refused };
        let found = losses(&mut self.locators, &epoch, |Counts { flows, others }| {
            (flows.iter().map(move |(key, of)| (Flow::from(key), counted(*of))), counted(*others))
        });
        let (losses, lost_at) = found.unzip();
        let mut found = Found { nodes: Vec::new(), counts: Vec::new(), losses, lost_at };
        for delivery in &epoch.nodes {
            let (node, has_all) = (&delivery.node.name, delivery.problem().is_none());
            for (side, counts) in delivery.came() {
                let Packets { received: others, refused: refused_others } = counts.others;
                found.counts.extend(counts.flows.iter().map(|(key, of_flow)| Count {
                    node: node.clone(),
                    side: side.name().to_owned(),
                    flow: Flow::from(key),
                    packets: of_flow.received,
                    at_most: has_all.then_some(of_flow.received + others),
                    refused: of_flow.refused,
                    refused_at_most: has_all.then_some(of_flow.refused + refused_others),
                }));
                let mut all = Packets::default();
                counts.values().for_each(|of_flow| all += of_flow);
                let (packets, refused) = (all.received, all.refused);
                let (node, side) = (node.clone(), side.name().to_owned());
                found.nodes.push(NodeTotal { node, side, packets, others, refused });
            }
        }
        SystemReport::new(&epoch, found)
    }
}

calumma_analysis::of_flow!(Count);

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
        rows.extend(Row::of_nodes(report.head, &report.findings.counts, |count| &count.node));
    },
};

static TOTALS: [TotalOf<SystemReport<Found>>; 1] = [TotalOf {
    name: "hops_packets_total",
    help: "Packets that a node has counted.",
    labels: &["node", "side"],
    add: |report, add| {
        report.findings.nodes.iter().for_each(|of| add(&[&of.node, &of.side], of.packets));
    },
}];

/// Warns of nodes that saw more flows than their tables hold.
static TABLE_FULL: NodeAlert<SystemReport<Found>> = NodeAlert {
    name: "hops-table-full",
    shows: |report, node| {
        let of_node = report.findings.nodes.iter().filter(|total| total.node == node);
        of_node.map(|total| total.others > 0).max()
    },
    begins: "the table of {node} holds fewer flows than there are",
    ends: "the table of {node} again holds all flows",
};
