//! What the sketches record of routed packets: those that really enter the network as they enter,
//! and as they leave those that come out of it.

use std::collections::BTreeMap;

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::lcores::Part;
use calumma_chamelemon::{Attention, Layout};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::{FlowKey, HashFamily, HashKey, Key};

use crate::edge::{Edge, F0, F1, H0, mac};
use crate::frames::{Udp, body, ethernet, station};

pub(crate) const LENGTH_NS: u64 = 50_000_000;

pub(crate) fn plan(now_ns: u64) -> SessionPlan {
    let layout = Layout { upstream_buckets: 512, downstream_buckets: 256, ..Layout::default() };
    let clock = EpochClock::new(LENGTH_NS, Guards::default()).unwrap();
    SessionPlan {
        // Every packet into the HL encoders.
        attention: Attention { t_h: u32::MAX, ..Attention::healthy(&layout, 256) },
        layout,
        hash_key: HashKey::from_bytes([3; 32]),
        clock,
        first_epoch: clock.epoch_at(now_ns) + 2,
    }
}

/// Flows and packets that an edge recorded as they entered and as they left, over all epochs.
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) entered: BTreeMap<FlowKey, i64>,
    pub(crate) left: BTreeMap<FlowKey, i64>,
}

impl Recorded {
    pub(crate) fn add(&mut self, plan: &SessionPlan, parts: Vec<Part>) {
        let family = HashFamily::new(&plan.hash_key);
        let hl = plan.attention.partition.hl_part();
        for part in parts {
            let (decoded, into) = match part {
                Part::Ingress { record, .. } => (
                    FlowKey::of(&record.group).unwrap().upstream().part(&hl).decode(&family),
                    &mut self.entered,
                ),
                Part::Egress { record, .. } => (
                    FlowKey::of(&record.group).unwrap().downstream().part(&hl).decode(&family),
                    &mut self.left,
                ),
                Part::Sealed { .. } => continue,
            };
            assert!(decoded.is_complete());
            for (flow, packets) in decoded.into_flowset() {
                *into.entry(flow).or_default() += packets;
            }
        }
    }
}

pub(crate) fn flow(from: &str, to: &str) -> FlowKey {
    FlowKey::v4(from.parse().unwrap(), to.parse().unwrap(), 4000, 5000, 17)
}

/// What the edges' configuration has.
pub(crate) const TOS: &str = "carrier = { kind = \"tos\" }";

/// Plays some traffic between two edges whose fabric ports F0 are joined by a wire, and gives what
/// each recorded.
fn play(number: usize, carrier: &str) -> (Recorded, Recorded) {
    let carrier = (TOS, carrier);
    let mut near = Edge::new(&format!("near{number}"), &[carrier]);
    // The far edge has the networks of the other side.
    let mut far = Edge::new(
        &format!("far{number}"),
        &[
            carrier,
            ("10.1.0.1/24", "10.2.0.1/24"),
            ("10.1.1.1/24", "10.2.1.1/24"),
            ("to = \"10.2.0.0/16\"", "to = \"10.1.0.0/16\""),
        ],
    );
    for edge in [&mut near, &mut far] {
        edge.acquaint();
    }
    let answer = crate::frames::arp_request(station(0), "10.2.0.2", "10.2.0.1");
    far.exchange(H0, &[answer]);

    let plan = plan(near.now_ns);
    near.begin(&plan);
    far.begin(&plan);
    let start = plan.clock.start_of(plan.first_epoch);
    near.advance_to(start + 1);
    far.advance_to(start + 1);

    let packets = |from, to, count| vec![Udp::new(from, to).frame(H0); count];
    // Through the network; lost in it; on this switch; never entered; to an edge itself.
    for (frames, lost) in [
        (packets("10.1.0.2", "10.2.0.2", 40), 3),
        (packets("10.1.0.2", "10.1.1.2", 10), 0),
        (vec![Udp { ttl: 1, ..Udp::new("10.1.0.2", "10.2.0.2") }.frame(H0); 5], 0),
        (packets("10.1.0.2", "192.0.2.1", 5), 0),
        (packets("10.1.0.2", "10.1.0.1", 6), 0),
        (packets("10.1.0.2", "10.2.0.1", 7), 0),
    ] {
        let sent = near.receive(H0, &frames);
        let through: Vec<_> = sent.into_iter().filter(|(port, _)| *port == F0).skip(lost).collect();
        for (_, frame) in through {
            let wired =
                ethernet(mac(F0), station(F0 as u8), None, ether_type(&frame), &frame[14..]);
            for (port, arrived) in far.receive(F0, &[wired]) {
                assert!(far.is_host(port));
                let udp = Udp { ttl: 62, ..Udp::new("10.1.0.2", "10.2.0.2") }.packet();
                assert_eq!(body(&arrived), udp, "without a trace of the mark");
            }
        }
    }
    let mut recorded = (Recorded::default(), Recorded::default());
    let end = start + 4 * LENGTH_NS;
    recorded.0.add(&plan, near.advance_to(end));
    recorded.1.add(&plan, far.advance_to(end));
    near.slow_path(0.0);
    far.slow_path(0.0);
    near.stop();
    far.stop();
    recorded
}

/// The EtherType at its usual place, whatever it is.
fn ether_type(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[12], frame[13]])
}

#[test]
fn what_enters_and_what_leaves_differ_by_what_was_lost_whatever_carries_the_mark() {
    let shim = "carrier = { kind = \"shim\" }";
    let with_hops = "carrier = { kind = \"shim\", hops = true }";
    let carriers = [TOS, shim, with_hops, "carrier = { signature = true }"];
    for (number, carrier) in carriers.into_iter().enumerate() {
        let (near, far) = play(number, carrier);
        let through = flow("10.1.0.2", "10.2.0.2");
        let local = flow("10.1.0.2", "10.1.1.2");
        let to_far = flow("10.1.0.2", "10.2.0.1");
        let entered = [(through, 40), (local, 10), (to_far, 7)];
        assert_eq!(near.entered, entered.into_iter().collect(), "{carrier}");
        assert_eq!(near.left, [(local, 10)].into_iter().collect(), "{carrier}");
        assert!(far.entered.is_empty());
        assert_eq!(far.left, [(through, 37), (to_far, 7)].into_iter().collect(), "{carrier}");
    }
}

/// The mark is in the IP header, whether the packet has got a VLAN tag on its way or not.
#[test]
fn marks_stand_in_the_header_of_tagged_packets_as_well() {
    let mut edge = Edge::new("tagged", &[]);
    edge.acquaint();
    let plan = plan(edge.now_ns);
    edge.begin(&plan);
    edge.advance_to(plan.clock.start_of(plan.first_epoch) + 1);
    let udp = |port| Udp { ports: (port, 9), ..Udp::new("10.1.0.2", "10.3.0.1") };
    let frames: Vec<_> = (0..64).map(|port| udp(port).frame(H0)).collect();
    let sent = edge.receive(H0, &frames);
    assert_eq!(sent.len(), frames.len());
    for port in [F0, F1] {
        assert!(sent.iter().filter(|(of, _)| *of == port).count() > 10);
    }
    // A timestamp bit and the hierarchy of heavy-loss candidates.
    let mark = (plan.first_epoch as u8 & 1) << 7 | 2 << 5;
    for (_, frame) in sent {
        let packet = body(&frame);
        let original = udp(u16::from_be_bytes([packet[20], packet[21]])).packet();
        assert_eq!((packet[0], packet[1], packet[8]), (original[0], mark, 63));
        assert_eq!(calumma_plane::checksum::checksum(&packet[..20]), 0);
        assert_eq!((&packet[2..8], &packet[12..]), (&original[2..8], &original[12..]));
    }
    edge.stop();
}
