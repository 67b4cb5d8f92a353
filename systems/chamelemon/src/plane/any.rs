//! Groups for either kind of key, where only the layout says which.

use calumma_sketch::{AnyKey, Key, KeyKind, Keyed, either};

use super::attention::Attention;
use super::group::{EgressGroup, IngressGroup};
use super::layout::{Layout, LayoutError};

const ONE_LAYOUT: &str = "groups of one switch share its layout";

/// [`IngressGroup`]s.
#[derive(Debug)]
pub enum IngressGroups {}

impl Keyed for IngressGroups {
    type Of<K: Key> = IngressGroup<K>;
}

impl IngressGroups {
    /// Empty sketches for the layout's kind of key: see [`IngressGroup::new`].
    ///
    /// # Errors
    /// When the layout is invalid.
    pub fn empty(
        layout: &Layout,
        attention: Attention,
        epoch: u64,
    ) -> Result<AnyKey<Self>, LayoutError> {
        Ok(match layout.keys {
            KeyKind::Ipv4 => AnyKey::Ipv4(IngressGroup::new(layout, attention, epoch)?),
            KeyKind::Dual => AnyKey::Dual(IngressGroup::new(layout, attention, epoch)?),
        })
    }
}

impl<K: Key> From<IngressGroup<K>> for AnyKey<IngressGroups> {
    fn from(group: IngressGroup<K>) -> Self {
        K::any(group)
    }
}

/// [`EgressGroup`]s.
#[derive(Debug)]
pub enum EgressGroups {}

impl Keyed for EgressGroups {
    type Of<K: Key> = EgressGroup<K>;
}

impl EgressGroups {
    /// An empty encoder for the layout's kind of key: see [`EgressGroup::new`].
    ///
    /// # Errors
    /// When the layout is invalid.
    pub fn empty(layout: &Layout, attention: Attention) -> Result<AnyKey<Self>, LayoutError> {
        Ok(match layout.keys {
            KeyKind::Ipv4 => AnyKey::Ipv4(EgressGroup::new(layout, attention)?),
            KeyKind::Dual => AnyKey::Dual(EgressGroup::new(layout, attention)?),
        })
    }
}

impl<K: Key> From<EgressGroup<K>> for AnyKey<EgressGroups> {
    fn from(group: EgressGroup<K>) -> Self {
        K::any(group)
    }
}

/// A group of either side, for either kind of key.
pub trait AnyGroup {
    /// Sets the empty group to measure `epoch` under `attention`.
    fn begin(&mut self, attention: Attention, epoch: u64);

    /// Adds what another lcore recorded in the same epoch under the same attention.
    ///
    /// # Panics
    /// When the groups are of different layouts; those of one switch never are.
    fn merge(&mut self, other: &Self);

    /// Empties the sketches.
    fn clear(&mut self);

    /// Cache lines of the sketches.
    fn lines(&self) -> usize;

    /// Readies a cache line for being written to: see [`IngressGroup::make_ready`].
    fn make_ready(&mut self, line: usize);

    /// The attention under which the group measures.
    fn attention(&self) -> &Attention;
}

impl AnyGroup for AnyKey<IngressGroups> {
    fn begin(&mut self, attention: Attention, epoch: u64) {
        either!(self, group => group.begin(attention, epoch))
    }

    fn merge(&mut self, other: &Self) {
        either!(self, group => group.merge(other.get().expect(ONE_LAYOUT)))
    }

    fn clear(&mut self) {
        either!(self, group => group.clear())
    }

    fn lines(&self) -> usize {
        either!(self, group => group.lines())
    }

    #[inline]
    fn make_ready(&mut self, line: usize) {
        either!(self, group => group.make_ready(line));
    }

    fn attention(&self) -> &Attention {
        either!(self, group => group.attention())
    }
}

impl AnyGroup for AnyKey<EgressGroups> {
    fn begin(&mut self, attention: Attention, _epoch: u64) {
        either!(self, group => group.begin(attention))
    }

    fn merge(&mut self, other: &Self) {
        either!(self, group => group.merge(other.get().expect(ONE_LAYOUT)))
    }

    fn clear(&mut self) {
        either!(self, group => group.clear())
    }

    fn lines(&self) -> usize {
        either!(self, group => group.lines())
    }

    #[inline]
    fn make_ready(&mut self, line: usize) {
        either!(self, group => group.make_ready(line));
    }

    fn attention(&self) -> &Attention {
        either!(self, group => group.attention())
    }
}
