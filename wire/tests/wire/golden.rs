//! The frames' bytes, kept in files that other implementations (the Tofino switch's) test against
//! as well. `CALUMMA_BLESS=1 cargo test -p calumma-wire --test wire golden` writes them anew, which is
//! right only together with a new protocol version.

use std::path::PathBuf;

use calumma_wire::{Message, VERSION};

use crate::samples;

#[test]
fn every_frame_is_what_the_golden_files_hold() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{VERSION}"));
    let bless = std::env::var_os("CALUMMA_BLESS").is_some();
    let messages = || {
        let narrow = samples::messages().into_iter().map(|message| (message, samples::layout()));
        let dual = samples::dual_messages().into_iter();
        narrow.chain(dual.map(|message| (message, samples::dual_layout())))
    };
    for ((name, message), layout) in messages() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let file = folder.join(format!("{name}.bin"));
        if bless {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &bytes).unwrap();
        }
        let golden = std::fs::read(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        assert_eq!(bytes, golden, "{name} as encoded differs from {file:?}");
        let read = Message::decode(&golden, Some(&layout)).unwrap();
        assert_eq!(read, message, "{name} as read from {file:?}");
    }
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut tested: Vec<_> = messages().map(|((name, _), _)| format!("{name}.bin")).collect();
    files.sort();
    tested.sort();
    assert_eq!(files, tested, "every golden file is tested");
}
