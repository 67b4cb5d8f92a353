//! Loops of flows without an entry, by the times to live that their packets come with.
//!
//! A cell remembers the last flow that hashed to it by a fingerprint, and which times to live its
//! packets came with. A flow whose packets came with three times to live at equal distances gets a
//! place in a small table with its whole key, and keeps it for the window. What a flow's times to
//! live are worth, the controller judges.

use calumma_sketch::simd::Isa;
use calumma_sketch::{Hashes, Key, WideKey};

use super::counted::Counted;
use crate::frames::Suspect;
use crate::lives::Lives;

/// Cells, as many as 16 bits of a hash reach.
const CELLS: usize = 1 << 16;

/// Flows that can be suspected at a time, and places where one may be.
const PLACES: usize = 4096;
const PROBES: usize = 8;

/// A cell's place where its flow is not suspected.
const NOWHERE: u16 = u16::MAX;

impl From<&Counted> for Lives {
    /// Those of an entry's packets, with differences from the first one's.
    #[inline(always)]
    fn from(counted: &Counted) -> Self {
        Self { ttl: counted.ttl, differences: counted.differences }
    }
}

/// Four to a line of the cache, and none on two.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Cell {
    /// [`Lives::differences`].
    differences: u64,
    fingerprint: u16,
    /// Where its flow is among those that are suspected.
    place: u16,
    /// [`Lives::ttl`].
    ttl: u8,
}

const _: () = assert!(size_of::<Cell>() == 16);

impl Cell {
    const EMPTY: Self = Self { differences: 0, fingerprint: 0, place: NOWHERE, ttl: 0 };

    #[inline(always)]
    fn lives(&self) -> Lives {
        Lives { ttl: self.ttl, differences: self.differences }
    }
}

/// Watches the packets of flows without an entry on one lcore.
#[derive(Clone, Debug)]
pub(super) struct Guard<K: Key> {
    cells: Box<[Cell]>,
    suspects: Box<[Option<(K, Lives)>]>,
    /// How often a flow that was to be suspected found no place.
    missed: u64,
    /// Those of other lcores.
    others: Vec<(K, Lives)>,
}

impl<K: Key> Guard<K> {
    /// One that has seen nothing. It takes its memory now.
    pub(super) fn new() -> Self {
        Self {
            cells: vec![Cell::EMPTY; CELLS].into(),
            suspects: vec![None; PLACES].into(),
            missed: 0,
            others: Vec::new(),
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.cells) + size_of_val(&*self.suspects)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.cells.fill(Cell::EMPTY);
        self.suspects.fill(None);
        self.missed = 0;
        self.others.clear();
    }

    /// Has the line come that [`see`](Self::see) needs of a flow.
    #[inline(always)]
    pub(super) fn prefetch(&self, isa: impl Isa, hashes: &Hashes) {
        isa.prefetch(&self.cells, usize::from(word(hashes) as u16));
    }

    /// Sees a packet of a flow without an entry: a line, and another where the flow is suspected.
    /// Gives what its packets came with, where it was suspected before.
    #[inline(always)]
    pub(super) fn see(&mut self, key: &K, hashes: &Hashes, ttl: u8) -> Option<Lives> {
        let word = word(hashes);
        let fingerprint = (word >> 16) as u16;
        let cell = self.cells.get_mut(usize::from(word as u16))?;
        if cell.fingerprint != fingerprint || cell.ttl == 0 {
            *cell = Cell { differences: 0, fingerprint, place: NOWHERE, ttl };
            return None;
        }
        if let Some(Some((of, lives))) = self.suspects.get_mut(usize::from(cell.place))
            && of == key
        {
            lives.add(ttl);
            return Some(*lives);
        }
        let mut lives = cell.lives();
        lives.add(ttl);
        (cell.ttl, cell.differences) = (lives.ttl, lives.differences);
        if lives.are_suspect() {
            let place = note((&mut self.suspects, &mut self.missed), (key, word), lives);
            cell.place = place.map_or(NOWHERE, |place| place as u16);
        }
        None
    }

    /// Sees what an entry counted that goes: the time to live of its first packet, and the
    /// differences of others.
    #[inline(always)]
    pub(super) fn see_entry(&mut self, key: &K, hashes: &Hashes, lives: Lives) {
        if lives.are_suspect() {
            note((&mut self.suspects, &mut self.missed), (key, word(hashes)), lives);
        }
    }

    /// Adds what another lcore saw. Takes memory, until all is forgotten.
    pub(super) fn merge(&mut self, other: &Self) {
        self.others.extend(other.suspects());
        self.missed += other.missed;
    }

    /// All flows that are suspected, those on several lcores more than once.
    pub(super) fn suspects(&self) -> impl Iterator<Item = (K, Lives)> {
        self.suspects.iter().flatten().chain(&self.others).copied()
    }

    /// How often a flow that was to be suspected found no place.
    pub(super) fn missed(&self) -> u64 {
        self.missed
    }
}

/// The bits that find a flow's cell, its place, and its fingerprint.
#[inline(always)]
pub(super) fn word(hashes: &Hashes) -> u32 {
    hashes.classifier_word(3)
}

/// Gives a flow a place, or the one that it has. None where all that it might have are full.
#[cold]
fn note<K: Key>(
    (suspects, missed): (&mut [Option<(K, Lives)>], &mut u64),
    (key, word): (&K, u32),
    lives: Lives,
) -> Option<usize> {
    for probe in 0..PROBES {
        let at = (word as usize).wrapping_add(probe) % PLACES;
        match suspects.get_mut(at)? {
            Some((of, known)) if of == key => known.join(lives),
            Some(_) => continue,
            free => *free = Some((*key, lives)),
        }
        return Some(at);
    }
    *missed += 1;
    None
}

/// The flows of all lcores, each once, by rising keys.
pub(super) fn together(mut all: Vec<(WideKey, Lives)>) -> Vec<Suspect> {
    all.sort_unstable_by_key(|(key, _)| *key);
    let mut once: Vec<(WideKey, Lives)> = Vec::with_capacity(all.len());
    for (key, lives) in all {
        match once.last_mut() {
            Some((of, known)) if *of == key => known.join(lives),
            _ => once.push((key, lives)),
        }
    }
    once.into_iter().map(|(key, lives)| lives.of(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_sketch::{FlowKey, HashFamily, HashKey};

    fn family() -> HashFamily {
        HashFamily::new(&HashKey::from_bytes([3; 32]))
    }

    fn key(flow: u32) -> FlowKey {
        FlowKey::from_words(flow, 9, 7, 17)
    }

    /// What a guard says of one flow whose packets come with these times to live.
    fn lives(ttls: impl IntoIterator<Item = u8>) -> Option<Lives> {
        let mut guard = Guard::new();
        let hashes = family().hash(&key(1));
        for ttl in ttls {
            guard.see(&key(1), &hashes, ttl);
        }
        let found = guard.suspects().next();
        found.map(|(of, lives)| {
            assert_eq!(of, key(1));
            lives
        })
    }

    #[test]
    fn packets_that_go_round_are_suspected_in_whatever_order_they_come() {
        let multiples = |most: u32| (1..=most).fold(0, |all, turn| all | 1 << (3 * turn));
        let all = Some(Lives { ttl: 61, differences: multiples(20) });
        assert_eq!(lives((1..=61).rev().step_by(3)), all);
        // Packets behind each other, half a life apart.
        let behind = (1..=61).rev().step_by(3).flat_map(|ttl| [ttl, (ttl + 33).min(61)]);
        assert_eq!(lives(behind), all);
        // One that is there already when the first new one comes.
        let later = [31, 28, 61, 25, 58, 22, 55].into_iter().chain((1..=52).rev().step_by(3));
        assert_eq!(lives(later), all);
        assert_eq!(lives([61, 58]), None);
    }

    #[test]
    fn what_hosts_and_changes_of_path_do_is_not_suspected() {
        assert_eq!(lives(std::iter::repeat_n(64, 100)), None);
        // Flowlets over ways of two lengths, and of three.
        assert_eq!(lives([61, 63, 61, 63, 61]), None);
        assert_eq!(lives([60, 61, 63, 61, 60]), None);
        // Traceroute, three packets a hop.
        let sweep = || (1..=30).flat_map(|ttl| [ttl; 3]);
        assert_eq!(lives(sweep()), None);
        assert_eq!(lives((1..=30).rev()), None);
    }

    #[test]
    fn more_flows_than_have_a_place_are_counted() {
        let (mut guard, family) = (Guard::new(), family());
        for flow in 0..20_000 {
            let hashes = family.hash(&key(flow));
            for ttl in [9, 7, 5] {
                guard.see(&key(flow), &hashes, ttl);
            }
        }
        let there = guard.suspects().count() as u64;
        assert!(there > 4000, "{there}");
        assert_eq!(there + guard.missed(), 20_000);
        guard.clear();
        assert_eq!((guard.suspects().count(), guard.missed()), (0, 0));
    }
}
