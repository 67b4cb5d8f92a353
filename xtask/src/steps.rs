//! The steps of a long command: how long each took, and how many tests passed, failed and were
//! skipped.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::shell;

/// Results of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
}

/// The steps so far. A check without tests of its own counts as one test.
pub(crate) struct Steps {
    rows: Vec<Row>,
    start: Instant,
    /// Where tests list that they were skipped, as `calumma-testenv` does.
    skipped: PathBuf,
}

struct Row {
    name: String,
    time: Duration,
    /// That of all commands that ended meanwhile, those in the background too.
    cpu: Duration,
    score: Score,
}

/// Commands that run one after another beside the steps that follow, at the lowest priority: they
/// have the CPUs while tests wait.
pub(crate) struct Background(JoinHandle<Result<Vec<Ended>>>);

/// A command of those.
pub(crate) struct Job {
    name: String,
    command: Command,
    is_check: bool,
}

/// One that has ended.
struct Ended {
    name: String,
    is_check: bool,
    time: Duration,
    output: Output,
}

impl Job {
    /// A command that passes if it exits with 0, and counts as one test.
    pub(crate) fn check(name: &str, command: Command) -> Self {
        Self { name: name.into(), command, is_check: true }
    }

    /// Builds something; counts nothing unless it fails.
    pub(crate) fn build(name: &str, command: Command) -> Self {
        Self { name: name.into(), command, is_check: false }
    }

    fn run(self) -> Result<Ended> {
        let Self { name, command, is_check } = self;
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => nice.env(variable, value),
                None => nice.env_remove(variable),
            };
        }
        nice.current_dir(command.get_current_dir().unwrap_or_else(|| shell::root()));
        let start = Instant::now();
        let output = nice.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("running {nice:?}"))?;
        Ok(Ended { name, is_check, time: start.elapsed(), output })
    }
}

impl Steps {
    pub(crate) fn start() -> Result<Self> {
        let skipped = shell::target_dir().join("skipped-tests");
        fs::create_dir_all(shell::target_dir()).context("creating the target directory")?;
        Ok(Self { rows: Vec::new(), start: Instant::now(), skipped })
    }

    /// Does something that takes time and is no test.
    pub(crate) fn work(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.step(name, |_| work().map(|()| Score::default()))
    }

    /// Runs a command that passes if it exits with 0.
    pub(crate) fn check(&mut self, name: &str, mut command: Command) -> Result<()> {
        self.step(name, |_| {
            let status = command.status().with_context(|| format!("running {command:?}"))?;
            Ok(Score::of(status.success()))
        })
    }

    /// Runs commands as [`check`](Self::check) does, two at a time; what they print is shown of
    /// those that fail, and of the others what `result` makes of it.
    pub(crate) fn side_by_side(
        &mut self,
        name: &str,
        commands: Vec<(String, Command)>,
        result: fn(&Output) -> String,
    ) -> Result<()> {
        self.step(name, |_| {
            let waiting = Mutex::new(commands.into_iter());
            let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let work = || -> Result<Score> {
                let mut score = Score::default();
                while let Some((title, mut command)) = next() {
                    let output = command.stdin(Stdio::null()).output();
                    let output = output.with_context(|| format!("running {command:?}"))?;
                    if output.status.success() {
                        println!("{title}: {}", result(&output));
                    } else {
                        std::io::stderr().write_all(&output.stdout)?;
                        std::io::stderr().write_all(&output.stderr)?;
                        println!("failed: {title}: {command:?}");
                    }
                    score.add(Score::of(output.status.success()));
                }
                Ok(score)
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(work);
                let mut score = work()?;
                score.add(other.join().ok().context("a thread that ran commands panicked")??);
                Ok(score)
            })
        })
    }

    /// Builds something; gives whether that succeeded, and counts nothing unless it failed.
    pub(crate) fn build(&mut self, name: &str, mut command: Command) -> Result<bool> {
        let mut built = false;
        self.step(name, |_| {
            built = command.status().with_context(|| format!("running {command:?}"))?.success();
            Ok(if built { Score::default() } else { Score::of(false) })
        })?;
        Ok(built)
    }

    /// Runs tests, shows what they print, and adds up their results. Tests that failed without
    /// being counted, because they did not compile or their process died, count as one failure.
    pub(crate) fn tests(&mut self, name: &str, mut command: Command) -> Result<()> {
        self.step(name, |skipped| {
            let _ = fs::remove_file(skipped);
            let mut child = command
                .env("CALUMMA_SKIPPED", skipped)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .with_context(|| format!("running {command:?}"))?;
            let errors = child.stderr.take().map(|stream| std::thread::spawn(|| counted(stream)));
            let mut score = child.stdout.take().map_or_else(Score::default, counted);
            if let Some(errors) = errors {
                score.add(errors.join().unwrap_or_default());
            }
            let status = child.wait().context("waiting for the tests")?;
            if !status.success() && score.failed == 0 {
                score.failed = 1;
            }
            score.skip(&fs::read_to_string(skipped).unwrap_or_default());
            Ok(score)
        })
    }

    /// Notes something that could not be tested here: a failure in CI, else skipped.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        let score = if shell::is_ci() {
            println!("failed: {name}: {why}; in CI nothing is skipped");
            Score::of(false)
        } else {
            println!("skipped: {name}: {why}");
            Score { skipped: 1, ..Score::default() }
        };
        self.rows.push(Row { name: name.into(), time: Duration::ZERO, cpu: Duration::ZERO, score });
    }

    /// Starts commands that run beside what follows; [`Steps::join`] waits for them.
    pub(crate) fn beside(jobs: Vec<Job>) -> Background {
        Background(std::thread::spawn(|| jobs.into_iter().map(Job::run).collect()))
    }

    /// Waits for what ran beside others, and shows what it printed.
    pub(crate) fn join(&mut self, background: Background) -> Result<()> {
        let mut ended = Vec::new();
        self.work("waiting for what ran beside the above", || {
            ended = background.0.join().ok().context("a thread that ran commands panicked")??;
            Ok(())
        })?;
        for Ended { name, is_check, time, output } in ended {
            std::io::stderr().write_all(&output.stderr).context("showing what was printed")?;
            let score = match output.status.success() {
                true if !is_check => Score::default(),
                success => Score::of(success),
            };
            let name = format!("{name} (beside the above)");
            self.rows.push(Row { name, time, cpu: Duration::ZERO, score });
        }
        Ok(())
    }

    fn step(
        &mut self,
        name: &str,
        work: impl FnOnce(&std::path::Path) -> Result<Score>,
    ) -> Result<()> {
        shell::step(name);
        let (start, cpu) = (Instant::now(), children_cpu());
        let score = work(&self.skipped)?;
        let row = Row {
            name: name.into(),
            time: start.elapsed(),
            cpu: children_cpu().saturating_sub(cpu),
            score,
        };
        println!("    {} took {}", row.name, clock(row.time));
        self.rows.push(row);
        Ok(())
    }

    /// Prints how long everything took and, on the last line, how many tests passed and failed.
    pub(crate) fn finish(self) -> ExitCode {
        println!("\n    time     CPU  passed  failed  skipped  step");
        let mut sum = Score::default();
        for Row { name, time, cpu, score } in &self.rows {
            let Score { passed, failed, skipped } = score;
            let (time, cpu) = (clock(*time), clock(*cpu));
            println!("{time:>8} {cpu:>7} {passed:>7} {failed:>7} {skipped:>8}  {name}");
            sum.add(*score);
        }
        let cpu = self.rows.iter().map(|row| row.cpu).sum();
        println!("{:>8} {:>7} {:25}  in all", clock(self.start.elapsed()), clock(cpu), "");
        println!("{}", sum.line());
        if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl Score {
    fn of(passed: bool) -> Self {
        Self { passed: passed.into(), failed: (!passed).into(), skipped: 0 }
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Takes the tests of this list, which returned early, from those that passed.
    fn skip(&mut self, list: &str) {
        let mut tests = std::collections::BTreeMap::new();
        for line in list.lines() {
            if let Some((test, why)) = line.rsplit_once('\t') {
                tests.insert(test.replace('\t', " "), why);
            }
        }
        for (test, why) in &tests {
            println!("skipped: {test}: {why}");
        }
        let skipped = (tests.len() as u32).min(self.passed);
        self.passed -= skipped;
        self.skipped += skipped;
    }

    fn line(self) -> String {
        let Self { passed, failed, skipped } = self;
        let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
        format!("{passed} passed, {failed} failed{skipped}")
    }
}

/// Shows what a stream brings, and adds up the results in it.
fn counted(stream: impl Read) -> Score {
    let mut score = Score::default();
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        print!("{text}");
        if let Some(result) = result(&text) {
            score.add(result);
        }
        line.clear();
    }
    score
}

/// Reads the summary of `cargo test`, `test result: ok. 13 passed; 0 failed; ...`, or that of
/// `cargo nextest`, `Summary [   0.05s] 14 tests run: 13 passed, 1 failed, 3 skipped`. Tests that
/// nextest calls skipped were not asked for, and what it shows of a failed one, indented, is no
/// summary.
fn result(line: &str) -> Option<Score> {
    let before = |text: &str, word: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let at = words.iter().position(|w| w.trim_end_matches([';', ',']) == word)?;
        words.get(at.checked_sub(1)?)?.parse::<u32>().ok()
    };
    if let Some(counts) = line.strip_prefix("test result: ") {
        let (passed, failed) = (before(counts, "passed")?, before(counts, "failed")?);
        return Some(Score { passed, failed, skipped: 0 });
    }
    let (_, counts) = line.trim().strip_prefix("Summary [")?.split_once(']')?;
    let (run, results) = counts.split_once(" run: ")?;
    // `3/14 tests` where the run was cut short: the others did not pass either.
    let run = run.split_whitespace().next()?;
    let run = run.rsplit('/').next()?.parse::<u32>().ok()?;
    let passed = before(results, "passed").unwrap_or(0);
    Some(Score { passed, failed: run.saturating_sub(passed), skipped: 0 })
}

/// CPU time of all processes that this one has waited for.
fn children_cpu() -> Duration {
    // Behind the program's name in brackets, the 14th and 15th fields, in hundredths of a second:
    // proc(5).
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(passed: u32, failed: u32, skipped: u32) -> Score {
        Score { passed, failed, skipped }
    }

    #[test]
    fn summaries_of_both_test_runners_are_read() {
        let line =
            "test result: FAILED. 13 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(result(line), Some(score(13, 2, 0)));
        let line =
            "     Summary [   0.052s] 14 tests run: 12 passed (1 slow), 2 failed, 3 skipped\n";
        assert_eq!(result(line), Some(score(12, 2, 0)));
        let line = "Summary [ 1.0s] 3/14 tests run: 3 passed, 0 skipped";
        assert_eq!(result(line), Some(score(3, 11, 0)));
        let line = "Summary [ 1.0s] 1 test run: 0 passed, 1 timed out, 0 skipped";
        assert_eq!(result(line), Some(score(0, 1, 0)));
        assert_eq!(result("test a_test ... ok"), None);
        assert_eq!(result("    test result: FAILED. 0 passed; 1 failed"), None);
    }

    #[test]
    fn what_runs_beside_counts_checks_and_builds_that_fail() {
        let mut steps = Steps { rows: Vec::new(), start: Instant::now(), skipped: PathBuf::new() };
        let command = |program: &str| Command::new(program);
        let background = Steps::beside(vec![
            Job::check("a", command("true")),
            Job::build("b", command("true")),
            Job::check("c", command("false")),
            Job::build("d", command("false")),
        ]);
        steps.join(background).unwrap();
        let scores: Vec<Score> = steps.rows[1..].iter().map(|row| row.score).collect();
        assert_eq!(scores, [score(1, 0, 0), score(0, 0, 0), score(0, 1, 0), score(0, 1, 0)]);
    }

    #[test]
    fn a_test_that_was_skipped_twice_is_one_and_has_not_passed() {
        let mut sum = score(5, 1, 0);
        sum.skip("a-1f\tb::c\tno x\na-1f\tb::c\tno y\na-1f\td\tno x\n");
        assert_eq!(sum, score(3, 1, 2));
        assert_eq!(sum.line(), "3 passed, 1 failed, 2 skipped");
        assert_eq!(score(5, 1, 0).line(), "5 passed, 1 failed");
    }
}
