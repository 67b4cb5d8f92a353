//! How many victim flows would be heavy or light losses at any T_l.
//!
//! A victim is in the HL encoder if a packet that it lost was at least its T_l-th, in the LL
//! encoder if one was before: it may be in both, or, though large, in the LL encoder only. With
//! packets lost anywhere in a flow, both numbers follow from its size and losses.

/// Victim flows alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Victim {
    /// Packets of each.
    pub size: u32,
    /// Packets lost of each.
    pub lost: u32,
    /// How many there are, which need not be whole: a sampled one stands for several.
    pub flows: f64,
}

/// The victim flows of an epoch, as far as known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Victims(pub Vec<Victim>);

impl Victims {
    /// Number of victim flows.
    pub fn flows(&self) -> f64 {
        self.0.iter().map(|victim| victim.flows).sum()
    }

    /// The same victims, so many times as many that there are `flows`.
    pub(super) fn scaled_to(mut self, flows: f64) -> Self {
        let factor = flows / self.flows().max(f64::MIN_POSITIVE);
        self.0.iter_mut().for_each(|victim| victim.flows *= factor);
        self
    }

    /// Victims that are like all flows, given by number and size, and lose the same share of their
    /// packets: `lost` in all, of `flows` victims.
    pub(super) fn like_all(sizes: &[(u64, f64)], flows: f64, lost: f64) -> Self {
        let all: f64 = sizes.iter().map(|&(_, number)| number).sum();
        let packets: f64 = sizes.iter().map(|&(size, number)| size as f64 * number).sum();
        let rate = (lost / (flows * packets / all.max(1.0)).max(1.0)).min(1.0);
        let victim = |&(size, number): &(u64, f64)| Victim {
            size: u32::try_from(size).unwrap_or(u32::MAX),
            lost: ((size as f64 * rate).round() as u32).max(1),
            flows: number,
        };
        Self(sizes.iter().map(victim).collect()).scaled_to(flows)
    }

    /// Victims in the HL encoder at `t_l`.
    pub(super) fn heavy(&self, t_l: u32) -> f64 {
        self.in_the(|victim| {
            let before = f64::from(t_l - 1) / f64::from(victim.size);
            1.0 - before.min(1.0).powi(victim.lost.min(i32::MAX as u32) as i32)
        })
    }

    /// Victims in the LL encoder at `t_l`, were all sampled.
    pub(super) fn light(&self, t_l: u32) -> f64 {
        self.in_the(|victim| {
            let from = 1.0 - f64::from(t_l - 1) / f64::from(victim.size);
            1.0 - from.max(0.0).powi(victim.lost.min(i32::MAX as u32) as i32)
        })
    }

    fn in_the(&self, share: impl Fn(&Victim) -> f64) -> f64 {
        self.0.iter().map(|victim| victim.flows * share(victim)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_packets_were_lost_decides_the_encoder() {
        let one = |size, lost| Victims(vec![Victim { size, lost, flows: 100.0 }]);
        let mouse = one(3, 1);
        assert_eq!((mouse.heavy(1), mouse.light(1)), (100.0, 0.0));
        assert_eq!((mouse.heavy(4), mouse.light(4)), (0.0, 100.0));
        let elephant = one(1000, 1);
        assert!((elephant.heavy(11) - 99.0).abs() < 1e-9);
        assert!((elephant.light(11) - 1.0).abs() < 1e-9);
        let dying = one(20, 20);
        assert!(dying.heavy(11) > 99.9 && dying.light(11) > 99.9, "it is in both");
    }

    #[test]
    fn victims_like_all_flows_share_their_sizes_and_lose_what_was_lost() {
        let victims = Victims::like_all(&[(1, 900.0), (100, 100.0)], 500.0, 1000.0);
        assert!((victims.flows() - 500.0).abs() < 1e-9);
        assert!((victims.heavy(2) - 50.0).abs() < 1.0);
    }
}
