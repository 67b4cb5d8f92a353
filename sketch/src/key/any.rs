//! Values made for either kind of key, where only the layout says which.
//!
//! Sketches are made for one kind of key, so that no packet pays for the other. A switch learns
//! from the controller which kind it is, and frames hold sketches of the layout's: there an
//! [`AnyKey`] stands until someone who knows the key takes the sketch out.

use std::fmt;

use super::{FlowKey, Key, KeyKind, WideKey};
use crate::fermat::FermatSketch;

/// A family of types, one for each kind of key.
pub trait Keyed {
    /// The type for keys of one kind.
    type Of<K: Key>;
}

/// A value of such a family for one kind of key or the other.
pub enum AnyKey<T: Keyed> {
    /// For IPv4 keys.
    Ipv4(T::Of<FlowKey>),
    /// For wide keys.
    Dual(T::Of<WideKey>),
}

/// What an expression is worth of the value in an [`AnyKey`](crate::AnyKey), whichever kind of key
/// it is for: `either!(&any, group => group.attention())`.
#[macro_export]
macro_rules! either {
    ($value:expr, $inner:ident => $result:expr) => {
        match $value {
            $crate::AnyKey::Ipv4($inner) => $result,
            $crate::AnyKey::Dual($inner) => $result,
        }
    };
}

/// What an expression is worth for a [`KeyKind`](crate::KeyKind), with the type of such keys under
/// a name: `with_key!(keys, K => self.empty::<K>())`.
#[macro_export]
macro_rules! with_key {
    ($kind:expr, $key:ident => $result:expr) => {
        match $kind {
            $crate::KeyKind::Ipv4 => {
                type $key = $crate::FlowKey;
                $result
            }
            $crate::KeyKind::Dual => {
                type $key = $crate::WideKey;
                $result
            }
        }
    };
}

impl<T: Keyed> AnyKey<T> {
    /// The kind of key.
    pub fn kind(&self) -> KeyKind {
        match self {
            Self::Ipv4(_) => KeyKind::Ipv4,
            Self::Dual(_) => KeyKind::Dual,
        }
    }

    /// The value as one for keys `K`; `None` where it is for the other kind.
    #[inline]
    pub fn get<K: Key>(&self) -> Option<&T::Of<K>> {
        K::of(self)
    }

    /// The same, to change.
    #[inline]
    pub fn get_mut<K: Key>(&mut self) -> Option<&mut T::Of<K>> {
        K::of_mut(self)
    }
}

impl<T: Keyed> Clone for AnyKey<T>
where
    T::Of<FlowKey>: Clone,
    T::Of<WideKey>: Clone,
{
    fn clone(&self) -> Self {
        match self {
            Self::Ipv4(value) => Self::Ipv4(value.clone()),
            Self::Dual(value) => Self::Dual(value.clone()),
        }
    }
}

impl<T: Keyed> PartialEq for AnyKey<T>
where
    T::Of<FlowKey>: PartialEq,
    T::Of<WideKey>: PartialEq,
{
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ipv4(a), Self::Ipv4(b)) => a == b,
            (Self::Dual(a), Self::Dual(b)) => a == b,
            _ => false,
        }
    }
}

impl<T: Keyed> Eq for AnyKey<T>
where
    T::Of<FlowKey>: Eq,
    T::Of<WideKey>: Eq,
{
}

impl<T: Keyed> fmt::Debug for AnyKey<T>
where
    T::Of<FlowKey>: fmt::Debug,
    T::Of<WideKey>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        either!(self, value => value.fmt(f))
    }
}

/// [`FermatSketch`]es.
#[derive(Debug)]
pub enum Encoders {}

impl Keyed for Encoders {
    type Of<K: Key> = FermatSketch<K>;
}

impl<K: Key> From<FermatSketch<K>> for AnyKey<Encoders> {
    fn from(sketch: FermatSketch<K>) -> Self {
        K::any(sketch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_stands_for_the_type_of_its_keys() {
        for kind in [KeyKind::Ipv4, KeyKind::Dual] {
            assert_eq!(with_key!(kind, K => K::KIND), kind);
            assert_eq!(with_key!(kind, K => K::any::<Words>(K::WORDS)).kind(), kind);
        }
    }

    /// How many words a key has.
    enum Words {}

    impl Keyed for Words {
        type Of<K: Key> = usize;
    }
}
