//! `calumma-edge`: the software switch.

use std::process::ExitCode;

use calumma_edge::command;
use calumma_edge::control::systems::SYSTEMS;

fn main() -> ExitCode {
    command::main_with(SYSTEMS)
}
