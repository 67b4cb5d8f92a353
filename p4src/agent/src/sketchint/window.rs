//! What the words of a group say of its window: the frames of a software source and sink.
//!
//! What a Tofino does not keep is not said to be nothing: of its counters of 2 and 4 bits all stand
//! for infinity, of packets with INT none came by a path that is known, and switches other than
//! itself are not distinguished. So a controller knows as little of them as it does of a software
//! sink without room.

use std::collections::BTreeMap;
use std::ops::Range;

use calumma_plane::int::push::NotCarried;
use calumma_sketch::sketchint::{MOST_HOPS, NodeSums, Pairs, Path, PathCount, Totals};
use calumma_sketch::{FlowKey, KeyKind, TowerSketch, WideKey};
use calumma_sketchint::frames::{Entered, Layout, PathSeen, Window};

use super::inflated::{Inflations, paths as paths_of};
use super::sizes::{EVENTS, PLACES, Sizes, WIDTHS};
use crate::notices::Received;

/// What is said of packets that enter, by its numbers in `p4src/include/int/totals.p4` and
/// `source.p4`.
mod entered {
    pub(super) const WITH_HOP: usize = 1;
    pub(super) const WITH_HEADER: usize = 2;
    pub(super) const MTU: usize = 3;
    pub(super) const CHECKSUM: usize = 4;
    pub(super) const PROTOCOL: usize = 5;
    pub(super) const FRAGMENT: usize = 6;
    pub(super) const IDLE: usize = 7;
}

/// What is said of packets for hosts.
mod left {
    pub(super) const PLAIN: usize = 8;
    pub(super) const LOCAL: usize = 9;
    pub(super) const UNCLASSIFIED: usize = 10;
    pub(super) const WITH_STACK: usize = 16;
    pub(super) const BEYOND: usize = 4;
    pub(super) const HOPS_EXCEEDED: usize = 2;
    pub(super) const MTU_EXCEEDED: usize = 1;
    pub(super) const KEPT: usize = 8;
    pub(super) const KEYLESS: usize = 32;
    pub(super) const INFLATED: usize = 64;
}

/// Bit 8 of whose an entry of the tables of keys is; an entry without it is empty.
const IS_THERE: u32 = 0x100;

/// Sums of what became of packets of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events<'a>(&'a [u32]);

impl<'a> Events<'a> {
    /// # Errors
    /// Words that are no such sums, or of which one has come to its end.
    pub(super) fn new(words: &'a [u32]) -> Result<Self, String> {
        if words.len() != EVENTS as usize {
            return Err(format!("{} sums, and there are {EVENTS}", words.len()));
        }
        match words.contains(&u32::MAX) {
            true => Err("a sum that has come to its end".to_owned()),
            false => Ok(Self(words)),
        }
    }

    fn sum(&self, wanted: impl Fn(usize) -> bool) -> u64 {
        let these = self.0.iter().enumerate().filter(|(event, _)| wanted(*event));
        these.map(|(_, packets)| u64::from(*packets)).sum()
    }

    /// Packets of which that was said, be the keys of their flows there or not, and their latencies
    /// inflated or not.
    fn of(&self, said: usize) -> u64 {
        self.sum(|event| event & !(left::KEYLESS | left::INFLATED) == said)
    }

    /// Packets with a stack of which all of that is so, or any.
    fn stacks(&self, wanted: impl Fn(usize) -> bool) -> u64 {
        self.sum(|event| event & left::WITH_STACK != 0 && wanted(event))
    }

    /// Packets with inflated latencies.
    fn inflated(&self) -> u64 {
        self.sum(|event| event & left::INFLATED != 0)
    }

    /// The numbers of the notices of a group, by stream: packets with inflated latencies, and those
    /// with a stack by which a key was kept, are numbered by their sums, from 1 on.
    pub(super) fn numbered(&self, group: usize) -> Vec<Range<u32>> {
        let mut numbers = vec![0..0; 2 * EVENTS as usize];
        const WITH_KEY: usize = left::WITH_STACK | left::KEPT;
        let of_group = numbers.iter_mut().skip(group * EVENTS as usize);
        for (event, (numbers, &packets)) in of_group.zip(self.0).enumerate() {
            if event & left::INFLATED != 0 || event & WITH_KEY == WITH_KEY {
                *numbers = 1..packets.saturating_add(1);
            }
        }
        numbers
    }

    /// What the source did.
    pub(super) fn entered(&self) -> Entered {
        let mut not_carried = [0; NotCarried::ALL.len()];
        for (why, said) in [
            (NotCarried::Mtu, entered::MTU),
            (NotCarried::Checksum, entered::CHECKSUM),
            (NotCarried::Protocol, entered::PROTOCOL),
            (NotCarried::Fragment, entered::FRAGMENT),
        ] {
            not_carried[why as usize] = self.of(said);
        }
        Entered {
            inserted: self.of(entered::WITH_HOP) + self.of(entered::WITH_HEADER),
            idle: self.of(entered::IDLE),
            placeless: 0,
            not_carried,
        }
    }
}

/// What all windows of a session have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sink {
    pub(super) layout: Layout,
    pub(super) sizes: Sizes,
    /// The switch's number.
    pub(super) own: u32,
    /// The number of the key that it hashes by.
    pub(super) hash_key: u64,
    /// Whether the controller can read stacks of large flows.
    pub(super) says_stacks: bool,
}

impl Sink {
    /// What was kept in a window of that turn, from the words of each of [`Sizes::sources`] and the
    /// notices that came.
    ///
    /// # Errors
    /// Words that are none of such a window.
    pub(super) fn window(
        &self,
        words: &[Vec<u32>],
        (notices, turn): (&[Received], u8),
    ) -> Result<Window, String> {
        const COUNTERS: usize = WIDTHS.len();
        const IN_PLACES: usize = PLACES.len() * Pairs::LEVELS;
        let parts = words.split_at_checked(COUNTERS).and_then(|(counters, rest)| {
            let (pairs, rest) = rest.split_at_checked(IN_PLACES)?;
            Some((counters, pairs, rest))
        });
        let Some((counters, pairs, [first_owners, second_owners, rest, sums])) = parts else {
            return Err(format!("words of {} sources", words.len()));
        };
        let events = Events::new(sums)?;
        let (mut totals, paths) = totals(&events, pairs);
        let most = usize::from(self.layout.shape.inflated);
        let inflated = Inflations::of(events.inflated(), notices, turn, most);
        totals.inflated_full = inflated.uncounted;
        let last = counters.last().map_or(&[][..], Vec::as_slice);
        // Each packet raises one of them.
        let counted: u64 = last.iter().map(|count| u64::from(*count)).sum();
        if counted != totals.packets && !last.contains(&u32::MAX) {
            let packets = totals.packets;
            return Err(format!("{packets} packets, and {counted} in counters of 32 bits"));
        }
        let mut large = keys(&[&first_owners[..], second_owners].concat(), rest)?;
        large.sort_unstable();
        large.dedup();
        // How long it had them is not kept.
        let itself = NodeSums { packets: totals.packets, ..NodeSums::none(self.own) };
        let itself = Some(itself).filter(|of| of.packets > 0);
        let mut stacks = if self.says_stacks { paths_of(notices, turn) } else { BTreeMap::new() };
        stacks.retain(|key, _| large.binary_search(key).is_ok());
        let seen = stacks.into_iter().map(|(key, path)| PathSeen { key, path });
        let flag = |bit: usize| events.stacks(|event| event & bit != 0);
        Ok(Window {
            keys: KeyKind::Dual,
            hash_key: self.hash_key,
            own: Some(self.own),
            memory: self.sizes.memory(),
            totals,
            unmarked: 0,
            unclassified: events.of(left::UNCLASSIFIED),
            mtu_exceeded: flag(left::MTU_EXCEEDED),
            hops_exceeded: flag(left::HOPS_EXCEEDED),
            paths,
            nodes: itself.into_iter().collect(),
            arrival_error_ns: 0,
            links_full: 0,
            links: Vec::new(),
            rows: Vec::new(),
            large,
            inflated: inflated.entries,
            seen: seen.collect(),
            sizes: self.tower(counters)?,
            pairs: self.pairs(pairs)?,
            means: None,
        })
    }

    /// The tower of sizes, of which the two narrowest arrays know nothing.
    fn tower(&self, counters: &[Vec<u32>]) -> Result<TowerSketch, String> {
        let levels = self.layout.shape.tower();
        let absent = levels.iter().take(levels.len() - WIDTHS.len());
        let mut bytes = vec![u8::MAX; absent.map(|level| level.bytes()).sum()];
        for (width, counters) in WIDTHS.into_iter().zip(counters) {
            let width = width as usize / 8;
            bytes.extend(
                counters.iter().flat_map(|count| count.to_le_bytes().into_iter().take(width)),
            );
        }
        let tower = TowerSketch::from_bytes(&levels, &bytes).map_err(|why| why.to_string())?;
        Ok(tower.with_insertion(self.layout.shape.rule.insertion()))
    }

    /// All places together, in counters as wide as software's.
    fn pairs(&self, words: &[Vec<u32>]) -> Result<Pairs, String> {
        let shape = self.layout.shape.pairs();
        let mut pairs = Pairs::new(shape);
        for (level, of) in shape.into_iter().enumerate() {
            let most = [of.latency_bits, of.packet_bits].map(|bits| u32::MAX >> (32 - bits));
            let mut sums = vec![[0_u32; 2]; of.buckets as usize];
            for place in words.iter().skip(level).step_by(Pairs::LEVELS) {
                for (sum, met) in sums.iter_mut().zip(place.as_chunks::<2>().0) {
                    for ((sum, met), most) in sum.iter_mut().zip(met).zip(most) {
                        *sum = sum.saturating_add(*met).min(most);
                    }
                }
            }
            let set = pairs.set_buckets(level, &sums);
            set.map_err(|(bucket, _)| format!("array {level} of pairs, {bucket}"))?;
        }
        Ok(pairs)
    }
}

/// Packets for hosts; paths are known of those that came from hosts of the same switch.
fn totals(events: &Events<'_>, pairs: &[Vec<u32>]) -> (Totals, Vec<PathCount>) {
    let (local, stacks) = (events.of(left::LOCAL), events.stacks(|_| true));
    let partial = left::BEYOND | left::HOPS_EXCEEDED | left::MTU_EXCEEDED;
    let totals = Totals {
        packets: events.of(left::PLAIN) + local + stacks,
        int_packets: local + stacks,
        partial: events.stacks(|event| event & partial != 0),
        paths_full: stacks,
        nodes_full: hops_at_most(events, pairs),
        keys_full: events.sum(|event| event & left::KEYLESS != 0),
        ..Totals::default()
    };
    let at_home = PathCount { path: Path::new([], false), packets: local };
    (totals, Some(at_home).filter(|_| local > 0).into_iter().collect())
}

/// Hops that stacks name: those that were recorded at the places before the switch itself, and of
/// stacks of more all that they may have.
fn hops_at_most(events: &Events<'_>, pairs: &[Vec<u32>]) -> u64 {
    const STACK: usize = PLACES.len() - 1;
    let places = pairs.iter().take(STACK * Pairs::LEVELS);
    let widest = places.skip(Pairs::LEVELS - 1).step_by(Pairs::LEVELS);
    let mut packets = widest.flat_map(|pairs| pairs.iter().skip(1).step_by(2));
    let recorded = packets
        .try_fold(0, |sum, &packets| (packets != u32::MAX).then(|| sum + u64::from(packets)));
    match recorded {
        Some(recorded) => {
            let beyond = events.stacks(|event| event & left::BEYOND != 0);
            recorded + beyond * (MOST_HOPS - STACK) as u64
        }
        // A counter has come to its end.
        None => events.stacks(|_| true) * MOST_HOPS as u64,
    }
}

/// The keys of both tables: protocols and sources, and beside them destinations and ports.
fn keys(owners: &[u32], rest: &[u32]) -> Result<Vec<WideKey>, String> {
    let entries = owners.as_chunks::<2>().0.iter().zip(rest.as_chunks::<2>().0);
    let mut keys = Vec::new();
    for (&[tag, src], &[dst, ports]) in entries {
        if tag == 0 {
            continue;
        }
        if tag & IS_THERE == 0 {
            return Err(format!("an entry that is nobody's: {tag:#010x}"));
        }
        keys.push(FlowKey::from_words(src, dst, ports, (tag & 0xFF) as u8).into());
    }
    Ok(keys)
}
