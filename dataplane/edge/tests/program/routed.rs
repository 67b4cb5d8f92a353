//! Routed edges between real hosts: Linux's own ARP, neighbour discovery, ping, TCP and routers are
//! the peers.
//!
//! ```text
//!        ┌─ f0 ── c1 ── f0 ─┐
//! h1 ── e1                 e2 ── h2
//!        └─ f1 ── c2 ── f1 ─┘
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use calumma_testenv::{Namespace, run};

use crate::common::{iperf3_server, wait_until};

/// Everything that stands in a namespace of its own.
const PLACES: [&str; 6] = ["h1", "e1", "c1", "c2", "e2", "h2"];

struct Network {
    places: BTreeMap<&'static str, Namespace>,
    folder: PathBuf,
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Network {
    fn lay_out() -> Self {
        let folder = std::env::temp_dir().join(format!("calumma-l3-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let place = |name| (name, Namespace::new("l3", name));
        let network = Self { places: PLACES.into_iter().map(place).collect(), folder };
        for name in ["h1", "h2", "c1", "c2"] {
            network.at(name).script(
                "sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0
                 sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0",
            );
        }
        for ((a, a_end), (b, b_end)) in [
            (("h1", "eth0"), ("e1", "h0")),
            (("e1", "f0"), ("c1", "west")),
            (("e1", "f1"), ("c2", "west")),
            (("c1", "east"), ("e2", "f0")),
            (("c2", "east"), ("e2", "f1")),
            (("e2", "h0"), ("h2", "eth0")),
        ] {
            network.at(a).wire(a_end, network.at(b), b_end);
        }
        for (host, n) in [("h1", 1), ("h2", 2)] {
            network.at(host).script(&format!(
                "ip address add 10.{n}.0.2/24 dev eth0
                     ip -6 address add fd00:{n}::2/64 dev eth0 nodad
                     ip route add default via 10.{n}.0.1
                     ip -6 route add default via fd00:{n}::1"
            ));
        }
        for core in ["c1", "c2"] {
            let n = &core[1..];
            let core = network.at(core);
            core.script(&format!(
                "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
                     ip address add 10.9.{n}1.2/30 dev west
                     ip address add 10.9.{n}2.2/30 dev east
                     ip -6 address add fd00:9:{n}1::2/64 dev west nodad
                     ip -6 address add fd00:9:{n}2::2/64 dev east nodad
                     ip route add 10.1.0.0/16 via 10.9.{n}1.1
                     ip route add 10.2.0.0/16 via 10.9.{n}2.1
                     ip -6 route add fd00:1::/32 via fd00:9:{n}1::1
                     ip -6 route add fd00:2::/32 via fd00:9:{n}2::1"
            ));
        }
        network
    }

    fn at(&self, name: &str) -> &Namespace {
        &self.places[name]
    }

    /// The configuration of edge `n`, whose hosts are in 10.n.0.0/16.
    fn config(&self, n: u8) -> String {
        let other = 3 - n;
        let ports = [
            ("net_af_packet0", "host"),
            ("net_af_packet1", "fabric"),
            ("net_af_packet2", "fabric"),
        ]
        .map(|(name, role)| format!("[[port]]\nname = '{name}'\nrole = '{role}'\n"))
        .concat();
        format!(
            "name = 'e{n}'\ncontroller = '127.0.0.1:9'\n{ports}
             [polling]\nidle_sleep_us = 20
             [forwarding]\nmode = 'routed'
             [[forwarding.interface]]\nport = 'net_af_packet0'
             addresses = ['10.{n}.0.1/24', 'fd00:{n}::1/64']
             [[forwarding.interface]]\nport = 'net_af_packet1'
             addresses = ['10.9.1{n}.1/30', 'fd00:9:1{n}::1/64']
             [[forwarding.interface]]\nport = 'net_af_packet2'\nmtu = 1400
             addresses = ['10.9.2{n}.1/30', 'fd00:9:2{n}::1/64']
             [[forwarding.route]]\nto = '10.{other}.0.0/16'
             via = ['10.9.1{n}.2', '10.9.2{n}.2']
             [[forwarding.route]]\nto = 'fd00:{other}::/32'
             via = ['fd00:9:1{n}::2', 'fd00:9:2{n}::2']\n"
        )
    }

    fn start_edge(&self, n: u8) -> Edge<'_> {
        let file = |name: &str| self.folder.join(format!("e{n}.{name}"));
        fs::write(file("toml"), self.config(n)).unwrap();
        let log = File::create(file("log")).unwrap();
        let mut command = self.at(&format!("e{n}")).command(env!("CARGO_BIN_EXE_calumma-edge"));
        command.arg("--config").arg(file("toml")).arg("--stats").arg(file("json")).arg("--");
        command.args(["--no-huge", "-m", "512", "--no-pci", "--no-shconf", "--no-telemetry"]);
        command.arg(format!("--lcores=0@{}", n - 1));
        for (at, interface) in ["h0", "f0", "f1"].into_iter().enumerate() {
            let device = format!("net_af_packet{at},iface={interface}");
            command.arg(format!("--vdev={device},framesz=2048,framecnt=2048,blocksz=4096"));
        }
        let process = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let edge = Edge { process, network: self, n };
        wait_until("the edge to forward", || edge.log().contains("forwarding"));
        edge
    }

    /// Pings and gives what ping says, whether or not there was an answer.
    fn ping(&self, from: &str, arguments: &[&str]) -> String {
        let output = self.at(from).command("ping").args(arguments).output().expect("ping runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// iperf3 from h1 to h2 over 16 connections; `meanwhile` is done after a second of it. Gives
    /// what the client says.
    fn transfer(&self, to: &str, seconds: &str, meanwhile: impl FnOnce()) -> serde_json::Value {
        let mut server = iperf3_server(self.at("h2").name());
        let mut client: Command = self.at("h1").command("iperf3");
        client.args(["-J", "-P16", "-b5M", "-t", seconds, "-c", to]).stdout(Stdio::piped());
        let client = client.spawn().expect("iperf3 runs");
        std::thread::sleep(Duration::from_secs(1));
        meanwhile();
        let output = client.wait_with_output().unwrap();
        server.wait().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Packets that a core router has forwarded so far.
    fn forwarded(&self, core: &str) -> u64 {
        let file = "/sys/class/net/east/statistics/tx_packets";
        self.at(core).run(&format!("cat {file}")).trim().parse().unwrap()
    }
}

struct Edge<'a> {
    process: Child,
    network: &'a Network,
    n: u8,
}

impl Edge<'_> {
    fn file(&self, name: &str) -> String {
        let path = self.network.folder.join(format!("e{}.{name}", self.n));
        fs::read_to_string(path).unwrap_or_default()
    }

    fn log(&self) -> String {
        self.file("log")
    }

    /// Stops it as an operator does; gives its totals.
    fn stop(mut self) -> BTreeMap<String, u64> {
        run(&format!("kill -TERM {}", self.process.id()));
        let end = Instant::now() + Duration::from_secs(10);
        while self.process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "it stops: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        serde_json::from_str(&self.file("json")).unwrap_or_else(|_| panic!("{}", self.log()))
    }
}

impl Drop for Edge<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

#[test]
#[ignore = "end to end: needs root, DPDK, iperf3 and ping; `cargo xtask test` runs it"]
fn linux_hosts_reach_each_other_over_two_routed_edges_and_a_fabric_of_two_paths() {
    let network = Network::lay_out();
    let (e1, e2) = (network.start_edge(1), network.start_edge(2));
    // The edges have asked for their next hops by then.
    wait_until("the first answer", || {
        network.ping("h1", &["-c1", "-W1", "10.2.0.2"]).contains("1 received")
    });

    let all_answered = |arguments: &[&str]| {
        let said = network.ping("h1", &[&["-c5", "-i0.1", "-W2"], arguments].concat());
        assert!(said.contains("5 received"), "{arguments:?}: {said}");
        said
    };
    assert!(all_answered(&["10.2.0.2"]).contains("ttl=61"), "three routers on the way");
    assert!(all_answered(&["fd00:2::2"]).contains("ttl=61"));
    for own in ["10.1.0.1", "10.2.0.1", "fd00:1::1", "fd00:2::1"] {
        all_answered(&[own]);
    }
    for (ttl, to, routers) in [
        ("1", "10.2.0.2", &["10.1.0.1"][..]),
        ("3", "10.2.0.2", &["10.9.12.1", "10.9.22.1"]),
        ("1", "fd00:2::2", &["fd00:1::1"]),
        ("3", "fd00:2::2", &["fd00:9:12::1", "fd00:9:22::1"]),
    ] {
        let said = network.ping("h1", &["-c1", "-W2", "-t", ttl, to]);
        let from = |router: &&str| said.contains(&format!("From {router} icmp_seq=1 Time"));
        assert!(routers.iter().any(from), "{ttl} to {to}: {said}");
    }
    let unreachable = network.ping("h1", &["-c1", "-W2", "192.0.2.1"]);
    assert!(
        unreachable.contains("From 10.1.0.1 icmp_seq=1 Destination Net Unreachable"),
        "{unreachable}"
    );
    let silent = network.ping("h1", &["-c1", "-W8", "10.2.0.77"]);
    assert!(silent.contains("Destination Host Unreachable"), "{silent}");

    // TCP finds the lower MTU of one of the paths by the errors that the edges send.
    let before = ["c1", "c2"].map(|core| network.forwarded(core));
    for address in ["10.2.0.2", "fd00:2::2"] {
        let said = network.transfer(address, "2", || {});
        let received = said["end"]["sum_received"]["bytes"].as_f64().unwrap_or_default();
        assert!(received > 1e6, "to {address}: {received} bytes; {said}");
    }
    for (core, before) in ["c1", "c2"].into_iter().zip(before) {
        let packets = network.forwarded(core) - before;
        assert!(packets > 500, "{core} carried {packets} packets of 32 connections");
    }

    // A path goes while connections run: all of them take the other one, until it is back.
    let set_path = |state: &str| {
        for edge in ["e1", "e2"] {
            network.at(edge).script(&format!("ip link set f0 {state}"));
        }
    };
    let said = network.transfer("10.2.0.2", "4", || set_path("down"));
    let last = said["intervals"].as_array().and_then(|all| all.last()).unwrap();
    for stream in last["streams"].as_array().unwrap() {
        assert!(stream["bytes"].as_u64() > Some(0), "a connection stands still: {said}");
    }
    let before = ["c1", "c2"].map(|core| network.forwarded(core));
    network.transfer("10.2.0.2", "2", || {});
    assert_eq!(network.forwarded("c1"), before[0]);
    assert!(network.forwarded("c2") > before[1] + 500);
    set_path("up");
    wait_until("the path to be taken again", || {
        network.transfer("10.2.0.2", "1", || {});
        network.forwarded("c1") > before[0] + 100
    });

    for totals in [e1.stop(), e2.stop()] {
        let sum = |prefix: &str| -> u64 {
            totals.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, n)| n).sum()
        };
        let came = sum("received.") + totals["slow_path.made"];
        let went = totals["transmitted"] + sum("dropped.") + totals["slow_path.taken"];
        assert_eq!(came, went, "{totals:#?}");
        assert_eq!(totals["mbufs.lost"], 0);
        assert!(totals["icmp_errors.sent"] > 0, "{totals:#?}");
    }
}
