//! Network namespaces, made and removed with `ip netns`. They need root.

use std::process::Command;

/// Runs a command line to its end and gives what it printed.
///
/// # Panics
/// Where it fails.
#[track_caller]
pub fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A network namespace without IPv6, gone once it is dropped.
#[derive(Debug)]
pub struct Namespace(String);

impl Namespace {
    /// Makes one whose name begins with `calumma-` and ends with `name`; `story` tells those of one
    /// test from those of others.
    pub fn new(story: &str, name: &str) -> Self {
        let name = format!("calumma-{story}-{}-{name}", std::process::id());
        run(&format!("ip netns add {name}"));
        let namespace = Self(name);
        namespace.script(
            "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
             sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
             ip link set lo up",
        );
        namespace
    }

    /// Its name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Runs `ip`, `ethtool` and the like in it; each line is a command.
    pub fn script(&self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.run(line);
        }
    }

    /// Runs a command line in it to its end and gives what it printed.
    pub fn run(&self, line: &str) -> String {
        run(&format!("ip netns exec {} {line}", self.0))
    }

    /// A command to be started in it; its process id is the program's own.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command
    }

    /// A wire to another namespace, whose ends hand over only packets that are finished.
    pub fn wire(&self, end: &str, other: &Self, other_end: &str) {
        self.script(&format!(
            "ip link add {end} type veth peer name {other_end} netns {}",
            other.0
        ));
        for (namespace, end) in [(self, end), (other, other_end)] {
            namespace.script(&format!(
                "ethtool -K {end} tx off rx off sg off tso off gso off gro off
                 ip link set {end} up"
            ));
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}
