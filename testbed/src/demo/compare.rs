//! The losses the controller reported beside those the core's kernel counted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use calumma_controller::report::EpochReport;
use serde::Serialize;

use crate::fabric::{FiveTuple, FlowLoss};
use crate::table::table;

/// Flows the comparison prints before it only counts them.
const ROWS: usize = 40;

/// Both sides of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The flow.
    #[serde(flatten)]
    pub flow: FiveTuple,
    /// Packets that the kernel counted as dropped.
    pub kernel: u64,
    /// Packets that the controller reported as lost, over all epochs.
    pub reported: u64,
}

/// Both sides, flow by flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Every flow that either side names.
    pub rows: Vec<Row>,
    /// Epochs that were reported.
    pub epochs: usize,
    /// Reasons for which epochs were incomplete, and how many were for each.
    pub incomplete: BTreeMap<String, usize>,
}

impl Comparison {
    /// Sums the reported losses over the epochs and sets them beside the kernel's.
    pub fn new(reports: &[EpochReport], kernel: &[FlowLoss]) -> Self {
        let mut reported: BTreeMap<FiveTuple, u64> = BTreeMap::new();
        let mut incomplete = BTreeMap::new();
        for report in reports {
            for loss in &report.loss {
                let flow = FiveTuple {
                    src: loss.flow.src,
                    dst: loss.flow.dst,
                    sport: loss.flow.sport,
                    dport: loss.flow.dport,
                    proto: loss.flow.proto,
                };
                *reported.entry(flow).or_default() += loss.lost;
            }
            for reason in &report.incomplete_because {
                *incomplete.entry(reason.clone()).or_default() += 1;
            }
        }
        let kernel: BTreeMap<FiveTuple, u64> =
            kernel.iter().map(|loss| (loss.flow, loss.lost)).collect();
        let flows: BTreeSet<&FiveTuple> = kernel.keys().chain(reported.keys()).collect();
        let rows = flows
            .into_iter()
            .map(|flow| Row {
                flow: *flow,
                kernel: kernel.get(flow).copied().unwrap_or_default(),
                reported: reported.get(flow).copied().unwrap_or_default(),
            })
            .collect();
        Self { rows, epochs: reports.len(), incomplete }
    }

    /// Flows on which the two sides differ.
    pub fn differences(&self) -> usize {
        self.rows.iter().filter(|row| row.kernel != row.reported).count()
    }

    /// The comparison for a terminal: flows that differ first, then those that lost most.
    pub fn to_text(&self) -> String {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| (row.kernel == row.reported, std::cmp::Reverse(row.kernel)));
        let cells: Vec<_> = rows
            .iter()
            .take(ROWS)
            .map(|row| {
                let FiveTuple { src, dst, sport, dport, proto } = row.flow;
                [
                    SocketAddr::new(src, sport).to_string(),
                    SocketAddr::new(dst, dport).to_string(),
                    proto.to_string(),
                    row.kernel.to_string(),
                    row.reported.to_string(),
                    if row.kernel == row.reported { "" } else { "differs" }.to_owned(),
                ]
            })
            .collect();
        let mut text = table(
            ["source", "destination", "proto", "lost (kernel)", "lost (Calumma)", ""],
            &cells,
        );
        if rows.len() > ROWS {
            text += &format!("... and {} flows more\n", rows.len() - ROWS);
        }
        let total = |side: fn(&Row) -> u64| self.rows.iter().map(side).sum::<u64>();
        text += &format!(
            "\n{} flows lost packets: {} by the kernel's count, {} by Calumma's reports on {} epochs\n",
            self.rows.len(),
            total(|row| row.kernel),
            total(|row| row.reported),
            self.epochs
        );
        for (reason, epochs) in &self.incomplete {
            text += &format!("{epochs} incomplete epochs: {reason}\n");
        }
        text += &match self.differences() {
            0 => "equal for every flow\n".to_owned(),
            differences => format!("DIFFERENT for {differences} flows\n"),
        };
        text
    }
}
