//! A host that scans behind switches whose tables are full of others' flows, in virtual time, with
//! the controller's analysis of what they send: how many destinations it has lies between bounds,
//! and where these are certain it is one.

#[path = "../../tests/common/mod.rs"]
mod common;
mod played;

use calumma_cfs_analysis::Spread;
use calumma_plane::packet::Packet;
use calumma_plane::worker::Path;
use calumma_sketch::{FlowKey, KeyKind, WideKey};
use calumma_wire::Role;
use serde_json::json;

use common::{EPOCH_NS, FIRST_EPOCH, clock, frame};
use played::Played;

const NAMES: [&str; 3] = ["e1", "s1", "e2"];
const SCANNED: u32 = 1000;
const OTHERS: u32 = 500;

/// What is said of the host, where lcores, claims and times to live of its packets are so.
fn named(seed: u32, lcores: usize, claim: bool, ttls: u8) -> (Spread, bool) {
    let section = json!({ "entries": 256, "hll_bits": 10, "window_epochs": 2, "claim": claim,
        "superspreader": 600, "flows_listed": 10 });
    let role = |at: usize| if at == 1 { Role::Transit } else { Role::Edge };
    let nodes: [(&str, Role); 3] = std::array::from_fn(|at| (NAMES[at], role(at)));
    let mut network = Played::new(&nodes, &section, KeyKind::Ipv4, lcores);
    let start = clock().start_of(FIRST_EPOCH);
    for n in 0..SCANNED + OTHERS {
        let now_ns = start + u64::from(n) * (2 * EPOCH_NS / u64::from(SCANNED + OTHERS));
        // Others' flows come among those of the scan, and go elsewhere from each.
        let (src, dst) = match n % 3 {
            0 => (0x0A01_0100 + n, 0x0A02_0000),
            _ => (0x0A01_0001, 0x0A02_0001 + n),
        };
        let key = WideKey::from(FlowKey::from_words(src, dst, seed << 16 | 53, 17));
        let mut packet = frame(&key, 64 - (n % u32::from(ttls)) as u8, 20);
        for (at, path) in [Path::Enter, Path::Transit, Path::Leave].into_iter().enumerate() {
            network.switches[at].advance_to(now_ns);
            let lcore = n as usize % lcores;
            network.switches[at].pass_all(lcore, path, std::slice::from_mut(&mut packet));
            packet.bytes_mut()[14 + 8] -= 1;
        }
    }
    let report = network.report();
    assert!(report.complete, "{:?}", report.incomplete_because);
    let found = report.findings;
    let [spread] = &found.superspreaders[..] else { panic!("{:?}", found.superspreaders) };
    assert_eq!(spread.address, std::net::Ipv4Addr::from(0x0A01_0001));
    (spread.clone(), found.superspreaders_complete)
}

#[test]
fn what_a_table_chose_by_hashes_shows_a_scan_for_certain() {
    let there = f64::from(SCANNED);
    for (lcores, claim, ttls) in [(1, false, 1), (1, true, 1), (2, true, 1), (1, true, 9)] {
        let (mut certain, mut wrong) = (0, 0);
        for seed in 0..24 {
            let (spread, _) = named(seed, lcores, claim, ttls);
            assert!(spread.seen < 600 && spread.low >= spread.seen as f64, "{spread:?}");
            certain += u32::from(spread.certain);
            wrong += u32::from(!(spread.low..=spread.high.unwrap()).contains(&there));
        }
        let case = format!("{lcores} lcores, {claim}, {ttls} times to live");
        assert!(wrong <= 2, "{case}: {wrong} of 24 wrong");
        assert!(certain >= 18, "{case}: {certain} of 24 certain");
    }
}
