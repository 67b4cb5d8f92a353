//! Systems are told what transmit queues did with each packet, whichever port it went to.

use std::collections::BTreeMap;

use calumma_edge::measure::{Measurement, Side};
use calumma_edge::worker::{Policy, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_hops::Hops;
use calumma_hops::frames::{Counts, OFFER, Packets, Setup};
use calumma_plane::outlet::Outlets;
use calumma_plane::system::{FinishedSide, RouteWatch, SessionContext, SwitchSystem, System};
use calumma_plane::{LcoreMerger, Part};
use calumma_sketch::{Key, KeyKind};
use calumma_wire::{Role, Secret, SideKind, SystemSetup};

use crate::edge::{Edge, F0, F1, H0};
use crate::frames::{Udp, body};

const EPOCH_NS: u64 = 50_000_000;

fn hops(clock: EpochClock, first_epoch: u64) -> Box<dyn SwitchSystem> {
    let (role, node_id, hash_key) = (Role::Edge, None, Secret::new([1; 32]));
    let session = SessionContext {
        role,
        node_id,
        hash_key,
        clock,
        first_epoch,
        lcores: 1,
        ports: None,
        routes: RouteWatch::default(),
        outlets: Outlets::default(),
        carries_claims: true,
        carries_hops: false,
        carries_stacks: true,
    };
    let setup = Setup { flows: 64, window: 1 }.encode();
    let (system, version) = (OFFER.system, OFFER.highest);
    Hops.begin(&session, &SystemSetup { system, version, setup, plan: Vec::new() }).unwrap()
}

/// Bursts of packets for both fabric ports, for the other host port, for the switch itself, for
/// nowhere, and from the fabric, in an order that is another in each burst, while ports take few
/// packets at a time. Source ports tell flows apart.
#[test]
fn a_system_is_told_which_packets_each_port_took() {
    let mut edge = Edge::new("sent", &[]);
    edge.acquaint();
    let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
    // Even, as the timestamp bit of what comes from the fabric here says.
    let first_epoch = (clock.epoch_at(edge.now_ns) | 1) + 3;
    let (mut merger, mut mailboxes) = LcoreMerger::new(1);
    let systems = vec![hops(clock, first_epoch)];
    merger.begin(clock, first_epoch, Secret::new([1; 32]), KeyKind::Dual, systems);
    let counters = edge.worker.counters;
    edge.worker = Worker::new(Policy::default(), Measurement::new(mailboxes.remove(0)));
    edge.worker.counters = counters;
    edge.worker.advance_to(clock.start_of(first_epoch) + 1);

    let kinds = [
        ("10.1.0.2", "10.2.0.1", 64, H0),
        ("10.1.0.2", "10.3.0.1", 64, H0),
        ("10.1.0.2", "10.1.1.2", 64, H0),
        ("10.1.0.2", "10.2.0.1", 1, H0),
        ("10.1.0.2", "192.0.2.1", 64, H0),
        ("fd00:1::2", "fd00:2::1", 64, H0),
        ("10.2.0.1", "10.1.0.2", 64, F0),
        ("10.2.0.1", "10.3.0.2", 64, F0),
        ("fd00:2::1", "fd00:1::2", 64, F1),
    ];
    edge.room = 3;
    let mut sent: BTreeMap<u16, u64> = BTreeMap::new();
    for burst in 0..60_usize {
        for port in [H0, F0, F1] {
            let of_port: Vec<usize> =
                (0..kinds.len()).filter(|&kind| kinds[kind].3 == port).collect();
            let frame = |at: usize| {
                let kind = of_port[(at * at + burst * 3 + at * burst) % of_port.len()];
                let (from, to, ttl, _) = kinds[kind];
                let ports = (1000 + 10 * kind as u16 + (at % 3) as u16, 9);
                Udp { ports, ttl, ..Udp::new(from, to) }.frame(port)
            };
            let frames: Vec<_> = (0..burst % 32 + 1).map(frame).collect();
            for (_, frame) in edge.receive(port, &frames) {
                let packet = body(&frame);
                let ports = if packet[0] >> 4 == 4 { 20 } else { 40 };
                let of = u16::from_be_bytes([packet[ports], packet[ports + 1]]);
                *sent.entry(of).or_default() += 1;
            }
        }
    }
    edge.worker.advance_to(clock.start_of(first_epoch + 3));

    let mut counted: BTreeMap<u16, Packets> = BTreeMap::new();
    for part in merger.poll() {
        let Part::Side { system, epoch, side: of, record, mixed_plan, .. } = part else { continue };
        let (side, record) = (SideKind::Egress, &*record);
        let finished = FinishedSide { epoch, side, record, mixed_plan };
        let (frame, _) = merger.system(system).unwrap().side(finished).unwrap();
        for (key, packets) in Counts::decode(&frame.body).unwrap().flows {
            let kind = kinds[usize::from(key.ports().0 - 1000) / 10];
            // What goes from host to host is recorded on both sides, and refused once.
            if kind.1 != "10.1.1.2" || of == Side::Ingress {
                *counted.entry(key.ports().0).or_default() += packets;
            }
        }
    }
    let received: u64 = counted.values().map(|packets| packets.received).sum();
    let refused: u64 = counted.values().map(|packets| packets.refused).sum();
    assert!(refused > 100 && received - refused > 100, "{refused} of {received}");
    assert_eq!(edge.total("dropped.transmit_queue_full"), refused);
    let on: BTreeMap<u16, u64> = counted
        .into_iter()
        .map(|(of, packets)| (of, packets.received - packets.refused))
        .filter(|(_, packets)| *packets > 0)
        .collect();
    assert_eq!(on, sent);
    edge.room = usize::MAX;
    edge.slow_path(0.0);
    edge.stop();
}
