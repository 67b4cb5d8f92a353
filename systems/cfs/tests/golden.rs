//! The bytes of setups and windows of each version, kept in files, which switches and controllers
//! one release older send. `CALUMMA_BLESS=1 cargo test -p calumma-cfs --test golden` writes them
//! anew, which is right only together with a new version.

mod samples;

use std::path::PathBuf;

use calumma_cfs::frames::{Graded, Holding, Hop, Notice, Pins, Plan, Setup, Window};
use calumma_sketch::grade::HopRule;

/// Setups that differ in all that can differ.
fn setups() -> [(&'static str, Setup); 4] {
    let rule = HopRule { base: Some(64), offset: 1, step: 2 };
    let greedy = Setup {
        hop: Hop::Ttl(rule),
        grade: Graded::Greedy,
        claim: false,
        reseed: false,
        ..samples::setup()
    };
    let random = Setup { hop: Hop::None, grade: Graded::Random, ..samples::setup() };
    [
        ("setup-fold", Setup::default()),
        ("setup-greedy", greedy),
        ("setup-random", random),
        ("setup-residual", samples::with_residual()),
    ]
}

fn check(name: &str, bytes: &[u8]) -> Vec<u8> {
    check_in("v1", name, bytes)
}

fn check_in(version: &str, name: &str, bytes: &[u8]) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version);
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
fn setups_are_what_the_golden_files_hold() {
    for (name, setup) in setups() {
        let golden = check(name, &setup.encode());
        assert_eq!(Setup::decode(&golden), Ok(setup), "{name}");
    }
}

#[test]
fn windows_are_what_the_golden_files_hold() {
    for (name, window) in [("window-ipv4", samples::ipv4()), ("window-dual", samples::dual())] {
        let golden = check(name, &window.encode());
        assert_eq!(Window::decode(&golden, &samples::setup()), Ok(window), "{name}");
    }
}

#[test]
fn windows_with_a_residual_are_what_the_golden_files_hold() {
    for (name, window) in
        ["residual-edge", "residual-transit"].into_iter().zip(samples::uncounted())
    {
        let golden = check(name, &window.encode());
        assert_eq!(Window::decode(&golden, &samples::with_residual()), Ok(window), "{name}");
    }
}

#[test]
fn what_is_watched_for_loops_is_what_the_golden_files_of_version_2_hold() {
    for (name, setup) in [
        ("setup-guard", Setup { guard: true, ..samples::setup() }),
        ("setup-residual-guard", Setup { guard: true, ..samples::with_residual() }),
    ] {
        let golden = check_in("v2", name, &setup.encode());
        assert_eq!(Setup::decode(&golden), Ok(setup), "{name}");
    }
    for (name, (setup, window)) in
        ["guard-ipv4", "guard-dual", "guard-residual"].into_iter().zip(samples::guarded())
    {
        let golden = check_in("v2", name, &window.encode());
        assert_eq!(Window::decode(&golden, &setup), Ok(window), "{name}");
    }
}

#[test]
fn notices_are_what_the_golden_file_of_version_3_holds() {
    let notice = samples::notice();
    let golden = check_in("v3", "notice", &notice.encode());
    assert_eq!(Notice::decode(&golden), Ok(notice));
}

#[test]
fn pins_are_what_the_golden_files_of_version_4_hold() {
    let flows = samples::notice().flows.into_iter().map(|of| of.key).collect();
    let pins = Pins { flows };
    let golden = check_in("v4", "pins", &pins.encode());
    assert_eq!(Pins::decode(&golden, 256), Ok(pins));
    let holding = Holding { setup: samples::setup().encode(), epoch: 140, plan: golden };
    let golden = check_in("v4", "holding", &holding.encode());
    assert_eq!(Holding::decode(&golden), Ok(holding));
}

#[test]
fn where_flows_entered_and_left_is_what_the_golden_files_of_version_7_hold() {
    let (setup, window) = samples::with_ends();
    let golden = check_in("v7", "setup-ends", &setup.encode());
    assert_eq!(Setup::decode(&golden), Ok(setup));
    let golden = check_in("v7", "window-ends", &window.encode());
    assert_eq!(Window::decode(&golden, &setup), Ok(window));
}

#[test]
fn shares_of_the_memory_are_what_the_golden_files_of_version_6_hold() {
    let (setup, window) = samples::divided();
    let golden = check_in("v6", "setup-alpha", &setup.encode());
    assert_eq!(Setup::decode(&golden), Ok(setup));
    let golden = check_in("v6", "window-alpha", &window.encode());
    assert_eq!(Window::decode(&golden, &setup), Ok(window));
    let flows = samples::notice().flows.into_iter().map(|of| of.key).collect();
    let plan = Plan { alpha: 75, pins: Pins { flows } };
    let golden = check_in("v6", "plan", &plan.encode(&setup));
    assert_eq!(Plan::decode(&golden, &setup), Ok(plan));
}
