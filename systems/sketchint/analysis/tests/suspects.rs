//! Where packets may have been lost, by votes of flows that lost some.

use calumma_analysis::Flow;
use calumma_sketchint_analysis::report::Found;
use calumma_sketchint_analysis::suspects::Suspects;
use calumma_topology::Place;
use serde_json::{Value, json};

fn flow(sport: u16) -> Flow {
    Flow { src: [10, 1, 0, 2].into(), dst: [10, 2, 0, 2].into(), sport, dport: 53, proto: 17 }
}

/// A flow whose packets came by these paths.
fn listed(sport: u16, paths: &[(&[&str], u64)]) -> Value {
    let path = |(path, packets): &(&[&str], u64)| json!({ "path": path, "partial": false, "packets": packets, "at_least": packets });
    let mut listed = json!({ "sink": "e2", "packets": 5, "at_least": 5, "at_most": 5,
        "int_packets": 5, "exact": true, "hops": [],
        "paths": paths.iter().map(path).collect::<Vec<_>>() });
    let of = serde_json::to_value(flow(sport)).unwrap();
    listed.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
    listed
}

#[test]
fn flows_that_lost_packets_vote_for_the_links_of_their_paths() {
    let flows = [
        listed(1, &[(&["e1", "s1", "e2"], 5)]),
        listed(2, &[(&["e1", "s2", "e2"], 5)]),
        listed(3, &[(&["e1", "s1", "s3", "e2"], 5)]),
        listed(4, &[]),
        listed(5, &[(&["e1", "s1", "e2"], 3), (&["e1", "s2", "e2"], 1)]),
    ];
    let found: Found = serde_json::from_value(json!({
        "window": [20, 39], "state": "on", "nodes": [], "links": [], "flows": flows, "path_changes": [],
        "loops": [], "inflated": [], "sinks": [],
        "config": { "insertion": "cm", "rows": 8, "unit_ns": 64, "heavy_packets": 1,
            "heavy_change_packets": 1, "inflation_percent": 500, "coverage_wanted": 0.5 },
        "coverage": { "packets": 25, "int_packets": 20, "partial": 0, "mtu_exceeded": 0,
            "hops_exceeded": 0, "unmarked": 0, "inserted": 20, "not_carried": {} },
    }))
    .unwrap();
    let votes = |lost: &[(u16, u64)]| {
        let lost: Vec<(Flow, u64)> =
            lost.iter().map(|&(sport, lost)| (flow(sport), lost)).collect();
        Suspects::of(&found, &lost)
    };
    // The one without a path has no votes, nor has the one that lost nothing.
    let first = votes(&[(1, 6), (3, 3), (4, 100), (2, 0)]);
    assert_eq!((first.victims, first.placed), (3, 2));
    let reported = |votes: &Suspects| -> Vec<(String, f64, f64)> {
        let place = |place: &Place| format!("{} {}", place.from, place.to);
        let suspects = votes.suspects.iter();
        suspects.map(|of| (place(&of.place), of.votes, of.explained)).collect()
    };
    let of = |place: &str, votes, explained| (place.to_owned(), votes, explained);
    assert_eq!(
        reported(&first),
        [
            of("e1:out s1:in", 4.0 / 9.0, 1.0),
            of("s1:out e2:in", 3.0 / 9.0, 0.5),
            of("s1:out s3:in", 1.0 / 9.0, 0.5),
            of("s3:out e2:in", 1.0 / 9.0, 0.5),
        ]
    );
    // Of one that came by two paths, each has its share of packets.
    let two = votes(&[(5, 8)]);
    let of_two = reported(&two);
    assert_eq!(of_two[..2], [of("e1:out s1:in", 0.375, 1.0), of("s1:out e2:in", 0.375, 1.0)]);
    assert_eq!(votes(&[]), Suspects::default());
}
