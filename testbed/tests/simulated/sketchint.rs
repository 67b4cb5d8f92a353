//! The scenarios of SketchINT hold, for a seed of their own each: every number that a report calls
//! exact, and every bound, is held against what each packet met on its way.

use std::path::Path;

use calumma_testbed::scenario::{Played, Scenario, play};

/// Plays the scenario of this name, whose reports must all be right.
fn played(name: &str) -> Played {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/sketchint");
    let scenario = Scenario::load(&folder.join(name).with_extension("toml")).unwrap();
    let played = play(&scenario, |_, _| Ok(())).unwrap();
    let wrong: Vec<_> = played.contradictions().collect();
    assert!(wrong.is_empty(), "{name}: {wrong:?}");
    for verdict in &played.verdicts {
        assert!(verdict.holds, "{name}: {verdict:?}");
    }
    let of_system = || played.systems.iter().filter(|of| of.system == "sketchint");
    assert!(of_system().count() >= 4, "{name}");
    played
}

/// A test for each scenario, named as its file.
macro_rules! scenarios {
    ($($name:ident)*) => {
        const ALL: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            played(&stringify!($name).replace('_', "-"));
        })*
    };
}

scenarios! {
    dual_stack
    enable_disable
    fabric
    freeze
    host_sink
    loss_and_place
    mixed
    mtu
    overload
    path_change
    share
    sink_restart
    slow_link
    tofino
}

#[test]
fn every_scenario_has_a_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/sketchint");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name =
        |file: std::path::PathBuf| file.file_stem().unwrap().to_string_lossy().replace('-', "_");
    let mut names: Vec<String> = files.map(name).collect();
    names.sort();
    assert_eq!(names, ALL);
}
