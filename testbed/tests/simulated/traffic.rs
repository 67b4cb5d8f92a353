//! Made-up traffic as a capture: what its list of flows says is what a replay of it finds.

use std::collections::HashMap;
use std::path::Path;

use calumma_chamelemon::{Attention, Layout};
use calumma_controller::analyse::Tasks;
use calumma_controller::report::Flow;
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::{HashKey, KeyKind, WideKey};
use calumma_testbed::capture::Capture;
use calumma_testbed::generator::FlowSent;
use calumma_testbed::replay::{Lose, Replay, Setup};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::pcap::{Recording, record};
use calumma_testbed::workload::{Sizes, Traffic};

/// Packets marked to be lost, by flow.
fn marked(truth: &Path) -> HashMap<WideKey, u64> {
    let text = std::fs::read_to_string(truth).unwrap();
    let list: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let flows: Vec<FlowSent> = serde_json::from_str(&text).unwrap();
    let marked = list.iter().map(|flow| flow["marked"].as_u64().unwrap());
    let of_flow = flows.iter().zip(marked).map(|(sent, marked)| (sent.flow.key().unwrap(), marked));
    of_flow.filter(|(_, marked)| *marked > 0).collect()
}

#[test]
fn a_replay_of_made_up_traffic_loses_exactly_what_its_list_says() {
    let file = |name| std::env::temp_dir().join(format!("calumma-{}-{name}", std::process::id()));
    let (capture, truth) = (file("traffic.pcap"), file("traffic.json"));
    let topology = Topology::load("pair", Path::new("."), LinkQuality::default()).unwrap();
    let traffic = Traffic {
        flows: 800,
        sizes: Sizes::Zipf { skew: 1.0, largest: 3000 },
        victims: 0.3,
        tcp: 0.5,
        ipv6: 0.4,
        churn: 0.2,
        ..Traffic::default()
    };
    let recording =
        Recording { epochs: 3, length_ns: 50_000_000, spread: 0.7, packet_bytes: 1514, seed: 5 };
    let packets = record(traffic, &topology, &recording, &capture, Some(&truth)).unwrap();

    let layout = Layout { keys: KeyKind::Dual, ..Layout::default() };
    let mut replay = Replay::new(
        Setup {
            attention: Attention::healthy(&layout, 512),
            layout,
            hash_key: HashKey::from_bytes([3; 32]),
            clock: EpochClock::new(50_000_000, Guards::default()).unwrap(),
            tasks: Tasks::default(),
        },
        Lose::CongestionExperienced,
    );
    let mut reports = Vec::new();
    let mut reader = Capture::open(&capture).unwrap();
    while let Some(packet) = reader.next_record().unwrap() {
        assert_eq!(packet.original_len, 1514);
        reports.extend(replay.packet(packet.timestamp_ns, 1514, packet.bytes).unwrap());
    }
    reports.extend(replay.finish().unwrap());
    assert_eq!(replay.summary().measured, packets);
    assert_eq!(reports.len(), 3);

    let mut lost: HashMap<WideKey, u64> = HashMap::new();
    for loss in reports.iter().flat_map(|report| &report.loss) {
        let flow: &Flow = &loss.flow;
        *lost.entry(flow.key().unwrap()).or_default() += loss.lost;
    }
    let marked = marked(&truth);
    let ipv6 = marked.keys().filter(|flow| flow.src().to_ipv4_mapped().is_none()).count();
    assert!(ipv6 > 60 && marked.len() > ipv6 + 60, "{ipv6} of {}", marked.len());
    assert_eq!(lost, marked);
    for path in [capture, truth] {
        std::fs::remove_file(path).unwrap();
    }
}
