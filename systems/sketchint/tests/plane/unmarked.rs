//! Packets that carry no mark.

use calumma_plane::Carrier;
use calumma_plane::carrier::Shim;
use calumma_plane::packet::Frame;
use calumma_plane::worker::{Path, Policy};
use calumma_sketchint::frames::Step;
use calumma_wire::Role;

use super::{EPOCH_NS, FIRST_EPOCH, Switch, WINDOW, packet, setup};

/// Nobody can say which window such a packet is of, so that each of which packets may come lacks
/// it, and none twice.
#[test]
fn an_unmarked_packet_is_noted_in_every_window_that_is_open() {
    let mut sink = Switch::new(Role::Edge, 2, setup(), Step::Sources);
    let carrier = Carrier::Shim(Shim::default());
    sink.worker.set_policy(Policy { strip: true, carrier, ..Policy::default() });
    let second = FIRST_EPOCH + WINDOW;
    let boundary_ns = second * EPOCH_NS;
    // Both bits are of one window; the next one is armed; it has begun; the one before is taken.
    let within_ns = boundary_ns - EPOCH_NS + 1_000_000;
    let around_ns = [-500_000, 500_000, 20_000_000].map(|ns| boundary_ns.saturating_add_signed(ns));
    for now_ns in [within_ns].into_iter().chain(around_ns) {
        let mut frames = [Frame::with_headroom(256, &packet(1, 17, 40))];
        sink.pass(Path::Leave, &mut frames, now_ns, 0);
    }
    sink.advance_to((second + 2 * WINDOW) * EPOCH_NS);
    let unmarked = [FIRST_EPOCH, second, second + WINDOW];
    let unmarked = unmarked.map(|epoch| sink.windows.get(&epoch).map(|of| of.unmarked));
    assert_eq!(unmarked[..2], [Some(3), Some(3)]);
    assert!(unmarked[2].is_none_or(|unmarked| unmarked == 0));
    assert_eq!(sink.worker.counters.egress_unmarked, 4);
}
