//! Files that only their owner may read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Makes a folder for them; one that is there already stays as it is.
pub(crate) fn folder(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| path.display().to_string())
}

/// Writes a file aside and renames it: readable by its owner only from its creation on, and whole
/// at any time.
pub(crate) fn put(path: &Path, text: &str) -> Result<()> {
    let place = || path.display().to_string();
    let aside = path.with_added_extension("new");
    // One that is there already would keep the permissions that it has.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(place)?,
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(0o600).open(&aside).with_context(place)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(place)?;
    fs::rename(&aside, path).with_context(place)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new(".")));
    folder.and_then(|folder| folder.sync_all()).with_context(place)
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// The same of a secret, which everybody must not be able to read.
pub(crate) fn read_secret(path: &Path) -> Result<Vec<u8>> {
    let bytes = read(path)?;
    let mode = fs::metadata(path).with_context(|| path.display().to_string())?.permissions().mode();
    ensure!(
        mode & 0o007 == 0,
        "{0}: everybody can read it; `chmod 600 {0}`, and have another one made",
        path.display()
    );
    Ok(bytes)
}

/// Keeps others from changing what lies at `path` for as long as what is given lives.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let path: PathBuf = path.with_added_extension("lock");
    let place = || path.display().to_string();
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).with_context(place)?;
    file.lock().with_context(place)?;
    Ok(file)
}
