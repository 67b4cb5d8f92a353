//! One run of the testbed: the prefix of its names, and the lock that tells the next run that it
//! lives.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;

use super::namespace;

/// Where each run keeps its lock and the logs of its processes, in a directory named like its
/// prefix.
const RUNS: &str = "/run/calumma-testbed";

/// Where DPDK programs started by root keep a directory for each `--file-prefix`; they leave it
/// behind.
const DPDK_RUNTIME: &str = "/run/dpdk";

/// What every name of every run begins with.
const PREFIX: &str = "calumma-";

/// A run that lives. Its names begin with [`prefix`](Run::prefix), which no other living run has;
/// its directory goes when it is dropped.
#[derive(Debug)]
pub struct Run {
    prefix: String,
    directory: PathBuf,
    _lock: Flock<File>,
}

impl Run {
    /// Begins a run, and removes what killed ones left behind: their namespaces, and the processes
    /// in them.
    pub fn begin() -> Result<Self> {
        static RUNS_OF_THIS_PROCESS: AtomicU32 = AtomicU32::new(0);
        if !Uid::effective().is_root() {
            bail!("network namespaces need root; run this with sudo");
        }
        // Held until this run has a lock of its own, so that no other run takes it for a dead one.
        let _beginning = lock_all()?;
        remove_left_overs()?;
        let number = RUNS_OF_THIS_PROCESS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{PREFIX}{}-{number}", std::process::id());
        let directory = Path::new(RUNS).join(&prefix);
        fs::create_dir(&directory).with_context(|| format!("creating {}", directory.display()))?;
        let lock = try_lock(open_lock(&directory.join("lock"), true)?)?
            .with_context(|| format!("another run has locked {}", directory.display()))?;
        Ok(Self { prefix, directory, _lock: lock })
    }

    /// Removes what killed runs left behind, and nothing of those that live.
    pub(super) fn clean_up() -> Result<()> {
        let _beginning = lock_all()?;
        remove_left_overs()
    }

    /// What the names of this run begin with: `calumma-<pid>-<n>`. DPDK programs take
    /// `<prefix>-<name>` as their `--file-prefix`, so that the files they leave are removed
    /// with the run.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The run's own directory, for logs and sockets; removed at its end.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        remove_files(&self.prefix);
    }
}

/// The lock that whoever begins a run, or removes those that have died, holds meanwhile.
fn lock_all() -> Result<Flock<File>> {
    fs::create_dir_all(RUNS).with_context(|| format!("creating {RUNS}"))?;
    let file = open_lock(&Path::new(RUNS).join("lock"), true)?;
    let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno);
    lock.with_context(|| format!("locking {RUNS}"))
}

/// Removes a run's directory, and those of its DPDK programs.
fn remove_files(prefix: &str) {
    let programs = format!("{prefix}-");
    for entry in fs::read_dir(DPDK_RUNTIME).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&programs) {
            remove_directory(&entry.path());
        }
    }
    remove_directory(&Path::new(RUNS).join(prefix));
}

fn remove_directory(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            eprintln!("cannot remove {}: {error}", path.display());
        }
        _ => {}
    }
}

fn open_lock(path: &Path, create: bool) -> Result<File> {
    OpenOptions::new()
        .create(create)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))
}

/// The lock, or `None` if a living run holds it.
fn try_lock(file: File) -> Result<Option<Flock<File>>> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno).context("locking a run"),
    }
}

/// Finds the directories of runs whose lock no one holds, and removes the namespaces whose names
/// begin with theirs.
fn remove_left_overs() -> Result<()> {
    for entry in fs::read_dir(RUNS).with_context(|| format!("reading {RUNS}"))? {
        let entry = entry.with_context(|| format!("reading {RUNS}"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(PREFIX) {
            continue;
        }
        // A run that is ending takes its lock away before its directory: then there is nothing left
        // to do.
        let Ok(file) = open_lock(&entry.path().join("lock"), false) else { continue };
        let Some(_lock) = try_lock(file)? else { continue };
        for left_over in namespace::list()?.iter().filter(|n| n.starts_with(&format!("{name}-"))) {
            namespace::remove(left_over)
                .with_context(|| format!("removing {left_over}, left by a killed run"))?;
        }
        remove_files(&name);
    }
    Ok(())
}
