//! Tower + Fermat in the accumulation tasks: classifier and HH encoder of one epoch under the
//! threshold at which the controller settles, for keys of 13 bytes and of four.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use calumma_baselines::{Fermat, Memory};
use calumma_chamelemon::Layout;
use calumma_sketch::estimate::Accumulation;
use calumma_sketch::{FermatSketch, FlowKey, HashFamily, HashKey, Hashes, Level, TowerSketch};

use super::answers::Answers;
use super::epochs::Pair;

/// How the memory is divided.
pub(super) struct Parts {
    classifier: Vec<Level>,
    /// The encoder that it has, empty.
    encoder: Encoder,
}

/// The HH encoder, by key.
#[derive(Clone)]
enum Encoder {
    Tuples(FermatSketch),
    Addresses(Fermat),
}

impl Parts {
    /// As [`Layout::within`] divides it, whatever the key.
    pub(super) fn within(memory: Memory) -> Self {
        let layout = Layout::within(memory.bytes);
        let buckets = layout.upstream_shape().total_buckets();
        let encoder = Encoder::of(memory, buckets * 4 * layout.arithmetic.words());
        Self { classifier: layout.classifier, encoder }
    }

    /// The paper's classifier beside as much for the encoder as 2500 buckets are of 200 KB.
    pub(super) fn of_the_paper(memory: Memory) -> Self {
        let share = if memory.key == FlowKey::LEN { 4 } else { 10 };
        let encoder = Encoder::of(memory, memory.bytes / share);
        let counters = (memory.bytes - encoder.bytes()) / 4;
        let classifier = vec![Level::new(8, 2 * counters as u32), Level::new(16, counters as u32)];
        Self { classifier, encoder }
    }
}

impl Encoder {
    /// An empty encoder of at most `bytes` for the keys of `memory`.
    fn of(memory: Memory, bytes: usize) -> Self {
        if memory.key < FlowKey::LEN {
            return Self::Addresses(Fermat::new(bytes / Fermat::BUCKET, 1));
        }
        let layout = Layout::default();
        let buckets = bytes / (4 * layout.arithmetic.words()) / layout.arrays as usize;
        Self::Tuples(FermatSketch::new(layout.shape(buckets as u32)))
    }

    /// Buckets in all arrays.
    fn buckets(&self) -> usize {
        match self {
            Self::Tuples(sketch) => sketch.shape().total_buckets(),
            Self::Addresses(sketch) => sketch.buckets(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Tuples(_) => self.buckets() * 4 * Layout::default().arithmetic.words(),
            Self::Addresses(sketch) => sketch.bytes(),
        }
    }

    fn encode(&mut self, key: &FlowKey, hashes: &Hashes) {
        match self {
            Self::Tuples(sketch) => sketch.encode(&sketch.whole(), key, hashes),
            Self::Addresses(sketch) => sketch.insert(key),
        }
    }

    /// The flows and their packets, and whether these are all.
    fn decode(self, family: &HashFamily) -> (Vec<(FlowKey, i64)>, bool) {
        match self {
            Self::Tuples(sketch) => {
                let decoded = sketch.decode(family);
                (decoded.flows().to_vec(), decoded.is_complete())
            }
            Self::Addresses(sketch) => {
                let (flows, complete) = sketch.decode();
                (flows.into_iter().collect(), complete)
            }
        }
    }
}

/// The load at which the controller keeps the HH encoder, in flows a bucket.
const LOAD: f64 = 0.7;

/// What both epochs' classifier and HH encoder answer.
pub(super) fn answers(parts: &Parts, pair: &Pair, seed: u64) -> Answers {
    let family = Arc::new(HashFamily::new(&HashKey::from_bytes([seed as u8; 32])));
    let [first, second] = [&pair.first.packets, &pair.second.packets]
        .map(|packets| recorded(&family, parts, packets));
    let size = |key: &FlowKey| (*key, first.size_of(key).estimate.value);
    let hitters = first.heavy_hitters(pair.hitter.into()).into_iter();
    let changes = second.heavy_changes(&first, pair.change.into()).into_iter();
    Answers {
        sizes: Some(pair.first.flows.keys().map(size).collect()),
        hitters: Some(hitters.map(|(key, size)| (key, size as f64)).collect()),
        changes: Some(changes.map(|change| change.0).collect()),
        distribution: Some(first.distribution().to_vec()),
        entropy: Some(first.entropy()),
        cardinality: Some(first.cardinality().value),
    }
}

/// What an epoch's classifier and HH encoder say of it, under the threshold at which the controller
/// settles.
fn recorded(family: &Arc<HashFamily>, parts: &Parts, packets: &[FlowKey]) -> Accumulation {
    let levels = &parts.classifier;
    let mut tower = TowerSketch::new(levels).expect("a valid classifier");
    let mut encoder = parts.encoder.clone();
    let widest = levels.iter().map(Level::max).max().unwrap_or(1);
    let t_h = threshold(family, tower.clone(), encoder.buckets(), packets).min(widest - 1);
    for key in packets {
        let hashes = family.hash(key);
        if tower.insert(&hashes) >= t_h {
            encoder.encode(key, &hashes);
        }
    }
    let (flows, complete) = encoder.decode(family);
    Accumulation::from_flowset(Arc::clone(family), tower, t_h, &flows, complete)
        .with_packets(packets.len() as u64)
}

/// T_h as the controller's attention ends up with it on traffic that goes on alike: the lowest
/// under which no more flows are heavy-hitter candidates than the encoder should hold.
fn threshold(
    family: &HashFamily,
    mut tower: TowerSketch,
    buckets: usize,
    packets: &[FlowKey],
) -> u32 {
    let mut reached: HashMap<FlowKey, u32> = HashMap::new();
    for key in packets {
        // The last packet of a flow has the largest value: counters only grow.
        reached.insert(*key, tower.insert(&family.hash(key)));
    }
    let mut reached: Vec<u32> = reached.into_values().collect();
    reached.sort_unstable_by_key(|&size| Reverse(size));
    reached.get((buckets as f64 * LOAD) as usize).map_or(1, |size| size.saturating_add(1))
}
