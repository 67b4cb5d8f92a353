//! Frames that no system needs to look at: those that came before, and those about epochs that are
//! not collected. They are recognised in their connection's task before anything is
//! unpacked, so that a node that repeats itself costs its own connection a microsecond a frame, and
//! no queue room, no decoding and no lane's time.
//!
//! What passes is judged anew, and finally, by the system's [collector](crate::collect).

use std::collections::{BTreeMap, HashMap};

use calumma_wire::{SideKind, SystemId};

use super::lane::Lane;
use crate::collect::{KINDS, MOST_SILENT, Receipt};

/// What has passed of one connection.
#[derive(Debug, Default)]
pub(super) struct Gate(HashMap<SystemId, Passed>);

/// What has passed of one system.
#[derive(Debug, Default)]
struct Passed {
    /// Which of the system's lanes and beginnings it is of.
    of: (u64, u64),
    /// A bit for each kind of frame, by epoch. No more epochs than are collected at once.
    epochs: BTreeMap<u64, u8>,
    /// The controller's epoch in which a frame passed that is out of window.
    strayed_in: Option<u64>,
}

impl Gate {
    /// What becomes of a frame about `epoch` that a lane covers, a side or a seal, in the epoch
    /// `current`; `None` where it passes. Of frames that are out of window one an epoch does, for
    /// the report to name.
    pub(super) fn judge(
        &mut self,
        lane: &Lane,
        epoch: u64,
        side: Option<SideKind>,
        current: u64,
    ) -> Option<Receipt> {
        let (begun, open_from) = lane.collecting();
        let of = (lane.first_epoch, begun);
        let passed = self.0.entry(lane.id()).or_default();
        if passed.of != of {
            *passed = Passed { of, ..Passed::default() };
        }
        if epoch < open_from {
            return Some(Receipt::Late);
        }
        if epoch > current || epoch.saturating_add(MOST_SILENT) < current {
            let again = passed.strayed_in.replace(current) == Some(current);
            return again.then_some(Receipt::OutOfWindow);
        }
        let oldest = open_from.max(current.saturating_sub(MOST_SILENT));
        while passed.epochs.first_key_value().is_some_and(|(&epoch, _)| epoch < oldest) {
            passed.epochs.pop_first();
        }
        let kinds = passed.epochs.entry(epoch).or_default();
        let bit = 1 << side.map_or(KINDS, |side| side as usize);
        let again = *kinds & bit != 0;
        *kinds |= bit;
        again.then_some(Receipt::Duplicate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::server::lane::Inlet;
    use tokio::sync::mpsc;

    fn lane() -> Lane {
        let (queue, _) = mpsc::channel(1);
        let config = Config::parse("edges = ['e1', 'e2']", "a test").unwrap();
        let inlet = Inlet::Analysis(queue, HashMap::new());
        Lane::new(calumma_systems::SYSTEMS[0], inlet, 0, &config)
    }

    #[test]
    fn every_frame_passes_once_while_its_epoch_is_collected() {
        let (lane, mut gate) = (lane(), Gate::default());
        for side in [None, Some(SideKind::Ingress), Some(SideKind::Egress)] {
            assert_eq!(gate.judge(&lane, 100, side, 103), None);
            assert_eq!(gate.judge(&lane, 100, side, 103), Some(Receipt::Duplicate));
            assert_eq!(gate.judge(&lane, 101, side, 103), None);
        }
        lane.set_collecting(0, 101);
        assert_eq!(gate.judge(&lane, 100, None, 104), Some(Receipt::Late));
        assert_eq!(gate.judge(&lane, 101, None, 104), Some(Receipt::Duplicate));
        // The controller's clock was set back: epochs are collected anew.
        lane.set_collecting(1, 0);
        assert_eq!(gate.judge(&lane, 100, None, 103), None);
    }

    #[test]
    fn of_frames_out_of_window_one_an_epoch_passes() {
        let (lane, mut gate) = (lane(), Gate::default());
        for current in [5000, 5001] {
            assert_eq!(gate.judge(&lane, current + 1, None, current), None);
            for epoch in [current + 1, 3, u64::MAX] {
                let judged = gate.judge(&lane, epoch, None, current);
                assert_eq!(judged, Some(Receipt::OutOfWindow), "{epoch}");
            }
        }
    }

    /// A node that names every epoch there is, over hours in which nothing is reported.
    #[test]
    fn what_is_remembered_is_bounded() {
        let (lane, mut gate) = (lane(), Gate::default());
        for current in 2000..100_000 {
            gate.judge(&lane, current, None, current);
        }
        let kept = gate.0[&lane.id()].epochs.len() as u64;
        assert_eq!(kept, MOST_SILENT + 1);
    }
}
