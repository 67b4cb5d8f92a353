//! Runs a command to its end. A failure shows the command line and what it wrote to stderr.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs `program` and gives its standard output.
pub(super) fn run<S: AsRef<str>>(program: &str, args: &[S]) -> Result<String> {
    run_with_input(program, args, "")
}

/// Runs `program` with `input` on its standard input and gives its standard output.
///
/// The command gets a process group of its own: a Ctrl-C on the terminal reaches the testbed alone,
/// which then still needs these commands to clean up.
pub(super) fn run_with_input<S: AsRef<str>>(
    program: &str,
    args: &[S],
    input: &str,
) -> Result<String> {
    let mut child = Command::new(program)
        .args(args.iter().map(AsRef::as_ref))
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| {
            format!("cannot run `{program}`; install it, or run `cargo xtask demo`, which does")
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that failed before reading its input says so by its exit status.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("waiting for `{program}`"))?;
    if !output.status.success() {
        bail!(
            "`{}` failed ({}): {}",
            line(program, args),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("what `{program}` printed"))
}

/// A command line for people to read.
pub(super) fn line<S: AsRef<str>>(program: &str, args: &[S]) -> String {
    let mut line = program.to_owned();
    for arg in args {
        line.push(' ');
        line.push_str(arg.as_ref());
    }
    line
}
