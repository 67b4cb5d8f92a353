//! The switch as a program, from its start to its end: figures for whoever asks, a configuration
//! that changes while it runs, and a last epoch that is measured to its end.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::common::{EAL, Edge, Folder, get, listen, status_when, totals, welcome};
use calumma_chamelemon::Layout;
use calumma_chamelemon::frames::Message;
use calumma_edge::control::unix_ns;
use calumma_edge::status::Status;
use calumma_epoch::{EpochClock, Guards};
use serde_json::Value;

const EPOCH_NS: u64 = 400_000_000;

/// A config whose ports are `net_null`: the host's side sends packets without end, none of them IP.
fn config(controller: &str, metrics: &str, more: &str) -> String {
    format!(
        "name = 'e1'\ncontroller = '{controller}'\n{more}\n[metrics]\nlisten = '{metrics}'\n\
         [[port]]\nname = 'net_null0'\nrole = 'host'\npeer = 'net_null1'\n\
         [[port]]\nname = 'net_null1'\nrole = 'fabric'\npeer = 'net_null0'\n"
    )
}

/// What `calumma-edge top --json` shows.
fn top(address: &str) -> Value {
    let options = ["top", "--address", address, "--json", "--times", "1", "--every", "0.6"];
    let top = Command::new(env!("CARGO_BIN_EXE_calumma-edge")).args(options).output().unwrap();
    assert!(top.status.success(), "{top:?}");
    serde_json::from_slice(&top.stdout).unwrap()
}

/// What DPDK's own tool shows of a command.
fn telemetry(prefix: &str, command: &str) -> Value {
    let mut tool = Command::new("dpdk-telemetry.py")
        .args(["-f", prefix])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("dpdk-telemetry.py is in Debian's package dpdk-dev");
    writeln!(tool.stdin.take().unwrap(), "{command}").unwrap();
    let said = String::from_utf8(tool.wait_with_output().unwrap().stdout).unwrap();
    let key = format!("\"{}\":", command.split(',').next().unwrap());
    let json = said.find(&key).map(|at| format!("{{{}", &said[at..]));
    let json = json.unwrap_or_else(|| panic!("{command}: {said}"));
    let answer: Value =
        serde_json::Deserializer::from_str(&json).into_iter().next().unwrap().unwrap();
    answer[command.split(',').next().unwrap()].clone()
}

fn epoch_of(message: &Message) -> Option<u64> {
    match message {
        Message::Ingress(ingress) => Some(ingress.epoch),
        Message::Egress(egress) => Some(egress.epoch),
        Message::Sealed { epoch, .. } => Some(*epoch),
        _ => None,
    }
}

#[test]
fn a_switch_shows_its_figures_changes_while_it_runs_and_leaves_after_its_last_epoch() {
    let folder = Folder::new("edge-operation");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        let layout = Layout::default();
        listen(welcome(&listener, &layout, clock), &layout, &tell);
    });
    let path = folder.write("edge.toml", config(&address, &metrics, ""));
    let prefix = format!("calumma-operation-{}", std::process::id());
    let mut eal: Vec<String> = EAL.map(str::to_owned).into();
    // With files of its own, among them the telemetry socket.
    eal.retain(|word| word != "--no-shconf");
    eal.push(format!("--file-prefix={prefix}"));
    eal.extend(
        ["--lcores=0@0,1@0", "--vdev=net_null0", "--vdev=net_null1,no-rx=1"].map(str::to_owned),
    );
    let stats = folder.file("stats.json");
    let mut edge = Edge::start(&["--config", &path, "--stats", &stats], &eal);

    // Measured and shown.
    let measured = |status: &Status| Some(status.systems.get("chamelemon")?.epochs.len());
    let status = status_when(&metrics, |status| measured(status) >= Some(2));
    assert_eq!((status.edge.as_str(), status.lcores.len()), ("e1", 2));
    assert!(status.controller.connected && status.epoch_ms == Some(EPOCH_NS / 1_000_000));
    let received: u64 = status.lcores.iter().map(|lcore| lcore["received.host"]).sum();
    assert!(received > 0 && received == status.counters["received.host"]);
    assert_eq!(status.counters["dropped.unmeasured"], 0);
    let text = get(&metrics, "/metrics");
    for metric in [
        "calumma_edge_received_packets_total{kind=\"host\"} ",
        "calumma_edge_cycles_total{lcore=\"1\",stage=\"work\"} ",
        "calumma_edge_port_total{kind=\"rx_packets\",port=\"net_null0\"} ",
        "calumma_edge_controller_connected 1",
    ] {
        assert!(text.lines().any(|line| line.starts_with(metric)), "{metric} in\n{text}");
    }

    let activity = top(&metrics);
    assert_eq!(activity["edge"], "e1");
    assert!(activity["lcores"][1]["cycles"]["work"].as_f64().unwrap() > 0.0, "{activity}");
    let counters = telemetry(&prefix, "/calumma/counters");
    assert!(counters["received/host"].as_u64().unwrap() >= received, "{counters}");
    let epochs = telemetry(&prefix, "/calumma/epochs,chamelemon");
    let newest = epochs.as_array().unwrap().last().unwrap().as_u64().unwrap();
    let newest = telemetry(&prefix, &format!("/calumma/epochs,chamelemon,{newest}"));
    assert!(newest["ingress_packets"] == 0 && newest["stall_ns"].is_u64(), "{newest}");
    assert!(telemetry(&prefix, "/calumma/systems")["chamelemon"].is_u64());
    let gauges = telemetry(&prefix, "/calumma/systems,chamelemon");
    assert!(gauges["classifier_bytes"].as_u64() > Some(0), "{gauges}");
    assert_eq!(telemetry(&prefix, "/calumma/lcores"), serde_json::json!([0, 1]));
    let lcore = telemetry(&prefix, "/calumma/lcores,1");
    assert!(lcore["cycles/work"].as_u64() > Some(0), "{lcore}");
    assert!(telemetry(&prefix, "/calumma/lcores,7").is_null());

    // Read again: what can change does, what can't is named, and what is wrong changes nothing.
    folder.write("edge.toml", config(&address, &metrics, "[policy]\nunmeasured = 'drop'"));
    edge.signal("HUP");
    edge.wait_for("the configuration was read again");
    status_when(&metrics, |status| status.counters["dropped.unmeasured"] > 0);
    folder.write("edge.toml", config(&address, &metrics, "[policy]\nunmeasured = 'burn'"));
    edge.signal("HUP");
    edge.wait_for("policy.unmeasured: \"burn\" is none of: forward, drop; the old");
    folder.write("edge.toml", config("127.0.0.1:9", &metrics, "[policy]\nunmeasured = 'drop'"));
    edge.signal("HUP");
    edge.wait_for("controller can't change while the switch runs");

    // Told to stop, it finishes the epoch under way and hands it over, all within two epochs.
    let (told, last) = (Instant::now(), clock.epoch_at(unix_ns()));
    edge.signal("TERM");
    let (ended, said) = edge.ended();
    let took = told.elapsed();
    assert!(ended.success(), "{said}");
    assert!(took < 2 * Duration::from_nanos(EPOCH_NS) + Duration::from_secs(1), "{took:?}");
    let messages: Vec<Message> = heard.iter().collect();
    let newest = |of_kind: fn(&Message) -> bool| {
        messages.iter().filter(|message| of_kind(message)).filter_map(epoch_of).max()
    };
    assert!(newest(|message| matches!(message, Message::Ingress(_))) >= Some(last));
    assert!(newest(|message| matches!(message, Message::Egress(_))) >= Some(last));
    assert!(newest(|message| matches!(message, Message::Sealed { .. })) >= Some(last));
    let totals = totals(stats);
    assert_eq!(totals["received.host"], totals["transmitted"] + totals["dropped.unmeasured"]);
    assert_eq!(totals["mbufs.lost"], 0);
}

/// What the log says of a file that is read again depends on all that follows it.
#[test]
fn routes_that_change_alone_are_a_change() {
    let folder = Folder::new("edge-rerouted");
    let file = |mtu: u16| {
        format!(
            "name = 'e1'\ncontroller = '127.0.0.1:9'\n\
             [[port]]\nname = 'net_null0'\nrole = 'host'\n\
             [[port]]\nname = 'net_null1'\nrole = 'fabric'\n\
             [polling]\nidle_sleep_us = 100\n\
             [forwarding]\nmode = 'routed'\n\
             [[forwarding.interface]]\nport = 'net_null1'\naddresses = ['10.9.0.1/30']\n\
             mtu = {mtu}\n"
        )
    };
    let path = folder.write("edge.toml", file(1500));
    let mut eal: Vec<String> = EAL.map(|word| word.replace("256", "512")).into();
    let own =
        ["--no-telemetry", "--lcores=0@0", "--vdev=net_null0,no-rx=1", "--vdev=net_null1,no-rx=1"];
    eal.extend(own.map(str::to_owned));
    let mut edge = Edge::start(&["--config", &path], &eal);
    folder.write("edge.toml", file(1400));
    edge.signal("HUP");
    edge.wait_for("forwarding by new routes");
    edge.signal("HUP");
    edge.wait_for("the configuration was read again; nothing changes");
    edge.signal("TERM");
    let (ended, said) = edge.ended();
    assert!(ended.success(), "{said}");
    let count = |words| said.matches(words).count();
    assert_eq!((count("was read again"), count("nothing changes")), (2, 1), "{said}");
}
