//! What transit switches counted, which see a part of a flow, see packets again, or are not on its
//! way any more: what may be said of the flow by that.

mod world;

use calumma_cfs::frames::Entry;
use calumma_sketch::FlowKey;
use serde_json::json;

use world::{Network, count_of, lost};

/// Three packets went by s2; then routes changed, and the fourth waited at s1 for the address of
/// its next hop.
#[test]
fn what_waited_at_a_transit_switch_has_not_left_there() {
    for e1_refuses in [false, true] {
        let mut network = Network::new(json!({ "hosts": "fixed" }));
        if e1_refuses {
            network.refuse("e1", 1, 4);
        } else {
            network.count("e1", 1, 4);
        }
        network.count("s1", 1, 1).sides = Entry::LEFT;
        network.refuse("s2", 1, 3);
        network.refuse("e2", 1, 4);
        network.at("e1").routes_changed = true;
        network.at("s1").routes_changed = true;
        let report = network.report();
        assert_eq!(lost(&report), []);
        let count = if e1_refuses { ("s1", 1, false) } else { ("e1", 4, true) };
        assert_eq!(count_of(&report, 1), Some(count));
    }

    // As long as routes stay, all of a flow comes by that switch, whether it waits or not.
    for sides in [Entry::LEFT, Entry::PASSED | Entry::LEFT] {
        let mut network = Network::new(json!({}));
        network.refuse("e1", 1, 20);
        network.count("s1", 1, 20).sides = sides;
        network.count("e2", 1, 17);
        let report = network.report();
        assert_eq!(count_of(&report, 1), Some(("e2", 17, true)));
        let between = [("s1:in".to_owned(), "e2:in".to_owned(), 3)];
        let places = lost(&report).into_iter().map(|(_, from, to, lost)| (from, to, lost));
        assert_eq!(places.collect::<Vec<_>>(), between);
    }
}

/// A host pings a transit switch, which answers.
#[test]
fn a_transit_switch_is_no_hosts_home() {
    let [ping, answer] = [(0x0A00_0002, 0x0A09_0001), (0x0A09_0001, 0x0A00_0002)]
        .map(|(src, dst)| FlowKey::from_words(src, dst, 0, 1));
    for hosts in ["any", "fixed"] {
        let mut network = Network::new(json!({ "hosts": hosts }));
        for _ in 0..2 {
            network.count_of(0, &ping, 30, (Entry::ENTERED, 64));
            network.count_of(2, &ping, 30, (Entry::LEFT, 63));
            network.count_of(2, &answer, 30, (Entry::ENTERED, 64));
            network.count_of(0, &answer, 30, (Entry::LEFT, 63));
            let report = network.report();
            assert_eq!((lost(&report), report.findings.black_holes.len()), (vec![], 0));
            network.begin();
        }
    }
}
