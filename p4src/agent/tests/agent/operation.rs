//! The daemon as its host sees it: figures for Prometheus, and a service of systemd.

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use calumma_chamelemon::Attention;
use calumma_chamelemon::frames::Message;
use calumma_interface::Plug;
use calumma_sketch::Arithmetic;
use calumma_switchd::config::Config;

use crate::rig::{
    Controller, Daemon, EPOCH_MS, Folder, LIMIT, Lossy, Model, attention, free, layout, packets,
    scrape, value,
};

/// Scrapes until that is true of the metric's value.
fn scrape_until(address: SocketAddr, metric: &str, holds: impl Fn(f64) -> bool) -> String {
    let end = Instant::now() + LIMIT;
    loop {
        let text = scrape(address);
        if value(&text, metric).is_some_and(&holds) {
            return text;
        }
        assert!(Instant::now() < end, "{metric} in\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn metrics_show_epochs_collections_reconfigurations_ports_and_the_driver() {
    let layout = layout(Arithmetic::Prime);
    let program = crate::rig::program(&layout, 8);
    let mut model = Model::start(&program, None);
    // Longer epochs: what is lost is asked for again.
    let mut controller = Controller::new(&layout, 3 * EPOCH_MS);
    let listen = free();
    let text = crate::rig::text(model.address, controller.address());
    let text = format!("{text}[metrics]\nlisten = \"{listen}\"\n");
    let config = Config::parse(&text, "the test's configuration").unwrap();
    let way = packets(Lossy::new(model.cpu.take().unwrap()));
    let _daemon = Daemon::start(config, way);
    controller.welcome();

    scrape_until(listen, "calumma_edge_tables_total{kind=\"filled\"}", |filled| filled >= 1.0);
    let epoch = controller.clock.epoch_at(calumma_switch_host::unix_ns());
    let changed = Attention { t_h: 12, ..attention() };
    controller.send(&Message::Reconfigure { effective_epoch: epoch + 3, attention: changed });
    for _ in 0..20 {
        model.host.send(&[9; 64]);
        Model::next(&mut model.fabric);
    }
    let text =
        scrape_until(listen, "calumma_edge_tables_total{kind=\"reconfigured\"}", |reconfigured| {
            reconfigured >= 1.0
        });
    for (metric, wanted) in [
        ("calumma_edge_received_packets_total{kind=\"host\"}", 20.0),
        ("calumma_edge_ingress_packets_total{kind=\"recorded\"}", 0.0),
        ("calumma_edge_port_total{kind=\"rx_packets\",port=\"1\"}", 20.0),
        ("calumma_edge_port_total{kind=\"rx_bytes\",port=\"1\"}", 20.0 * 64.0),
        ("calumma_edge_port_total{kind=\"tx_packets\",port=\"2\"}", 20.0),
        ("calumma_edge_port_total{kind=\"rx_errors\",port=\"2\"}", 0.0),
        ("calumma_edge_driver_total{kind=\"connections\"}", 1.0),
        ("calumma_edge_driver_connected", 1.0),
        ("calumma_edge_controller_connected", 1.0),
    ] {
        assert_eq!(value(&text, metric), Some(wanted), "{metric} in\n{text}");
    }
    let measured = "calumma_edge_epochs_total{kind=\"measured\"}";
    let text = scrape_until(listen, measured, |epochs| epochs >= 1.0);
    for metric in [
        "calumma_edge_collection_total{kind=\"gathered\"}",
        "calumma_edge_collection_total{kind=\"retries\"}",
        "calumma_edge_collection_total{kind=\"repeated_packets\"}",
        "calumma_edge_collection_seconds_total",
        "calumma_edge_tables_total{kind=\"changed_entries\"}",
        "calumma_edge_tables_seconds_total",
        "calumma_edge_last_epoch",
    ] {
        assert!(value(&text, metric) > Some(0.0), "{metric} in\n{text}");
    }
    let rules = include_str!("../../../../deploy/prometheus/tofino.yml");
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let watched: Vec<&str> = words.filter(|word| word.starts_with("calumma_")).collect();
    assert!(watched.len() >= 3, "{watched:?}");
    for metric in watched {
        assert!(text.contains(&format!("\n{metric}")), "tofino.yml: no {metric} in\n{text}");
    }

    // The driver goes, and comes back: the scrapes in between tell that, and what the daemon
    // counted.
    let address = model.address;
    drop(model);
    let text = scrape_until(listen, "calumma_edge_driver_connected", |connected| connected == 0.0);
    assert!(
        value(&text, measured) >= Some(1.0) && !text.contains("calumma_edge_port_total{"),
        "{text}"
    );
    let _model = Model::start(&program, Some(address));
    let connections = "calumma_edge_driver_total{kind=\"connections\"}";
    let text = scrape_until(listen, connections, |connections| connections >= 2.0);
    assert!(value(&text, "calumma_edge_controller_connected").is_some(), "{text}");
}

#[test]
fn it_tells_systemd_when_it_forwards_reloads_and_stops() {
    let layout = layout(Arithmetic::Prime);
    let model = Model::start(&crate::rig::program(&layout, 8), None);
    let folder = Folder::new();
    // No controller, and no CPU port: it forwards all the same.
    let text = crate::rig::text(model.address, free());
    let text = text.replace("interface = \"a cable\"", "method = \"registers\"");
    let config = folder.0.join("switchd.toml");
    std::fs::write(&config, text).unwrap();
    let path = folder.0.join("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let received = |word: &str| {
        let mut bytes = [0; 4096];
        loop {
            let read = socket.recv(&mut bytes).unwrap_or_else(|_| panic!("{word} in time"));
            if str::from_utf8(&bytes[..read]).unwrap().lines().any(|line| line == word) {
                return;
            }
        }
    };
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_calumma-switchd"))
        .arg("--config")
        .arg(&config)
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000")
        .spawn()
        .unwrap();
    let id = daemon.id().to_string();
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    received("READY=1");
    received("WATCHDOG=1");
    signal("-HUP");
    received("RELOADING=1");
    received("READY=1");
    signal("-TERM");
    received("STOPPING=1");
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn systemd_finds_no_fault_with_the_unit() {
    if !calumma_testenv::has_program("systemd-analyze", "systemd") {
        return;
    }
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd");
    let unit = std::fs::read_to_string(unit.join("calumma-switchd.service")).unwrap();
    // It checks that the program is there, too.
    let program = env!("CARGO_BIN_EXE_calumma-switchd");
    let unit = unit.replace("/usr/bin/calumma-switchd", program);
    let folder = Folder::new();
    let path = folder.0.join("calumma-switchd.service");
    std::fs::write(&path, unit).unwrap();
    let verified = Command::new("systemd-analyze").arg("verify").arg(&path).output().unwrap();
    let printed = String::from_utf8(verified.stderr).unwrap();
    assert!(
        verified.status.success() && !printed.contains("calumma-switchd.service:"),
        "{printed}"
    );
}
