//! Packets of hosts outside the deployment's domain are no one's.

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::{Attention, Layout, SwitchHalf};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::packet::Frame;
use calumma_plane::worker::{Policy, Worker};
use calumma_plane::{LcoreMerger, Measurement, Packet};
use calumma_sketch::HashKey;
use calumma_wire::{Domain, Secret};

const FIRST: u64 = 100;

/// A worker in a session, in the middle of its second epoch.
fn worker(domain: Domain) -> Worker {
    let layout = Layout { upstream_buckets: 64, downstream_buckets: 32, ..Layout::default() };
    let (keys, attention) = (layout.keys, Attention::healthy(&layout, 16));
    let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
    let hash_key = HashKey::from_bytes([7; 32]);
    let plan = SessionPlan { layout, hash_key, clock, first_epoch: FIRST, attention };
    let (mut merger, mut mailboxes) = LcoreMerger::new(1);
    merger.set_domain(domain);
    let systems: Vec<Box<dyn calumma_plane::SwitchSystem>> =
        vec![Box::new(SwitchHalf::new(plan).unwrap())];
    merger.begin(clock, FIRST, Secret::new([7; 32]), keys, systems);
    let mut worker = Worker::new(Policy::default(), Measurement::new(mailboxes.remove(0)));
    worker.advance_to(clock.start_of(FIRST - 1));
    worker.advance_to(clock.start_of(FIRST + 1) + 25_000_000);
    worker
}

/// A UDP packet between two hosts, with CS6 in its ToS byte.
fn frame(from: [u8; 4], to: [u8; 4]) -> Frame {
    let mut bytes = vec![0; 12];
    bytes.extend([8, 0, 0x45, 0xC0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend(from);
    bytes.extend(to);
    bytes.extend([0x30, 0x39, 0, 80, 0, 8, 0, 0]);
    Frame::new(bytes)
}

#[test]
fn strangers_packets_pass_as_they_are_and_are_recorded_nowhere() {
    let domain = Domain::new(vec!["10.0.0.0/8".parse().unwrap()]).unwrap();
    let (ours, others) = ([10, 0, 0, 1], [192, 0, 2, 1]);
    let burst = || [frame(ours, [10, 9, 0, 1]), frame(others, ours), frame(ours, others)];
    let before = frame(others, ours).bytes().to_vec();

    let mut within = worker(domain);
    let mut entering = burst();
    assert!(within.ingress(&mut entering).is_empty());
    assert_eq!(entering[1].bytes(), before, "it bears no mark of ours");
    assert!(within.egress(&mut entering).is_empty());
    assert_eq!(entering[1].bytes(), before, "nor is one taken out");
    let counters = &within.counters;
    assert_eq!((counters.ingress_recorded, counters.ingress_outside), (1, 2));
    let left = counters.egress_recorded + counters.egress_late + counters.egress_unrecorded;
    assert_eq!((left, counters.egress_outside), (1, 2));

    let mut everything = worker(Domain::default());
    let mut entering = burst();
    everything.ingress(&mut entering);
    assert_eq!(everything.counters.ingress_recorded, 3);
    assert_eq!(everything.counters.ingress_outside, 0);
}
