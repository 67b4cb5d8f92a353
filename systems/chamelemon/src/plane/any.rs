//! Groups for either kind of key, where only the layout says which.

use calumma_sketch::{AnyKey, Key, Keyed};

use super::group::{EgressGroup, IngressGroup};

/// [`IngressGroup`]s.
#[derive(Debug)]
pub enum IngressGroups {}

impl Keyed for IngressGroups {
    type Of<K: Key> = IngressGroup<K>;
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

impl<K: Key> From<EgressGroup<K>> for AnyKey<EgressGroups> {
    fn from(group: EgressGroup<K>) -> Self {
        K::any(group)
    }
}
