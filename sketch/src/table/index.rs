//! Where a flow's entry is: buckets of one cache line, each for ten entries.
//!
//! A flow's first bucket is its *home*. Where that is full the entry is a *guest* in the other
//! bucket that its tag names, and where both are full, one of their entries moves to its own other
//! bucket. A bucket counts its flows that are guests elsewhere, so most look-ups end after one
//! line. What finds no place at all, which takes dozens of flows that agree in tag and bucket,
//! lies in a short list.
//!
//! Removing an entry leaves nothing behind: the index does not age.

use crate::burst::ones;
use crate::memory::{Arena, Array, lines_of};
use crate::simd::{Isa, Tags};

/// Entries of a bucket.
const LANES: usize = size_of::<Tags>() / size_of::<u16>();

/// Entries of the list beside the buckets.
pub(crate) const ASIDE: usize = 16;

/// Entries a bucket has on average, at most, when the table is full.
const LOAD: usize = 7;

/// In place of a bucket's number: the list beside the buckets.
const LISTED: u32 = u32::MAX;

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    /// Of each entry 16 bits of its hash, never 0; 0 where there is no entry.
    tags: Tags,
    /// Entries whose home this is and which are guests elsewhere.
    away: u16,
    /// A set bit for each entry whose home is elsewhere.
    guests: u16,
    slots: [u32; LANES],
}

const EMPTY: Bucket = Bucket { tags: [0; LANES], away: 0, guests: 0, slots: [0; LANES] };

/// Finds the slot of an entry. See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Index {
    buckets: Array<Bucket>,
    /// For each slot with an entry, its bucket.
    whereabouts: Array<u32>,
    /// Slots and tags of what is in no bucket.
    aside: [(u32, u16); ASIDE],
    listed: usize,
}

/// The home and the tag of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    home: u32,
    tag: u16,
}

impl Place {
    /// The tag.
    pub(crate) fn tag(self) -> u16 {
        self.tag
    }
}

/// A tag as it is kept.
#[inline(always)]
pub(crate) fn tag(word: u32) -> u16 {
    (word as u16).max(1)
}

impl Index {
    /// Buckets for so many entries.
    fn buckets_for(slots: usize) -> usize {
        slots.div_ceil(LOAD).max(2)
    }

    /// Cache lines of an index for so many entries.
    pub(crate) fn lines(slots: usize) -> usize {
        lines_of::<Bucket>(Self::buckets_for(slots)) + lines_of::<u32>(slots)
    }

    /// An index for so many entries. Touches none of its memory.
    pub(crate) fn new_in(arena: &mut Arena, slots: usize) -> Self {
        // Zeros are an empty bucket.
        let buckets = arena.zeros(Self::buckets_for(slots));
        Self { buckets, whereabouts: arena.zeros(slots), aside: [(0, 0); ASIDE], listed: 0 }
    }

    /// An index without memory, for no entry.
    pub(crate) fn without_memory() -> Self {
        let (buckets, whereabouts) = (Array::default(), Array::default());
        Self { buckets, whereabouts, aside: [(0, 0); ASIDE], listed: 0 }
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.bytes() + self.whereabouts.bytes()
    }

    pub(crate) fn clear(&mut self) {
        self.buckets.fill(EMPTY);
        self.listed = 0;
    }

    #[inline(always)]
    pub(crate) fn place(&self, home: u32, tag_word: u32) -> Place {
        let home = ((u64::from(home) * self.buckets.len() as u64) >> 32) as u32;
        Place { home, tag: tag(tag_word) }
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, isa: impl Isa, place: Place) {
        isa.prefetch(&self.buckets, place.home as usize);
    }

    /// The other bucket of an entry with this tag; the other one's other bucket is this one. Both
    /// add up to a number that the tag stands for, modulo the number of buckets.
    #[inline(always)]
    fn other(&self, bucket: u32, tag: u16) -> u32 {
        let buckets = self.buckets.len() as u32;
        let word = u32::from(tag).wrapping_mul(0x9E37_79B1);
        let sum = ((u64::from(word) * u64::from(buckets)) >> 32) as u32;
        if sum >= bucket { sum - bucket } else { sum + buckets - bucket }
    }

    /// The first slot in the flow's home whose tag is the flow's, to have its entry fetched.
    #[inline(always)]
    pub(crate) fn guess(&self, isa: impl Isa, place: Place) -> Option<u32> {
        let bucket = &self.buckets[place.home as usize];
        let lane = ones(isa.equal_tags(&bucket.tags, place.tag)).next()?;
        bucket.slots.get(lane).copied()
    }

    /// The slot of the flow's entry: one with the flow's tag of which `is_it` is true.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        isa: impl Isa,
        place: Place,
        is_it: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let within = |bucket: &Bucket| {
            let lanes = ones(isa.equal_tags(&bucket.tags, place.tag));
            lanes.filter_map(|lane| bucket.slots.get(lane).copied()).find(|&slot| is_it(slot))
        };
        let home = &self.buckets[place.home as usize];
        if let Some(slot) = within(home) {
            return Some(slot);
        }
        if home.away > 0 {
            let other = self.other(place.home, place.tag);
            if let Some(slot) = within(&self.buckets[other as usize]) {
                return Some(slot);
            }
        }
        let mut aside = self.aside[..self.listed].iter().map(|&(slot, _)| slot);
        aside.find(|&slot| is_it(slot))
    }

    /// Has the flow found in `slot` from now on; false where there is no room for it.
    pub(crate) fn insert(&mut self, isa: impl Isa, place: Place, slot: u32) -> bool {
        let Place { home, tag } = place;
        let other = self.other(home, tag);
        if self.put(isa, home, tag, slot, false) || self.put(isa, other, tag, slot, true) {
            return true;
        }
        for (bucket, is_guest) in [(home, false), (other, true)] {
            if self.make_room(isa, bucket) {
                return self.put(isa, bucket, tag, slot, is_guest);
            }
        }
        if self.listed < ASIDE {
            self.aside[self.listed] = (slot, tag);
            self.listed += 1;
            self.whereabouts[slot as usize] = LISTED;
            return true;
        }
        false
    }

    /// Puts an entry into a bucket, if there is room in it.
    fn put(&mut self, isa: impl Isa, at: u32, tag: u16, slot: u32, is_guest: bool) -> bool {
        let home = if is_guest { self.other(at, tag) } else { at };
        let counts = !is_guest || self.buckets[home as usize].away < u16::MAX;
        let bucket = &mut self.buckets[at as usize];
        let empty = ones(isa.equal_tags(&bucket.tags, 0)).next();
        let Some(lane) = empty.filter(|_| counts) else { return false };
        bucket.tags[lane] = tag;
        bucket.slots[lane] = slot;
        bucket.guests |= u16::from(is_guest) << lane;
        self.whereabouts[slot as usize] = at;
        self.buckets[home as usize].away += u16::from(is_guest);
        true
    }

    /// Moves one of the bucket's entries to its other bucket; false if those are full as well.
    fn make_room(&mut self, isa: impl Isa, at: u32) -> bool {
        for lane in 0..LANES {
            let bucket = &self.buckets[at as usize];
            let (tag, slot) = (bucket.tags[lane], bucket.slots[lane]);
            let was_guest = bucket.guests >> lane & 1 == 1;
            let other = self.other(at, tag);
            if self.put(isa, other, tag, slot, !was_guest) {
                self.take_out(at, lane);
                return true;
            }
        }
        false
    }

    /// Empties a lane.
    fn take_out(&mut self, at: u32, lane: usize) {
        let bucket = &mut self.buckets[at as usize];
        let tag = std::mem::take(&mut bucket.tags[lane]);
        let was_guest = bucket.guests >> lane & 1 == 1;
        bucket.guests &= !(1 << lane);
        if was_guest {
            let home = self.other(at, tag);
            self.buckets[home as usize].away -= 1;
        }
    }

    /// Forgets the entry in `slot`, and gives its tag.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<u16> {
        let at = self.whereabouts[slot as usize];
        if at == LISTED {
            let found = self.aside[..self.listed].iter().position(|&(listed, _)| listed == slot)?;
            self.listed -= 1;
            self.aside.swap(found, self.listed);
            return Some(self.aside[self.listed].1);
        }
        let bucket = &self.buckets[at as usize];
        let mut lanes = bucket.slots.iter().zip(&bucket.tags);
        let lane = lanes.position(|(&kept, &tag)| kept == slot && tag != 0)?;
        let tag = bucket.tags[lane];
        self.take_out(at, lane);
        Some(tag)
    }

    /// Asks for the line that [`remove`](Self::remove) changes.
    #[inline(always)]
    pub(crate) fn prefetch_slot(&self, isa: impl Isa, slot: u32) {
        if let Some(&at) = self.whereabouts.get(slot as usize) {
            isa.prefetch(&self.buckets, at as usize);
        }
    }
}
