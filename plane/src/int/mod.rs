//! In-band network telemetry: what switches put into packets of themselves, by P4.org's INT-MD,
//! version 2.1.
//!
//! A [`Stack`] is what a packet has met on its way, one [`Hop`] for each switch that pushed.
//! Not here: what is made of stacks (`systems/sketchint`).

/// Most hops of a stack that are read.
pub const MOST_HOPS: usize = 16;

/// What a switch can't say of itself, on the wire and in a [`Hop`].
pub const UNKNOWN: u32 = u32::MAX;

/// What one switch says of itself and a packet that it passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The switch's number.
    pub node: u32,
    /// From the packet's arrival until just before its transmission, in nanoseconds; [`UNKNOWN`]
    /// where the switch can't tell. What is longer than that can say is one less.
    pub latency_ns: u32,
    /// How many waited in the queue, in the switch's own unit; [`UNKNOWN`] where it can't tell.
    pub queued: u32,
    /// When the packet arrived, in nanoseconds since the Unix epoch by the switch's clock;
    /// `u64::MAX` where it can't tell.
    pub ingress_ns: u64,
    /// Just before it was transmitted, likewise.
    pub egress_ns: u64,
}

impl Hop {
    /// Nothing.
    pub const UNKNOWN: Self = Self {
        node: UNKNOWN,
        latency_ns: UNKNOWN,
        queued: UNKNOWN,
        ingress_ns: u64::MAX,
        egress_ns: u64::MAX,
    };
}

/// The hops of a packet, from its source on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    hops: [Hop; MOST_HOPS],
    len: u8,
    /// Whether a switch could not push, for lack of room or of hops: the path may have more
    /// switches than are named here.
    pub is_partial: bool,
}

impl Stack {
    /// No hops.
    pub const EMPTY: Self = Self { hops: [Hop::UNKNOWN; MOST_HOPS], len: 0, is_partial: false };

    /// Its hops, from the source on.
    #[inline]
    pub fn hops(&self) -> &[Hop] {
        &self.hops[..usize::from(self.len)]
    }

    /// Adds the next hop on the packet's way; where there is no room for it, the stack is partial.
    #[inline]
    pub fn push(&mut self, hop: Hop) {
        match self.hops.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = hop;
                self.len += 1;
            }
            None => self.is_partial = true,
        }
    }
}
