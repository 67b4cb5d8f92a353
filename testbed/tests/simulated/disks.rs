//! Thousands of archives on disks that fail and lose power: no epoch that was acknowledged is lost
//! or there twice. Fifty thousand with `CALUMMA_SWEEPS=large`; `cargo xtask nightly` plays a
//! million. `calumma-testbed disks --from SEED --runs 1` plays one of them again.

use calumma_testbed::disks;

#[test]
fn no_acknowledged_epoch_is_lost_or_there_twice_whatever_disks_do() {
    let runs = if calumma_testenv::are_sweeps_large() { 50_000 } else { 2_000 };
    let sum = disks::play(0..runs).expect("runs that can be played");
    println!("{sum}");
    assert!(sum.wrong.is_empty(), "{sum}");
    // Much went wrong, and much was acknowledged all the same.
    assert!(sum.deaths > runs && sum.failures > runs && sum.acknowledged > 10 * runs, "{sum}");
}

#[test]
fn a_new_journal_whose_name_the_disk_refused_is_not_lost_with_the_power() {
    for seed in [15_324, 379_045, 426_339, 904_557] {
        let sum = disks::play_one(seed);
        assert!(sum.deaths > 0 && sum.failures > 0 && sum.wrong.is_empty(), "{sum}");
    }
}
