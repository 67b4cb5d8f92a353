//! What became of the packets: from what each flow has too few or too many of in the delta
//! encoders to losses, surpluses, and packets that may have been rewritten.
//!
//! In a sound epoch, what a delta encoder holds of a flow is the number of its packets that entered
//! less that of the packets that left as this flow under the same kind of mark. Nothing is assumed
//! of the network but that, so a number n > 0 has these causes: packets that were lost; packets
//! that left under another mark, as another flow, or so late that they were counted in another
//! epoch; less copies of packets, which leave once more than they entered. Hence:
//!
//! * `lost` is a balance. Where nothing shows that a flow's packets were copied or rewritten, it is
//!   what entered less what left, exactly; a network that copies some packets of a flow and loses
//!   as many others of it shows nothing at all.
//! * Too few in one encoder and too many in the other: as many may have been re-marked. The rest is
//!   a lower bound.
//! * Too many of a flow that entered, or may have: its packets were copied, so that its own losses
//!   are known to be no more than what its balance shows. Flows that are not known to have entered
//!   may be others, translated: see [`translation`].
//! * Packets that no sketch holds explain what is missing, or may: see [`strays`](super::strays).
//!   As many of the flow are no loss for certain, and what it has too many of is a lower bound.
//! * Too many of a flow that is known not to have entered: a stranger, who hides no loss of its
//!   own.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::entered::Entered;
use super::strays::{EpochStrays, Late};
use super::translation;
use crate::report::{Cause, Change, Flow, Loss, LossClass, Rewritten, Surplus};

/// What a flow has too few of in the delta encoders; negative where it has too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Net {
    pub(super) flow: Flow,
    /// In the delta HL encoder.
    pub(super) heavy: i64,
    /// In the delta LL encoder.
    pub(super) light: i64,
    /// Whether it may have more of them too few, or fewer too many: packets that entered are not
    /// all known.
    pub(super) at_least: bool,
}

impl Net {
    /// Packets too few, and packets too many.
    fn parts(&self) -> (u64, u64) {
        let few = self.heavy.max(0) + self.light.max(0);
        let many = -self.heavy.min(0) - self.light.min(0);
        (few as u64, many as u64)
    }

    /// What is missing of the flow.
    pub(super) fn loss(&self, partial: bool) -> Option<Loss> {
        let (lost, _) = self.parts();
        let class = if self.heavy > 0 { LossClass::Heavy } else { LossClass::Light };
        let at_least = self.at_least && !partial;
        let loss = Loss { flow: self.flow, lost, class, partial, at_least };
        (lost > 0).then_some(loss)
    }

    /// What the flow has too many of.
    fn surplus(&self, partial: bool) -> Option<Surplus> {
        let (_, packets) = self.parts();
        let surplus = Surplus { flow: self.flow, packets, partial, stranger: false };
        (packets > 0).then_some(surplus)
    }
}

/// Packets that no sketch holds, as far as they bear on an epoch.
#[derive(Debug)]
pub(super) struct Doubts<'a> {
    /// Those of the epoch.
    pub(super) now: &'a EpochStrays,
    /// Those of the epoch before, where that is known.
    pub(super) before: Option<&'a EpochStrays>,
    /// Those of the last epoch with the same timestamp bit, likewise.
    pub(super) with_its_bit: Option<&'a EpochStrays>,
}

impl Doubts<'_> {
    fn all(&self) -> impl Iterator<Item = &EpochStrays> {
        [Some(self.now), self.before].into_iter().flatten()
    }

    /// Whether packets of a flow left with marks that do not fit.
    fn may_be_marked(&self, flow: &Flow) -> bool {
        self.all().any(|strays| strays.misfit.contains_key(flow))
    }

    /// Packets that may have been of any flow.
    fn anybody(&self) -> u64 {
        let late = self.before.map_or(0, |strays| strays.late_beyond.0);
        late + self.all().map(|strays| strays.anybody).sum::<u64>()
    }

    /// Packets by flow that may be of this epoch, and are counted in none: late ones of this, early
    /// ones, and those that left in time and seemed late for the epoch before, under another mark.
    fn uncounted(&self) -> HashMap<Flow, u64> {
        let mut uncounted = self.now.late.clone();
        let late = self.before.into_iter().flat_map(|strays| &strays.late);
        let late = late.map(|(&flow, &packets)| (flow, packets));
        let early = self.with_its_bit.into_iter().flat_map(EpochStrays::early);
        for (flow, packets) in late.chain(early) {
            *uncounted.entry(flow).or_default() += packets;
        }
        uncounted
    }

    /// What flows have too many, and what they may have: packets that no sketch holds may be
    /// others', translated.
    fn perhaps_too_many<'s>(
        &self,
        surplus: &'s [Surplus],
        uncounted: &HashMap<Flow, u64>,
        entered: &Entered<'_>,
    ) -> Cow<'s, [Surplus]> {
        let mut more = uncounted.clone();
        for (&flow, packets) in self.all().flat_map(|strays| &strays.misfit) {
            *more.entry(flow).or_default() += packets;
        }
        translation::with_more(surplus, more, entered)
    }

    /// Why losses are not known where packets may have been of any flow.
    pub(super) fn causes(&self) -> impl Iterator<Item = &Cause> {
        let late = self.before.into_iter().flat_map(|strays| &strays.late_beyond.1);
        self.all().flat_map(|strays| &strays.causes).chain(late)
    }
}

/// The flows' numbers where late packets of the epoch are counted as having left.
///
/// Where only some flows are known, late packets of the others show nothing.
fn without_late<'a>(
    nets: &'a [Net],
    late: &HashMap<Flow, Late>,
    all_known: bool,
) -> Cow<'a, [Net]> {
    if late.is_empty() {
        return Cow::Borrowed(nets);
    }
    let mut late = late.clone();
    let mut less = |net: &Net| {
        let Late { heavy, light } = late.remove(&net.flow).unwrap_or_default();
        Net { heavy: net.heavy - heavy, light: net.light - light, ..*net }
    };
    let mut nets: Vec<Net> = nets.iter().map(&mut less).collect();
    let others = late.into_iter().filter(|_| all_known);
    nets.extend(others.map(|(flow, Late { heavy, light })| {
        let at_least = false;
        Net { flow, heavy: -heavy, light: -light, at_least }
    }));
    Cow::Owned(nets)
}

/// What became of the packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Explained {
    pub(super) loss: Vec<Loss>,
    pub(super) surplus: Vec<Surplus>,
    pub(super) rewritten: Vec<Rewritten>,
    /// Flows with packets too many that are not known to have entered: what they have may be
    /// others', translated, also where `rewritten` has it.
    pub(super) not_entered: Vec<Surplus>,
    /// Whether packets of unknown flows may explain losses.
    pub(super) is_bounded: bool,
    /// Whether they may explain every loss that there was, so that nothing is known of any.
    pub(super) is_hidden: bool,
    /// Whether flows and numbers are uncertain altogether.
    is_partial: bool,
}

impl Explained {
    /// Of flows from an encoder that came out partial: every number is as uncertain as the next.
    pub(super) fn partial(nets: &[Net]) -> Self {
        let loss = nets.iter().filter_map(|net| net.loss(true)).collect();
        let surplus = nets.iter().filter_map(|net| net.surplus(true)).collect();
        Self { loss, surplus, is_partial: true, ..Self::default() }.sorted()
    }

    /// Of flows that are known, which are all where `all_known` and there are no `sets` of flows
    /// that can't be distinguished.
    pub(super) fn exact(
        nets: &[Net],
        entered: &Entered<'_>,
        strays: &Doubts<'_>,
        all_known: bool,
        sets: bool,
    ) -> Self {
        let mut explained = Self::default();
        let uncounted = strays.uncounted();
        for net in without_late(nets, &strays.now.of_epoch, all_known).iter() {
            let uncounted = uncounted.get(&net.flow).copied().unwrap_or(0);
            explained.add(net, entered, strays.may_be_marked(&net.flow), uncounted);
        }
        let Self { loss, surplus, rewritten, not_entered, .. } = &mut explained;
        let may_be_others = |of: &&Surplus| of.stranger || !entered.of(&of.flow).is_entered();
        not_entered.extend(surplus.iter().filter(may_be_others));
        rewritten.extend(uncounted.iter().map(|(&flow, &packets)| {
            let (from, to, what) = (flow, Some(flow), Change::Epoch);
            Rewritten { from, to, packets, what }
        }));
        let too_many = strays.perhaps_too_many(surplus, &uncounted, entered);
        rewritten.extend(translation::set_aside(loss, &too_many, entered, &uncounted, sets));
        // What seems too many may have entered, and stood only for what others may have become.
        let perhaps: HashSet<Flow> =
            nets.iter().filter(|net| net.at_least).map(|net| net.flow).collect();
        surplus.retain(|surplus| !perhaps.contains(&surplus.flow));
        let anybody = strays.anybody();
        if anybody > 0 && !loss.is_empty() {
            for loss in &mut *loss {
                (loss.lost, loss.at_least) = (loss.lost.saturating_sub(anybody), true);
            }
            loss.retain(|loss| loss.lost > 0);
            explained.is_bounded = true;
            explained.is_hidden = explained.loss.is_empty();
        }
        explained.sorted()
    }

    /// Flows of which more packets left than entered, at least under one mark.
    pub(super) fn excess(&self) -> HashSet<Flow> {
        let surplus = self.surplus.iter().filter(|_| !self.is_partial);
        let marked = self.rewritten.iter().filter(|of| of.what == Change::Mark);
        surplus.map(|surplus| surplus.flow).chain(marked.map(|of| of.from)).collect()
    }

    /// Adds a flow, of which packets left under other marks where `marked`, and so many may be of
    /// this epoch that are counted in none.
    fn add(&mut self, net: &Net, entered: &Entered<'_>, marked: bool, uncounted: u64) {
        let (few, many) = net.parts();
        let twice = few.min(many);
        let moved = if marked { few } else { twice };
        if moved > 0 {
            let (from, to) = (net.flow, Some(net.flow));
            self.rewritten.push(Rewritten { from, to, packets: moved, what: Change::Mark });
        }
        let lost = few.saturating_sub(moved + uncounted);
        let loss = net.loss(false).filter(|_| lost > 0);
        self.loss.extend(loss.map(|loss| Loss {
            lost,
            at_least: loss.at_least || moved + uncounted > 0,
            ..loss
        }));
        let surplus = net.surplus(false).filter(|_| many > twice);
        self.surplus.extend(surplus.map(|surplus| Surplus {
            packets: many - twice,
            partial: uncounted > 0,
            stranger: entered.of(&net.flow).is_stranger(),
            ..surplus
        }));
    }

    fn sorted(mut self) -> Self {
        self.loss.sort_by(|a, b| b.lost.cmp(&a.lost).then(a.flow.cmp(&b.flow)));
        self.surplus.sort_by(|a, b| b.packets.cmp(&a.packets).then(a.flow.cmp(&b.flow)));
        self.rewritten.sort_by(|a, b| b.packets.cmp(&a.packets).then(a.from.cmp(&b.from)));
        self
    }
}
