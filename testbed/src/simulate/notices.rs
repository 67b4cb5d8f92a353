//! What nodes report before an epoch is over.

use calumma_analysis::Published;

use super::network::Simulation;

impl Simulation {
    /// What the controller has published before its epoch was over since this was asked last, with
    /// the true time of each, in nanoseconds since the first epoch began.
    pub fn take_notices(&mut self) -> Vec<(u64, Published)> {
        let begin_ns = self.setup.clock.start_of(self.first_epoch);
        let taken = self.controller.iter_mut().flat_map(|of| std::mem::take(&mut of.notices));
        taken.map(|(at_ns, of)| (at_ns.saturating_sub(begin_ns), of)).collect()
    }
}
