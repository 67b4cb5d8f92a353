//! What a network has shown that it does to marks, or to the time that packets take.
//!
//! One bit does not tell an epoch from the next but one, and a mark does not tell that it was
//! rewritten. A packet that is counted in a wrong epoch is one too many of its flow there, and that
//! shows, unless another of the same flow was lost in that epoch; then the two make up for each
//! other, and the epoch that it belongs to has a loss that was none. Nothing of that flow says so.
//! What does is that the same happens to other packets, of which it shows.
//!
//! So once packets of one flow are seen to have left in a wrong epoch, that may be so of all that
//! entered at the same edge and take the same ways: what any of them lost in that epoch and the
//! [`REACH`] before and after it is not known. It is seen in
//!
//! * packets of a flow that entered and that no sketch holds, since they came when no epoch with
//!   their timestamp bit was open;
//! * packets too many of a flow that is missing some in an epoch near by, for which the report of
//!   that one is amended, or sets them aside;
//! * packets of hierarchy 0, of which no flow is known, that leave more often than they enter: they
//!   may have entered anywhere, under any mark.
//!
//! A stranger's packets are none of these, since its flow never entered. Copies of a flow are no
//! different from packets in a wrong epoch if it lost some near by, and copies for certain if not:
//! where more than half as many flows have these, the network copies packets, and that others lost
//! some is chance. Marks that were rewritten within an epoch, to others that its encoders know,
//! leave each flow's number as it is; and to one that they don't know, they show themselves of
//! which flow they are. Marks that have more of the epoch's number leave none of this in doubt, and
//! give no such evidence.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::entered::Entered;
use super::strays::EpochStrays;
use crate::report::{Cause, CauseKind, Change, EpochReport, Flow, Rewritten, Surplus};

/// Epochs before and after one in which something was seen, for which it counts; and by which a
/// packet may be late and yet be seen to be. Two seconds at the default length.
pub(super) const REACH: u64 = 40;

/// Flows that a cause names.
const FLOWS_NAMED: usize = 8;

/// What an epoch shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    pub(super) epoch: u64,
    pub(super) strays: &'a EpochStrays,
    /// Flows of which packets may have been in a wrong epoch.
    pub(super) misplaced: &'a BTreeSet<Flow>,
    /// Flows with packets too many.
    pub(super) surplus: &'a [Surplus],
    /// What entered in the epoch.
    pub(super) entered: &'a Entered<'a>,
    /// What entered in the one before.
    pub(super) before: &'a Entered<'a>,
}

/// What was seen last of packets that entered at an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    epoch: u64,
    /// Some of the flows.
    flows: BTreeSet<Flow>,
}

/// What is remembered of it.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// By the edge where packets entered.
    seen: BTreeMap<String, Seen>,
    /// The latest epochs in which flows had too many packets.
    too_many: VecDeque<TooMany>,
}

/// Flows that had packets too many in an epoch, or had them in one near by and too few in this one.
#[derive(Debug)]
struct TooMany {
    epoch: u64,
    /// Those whose packets may have been in a wrong epoch.
    misplaced: usize,
    /// The others, whose packets were copied.
    copied: HashSet<Flow>,
}

impl Evidence {
    /// Forgets what is too long ago.
    pub(super) fn forget(&mut self, epoch: u64) {
        let is_near = |of: u64| of < epoch && of + REACH >= epoch;
        self.seen.retain(|_, seen| is_near(seen.epoch));
        self.too_many.retain(|of| is_near(of.epoch));
    }

    /// Adds what an epoch shows whose sides are sound, and says whether there is anything.
    pub(super) fn add(&mut self, shown: &Shown<'_>) -> bool {
        let &Shown { epoch, strays, misplaced, surplus, entered, before } = shown;
        if let Some(last) = self.too_many.back_mut().filter(|last| last.epoch + 1 == epoch) {
            // They came before they were missed.
            last.copied.retain(|flow| !misplaced.contains(flow));
        }
        let copied = surplus.iter().filter(|of| !of.stranger && !misplaced.contains(&of.flow));
        let copied = copied.map(|of| of.flow).collect();
        self.too_many.push_back(TooMany { epoch, misplaced: misplaced.len(), copied });
        let all_misplaced: usize = self.too_many.iter().map(|of| of.misplaced).sum();
        let all_copied: usize = self.too_many.iter().map(|of| of.copied.len()).sum();
        let are_misplaced = all_misplaced >= 2 * all_copied;
        let mut found = false;
        let mut see = |edge: &str, flow: Option<Flow>| {
            found = true;
            let seen = self.seen.entry(edge.to_owned()).or_default();
            seen.epoch = epoch;
            seen.flows.extend(flow.filter(|_| seen.flows.len() < FLOWS_NAMED));
        };
        // Of late ones, those that never entered are strangers'.
        let late = strays.late_and_fit.iter().map(|flow| (flow, false));
        let misplaced = misplaced.iter().filter(|_| are_misplaced).map(|flow| (flow, true));
        for (flow, is_known) in misplaced.chain(late) {
            let mut edges = entered.edges_of(flow);
            if edges.is_empty() {
                edges = before.edges_of(flow);
            }
            if edges.is_empty() && is_known {
                edges = entered.edges().collect();
            }
            edges.into_iter().for_each(|edge| see(edge, Some(*flow)));
        }
        if strays.unencoded > 0 {
            entered.edges().for_each(|edge| see(edge, None));
        }
        found
    }

    /// Whether a flow may be among those that it is about; `now` where it is known to have entered
    /// in the epoch that `entered` is of.
    pub(super) fn concerns(&self, flow: &Flow, entered: &Entered<'_>, now: bool) -> bool {
        if entered.edges().all(|edge| self.seen.contains_key(edge)) {
            return true;
        }
        if !now && !entered.of(flow).is_entered() {
            return true;
        }
        entered.edges_of(flow).into_iter().any(|edge| self.seen.contains_key(edge))
    }

    /// Sets aside what a report says was lost, as far as it is in doubt, and says why.
    pub(super) fn set_aside(&self, report: &mut EpochReport, entered: &Entered<'_>) {
        if self.seen.is_empty() {
            return;
        }
        let in_doubt = report
            .loss
            .extract_if(.., |loss| !loss.partial && self.concerns(&loss.flow, entered, true));
        let mut by_edge: BTreeMap<&str, u64> = BTreeMap::new();
        report.rewritten.extend(in_doubt.map(|loss| {
            for edge in entered.edges_of(&loss.flow) {
                *by_edge.entry(edge).or_default() += loss.lost;
            }
            let (from, to) = (loss.flow, Some(loss.flow));
            Rewritten { from, to, packets: loss.lost, what: Change::Epoch }
        }));
        let of_edges = self.seen.iter().filter_map(|(edge, seen)| {
            by_edge.get(edge.as_str()).map(|&packets| seen.cause(edge, packets))
        });
        report.causes.extend(of_edges);
    }

    /// Why losses that were reported earlier are in doubt.
    pub(super) fn words(epoch: u64) -> String {
        format!(
            "packets that entered at the same edge left in a wrong epoch or under a wrong mark, as \
             epoch {epoch} shows: this flow's may have as well"
        )
    }
}

impl Seen {
    fn cause(&self, edge: &str, packets: u64) -> Cause {
        let Self { epoch, flows } = self;
        // Of packets of hierarchy 0 no flow is known.
        let (kind, what) = match flows.is_empty() {
            true => (CauseKind::Mark, "under marks that they did not enter with"),
            false => (CauseKind::Late, "late, or in another epoch for their marks"),
        };
        let what = format_args!(
            "packets that enter here leave {what}, as epoch {epoch} shows, so what is missing may not \
             be lost: use a carrier that has the epoch's number"
        );
        let cause = Cause::at(edge, kind, what).of_packets(packets);
        Cause { flows: flows.iter().copied().collect(), ..cause }
    }
}
