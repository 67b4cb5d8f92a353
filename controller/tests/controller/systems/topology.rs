//! The topology that is configured, and who of it is seen.

use calumma_wire::Role;
use serde_json::json;

use super::{Controller, FakeNode, TALLY_OFFER, wait_until};

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
