//! `hops` on real switches: two edges and a transit switch, each a process, and the controller.
//! Hosts and routers are Linux's. The routers drop packets and count each drop by its flow; what
//! the systems report must say the same. Nothing of ours has a part in what they are compared with.
//!
//! ```text
//! h1 ── e1 ── c1 ── s1 ── c2 ── e2 ── h2
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use calumma_analysis::{Flow, System, SystemReport};
use calumma_chamelemon_analysis::ChameleMon;
use calumma_chamelemon_analysis::report::EpochReport;
use calumma_edge::control::unix_ns;
use calumma_hops_analysis::{Found, Hops};
use calumma_testenv::{Namespace, run};

const EPOCH_MS: u64 = 200;

/// How long anything may take: the machine may be busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const DESTINATION: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 2, 0, 2)), 9000);

/// Source port of the first flow of those that are sent.
const FIRST_FLOW: u16 = 40_000;
const FLOWS: u16 = 8;

/// Packets by flow, which its source port tells.
type Counts = BTreeMap<u16, u64>;

/// The source port of one of the test's own flows.
fn sport(flow: &Flow) -> Option<u16> {
    (flow.proto == 17 && flow.dport == DESTINATION.port()).then_some(flow.sport)
}

fn add(to: &mut Counts, packets: impl IntoIterator<Item = (u16, u64)>) {
    packets.into_iter().for_each(|(flow, n)| *to.entry(flow).or_default() += n);
}

/// What of `all` is not in `some`, flows of which nothing is left out.
fn minus(all: &Counts, some: &Counts) -> Counts {
    let of = |flow| some.get(flow).copied().unwrap_or_default();
    all.iter().map(|(flow, n)| (*flow, n - of(flow))).filter(|(_, n)| *n > 0).collect()
}

fn plus(some: &Counts, more: &Counts) -> Counts {
    let mut sum = some.clone();
    add(&mut sum, more.clone());
    sum
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// One of the product's programs; it ends when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Network {
    places: BTreeMap<&'static str, Namespace>,
    folder: PathBuf,
}

impl Drop for Network {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["controller", "e1", "s1", "e2"] {
                let log = fs::read_to_string(self.file(&format!("{name}.log")));
                eprintln!("--- {name}\n{}", log.unwrap_or_default());
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Network {
    /// Hosts, routers and the wires between all; `m` has the controller, wired to each switch.
    fn lay_out() -> Self {
        let folder = std::env::temp_dir().join(format!("calumma-hops-live-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let place = |name| (name, Namespace::new("hops", name));
        let places = ["h1", "e1", "c1", "s1", "c2", "e2", "h2", "m"].into_iter().map(place);
        let network = Self { places: places.collect(), folder };
        for (a, a_end, b, b_end) in [
            ("h1", "eth0", "e1", "h0"),
            ("e1", "f0", "c1", "west"),
            ("c1", "east", "s1", "f0"),
            ("s1", "f1", "c2", "west"),
            ("c2", "east", "e2", "f0"),
            ("e2", "h0", "h2", "eth0"),
        ] {
            network.at(a).wire(a_end, network.at(b), b_end);
        }
        for (n, switch) in ["e1", "s1", "e2"].into_iter().enumerate() {
            let (m, there) = (network.at("m"), network.at(switch));
            m.wire(switch, there, "m0");
            m.script(&format!("ip address add 10.99.{n}.1/30 dev {switch}"));
            there.script(&format!(
                "sysctl -qw net.ipv4.ip_forward=0
                 ip address add 10.99.{n}.2/30 dev m0"
            ));
        }
        for (host, n) in [("h1", 1), ("h2", 2)] {
            network.at(host).script(&format!(
                "ip address add 10.{n}.0.2/24 dev eth0
                 ip route add default via 10.{n}.0.1"
            ));
        }
        for (router, west, east, nth) in [("c1", 1, 2, 23), ("c2", 3, 4, 31)] {
            network.at(router).script(&format!(
                "sysctl -qw net.ipv4.ip_forward=1
                 ip address add 10.9.{west}.2/30 dev west
                 ip address add 10.9.{east}.2/30 dev east
                 ip route add 10.1.0.0/16 via 10.9.{west}.1
                 ip route add 10.2.0.0/16 via 10.9.{east}.1"
            ));
            // A packet is dropped only after it was counted.
            let rules = network.write(
                &format!("{router}.nft"),
                &format!(
                    "table ip core {{
                       set dropped {{ typeof udp sport; size 1024; flags dynamic; }}
                       chain forward {{
                         type filter hook forward priority 0;
                         udp dport {} numgen inc mod {nth} == 0 \
                           add @dropped {{ udp sport counter }} drop
                       }}
                     }}",
                    DESTINATION.port()
                ),
            );
            network.at(router).script(&format!("nft -f {}", rules.display()));
        }
        // The example is the product's programs, by the names of these links.
        let tests = std::env::current_exe().unwrap();
        let example = tests.ancestors().nth(2).unwrap().join("examples/hops");
        assert!(example.exists(), "`cargo build --workspace --example hops` builds {example:?}");
        for program in ["calumma-edge", "calumma-controller"] {
            symlink(&example, network.file(program)).unwrap();
        }
        network
    }

    fn at(&self, name: &str) -> &Namespace {
        &self.places[name]
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.file(name), text).unwrap();
        self.file(name)
    }

    /// Starts a program in a namespace, ahead of whatever else the machine does.
    fn start(&self, place: &str, program: &str, name: &str, arguments: &[&str]) -> Process {
        let log = File::create(self.file(&format!("{name}.log"))).unwrap();
        let mut command = self.at(place).command("nice");
        command.args(["-n", "-19"]).arg(self.file(program)).args(arguments);
        Process(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }

    /// Starts the `n`th switch with ports by interface, role and address, and routes by where they
    /// lead and the router there.
    fn start_switch(
        &self,
        (n, name, role): (usize, &str, &str),
        ports: [(&str, &str, &str); 2],
        routes: &[(&str, &str)],
    ) -> Process {
        let mut config = format!(
            "name = '{name}'\nrole = '{role}'\ncontroller = '10.99.{n}.1:7600'\n\
             [polling]\nidle_sleep_us = 50\nidle_polls = 10\n[forwarding]\nmode = 'routed'\n"
        );
        let cpus = std::thread::available_parallelism().unwrap();
        let mut eal: Vec<String> =
            ["--no-huge", "-m", "512", "--no-pci", "--no-shconf", "--no-telemetry"]
                .map(str::to_owned)
                .to_vec();
        eal.push(format!("--lcores=0@{}", n % cpus));
        for (at, (interface, role, address)) in ports.into_iter().enumerate() {
            let port = format!("net_af_packet{at}");
            eal.push(format!(
                "--vdev={port},iface={interface},framesz=2048,framecnt=2048,blocksz=4096"
            ));
            config += &format!(
                "[[port]]\nname = '{port}'\nrole = '{role}'\n\
                 [[forwarding.interface]]\nport = '{port}'\naddresses = ['{address}']\n"
            );
        }
        for (to, via) in routes {
            config += &format!("[[forwarding.route]]\nto = '{to}'\nvia = ['{via}']\n");
        }
        let config = self.write(&format!("{name}.toml"), &config);
        let mut arguments = vec!["--config", config.to_str().unwrap(), "--"];
        arguments.extend(eal.iter().map(String::as_str));
        let process = self.start(name, "calumma-edge", name, &arguments);
        wait_until("a switch to forward", || {
            let log = fs::read_to_string(self.file(&format!("{name}.log")));
            log.is_ok_and(|log| log.contains("forwarding"))
        });
        process
    }

    fn start_switches(&self) -> [Process; 3] {
        [
            self.start_switch(
                (0, "e1", "edge"),
                [("h0", "host", "10.1.0.1/24"), ("f0", "fabric", "10.9.1.1/30")],
                &[("10.2.0.0/16", "10.9.1.2")],
            ),
            self.start_switch(
                (1, "s1", "transit"),
                [("f0", "fabric", "10.9.2.1/30"), ("f1", "fabric", "10.9.3.1/30")],
                &[("10.1.0.0/16", "10.9.2.2"), ("10.2.0.0/16", "10.9.3.2")],
            ),
            self.start_switch(
                (2, "e2", "edge"),
                [("h0", "host", "10.2.0.1/24"), ("f0", "fabric", "10.9.4.1/30")],
                &[("10.1.0.0/16", "10.9.4.2")],
            ),
        ]
    }

    /// Writes the controller's file: these systems run.
    fn choose(&self, systems: &str) -> PathBuf {
        let folder = self.folder.display();
        let text = format!(
            "listen = '0.0.0.0:7600'\nedges = ['e1', 'e2']\ntransits = ['s1']\n\
             systems = [{systems}]\nstate_dir = '{folder}/state'\ngrace_ms = 5000\n\
             [epoch]\nlength_ms = {EPOCH_MS}\nflight_guard_us = 120000\n[hops]\nflows = 100\n"
        );
        self.write("controller.toml", &text)
    }

    fn start_controller(&self, systems: &str) -> Process {
        let config = self.choose(systems);
        let (config, out) = (config.to_str().unwrap(), self.file("epochs.jsonl"));
        let arguments = ["--config", config, "--out", out.to_str().unwrap(), "--quiet"];
        self.start("m", "calumma-controller", "controller", &arguments)
    }

    /// What the controller has reported so far.
    fn reports(&self) -> Reports {
        Reports::read(&self.file("epochs.jsonl"))
    }

    /// Packets that a router has dropped so far, as nftables says.
    fn dropped(&self, router: &str) -> Counts {
        let said = self.at(router).run("nft -j list set ip core dropped");
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let set = said["nftables"].as_array().unwrap().iter().find_map(|item| item.get("set"));
        let elements = set.unwrap()["elem"].as_array().into_iter().flatten();
        let count = |element: &serde_json::Value| {
            let element = &element["elem"];
            let flow = element["val"].as_u64().unwrap().try_into().unwrap();
            (flow, element["counter"]["packets"].as_u64().unwrap())
        };
        elements.map(count).collect()
    }

    /// Waits until both systems have reported all that was sent until now.
    fn wait_for_reports(&self) -> Reports {
        let last = unix_ns() / (EPOCH_MS * 1_000_000) + 1;
        wait_until("the reports of the last packets", || {
            let Reports { chamelemon, hops } = self.reports();
            chamelemon.last().is_some_and(|report| report.epoch > last)
                && hops.last().is_some_and(|report| report.head.epoch > last)
        });
        self.reports()
    }
}

/// All reports, in the order of epochs.
struct Reports {
    chamelemon: Vec<EpochReport>,
    hops: Vec<SystemReport<Found>>,
}

impl Reports {
    fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        let mut reports = Self { chamelemon: Vec::new(), hops: Vec::new() };
        // The last line may be on its way.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            if let Some(report) = Hops.read(line) {
                reports.hops.push(report.as_type::<SystemReport<Found>>().unwrap().clone());
            } else {
                let report = ChameleMon.read(line).unwrap();
                reports.chamelemon.push(report.as_type::<EpochReport>().unwrap().clone());
            }
        }
        reports
    }

    /// Epochs of which all nodes delivered all that `hops` counted there.
    fn complete_hops(&self) -> impl Iterator<Item = &SystemReport<Found>> {
        self.hops.iter().filter(|report| report.complete)
    }

    /// Packets that `hops` counted at a node's side.
    fn counted(&self, node: &str, side: &str) -> Counts {
        let mut counted = Counts::new();
        for report in &self.hops {
            add(&mut counted, at(report, node, side));
        }
        counted
    }

    /// Packets that ChameleMon reports as lost.
    fn lost(&self) -> Counts {
        let mut lost = Counts::new();
        for report in &self.chamelemon {
            add(&mut lost, losses(report));
        }
        lost
    }

    /// What is to be said of epochs since `first` where counts differ: a switch that the machine
    /// did not let run for longer than the guards misses packets, and reports say so.
    fn incomplete(&self, first: u64) -> String {
        let chamelemon = self.chamelemon.iter().map(|report| {
            ("chamelemon", report.epoch, report.losses_are_exact(), &report.incomplete_because)
        });
        let hops = self
            .hops
            .iter()
            .map(|report| ("hops", report.head.epoch, report.complete, &report.incomplete_because));
        chamelemon
            .chain(hops)
            .filter(|(_, epoch, complete, _)| !complete && *epoch >= first)
            .map(|(system, epoch, _, why)| {
                format!("{system} lacks some of epoch {epoch}: {why:?}\n")
            })
            .collect()
    }
}

/// The test's flows in a report, by a node and its side.
fn at(report: &SystemReport<Found>, node: &str, side: &str) -> Counts {
    let counts = report.findings.counts.iter();
    let there = counts.filter(|count| (&*count.node, &*count.side) == (node, side));
    there.filter_map(|count| Some((sport(&count.flow)?, count.packets))).collect()
}

/// The test's flows that lost packets.
fn losses(report: &EpochReport) -> Counts {
    report.loss.iter().filter_map(|loss| Some((sport(&loss.flow)?, loss.lost))).collect()
}

/// Traffic from h1 to h2, whose packets each side counts for itself.
struct Traffic {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Counts>,
}

impl Traffic {
    fn start(network: &Network) -> Self {
        let socket = |n| {
            let socket = network.at("h1").udp_socket((SOURCE, FIRST_FLOW + n).into());
            socket.connect(DESTINATION).unwrap();
            socket
        };
        let sockets: Vec<UdpSocket> = (0..FLOWS).map(socket).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let ends = stop.clone();
        let sender = std::thread::spawn(move || {
            let mut sent = Counts::new();
            while !ends.load(Ordering::Relaxed) {
                for (flow, socket) in (FIRST_FLOW..).zip(&sockets) {
                    // Each flow has a rate of its own.
                    for _ in FIRST_FLOW..=flow {
                        socket.send(&[0; 100]).unwrap();
                        add(&mut sent, [(flow, 1)]);
                    }
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            sent
        });
        Self { stop, sender }
    }

    /// Stops it, and gives what was sent.
    fn stop(self) -> Counts {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().unwrap()
    }
}

/// Counts in h2 what arrives, for as long as the test runs.
fn receive(network: &Network) -> Arc<Mutex<Counts>> {
    let socket = network.at("h2").udp_socket(DESTINATION);
    let arrived = Arc::new(Mutex::new(Counts::new()));
    let counts = arrived.clone();
    std::thread::spawn(move || {
        let mut packet = [0; 2048];
        while let Ok((_, from)) = socket.recv_from(&mut packet) {
            add(&mut counts.lock().unwrap(), [(from.port(), 1)]);
        }
    });
    arrived
}

#[test]
#[ignore = "end to end: needs root, DPDK and nftables; `cargo xtask test` runs it"]
fn a_transit_switch_tells_on_which_side_of_it_real_routers_lost_packets() {
    let network = Network::lay_out();
    let controller = network.start_controller("'chamelemon', 'hops'");
    let _switches = network.start_switches();
    wait_until("the first answer", || {
        let mut ping = network.at("h1").command("ping");
        let said = ping.args(["-c1", "-W1", "10.2.0.2"]).output().unwrap();
        said.status.success()
    });
    wait_until("both systems to measure", || {
        let reports = network.reports();
        reports.complete_hops().next().is_some() && reports.chamelemon.iter().any(|of| of.complete)
    });
    let first = unix_ns() / (EPOCH_MS * 1_000_000);
    let arrived = receive(&network);

    // What is lost before the transit switch and what behind it.
    let traffic = Traffic::start(&network);
    let enough = first + 10;
    wait_until("some epochs with packets", || {
        network.reports().complete_hops().any(|of| of.head.epoch >= enough)
    });
    let mut sent = traffic.stop();
    let reports = network.wait_for_reports();
    let (before, behind) = (network.dropped("c1"), network.dropped("c2"));
    let incomplete = reports.incomplete(first);
    let [entered, passed, left] = [("e1", "ingress"), ("s1", "transit"), ("e2", "egress")]
        .map(|(n, s)| reports.counted(n, s));
    assert_eq!(entered, sent, "{incomplete}");
    assert_eq!(minus(&entered, &passed), before, "dropped by c1; {incomplete}");
    assert_eq!(minus(&passed, &left), behind, "dropped by c2; {incomplete}");
    assert_eq!(reports.lost(), plus(&before, &behind), "dropped by both; {incomplete}");
    assert!(before.len() >= 4 && behind.len() >= 4, "{before:?} {behind:?}");

    // It is switched off and on again while packets flow.
    let reload = |systems: &str| {
        network.choose(systems);
        run(&format!("kill -HUP {}", controller.0.id()));
    };
    let traffic = Traffic::start(&network);
    reload("'chamelemon'");
    wait_until("hops to end", || {
        let Reports { chamelemon, hops } = network.reports();
        chamelemon.last().unwrap().epoch >= hops.last().unwrap().head.epoch + 10
    });
    let ended = network.reports().hops.last().unwrap().head.epoch;
    reload("'chamelemon', 'hops'");
    wait_until("hops to be back", || {
        network.reports().complete_hops().filter(|of| of.head.epoch > ended).count() >= 5
    });
    add(&mut sent, traffic.stop());
    let reports = network.wait_for_reports();
    let incomplete = reports.incomplete(first);
    let again = reports.hops.iter().map(|of| of.head.epoch).find(|epoch| *epoch > ended);
    assert!(again > Some(ended + 10), "it was off from {ended} to {again:?}");

    // No switch lost a packet for it, and ChameleMon missed none.
    let dropped = plus(&network.dropped("c1"), &network.dropped("c2"));
    let expected = minus(&sent, &dropped);
    wait_until("the last packets", || {
        arrived.lock().unwrap().values().sum::<u64>() >= expected.values().sum()
    });
    assert_eq!(*arrived.lock().unwrap(), expected);
    let measured: Vec<&EpochReport> =
        reports.chamelemon.iter().filter(|report| report.epoch >= first).collect();
    assert!(measured.windows(2).all(|pair| pair[1].epoch == pair[0].epoch + 1));
    assert!(measured.iter().all(|report| report.losses_are_exact()), "{incomplete}");
    assert_eq!(reports.lost(), dropped, "{incomplete}");

    // And where both measured, both saw the same.
    let mut epochs = 0;
    for report in reports.complete_hops().filter(|of| of.head.epoch >= first) {
        let epoch = report.head.epoch;
        let missing = minus(&at(report, "e1", "ingress"), &at(report, "e2", "egress"));
        let other = measured.iter().find(|of| of.epoch == epoch).unwrap();
        assert_eq!(missing, losses(other), "epoch {epoch}");
        epochs += u64::from(epoch > ended && !missing.is_empty());
    }
    assert!(epochs >= 3, "{epochs} epochs with losses after it was back");
}
