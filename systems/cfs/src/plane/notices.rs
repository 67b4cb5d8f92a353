//! Flows that go round, from lcores to the control thread as soon as that is certain.
//!
//! An lcore puts what it finds into a bounded queue of its own, and never waits: where the queue is
//! half full, the flow's next packet tries again.

use std::collections::HashSet;

use calumma_plane::sync::{Receiver, Sender, bounded};
use calumma_sketch::{Hashes, Key, WideKey};

use super::guard::word;
use super::union::wide;
use crate::frames::{Notice, Suspect};
use crate::lives::Lives;

/// Flows that may wait in an lcore's queue, twice as many as are put there.
const PLACES: usize = 2048;

/// Flows of which an lcore knows that it has reported them.
const KNOWN: usize = 256;

/// Flows that were reported and are not reported again.
const MOST_REPORTED: usize = 1 << 16;

/// A flow that goes round, and the first epoch of its window.
#[derive(Clone, Debug)]
struct Noticed {
    epoch: u64,
    key: WideKey,
    lives: Lives,
}

impl Noticed {
    fn suspect(self) -> Suspect {
        self.lives.of(self.key)
    }
}

/// What an lcore does with flows that go round.
#[derive(Debug, Default)]
pub(super) struct Noticing {
    to: Option<Sender<Noticed>>,
    /// Hashes of flows that were reported last, by their lowest bits, each with its window.
    known: Vec<(u64, u32)>,
}

impl Noticing {
    /// Sees a packet of a flow with several times to live, the packet's own among them. The flow
    /// goes round for certain once a packet comes that will not come again.
    #[inline]
    pub(super) fn see<K: Key>(
        &mut self,
        epoch: u64,
        (key, hashes): (&K, &Hashes),
        lives: Lives,
        ttl: u8,
    ) {
        let length = (lives.differences & !1).trailing_zeros();
        if u32::from(ttl) <= length && self.to.is_some() {
            self.judge(epoch, (key, hashes), lives);
        }
    }

    #[cold]
    fn judge<K: Key>(&mut self, epoch: u64, (key, hashes): (&K, &Hashes), lives: Lives) {
        if !lives.are_certain() {
            return;
        }
        let word = word(hashes);
        let Some(known) = self.known.get_mut(word as usize % KNOWN) else { return };
        if *known == (epoch, word) {
            return;
        }
        // Half of the places stay free: none is waited for that is being emptied.
        if let Some(to) = &self.to
            && to.len() < PLACES / 2
            && let Some(key) = wide(key)
            && to.try_send(Noticed { epoch, key, lives }).is_ok()
        {
            *known = (epoch, word);
        }
    }
}

/// What the control thread does with them.
#[derive(Debug, Default)]
pub(super) struct Notices {
    from: Vec<Receiver<Noticed>>,
    /// The window of which some were reported last, by its first epoch, and those.
    reported: (u64, HashSet<WideKey>),
    sent_ns: u64,
}

impl Notices {
    /// The half of another lcore. It takes its memory now.
    pub(super) fn lcore(&mut self) -> Noticing {
        let (to, from) = bounded(PLACES);
        self.from.push(from);
        Noticing { to: Some(to), known: vec![(u64::MAX, 0); KNOWN] }
    }

    /// The flows of the latest window that lcores have reported since, each once a window, and the
    /// window's first epoch; at most once in `pause_ns`.
    pub(super) fn take(&mut self, now_ns: u64, pause_ns: u64) -> Option<(u64, Notice)> {
        // The clock may have been set back.
        if now_ns.abs_diff(self.sent_ns) < pause_ns || self.from.iter().all(Receiver::is_empty) {
            return None;
        }
        let all: Vec<Noticed> =
            self.from.iter().flat_map(|from| from.try_iter().take(PLACES)).collect();
        let epoch = all.iter().map(|of| of.epoch).max()?;
        let (last, reported) = &mut self.reported;
        if *last != epoch {
            *last = epoch;
            reported.clear();
        }
        let of_window = all.into_iter().filter(|of| of.epoch == epoch);
        let mut flows: Vec<Suspect> = of_window.map(Noticed::suspect).collect();
        flows.retain(|of| !reported.contains(&of.key));
        // What each lcore saw is certain; put together it need not be.
        flows.sort_unstable_by_key(|of| of.key);
        flows.dedup_by_key(|of| of.key);
        if reported.len() < MOST_REPORTED {
            reported.extend(flows.iter().map(|of| of.key));
        }
        if flows.is_empty() {
            return None;
        }
        self.sent_ns = now_ns;
        Some((epoch, Notice { flows }))
    }
}
