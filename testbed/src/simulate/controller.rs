//! The controller in the simulation: the live one's collector and analyser behind real frames.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use calumma_controller::analyse::{Analyser, DecodedEpoch};
use calumma_controller::collect::{Collector, Step};
use calumma_controller::report::EpochReport;
use calumma_epoch::Timeline;
use calumma_sketch::Attention;
use calumma_wire::{FrameReader, Message};

use super::Setup;

/// Time that a message gets to reach an edge before the epoch it is about is armed.
const LEAD_NS: u64 = 20_000_000;

/// A controller that runs.
#[derive(Debug)]
pub(super) struct Controller {
    setup: Setup,
    edges: Vec<String>,
    readers: Vec<FrameReader>,
    collector: Collector,
    analyser: Analyser,
    /// Epochs that are decoded, but not over yet.
    decoded: BTreeMap<u64, DecodedEpoch>,
    timeline: Timeline<Attention>,
}

impl Controller {
    pub(super) fn new(setup: &Setup, edges: &[String]) -> Self {
        Self {
            readers: edges.iter().map(|_| FrameReader::new()).collect(),
            collector: Collector::new(edges.to_vec(), setup.clock, setup.grace_ns),
            analyser: Analyser::new(
                setup.layout.clone(),
                &setup.hash_key,
                setup.clock,
                setup.tasks,
            ),
            decoded: BTreeMap::new(),
            timeline: Timeline::new(setup.attention),
            edges: edges.to_vec(),
            setup: setup.clone(),
        }
    }

    /// Forgets what an edge had begun to say on its last connection.
    pub(super) fn connected(&mut self, edge: usize) {
        self.readers[edge] = FrameReader::new();
    }

    /// Hears the bytes of an edge, and gives the answers to it.
    ///
    /// # Errors
    /// When the bytes are no frame, which edges never send.
    pub(super) fn hear(&mut self, edge: usize, bytes: &[u8], now_ns: u64) -> Result<Vec<Vec<u8>>> {
        let mut answers = Vec::new();
        self.readers[edge].push(bytes);
        while let Some(message) = self.readers[edge]
            .next(Some(&self.setup.layout))
            .with_context(|| format!("a frame of {}", self.edges[edge]))?
        {
            match message {
                Message::Hello { .. } => {
                    let lead = self.setup.clock.guards().clock_ns + LEAD_NS;
                    let effective_epoch = self.setup.clock.epoch_at(now_ns + lead) + 2;
                    let mut welcome = Vec::new();
                    Message::Welcome {
                        layout: self.setup.layout.clone(),
                        hash_key: self.setup.hash_key,
                        epoch_length_ns: self.setup.clock.length_ns(),
                        guards: self.setup.clock.guards(),
                        attention: *self.timeline.at(effective_epoch),
                        effective_epoch,
                    }
                    .encode(&mut welcome);
                    answers.push(welcome);
                }
                message => {
                    self.collector.take(edge, message, now_ns);
                }
            }
        }
        Ok(answers)
    }

    /// The reports on the epochs that are over or whose time is up at `now_ns`. Epochs that are measured are decoded.
    pub(super) fn reports(&mut self, now_ns: u64) -> Vec<EpochReport> {
        let mut reports = Vec::new();
        while let Some(step) = self.collector.step(now_ns, |epoch| self.timeline.freeze(epoch)) {
            match step {
                Step::Decode(input, _) => {
                    let decoded = self.analyser.decoder().decode(input);
                    self.decoded.insert(decoded.epoch(), decoded);
                }
                Step::Report(ends) => {
                    if let Some(mut decoded) = self.decoded.remove(&ends.epoch) {
                        decoded.end(ends.edges);
                        reports.push(self.analyser.report(decoded));
                    }
                }
            }
        }
        reports
    }

    /// When it gives up waiting for the next epoch.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.collector.next_deadline()
    }
}
