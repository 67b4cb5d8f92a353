//! Totals that have not changed are not sent again, unless the frame was discarded that they were
//! in.

use calumma_switch_host::{Conversation, Pipe, UNDELIVERED};
use calumma_wire::{Message, SystemId, VERSION};

use super::{NOW, Node, Switch, identity, setup, side, welcome};

/// The totals in what is sent, by name.
fn totals(sent: Vec<(u8, Message)>) -> Vec<Vec<(String, u64)>> {
    let of_side = |(_, message)| match message {
        Message::Side(side) => Some(side.counters),
        _ => None,
    };
    sent.into_iter().filter_map(of_side).collect()
}

fn named(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|&(name, total)| (name.to_owned(), total)).collect()
}

#[test]
fn totals_in_a_frame_that_is_discarded_are_sent_again_though_they_stay_the_same() {
    // Room for one side.
    let conversation = Conversation::over(Pipe::new(), identity(), 100);
    let mut node = Node { conversation, switch: Switch::default() };
    node.connect();
    node.receive(&welcome(vec![setup()]), VERSION);
    let of = |node: &mut Node, epoch, once| {
        let side = side(SystemId::CHAMELEMON, epoch);
        node.conversation.side_with_totals(side, named(&[("still", 7), ("once", once)]));
    };
    of(&mut node, NOW, 0);
    let first = named(&[("still", 7), ("once", 0), (UNDELIVERED, 0)]);
    assert_eq!(totals(node.sent()), [first]);
    node.receive(&Message::Reported { epoch: NOW }, VERSION);
    of(&mut node, NOW + 1, 0);
    assert_eq!(totals(node.sent()), [named(&[])]);
    node.receive(&Message::Reported { epoch: NOW + 1 }, VERSION);
    // The controller takes nothing for a while: only the newest is held, and the others have what
    // does not change again.
    (2..5).for_each(|later| of(&mut node, NOW + later, 1));
    assert_eq!(node.conversation.discarded(), 2);
    let sent = totals(node.sent());
    assert_eq!(sent, [named(&[("still", 7), ("once", 1), (UNDELIVERED, 1)])]);
    // Of a frame that has gone out nothing is missing.
    node.receive(&Message::Reported { epoch: NOW + 4 }, VERSION);
    of(&mut node, NOW + 5, 1);
    assert_eq!(totals(node.sent()).concat().last(), Some(&(UNDELIVERED.to_owned(), 2)));
    node.receive(&Message::Reported { epoch: NOW + 5 }, VERSION);
    of(&mut node, NOW + 6, 1);
    assert_eq!(totals(node.sent()), [named(&[])]);
}

/// What is not held is discarded where the controller is not there.
#[test]
fn totals_of_a_session_that_is_discarded_are_sent_in_the_next() {
    let mut node = Node::new();
    node.connect();
    node.receive(&welcome(vec![setup()]), VERSION);
    let of = |node: &mut Node, epoch| {
        let side = side(SystemId::CHAMELEMON, epoch);
        node.conversation.side_with_totals(side, named(&[("still", 7)]));
    };
    of(&mut node, NOW);
    node.sent();
    // Another setup on the same connection: what was held is of no use.
    let mut other = setup();
    other.setup[0] += 1;
    node.receive(&welcome(vec![other]), VERSION);
    assert_eq!(node.conversation.discarded(), 1);
    of(&mut node, NOW + 1);
    assert_eq!(totals(node.sent()), [named(&[("still", 7), (UNDELIVERED, 1)])]);
}
