//! A mixed fabric: a software edge on one side, a modelled Tofino with its control plane on the other,
//! a core that drops between them, traffic in both directions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use calumma_controller::report::EpochReport;
use calumma_testbed::demo::Comparison;
use calumma_testbed::fabric::{Edge, Pair, Process, Run, wait_until};
use calumma_testbed::traffic::Mix;

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");

/// The model hands a small group out within some hundred milliseconds, if it has a CPU.
const EPOCH: Duration = Duration::from_millis(1500);

const LIMIT: Duration = Duration::from_secs(40);

/// Two ends of a wire between the daemon and the switch's CPU port.
const CPU: [&str; 2] = ["cpu0", "cpu1"];

/// Sketches that a model can hand out in time.
const CONTROLLER: &str = r#"
    listen = "127.0.0.1:7600"
    edges = ["e1", "e2"]
    [layout]
    upstream_buckets = 1024
    downstream_buckets = 768
    classifier = [{ bits = 8, counters = 4096 }, { bits = 16, counters = 2048 }]
    [epoch]
    length_ms = 1500
    clock_guard_us = 10000
    flight_guard_us = 300000
    [tasks]
    heavy_hitter = 100
    [shifting]
    mode = "static"
"#;

const SOFTWARE: &str = r#"
    name = "e1"
    controller = "127.0.0.1:7600"
    [polling]
    idle_sleep_us = 50
    [[port]]
    name = "net_af_packet0"
    role = "host"
    peer = "net_af_packet1"
    [[port]]
    name = "net_af_packet1"
    role = "fabric"
    peer = "net_af_packet0"
"#;

const HARDWARE: &str = r#"
    name = "e2"
    controller = "127.0.0.1:7600"
    [driver]
    address = "127.0.0.1:50052"
    [collection]
    interface = "cpu0"
    retry_ms = 200
    [[port]]
    number = 1
    role = "host"
    peer = 2
    [[port]]
    number = 2
    role = "fabric"
    peer = 1
"#;

/// The network with its programs' files.
struct Place {
    run: Run,
    pair: Pair,
}

impl Place {
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.run.directory().join(name);
        fs::write(&path, text).expect("a file can be written");
        path
    }

    /// A program of this workspace, to be started where the switches are.
    fn command(&self, name: &str) -> Command {
        let program = Path::new(TESTBED).with_file_name(name);
        assert!(program.exists(), "{} is missing: cargo build -p it", program.display());
        self.pair.switches().command(program.to_str().expect("a path of text"))
    }

    fn start(&self, name: &str, command: Command) -> Process {
        Process::start(name, command, self.run.directory()).expect("it starts")
    }

    /// The P4 sources with the constants of the controller's layout; gives the top-level file.
    fn sources(&self, controller: &Path) -> PathBuf {
        let to = self.run.directory().join("p4src");
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4src");
        fs::create_dir(&to).expect("a folder can be made");
        for part in ["edge.p4", "include"] {
            let copied = Command::new("cp").arg("-r").arg(from.join(part)).arg(&to).status();
            assert!(copied.expect("cp runs").success());
        }
        let contract = fs::File::create(to.join("include/generated/contract.p4")).expect("a file");
        let mut generate = self.command("calumma-switchd");
        generate.arg("contract").arg("--controller").arg(controller);
        let generated = generate.stdout(contract).stderr(Stdio::null()).status();
        assert!(generated.expect("calumma-switchd runs").success());
        to.join("edge.p4")
    }
}

fn reports(path: &Path) -> Vec<EpochReport> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line may still be under way.
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).expect("a report"))
        .collect()
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn a_software_and_a_hardware_edge_name_exactly_what_the_core_dropped() {
    let run = Run::begin().expect("a run begins");
    let pair = Pair::create(&run, 20).expect("the network is built");
    let [near, far] = CPU;
    let ip = |args: &[&str]| pair.switches().run("ip", args).expect("ip does it");
    ip(&["link", "add", near, "type", "veth", "peer", "name", far]);
    for end in CPU {
        ip(&["link", "set", end, "txqueuelen", "10000", "up"]);
    }
    let place = Place { run, pair };

    let controller_toml = place.write("controller.toml", CONTROLLER);
    let epochs = place.run.directory().join("epochs.jsonl");
    let mut command = place.command("calumma-controller");
    command.arg("--config").arg(&controller_toml).arg("--out").arg(&epochs).arg("--quiet");
    let mut controller = place.start("controller", command);
    controller.wait_listening(7600, LIMIT).expect("the controller listens");

    let mut command = place.command("calumma-edge");
    command.arg("--config").arg(place.write("e1.toml", SOFTWARE)).arg("--");
    command.args(["--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "--lcores", "0@0"]);
    command.args(["--file-prefix", &format!("{}-e1", place.run.prefix())]);
    command.args(Edge::E1.devices());
    let mut software = place.start("e1", command);

    let mut command = place.command("calumma-tna");
    command.arg("--program").arg(place.sources(&controller_toml));
    for (number, interface) in [(1, Edge::E2.host_port()), (2, Edge::E2.fabric_port()), (64, far)] {
        command.arg("--port").arg(format!("{number}={interface}"));
    }
    let mut model = place.start("tna", command);
    model.wait_listening(50052, LIMIT).expect("the model's driver listens");
    let mut command = place.command("calumma-switchd");
    command.arg("--config").arg(place.write("e2.toml", HARDWARE));
    let mut hardware = place.start("e2", command);

    let mut wait_for = |what: &str, wanted: &dyn Fn(&EpochReport) -> bool| {
        let met = wait_until(what, LIMIT, || {
            for process in [&mut controller, &mut software, &mut model, &mut hardware] {
                process.check_running()?;
            }
            Ok(reports(&epochs).iter().any(wanted))
        });
        if let Err(problem) = met {
            let log = fs::read_to_string(place.run.directory().join("e2.err"));
            panic!("{problem:#}\ncalumma-switchd said: {}", log.unwrap_or_default());
        }
    };
    wait_for("a first complete epoch", &|report| report.complete);
    let mix = Mix { seconds: 5, tcp_mbit: 8, udp_mbit: 4, connections: 60, ipv6: false };
    mix.run(&place.pair, Path::new(TESTBED), place.run.directory()).expect("traffic passes");
    place.pair.wait_quiet(Duration::from_secs(1), LIMIT).expect("it ends");
    let quiet = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    let after_ns = (quiet + EPOCH).as_nanos() as u64;
    wait_for("an epoch after the last packet", &|report| report.start_unix_ns >= after_ns);

    let passage = place.pair.passage().expect("the kernel counts");
    // Interface counters may see an edge send more than it got; what was lost, flow by flow, decides.
    passage.complaints().iter().for_each(|complaint| eprintln!("{complaint}"));
    let losses = place.pair.losses().expect("the core counts");
    let all = reports(&epochs);
    let begin = all.iter().position(|report| report.complete).unwrap_or_default();
    let comparison = Comparison::new(&all[begin..], &losses);
    assert_eq!(comparison.differences(), 0, "{}", comparison.to_text());
    // Both ways: from the software edge to the hardware edge, and back.
    for source in ["10.1.0.2", "10.2.0.2"] {
        let from_here = losses.iter().filter(|loss| loss.flow.src.to_string() == source);
        assert!(from_here.count() > 0, "nothing from {source} was lost");
    }
}
