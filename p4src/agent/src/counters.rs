//! What the daemon counts, each total by whichever of its threads does the work, for the controller
//! and for Prometheus. What the switch itself counts is read from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use calumma_bfrt::ClientError;

use crate::driver::Driver;

/// The program's counters of packets, before and behind its queues.
pub(crate) const ENTERED: &str = "Ingress.packets";
pub(crate) const LEFT: &str = "Egress.packets";

/// Where a program counts packets that came too late as they come, dropped ones as well; others
/// count those that leave.
const LATE: &str = "Ingress.late";

/// Something that is counted.
#[derive(Debug, Default)]
pub(crate) struct Total(AtomicU64);

impl Total {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Adds the microseconds since then.
    pub(crate) fn add_since(&self, start: Instant) {
        self.add(start.elapsed().as_micros() as u64);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Totals since the daemon's start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Epochs whose two sides came out of the switch.
    pub(crate) measured: Total,
    /// Epochs that the switch had no clean group for.
    pub(crate) unmeasured: Total,
    /// Sides that did not come out in time, and are in no report.
    pub(crate) discarded: Total,
    /// Sides for which the daemon was late.
    pub(crate) stalled: Total,
    /// Sides that came out.
    pub(crate) gathered: Total,
    /// Groups that were cleared.
    pub(crate) cleared: Total,
    /// Rounds of requests after the first one, and their packets.
    pub(crate) retries: Total,
    pub(crate) repeated_packets: Total,
    /// Time to take groups out and clear them.
    pub(crate) collection_us: Total,
    /// Epochs whose tables were filled, those among them with another attention than the one
    /// before, the entries that changed, and the time it took.
    pub(crate) filled: Total,
    pub(crate) reconfigured: Total,
    pub(crate) changed_entries: Total,
    pub(crate) tables_us: Total,
    /// Events that notices came of, and those that none did.
    pub(crate) noticed: Total,
    pub(crate) unnoticed: Total,
    /// Connections to the driver.
    pub(crate) connections: Total,
    /// The newest epoch whose egress side came out.
    pub(crate) last_epoch: AtomicU64,
}

impl Counters {
    /// All totals by name.
    pub(crate) fn named(&self) -> [(&'static str, u64); 16] {
        [
            ("epochs.measured", &self.measured),
            ("epochs.unmeasured", &self.unmeasured),
            ("epochs.discarded", &self.discarded),
            ("epochs.stalled", &self.stalled),
            ("collection.gathered", &self.gathered),
            ("collection.cleared", &self.cleared),
            ("collection.retries", &self.retries),
            ("collection.repeated_packets", &self.repeated_packets),
            ("collection.microseconds", &self.collection_us),
            ("tables.filled", &self.filled),
            ("tables.reconfigured", &self.reconfigured),
            ("tables.changed_entries", &self.changed_entries),
            ("tables.microseconds", &self.tables_us),
            ("collection.notices", &self.noticed),
            ("collection.notices_missing", &self.unnoticed),
            ("driver.connections", &self.connections),
        ]
        .map(|(name, total)| (name, total.get()))
    }
}

/// What the switch counts, by the names that a software edge has for the same.
///
/// # Errors
/// When the driver refuses to read.
pub(crate) fn packets(driver: &Driver) -> Result<[(&'static str, u64); 6], ClientError> {
    let entered: [u64; 8] = cells(driver, ENTERED)?;
    let left: [u64; 3] = left(driver)?;
    Ok([
        ("received.host", entered[2] + entered[3] + entered[6] + entered[7]),
        ("received.fabric", entered[0] + entered[1] + entered[4]),
        ("ingress.recorded", entered[3]),
        ("egress.recorded", left[0] + left[1]),
        ("egress.late", left[2]),
        ("unmeasured.above_fabric_mtu", entered[7]),
    ])
}

/// The first cells of the counter of packets that left; in the third are those that came too late,
/// wherever the program counts them.
///
/// # Errors
/// When the driver refuses to read.
pub(crate) fn left<const N: usize>(driver: &Driver) -> Result<[u64; N], ClientError> {
    let mut left = cells(driver, LEFT)?;
    if driver.info().table(LATE).is_ok()
        && let Some(late) = left.get_mut(2)
    {
        *late += cell(driver, LATE, 0)?;
    }
    Ok(left)
}

/// One cell of a counter of packets.
///
/// # Errors
/// When the driver refuses to read.
pub(crate) fn cell(driver: &Driver, counter: &str, cell: u32) -> Result<u64, ClientError> {
    let cells = driver.elements(counter, cell..cell + 1)?;
    Ok(cells.first().map_or(0, |cell| count(cell)))
}

/// The first cells of a counter of packets.
///
/// # Errors
/// When the driver refuses to read.
pub(crate) fn cells<const N: usize>(
    driver: &Driver,
    counter: &str,
) -> Result<[u64; N], ClientError> {
    let cells = driver.elements(counter, 0..N as u32)?;
    Ok(std::array::from_fn(|at| cells.get(at).map_or(0, |cell| count(cell))))
}

/// What a cell counts: of bytes and packets, packets come last.
fn count(cell: &[u64]) -> u64 {
    cell.last().copied().unwrap_or_default()
}
