//! How many switches a packet has passed, from its time to live.

/// The values with which hosts send packets.
const BASES: [u8; 4] = [32, 64, 128, 255];

/// How a hop number is got from the time to live (hop limit) with which a packet was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopRule {
    /// The value with which hosts send packets; `None` where they differ: then it is the smallest
    /// of 32, 64, 128 and 255 that is not below the packet's.
    pub base: Option<u8>,
    /// Routers before the first switch that takes part.
    pub offset: u8,
    /// By how much two switches that take part are apart, at least 1: 2 where a router lies between
    /// any two.
    pub step: u8,
}

impl Default for HopRule {
    fn default() -> Self {
        Self { base: None, offset: 0, step: 1 }
    }
}

impl HopRule {
    /// The hop number of a packet received with this time to live: 0 at the first switch, and where
    /// the packet has more left than hosts give it.
    #[inline(always)]
    pub fn number(&self, ttl: u8) -> u8 {
        let base = self.base.unwrap_or_else(|| {
            let [low, middle, high, highest] = BASES;
            let upper = if ttl <= high { high } else { highest };
            let lower = if ttl <= low { low } else { middle };
            if ttl <= middle { lower } else { upper }
        });
        base.saturating_sub(ttl).saturating_sub(self.offset) / self.step.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_send_with_different_values_are_at_the_same_hop() {
        let rule = HopRule::default();
        for base in BASES {
            for hop in 0..32 {
                assert_eq!(rule.number(base - hop), hop, "{base} - {hop}");
            }
        }
        assert_eq!((rule.number(0), rule.number(1)), (32, 31));
        assert_eq!(rule.number(33), 31);
    }

    #[test]
    fn routers_that_take_no_part_are_left_out() {
        let rule = HopRule { base: Some(64), offset: 1, step: 2 };
        let numbers = [64, 63, 62, 61, 60, 59].map(|ttl| rule.number(ttl));
        assert_eq!(numbers, [0, 0, 0, 1, 1, 2]);
        assert_eq!(rule.number(200), 0);
    }
}
