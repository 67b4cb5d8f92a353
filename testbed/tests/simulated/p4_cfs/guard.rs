//! The guard against loops as `p4src/cfs.p4` has it, in plain code: sets of times to live, packet
//! by packet. Which words lie in which register, one function says.

use std::collections::{BTreeMap, BTreeSet};

use calumma_sketch::{FlowKey, Hashes};

/// The most hops of a loop that is looked for, and the largest difference with a bit of its own.
const LONGEST: u8 = 12;
const MOST: u8 = 127;

/// What a notice says: its stream, which is the group, its number there, flow and time to live.
pub(super) type Said = (u8, u32, FlowKey, u8);

/// All cells.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    cell_bits: u32,
    cells: BTreeMap<u32, Cell>,
    numbers: [u32; 2],
    /// What was said since this was asked last.
    said: Vec<Said>,
}

/// What a cell knows of a flow.
#[derive(Clone, Debug)]
struct Cell {
    fingerprint: u32,
    highest: u8,
    /// By how much less others came, up to 31.
    fallen: BTreeSet<u8>,
    /// The same of those that were said; all beyond [`MOST`] are one.
    said: BTreeSet<u8>,
}

impl Guard {
    pub(super) fn new(cell_bits: u32) -> Self {
        Self { cell_bits, cells: BTreeMap::new(), numbers: [0; 2], said: Vec::new() }
    }

    /// Sees a packet of the window of that number that leaves the switch.
    pub(super) fn see(&mut self, (key, hashes): (FlowKey, &Hashes), window: u32, ttl: u8) {
        if ttl == 0 {
            return;
        }
        let word = hashes.array_word(1);
        let (fingerprint, group) = (word & 0xFFFF_0000 | window & 0xFFFF, window & 1);
        let (fallen, said) = Default::default();
        let first = Cell { fingerprint, highest: ttl, fallen, said };
        let Some(cell) = self.cells.get_mut(&(word % (1 << self.cell_bits))) else {
            self.cells.insert(word % (1 << self.cell_bits), first);
            return;
        };
        if cell.fingerprint != fingerprint || cell.highest < ttl {
            *cell = first;
            return;
        }
        let by = cell.highest - ttl;
        if (1..=31).contains(&by) {
            cell.fallen.insert(by);
        }
        let length = cell.fallen.first().copied().unwrap_or(0);
        let is_suspect = (2..=LONGEST).contains(&length) && cell.fallen.contains(&(2 * length));
        if is_suspect && by != 0 && cell.said.insert(by.min(MOST + 1)) {
            let number = &mut self.numbers[group as usize];
            self.said.push((group as u8, *number, key, ttl));
            *number += 1;
        }
    }

    /// What was said since this was asked last.
    pub(super) fn take(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    /// The words of its registers, by name within `guard` and lane.
    pub(super) fn words(&self) -> BTreeMap<(String, usize), BTreeMap<usize, u32>> {
        let mut out: BTreeMap<(String, usize), BTreeMap<usize, u32>> = BTreeMap::new();
        let mut put = |name: &str, lane: usize, at: usize, word: u32| {
            let words = out.entry((name.to_owned(), lane)).or_default();
            if word != 0 {
                words.insert(at, word);
            }
        };
        for (at, cell) in &self.cells {
            let at = *at as usize;
            put("lives.highest", 0, at, cell.fingerprint);
            put("lives.highest", 1, at, cell.highest.into());
            let fallen = cell.fallen.iter().fold(0, |bits, by| bits | 1 << by);
            put("fallen.differences", 0, at, fallen);
            // All beyond have the bit of a difference of 0.
            let bit = |by: u8| if by > MOST { 1_u128 } else { 1 << by };
            let said = cell.said.iter().fold(0, |bits, by| bits | bit(*by));
            for (word, (name, lane)) in
                [("said", 0), ("said", 1), ("said_beyond", 0), ("said_beyond", 1)]
                    .into_iter()
                    .enumerate()
            {
                put(&format!("{name}.differences"), lane, at, (said >> (32 * word)) as u32);
            }
        }
        for (group, number) in self.numbers.iter().enumerate() {
            put("notices.numbers", 0, group, *number);
        }
        out
    }
}
