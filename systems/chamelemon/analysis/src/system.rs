//! ChameleMon as the controller knows it.

use std::sync::Arc;

use calumma_analysis::alert::{AlertLimits, Rules};
use calumma_analysis::metrics::ReportMetrics;
use calumma_analysis::{AnyAnalysis, Deployment, Report, System, Table};
use calumma_chamelemon::frames;
use calumma_wire::{Offer, Role};
use prometheus::Registry;

use crate::alert::EpochRules;
use crate::metrics::Metrics;
use crate::report::EpochReport;
use crate::tables::{EPOCHS, TABLES};

/// The system's name.
pub const NAME: &str = "chamelemon";

/// ChameleMon in the list of systems.
#[derive(Clone, Copy, Debug)]
pub struct ChameleMon;

impl System for ChameleMon {
    fn name(&self) -> &'static str {
        NAME
    }

    fn offer(&self) -> Offer {
        frames::OFFER
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Edge]
    }

    fn start(&self, _: &Deployment<'_>) -> Result<Option<Box<dyn AnyAnalysis>>, String> {
        Ok(None)
    }

    fn tables(&self) -> &'static [&'static dyn Table] {
        &TABLES
    }

    fn reports(&self) -> &'static dyn Table {
        &EPOCHS
    }

    fn read(&self, line: &str) -> Option<Arc<dyn Report>> {
        let report: EpochReport = serde_json::from_str(line).ok()?;
        Some(Arc::new(report))
    }

    fn metrics(
        &self,
        registry: &Registry,
        nodes: &[String],
    ) -> prometheus::Result<Box<dyn ReportMetrics>> {
        Ok(Box::new(Metrics::new(registry, nodes)?))
    }

    fn alert_rules(&self, limits: &AlertLimits, nodes: &[String]) -> Box<dyn Rules> {
        Box::new(EpochRules::new(*limits, nodes))
    }
}
