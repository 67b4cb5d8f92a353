//! Packets that come from elsewhere, as from a capture, in place of made-up traffic: whoever has
//! them says when each comes to which switch.

use anyhow::{Result, ensure};
use calumma_analysis::HashKeys;
use calumma_controller::report::EpochReport;

use super::controller::Controller;
use super::network::{Bytes, Simulation};
use super::node::{expected, nodes};
use super::{Setup, SwitchClock, SystemOutcome};
use crate::topology::Topology;

/// How long a network measures before the first packet, in windows and beyond these: SketchINT goes
/// on step by step, each in a window that its nodes know of in time.
const WINDOWS_BEFORE: u64 = 8;
const BEFORE_NS: u64 = 1_000_000_000;

impl Simulation {
    /// A network whose clocks are all right and whose systems have gone on before the window of
    /// each that a packet at `at_ns` is in.
    ///
    /// # Errors
    /// As [`new`](Self::new); when that is too soon after the beginning of time.
    pub(crate) fn measuring_from(at_ns: u64, setup: Setup, topology: Topology) -> Result<Self> {
        let (nodes, clock) = (nodes(&topology), setup.clock);
        let keys = HashKeys::new(setup.hash_key);
        let controller = Controller::new(&setup, &topology, &expected(&topology), &keys, at_ns)?;
        let epoch = clock.epoch_at(at_ns);
        let longest = controller.windows().max().unwrap_or(1);
        let before = WINDOWS_BEFORE * longest + BEFORE_NS.div_ceil(clock.length_ns());
        // Nodes connect before the first epoch.
        ensure!(
            epoch >= 2 * before,
            "a packet of so early in 1970: move the capture's times, as with editcap -t 1000000000"
        );
        let begin_ns = clock.start_of((epoch - before) / longest * longest);
        Self::at(begin_ns, setup, topology, vec![SwitchClock::default(); nodes])
    }

    /// Lets time pass up to `now_ns`.
    ///
    /// # Errors
    /// As [`run_epoch`](Self::run_epoch).
    pub(crate) fn pass_time(&mut self, now_ns: u64) -> Result<()> {
        self.advance_to(now_ns)
    }

    /// A packet comes to a node, by position: it enters the network at the first, leaves it at
    /// another edge, and passes a transit.
    pub(crate) fn receive(&mut self, node: usize, packet: &mut Bytes, now_ns: u64) {
        let is_edge = self.topology.is_edge(node);
        let node_of = &mut self.nodes[node];
        match node {
            0 => node_of.ingress(packet, now_ns),
            _ if is_edge => node_of.egress(packet, now_ns),
            _ => node_of.pass(std::slice::from_mut(packet), now_ns, |_| true),
        };
    }

    /// The first epoch that one of the systems has not reported.
    pub(crate) fn unreported(&self) -> u64 {
        self.controller.as_ref().map_or(u64::MAX, Controller::unreported)
    }

    /// What ChameleMon and what others have reported since this was asked last; ChameleMon counts
    /// epochs as its live controller does.
    pub(crate) fn take_all_reports(&mut self) -> (Vec<EpochReport>, Vec<SystemOutcome>) {
        let first = self.first_epoch;
        let as_published = |mut report: EpochReport| {
            report.epoch += first;
            report.amendments.iter_mut().for_each(|amendment| amendment.epoch += first);
            report
        };
        let outcomes = std::mem::take(&mut self.outcomes);
        let of_chamelemon = outcomes.into_iter().map(|outcome| as_published(outcome.report));
        (of_chamelemon.collect(), self.take_reports())
    }
}
