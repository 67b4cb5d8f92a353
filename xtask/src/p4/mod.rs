//! `cargo xtask p4`: compiles the P4 edge switch for Tofino, in every variant, where a compiler is on the path, and
//! prints what each takes beside the published figures.
//!
//! Nothing of a compiler is part of this repository, and none can be installed from a package registry: where there
//! is none, that is said, and nothing fails.

mod assembly;
mod resources;
mod schema;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::shell::{self, cargo, found, run, step};
use resources::Resources;

/// Compilers for Tofino: the open one and Intel's, called alike.
const COMPILERS: [&str; 2] = ["p4c", "bf-p4c"];

/// A way to build `p4src/edge.p4`.
struct Variant {
    name: &'static str,
    /// What the compiler calls the chip and its architecture.
    target: &'static str,
    arch: &'static str,
    defines: &'static [&'static str],
    /// Sizes of the sketches: counters of 8 bits, of 16 bits, buckets upstream and downstream.
    sizes: Option<[u32; 4]>,
}

/// The chip that the model is of.
const MODELLED: &str = "tofino";

const WRAPPING: &[&str] = &["-DWRAPPING_ARITHMETIC=1"];

/// The largest sketches that the indexes of 16 bits reach.
const LARGEST: Option<[u32; 4]> = Some([32768, 32768, 8192, 8192]);

const VARIANTS: [Variant; 8] = [
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
];

/// What became of a variant.
struct Built {
    variant: &'static Variant,
    /// What it takes; none where it does not compile.
    resources: Option<Resources>,
}

pub(crate) fn compile(only: Option<&str>, json: Option<&Path>) -> Result<ExitCode> {
    let Some(compiler) = COMPILERS.into_iter().find(|name| found(name)) else {
        println!(
            "skipped: no compiler for Tofino is on the path (neither {}); p4lang/p4c has one, built from source with \
             -DENABLE_TOFINO=ON",
            COMPILERS.join(" nor ")
        );
        return Ok(ExitCode::SUCCESS);
    };
    let chosen = |variant: &&Variant| only.is_none_or(|part| variant.name.contains(part));
    let mut built = Vec::new();
    for variant in VARIANTS.iter().filter(chosen) {
        step(&format!("compiling {} for {} with {compiler}", variant.name, variant.target));
        let resources = build(compiler, variant)?;
        built.push(Built { variant, resources });
    }
    if built.is_empty() {
        let names = VARIANTS.map(|variant| variant.name).join(", ");
        bail!("no variant has {:?} in its name; there are {names}", only.unwrap_or_default());
    }
    print!("{}", table::text(&built));
    if let Some(path) = json {
        fs::write(path, table::json(&built)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let failed = built.iter().filter(|built| built.resources.is_none()).count();
    if failed > 0 {
        println!(
            "{failed} of {} variants do not compile; the compiler says why above",
            built.len()
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Compiles a variant; none where the compiler refuses it.
fn build(compiler: &str, variant: &Variant) -> Result<Option<Resources>> {
    let out = shell::target_dir().join("p4").join(variant.name);
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("emptying {}", out.display()))?;
    }
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let layout = out.join("layout.toml");
    fs::write(&layout, variant.layout())
        .with_context(|| format!("writing {}", layout.display()))?;
    let source = source(variant, &layout, &out)?;
    let mut command = Command::new(compiler);
    command.args(["--target", variant.target, "--arch", variant.arch, "-g", "--verbose", "2"]);
    command.args(variant.defines).arg("-o").arg(out.join("out")).arg(&source);
    let compiled = command.status().with_context(|| format!("running {command:?}"))?;
    // The compiler can say "0 errors" of what its assembler then rejects: the binary decides.
    let binary = out.join("out/pipe").join(format!("{}.bin", variant.target));
    if !compiled.success() || !binary.exists() {
        return Ok(None);
    }
    // Not every compiler leaves its assembly.
    let assembly = fs::read_to_string(out.join("out/pipe/edge.bfa")).unwrap_or_default();
    if let Some(state) = assembly::lost_select(&assembly) {
        bail!(
            "{compiler} has lost what the parser selects by in its state {state}: no packet would be read right; take \
             a p4c with pull request 5753 (September 2026), or the one that open-p4studio builds"
        );
    }
    compare(variant, &source, &layout, &out.join("out"))?;
    Resources::read(&out.join("out/pipe/logs/resources.json")).map(Some)
}

impl Variant {
    /// The part of a controller's configuration that asks for this variant.
    fn layout(&self) -> String {
        let arithmetic = if self.defines.is_empty() { "prime" } else { "wrapping" };
        let mut text = format!("[layout]\narithmetic = \"{arithmetic}\"\n");
        if let Some([narrow, wide, upstream, downstream]) = self.sizes {
            text += &format!(
                "upstream_buckets = {upstream}\ndownstream_buckets = {downstream}\n\
                 classifier = [{{ bits = 8, counters = {narrow} }}, {{ bits = 16, counters = {wide} }}]\n"
            );
        }
        text
    }
}

/// A program of this workspace, to be run with more arguments.
fn own(package: &str) -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", package, "--"]);
    command
}

/// Fails where the control plane would not find in the compiled program what it finds in the model.
fn compare(variant: &Variant, source: &Path, layout: &Path, out: &Path) -> Result<()> {
    // Intel's build calls it otherwise.
    let names = ["bfrt.json", "bf-rt.json"].map(|name| out.join(name));
    let Some(path) = names.iter().find(|path| path.exists()) else {
        bail!("the compiler has left no bfrt.json in {}", out.display());
    };
    let mut model = own("calumma-tna-driver");
    model.arg("--describe").args(variant.defines).arg("--program").arg(source);
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let model = shell::output(&mut model)?;
    let differences = schema::differences(&text, &model, variant.target == MODELLED)?;
    if !differences.is_empty() {
        bail!("{} is not what the model says:\n{}", path.display(), differences.join("\n"));
    }
    let mut fits = own("calumma-switchd");
    fits.arg("fits").arg("--controller").arg(layout).arg(path);
    run(fits)
}

/// The program to compile: the one of the repository, or a copy with other sizes.
fn source(variant: &Variant, layout: &Path, out: &Path) -> Result<PathBuf> {
    let folder = shell::root().join("p4src");
    if variant.sizes.is_none() {
        return Ok(folder.join("edge.p4"));
    }
    let copy = out.join("p4src");
    let generated = copy.join("include/generated");
    fs::create_dir_all(&generated).with_context(|| format!("creating {}", generated.display()))?;
    for part in ["", "include"] {
        for file in fs::read_dir(folder.join(part)).context("reading p4src")? {
            let path = file?.path();
            if let (Some(name), Some("p4")) =
                (path.file_name(), path.extension().and_then(|e| e.to_str()))
            {
                fs::copy(&path, copy.join(part).join(name)).context("copying p4src")?;
            }
        }
    }
    let mut contract = own("calumma-switchd");
    contract.arg("contract").arg("--controller").arg(layout);
    let contract = shell::output(&mut contract)?;
    fs::write(generated.join("contract.p4"), contract).context("writing contract.p4")?;
    Ok(copy.join("edge.p4"))
}
