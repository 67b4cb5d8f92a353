//! Whether a poll has left its receive queue empty: what the next one finds came after it then.

use dpdk::BURST;

/// What polls of a receive queue say of that.
///
/// One that takes fewer packets than it may has found no more, but for three kinds of drivers.
/// Virtio's ends a burst where a line of the cache with descriptors ends, and leaves up to three
/// packets behind. Intel's take packets out of the ring in bursts where they do without vector
/// instructions, and what a smaller poll leaves of those the next one gives out, and no other.
/// That of AF_XDP looks how many packets the ring has only once it has given out all that it last
/// found there: a poll that it answers with the rest does not see what came since.
#[derive(Clone, Copy, Debug)]
pub struct Emptied {
    /// Whether its driver ends bursts early.
    cuts: bool,
    /// Whether its driver gives out what it once found before it looks again.
    caches: bool,
    /// Whether its driver may have packets that it has found and not given out.
    keeps: bool,
}

impl Emptied {
    /// Of a queue of this driver, whose polls so far are not known.
    pub fn by(driver: &str) -> Self {
        let [cuts, caches] = ["net_virtio", "net_af_xdp"].map(|of| driver.starts_with(of));
        Self { cuts, caches, keeps: true }
    }

    /// Whether a poll that received so many packets, of `most` that it could have, left nothing.
    #[inline]
    pub fn after(&mut self, received: usize, most: usize) -> bool {
        let may_keep = received == most && (most < BURST || self.caches);
        let has_kept = std::mem::replace(&mut self.keeps, may_keep);
        received == 0 || (received < most && !self.cuts && !has_kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_poll_of_most_drivers_leaves_nothing() {
        for driver in ["net_af_packet", "net_memif", "net_ring", "mlx5_pci"] {
            let mut emptied = Emptied::by(driver);
            assert!(!emptied.after(7, BURST), "{driver}: it may have had some from before");
            for (received, most, is_empty) in
                [(0, 32, true), (31, 32, true), (32, 32, false), (5, 32, true), (5, 8, true)]
            {
                assert_eq!(emptied.after(received, most), is_empty, "{driver}: {received}");
            }
        }
    }

    /// A receive queue by its driver.
    #[derive(Debug, Default)]
    struct Queue {
        ring: usize,
        /// Found in the ring and not given out.
        stage: usize,
        /// Received so far.
        total: usize,
    }

    impl Queue {
        /// Polls it; a driver that stages takes so many packets out of the ring at most.
        fn poll(&mut self, most: usize, cuts: bool, stages: Option<usize>) -> usize {
            let received = if let Some(staged) = stages {
                if self.stage == 0 {
                    self.stage = self.ring.min(staged);
                    self.ring -= self.stage;
                }
                let received = self.stage.min(most);
                self.stage -= received;
                received
            } else {
                let found = self.ring.min(most);
                let over = if cuts && found > 4 { (self.total + found) % 4 } else { 0 };
                self.ring -= found - over;
                found - over
            };
            self.total += received;
            received
        }
    }

    proptest! {
        #[test]
        fn a_queue_that_is_said_to_be_empty_is(
            polls in prop::collection::vec((0usize..70, any::<bool>()), 1..200),
        ) {
            for (driver, cuts, stages) in [
                ("net_virtio", true, None),
                ("net_virtio_user", true, None),
                ("net_ice", false, Some(BURST)),
                ("net_af_xdp", false, Some(usize::MAX)),
                ("net_af_packet", false, None),
            ] {
                let (mut queue, mut emptied) = (Queue::default(), Emptied::by(driver));
                for (come, small) in &polls {
                    queue.ring += come;
                    let most = if *small { 8 } else { BURST };
                    let received = queue.poll(most, cuts, stages);
                    if emptied.after(received, most) {
                        prop_assert_eq!((queue.ring, queue.stage), (0, 0), "{}", driver);
                    }
                }
            }
        }
    }
}
