//! Flows' hashes, many at a time.

use std::cell::OnceCell;
use std::sync::Arc;

use calumma_sketch::{FlowKey, HashFamily, Hashes, Key, KeyKind, WideKey};

use crate::addresses::{Addresses, Ranked};

/// A flow's hashes at a node with such keys.
pub(crate) fn hashes(family: &HashFamily, keys: KeyKind, key: &WideKey) -> Option<Hashes> {
    Some(match keys {
        KeyKind::Dual => family.hash(key),
        KeyKind::Ipv4 => family.hash(&of_ipv4(key)?),
    })
}

fn of_ipv4(key: &WideKey) -> Option<FlowKey> {
    let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
    FlowKey::new(src, dst, sport, dport, key.protocol())
}

/// Flows' hashes, by the kind of keys.
#[derive(Debug)]
pub(crate) struct Hashed {
    family: Arc<HashFamily>,
    dual: OnceCell<Vec<Option<Hashes>>>,
    ipv4: OnceCell<Vec<Option<Hashes>>>,
}

impl Hashed {
    /// Nothing is hashed yet.
    pub(crate) fn by(family: Arc<HashFamily>) -> Self {
        Self { family, dual: OnceCell::new(), ipv4: OnceCell::new() }
    }

    /// All these flows' hashes at nodes with such keys, computed when they are first asked for;
    /// `None` for those that are no flows of theirs.
    pub(crate) fn of(
        &self,
        keys: KeyKind,
        addresses: &Addresses,
        flows: &[Ranked],
    ) -> &[Option<Hashes>] {
        let of = if keys == KeyKind::Dual { &self.dual } else { &self.ipv4 };
        of.get_or_init(|| match keys {
            KeyKind::Dual => hash_all(&self.family, flows, |of| Some(addresses.key(of))),
            KeyKind::Ipv4 => hash_all(&self.family, flows, |of| addresses.ipv4_key(of)),
        })
    }
}

fn hash_all<K: Key>(
    family: &HashFamily,
    flows: &[Ranked],
    key: impl Fn(&Ranked) -> Option<K>,
) -> Vec<Option<Hashes>> {
    const AT_ONCE: usize = 1 << 8;
    let mut all = Vec::with_capacity(flows.len());
    let (mut some, mut hashes) = (Vec::with_capacity(AT_ONCE), [Hashes::default(); AT_ONCE]);
    for flows in flows.chunks(AT_ONCE) {
        some.clear();
        some.extend(flows.iter().filter_map(&key));
        family.hash_burst(&some, &mut hashes[..some.len()]);
        if some.len() == flows.len() {
            all.extend(hashes[..some.len()].iter().copied().map(Some));
        } else {
            let mut of_them = hashes.iter().copied();
            all.extend(flows.iter().map(|flow| key(flow).and_then(|_| of_them.next())));
        }
    }
    all
}
