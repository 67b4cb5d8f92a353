//! The topology that is configured, and who of it is seen.

use calumma_controller::Config;
use calumma_controller::server::unix_ns;
use calumma_hops::frames::OFFER;
use calumma_wire::{Role, SideKind};
use serde_json::{Value, json};

use super::panels::deliver;
use super::tally::SYSTEMS;
use super::{Controller, FakeNode, PATIENT, TALLY_OFFER, config, wait_until};

const PLACES: &str = "[topology]
edge = [{ name = 'e1' }, { name = 'e2', hosts = 7 }]
switch = [{ name = 's1' }, { name = 'r1' }]
link = [
    { between = ['e1', 's1'] }, { between = ['s1', 'e2'] },
    { between = ['e1', 'r1'] }, { between = ['r1', 'e2'] },
]";

#[test]
fn who_is_missing_and_who_should_not_be_there_is_said_with_the_remedy() {
    let controller = Controller::start(PLACES);
    let topology = || controller.get_json("/api/v1/topology");
    let (_e1, _) = FakeNode::join(&controller, "e1");
    let (_e2, _) = FakeNode::join(&controller, "e2");
    wait_until("edges are connected", || topology()["nodes"][1]["connected"] == true);
    let shown = topology();
    assert_eq!(
        shown["nodes"],
        json!([
            {"node": "e1", "role": "edge", "id": 1, "connected": true, "hosts": 2},
            {"node": "e2", "role": "edge", "id": 2, "connected": true, "hosts": 7},
            {"node": "s1", "role": "transit", "id": 3, "connected": false, "hosts": null},
            {"node": "r1", "role": "transit", "id": null, "connected": null, "hosts": null},
        ])
    );
    assert_eq!(shown["links"], json!([["e1", "s1"], ["s1", "e2"], ["e1", "r1"], ["r1", "e2"]]));
    let missing = "transit s1 is not connected: start its program with name = \"s1\", role = \
                   \"transit\" and this controller's address";
    assert_eq!(shown["problems"], json!([missing]));

    // It comes under another name, twice.
    for _ in 0..2 {
        FakeNode::introduce(&controller, "s2", Role::Transit, &[TALLY_OFFER]).receive_refusal();
    }
    let shown = topology();
    let stranger = &shown["unexpected"][0];
    assert_eq!(
        (&stranger["node"], &stranger["role"], &stranger["attempts"]),
        (&json!("s2"), &json!("transit"), &json!(2))
    );
    let problem = shown["problems"][1].as_str().unwrap();
    assert!(
        problem.starts_with("transit \"s2\" at 127.0.0.1:") && problem.contains("`transits`"),
        "{problem}"
    );

    let (_s1, _) = FakeNode::join(&controller, "s1");
    wait_until("s1 is there", || topology()["nodes"][2]["connected"] == true);
    assert_eq!(topology()["problems"].as_array().unwrap().len(), 1, "s2 may still try");
    controller.stop();
}

/// Places of a report's losses, each with how many were lost there.
fn places(report: &Value) -> Option<Vec<String>> {
    let place = |place: &Value| {
        format!(" {}-{}", place["from"].as_str().unwrap(), place["to"].as_str().unwrap())
    };
    let loss = |loss: &Value| {
        let places = loss["places"].as_array().unwrap().iter();
        loss["lost"].to_string() + &places.map(place).collect::<String>()
    };
    Some(report["losses"].as_array()?.iter().map(loss).collect())
}

#[test]
fn a_new_topology_holds_from_the_epoch_after_it_was_read() {
    let line = "systems = ['hops']
        [topology]
        edge = [{ name = 'e1' }, { name = 'e2' }]
        switch = [{ name = 's1' }, { name = 'r1' }]
        link = [{ between = ['e1', 's1'] }, { between = ['s1', 'e2'] }]";
    // Packets may go round s1 now.
    let ring = line.replace(
        "['s1', 'e2'] }",
        "['s1', 'e2'] },
        { between = ['e1', 'r1'] }, { between = ['r1', 'e2'] }",
    );
    let controller = Controller::start(&format!("{PATIENT}\n{line}"));
    let mut length_ns = 0;
    let mut nodes =
        [("e1", Role::Edge), ("e2", Role::Edge), ("s1", Role::Transit)].map(|(name, role)| {
            let mut node = FakeNode::introduce(&controller, name, role, &[OFFER]);
            length_ns = node.receive_welcome().epoch_length_ns;
            node
        });
    let now = || unix_ns() / length_ns;

    // One that lacks a node that runs on changes nothing.
    let first = now();
    let lacking = "edges = ['e1', 'e2']\nsystems = ['hops']\ntopology = 'pair'";
    let lacking = Config::parse_for(SYSTEMS, lacking, "lacking.toml").unwrap();
    controller.running.reload(&lacking);
    let before = now();
    controller.running.reload(&config(&format!("{PATIENT}\n{ring}")));
    let after = now();
    assert_eq!(controller.get_json("/api/v1/topology")["links"].as_array().unwrap().len(), 4);

    wait_until("the next epoch is over", || now() > after + 1);
    for epoch in first - 1..=after + 1 {
        deliver(&mut nodes[0], epoch, &[(SideKind::Ingress, 100), (SideKind::Egress, 0)]);
        deliver(&mut nodes[1], epoch, &[(SideKind::Ingress, 0), (SideKind::Egress, 97)]);
        deliver(&mut nodes[2], epoch, &[(SideKind::Transit, 98)]);
    }
    let of = |epoch| places(&controller.report("hops", epoch));
    let on_line = ["2 e1:in-s1:in", "1 s1:in-e2:in"].map(str::to_owned).to_vec();
    let on_ring = vec!["3 e1:in-e2:in e1:in-s1:in s1:in-e2:in".to_owned()];
    for epoch in first - 1..before {
        assert_eq!(of(epoch).as_ref(), Some(&on_line));
    }
    // In one of these it was read.
    let meanwhile: Vec<_> = (before..=after).map(of).collect();
    let at = meanwhile.iter().position(Option::is_none).unwrap();
    assert!(meanwhile[..at].iter().all(|places| places.as_ref() == Some(&on_line)));
    assert!(meanwhile[at + 1..].iter().all(|places| places.as_ref() == Some(&on_ring)));
    assert_eq!(of(after + 1).as_ref(), Some(&on_ring));
    controller.stop();
}
