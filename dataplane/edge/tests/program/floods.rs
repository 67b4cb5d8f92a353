//! A host floods a routed edge over a port of its own, as fast as the edge takes packets: the pings
//! of Linux hosts on other ports are all answered.
//!
//! ```text
//! frames without end ── e1 ── h2
//!                h1 ─────┘
//! ```

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::time::Instant;

use calumma_testenv::Namespace;
use etherparse::{ArpEthIpv4Packet, ArpOperation, PacketBuilder};

use crate::common::{Folder, totals, wait_until};
use crate::pcap_port::pcap;

/// What `net_pcap` gives its first port.
const MAC: [u8; 6] = [2, 0x70, 0x63, 0x61, 0x70, 0];

/// Pings in a flood, and how many a second.
const PINGS: u32 = 600;
const INTERVAL: &str = "0.002";

/// The address of a flooding host, of which it has as many as it likes.
fn attacker(number: u32) -> [u8; 6] {
    let [.., high, low] = number.to_be_bytes();
    [2, 0xBA, 0xD0, 0, high, low]
}

fn udp(to: [u8; 4], ports: (u16, u16), ttl: u8) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(attacker(0), MAC).ipv4([10, 3, 0, 2], to, ttl);
    let mut frame = Vec::new();
    builder.udp(ports.0, ports.1).write_to_vec(&mut frame, &[0xAB; 18]).unwrap();
    frame
}

/// The question of a host that is not there for the edge's own address.
fn forged(number: u32) -> Vec<u8> {
    let from = attacker(number);
    let [.., low] = number.to_be_bytes();
    let question = ArpEthIpv4Packet {
        operation: ArpOperation::REQUEST,
        sender_mac: from,
        sender_ipv4: [10, 3, 0, low.max(3)],
        target_mac: [0; 6],
        target_ipv4: [10, 3, 0, 1],
    };
    [&[0xFF; 6][..], &from, &[8, 6], &question.to_bytes(), &[0; 18]].concat()
}

/// A process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// Floods an edge with these frames, over and over, while hosts ping, and prints how many of them
/// it received a second. Gives what the edge counted.
fn flood(name: &str, frames: &[Vec<u8>]) -> BTreeMap<String, u64> {
    let folder = Folder::new(&format!("flood-{name}"));
    let [h1, e1, h2] = ["h1", "e1", "h2"].map(|of| Namespace::new(&format!("flood-{name}"), of));
    h1.wire("eth0", &e1, "h1");
    h2.wire("eth0", &e1, "h2");
    for (host, n) in [(&h1, 1), (&h2, 2)] {
        host.script(&format!(
            "ip address add 10.{n}.0.2/24 dev eth0
             ip route add default via 10.{n}.0.1"
        ));
    }
    let flood = folder.write("flood.pcap", pcap(frames));
    let ports = ["net_pcap0", "net_af_packet0", "net_af_packet1"];
    let interface = |(port, n): (&str, u8)| {
        format!("[[forwarding.interface]]\nport = '{port}'\naddresses = ['10.{n}.0.1/24']\n")
    };
    let config = format!(
        "name = 'e1'\ncontroller = '127.0.0.1:9'\n{}\
         [polling]\nidle_sleep_us = 20\n[forwarding]\nmode = 'routed'\n{}",
        ports.map(|port| format!("[[port]]\nname = '{port}'\nrole = 'host'\n")).concat(),
        ports.into_iter().zip([3, 1, 2]).map(interface).collect::<String>(),
    );
    let config = folder.write("edge.toml", config);
    let (stats, log) = (folder.file("stats.json"), folder.file("log"));
    let written = std::fs::File::create(&log).unwrap();
    let mut command: Command = e1.command(env!("CARGO_BIN_EXE_calumma-edge"));
    command.args(["--config", &config, "--stats", &stats, "--", "--no-huge", "-m", "512"]);
    command.args(["--no-pci", "--no-shconf", "--no-telemetry", "--lcores=0@0"]);
    command.arg(format!("--vdev=net_pcap0,rx_pcap={flood},infinite_rx=1"));
    for (at, host) in ["h1", "h2"].into_iter().enumerate() {
        let device = format!("net_af_packet{at},iface={host}");
        command.arg(format!("--vdev={device},framesz=2048,framecnt=4096,blocksz=4096"));
    }
    let edge = command.stdout(written.try_clone().unwrap()).stderr(written).spawn().unwrap();
    let mut edge = Killed(edge);
    let logged = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the edge to forward", || logged().contains("forwarding"));
    let begun = Instant::now();

    let ping = |to: &str, pings: u32| {
        let mut ping: Command = h1.command("ping");
        ping.args(["-q", "-i", INTERVAL, "-W", "5", "-c", &pings.to_string(), to]);
        let output = ping.output().expect("ping runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Found amid the flood, and from then on every one is answered: by a host, and by the edge.
    wait_until("the first answer", || ping("10.2.0.2", 1).contains("1 received"));
    for to in ["10.2.0.2", "10.1.0.1"] {
        let said = ping(to, PINGS);
        assert!(said.contains(&format!("{PINGS} received")), "{name}, to {to}: {said}");
    }
    let seconds = begun.elapsed().as_secs_f64();

    calumma_testenv::run(&format!("kill -TERM {}", edge.0.id()));
    assert!(edge.0.wait().unwrap().success(), "{}", logged());
    let totals = totals(stats);
    let flooded = totals["port.net_pcap0.rx_packets"];
    assert!(flooded > 100 * u64::from(PINGS), "that is no flood: {totals:#?}");
    let sum = |prefix: &str| -> u64 {
        totals.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, n)| n).sum()
    };
    let came = sum("received.") + totals["slow_path.made"];
    let went = totals["transmitted"] + sum("dropped.") + totals["slow_path.taken"];
    assert_eq!(came, went, "{totals:#?}");
    assert_eq!(totals["mbufs.lost"], 0, "{totals:#?}");
    let mpps = flooded as f64 / seconds / 1e6;
    println!("{name}: {mpps:.2} million packets a second, {} pings answered", 2 * PINGS);
    totals
}

#[test]
#[ignore = "end to end: needs root, DPDK and ping; `cargo xtask test` runs it"]
fn no_ping_is_lost_while_a_host_floods_the_edge_over_another_port() {
    let expired: Vec<_> = (0..512).map(|n| udp([10, 2, 0, 2], (4000 + n, 5000), 1)).collect();
    let totals = flood("expired", &expired);
    assert!(totals["icmp_errors.withheld"] > 0, "{totals:#?}");

    // Each a new flow, and most to addresses that nobody has.
    let to = |n: u16| [10, 2, 0, (3 + n % 250) as u8];
    let new: Vec<_> = (0..8192).map(|n| udp(to(n), (n, 5000 + n % 7), 64)).collect();
    let totals = flood("new", &new);
    assert!(totals["dropped.neighbour_queue_full"] > 0, "{totals:#?}");

    let forged: Vec<_> = (0..4096).map(forged).collect();
    let totals = flood("forged", &forged);
    assert!(totals["dropped.slow_path_full"] > 0, "{totals:#?}");
}
