//! What a capture holds, in a few numbers, and where it ends if it ends badly.

use std::path::Path;

use serde::Serialize;

use crate::capture::{Capture, CaptureError};

/// A capture in numbers.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Packets read.
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Their bytes in the file.
    pub captured_bytes: u64,
    /// Time of the earliest packet, in nanoseconds since 1970.
    pub first_ns: Option<u64>,
    /// Time of the latest packet.
    pub last_ns: Option<u64>,
    /// Packets earlier than the one before them.
    pub out_of_order: u64,
    /// Why reading ended before the file did.
    pub error: Option<String>,
}

/// Reads a capture to its end or its first fault.
pub fn summarise(path: &Path) -> Summary {
    let mut summary = Summary::default();
    if let Err(error) = read(path, &mut summary) {
        summary.error = Some(format!("{}: {error}", path.display()));
    }
    summary
}

fn read(path: &Path, summary: &mut Summary) -> Result<(), CaptureError> {
    let mut capture = Capture::open(path)?;
    let mut before = 0;
    while let Some(record) = capture.next_record()? {
        let time = record.timestamp_ns;
        summary.packets += 1;
        summary.wire_bytes += u64::from(record.original_len);
        summary.captured_bytes += record.bytes.len() as u64;
        summary.first_ns = Some(summary.first_ns.map_or(time, |first| first.min(time)));
        summary.last_ns = summary.last_ns.max(Some(time));
        summary.out_of_order += u64::from(time < before);
        before = time;
    }
    Ok(())
}

impl Summary {
    /// The summary for a terminal.
    pub fn to_text(&self) -> String {
        let seconds = match (self.first_ns, self.last_ns) {
            (Some(first), Some(last)) => (last - first) as f64 / 1e9,
            _ => 0.0,
        };
        let mut text = format!(
            "{} packets in {seconds:.6} s, {} out of order\n{} bytes on the wire, {} of them in the file\n",
            self.packets, self.out_of_order, self.wire_bytes, self.captured_bytes
        );
        if let Some(error) = &self.error {
            text += &format!("error: {error}\n");
        }
        text
    }
}
