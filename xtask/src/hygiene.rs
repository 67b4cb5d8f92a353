//! `cargo xtask hygiene`: what is checked beside format, lints and tests. Widths and lengths of
//! files, the toolchain, the documentation, and with `--dependencies` the dependencies.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::shell::{self, cargo, step};
use crate::tools;

/// Most lines of a file of Rust.
const MOST_LINES: usize = 600;

/// Most characters of a comment's line.
const MOST_CHARACTERS: usize = 100;

/// Runs the checks, and shows what each finds.
pub(crate) fn run(dependencies: bool) -> Result<ExitCode> {
    step("checking files");
    let mut problems = files()?;
    problems.extend(toolchain()?);
    problems.extend(tests_of_pages()?);
    for problem in &problems {
        eprintln!("{problem}");
    }
    let mut clean = problems.is_empty();

    step("building the documentation");
    clean &= succeeds(&mut documentation())?;
    if dependencies {
        step("checking dependencies");
        for mut check in [tools::licences()?, tools::unused()?] {
            clean &= succeeds(&mut check)?;
        }
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the documentation of all packages; any warning is an error.
fn documentation() -> Command {
    let mut doc = cargo();
    doc.args(["doc", "--workspace", "--no-deps", "--keep-going"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    doc
}

fn succeeds(command: &mut Command) -> Result<bool> {
    Ok(command.status().with_context(|| format!("running {command:?}"))?.success())
}

/// Git over this repository, whoever owns it: root tests what others have cloned.
fn git() -> Command {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*"]).current_dir(shell::root());
    git
}

/// Files of Rust that are too long, and comments that are too wide.
fn files() -> Result<Vec<String>> {
    let list = shell::output(git().args(["ls-files", "*.rs"]))?;
    let mut problems = Vec::new();
    for name in list.lines() {
        let path = shell::root().join(name);
        // Removed, and not yet committed.
        if path.exists() {
            let text = fs::read_to_string(&path).with_context(|| format!("reading {name}"))?;
            problems.extend(of_file(name, &text));
        }
    }
    Ok(problems)
}

fn of_file(name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let lines = text.lines().count();
    if lines > MOST_LINES {
        problems.push(format!("{name}: {lines} lines, more than {MOST_LINES}"));
    }
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = comment(line) else {
            fenced = false;
            continue;
        };
        if comment.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        // Code, drawings, tables, words that can't be wrapped, and lines of a string.
        let verbatim = fenced
            || line.ends_with('\\')
            || comment.starts_with("     ")
            || comment.trim_start().starts_with('|')
            || !comment.trim().contains(' ');
        if !verbatim && line.chars().count() > MOST_CHARACTERS {
            let number = number + 1;
            problems
                .push(format!("{name}:{number}: a comment of over {MOST_CHARACTERS} characters"));
        }
    }
    problems
}

/// What follows `//`, `///` or `//!` on a line that holds nothing else.
fn comment(line: &str) -> Option<&str> {
    let comment = line.trim_start().strip_prefix("//")?;
    Some(comment.strip_prefix(['/', '!']).unwrap_or(comment))
}

/// Pages that name the tests which show what they promise.
const PAGES_WITH_TESTS: [&str; 4] =
    ["SECURITY.md", "docs/networks.md", "docs/promises.md", "docs/test-runs.md"];

/// Tests that a page names and that do not exist.
fn tests_of_pages() -> Result<Vec<String>> {
    let functions = shell::output(git().args(["grep", "-hoE", "fn [a-z0-9_]+", "--", "*.rs"]))?;
    let functions: Vec<&str> =
        functions.lines().filter_map(|line| line.strip_prefix("fn ")).collect();
    let mut problems = Vec::new();
    for page in PAGES_WITH_TESTS {
        let text = fs::read_to_string(shell::root().join(page))
            .with_context(|| format!("reading {page}"))?;
        for name in tests_named(&text) {
            let is_there = match name.strip_suffix("...") {
                Some(beginning) => functions.iter().any(|name| name.starts_with(beginning)),
                None => functions.contains(&name),
            };
            if !is_there {
                problems.push(format!("{page}: no test is called {name}"));
            }
        }
    }
    Ok(problems)
}

/// What a page writes as code and looks like a test's name: four words or more, or the beginning of
/// one, which ends in `...`. Metrics look alike, and begin with `calumma_`.
fn tests_named(page: &str) -> impl Iterator<Item = &str> {
    let code = page.split('`').skip(1).step_by(2);
    code.filter(|code| {
        let name = code.strip_suffix("...").unwrap_or(code);
        name.matches('_').count() >= 3
            && !name.starts_with("calumma_")
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    })
}

/// The toolchain and the oldest Rust that is declared must be the same, or the latter is not
/// tested.
fn toolchain() -> Result<Option<String>> {
    let read = |file: &str| {
        fs::read_to_string(shell::root().join(Path::new(file)))
            .with_context(|| format!("reading {file}"))
    };
    let channel = value(&read("rust-toolchain.toml")?, "channel");
    let declared = value(&read("Cargo.toml")?, "rust-version");
    let same = match (&channel, &declared) {
        (Some(channel), Some(declared)) => {
            channel == declared || channel.strip_prefix(declared.as_str()) == Some(".0")
        }
        _ => false,
    };
    Ok((!same).then(|| {
        format!("rust-toolchain.toml has the channel {channel:?}, Cargo.toml the rust-version {declared:?}")
    }))
}

/// The string that a key has in a TOML file, on a line of its own.
fn value(toml: &str, key: &str) -> Option<String> {
    toml.lines().find_map(|line| {
        let value = line.strip_prefix(key)?.trim_start().strip_prefix('=')?;
        Some(value.trim().trim_matches('"').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_are_found_but_no_code() {
        let word = "word ".repeat(20);
        let text = format!(
            "/// {word}\n//! ```text\n//! {word}\n//! ```\n// {word}\nlet s = \"{word} {word}\";\n//      {word}\n"
        );
        let wide: Vec<_> = of_file("a.rs", &text);
        let expected = "a comment of over 100 characters";
        assert_eq!(wide, [format!("a.rs:1: {expected}"), format!("a.rs:5: {expected}")]);
    }

    #[test]
    fn long_files_are_found() {
        assert!(of_file("a.rs", &"x\n".repeat(600)).is_empty());
        assert_eq!(of_file("a.rs", &"x\n".repeat(601)), ["a.rs: 601 lines, more than 600"]);
    }

    #[test]
    fn names_of_tests_are_found_in_pages() {
        let page =
            "`no_report_is_wrong`, `tiny loss` `a_frame_that_...` `state_dir` `calumma_a_b_c`";
        assert_eq!(
            tests_named(page).collect::<Vec<_>>(),
            ["no_report_is_wrong", "a_frame_that_..."]
        );
    }

    #[test]
    fn every_test_that_a_page_names_exists() {
        assert_eq!(tests_of_pages().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn values_of_toml_are_read() {
        let toml = "[toolchain]\nchannel = \"1.95.0\"\n";
        assert_eq!(value(toml, "channel").as_deref(), Some("1.95.0"));
        assert_eq!(value(toml, "profile"), None);
    }
}
