//! The P4 program of the hardware edge, built for a layout.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use calumma_chamelemon::Layout;
use calumma_switchd::chamelemon::program::{contract, defines};
use calumma_tna::Program;

/// Where the program lies.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4src");

/// What it consists of; the constants of a layout are one of its files.
const PARTS: [&str; 2] = ["edge.p4", "include"];
const CONTRACT: &str = "include/chamelemon/generated/contract.p4";

/// Writes the program with the constants of `layout` into `folder`, which must exist. Gives its
/// top-level file.
///
/// # Errors
/// When the program can't be built for the layout, its sources are not there, or a file can't be
/// written.
pub(crate) fn write(layout: &Layout, folder: &Path) -> Result<PathBuf> {
    let contract = contract(layout).context("an edge is a Tofino")?;
    for part in PARTS {
        copy(&Path::new(SOURCES).join(part), &folder.join(part))?;
    }
    let path = folder.join(CONTRACT);
    fs::write(&path, contract).with_context(|| format!("writing {}", path.display()))?;
    Ok(folder.join(PARTS[0]))
}

/// The program for `layout`, loaded.
///
/// # Errors
/// As [`write`].
pub(crate) fn program(layout: &Layout) -> Result<Program> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("calumma-p4-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let program = write(layout, &folder)
        .and_then(|file| Program::load(file, &defines(layout)).map_err(Into::into));
    fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    program
}

/// Copies a file, or a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let named = || format!("copying {}: the sources of the P4 edge switch", from.display());
    if !from.is_dir() {
        return fs::copy(from, to).map(drop).with_context(named);
    }
    fs::create_dir(to).with_context(named)?;
    for entry in fs::read_dir(from).with_context(named)? {
        let entry = entry.with_context(named)?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
