//! A table of so many different things that never moves them.

/// Numbers things in the order in which they come, up to a capacity. It takes its memory once.
#[derive(Clone, Debug)]
pub struct Bounded<I> {
    /// Where things stand in `items`, plus one; 0 is free. A power of two, at least twice as many
    /// as there may be things.
    index: Box<[u32]>,
    items: Vec<(u64, I)>,
    /// Things that there may be.
    capacity: usize,
    refused: u64,
}

impl<I: Copy + PartialEq> Bounded<I> {
    /// An empty table for at most `capacity` things.
    pub fn new(capacity: usize) -> Self {
        let places = (2 * capacity).next_power_of_two().max(2);
        Self {
            index: vec![0; places].into_boxed_slice(),
            items: Vec::with_capacity(capacity),
            capacity,
            refused: 0,
        }
    }

    /// The number of a thing that is there. `hash` is always the same for equal things.
    #[inline]
    pub fn find(&self, hash: u64, item: &I) -> Option<usize> {
        self.probe(hash, item).ok()
    }

    /// The number of a thing, which is put into the table where it is not there; `None` where it is
    /// not and the table is full, which is counted.
    #[inline]
    pub fn place(&mut self, hash: u64, item: &I) -> Option<usize> {
        self.place_within(self.capacity, hash, item)
    }

    /// The same of a thing that is put only among the first so many.
    #[inline]
    pub fn place_within(&mut self, most: usize, hash: u64, item: &I) -> Option<usize> {
        match self.probe(hash, item) {
            Ok(number) => Some(number),
            Err(_) if self.items.len() >= most.min(self.capacity) => {
                self.refused += 1;
                None
            }
            Err(place) => {
                self.items.push((hash, *item));
                self.index[place] = self.items.len() as u32;
                Some(self.items.len() - 1)
            }
        }
    }

    /// The number of a thing, or the free place of the index where it would be found.
    #[inline]
    fn probe(&self, hash: u64, item: &I) -> Result<usize, usize> {
        let mask = self.index.len() - 1;
        let mut place = (hash ^ hash >> 32) as usize & mask;
        loop {
            let Some(number) = (self.index[place] as usize).checked_sub(1) else {
                return Err(place);
            };
            if self.items[number].0 == hash && self.items[number].1 == *item {
                return Ok(number);
            }
            place = (place + 1) & mask;
        }
    }

    /// The things, by their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &I> {
        self.items.iter().map(|(_, item)| item)
    }

    /// The thing with this number.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&I> {
        self.items.get(number).map(|(_, item)| item)
    }

    /// How many things there may be.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether there is no room for a thing that is not there.
    pub fn is_full(&self) -> bool {
        self.items.len() >= self.capacity
    }

    /// Counts things as refused.
    #[inline]
    pub fn refuse(&mut self, things: u64) {
        self.refused += things;
    }

    /// How often a thing was refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.index) + self.capacity * size_of::<(u64, I)>()
    }

    /// Forgets all things.
    pub fn clear(&mut self) {
        self.index.fill(0);
        self.items.clear();
        self.refused = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn things_are_numbered_as_they_come_and_none_is_mistaken(
            things in prop::collection::vec(0_u16..40, 0..200),
            capacity in 0..30_usize,
        ) {
            let mut table = Bounded::new(capacity);
            let mut known: Vec<u16> = Vec::new();
            let mut refused = 0;
            for thing in things {
                // Many have the same hash.
                let hash = u64::from(thing % 5) << 40;
                let number = known.iter().position(|&other| other == thing);
                prop_assert_eq!(table.find(hash, &thing), number);
                if number.is_none() && known.len() < capacity {
                    known.push(thing);
                } else if number.is_none() {
                    refused += 1;
                }
                let number = known.iter().position(|&other| other == thing);
                prop_assert_eq!(table.place(hash, &thing), number);
                let stranger = table.place_within(known.len(), hash, &(thing + 40));
                refused += 1;
                prop_assert_eq!(stranger, None);
                prop_assert_eq!(table.place_within(0, hash, &thing), number);
                refused += u64::from(number.is_none());
            }
            prop_assert_eq!(table.iter().copied().collect::<Vec<_>>(), known);
            prop_assert_eq!(table.refused(), refused);
            table.clear();
            prop_assert_eq!(table.iter().len(), 0);
        }
    }
}
