//! Probes between edges of a simulated network: a path that rewrites marks, or takes longer than a
//! mark can tell, is named, and nothing is said of one that does neither.

use std::path::Path;

use calumma_testbed::scenario::{EpochSummary, Scenario, play};

/// Plays a network whose link e1-core does as `at_first` says, and as `later` from epoch 40 on.
fn played(at_first: &str, later: &str) -> Vec<EpochSummary> {
    let text = format!(
        "title = 't'\nepochs = 80\ntopology = 'pair'\nprobes = true\nlinks = {{ {at_first} }}\n\
         [traffic.services]\nflows = 200\nsizes = 'constant:5'\n\
         [traffic.victims]\nflows = 20\nsizes = 'constant:20'\nvictims = 0.5\n\
         [[change]]\nat = 40\nsays = 'a change'\n\
         links = [{{ between = ['e1', 'core'], {later} }}, \
         {{ between = ['e2', 'core'], {later} }}]\n"
    );
    let scenario = Scenario::parse(&text, Path::new(".")).expect("a scenario");
    play(&scenario, |_, _| Ok(())).expect("it is played").epochs
}

/// Epochs that are incomplete for a reason that has these words, among those of `range`.
fn because(epochs: &[EpochSummary], words: &str, range: std::ops::Range<u64>) -> Vec<u64> {
    let said = |epoch: &&EpochSummary| {
        !epoch.complete && epoch.incomplete_because.iter().any(|reason| reason.contains(words))
    };
    let within = epochs.iter().filter(|epoch| range.contains(&epoch.epoch));
    within.filter(said).map(|epoch| epoch.epoch).collect()
}

#[test]
fn nothing_is_said_of_paths_that_lose_and_delay_within_the_guards() {
    let epochs = played("loss = 0.01, jitter_us = 500", "loss = 0.02");
    assert!(epochs.iter().all(|epoch| epoch.contradiction.is_none()));
    // Until each mark has come through, losses are not believed.
    let waiting = because(&epochs, "no probe with each mark", 0..80);
    assert!(waiting.iter().all(|&epoch| epoch < 8), "{waiting:?}");
    assert!(epochs.iter().all(|epoch| epoch.complete || waiting.contains(&epoch.epoch)));
}

#[test]
fn a_path_that_sets_the_dscp_is_named_within_epochs_and_until_it_no_longer_does() {
    let epochs = played("remark = 1, dscp = 0", "remark = 0");
    let named = because(&epochs, "marks are rewritten on the way from e", 0..40);
    assert!(named.first().is_some_and(|&first| first <= 6), "{named:?}");
    assert_eq!(named.len() as u64, 40 - named[0], "{named:?}");
    let reason = &epochs[20].incomplete_because[0];
    assert!(reason.contains("arrives as 000") && reason.contains("another carrier"), "{reason}");
    let wrong = epochs.iter().filter(|epoch| epoch.contradiction.is_some());
    assert_eq!(wrong.count(), 0, "no report is wrong, the first as little as others");
    assert!(epochs.iter().filter(|epoch| epoch.epoch >= 76).all(|epoch| epoch.complete));
}

#[test]
fn a_path_that_begins_to_re_mark_is_named_as_soon_as_a_probe_shows_it() {
    let epochs = played("remark = 0", "remark = 1, dscp = 46");
    // By a clock that is behind, the first one is sent in the epoch before.
    assert!(epochs[5..39].iter().all(|epoch| epoch.complete));
    let named = because(&epochs, "marks are rewritten", 40..80);
    assert!(named.first().is_some_and(|&first| first <= 46), "{named:?}");
    assert_eq!(named.len() as u64, 80 - named[0], "{named:?}");
}

#[test]
fn a_path_that_holds_packets_up_for_longer_than_a_mark_can_tell_is_named() {
    let epochs = played("late = 1, late_ms = [120, 140]", "late = 0");
    let named = because(&epochs, "marks can't tell epochs apart beyond 48 ms", 0..40);
    assert!(named.first().is_some_and(|&first| first <= 8), "{named:?}");
    let reasons = &epochs[20].incomplete_because;
    assert!(
        reasons.iter().any(|reason| reason.contains("packets from e1 take up to")),
        "{reasons:?}"
    );
    assert!(epochs.iter().filter(|epoch| epoch.epoch >= 60).all(|epoch| epoch.complete));
}
