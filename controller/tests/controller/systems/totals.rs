//! A node's totals: counted as they come, whatever becomes of the sides that they come beside.

use super::*;

/// A counter of theirs.
const COUNTER: &str = "malformed";

/// A side of tally, and the counter's total then.
fn side(epoch: u64, total: u64) -> Message {
    let counters = vec![(COUNTER.to_owned(), total)];
    let (system, side, stall_ns, packets) = (TALLY, SideKind::Ingress, 0, 0);
    let body = 1_u64.to_le_bytes().to_vec();
    Message::Side(Box::new(Side { system, epoch, side, stall_ns, packets, counters, body }))
}

/// What is said of the first edge.
fn of_e1(controller: &Controller, name: &str) -> Value {
    controller.get_json("/api/v1/nodes")[0][name].clone()
}

fn total(controller: &Controller) -> Option<u64> {
    of_e1(controller, "counters")[COUNTER].as_u64()
}

/// Has tally's analysis wait at the gate, which is held.
fn hold_up(controller: &Controller, network: &mut Network, epoch: u64) {
    network.tally(epoch, [1; 3]);
    let frames = |node: &Value| node["frames"].as_u64().unwrap();
    wait_until("its epoch is being analysed", || {
        let nodes = controller.get_json("/api/v1/nodes");
        nodes.as_array().unwrap().iter().map(frames).sum::<u64>() >= 8
    });
}

#[test]
fn a_total_that_waits_for_a_busy_analysis_takes_back_no_later_one() {
    let controller = Controller::start(&format!("{BOTH}{PATIENT}\n[tally]\ngated = true"));
    let mut network = Network::join(&controller);
    let gate = GATE.lock().unwrap_or_else(PoisonError::into_inner);
    let epoch = network.recent_epoch() - 3;
    hold_up(&controller, &mut network, epoch);

    network.edges[0].send(&side(epoch + 1, 5));
    let attention = network.attention;
    let world: World =
        World::new(&["e1", "e2"], &network.layout, &network.hash_key, attention, epoch + 1);
    let mut ingress = world.inputs().swap_remove(0).ingress.unwrap();
    ingress.counters = vec![(COUNTER.to_owned(), 7)];
    network.edges[0].send(&OfChameleMon::Ingress(ingress).to_wire());
    wait_until("the later one is there", || total(&controller) == Some(7));
    // Tally's three of its epoch, and ChameleMon's one; what came before that waits.
    let frames = || of_e1(&controller, "frames").as_u64().unwrap();
    wait_until("its frame is taken in", || frames() >= 4);
    drop(gate);
    wait_until("the analysis goes on", || frames() >= 5);
    assert_eq!(total(&controller), Some(7));
    controller.stop();
}

#[test]
fn totals_beside_a_side_that_is_dropped_count() {
    let controller = Controller::start(&format!("{BOTH}{PATIENT}\n[tally]\ngated = true"));
    let mut network = Network::join(&controller);
    let _gate = GATE.lock().unwrap_or_else(PoisonError::into_inner);
    let epoch = network.recent_epoch() - 3;
    hold_up(&controller, &mut network, epoch);
    for epoch in epoch - 1000..epoch {
        let late = Message::Sealed { system: TALLY, epoch, late_packets: 0, body: Vec::new() };
        network.edges[0].send(&late);
    }
    let dropped = || controller.get_json("/api/v1/systems")[1]["dropped_frames"].as_u64().unwrap();
    wait_until("its queue is full", || dropped() > 0);
    network.edges[0].send(&side(epoch + 1, 9));
    wait_until("it is counted", || total(&controller) == Some(9));
}

#[test]
fn what_a_node_sends_again_has_totals_of_then_which_take_back_none() {
    let controller = Controller::start(&format!("{BOTH}{PATIENT}"));
    let (mut e1, welcome) = FakeNode::join(&controller, "e1");
    let clock = EpochClock::new(welcome.epoch_length_ns, welcome.guards).unwrap();
    let epoch = clock.epoch_at(unix_ns()) - 10;
    e1.send(&side(epoch, 5));
    e1.send(&side(epoch + 1, 7));
    wait_until("they are counted", || total(&controller) == Some(7));
    let go = |node: FakeNode| {
        drop(node);
        wait_until("it is gone", || of_e1(&controller, "connected") == false);
    };
    let come = |holding: Vec<(SystemId, Vec<u8>)>| {
        let role = Role::Edge;
        let mut node = FakeNode { role, peer: Peer::connect(controller.running.listen(), VERSION) };
        let offers = [frames::OFFER, TALLY_OFFER];
        let Message::Hello(hello) = hello("e1", role, &offers) else { panic!("a hello") };
        node.send(&Message::Hello(Box::new(Hello { holding, ..*hello })));
        node.receive_welcome();
        node
    };

    go(e1);
    let mut e1 = come(vec![(TALLY, Vec::new())]);
    e1.send(&side(epoch, 5));
    e1.send(&side(epoch + 1, 7));
    wait_until("they came again", || of_e1(&controller, "duplicate_frames") == 2);
    assert_eq!(total(&controller), Some(7), "as before");
    e1.send(&side(epoch + 2, 8));
    wait_until("a new one counts", || total(&controller) == Some(8));

    // Its clock was set back before it came again.
    go(e1);
    let mut e1 = come(vec![(TALLY, Vec::new())]);
    assert_eq!(total(&controller), None, "nothing was said yet");
    e1.send(&side(epoch - 5, 9));
    wait_until("a new one counts, of whatever epoch", || total(&controller) == Some(9));

    // Another program, which has begun at 0.
    go(e1);
    let mut e1 = come(Vec::new());
    e1.send(&side(epoch + 2, 1));
    wait_until("it counts anew", || total(&controller) == Some(1));
    controller.stop();
}
