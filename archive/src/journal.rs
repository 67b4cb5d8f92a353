//! The journal: reports that no whole file holds yet, one line of JSON each, as it is published and
//! with [what else](calumma_analysis::Report::unpublished) files are to have of it.
//!
//! A line is in the hands of the operating system before the next report is looked at, so it
//! outlives the controller's death; once [synced](Journal::sync), the machine's as well. Its lock
//! keeps a second controller away. Once its reports are in whole files, a new one takes its place,
//! and whoever reads the old one reads it to its end.
//!
//! Files that a system's reports will go into are named after the first of them. Where that name
//! would not come behind those there are, as when old epochs are reported anew, a line before the
//! report has the name: `{"files":"20260131T120000Z-35905028647.parquet","of":"chamelemon"}`.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use calumma_analysis::{Published, Report, System, system_of};
use parquet::file::reader::ChunkReader;
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, DiskFile, OsDisk};
use crate::names::FileName;

/// Its name in the archive's folder.
const JOURNAL: &str = "journal.jsonl";

/// A journal that is open for writing.
#[derive(Debug)]
pub(super) struct Journal<D: Disk> {
    disk: D,
    path: PathBuf,
    file: D::File,
    line: Vec<u8>,
}

/// A line of it.
pub(super) enum Line {
    /// A report.
    Report(Published),
    /// The name of the files that the next reports of the system at a position are to be in.
    Files(usize, FileName),
    /// What is neither.
    Damaged {
        /// Where it begins in the file, in bytes.
        at: u64,
        /// It, without the line break.
        bytes: Vec<u8>,
        /// Whether it is the last one and has no line break: whoever wrote it was cut off.
        is_torn: bool,
    },
}

/// The line that has a name of files.
#[derive(Serialize, Deserialize)]
struct Files {
    files: String,
    of: String,
}

impl<D: Disk> Journal<D> {
    /// Opens the journal in `dir`, and makes it where there is none.
    ///
    /// # Errors
    /// When it can't be written to, or another controller has it.
    pub(super) fn open(disk: &D, dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(JOURNAL);
        let unwritable = || format!("{}: can't be written to", path.display());
        let file = loop {
            let file = disk.append(&path).with_context(unwritable)?;
            file.lock().with_context(|| {
                format!(
                    "{}: does another controller write this archive? give each its own [archive] \
                     dir",
                    path.display()
                )
            })?;
            // Else another controller has put a new one in its place before it was locked.
            if disk.has_name(&file, &path).with_context(unwritable)? {
                break file;
            }
        };
        // Its name is on the disk before its lines are.
        disk.sync_folder(dir).with_context(|| format!("{}: can't be synced", dir.display()))?;
        Ok(Self { disk: disk.clone(), path, file, line: Vec::new() })
    }

    /// What is in it, a line at a time.
    ///
    /// # Errors
    /// When it can't be read; so may each line.
    pub(super) fn read(
        &self,
        systems: &'static [&'static dyn System],
    ) -> anyhow::Result<impl Iterator<Item = anyhow::Result<Line>> + use<D>> {
        let place = self.path.display().to_string();
        let lines = lines(&self.disk, &self.path, systems);
        let lines = lines.with_context(|| format!("{place}: can't be read"))?;
        Ok(lines.map(move |line| line.with_context(|| format!("{place}: can't be read"))))
    }

    /// Writes what can be read of it to a new file in its place, and has the disk take that: of the
    /// old one a failed sync may have lost what is read until the power goes. `aside` gets each
    /// line that can't be read: where it begins, it, and whether it is torn.
    ///
    /// # Errors
    /// When it can't be read, or the disk doesn't take it.
    pub(super) fn renew(
        &mut self,
        systems: &'static [&'static dyn System],
        aside: impl Fn(u64, &[u8], bool),
    ) -> anyhow::Result<()> {
        if self.is_empty()? {
            // An earlier attempt may have given it this name, and not had the disk take that.
            return self.sync_name();
        }
        let mut file = self.begin_new()?;
        let new = self.new_path();
        let place = || new.display().to_string();
        for line in self.read(systems)? {
            match line? {
                Line::Report(Published { json, .. }) => {
                    file.write_all(format!("{json}\n").as_bytes()).with_context(place)?;
                }
                Line::Files(at, name) => {
                    let of = systems[at].name().to_owned();
                    let files = serde_json::to_string(&Files { files: name.to_string(), of })?;
                    file.write_all(format!("{files}\n").as_bytes()).with_context(place)?;
                }
                Line::Damaged { at, bytes, is_torn } => aside(at, &bytes, is_torn),
            }
        }
        self.replace(file)
    }

    fn is_empty(&self) -> anyhow::Result<bool> {
        let bytes = self.disk.bytes(&self.path).with_context(|| self.path.display().to_string())?;
        Ok(bytes == 0)
    }

    /// Where the next one is until it takes the place of this one.
    fn new_path(&self) -> PathBuf {
        self.path.with_added_extension("new")
    }

    /// Makes the next one, empty and locked.
    fn begin_new(&self) -> anyhow::Result<D::File> {
        let new = self.new_path();
        let place = || new.display().to_string();
        let file = self.disk.append(&new).with_context(place)?;
        file.lock().and_then(|()| file.set_len(0)).with_context(place)?;
        Ok(file)
    }

    /// Has the disk take the next one, and puts it in the place of this one.
    fn replace(&mut self, file: D::File) -> anyhow::Result<()> {
        let new = self.new_path();
        let place = || new.display().to_string();
        file.sync().with_context(place)?;
        self.disk.rename(&new, &self.path).with_context(place)?;
        self.file = file;
        self.sync_name()
    }

    /// Has the disk take the journal's name.
    fn sync_name(&self) -> anyhow::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        self.disk.sync_folder(folder).with_context(|| folder.display().to_string())
    }

    /// Adds a line, and before it one with the name of the files that it is to be in, where that is
    /// another than its own.
    ///
    /// # Errors
    /// When the disk doesn't take it, or a part only.
    pub(super) fn append(
        &mut self,
        published: &Published,
        files: Option<FileName>,
    ) -> anyhow::Result<()> {
        self.line.clear();
        if let Some(name) = files {
            let of = published.report.system().to_owned();
            serde_json::to_writer(&mut self.line, &Files { files: name.to_string(), of })?;
            self.line.push(b'\n');
        }
        let json = &published.json;
        match (published.report.unpublished(), json.strip_suffix('}')) {
            (Some(fields), Some(begun)) => writeln!(self.line, "{begun},{fields}}}")?,
            _ => writeln!(self.line, "{json}")?,
        }
        self.file.write_all(&self.line).with_context(|| self.path.display().to_string())
    }

    /// Has the disk take all lines.
    ///
    /// # Errors
    /// When it doesn't.
    pub(super) fn sync(&self) -> anyhow::Result<()> {
        self.file.sync().with_context(|| self.path.display().to_string())
    }

    /// Goes on with an empty one. The old one stays whole for those who are reading it; the disk
    /// has the new one's name before it has a line.
    ///
    /// # Errors
    /// When the disk doesn't do it.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        if self.is_empty()? {
            return Ok(());
        }
        let file = self.begin_new()?;
        self.replace(file)
    }
}

/// What the journal of an archive holds.
#[derive(Debug, Default)]
pub struct Journaled {
    /// The reports, oldest first.
    pub reports: Vec<Arc<dyn Report>>,
    /// By the name of their system, that of the files that they will be in.
    files: Vec<(&'static str, FileName)>,
}

impl Journaled {
    /// Whether the files of `system` of this name hold the same rows, if they are there already.
    pub fn is_in(&self, system: &str, name: &FileName) -> bool {
        self.files.iter().any(|(of, files)| *of == system && files == name)
    }
}

/// Reports that no whole file of the archive in `dir` holds yet. The controller may be writing
/// meanwhile.
///
/// Read this first and then pass over the files that hold the same ([`Journaled::is_in`]).
///
/// # Errors
/// When the journal is there and can't be read.
pub fn journaled(dir: &Path, systems: &'static [&'static dyn System]) -> anyhow::Result<Journaled> {
    journaled_on(&OsDisk, dir, systems)
}

/// The same on another disk than the operating system's.
///
/// # Errors
/// As [`journaled`].
pub fn journaled_on<D: Disk>(
    disk: &D,
    dir: &Path,
    systems: &'static [&'static dyn System],
) -> anyhow::Result<Journaled> {
    let path = dir.join(JOURNAL);
    let place = || format!("{}: can't be read", path.display());
    let lines = match lines(disk, &path, systems) {
        Err(problem) if problem.kind() == ErrorKind::NotFound => return Ok(Journaled::default()),
        lines => lines.with_context(place)?,
    };
    let mut journaled = Journaled::default();
    for line in lines {
        match line.with_context(place)? {
            Line::Files(system, name) => journaled.files.push((systems[system].name(), name)),
            Line::Report(Published { report, .. }) => {
                let (system, head) = (report.system(), report.head());
                if !journaled.files.iter().any(|(of, _)| *of == system) {
                    let name = FileName::new(head.start_unix_ns, head.epoch);
                    journaled.files.push((system, name));
                }
                journaled.reports.push(report);
            }
            // What a controller was writing when it died, or is writing now.
            Line::Damaged { .. } => {}
        }
    }
    Ok(journaled)
}

/// The lines of a file.
fn lines<D: Disk>(
    disk: &D,
    path: &Path,
    systems: &'static [&'static dyn System],
) -> std::io::Result<impl Iterator<Item = std::io::Result<Line>> + use<D>> {
    let file = disk.open(path)?;
    let mut reader = BufReader::new(file.get_read(0).map_err(std::io::Error::other)?);
    let mut at = 0;
    Ok(std::iter::from_fn(move || {
        let mut bytes = Vec::new();
        match reader.read_until(b'\n', &mut bytes) {
            Ok(0) => return None,
            Err(problem) => return Some(Err(problem)),
            Ok(_) => {}
        }
        let begin = at;
        at += bytes.len() as u64;
        let is_torn = bytes.pop_if(|last| *last == b'\n').is_none();
        Some(Ok(line(systems, bytes, begin, is_torn)))
    }))
}

fn line(systems: &'static [&'static dyn System], bytes: Vec<u8>, at: u64, is_torn: bool) -> Line {
    let json = match String::from_utf8(bytes) {
        Ok(json) => json,
        Err(bytes) => return Line::Damaged { at, bytes: bytes.into_bytes(), is_torn },
    };
    if let Some(report) = systems.iter().find_map(|system| system.read(&json)) {
        return Line::Report(Published { report, json });
    }
    let files = serde_json::from_str::<Files>(&json).ok();
    let files = files.and_then(|Files { files, of }| {
        Some(Line::Files(system_of(systems, &of)?, FileName::parse(&files)?))
    });
    files.unwrap_or_else(|| Line::Damaged { at, bytes: json.into_bytes(), is_torn })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;

    use calumma_chamelemon_analysis::ChameleMon;

    use super::*;

    static SYSTEMS: &[&dyn System] = &[&ChameleMon];

    fn published(epoch: u64) -> Published {
        let config = r#"{"t_h":1,"t_l":1,"sample_rate":1.0,"hh_buckets":3584,"hl_buckets":512,"ll_buckets":0}"#;
        let json = format!(
            r#"{{"epoch":{epoch},"start_unix_ns":0,"length_ms":50,"complete":true,"missing_edges":[],"incomplete_because":[],"state":"healthy","config":{config},"decode":{{"hl":"absent","ll":"absent"}},"loss":[],"plan":null,"edges":[]}}"#
        );
        let report = ChameleMon.read(&json).unwrap();
        Published { report, json }
    }

    fn epoch(line: anyhow::Result<Line>) -> u64 {
        let Line::Report(published) = line.unwrap() else { panic!("a line that is no report") };
        published.report.head().epoch
    }

    #[test]
    fn who_reads_it_reads_all_that_it_had_though_it_is_emptied_meanwhile() {
        let dir = std::env::temp_dir().join(format!("calumma-journal-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut journal = Journal::open(&OsDisk, &dir).unwrap();
        // More than a reader has read ahead.
        (0..1000).for_each(|epoch| journal.append(&published(epoch), None).unwrap());
        let mut lines = journal.read(SYSTEMS).unwrap();
        assert_eq!(lines.next().map(epoch), Some(0));
        journal.clear().unwrap();
        journal.append(&published(1000), None).unwrap();
        assert_eq!(lines.map(epoch).collect::<Vec<_>>(), (1..1000).collect::<Vec<_>>());
        assert_eq!(journal.read(SYSTEMS).unwrap().map(epoch).collect::<Vec<_>>(), [1000]);
        let second = Journal::open(&OsDisk, &dir).unwrap_err().to_string();
        assert!(second.contains("another controller"), "{second}");
        drop(journal);
        Journal::open(&OsDisk, &dir).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_journal_that_another_controller_replaces_as_it_is_opened_is_its_own() {
        let dir = std::env::temp_dir().join(format!("calumma-overtaken-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let new = OsDisk.create(&dir.join("journal.jsonl.new")).unwrap();
        DiskFile::lock(&new).unwrap();
        let second = Journal::open(&Overtaken, &dir).unwrap_err().to_string();
        assert!(second.contains("another controller"), "{second}");
        drop(new);
        Journal::open(&Overtaken, &dir).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// A disk on which another controller puts a new journal, where it has one ready, in the place
    /// of that which has just been opened.
    #[derive(Clone, Debug)]
    struct Overtaken;

    impl Disk for Overtaken {
        type File = File;
        type Read = File;

        fn append(&self, path: &Path) -> io::Result<File> {
            let opened = OsDisk.append(path)?;
            let _ = std::fs::rename(path.with_added_extension("new"), path);
            Ok(opened)
        }

        fn make_folder(&self, path: &Path) -> io::Result<()> {
            OsDisk.make_folder(path)
        }

        fn sync_folder(&self, path: &Path) -> io::Result<()> {
            OsDisk.sync_folder(path)
        }

        fn create(&self, path: &Path) -> io::Result<File> {
            OsDisk.create(path)
        }

        fn has_name(&self, file: &File, path: &Path) -> io::Result<bool> {
            OsDisk.has_name(file, path)
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
}
