//! Memory and descriptors of a live fabric's programs, looked at once a second.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Live;
use crate::scenario::{Held, Usage};

/// From one look to the next.
const APART: Duration = Duration::from_secs(1);

/// What was found so far.
#[derive(Debug)]
pub(super) struct Usages {
    began: Instant,
    next: Instant,
    pub(super) found: Vec<Usage>,
}

impl Default for Usages {
    fn default() -> Self {
        let now = Instant::now();
        Self { began: now, next: now, found: Vec::new() }
    }
}

impl Live {
    /// Looks at what programs hold, where it is time to.
    pub(super) fn look_at_usage(&mut self) -> Result<()> {
        let now = Instant::now();
        if now < self.usages.next {
            return Ok(());
        }
        self.usages.next = now + APART;
        let seconds = (now - self.usages.began).as_secs_f64();
        let controller = self.controller.iter().map(|(of, _)| ("controller", of.process()));
        let edges = self.topology.edges().iter().zip(&self.edges);
        let edges =
            edges.filter_map(|(name, edge)| Some((name.as_str(), edge.as_ref()?.process())));
        let transits = self.transits.iter().map(|of| (of.name(), of.switch().process()));
        for (program, process) in controller.chain(edges).chain(transits) {
            let process = process.id();
            let held = held(process, seconds).with_context(|| format!("looking at {program}"))?;
            let found = &mut self.usages.found;
            match found.iter_mut().rfind(|of| of.program == program && of.process == process) {
                Some(of) => of.held.push(held),
                None => {
                    let program = program.to_owned();
                    found.push(Usage { program, process, held: vec![held] });
                }
            }
        }
        Ok(())
    }
}

/// What a process holds.
fn held(process: u32, seconds: f64) -> Result<Held> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let kib = |field: &str| -> Option<u64> {
        let value = status.lines().find_map(|line| line.strip_prefix(field))?;
        value.split_whitespace().next()?.parse().ok()
    };
    // Files that are mapped are the kernel's to keep or to drop.
    let memory_kib = kib("RssAnon:").zip(kib("RssShmem:")).map(|(own, shared)| own + shared);
    let memory_kib = memory_kib.with_context(|| format!("{path} names no memory"))?;
    let path = format!("/proc/{process}/fd");
    let descriptors = fs::read_dir(&path).with_context(|| format!("listing {path}"))?.count();
    Ok(Held { seconds, memory_kib, descriptors: descriptors as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn memory_and_descriptors_that_are_taken_show() {
        let me = std::process::id();
        let before = held(me, 0.0).unwrap();
        let memory = vec![1_u8; 64 << 20];
        let files: Vec<_> = (0..50).map(|_| File::open("/dev/null").unwrap()).collect();
        let after = held(me, 1.0).unwrap();
        // Other tests of this process may give back something meanwhile.
        assert!(after.memory_kib > before.memory_kib + 32 * 1024, "{before:?}, {after:?}");
        assert!(after.descriptors > before.descriptors + 25, "{before:?}, {after:?}");
        assert_eq!((memory.len(), files.len()), (64 << 20, 50));
    }
}
