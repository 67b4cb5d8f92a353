//! A system, as the controller and readers of the archive know it.

use std::fmt::Debug;
use std::sync::Arc;

use calumma_wire::{Offer, Role};
use prometheus::Registry;

use crate::alert::{AlertLimits, Rules};
use crate::metrics::ReportMetrics;
use crate::report::Report;
use crate::run::{AnyAnalysis, Deployment};
use crate::table::Table;

/// A part of the dashboard that shows a system's latest report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panel {
    /// Its name among the system's panels, of letters, digits and `-`.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// A JavaScript module. It exports `draw(element, report)`, which fills an element of the page
    /// from a report as JSON has it, or from null before the first. It may import the page's own
    /// modules, such as `/dashboard/dom.js`, and must write what comes from the network as text.
    pub script: &'static str,
}

/// What a system brings to the controller and to readers of its archive.
pub trait System: Debug + Sync {
    /// Its name: in configurations, reports, table names and metrics.
    fn name(&self) -> &'static str;

    /// Its number in frames, and the versions of its bodies that the controller reads and writes.
    fn offer(&self) -> Offer;

    /// The roles of the nodes that it runs on.
    fn roles(&self) -> &'static [Role];

    /// Whether it needs bits of the ToS byte, so that marks can't be carried elsewhere.
    fn needs_tos(&self) -> bool {
        false
    }

    /// Starts its analysis. `None` for ChameleMon alone: the controller reconfigures nodes by what
    /// it finds, and so runs that itself.
    ///
    /// # Errors
    /// What is wrong with its section of the controller's file.
    fn start(&self, deployment: &Deployment<'_>) -> Result<Option<Box<dyn AnyAnalysis>>, String>;

    /// Its tables in the archive.
    fn tables(&self) -> &'static [&'static dyn Table];

    /// That one of its tables which has a row, or several, of each report that has rows anywhere,
    /// with the columns `epoch` and [`complete`](crate::table::complete): a controller that starts
    /// sees there what it need not write again. The first one, if nothing else is said here.
    ///
    /// # Panics
    /// When it has no tables, which is a mistake in the program.
    fn reports(&self) -> &'static dyn Table {
        self.tables()[0]
    }

    /// Reads a report from its line of JSON; `None` where the line is another system's.
    fn read(&self, line: &str) -> Option<Arc<dyn Report>>;

    /// Metrics of its reports, registered with `registry`; `nodes` are those that it runs on.
    ///
    /// # Errors
    /// When two have the same name, which is a mistake in the program.
    fn metrics(
        &self,
        registry: &Registry,
        nodes: &[String],
    ) -> prometheus::Result<Box<dyn ReportMetrics>>;

    /// Its panels on the dashboard. ChameleMon has none: the rest of the page is about it.
    fn panels(&self) -> &'static [Panel] {
        &[]
    }

    /// What alerts watch for in its reports; `nodes` are those that it runs on.
    fn alert_rules(&self, limits: &AlertLimits, nodes: &[String]) -> Box<dyn Rules>;
}

/// Every table of `systems`.
pub fn tables_of(systems: &[&'static dyn System]) -> impl Iterator<Item = &'static dyn Table> {
    systems.iter().flat_map(|system| system.tables().iter().copied())
}

/// The position among `systems` of the one called `name`.
pub fn system_of(systems: &[&'static dyn System], name: &str) -> Option<usize> {
    systems.iter().position(|system| system.name() == name)
}
