//! `calumma-controller`: see `--help` and `docs/controller.md`.

use std::process::ExitCode;

use calumma_systems::SYSTEMS;

fn main() -> ExitCode {
    calumma_controller::program::main(SYSTEMS)
}
