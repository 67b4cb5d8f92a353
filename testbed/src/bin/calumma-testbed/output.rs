//! What commands print, and the status they exit with.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

/// Prints what became of some packets, and what does not add up.
pub(crate) fn accounted(result: &impl Serialize, complaints: &[String]) -> Result<ExitCode> {
    println!("{}", serde_json::to_string_pretty(result)?);
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    Ok(verdict(complaints.is_empty()))
}

pub(crate) fn verdict(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a result as JSON, or as text for people.
pub(crate) fn print(json: bool, value: &impl Serialize, text: impl Fn() -> String) -> Result<()> {
    let mut output = if json { serde_json::to_string_pretty(value)? } else { text() };
    if !output.ends_with('\n') {
        output.push('\n');
    }
    io::stdout().write_all(output.as_bytes()).context("writing the result")
}
