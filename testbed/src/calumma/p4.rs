//! P4 programs of measurement systems, built for a controller's configuration.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use calumma_chamelemon::Layout;
use calumma_switchd::system::{Build, System, Target};
use calumma_tna::Program;
use calumma_wire::Role;
use serde_json::Value;

/// Where the programs lie, and what they include.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4src");
const INCLUDED: &str = "include";

/// The system, of those that are known, whose program a Tofino of that role has. It has one at a
/// time: that of the first system in `on` that has one for the role, else that of the first known.
pub(crate) fn loaded(
    known: &[&'static dyn System],
    role: Role,
    on: &[impl AsRef<str>],
) -> Option<&'static dyn System> {
    let mut fitting = known.iter().filter(|system| system.roles().contains(&role));
    let named = |name| fitting.clone().find(|system| system.name() == name);
    let of_on = on.iter().find_map(|name| named(name.as_ref()));
    of_on.or_else(|| fitting.next()).copied()
}

/// A controller's configuration as far as programs depend on it: that layout, the systems that are
/// on, and their sections.
pub(crate) fn configuration(
    layout: &Layout,
    on: &[String],
    sections: &BTreeMap<String, Value>,
) -> Result<toml::Table> {
    let layout = toml::Table::try_from(layout).context("a layout as a table")?;
    let mut out = toml::Table::from_iter([
        ("layout".to_owned(), layout.into()),
        ("systems".to_owned(), on.to_vec().into()),
    ]);
    for (name, section) in sections {
        let section = toml::Value::try_from(section);
        out.insert(name.clone(), section.with_context(|| format!("[{name}] as a table"))?);
    }
    Ok(out)
}

/// A program's sources, ready to be compiled.
pub(crate) struct Sources {
    /// The top-level file.
    pub(crate) file: PathBuf,
    /// Macros to compile it with, and their values.
    pub(crate) defines: Vec<(String, String)>,
}

/// Writes the sources of a system's program, for switches of a role and a controller of that
/// configuration, into `folder`, which must exist.
///
/// # Errors
/// When the program can't be built for it, its sources are not there, or a file can't be written.
pub(crate) fn write(
    (system, role): (&dyn System, Role),
    controller: &toml::Table,
    folder: &Path,
) -> Result<Sources> {
    let built = system.build((role, Target::Tofino), controller).map_err(anyhow::Error::msg);
    let Build { constants, defines, .. } =
        built.with_context(|| format!("building {}", system.program()))?;
    for part in [system.program(), INCLUDED] {
        copy(&Path::new(SOURCES).join(part), &folder.join(part))?;
    }
    if let Some(constants) = constants {
        let path = folder.join(constants.file);
        fs::write(&path, constants.text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(Sources { file: folder.join(system.program()), defines })
}

/// The same program, loaded.
///
/// # Errors
/// As [`write`].
pub(crate) fn program(system: (&dyn System, Role), controller: &toml::Table) -> Result<Program> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("calumma-p4-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let program = write(system, controller, &folder)
        .and_then(|of| Program::load(of.file, &of.defines).map_err(Into::into));
    fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    program
}

/// Copies a file, or a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let named = || format!("copying {}: the sources of a P4 program", from.display());
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
