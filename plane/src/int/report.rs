//! Telemetry reports as bytes: P4.org's Telemetry Report Format, version 2.0.
//!
//! A datagram has one group header and, one after the other, individual reports, each of a packet:
//!
//! ```text
//! | Ver 2: 4 | hw_id: 6 | Sequence Number: 22 |                                   group header
//! | Node ID: 32 |
//! | RepType 1: 4 | InType: 4 | Report Length: 8 | MD Length: 8 | D, Q, F, I | 0: 4 |    report
//! | RepMdBits: 16 | Domain Specific ID: 16 |
//! | DSMdBits: 16 | DSMdstatus 0: 16 |
//! | what RepMdBits says, MD Length words with what follows |
//! | what DSMdBits says |
//! | the packet from its IP header on, cut to whole words |
//! ```
//!
//! Report Length counts words without the first. The domain is that of the deployment's INT stacks.
//! Its DSMdBits are: bit 0 (the highest), one word with the [`Reasons`] in its upper half; bit 1,
//! two words with the node whose latency is inflated, and that latency in nanoseconds.

use super::UNKNOWN;

/// Bytes of the group header.
pub const GROUP: usize = 8;

/// Numbers of groups before they begin again at 0.
pub const SEQUENCES: u32 = 1 << 22;

/// The first byte of a report: RepType 1, a packet's INT metadata; InType is its lower half.
const INT: u8 = 1 << 4;

/// Words of a report that are always there, but for the first.
const FIXED_WORDS: usize = 2;

/// Most words of a report, but for the first: one more means something else.
const MOST_WORDS: usize = 254;

/// In RepMdBits: hop latency, ingress and egress timestamp.
const LATENCY: u16 = 1 << 13;
const INGRESS: u16 = 1 << 11;
const EGRESS: u16 = 1 << 10;

/// In DSMdBits: reasons, and the node whose latency is inflated.
const REASONS: u16 = 1 << 15;
const INFLATED: u16 = 1 << 14;

/// Why a packet is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasons(u16);

impl Reasons {
    /// A latency is inflated, at a switch on its way or at the sink.
    pub const INFLATED: Self = Self(1 << 15);
    /// It is the first of its flow on this path in a window in which others have come by another.
    pub const PATH_CHANGE: Self = Self(1 << 14);
    /// It has come by a switch twice.
    pub const LOOP: Self = Self(1 << 13);
    /// With it, its flow is a heavy hitter.
    pub const HEAVY_HITTER: Self = Self(1 << 12);
    /// It was drawn from all packets with a stack.
    pub const TRACKED: Self = Self(1 << 11);

    /// Whether there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether these reasons are among them.
    #[inline]
    pub fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Adds reasons where `holds`.
    #[inline]
    pub fn add(&mut self, others: Self, holds: bool) {
        self.0 |= if holds { others.0 } else { 0 };
    }
}

/// What the sink says of a packet: all but the packet itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Why it is reported.
    pub reasons: Reasons,
    /// The deployment's domain.
    pub domain: u16,
    /// D: the sink's transmit queue did not take it.
    pub is_dropped: bool,
    /// F: it has come with a stack.
    pub has_stack: bool,
    /// Where a latency is inflated, the node and the latency in nanoseconds; of several the
    /// longest.
    pub inflated: Option<(u32, u32)>,
    /// Its latency at the sink, in nanoseconds; [`UNKNOWN`] where the sink can't tell.
    pub latency_ns: u32,
    /// When it arrived at the sink, in nanoseconds since the Unix epoch by the sink's clock;
    /// `u64::MAX` where the sink can't tell, or is not asked.
    pub ingress_ns: u64,
    /// Just before the sink transmitted it, likewise.
    pub egress_ns: u64,
}

impl Summary {
    /// Of a packet of this domain, of which nothing is known.
    pub const fn new(domain: u16) -> Self {
        Self {
            reasons: Reasons(0),
            domain,
            is_dropped: false,
            has_stack: false,
            inflated: None,
            latency_ns: UNKNOWN,
            ingress_ns: u64::MAX,
            egress_ns: u64::MAX,
        }
    }

    /// RepMdBits and DSMdBits, and the words that these say.
    fn metadata(&self, mut put: impl FnMut(u32)) -> (u16, u16) {
        let (mut baseline, mut specific) = (0, REASONS);
        if self.latency_ns != UNKNOWN {
            baseline |= LATENCY;
            put(self.latency_ns);
        }
        for (bit, ns) in [(INGRESS, self.ingress_ns), (EGRESS, self.egress_ns)] {
            if ns != u64::MAX {
                baseline |= bit;
                put((ns >> 32) as u32);
                put(ns as u32);
            }
        }
        put(u32::from(self.reasons.0) << 16);
        if let Some((node, latency_ns)) = self.inflated {
            specific |= INFLATED;
            put(node);
            put(latency_ns);
        }
        (baseline, specific)
    }
}

/// Appends a group header: `hardware` has 6 bits, `sequence` 22.
pub fn put_group(out: &mut Vec<u8>, (hardware, sequence): (u8, u32), node: u32) {
    let first = 2 << 28 | u32::from(hardware & 0x3F) << 22 | (sequence % SEQUENCES);
    out.extend(first.to_be_bytes());
    out.extend(node.to_be_bytes());
}

/// Appends a report on a packet whose bytes are `packet` from its IP header on, of which a last
/// word that is not whole is left out.
pub fn put(out: &mut Vec<u8>, of: &Summary, packet: &[u8]) {
    let inner = if packet.first().is_some_and(|first| first >> 4 == 6) { 5 } else { 4 };
    let begin = out.len();
    out.resize(begin + 4 * (1 + FIXED_WORDS), 0);
    let (baseline, specific) = of.metadata(|word| out.extend(word.to_be_bytes()));
    let metadata = out.len() / 4 - begin / 4 - 1 - FIXED_WORDS;
    let words = (packet.len() / 4).min(MOST_WORDS - FIXED_WORDS - metadata);
    out.extend_from_slice(&packet[..4 * words]);
    let congested = of.reasons.has(Reasons::INFLATED);
    let bits = [of.is_dropped, congested, of.has_stack, false];
    let bits = bits.into_iter().fold(0, |bits, bit| bits << 1 | u8::from(bit)) << 4;
    let length = (FIXED_WORDS + metadata + words) as u8;
    let header = &mut out[begin..begin + 4 * (1 + FIXED_WORDS)];
    header[..4].copy_from_slice(&[INT | inner, length, metadata as u8, bits]);
    header[4..6].copy_from_slice(&baseline.to_be_bytes());
    header[6..8].copy_from_slice(&of.domain.to_be_bytes());
    header[8..10].copy_from_slice(&specific.to_be_bytes());
}
