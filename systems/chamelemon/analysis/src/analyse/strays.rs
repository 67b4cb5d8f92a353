//! Packets that no sketch holds, and what they say of losses.
//!
//! Edges keep by flow what they can't record: see [`calumma_chamelemon::frames`]. Each kind bears
//! on losses in its own way:
//!
//! * *Late*: it carried the epoch's timestamp bit when no epoch with it was open. It may be of this
//!   epoch and have left the network later than the flight guard allows. It may be of an earlier
//!   one with the same bit, and late by more. It may be of the next one with that bit, and come
//!   from an edge whose clock is ahead: that clocks differ shows only where they differ by more
//!   than what measuring them may be wrong by. Or it is of the epoch in between, in time, and its
//!   bit was changed. So what its flow lost in any of these is a lower bound, and nobody else's
//!   losses are touched. Where its mark has more of the epoch's number, it is of this one, and
//!   counts as having left in it.
//! * *Old*: its mark says by how many epochs it is older. It was reported lost in its own, exactly
//!   as many packets too many. What seems older by [`LIKE_NEXT`] may be of the next epoch instead.
//! * *Misfit*: a mark that no packet of this epoch carries, or none at all. If its flow lost
//!   packets, these may be they, under another mark. Marks that are rewritten may have another
//!   timestamp bit, too, and be counted in the epoch before or after; so nothing is known of what
//!   such a flow lost in this epoch and its neighbours. Of a flow that lost none it is a
//!   stranger's.
//! * *Unmarked*: no valid mark. Where marks are signed, it may be another flow's that was
//!   translated, and what its mark says of its epoch stays readable, though nothing proves it: it
//!   may be of any of the epochs that have the same number modulo [`SAID`].
//! * Packets for which an edge's table had no room may have been of any flow, so each loss is a
//!   lower bound, by as many packets. The same holds for hierarchy 0, which is encoded nowhere:
//!   packets that leave under it more often than they enter, summed over all edges. Copies of such
//!   packets are no different from packets whose marks were rewritten. Where all packets are
//!   encoded none enters, and edges keep them by flow, as misfit or late: all count then but those
//!   of flows that have not entered, in this epoch or in the one before.

use std::collections::{BTreeSet, HashMap};

use calumma_chamelemon::Balance;
use calumma_chamelemon::frames::AnyLate;
use calumma_plane::{AnyStrays, Hierarchy, Stray, Strays, UNDATED};
use calumma_sketch::{AnyKey, Key, either};

use super::input::{EdgeInput, EpochInput};
use super::soundness::attention_of;
use crate::report::{Cause, CauseKind, Flow, FlowPackets, StrayKind, StrayReport};

/// Flows that a report names of one kind at an edge.
const FLOWS_NAMED: usize = 8;

/// Packets of the next epoch with a timestamp bit seem to be older by so many: marks have the
/// epoch's number modulo eight.
pub(super) const LIKE_NEXT: u64 = 6;

/// Signed marks have the epoch's number modulo this.
pub(super) const SAID: u64 = 8;

/// What to do about marks.
const REMEDY: &str = "marks are rewritten on the way, or packets come that no edge marked; use \
                      another carrier, or [domain] prefixes";

/// Late packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Late {
    /// Heavy-loss and heavy-hitter candidates.
    pub(super) heavy: i64,
    /// Sampled light-loss candidates.
    pub(super) light: i64,
}

/// The packets of an epoch that no sketch holds.
#[derive(Clone, Debug, Default)]
pub(super) struct EpochStrays {
    /// Whether light losses are sampled in the epoch.
    samples: bool,
    /// Whether all packets are encoded in it, so that none enters under hierarchy 0.
    encodes_all: bool,
    /// Late ones whose epoch is not known, by flow; those of hierarchy 0 left out.
    pub(super) late: HashMap<Flow, u64>,
    /// Late ones of this epoch, likewise.
    pub(super) of_epoch: HashMap<Flow, Late>,
    /// By flow, and by how many epochs they are older.
    pub(super) old: HashMap<(Flow, u64), u64>,
    /// Flows of those of them that have a mark which packets of the epoch may carry.
    pub(super) late_and_fit: BTreeSet<Flow>,
    pub(super) misfit: HashMap<Flow, u64>,
    /// Those of them without a valid mark that say what epoch they are of, by flow, and by how many
    /// epochs that is before this one, modulo [`SAID`].
    pub(super) said: HashMap<(Flow, u64), u64>,
    /// Packets without a valid mark whose flows are not known, nor what they say.
    pub(super) unsaid: u64,
    /// Packets that may have been of any flow.
    pub(super) anybody: u64,
    /// Those of them that left under hierarchy 0 and did not enter under it.
    pub(super) unencoded: u64,
    /// Those of them that may have been old.
    pub(super) perhaps_old: u64,
    /// What there was at each edge.
    pub(super) reports: Vec<StrayReport>,
    /// Why losses are not known for `anybody`.
    pub(super) causes: Vec<Cause>,
    /// Late packets whose flows are not known, which may be of the next epoch under another mark,
    /// and why not.
    pub(super) late_beyond: (u64, Vec<Cause>),
}

impl EpochStrays {
    /// Those of an epoch; `is_stranger` says of a flow that it has not entered of late.
    pub(super) fn of(input: &EpochInput, is_stranger: impl Fn(&Flow) -> bool) -> Self {
        let attention = attention_of(input);
        let (samples, encodes_all) = (attention.partition.ll > 0, attention.encodes_all());
        let mut strays = Self { samples, encodes_all, ..Self::default() };
        for edge in &input.edges {
            strays.add_edge(edge);
        }
        strays.add_unencoded(input, is_stranger);
        strays
    }

    fn add_edge(&mut self, edge: &EdgeInput) {
        if let Some(late) = edge.late.as_ref() {
            either!(late, late => self.add(&edge.edge, &late.strays, |back| match back {
                0 | UNDATED => StrayKind::Late,
                _ => StrayKind::Old,
            }));
        }
        let Some(egress) = &edge.egress else { return };
        if let Some(strays) = &egress.strays {
            either!(strays, strays => self.add(&edge.edge, strays, |stray| match stray {
                0 => StrayKind::Misfit,
                _ => StrayKind::Old,
            }));
        }
        if let Some(unmarked) = &egress.unmarked {
            either!(unmarked, strays => self.add(&edge.edge, strays, |_| StrayKind::Unmarked));
        }
    }

    /// Adds a table of an edge, whose entries are of the kind that `kind` gives of their age.
    fn add<K: Key>(&mut self, edge: &str, strays: &Strays<K>, kind: impl Fn(u8) -> StrayKind) {
        let mut by_kind: Vec<StrayReport> = Vec::new();
        for stray in &strays.entries {
            let (flow, kind) = (Flow::from(&stray.key), kind(stray.epochs_back));
            if kind == StrayKind::Late && is_unencoded(stray) && !self.encodes_all {
                // One of many that are not encoded.
                continue;
            }
            self.add_stray(flow, kind, stray);
            let at = by_kind.iter().position(|report| report.what == kind);
            let at = at.unwrap_or_else(|| {
                by_kind.push(StrayReport::none(edge, kind));
                by_kind.len() - 1
            });
            by_kind[at].packets += u64::from(stray.packets);
            let packets = u64::from(stray.packets);
            match by_kind[at].flows.last_mut() {
                Some(last) if last.flow == flow => last.packets += packets,
                _ => by_kind[at].flows.push(FlowPackets { flow, packets }),
            }
        }
        if strays.beyond > 0 {
            let kind = kind(0);
            if by_kind.iter().all(|report| report.what != kind) {
                by_kind.push(StrayReport::none(edge, kind));
            }
            let report = by_kind.iter_mut().find(|report| report.what == kind);
            if let Some(report) = report {
                report.packets += strays.beyond;
                report.beyond = strays.beyond;
            }
            // Late ones without a flow make the epoch incomplete: see `soundness`.
            if kind == StrayKind::Late {
                let (packets, causes) = &mut self.late_beyond;
                *packets += strays.beyond;
                causes.push(late_cause(edge, strays.beyond));
            } else {
                self.anybody += strays.beyond;
            }
            match kind {
                StrayKind::Unmarked => self.unsaid += strays.beyond,
                _ => self.perhaps_old += strays.beyond,
            }
        }
        for report in &mut by_kind {
            report.flows.sort_by(|a, b| b.packets.cmp(&a.packets).then(a.flow.cmp(&b.flow)));
            report.flows.truncate(FLOWS_NAMED);
        }
        self.causes.extend(
            by_kind.iter().filter(|of| of.beyond > 0 && of.what != StrayKind::Late).map(cause),
        );
        self.reports.append(&mut by_kind);
    }

    fn add_stray<K: Key>(&mut self, flow: Flow, kind: StrayKind, stray: &Stray<K>) {
        let packets = u64::from(stray.packets);
        match kind {
            StrayKind::Late if stray.epochs_back == UNDATED => {
                *self.late.entry(flow).or_default() += packets;
                let fits = match stray.hierarchy {
                    Hierarchy::NonSampledLl => false,
                    Hierarchy::SampledLl => self.samples,
                    _ => true,
                };
                if fits {
                    self.late_and_fit.insert(flow);
                }
            }
            StrayKind::Late => {
                let late = self.of_epoch.entry(flow).or_default();
                match stray.hierarchy {
                    Hierarchy::NonSampledLl => {}
                    Hierarchy::SampledLl => late.light += i64::from(stray.packets),
                    _ => late.heavy += i64::from(stray.packets),
                }
            }
            StrayKind::Old => {
                *self.old.entry((flow, stray.epochs_back.into())).or_default() += packets;
            }
            StrayKind::Misfit => *self.misfit.entry(flow).or_default() += packets,
            StrayKind::Unmarked => {
                *self.misfit.entry(flow).or_default() += packets;
                if stray.epochs_back != UNDATED {
                    let age = u64::from(stray.epochs_back) % SAID;
                    *self.said.entry((flow, age)).or_default() += packets;
                }
            }
        }
    }

    /// Packets by flow that may be of this epoch or of any before with the same timestamp bit.
    pub(super) fn of_its_bit(&self) -> HashMap<Flow, u64> {
        let mut packets = self.late.clone();
        for (&flow, misfit) in &self.misfit {
            *packets.entry(flow).or_default() += misfit;
        }
        packets
    }

    /// Packets by flow that may be of the next epoch with the same timestamp bit.
    pub(super) fn early(&self) -> impl Iterator<Item = (Flow, u64)> {
        let old = self.old.iter().filter(|((_, back), _)| *back == LIKE_NEXT);
        let old = old.map(|(&(flow, _), &packets)| (flow, packets));
        self.late.iter().map(|(&flow, &packets)| (flow, packets)).chain(old)
    }

    /// Adds what left under hierarchy 0 more often than it entered; where none enters under it, not
    /// strangers' packets.
    fn add_unencoded(&mut self, input: &EpochInput, is_stranger: impl Fn(&Flow) -> bool) {
        let is_strangers = |flow: &Flow| self.encodes_all && is_stranger(flow);
        let of_late = |late: &AnyKey<AnyLate>| {
            either!(late, late => late.unencoded
                + unencoded(&late.strays, |flow| !is_strangers(flow)))
        };
        let sides = input.edges.iter().map(|edge| {
            let of = |balance: Balance| balance.of(Hierarchy::NonSampledLl);
            let entered = of(edge.ingress.as_ref()?.balance?);
            let egress = edge.egress.as_ref()?;
            let late = edge.late.as_ref().map_or(0, of_late);
            let of_strangers = egress
                .strays
                .as_ref()
                .map_or(0, |strays| either!(strays, strays => unencoded(strays, is_strangers)));
            Some((entered, of(egress.balance?).saturating_sub(of_strangers) + late, edge))
        });
        let Some(sides) = sides.collect::<Option<Vec<_>>>() else { return };
        let entered: u64 = sides.iter().map(|(entered, ..)| entered).sum();
        let left: u64 = sides.iter().map(|(_, left, _)| left).sum();
        let most = sides.iter().max_by_key(|(_, left, _)| *left);
        let excess = left.saturating_sub(entered);
        let Some(most) = most.filter(|_| excess > 0) else { return };
        let all = packets_out(most.2).max(most.1);
        self.anybody += excess;
        self.unencoded = excess;
        let what = format_args!(
            "{} of the packets that leave here carry a mark of 0, and only {entered} entered the \
             network with one: {REMEDY}",
            share(most.1, all),
        );
        self.causes.push(Cause::at(&most.2.edge, CauseKind::Mark, what).of_packets(excess));
    }
}

/// Whether packets carried hierarchy 0.
fn is_unencoded<K>(stray: &Stray<K>) -> bool {
    stray.hierarchy == Hierarchy::NonSampledLl
}

/// Packets of hierarchy 0 in a table, of some flows.
fn unencoded<K: Key>(strays: &Strays<K>, is_one: impl Fn(&Flow) -> bool) -> u64 {
    let of_it = strays.entries.iter().filter(|stray| is_unencoded(stray));
    let of_it = of_it.filter(|stray| is_one(&Flow::from(&stray.key)));
    of_it.map(|stray| u64::from(stray.packets)).sum()
}

/// Packets that left at an edge and were recorded.
fn packets_out(edge: &EdgeInput) -> u64 {
    edge.egress.as_ref().map_or(0, |side| side.packets_out)
}

fn share(packets: u64, of: u64) -> String {
    format!("{:.0} % ({packets} of {of})", packets as f64 / of.max(1) as f64 * 100.0)
}

/// Why losses are not known where an edge has more such packets than it can keep by flow.
fn cause(report: &StrayReport) -> Cause {
    let StrayReport { edge, what, packets, beyond, flows } = report;
    let what = match what {
        StrayKind::Unmarked => "no mark",
        _ => "a mark that none of this epoch has",
    };
    let what = format_args!(
        "{packets} packets leave the network with {what}, {beyond} of them of more flows than can be \
         kept apart: {REMEDY}"
    );
    let cause = Cause::at(edge, CauseKind::Mark, what).of_packets(*packets);
    Cause { flows: flows.iter().map(|of| of.flow).collect(), ..cause }
}

/// The same of late packets, for the epoch after the one that they may have been late for.
fn late_cause(edge: &str, packets: u64) -> Cause {
    let what = format_args!(
        "{packets} packets left when no epoch with their timestamp bit was open, of more flows than can \
         be kept apart: their marks may have been rewritten"
    );
    Cause::at(edge, CauseKind::Late, what).of_packets(packets)
}

/// Whether all packets of a hierarchy without buckets are known by flow, or counted as such.
pub(super) fn misfits_are_known(edge: &EdgeInput) -> bool {
    let Some(egress) = &edge.egress else { return false };
    let of = |strays: &AnyKey<AnyStrays>| either!(strays, strays => strays.packets() - unencoded(strays, |_| true));
    egress.strays.as_ref().is_some_and(|strays| of(strays) >= egress.defects.foreign_packets)
}

/// Whether the flows of all late packets are known.
pub(super) fn late_are_known(edge: &EdgeInput) -> bool {
    let known = |late: &AnyKey<AnyLate>| either!(late, late => (late.strays.beyond, late.unencoded + late.strays.packets()));
    let Some((beyond, packets)) = edge.late.as_ref().map(known) else { return false };
    beyond == 0 && edge.late_packets.is_some_and(|late| packets >= late)
}
