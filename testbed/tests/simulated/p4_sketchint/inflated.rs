//! Which latencies the program finds inflated, beside the pairs that were there before the packet,
//! without any logarithm.

use calumma_plane::int::Stack;
use calumma_sketch::WideKey;
use calumma_sketch::sketchint::{Pairs, pair_words};
use calumma_switchd::notices::{FRONT, Inbox, Streams};
use calumma_switchd::sketchint::logarithms;
use calumma_tna::{Entry, MirrorSession, Switch};

use super::packets::{flow, stamped, with_hops};
use super::{CPU, FABRIC, OWN, PAIRS, PLACES, Rig, of_one_flow};
use crate::switch::{Numbers, packet};

/// Hundredths of a mean above which a latency is inflated.
const PERCENT: u32 = 500;
const UNIT_NS: u32 = 64;
const SESSION: u16 = 2;
/// Packets of a notice's stream that have one.
const BUDGET: u32 = 1024;
const STREAMS: Streams =
    Streams { control: "Egress.notices", count: 2, has_register: false, most: BUDGET };

/// Bytes of a notice from Ethernet's type on, up to what it says.
const HEADER: usize = 2 + 6;

/// Has packets with inflated latencies noticed.
pub(super) fn watch(switch: &mut Switch) {
    watch_again(switch);
    switch.set_mirror(SESSION, Some(MirrorSession { port: CPU, max_length: FRONT }));
    for entry in STREAMS.allow(&[0, 0], SESSION) {
        super::add(switch, &entry);
    }
}

fn watch_again(switch: &mut Switch) {
    let log = [("log", logarithms::of_threshold(PERCENT, UNIT_NS).into())];
    switch.set_default_action("Egress.places.inflation", "above", &log).unwrap();
}

/// Has none noticed: words that a test writes are in no pair that a packet has met.
pub(super) fn look_away(switch: &mut Switch) {
    switch.set_default_action("Egress.places.inflation", "NoAction", &[]).unwrap();
}

/// What a packet meets at a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met {
    node: u32,
    latency_ns: u32,
    /// Packets before it, by the first array.
    packets: u32,
    /// Their latencies, by the second, in units.
    units: u32,
}

impl Met {
    pub(super) fn new(pairs: &Pairs, word: u64, node: u32, latency_ns: u32) -> Self {
        let words = pair_words(word, node);
        let bucket = |level: usize| pairs.buckets(level)[words[level] as usize % PAIRS[level]];
        Self { node, latency_ns, packets: bucket(0)[1], units: bucket(1)[0] }
    }

    /// Whether the latency is more than the threshold times the mean, and times this ratio.
    fn is_above(&self, (times, of): (u128, u128)) -> bool {
        let Self { latency_ns, packets, units, .. } = *self;
        if latency_ns == u32::MAX || packets < 8 || units == u32::MAX || packets == u32::MAX {
            return false;
        }
        let threshold = u128::from(PERCENT) * u128::from(UNIT_NS) * u128::from(units.max(1));
        u128::from(latency_ns) * u128::from(packets) * 100 * of > threshold * times
    }

    fn may_be(&self) -> bool {
        self.is_above((1, 1))
    }

    /// By an eighth of the threshold more.
    fn must_be(&self) -> bool {
        self.is_above((9, 8))
    }
}

/// What notices have said.
#[derive(Debug)]
pub(super) struct Inflated {
    /// Of each group, how often it was cleared.
    pub(super) turns: [u8; 2],
    packets: u64,
    /// Latencies that are above the threshold and not an eighth above it, found and not.
    near: [u64; 2],
    /// Packets with several.
    several: u64,
    /// Stacks by which keys came there.
    paths: u64,
    inbox: Inbox,
}

impl Inflated {
    pub(super) fn new() -> Self {
        Self {
            turns: [3, 250],
            packets: 0,
            near: [0; 2],
            several: 0,
            paths: 0,
            inbox: Inbox::default(),
        }
    }

    /// Whether a packet is one with an inflated latency, as its notice must say.
    pub(super) fn check(&mut self, met: &[Option<Met>; PLACES.len()], is_noticed: bool) -> bool {
        let met = || met.iter().flatten();
        let (must, may) = (met().any(Met::must_be), met().any(Met::may_be));
        assert!(is_noticed || !must, "not found: {:?}", met().collect::<Vec<_>>());
        assert!(may || !is_noticed, "found: {:?}", met().collect::<Vec<_>>());
        self.packets += u64::from(is_noticed);
        self.near[usize::from(is_noticed)] += u64::from(may && !must);
        is_noticed
    }

    /// Takes a notice, which must say that number and no more than is so.
    pub(super) fn take(
        &mut self,
        notice: &[u8],
        (stream, number): (usize, u32),
        (key, met): (&WideKey, &[Option<Met>; PLACES.len()]),
    ) {
        assert!(number <= BUDGET && self.inbox.take(notice));
        assert_eq!(notice[12..16], [0x88, 0xB5, 0x80, stream as u8]);
        assert_eq!(notice[16..20], number.to_be_bytes());
        let said = &notice[12 + HEADER..];
        assert_eq!(said[0], self.turns[stream / 128]);
        let places = said[1];
        assert!(places > 0 && places < 1 << PLACES.len());
        for (at, met) in met.iter().enumerate() {
            let is_found = places >> (PLACES.len() - 1 - at) & 1 == 1;
            assert!(met.is_some_and(|met| met.may_be()) || !is_found, "{at}: {met:?}");
            assert!(!met.is_some_and(|met| met.must_be()) || is_found, "{at}: {met:?}");
        }
        self.several += u64::from(places.count_ones() > 2);
        let first = places.leading_zeros() as usize - 2;
        let last = PLACES.len() - 1 - places.trailing_zeros() as usize;
        for (at, word) in [first, last].into_iter().zip(said[2..18].chunks(8)) {
            let of = met[at].unwrap();
            assert_eq!(word, [of.node.to_be_bytes(), of.latency_ns.to_be_bytes()].concat());
        }
        assert_eq!(said[18..22], [0; 4]);
        assert_eq!(key_of(said), *key);
    }

    /// Takes a notice of a stack, of which it must say the words and the first five switches.
    pub(super) fn take_path(
        &mut self,
        notice: &[u8],
        (stream, number): (usize, u32),
        (key, stack): (&WideKey, &Stack),
    ) {
        assert!(number <= BUDGET && self.inbox.take(notice));
        assert_eq!(notice[12..16], [0x88, 0xB5, 0x80, stream as u8]);
        assert_eq!(notice[16..20], number.to_be_bytes());
        let said = &notice[12 + HEADER..];
        let hops = stack.hops();
        assert_eq!(said[..2], [self.turns[stream / 128], OF_PATH | (3 + 2 * hops.len()) as u8]);
        let mut nodes: Vec<u32> = hops.take(5).map(|hop| hop.node).collect();
        nodes.resize(5, 0);
        let words = nodes.iter().flat_map(|node| node.to_be_bytes());
        assert!(words.eq(said[2..22].iter().copied()), "{said:02x?}: {stack:?}");
        assert_eq!(key_of(said), *key);
        self.paths += 1;
    }

    pub(super) fn has_seen_any(&self) -> bool {
        self.packets > 0
    }
}

/// The bit of a notice's places by which it is of a stack.
const OF_PATH: u8 = 0x80;

/// Whether a notice is of a stack by which a key came there.
pub(super) fn is_of_path(notice: &[u8]) -> bool {
    notice[12 + HEADER + 1] & OF_PATH != 0
}

/// The flow of the packet behind what a notice says.
fn key_of(said: &[u8]) -> WideKey {
    let packet = [&[0; 12], &said[22..]].concat();
    let (found, _) = read(&packet).unwrap_or_else(|| panic!("{packet:02x?}"));
    found
}

/// The flow of the front of a packet.
fn read(front: &[u8]) -> Option<(WideKey, usize)> {
    match calumma_edge::parse::parse(front, usize::MAX) {
        calumma_edge::parse::Parsed::Flow { key, ip_offset } => Some((key.into(), ip_offset)),
        calumma_edge::parse::Parsed::Flow6 { key, ip_offset } => {
            Some((WideKey::from_bytes(key), ip_offset))
        }
        _ => None,
    }
}

/// Has a packet of one flow pass, and gives what leaves for the CPU.
fn noticed(rig: &mut Rig, own_ns: u32) -> Option<Vec<u8>> {
    let mut sent = Vec::new();
    rig.switch.set_time(5_000);
    rig.switch.offer(FABRIC, &of_one_flow());
    rig.switch.run_ingress();
    rig.switch.set_time(5_000 + u64::from(own_ns));
    rig.switch.run(4, |port, bytes| sent.push((port, bytes.to_vec())));
    sent.into_iter().find(|(port, _)| *port == CPU).map(|(_, notice)| notice)
}

#[test]
fn a_latency_is_inflated_by_the_mean_of_the_packets_before_it_once_there_are_eight() {
    let mut rig = Rig::new(false);
    rig.open(0, Some(1));
    for packets in 0..8 {
        let own_ns = if packets == 3 { 64_000 } else { 640 };
        assert_eq!(noticed(&mut rig, own_ns), None, "{packets}");
    }
    // 1,070 units of eight packets: five means are 42,800 ns.
    assert_eq!(noticed(&mut rig, 42_800), None);
    let notice = noticed(&mut rig, 100_000).unwrap();
    let said = &notice[12 + HEADER..];
    assert_eq!(said[..2], [250, 1]);
    assert_eq!(said[2..10], [OWN.to_be_bytes(), 100_000_u32.to_be_bytes()].concat());
    assert_eq!(said[2..10], said[10..18]);
    // Without a threshold none is.
    look_away(&mut rig.switch);
    assert_eq!(noticed(&mut rig, 4_000_000_000), None);
    watch_again(&mut rig.switch);
    assert!(noticed(&mut rig, 4_000_000_000).is_some());
}

/// Of packets over five switches, some latencies of which are about the threshold.
#[test]
fn latencies_about_the_threshold_are_found_from_an_eighth_above_it_on() {
    let (mut rig, mut numbers) = (Rig::new(false), Numbers(21));
    rig.open(0, Some(0));
    let mut drawn = std::iter::repeat_with(|| stamped(&packet(&mut numbers).bytes, 0));
    let carries = |bytes: &Vec<u8>| with_hops(bytes, &[(3, 7)]).len() > bytes.len();
    let flows: Vec<Vec<u8>> = drawn.by_ref().filter(carries).take(9).collect();
    for packets in 0..2_000 {
        let bytes = &flows[numbers.below(9) as usize];
        let (key, _) = flow(bytes).unwrap();
        // What is there before it, whatever the latencies.
        let hops: Vec<(u32, u32)> = (3..8).map(|node| (node, 1)).collect();
        let stack = super::taken(FABRIC, &with_hops(bytes, &hops));
        let met = rig.met(0, &key, stack.as_ref(), 1);
        let mut latencies = met.iter().flatten().map(|met| {
            let mean = u64::from(met.units) * u64::from(UNIT_NS) / u64::from(met.packets.max(1));
            let near = mean * u64::from(PERCENT) / 100 * (90 + numbers.below(40)) / 100;
            match numbers.below(12) {
                0 if packets > 100 => near.clamp(1, 1 << 30) as u32,
                _ => 300 + numbers.below(1_000) as u32,
            }
        });
        let hops: Vec<(u32, u32)> = (3..8).zip(latencies.by_ref()).collect();
        let own_ns = latencies.next().unwrap_or(900);
        rig.pass(FABRIC, &with_hops(bytes, &hops), own_ns);
    }
    rig.compare();
    let Inflated { packets, near: [missed, found], several, paths, .. } = rig.inflated;
    assert!(packets > 300 && several > 3 && paths > 3, "{packets} {several} {paths}");
    assert!(missed > 30 && found > 30, "{missed} {found}");
}

#[test]
fn notices_beyond_the_budget_are_numbered_and_not_sent() {
    let mut rig = Rig::new(false);
    rig.open(0, Some(1));
    for (stream, end) in [(0_u8, 9_u32), (1, 3)] {
        let entry = Entry::new("allow").exact("stream", stream);
        let old = entry.clone().arg("up_to", BUDGET).arg("by", SESSION);
        rig.switch.delete_entry("Egress.notices.budgets", &old).unwrap();
        let entry = entry.arg("up_to", end).arg("by", SESSION);
        rig.switch.add_entry("Egress.notices.budgets", &entry).unwrap();
    }
    (0..4_000).for_each(|_| assert_eq!(noticed(&mut rig, 640), None));
    let noticed: Vec<_> = (0..5).map(|_| noticed(&mut rig, 64_000).is_some()).collect();
    assert_eq!(noticed, [true, true, true, false, false]);
    let sums = rig.switch.read_register_lanes(super::TOTALS).unwrap()[0];
    let inflated = sums.iter().enumerate().filter(|(at, _)| at & super::INFLATED != 0);
    assert_eq!(inflated.map(|(_, sum)| sum).sum::<u32>(), 5);
}
