//! The losses the controller reported beside those the routers' kernel counted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use calumma_analysis::Flow;
use serde::Serialize;

use crate::fabric::FlowLoss;
use crate::system::Reported;
use crate::table::table;

/// Flows the comparison prints before it only counts them.
const ROWS: usize = 40;

/// Both sides of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Packets that the kernel counted as dropped.
    pub kernel: u64,
    /// Packets that the controller reported as lost, over all epochs; negative where it reported
    /// more to have left than to have entered.
    pub reported: i64,
}

impl Row {
    fn is_equal(&self) -> bool {
        i64::try_from(self.kernel) == Ok(self.reported)
    }
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
    /// Complete epochs of which the reports say themselves that what is missing may not be lost:
    /// packets came late, or under another mark.
    pub inexact: usize,
}

impl Comparison {
    /// Sums the reported losses over the epochs and sets them beside the kernel's.
    pub fn new(reports: &[Reported], kernel: &[FlowLoss]) -> Self {
        let mut reported: BTreeMap<Flow, i64> = BTreeMap::new();
        let mut incomplete = BTreeMap::new();
        for report in reports {
            for (flow, packets) in &report.lost {
                *reported.entry(*flow).or_default() += packets;
            }
            for reason in &report.incomplete_because {
                *incomplete.entry(reason.clone()).or_default() += 1;
            }
        }
        let kernel: BTreeMap<Flow, u64> =
            kernel.iter().map(|loss| (loss.flow, loss.lost)).collect();
        let flows: BTreeSet<&Flow> = kernel.keys().chain(reported.keys()).collect();
        let rows = flows
            .into_iter()
            .map(|flow| Row {
                flow: *flow,
                kernel: kernel.get(flow).copied().unwrap_or_default(),
                reported: reported.get(flow).copied().unwrap_or_default(),
            })
            .collect();
        let inexact = reports.iter().filter(|report| report.complete && !report.exact).count();
        Self { rows, epochs: reports.len(), incomplete, inexact }
    }

    /// Flows on which the two sides differ.
    pub fn differences(&self) -> usize {
        self.rows.iter().filter(|row| !row.is_equal()).count()
    }

    /// The comparison for a terminal: flows that differ first, then those that lost most.
    pub fn to_text(&self) -> String {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| (row.is_equal(), std::cmp::Reverse(row.kernel)));
        let cells: Vec<_> = rows
            .iter()
            .take(ROWS)
            .map(|row| {
                let Flow { src, dst, sport, dport, proto } = row.flow;
                [
                    SocketAddr::new(src, sport).to_string(),
                    SocketAddr::new(dst, dport).to_string(),
                    proto.to_string(),
                    row.kernel.to_string(),
                    row.reported.to_string(),
                    if row.is_equal() { "" } else { "differs" }.to_owned(),
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
        text += &format!(
            "\n{} flows lost packets: {} by the kernel's count, {} by Calumma's reports on {} epochs\n",
            self.rows.len(),
            self.rows.iter().map(|row| row.kernel).sum::<u64>(),
            self.rows.iter().map(|row| row.reported).sum::<i64>(),
            self.epochs
        );
        for (reason, epochs) in &self.incomplete {
            text += &format!("{epochs} incomplete epochs: {reason}\n");
        }
        if self.inexact > 0 {
            text += &format!("{} complete epochs are reported not to be exact\n", self.inexact);
        }
        text += &match self.differences() {
            0 => "equal for every flow\n".to_owned(),
            differences => format!("DIFFERENT for {differences} flows\n"),
        };
        text
    }
}
