//! Brings a fresh machine to where everything builds and runs: packages, Rust components,
//! hugepages.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell::{cargo, found, output, run, step, succeeds, sudo};

/// Debian and Ubuntu packages: DPDK and what its bindings are made with, and the tools that build
/// the demo's network.
const PACKAGES: [&str; 13] = [
    "libdpdk-dev",
    "dpdk",
    "dpdk-dev",
    "clang",
    "libclang-dev",
    "pkg-config",
    "iproute2",
    "nftables",
    "ethtool",
    "procps",
    "iperf3",
    "tcpdump",
    "libpcap-dev",
];

/// What only tests need: a browser for the dashboard, other people's readers of our metrics and
/// flow records, and ping, what reads our units for systemd, and what lists our files.
const TEST_PACKAGES: [&str; 8] = [
    "chromium",
    "chromium-driver",
    "prometheus",
    "nfdump",
    "iputils-ping",
    "systemd",
    "tshark",
    "git",
];

/// What an edge switch is measured beside.
const PEER_PACKAGES: [&str; 1] = ["openvswitch-switch-dpdk"];

/// Hugepages of 2 MiB the demo's two edges like to have.
const HUGEPAGES: u64 = 512;

/// Memory that stays for everything else, in KiB.
const KEEP_FREE: u64 = 3 << 20;

/// Installs the packages that are missing, and reserves hugepages where that is possible.
pub(crate) fn prepare() -> Result<()> {
    install_packages()?;
    reserve_hugepages()
}

/// Installs what only tests need. What can't be had (on Ubuntu, Chromium is no package) is missing
/// for the tests that need it: they are skipped, and in CI they fail.
pub(crate) fn prepare_tests() {
    if !found("dpkg-query") || !found("apt-get") {
        return;
    }
    if install(&TEST_PACKAGES).is_ok() {
        return;
    }
    for package in TEST_PACKAGES {
        if let Err(problem) = install(&[package]) {
            println!("some tests are passed over without {package}: {problem:#}");
        }
    }
}

/// Installs what an edge switch is measured beside; without it, the bench has no figures of it.
pub(crate) fn prepare_peers() {
    if !found("dpkg-query") || !found("apt-get") {
        return;
    }
    if let Err(problem) = install(&PEER_PACKAGES) {
        println!("{problem:#}");
    }
}

fn install_packages() -> Result<()> {
    if !found("dpkg-query") || !found("apt-get") {
        // Not Debian: its users know the packages' names better. pkg-config knows whether
        // DPDK is there.
        if succeeds(Command::new("pkg-config").args(["--exists", "libdpdk"])) {
            return Ok(());
        }
        bail!(
            "this is neither Debian nor Ubuntu, and libdpdk is not found; install what these Debian packages hold: {}",
            PACKAGES.join(" ")
        );
    }
    install(&PACKAGES)
}

/// Installs Debian packages that are missing.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let missing: Vec<&str> =
        packages.iter().copied().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    step(&format!("installing {}", missing.join(" ")));
    apt_get(&["update"])?;
    apt_get(&[&["install", "--yes"], &missing[..]].concat())
        .with_context(|| format!("install them by hand: apt-get install {}", missing.join(" ")))
}

fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${Status}", package]).stderr(std::process::Stdio::null());
    output(&mut query).is_ok_and(|status| status.ends_with(" installed"))
}

fn apt_get(args: &[&str]) -> Result<()> {
    // Not through the environment, which sudo does not pass on.
    let mut command = sudo("env")?;
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]).args(args);
    run(command)
}

/// Adds the parts of the Rust toolchain that tests need, where a minimal one was installed.
pub(crate) fn add_rust_components() -> Result<()> {
    for component in ["fmt", "clippy"] {
        if succeeds(cargo().args([component, "--version"])) {
            continue;
        }
        let name = if component == "fmt" { "rustfmt" } else { component };
        if !found("rustup") {
            bail!("cargo {component} is missing; install {name} for this Rust toolchain");
        }
        step(&format!("adding {name} to the Rust toolchain"));
        let mut rustup = Command::new("rustup");
        rustup.args(["component", "add", name]);
        run(rustup)?;
    }
    Ok(())
}

/// Reserves hugepages if few are free. Everything runs without them too, so not getting them is
/// only printed.
fn reserve_hugepages() -> Result<()> {
    let Some(memory) = Memory::read()? else {
        println!("no 2 MiB hugepages on this machine; DPDK runs without");
        return Ok(());
    };
    let missing = HUGEPAGES.saturating_sub(memory.free_pages);
    if missing == 0 {
        return Ok(());
    }
    if memory.available_kib < KEEP_FREE + missing * 2048 {
        println!("too little memory to reserve hugepages; DPDK runs without");
        return Ok(());
    }
    step(&format!("reserving {missing} hugepages of 2 MiB"));
    let pages = memory.pages + missing;
    let reserved = sudo("sysctl")
        .map(|mut sysctl| succeeds(sysctl.args(["-qw", &format!("vm.nr_hugepages={pages}")])))?;
    let free = Memory::read()?.map_or(0, |memory| memory.free_pages);
    if !reserved || free < HUGEPAGES {
        println!("{free} hugepages are free, fewer than the {HUGEPAGES} wished for");
    }
    Ok(())
}

struct Memory {
    pages: u64,
    free_pages: u64,
    available_kib: u64,
}

impl Memory {
    /// What the kernel reports; `None` where its hugepages aren't of 2 MiB.
    fn read() -> Result<Option<Self>> {
        let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        Ok((|| {
            (value("Hugepagesize")? == 2048).then_some(())?;
            Some(Self {
                pages: value("HugePages_Total")?,
                free_pages: value("HugePages_Free")?,
                available_kib: value("MemAvailable")?,
            })
        })())
    }
}
