//! Any bytes as a capture: reading ends, without a panic, and says no more than the file holds.
//!
//! Run with `cargo +nightly fuzz run fuzz-testbed-capture` in `testbed/`.
#![no_main]

use calumma_testbed::capture::Capture;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let Ok(mut capture) = Capture::new(file) else { return };
    let mut captured = 0;
    loop {
        match capture.next_record() {
            Ok(Some(record)) => captured += record.bytes.len(),
            Ok(None) => break,
            Err(error) => {
                assert!(error.offset <= file.len() as u64, "{error}");
                break;
            }
        }
    }
    assert!(captured <= file.len());
});
