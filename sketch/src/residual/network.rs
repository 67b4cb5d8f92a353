//! Decoding the residuals of all nodes of a network at once.
//!
//! What a table holds, or what one residual gives away, is taken out of every other residual that
//! may hold it, by its filter and by where the flow can have passed. That makes other flows alone
//! in their buckets, and so on until nothing changes. What is taken out of a residual that had less
//! or more of the flow leaves a remainder, which is a flow like any other and decodes: by itself in
//! [`Fermat`](super::Fermat) residuals, and in [`FlowRadar`](super::FlowRadar) ones only where the
//! flow was not there at all.
//!
//! A residual that comes out empty has been accounted for to the last packet and byte: its counts
//! are those of its own node, whatever others say. Of one that does not, nothing is certain, and
//! nothing is given.
//!
//! The work is a list of buckets that changed, over all nodes: linear in flows and in nodes where
//! each can have passed.

use std::collections::{HashMap, VecDeque};

use super::{ARRAYS, Amount, Counts, Residual};
use crate::hash::{HashFamily, Hashes};
use crate::key::Key;

/// Flows that may come out of a residual for each of its buckets. A decodable one needs fewer than
/// one; where hostile contents keep up an exchange for ever, it ends.
const EXTRACTIONS_PER_BUCKET: usize = 4;

/// What came of a node's residual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<K> {
    /// Whether all that was in it is in `flows`.
    pub is_complete: bool,
    /// Its flows and what the node counted of them since they have no entry, each once, in the
    /// order of keys; none where it is not complete.
    pub flows: Vec<(K, Counts)>,
    /// Buckets that could not be emptied, over all arrays.
    pub remaining: usize,
}

/// Decodes `residuals`, one for each node that has delivered its own.
///
/// `known` are the flows that tables hold: the node, by its position among the residuals or beyond
/// them, the flow, and what is counted there. `places` says where packets of a flow can have
/// passed, by adding nodes to a list; who does not know names all. A node that is not named and has
/// the flow all the same still decodes, if it has few of these.
pub fn decode<K: Key, R: Residual<K>>(
    family: &HashFamily,
    residuals: Vec<Option<R>>,
    known: &[(usize, K, Counts)],
    places: impl Fn(&K, &mut Vec<usize>),
) -> Vec<Option<Decoded<K>>> {
    let mut decoding = Decoding {
        family,
        nodes: residuals.into_iter().map(|residual| residual.map(Node::new)).collect(),
        flows: Vec::new(),
        numbers: HashMap::new(),
        places,
        listed: Vec::new(),
    };
    decoding.flows.reserve(known.len());
    decoding.numbers.reserve(known.len());
    for (node, key, counts) in known {
        decoding.learn(*node, *key, &family.hash(key), *counts);
    }
    decoding.run();
    let flows = &decoding.flows;
    decoding.nodes.into_iter().map(|node| node.map(|node| node.finish(flows))).collect()
}

struct Node<R> {
    residual: R,
    /// Buckets to look at, the first to change in front.
    waiting: VecDeque<u32>,
    is_waiting: Vec<bool>,
    /// What was taken out, flows by number, some more than once.
    taken: Vec<(u32, Amount)>,
    /// Extractions left.
    budget: usize,
}

impl<R> Node<R> {
    fn new<K: Key>(residual: R) -> Self
    where
        R: Residual<K>,
    {
        let buckets = ARRAYS * residual.shape().buckets;
        Self {
            residual,
            waiting: (0..buckets as u32).collect(),
            is_waiting: vec![true; buckets],
            taken: Vec::new(),
            budget: EXTRACTIONS_PER_BUCKET * buckets,
        }
    }

    /// Takes so much of a flow out.
    fn take<K: Key>(&mut self, number: u32, key: &K, hashes: &Hashes, amount: Amount)
    where
        R: Residual<K>,
    {
        let Some(buckets) = self.residual.add(key, hashes, amount.negated()) else { return };
        self.taken.push((number, amount));
        for at in buckets {
            if !std::mem::replace(&mut self.is_waiting[at as usize], true) {
                self.waiting.push_back(at);
            }
        }
    }

    fn finish<K: Key>(mut self, flows: &[K]) -> Decoded<K>
    where
        R: Residual<K>,
    {
        let remaining = self.residual.remaining();
        let partial = Decoded { is_complete: false, flows: Vec::new(), remaining };
        if remaining > 0 || self.budget == 0 || !self.residual.is_sound() {
            return partial;
        }
        self.taken.sort_unstable_by_key(|&(number, _)| number);
        let mut decoded: Vec<(K, Counts)> = Vec::new();
        for one in self.taken.chunk_by(|a, b| a.0 == b.0) {
            let sum = one.iter().fold(Amount::default(), |sum, (_, amount)| sum.plus(*amount));
            let counts = Counts { packets: sum.packets as u64, bytes: sum.bytes as u64 };
            match (sum.packets, sum.bytes) {
                (0, 0) => {}
                (1.., 0..) => decoded.push((flows[one[0].0 as usize], counts)),
                // No packets were put in that count so.
                _ => return partial,
            }
        }
        decoded.sort_unstable_by_key(|&(key, _)| key);
        Decoded { is_complete: true, flows: decoded, remaining: 0 }
    }
}

struct Decoding<'a, K, R, P> {
    family: &'a HashFamily,
    nodes: Vec<Option<Node<R>>>,
    /// All flows that are known, by number.
    flows: Vec<K>,
    numbers: HashMap<K, u32>,
    places: P,
    /// Filled anew for each flow.
    listed: Vec<usize>,
}

impl<K: Key, R: Residual<K>, P: Fn(&K, &mut Vec<usize>)> Decoding<'_, K, R, P> {
    /// Takes a flow out of all residuals but that of `node`, unless it is known already. Gives its
    /// number.
    fn learn(&mut self, node: usize, key: K, hashes: &Hashes, counts: Counts) -> u32 {
        let next = self.flows.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number < next {
            return number;
        }
        self.flows.push(key);
        self.listed.clear();
        (self.places)(&key, &mut self.listed);
        for &place in self.listed.iter().filter(|&&place| place != node) {
            let Some(Some(other)) = self.nodes.get_mut(place) else { continue };
            if other.residual.may_hold(hashes) {
                other.take(number, &key, hashes, Amount::of(counts));
            }
        }
        number
    }

    /// Looks at buckets that changed until none is left, node by node.
    fn run(&mut self) {
        let mut is_over = false;
        while !is_over {
            is_over = true;
            for at in 0..self.nodes.len() {
                is_over &= !self.run_node(at);
            }
        }
    }

    /// Whether a flow came out.
    fn run_node(&mut self, at: usize) -> bool {
        let mut found = false;
        while let Some(Some(node)) = self.nodes.get_mut(at)
            && let Some(bucket) = node.waiting.pop_front()
        {
            node.is_waiting[bucket as usize] = false;
            let Some(alone) = node.residual.alone(self.family, bucket) else { continue };
            if node.budget == 0 {
                node.waiting.clear();
                break;
            }
            node.budget -= 1;
            found = true;
            let (key, hashes, amount) = (alone.key, alone.hashes, alone.amount);
            // A remainder of nothing that was known is a bucket of several flows, or hostile.
            let counts =
                Counts { packets: amount.packets.max(0) as u64, bytes: amount.bytes.max(0) as u64 };
            let number = self.learn(at, key, &hashes, counts);
            if let Some(Some(node)) = self.nodes.get_mut(at) {
                node.take(number, &key, &hashes, amount);
            }
        }
        found
    }
}
