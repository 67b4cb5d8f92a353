//! A process the testbed started: its output in files, stopped as a DPDK program wants it, never
//! left behind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{interrupt, namespace};

/// How long a process may take to end after SIGTERM when nobody waits for it in particular.
const GRACE: Duration = Duration::from_secs(3);

/// How long a server may take until it listens: long, since it enters its namespace first, which
/// waits for whatever else the kernel does with namespaces, and the machine may have much else to
/// do.
const LISTEN_LIMIT: Duration = Duration::from_secs(30);

/// Lines of output that an error about a process shows.
const LINES_SHOWN: usize = 12;

/// A running process. Dropping it stops it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    /// Starts `command` with its output in `<logs>/<name>.out` and `<logs>/<name>.err`.
    pub fn start(name: &str, mut command: Command, logs: &Path) -> Result<Self> {
        let stdout = logs.join(format!("{name}.out"));
        let stderr = logs.join(format!("{name}.err"));
        let create = |path: &Path| {
            File::create(path).with_context(|| format!("creating {}", path.display()))
        };
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(create(&stdout)?)
            .stderr(create(&stderr)?)
            .spawn()
            .with_context(|| format!("starting {name}: {command:?}"))?;
        Ok(Self { name: name.to_owned(), child, stdout, stderr })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends by itself, as a client does, and gives its standard output. Another
    /// status than 0, or taking longer than `limit`, is an error.
    pub fn finish(mut self, limit: Duration) -> Result<String> {
        let mut status = None;
        wait_until(&format!("{} to end", self.name), limit, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        if !status.is_some_and(|s| s.success()) {
            bail!("{} failed: {}", self.name, self.last_words());
        }
        fs::read_to_string(&self.stdout)
            .with_context(|| format!("reading {}", self.stdout.display()))
    }

    /// An error, with what it wrote last, if it has ended although it should run.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended early ({status}): {}", self.name, self.last_words()),
            None => Ok(()),
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.child.id() as i32), signal)
            .with_context(|| format!("sending {signal} to {}", self.name))
    }

    /// Kills it, and waits for its end.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("killing {}", self.name))?;
        self.child.wait().with_context(|| format!("waiting for the end of {}", self.name))?;
        Ok(())
    }

    /// Lets it stand still for some time, in a moment.
    pub fn freeze(&self, moment: Duration, time: Duration) {
        let pid = Pid::from_raw(self.child.id() as i32);
        std::thread::spawn(move || {
            std::thread::sleep(moment);
            // A process that has ended can't be stopped; the run says by itself that it has.
            if kill(pid, Signal::SIGSTOP).is_ok() {
                std::thread::sleep(time);
                let _ = kill(pid, Signal::SIGCONT);
            }
        });
    }

    /// Whether it has written these words to its standard error.
    pub fn has_logged(&self, words: &str) -> Result<bool> {
        let text =
            fs::read(&self.stderr).with_context(|| format!("reading {}", self.stderr.display()))?;
        Ok(String::from_utf8_lossy(&text).contains(words))
    }

    /// Waits until it listens on a TCP port.
    pub fn wait_listening(&mut self, port: u16) -> Result<()> {
        let what = format!("{} to listen on port {port}", self.name);
        wait_until(&what, LISTEN_LIMIT, || {
            self.check_running()?;
            Ok(namespace::listens(self.id(), port))
        })
    }

    /// Asks it to stop with SIGTERM, which nobody ignores as what a shell starts in the background
    /// ignores SIGINT, and waits for it. Its status is given; killing it after `limit` is an
    /// error.
    pub fn stop(mut self, limit: Duration) -> Result<ExitStatus> {
        match self.terminate_and_wait(limit)? {
            Ok(status) => Ok(status),
            Err(threads) => bail!(
                "{} did not stop within {limit:?} of SIGTERM and was killed; its threads: \
                 {threads}; {}",
                self.name,
                self.last_words()
            ),
        }
    }

    /// Gives its status or, where it had to be killed, what its threads did before that.
    fn terminate_and_wait(&mut self, limit: Duration) -> Result<Result<ExitStatus, String>> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(Ok(status));
        }
        self.signal(Signal::SIGTERM)?;
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Ok(status));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let threads = threads(self.id());
        self.child.kill()?;
        self.child.wait()?;
        Ok(Err(threads))
    }

    /// The last lines of its standard error, or of its standard output where that is empty.
    pub(super) fn last_words(&self) -> String {
        for path in [&self.stderr, &self.stdout] {
            let text = fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
            if !lines.is_empty() {
                return lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
            }
        }
        "it wrote nothing".to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.terminate_and_wait(GRACE) {
            eprintln!("cannot stop {}: {error:#}", self.name);
        }
    }
}

/// What the threads of a process do, as the kernel says: state and, where they wait in it, for
/// what.
fn threads(pid: u32) -> String {
    let of = |task: &fs::DirEntry| {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        format!("{} {}", state.unwrap_or("gone").trim(), read("wchan"))
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut numbers = BTreeMap::<String, usize>::new();
    tasks.for_each(|task| *numbers.entry(of(&task)).or_default() += 1);
    let each = numbers.iter().map(|(state, number)| format!("{number} {state}"));
    each.collect::<Vec<_>>().join(", ")
}

/// Waits until `ready` says so; an error after `limit`, naming what was waited for, and on an
/// interrupt.
pub fn wait_until(
    what: &str,
    limit: Duration,
    mut ready: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + limit;
    loop {
        interrupt::check()?;
        if ready()? {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("waited {limit:?} for {what}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ignores_sigterm_is_killed_and_the_error_says_what_it_did() {
        let folder = std::env::temp_dir().join(format!("calumma-process-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut ignoring = Command::new("sh");
        ignoring.args(["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]);
        let process = Process::start("ignoring", ignoring, &folder).unwrap();
        let is_ready = || Ok(fs::read_to_string(folder.join("ignoring.out"))?.contains("ready"));
        wait_until("the trap", Duration::from_secs(20), is_ready).unwrap();
        let error = process.stop(Duration::from_millis(200)).unwrap_err().to_string();
        assert!(error.contains("its threads: 1 S (sleeping)"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
