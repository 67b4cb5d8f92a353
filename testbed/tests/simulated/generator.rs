//! The generator keeps the truth: what it says it sent of each flow is what arrives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use calumma_controller::report::Flow;
use calumma_edge::parse::{Parsed, parse};
use calumma_sketch::WideKey;
use calumma_testbed::capture::Capture;
use calumma_testbed::generator::FlowSent;
use serde_json::Value;

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("generator-{name}"));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Sends into a capture file, and gives what the generator says of it.
fn generate(directory: &Path, arguments: &[&str]) -> (Value, Vec<FlowSent>) {
    let (capture, truth) = (directory.join("sent.pcap"), directory.join("truth.jsonl"));
    let output = Command::new(env!("CARGO_BIN_EXE_calumma-testbed"))
        .args(["generate", "--port", "net_pcap0", "--warm-up", "0.01", "--truth"])
        .arg(&truth)
        .args(arguments)
        .args(["--", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--no-shconf"])
        .args(["--lcores", "0"])
        .arg(format!("--vdev=net_pcap0,tx_pcap={}", capture.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // DPDK's drivers write to the standard output as well.
    let outcome = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    let truth = std::fs::read_to_string(&truth).unwrap();
    (outcome, truth.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Packets of each flow in a capture, and the lengths that its packets have.
fn flows_in(path: &Path) -> BTreeMap<Flow, (u64, usize)> {
    let mut flows = BTreeMap::new();
    let mut capture = Capture::open(path).unwrap();
    while let Some(record) = capture.next_record().unwrap() {
        let flow = match parse(record.bytes, record.bytes.len()) {
            Parsed::Flow { key, .. } => Flow::from(&key),
            Parsed::Flow6 { key, .. } => Flow::from(&WideKey::from_bytes(key)),
            _ => panic!("a packet that can't be read"),
        };
        let (packets, length) = flows.entry(flow).or_insert((0, record.bytes.len()));
        assert_eq!(*length, record.bytes.len());
        *packets += 1;
    }
    flows
}

#[test]
fn what_it_says_it_sent_is_what_arrives_flow_by_flow() {
    let directory = Scratch::new("truth");
    let mix = ["--flows", "3000", "--popularity", "zipf:1.0", "--size", "imix", "--ipv6", "0.5"];
    let (outcome, truth) = generate(&directory.0, &[&mix[..], &["--seconds", "0.1"]].concat());
    let arrived = flows_in(&directory.0.join("sent.pcap"));

    assert!(outcome["sent"].as_u64().unwrap() > 1000, "{outcome}");
    assert_eq!(truth.len(), arrived.len());
    for FlowSent { flow, packets } in truth {
        assert_eq!(arrived[&flow].0, packets, "{flow}");
    }
    let ipv6 = arrived.keys().filter(|flow| flow.src.is_ipv6()).count();
    assert!(ipv6 > arrived.len() / 3, "{ipv6} of {} flows", arrived.len());
    let lengths: std::collections::BTreeSet<_> = arrived.values().map(|&(_, len)| len).collect();
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [64, 594, 1518]);
}

#[test]
fn a_rate_is_kept_to() {
    let directory = Scratch::new("rate");
    let (outcome, _) = generate(
        &directory.0,
        &["--flows", "10", "--popularity", "uniform", "--rate", "0.02", "--seconds", "0.5"],
    );
    // However busy the machine, what is due is sent, later if need be; the last bursts may not be.
    let sent = outcome["sent"].as_u64().unwrap();
    assert!((9_000..=10_032).contains(&sent), "{outcome}");
}
