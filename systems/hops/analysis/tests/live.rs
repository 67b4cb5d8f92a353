//! `hops` on real switches: two edges and a transit between them, each a process, and the
//! controller. Hosts and routers are Linux's; nftables drops packets before the transit and behind
//! it, and logs each. What `hops` and ChameleMon report is held against that log, in which nothing
//! of ours has a part.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use calumma_analysis::{Flow, Report, SystemReport};
use calumma_chamelemon_analysis::ChameleMon;
use calumma_hops_analysis::{Count, Found, Hops};
use calumma_testbed::demo;
use calumma_testbed::live::Live;
use calumma_testbed::scenario::{Scenario, play_in};
use calumma_testbed::simulate::EpochTruth;
use calumma_testbed::system::{Reported, System, Systems};
use calumma_testbed::topology::{Point, Segment, Topology};
use calumma_testbed::traffic::Mix;

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../testbed/scenarios/live");

static SYSTEMS: Systems = &[&ChameleMon, &HeldHops];

/// `hops`, whose reports are held against what happened.
#[derive(Debug)]
struct HeldHops;

impl System for HeldHops {
    fn listed(&self) -> &'static dyn calumma_analysis::System {
        &Hops
    }

    fn on_tofino(&self) -> Option<&'static dyn calumma_switchd::system::System> {
        Some(&calumma_hops_tofino::Hops::ON_TRANSITS)
    }

    fn reported(&self, report: &dyn Report) -> Option<Reported> {
        let report = report.as_type::<SystemReport<Found>>()?;
        let counts = &report.findings.counts;
        let exact =
            report.complete && counts.iter().all(|count| count.at_most == Some(count.packets));
        let mut lost: BTreeMap<Flow, i64> = BTreeMap::new();
        for Count { side, flow, packets, .. } in counts.iter().filter(|_| exact) {
            let packets = match side.as_str() {
                "ingress" => *packets as i64,
                "egress" => -(*packets as i64),
                _ => continue,
            };
            *lost.entry(*flow).or_default() += packets;
        }
        lost.retain(|_, packets| *packets != 0);
        let nodes = report.findings.nodes.iter();
        let line = nodes.map(|of| format!("{} {} {}", of.node, of.side, of.packets));
        Some(Reported {
            head: report.head,
            complete: report.complete,
            incomplete_because: report.incomplete_because.clone(),
            exact,
            lost,
            counted: None,
            optimum: None,
            looped: None,
            black_holes: None,
            superspreaders: None,
            line: line.collect::<Vec<_>>().join("  "),
        })
    }

    /// A flow must have lost before the transit, and behind it, what routers dropped there.
    fn contradicts(
        &self,
        report: &dyn Report,
        truth: &EpochTruth,
        topology: &Topology,
    ) -> Option<String> {
        let reported = self.reported(report)?;
        let contradiction = reported.contradicts(truth);
        let report = report.as_type::<SystemReport<Found>>()?;
        if contradiction.is_some() || !reported.exact {
            return contradiction;
        }
        let transits: Vec<usize> = topology.transits().collect();
        let is_transit = |node: &str| transits.iter().any(|&at| topology.names()[at] == node);
        let mut passed: BTreeMap<Flow, [i64; 2]> = BTreeMap::new();
        for Count { node, side, flow, packets, .. } in &report.findings.counts {
            let of_flow = passed.entry(*flow).or_default();
            match side.as_str() {
                "ingress" => of_flow[0] += *packets as i64,
                "transit" if is_transit(node) => of_flow[1] += *packets as i64,
                _ => {}
            }
        }
        let before = |(segment, _): &&(Segment, u32)| match segment.to {
            Point::In(switch) => transits.contains(&switch),
            Point::Out(_) => true,
        };
        truth.flows.iter().filter(|of| !is_local(&Flow::from(&of.key))).find_map(|of| {
            let flow = Flow::from(&of.key);
            let [entered, reached] = passed.get(&flow).copied().unwrap_or_default();
            let lost: u32 = of.losses.iter().filter(before).map(|(_, packets)| packets).sum();
            (entered - reached != i64::from(lost)).then(|| {
                format!(
                    "{flow}: {entered} entered and {reached} passed, but {lost} were lost before"
                )
            })
        })
    }
}

/// Whether both ends of a flow are behind the same edge, so that no transit sees it.
fn is_local(flow: &Flow) -> bool {
    let edge = |host| match host {
        IpAddr::V4(host) => host.octets()[..3].to_vec(),
        IpAddr::V6(host) => host.octets()[..8].to_vec(),
    };
    edge(flow.src) == edge(flow.dst)
}

/// The product's programs with `hops` beside ChameleMon, in a folder that goes at the end.
struct Programs(PathBuf);

impl Programs {
    fn new(story: &str) -> Self {
        let name = format!("calumma-hops-{story}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let tests = std::env::current_exe().unwrap();
        let built = tests.ancestors().nth(2).unwrap();
        for (program, file) in [
            ("calumma-edge", "examples/hops"),
            ("calumma-controller", "examples/hops"),
            ("calumma-switchd", "examples/hops"),
            ("calumma-tna", "calumma-tna"),
            ("calumma-testbed", "calumma-testbed"),
        ] {
            let file = built.join(file);
            assert!(file.exists(), "`cargo build --workspace --bins --examples` builds {file:?}");
            symlink(file, folder.join(program)).unwrap();
        }
        Self(folder)
    }

    fn testbed(&self) -> PathBuf {
        self.0.join("calumma-testbed")
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn systems_come_and_go_while_packets_flow_and_every_report_is_right() {
    let programs = Programs::new("switching");
    let scenario = Scenario::load(&Path::new(SCENARIOS).join("systems/switching.toml")).unwrap();
    let mut live = Live::start_with(SYSTEMS, &scenario, &programs.testbed()).unwrap();
    let played = play_in(&mut live, &scenario, |_, _| Ok(())).unwrap();
    let wrong: Vec<_> = played.contradictions().collect();
    assert!(wrong.is_empty(), "{wrong:?}, {:?}", played.doubts);
    let incomplete: Vec<_> = played.systems.iter().filter(|of| !of.complete).collect();
    assert!(played.holds(), "{:?}, {incomplete:?}", played.verdicts);
    // The hosts have received all that they sent and routers did not drop on purpose.
    assert!(played.doubts.is_empty(), "{:?}", played.doubts);
    let lossy = |from: u64| {
        let reports = played.systems.iter().filter(|of| of.epoch >= from);
        reports.filter(|of| of.exact && of.reported_lost > 0).count()
    };
    assert!(lossy(0) > 60 && lossy(90) > 40, "{:?}", played.systems);
    assert!(live.transited()["s1"] > 10_000, "{:?}", live.transited());
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn a_tofino_between_edges_counts_what_passes_it() {
    let programs = Programs::new("hardware");
    let path = Path::new(SCENARIOS).join("systems/hardware-spine.toml");
    let scenario = Scenario::load(&path).unwrap();
    let mut live = Live::start_with(SYSTEMS, &scenario, &programs.testbed()).unwrap();
    let played = play_in(&mut live, &scenario, |_, _| Ok(())).unwrap();
    let wrong: Vec<_> = played.contradictions().collect();
    assert!(wrong.is_empty(), "{wrong:?}, {:?}", played.doubts);
    let incomplete: Vec<_> = played.systems.iter().filter(|of| !of.complete).collect();
    assert!(played.holds(), "{:?}, {incomplete:?}", played.verdicts);
    let lossy = played.systems.iter().filter(|of| of.exact && of.reported_lost > 0).count();
    assert!(lossy > 6, "{:?}", played.systems);
    assert!(live.transited()["s2"] > 2000, "{:?}", live.transited());
}

#[test]
#[ignore = "end to end: needs root, DPDK and iperf3; `cargo xtask test` runs it"]
fn the_demo_runs_with_hops_alone() {
    let programs = Programs::new("demo");
    let out = programs.0.join("out");
    let mix = Mix { seconds: 3, tcp_mbit: 20, udp_mbit: 5, connections: 50, ipv6: false };
    let network = demo::Network { loss_permille: 10, ..demo::Network::default() };
    let run = || demo::run(&HeldHops, &mix, &network, &programs.testbed(), &out).unwrap();
    let mut demo = run();
    // A machine that stands still for longer than the guards leaves epochs incomplete: once more
    // then.
    for _ in 0..2 {
        if demo.comparison.incomplete.is_empty() {
            break;
        }
        eprintln!("once more, for incomplete epochs: {:?}", demo.comparison.incomplete);
        demo = run();
    }
    assert!(demo.is_equal(), "{}", demo.to_text());
    let lost: u64 = demo.comparison.rows.iter().map(|row| row.kernel).sum();
    assert!(lost > 20, "{}", demo.to_text());
}
