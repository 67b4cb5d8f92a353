//! What the controller makes of Cooperative Flow Selection: which flows have an exact count and
//! where, how many there are in all, and what the counts show: losses between switches, loops,
//! superspreaders, heavy hitters and changes.
//!
//! [`calumma_cfs`] has the frames. `docs/cfs.md` is the operator's page.
//!
//! | module | |
//! |---|---|
//! | `parameters` | the section `[cfs]` |
//! | `settings` | what of it may change while switches measure |
//! | [`alpha`] | how table and residual share a switch's bytes, from window to window |
//! | `analysis` | what nodes are sent, how what they deliver is checked, the report |
//! | `dividing` | who says that share: the file, an operator, or the rule |
//! | `pinning` | what plans say: that share, flows that all switches count, other settings |
//! | `residual` | flows that no table has an entry of, decoded |
//! | `view` | a window as all nodes saw it |
//! | `answers` | what edges' filters say of flows, many flows at a time |
//! | `flows` | whose count of a flow is the flow's |
//! | `coverage` | how many flows there are, and the share that is monitored |
//! | `optimum` | the share that tables have room for, whoever chooses |
//! | `ends` | flows that left nowhere, and where they were to leave |
//! | `losses`, `loops`, `heavy`, `spread`, `sizes` | what the counts show |
//! | `report` | the report's types |
//! | `packed` | all flows of a report in few bytes, for the archive's journal |
//! | `tables`, `metrics`, `alert` | what else is read off it |

pub mod alpha;

mod addresses;
mod alert;
mod analysis;
mod answers;
mod counted;
mod coverage;
mod dividing;
mod ends;
mod flows;
mod hashed;
mod heavy;
mod loops;
mod losses;
mod metrics;
mod optimum;
mod packed;
mod parameters;
mod pinning;
mod report;
mod residual;
mod seen;
mod settings;
mod sizes;
mod spread;
mod tables;
mod view;

use std::sync::Arc;

use calumma_analysis::alert::{AlertLimits, Rules};
use calumma_analysis::metrics::ReportMetrics;
use calumma_analysis::table::Table;
use calumma_analysis::{AnyAnalysis, Deployment, Findings, Panel, Report, System, SystemReport};
use calumma_cfs::frames::READ;
use calumma_wire::{Offer, Role};
use prometheus::Registry;

use crate::analysis::Cooperating;
pub use crate::coverage::{Coverage, Total};
pub use crate::optimum::{Optimum, Room};
pub use crate::report::{
    BlackHole, Counted, DESTINATION, Exact, FlowCount, Found, Guarded, HeavyChange, HeavyHitter,
    HeavyPrefix, HopCount, KeptIn, Listed, Loop, LoopsNoticed, Loss, NodeReport, PathChange,
    Residue, SizeBin, Spread,
};
use crate::settings::Settings;
pub use crate::spread::{Pairs, Peers, peers};

/// The system in the controller's list.
#[derive(Clone, Copy, Debug)]
pub struct Cfs;

impl System for Cfs {
    fn name(&self) -> &'static str {
        Found::SYSTEM
    }

    fn offer(&self) -> Offer {
        READ
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Edge, Role::Transit]
    }

    fn start(&self, deployment: &Deployment<'_>) -> Result<Option<Box<dyn AnyAnalysis>>, String> {
        Ok(Some(Box::new(Cooperating::new(Settings::new(deployment)?, deployment))))
    }

    fn tables(&self) -> &'static [&'static dyn Table] {
        &tables::TABLES
    }

    fn reports(&self) -> &'static dyn Table {
        &tables::WINDOWS
    }

    fn read(&self, line: &str) -> Option<Arc<dyn Report>> {
        let report = SystemReport::<Found>::read(line)?;
        let mut report = report.as_type::<SystemReport<Found>>()?.clone();
        report.findings.fill_counted();
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
        const SCRIPT: &str = include_str!("coverage.js");
        &[Panel { name: "coverage", title: "Flows counted exactly", script: SCRIPT }]
    }

    fn alert_rules(&self, _limits: &AlertLimits, _nodes: &[String]) -> Box<dyn Rules> {
        Box::new(alert::Watch)
    }
}
