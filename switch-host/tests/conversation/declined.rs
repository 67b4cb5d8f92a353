//! A session that the switch can't measure by.

use calumma_wire::{Message, Outcome, SystemId, VERSION};

use super::{NOW, auto, side, welcome_by};

/// It would be taken for what was measured by the new one.
#[test]
fn nothing_of_a_session_is_sent_once_the_controller_has_another_that_can_not_be_run() {
    let mut node = auto();
    node.connect();
    node.receive(&welcome_by(Some("ip-id")), VERSION);
    let frames_of = |node: &mut super::Node| {
        node.conversation.side(side(SystemId::CHAMELEMON, NOW));
        node.conversation.sealed(SystemId::CHAMELEMON, NOW, (4, Vec::new()));
        node.sent().len()
    };
    assert_eq!(frames_of(&mut node), 2);
    node.switch.refuses = true;
    for (begun, carrier, reason) in [(1, "tos", "a domain is set"), (2, "shim", "not done here")] {
        let declined = node.receive(&welcome_by(Some(carrier)), VERSION);
        let [(_, Message::Applied { outcome: Outcome::Invalid { reason: given }, .. })] =
            &declined[..]
        else {
            panic!("{declined:?}")
        };
        assert!(given.contains(reason), "{given}");
        let left = (SystemId::CHAMELEMON, NOW + 1, false);
        assert_eq!(node.switch.switched, vec![left; begun]);
        assert_eq!((frames_of(&mut node), node.conversation.held_bytes()), (0, 0));
        // Nor does it take plans of that; it begins anew by one that it can.
        let plan = vec![9; 24];
        let system = SystemId::CHAMELEMON;
        let change = Message::Reconfigure { system, effective_epoch: NOW + 9, plan };
        assert!(node.receive(&change, VERSION).is_empty());
        node.switch.refuses = false;
        assert!(node.receive(&welcome_by(Some("ip-id")), VERSION).is_empty());
        assert_eq!((node.switch.begun.len(), frames_of(&mut node)), (begun + 1, 2));
    }
}
