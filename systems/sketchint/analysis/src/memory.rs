//! The latest windows as sinks delivered them, for questions about any flow, listed or not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use calumma_analysis::{EpochHead, Flow, Remembered, SystemReport};
use serde::{Deserialize, Serialize};

use crate::report::{FlowReport, Found};
use crate::view::{Names, SinkView};

/// Windows that are remembered. One takes about as much memory as all sinks' sketches.
const WINDOWS: usize = 8;

/// What is known of a flow in a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowInWindow {
    /// The window's first epoch, its start and length.
    #[serde(flatten)]
    pub head: EpochHead,
    /// Its first and last epoch.
    pub window: [u64; 2],
    /// How far INT was switched on: `off`, `sinks`, `transits` or `on`.
    pub state: String,
    /// Whether the window's measurement is whole and sound.
    pub complete: bool,
    /// The flow at each sink that may have had packets of it; nothing where no sink that delivered
    /// had any.
    pub flows: Vec<FlowReport>,
}

/// The latest windows. All clones are the same memory.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    names: Arc<Names>,
    windows: Arc<Mutex<VecDeque<Arc<Kept>>>>,
}

#[derive(Debug)]
struct Kept {
    head: EpochHead,
    window: [u64; 2],
    state: String,
    complete: bool,
    sinks: Vec<SinkView>,
}

impl Memory {
    pub(crate) fn new(names: Names) -> Self {
        Self { names: Arc::new(names), windows: Arc::default() }
    }

    /// Remembers a window of these sinks, and forgets the oldest one.
    pub(crate) fn remember(&self, report: &SystemReport<Found>, sinks: Vec<SinkView>) {
        let found = &report.findings;
        let kept = Kept {
            head: report.head,
            window: found.window,
            state: found.state.clone(),
            complete: report.complete,
            sinks,
        };
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        while windows.len() >= WINDOWS {
            windows.pop_front();
        }
        windows.push_back(Arc::new(kept));
    }
}

impl Kept {
    fn flow(&self, flow: &Flow, names: &Names) -> FlowInWindow {
        let of = |sink: &SinkView| {
            let view = sink.flow(flow.key()?);
            (view.packets.at_most != Some(0)).then(|| view.report(sink, names))
        };
        let flows = self.sinks.iter().filter_map(of).collect();
        let Self { head, window, complete, .. } = *self;
        FlowInWindow { head, window, state: self.state.clone(), complete, flows }
    }
}

impl Remembered for Memory {
    fn flow(&self, flow: &Flow, last: usize) -> serde_json::Result<Vec<String>> {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let skipped = windows.len().saturating_sub(last);
        let windows = windows.iter().skip(skipped);
        windows.map(|kept| serde_json::to_string(&kept.flow(flow, &self.names))).collect()
    }
}
