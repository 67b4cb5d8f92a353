//! What the controller remembers of the latest epochs, for the HTTP API: reports, and flow sizes.
//! What is to last longer is for files (`output`).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::analyse::{EdgeSizes, FlowSize};
use crate::api::SizeAt;
use crate::report::{Amendment, EpochReport, Flow};
use crate::server::hub::lock;

/// Flow sizes that are kept: of this many edges and epochs together. Each holds a flow classifier
/// and the flows of the HH encoder, about 400 KB at the paper's sizes under full load.
const SIZES_KEPT: usize = 256;

/// One edge's flow sizes in one epoch.
type Sizes = (String, Arc<EdgeSizes>);

/// The latest epochs.
#[derive(Debug)]
pub(crate) struct Recent {
    /// Reports that are kept.
    kept: usize,
    reports: Mutex<VecDeque<Arc<EpochReport>>>,
    sizes: Mutex<VecDeque<Sizes>>,
    last_epoch: watch::Sender<Option<u64>>,
}

impl Recent {
    /// Room for `kept` reports, at least one.
    pub(crate) fn new(kept: usize) -> Self {
        Self {
            kept: kept.max(1),
            reports: Mutex::new(VecDeque::new()),
            sizes: Mutex::new(VecDeque::new()),
            last_epoch: watch::Sender::new(None),
        }
    }

    /// Takes a report and the newest sizes of each edge, and wakes who waits for them.
    pub(crate) fn remember(
        &self,
        report: Arc<EpochReport>,
        newest: &HashMap<String, Arc<EdgeSizes>>,
    ) {
        let epoch = report.epoch;
        {
            let mut sizes = lock(&self.sizes);
            for (edge, of_edge) in newest.iter().filter(|(_, sizes)| sizes.epoch() == epoch) {
                sizes.push_back((edge.clone(), of_edge.clone()));
            }
            // Never fewer than the newest of every edge.
            let excess = sizes.len().saturating_sub(SIZES_KEPT.max(newest.len()));
            sizes.drain(..excess);
        }
        {
            let mut reports = lock(&self.reports);
            amend(&mut reports, &report.amendments);
            let excess = (reports.len() + 1).saturating_sub(self.kept);
            reports.drain(..excess);
            // After the controller's clock was set back, epochs come anew.
            while reports.back().is_some_and(|last| last.epoch >= epoch) {
                reports.pop_back();
            }
            reports.push_back(report);
        }
        self.last_epoch.send_replace(Some(epoch));
    }

    /// The last epoch that was reported.
    pub(crate) fn last_epoch(&self) -> Option<u64> {
        *self.last_epoch.borrow()
    }

    /// Changes with every report.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<u64>> {
        self.last_epoch.subscribe()
    }

    /// The last `last` reports, oldest first.
    pub(crate) fn reports(&self, last: usize) -> Vec<Arc<EpochReport>> {
        let reports = lock(&self.reports);
        reports.iter().skip(reports.len().saturating_sub(last)).cloned().collect()
    }

    /// At most `most` reports on epochs from `epoch` on, oldest first.
    pub(crate) fn reports_from(&self, epoch: u64, most: usize) -> Vec<Arc<EpochReport>> {
        let reports = lock(&self.reports);
        let first = reports.partition_point(|report| report.epoch < epoch);
        reports.iter().skip(first).take(most).cloned().collect()
    }

    /// The report on one epoch.
    pub(crate) fn report(&self, epoch: u64) -> Option<Arc<EpochReport>> {
        self.reports_from(epoch, 1).into_iter().find(|report| report.epoch == epoch)
    }

    /// A flow's size wherever it is still known, oldest first, edges by name.
    pub(crate) fn flow_sizes(&self, flow: &Flow) -> Vec<SizeAt> {
        let kept: Vec<Sizes> = lock(&self.sizes).iter().cloned().collect();
        let at = |(edge, sizes): Sizes| {
            let FlowSize { size, size_min, exact } = sizes.size_of(flow)?;
            Some(SizeAt { edge, epoch: sizes.epoch(), size, size_min, exact })
        };
        let mut sizes: Vec<SizeAt> = kept.into_iter().filter_map(at).collect();
        sizes.sort_by(|a, b| (a.epoch, &a.edge).cmp(&(b.epoch, &b.edge)));
        sizes
    }
}

/// Adds to the reports what a later epoch shows of them.
fn amend(reports: &mut VecDeque<Arc<EpochReport>>, amendments: &[Amendment]) {
    for amendment in amendments {
        let at = reports.binary_search_by_key(&amendment.epoch, |report| report.epoch);
        if let Ok(at) = at {
            Arc::make_mut(&mut reports[at]).amended.push(amendment.clone());
        }
    }
}
