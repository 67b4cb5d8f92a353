//! Links that carry so many packets a second: what comes faster waits, and is lost where the queue
//! is full.

use anyhow::{Result, ensure};

use super::Setup;
use crate::topology::{LinkQuality, Routes, Topology};

/// Whether a link does nothing to packets but lose and delay them.
pub(super) fn is_plain(quality: &LinkQuality) -> bool {
    let LinkQuality { duplicate, remark, dnat, snat, late, .. } = *quality;
    [duplicate, remark, dnat, snat, late] == [0.0; 5]
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Transmitter {
    /// When it is through with all that it has accepted, in picoseconds since the Unix epoch.
    free_ps: u128,
}

impl Transmitter {
    /// Accepts a packet at `now_ns`. Gives when it is through with it; none where so many packets
    /// wait as the queue has room for.
    pub(super) fn accept(&mut self, quality: &LinkQuality, now_ns: u64) -> Option<u64> {
        let now_ps = u128::from(now_ns) * 1000;
        let packet_ps = (1e12 / quality.rate_pps) as u128;
        let begins_ps = self.free_ps.max(now_ps);
        // The packet that is on the link does not wait any more.
        let waiting = (begins_ps - now_ps).div_ceil(packet_ps).saturating_sub(1);
        if begins_ps > now_ps && waiting >= u128::from(quality.queue) {
            return None;
        }
        self.free_ps = begins_ps + packet_ps;
        Some((self.free_ps / 1000) as u64)
    }
}

/// Checks that packets get through full queues so soon that they are recorded in the epoch they
/// entered in, and that what is lost of an epoch is lost before it is reported. Packets that links
/// hold up may be late where no queue and no switch loses any later.
///
/// # Errors
/// How long a way may take, and how long it may.
pub(super) fn check(topology: &Topology, setup: &Setup) -> Result<()> {
    let live_only = |quality: &LinkQuality| quality.tbf_mbit > 0.0 || quality.ecn > 0.0;
    ensure!(
        !topology.links().iter().any(|link| live_only(&link.quality)),
        "tbf_mbit and ecn: only the routers of a live fabric do this"
    );
    let up = || topology.links().iter().map(|link| link.quality).filter(|quality| !quality.down);
    if !up().any(|quality| quality.rate_pps > 0.0) {
        let holds_up = up().any(|quality| quality.late > 0.0);
        ensure!(
            !holds_up || topology.transits().next().is_none(),
            "late: what switches between edges lose of late packets would be lost after its report"
        );
        return Ok(());
    }
    ensure!(
        up().all(|quality| quality.late == 0.0),
        "late beside rate_pps: what queues lose of late packets would be lost after its report"
    );
    let takes_us = |LinkQuality { delay_us, jitter_us, rate_pps, queue, .. }| {
        let packets = f64::from(queue) + 1.0;
        delay_us + jitter_us + if rate_pps > 0.0 { packets * 1e6 / rate_pps } else { 0.0 }
    };
    let mut links_us: Vec<f64> = up().map(takes_us).collect();
    links_us.sort_by(|a, b| b.total_cmp(a));
    let way_us: f64 = links_us.iter().take(Routes::new(topology).longest()).sum();
    let most_ns = (setup.clock.length_ns() / 4 * 3).min(setup.grace_ns);
    let most_us = most_ns as f64 / 1e3;
    ensure!(
        way_us <= most_us,
        "a way may take a packet {way_us:.0} us where all queues are full: it may take {most_us:.0} us, \
         three quarters of an epoch and no longer than grace_ms"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: u64 = 1_700_000_000_000_000_000;

    #[test]
    fn packets_wait_for_their_turn_and_the_last_ones_find_no_room() {
        let quality = LinkQuality { rate_pps: 1000.0, queue: 3, ..LinkQuality::default() };
        let mut link = Transmitter::default();
        let mut at = |ms: f64| {
            let through_ns = link.accept(&quality, NOW_NS + (ms * 1e6) as u64)?;
            Some((through_ns - NOW_NS) / 1_000_000)
        };
        // One is on the link, three wait.
        let at_once: Vec<_> = (0..5).map(|_| at(0.0)).collect();
        assert_eq!(at_once, [Some(1), Some(2), Some(3), Some(4), None]);
        assert_eq!(at(0.9), None);
        assert_eq!([at(1.0), at(1.0)], [Some(5), None], "one has gone");
        assert_eq!(at(50.0), Some(51), "nothing is saved up");
    }

    #[test]
    fn without_a_queue_a_link_carries_what_finds_it_idle() {
        let quality = LinkQuality { rate_pps: 3e6, queue: 0, ..LinkQuality::default() };
        let mut link = Transmitter::default();
        assert_eq!(link.accept(&quality, NOW_NS), Some(NOW_NS + 333));
        assert_eq!(link.accept(&quality, NOW_NS + 300), None);
        assert_eq!(link.accept(&quality, NOW_NS + 334), Some(NOW_NS + 667));
    }
}
