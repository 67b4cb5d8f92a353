//! Packets that wait at a switch for the address of their next hop.

mod common;

use calumma_cfs::frames::{Entry, Setup};
use calumma_plane::Carrier;
use calumma_plane::carrier::Tos;
use calumma_plane::parse::PlainFlows;
use calumma_plane::worker::Path;
use calumma_sketch::KeyKind;

use common::{EPOCH_NS, FIRST_EPOCH, Net, Switch, clock, flow, frame};

/// One packet waits for a next hop in the network, one for a host, whose edge this is: the first
/// passes, and is counted once.
#[test]
fn what_waits_for_a_next_hop_in_the_network_passes() {
    let setup = Setup { entries: 256, filter_bits: 1 << 16, window_epochs: 2, ..Setup::default() };
    let setup = Setup { claim: true, ..setup };
    let net = Net { carrier: Carrier::Tos(Tos::default()), keys: KeyKind::Ipv4, setup };
    let mut switches = [1, 2].map(|node| Switch::new(&net, node, 1));
    let start = clock().start_of(FIRST_EPOCH) + 1;
    let keys = [0, 2].map(|number| flow(number, KeyKind::Ipv4));
    let mut frames: Vec<_> = keys.iter().map(|key| frame(key, 64, 10)).collect();
    switches.iter_mut().for_each(|switch| switch.advance_to(start));
    switches[0].pass_all(0, Path::Enter, &mut frames);
    let (waits, leaves) = frames.split_at_mut(1);
    switches[1].pass_known(0, Path::Leave, waits, &PlainFlows::WAITING);
    switches[1].pass_all(0, Path::Leave, leaves);
    let mut again = PlainFlows::NONE;
    again.return_all();
    switches[1].pass_known(0, Path::Enter, waits, &again);
    switches.iter_mut().for_each(|switch| switch.advance_to(start + 8 * EPOCH_NS));
    let window = &switches[1].windows[&FIRST_EPOCH];
    let of = |key| window.entries.iter().find(|entry| entry.key == key).unwrap();
    let counted = keys.map(|key| (of(key).sides, of(key).packets));
    assert_eq!(counted, [(Entry::PASSED, 1), (Entry::LEFT, 1)]);
    assert_eq!((window.totals.packets, window.totals.claimed_out), (2, 0));
}
