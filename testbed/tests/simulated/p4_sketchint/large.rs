//! What the program keeps of large flows, beside the same tables filled packet by packet.

use std::collections::{HashMap, HashSet};

use calumma_edge::parse::{Parsed, parse};
use calumma_sketch::sketchint::{flow_word, pair_words};
use calumma_sketch::{FlowKey, HashFamily, Hashes, Key as _, WideKey};
use calumma_tna::Switch;

use super::collecting::collected;
use super::{FABRIC, Rig, of_one_flow};

/// A flow is large that has had more packets.
pub(super) const MOST: u32 = 2;
/// Entries of a table in one group.
const ENTRIES: usize = 512;
/// Registers.
pub(super) const REGISTERS: [&str; 3] =
    ["table0.owners.owners", "table1.owners.owners", "rest.rest"];
/// Of each table whose its entries are, and the rest of their keys: the register, and which of its
/// parts of [`ENTRIES`].
const PARTS: [(usize, usize); 4] = [(0, 0), (2, 0), (1, 0), (2, 1)];

/// Entries of a register in one group.
fn entries(register: usize) -> usize {
    if register == 2 { 2 * ENTRIES } else { ENTRIES }
}

/// Name and first entry of a part of a group.
fn part(part: usize, group: usize) -> (String, usize) {
    let (register, at) = PARTS[part];
    let first = group * entries(register) + at * ENTRIES;
    (format!("Egress.large.{}", REGISTERS[register]), first)
}

/// What becomes of a packet's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Its flow is not large.
    Small,
    /// It is there.
    There,
    /// It is there since this packet.
    New,
    /// It is not.
    Refused,
}

/// A group.
pub(super) struct Large {
    /// Counters of 8, 16 and 32 bits.
    pub(super) sizes: [Vec<u32>; 3],
    acu: bool,
    parts: [Vec<[u32; 2]>; PARTS.len()],
    packets: HashMap<WideKey, u32>,
    refused: HashSet<WideKey>,
}

/// The words of a key: addresses, ports, protocol.
fn words(key: &FlowKey) -> [u32; 4] {
    let bytes = key.as_bytes();
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    [word(0), word(4), word(8), bytes[12].into()]
}

/// The key of a flow of IPv4.
fn narrow(key: &WideKey) -> Option<FlowKey> {
    let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
    FlowKey::new(src, dst, sport, dport, key.protocol())
}

/// What says whose an entry is.
fn tag(hashes: &Hashes, protocol: u32) -> u32 {
    let [.., third] = pair_words(flow_word(hashes), 0);
    third << 16 | (hashes.classifier_word(3) & 0x7F) << 9 | 1 << 8 | protocol
}

impl Large {
    pub(super) fn new(acu: bool) -> Self {
        Self {
            acu,
            sizes: [15, 14, 13].map(|bits| vec![0; 1 << bits]),
            parts: PARTS.map(|_| vec![[0; 2]; ENTRIES]),
            packets: HashMap::new(),
            refused: HashSet::new(),
        }
    }

    /// Counts a packet.
    pub(super) fn record(&mut self, hashes: &Hashes, key: &WideKey) -> Key {
        *self.packets.entry(*key).or_default() += 1;
        let (mut is_large, mut smallest) = (true, u32::MAX);
        for (level, counters) in (2..).zip(&mut self.sizes) {
            let most = [255, 65_535, u32::MAX][level - 2];
            let at = hashes.classifier_word(level) as usize % counters.len();
            let before = counters[at];
            if !self.acu || before == most || before <= smallest {
                counters[at] = before.saturating_add(1).min(most);
            }
            if before < most {
                smallest = smallest.min(before);
            }
            is_large &= counters[at] > MOST;
        }
        if !is_large {
            return Key::Small;
        }
        let Some(of_ipv4) = narrow(key) else {
            self.refused.insert(*key);
            return Key::Refused;
        };
        let [src, dst, ports, protocol] = words(&of_ipv4);
        let tag = tag(hashes, protocol);
        let [first, second, _] = pair_words(flow_word(hashes), 0);
        for (table, word) in [first, second].into_iter().enumerate() {
            let at = word as usize % ENTRIES;
            let [owners, rest] = &mut self.parts[2 * table..2 * table + 2] else { break };
            if owners[at][0] == 0 {
                (owners[at], rest[at]) = ([tag, src], [dst, ports]);
                return Key::New;
            }
            if owners[at][0] == tag {
                let is_there = rest[at] == [dst, ports] && dst != 0;
                if !is_there {
                    self.refused.insert(*key);
                }
                return if is_there { Key::There } else { Key::Refused };
            }
        }
        self.refused.insert(*key);
        Key::Refused
    }

    /// What a flow has had at most.
    fn size(&self, hashes: &Hashes) -> u32 {
        let counts = (2..).zip(&self.sizes).map(|(level, counters)| {
            let count = counters[hashes.classifier_word(level) as usize % counters.len()];
            if count == [255, 65_535, u32::MAX][level - 2] { u32::MAX } else { count }
        });
        counts.min().unwrap()
    }

    /// Every entry is the same, and is a flow's that has come; all large flows have one, or were
    /// refused.
    pub(super) fn compare(&self, switch: &Switch, family: &HashFamily, group: usize) {
        for (at, wanted) in self.parts.iter().enumerate() {
            let (register, from) = part(at, group);
            let [first, second] = &switch.read_register_lanes(&register).unwrap()[..] else {
                panic!("{register} has two lanes");
            };
            let found = first.iter().zip(second.iter()).map(|(first, second)| [*first, *second]);
            let found: Vec<_> = found.skip(from).take(ENTRIES).collect();
            assert_eq!(&found, wanted, "{register}, group {group}");
        }
        let [owners0, rest0, owners1, rest1] = &self.parts;
        let entries = owners0.iter().zip(rest0).chain(owners1.iter().zip(rest1));
        let entries = entries.filter(|(owner, _)| owner[0] != 0);
        let kept: HashSet<WideKey> = entries
            .map(|(owner, rest)| {
                FlowKey::from_words(owner[1], rest[0], rest[1], (owner[0] & 0xFF) as u8).into()
            })
            .collect();
        assert!(kept.iter().all(|key| self.packets.contains_key(key)));
        for (key, &packets) in &self.packets {
            assert!(self.size(&family.hash(key)) >= packets, "{key}: {packets} packets");
            let is_known = kept.contains(key) || self.refused.contains(key);
            assert!(is_known || packets <= MOST, "{key}: {packets} packets");
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.acu);
    }

    pub(super) fn clear_on(switch: &mut Switch, group: usize) {
        for (register, first) in (0..PARTS.len()).map(|at| part(at, group)) {
            for at in first..first + ENTRIES {
                switch.write_register(&register, at, &[0, 0]).unwrap();
            }
        }
    }
}

#[test]
fn no_entry_is_made_of_two_flows() {
    let mut rig = Rig::new(false);
    rig.open(0, Some(1));
    let Parsed::Flow { key, .. } = parse(&of_one_flow(), usize::MAX) else { panic!("a flow") };
    let hashes = rig.family.hash(&WideKey::from(key));
    let [src, dst, ports, protocol] = words(&key);
    let [first, second, _] = pair_words(flow_word(&hashes), 0);
    let [first, second] = [first, second].map(|word| word as usize % ENTRIES);
    let write = |rig: &mut Rig, of: usize, at, words: [u32; 2]| {
        let (register, from) = part(of, 1);
        rig.switch.write_register(&register, from + at, &words).unwrap();
    };
    let read = |rig: &Rig, of: usize, at| -> [u32; 2] {
        let (register, from) = part(of, 1);
        rig.switch.read_register(&register, from + at).unwrap().try_into().unwrap()
    };
    let tag = tag(&hashes, protocol);
    let counted = |rig: &Rig| -> [u64; 2] {
        [0, 1].map(|at| rig.switch.read_counter("Egress.large.packets", at).unwrap().packets)
    };
    // Another flow of the same tag, of which one word differs.
    for other in [[dst ^ 1, ports], [dst, ports ^ 1]] {
        write(&mut rig, 0, first, [tag, src ^ 1]);
        write(&mut rig, 1, first, other);
        let before = counted(&rig);
        (0..=MOST).for_each(|_| rig.pass(FABRIC, &of_one_flow(), 64));
        assert!(counted(&rig)[1] > before[1] && counted(&rig)[0] == before[0]);
        assert_eq!(read(&rig, 0, first), [tag, src ^ 1]);
        assert_eq!(read(&rig, 1, first), other);
        assert_eq!(read(&rig, 2, second), [0; 2]);
    }
    // One of another tag leaves the second place, which keeps all of the key.
    write(&mut rig, 0, first, [tag ^ 1 << 31, src]);
    for packets in 1..4 {
        let before = counted(&rig);
        rig.pass(FABRIC, &of_one_flow(), 64);
        assert_eq!(counted(&rig), [before[0] + 1, before[1]], "{packets}");
        assert_eq!(read(&rig, 0, first), [tag ^ 1 << 31, src]);
        assert_eq!(read(&rig, 2, second), [tag, src]);
        assert_eq!(read(&rig, 3, second), [dst, ports]);
    }
    // Both places are others'.
    write(&mut rig, 2, second, [tag ^ 1 << 31, src]);
    let before = counted(&rig);
    rig.pass(FABRIC, &of_one_flow(), 64);
    assert_eq!(counted(&rig), [before[0], before[1] + 1]);
}

/// Of a rig whose switch collects.
pub(super) fn all_is_collected_and_cleared(rig: &mut Rig) {
    for (register, name) in REGISTERS.into_iter().enumerate() {
        let register_name = format!("Egress.large.{name}");
        let entries = entries(register);
        for group in [0, 1] {
            let source = (42 + 2 * register + group) as u8;
            for at in 0..entries {
                let words = [1, 2].map(|half| (half << 20 | at) as u32);
                rig.switch.write_register(&register_name, group * entries + at, &words).unwrap();
            }
            let from = entries - 301;
            for (half, access) in [(1, 2), (2, 3)] {
                let wanted: Vec<u32> =
                    (from..entries - 1).map(|at| (half << 20 | at) as u32).collect();
                assert_eq!(collected(rig, (source, access), from as u16, 300), wanted, "{name}");
            }
            for from in (0..entries).step_by(256) {
                collected(rig, (source, 4), from as u16, 256);
            }
        }
    }
}
