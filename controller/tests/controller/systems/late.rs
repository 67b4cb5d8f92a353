//! What a node is late with, where its timestamp bit comes again.

use super::*;

/// Delivers an epoch of tally of a transit, so many packets of which came too late, and whose
/// record was ended too late by so much.
fn deliver(node: &mut FakeNode, epoch: u64, late_packets: u64, stall_ns: u64) {
    let (system, counters, body) = (TALLY, Vec::new(), 5_u64.to_le_bytes().to_vec());
    let side = SideKind::Transit;
    let side = Side { system, epoch, side, stall_ns, packets: 0, counters, body };
    node.send(&Message::Side(Box::new(side)));
    node.send(&Message::Sealed { system, epoch, late_packets, body: Vec::new() });
}

#[test]
fn what_is_late_is_in_doubt_two_epochs_later_and_what_ends_too_late_is_left_out() {
    let controller = Controller::start(&format!("{BOTH}{PATIENT}"));
    let mut network = Network::join(&controller);
    let first = network.recent_epoch() - 4;
    let mut report = |number: u64, late_packets, stall_ns| {
        let epoch = first + number;
        network.edges.iter_mut().for_each(|edge| edge.tally(epoch, 1));
        deliver(&mut network.transit, epoch, late_packets, stall_ns);
        let report = controller.report("tally", epoch);
        let reasons = report["incomplete_because"].as_array().unwrap().clone();
        assert_eq!(report["complete"], reasons.is_empty());
        let reasons: Vec<&str> = reasons.iter().filter_map(Value::as_str).collect();
        let reason = reasons.join("; ");
        (reason, report["counts"][2]["packets"].clone())
    };
    let late = "s1: 3 packets came too late to be recorded".to_owned();
    assert_eq!(report(0, 3, 0), (late, json!(5)));
    let (reason, packets) = report(1, 0, 60_000_000);
    assert!(reason.contains("s1: it went on 60.0 ms too late"), "{reason}");
    assert_eq!(packets, Value::Null);
    let (reason, packets) = report(2, 0, 0);
    assert!(reason.contains("s1: 3 packets with its timestamp bits came before it"), "{reason}");
    assert_eq!(packets, Value::Null, "some of epoch 0 may be among them");
    let (reason, packets) = report(3, 0, 0);
    assert!(reason.contains("has the same timestamp bits, ended 60.0 ms late"), "{reason}");
    assert_eq!(packets, Value::Null);
    assert_eq!(report(4, 0, 0), (String::new(), json!(5)));
    controller.stop();
}
