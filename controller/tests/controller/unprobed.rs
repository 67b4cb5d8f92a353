//! Until probes with each mark have come through, losses on the way to another edge are in doubt.

use std::net::IpAddr;

use calumma_controller::paths::Paths;
use calumma_epoch::{EpochClock, Guards};
use calumma_wire::{PathsSeen, ProbeSeen};

const LENGTH: u64 = 50_000_000;

fn host(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

/// Paths between e1 with host 1, e2 with 2, and e3 with 3.
fn paths(distinct: u64) -> Paths {
    let clock = EpochClock::new(LENGTH, Guards::default()).unwrap();
    let mut paths = Paths::new(clock, true, [11, 12, 13]);
    (0..3).for_each(|edge| paths.connected(edge, 90, true, distinct));
    paths
}

fn list(paths: &mut Paths, edge: u8, destinations: &[u8], epoch: u64) {
    let destinations = destinations.iter().copied().map(host).collect();
    let hosts = vec![host(edge + 1)];
    let seen = PathsSeen { hosts, destinations, probes: Vec::new() };
    paths.take(edge.into(), seen, epoch);
    paths.messages();
}

/// Probes from e1 to e2.
fn probe(paths: &mut Paths, epoch: u64, marks: std::ops::Range<u8>, arrives: fn(u8) -> u8) {
    let sent_ns = epoch * LENGTH + LENGTH / 2;
    let probe = |mark| ProbeSeen {
        from: 11,
        mark,
        arrived: arrives(mark),
        sent_ns,
        received_ns: sent_ns + 1_000_000,
        source: host(1),
        destination: host(2),
    };
    let probes = marks.map(probe).collect();
    paths.take(1, PathsSeen { probes, ..PathsSeen::default() }, epoch);
}

/// Whether what e1 sends in an epoch to hosts 2, 3 and 9 is in doubt; nobody has 9.
fn doubts(paths: &Paths, epoch: u64) -> [bool; 3] {
    let unprobed = paths.unprobed(epoch).swap_remove(0);
    [2, 3, 9].map(|to| unprobed.as_ref().is_some_and(|of| of.concerns(&host(to))))
}

#[test]
fn losses_wait_until_all_marks_have_come_through_to_the_edge_of_their_destination() {
    let mut paths = paths(2);
    assert_eq!(doubts(&paths, 100), [true; 3], "nothing is known yet");
    list(&mut paths, 0, &[2], 100);
    list(&mut paths, 1, &[1], 100);
    list(&mut paths, 2, &[], 100);
    probe(&mut paths, 101, 0..7, |mark| mark);
    assert_eq!(doubts(&paths, 101), [true; 3], "seven of eight");
    probe(&mut paths, 102, 7..8, |mark| mark);
    assert_eq!(doubts(&paths, 101), [true; 3]);
    assert_eq!(doubts(&paths, 102), [false, true, false], "no packet for e3 was seen yet");
    assert_eq!(doubts(&paths, 120), [false; 3]);
    // Now one is.
    list(&mut paths, 0, &[2, 3], 150);
    assert_eq!(doubts(&paths, 150), [false, true, true]);
    assert_eq!(doubts(&paths, 350), [false; 3], "the network may drop probes");
}

#[test]
fn marks_that_are_changed_at_first_are_waited_for() {
    let mut paths = paths(2);
    list(&mut paths, 0, &[2], 100);
    list(&mut paths, 1, &[1], 100);
    probe(&mut paths, 101, 0..8, |_| 0);
    assert!(doubts(&paths, 100)[0] && doubts(&paths, 101)[0]);
    probe(&mut paths, 110, 0..8, |mark| mark);
    assert_eq!((doubts(&paths, 109)[0], doubts(&paths, 110)[0]), (true, false));
}

#[test]
fn nothing_is_waited_for_where_no_probes_are_sent_or_marks_say_more() {
    let mut paths = paths(8);
    assert_eq!(doubts(&paths, 100), [false; 3]);
    paths = self::paths(2);
    paths.connected(2, 95, false, 2);
    assert_eq!(doubts(&paths, 100), [false; 3], "one switch knows no probes");
    paths.connected(2, 96, true, 2);
    assert_eq!(doubts(&paths, 100), [true; 3]);
    paths.enable(false);
    assert_eq!(doubts(&paths, 100), [false; 3]);
}

#[test]
fn an_edge_that_comes_back_is_probed_again_and_epochs_before_stay_as_they_are() {
    let mut paths = paths(2);
    list(&mut paths, 0, &[2], 100);
    list(&mut paths, 1, &[1], 100);
    probe(&mut paths, 101, 0..8, |mark| mark);
    paths.disconnected(0, 150);
    assert_eq!((doubts(&paths, 140), doubts(&paths, 151)), ([false; 3], [true; 3]));
    paths.connected(0, 160, true, 2);
    list(&mut paths, 0, &[2], 161);
    assert_eq!((doubts(&paths, 140), doubts(&paths, 161)), ([false; 3], [true; 3]));
    probe(&mut paths, 162, 0..8, |mark| mark);
    assert!(!doubts(&paths, 162)[0]);
}
