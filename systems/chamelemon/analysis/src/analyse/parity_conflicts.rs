//! What an epoch leaves to the next one with the same timestamp bit, the epoch after the next.
//!
//! A packet says only whether its epoch is even or odd. Where a switch was late with one epoch,
//! packets of the other may have been counted as its own, or its own for the other's; the switch
//! can report it for the epoch that it was late with, but not for the one that bears it.

use std::collections::{HashSet, VecDeque};

use super::input::{EdgeInput, EpochInput};
use super::strays;
use crate::report::{Cause, CauseKind};

/// Remembers epochs until the next ones with their timestamp bits.
#[derive(Debug, Default)]
pub(super) struct ParityConflicts {
    /// Epochs that leave something, and why the next one with their bit can't be trusted.
    left: VecDeque<(u64, Vec<Cause>)>,
    /// Edges of which a side came once. The others had measured nothing that could be late.
    begun: HashSet<String>,
}

impl ParityConflicts {
    /// Why an epoch can't be trusted for what came before it, in words. Epochs must come in order.
    pub(super) fn of(&mut self, input: &EpochInput) -> Vec<Cause> {
        let epoch = input.epoch;
        self.left.retain(|&(of, _)| of < epoch && of + 2 >= epoch);
        let mut reasons = match self.left.front() {
            Some((of, reasons)) if of + 2 == epoch => reasons.clone(),
            _ => Vec::new(),
        };
        for edge in input.edges.iter().filter(|edge| edge.came()) {
            let name = &edge.edge;
            if self.begun.contains(name) {
                continue;
            }
            self.begun.insert(name.clone());
            if edge.measured_before {
                let [last, one_before] = [1, 2].map(|by| epoch.saturating_sub(by));
                reasons.push(before_all(name, one_before));
                self.leave(last, before_all(name, last));
            }
        }
        let left = |edge| left_by(edge, epoch, self.begun.contains(&edge.edge));
        let left: Vec<Cause> = input.edges.iter().flat_map(left).collect();
        if !left.is_empty() {
            self.left.push_back((epoch, left));
        }
        reasons
    }

    /// Adds why the next epoch with the timestamp bit of the one before the latest can't be
    /// trusted.
    fn leave(&mut self, of: u64, reason: Cause) {
        match self.left.back_mut().filter(|(last, _)| *last == of) {
            Some((_, reasons)) => reasons.push(reason),
            None => self.left.push_back((of, vec![reason])),
        }
    }
}

/// Why the next epoch with the timestamp bit of `epoch` can't be trusted where the edge measured
/// that one, and nothing of it came here.
fn before_all(edge: &str, epoch: u64) -> Cause {
    let what = format!(
        "it measured before this controller knew it, epoch {epoch} with the same timestamp bit too, so \
         it is not known whether it was late"
    );
    Cause::at(edge, CauseKind::Missing, what)
}

/// What an edge leaves of `epoch` to the next one with the same timestamp bit; `begun` where
/// something has come of it, then or before.
fn left_by(edge: &EdgeInput, epoch: u64, begun: bool) -> Vec<Cause> {
    let name = &edge.edge;
    let mut left = Vec::new();
    // A packet that comes between the taking of one epoch and the arming of the next counts as late
    // for the first. It may as well be early for the second, from an edge whose clock is far ahead.
    // Where their flows are known, nothing else is in doubt: see `strays`.
    if let Some(late) = edge.late_packets.filter(|&late| late > 0 && !strays::late_are_known(edge))
    {
        let what = format!(
            "{late} packets with its timestamp bit left the network before it was armed, or \
             long after epoch {epoch}: clocks may differ"
        );
        left.push(Cause::at(name, CauseKind::Late, what).of_packets(late));
    }
    // Late is what was taken after the next epoch was to be armed: by then, that one's packets
    // come.
    if let Some(stall_ns) = edge.egress.as_ref().map(|side| side.defects.stall_ns)
        && stall_ns > 0
    {
        let what = format!(
            "its egress rotation out of epoch {epoch} came {:.1} ms late, when packets with \
             the same timestamp bit may have come already",
            stall_ns as f64 / 1e6
        );
        left.push(Cause::at(name, CauseKind::Rotation, what));
    }
    // What was sent late may wait in the queue of an edge that stands still for a while, however
    // little late it was.
    if let Some(stall_ns) = edge.ingress.as_ref().map(|side| side.defects.stall_ns)
        && stall_ns > 0
    {
        let what = format!(
            "its ingress rotation out of epoch {epoch} came {:.1} ms late, so that packets \
             with the same timestamp bit may have left the network since",
            stall_ns as f64 / 1e6
        );
        left.push(Cause::at(name, CauseKind::Rotation, what));
    }
    // An edge that had not begun had nothing to be late with. One that had may have stood still,
    // and what it measured then was discarded, or came too late itself.
    if begun && !edge.is_whole() {
        let (what, came) = match (edge.came(), edge.is_measured()) {
            (false, _) => ("nothing", "came"),
            (true, false) => ("a side", "did not come"),
            (true, true) => ("the seal", "did not come"),
        };
        let what = format!(
            "{what} of epoch {epoch}, which has the same timestamp bit, {came}, so it is not \
             known whether it was late"
        );
        left.push(Cause::at(name, CauseKind::Missing, what));
    }
    left
}
