//! What hosts' receive offload (GRO) makes of packets, by the carrier of their marks: the kernel
//! merges TCP segments that follow one another where their identifications allow it.

use std::path::Path;
use std::process::Command;

use crate::machine::{alone, unless_torn};
use calumma_testbed::live::Live;
use calumma_testbed::scenario::{Scenario, play_in};

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");

/// What the kernel of the host that TCP was sent to counted.
#[derive(Debug)]
struct Received {
    /// Packets as they came.
    packets: u64,
    /// Those that were handed up to IP, each one packet or several merged.
    handed_up: u64,
    /// TCP packets of these, and those with identification 0.
    tcp: u64,
    without_identification: u64,
}

impl Received {
    /// Packets as they came for each that was handed up.
    fn merged(&self) -> f64 {
        self.packets as f64 / self.handed_up as f64
    }
}

fn run_in(namespace: &str, command: &[&str]) -> Option<String> {
    let within = ["netns", "exec", namespace];
    let output = Command::new("ip").args(within).args(command).output().expect("ip runs");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The namespaces of this process's hosts, which receive with GRO from now on.
fn receiving_with_gro() -> Vec<String> {
    let list = Command::new("ip").args(["netns", "list"]).output().expect("ip runs");
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let ours = format!("calumma-{}-", std::process::id());
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let is_host = |name: &&str| {
        let gro = ["ethtool", "-K", "eth0", "gro", "on"];
        name.starts_with(&ours) && run_in(name, &gro).is_some()
    };
    let hosts: Vec<String> = names.filter(is_host).map(str::to_owned).collect();
    for host in &hosts {
        // A wire of the kernel hands packets over one by one, each of which would end the merging.
        let wait = "echo 1000000 > /sys/class/net/eth0/gro_flush_timeout";
        run_in(host, &["sh", "-c", wait]).expect("a time for which segments wait for others");
        let rules = "add table ip gro; add counter ip gro segments; \
                     add counter ip gro unnumbered; \
                     add chain ip gro arrivals { type filter hook input priority 0; }; \
                     add rule ip gro arrivals ip protocol tcp counter name segments; \
                     add rule ip gro arrivals ip protocol tcp ip id 0 counter name unnumbered";
        run_in(host, &["nft", rules]).expect("rules that count");
    }
    hosts
}

/// A field of `/proc/net/snmp` or `/proc/net/netstat`.
fn counted(text: &str, protocol: &str, field: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(&format!("{protocol}: ")));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    let value = both.find_map(|(name, value)| (name == field).then_some(value));
    value.and_then(|value| value.parse().ok()).expect("a number")
}

fn counted_by(host: &str, counter: &str) -> u64 {
    let text = run_in(host, &["nft", "list", "counter", "ip", "gro", counter]).expect("a counter");
    let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).and_then(|packets| packets.parse().ok()).expect("packets")
}

fn received(host: &str) -> Received {
    let of_ip = run_in(host, &["cat", "/proc/net/snmp"]).expect("counters");
    let more = run_in(host, &["cat", "/proc/net/netstat"]).expect("counters");
    let fields = ["InNoECTPkts", "InECT1Pkts", "InECT0Pkts", "InCEPkts"];
    Received {
        packets: fields.iter().map(|field| counted(&more, "IpExt", field)).sum(),
        handed_up: counted(&of_ip, "Ip", "InReceives"),
        tcp: counted_by(host, "segments"),
        without_identification: counted_by(host, "unnumbered"),
    }
}

/// Sends TCP from a host behind one edge to one behind another.
fn sent_by(carrier: &str) -> Received {
    let text = format!(
        "title = 'gro'\nepochs = 120\ntopology = 'pair'\ncarrier = '{carrier}'\n\
         [traffic.none]\nflows = 0\n\
         [[application]]\nkind = 'tcp'\nfrom = 'e1'\nto = 'e2'\nmbit = 200\n"
    );
    let scenario = Scenario::parse(&text, Path::new(".")).expect("a scenario");
    let mut live = Live::start(&scenario, Path::new(TESTBED)).expect("the fabric comes up");
    let hosts = receiving_with_gro();
    assert!(hosts.len() >= 2, "{hosts:?}");
    let played = play_in(&mut live, &scenario, |_, _| Ok(())).expect("the scenario is played");
    let wrong: Vec<_> = played.contradictions().collect();
    assert!(wrong.is_empty(), "{wrong:?}, {:?}", played.doubts);
    let received = hosts.iter().map(|host| received(host)).max_by_key(|of| of.packets);
    received.expect("hosts")
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn segments_marked_in_the_identification_are_merged_as_others_are() {
    let _alone = alone();
    let sent_by_both = || {
        let [tos, ip_id] = ["tos", "ip-id"].map(sent_by);
        println!(
            "tos: {tos:?}, {:.2} merged; ip-id: {ip_id:?}, {:.2} merged",
            tos.merged(),
            ip_id.merged()
        );
        assert!(tos.packets > 20_000 && ip_id.packets > 20_000, "{tos:?}, {ip_id:?}");
        // By ToS, hosts' own identifications arrive; by the other carrier none.
        assert!(tos.without_identification * 2 < tos.tcp, "{tos:?}");
        assert_eq!(ip_id.without_identification, ip_id.tcp, "{ip_id:?}");
        [tos, ip_id].map(|of| of.merged())
    };
    // Segments wait for others for a millisecond, in which the machine may do something else.
    let too_few = |&[tos, ip_id]: &[f64; 2]| {
        let are_merged = tos > 1.2 && ip_id > 0.7 * tos;
        (!are_merged).then(|| format!("tos: {tos:.2} merged; ip-id: {ip_id:.2}"))
    };
    let merged = unless_torn(sent_by_both, too_few);
    assert_eq!(too_few(&merged), None);
}
