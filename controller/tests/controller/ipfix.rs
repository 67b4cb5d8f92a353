//! Flow records as a collector that others wrote understands them: nfcapd receives, nfdump prints.

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use calumma_controller::EpochReport;
use calumma_controller::ipfix::{Exporter, IpfixSection};
use calumma_controller::report::{DecodeState, EdgeReport, Flow, HeavyHitter, Loss, LossClass};
use calumma_testenv::has_program;

use crate::any::quiet;
use crate::program::Folder;

const EPOCH: u64 = 35_397_216_000;

/// Every third flow is IPv6.
fn flow(n: u16) -> Flow {
    let proto = if n.is_multiple_of(2) { 6 } else { 17 };
    let [src, dst] = ADDRESSES[usize::from(is_ipv6(n.into()))].map(|end| end.parse().unwrap());
    Flow { src, dst, sport: n, dport: 443, proto }
}

const ADDRESSES: [[&str; 2]; 2] = [["10.1.0.2", "10.2.0.2"], ["2001:db8:1::2", "2001:db8:2::2"]];

fn is_ipv6(n: u64) -> bool {
    n.is_multiple_of(3)
}

/// An epoch with more victim flows than fit into a message, one of them uncertain, and heavy
/// hitters at two edges.
fn report() -> EpochReport {
    let loss = |n: u16| Loss {
        flow: flow(n),
        lost: u64::from(n),
        class: LossClass::Heavy,
        partial: n == 77,
        at_least: false,
    };
    let edge = |edge: &str, from: u16| EdgeReport {
        edge: edge.to_owned(),
        packets_in: Some(100_000),
        packets_out: Some(0),
        cardinality: Some(3.0),
        cardinality_error: Some(0.0),
        entropy: Some(1.5),
        hh_decode: DecodeState::Complete,
        hh_load_factor: Some(0.1),
        heavy_hitters: (from..from + 3)
            .map(|n| HeavyHitter { flow: flow(n), size: 1000 + u64::from(n), size_min: None })
            .collect(),
        heavy_changes_since: None,
        heavy_changes: vec![],
        size_distribution: vec![],
    };
    EpochReport {
        epoch: EPOCH,
        start_unix_ns: EPOCH * 50_000_000,
        loss: (1..=77).map(loss).collect(),
        edges: vec![edge("e1", 200), edge("e2", 300)],
        ..quiet()
    }
}

/// Source port, protocol, packets and observation point of each record.
type Seen = BTreeSet<(u64, u64, u64, Option<u64>)>;

fn wanted() -> Seen {
    let victims = (1..77).map(|n| (n, if n % 2 == 0 { 6 } else { 17 }, n, None));
    let hitters = [(1, 200), (2, 300)].into_iter().flat_map(|(edge, from)| {
        (from..from + 3).map(move |n| (n, if n % 2 == 0 { 6 } else { 17 }, 1000 + n, Some(edge)))
    });
    victims.chain(hitters).collect()
}

#[test]
fn nfdump_prints_the_victims_and_heavy_hitters_that_were_exported() {
    if !has_program("nfcapd", "nfdump") {
        return;
    }
    let folder = Folder::new("nfdump");
    // A port that was free a moment ago.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let flows = folder.path().join("flows");
    fs::create_dir(&flows).unwrap();
    let mut nfcapd = Command::new("nfcapd")
        .args(["-b", "127.0.0.1", "-p", &port.to_string(), "-w"])
        .arg(&flows)
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    wait_for_listener(port);

    let section: IpfixSection = toml::from_str(&format!("collector = '127.0.0.1:{port}'")).unwrap();
    let edges = ["e1".to_owned(), "e2".to_owned()];
    let mut exporter = Exporter::start(&section, &edges).unwrap();
    exporter.export(&report(), 1_769_860_801, Instant::now()).unwrap();
    std::thread::sleep(Duration::from_millis(300));

    let stopped = Command::new("kill").arg(nfcapd.id().to_string()).status().unwrap();
    assert!(stopped.success() && nfcapd.wait().unwrap().success());
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("Sequence Errors: 0, Bad Packets: 0"), "{log}");
    assert_eq!(dumped(&flows), wanted());
}

fn wait_for_listener(port: u16) {
    let socket = format!("0100007F:{port:04X} ");
    let since = Instant::now();
    while !fs::read_to_string("/proc/net/udp").unwrap().contains(&socket) {
        assert!(since.elapsed() < Duration::from_secs(20), "nfcapd does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What nfdump reads in the files that nfcapd wrote.
fn dumped(flows: &Path) -> Seen {
    let output = Command::new("nfdump")
        .args(["-o", "json", "-R"])
        .arg(flows)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let records: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let start = "2026-01-31T12:00:00.000";
    let number = |record: &serde_json::Value, name: &str| record[name].as_u64();
    records
        .iter()
        .map(|record| {
            assert!(zoneless(&record["first"], start), "{record}");
            let ipv6 = is_ipv6(number(record, "src_port").unwrap());
            let names = if ipv6 { ["src6_addr", "dst6_addr"] } else { ["src4_addr", "dst4_addr"] };
            let said = names.map(|name| record[name].as_str().unwrap());
            assert_eq!((said, &record["dst_port"]), (ADDRESSES[usize::from(ipv6)], &443.into()));
            (
                number(record, "src_port").unwrap(),
                number(record, "proto").unwrap(),
                number(record, "in_packets").unwrap(),
                number(record, "observationPointID"),
            )
        })
        .collect()
}

/// Whether nfdump's local time is `utc` in some time zone of whole quarters of an hour.
fn zoneless(local: &serde_json::Value, utc: &str) -> bool {
    let local = local.as_str().unwrap();
    local.len() == utc.len() && local[16..] == utc[16..]
}
