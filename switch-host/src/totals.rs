//! The totals that a controller was sent: those that have not changed are not sent again.

use std::collections::HashMap;

/// What the controller knows of a switch's totals.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Those that were sent last, by name.
    sent: HashMap<String, u64>,
    /// Frames that had been discarded by then.
    discarded: u64,
}

impl Totals {
    /// Forgets all: another controller knows none.
    pub(crate) fn clear(&mut self) {
        self.sent.clear();
    }

    /// Of `totals`, those that the controller does not know, for the frame that is about to be
    /// queued. `discarded` frames were discarded so far: they may have had any.
    pub(crate) fn unknown(
        &mut self,
        mut totals: Vec<(String, u64)>,
        discarded: u64,
    ) -> Vec<(String, u64)> {
        if discarded != self.discarded {
            self.clear();
            self.discarded = discarded;
        }
        totals.retain(|(name, total)| self.sent.insert(name.clone(), *total) != Some(*total));
        totals
    }
}
