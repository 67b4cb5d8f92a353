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

/// What installs [`deb`] where it is not there.
pub(crate) fn deb_installation() -> Option<Command> {
    installation("cargo-deb")
}

/// A program to run in the repository.
fn tool(name: &str) -> Result<Command> {
    if let Some(install) = installation(name) {
        step(&format!("installing {name}"));
        shell::run(install)?;
    }
    let program = if found(name) { PathBuf::from(name) } else { installed(name) };
    let mut command = Command::new(program);
    command.current_dir(shell::root());
    Ok(command)
}

/// What installs a program where it is neither on the path nor below the target directory.
fn installation(name: &str) -> Option<Command> {
    (!found(name) && !installed(name).is_file()).then(|| {
        let mut install = cargo();
        // Unoptimised: they run for seconds and build for minutes.
        install.args(["install", "--locked", "--debug", name, "--root"]).arg(folder());
        install.env("CARGO_TARGET_DIR", folder().join("build"));
        install
    })
}

/// The program that [`installation`] makes.
fn installed(name: &str) -> PathBuf {
    folder().join("bin").join(name)
}

fn folder() -> PathBuf {
    shell::target_dir().join("tools")
}
