//! Probes through an ingress and an egress edge with every carrier: no system records them, the
//! egress edge takes them out and says what arrived, and hosts' own packets of the protocol go
//! through.

use calumma_edge::control::paths::Paths;
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::{Parsed, parse};
use calumma_edge::worker::{DropMask, Policy};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::Hierarchy;
use calumma_plane::probe::{
    FromLcore, Headers, LcoreProbes, PROTOCOL, Probe, ProbeKey, ProbeLine, Sample, Seen,
};
use calumma_sketch::KeyKind;
use calumma_switch_host::Session;
use calumma_wire::{Domain, Message, NO_MARK, PathsWanted, Secret};

use crate::passage::{CARRIERS, EPOCH, Edge, whole};

const SECRET: [u8; 32] = [7; 32];

fn key() -> ProbeKey {
    ProbeKey::new(Secret::new(SECRET))
}

/// A host's packet, of IPv4 or IPv6.
fn packet(ipv6: bool) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if ipv6 {
        frame.extend_from_slice(&[0x86, 0xDD, 0x60, 0, 0, 0, 0, 8, 17, 64]);
        frame.extend_from_slice(&[0xFD; 31]);
        frame.push(1);
    } else {
        frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend_from_slice(&[10, 0, 0, 1, 10, 0, 1, 1]);
    }
    frame.extend_from_slice(&[0x9C, 0x40, 0x14, 0x51, 0, 8, 0, 0]);
    frame
}

fn edge(carrier: calumma_edge::carrier::Carrier) -> (Edge, ProbeLine) {
    let policy = Policy { carrier, ..Policy::default() };
    let mut edge = Edge::by_keys(policy, KeyKind::Dual);
    let (probes, line) = LcoreProbes::new();
    edge.worker.probes = probes;
    edge.worker.probes.set_key(Some(key()));
    (edge, line)
}

fn probe(number: u64) -> Probe {
    let epoch = EPOCH - (number >> 2 & 1);
    let hierarchy = Hierarchy::from_bits((number & 3) as u8);
    Probe { sender: 3, number, epoch, hierarchy, sent_ns: 1000 + number }
}

/// The probe as it enters the network by an edge; none where it does not.
fn entered(edge: &mut Edge, headers: &Headers, probe: &Probe) -> Option<Frame> {
    let (bytes, len, _) = headers.with(probe, &key());
    let mut frame = whole(&bytes[..len]);
    edge.worker.probes.send(probe.mark());
    let drops = edge.worker.ingress(std::slice::from_mut(&mut frame));
    edge.worker.probes.sent();
    drops.is_empty().then_some(frame)
}

fn seen(line: &ProbeLine) -> Vec<Seen> {
    let seen = |found| match found {
        FromLcore::Seen(seen) => Some(seen),
        FromLcore::Sample(_) => None,
    };
    line.found().filter_map(seen).collect()
}

#[test]
fn every_mark_of_every_carrier_arrives_and_hosts_and_systems_get_nothing_of_it() {
    for (name, carrier) in CARRIERS {
        for ipv6 in [false, true] {
            let ((mut entry, entered_line), (mut exit, line)) = (edge(carrier), edge(carrier));
            let host = packet(ipv6);
            entry.worker.probes.want_sample();
            entry.worker.probes.sample(&[whole(&host)], 4);
            let headers = Headers::of(&host).unwrap();
            let sampled: Vec<_> = entered_line.found().collect();
            assert_eq!(sampled, [FromLcore::Sample(Sample { headers, port: 4 })]);
            assert!(!entry.worker.probes.wants_sample());
            let carries = name != "flow label" || ipv6;
            for number in 0..8 {
                let Some(mut frame) = entered(&mut entry, &headers, &probe(number)) else {
                    assert!(!carries, "{name}");
                    continue;
                };
                let drops = exit.worker.egress(std::slice::from_mut(&mut frame));
                assert_eq!(drops, DropMask(1), "{name}, {ipv6}: {number}");
                let [seen] = seen(&line).try_into().expect("one is seen");
                assert_eq!(seen.probe, probe(number), "{name}");
                assert_eq!(seen.arrived.map(|mark| mark.bits()), Some(probe(number).mark_bits()));
                assert_eq!((seen.source, seen.destination), headers.addresses());
            }
            let (entry, exit) = (&entry.worker.counters, &exit.worker.counters);
            let sent = if carries { 8 } else { 0 };
            assert_eq!((entry.probe_sent, entry.probe_unsent), (sent, 8 - sent), "{name}");
            assert_eq!(exit.probe_received, sent, "{name}");
            let recorded = [entry.ingress_recorded, exit.egress_recorded, exit.egress_unmarked];
            assert_eq!(recorded, [0; 3], "{name}");
            assert_eq!(exit.received(), exit.transmitted + exit.dropped(), "{name}");
        }
    }
}

#[test]
fn what_the_network_makes_of_a_mark_is_seen() {
    for (name, carrier) in CARRIERS {
        let ((mut entry, _), (mut exit, line)) = (edge(carrier), edge(carrier));
        let headers = Headers::of(&packet(false)).unwrap();
        let Some(mut frame) = entered(&mut entry, &headers, &probe(2)) else { continue };
        let Parsed::Flow { ip_offset, .. } = parse(frame.bytes(), frame.wire_len()) else {
            // In front of its IP header is a shim, which no router changes.
            continue;
        };
        // The DSCP and the identification become 0.
        let header = &mut frame.bytes_mut()[ip_offset..ip_offset + 20];
        (header[1], header[4], header[5]) = (0, 0, 0);
        exit.worker.egress(std::slice::from_mut(&mut frame));
        let [seen] = seen(&line).try_into().expect("one is seen");
        let arrived = seen.arrived.map(|mark| mark.bits());
        let expected = if name == "tos" { Some(0) } else { None };
        assert_eq!(arrived, expected, "{name}");
    }
}

#[test]
fn packets_of_the_protocol_that_are_no_probes_are_hosts_own() {
    let (name, carrier) = CARRIERS[0];
    let ((mut entry, _), (mut exit, line)) = (edge(carrier), edge(carrier));
    let headers = Headers::of(&packet(false)).unwrap();
    let other = ProbeKey::new(Secret::new([8; 32]));
    let (forged, len, _) = headers.with(&probe(1), &other);
    let mut short = forged[..40].to_vec();
    short[17] = 26;
    let mut frames = [whole(&forged[..len]), whole(&short)];
    assert_eq!(entry.worker.ingress(&mut frames), DropMask::default());
    assert_eq!(exit.worker.egress(&mut frames), DropMask::default(), "{name}");
    assert!(seen(&line).is_empty());
    assert_eq!(exit.worker.counters.egress_recorded, 2);
    assert_eq!(frames[0].bytes()[23], PROTOCOL);
    // Where the hash key changes, edges may still send by the old one.
    exit.worker.probes.set_key(Some(ProbeKey::new(Secret::new([9; 32]))));
    let mut frame = entered(&mut entry, &headers, &probe(1)).unwrap();
    assert_eq!(exit.worker.egress(std::slice::from_mut(&mut frame)), DropMask(1));
    assert_eq!(seen(&line).len(), 1);
    // An edge that has no key, as it has just been started, lets no host have a probe.
    exit.worker.probes.set_key(None);
    let mut frame = entered(&mut entry, &headers, &probe(1)).unwrap();
    assert_eq!(exit.worker.egress(std::slice::from_mut(&mut frame)), DropMask(1));
    assert!(seen(&line).is_empty());
}

#[test]
fn forged_probes_cost_an_lcore_no_more_than_a_few_tags_a_millisecond() {
    let ((mut entry, _), (mut exit, line)) = (edge(CARRIERS[0].1), edge(CARRIERS[0].1));
    let headers = Headers::of(&packet(false)).unwrap();
    let other = ProbeKey::new(Secret::new([8; 32]));
    let mut let_through = |exit: &mut Edge, number| {
        let (bytes, len, _) = headers.with(&probe(number), &other);
        let mut forged = whole(&bytes[..len]);
        assert!(entry.worker.ingress(std::slice::from_mut(&mut forged)).is_empty());
        exit.worker.egress(std::slice::from_mut(&mut forged)).is_empty()
    };
    let now_ns = EPOCH * 3_600_000_000_000 + 1_900_000_000_000;
    exit.worker.tick(now_ns, true);
    let passed = (0..200).filter(|&number| let_through(&mut exit, number)).count();
    assert_eq!((passed, exit.worker.counters.probe_unread), (64, 136));
    // A millisecond later tags are computed again.
    exit.worker.tick(now_ns + 1_000_000, true);
    assert!(let_through(&mut exit, 200));
    let (mut sender, _) = edge(CARRIERS[0].1);
    let mut real = entered(&mut sender, &headers, &probe(1)).unwrap();
    assert_eq!(exit.worker.egress(std::slice::from_mut(&mut real)), DropMask(1));
    assert_eq!((seen(&line).len(), exit.worker.counters.probe_received), (1, 1));
}

/// Two edges' paths, of which the first sends to the host 10.0.1.1 behind the second.
struct Two {
    paths: Paths,
    clock: EpochClock,
}

impl Two {
    fn new() -> Self {
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let session = Session {
            node_id: Some(3),
            hash_key: Secret::new(SECRET),
            clock,
            first_epoch: 1,
            systems: Vec::new(),
            domain: Domain::default(),
            carrier: "tos".to_owned(),
        };
        let mut paths = Paths::default();
        paths.begin(&session, true);
        Self { paths, clock }
    }

    fn sampled(&mut self, now_ns: u64) {
        let headers = Headers::of(&packet(false)).unwrap();
        self.paths.found(0, FromLcore::Sample(Sample { headers, port: 0 }), now_ns);
    }
}

#[test]
fn probes_go_only_where_the_controller_knows_another_edge() {
    let mut two = Two::new();
    let start = two.clock.start_of(100);
    assert!(!two.paths.wants_samples(start), "nobody wants probes yet");
    two.paths.want(PathsWanted { on: true, hosts: Vec::new() });
    assert!(two.paths.wants_samples(start) && !two.paths.wants_samples(start + 1_000_000));
    two.sampled(start);
    let Some(Message::PathsSeen(seen)) = two.paths.message(start + 60_000_000) else {
        panic!("what was seen");
    };
    assert_eq!(seen.hosts, [[10, 0, 0, 1]].map(std::net::IpAddr::from));
    assert_eq!(seen.destinations, [[10, 0, 1, 1]].map(std::net::IpAddr::from));
    assert!(two.paths.due(start + 70_000_000).is_empty());
    let hosts = vec![([10, 0, 1, 1].into(), 4), ([10, 0, 0, 9].into(), 5)];
    two.paths.want(PathsWanted { on: true, hosts });
    // All eight marks.
    let first = two.paths.due(start + 80_000_000);
    assert_eq!(first.len(), 8);
    let mut marks: Vec<_> = first.iter().map(|order| order.mark.bits()).collect();
    marks.sort_unstable();
    marks.dedup();
    assert_eq!(marks, [0, 1, 2, 3, 4, 5, 6, 7]);
    // From then on one an epoch, and all again after a minute.
    let in_a_minute = |from_ns: u64, paths: &mut Paths| {
        (0..60_000).map(|ms| paths.due(from_ns + ms * 1_000_000).len()).sum::<usize>()
    };
    let sent = in_a_minute(start + 81_000_000, &mut two.paths);
    assert!((1195..=1205).contains(&(sent - 8)), "{sent}");
    two.paths.stop();
    assert!(two.paths.due(start + 200_000_000_000).is_empty());
}

#[test]
fn what_is_not_as_it_should_be_is_said_with_all_that_follow_and_else_one_a_second() {
    let mut two = Two::new();
    two.paths.want(PathsWanted { on: true, hosts: Vec::new() });
    let start = two.clock.start_of(100);
    let mut said = Vec::new();
    for number in 0..140 {
        let now_ns = start + number * 50_000_000;
        let probe = Probe { sender: 4, sent_ns: now_ns - 1_000_000, ..probe(2) };
        let mark = if number == 30 { None } else { Some(probe.mark()) };
        let (source, destination) = ([10, 0, 1, 1].into(), [10, 0, 0, 1].into());
        let seen = Seen { probe, arrived: mark, received_ns: now_ns, source, destination };
        two.paths.found(0, FromLcore::Seen(seen), now_ns);
        if let Some(Message::PathsSeen(seen)) = two.paths.message(now_ns) {
            said.extend(seen.probes.iter().map(|probe| (number, probe.arrived)));
        }
    }
    let right = probe(2).mark_bits();
    let arrived = |number| if number == 30 { NO_MARK } else { right };
    let expected: Vec<_> =
        (0..=94).chain([114, 134]).map(|number| (number, arrived(number))).collect();
    assert_eq!(said, expected);
}
