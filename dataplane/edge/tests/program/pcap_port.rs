//! The switch as a program, between two `net_pcap` ports: packets of every kind go in on the host's
//! side and come out on the fabric's side, counted by kind.

use std::collections::BTreeMap;
use std::fs;

use crate::common::{EAL, Edge, Folder, free_address, status_when, totals};

const SNAP: usize = 2000;

/// A capture of these frames.
pub(crate) fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xA1B2_C3D4, 2 | 4 << 16, 0, 0, SNAP as u32, 1] {
        bytes.extend_from_slice(&u32::to_le_bytes(word));
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            bytes.extend_from_slice(&u32::to_le_bytes(word));
        }
        bytes.extend_from_slice(frame);
    }
    bytes
}

fn frames(pcap: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = &pcap[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    frames
}

/// An Ethernet frame of a type with some payload.
fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend_from_slice(&ether_type.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// An IPv4/UDP packet whose first byte, total length and fragment field are as given.
fn udp(first: u8, total_len: u16, fragment: u16) -> Vec<u8> {
    let [high, low] = total_len.to_be_bytes();
    let [fragment_high, fragment_low] = fragment.to_be_bytes();
    let mut packet = vec![first, 0, high, low, 0, 0, fragment_high, fragment_low, 64, 17, 0, 0];
    packet.extend_from_slice(&[10, 1, 0, 2, 10, 2, 0, 2, 0x9C, 0x40, 0x14, 0x51, 0, 20, 0, 0]);
    packet.resize(46, 0xAB);
    packet
}

/// An IPv6/UDP packet of 60 bytes whose payload length is as given.
fn udp6(payload_len: u16) -> Vec<u8> {
    let [high, low] = payload_len.to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, high, low, 17, 64];
    packet.extend_from_slice(&[0xFD; 32]);
    packet.extend_from_slice(&[0x9C, 0x40, 0x14, 0x51, 0, 20, 0, 0]);
    packet.resize(60, 0xAB);
    packet
}

/// Each with the counter it must raise.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let vlan = |tags: usize| {
        let inner = ethernet(0x0800, &udp(0x45, 40, 0));
        (0..tags).fold(inner, |frame, _| {
            let mut tagged = frame[..12].to_vec();
            tagged.extend_from_slice(&[0x81, 0, 0, 7]);
            tagged.extend_from_slice(&frame[12..]);
            tagged
        })
    };
    vec![
        ("ingress.unrecorded", ethernet(0x0800, &udp(0x45, 40, 0))),
        ("ingress.unrecorded", ethernet(0x0800, &udp(0x45, 40, 0x2000))),
        ("ingress.unrecorded", ethernet(0x0800, &udp(0x45, 40, 0x0010))),
        ("ingress.unrecorded", vlan(1)),
        ("ingress.unrecorded", vlan(2)),
        ("unmeasured.not_ip", vlan(3)),
        ("unmeasured.not_ip", ethernet(0x0806, &[0; 46])),
        ("unmeasured.not_ip", ethernet(0x0026, &[0xAA; 46])),
        ("unmeasured.ipv6", ethernet(0x86DD, &udp6(20))),
        ("malformed.ipv6_payload_length", ethernet(0x86DD, &udp6(2000))),
        ("malformed.ethernet_truncated", vec![2; 13]),
        ("malformed.vlan_truncated", ethernet(0x8100, &[0, 7])),
        ("malformed.ipv4_truncated", ethernet(0x0800, &udp(0x45, 40, 0)[..19])),
        ("malformed.ipv4_version", ethernet(0x0800, &udp(0x65, 40, 0))),
        ("malformed.ipv4_header_length", ethernet(0x0800, &udp(0x44, 40, 0))),
        ("malformed.ipv4_total_length", ethernet(0x0800, &udp(0x45, 400, 0))),
        ("malformed.ipv4_total_length", ethernet(0x0800, &udp(0x4F, 40, 0))),
        ("malformed.ports_truncated", ethernet(0x0800, &udp(0x45, 22, 0))),
    ]
}

/// What came out of the switch.
struct Run {
    /// On the fabric's side.
    fabric: Vec<Vec<u8>>,
    /// On the hosts' side.
    host: Vec<Vec<u8>>,
    totals: BTreeMap<String, u64>,
}

/// Runs the switch with these sections in its configuration on packets from each side.
fn run(folder: &Folder, sections: &str, from_host: &[Vec<u8>], from_fabric: &[Vec<u8>]) -> Run {
    let mut eal: Vec<String> = EAL.map(str::to_owned).into();
    eal.push("--lcores=0@0".to_owned());
    for (port, side, packets) in [(0, "host", from_host), (1, "fabric", from_fabric)] {
        let rx = folder.write(&format!("{side}.pcap"), pcap(packets));
        let tx = folder.file(&format!("to_{side}.pcap"));
        eal.push(format!("--vdev=net_pcap{port},rx_pcap={rx},tx_pcap={tx}"));
    }
    let metrics = free_address();
    let config = format!(
        "name = 'e1'\ncontroller = '127.0.0.1:9'\n{sections}\n\
         [metrics]\nlisten = '{metrics}'\n\
         [[port]]\nname = 'net_pcap0'\nrole = 'host'\npeer = 'net_pcap1'\n\
         [[port]]\nname = 'net_pcap1'\nrole = 'fabric'\npeer = 'net_pcap0'\n"
    );
    let config = folder.write("edge.toml", config);
    let stats = folder.file("stats.json");
    let edge = Edge::start(&["--config", &config, "--stats", &stats], &eal);
    let all = [from_host.len() as u64, from_fabric.len() as u64];
    status_when(&metrics, |status| {
        // The first status is empty.
        let received = ["received.host", "received.fabric"].map(|name| status.counters.get(name));
        received.map(|packets| packets.copied().unwrap_or_default()) == all
    });
    edge.signal("INT");
    let (status, said) = edge.ended();
    assert!(status.success(), "{said}");

    let out = |side: &str| frames(&fs::read(folder.file(&format!("to_{side}.pcap"))).unwrap());
    Run { fabric: out("fabric"), host: out("host"), totals: totals(stats) }
}

#[test]
fn packets_of_every_kind_pass_or_are_dropped_as_configured_and_are_counted_by_kind() {
    let folder = Folder::new("edge-pcap");
    let kinds = kinds();
    let input: Vec<Vec<u8>> = kinds.iter().map(|(_, frame)| frame.clone()).collect();
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for (counter, _) in &kinds {
        *counted.entry(counter).or_default() += 1;
    }

    let ipv4 = "[measure]\nkeys = 'ipv4'";
    let Run { fabric: out, totals, .. } = run(&folder, ipv4, &input, &[]);
    assert_eq!(out, input, "without a controller nothing is marked, and by default all pass");
    for (counter, packets) in &counted {
        assert_eq!(totals[*counter], *packets, "{counter}");
    }
    assert_eq!(totals["received.host"], input.len() as u64);
    assert_eq!(totals["transmitted"], input.len() as u64);

    let strict = "[policy]\nmalformed = 'drop'\nunmeasured = 'drop'\n[measure]\nkeys = 'ipv4'";
    let Run { fabric: out, totals, .. } = run(&folder, strict, &input, &[]);
    let measurable: Vec<_> =
        kinds.iter().filter(|(kind, _)| *kind == "ingress.unrecorded").collect();
    assert_eq!(out.len(), measurable.len());
    assert_eq!(totals["dropped.malformed"], 9);
    assert_eq!(totals["dropped.unmeasured"], 4);
    let dropped = totals["dropped.malformed"] + totals["dropped.unmeasured"];
    assert_eq!(totals["received.host"], totals["transmitted"] + dropped);
}

#[test]
fn a_shim_goes_in_and_out_of_mbufs_without_a_trace() {
    let folder = Folder::new("edge-shim");
    let kinds = kinds();
    let input: Vec<Vec<u8>> = kinds.iter().map(|(_, frame)| frame.clone()).collect();
    let section = "[carrier]\nkind = 'shim'\n[measure]\nkeys = 'ipv4'";
    let Run { fabric: marked, .. } = run(&folder, section, &input, &[]);
    for ((kind, frame), marked) in kinds.iter().zip(&marked) {
        let shim = if *kind == "ingress.unrecorded" { 4 } else { 0 };
        assert_eq!(marked.len(), frame.len() + shim, "{kind}");
    }
    let Run { host: restored, .. } = run(&folder, section, &[], &marked);
    assert_eq!(restored, input);
}
