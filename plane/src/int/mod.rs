//! In-band network telemetry: what switches put into packets of themselves, by P4.org's INT-MD,
//! version 2.1.
//!
//! A [`Stack`] is what a packet has met on its way, one [`Hop`] for each switch that pushed.
//! [`header`] has the bytes and knows which packets have them, [`push`] puts them in at the source
//! and the switches behind it, [`strip`] takes them out at the sink. A bit of the ToS byte or
//! traffic class, the [`MARKER`], says that a packet may have them.
//! Not here: what is made of stacks (`systems/sketchint`), and when the headers of a burst are
//! touched (`worker`).

pub mod around;
pub mod header;
pub mod means;
pub mod plain;
mod port;
pub mod push;
pub mod report;
pub mod strip;
#[cfg(test)]
pub(crate) mod tests;

use std::num::NonZeroU16;

use crate::arrival::Arrival;

/// The bit of the ToS byte or traffic class that a packet with a stack has set.
pub const MARKER: u8 = 0b0001_0000;

/// Most hops of a stack that are read.
pub const MOST_HOPS: usize = 16;

/// What a switch can't say of itself, on the wire and in a [`Hop`].
pub const UNKNOWN: u32 = u32::MAX;

/// What switches say of themselves, as the header's instruction bitmap has it: its highest bit is
/// number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instructions(u16);

impl Instructions {
    /// Node id.
    pub const NODE: u16 = 1 << 15;
    /// Ingress and egress port.
    pub const PORTS: u16 = 1 << 14;
    /// Hop latency.
    pub const LATENCY: u16 = 1 << 13;
    /// Queue id and queue occupancy.
    pub const QUEUE: u16 = 1 << 12;
    /// Ingress timestamp.
    pub const INGRESS: u16 = 1 << 11;
    /// Egress timestamp.
    pub const EGRESS: u16 = 1 << 10;
    /// Ingress and egress interface of level 2.
    pub const INTERFACES: u16 = 1 << 9;
    /// Utilisation of the egress interface.
    pub const UTILISATION: u16 = 1 << 8;
    /// Buffer id and buffer occupancy.
    pub const BUFFER: u16 = 1 << 7;

    /// What is said of a switch's ports and queues.
    pub(crate) const AROUND: u16 = Self::PORTS | Self::QUEUE | Self::INTERFACES | Self::UTILISATION;

    /// What a source may ask for.
    const ASKED: u16 = 0xFF80;

    /// What takes eight bytes and not four.
    const LONG: u16 = Self::INGRESS | Self::EGRESS | Self::INTERFACES;

    /// Node id and hop latency.
    pub const DEFAULT: Self = Self(Self::NODE | Self::LATENCY);

    /// These of the bits above; `None` where node id or hop latency are not among them, or anything
    /// else is. The checksum complement (bit 15 of the specification) is never asked for.
    pub const fn new(bits: u16) -> Option<Self> {
        let least = Self::DEFAULT.0;
        if bits & least == least && bits & !Self::ASKED == 0 { Some(Self(bits)) } else { None }
    }

    /// As a header that somebody else has made says.
    pub(crate) const fn from_header(bits: u16) -> Self {
        Self(bits)
    }

    /// The bitmap.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether each hop says when the packet arrived and when it was transmitted.
    #[inline]
    pub const fn has_times(self) -> bool {
        self.0 & (Self::INGRESS | Self::EGRESS) == Self::INGRESS | Self::EGRESS
    }

    /// Whether each hop says how many packets waited in its queue.
    #[inline]
    pub const fn has_queue(self) -> bool {
        self.0 & Self::QUEUE != 0
    }

    /// Words of 32 bits that each hop has. A reserved bit stands for one.
    #[inline]
    pub const fn words(self) -> usize {
        (self.0.count_ones() + (self.0 & Self::LONG).count_ones()) as usize
    }
}

/// What a source puts into packets, and by what switches know their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insertion {
    /// The deployment's number in stacks. Stacks of another one are not touched.
    pub domain: NonZeroU16,
    /// The switch's number.
    pub node: NonZeroU16,
    /// What each hop says.
    pub instructions: Instructions,
    /// Hops that a stack may have, the source's included: 1 to [`MOST_HOPS`].
    pub hops: u8,
    /// The UDP port that packets go to that say by it that they have a stack; `None` where none do.
    pub udp_port: Option<NonZeroU16>,
}

/// The deployments whose stacks a switch takes for its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Domains {
    /// The last two that it was given, each with the UDP port that marks packets with its stacks;
    /// 0 stands for none.
    known: [(u16, u16); 2],
}

impl Domains {
    /// Any: a switch that was given none takes out whatever stack it finds.
    pub const ANY: Self = Self { known: [(0, 0); 2] };

    /// Notes that stacks of a deployment are this switch's, and the UDP port that packets with them
    /// go to, if any. Those of the one before stay it, as packets may still be under way.
    pub fn learn(&mut self, domain: NonZeroU16, udp_port: Option<NonZeroU16>) {
        let now = (domain.get(), udp_port.map_or(0, NonZeroU16::get));
        if self.known[0] != now {
            self.known = [now, self.known[0]];
        }
    }

    /// Whether stacks of a deployment are this switch's.
    #[inline]
    pub fn has(&self, domain: u16) -> bool {
        let is_known = |&(known, _): &(u16, u16)| known == domain;
        domain != 0 && (*self == Self::ANY || self.known.iter().any(is_known))
    }

    /// Whether a UDP port may mark packets with stacks of a deployment that are this switch's.
    #[inline]
    fn mark_by_port(&self, domain: u16) -> bool {
        let may = |&(known, port): &(u16, u16)| known == domain && port != 0;
        *self == Self::ANY || self.known.iter().any(may)
    }

    /// Whether this UDP port marks packets with stacks of a deployment. A switch that knows of none
    /// takes any for it.
    #[inline]
    fn has_port(&self, domain: u16, port: u16) -> bool {
        port != 0 && (*self == Self::ANY || self.known.contains(&(domain, port)))
    }

    /// Whether UDP ports are known that mark packets with stacks.
    #[inline]
    pub(crate) fn have_ports(&self) -> bool {
        self.known.iter().any(|&(_, port)| port != 0)
    }
}

/// What one switch says of itself and a packet that it passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The switch's number.
    pub node: u32,
    /// From the packet's arrival until just before its transmission, in nanoseconds; [`UNKNOWN`]
    /// where the switch can't tell. What is longer than that can say is one less.
    pub latency_ns: u32,
    /// The numbers of the ports that the packet came and went by, the former in the upper half; all
    /// ones in a half that it can't tell.
    pub ports: u32,
    /// How many waited in the queue, in the switch's own unit; [`UNKNOWN`] where it can't tell.
    pub queued: u32,
    /// When the packet arrived, in nanoseconds since the Unix epoch by the switch's clock;
    /// `u64::MAX` where it can't tell.
    pub ingress_ns: u64,
    /// Just before it was transmitted, likewise.
    pub egress_ns: u64,
    /// The level 2 interfaces that it came and went by; [`UNKNOWN`] where the switch can't tell.
    pub interfaces: [u32; 2],
    /// The share of the link's speed that was used where it went, in 1/10,000; [`UNKNOWN`] where it
    /// can't tell.
    pub utilisation: u32,
}

impl Hop {
    /// What a switch says of itself and a packet that it transmits at `departed_ns`, in nanoseconds
    /// since the Unix epoch by its clock, where it knows when the packet arrived. Where that is
    /// known within bounds, the middle of them counts; half their width is how wrong the latency
    /// may be.
    #[inline]
    pub fn met(node: NonZeroU16, arrival: Option<Arrival>, departed_ns: u64) -> Self {
        let unmet = Self { node: node.get().into(), egress_ns: departed_ns, ..Self::UNKNOWN };
        // Of a queue that was never seen empty, nothing is known.
        let Some((ingress_ns, _)) = arrival.and_then(Arrival::middle_ns) else { return unmet };
        let latency_ns = departed_ns.saturating_sub(ingress_ns).min(u64::from(UNKNOWN - 1)) as u32;
        Self { latency_ns, ingress_ns, ..unmet }
    }

    /// Nothing.
    pub const UNKNOWN: Self = Self {
        node: UNKNOWN,
        latency_ns: UNKNOWN,
        ports: UNKNOWN,
        queued: UNKNOWN,
        ingress_ns: u64::MAX,
        egress_ns: u64::MAX,
        interfaces: [UNKNOWN; 2],
        utilisation: UNKNOWN,
    };
}

/// The hops of a packet, from its source on. What they say stands in columns, of which nobody
/// touches those that say nothing.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// Zeros behind the last hop.
    nodes: [u32; MOST_HOPS],
    latencies: [u32; MOST_HOPS],
    /// Of any value where hops say no more than node and latency, here and below.
    queued: [u32; MOST_HOPS],
    times: [(u64, u64); MOST_HOPS],
    len: u8,
    /// Whether a hop says more than that.
    says_more: bool,
    /// Whether a switch could not push, for lack of room or of hops: the path may have more
    /// switches than are named here.
    pub is_partial: bool,
}

impl Stack {
    /// No hops.
    pub const EMPTY: Self = Self {
        nodes: [0; MOST_HOPS],
        latencies: [UNKNOWN; MOST_HOPS],
        queued: [UNKNOWN; MOST_HOPS],
        times: [(u64::MAX, u64::MAX); MOST_HOPS],
        len: 0,
        says_more: false,
        is_partial: false,
    };

    /// How many hops it has.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its hops, from the source on. What they say of ports, interfaces and links is not kept.
    pub fn hops(&self) -> impl ExactSizeIterator<Item = Hop> + DoubleEndedIterator {
        (0..self.len()).map(|at| {
            let hop = Hop { node: self.nodes[at], latency_ns: self.latencies[at], ..Hop::UNKNOWN };
            let (ingress_ns, egress_ns) = self.times[at];
            let queued = self.queued[at];
            if self.says_more { Hop { queued, ingress_ns, egress_ns, ..hop } } else { hop }
        })
    }

    /// The numbers of the hops' switches, from the source on; zeros behind them.
    #[inline(always)]
    pub fn nodes(&self) -> &[u32; MOST_HOPS] {
        &self.nodes
    }

    /// The latency at each hop, as in [`Hop`].
    #[inline(always)]
    pub fn latencies(&self) -> &[u32] {
        &self.latencies[..self.len().min(MOST_HOPS)]
    }

    /// The latency at each hop, with anything behind the last hop.
    #[inline(always)]
    pub fn latency_column(&self) -> &[u32; MOST_HOPS] {
        &self.latencies
    }

    /// How many waited in the queue of each hop, as in [`Hop`], with anything behind the last;
    /// `None` where no hop says more than node and latency.
    #[inline(always)]
    pub fn queue_column(&self) -> Option<&[u32; MOST_HOPS]> {
        self.says_more.then_some(&self.queued)
    }

    /// Takes all hops out.
    #[inline]
    pub fn clear(&mut self) {
        self.nodes = [0; MOST_HOPS];
        (self.len, self.says_more, self.is_partial) = (0, false, false);
    }

    /// Adds the next hop on the packet's way; where there is no room for it, the stack is partial.
    #[inline]
    pub fn push(&mut self, hop: Hop) {
        let at = self.len();
        let Hop { node, latency_ns, queued, ingress_ns, egress_ns, .. } = hop;
        let Some(place) = self.nodes.get_mut(at) else {
            self.is_partial = true;
            return;
        };
        (*place, self.latencies[at]) = (node, latency_ns);
        let says_more = queued != UNKNOWN || (ingress_ns, egress_ns) != (u64::MAX, u64::MAX);
        if says_more && !self.says_more {
            self.says_more = true;
            self.queued[..at].fill(UNKNOWN);
            self.times[..at].fill((u64::MAX, u64::MAX));
        }
        if self.says_more {
            (self.queued[at], self.times[at]) = (queued, (ingress_ns, egress_ns));
        }
        self.len += 1;
    }

    /// Takes all hops out, and adds those of these bytes, the last one first, each of four bytes
    /// for its node and four for its latency. Gives the sum of all of these words.
    #[inline(always)]
    fn read_short(&mut self, hops: &[[u8; 8]]) -> u64 {
        self.clear();
        let mut sum = 0;
        for (at, hop) in hops.iter().rev().enumerate() {
            let hop = u64::from_be_bytes(*hop);
            let (node, latency) = ((hop >> 32) as u32, hop as u32);
            sum += u64::from(node) + u64::from(latency);
            if let Some(place) = self.nodes.get_mut(at) {
                (*place, self.latencies[at]) = (node, latency);
            }
        }
        self.len = hops.len().min(MOST_HOPS) as u8;
        self.is_partial = hops.len() > MOST_HOPS;
        sum
    }
}

impl PartialEq for Stack {
    fn eq(&self, other: &Self) -> bool {
        self.is_partial == other.is_partial && self.hops().eq(other.hops())
    }
}

impl Eq for Stack {}
