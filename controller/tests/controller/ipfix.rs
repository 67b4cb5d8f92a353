//! Flow records as a collector that others wrote understands them: nfcapd receives, nfdump prints.

use std::collections::BTreeSet;
use std::time::Instant;

use calumma_controller::EpochReport;
use calumma_controller::ipfix::{
    Data, Encoder, Exporter, FLOW_STATE_DEPENDENT, IpfixSection, Kind, MAX_MESSAGE, Record,
    Selection, Template,
};
use calumma_controller::report::{DecodeState, EdgeReport, Flow, HeavyHitter, Loss, LossClass};
use calumma_sketchint_analysis::Delays;
use calumma_testenv::{Nfcapd, has_program};

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
        at_least: n == 76,
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
            .chain([HeavyHitter { flow: flow(from + 3), size: 1000, size_min: Some(900) }])
            .collect(),
        heavy_hitters_complete: true,
        heavy_changes_since: None,
        heavy_changes: vec![],
        heavy_changes_complete: false,
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
    let victims = (1..76).map(|n| (n, if n % 2 == 0 { 6 } else { 17 }, n, None));
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
    let nfcapd = Nfcapd::start(folder.path());
    let collector = format!("collector = '127.0.0.1:{}'", nfcapd.port());
    let section: IpfixSection = toml::from_str(&collector).unwrap();
    let edges = ["e1".to_owned(), "e2".to_owned()];
    let mut exporter = Exporter::start(&section, &edges).unwrap();
    exporter.export(&report(), 1_769_860_801, Instant::now()).unwrap();
    assert_eq!(dumped(&nfcapd.stop(0)), wanted());
}

/// The number of elements that a template of this number has in a message of templates.
fn elements(message: &[u8], template: Template) -> Option<u8> {
    let at =
        message.windows(3).position(|all| all[..2] == template.id().to_be_bytes() && all[2] == 0);
    message.get(at? + 3).copied()
}

#[test]
fn windows_have_templates_of_flows_and_one_of_options() {
    let message = Encoder::new(9).templates(1, true, false);
    assert!(message.len() <= MAX_MESSAGE);
    // First the options: seven elements, the first of which is the scope, `observationPointId`.
    let options = [0, 3, 0, 4 + 6 + 7 * 4, 1, 8, 0, 7, 0, 1, 0, 138, 0, 8];
    assert_eq!(message[16..16 + options.len()], options);
    let of_windows = Template::OF_WINDOWS.map(|template| elements(&message, template));
    assert_eq!(of_windows, [Some(12), Some(12), Some(10), Some(10)]);
    let without = Encoder::new(9).templates(1, false, false);
    assert_eq!(Template::OF_WINDOWS.map(|template| elements(&without, template)), [None; 4]);
}

#[test]
fn records_of_delays_are_as_their_templates_say() {
    let message = Encoder::new(9).templates(1, true, true);
    assert!(message.len() <= MAX_MESSAGE, "{} bytes", message.len());
    let of_delays = Template::OF_DELAYS.map(|template| elements(&message, template));
    assert_eq!(of_delays, [10, 10, 12, 12, 12, 12, 13, 13].map(Some));
    let without = Encoder::new(9).templates(1, true, false);
    assert_eq!(Template::OF_DELAYS.map(|template| elements(&without, template)), [None; 8]);

    let all = Delays { packets: 3, mean_us: 5, sum_us: 14, min_us: Some(2), max_us: Some(9) };
    let longest = Delays { min_us: None, ..all };
    let neither = Delays { max_us: None, ..longest };
    let hop = |delays| Kind::HopDelay { node: 7, delays, max_us: 9 };
    // What follows the key: packets, maybe the node, sum, mean, and what is known besides.
    let cases: [(Kind, &[u64], &[u32]); 5] = [
        (Kind::Delay(neither), &[3, 14], &[5]),
        (Kind::Delay(longest), &[3, 14], &[5]),
        (Kind::Delay(all), &[3, 14], &[5, 9, 2]),
        (hop(longest), &[3, 7, 14], &[5, 9]),
        (hop(all), &[3, 7, 14], &[5, 9, 2]),
    ];
    for (kind, long, short) in cases {
        for n in [1, 3] {
            let record = Record { start_ms: 1, end_ms: 2, flow: flow(n), kind };
            let mut bytes = Vec::new();
            record.put(&mut bytes);
            assert_eq!(bytes.len(), record.template().record_bytes());
            let key = if is_ipv6(n.into()) { 16 + 32 + 5 } else { 16 + 8 + 5 };
            let long: Vec<u8> = long.iter().flat_map(|value| value.to_be_bytes()).collect();
            let short: Vec<u8> = short.iter().flat_map(|value| value.to_be_bytes()).collect();
            assert_eq!(bytes[key..], [long, short].concat(), "{kind:?}");
        }
    }
}

#[test]
fn a_selection_and_a_counted_flow_are_as_their_templates_say() {
    let selection = Selection { start_ms: 1, end_ms: 2, node: 3, flows: 4, packets: 5, bytes: 6 };
    let mut bytes = Vec::new();
    selection.put(&mut bytes);
    assert_eq!(bytes.len(), Template::Selection.record_bytes());
    let algorithm = FLOW_STATE_DEPENDENT.to_be_bytes();
    let [before, after] = [[3_u64, 1, 2], [6, 5, 4]].map(|of| of.map(u64::to_be_bytes).concat());
    assert_eq!(bytes, [&before[..], &algorithm, &after].concat());
    for (n, ttls) in [(1, None), (2, Some([61, 64])), (3, None), (6, Some([1, 255]))] {
        let kind = Kind::Counted { packets: 7, bytes: 300, node: 2, ttls };
        let record = Record { start_ms: 1, end_ms: 2, flow: flow(n), kind };
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        assert_eq!(bytes.len(), record.template().record_bytes());
        let key = if is_ipv6(n.into()) { 16 + 32 + 5 } else { 16 + 8 + 5 };
        let counts = [7_u64, 2, 300].map(u64::to_be_bytes).concat();
        let rest: Vec<u8> = ttls.into_iter().flatten().collect();
        assert_eq!(bytes[key..], [counts, rest].concat());
    }
}

/// What nfdump has read, as JSON.
fn dumped(json: &[u8]) -> Seen {
    let records: Vec<serde_json::Value> = serde_json::from_slice(json).unwrap();
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
