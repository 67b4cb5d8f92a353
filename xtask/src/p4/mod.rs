//! `cargo xtask p4`: compiles every P4 program in `p4src` for Tofino, in every variant, where a
//! compiler is on the path, and prints what each takes, ChameleMon's beside the published numbers.
//!
//! Nothing of a compiler is part of this repository, and none can be installed from a package
//! registry: where there is none, the command says so and succeeds.

mod assembly;
mod programs;
mod resources;
mod schema;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::shell::{self, cargo, found, run, step};
use programs::{Program, Variant};
use resources::Resources;

/// Compilers for Tofino: the open one and Intel's, called alike.
const COMPILERS: [&str; 2] = ["p4c", "bf-p4c"];

/// The chip that the model is of.
const MODELLED: &str = "tofino";

/// What became of a program's variant.
struct Built {
    system: String,
    variant: &'static Variant,
    /// What it takes; none where it does not compile.
    resources: Option<Resources>,
}

pub(crate) fn compile(only: Option<&str>, json: Option<&Path>) -> Result<ExitCode> {
    let programs = Program::all(&shell::root().join("p4src"))?;
    if programs.iter().all(|program| program.chosen(only).is_empty()) {
        let systems: Vec<_> = programs.iter().map(|program| &*program.system).collect();
        bail!(
            "{:?} is no system with a program in p4src (there are {}), and in no variant's name",
            only.unwrap_or_default(),
            systems.join(", ")
        );
    }
    let Some(compiler) = COMPILERS.into_iter().find(|name| found(name)) else {
        println!(
            "skipped: no compiler for Tofino is on the path (neither {}); p4lang/p4c has one, built from source with \
             -DENABLE_TOFINO=ON",
            COMPILERS.join(" nor ")
        );
        return Ok(ExitCode::SUCCESS);
    };
    let mut built = Vec::new();
    for program in &programs {
        for variant in program.chosen(only) {
            let Variant { name, target, .. } = variant;
            let system = program.system.clone();
            step(&format!("compiling {system}, {name}, for {target} with {compiler}"));
            let resources = build(compiler, program, variant)?;
            built.push(Built { system, variant, resources });
        }
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
fn build(compiler: &str, program: &Program, variant: &Variant) -> Result<Option<Resources>> {
    let out = shell::target_dir().join("p4").join(&program.system).join(variant.name);
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("emptying {}", out.display()))?;
    }
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let layout = out.join("layout.toml");
    fs::write(&layout, variant.layout())
        .with_context(|| format!("writing {}", layout.display()))?;
    let source = source(program, variant, &layout, &out)?;
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
    let assembly = out
        .join("out/pipe")
        .join(program.file.file_name().unwrap_or_default())
        .with_extension("bfa");
    let assembly = fs::read_to_string(assembly).unwrap_or_default();
    if let Some(state) = assembly::lost_select(&assembly) {
        bail!(
            "{compiler} has lost what the parser selects by in its state {state}: no packet would be read right; take \
             a p4c with pull request 5753 (September 2026), or the one that open-p4studio builds"
        );
    }
    compare(program, variant, &source, &layout, &out.join("out"))?;
    Resources::read(&out.join("out/pipe/logs/resources.json")).map(Some)
}

impl Variant {
    /// The part of a controller's configuration that asks for this variant.
    fn layout(&self) -> String {
        let wrapping = programs::WRAPPING[0];
        let arithmetic = if self.defines.contains(&wrapping) { "wrapping" } else { "prime" };
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

/// The control plane for a system: the product's, or the example that has this system as well; none
/// where no control plane drives the system's program.
fn switchd(system: &str) -> Option<Command> {
    let example = format!("switchd-{system}");
    let file = shell::root().join("p4src/agent/examples").join(&example).with_extension("rs");
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "calumma-switchd"]);
    if file.is_file() {
        command.args(["--example", &example]);
    } else if !programs::DRIVEN.contains(&system) {
        return None;
    }
    command.arg("--");
    Some(command)
}

/// Fails where the control plane would not find in the compiled program what it finds in the model.
fn compare(
    program: &Program,
    variant: &Variant,
    source: &Path,
    layout: &Path,
    out: &Path,
) -> Result<()> {
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
    let Some(mut fits) = switchd(&program.system) else { return Ok(()) };
    fits.arg("fits").arg("--controller").arg(layout).arg(path);
    if variant.defines.contains(&programs::TRANSIT[0]) {
        fits.args(["--role", "transit"]);
    }
    run(fits)
}

/// The program to compile: the one of the repository, or a copy with other sizes.
fn source(program: &Program, variant: &Variant, layout: &Path, out: &Path) -> Result<PathBuf> {
    if variant.sizes.is_none() {
        return Ok(program.file.clone());
    }
    let copy = out.join("p4src");
    copy_sources(&shell::root().join("p4src/include"), &copy.join("include"))?;
    let file = copy.join(program.file.file_name().unwrap_or_default());
    fs::copy(&program.file, &file).context("copying p4src")?;
    let contract = switchd(&program.system);
    let mut contract = contract.context("sizes of a program without a control plane")?;
    contract.args(["contract", "--system", &program.system, "--controller"]).arg(layout);
    let contract = shell::output(&mut contract)?;
    fs::write(copy.join("include/chamelemon/generated/contract.p4"), contract)
        .context("writing contract.p4")?;
    Ok(file)
}

/// Copies a folder and all below it.
fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from).context("reading p4src")? {
        let entry = entry.context("reading p4src")?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_sources(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target).context("copying p4src")?;
        }
    }
    Ok(())
}
