//! A network namespace, made and removed with `ip netns`.

use std::fs::File;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::command;
use super::run::Run;

/// A network namespace with its loopback up, no reverse-path filter, and IPv6 off unless it is
/// asked for. Dropping it kills what runs in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace named `<prefix of the run>-<role>`.
    pub fn create(run: &Run, role: &str) -> Result<Self> {
        let name = format!("{}-{role}", run.prefix());
        command::run("ip", &["netns", "add", &name])?;
        let namespace = Self { name };
        // Set before any link exists, so that no interface ever sends an IPv6 packet of its own.
        namespace.sysctl(&[
            "net.ipv6.conf.all.disable_ipv6=1",
            "net.ipv6.conf.default.disable_ipv6=1",
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0",
        ])?;
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// The same with IPv6, which sends nothing of its own accord: no address makes itself, none is
    /// asked for, and what the kernel would tell multicast routers is dropped as it leaves.
    /// Neighbours must be made known to it.
    pub fn create_dual_stack(run: &Run, role: &str) -> Result<Self> {
        let namespace = Self::create(run, role)?;
        let quiet = "table ip6 quiet {
          chain output {
            type filter hook output priority -300; policy accept;
            icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } drop
            icmpv6 type { mld-listener-report, mld-listener-done, mld2-listener-report } drop
          }
        }";
        namespace.run_with_input("nft", &["-f", "-"], quiet)?;
        // Before any link exists, so that all are so; `none` is 1.
        namespace.sysctl(&[
            "net.ipv6.conf.default.addr_gen_mode=1",
            "net.ipv6.conf.default.accept_dad=0",
            "net.ipv6.conf.default.accept_ra=0",
            "net.ipv6.conf.all.disable_ipv6=0",
            "net.ipv6.conf.default.disable_ipv6=0",
        ])?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a command in the namespace to its end; gives its standard output.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        command::run("ip", &self.exec_args(program, args))
    }

    /// Runs a command in the namespace with `input` on its standard input.
    pub(crate) fn run_with_input(
        &self,
        program: &str,
        args: &[&str],
        input: &str,
    ) -> Result<String> {
        command::run_with_input("ip", &self.exec_args(program, args), input)
    }

    /// A command to be started in the namespace; its process id is the program's own.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `ip` on the namespace's own links, addresses and routes.
    pub(crate) fn ip(&self, args: &[&str]) -> Result<String> {
        command::run("ip", &[&["-n", &self.name], args].concat())
    }

    /// Runs `ip` on commands, one a line.
    pub(crate) fn ip_batch(&self, commands: &str) -> Result<()> {
        command::run_with_input("ip", &["-n", &self.name, "-batch", "-"], commands).map(drop)
    }

    /// Does something in the namespace, in a thread of its own: what sockets it opens stay there.
    pub(crate) fn within<T: Send>(&self, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = format!("/run/netns/{}", self.name);
        let file = File::open(&path).with_context(|| format!("opening {path}"))?;
        let inside = || {
            setns(file, CloneFlags::CLONE_NEWNET).with_context(|| format!("entering {path}"))?;
            f()
        };
        let result = thread::scope(|scope| scope.spawn(inside).join());
        result.map_err(|_| anyhow!("what was done in {} panicked", self.name))?
    }

    /// Sets kernel parameters of the namespace, each written `name=value`.
    pub(crate) fn sysctl(&self, settings: &[&str]) -> Result<()> {
        self.run("sysctl", &[&["-qw"], settings].concat()).map(drop)
    }

    fn exec_args<'a>(&'a self, program: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        [&["netns", "exec", &self.name, program], args].concat()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.name) {
            eprintln!("cannot remove the network namespace {}: {error:#}", self.name);
        }
    }
}

/// The names of all network namespaces.
pub(super) fn list() -> Result<Vec<String>> {
    let names = command::run("ip", &["netns", "list"])?;
    // A line is a name, and sometimes " (id: 3)".
    Ok(names.lines().filter_map(|l| l.split_whitespace().next()).map(str::to_owned).collect())
}

/// Kills the processes of a namespace, without which it would live on unnamed, and deletes it with
/// its links.
pub(super) fn remove(name: &str) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let pids = processes(name)?;
        if pids.is_empty() || Instant::now() > end {
            break;
        }
        for pid in pids {
            // It may have ended by itself in the meantime.
            let _ = kill(pid, Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    command::run("ip", &["netns", "delete", name]).map(drop)
}

/// The processes that live in a namespace.
fn processes(name: &str) -> Result<Vec<Pid>> {
    let pids = command::run("ip", &["netns", "pids", name])?;
    pids.lines()
        .map(|line| line.trim().parse().map(Pid::from_raw))
        .collect::<Result<_, _>>()
        .with_context(|| format!("process ids in {name}"))
}

/// Whether something listens on a TCP port in the network namespace of a process.
pub(super) fn listens(pid: u32, port: u16) -> bool {
    let hex_port = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).is_ok_and(|text| {
            text.lines().skip(1).any(|line| {
                let mut fields = line.split_whitespace().skip(1);
                let local = fields.next().is_some_and(|address| address.ends_with(&hex_port));
                // State 0A is LISTEN.
                local && fields.nth(1) == Some("0A")
            })
        })
    })
}
