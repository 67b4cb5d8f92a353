//! Inflated latencies of a window, from the notices of its packets: `notice_h` of
//! `p4src/sketchint.p4`, with the front of the packet behind it.

use std::collections::BTreeMap;

use calumma_plane::parse::{Parsed, parse};
use calumma_sketch::WideKey;
use calumma_sketch::sketchint::Inflation;
use calumma_sketchint::frames::NO_TIME;

use super::sizes::PLACES;
use crate::notices::{Received, Streams};

/// Which of them are sent, by group: they have the numbers of their sums of what became of packets.
pub(super) const STREAMS: Streams =
    Streams { control: "Egress.notices", count: 2, has_register: false };

/// Inflated latencies of the flows of a window.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Inflations {
    /// In order of flows and switches.
    pub(super) entries: Vec<Inflation<WideKey>>,
    /// Latencies that are in none of them, at most.
    pub(super) uncounted: u64,
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
        let (said, packet) = body.split_at_checked(18)?;
        let word = |at: usize| Some(u32::from_be_bytes(*said[at..].first_chunk()?));
        let met = [(word(2)?, word(6)?), (word(10)?, word(14)?)];
        let places = said[1].count_ones();
        // The packet from its EtherType on.
        let front = [&[0; 12][..], packet].concat();
        let key = match parse(&front, usize::MAX) {
            Parsed::Flow { key, .. } => key.into(),
            Parsed::Flow6 { key, .. } => WideKey::from_bytes(key),
            _ => return None,
        };
        (said[0] == turn && places > 0).then_some(Self { key, places, met })
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
            body(1, 1, [(5, 1); 2], TURN)[..17].to_vec(),
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
}
