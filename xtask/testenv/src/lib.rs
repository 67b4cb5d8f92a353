//! What tests ask of the machine they run on: programs, captures of real traffic, time, network
//! namespaces, collectors, memory. A dev-dependency only.
//!
//! A test that lacks something calls [`skip`] and returns. Under `CI=true` it fails instead, so
//! that nothing counts as tested that was not. `cargo xtask test` names a file in
//! `CALUMMA_SKIPPED`; skipped tests are listed there, and counted as skipped instead of passed.

mod memory;
mod namespace;
mod nfcapd;

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

pub use memory::Counting;
pub use namespace::{Namespace, run};
pub use nfcapd::Nfcapd;

/// Whether this runs in CI, where everything that tests need must be there.
pub fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Whether sweeps are to be large: `CALUMMA_SWEEPS=large`, as `cargo xtask nightly` sets it.
pub fn are_sweeps_large() -> bool {
    env::var("CALUMMA_SWEEPS").is_ok_and(|value| value == "large")
}

/// Notes that the running test is skipped, and why. The test returns after it.
///
/// # Panics
/// In CI: a test that can't run there has failed.
#[track_caller]
pub fn skip(why: &str) {
    assert!(!is_ci(), "{why}; in CI nothing is skipped");
    println!("skipped: {why}");
    let Some(list) = env::var_os("CALUMMA_SKIPPED") else { return };
    let test = std::thread::current().name().unwrap_or("main").to_owned();
    let test = env::var("NEXTEST_TEST_NAME").unwrap_or(test);
    let program = env::args().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
    // One write a line, since tests write side by side.
    let line = format!("{program}\t{test}\t{why}\n");
    let mut list = OpenOptions::new().create(true).append(true).open(list).expect("the list");
    list.write_all(line.as_bytes()).expect("the list can be written");
}

/// Whether a program is on the path; the test is skipped where it is not. `package` is Debian's.
#[track_caller]
pub fn has_program(program: &str, package: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    if !found {
        skip(&format!("there is no {program}: `apt-get install {package}` or `cargo xtask test`"));
    }
    found
}

/// The file of a capture of real traffic; the test is skipped where it is not there. Captures lie
/// in the folder that `CALUMMA_DATA` names, else in a folder `shared/data` beside the repository or
/// further up.
#[track_caller]
pub fn capture(name: &str) -> Option<PathBuf> {
    let found = match env::var_os("CALUMMA_DATA") {
        Some(folder) => Some(Path::new(&folder).join(name)).filter(|file| file.exists()),
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|folder| folder.join("shared/data").join(name))
            .find(|file| file.exists()),
    };
    if found.is_none() {
        skip(&format!("there is no {name}; CALUMMA_DATA names the folder of real captures"));
    }
    found
}
