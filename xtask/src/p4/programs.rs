//! Which programs there are to build, and in which variants.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A way to build a program.
pub(super) struct Variant {
    pub(super) name: &'static str,
    /// What the compiler calls the chip and its architecture.
    pub(super) target: &'static str,
    pub(super) arch: &'static str,
    pub(super) defines: &'static [&'static str],
    /// Sizes of ChameleMon's sketches: counters of 8 bits, of 16 bits, buckets upstream and
    /// downstream.
    pub(super) sizes: Option<[u32; 4]>,
}

/// A system's program.
#[derive(Debug, PartialEq)]
pub(super) struct Program {
    pub(super) system: String,
    pub(super) file: PathBuf,
}

/// The system of `edge.p4`, the only program that is not named after its system.
pub(super) const OF_EDGE: &str = "chamelemon";

/// The systems that the product's own control plane drives.
pub(super) const DRIVEN: [&str; 3] = [OF_EDGE, "sketchint", "cfs"];

pub(super) const WRAPPING: &[&str] = &["-DWRAPPING_ARITHMETIC=1"];

/// All keys are hashed as wide ones.
const WIDE: &[&str] = &["-DWIDE_KEYS=1"];

/// The same with six places in each row, for which twelve stages are too few.
const WIDE_SIX: &[&str] = &["-DWIDE_KEYS=1", "-DCOLUMNS=6"];

/// Marks in the identification.
const IP_ID: &[&str] = &["-DCARRIER_IP_ID=1"];
const IP_ID_WRAPPING: &[&str] = &["-DCARRIER_IP_ID=1", "-DWRAPPING_ARITHMETIC=1"];

/// The largest sketches that the indexes of 16 bits reach.
const LARGEST: Option<[u32; 4]> = Some([32768, 32768, 8192, 8192]);

const CHAMELEMON: [Variant; 12] = [
    Variant { name: "prime", target: "tofino", arch: "tna", defines: &[], sizes: None },
    Variant { name: "wrapping", target: "tofino", arch: "tna", defines: WRAPPING, sizes: None },
    Variant { name: "prime-large", target: "tofino", arch: "tna", defines: &[], sizes: LARGEST },
    Variant {
        name: "wrapping-large",
        target: "tofino",
        arch: "tna",
        defines: WRAPPING,
        sizes: LARGEST,
    },
    Variant { name: "prime-2", target: "tofino2", arch: "t2na", defines: &[], sizes: None },
    Variant { name: "wrapping-2", target: "tofino2", arch: "t2na", defines: WRAPPING, sizes: None },
    Variant {
        name: "prime-large-2",
        target: "tofino2",
        arch: "t2na",
        defines: &[],
        sizes: LARGEST,
    },
    Variant {
        name: "wrapping-large-2",
        target: "tofino2",
        arch: "t2na",
        defines: WRAPPING,
        sizes: LARGEST,
    },
    Variant { name: "ip-id", target: "tofino", arch: "tna", defines: IP_ID, sizes: None },
    Variant {
        name: "ip-id-wrapping",
        target: "tofino",
        arch: "tna",
        defines: IP_ID_WRAPPING,
        sizes: None,
    },
    Variant { name: "ip-id-2", target: "tofino2", arch: "t2na", defines: IP_ID, sizes: None },
    Variant {
        name: "ip-id-wrapping-2",
        target: "tofino2",
        arch: "t2na",
        defines: IP_ID_WRAPPING,
        sizes: None,
    },
];

/// A switch between others.
pub(super) const TRANSIT: &[&str] = &["-DROLE_TRANSIT=1"];

const ACU: &[&str] = &["-DACU=1"];

const SKETCHINT: [Variant; 6] = [
    Variant { name: "transit", target: "tofino", arch: "tna", defines: TRANSIT, sizes: None },
    Variant { name: "source-sink", target: "tofino", arch: "tna", defines: &[], sizes: None },
    Variant { name: "transit-2", target: "tofino2", arch: "t2na", defines: TRANSIT, sizes: None },
    Variant { name: "source-sink-2", target: "tofino2", arch: "t2na", defines: &[], sizes: None },
    Variant { name: "acu", target: "tofino", arch: "tna", defines: ACU, sizes: None },
    Variant { name: "acu-2", target: "tofino2", arch: "t2na", defines: ACU, sizes: None },
];

const CFS: [Variant; 3] = [
    Variant { name: "wide", target: "tofino", arch: "tna", defines: WIDE, sizes: None },
    Variant { name: "wide-2", target: "tofino2", arch: "t2na", defines: WIDE, sizes: None },
    Variant { name: "wide-six-2", target: "tofino2", arch: "t2na", defines: WIDE_SIX, sizes: None },
];

/// Both chips.
const PLAIN: [Variant; 2] = [
    Variant { name: "tofino", target: "tofino", arch: "tna", defines: &[], sizes: None },
    Variant { name: "tofino-2", target: "tofino2", arch: "t2na", defines: &[], sizes: None },
];

impl Program {
    /// Those in a folder, by the names of their systems.
    pub(super) fn all(folder: &Path) -> Result<Vec<Program>> {
        let reading = || format!("reading {}", folder.display());
        let mut out = Vec::new();
        for file in fs::read_dir(folder).with_context(reading)? {
            let file = file.with_context(reading)?.path();
            let stem = file.file_stem().and_then(|stem| stem.to_str());
            if let (Some(stem), Some("p4")) = (stem, file.extension().and_then(|e| e.to_str())) {
                let system = if stem == "edge" { OF_EDGE } else { stem }.to_owned();
                out.push(Program { system, file });
            }
        }
        out.sort_by(|a, b| a.system.cmp(&b.system));
        Ok(out)
    }

    fn variants(&self) -> &'static [Variant] {
        match &*self.system {
            OF_EDGE => &CHAMELEMON,
            "sketchint" => &SKETCHINT,
            "cfs" => &CFS,
            _ => &PLAIN,
        }
    }

    /// The variants that `only` means: all where it is the system's name, else those that have it
    /// in theirs.
    pub(super) fn chosen(&self, only: Option<&str>) -> Vec<&'static Variant> {
        let all = only.is_none_or(|only| only == self.system);
        let variants = self.variants().iter();
        variants
            .filter(|variant| all || only.is_some_and(|part| variant.name.contains(part)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_of_this_repository_are_those_of_its_systems() {
        let programs = Program::all(&crate::shell::root().join("p4src")).unwrap();
        let systems: Vec<&str> = programs.iter().map(|program| &*program.system).collect();
        assert_eq!(systems, ["cfs", "chamelemon", "hops", "sketchint"]);
        assert!(programs.iter().all(|program| !program.chosen(Some(&program.system)).is_empty()));
    }

    #[test]
    fn every_program_is_found_and_chosen_by_its_system_or_a_variant() {
        let folder = std::env::temp_dir().join(format!("calumma-xtask-p4-{}", std::process::id()));
        fs::create_dir_all(folder.join("include")).unwrap();
        for name in ["edge.p4", "sketchint.p4", "README.md"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let programs = Program::all(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let systems: Vec<&str> = programs.iter().map(|program| &*program.system).collect();
        assert_eq!(systems, ["chamelemon", "sketchint"]);
        let chosen = |only| {
            let variants = programs.iter().flat_map(|program| program.chosen(only));
            variants.map(|variant| variant.name).collect::<Vec<_>>()
        };
        assert_eq!(chosen(None).len(), 12 + 6);
        assert_eq!(chosen(Some("chamelemon")).len(), 12);
        assert_eq!(chosen(Some("sketchint")).len(), 6);
        assert_eq!(chosen(Some("transit")), ["transit", "transit-2"]);
        assert_eq!(chosen(Some("wrapping-2")), ["wrapping-2", "ip-id-wrapping-2"]);
        assert_eq!(chosen(Some("omnimon")), [""; 0]);
    }
}
