//! A system for tests: every node counts its packets.

use std::sync::{Mutex, PoisonError};

use calumma_analysis::alert::{AlertLimits, Fact, Reading, Rules};
use calumma_analysis::metrics::{ReportMetrics, counters};
use calumma_analysis::table::{Column, Kind, TableOf, complete, epoch};
use calumma_analysis::{
    Analysis, AnyAnalysis, Collected, Deployment, Findings, Node, NodeSetup, Report, System,
    SystemReport, Table,
};
use calumma_chamelemon_analysis::ChameleMon;
use calumma_hops_analysis::Hops;
use calumma_wire::{Offer, Role, Side, SystemId};
use prometheus::{IntCounterVec, Registry};
use serde::{Deserialize, Serialize};

/// Its number.
pub(crate) const ID: SystemId = SystemId(200);

/// ChameleMon, it, and the example of a system.
pub(crate) static SYSTEMS: &[&dyn System] = &[&ChameleMon, &Tally, &Hops];

/// Whoever holds it holds up the analyses that are `gated`.
pub(crate) static GATE: Mutex<()> = Mutex::new(());

/// `[tally]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    /// Whether the analysis waits for [`GATE`].
    gated: bool,
    /// What nodes are sent.
    word: u16,
}

/// What it finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tallied {
    counts: Vec<Count>,
}

/// What a node counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Count {
    node: String,
    id: u16,
    packets: Option<u64>,
}

impl Findings for Tallied {
    const SYSTEM: &'static str = "tally";
}

type TallyReport = SystemReport<Tallied>;

#[derive(Debug)]
struct Counting(Parameters);

impl Analysis for Counting {
    type Side = u64;
    type Report = TallyReport;

    fn setup(&self, _: &Node, _: u8) -> NodeSetup {
        NodeSetup { setup: self.0.word.to_le_bytes().to_vec(), plan: Vec::new() }
    }

    fn decode(&self, _: &Node, _: u8, side: Side) -> Result<u64, String> {
        let bytes = side.body.try_into();
        let bytes = bytes.map_err(|body: Vec<u8>| format!("{} bytes instead of 8", body.len()))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn analyse(&mut self, epoch: Collected<u64>) -> TallyReport {
        let _gate = self.0.gated.then(|| GATE.lock().unwrap_or_else(PoisonError::into_inner));
        let counts = epoch.nodes.iter().map(|delivery| Count {
            node: delivery.node.name.clone(),
            id: delivery.node.id,
            packets: delivery.is_whole().then(|| delivery.came().map(|(_, count)| count).sum()),
        });
        SystemReport::new(&epoch, Tallied { counts: counts.collect() })
    }
}

#[derive(Debug)]
pub(crate) struct Tally;

static TABLE: TableOf<TallyReport, Count> = TableOf {
    name: "tally_counts",
    help: "what a node counted in an epoch",
    columns: &[
        epoch(),
        Column {
            name: "node",
            help: "the node",
            kind: Kind::Text(|row| Some(row.item.node.as_str().into())),
        },
        Column { name: "packets", help: "packets", kind: Kind::U64(|row| row.item.packets) },
        complete(),
    ],
    rows: |report, rows| {
        rows.extend(report.findings.counts.iter().map(|item| calumma_analysis::table::Row {
            head: report.head,
            node: &item.node,
            item,
        }));
    },
};

static TABLES: [&dyn Table; 1] = [&TABLE];

impl System for Tally {
    fn name(&self) -> &'static str {
        Tallied::SYSTEM
    }

    fn offer(&self) -> Offer {
        Offer { system: ID, lowest: 1, highest: 2 }
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Edge, Role::Transit]
    }

    fn start(&self, deployment: &Deployment<'_>) -> Result<Option<Box<dyn AnyAnalysis>>, String> {
        Ok(Some(Box::new(Counting(deployment.parameters()?))))
    }

    fn tables(&self) -> &'static [&'static dyn Table] {
        &TABLES
    }

    fn reports(&self) -> &'static dyn Table {
        &TABLE
    }

    fn read(&self, line: &str) -> Option<std::sync::Arc<dyn Report>> {
        TallyReport::read(line)
    }

    fn metrics(
        &self,
        registry: &Registry,
        nodes: &[String],
    ) -> prometheus::Result<Box<dyn ReportMetrics>> {
        let packets = counters(registry, "tally_packets_total", "Packets counted.", &["node"])?;
        nodes.iter().for_each(|node| packets.with_label_values(&[node]).reset());
        Ok(Box::new(Metrics(packets)))
    }

    fn alert_rules(&self, _: &AlertLimits, _: &[String]) -> Box<dyn Rules> {
        Box::new(Incomplete)
    }
}

#[derive(Debug)]
struct Metrics(IntCounterVec);

impl ReportMetrics for Metrics {
    fn record(&self, report: &dyn Report) {
        let Some(report) = report.as_type::<TallyReport>() else { return };
        for count in &report.findings.counts {
            self.0.with_label_values(&[&count.node]).inc_by(count.packets.unwrap_or(0));
        }
    }
}

#[derive(Debug)]
struct Incomplete;

impl Rules for Incomplete {
    fn read(&mut self, report: &dyn Report) -> Option<Vec<Fact>> {
        let report = report.as_type::<TallyReport>()?;
        let reading = if report.complete { Reading::Good } else { Reading::Bad };
        Some(vec![Fact { alert: "tally_incomplete", node: None, reading }])
    }

    fn text(&self, _: &Fact, report: &dyn Report, over: bool) -> String {
        format!("epoch {} is {}", report.head().epoch, if over { "complete" } else { "incomplete" })
    }
}
