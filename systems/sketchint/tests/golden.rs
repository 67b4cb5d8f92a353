//! The bytes of windows, kept in files, which switches one release older send.
//! `CALUMMA_BLESS=1 cargo test -p calumma-sketchint --test golden` writes them anew, which is right
//! only together with a new version.

mod samples;

use std::path::PathBuf;

use calumma_sketchint::frames::Window;

fn check(name: &str, bytes: &[u8]) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
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
        let golden = check(name, &window.encode());
        assert_eq!(Window::decode(&golden, &samples::layout()), Ok(window), "{name}");
    }
}
