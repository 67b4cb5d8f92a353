//! What an epoch shows of the losses of others.
//!
//! A packet says only whether its epoch is even or odd. One that is late by more than the guards
//! and an epoch is counted where it arrives, in a later epoch with its timestamp bit: a loss in the
//! one that it belongs to, and one too many in the other. One whose timestamp bit was changed on
//! its way is counted in the epoch before or after. So a flow that has too many packets in an epoch
//! makes what it lost in those around it uncertain.
//!
//! How uncertain? In the epoch where they arrive, late packets make up for others of the same flow
//! that were lost there. What is too many is therefore no bound for what was late, and nothing that
//! the flow is said to have lost before is certain any more: an amendment leaves 0 as the least.
//! Where late packets make up for as many lost ones or more, there is nothing too many and nothing
//! to be seen; nor is there in an epoch that is incomplete.
//!
//! Packets that no sketch holds ([`strays`](super::strays)) are in no balance, so these do bound
//! what they may explain: old ones, whose mark says which epoch they are of, were late in that one,
//! exactly as many, and late ones may have been, at most as many. Misfits make their flow's losses
//! in epochs before uncertain, since they may have left after the end of those.
//!
//! A packet that was translated has no valid mark where marks are signed, and nothing proves which
//! epoch it is of: it may have come just after the end of its own, if clocks differ by a little
//! more than shows. What flows lost that may have become it, in the epoch before, is a lower bound
//! by as many packets. Its epoch's number modulo eight it still says, since translation leaves that
//! as it is: the same holds in each epoch with that number, as it may have been late. Of one for
//! which there was no room, nobody knows what it says.
//!
//! Where marks stay valid, one that was translated and is late by more than an epoch is counted
//! where it arrives, as a flow that did not enter. There it may make up for a translated one that
//! was lost, so that nothing is too many. So all that such flows have is held against what flows
//! lost that may have become them, in the earlier epochs with the same timestamp bit: a lower bound
//! by as many packets. The flow that it became must not enter in the epoch that it arrives in.
//!
//! The same holds of marks with more of the epoch's number, where a packet is late by eight epochs
//! or a multiple, which looks like none: by a mark that nothing signs, or a signature that fits
//! that epoch as well by chance. So what is too many in an epoch bears on each before that has the
//! same number modulo eight; and old packets do not say how many were late where their flow lost
//! some in another of those epochs. Old ones of a flow that lost none in theirs may be another's.
//!
//! What shows of a flow is [`evidence`](super::evidence) of what may have happened to others.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::entered::Entered;
use super::evidence::REACH;
use super::strays::{EpochStrays, LIKE_NEXT, SAID};
use super::translation::{self, Targets};
use crate::report::{Amendment, Change, EpochReport, Flow, Loss, Rewritten, Surplus};

/// An epoch that has been reported.
#[derive(Debug)]
struct Past {
    epoch: u64,
    /// Flows that are said to have lost packets, as far as that is certain, and how many.
    losses: HashMap<Flow, u64>,
    /// Those of them of which packets may have been late, it is not known how many.
    bounded: HashSet<Flow>,
    /// Those of them of which no packet need have left as it was.
    whole: HashSet<Flow>,
    /// Flows that had packets too many.
    excess: HashSet<Flow>,
}

/// What is known of packets that were late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Exactly(u64),
    AtMost(u64),
}

impl Past {
    /// Says of a flow that packets which it is said to have lost were late.
    fn amend(&mut self, flow: Flow, known: Known, why: &str) -> Option<Amendment> {
        let was = *self.losses.get(&flow)?;
        let (Known::Exactly(packets) | Known::AtMost(packets)) = known;
        let packets = packets.min(was);
        let lost = was - packets;
        if lost == 0 {
            self.losses.remove(&flow);
        } else {
            self.losses.insert(flow, lost);
        }
        let (late, at_most_late) = match known {
            Known::Exactly(late) if late <= was && !self.bounded.contains(&flow) => {
                (Some(packets), None)
            }
            // Copies had made up for some of them, or others may have been late as well.
            Known::Exactly(_) | Known::AtMost(_) => {
                self.bounded.insert(flow);
                (None, Some(packets))
            }
        };
        let (epoch, why) = (self.epoch, why.to_owned());
        Some(Amendment { epoch, flow, was, lost, late, at_most_late, why })
    }

    /// Says of all flows that so many packets of each may not have been lost; `packets` is also
    /// given whether all of the flow may be missing.
    fn amend_all(&mut self, packets: impl Fn(&Flow, bool) -> u64, why: &str) -> Vec<Amendment> {
        let of = |flow: &Flow| (*flow, packets(flow, self.whole.contains(flow)));
        let flows: Vec<_> =
            self.losses.keys().map(of).filter(|(_, packets)| *packets > 0).collect();
        let amend = |(flow, packets)| self.amend(flow, Known::AtMost(packets), why);
        flows.into_iter().filter_map(amend).collect()
    }
}

/// What an epoch shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    /// Flows of which more packets left than entered.
    pub(super) excess: &'a HashSet<Flow>,
    /// Those that are not known to have entered, and how many packets of them left.
    pub(super) not_entered: &'a [Surplus],
    /// What no sketch holds.
    pub(super) strays: &'a EpochStrays,
    /// Whether marks have more of the epoch's number than the timestamp bit.
    pub(super) dated: bool,
    /// What entered in the epoch.
    pub(super) entered: &'a Entered<'a>,
    /// What entered in the one before.
    pub(super) before: &'a Entered<'a>,
}

/// How many epochs marks tell apart.
fn alike(dated: bool) -> u64 {
    if dated { SAID } else { 2 }
}

/// Remembers the latest epochs for as long as others may show something of them.
#[derive(Debug, Default)]
pub(super) struct Amendments(VecDeque<Past>);

impl Amendments {
    /// Completes a report by what it shows of earlier ones, and they of it. Gives the flows of
    /// which packets may have been in a wrong epoch, in this one or another. Epochs must come in
    /// order.
    pub(super) fn complete(
        &mut self,
        report: &mut EpochReport,
        shown: &Shown<'_>,
    ) -> BTreeSet<Flow> {
        let epoch = report.epoch;
        self.0.retain(|past| past.epoch < epoch && past.epoch + REACH >= epoch);
        let mut misplaced = BTreeSet::new();
        let &Shown { strays, before, .. } = shown;
        let mut said = strays.said.clone();
        report.amendments = self.old(epoch, strays, &mut said);
        report.amendments.extend(self.shown(epoch, shown, &mut misplaced));
        if shown.dated {
            report.amendments.extend(self.translated(epoch, strays, before));
            report.amendments.extend(self.translated_long_ago(epoch, &said, before));
        } else {
            misplaced.extend(self.take_back(report));
        }
        report.amendments.extend(self.translated_and_late(epoch, shown));
        misplaced
    }

    /// Says of the flows that are in doubt, and of the epochs before, that nothing is known of what
    /// they lost.
    pub(super) fn doubt(
        &mut self,
        report: &mut EpochReport,
        is_in_doubt: impl Fn(&Flow) -> bool,
        why: &str,
    ) {
        for past in &mut self.0 {
            let flows: Vec<Flow> =
                past.losses.keys().filter(|flow| is_in_doubt(flow)).copied().collect();
            let amend = |flow| past.amend(flow, Known::AtMost(u64::MAX), why);
            report.amendments.extend(flows.into_iter().filter_map(amend));
        }
    }

    /// Remembers a report, for those to come; `entered` is what entered in its epoch.
    pub(super) fn remember(
        &mut self,
        report: &mut EpochReport,
        excess: HashSet<Flow>,
        entered: &Entered<'_>,
    ) {
        report.amendments.sort_by_key(|amendment| (amendment.epoch, amendment.flow));
        let certain = || report.loss.iter().filter(|loss| !loss.partial);
        let losses: HashMap<Flow, u64> = certain().map(|loss| (loss.flow, loss.lost)).collect();
        let is_whole = |loss: &&Loss| loss.at_least || entered.of(&loss.flow).least <= loss.lost;
        let whole = certain().filter(is_whole).map(|loss| loss.flow).collect();
        // What is known to be late of those leaves a lower bound.
        let bounded = certain().filter(|loss| loss.at_least).map(|loss| loss.flow).collect();
        if !losses.is_empty() || !excess.is_empty() {
            let epoch = report.epoch;
            self.0.push_back(Past { epoch, losses, bounded, whole, excess });
        }
    }

    /// What packets without a valid mark say of the epoch before, in which `before` entered.
    fn translated(
        &mut self,
        epoch: u64,
        strays: &EpochStrays,
        before: &Entered<'_>,
    ) -> Vec<Amendment> {
        let past = self.0.iter_mut().find(|past| past.epoch + 1 == epoch);
        let Some(past) = past.filter(|_| !strays.misfit.is_empty()) else { return Vec::new() };
        let surplus = strays.misfit.iter().map(|(&flow, &packets)| {
            let stranger = before.of(&flow).is_stranger();
            Surplus { flow, packets, partial: true, stranger }
        });
        let surplus: Vec<Surplus> = surplus.collect();
        let targets = Targets::new(&surplus, before);
        let why = format!(
            "packets left in epoch {epoch} without a valid mark, and may be this flow's: they may have \
             been translated, and late"
        );
        past.amend_all(|flow, wholly| targets.packets_for(flow, wholly), &why)
    }

    /// What flows that did not enter say of the epochs before that marks don't tell from this one.
    fn translated_and_late(&mut self, epoch: u64, shown: &Shown<'_>) -> Vec<Amendment> {
        let &Shown { not_entered, strays, entered, dated, .. } = shown;
        // What unmarked ones say of themselves is known where marks are `dated`.
        let strays = if dated { HashMap::new() } else { strays.of_its_bit() };
        let surplus = translation::with_more(not_entered, strays, entered);
        let targets = Targets::new(&surplus, entered);
        if targets.is_empty() {
            return Vec::new();
        }
        let why = format!(
            "packets left in epoch {epoch} as flows that did not enter, and may be this flow's: they \
             may have been translated, and late"
        );
        let looks_like_it = |past: &&mut Past| (epoch - past.epoch).is_multiple_of(alike(dated));
        let of = |past: &mut Past| {
            past.amend_all(|flow, wholly| targets.packets_for(flow, wholly), &why)
        };
        self.0.iter_mut().filter(looks_like_it).flat_map(of).collect()
    }

    /// What packets say of the epochs before that one, by flow and by their age modulo [`SAID`],
    /// that have no valid mark, or one that is of no packet of their flow. What entered in these is
    /// not known any more, so that any of them may be another flow's.
    fn translated_long_ago(
        &mut self,
        epoch: u64,
        said: &HashMap<(Flow, u64), u64>,
        before: &Entered<'_>,
    ) -> Vec<Amendment> {
        let why = format!(
            "packets left in epoch {epoch} without a valid mark, or as flows that lost none in this one, \
             and say that they are of it: they may be this flow's, translated, and late"
        );
        let mut amendments = Vec::new();
        for age in 0..SAID {
            let said = said.iter().filter(|((_, said), _)| *said == age);
            let surplus = said.map(|(&(flow, _), &packets)| {
                let (partial, stranger) = (true, true);
                Surplus { flow, packets, partial, stranger }
            });
            let surplus: Vec<Surplus> = surplus.collect();
            if surplus.is_empty() {
                continue;
            }
            let targets = Targets::new(&surplus, before);
            let is_said = |by: u64| by > 1 && by % SAID == age;
            for past in self.0.iter_mut().filter(|past| is_said(epoch - past.epoch)) {
                let packets = |flow: &Flow, wholly| targets.packets_for(flow, wholly);
                amendments.extend(past.amend_all(packets, &why));
            }
        }
        amendments
    }

    /// What packets say whose marks have the number of an epoch before, or one like it. Adds those
    /// of flows that lost none there to `others`.
    fn old(
        &mut self,
        epoch: u64,
        strays: &EpochStrays,
        others: &mut HashMap<(Flow, u64), u64>,
    ) -> Vec<Amendment> {
        let why = format!("packets that left in epoch {epoch} carried the number of this one");
        let may_be_of = |past: &Past, back: u64| {
            (epoch - past.epoch).checked_sub(back).is_some_and(|more| more.is_multiple_of(SAID))
        };
        let mut amendments = Vec::new();
        for (&(flow, back), &packets) in &strays.old {
            let has_lost =
                |past: &&mut Past| may_be_of(past, back) && past.losses.contains_key(&flow);
            let of: Vec<&mut Past> = self.0.iter_mut().filter(has_lost).collect();
            let is_certain = of.len() == 1 && back != LIKE_NEXT;
            let mut is_found = false;
            for past in of {
                let is_first = past.epoch + back == epoch;
                is_found |= is_first;
                let known = if is_certain && is_first { Known::Exactly } else { Known::AtMost };
                amendments.extend(past.amend(flow, known(packets), &why));
            }
            if !is_found {
                *others.entry((flow, back % SAID)).or_default() += packets;
            }
        }
        amendments
    }

    /// What an epoch shows of those before. Adds the flows that are seen in a wrong epoch.
    fn shown(
        &mut self,
        epoch: u64,
        shown: &Shown<'_>,
        misplaced: &mut BTreeSet<Flow>,
    ) -> Vec<Amendment> {
        let &Shown { excess, strays, dated, .. } = shown;
        let too_many = format!(
            "more packets of this flow left in epoch {epoch} than entered: they may be late"
        );
        let misfit =
            format!("packets of this flow left in epoch {epoch} with marks that do not fit");
        let late = format!("packets of this flow were late for epoch {epoch}, or for this one");
        let unknown = format!("packets left in epoch {epoch} whose flow or epoch is not known");
        let mut amendments = Vec::new();
        for past in &mut self.0 {
            let by = epoch - past.epoch;
            // Late, or with the other timestamp bit.
            let may_have_come = by == 1 || by.is_multiple_of(2);
            let late_too = strays.late.iter().filter(|_| by.is_multiple_of(2));
            let late_too = late_too.map(|(flow, packets)| (*flow, Known::AtMost(*packets), &late));
            let is_like_it = if dated { by.is_multiple_of(SAID) } else { may_have_come };
            let excess = excess.iter().filter(|_| is_like_it);
            let excess = excess.map(|flow| (*flow, Known::AtMost(u64::MAX), &too_many));
            // Beyond what the epoch's bits tell apart, signatures are of a pad that is gone.
            let has_no_mark = dated && by >= LIKE_NEXT + 2;
            let misfits = strays.misfit.keys().filter(|_| may_have_come || has_no_mark);
            let misfits = misfits.map(|flow| (*flow, Known::AtMost(u64::MAX), &misfit));
            for (flow, known, why) in late_too.chain(excess) {
                let Some(amendment) = past.amend(flow, known, why) else { continue };
                amendments.push(amendment);
                misplaced.insert(flow);
            }
            let misfits = misfits.filter_map(|(flow, known, why)| past.amend(flow, known, why));
            amendments.extend(misfits);
            let unsaid = if dated { strays.unsaid } else { 0 };
            let anybody = match by {
                1 => strays.anybody,
                by if by.is_multiple_of(2) => strays.perhaps_old + unsaid,
                _ => unsaid,
            };
            if anybody > 0 {
                amendments.extend(past.amend_all(|_, _| anybody, &unknown));
            }
        }
        amendments
    }

    /// Sets aside of a report's losses what was counted in the epoch before, and gives the flows.
    fn take_back(&self, report: &mut EpochReport) -> Vec<Flow> {
        let before = self.0.iter().find(|past| past.epoch + 1 == report.epoch);
        let Some(before) = before else { return Vec::new() };
        let marked = |loss: &mut Loss| !loss.partial && before.excess.contains(&loss.flow);
        let counted: Vec<Loss> = report.loss.extract_if(.., marked).collect();
        report.rewritten.extend(counted.iter().map(|loss| {
            let (from, to) = (loss.flow, Some(loss.flow));
            Rewritten { from, to, packets: loss.lost, what: Change::Epoch }
        }));
        counted.into_iter().map(|loss| loss.flow).collect()
    }
}
