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
