//! Hops that marks say, in a network whose edges are bumps in the wire, which take nothing off
//! times to live, and whose switch between them routes.

#[path = "../../tests/common/mod.rs"]
mod common;
mod played;

use calumma_cfs_analysis::KeptIn;
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::worker::Path;
use calumma_sketch::KeyKind;
use calumma_sketch::table::Rank;
use calumma_wire::Role;
use serde_json::json;

use common::{EPOCH_NS, FIRST_EPOCH, clock, flow, frame};
use played::Played;

const NODES: [(&str, Role); 3] = [("e1", Role::Edge), ("s1", Role::Transit), ("e2", Role::Edge)];
const FLOWS: u32 = 200;

/// Three packets of each flow go from `e1` to `e2`; those of every fifth one not by `s1`, and of
/// every seventh the last is lost behind `e1`.
fn played(grade: &str) -> Played {
    let section = json!({ "entries": 256, "hll_bits": 8, "window_epochs": 2, "hop": "mark",
        "path_length": 3, "grade": grade, "flows_listed": 1000 });
    let mut network = Played::new(&NODES, &section, KeyKind::Dual, 1);
    let start = clock().start_of(FIRST_EPOCH);
    for n in 0..3 * FLOWS {
        let (number, at_ns) = (n % FLOWS, start + u64::from(n) * EPOCH_NS / 500);
        let mut packet: Frame = frame(&flow(number, KeyKind::Dual), 64, 20);
        for (at, path) in [Path::Enter, Path::Transit, Path::Leave].into_iter().enumerate() {
            let switch = &mut network.switches[at];
            switch.advance_to(at_ns);
            if at == 1 && number.is_multiple_of(5) {
                continue;
            }
            switch.pass_all(0, path, std::slice::from_mut(&mut packet));
            if n >= 2 * FLOWS && number.is_multiple_of(7) {
                break;
            }
            // Only s1 takes one off the time to live; its shim lies before the IP header.
            if at == 1 {
                let ip = &mut packet.bytes_mut()[14 + 6..];
                let at = if ip[0] >> 4 == 4 { 8 } else { 7 };
                ip[at] -= 1;
            }
        }
    }
    network
}

#[test]
fn hops_are_those_of_marks_and_losses_are_named_behind_a_bump() {
    for grade in ["fold", "even"] {
        let report = played(grade).report();
        assert!(report.complete, "{:?}", report.incomplete_because);
        let found = report.findings;
        assert_eq!((found.flows.len(), found.monitored_exactly), (200, 200), "{grade}");
        let mut passed = 0;
        for flow in &found.flows {
            let counted = (flow.packets, flow.exact, &*flow.at, flow.from);
            assert_eq!(counted, (3, true, "e1", KeptIn::Table), "{grade}");
            let hops: Vec<_> = flow.hops.iter().map(|hop| (&*hop.node, hop.hop)).collect();
            let by_all = [("e1", Some(0)), ("s1", Some(1)), ("e2", Some(2))];
            let by_edges = [("e1", Some(0)), ("e2", Some(1))];
            assert!(hops == by_all || hops == by_edges, "{grade}: {hops:?}");
            passed += usize::from(hops == by_all);
        }
        assert_eq!(passed, 160, "{grade}");
        let lost: u64 = found.losses.iter().map(|loss| loss.lost).sum();
        assert_eq!(lost, u64::from(FLOWS).div_ceil(7), "{grade}");
        let behind_s1 = found.losses.iter().filter(|loss| loss.place.to == "s1:in").count();
        assert_eq!(behind_s1, (0..FLOWS).filter(|n| n % 7 == 0 && n % 5 != 0).count(), "{grade}");
    }
}

#[test]
fn a_grade_that_is_of_no_hop_is_refused() {
    let mut network = played("even");
    network.switches[1].advance_to(clock().start_of(FIRST_EPOCH) + 10 * EPOCH_NS);
    let window = network.switches[1].windows.get_mut(&FIRST_EPOCH).unwrap();
    let said = window.entries[3].rank;
    window.entries[3].rank = Rank::new(said.class(), said.grade() ^ 1);
    let refused = network.decoded(1).unwrap_err();
    assert!(refused.starts_with("entry 3, ") && refused.ends_with(" at no hop"), "{refused}");
}
