//! Open vSwitch with its DPDK datapath, between the same ports as the other switches.
//!
//! Each trial has a database and a daemon of its own, whose files lie in the run's directory: an
//! Open vSwitch that the machine runs is not touched. Flow tables and caches are as Open vSwitch
//! sets them up. Exported samples go to a socket of this process, which must have received some.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use calumma_testbed::fabric::{Process, wait_until};

/// By what it forwards, and what it exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ovs {
    /// By what it forwards.
    pub forwarding: Forwarding,
    /// What it exports to a collector.
    pub export: Option<Export>,
}

/// By what Open vSwitch forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Everything from one port goes to the other.
    Port,
    /// By a prefix of the IPv4 destination, with the work of a router: Ethernet addresses and TTL.
    Prefix,
}

/// Samples for a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// sFlow version 5.
    Sflow,
    /// IPFIX (RFC 7011).
    Ipfix,
}

/// One packet in so many is sampled: Open vSwitch's own default for both exports.
const SAMPLING: u32 = 400;

/// The daemon with DPDK, where Debian's and Ubuntu's package puts it.
const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

const LIMIT: Duration = Duration::from_secs(20);

impl Ovs {
    /// Port to port.
    pub const PORT: Self = Self::new(Forwarding::Port, None);

    /// By IP prefix.
    pub const PREFIX: Self = Self::new(Forwarding::Prefix, None);

    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::PORT,
        Self::new(Forwarding::Port, Some(Export::Sflow)),
        Self::new(Forwarding::Port, Some(Export::Ipfix)),
        Self::PREFIX,
        Self::new(Forwarding::Prefix, Some(Export::Sflow)),
        Self::new(Forwarding::Prefix, Some(Export::Ipfix)),
    ];

    const fn new(forwarding: Forwarding, export: Option<Export>) -> Self {
        Self { forwarding, export }
    }

    /// Its name among the figures.
    pub fn name(self) -> String {
        let forwarding = match self.forwarding {
            Forwarding::Port => "port",
            Forwarding::Prefix => "prefix",
        };
        let export = match self.export {
            None => "",
            Some(Export::Sflow) => ".sflow",
            Some(Export::Ipfix) => ".ipfix",
        };
        format!("ovs.{forwarding}{export}")
    }

    /// What is missing for it on this machine; nothing where it can run.
    pub fn missing() -> Option<String> {
        let missing = [DAEMON, SCHEMA].into_iter().find(|file| !Path::new(file).exists())?;
        Some(format!("{missing} is missing (Debian package openvswitch-switch-dpdk)"))
    }

    /// OpenFlow flows: the first port is the generator's.
    fn flow(self) -> &'static str {
        match self.forwarding {
            Forwarding::Port => "in_port=1,actions=output:2",
            Forwarding::Prefix => {
                "ip,nw_dst=10.101.0.0/16,actions=mod_dl_src:02:00:00:00:00:03,\
                 mod_dl_dst:02:00:00:00:00:09,dec_ttl,output:2"
            }
        }
    }

    /// What makes ovs-vsctl set up the export to `port` of this host.
    fn export(self, port: u16) -> Vec<String> {
        let target = format!("targets=\"127.0.0.1:{port}\"");
        let sampling = format!("sampling={SAMPLING}");
        let of = |more: &[&str]| more.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let mut arguments = match self.export {
            None => return Vec::new(),
            Some(Export::Sflow) => {
                of(&["--", "--id=@e", "create", "sFlow", "agent=lo", "polling=0"])
            }
            Some(Export::Ipfix) => of(&["--", "--id=@e", "create", "IPFIX"]),
        };
        arguments.extend([target, sampling]);
        let column = if self.export == Some(Export::Sflow) { "sflow=@e" } else { "ipfix=@e" };
        arguments.extend(of(&["--", "set", "Bridge", BRIDGE, column]));
        arguments
    }
}

const BRIDGE: &str = "br0";

/// Where a daemon gets its packets from and what it runs on.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    /// A directory for its files.
    pub directory: &'a Path,
    /// DPDK's arguments but for CPUs and ports.
    pub eal: String,
    /// The CPU that it polls on.
    pub polling_cpu: usize,
    /// The CPU of its other threads.
    pub other_cpu: usize,
    /// Device arguments of the port that packets come from, and of that they go to.
    pub ports: [String; 2],
}

/// A daemon's surroundings: its database and the collector of its samples.
#[derive(Debug)]
pub(super) struct Running {
    which: Ovs,
    directory: PathBuf,
    database: Process,
    collector: UdpSocket,
}

impl Running {
    /// Starts the database and the daemon, and sets up ports, flows and export.
    pub(super) fn start(which: Ovs, place: &Place<'_>) -> Result<(Self, Process)> {
        let directory = place.directory.to_owned();
        let collector = UdpSocket::bind("127.0.0.1:0").context("a collector of samples")?;
        collector.set_nonblocking(true)?;
        let file = |name: &str| directory.join(name);
        let _ = std::fs::remove_file(file("conf.db"));
        let mut create = Command::new("ovsdb-tool");
        create.arg("create").arg(file("conf.db")).arg(SCHEMA);
        Process::start("ovsdb-tool", create, &directory)?.finish(LIMIT)?;

        let mut server = Command::new("ovsdb-server");
        server.arg(file("conf.db"));
        server.arg(format!("--remote=punix:{}", file("db.sock").display()));
        server.arg(format!("--unixctl={}", file("db.ctl").display()));
        let mut database = Process::start("ovsdb-server", in_(&directory, server), &directory)?;
        wait_until("ovsdb-server to listen", LIMIT, || {
            database.check_running()?;
            Ok(file("db.sock").exists())
        })?;
        let running = Self { which, directory, database, collector };
        running.configure(&["--no-wait", "init"])?;
        running.configure(&[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            "other_config:dpdk-init=true",
            &format!("other_config:pmd-cpu-mask={:x}", 1 << place.polling_cpu),
            &format!("other_config:dpdk-lcore-mask={:x}", 1 << place.other_cpu),
            // Or Open vSwitch adds --in-memory, which goes together with hugepages only.
            &format!("other_config:dpdk-extra=\"{} --legacy-mem\"", place.eal),
        ])?;
        let mut daemon = Command::new(DAEMON);
        daemon.arg(format!("unix:{}", running.file("db.sock").display()));
        daemon.arg(format!("--unixctl={}", running.file("vs.ctl").display()));
        let directory = &running.directory;
        let daemon = Process::start("switch", in_(directory, daemon), directory)?;
        let [from, to] = &place.ports;
        running.configure(&[
            "add-br",
            BRIDGE,
            "--",
            "set",
            "Bridge",
            BRIDGE,
            "datapath_type=netdev",
            "fail-mode=secure",
        ])?;
        running.add_port("in", 1, from)?;
        running.add_port("out", 2, to)?;
        running.openflow(&["add-flow", &running.bridge(), which.flow()])?;
        let export = which.export(running.collector.local_addr()?.port());
        if let Some((_, words)) = export.split_first() {
            running.configure(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok((running, daemon))
    }

    /// Checks that it did what its figure is named for, and lets it end.
    pub(super) fn stop(self, daemon: Process) -> Result<()> {
        let counted = self.openflow(&["--no-names", "dump-ports", &self.bridge()])?;
        let (received, sent) = (packets(&counted, 1, "rx"), packets(&counted, 2, "tx"));
        let (received, sent) = received.zip(sent).context("counts of Open vSwitch's ports")?;
        ensure!(
            received > 0 && sent * 100 > received * 95,
            "Open vSwitch sent only {sent} of {received} packets"
        );
        let mut datagram = [0; 2048];
        if self.which.export.is_some() {
            self.collector.recv(&mut datagram).context("Open vSwitch exported no sample")?;
        }
        let Self { directory, database, .. } = self;
        end(&directory, "vs.ctl", daemon)?;
        end(&directory, "db.ctl", database)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The bridge, as ovs-ofctl finds it.
    fn bridge(&self) -> String {
        format!("unix:{}", self.file(&format!("{BRIDGE}.mgmt")).display())
    }

    /// Runs ovs-vsctl, which waits until the daemon has done it.
    fn configure(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("ovs-vsctl");
        command.arg(format!("--db=unix:{}", self.file("db.sock").display()));
        command.arg(format!("--timeout={}", LIMIT.as_secs())).args(arguments);
        Process::start("ovs-vsctl", command, &self.directory)?.finish(LIMIT).map(drop)
    }

    fn add_port(&self, name: &str, number: u32, device: &str) -> Result<()> {
        self.configure(&[
            "add-port",
            BRIDGE,
            name,
            "--",
            "set",
            "Interface",
            name,
            "type=dpdk",
            &format!("ofport_request={number}"),
            &format!("options:dpdk-devargs=\"{device}\""),
        ])
    }

    fn openflow(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("ovs-ofctl");
        command.args(arguments);
        Process::start("ovs-ofctl", command, &self.directory)?.finish(LIMIT)
    }
}

/// Lets a daemon end that listens on the control socket `socket`.
fn end(directory: &Path, socket: &str, process: Process) -> Result<()> {
    let mut exit = Command::new("ovs-appctl");
    exit.arg("-t").arg(directory.join(socket)).arg("exit");
    Process::start("ovs-appctl", exit, directory)?.finish(LIMIT)?;
    process.finish(LIMIT).map(drop)
}

/// Lets a daemon keep its sockets in `directory`.
fn in_(directory: &Path, mut command: Command) -> Command {
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, directory);
    }
    command
}

/// Packets that a port has received or sent (`rx`, `tx`), from what `ovs-ofctl dump-ports` prints:
/// a line that begins with the port's number for what it received, and one for what it sent.
fn packets(printed: &str, port: u32, direction: &str) -> Option<u64> {
    let mut lines = printed.lines().map(str::trim);
    let first = lines.find_map(|line| {
        let (number, counts) = line.strip_prefix("port")?.split_once(':')?;
        (number.trim() == port.to_string()).then_some(counts.trim())
    })?;
    let line = if direction == "rx" { first } else { lines.next()? };
    let counts = line.strip_prefix(direction)?.trim().strip_prefix("pkts=")?;
    counts.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_port_and_direction() {
        let printed = "OFPST_PORT reply (xid=0x4): 3 ports\n\
            \x20 port LOCAL: rx pkts=7, bytes=0, drop=0, errs=0, frame=0, over=0, crc=0\n\
            \x20          tx pkts=8, bytes=0, drop=0, errs=0, coll=0\n\
            \x20 port  1: rx pkts=100, bytes=64, drop=?, errs=0, frame=?, over=?, crc=?\n\
            \x20          tx pkts=2, bytes=0, drop=0, errs=0, coll=?\n\
            \x20 port  2: rx pkts=0, bytes=0, drop=?, errs=0, frame=?, over=?, crc=?\n\
            \x20          tx pkts=99, bytes=64, drop=0, errs=0, coll=?\n";
        let of = |port, direction| packets(printed, port, direction);
        assert_eq!((of(1, "rx"), of(1, "tx"), of(2, "tx")), (Some(100), Some(2), Some(99)));
        assert_eq!(of(3, "rx"), None);
    }
}
