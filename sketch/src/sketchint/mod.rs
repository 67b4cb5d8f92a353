//! What a SketchINT sink keeps of a window (sections IV and V of the paper).
//!
//! A sink sees every packet for its hosts and, in the INT stack that it takes out, what the packet
//! met at each switch. Of that it keeps
//!
//! - how many packets each flow had, in a [`TowerSketch`](crate::TowerSketch) of five arrays over
//!   all packets, with or without INT, and the keys of large flows;
//! - [rows](Rows): a flow's packets on one path, exactly, with sum and maximum of the latencies at
//!   each hop. Large flows keep theirs, and those of the last window have [claims](Claims) to some;
//!   what finds no room falls to
//! - [pair towers](Pairs), keyed by switch and flow: latency and packets, never below the truth;
//! - inflated latencies, by the mean that a flow's rows have, or else an estimate from both;
//! - where asked for, latencies of large rows at each hop [by size](Quarters);
//! - a [`Histogram`] of latencies for each switch, and the paths there were;
//! - where stacks say when, how long packets were on each [link](Links).
//!
//! [`Sink`] is all of it for one lcore, and [`Merged`] what several recorded. No counter is ever
//! below the truth, and one that is full stands for infinity. Nothing here allocates while a packet
//! is recorded.

mod bounded;
mod cells;
mod claims;
mod detail;
mod histogram;
mod inflation;
mod links;
mod merged;
mod met;
mod nodes;
mod pairs;
mod paths;
mod quarters;
mod record;
mod rows;
mod sink;
mod tags;
mod watch;

pub use self::bounded::Bounded;
pub use self::cells::Cell;
pub use self::claims::Claims;
pub use self::histogram::{BINS, Histogram};
pub use self::links::{LinkSums, Links};
pub use self::merged::{FlowRow, Inflation, Merged, NodeSums, PathCount};
pub use self::met::Met;
pub use self::pairs::{Pair, PairLevel, Pairs};
pub use self::paths::{MOST_HOPS, MOST_PATHS, Path};
pub use self::quarters::Quarters;
pub use self::record::Words;
pub use self::rows::{Rows, WAYS};
pub use self::sink::{Shape, ShapeError, Sink, Totals};
pub use self::watch::{Notes, Watch};

use crate::hash::{Hashes, mixed};

/// A word of a flow, from which its set of rows and its pairs' counters are found.
#[inline(always)]
pub fn flow_word(hashes: &Hashes) -> u64 {
    u64::from(hashes.array_word(0)) << 32 | u64::from(hashes.array_word(1))
}

/// A word of one packet of a flow, by which a share of all packets is drawn: nobody without the
/// secret that the flow is hashed by can tell it, or see anything of one packet's in another's. It
/// is new with each `seed`, and with each `number` of packets that are alike otherwise.
#[inline(always)]
pub fn packet_word(flow: u64, seed: u64, (digest, number): (u64, u64)) -> u32 {
    let of_packet = digest ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed(mixed(flow ^ seed) ^ of_packet) >> 32) as u32
}

/// Words of a flow at one switch, S||f of the paper, one for each array of the pair towers
/// (docs/contract.md, "Pairs"): three words of the flow, and three bijections of the switch's
/// number. There is nothing in them that a Tofino's hash units can't compute.
#[inline(always)]
pub fn pair_words(flow: u64, node: u32) -> [u32; Pairs::LEVELS] {
    let (lane0, lane1) = ((flow >> 32) as u32, flow as u32);
    let of_flow = [lane0, lane1, (lane0 ^ lane1).rotate_left(16)];
    let of_node = [node ^ node >> 5, node ^ node >> 6, node ^ node >> 7];
    [of_flow[0] ^ of_node[0], of_flow[1] ^ of_node[1], of_flow[2] ^ of_node[2]]
}
