//! Ports on interfaces of the kernel, between real hosts: a switch that is root no longer than it
//! must be, and one of two lcores.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::common::{
    Edge, Folder, free_address, iperf3_server, listen, status_when, totals, welcome,
};
use calumma_chamelemon::Layout;
use calumma_chamelemon::frames::Message;
use calumma_epoch::{EpochClock, Guards};

/// Runs a command line to its end and gives what it printed.
fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// `net_af_packet` joins a fanout group whose number is made of process and interface: two switches
/// in one namespace may come to the same.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Two hosts in one network, each in a namespace of its own; the switch is to stand between them.
struct Hosts {
    _alone: MutexGuard<'static, ()>,
    /// Tells one test's names from another's.
    tag: String,
}

impl Hosts {
    fn new(number: u32) -> Self {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts = Self { _alone, tag: format!("{}{number}", std::process::id() % 100_000) };
        for host in [1, 2] {
            let (name, port) = (hosts.name(host), hosts.port(host));
            for line in [
                format!("ip netns add {name}"),
                format!("ip link add {port} type veth peer name eth0 netns {name}"),
                format!("ip link set {port} up"),
                format!("ip -n {name} address add 10.7.0.{host}/24 dev eth0"),
                format!("ip -n {name} link set eth0 up"),
            ] {
                run(&line);
            }
            let offloads = "tx off rx off sg off tso off gso off gro off";
            run(&format!("ethtool -K {port} {offloads}"));
            run(&format!("ip netns exec {name} ethtool -K eth0 {offloads}"));
        }
        hosts
    }

    fn name(&self, host: u32) -> String {
        format!("calumma-if-{}-h{host}", self.tag)
    }

    /// The switch's interface towards a host.
    fn port(&self, host: u32) -> String {
        format!("c{}p{host}", self.tag)
    }

    /// A command on a host.
    fn on(&self, host: u32, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(host), program]);
        command
    }

    /// EAL arguments that make both ports.
    fn devices(&self, more: &str) -> [String; 2] {
        [1, 2].map(|host| {
            let ring = "framesz=2048,framecnt=2048,blocksz=4096";
            format!("--vdev=net_af_packet{},iface={},{ring}{more}", host - 1, self.port(host))
        })
    }

    /// Whether both hosts hear each other.
    fn ping(&self) {
        let output = self.on(1, "ping").args(["-c5", "-i0.1", "-W2", "10.7.0.2"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("5 received"), "{said}");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in [1, 2] {
            // Its end of the wire goes with it.
            let _ = Command::new("ip").args(["netns", "delete", &self.name(host)]).status();
        }
    }
}

const EPOCH_NS: u64 = 200_000_000;

/// A controller that hears what the switch says; gives its address.
fn controller() -> (String, Receiver<Message>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
        let layout = Layout::default();
        listen(welcome(&listener, &layout, clock), &layout, &tell);
    });
    (address, heard)
}

/// Waits for an epoch in which packets entered.
fn wait_for_packets(heard: &Receiver<Message>) {
    loop {
        let message = heard.recv_timeout(Duration::from_secs(20)).expect("an epoch with packets");
        if let Message::Ingress(side) = message
            && side.packets_in > 0
        {
            return;
        }
    }
}

fn config(controller: &str, metrics: &str, more: &str) -> String {
    format!(
        "name = 'e1'\ncontroller = '{controller}'\n{more}\n[metrics]\nlisten = '{metrics}'\n\
         [polling]\nidle_sleep_us = 20\n\
         [[port]]\nname = 'net_af_packet0'\nrole = 'host'\npeer = 'net_af_packet1'\n\
         [[port]]\nname = 'net_af_packet1'\nrole = 'fabric'\npeer = 'net_af_packet0'\n"
    )
}

/// Hugepages that nobody has taken.
fn free_hugepages() -> u32 {
    let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Checks that every thread of a process belongs to `nobody`, and has no capability.
fn assert_unprivileged(id: u32) {
    let nobody = run("id -u nobody").trim().to_owned();
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{id}/task")).unwrap() {
        let status = match fs::read_to_string(thread.unwrap().path().join("status")) {
            Ok(status) => status,
            // It has ended since: no such file, or no such process.
            Err(error) if matches!(error.raw_os_error(), Some(2 | 3)) => continue,
            Err(error) => panic!("{error}"),
        };
        let field = |name: &str| -> Vec<&str> {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().skip(1).collect()
        };
        assert_eq!(field("Uid:"), [nobody.as_str(); 4], "{status}");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(field(set), ["0000000000000000"], "{set} of {status}");
        }
        threads += 1;
    }
    assert!(threads > 2, "the lcore, the control thread and DPDK's own: {threads}");
}

#[test]
#[ignore = "end to end: needs root, DPDK and ping; `cargo xtask test` runs it"]
fn a_switch_that_becomes_nobody_forwards_reloads_reports_and_stops_as_root_would() {
    let mut ways = vec![["--no-huge", "-m", "256"]];
    if free_hugepages() >= 128 {
        ways.push(["--in-memory", "-m", "128"]);
    }
    for (number, way) in (0..).zip(ways) {
        let hosts = Hosts::new(number);
        let folder = Folder::new("edge-nobody");
        fs::set_permissions(folder.file("."), fs::Permissions::from_mode(0o777)).unwrap();
        let ((address, heard), metrics) = (controller(), free_address());
        let user = "[process]\nuser = 'nobody'";
        let path = folder.write("edge.toml", config(&address, &metrics, user));
        let mut eal: Vec<String> = way.map(str::to_owned).into();
        eal.extend(["--no-pci", "--no-telemetry", "--lcores=0@0"].map(str::to_owned));
        eal.extend(hosts.devices(""));
        let stats = folder.file("stats.json");
        let mut edge = Edge::start(&["--config", &path, "--stats", &stats], &eal);
        assert_unprivileged(edge.id());

        hosts.ping();
        wait_for_packets(&heard);
        let drop = format!("{user}\n[policy]\nunmeasured = 'drop'");
        folder.write("edge.toml", config(&address, &metrics, &drop));
        edge.signal("HUP");
        edge.wait_for("the configuration was read again");
        // Nothing but ARP is dropped now, and the hosts know each other.
        hosts.ping();
        heard.try_iter().for_each(std::mem::drop);
        hosts.ping();
        wait_for_packets(&heard);
        assert_unprivileged(edge.id());

        edge.signal("TERM");
        let (ended, said) = edge.ended();
        assert!(ended.success(), "{said}");
        let owner = fs::metadata(&stats).unwrap().uid().to_string();
        assert_eq!(owner, run("id -u nobody").trim());
        let totals = totals(stats);
        let received = totals["received.host"] + totals["received.fabric"];
        let dropped = totals.iter().filter(|(name, _)| name.starts_with("dropped."));
        let dropped: u64 = dropped.map(|(_, packets)| packets).sum();
        assert_eq!((received, totals["mbufs.lost"]), (totals["transmitted"] + dropped, 0));
        // All but, perhaps, those of the first five that came before the first epoch.
        assert!(totals["ingress.recorded"] >= 10 && totals["egress.recorded"] >= 10, "{totals:?}");
    }
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn two_lcores_share_an_interface_whose_flows_the_kernel_spreads_over_two_queues() {
    let hosts = Hosts::new(9);
    let folder = Folder::new("edge-queues");
    let ((address, heard), metrics) = (controller(), free_address());
    let path = folder.write("edge.toml", config(&address, &metrics, ""));
    let quiet = ["--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--no-shconf"];
    let mut eal: Vec<String> = quiet.map(str::to_owned).into();
    eal.push("--lcores=0@0,1@1".to_owned());
    eal.extend(hosts.devices(",qpairs=2"));
    let stats = folder.file("stats.json");
    let edge = Edge::start(&["--config", &path, "--stats", &stats], &eal);
    hosts.ping();

    let mut server = iperf3_server(&hosts.name(2));
    let mut client = hosts.on(1, "iperf3");
    let output = client.args(["-J", "-P8", "-b2M", "-t2", "-c", "10.7.0.2"]).output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(said["end"]["sum_received"]["bytes"].as_u64() > Some(1_000_000), "{said}");
    server.wait().unwrap();
    wait_for_packets(&heard);

    // Each of them has seen flows of both directions, and both what the port has.
    let status = status_when(&metrics, |status| {
        let of = |name: &str| status.lcores.iter().map(|lcore| lcore[name]).collect::<Vec<_>>();
        [of("received.host"), of("received.fabric")].iter().flatten().all(|packets| *packets > 50)
    });
    let measured: u64 = status.lcores.iter().map(|lcore| lcore["ingress.recorded"]).sum();
    assert_eq!(measured, status.counters["ingress.recorded"]);
    edge.signal("TERM");
    let (ended, said) = edge.ended();
    assert!(ended.success(), "{said}");
    let totals = totals(stats);
    let received = totals["received.host"] + totals["received.fabric"];
    assert_eq!(received, totals["transmitted"] + totals["dropped.transmit_queue_full"]);
    assert_eq!(totals["mbufs.lost"], 0);
}
