//! Sketches collected through the data plane are those in the registers, whatever gets lost.

use std::collections::VecDeque;

use calumma_sketch::Arithmetic;
use calumma_switchd::chamelemon::Source;
use calumma_switchd::collection::{Clearing, FRONT, Gathering, Sender};
use calumma_tna::{Entry, MirrorSession};

use crate::common::{FABRIC, HOST, Numbers, Pair, attention, marked, packet};

const CPU: u16 = 64;
const RECIRCULATION: u16 = 68;
const SESSION: u16 = 5;

/// A switch that has measured an epoch with bit 1, ready for collection.
fn measured(arithmetic: Arithmetic) -> Pair {
    let mut pair = Pair::new(arithmetic, attention());
    for port in [CPU, RECIRCULATION] {
        let entry = Entry::new("accept")
            .exact("ingress_port", port)
            .arg("report_port", CPU)
            .arg("recirculation_port", RECIRCULATION)
            .arg("session", SESSION);
        pair.switch.add_entry("collectors", &entry).unwrap();
    }
    let session = MirrorSession { port: RECIRCULATION, max_length: FRONT };
    pair.switch.set_mirror(SESSION, Some(session));
    pair.begin(9);
    let mut numbers = Numbers(4);
    for _ in 0..5000 {
        let packet = packet(&mut numbers);
        pair.switch.inject(HOST, &packet.bytes);
        pair.switch.inject(FABRIC, &marked(&packet, 0b110));
    }
    pair
}

/// What the registers hold of a source.
fn registers(pair: &Pair, source: Source, bit: usize) -> Vec<u32> {
    let of_array = |name, buckets: u32, array: u8| {
        let all = pair.encoder(name, bit, buckets);
        let words = all.len() / 3;
        all[words * usize::from(array)..words * (usize::from(array) + 1)].to_vec()
    };
    match source {
        Source::Classifier(level) => pair.counters(usize::from(level), bit),
        Source::Upstream(array) => of_array("upstream", pair.layout.upstream_buckets, array),
        Source::Downstream(array) => of_array("downstream", pair.layout.downstream_buckets, array),
    }
}

fn everything_is_collected(arithmetic: Arithmetic) {
    let mut pair = measured(arithmetic);
    for (request, source) in (1..).zip(Source::ALL) {
        let mut gathering = Gathering::new(&source.of(&pair.layout), 1, request);
        for packet in gathering.requests() {
            for (port, report) in pair.switch.inject(CPU, &packet) {
                assert_eq!(port, CPU);
                assert!(report.len() <= 1514, "{} bytes", report.len());
                assert_eq!(gathering.take(&report), Ok(Sender::Last));
            }
        }
        assert!(gathering.is_complete(), "{source:?}");
        let words = gathering.words().unwrap();
        assert!(words.iter().any(|&word| word != 0), "{source:?} has measured something");
        assert!(words == registers(&pair, source, 1), "{source:?}");
        let mut clearing = Clearing::new(&source.of(&pair.layout), 1, request);
        for packet in clearing.requests() {
            for (_, report) in pair.switch.inject(CPU, &packet) {
                assert_eq!(clearing.take(&report), Ok(Sender::Last));
            }
        }
        assert!(clearing.is_complete(), "{source:?}");
        assert!(registers(&pair, source, 1).iter().all(|&word| word == 0), "{source:?}");
    }
    assert_eq!(pair.switch.statistics().out_of_range, 0);
}

#[test]
fn every_source_is_read_and_cleared_with_prime_arithmetic() {
    everything_is_collected(Arithmetic::Prime);
}

#[test]
fn every_source_is_read_and_cleared_with_wrapping_arithmetic() {
    everything_is_collected(Arithmetic::Wrapping);
}

#[test]
fn reports_that_get_lost_are_asked_for_again() {
    let mut pair = measured(Arithmetic::Prime);
    let source = Source::Upstream(2);
    let mut gathering = Gathering::new(&source.of(&pair.layout), 1, 1);
    let mut numbers = Numbers(8);
    let mut rounds = 0;
    while !gathering.is_complete() {
        rounds += 1;
        assert!(rounds < 20, "still incomplete after {rounds} rounds");
        for packet in gathering.requests() {
            for (_, report) in pair.switch.inject(CPU, &packet) {
                // Every third report is lost, some come twice.
                match numbers.below(3) {
                    0 => {}
                    times => (0..times)
                        .for_each(|_| assert_eq!(gathering.take(&report), Ok(Sender::Last))),
                }
            }
        }
    }
    assert!(rounds > 1);
    assert!(gathering.words().unwrap() == registers(&pair, source, 1));
}

/// Packets that were sent again go on clearing behind the ones that were only slow.
#[test]
fn a_group_is_clean_when_nothing_clears_it_any_more() {
    let mut pair = measured(Arithmetic::Prime);
    let source = Source::Upstream(1);
    let mut clearing = Clearing::new(&source.of(&pair.layout), 1, 1);
    let mut under_way = VecDeque::from([clearing.requests()]);
    // The switch is slow: twice they are sent again before it answers.
    under_way.extend([clearing.requests(), clearing.requests()]);
    while !clearing.is_complete() {
        for packet in under_way.pop_front().unwrap() {
            for (_, report) in pair.switch.inject(CPU, &packet) {
                assert_ne!(clearing.take(&report), Ok(Sender::Other));
            }
        }
    }
    // The group is used again, and what was still under way reaches the switch.
    pair.begin(11);
    let mut numbers = Numbers(5);
    (0..100).for_each(|_| drop(pair.switch.inject(HOST, &packet(&mut numbers).bytes)));
    let recorded = registers(&pair, source, 1);
    assert!(recorded.iter().any(|&word| word != 0));
    for packet in under_way.into_iter().flatten() {
        pair.switch.inject(CPU, &packet);
    }
    assert!(recorded == registers(&pair, source, 1), "a packet that was sent again cleared it");
}

#[test]
fn a_group_is_cleared_though_requests_and_reports_get_lost() {
    let mut pair = measured(Arithmetic::Wrapping);
    let source = Source::Classifier(0);
    let mut clearing = Clearing::new(&source.of(&pair.layout), 1, 1);
    let (mut numbers, mut rounds) = (Numbers(8), 0);
    while !clearing.is_complete() {
        rounds += 1;
        assert!(rounds < 20, "still not clear after {rounds} rounds");
        for packet in clearing.requests() {
            if numbers.below(3) == 0 {
                continue;
            }
            for (_, report) in pair.switch.inject(CPU, &packet) {
                // Every third report is lost, some come twice.
                for _ in 0..numbers.below(3) {
                    assert_eq!(clearing.take(&report), Ok(Sender::Last));
                }
            }
        }
    }
    assert!(rounds > 1);
    assert!(registers(&pair, source, 1).iter().all(|&word| word == 0));
}

#[test]
fn collecting_one_group_leaves_the_other_alone_and_traffic_undisturbed() {
    let mut pair = measured(Arithmetic::Prime);
    pair.begin(10);
    let sent = packet(&mut Numbers(77));
    let expected = pair.switch.inject(HOST, &sent.bytes);
    let before = registers(&pair, Source::Upstream(0), 0);
    for request in Clearing::new(&Source::Upstream(0).of(&pair.layout), 1, 3).requests() {
        pair.switch.inject(CPU, &request);
    }
    assert!(before == registers(&pair, Source::Upstream(0), 0));
    assert_eq!(pair.switch.inject(HOST, &sent.bytes).len(), expected.len());
}

#[test]
fn a_host_can_neither_read_nor_clear() {
    let mut pair = measured(Arithmetic::Prime);
    let before = registers(&pair, Source::Upstream(0), 1);
    let mut gathering = Gathering::new(&Source::Upstream(0).of(&pair.layout), 1, 3);
    let mut clearing = Clearing::new(&Source::Upstream(0).of(&pair.layout), 1, 3);
    for request in [gathering.requests(), clearing.requests()].concat() {
        let sent = pair.switch.inject(HOST, &request);
        assert_eq!(sent, [(FABRIC, request)], "passes like any other packet");
    }
    assert!(before == registers(&pair, Source::Upstream(0), 1));
}

#[test]
fn a_packet_that_asks_for_nothing_is_dropped() {
    let mut pair = measured(Arithmetic::Prime);
    let before = registers(&pair, Source::Upstream(0), 1);
    let mut clearing = Clearing::new(&Source::Upstream(0).of(&pair.layout), 1, 3);
    let mut request = clearing.requests().remove(0);
    // Behind Ethernet, source, access and first element it says how many.
    request[18..20].fill(0);
    assert!(pair.switch.inject(CPU, &request).is_empty());
    assert_eq!(pair.switch.statistics().recirculations, 0, "it does not go round");
    assert!(before == registers(&pair, Source::Upstream(0), 1));
}
