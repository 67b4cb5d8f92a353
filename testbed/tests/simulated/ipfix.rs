//! Flows of cooperative flow selection as collectors that others wrote understand them: nfcapd and
//! nfdump, and the dissector of Wireshark.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use calumma_analysis::{Flow, SystemReport};
use calumma_cfs_analysis::{Found, KeptIn};
use calumma_controller::ipfix::{Exporter, FLOW_STATE_DEPENDENT, IpfixSection, MAX_MESSAGE};
use calumma_sketch::KeyKind;
use calumma_testbed::capture::PcapWriter;
use calumma_testbed::simulate::{Detail, Setup, Simulation, SwitchClock, Systems};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::{Sizes, Traffic};
use calumma_testenv::{Nfcapd, has_program};
use serde_json::{Value, json};

use crate::simulation::setup;

const NODES: [&str; 4] = ["e1", "e2", "s1", "s2"];

/// What hosts send: by flow, the times to live of its packets, one after the other, and the edge
/// where it enters.
type Sent = BTreeMap<Flow, (Vec<u8>, &'static str)>;

/// Two edges and the two switches between them, with more flows than their tables have entries, and
/// residuals that decode some of the rest; gives the reports, and what was sent.
fn reports() -> (Vec<SystemReport<Found>>, Sent) {
    let quality = LinkQuality { loss: 0.02, ..LinkQuality::default() };
    let name = "leaf-spine:2x2 s1=software s2=software";
    let topology = Topology::load(name, Path::new("."), quality).unwrap();
    let section = json!({
        "entries": 256, "window_epochs": 4, "flows_listed": 100_000,
        "residual": "fermat", "alpha": 0.3,
    });
    let systems = Systems {
        on: vec!["cfs".to_owned()],
        sections: BTreeMap::from([("cfs".to_owned(), section)]),
        ..Systems::default()
    };
    let mut setup = Setup { systems, ..setup(Detail::Packets { spread: 0.9 }, 8) };
    setup.layout.keys = KeyKind::Dual;
    // A window begins with the first packet of each flow by all clocks.
    let clocks = SwitchClock::draw(8, NODES.len(), 1.0, 0.1);
    let mut simulation = Simulation::new(setup, topology, clocks).unwrap();
    let of = |flows, ttl_each: &[u8]| Traffic {
        flows,
        sizes: Sizes::Constant(4),
        local_share: Some(0.0),
        tcp: 0.5,
        ipv6: 0.3,
        ttl_each: ttl_each.to_vec(),
        ..Traffic::default()
    };
    let traffic = vec![of(250, &[]), of(250, &[64, 62, 61, 63]), of(150, &[62, 64])];
    simulation.set_traffic(traffic).unwrap();
    let flows = simulation.flows().iter();
    let sent = flows.map(|flow| {
        let ttls = (0..4).map(|at| flow.ttl_of(at)).collect();
        (Flow::from(&flow.key), (ttls, NODES[flow.edges[0]]))
    });
    let sent = sent.collect();
    for epoch in 0..20 {
        if epoch == 6 {
            // In the middle of a window: what e2 has sent and not marked, e1 can't count. The
            // window after those that e2 lacks is in doubt.
            simulation.restart(1);
        }
        simulation.run_epoch().unwrap();
    }
    simulation.finish().unwrap();
    let taken = simulation.take_reports().into_iter();
    let typed = taken.map(|of| of.report.as_type::<SystemReport<Found>>().unwrap().clone());
    (typed.filter(|report| report.findings.monitored > 0).collect(), sent)
}

/// A record of a flow: the flow, when its window begins, packets, bytes, and where.
type Seen = (Flow, u64, u64, u64, u64);

fn place(node: &str) -> u64 {
    NODES.iter().position(|name| *name == node).unwrap() as u64 + 1
}

fn start_ms(report: &SystemReport<Found>) -> u64 {
    report.head.start_unix_ns / 1_000_000
}

/// The records that are to be sent of the flows that reports list, all of which they do, each with
/// the smallest and the largest time to live where that is known.
fn wanted(reports: &[SystemReport<Found>], sent: &Sent) -> BTreeMap<Seen, Option<[u8; 2]>> {
    let mut wanted = BTreeMap::new();
    for report in reports {
        let found = &report.findings;
        assert_eq!(found.flows.len() as u64, found.monitored);
        for count in found.flows.iter().filter(|count| count.exact) {
            let seen = (count.flow, start_ms(report), count.packets, count.bytes, place(&count.at));
            let (ttls, entered_at) = &sent[&count.flow];
            let hop = match &*count.at {
                at if at == *entered_at => 0,
                at if at.starts_with('e') => 2,
                _ => 1,
            };
            let (least, most) = (ttls.iter().min().unwrap(), ttls.iter().max().unwrap());
            // An entry knows of other times to live only by how much less they are than the first.
            let is_known = count.from == KeptIn::Table && ttls[0] == *most;
            if hop > 0 && least != most {
                // Some packets were lost before, maybe all that had one of the times to live.
                continue;
            }
            wanted.insert(seen, is_known.then(|| [*least - hop, *most - hop]));
        }
    }
    wanted
}

#[test]
fn collectors_read_every_flow_that_was_counted_exactly_as_reports_have_it() {
    if !has_program("nfcapd", "nfdump") || !has_program("tshark", "tshark") {
        return;
    }
    let (reports, sent) = reports();
    let folder = std::env::temp_dir().join(format!("calumma-ipfix-{}", std::process::id()));
    let nfcapd = Nfcapd::start(&folder);
    let wiretap = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nodes = NODES.map(str::to_owned);
    let exporter = |port: u16, flows: bool| {
        let section = format!("collector = '127.0.0.1:{port}'\nflows = {flows}");
        Exporter::start(&toml::from_str::<IpfixSection>(&section).unwrap(), &nodes).unwrap()
    };
    let mut to_nfcapd = exporter(nfcapd.port(), true);
    let mut to_wiretap = exporter(wiretap.local_addr().unwrap().port(), true);
    let mut silent = exporter(wiretap.local_addr().unwrap().port(), false);
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for report in &reports {
        let now = Instant::now();
        to_nfcapd.export_window(report, 1_700_000_001, now).unwrap();
        to_wiretap.export_window(report, 1_700_000_001, now).unwrap();
        silent.export_window(report, 1_700_000_001, now).unwrap();
        messages.extend(messages_at(&wiretap));
    }
    let wanted = wanted(&reports, &sent);
    // Of a window that is in doubt no flow is sent.
    let windows = reports.iter().filter(|report| report.findings.monitored_exactly > 0).count();
    assert!(windows > 1 && windows < reports.len());
    let counts: Vec<Seen> = dumped(&nfcapd.stop(windows - 1));
    let dissected = dissected(&folder, &messages);
    std::fs::remove_dir_all(&folder).unwrap();

    let exact = reports.iter().map(|report| report.findings.monitored_exactly).sum::<u64>();
    let inexact = reports.iter().map(|of| of.findings.monitored - of.findings.monitored_exactly);
    assert!(inexact.sum::<u64>() > 20, "flows whose counts are bounds are not sent");
    assert_eq!(counts.len() as u64, exact, "flows that nfdump prints");
    assert_eq!(dissected.flows.len() as u64, exact, "flows that Wireshark shows");
    let of_nfdump: BTreeMap<Seen, ()> = counts.into_iter().map(|seen| (seen, ())).collect();
    for (seen, ttls) in &wanted {
        assert!(of_nfdump.contains_key(seen), "{seen:?}");
        assert_eq!(dissected.flows.get(seen), Some(ttls), "{seen:?}");
    }
    let kinds = |is: fn(&(&Seen, &Option<[u8; 2]>)) -> bool| wanted.iter().filter(is).count();
    let has_all = [
        kinds(|(seen, ttls)| seen.0.src.is_ipv4() && ttls.is_some_and(|[low, high]| low < high)),
        kinds(|(seen, ttls)| seen.0.src.is_ipv4() && ttls.is_none()),
        kinds(|(seen, ttls)| seen.0.src.is_ipv6() && ttls.is_some_and(|[low, high]| low == high)),
        kinds(|(seen, ttls)| seen.0.src.is_ipv6() && ttls.is_none()),
    ];
    assert!(has_all.iter().all(|&flows| flows > 10), "{has_all:?}");

    let selections = reports.iter().flat_map(|report| {
        report.findings.nodes.iter().map(|node| {
            let (exact, start) = (node.exact, start_ms(report));
            let counts = [exact.flows, exact.packets, exact.bytes];
            (place(&node.node), start, start + report.head.length_ms, counts)
        })
    });
    assert_eq!(dissected.selections, selections.collect::<Vec<_>>());
    assert!(dissected.selections.iter().any(|(.., [flows, ..])| *flows > 100));
    assert_sequence(&messages, exact + dissected.selections.len() as u64);
}

/// Each message is no longer than it may be, and its number is that of the data records before.
fn assert_sequence(messages: &[Vec<u8>], records: u64) {
    let mut next = 0;
    for message in messages {
        assert!(message.len() <= MAX_MESSAGE, "{} bytes", message.len());
        assert_eq!(message[8..12], u32::to_be_bytes(next));
        let set = u16::from_be_bytes([message[16], message[17]]);
        let record = match set {
            2 | 3 => continue,
            260 => 29 + 24 + 2,
            261 => 53 + 24 + 2,
            262 => 29 + 24,
            263 => 53 + 24,
            264 => 24 + 2 + 24,
            other => panic!("a set {other}"),
        };
        next += ((message.len() - 20) / record) as u32;
    }
    assert_eq!(u64::from(next), records);
    assert!(messages.len() > 40, "{} messages", messages.len());
}

/// What nfdump has read, as JSON.
fn dumped(json: &[u8]) -> Vec<Seen> {
    let records: Vec<Value> = serde_json::from_slice(json).unwrap();
    let number = |record: &Value, name: &str| record[name].as_u64().unwrap();
    let seen = |record: &Value| {
        let flow = dumped_flow(record);
        let first = record["first"].as_str().unwrap();
        let (packets, bytes) = (number(record, "in_packets"), number(record, "in_bytes"));
        (flow, milliseconds(first), packets, bytes, number(record, "observationPointID"))
    };
    records.iter().map(seen).collect()
}

/// The flow of a record that nfdump has read.
pub(crate) fn dumped_flow(record: &Value) -> Flow {
    let number = |name: &str| record[name].as_u64().unwrap();
    let address = |names: [&str; 2]| {
        let text = names.iter().find_map(|name| record[name].as_str()).unwrap();
        text.parse().unwrap()
    };
    Flow {
        src: address(["src4_addr", "src6_addr"]),
        dst: address(["dst4_addr", "dst6_addr"]),
        sport: number("src_port") as u16,
        dport: number("dst_port") as u16,
        proto: number("proto") as u8,
    }
}

/// A time in UTC as nfdump or Wireshark print it, as milliseconds since the Unix epoch. All are of
/// one day.
pub(crate) fn milliseconds(time: &str) -> u64 {
    let days = ["2023-11-14T", "Nov 14, 2023 "];
    let time = days.iter().find_map(|day| time.strip_prefix(day)).unwrap();
    let parts = time.trim_end_matches(" UTC").split([':', '.']);
    let [hours, minutes, seconds, fraction] = parts.collect::<Vec<_>>().try_into().unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    let seconds = (number(hours) * 60 + number(minutes)) * 60 + number(seconds);
    1_699_920_000_000 + 1000 * seconds + number(&fraction[..3])
}

/// What Wireshark shows.
#[derive(Default)]
struct Dissected {
    flows: BTreeMap<Seen, Option<[u8; 2]>>,
    /// The node, the window's begin and end, and flows, packets and bytes selected.
    selections: Vec<(u64, u64, u64, [u64; 3])>,
}

/// Has Wireshark read messages as they would be in a capture.
fn dissected(folder: &Path, messages: &[Vec<u8>]) -> Dissected {
    let mut dissected = Dissected::default();
    let add = |record: &Value| dissected.add(record);
    dissect(folder, messages, "cflow.observation_point_id", add);
    dissected
}

/// The same; `each` is shown the innermost objects that have a field.
pub(crate) fn dissect(
    folder: &Path,
    messages: &[Vec<u8>],
    field: &str,
    mut each: impl FnMut(&Value),
) {
    let output = Command::new("tshark")
        .arg("-r")
        .arg(capture(folder, messages))
        .args(["-d", "udp.port==4739,cflow", "-T", "json", "--no-duplicate-keys"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let packets: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for packet in &packets {
        find_records(&packet["_source"]["layers"]["cflow"], field, &mut each);
    }
}

fn find_records(value: &Value, field: &str, each: &mut impl FnMut(&Value)) {
    match value {
        Value::Object(fields) if fields.contains_key(field) => each(value),
        Value::Object(of) => of.values().for_each(|value| find_records(value, field, each)),
        Value::Array(all) => all.iter().for_each(|value| find_records(value, field, each)),
        _ => {}
    }
}

/// The flow of a record that Wireshark shows.
pub(crate) fn dissected_flow(record: &Value) -> Flow {
    let text = |name: &str| record[format!("cflow.{name}")].as_str();
    let number = |name: &str| text(name).unwrap().parse::<u64>().unwrap();
    let address = |end: &str| {
        let name = [format!("{end}addr"), format!("{end}addrv6")];
        name.iter().find_map(|name| text(name)).unwrap().parse().unwrap()
    };
    Flow {
        src: address("src"),
        dst: address("dst"),
        sport: number("srcport") as u16,
        dport: number("dstport") as u16,
        proto: number("protocol") as u8,
    }
}

/// What comes to a socket that nothing more is sent to.
pub(crate) fn messages_at(wiretap: &UdpSocket) -> Vec<Vec<u8>> {
    wiretap.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut buffer = [0; 2048];
    let receive = || wiretap.recv(&mut buffer).ok().map(|bytes| buffer[..bytes].to_vec());
    std::iter::from_fn(receive).collect()
}

impl Dissected {
    fn add(&mut self, record: &Value) {
        let text = |name: &str| record[format!("cflow.{name}")].as_str();
        let number = |name: &str| text(name).map(|text| text.parse::<u64>().unwrap());
        let time = |value: &Value| milliseconds(value.as_str().unwrap());
        let node = number("observation_point_id").unwrap();
        if let Some(algorithm) = number("flow_selector_algorithm") {
            assert_eq!(algorithm, u64::from(FLOW_STATE_DEPENDENT));
            let counts = ["flow", "packet", "octet"]
                .map(|of| number(&format!("flow_selected_{of}_delta_count")).unwrap());
            let [from, to] = ["start", "end"]
                .map(|end| time(&record[format!("cflow.monitoring_interval_{end}_milliseconds")]));
            self.selections.push((node, from, to, counts));
            return;
        }
        let flow = dissected_flow(record);
        let from = time(&record["cflow.timedelta_tree"]["cflow.abstimestart"]);
        let counts = ["packets", "octets"].map(|of| number(of).unwrap());
        let ttls = ["ttl_min", "ttl_max"].map(|of| number(of).map(|ttl| ttl as u8));
        let ttls = ttls[0].map(|least| [least, ttls[1].unwrap()]);
        let seen = (flow, from, counts[0], counts[1], node);
        assert_eq!(self.flows.insert(seen, ttls), None, "twice");
    }
}

/// A capture of these messages, each in a UDP datagram.
fn capture(folder: &Path, messages: &[Vec<u8>]) -> PathBuf {
    let path = folder.join("messages.pcap");
    let mut writer = PcapWriter::new(File::create(&path).unwrap()).unwrap();
    for (at, message) in (1..).zip(messages) {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((message.len() as u16 + 28).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        frame.extend([4739_u16, 4739, message.len() as u16 + 8, 0].map(u16::to_be_bytes).concat());
        frame.extend(message);
        writer.write(at, frame.len() as u32, &frame).unwrap();
    }
    writer.finish().unwrap();
    path
}
