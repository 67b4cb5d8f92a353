//! FCM with top-k (Song and others, CoNEXT 2020): the heavy part of Elastic over two 16-ary trees
//! of counters of 8, 16 and 32 bits, in which a counter that overflows goes on in its parent.

use std::collections::BTreeMap;

use calumma_sketch::FlowKey;

use crate::hash::{Hash, Hashed};
use crate::heavy_part::{Heavy, HeavyPart};
use crate::sizes::{Counters, entropy_of, linear_counting, sizes_behind, with_flows};
use crate::{Cardinality, Entropy, Insert, Memory, Query, Sizes, Tracked};

/// Trees.
const TREES: usize = 2;
/// Children of a node.
const ARITY: usize = 16;
/// Stages of a tree, and bytes of a counter on each, leaves first.
const STAGES: usize = 3;
const WIDTHS: [usize; STAGES] = [1, 2, 4];

/// The value of a counter that has overflowed; it stands for one less.
const fn mark(stage: usize) -> u32 {
    u32::MAX >> (32 - 8 * WIDTHS[stage])
}

/// A tree, one list of counters a stage.
#[derive(Clone, Debug)]
struct Tree {
    leaves: Vec<u8>,
    nodes: Vec<u16>,
    roots: Vec<u32>,
}

impl Tree {
    /// A tree of at most `bytes`, with leaves for whole subtrees.
    fn new(bytes: usize) -> Self {
        // A root has 16 children and 256 leaves.
        let subtree = WIDTHS[2] + ARITY * WIDTHS[1] + ARITY * ARITY * WIDTHS[0];
        let roots = (bytes / subtree).max(1);
        Self {
            leaves: vec![0; roots * ARITY * ARITY],
            nodes: vec![0; roots * ARITY],
            roots: vec![0; roots],
        }
    }

    fn bytes(&self) -> usize {
        (0..STAGES).map(|stage| self.len(stage) * WIDTHS[stage]).sum()
    }

    fn leaves(&self) -> usize {
        self.leaves.len()
    }

    fn len(&self, stage: usize) -> usize {
        self.leaves.len() / ARITY.pow(stage as u32)
    }

    #[inline]
    fn get(&self, stage: usize, at: usize) -> u32 {
        match stage {
            0 => self.leaves[at].into(),
            1 => self.nodes[at].into(),
            _ => self.roots[at],
        }
    }

    /// Sets a counter to a value that is not above the stage's mark.
    #[inline]
    fn set(&mut self, stage: usize, at: usize, value: u32) {
        match stage {
            0 => self.leaves[at] = value as u8,
            1 => self.nodes[at] = value as u16,
            _ => self.roots[at] = value,
        }
    }

    #[inline]
    fn add(&mut self, leaf: usize, packets: u32) {
        let (mut at, mut left) = (leaf, packets);
        for stage in 0..STAGES {
            let (full, value) = (mark(stage), self.get(stage, at));
            let room = if value == full { 0 } else { full - 1 - value };
            if left <= room && value != full {
                self.set(stage, at, value + left);
                return;
            }
            self.set(stage, at, full);
            left -= room;
            at /= ARITY;
        }
    }

    #[inline]
    fn query(&self, leaf: usize) -> u32 {
        let (mut at, mut sum) = (leaf, 0_u32);
        for stage in 0..STAGES {
            let value = self.get(stage, at);
            if value != mark(stage) {
                return sum.saturating_add(value);
            }
            sum = sum.saturating_add(mark(stage) - 1);
            at /= ARITY;
        }
        sum
    }

    /// The tree as counters that reach as high as they need: leaves that overflowed into one node
    /// make one counter, whose value is all of theirs. By the number of leaves.
    fn virtual_counters(&self) -> BTreeMap<usize, Vec<u32>> {
        let mut done: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        // Leaves below each counter of the stage that go on there, and their packets.
        let mut going_on = vec![(1, 0); self.leaves()];
        for stage in 0..STAGES {
            let parents = if stage + 1 < STAGES { self.len(stage + 1) } else { 0 };
            let mut above = vec![(0, 0_u32); parents];
            for (at, (leaves, below)) in going_on.into_iter().enumerate() {
                let value = self.get(stage, at);
                match above.get_mut(at / ARITY) {
                    Some(parent) if value == mark(stage) => {
                        parent.0 += leaves;
                        parent.1 = parent.1.saturating_add(below).saturating_add(value - 1);
                    }
                    _ if leaves > 0 => {
                        done.entry(leaves).or_default().push(below.saturating_add(value));
                    }
                    _ => {}
                }
            }
            going_on = above;
        }
        done
    }
}

/// A heavy part over two trees.
#[derive(Clone, Debug)]
pub struct FcmTopK {
    heavy: HeavyPart,
    hash: Hash,
    trees: [Tree; TREES],
}

impl FcmTopK {
    /// An empty sketch that fills at most `memory`.
    pub fn new(memory: impl Into<Memory>, seed: u64) -> Self {
        let memory = memory.into();
        let heavy = HeavyPart::new(memory, seed);
        let tree = Tree::new(memory.bytes.saturating_sub(heavy.bytes()) / TREES);
        Self { heavy, hash: Hash::new(seed), trees: std::array::from_fn(|_| tree.clone()) }
    }

    #[inline]
    fn leaf(&self, hashed: Hashed, tree: usize) -> usize {
        hashed.index(tree as u64, self.trees[tree].leaves())
    }

    #[inline]
    fn light(&self, key: &FlowKey) -> u32 {
        let hashed = self.hash.of(key);
        (0..TREES)
            .map(|tree| self.trees[tree].query(self.leaf(hashed, tree)))
            .fold(u32::MAX, u32::min)
    }

    /// The flow's packets in both parts.
    #[inline]
    fn whole(&self, heavy: &Heavy) -> u32 {
        let light = if heavy.beyond { self.light(&heavy.key) } else { 0 };
        heavy.packets.saturating_add(light)
    }
}

impl Insert for FcmTopK {
    #[inline]
    fn insert(&mut self, key: &FlowKey) {
        if let Some((key, packets)) = self.heavy.insert(key) {
            let hashed = self.hash.of(&key);
            for tree in 0..TREES {
                let leaf = self.leaf(hashed, tree);
                self.trees[tree].add(leaf, packets);
            }
        }
    }

    fn bytes(&self) -> usize {
        self.heavy.bytes() + self.trees.iter().map(Tree::bytes).sum::<usize>()
    }
}

impl Query for FcmTopK {
    #[inline]
    fn query(&self, key: &FlowKey) -> u32 {
        let heavy = self.heavy.query(key);
        self.whole(&heavy)
    }
}

impl Tracked for FcmTopK {
    fn tracked(&self) -> Vec<(FlowKey, u32)> {
        self.heavy.flows().iter().map(|heavy| (heavy.key, self.whole(heavy))).collect()
    }
}

impl Cardinality for FcmTopK {
    fn cardinality(&self) -> f64 {
        let only_heavy = self.heavy.flows().iter().filter(|heavy| !heavy.beyond).count();
        let empty = |tree: &Tree| tree.leaves.iter().filter(|&&leaf| leaf == 0).count();
        let empty = self.trees.iter().map(empty).sum::<usize>() as f64 / TREES as f64;
        only_heavy as f64 + linear_counting(empty, self.trees[0].leaves())
    }
}

impl Sizes for FcmTopK {
    fn sizes(&self) -> Vec<(u64, f64)> {
        let tree = &self.trees[0];
        let counters: Vec<_> = tree
            .virtual_counters()
            .into_iter()
            .map(|(leaves, values)| Counters { leaves, values })
            .collect();
        let light = sizes_behind(&counters, tree.leaves());
        with_flows(light, self.tracked().into_iter().map(|flow| flow.1))
    }
}

impl Entropy for FcmTopK {
    fn entropy(&self) -> f64 {
        entropy_of(&self.sizes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_that_overflows_goes_on_in_its_parents_and_loses_no_packet() {
        let mut tree = Tree::new(4096);
        for packets in [1, 253, 1, 65_533, 5, 70_000] {
            tree.add(17, packets);
        }
        assert_eq!(tree.query(17), 254 + 1 + 65_533 + 5 + 70_000);
        tree.add(18, 300);
        // 18 has the same parents: what is above its leaf is shared.
        assert!(tree.query(18) > 70_000);
        let counters = tree.virtual_counters();
        assert_eq!(counters[&2], [254 + 1 + 65_533 + 5 + 70_000 + 300]);
        assert_eq!(counters[&1].len(), tree.leaves() - 2);
    }
}
