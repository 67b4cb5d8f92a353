//! What the archive does with files, as a trait: the operating system's in production, and one in
//! memory that fails and tears as a seed has it where faults are tried.

use std::fmt::Debug;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parquet::file::reader::ChunkReader;

/// A file that is open for writing.
pub trait DiskFile: Write + Debug + Send + 'static {
    /// Has the disk take what was written, and the file's length.
    ///
    /// # Errors
    /// When it doesn't: what of it is there is not known then.
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file to so many bytes.
    ///
    /// # Errors
    /// When the disk doesn't do it.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Keeps other processes from locking the file, until it is closed.
    ///
    /// # Errors
    /// `WouldBlock` where another one has locked it.
    fn lock(&self) -> io::Result<()>;
}

/// Where an archive's folders lie. Names that are made, changed and removed outlive the machine's
/// death once their folder is [synced](Self::sync_folder).
///
/// # Errors
/// All give those of the operating system.
pub trait Disk: Clone + Debug + Send + 'static {
    /// A file that is open for writing.
    type File: DiskFile;
    /// One that is open for reading.
    type Read: ChunkReader + 'static;

    /// Makes a folder, and those that it lies in.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Has the disk take the names in a folder.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes a file, empty where there is one already.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file for writing behind what it has; makes it where there is none.
    fn append(&self, path: &Path) -> io::Result<Self::File>;

    /// Whether a file still has the name that it was made or opened by.
    fn has_name(&self, file: &Self::File, path: &Path) -> io::Result<bool>;

    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Self::Read>;

    /// What is in a folder; nothing where there is none.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Bytes of a file.
    fn bytes(&self, path: &Path) -> io::Result<u64>;

    /// Gives a file another name, in place of the file that has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The operating system's.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

impl DiskFile for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }

    fn lock(&self) -> io::Result<()> {
        self.try_lock().map_err(|problem| match problem {
            TryLockError::WouldBlock => ErrorKind::WouldBlock.into(),
            TryLockError::Error(problem) => problem,
        })
    }
}

impl Disk for OsDisk {
    type File = File;
    type Read = File;

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        File::create(path)
    }

    fn append(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(path)
    }

    fn has_name(&self, file: &File, path: &Path) -> io::Result<bool> {
        let named = match path.metadata() {
            Err(problem) if problem.kind() == ErrorKind::NotFound => return Ok(false),
            named => named?,
        };
        let file = file.metadata()?;
        Ok((file.dev(), file.ino()) == (named.dev(), named.ino()))
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        match path.read_dir() {
            Err(problem) if problem.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            read => read?.map(|entry| Ok(entry?.path())).collect(),
        }
    }

    fn bytes(&self, path: &Path) -> io::Result<u64> {
        Ok(path.metadata()?.len())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}
