//! The scenarios of cooperative flow selection hold: every count that is called exact is what came
//! to the node, at every hop of every flow.

use std::path::Path;

use calumma_testbed::scenario::{Scenario, play};

#[test]
fn every_scenario_holds_and_no_exact_count_is_wrong() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/cfs");
    let mut windows = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let scenario = Scenario::load(&file).unwrap();
        let played = play(&scenario, |_, _| Ok(())).unwrap();
        let wrong: Vec<_> = played.contradictions().collect();
        assert!(wrong.is_empty(), "{file:?}: {wrong:?}");
        for verdict in &played.verdicts {
            assert!(verdict.holds, "{file:?}: {verdict:?}");
        }
        windows += played.systems.iter().filter(|of| of.coverage > Some(0.2)).count();
    }
    assert!(windows > 100, "{windows} windows with counts");
}

/// The windows of a scenario from the crowd's arrival on, each with the share of all flows that
/// have a count, where the tables have this share of the memory and the crowd has so many flows.
fn with_share(alpha: &str, crowd: u32, epochs: u32) -> Vec<f64> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/cfs/alpha.toml");
    let mut text = std::fs::read_to_string(file).unwrap();
    let changes = [
        ("alpha = \"auto\"", format!("alpha = {alpha}")),
        ("flows = 3700", format!("flows = {crowd}")),
        ("epochs = 144", format!("epochs = {epochs}")),
    ];
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, &to);
    }
    // The scenario goes on for longer, and expects something of that.
    let lasting = text.find("[[expect]]").unwrap();
    let lasting = &text[..lasting].replace("at = 120", &format!("at = {}", epochs - 1));
    let scenario: Scenario = toml::from_str(lasting).unwrap();
    let played = play(&scenario, |_, _| Ok(())).unwrap();
    assert_eq!(played.contradictions().count(), 0, "{alpha}, {crowd}");
    let since = played.systems.iter().filter(|of| (24..u64::from(epochs) - 2).contains(&of.epoch));
    since.map(|of| of.coverage.unwrap()).collect()
}

#[test]
fn a_share_that_moves_counts_no_fewer_flows_than_the_default_in_any_window() {
    for (crowd, gain) in [(3400, -0.005), (3700, 0.005)] {
        let [fixed, moving] = ["0.9", "\"auto\""].map(|alpha| with_share(alpha, crowd, 80));
        assert!(moving.len() >= 26 && moving.len() == fixed.len(), "{}", moving.len());
        let is_as_good = |(fixed, moving): (&f64, &f64)| *moving >= fixed - 0.02;
        assert!(fixed.iter().zip(&moving).all(is_as_good), "{fixed:?}\n{moving:?}");
        let [in_the_end, by_default] =
            [&moving, &fixed].map(|of| of.iter().rev().take(6).sum::<f64>());
        assert!(in_the_end >= by_default + 6.0 * gain, "{fixed:?}\n{moving:?}");
    }
}
