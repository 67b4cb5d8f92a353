//! The INT stacks of a capture.

use std::path::PathBuf;
use std::process::Command;

use calumma_plane::int::UNKNOWN;
use calumma_testbed::capture::PcapWriter;
use calumma_testbed::stacks::{PacketStack, stack_of, write_all};
use calumma_testenv::has_program;
use serde_json::Value;

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// A packet as it comes to a sink, its hops, whether others may be missing, and as it goes on.
type Golden = (Vec<u8>, Vec<(u32, u32)>, bool, Vec<u8>);

/// The packets that the switch is tried with, which were made by hand: each that a sink strips,
/// as it comes there, with the hops that it has, and as it goes on.
fn golden() -> Vec<Golden> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../dataplane/edge/tests/golden/int.json");
    let all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    for case in all.as_array().unwrap() {
        let mut before = bytes(&case["before"]);
        for step in case["steps"].as_array().into_iter().flatten() {
            let after = step.get("after").map_or_else(|| before.clone(), bytes);
            if let Some(hops) = step["hops"].as_array().filter(|_| step["do"] == "strip") {
                let number = |of: &Value| of.as_u64().unwrap() as u32;
                let hops = hops.iter().map(|hop| (number(&hop[0]), number(&hop[1]))).collect();
                packets.push((before, hops, step["partial"] == true, after.clone()));
            }
            before = after;
        }
    }
    packets
}

/// A capture of these packets as they come to a sink and as they go on, two after each other.
fn capture(name: &str, golden: &[Golden]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("calumma-{name}-{}.pcap", std::process::id()));
    let mut writer = PcapWriter::new(std::fs::File::create(&path).unwrap()).unwrap();
    for (at, (packet, _, _, stripped)) in (1..).zip(golden) {
        writer.write(at, packet.len() as u32, packet).unwrap();
        writer.write(at, stripped.len() as u32, stripped).unwrap();
    }
    writer.finish().unwrap();
    path
}

#[test]
fn a_capture_is_read_packet_by_packet_and_what_has_no_stack_says_why() {
    let golden = golden();
    assert!(golden.len() >= 5, "{}", golden.len());
    let path = capture("int", &golden);
    let mut out = Vec::new();
    write_all(&path, &mut out).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<PacketStack> = out
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2 * golden.len());
    for (pair, (_, hops, partial, _)) in lines.chunks(2).zip(&golden) {
        let stack = pair[0].stack.as_ref().unwrap();
        let read = stack.hops.iter().map(|hop| (hop.node, hop.latency_ns.unwrap_or(UNKNOWN)));
        assert_eq!((&read.collect::<Vec<_>>(), stack.partial), (hops, *partial));
        let original = [stack.dscp.is_some(), stack.original_port.is_some()];
        let is_one = original != [true; 2] && original.contains(&stack.original_protocol.is_none());
        assert!(is_one, "{stack:?}");
        assert_eq!(pair[1].stack, None);
        // The DSCP of some hosts has bit 4 set as well.
        let why = pair[1].none.as_deref().unwrap();
        assert!(why.starts_with("bit 4") || why.ends_with("no shim and header"), "{why}");
    }
    assert_eq!(stack_of(&[0; 60], 60), Err("it is no IP packet"));
    let (mut foreign, ..) = golden[0].clone();
    foreign[54] = 0;
    let why = stack_of(&foreign, foreign.len()).unwrap_err();
    assert_eq!(why, "what stands behind its L4 header is no shim and header");
}

/// The dissector of Wireshark shows what is read here, on the same packets.
#[test]
fn wireshark_shows_every_stack_hop_by_hop() {
    if !has_program("tshark", "tshark") {
        return;
    }
    let golden = golden();
    let path = capture("wireshark", &golden);
    let script =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/wireshark/calumma_int.lua").to_owned();
    let fields = [
        "domain",
        "dscp",
        "original_port",
        "original_protocol",
        "instructions",
        "remaining",
        "node",
        "latency",
    ];
    let fields = fields.into_iter().chain(["mtu_exceeded", "hops_exceeded"]);
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-X")
        .arg(format!("lua_script:{script}"))
        .arg("-r")
        .arg(&path)
        .args(["-T", "fields"]);
    for field in fields {
        tshark.arg("-e").arg(format!("calumma_int.{field}"));
    }
    let output = tshark.output().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2 * golden.len(), "{shown}");
    for (pair, (packet, hops, partial, _)) in lines.chunks(2).zip(&golden) {
        let read = stack_of(packet, packet.len()).unwrap();
        let newest_first = |of: fn(&(u32, u32)) -> u32| {
            hops.iter().rev().map(of).map(|number| number.to_string()).collect::<Vec<_>>().join(",")
        };
        let expected = [
            format!("0x{:04x}", read.domain),
            read.dscp.map_or_else(String::new, |dscp| dscp.to_string()),
            read.original_port.map_or_else(String::new, |port| port.to_string()),
            read.original_protocol.map_or_else(String::new, |protocol| protocol.to_string()),
            format!("0x{:04x}", read.instructions),
            read.remaining.to_string(),
            newest_first(|hop| hop.0),
            newest_first(|hop| hop.1),
        ];
        let shown: Vec<&str> = pair[0].split('\t').collect();
        assert_eq!(shown[..expected.len()], expected);
        assert_eq!(shown[expected.len()..].contains(&"1"), *partial, "M or E");
        assert_eq!(pair[1].replace('\t', ""), "", "it has been taken out");
    }
}
