//! `cargo xtask package`: Debian packages, and a test of them in a container.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::shell::{self, cargo, step, sudo};
use crate::{machine, tools};

/// The packages, each with what `cargo deb` knows about it in its Cargo.toml.
const PACKAGES: [&str; 3] = ["calumma-controller", "calumma-edge", "calumma-switchd"];

/// The programs that go into packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Programs {
    /// Those of a release, which is built.
    Release,
    /// Those that the tests have been built with: quick to have, and slow.
    OfTests,
}

impl Programs {
    /// The folder below the target directory for packages of these.
    fn folder(self) -> PathBuf {
        shell::target_dir().join(match self {
            Self::Release => "debian",
            Self::OfTests => "debian-of-tests",
        })
    }

    /// `cargo deb` for packages of these, which are built.
    fn packer(self) -> Result<Command> {
        let mut deb = tools::deb()?;
        deb.arg("--no-build");
        if self == Self::OfTests {
            // It packs releases alone: this is where it finds one.
            let target = self.folder().join("target");
            std::fs::create_dir_all(&target)
                .with_context(|| format!("creating {}", target.display()))?;
            let release = target.join("release");
            let _ = std::fs::remove_file(&release);
            std::os::unix::fs::symlink(shell::target_dir().join("debug"), &release)
                .with_context(|| format!("linking {}", release.display()))?;
            deb.arg("--fast").env("CARGO_TARGET_DIR", target);
        }
        Ok(deb)
    }
}

/// Builds the packages into `out`, and with `check` installs, starts and purges them in a
/// container.
pub(crate) fn run(out: Option<&Path>, check: bool, programs: Programs) -> Result<ExitCode> {
    machine::prepare()?;
    let out = match out {
        Some(out) => std::path::absolute(out).context("where to put the packages")?,
        None => programs.folder(),
    };
    if programs == Programs::Release {
        step("building the release");
        let mut build = cargo();
        build.args(["build", "--release", "--bins"]);
        build.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
        shell::run(build)?;
    }
    let packages = build_packages(&out, programs)?;
    if check {
        step("installing the packages in a container");
        machine::install(&["systemd-container"])?;
        shell::run(container(&packages)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The check of packages of what the tests have been built with, by this program.
pub(crate) fn check_of_tests() -> Result<Command> {
    let mut check = Command::new(std::env::current_exe().context("finding this program")?);
    check.args(["package", "--check", "--of-tests"]);
    Ok(check)
}

/// Packs what is built; gives the files.
fn build_packages(out: &Path, programs: Programs) -> Result<Vec<PathBuf>> {
    machine::install(&["dpkg-dev", "adduser"])?;
    std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let mut files = Vec::new();
    for package in PACKAGES {
        step(&format!("packing {package}"));
        let mut deb = programs.packer()?;
        deb.args(["--package", package, "--output"]).arg(out);
        // The last line of its output is the package's path.
        let printed = shell::output(&mut deb)?;
        let path = printed.lines().last().map(PathBuf::from).filter(|path| path.is_file());
        let Some(path) = path else { bail!("cargo deb made no package of {package}") };
        println!("{}", path.display());
        files.push(path);
    }
    Ok(files)
}

/// Tests packages in a container that boots systemd over this machine's own files, which stay as
/// they are.
fn container(packages: &[PathBuf]) -> Result<Command> {
    let mut unshare = sudo("unshare")?;
    unshare.args(["--mount", "sh"]).arg(shell::root().join("deploy/debian/test/container"));
    unshare.args(packages).current_dir(shell::root());
    Ok(unshare)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Component;

    use super::*;

    /// The files that a package with this manifest installs as they are in the repository, by the
    /// paths at which they are then.
    fn installed(manifest: &Path) -> BTreeMap<PathBuf, PathBuf> {
        let text = fs::read_to_string(manifest).unwrap();
        let folder = manifest.parent().unwrap();
        let mut files = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("    [\"../")) {
            let words: Vec<&str> = line.split('"').collect();
            let (pattern, to) = (folder.join(words[1]), words[3]);
            let name = pattern.file_name().unwrap().to_str().unwrap();
            let found: Vec<PathBuf> = match name.strip_prefix('*') {
                Some(ending) => fs::read_dir(pattern.parent().unwrap())
                    .unwrap()
                    .map(|entry| entry.unwrap().path())
                    .filter(|path| path.to_str().unwrap().ends_with(ending))
                    .collect(),
                None => vec![pattern.clone()],
            };
            assert!(found.iter().any(|path| path.is_file()), "nothing is at {}", pattern.display());
            files.extend(found.into_iter().map(|from| {
                let to = Path::new(to);
                let is_folder = words[3].ends_with('/');
                (if is_folder { to.join(from.file_name().unwrap()) } else { to.to_owned() }, from)
            }));
        }
        files
    }

    /// A path without `..`.
    fn resolved(path: &Path) -> PathBuf {
        let mut resolved = PathBuf::new();
        for component in path.components() {
            match component {
                Component::ParentDir => drop(resolved.pop()),
                other => resolved.push(other),
            }
        }
        resolved
    }

    /// What a page links to, without addresses on the web and places within a page.
    fn links(page: &str) -> impl Iterator<Item = &str> {
        let targets = page.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        targets.filter(|target| !target.is_empty() && !target.contains(':'))
    }

    /// The packages' names and manifests.
    fn packages() -> impl Iterator<Item = (&'static str, PathBuf)> {
        let folders = ["controller", "dataplane/edge", "p4src/agent"];
        let manifests = folders.map(|folder| shell::root().join(folder).join("Cargo.toml"));
        PACKAGES.into_iter().zip(manifests)
    }

    #[test]
    fn links_of_installed_pages_lead_to_installed_files() {
        for (package, manifest) in packages() {
            let files = installed(&manifest);
            let pages = files.iter().filter(|(page, _)| page.extension() == Some("md".as_ref()));
            let mut followed = 0;
            for (page, from) in pages {
                for link in links(&fs::read_to_string(from).unwrap()) {
                    let target = resolved(&page.parent().unwrap().join(link));
                    let is_there = files.keys().any(|path| path.starts_with(&target));
                    assert!(is_there, "{package}: {} links to {link}", page.display());
                    followed += 1;
                }
            }
            assert!(followed > 0, "{package} has no links");
        }
    }

    #[test]
    fn the_page_that_a_unit_names_is_installed() {
        for (package, manifest) in packages() {
            let unit = format!("deploy/systemd/{package}.service");
            let unit = fs::read_to_string(shell::root().join(unit)).unwrap();
            let page = unit.lines().find_map(|line| line.strip_prefix("Documentation=file:/"));
            let page = page.unwrap();
            assert!(installed(&manifest).contains_key(Path::new(page)), "{package}: no {page}");
        }
    }
}
