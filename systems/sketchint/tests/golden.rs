//! The bytes of windows and of what sources did, kept in files, which switches one release older
//! send. `CALUMMA_BLESS=1 cargo test -p calumma-sketchint --test golden` writes them anew, which is
//! right only together with a new version.

mod samples;

use std::path::PathBuf;

use calumma_sketchint::frames::{Entered, Window};

/// Bytes of memory that the files say, of IPv4 and of both families.
const MEMORY: [u64; 2] = [40_272, 43_440];

fn check(name: &str, bytes: &[u8]) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v5");
    let file = folder.join(format!("{name}.bin"));
    if std::env::var_os("CALUMMA_BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&file, bytes).unwrap();
    }
    let golden = std::fs::read(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    assert_eq!(bytes, golden, "{name} as encoded differs from {file:?}");
    golden
}

#[test]
fn windows_are_what_the_golden_files_hold() {
    for (name, window) in [("window-ipv4", samples::ipv4()), ("window-dual", samples::dual())] {
        // How much memory a record takes is its program's to say, not the format's.
        let window = Window { memory: MEMORY[usize::from(name == "window-dual")], ..window };
        let golden = check(name, &window.encode());
        assert_eq!(Window::decode(&golden, &samples::layout()), Ok(window), "{name}");
    }
}

#[test]
fn what_a_source_did_is_what_the_golden_file_holds() {
    let not_carried = std::array::from_fn(|why| 3 + 1000 * why as u64);
    let entered = Entered { inserted: 70_000, idle: 17, placeless: 4, not_carried };
    let golden = check("entered", &entered.encode());
    assert_eq!(Entered::decode(&golden), Ok(entered));
}
