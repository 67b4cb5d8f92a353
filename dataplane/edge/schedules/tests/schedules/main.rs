//! The switch's own code under drawn schedules: lcores and the threads beside them run on
//! [shuttle](https://docs.rs/shuttle)'s threads, any of which may go on wherever one touches what
//! they share, and reads the time.
//!
//! Built by `--cfg shuttle` only, which `cargo xtask test` and `cargo xtask nightly` do. A schedule
//! that fails is kept in a file, whose name is printed; `CALUMMA_SCHEDULE=FILE` plays that one.

#![cfg(shuttle)]

mod book;
mod lcores;
mod records;
mod rings;
mod tables;

use std::env;
use std::path::PathBuf;

use calumma_plane::sync::scheduled::switch_by;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Schedules of each kind in a run; fifty times as many with `CALUMMA_SWEEPS=large`.
const SCHEDULES: usize = 1000;

/// Changes of priority in a schedule of few: see PCT (Burckhardt et al., ASPLOS 2010).
const DEPTHS: [usize; 3] = [2, 4, 8];

/// Bytes of a thread's stack.
const STACK: usize = 1 << 20;

/// Plays `test` under schedules in which every step is any thread's, and under such as let few
/// threads go first.
fn explore(test: fn()) {
    let schedules = if calumma_testenv::are_sweeps_large() { 50 * SCHEDULES } else { SCHEDULES };
    if let Some(file) = env::var_os("CALUMMA_SCHEDULE") {
        let replay = ReplayScheduler::new_from_file(PathBuf::from(file));
        return run(test, replay.expect("the file has a schedule"));
    }
    run(test, RandomScheduler::new(schedules));
    for depth in DEPTHS {
        run(test, PctScheduler::new(depth, schedules / DEPTHS.len()));
    }
}

fn run(test: fn(), scheduler: impl Scheduler + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.silence_warnings = true;
    config.max_steps = MaxSteps::FailAfter(10_000_000);
    let failed = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    config.failure_persistence = FailurePersistence::File(Some(failed));
    Runner::new(scheduler, config).run(move || {
        switch_by(|| {
            // Before any operation on an atomic another thread may go on.
            AtomicBool::new(false).load(Ordering::SeqCst);
        });
        test();
    });
}

/// A number below `most`, of the schedule that is played.
fn draw(most: usize) -> usize {
    thread_rng().gen_range(0..most.max(1))
}
