//! Any text as each file that somebody writes by hand: the configurations of controller, edge and
//! `calumma-switchd`, and a scenario. Refused with words, or good for what is made of it; no panic.
//!
//! Run with `cargo +nightly fuzz run fuzz-testbed-config fuzz/corpus/config ../docs scenarios` in
//! `testbed/`.
#![no_main]

use std::path::Path;

use calumma_testbed::scenario::Scenario;
use libfuzzer_sys::fuzz_target;

/// The name of the file that errors are to give.
const NAME: &str = "any.toml";

fn check_words(problem: &str) {
    assert!(problem.contains(NAME) && problem.len() > NAME.len() + 2, "{problem:?}");
}

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match calumma_controller::Config::parse(text, NAME) {
        Ok(config) => {
            config.clock().unwrap();
            config.planned_attention().unwrap();
            let _ = config.fixed_hash_key();
            assert!(config.fixed_differences(&config).is_empty());
        }
        Err(problem) => check_words(&problem.to_string()),
    }
    match calumma_edge::config::Config::parse(text, NAME) {
        Ok(config) => {
            let _ =
                (config.policy(), config.marking(), config.settings(), config.process.most_held());
            assert_eq!(config.following(&config), (config.clone(), Vec::new()));
        }
        Err(problem) => check_words(&problem.to_string()),
    }
    match calumma_switchd::config::Config::parse(text, NAME) {
        Ok(config) => assert_eq!(config.following(&config), (config.clone(), Vec::new())),
        Err(problem) => check_words(&problem.to_string()),
    }
    if let Ok(scenario) = Scenario::parse(text, Path::new("/nonexistent")) {
        scenario.setup().unwrap();
        scenario.topology().unwrap();
    }
});
