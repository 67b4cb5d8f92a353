//! Loops, by the times to live that packets of flows came with, as notices of the program say them:
//! those that have no entry, or that came with another time to live than their entry's first one.
//! A notice has the flow's whole key, so whatever flows the program takes for each other, no flow
//! has another one's times to live here.

use std::collections::{BTreeMap, BTreeSet};

use calumma_cfs::Lives;
use calumma_cfs::frames::{Notice, Suspect, Suspects};
use calumma_sketch::{FlowKey, WideKey};

use crate::notices::{Received, Streams};

/// Most notices that are sent in an epoch: a flow that goes round has some 30, and where one does,
/// many do.
const MOST_SENT: u32 = 8192;

/// Where the program numbers them: a stream for each group.
pub(super) const STREAMS: Streams =
    Streams { control: "Egress.guard.notices", count: 2, has_register: true, most: MOST_SENT };

/// Flows that are remembered until their window is over.
const MOST: usize = Suspects::MOST as usize;

/// What flows' packets came with.
type Flows = BTreeMap<WideKey, Known>;

/// What a flow's packets came with. Each time to live is said once, though it may come again after
/// higher ones; so what was a loop for certain stays one, whatever comes later.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    lives: Lives,
    certain: Option<Lives>,
}

impl Known {
    fn add(&mut self, ttl: u8) {
        self.lives.add(ttl);
        if self.lives.are_certain() {
            self.certain = Some(self.lives);
        }
    }

    /// What is worth to be said of it, if anything is.
    fn suspect(self, key: WideKey) -> Option<Suspect> {
        let lives = self.certain.or(self.lives.are_suspect().then_some(self.lives));
        Some(lives?.of(key))
    }
}

/// The flow and the time to live of a packet, as `notice_h` of `p4src/cfs.p4` has them behind its
/// number.
fn read(body: &[u8]) -> Option<(WideKey, u8)> {
    let word = |at: usize| Some(u32::from_be_bytes(body.get(at..at + 4)?.try_into().ok()?));
    let (&protocol, &ttl) = (body.get(12)?, body.get(13)?);
    Some((FlowKey::from_words(word(0)?, word(4)?, word(8)?, protocol).into(), ttl))
}

/// Adds a packet's, and gives what its flow has now, where there is room for it.
fn add(flows: &mut Flows, key: WideKey, ttl: u8) -> Option<Known> {
    let is_full = flows.len() >= MOST;
    let known = match flows.get_mut(&key) {
        Some(known) => known,
        None if is_full => return None,
        None => flows.entry(key).or_default(),
    };
    known.add(ttl);
    Some(*known)
}

/// The flows of a window that may be in loops, by what came of its stream.
pub(super) fn suspects(received: &Received) -> Suspects {
    let (mut flows, mut missed) = (Flows::new(), received.missing);
    for body in &received.bodies {
        let added = read(body).and_then(|(key, ttl)| add(&mut flows, key, ttl));
        missed += u64::from(added.is_none());
    }
    let suspected = flows.into_iter().filter_map(|(key, known)| known.suspect(key));
    Suspects { flows: suspected.collect(), missed }
}

/// Flows that go round for certain, to be said before their windows are over.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// By group.
    windows: [Watched; 2],
    /// When some were said last.
    said_ns: u64,
}

/// What is known of a window.
#[derive(Debug, Default)]
struct Watched {
    /// Its number.
    window: u64,
    flows: Flows,
    /// Flows that were found to go round.
    found: BTreeSet<WideKey>,
    /// Those of them that are still to be said.
    waiting: BTreeMap<WideKey, Suspect>,
}

impl Watch {
    /// Takes in what a notice says of a packet of the window of that number.
    pub(super) fn see(&mut self, window: u64, body: &[u8]) {
        let Some((key, ttl)) = read(body) else { return };
        let of = &mut self.windows[(window & 1) as usize];
        if of.window != window {
            *of = Watched { window, ..Watched::default() };
        }
        if let Some(lives) = add(&mut of.flows, key, ttl).and_then(|known| known.certain)
            && of.found.insert(key)
        {
            of.waiting.insert(key, lives.of(key));
        }
    }

    /// The flows of the latest window that were found since, each once a window, and its number; at
    /// most once in `pause_ns`.
    pub(super) fn take(&mut self, now_ns: u64, pause_ns: u64) -> Option<(u64, Notice)> {
        // The clock may have been set back.
        if now_ns.abs_diff(self.said_ns) < pause_ns {
            return None;
        }
        let with_some = self.windows.iter_mut().filter(|of| !of.waiting.is_empty());
        let of = with_some.max_by_key(|of| of.window)?;
        let flows = std::mem::take(&mut of.waiting).into_values().collect();
        self.said_ns = now_ns;
        Some((of.window, Notice { flows }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(flow: u8, ttl: u8) -> Vec<u8> {
        vec![10, 0, 0, flow, 10, 0, 0, 9, 0, 7, 0, 8, 17, ttl, 0xEE]
    }

    fn key(flow: u32) -> WideKey {
        FlowKey::from_words(0x0A00_0000 | flow, 0x0A00_0009, 7 << 16 | 8, 17).into()
    }

    /// Times to live of a packet that goes round in so many hops.
    fn round(first: u8, length: u8) -> impl Iterator<Item = u8> {
        (1..=first).rev().step_by(length.into())
    }

    #[test]
    fn flows_are_suspected_by_what_came_of_each_and_what_is_missing_is_counted() {
        let mixed = round(61, 3).zip(round(30, 2)).flat_map(|(a, b)| [body(1, a), body(2, b)]);
        let mut bodies: Vec<_> = mixed.collect();
        bodies.extend([body(3, 60), body(3, 58), vec![1; 13]]);
        let said = suspects(&Received { bodies, missing: 4 });
        assert_eq!(said.missed, 5);
        let [first, second] = said.flows[..] else { panic!("{:?}", said.flows) };
        let multiples =
            |length: u32, most: u32| (1..=most).fold(0, |all, at| all | 1 << (length * at));
        assert_eq!(first, Suspect { key: key(1), ttl: 61, differences: multiples(3, 14) });
        assert_eq!(second, Suspect { key: key(2), ttl: 30, differences: multiples(2, 14) });
    }

    /// A second packet's first times to live come after the first one's last.
    #[test]
    fn what_was_certain_stays_so() {
        let once = round(58, 2).chain([62, 60]).map(|ttl| body(1, ttl));
        let said = suspects(&Received { bodies: once.collect(), missing: 0 });
        let differences = (1..=28).fold(0, |all, turn| all | 1 << (2 * turn));
        assert_eq!(said.flows, [Suspect { key: key(1), ttl: 58, differences }]);
    }

    #[test]
    fn what_goes_round_is_said_once_a_window_and_only_when_it_is_certain() {
        let mut watch = Watch::default();
        for ttl in round(62, 2).filter(|ttl| *ttl > 2) {
            watch.see(4, &body(1, ttl));
        }
        assert_eq!(watch.take(100, 10), None, "it may have been repaired");
        watch.see(4, &body(1, 2));
        let differences = (1..=30).fold(0, |all, turn| all | 1 << (2 * turn));
        let flows = vec![Suspect { key: key(1), ttl: 62, differences }];
        assert_eq!(watch.take(100, 10), Some((4, Notice { flows })));
        round(62, 2).for_each(|ttl| watch.see(4, &body(1, ttl)));
        round(40, 4).for_each(|ttl| watch.see(4, &body(2, ttl)));
        assert_eq!(watch.take(109, 10), None, "it has just said some");
        let (window, notice) = watch.take(110, 10).unwrap();
        assert_eq!((window, notice.flows.len(), notice.flows[0].key), (4, 1, key(2)));
        // In the next window of the group all begins anew.
        round(62, 2).for_each(|ttl| watch.see(6, &body(1, ttl)));
        assert_eq!(watch.take(130, 10).map(|(window, _)| window), Some(6));
        // What sweeps up and down in single steps does not go round.
        (1..=60).chain((1..=60).rev()).for_each(|ttl| watch.see(7, &body(1, ttl)));
        assert_eq!(watch.take(200, 10), None);
    }
}
