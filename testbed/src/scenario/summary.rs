//! An epoch of a scenario in a few numbers: what was reported beside what happened.

use std::collections::BTreeSet;
use std::ops::Range;

use calumma_analysis::Flow;
use calumma_controller::report::{Amendment, EpochConfig, NetworkState};
use serde::Serialize;

use crate::simulate::{EpochTruth, Judgement, Outcome};
use crate::system::Reported;

/// An epoch in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct EpochSummary {
    /// The epoch, counted from the scenario's beginning.
    pub epoch: u64,
    /// Whether the report claims to be whole.
    pub complete: bool,
    /// Edges of which something was missing.
    pub missing_edges: Vec<String>,
    /// Whether, besides, all that was looked for could be decoded: losses are certain then.
    pub decoded: bool,
    /// The state that attention was on.
    pub state: NetworkState,
    /// The attention itself.
    pub config: EpochConfig,
    /// Flows that entered the network.
    pub flows: usize,
    /// Packets that entered it.
    pub packets: u64,
    /// Flows that lost packets.
    pub victims: usize,
    /// Packets that were lost.
    pub lost: u64,
    /// Victim flows that were reported, and the packets they are reported to have lost.
    pub reported_victims: usize,
    /// Packets that they are reported to have lost.
    pub reported_lost: u64,
    /// Packets that they are reported to have lost, and did not.
    pub false_lost: u64,
    /// Of packets that they are reported to have lost, those that a later report says were late.
    pub amended: u64,
    /// Packets lost that a report which claims to name every loss does not know of, since the
    /// network put others in their place.
    pub hidden: u64,
    /// Packets that left the network twice.
    pub doubled: u64,
    /// Packets that no edge saw enter.
    pub strangers: u64,
    /// Why the report does not claim to be whole.
    pub incomplete_because: Vec<String>,
    /// Flows that are reported to have left with packets too many.
    pub surpluses: usize,
    /// Load factor of the delta HL encoder.
    pub hl_load: Option<f64>,
    /// Load factor of the delta LL encoder.
    pub ll_load: Option<f64>,
    /// Load factor of the fullest HH encoder.
    pub hh_load: Option<f64>,
    /// Largest number of heavy hitters at an edge.
    pub heavy_hitters: usize,
    /// Largest number of heavy changes at an edge.
    pub heavy_changes: usize,
    /// Bytes of the frames that all edges sent, where they are counted.
    pub frame_bytes: Option<u64>,
    /// From the last side to the plan, in milliseconds by this machine's clock; the one number
    /// here that differs from run to run.
    pub response_ms: f64,
    /// Why attention was moved; empty where it was not.
    pub reasons: Vec<String>,
    /// What the report says that is not so.
    pub contradiction: Option<String>,
    /// The same, claim by claim.
    #[serde(skip)]
    judged: Judgement,
}

/// A report of a system other than ChameleMon in a few words.
#[derive(Clone, Debug, Serialize)]
pub struct SystemSummary {
    /// The system.
    pub system: String,
    /// The epoch, counted from the scenario's beginning; of a window, its first.
    pub epoch: u64,
    /// Epochs of the window.
    pub epochs: u64,
    /// Whether the report claims to be whole.
    pub complete: bool,
    /// Whether besides it claims to name every loss.
    pub exact: bool,
    /// Packets that were lost, less those that left the network twice.
    pub lost: i64,
    /// Packets lost by the report, over all flows. It may be more than [`lost`](Self::lost) where
    /// other flows left twice: a system that counts no copies has none to take off.
    pub reported_lost: i64,
    /// Flows of which it has an exact count, as a share of all that sent; none where it counts no
    /// flows.
    pub coverage: Option<f64>,
    /// The share of all flows that it says tables have room for; none where it says none.
    pub optimum: Option<f64>,
    /// Why it does not claim to be whole.
    pub incomplete_because: Vec<String>,
    /// Of the flows that went round, the share that it says are certainly in a loop; none where no
    /// flow went round, or it looks for no such thing.
    pub loops: Option<f64>,
    /// Places where it says that nothing goes on; none where it looks for no such thing.
    pub black_holes: Option<u64>,
    /// Sources that it says send to very many destinations.
    pub superspreaders: Option<u64>,
    /// Switches that it names for inflated latencies; none where it looks for no such thing.
    pub inflated: Option<Vec<String>>,
    /// The links on which it says that packets were longer than on the fastest; none where it does
    /// not say how long on all.
    pub slow_links: Option<Vec<[String; 2]>>,
    /// Whether the link that most victims voted for is the one that lost most; none where too few
    /// did, or nobody voted.
    pub suspected: Option<bool>,
    /// What the report says that is not so.
    pub contradiction: Option<String>,
}

impl SystemSummary {
    /// The summary of what a system's report `reported` on epochs of a scenario.
    pub fn new(
        system: &str,
        epochs: Range<u64>,
        reported: &Reported,
        truth: &EpochTruth,
        contradiction: Option<String>,
    ) -> Self {
        Self {
            system: system.to_owned(),
            epoch: epochs.start,
            epochs: epochs.end - epochs.start,
            complete: reported.complete,
            exact: reported.exact,
            lost: truth.lost() as i64 - truth.doubled() as i64,
            reported_lost: reported.lost.values().sum(),
            coverage: reported
                .counted
                .map(|counted| counted as f64 / truth.senders().max(1) as f64),
            optimum: reported.optimum,
            incomplete_because: reported.incomplete_because.clone(),
            loops: reported.looped.as_ref().and_then(|looped| found_of(looped, truth)),
            black_holes: reported.black_holes,
            superspreaders: reported.superspreaders,
            inflated: None,
            slow_links: None,
            suspected: None,
            contradiction: contradiction.map(|wrong| format!("{system}: {wrong}")),
        }
    }
}

/// The share of the flows that went round that are among these.
fn found_of(looped: &BTreeSet<Flow>, truth: &EpochTruth) -> Option<f64> {
    let round = truth.flows.iter().filter(|flow| flow.turn().is_some());
    let round: BTreeSet<Flow> = round.map(|flow| Flow::from(&flow.key)).collect();
    let found = round.intersection(looped).count() as f64;
    (!round.is_empty()).then(|| found / round.len() as f64)
}

impl SystemSummary {
    /// Whether it is about an epoch.
    pub(super) fn covers(&self, epoch: u64) -> bool {
        (self.epoch..self.epoch + self.epochs).contains(&epoch)
    }
}

impl EpochSummary {
    /// A later report says what this one's report should have had.
    pub(super) fn amend(&mut self, amendment: &Amendment) {
        self.judged.amend(amendment);
        self.amended = self.judged.amended;
        self.false_lost = self.judged.false_lost();
        self.contradiction = self.judged.wrong.first().map(|wrong| wrong.words.clone());
    }

    /// The summary of an epoch.
    pub fn new(outcome: &Outcome) -> Self {
        let Outcome { report, truth, .. } = outcome;
        let most = |of: fn(&calumma_controller::report::EdgeReport) -> usize| {
            report.edges.iter().map(of).max().unwrap_or(0)
        };
        let hh_loads = report.edges.iter().filter_map(|edge| edge.hh_load_factor);
        let judged = truth.judge(report);
        Self {
            epoch: report.epoch,
            complete: report.complete,
            missing_edges: report.missing_edges.clone(),
            decoded: report.losses_are_decoded(),
            state: report.state,
            config: report.config,
            flows: truth.flows(),
            packets: truth.packets(),
            victims: truth.victims(),
            lost: truth.lost(),
            reported_victims: report.loss.len(),
            reported_lost: report.loss.iter().map(|loss| loss.lost).sum(),
            false_lost: judged.false_lost(),
            amended: judged.amended,
            hidden: judged.hidden,
            doubled: truth.doubled(),
            strangers: truth.strangers.iter().map(|of| u64::from(of.packets)).sum(),
            incomplete_because: report.incomplete_because.clone(),
            surpluses: report.surplus.len(),
            hl_load: report.decode.hl_load_factor,
            ll_load: report.decode.ll_load_factor,
            hh_load: hh_loads.reduce(f64::max),
            heavy_hitters: most(|edge| edge.heavy_hitters.len()),
            heavy_changes: most(|edge| edge.heavy_changes.len()),
            frame_bytes: outcome.frame_bytes,
            response_ms: outcome.response.as_secs_f64() * 1e3,
            reasons: report.plan.as_ref().map_or(Vec::new(), |plan| plan.reasons.clone()),
            contradiction: judged.wrong.first().map(|wrong| wrong.words.clone()),
            judged,
        }
    }
}
