//! The frames' bytes, kept in files: those of this version of the protocol, and those of the
//! version before, which edges and controllers one release older send.
//! `CALUMMA_BLESS=1 cargo test -p calumma-chamelemon --test golden` writes those of this version
//! anew, which is right only together with a new version.

mod samples;

use std::path::PathBuf;

use calumma_chamelemon::Layout;
use calumma_chamelemon::frames::Message;
use calumma_wire::{OLDEST_VERSION, VERSION};

/// All that can be said in a version of the protocol.
fn messages(version: u8) -> impl Iterator<Item = (&'static str, Message, Layout)> {
    let (mut narrow, mut dual) = (samples::messages(), samples::dual_messages());
    if version == VERSION {
        narrow.extend(samples::recorded_messages());
        dual.extend(samples::dual_recorded_messages());
    }
    let narrow = narrow.into_iter().map(|(name, message)| (name, message, samples::layout()));
    let dual = dual.into_iter().map(|(name, message)| (name, message, samples::dual_layout()));
    narrow.chain(dual)
}

fn check(version: u8, bless: bool) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}"));
    for (name, message, layout) in messages(version) {
        let mut bytes = Vec::new();
        assert!(message.to_wire().encode_as(version, &mut bytes), "{name} in version {version}");
        let file = folder.join(format!("{name}.bin"));
        if bless {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &bytes).unwrap();
        }
        let golden = std::fs::read(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        assert_eq!(bytes, golden, "{name} as encoded differs from {file:?}");
        let read = Message::decode(&golden, Some(&layout)).unwrap();
        assert_eq!(read, Some(message), "{name} as read from {file:?}");
    }
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut tested: Vec<_> = messages(version).map(|(name, ..)| format!("{name}.bin")).collect();
    files.sort();
    tested.sort();
    assert_eq!(files, tested, "every golden file is tested");
}

#[test]
fn frames_are_what_the_golden_files_hold() {
    check(VERSION, std::env::var_os("CALUMMA_BLESS").is_some());
}

#[test]
fn frames_of_the_version_before_are_read_and_written() {
    check(OLDEST_VERSION, false);
}

#[test]
fn the_envelope_adds_but_a_few_bytes_to_an_epoch() {
    let bytes = |version| {
        let sizes = messages(OLDEST_VERSION).filter_map(|(_, message, _)| {
            let of_epoch = matches!(
                message,
                Message::Ingress(_) | Message::Egress(_) | Message::Sealed { .. }
            );
            let mut bytes = Vec::new();
            (of_epoch && message.to_wire().encode_as(version, &mut bytes)).then_some(bytes.len())
        });
        sizes.collect::<Vec<_>>()
    };
    for (new, old) in bytes(VERSION).into_iter().zip(bytes(OLDEST_VERSION)) {
        assert!(new <= old + 2, "{new} bytes where there were {old}");
    }
}
