//! Packets that wait at a switch for the address of their next hop.

mod common;

use calumma_cfs::frames::{Entry, Hop, Setup};
use calumma_plane::Carrier;
use calumma_plane::carrier::{Shim, Tos};
use calumma_plane::packet::Packet;
use calumma_plane::parse::PlainFlows;
use calumma_plane::worker::Path;
use calumma_sketch::KeyKind;

use common::{EPOCH_NS, FIRST_EPOCH, Net, Switch, clock, flow, frame};

/// One waits for a next hop in the network, one for a host, whose edge this is. Routes change
/// meanwhile, and each goes the other way.
#[test]
fn what_waits_for_its_next_hop_is_counted_once_as_it_came() {
    let setup = Setup { entries: 256, filter_bits: 1 << 16, window_epochs: 2, ..Setup::default() };
    let setup = Setup { claim: true, ..setup };
    let net = Net { carrier: Carrier::Tos(Tos::default()), keys: KeyKind::Ipv4, setup };
    let mut switches = [1, 2].map(|node| Switch::new(&net, node, 1));
    let start = clock().start_of(FIRST_EPOCH) + 1;
    let keys = [0, 2].map(|number| flow(number, KeyKind::Ipv4));
    let mut frames: Vec<_> = keys.iter().map(|key| frame(key, 64, 10)).collect();
    switches.iter_mut().for_each(|switch| switch.advance_to(start));
    switches[0].pass_all(0, Path::Enter, &mut frames);
    let (passes, leaves) = frames.split_at_mut(1);
    switches[1].pass_all(0, Path::Transit, passes);
    switches[1].pass_all(0, Path::Leave, leaves);
    let mut again = PlainFlows::NONE;
    again.note_recorded();
    switches[1].pass_known(0, Path::Leave, passes, &again);
    switches[1].pass_known(0, Path::Enter, leaves, &again);
    switches.iter_mut().for_each(|switch| switch.advance_to(start + 8 * EPOCH_NS));
    let window = &switches[1].windows[&FIRST_EPOCH];
    let of = |key| window.entries.iter().find(|entry| entry.key == key).unwrap();
    let counted = keys.map(|key| (of(key).sides, of(key).packets));
    assert_eq!(counted, [(Entry::PASSED, 1), (Entry::LEFT, 1)]);
    // The one that passes goes on with its claim.
    assert_eq!((window.totals.packets, window.totals.claimed_out), (2, 1));
}

/// It waits for a next hop in the network, and goes to a host with a sink of its own.
#[test]
fn what_waits_for_its_next_hop_comes_one_hop_further_and_no_more() {
    let hop = Hop::Mark { length: 3 };
    let setup = Setup { entries: 256, filter_bits: 1 << 16, hop, ..Setup::default() };
    let carrier = Carrier::Shim(Shim { hops: true, ..Shim::default() });
    let net = Net { carrier, keys: KeyKind::Ipv4, setup };
    let mut switches = [1, 2].map(|node| Switch::new(&net, node, 1));
    let start = clock().start_of(FIRST_EPOCH) + 1;
    switches.iter_mut().for_each(|switch| switch.advance_to(start));
    let mut frames = [frame(&flow(0, KeyKind::Ipv4), 64, 10)];
    switches[0].pass_all(0, Path::Enter, &mut frames);
    let mut again = PlainFlows::NONE;
    again.note_recorded();
    for (path, known) in [(Path::Transit, &PlainFlows::NONE), (Path::HandOn, &again)] {
        switches[1].pass_known(0, path, &mut frames, known);
        assert_eq!(frames[0].bytes()[16..18], [2, 3], "{path:?}");
    }
}
