//! The scenarios that come with the testbed hold, each for a seed or two of its own. Those of the
//! paper's figures and the thousand edges take longer: `calumma-testbed run` plays them.

use std::ops::Range;
use std::path::{Path, PathBuf};

use calumma_testbed::carrier::Carrier;
use calumma_testbed::scenario::{Scenario, play};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/chamelemon");
    let listing = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = listing.collect();
    files.sort();
    assert!(files.len() > 20, "{files:?}");
    files
}

fn is_long(name: &str) -> bool {
    name.starts_with("figure-") || name.starts_with("a-thousand-edges")
}

fn seeded(scenario: &Scenario, seed: u64) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.seed = seed;
    scenario
}

/// Plays a scenario with its own seed and the next one.
fn holds(name: &str) {
    let file = files().into_iter().find(|file| file.file_stem().is_some_and(|stem| stem == name));
    let scenario = Scenario::load(&file.expect("a file of this name")).unwrap();
    for seed in [scenario.seed, scenario.seed + 1] {
        let played = play(&seeded(&scenario, seed), |_, _| Ok(())).unwrap();
        let wrong: Vec<_> = played.contradictions().collect();
        assert!(wrong.is_empty(), "{name}, seed {seed}: {wrong:?}");
        for verdict in &played.verdicts {
            assert!(verdict.holds, "{name}, seed {seed}: {verdict:?}");
        }
    }
}

/// A test for each short scenario, named as its file.
macro_rules! scenarios {
    ($($name:ident)*) => {
        const SHORT: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            holds(&stringify!($name).replace('_', "-"));
        })*
    };
}

scenarios! {
    black_hole
    chosen_carrier
    clock_drift
    controller_away
    dual_stack
    duplicates
    edge_restarts
    elephant
    epochs_of_10_ms
    epochs_of_1000_ms
    everything_at_once
    flash_crowd
    healthy_ill_healthy
    identification
    key_rotation
    link_drops
    mixed
    overtaking
    random_loss
    scan
    short_ttl
    slow_spine
    sparse
    strangers
    translation
}

/// Epochs of a stretch of which every loss is known.
fn decoded(scenario: &Scenario, carrier: Carrier, epochs: &Range<u64>) -> usize {
    let mut scenario = scenario.clone();
    scenario.carrier = carrier;
    let mut decoded = 0;
    let played = play(&scenario, |outcome, summary| {
        decoded += usize::from(epochs.contains(&outcome.report.epoch) && summary.decoded);
        Ok(())
    })
    .unwrap();
    let wrong: Vec<_> = played.contradictions().collect();
    assert!(wrong.is_empty(), "{carrier:?}: {wrong:?}");
    decoded
}

/// The same network, with marks in the ToS byte and in the identification.
#[test]
fn what_the_identification_carries_no_router_writes_over() {
    let file = files().into_iter().find(|file| file.ends_with("identification.toml")).unwrap();
    let scenario = Scenario::load(&file).unwrap();
    // While all DSCPs become 0, and packets are late besides, ToS bytes say nothing for certain.
    for (epochs, by_tos) in [(0..15, 15), (15..25, 0), (25..40, 0)] {
        let [tos, ip_id] =
            [Carrier::Tos, Carrier::IpId].map(|carrier| decoded(&scenario, carrier, &epochs));
        println!("{epochs:?}: {tos} by ToS, {ip_id} by identification");
        let all = epochs.count();
        assert!(tos <= by_tos && ip_id + all / 10 >= all, "{tos} and {ip_id} of {all}");
    }
}

#[test]
fn every_scenario_can_be_read_and_every_short_one_has_a_test() {
    let mut short = Vec::new();
    for file in files() {
        Scenario::load(&file).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        if !is_long(&name) {
            short.push(name.replace('-', "_"));
        }
    }
    assert_eq!(short, SHORT);
}

#[test]
fn a_scenario_played_twice_is_the_same_and_with_another_seed_is_not() {
    let file = files().into_iter().find(|file| file.ends_with("link-drops.toml")).unwrap();
    let mut scenario = Scenario::load(&file).unwrap();
    scenario.expect.clear();
    let reports = |seed| {
        let mut reports = Vec::new();
        play(&seeded(&scenario, seed), |outcome, _| {
            reports.push(outcome.report.clone());
            Ok(())
        })
        .unwrap();
        reports
    };
    assert_eq!(reports(1), reports(1));
    assert_ne!(reports(1), reports(2));
}

#[test]
fn an_expectation_that_fails_is_said_to_fail() {
    let file = files().into_iter().find(|file| file.ends_with("elephant.toml")).unwrap();
    let mut scenario = Scenario::load(&file).unwrap();
    // Without the elephant, none of what is expected of it happens.
    scenario.change.clear();
    let played = play(&scenario, |_, _| Ok(())).unwrap();
    assert!(!played.holds());
    let failed: Vec<_> = played.verdicts.iter().filter(|verdict| !verdict.holds).collect();
    assert_eq!(failed.len(), 3);
    assert_eq!(failed[0].first_failure, Some((10, "victims")));
}
