//! Programs of other people that cargo installs: looked for on the path, else installed below the
//! target directory.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::shell::{self, cargo, found, step};

/// cargo-deny's checks of licences, duplicates, bans and sources. Advisories are left out: their
/// database is fetched from elsewhere.
pub(crate) fn licences() -> Result<Command> {
    let mut deny = tool("cargo-deny")?;
    deny.args(["--workspace", "check", "bans", "licenses", "sources"]);
    Ok(deny)
}

/// cargo-machete, which finds dependencies that nothing names.
pub(crate) fn unused() -> Result<Command> {
    tool("cargo-machete")
}

/// cargo-deb, which makes Debian packages.
pub(crate) fn deb() -> Result<Command> {
    tool("cargo-deb")
}

/// A program to run in the repository.
fn tool(name: &str) -> Result<Command> {
    let folder: PathBuf = shell::target_dir().join("tools");
    let own = folder.join("bin").join(name);
    let program = if found(name) {
        PathBuf::from(name)
    } else {
        if !own.is_file() {
            step(&format!("installing {name}"));
            let mut install = cargo();
            // Unoptimised: they run for seconds and build for minutes.
            install.args(["install", "--locked", "--debug", name, "--root"]).arg(&folder);
            install.env("CARGO_TARGET_DIR", folder.join("build"));
            shell::run(install)?;
        }
        own
    };
    let mut command = Command::new(program);
    command.current_dir(shell::root());
    Ok(command)
}
