//! Telemetry reports as others read them: Wireshark's dissector, and what the testbed reads by.

use std::process::Command;

use calumma_testbed::capture::PcapWriter;
use calumma_testbed::collected::{Collected, Report};
use calumma_testenv::has_program;
use serde_json::Value;

/// Where the datagrams are sent in captures.
const PORT: u16 = 32_766;

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// The datagrams by which the switch is tried, made by hand.
fn golden() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../plane/tests/golden/reports.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The specification's example of a stack in a packet of TCP, with numbers for names: the sink's
/// queue occupancy, a stack behind UDP, no domain. Marker and shim are those of this network.
fn example() -> Vec<u8> {
    let words: [u32; 26] = [
        0x2000_0007,
        3, // version 2, number 7, switch 3
        0x1417_0120,
        0x1000_0000,
        0,
        33, // 23 words, one of metadata: queue occupancy
        0x4510_0050,
        0x0001_4000,
        0x4011_0000,
        0x0A00_0001,
        0x0A00_0002, // IPv4, 68 bytes
        0x9C40_1451,
        0x003C_0000, // UDP
        0x1007_0000,
        0x2000_0206,
        0x9000_0000,
        0, // shim and header
        2,
        22,
        1,
        11, // the last hop first
        0x9C40_1451,
        1,
        2,
        0x5018_0400,
        0, // TCP
    ];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A datagram as the kernel sends it.
fn framed(datagram: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let len = (datagram.len() + 28) as u16;
    frame.extend([0x45, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    frame.extend(40_000_u16.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend((len - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(datagram);
    frame
}

#[test]
fn what_the_testbed_reads_is_what_was_written_by_hand() {
    for case in golden() {
        let read = Collected::read(&bytes(&case["datagram"])).unwrap();
        let group = &case["group"];
        assert_eq!(Value::from(read.hardware), group["hardware"]);
        assert_eq!(Value::from(read.sequence), group["sequence"]);
        assert_eq!(Value::from(read.node), group["node"]);
        let wanted = case["reports"].as_array().unwrap();
        assert_eq!(read.reports.len(), wanted.len());
        for (report, of) in read.reports.iter().zip(wanted) {
            let Report { reasons, dropped, congested, tracked, inflated, .. } = report;
            let named: Vec<Value> = reasons.iter().map(|name| (*name).into()).collect();
            assert_eq!(Value::from(named), of["reasons"]);
            assert_eq!((*dropped, *tracked), (of["dropped"] == true, of["stack"] == true));
            assert_eq!(*congested, reasons.contains(&"inflated"));
            let pair = inflated.map(|(node, ns)| Value::from(vec![node, ns]));
            assert_eq!(pair.unwrap_or_default(), of["inflated"]);
            let latency = report.latency_ns.map(Value::from).unwrap_or_default();
            assert_eq!(
                (latency, &Value::from(report.domain)),
                (of["latency_ns"].clone(), &of["domain"])
            );
            let times = [report.ingress_ns, report.egress_ns]
                .map(|ns| ns.map(Value::from).unwrap_or_default());
            assert_eq!(times, [of["ingress_ns"].clone(), of["egress_ns"].clone()]);
            let kept = of["kept"].as_u64().unwrap() as usize;
            assert_eq!(report.packet, bytes(&of["packet"])[..kept]);
            let hops: Vec<Value> =
                report.hops.iter().map(|hop| vec![hop.0, hop.1].into()).collect();
            assert_eq!(Value::from(hops), of["hops"]);
        }
    }
    let whole = bytes(&golden()[0]["datagram"]);
    for cut in 0..whole.len() {
        assert!(Collected::read(&whole[..cut]).is_err(), "{cut} bytes");
    }
    let mut other = whole;
    other[0] = 0x10;
    assert_eq!(Collected::read(&other).unwrap_err(), "version 1");
}

/// The dissector of Wireshark shows what was written by hand, and a report of another maker.
#[test]
fn wireshark_shows_every_report_and_its_stack() {
    if !has_program("tshark", "tshark") {
        return;
    }
    let mut datagrams: Vec<Vec<u8>> = golden().iter().map(|of| bytes(&of["datagram"])).collect();
    datagrams.push(example());
    let name = format!("calumma-reports-{}.pcap", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut writer = PcapWriter::new(std::fs::File::create(&path).unwrap()).unwrap();
    for (at, datagram) in (1..).zip(&datagrams) {
        let frame = framed(datagram);
        writer.write(at, frame.len() as u32, &frame).unwrap();
    }
    // What is cut short anywhere must not stop the dissector.
    let cut: Vec<Vec<u8>> =
        (0..datagrams[1].len()).map(|len| framed(&datagrams[1][..len])).collect();
    for frame in &cut {
        writer.write(99, frame.len() as u32, frame).unwrap();
    }
    writer.finish().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/wireshark/calumma_int.lua");
    let of_report = "hardware sequence node inner length metadata_length dropped congested \
                     tracked_flow reason.inflated reason.path_change reason.loop \
                     reason.heavy_hitter reason.tracked inflated_node inflated_latency latency \
                     queue_occupancy egress_time src src6";
    let mut tshark = Command::new("tshark");
    tshark.arg("-X").arg(format!("lua_script:{script}")).arg("-r").arg(&path);
    tshark.args(["-d", &format!("udp.port=={PORT},calumma_report"), "-T", "fields"]);
    for field in of_report.split(' ') {
        tshark.arg("-e").arg(format!("calumma_report.{field}"));
    }
    for field in ["calumma_int.node", "_ws.lua.error", "_ws.malformed"] {
        tshark.arg("-e").arg(field);
    }
    let output = tshark.output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let shown = String::from_utf8(output.stdout).unwrap();
    let shown = shown.replace('\t', " ");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), datagrams.len() + cut.len());
    let of_golden = [
        "0 5 9 4 30 4 0 1 1 1 0 0 0 0 2 4294967294 3000   10.1.0.2  3,2,1  ",
        "63 4194303 65535 5,5 31,26 6,1 1,0 0,0 1,1 0,0 1,0 0,1 0,0 0,1   4294967294  \
         1234605616436508569  fd00:1::2,fd00:1::2 3,2,1,3,2,1  ",
        "1 0 1 4 11 2 0 0 0 0 0 0 1 0   0   10.1.0.2    ",
        "0 7 3 4 23 1 0 0 1         33  10.0.0.1  2,1  ",
    ];
    assert_eq!(lines[..datagrams.len()], of_golden);
    for line in &lines[datagrams.len()..] {
        assert!(line.ends_with("  "), "no error and nothing malformed: {line}");
    }
    assert!(!errors.contains("Lua"), "{errors}");
}
