//! The demo: two edge switches and the controller, as an operator runs them, with real traffic.

use std::fs;
use std::path::Path;

use calumma_chamelemon_analysis::ChameleMon;
use calumma_testbed::demo::{self, Demo, Network};
use calumma_testbed::fabric::Tunnel;
use calumma_testbed::traffic::Mix;

use crate::machine::{alone, unless_torn};

const TESTBED: &str = env!("CARGO_BIN_EXE_calumma-testbed");

/// With marks in the ToS byte, and where edges' files name no carrier. Routers also mirror all
/// packets to where no edge is, and nobody sees that.
#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn reported_losses_equal_the_kernels_count_for_every_flow_of_both_families() {
    for (carrier, ipv6) in [(Some("tos"), false), (Some("tos"), true), (None, true)] {
        let carrier = carrier.map(str::to_owned);
        let network = Network { loss_permille: 10, carrier, mirrors: true, ..Network::default() };
        let demo = reports_what_the_kernel_counts(&network, ipv6);
        // Each packet passes two routers.
        let entered = demo.passage.hops[0].entered;
        assert!(demo.mirrored > entered, "{} copies, {entered} entered", demo.mirrored);
    }
}

/// Routers that set the DSCP to 0, as most networks do where they trust no host, leave alone what
/// the identification and the flow label carry, whether files say it or the controller chooses it
/// since they name no carrier.
#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn where_routers_clear_the_dscp_losses_equal_the_kernels_count_by_ip_id() {
    for (carrier, ipv6) in [(None, false), (Some("ip-id"), true)] {
        let carrier = carrier.map(str::to_owned);
        let network =
            Network { loss_permille: 10, carrier, clears_dscp: true, ..Network::default() };
        reports_what_the_kernel_counts(&network, ipv6);
    }
}

/// Routers put all packets into Ethernet in UDP, or IP into IPv6, and take them out before the far
/// edge.
#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn where_routers_tunnel_losses_equal_the_kernels_count() {
    for (tunnel, carrier, ipv6) in
        [(Tunnel::Vxlan, "tos", false), (Tunnel::Srv6, "ip-id", false), (Tunnel::Srv6, "tos", true)]
    {
        let (carrier, tunnel) = (Some(carrier.to_owned()), Some(tunnel));
        let network = Network { loss_permille: 10, carrier, tunnel, ..Network::default() };
        let demo = reports_what_the_kernel_counts(&network, ipv6);
        // Nothing goes around it: of each direction all that a router sent the other.
        let hops = demo
            .passage
            .hops
            .iter()
            .filter(|hop| ["r1f > r2f", "r2f > r1f"].contains(&hop.name.as_str()));
        let between: u64 = hops.map(|hop| hop.left).sum();
        assert!(demo.tunnelled == between && between > 10_000, "{} of {between}", demo.tunnelled);
    }
}

fn reports_what_the_kernel_counts(network: &Network, ipv6: bool) -> Demo {
    let _alone = alone();
    let out = std::env::temp_dir().join(format!("calumma-demo-{}", std::process::id()));
    let mix = Mix { seconds: 4, tcp_mbit: 200, udp_mbit: 50, connections: 200, ipv6 };
    let run = || {
        let _ = fs::remove_dir_all(&out);
        demo::run(&ChameleMon, &mix, network, Path::new(TESTBED), &out).expect("the demo runs")
    };
    // Epochs are incomplete then, or packets late by an epoch, of which reports say that they may
    // be lost or not.
    let demo = unless_torn(run, |demo| {
        let comparison = &demo.comparison;
        let is_torn =
            !comparison.incomplete.is_empty() || !demo.is_equal() && comparison.inexact > 0;
        is_torn.then(|| demo.to_text())
    });
    assert!(demo.is_equal(), "{}", demo.to_text());
    assert!(demo.passage.only_routers_dropped(), "{}", demo.to_text());
    let rows = &demo.comparison.rows;
    assert!(rows.len() > 20, "{}", demo.to_text());
    let large = |proto| {
        let flows = rows.iter().filter(|row| row.flow.proto == proto && row.kernel > 50);
        flows.map(|row| row.flow.src.is_ipv6()).collect::<Vec<_>>()
    };
    for proto in [6, 17] {
        assert!(large(proto).contains(&ipv6), "{}", demo.to_text());
    }
    assert!(out.join("epochs.jsonl").exists() && out.join("truth.json").exists());
    fs::remove_dir_all(out).expect("what the demo wrote can be removed");
    demo
}
