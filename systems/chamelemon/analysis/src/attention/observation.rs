//! What an epoch showed: all that a plan is made from.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::fmt;

use calumma_chamelemon::{Attention, Layout};
use calumma_sketch::{AnyKey, FlowKey, HashFamily, Key, TowerSketch, WideKey, estimate};

use super::candidates::Candidates;
use super::load;
use super::victims::{Victim, Victims};
use crate::analyse::{DecodedEpoch, DecodedIngress, EdgeInput};
use crate::report::{DecodeState, Loss, LossClass};

/// Most victim flows whose sizes are looked up: enough to know their distribution to a few percent.
const SAMPLE: usize = 1500;

/// Something that is worked out when first asked for: in most epochs it is not.
pub type Lazy<'a, T> = LazyCell<T, Box<dyn FnOnce() -> T + 'a>>;

/// How decoding of an encoder went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Encoder {
    /// Whether it was decoded.
    pub state: DecodeState,
    /// Flows over buckets: exact where it is complete, else estimated from its empty buckets.
    pub load_factor: Option<f64>,
}

impl Encoder {
    /// One that decoded.
    pub fn complete(load_factor: f64) -> Self {
        Self { state: DecodeState::Complete, load_factor: Some(load_factor) }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.state == DecodeState::Complete
    }

    /// Flows in it, given its buckets an array; where it is too full to count, nothing.
    pub(super) fn flows(&self, layout: &Layout, buckets: u32) -> Option<f64> {
        let countable = load::countable(layout, buckets);
        let known = self.load_factor.filter(|&load| self.is_complete() || load <= countable);
        known.map(|load| load::flows_at(layout, buckets, load))
    }

    /// Flows that it holds at least.
    pub(super) fn flows_at_least(&self, layout: &Layout, buckets: u32) -> Option<f64> {
        self.load_factor.map(|load| load::flows_at(layout, buckets, load))
    }
}

/// What one edge showed.
pub struct EdgeObservation<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its HH encoder.
    pub hh: Encoder,
    /// Packets that entered there.
    pub packets: u64,
    /// Flows that entered there, by linear counting.
    pub flows: Lazy<'a, f64>,
    /// Its HH candidates at any threshold.
    pub candidates: Lazy<'a, Candidates>,
}

impl fmt::Debug for EdgeObservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdgeObservation").field("name", &self.name).field("hh", &self.hh).finish()
    }
}

/// What an epoch showed.
pub struct Observation<'a> {
    /// The attention that it was measured under.
    pub attention: Attention,
    /// The edges whose ingress side came, all measured under that attention.
    pub edges: Vec<EdgeObservation<'a>>,
    /// Whether these are all edges.
    pub all_edges: bool,
    /// The delta HL encoder.
    pub hl: Encoder,
    /// The delta LL encoder.
    pub ll: Encoder,
    /// Victim flows that were decoded from the LL encoder only.
    pub light_only: f64,
    /// Packets lost in the network: what entered less what left; absent where the measurement is
    /// not whole.
    pub lost_packets: Option<u64>,
    /// The victim flows that were decoded, each for as many as it stands for; in part or none,
    /// where decoding failed.
    pub victims: Lazy<'a, Victims>,
}

impl fmt::Debug for Observation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation")
            .field("attention", &self.attention)
            .field("edges", &self.edges)
            .field("hl", &self.hl)
            .field("ll", &self.ll)
            .field("lost_packets", &self.lost_packets)
            .finish_non_exhaustive()
    }
}

impl<'a> Observation<'a> {
    /// What a decoded epoch showed. `None` where no edge delivered its ingress side, measured under
    /// the epoch's attention by all its lcores.
    pub fn of(epoch: &'a DecodedEpoch) -> Option<Self> {
        let family = epoch.family();
        let attention = *epoch.attention();
        let sides: Vec<Side<'a>> =
            epoch.edges().iter().filter_map(|edge| Side::of(edge, &attention)).collect();
        if sides.is_empty() {
            return None;
        }
        let edges = sides.iter().map(|side| {
            let Side { name, hh, classifier, packets } = *side;
            let complete = hh.hh_state() == DecodeState::Complete;
            EdgeObservation {
                name,
                hh: Encoder { state: hh.hh_state(), load_factor: hh.hh_load_factor() },
                packets,
                flows: LazyCell::new(Box::new(|| estimate::cardinality(classifier).value)),
                candidates: LazyCell::new(Box::new(move || {
                    let packets = hh.sizes().hh_packets().into_iter();
                    Candidates::new(classifier, attention.t_h, packets, complete)
                })),
            }
        });
        let edges = edges.collect();
        let decode = epoch.decode();
        let whole = decode.hl != DecodeState::Skipped;
        let lost = epoch.edges().iter().try_fold((0, 0), |(entered, left), edge| {
            let (ingress, egress) = (edge.ingress.as_ref()?, edge.egress.as_ref()?);
            Some((entered + ingress.packets_in, left + egress.packets_out))
        });
        let light = epoch.losses().iter().filter(|loss| loss.class == LossClass::Light).count();
        let all_edges = sides.len() == epoch.edges().len();
        Some(Self {
            attention,
            edges,
            all_edges,
            hl: Encoder { state: decode.hl, load_factor: decode.hl_load_factor },
            ll: Encoder { state: decode.ll, load_factor: decode.ll_load_factor },
            light_only: light as f64,
            lost_packets: lost
                .filter(|_| whole)
                .map(|(entered, left)| entered.saturating_sub(left)),
            victims: LazyCell::new(Box::new(move || {
                let (losses, rate) = (epoch.losses(), attention.sample_rate.as_f64());
                match sides.first().map(|side| side.hh.sizes().by_key()) {
                    Some(AnyKey::Dual(_)) => victims_of::<WideKey>(losses, &sides, rate, family),
                    _ => victims_of::<FlowKey>(losses, &sides, rate, family),
                }
            })),
        })
    }
}

/// An edge's ingress side.
#[derive(Clone, Copy)]
struct Side<'a> {
    name: &'a str,
    hh: &'a DecodedIngress,
    classifier: &'a TowerSketch,
    packets: u64,
}

impl<'a> Side<'a> {
    /// Where it came, and was measured under this attention.
    fn of(edge: &'a EdgeInput, attention: &Attention) -> Option<Self> {
        let (side, hh) = (edge.ingress.as_ref()?, edge.decoded.as_ref()?);
        let same = side.attention == *attention && hh.hh_state() != DecodeState::Skipped;
        let (name, packets) = (&edge.edge, side.packets_in);
        same.then_some(Self { name, hh, classifier: &side.classifier, packets })
    }
}

/// The victim flows and their sizes; where there are many, every so manieth.
///
/// Their sizes are what the classifier of the edge where they entered says, and that edge is one
/// where heavy-hitter candidates of the same source entered: at the others, a flow that never came
/// there would look as large as the mice it shares its counters with.
fn victims_of<K: Key>(
    losses: &[Loss],
    edges: &[Side<'_>],
    sample_rate: f64,
    family: &HashFamily,
) -> Victims {
    // The source address alone, which is the first third or so of a key's words: three or nine.
    let source =
        |key: &K| K::from_word_fn(|at| if at < K::WORDS / 2 { key.word(at) } else { 0 }, 0);
    let mut entered: HashMap<K, Vec<usize>> = HashMap::new();
    for (at, side) in edges.iter().enumerate() {
        let sizes = side.hh.sizes().by_key().get::<K>();
        for flow in sizes.into_iter().flat_map(|sizes| sizes.hh_flows()) {
            let edges = entered.entry(source(flow)).or_default();
            if edges.last() != Some(&at) {
                edges.push(at);
            }
        }
    }
    let everywhere: Vec<usize> = (0..edges.len()).collect();
    let stride = losses.len().div_ceil(SAMPLE).max(1);
    let victims = losses.iter().step_by(stride).filter_map(|loss| {
        let key: K = loss.flow.key()?;
        let hashes = family.hash(&key);
        let at = entered.get(&source(&key)).unwrap_or(&everywhere);
        let most = at.iter().map(|&at| edges[at].classifier.query(&hashes)).max();
        let lost = u32::try_from(loss.lost).unwrap_or(u32::MAX).max(1);
        let stands_for = match loss.class {
            LossClass::Heavy => 1.0,
            LossClass::Light => 1.0 / sample_rate,
        };
        let size = most.unwrap_or(1).max(lost);
        Some(Victim { size, lost, flows: stands_for * stride as f64 })
    });
    Victims(victims.collect())
}
