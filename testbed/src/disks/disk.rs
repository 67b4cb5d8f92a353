//! A disk in memory that fails, fills up, tears writes and loses power, as drawn.
//!
//! What was written is on it once its file is synced, names once their folder is. Of what was not,
//! a beginning outlives the loss of power, in the order in which it was done; of the last write a
//! part, perhaps with zeros behind it. What a sync that fails was to write may never come to the
//! disk, whatever later ones say, though it is read as it was written until then.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Error, ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use calumma_archive::{Disk, DiskFile};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// A change of a file that no sync has covered yet.
#[derive(Clone, Debug)]
enum Change {
    Cut(usize),
    Write {
        bytes: Vec<u8>,
        /// A sync has failed since, and the disk gets zeros.
        is_lost: bool,
    },
}

#[derive(Clone, Debug, Default)]
struct Content {
    /// As it is read.
    bytes: Vec<u8>,
    /// As the disk has it.
    durable: Vec<u8>,
    pending: Vec<Change>,
    is_locked: bool,
}

impl Content {
    fn apply(durable: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Cut(bytes) => durable.resize(*bytes, 0),
            Change::Write { bytes, is_lost: false } => durable.extend_from_slice(bytes),
            Change::Write { bytes, is_lost: true } => {
                durable.resize(durable.len() + bytes.len(), 0)
            }
        }
    }

    fn sync(&mut self) {
        for change in self.pending.drain(..) {
            Self::apply(&mut self.durable, &change);
        }
    }

    /// What is left of it when the power goes.
    fn lose_power(&mut self, rng: &mut ChaCha8Rng) {
        let survive = rng.random_range(0..=self.pending.len());
        let mut pending = std::mem::take(&mut self.pending).into_iter();
        for change in pending.by_ref().take(survive) {
            Self::apply(&mut self.durable, &change);
        }
        if let Some(Change::Write { mut bytes, is_lost }) = pending.next() {
            let whole = bytes.len();
            bytes.truncate(rng.random_range(0..=whole));
            if rng.random_bool(0.3) {
                bytes.resize(rng.random_range(bytes.len()..=whole), 0);
            }
            Self::apply(&mut self.durable, &Change::Write { bytes, is_lost });
        }
        self.bytes.clone_from(&self.durable);
        self.is_locked = false;
    }
}

/// A change of names that no sync of the folder has covered yet.
#[derive(Clone, Debug)]
enum Renaming {
    Make(PathBuf, usize),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl Renaming {
    fn folder(&self) -> Option<&Path> {
        let (Self::Make(path, _) | Self::Remove(path) | Self::Rename(path, _)) = self;
        path.parent()
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Make(path, file) => drop(names.insert(path.clone(), *file)),
            Self::Remove(path) => drop(names.remove(path)),
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

/// When what goes wrong.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Between which operations each fails, with what probability.
    pub failing: Vec<(Range<u64>, f64)>,
    /// At which operations the power goes, ascending.
    pub deaths: Vec<u64>,
}

#[derive(Debug)]
struct State {
    rng: ChaCha8Rng,
    faults: Faults,
    operations: u64,
    is_dead: bool,
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    durable: BTreeMap<PathBuf, usize>,
    pending: Vec<Renaming>,
    failures: u64,
}

impl State {
    /// Whether the next operation is done, or fails.
    fn step(&mut self) -> io::Result<()> {
        if self.is_dead {
            return Err(Error::other("the power is gone"));
        }
        self.operations += 1;
        let at = self.operations;
        if self.faults.deaths.first().is_some_and(|&death| death <= at) {
            self.faults.deaths.remove(0);
            self.is_dead = true;
            return Err(Error::other("the power is gone"));
        }
        let failing = self.faults.failing.iter().find(|(range, _)| range.contains(&at));
        let share = failing.map_or(0.0, |(_, share)| *share);
        if share > 0.0 && self.rng.random_bool(share) {
            self.failures += 1;
            let kinds = [ErrorKind::StorageFull, ErrorKind::Other];
            return Err(kinds[self.rng.random_range(0..kinds.len())].into());
        }
        Ok(())
    }

    fn rename(&mut self, renaming: Renaming) {
        renaming.apply(&mut self.names);
        self.pending.push(renaming);
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

/// Such a disk. Clones are the same one.
#[derive(Clone, Debug)]
pub struct FaultyDisk(Arc<Mutex<State>>);

/// A file of it, open for writing.
#[derive(Debug)]
pub struct FaultyFile {
    disk: FaultyDisk,
    file: usize,
    has_lock: AtomicBool,
}

impl FaultyDisk {
    /// An empty one. What is drawn is drawn from `rng`.
    pub fn new(rng: ChaCha8Rng, faults: Faults) -> Self {
        let (files, names, durable, pending) = Default::default();
        let (operations, is_dead, failures) = (0, false, 0);
        let state =
            State { rng, faults, operations, is_dead, files, names, durable, pending, failures };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its power is gone.
    pub fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    /// What it holds at present, on one that never fails.
    pub fn copy(&self) -> Self {
        let State { rng, operations, files, names, .. } = &*self.state();
        let (files, names) = (files.clone(), names.clone());
        Self(Arc::new(Mutex::new(State {
            rng: rng.clone(),
            faults: Faults::default(),
            operations: *operations,
            is_dead: false,
            files,
            durable: names.clone(),
            names,
            pending: Vec::new(),
            failures: 0,
        })))
    }

    /// Operations that failed.
    pub fn failures(&self) -> u64 {
        self.state().failures
    }

    /// Lets nothing fail any more.
    pub fn heal(&self) {
        self.state().faults = Faults::default();
    }

    /// Takes its power, where it is not gone yet, and gives it back: what is on it is what outlives
    /// that.
    pub fn restart(&self) {
        let mut state = self.state();
        let State { rng, files, names, durable, pending, is_dead, .. } = &mut *state;
        files.iter_mut().for_each(|file| file.lose_power(rng));
        let folders: BTreeSet<_> = pending.iter().filter_map(|it| it.folder()).collect();
        for folder in folders {
            let of: Vec<_> = pending.iter().filter(|it| it.folder() == Some(folder)).collect();
            let survive = rng.random_range(0..=of.len());
            of[..survive].iter().for_each(|renaming| renaming.apply(durable));
        }
        pending.clear();
        names.clone_from(durable);
        *is_dead = false;
    }
}

impl Write for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        let done = state.step();
        let written = match done {
            Ok(()) => bytes.len(),
            Err(_) => state.rng.random_range(0..=bytes.len()),
        };
        let file = &mut state.files[self.file];
        file.bytes.extend_from_slice(&bytes[..written]);
        let bytes = bytes[..written].to_vec();
        file.pending.push(Change::Write { bytes, is_lost: false });
        done.map(|()| written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for FaultyFile {
    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let done = state.step();
        let State { rng, files, .. } = &mut *state;
        let file = &mut files[self.file];
        match &done {
            Ok(()) => file.sync(),
            Err(_) => file.pending.iter_mut().for_each(|change| {
                if let Change::Write { is_lost, .. } = change {
                    *is_lost |= rng.random_bool(0.5);
                }
            }),
        }
        done
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.step()?;
        let file = &mut state.files[self.file];
        file.bytes.resize(bytes as usize, 0);
        file.pending.push(Change::Cut(bytes as usize));
        Ok(())
    }

    fn lock(&self) -> io::Result<()> {
        let file = &mut self.disk.state().files[self.file];
        if std::mem::replace(&mut file.is_locked, true) {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.has_lock.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        if self.has_lock.load(Ordering::Relaxed) {
            self.disk.state().files[self.file].is_locked = false;
        }
    }
}

impl Disk for FaultyDisk {
    type File = FaultyFile;
    type Read = Bytes;

    fn make_folder(&self, _: &Path) -> io::Result<()> {
        self.state().step()
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let State { pending, durable, .. } = &mut *state;
        pending.retain(|renaming| {
            let here = renaming.folder() == Some(path);
            if here {
                renaming.apply(durable);
            }
            !here
        });
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<FaultyFile> {
        let mut state = self.state();
        state.step()?;
        let file = state.files.len();
        state.files.push(Content::default());
        state.rename(Renaming::Make(path.to_owned(), file));
        Ok(FaultyFile { disk: self.clone(), file, has_lock: AtomicBool::new(false) })
    }

    fn append(&self, path: &Path) -> io::Result<FaultyFile> {
        let there = self.state().file(path);
        match there {
            Ok(file) => {
                self.state().step()?;
                Ok(FaultyFile { disk: self.clone(), file, has_lock: AtomicBool::new(false) })
            }
            Err(_) => self.create(path),
        }
    }

    fn has_name(&self, file: &FaultyFile, path: &Path) -> io::Result<bool> {
        let mut state = self.state();
        state.step()?;
        Ok(state.names.get(path) == Some(&file.file))
    }

    fn open(&self, path: &Path) -> io::Result<Bytes> {
        let mut state = self.state();
        state.step()?;
        let file = state.file(path)?;
        Ok(Bytes::copy_from_slice(&state.files[file].bytes))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut state = self.state();
        state.step()?;
        Ok(state.names.keys().filter(|name| name.parent() == Some(path)).cloned().collect())
    }

    fn bytes(&self, path: &Path) -> io::Result<u64> {
        let mut state = self.state();
        state.step()?;
        let file = state.file(path)?;
        Ok(state.files[file].bytes.len() as u64)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        state.file(from)?;
        state.rename(Renaming::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        state.file(path)?;
        state.rename(Renaming::Remove(path.to_owned()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn read(disk: &FaultyDisk, path: &str) -> Option<Vec<u8>> {
        disk.open(Path::new(path)).ok().map(|bytes| bytes.to_vec())
    }

    #[test]
    fn what_is_synced_outlives_the_power_and_the_rest_may_not() {
        let mut kept = [0; 2];
        for seed in 0..100 {
            let disk = FaultyDisk::new(ChaCha8Rng::seed_from_u64(seed), Faults::default());
            let mut file = disk.create(Path::new("/a/b")).unwrap();
            file.write_all(b"one").unwrap();
            file.sync().unwrap();
            disk.sync_folder(Path::new("/a")).unwrap();
            file.write_all(b"two").unwrap();
            disk.rename(Path::new("/a/b"), Path::new("/a/c")).unwrap();
            disk.restart();
            let (old, new) = (read(&disk, "/a/b"), read(&disk, "/a/c"));
            assert!(old.is_some() != new.is_some(), "one name, whichever");
            kept[0] += u32::from(new.is_some());
            let bytes = old.or(new).unwrap();
            assert!(bytes.starts_with(b"one") && bytes.len() <= 6);
            kept[1] += u32::from(bytes.len() > 3);
        }
        // Of what was not synced any part may be there, or nothing.
        assert!(kept.iter().all(|kept| (5..=95).contains(kept)), "{kept:?}");
    }

    #[test]
    fn what_a_failing_sync_has_lost_comes_to_no_disk() {
        let lost = (0..100).filter(|&seed| {
            let faults = Faults { failing: vec![(3..4, 1.0)], deaths: Vec::new() };
            let disk = FaultyDisk::new(ChaCha8Rng::seed_from_u64(seed), faults);
            let mut file = disk.create(Path::new("/a")).unwrap();
            file.write_all(b"one").unwrap();
            assert!(file.sync().is_err());
            disk.sync_folder(Path::new("/")).unwrap();
            file.sync().unwrap();
            assert_eq!(read(&disk, "/a").unwrap(), b"one", "until the power goes");
            disk.restart();
            read(&disk, "/a").unwrap() != b"one"
        });
        assert!((20..80).contains(&lost.count()));
    }
}
