//! Any bytes, as a stream of frames: no panic, and what can be read says the same when written and
//! read again. Run from `wire/` with
//! `cargo +nightly fuzz run fuzz-wire-decode fuzz/corpus/decode
//! ../systems/chamelemon/tests/golden/v6`.

#![no_main]

use calumma_chamelemon::Layout;
use calumma_chamelemon::frames;
use calumma_sketch::Level;
use calumma_wire::{FrameReader, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let layout = Layout {
        upstream_buckets: 12,
        downstream_buckets: 8,
        classifier: vec![Level::new(4, 30), Level::new(8, 20), Level::new(16, 10)],
        ..Layout::default()
    };
    let mut reader = FrameReader::new();
    for piece in bytes.chunks(61) {
        reader.push(piece);
        while let Ok(Some(message)) = reader.next_message() {
            let mut again = Vec::new();
            message.encode(&mut again);
            assert_eq!(Message::decode(&again).as_ref(), Ok(&message));
            if let Ok(Some(message)) = frames::Message::read(message, Some(&layout)) {
                let mut again = Vec::new();
                message.encode(&mut again);
                assert_eq!(frames::Message::decode(&again, Some(&layout)), Ok(Some(message)));
            }
        }
    }
});
