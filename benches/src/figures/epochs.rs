//! What the accumulation tasks are measured on: pairs of epochs, and the truth about them.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use calumma_edge::parse::{Parsed, parse};
use calumma_sketch::{FlowKey, estimate};
use calumma_testbed::capture::Capture;

/// An epoch's packets, and what is true of them.
#[derive(Clone, Debug)]
pub(super) struct Epoch {
    pub(super) packets: Vec<FlowKey>,
    pub(super) flows: HashMap<FlowKey, u32>,
}

impl Epoch {
    fn new(packets: Vec<FlowKey>) -> Self {
        let mut flows = HashMap::new();
        packets.iter().for_each(|key| *flows.entry(*key).or_insert(0) += 1);
        Self { packets, flows }
    }

    /// Number of flows by size.
    pub(super) fn distribution(&self) -> Vec<(u64, f64)> {
        let mut sizes: Vec<u64> = self.flows.values().map(|&size| size.into()).collect();
        sizes.sort_unstable();
        sizes.chunk_by(u64::eq).map(|flows| (flows[0], flows.len() as f64)).collect()
    }

    pub(super) fn entropy(&self) -> f64 {
        estimate::entropy(&self.distribution())
    }
}

/// Two epochs, one after the other, and the sizes from which flows and changes are heavy.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) first: Epoch,
    pub(super) second: Epoch,
    /// Larger flows are heavy hitters.
    pub(super) hitter: u32,
    /// Greater differences are heavy changes.
    pub(super) change: u32,
}

impl Pair {
    /// With the thresholds of the paper: 0.02 % and 0.01 % of an epoch's packets.
    pub(super) fn new([first, second]: [Vec<FlowKey>; 2]) -> Self {
        let share = |parts: usize| (first.len() / parts).max(2) as u32;
        let (hitter, change) = (share(4_600), share(9_200));
        Self { hitter, change, first: Epoch::new(first), second: Epoch::new(second) }
    }

    /// Flows that change heavily from the first epoch to the second.
    pub(super) fn changes(&self) -> impl Iterator<Item = FlowKey> + '_ {
        let size = |epoch: &Epoch, key: &FlowKey| epoch.flows.get(key).copied().unwrap_or(0);
        let new = self.second.flows.keys().filter(|key| !self.first.flows.contains_key(key));
        let all = self.first.flows.keys().chain(new).copied();
        all.filter(move |key| {
            size(&self.first, key).abs_diff(size(&self.second, key)) > self.change
        })
    }
}

/// The flow keys of a capture's packets, those that an edge switch measures; `None` where there is
/// no such file.
pub(super) fn capture(file: &Path) -> Result<Option<Vec<FlowKey>>> {
    if !file.exists() {
        return Ok(None);
    }
    let reading = || format!("reading {}", file.display());
    let mut capture = Capture::open(file).with_context(reading)?;
    let mut keys = Vec::new();
    while let Some(record) = capture.next_record().with_context(reading)? {
        if let Parsed::Flow { key, .. } = parse(record.bytes, record.original_len as usize) {
            keys.push(key);
        }
    }
    Ok(Some(keys))
}
