//! Which packets are lost between the edges.

use calumma_edge::packet::Packet;
use calumma_edge::parse::{Parsed, parse};
use calumma_sketch::KeyKind;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What decides whether a packet is lost. Only packets that are measured can be.
#[derive(Clone, Debug)]
pub enum Lose {
    /// None is.
    Nothing,
    /// Those whose ECN field says "congestion experienced" (0b11), as on the testbed of the
    /// ChameleMon paper (section 5.2).
    CongestionExperienced,
    /// A share of them, at random.
    Share(f64, Box<ChaCha8Rng>),
}

impl Lose {
    /// Loses `share` (0 to 1) of the packets, the same ones for the same seed.
    pub fn share(share: f64, seed: u64) -> Self {
        Self::Share(share.clamp(0.0, 1.0), Box::new(ChaCha8Rng::seed_from_u64(seed)))
    }

    /// Whether the next packet is lost, where packets are measured by these keys.
    pub(super) fn loses(&mut self, packet: &impl Packet, keys: KeyKind) -> bool {
        match parse(packet.bytes(), packet.wire_len()) {
            Parsed::Flow { ip_offset, .. } => self.decides(packet.bytes(), ip_offset),
            Parsed::Flow6 { ip_offset, .. } if keys == KeyKind::Dual => {
                self.decides(packet.bytes(), ip_offset)
            }
            Parsed::Flow6 { .. } | Parsed::Unmeasured(_) | Parsed::Malformed(_) => false,
        }
    }

    /// Whether the next measured packet, whose IP header begins at `ip_offset`, is lost. To be
    /// asked once for each of them, in order.
    pub fn decides(&mut self, bytes: &[u8], ip_offset: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::CongestionExperienced => match bytes.get(ip_offset..ip_offset + 2) {
                // The traffic class lies across both bytes.
                Some([first, second]) if first >> 4 == 6 => second >> 4 & 3 == 3,
                Some([_, tos]) => tos & 3 == 3,
                _ => false,
            },
            Self::Share(share, random) => random.random_bool(*share),
        }
    }
}
