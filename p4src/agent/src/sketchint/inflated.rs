//! What the notices of a window's packets say, `notice_h` of `p4src/sketchint.p4` with the front of
//! the packet behind it: inflated latencies, and the stacks by which the keys of large flows were
//! kept.

use std::collections::BTreeMap;

use calumma_plane::parse::{Parsed, parse};
use calumma_sketch::WideKey;
use calumma_sketch::sketchint::{Inflation, Path};
use calumma_sketchint::frames::NO_TIME;

use super::sizes::PLACES;
use crate::notices::{BUDGET, Received, Streams};

/// Which of them are sent, by group: they have the numbers of their sums of what became of packets.
pub(super) const STREAMS: Streams =
    Streams { control: "Egress.notices", count: 2, has_register: false, most: BUDGET };

/// Inflated latencies of the flows of a window.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Inflations {
    /// In order of flows and switches.
    pub(super) entries: Vec<Inflation<WideKey>>,
    /// Latencies that are in none of them, at most.
    pub(super) uncounted: u64,
}

/// Bytes of a notice behind its number, before the packet.
const SAID: usize = 22;

/// The bit of a notice's places by which it is of a stack.
const OF_PATH: u8 = 0x80;

/// The bits of a stream's number that say of its packets that a switch may not have pushed into
/// their stacks: as it had no hops left, or no room.
const EXCEEDED: u8 = 3;

/// Words of a stack that its shim counts beside the hops, and those of a hop.
const HEADER_WORDS: u8 = 3;
const HOP_WORDS: u8 = 2;

/// Words and front of the packet of a notice of that turn, if it is one of a flow that can be read:
/// its places, five words and the flow's key.
fn read(body: &[u8], turn: u8) -> Option<(u8, [u32; 5], WideKey)> {
    let (said, packet) = body.split_at_checked(SAID)?;
    let words = said[2..].as_chunks::<4>().0;
    let words = std::array::from_fn(|at| words.get(at).map_or(0, |it| u32::from_be_bytes(*it)));
    // The packet from its EtherType on.
    let front = [&[0; 12][..], packet].concat();
    let key = match parse(&front, usize::MAX) {
        Parsed::Flow { key, .. } => key.into(),
        Parsed::Flow6 { key, .. } => WideKey::from_bytes(key),
        _ => return None,
    };
    (said[0] == turn).then_some((said[1], words, key))
}

/// The stacks of a window of that turn by which keys were kept, as these notices have them by
/// stream, in order of flows.
pub(super) fn paths(notices: &[Received], turn: u8) -> BTreeMap<WideKey, Path> {
    let mut paths = BTreeMap::new();
    for (stream, received) in (0..=u8::MAX).zip(notices) {
        for (places, nodes, key) in received.bodies.iter().filter_map(|body| read(body, turn)) {
            let words = places & !OF_PATH;
            let hops = words.checked_sub(HEADER_WORDS).map(|words| words / HOP_WORDS);
            let Some(hops) = hops.filter(|_| places & OF_PATH != 0) else { continue };
            let is_partial = usize::from(hops) > nodes.len() || stream & EXCEEDED != 0;
            let nodes = nodes.into_iter().take(hops.into());
            paths.entry(key).or_insert_with(|| Path::new(nodes, is_partial));
        }
    }
    paths
}

/// A packet as its notice has it.
#[derive(Debug, PartialEq, Eq)]
struct Packet {
    key: WideKey,
    /// At how many places its latency is inflated.
    places: u32,
    /// Nodes and latencies in nanoseconds at the first and the last of them.
    met: [(u32, u32); 2],
}

impl Packet {
    /// The packet of a notice of that turn, if it is one whose flow can be read.
    fn read(body: &[u8], turn: u8) -> Option<Self> {
        let (places, [first, first_ns, last, last_ns, _], key) = read(body, turn)?;
        let met = [(first, first_ns), (last, last_ns)];
        let is_inflated = places > 0 && places & OF_PATH == 0;
        is_inflated.then(|| Self { key, places: places.count_ones(), met })
    }
}

impl Inflations {
    /// Those of so many packets of a window of that turn, of which these notices came; no more than
    /// `most` flows and switches.
    pub(super) fn of(packets: u64, notices: &[Received], turn: u8, most: usize) -> Self {
        let mut flows: BTreeMap<(WideKey, u32), (u32, u32)> = BTreeMap::new();
        let (mut known, mut uncounted) = (0_u64, 0_u64);
        let bodies = notices.iter().flat_map(|received| &received.bodies);
        for packet in bodies.filter_map(|body| Packet::read(body, turn)) {
            known += 1;
            let named = packet.met.iter().take(packet.places as usize);
            uncounted += u64::from(packet.places) - named.len() as u64;
            for &(node, latency_ns) in named {
                let is_full = flows.len() >= most;
                match flows.get_mut(&(packet.key, node)) {
                    Some((count, max_ns)) => {
                        *count = count.saturating_add(1);
                        *max_ns = latency_ns.max(*max_ns);
                    }
                    None if is_full => uncounted += 1,
                    None => _ = flows.insert((packet.key, node), (1, latency_ns)),
                }
            }
        }
        uncounted += packets.saturating_sub(known) * PLACES.len() as u64;
        let entries = flows.into_iter().map(|((key, node), (count, max_ns))| Inflation {
            key,
            node,
            count,
            max_ns,
            last_us: NO_TIME,
        });
        Self { entries: entries.collect(), uncounted }
    }
}

#[cfg(test)]
mod tests {
    use calumma_sketch::FlowKey;

    use super::*;

    const TURN: u8 = 7;

    /// A notice of a flow of IPv4 at so many places.
    fn body(flow: u8, places: u8, met: [(u32, u32); 2], turn: u8) -> Vec<u8> {
        let mut body = vec![turn, places];
        for (node, latency) in met {
            body.extend(node.to_be_bytes());
            body.extend(latency.to_be_bytes());
        }
        body.extend([0; 4]);
        // Behind a tag, and cut off: nothing is behind the ports.
        body.extend([0x81, 0, 0, 9, 0x08, 0, 0x45, 0, 1, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        body.extend([10, 0, 0, flow, 10, 0, 0, 9, 0, 7, 0, 8]);
        body
    }

    fn key(flow: u32) -> WideKey {
        FlowKey::from_words(0x0A00_0000 | flow, 0x0A00_0009, 7 << 16 | 8, 17).into()
    }

    #[test]
    fn latencies_are_counted_by_flow_and_switch_and_those_beyond_are_bounded() {
        let inflation = |flow, node, count, max_ns| Inflation {
            key: key(flow),
            node,
            count,
            max_ns,
            last_us: NO_TIME,
        };
        let bodies = [
            body(1, 0b10_0000, [(5, 900), (5, 900)], TURN),
            body(1, 0b10_0001, [(5, 700), (3, 100)], TURN),
            // Of three places two are named.
            body(2, 0b10_0101, [(5, 10), (3, 30)], TURN),
            // Of another window, of no flow, and too short.
            body(1, 0b10_0000, [(5, 901), (5, 901)], TURN + 1),
            vec![TURN; 60],
            body(1, 1, [(5, 1); 2], TURN)[..21].to_vec(),
            // Of a stack.
            body(1, OF_PATH | 5, [(5, 0); 2], TURN),
        ];
        let received = [Received { bodies: bodies.into(), missing: 4 }, Received::default()];
        let entries = vec![
            inflation(1, 3, 1, 100),
            inflation(1, 5, 2, 900),
            inflation(2, 3, 1, 30),
            inflation(2, 5, 1, 10),
        ];
        // Seven more packets, each of which may have six.
        let wanted = Inflations { entries: entries.clone(), uncounted: 1 + 7 * 6 };
        assert_eq!(Inflations::of(10, &received, TURN, 9), wanted);
        // Of flows and switches without room.
        let wanted = Inflations { entries: vec![entries[0], entries[1]], uncounted: 1 + 2 };
        assert_eq!(Inflations::of(3, &received, TURN, 2), wanted);
        assert_eq!(Inflations::of(0, &[], TURN, 2), Inflations::default());
    }

    #[test]
    fn stacks_are_read_by_flow_and_lack_what_the_switch_could_not_say() {
        let of = |flow, hops: u8, nodes: [u32; 5]| {
            let met = [(nodes[0], nodes[1]), (nodes[2], nodes[3])];
            let mut body = body(flow, OF_PATH | (HEADER_WORDS + HOP_WORDS * hops), met, TURN);
            body[18..22].copy_from_slice(&nodes[4].to_be_bytes());
            body
        };
        let whole = [
            of(1, 1, [7, 0, 0, 0, 0]),
            // Again, after others have taken and left its place: the first one holds.
            of(1, 2, [7, 8, 0, 0, 0]),
            of(2, 5, [1, 2, 3, 4, 5]),
            // Of more hops than there are places, and with one whose number is 0.
            of(3, 6, [1, 2, 3, 4, 5]),
            of(4, 3, [1, 2, 0, 0, 0]),
            // Of no stack that can be, of an inflated latency, and of another window.
            body(5, OF_PATH | 2, [(5, 1); 2], TURN),
            body(6, 0b10_0001, [(5, 1); 2], TURN),
            body(7, OF_PATH | 5, [(5, 0); 2], TURN + 1),
        ];
        let mut notices = vec![Received::default(); 25];
        notices[24] = Received { bodies: whole.into(), missing: 1 };
        let full = Received { bodies: vec![of(8, 2, [7, 8, 0, 0, 0])], missing: 0 };
        notices.push(full);
        let path = |nodes: &[u32], is_partial| Path::new(nodes.iter().copied(), is_partial);
        let wanted = [
            (1, path(&[7], false)),
            (2, path(&[1, 2, 3, 4, 5], false)),
            (3, path(&[1, 2, 3, 4, 5], true)),
            (4, path(&[1, 2, 0], false)),
            (8, path(&[7, 8], true)),
        ];
        let wanted = wanted.map(|(flow, path)| (key(flow), path));
        assert_eq!(paths(&notices, TURN), BTreeMap::from(wanted));
    }
}
