//! A disk that is full for a while: what it refuses waits, and nothing of that is lost unsaid.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use calumma_analysis::{Published, System};
use calumma_archive::{Archive, ArchiveSection, Disk, DiskFile, OsDisk, journaled};
use calumma_chamelemon_analysis::ChameleMon;

static SYSTEMS: &[&dyn System] = &[&ChameleMon];

/// Reports that may wait.
const WAITING: u64 = 256;

/// The operating system's disk, full as long as that is set.
#[derive(Clone, Debug, Default)]
struct Filling(Arc<AtomicBool>);

/// A file on it.
#[derive(Debug)]
struct FillingFile(File, Filling);

impl Write for FillingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1.0.load(Ordering::Relaxed) {
            return Err(ErrorKind::StorageFull.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl DiskFile for FillingFile {
    fn sync(&self) -> io::Result<()> {
        DiskFile::sync(&self.0)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        DiskFile::set_len(&self.0, bytes)
    }

    fn lock(&self) -> io::Result<()> {
        DiskFile::lock(&self.0)
    }
}

impl Disk for Filling {
    type File = FillingFile;
    type Read = File;

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        OsDisk.make_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        OsDisk.sync_folder(path)
    }

    fn create(&self, path: &Path) -> io::Result<FillingFile> {
        Ok(FillingFile(OsDisk.create(path)?, self.clone()))
    }

    fn append(&self, path: &Path) -> io::Result<FillingFile> {
        Ok(FillingFile(OsDisk.append(path)?, self.clone()))
    }

    fn has_name(&self, file: &FillingFile, path: &Path) -> io::Result<bool> {
        OsDisk.has_name(&file.0, path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        OsDisk.open(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        OsDisk.list(path)
    }

    fn bytes(&self, path: &Path) -> io::Result<u64> {
        OsDisk.bytes(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove(path)
    }
}

/// A complete report on an epoch.
fn report(epoch: u64) -> Arc<Published> {
    let report = serde_json::json!({
        "epoch": epoch, "start_unix_ns": epoch * 50_000_000, "length_ms": 50, "complete": true,
        "incomplete_because": [], "missing_edges": [], "state": "healthy", "plan": null,
        "config": {
            "t_h": 1, "t_l": 1, "sample_rate": 1.0, "hh_buckets": 3584, "hl_buckets": 512,
            "ll_buckets": 0
        },
        "decode": { "hl": "complete", "ll": "absent", "hl_load_factor": 0.03 },
        "loss": [], "edges": []
    });
    let json = report.to_string();
    Arc::new(Published { report: ChameleMon.read(&json).unwrap(), json })
}

/// The epochs in the journal of an archive that was full for so many reports and took one more
/// then; and the error of the last of those that were refused.
fn kept(name: &str, refused: u64) -> (Vec<u64>, String) {
    let dir = std::env::temp_dir().join(format!("calumma-refused-{name}-{}", std::process::id()));
    let section = ArchiveSection {
        dir: dir.clone(),
        roll_seconds: 300,
        roll_mib: 32,
        keep_days: 0,
        keep_mib: 0,
    };
    let disk = Filling::default();
    let mut archive = Archive::open_on(disk.clone(), &section, SYSTEMS).unwrap();
    let (first, now) = (35_905_028_647, Instant::now());
    disk.0.store(true, Ordering::Relaxed);
    let mut message = String::new();
    for epoch in first..first + refused {
        message = format!("{:#}", archive.append(&report(epoch), now).unwrap_err());
    }
    disk.0.store(false, Ordering::Relaxed);
    archive.append(&report(first + refused), now + Duration::from_secs(2)).unwrap();
    let there = journaled(&dir, SYSTEMS).unwrap().reports;
    let there = there.iter().map(|of| of.head().epoch - first).collect();
    std::fs::remove_dir_all(&dir).unwrap();
    (there, message)
}

#[test]
fn a_disk_that_takes_again_what_waits_takes_all_of_it() {
    let (there, message) = kept("all", WAITING);
    assert!(!message.contains("is not in the archive"), "{message}");
    assert_eq!(there, (0..=WAITING).collect::<Vec<_>>());
}

#[test]
fn of_more_than_can_wait_the_oldest_is_lost_and_named() {
    let (there, message) = kept("more", WAITING + 1);
    assert!(message.contains("is not in the archive, since too many wait"), "{message}");
    assert_eq!(there, (1..=WAITING + 1).collect::<Vec<_>>());
}
