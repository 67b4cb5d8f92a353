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
//! * Too many of a flow that is known not to have entered: a stranger, who hides no loss of its
//!   own.

use super::entered::Entered;
use super::translation;
use crate::report::{Change, Flow, Loss, LossClass, Rewritten, Surplus};

/// What a flow has too few of in the delta encoders; negative where it has too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Net {
    pub(super) flow: Flow,
    /// In the delta HL encoder.
    pub(super) heavy: i64,
    /// In the delta LL encoder.
    pub(super) light: i64,
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
        let loss = Loss { flow: self.flow, lost, class, partial, at_least: false };
        (lost > 0).then_some(loss)
    }

    /// What the flow has too many of.
    fn surplus(&self, partial: bool) -> Option<Surplus> {
        let (_, packets) = self.parts();
        let surplus = Surplus { flow: self.flow, packets, partial, stranger: false };
        (packets > 0).then_some(surplus)
    }
}

/// What became of the packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Explained {
    pub(super) loss: Vec<Loss>,
    pub(super) surplus: Vec<Surplus>,
    pub(super) rewritten: Vec<Rewritten>,
}

impl Explained {
    /// Of flows from an encoder that came out partial: every number is as uncertain as the next.
    pub(super) fn partial(nets: &[Net]) -> Self {
        let loss = nets.iter().filter_map(|net| net.loss(true)).collect();
        let surplus = nets.iter().filter_map(|net| net.surplus(true)).collect();
        Self { loss, surplus, rewritten: Vec::new() }.sorted()
    }

    /// Of flows that are known.
    pub(super) fn exact(nets: &[Net], entered: &Entered<'_>) -> Self {
        let mut explained = Self::default();
        for net in nets {
            explained.add(net, entered);
        }
        let Self { loss, surplus, rewritten } = &mut explained;
        rewritten.extend(translation::set_aside(loss, surplus, entered));
        explained.sorted()
    }

    fn add(&mut self, net: &Net, entered: &Entered<'_>) {
        let (few, many) = net.parts();
        let moved = few.min(many);
        if moved > 0 {
            let (from, to) = (net.flow, Some(net.flow));
            self.rewritten.push(Rewritten { from, to, packets: moved, what: Change::Mark });
        }
        let loss = net.loss(false).filter(|_| few > moved);
        self.loss.extend(loss.map(|loss| Loss { lost: few - moved, at_least: moved > 0, ..loss }));
        let surplus = net.surplus(false).filter(|_| many > moved);
        self.surplus.extend(surplus.map(|surplus| Surplus {
            packets: many - moved,
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
