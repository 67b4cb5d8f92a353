//! Flows that go round, from lcores to the control thread as soon as that is certain.
//!
//! An lcore puts what it finds into a bounded queue of its own, and never waits: where the queue is
//! half full, the flow's next packet tries again.

use std::collections::{BTreeMap, HashSet};

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

/// Windows of which it is known what was reported: packets come of no others at a time.
const WINDOWS: usize = 2;

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
    /// Those of later windows than the one that was reported last: a report is on one window.
    waiting: Vec<Noticed>,
    /// The last windows of which some were reported, by their first epochs, and those.
    reported: BTreeMap<u64, HashSet<WideKey>>,
    sent_ns: u64,
}

impl Notices {
    /// The half of another lcore. It takes its memory now.
    pub(super) fn lcore(&mut self) -> Noticing {
        let (to, from) = bounded(PLACES);
        self.from.push(from);
        Noticing { to: Some(to), known: vec![(u64::MAX, 0); KNOWN] }
    }

    /// The flows of the oldest window that lcores have reported since, each once a window, and the
    /// window's first epoch; at most once in `pause_ns`.
    pub(super) fn take(&mut self, now_ns: u64, pause_ns: u64) -> Option<(u64, Notice)> {
        // The clock may have been set back.
        if now_ns.abs_diff(self.sent_ns) < pause_ns {
            return None;
        }
        let Self { from, waiting, reported, .. } = self;
        waiting.extend(from.iter().flat_map(|from| from.try_iter().take(PLACES)));
        while let Some(epoch) = waiting.iter().map(|of| of.epoch).min() {
            let of_window = waiting.extract_if(.., |of| of.epoch == epoch);
            let mut flows: Vec<Suspect> = of_window.map(Noticed::suspect).collect();
            let known = reported.entry(epoch).or_default();
            flows.retain(|of| !known.contains(&of.key));
            // What each lcore saw is certain; put together it need not be.
            flows.sort_unstable_by_key(|of| of.key);
            flows.dedup_by_key(|of| of.key);
            if known.len() < MOST_REPORTED {
                known.extend(flows.iter().map(|of| of.key));
            }
            // Where the clock was set back, others are of windows that are still to come.
            let furthest = reported.keys().copied().max_by_key(|of| of.abs_diff(epoch));
            if reported.len() > WINDOWS
                && let Some(furthest) = furthest
            {
                reported.remove(&furthest);
            }
            if !flows.is_empty() {
                self.sent_ns = now_ns;
                return Some((epoch, Notice { flows }));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use calumma_sketch::FlowKey;

    use super::*;

    const PAUSE_NS: u64 = 50;

    /// Epochs of windows and numbers of flows, as an lcore reports them.
    fn notices(lcore: &Noticing, of: &[(u64, u32)]) {
        let to = lcore.to.as_ref().unwrap();
        for &(epoch, flow) in of {
            let key = WideKey::from(FlowKey::from_words(flow, 9, 9, 17));
            to.try_send(Noticed { epoch, key, lives: Lives::default() }).unwrap();
        }
    }

    fn taken(notices: &mut Notices, now_ns: u64) -> Option<(u64, Vec<u32>)> {
        let (epoch, notice) = notices.take(now_ns, PAUSE_NS)?;
        let number = |of: &Suspect| match of.key.addresses().0 {
            std::net::IpAddr::V4(of) => of.to_bits(),
            std::net::IpAddr::V6(of) => panic!("{of}"),
        };
        Some((epoch, notice.flows.iter().map(number).collect()))
    }

    #[test]
    fn flows_of_two_windows_are_reported_one_window_after_the_other() {
        let mut all = Notices::default();
        let lcores = [all.lcore(), all.lcore()];
        notices(&lcores[0], &[(20, 1), (40, 3), (20, 2)]);
        notices(&lcores[1], &[(20, 2), (40, 1)]);
        assert_eq!(taken(&mut all, 1000), Some((20, vec![1, 2])));
        assert_eq!(taken(&mut all, 1010), None, "it has just sent some");
        assert_eq!(taken(&mut all, 1050), Some((40, vec![1, 3])));
        // An lcore that is behind, and what was reported already.
        notices(&lcores[1], &[(40, 3), (20, 1), (20, 4)]);
        assert_eq!(taken(&mut all, 1100), Some((20, vec![4])));
        notices(&lcores[0], &[(40, 3), (60, 3)]);
        assert_eq!(taken(&mut all, 1150), Some((60, vec![3])));
        assert_eq!(taken(&mut all, 1200), None);
        // The clock was set back.
        for (now_ns, found) in [(1250, Some((20, vec![5]))), (1300, None)] {
            notices(&lcores[0], &[(20, 5)]);
            assert_eq!(taken(&mut all, now_ns), found);
        }
    }
}
