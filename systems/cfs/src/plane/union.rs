//! The lcores' tables of a window, put together.
//!
//! A flow is on one lcore where queues are chosen by its hash; its fragments may not be, nor the
//! packets of a device that spreads them otherwise. Each lcore's table has all of the packets that
//! came to it, of the flows that it keeps. So a count is exact if no other lcore has refused or
//! evicted the flow, and if those that keep it saw it come with the same TTL first: packets with
//! another one are counted by what was first.

use std::collections::HashSet;

use calumma_sketch::grade::Claims;
use calumma_sketch::table::{Flow, Rank, Turnover};
use calumma_sketch::{Key, WideKey};

use super::counted::Counted;
use super::ends::Ends;
use super::guard::{self, Guard};
use super::record::{Share, Window};
use super::recording::{put, write_back};
use crate::frames::{self, Entry, Suspects, Totals, Uncounted};
use crate::lives::Lives;

/// The class of flows from host to host of one edge, which come before all but pinned ones.
const SINGLE: u8 = 1;

/// What a table that keeps the flow has counted of it.
struct Part {
    key: WideKey,
    rank: Rank,
    counted: Counted,
    exact: bool,
}

impl Part {
    /// Parts of one flow stand together, the one that came first before the others.
    fn order(&self) -> (WideKey, u32, u8, Rank) {
        (self.key, self.counted.first_us, self.counted.ttl, self.rank)
    }

    /// `says_local`: whether it is wanted where packets went that entered.
    fn entry(self, says_local: bool) -> Entry {
        let Self { key, rank, counted, exact } = self;
        let Counted { packets, bytes, differences, looped, first_us, last_us, ttl, .. } = counted;
        Entry {
            key,
            packets,
            bytes,
            rank,
            ttl,
            differences,
            looped,
            first_us,
            last_us,
            sides: counted.sides(),
            local: says_local && counted.is_local(),
            exact,
        }
    }
}

impl<K: Key> Window<K> {
    /// What is sent of it by a switch whose hash key has this number. Takes memory for all entries.
    pub(super) fn frame(&self, hash_key: u64, routes_changed: bool) -> frames::Window {
        let shares: Vec<&Share<K>> = std::iter::once(&self.share).chain(&self.others).collect();
        let mut residual = self.residual.clone();
        let mut refused = Vec::new();
        let mut ends: Vec<Ends> = Vec::new();
        let mut suspects: Vec<(WideKey, Lives)> = Vec::new();
        let memory = (self.bytes() * shares.len()) as u64;
        let mut totals = Totals { memory, ..Totals::default() };
        let mut parts: Vec<Part> = Vec::new();
        let mut evicted = vec![HashSet::new(); shares.len()];
        let mut limits: Vec<Option<Rank>> = Vec::with_capacity(shares.len());
        for (at, share) in shares.iter().enumerate() {
            let (kept, surplus) = share.table.split();
            add(&mut totals, share, &surplus);
            let worst_kept = kept.iter().map(|flow| flow.rank).max();
            limits.push(if surplus.is_empty() { share.table.limit() } else { worst_kept });
            let gone = surplus.iter().map(|flow| (*flow.key, Lives::from(flow.value)));
            let gone = gone.filter(|(_, lives)| lives.are_suspect());
            suspects.extend(gone.filter_map(|(key, lives)| Some((wide(&key)?, lives))));
            if let Some(residual) = &mut residual {
                let mut filter = residual.is_known_by_tables().then(|| share.table.refused());
                for flow in &surplus {
                    let hashes = self.common.family.hash(flow.key);
                    put(residual, flow.key, &hashes, flow.value);
                    filter.iter_mut().for_each(|filter| filter.insert(&hashes));
                }
                refused.extend(filter);
            }
            let mut of_lcore = share.ends.clone();
            for pending in share.cache.pending() {
                write_back(&pending, &self.common.family, residual.as_mut(), of_lcore.as_mut());
            }
            if let Some(mut of_lcore) = of_lcore {
                for Flow { key, value, .. } in &surplus {
                    let side = (value.sides(), value.is_local());
                    of_lcore.note(&self.common.family.hash(*key), side, value.packets);
                }
                ends.push(of_lcore);
            }
            if shares.len() > 1 {
                evicted[at].extend(surplus.iter().filter_map(|flow| wide(flow.key)));
            }
            let kept_out_by_others = |key: &K| {
                let mut others = shares.iter().enumerate().filter(|(other, _)| *other != at);
                others.any(|(_, of)| of.table.kept_out(&self.common.family, key))
            };
            let part = |Flow { key, rank, value }| {
                let exact = !kept_out_by_others(key);
                Some(Part { key: wide(key)?, rank, counted: *value, exact })
            };
            parts.extend(kept.into_iter().filter_map(part));
        }
        let is_evicted = |key: &WideKey| evicted.iter().any(|of| of.contains(key));
        parts.sort_unstable_by_key(Part::order);
        let mut parts = parts.into_iter();
        let mut merged: Vec<Part> = Vec::with_capacity(parts.len());
        parts.by_ref().for_each(|part| match merged.last_mut() {
            Some(last) if last.key == part.key => {
                last.exact &= part.exact && last.counted.ttl == part.counted.ttl;
                last.counted.join(&part.counted);
            }
            _ => merged.push(Part { exact: part.exact && !is_evicted(&part.key), ..part }),
        });
        let says_local = self.common.setup.ends;
        let entries: Vec<Entry> = merged.into_iter().map(|it| it.entry(says_local)).collect();
        let counted: u64 = entries.iter().map(|entry| entry.packets).sum();
        totals.packets = counted + totals.refused_packets + totals.evicted_packets;
        let looked_for = |guard: &Guard<K>| {
            let all = guard.suspects().filter_map(|(key, lives)| Some((wide(&key)?, lives)));
            suspects.extend(all);
            let (mut flows, mut missed) = (guard::together(suspects), guard.missed());
            // Those of more lcores than can be sent.
            missed += flows.len().saturating_sub(Suspects::MOST as usize) as u64;
            flows.truncate(Suspects::MOST as usize);
            Suspects { flows, missed }
        };
        let suspects = self.guard.as_ref().map(looked_for);
        let unused = if self.claim { Claims::ALL } else { Claims::NONE };
        let claims = shares.iter().map(|share| share.claims.unwrap_or(unused).limit());
        let theta: Option<Vec<u32>> = claims.collect();
        frames::Window {
            keys: K::KIND,
            hash_key,
            routes_changed,
            limit: limit_of(limits),
            theta: theta.and_then(|limits| limits.into_iter().max()),
            alpha: self.common.setup.alpha_moves.then_some(self.plan.alpha),
            overrides: self.common.setup.overrides.then_some(self.plan.overrides),
            totals,
            flows: self.flows.clone(),
            entries,
            uncounted: residual.map(|residual| Uncounted { flows: K::any(residual), refused }),
            suspects,
            ends: self.common.setup.ends.then(|| Ends::frame(&ends, self.common.setup.sums)),
        }
    }

    /// Packets without a mark that another window has noted as well.
    pub(super) fn unmarked_again(&self) -> u64 {
        let shares = std::iter::once(&self.share).chain(&self.others);
        shares.map(|share| share.sums.unmarked_again).sum()
    }
}

/// The limit of lcores that have these; `None` where any admits all. A flow above the largest was
/// admitted nowhere. Where some had no room even for all that come first, and others had, there is
/// none: the largest would say that all of those were admitted.
fn limit_of(limits: Vec<Option<Rank>>) -> Option<Rank> {
    let limits: Vec<Rank> = limits.into_iter().collect::<Option<_>>()?;
    let largest = limits.iter().copied().max()?;
    let is_first = |limit: &Rank| limit.class() <= SINGLE;
    (is_first(&largest) || !limits.iter().any(is_first)).then_some(largest)
}

/// Adds what an lcore's table does not keep, `surplus` being what it has too much of.
fn add<K: Key>(totals: &mut Totals, share: &Share<K>, surplus: &[Flow<'_, K, Counted>]) {
    let Turnover { admitted, evicted, refused, filtered, crowded } = share.table.turnover();
    let surplus_packets: u64 = surplus.iter().map(|flow| flow.value.packets).sum();
    totals.refused_packets += share.sums.refused;
    totals.evicted_packets += share.sums.evicted + surplus_packets;
    totals.unmarked += share.sums.unmarked;
    totals.claimed_in += share.sums.claimed_in;
    totals.claimed_out += share.sums.claimed_out;
    totals.admitted += admitted;
    totals.evicted += evicted + surplus.len() as u64;
    totals.refused += refused;
    totals.filtered += filtered;
    totals.crowded += crowded;
}

pub(super) fn wide<K: Key>(key: &K) -> Option<WideKey> {
    let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
    WideKey::new(src, dst, sport, dport, key.protocol())
}
