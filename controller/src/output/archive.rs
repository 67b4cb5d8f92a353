//! The archive as an output: its disk is waited for on a thread of its own.

use std::sync::Arc;
use std::time::Instant;

use calumma_analysis::Published;
use calumma_archive::{Archive, Disk};

use super::Sink;

impl<D: Disk> Sink for Archive<D> {
    fn name(&self) -> &'static str {
        "archive"
    }

    fn take(&mut self, published: &Arc<Published>) -> anyhow::Result<()> {
        self.append(published, Instant::now())
    }

    fn sync(&mut self) -> anyhow::Result<()> {
        Archive::sync(self)
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        self.roll_if_due(Instant::now())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        Archive::finish(self, Instant::now())
    }
}
