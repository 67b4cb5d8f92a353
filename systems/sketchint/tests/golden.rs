//! The bytes of windows and of what sources did, kept in files, which switches one release older
//! send. `CALUMMA_BLESS=1 cargo test -p calumma-sketchint --test golden` writes them anew, which is
//! right only together with a new version.

mod samples;

use std::path::PathBuf;

use calumma_plane::int::means::Means;
use calumma_sketch::sketchint::Totals;
use calumma_sketchint::frames::{Entered, Layout, Passed, Window};

/// The file of a version.
fn file(version: u8, name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}"));
    folder.join(format!("{name}.bin"))
}

/// The window, with what a file says of memory and of inflated latencies: how much of the one a
/// record takes, and what it has room for of the others, is its program's to say, not the format's.
fn as_in_file((version, name): (u8, &str), window: Window, layout: &Layout) -> Window {
    let known = std::fs::read(file(version, name)).ok();
    let known = known.and_then(|bytes| Window::decode(&bytes, layout).ok());
    let Some(Window { memory, inflated, totals, .. }) = known else { return window };
    let totals = Totals { inflated_full: totals.inflated_full, ..window.totals };
    Window { memory, inflated, totals, ..window }
}

fn check((version, name): (u8, &str), bytes: &[u8]) -> Vec<u8> {
    let file = file(version, name);
    if std::env::var_os("CALUMMA_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, bytes).unwrap();
    }
    let golden = std::fs::read(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    assert_eq!(bytes, golden, "{name} as encoded differs from {file:?}");
    golden
}

#[test]
fn windows_are_what_the_golden_files_hold() {
    for (name, window) in [("window-ipv4", samples::ipv4()), ("window-dual", samples::dual())] {
        let window = Window { means: None, ..window };
        let window = as_in_file((5, name), window, &samples::layout());
        let golden = check((5, name), &window.encode());
        assert_eq!(Window::decode(&golden, &samples::layout()), Ok(window), "{name}");
    }
}

#[test]
fn windows_with_latencies_by_size_are_what_the_golden_files_hold() {
    let layout = samples::by_size();
    let both = [samples::ipv4_of(layout), samples::dual_of(layout)];
    for (name, window) in ["window-ipv4", "window-dual"].into_iter().zip(both) {
        let window = window.for_version(6, &layout);
        let window = as_in_file((6, name), window, &layout);
        let golden = check((6, name), &window.encode());
        assert_eq!(Window::decode(&golden, &layout), Ok(window), "{name}");
    }
}

#[test]
fn what_switches_say_of_themselves_is_what_the_golden_files_hold() {
    let layout = samples::layout();
    let window = as_in_file((7, "window-ipv4"), samples::ipv4(), &layout);
    assert!(window.means.is_some());
    let golden = check((7, "window-ipv4"), &window.encode());
    assert_eq!(Window::decode(&golden, &layout), Ok(window));
    let passed = Passed { arrival_error_ns: 1_501, means: Means::new(0b1101, 1_700) };
    let golden = check((7, "passed"), &passed.encode());
    assert_eq!(Passed::decode(&golden), Ok(passed));
}

#[test]
fn what_a_source_did_is_what_the_golden_file_holds() {
    let not_carried = std::array::from_fn(|why| 3 + 1000 * why as u64);
    let entered = Entered { inserted: 70_000, idle: 17, placeless: 4, not_carried };
    let golden = check((5, "entered"), &entered.encode());
    assert_eq!(Entered::decode(&golden), Ok(entered));
}
