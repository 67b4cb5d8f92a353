//! Every flow of a window that is monitored.
//!
//! A window has very many, and who asks for them, as the archive and collectors do, asks on a
//! thread of its own: only then are they put into words.

use std::fmt;
use std::sync::OnceLock;

use calumma_analysis::Flow;
use calumma_sketch::WideKey;

use crate::addresses::{Addresses, Ranked};
use crate::flows::Judged;
use crate::report::Counted;

/// Flows by rising keys.
#[derive(Clone, Default)]
pub(crate) struct Monitored {
    addresses: Addresses,
    keys: Vec<Ranked>,
    flows: Vec<Judged>,
    /// The same as they are given to others, once somebody has asked for them.
    counted: OnceLock<Vec<Counted>>,
}

impl Monitored {
    /// Those of a window: keys by their addresses, and what was counted of each.
    pub(crate) fn new((addresses, keys): (Addresses, Vec<Ranked>), flows: Vec<Judged>) -> Self {
        Self { addresses, keys, flows, counted: OnceLock::new() }
    }

    /// Those of a report that was read.
    pub(crate) fn listed(counted: Vec<Counted>) -> Self {
        Self { counted: counted.into(), ..Self::default() }
    }

    /// What others get of them.
    pub(crate) fn counted(&self) -> &[Counted] {
        let counted = |(key, flow): (&Ranked, &Judged)| Counted {
            flow: Flow::from(&self.addresses.key(key)),
            packets: flow.packets,
            bytes: flow.bytes,
            exact: flow.exact,
            at: flow.node(),
            hops: flow.hops,
            ttls: flow.ttls,
        };
        self.counted.get_or_init(|| self.keys.iter().zip(&self.flows).map(counted).collect())
    }

    /// What was counted of the flow of this number.
    pub(crate) fn flow(&self, number: usize) -> &Judged {
        &self.flows[number]
    }

    /// The keys of flows that may have so many packets, where `uncounted` that entered may be of
    /// any flow; where nobody knows how many these are, of flows that have so many.
    pub(crate) fn heavy(
        &self,
        packets: u64,
        uncounted: Option<u64>,
    ) -> impl Iterator<Item = WideKey> {
        let both = self.keys.iter().zip(&self.flows);
        let heavy = both.filter(move |(_, flow)| {
            let (low, high) = flow.entered(uncounted);
            high.unwrap_or(low) >= packets
        });
        heavy.map(|(key, _)| self.addresses.key(key))
    }

    /// The number of the flow with this key, which is not before number `from`. That is moved to
    /// where the key is or would be. Takes few steps where it is near.
    pub(crate) fn find(&self, from: &mut usize, key: &WideKey) -> Option<usize> {
        let rest = &self.keys[*from..];
        let is_before = |of: &Ranked| self.addresses.key(of) < *key;
        let mut end = 1;
        while rest.get(end - 1).is_some_and(is_before) {
            end *= 2;
        }
        let begin = end / 2;
        *from += begin + rest[begin..end.min(rest.len())].partition_point(is_before);
        let is_it = self.keys.get(*from).is_some_and(|of| self.addresses.key(of) == *key);
        is_it.then_some(*from)
    }
}

impl PartialEq for Monitored {
    fn eq(&self, other: &Self) -> bool {
        self.counted() == other.counted()
    }
}

impl fmt::Debug for Monitored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.counted()).finish()
    }
}
