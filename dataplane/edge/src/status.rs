//! What a switch tells of itself to whoever asks while it runs: Prometheus, DPDK's telemetry
//! socket, `calumma-edge top`. The control thread publishes it a few times a second; asking costs
//! it nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Epochs that are remembered.
const RECENT: usize = 64;

/// Totals by name.
pub type Named = BTreeMap<String, u64>;

/// A switch at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The edge's name.
    pub edge: String,
    /// When this was so, in nanoseconds since the Unix epoch.
    pub unix_ns: u64,
    /// Ticks of the time stamp counter in a second.
    pub tsc_hz: u64,
    /// The connection to the controller.
    pub controller: Controller,
    /// Totals since the start, all lcores together, with those of the control thread.
    pub counters: Named,
    /// What there is at present, by name; an older switch has it among its totals.
    #[serde(default)]
    pub gauges: Named,
    /// Totals of each port, as the device counts them.
    pub ports: BTreeMap<String, Named>,
    /// Each lcore: its totals, its cycles by stage, how long its bursts take.
    pub lcores: Vec<Named>,
    /// Length of an epoch in milliseconds; none while nothing is measured.
    pub epoch_ms: Option<u64>,
    /// The systems that run, or ran, by name.
    pub systems: BTreeMap<String, SystemStatus>,
}

/// The connection to the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    /// Its address.
    pub address: String,
    /// Whether the connection stands.
    pub connected: bool,
    /// Bytes that wait for it, those it has not yet reported included.
    pub held_bytes: u64,
}

/// A measurement system on the switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemStatus {
    /// The epochs that it finished last, the newest at the end.
    pub epochs: VecDeque<Epoch>,
    /// What it measures with, by name: bytes, thresholds. None where it does not run any more.
    pub gauges: BTreeMap<String, f64>,
}

/// An epoch that a system has finished, or a side of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Its number.
    pub epoch: u64,
    /// Packets recorded, by side: `ingress`, `egress`, `transit`.
    pub packets: Named,
    /// Packets that came too late to be recorded; none before the epoch is sealed.
    pub late_packets: Option<u64>,
    /// By how much an lcore was too late at one of its events, in nanoseconds; else 0.
    pub stall_ns: u64,
    /// Bytes of the frames that tell the controller of it.
    pub frame_bytes: u64,
    /// What else the system shows of it, by name; none where it is not known.
    pub notes: BTreeMap<String, Option<u64>>,
}

impl Status {
    /// The last epoch that a system has finished.
    pub fn last_epoch(&self) -> Option<u64> {
        self.systems.values().filter_map(|system| Some(system.epochs.back()?.epoch)).max()
    }
}

/// The epochs that were finished last.
#[derive(Clone, Debug, Default)]
pub struct Recent(VecDeque<Epoch>);

impl Recent {
    /// The entry of `epoch`, made where there is none, for which the oldest one goes.
    pub fn of(&mut self, epoch: u64) -> &mut Epoch {
        let place = |entries: &VecDeque<Epoch>| entries.binary_search_by_key(&epoch, |e| e.epoch);
        let at = place(&self.0).unwrap_or_else(|_| {
            if self.0.len() == RECENT {
                self.0.pop_front();
            }
            let at = place(&self.0).unwrap_or_else(|at| at);
            self.0.insert(at, Epoch { epoch, ..Epoch::default() });
            at
        });
        &mut self.0[at]
    }

    /// All of them, the newest at the end.
    pub fn all(&self) -> &VecDeque<Epoch> {
        &self.0
    }
}

/// Where the last status hangs.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Arc<Status>>>);

impl Board {
    /// Replaces the status.
    pub fn publish(&self, status: Status) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(status);
    }

    /// The last status.
    pub fn read(&self) -> Arc<Status> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_epochs_are_kept_in_order_whatever_order_their_sides_come_in() {
        let mut recent = Recent::default();
        for epoch in [3, 2, 4, 3, 5] {
            recent.of(epoch).frame_bytes += 1;
        }
        let epochs = |recent: &Recent| recent.all().iter().map(|e| e.epoch).collect::<Vec<_>>();
        assert_eq!(epochs(&recent), [2, 3, 4, 5]);
        assert_eq!(recent.of(3).frame_bytes, 2);
        for epoch in 6..200 {
            recent.of(epoch);
        }
        assert_eq!(epochs(&recent), (200 - RECENT as u64..200).collect::<Vec<_>>());
        assert_eq!(recent.of(1).epoch, 1, "an old one is written to no newer one's entry");
        assert_eq!((recent.all().len(), recent.all().back().unwrap().epoch), (RECENT, 199));
    }
}
