//! Packets of the captures that tests have at hand.

use calumma_testbed::capture::Capture;

/// Longest packet that a port takes, in bytes.
pub(crate) const LONGEST: usize = 9216;

/// Packets of a capture, filled up with zeros to the length they had on the wire, or to `most`
/// bytes where that is longer; none where the capture is not there.
pub(crate) fn captured(name: &str, most: usize) -> Option<Vec<Vec<u8>>> {
    let path = calumma_testenv::capture(name)?;
    let mut capture = Capture::open(&path).unwrap();
    let mut frames = Vec::new();
    while let Some(record) = capture.next_record().unwrap() {
        let mut bytes = record.bytes.to_vec();
        bytes.resize((record.original_len as usize).clamp(bytes.len(), most), 0);
        frames.push(bytes);
    }
    Some(frames)
}
