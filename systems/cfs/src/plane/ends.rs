//! Which flows without an entry entered at an edge and which left there, for the controller to know
//! whether another edge's count of a flow may lack packets.

use calumma_sketch::table::Refused;
use calumma_sketch::{HashColumns, Hashes, Key};

use crate::frames::{self, Entry, Unentered, bits_of_ends};

/// Bits that a flow of a filter has at least when it is sent, where the filter has room for that:
/// less than one in ten thousand other flows are mistaken for one of the filter's.
const BITS_SENT: u64 = 32;

const BLOCK_BITS: u64 = 32 * Refused::LEAST_WORDS as u64;

/// Notes that for one lcore.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    entered: Noted,
    left: Noted,
    sums: Unentered,
}

impl Ends {
    /// Nothing noted, for an lcore whose table's filter has so many bits. It takes its memory now.
    pub(super) fn new(filter_bits: u32) -> Self {
        let empty = Noted::new(bits_of_ends(filter_bits));
        Self { entered: empty.clone(), left: empty, sums: Unentered::default() }
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.entered.bytes() + self.left.bytes()
    }

    /// Notes so many packets of a flow that no entry has, which came on these sides, to a host of
    /// the same edge or not.
    #[inline(always)]
    pub(super) fn note(&mut self, hashes: &Hashes, (sides, is_local): (u8, bool), packets: u64) {
        self.sums.add(hashes, sides, packets);
        if sides & Entry::ENTERED != 0 {
            self.entered.note(hashes);
        }
        if sides & Entry::LEFT != 0 || is_local {
            self.left.note(hashes);
        }
    }

    /// The same of the packets of a burst that a bit is set for.
    #[inline(always)]
    pub(super) fn note_burst<K: Key>(
        &mut self,
        keys: &[K],
        hashes: &HashColumns,
        mut packets: u32,
        side: (u8, bool),
    ) {
        while packets != 0 {
            let at = packets.trailing_zeros() as usize;
            let key = keys.get(at);
            // Packets of one flow back to back are noted at once.
            let mut number = 0;
            while packets != 0 && keys.get(packets.trailing_zeros() as usize) == key {
                packets &= packets - 1;
                number += 1;
            }
            self.note(&hashes.of(at), side, number);
        }
    }

    /// Forgets all flows. Takes new memory where there were any.
    pub(super) fn clear(&mut self) {
        self.entered.clear();
        self.left.clear();
        self.sums = Unentered::default();
    }

    /// What is sent of the lcores' notes; `says_sums`: what they add up to as well.
    pub(super) fn frame(lcores: &[Self], says_sums: bool) -> frames::Ends {
        let both = |one: Unentered, other: &Self| Unentered {
            packets: one.packets + other.sums.packets,
            weighted: one.weighted.wrapping_add(other.sums.weighted),
        };
        let sums = says_sums.then(|| lcores.iter().fold(Unentered::default(), both));
        let of = |side: fn(&Self) -> &Noted| lcores.iter().map(|it| side(it).folded()).collect();
        frames::Ends { entered: of(|it| &it.entered), left: of(|it| &it.left), sums }
    }
}

/// Flows in a filter.
#[derive(Clone, Debug)]
struct Noted {
    filter: Refused,
    /// How many were new to it.
    flows: u64,
}

impl Noted {
    fn new(bits: u32) -> Self {
        let blocks = (bits / BLOCK_BITS as u32).max(1);
        // An eighth of the largest power of two in it, times 4 to 7: halves of it are whole blocks.
        let unit = 1 << blocks.ilog2().saturating_sub(2);
        Self { filter: empty(blocks / unit * unit), flows: 0 }
    }

    fn bytes(&self) -> usize {
        4 * self.filter.words().count()
    }

    #[inline(always)]
    fn note(&mut self, hashes: &Hashes) {
        if !self.filter.contains(hashes) {
            self.filter.insert(hashes);
            self.flows += 1;
        }
    }

    fn clear(&mut self) {
        if self.flows > 0 {
            let blocks = self.filter.words().count() / Refused::LEAST_WORDS;
            *self = Self { filter: empty(blocks as u32), flows: 0 };
        }
    }

    /// The filter, as small as its flows need it. The halves of each pair of blocks are laid over
    /// each other: a flow's place in a filter of half as many blocks is half of what it was.
    fn folded(&self) -> Refused {
        let mut words: Vec<u32> = self.filter.words().collect();
        loop {
            let blocks = words.len() / Refused::LEAST_WORDS;
            let bits = blocks as u64 * BLOCK_BITS;
            if blocks % 2 == 1 || bits / 2 < self.flows * BITS_SENT {
                break;
            }
            let pairs = words.chunks_exact(2 * Refused::LEAST_WORDS);
            let folded = pairs.flat_map(|pair| {
                let (one, other) = pair.split_at(Refused::LEAST_WORDS);
                one.iter().zip(other).map(|(one, other)| one | other)
            });
            words = folded.collect();
        }
        Refused::from_words(&words).unwrap_or_else(|| self.filter.clone())
    }
}

/// A filter of so many blocks without a flow.
fn empty(blocks: u32) -> Refused {
    let words = vec![0; blocks.max(1) as usize * Refused::LEAST_WORDS];
    // Only more blocks than a filter can have are no filter: no setup has them.
    Refused::from_words(&words).expect("whole blocks")
}

#[cfg(test)]
mod tests {
    use calumma_sketch::{FlowKey, HashFamily, HashKey};
    use proptest::prelude::*;

    use super::*;

    fn family() -> HashFamily {
        HashFamily::new(&HashKey::from_bytes([4; 32]))
    }

    proptest! {
        #[test]
        fn what_is_noted_is_sent_and_little_else(
            bits in 1024_u32..1 << 16,
            number in 0..400_u32,
        ) {
            let family = family();
            let flow = |at: u32| family.hash(&FlowKey::from_words(at, 1, 2, 17));
            let mut ends = Ends::new(bits);
            for at in 0..number {
                let side = [Entry::ENTERED, Entry::LEFT][at as usize % 2];
                ends.note(&flow(at), (side, at % 8 == 0), at.into());
            }
            let sent = Ends::frame(std::slice::from_ref(&ends), true);
            let mut sums = Unentered { packets: (0..u64::from(number)).sum(), weighted: 0 };
            (0..number).step_by(2).for_each(|at| sums.weigh(&flow(at), at.into()));
            prop_assert_eq!(sent.sums, Some(sums));
            for at in 0..number {
                let (is_left, is_local) = (at % 2 == 1, at % 8 == 0);
                prop_assert!(is_left || sent.may_have(Entry::ENTERED, &flow(at)));
                prop_assert!(!(is_left || is_local) || sent.may_have(Entry::LEFT, &flow(at)));
            }
            let others = number..number + 1000;
            let mistaken = others.filter(|&at| sent.may_have(Entry::ENTERED, &flow(at))).count();
            let roomy = u64::from(number) * 2 * BITS_SENT < u64::from(bits);
            prop_assert!(!roomy || mistaken <= 20, "{mistaken} of 1000");
            let words = sent.entered[0].words().count() as u64;
            prop_assert!(32 * words <= u64::from(bits / 2).max(BLOCK_BITS));
            prop_assert!(number > 0 || words as usize <= 7 * Refused::LEAST_WORDS);
            ends.clear();
            let none = Ends::frame(&[ends], true);
            prop_assert_eq!(none.sums, Some(Unentered::default()));
            prop_assert!((0..number).all(|at| !none.may_have(Entry::ENTERED, &flow(at))));
        }
    }
}
