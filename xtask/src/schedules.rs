//! Tests that play drawn schedules: the threads of a switch one step at a time, in an order that a
//! scheduler draws.

use std::process::Command;

use crate::shell::{self, cargo};

/// The tests, with the workspace's own crates built by `--cfg shuttle`. Third parties' are those
/// that the other tests are built with: the whole workspace is asked for, so that they have the
/// same features.
pub(crate) fn tests() -> Command {
    let mut cargo = cargo();
    cargo.args(["test", "--workspace", "--test", "schedules"]);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", shell::root().join("xtask/scheduled"));
    cargo
}
