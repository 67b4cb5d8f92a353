//! Packet loss detection: what entered the network minus what left it.
//!
//! Heavy-hitter candidates are in the HH encoder upstream but in the HL encoder downstream, so the
//! HH flowset of every edge is put into the upstream HL encoder (as it comes in, see `decode`)
//! before the two are subtracted. A flow that is missing there would look as if it had only left
//! the network, and one too many as if it had been lost.
//!
//! Where an HH encoder does not decode completely, what came out of it is put in all the same. The
//! delta HL encoder then holds of each flow what it would, less what that HH encoder holds of the
//! flow and did not give: encoders are sums over flows, and what one flow lacks is in no other's
//! number. So, if the delta decodes completely, the numbers of flows of which nothing is left in
//! any HH encoder are exact (`ingress` says of which that is known); of
//! flows of which none came out, what is too few is a lower bound; of the others nothing is known.
//! Encoders count as `blocked`, since not all losses are known.
//!
//! Flows that share a bucket in every array are never peeled. Where they are all that is left of a
//! delta encoder, it counts as decoded: every packet is accounted for, by flow or by such a set,
//! and where edges count packets by hierarchy, `balance` checks that. A translated flow may hide
//! in a set, from which the number of its packets can't be known: see `translation`. What a
//! flow has in one encoder counts as a set's, too, where it may be among those of a set in the
//! other.

use std::collections::HashMap;

use calumma_chamelemon::{Attention, Layout};
use calumma_sketch::{
    Decoded, FermatSketch, FlowKey, HashFamily, Indistinct, Key, KeyKind, Part, WideKey,
};

use super::balance;
use super::entered::Entered;
use super::explain::{Doubts, Explained, Net};
use super::ingress::{Held, reinsert};
use super::input::{EdgeInput, EpochInput};
use super::load::Load;
use crate::report::{Cause, DecodeReport, DecodeState, IndistinctFlows, Loss, LossClass};

/// What the delta encoders hold.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Losses {
    pub(super) decode: DecodeReport,
    /// The flows in them.
    nets: Vec<Net>,
    /// Those with packets too few, most packets first, as they are before anything explains them.
    pub(super) loss: Vec<Loss>,
    /// What sets of flows that can't be told apart have too few of.
    pub(super) indistinct: Vec<IndistinctFlows>,
}

impl Losses {
    /// Nothing is known.
    fn unknown(hl: DecodeState, ll: DecodeState) -> Self {
        let decode = DecodeReport { hl, ll, hl_load_factor: None, ll_load_factor: None };
        Self { decode, nets: Vec::new(), loss: Vec::new(), indistinct: Vec::new() }
    }

    /// Nothing is known, since the epoch is unsound.
    pub(super) fn skipped(attention: &Attention) -> Self {
        Self::unknown(DecodeState::Skipped, or_absent(attention, DecodeState::Skipped))
    }

    /// Whether an encoder could not be emptied.
    fn is_partial(&self) -> bool {
        [self.decode.hl, self.decode.ll].contains(&DecodeState::Partial)
    }

    /// What became of the packets, given what entered.
    pub(super) fn explained(&self, entered: &Entered<'_>, strays: &Doubts<'_>) -> Explained {
        if self.is_partial() {
            Explained::partial(&self.nets)
        } else {
            let all_known = self.decode.hl == DecodeState::Complete;
            let sets = !self.indistinct.is_empty();
            Explained::exact(&self.nets, entered, strays, all_known, sets)
        }
    }

    /// Why they can't be right; nothing where they may.
    pub(super) fn contradiction(&self, input: &EpochInput) -> Option<Cause> {
        balance::contradiction(input, &self.decode, &self.nets, &self.indistinct)
    }
}

fn or_absent(attention: &Attention, state: DecodeState) -> DecodeState {
    if attention.partition.ll == 0 { DecodeState::Absent } else { state }
}

/// The losses of a sound epoch.
pub(super) fn detect(
    layout: &Layout,
    family: &HashFamily,
    attention: &Attention,
    edges: &[EdgeInput],
) -> Losses {
    match layout.keys {
        KeyKind::Ipv4 => detect_by::<FlowKey>(layout, family, attention, edges),
        KeyKind::Dual => detect_by::<WideKey>(layout, family, attention, edges),
    }
}

/// The losses of a sound epoch, by the deployment's kind of key.
fn detect_by<K: Key>(
    layout: &Layout,
    family: &HashFamily,
    attention: &Attention,
    edges: &[EdgeInput],
) -> Losses {
    let partition = attention.partition;
    let hl = Delta::<K>::decode(delta_hl(layout, &partition.hl_part(), edges), family);
    let ll = (partition.ll > 0)
        .then(|| Delta::<K>::decode(delta_ll(layout, &partition.ll_part(), edges), family));

    let blocked: Vec<&EdgeInput> =
        edges.iter().filter(|edge| edge.hh_state() != DecodeState::Complete).collect();
    let states = [Some(hl.state), ll.as_ref().map(|ll| ll.state)];
    let heavy = hl.indistinct(LossClass::Heavy);
    let light = ll.iter().flat_map(|ll| ll.indistinct(LossClass::Light));
    let mut indistinct: Vec<_> = heavy.into_iter().chain(light).collect();
    let of_sets = [
        hl.left(|| delta_hl(layout, &partition.hl_part(), edges), family),
        ll.as_ref()
            .and_then(|ll| ll.left(|| delta_ll(layout, &partition.ll_part(), edges), family)),
    ];
    if !blocked.is_empty() {
        let ll_state = or_absent(attention, DecodeState::Blocked);
        let mut losses = Losses::unknown(DecodeState::Blocked, ll_state);
        if states.into_iter().flatten().all(|state| state == DecodeState::Complete) {
            let light = ll.map(|ll| ll.decoded.into_flowset()).unwrap_or_default();
            losses.nets = certain(family, &blocked, hl.decoded.flowset(), &light);
            losses.nets.retain(|net| !may_be_among::<K>(net, &of_sets, family));
        }
        return losses;
    }

    let decode = DecodeReport {
        hl: hl.state,
        ll: ll.as_ref().map_or(DecodeState::Absent, |ll| ll.state),
        hl_load_factor: Some(hl.load_factor),
        ll_load_factor: ll.as_ref().map(|ll| ll.load_factor),
    };
    let ll_flowset = ll.map(|ll| ll.decoded.into_flowset()).unwrap_or_default();
    let mut nets = nets(hl.decoded.flowset(), &ll_flowset);
    for net in nets.extract_if(.., |net| may_be_among::<K>(net, &of_sets, family)) {
        let parts = [(net.heavy, LossClass::Heavy), (net.light, LossClass::Light)];
        let parts = parts.into_iter().filter(|(packets, _)| *packets != 0);
        indistinct.extend(parts.map(|(packets, class)| IndistinctFlows { packets, class }));
    }
    let mut losses = Losses { decode, nets, loss: Vec::new(), indistinct };
    let partial = losses.is_partial();
    losses.loss = losses.nets.iter().filter_map(|net| net.loss(partial)).collect();
    losses.loss.sort_by(|a, b| b.lost.cmp(&a.lost).then(a.flow.cmp(&b.flow)));
    losses
}

const SAME: &str = "the frames of a deployment have its layout";

/// Everything that entered less everything that left as HL or HH candidate.
fn delta_hl<K: Key>(layout: &Layout, part: &Part, edges: &[EdgeInput]) -> FermatSketch<K> {
    let mut delta = FermatSketch::new(layout.shape(part.len()));
    for upstream in edges.iter().filter_map(|edge| edge.decoded.as_ref()?.upstream_hl()) {
        delta.add(upstream.get().expect(SAME)).expect(SAME);
    }
    subtract_downstream(&mut delta, part, edges);
    delta
}

/// The same of LL candidates.
fn delta_ll<K: Key>(layout: &Layout, part: &Part, edges: &[EdgeInput]) -> FermatSketch<K> {
    let mut delta = FermatSketch::new(layout.shape(part.len()));
    for side in edges.iter().filter_map(|edge| edge.ingress.as_ref()) {
        let upstream = side.upstream.get::<K>().expect(SAME);
        delta.add(&upstream.encoder.part(part)).expect(SAME);
    }
    subtract_downstream(&mut delta, part, edges);
    delta
}

fn subtract_downstream<K: Key>(delta: &mut FermatSketch<K>, part: &Part, edges: &[EdgeInput]) {
    for side in edges.iter().filter_map(|edge| edge.egress.as_ref()) {
        let downstream = side.downstream.get::<K>().expect(SAME);
        delta.subtract(&downstream.part(part)).expect(SAME);
    }
}

/// A decoded delta encoder.
struct Delta<K> {
    decoded: Decoded<K>,
    state: DecodeState,
    load_factor: f64,
}

impl<K: Key> Delta<K> {
    fn decode(sketch: FermatSketch<K>, family: &HashFamily) -> Self {
        let load = Load::of(&sketch);
        let decoded = sketch.decode(family);
        if decoded.is_exact() {
            // At least two flows to a set.
            let flows = decoded.flowset().len() + 2 * decoded.indistinct().len();
            let load_factor = load.exact(flows);
            Self { decoded, state: DecodeState::Complete, load_factor }
        } else {
            Self { decoded, state: DecodeState::Partial, load_factor: load.estimated() }
        }
    }
}

impl<K: Key> Delta<K> {
    /// The sets of flows that can't be told apart in the encoder of a class.
    fn indistinct(&self, class: LossClass) -> Vec<IndistinctFlows> {
        let sets = self.decoded.indistinct().iter();
        sets.map(|&Indistinct { packets }| IndistinctFlows { packets, class }).collect()
    }

    /// What is left of the encoder without the flows that came out, where those are sets.
    fn left(
        &self,
        encoder: impl FnOnce() -> FermatSketch<K>,
        family: &HashFamily,
    ) -> Option<FermatSketch<K>> {
        (!self.decoded.indistinct().is_empty()).then(|| {
            let mut left = encoder();
            reinsert(&mut left, self.decoded.flows(), family, -1);
            left
        })
    }
}

/// Whether a flow may be one of the sets of either encoder.
fn may_be_among<K: Key>(
    net: &Net,
    of_sets: &[Option<FermatSketch<K>>; 2],
    family: &HashFamily,
) -> bool {
    let left = of_sets.iter().flatten();
    let among = |left: &FermatSketch<K>| {
        net.flow.key().is_none_or(|key: K| left.empty_arrays(&family.hash(&key)) == 0)
    };
    left.into_iter().any(among)
}

/// The flows of both encoders.
fn nets<K: Key>(hl: &HashMap<K, i64>, ll: &HashMap<K, i64>) -> Vec<Net> {
    let only_light = ll.keys().filter(|flow| !hl.contains_key(flow));
    let net = |key: &K| Net {
        flow: key.into(),
        heavy: hl.get(key).copied().unwrap_or(0),
        light: ll.get(key).copied().unwrap_or(0),
        at_least: false,
    };
    hl.keys().chain(only_light).map(net).collect()
}

/// Those of the flows in both encoders of which something is known although the HH encoders of
/// `blocked` did not give all that they hold.
fn certain<K: Key>(
    family: &HashFamily,
    blocked: &[&EdgeInput],
    hl: &HashMap<K, i64>,
    ll: &HashMap<K, i64>,
) -> Vec<Net> {
    let held = |key: &K| {
        let hashes = family.hash(key);
        let of_edges = blocked.iter().map(|edge| {
            let (side, decoded) = (edge.ingress.as_ref()?, edge.decoded.as_ref()?);
            Some(decoded.holds_all_of(side, key, &hashes))
        });
        of_edges.map(|held| held.unwrap_or(Held::Unknown)).max().unwrap_or(Held::All)
    };
    let known = nets(hl, ll).into_iter().filter_map(|net| match held(&net.flow.key()?) {
        Held::All => Some(net),
        Held::AtLeast => Some(Net { at_least: true, ..net }),
        Held::Unknown => None,
    });
    known.collect()
}
