//! `calumma-switchd`: the control plane of a Tofino switch.

use std::process::ExitCode;

use calumma_switchd::{SYSTEMS, command};

fn main() -> ExitCode {
    command::main_with(&SYSTEMS)
}
