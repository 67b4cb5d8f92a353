//! A system's panel on the dashboard, in a real browser: losses between switches, as `hops` has it.

use calumma_hops::frames::{Counts, OFFER, Packets};
use calumma_sketch::{FlowKey, WideKey};
use calumma_wire::{Message, Role, Side, SideKind};
use serde_json::{Value, json};

use super::{Controller, FakeNode, PATIENT};
use crate::browser::Browser;

const PLACES: &str = "systems = ['hops']\n\
                      [topology]\nedge = [{ name = 'e1' }, { name = 'e2' }]\n\
                      switch = [{ name = 's1' }]\n\
                      link = [{ between = ['e1', 's1'] }, { between = ['s1', 'e2'] }]\n";

/// Sends an epoch of `hops` with so many packets of one flow on each side.
pub(super) fn deliver(node: &mut FakeNode, epoch: u64, sides: &[(SideKind, u64)]) {
    let system = OFFER.system;
    for &(side, packets) in sides {
        let key = WideKey::from(FlowKey::from_words(0x0A01_0002, 0x0A02_0002, 7 << 16 | 9, 17));
        let flows = if packets == 0 {
            Vec::new()
        } else {
            vec![(key, Packets { received: packets, refused: 0 })]
        };
        let body = Counts { flows, others: Packets::default() }.encode();
        let side = Side { system, epoch, side, stall_ns: 0, packets, counters: Vec::new(), body };
        node.send(&Message::Side(Box::new(side)));
    }
    node.send(&Message::Sealed { system, epoch, late_packets: 0, body: Vec::new() });
}

#[test]
fn a_systems_panel_shows_between_which_switches_packets_were_lost() {
    let Some(browser) = Browser::start() else { return };
    let controller = Controller::start(&format!("{PATIENT}\n{PLACES}"));
    browser.look(1440, 1400, "light");
    browser.open(&format!("http://{}/", controller.running.http().unwrap()));
    browser.wait("document.querySelector('[data-panel=\"hops/losses\"]') !== null");
    let panel = "[data-panel='hops/losses']";
    browser.wait(&format!(
        "document.querySelector(\"{panel}\").textContent.includes('Shown with the first window')"
    ));

    let missing = "transit s1 is not connected: start its program with name = 's1'";
    let missing = missing.replace('\'', "\\\"");
    browser
        .wait(&format!("document.querySelector('#nodes').textContent.startsWith(\"{missing}\")"));

    let join = |name, role| {
        let mut node = FakeNode::introduce(&controller, name, role, &[OFFER]);
        let welcome = node.receive_welcome();
        (node, welcome.epoch_length_ns)
    };
    let (mut e1, length_ns) = join("e1", Role::Edge);
    let (mut e2, _) = join("e2", Role::Edge);
    let (mut s1, _) = join("s1", Role::Transit);
    let epoch = calumma_controller::server::unix_ns() / length_ns - 1;
    deliver(&mut e1, epoch, &[(SideKind::Ingress, 1000), (SideKind::Egress, 0)]);
    deliver(&mut s1, epoch, &[(SideKind::Transit, 995)]);
    deliver(&mut e2, epoch, &[(SideKind::Ingress, 0), (SideKind::Egress, 993)]);
    let report = controller.report("hops", epoch);
    let place = |from: &str, to: &str| json!({ "from": from, "to": to });
    let lost = |place: Value, lost: u64| json!({ "place": place, "lost": lost, "at_least": lost, "at_most": lost });
    let [first, second] = [place("e1:in", "s1:in"), place("s1:in", "e2:in")];
    assert_eq!(report["lost_at"], json!([lost(first.clone(), 5), lost(second, 2)]));
    assert_eq!(report["losses"][0]["places"], json!([first]));

    browser.wait(&format!("document.querySelectorAll(\"{panel} tbody tr\").length === 4"));
    let shown = browser.table(&format!("{panel} .places"));
    assert_eq!(shown, [["e1:in → s1:in", "5"], ["s1:in → e2:in", "2"]]);
    let flows = browser.table(&format!("{panel} .scroll"));
    let flow = "10.1.0.2:7 → 10.2.0.2:9 udp".to_owned();
    assert_eq!(flows[0], [flow, "5".to_owned(), "e1:in → s1:in".to_owned()]);
    assert!(browser.text(&format!("{panel} h2")).contains(&epoch.to_string()));
    browser.wait("document.querySelector('#nodes').hidden");
    assert_eq!(browser.complaints(), json!([]));
    controller.stop();
}
