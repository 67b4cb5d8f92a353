//! `calumma-switchd` with `hops` beside ChameleMon, for a switch that has `p4src/hops.p4` loaded.
//! `cargo xtask p4` asks it whether the compiled program fits.

use std::process::ExitCode;

use calumma_hops_tofino::Hops;
use calumma_switchd::chamelemon::ChameleMon;
use calumma_switchd::command;

fn main() -> ExitCode {
    command::main_with(&[&ChameleMon, &Hops::ON_TRANSITS])
}
