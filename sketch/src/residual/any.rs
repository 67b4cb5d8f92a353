//! A residual of either kind, where the kind is known at run time only.

use super::{ARRAYS, Alone, Amount, Counts, Fermat, FlowRadar, Mismatch, Residual, Shape};
use crate::hash::{HashColumns, HashFamily, Hashes};
use crate::key::Key;
use crate::simd::Isa;

/// Which residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Fermat`].
    Fermat,
    /// [`FlowRadar`].
    FlowRadar,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyResidual<K: Key> {
    /// Key fragments times packets.
    Fermat(Fermat<K>),
    /// Exclusive-ors of keys.
    FlowRadar(FlowRadar<K>),
}

/// What the residual within gives for an expression.
macro_rules! of_either {
    ($either:expr, $it:ident => $what:expr) => {
        match $either {
            AnyResidual::Fermat($it) => $what,
            AnyResidual::FlowRadar($it) => $what,
        }
    };
}

impl<K: Key> AnyResidual<K> {
    /// An empty one of a kind, with a filter of its own. It takes all its memory now.
    ///
    /// # Panics
    /// When it has no buckets, or more than 2^28 an array.
    pub fn new(kind: Kind, shape: Shape) -> Self {
        match kind {
            Kind::Fermat => Self::Fermat(Fermat::new(shape)),
            Kind::FlowRadar => Self::FlowRadar(FlowRadar::new(shape)),
        }
    }

    /// Which it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Fermat(_) => Kind::Fermat,
            Self::FlowRadar(_) => Kind::FlowRadar,
        }
    }
}

impl<K: Key> Residual<K> for AnyResidual<K> {
    fn shape(&self) -> Shape {
        of_either!(self, it => it.shape())
    }

    fn bytes(&self) -> usize {
        of_either!(self, it => it.bytes())
    }

    fn packets(&self) -> u64 {
        of_either!(self, it => it.packets())
    }

    #[inline(always)]
    fn insert(&mut self, key: &K, hashes: &Hashes, counts: Counts) {
        of_either!(self, it => it.insert(key, hashes, counts));
    }

    #[inline(always)]
    fn prefetch(&self, isa: impl Isa, hashes: &Hashes) {
        of_either!(self, it => it.prefetch(isa, hashes));
    }

    #[inline(always)]
    fn insert_burst(
        &mut self,
        isa: impl Isa,
        keys: &[K],
        hashes: &HashColumns,
        bytes: &[u32],
        chosen: u32,
    ) {
        of_either!(self, it => it.insert_burst(isa, keys, hashes, bytes, chosen));
    }

    fn merge(&mut self, other: &Self) -> Result<(), Mismatch> {
        match (self, other) {
            (Self::Fermat(it), Self::Fermat(other)) => it.merge(other),
            (Self::FlowRadar(it), Self::FlowRadar(other)) => it.merge(other),
            (it, other) => Err(Mismatch { left: it.shape(), right: other.shape() }),
        }
    }

    fn subtract(&mut self, other: &Self) -> Result<(), Mismatch> {
        match (self, other) {
            (Self::Fermat(it), Self::Fermat(other)) => it.subtract(other),
            (Self::FlowRadar(it), Self::FlowRadar(other)) => it.subtract(other),
            (it, other) => Err(Mismatch { left: it.shape(), right: other.shape() }),
        }
    }

    fn clear(&mut self) {
        of_either!(self, it => it.clear());
    }

    #[inline(always)]
    fn may_hold(&self, hashes: &Hashes) -> bool {
        of_either!(self, it => it.may_hold(hashes))
    }

    fn is_sound(&self) -> bool {
        of_either!(self, it => it.is_sound())
    }

    fn add(&mut self, key: &K, hashes: &Hashes, amount: Amount) -> Option<[u32; ARRAYS]> {
        of_either!(self, it => it.add(key, hashes, amount))
    }

    fn alone(&self, family: &HashFamily, at: u32) -> Option<Alone<K>> {
        of_either!(self, it => it.alone(family, at))
    }

    fn remaining(&self) -> usize {
        of_either!(self, it => it.remaining())
    }
}
