use super::*;
use calumma_epoch::Guards;

const LENGTH: u64 = 50_000_000;

fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn names(at: usize) -> &'static str {
    ["e1", "e2", "e3"][at]
}

fn paths() -> Paths {
    let clock = EpochClock::new(LENGTH, Guards::default()).unwrap();
    let mut paths = Paths::new(clock, true, [11, 12, 13]);
    (0..3).for_each(|edge| paths.connected(edge, 0, true, 2));
    paths
}

/// A probe from e1 that was sent in the middle of an epoch.
fn probe(epoch: u64, mark: u8, arrived: u8, flight_ms: u64) -> ProbeSeen {
    let sent_ns = epoch * LENGTH + LENGTH / 2;
    let received_ns = sent_ns + flight_ms * 1_000_000;
    let (source, destination) = (address(1), address(2));
    ProbeSeen { from: 11, mark, arrived, sent_ns, received_ns, source, destination }
}

fn take(paths: &mut Paths, probe: ProbeSeen) {
    let epoch = probe.sent_ns / LENGTH;
    paths.take(1, PathsSeen { probes: vec![probe], ..PathsSeen::default() }, epoch);
}

#[test]
fn edges_probe_hosts_that_others_have_in_front_of_them_and_no_one_else() {
    let mut paths = paths();
    let nothing = PathsWanted { on: true, hosts: Vec::new() };
    let first = paths.messages();
    assert_eq!(first, [0, 1, 2].map(|edge| (edge, nothing.clone())));
    let seen = |hosts: &[u8], destinations: &[u8]| PathsSeen {
        hosts: hosts.iter().copied().map(address).collect(),
        destinations: destinations.iter().copied().map(address).collect(),
        probes: Vec::new(),
    };
    paths.take(0, seen(&[1], &[1, 2, 9]), 0);
    assert!(paths.messages().is_empty());
    paths.take(1, seen(&[2], &[]), 0);
    let wanted = PathsWanted { on: true, hosts: vec![(address(2), 12)] };
    assert_eq!(paths.messages(), [(0, wanted)]);
    assert!(paths.messages().is_empty());
    // A switch that knows no probes would let them through to hosts.
    paths.connected(2, 0, false, 2);
    let off = PathsWanted::default();
    assert_eq!(paths.messages(), [(0, off.clone()), (1, off)]);
    assert!(!paths.is_on());
    paths.disconnected(2, 0);
    assert_eq!(paths.messages().len(), 2);
}

#[test]
fn a_path_that_rewrites_marks_is_named_until_all_have_come_through() {
    let mut paths = paths();
    (0..8).for_each(|mark| take(&mut paths, probe(100, mark, mark, 1)));
    assert_eq!(paths.problems(100, names), [None, None, None]);
    take(&mut paths, probe(110, 5, 0, 1));
    take(&mut paths, probe(111, 6, 0, 1));
    assert_eq!(paths.problems(109, names)[1], None);
    let problem = paths.problems(112, names)[1].clone().unwrap();
    assert!(problem.contains("from e1 (10.0.0.1 to 10.0.0.2): 101 arrives as 000"), "{problem}");
    take(&mut paths, probe(120, 5, 5, 1));
    assert!(paths.problems(120, names)[1].is_some(), "110 has not come through");
    take(&mut paths, probe(121, 6, 6, 1));
    assert_eq!(paths.problems(122, names)[1], None);
    assert!(paths.problems(121, names)[1].is_some());
    let status = paths.status(115, names);
    assert_eq!((status.len(), status[0].marks_tried), (1, 8));
    assert_eq!(status[0].since_epoch, Some(110));
}

#[test]
fn epochs_are_in_doubt_from_the_last_probe_that_came_in_time_to_the_next() {
    let mut paths = paths();
    take(&mut paths, probe(100, 0, 0, 2));
    take(&mut paths, probe(102, 0, 0, 47));
    take(&mut paths, probe(104, 0, 0, 600));
    for (epoch, is_sound) in [(101, true), (102, false), (104, false), (150, false)] {
        assert_eq!(paths.problems(epoch, names)[1].is_none(), is_sound, "{epoch}");
    }
    let problem = paths.problems(104, names)[1].clone().unwrap();
    assert!(problem.contains("from e1 take up to 600 ms"), "{problem}");
    assert!(problem.contains("beyond 48 ms"), "{problem}");
    take(&mut paths, probe(160, 0, 0, 3));
    assert!(paths.problems(160, names)[1].is_some());
    assert_eq!(paths.problems(161, names)[1], None);
}

/// What a queue held up for three epochs before a window, or in its middle, is counted in it, and
/// the window is reported when the queue has long been empty.
#[test]
fn windows_are_in_doubt_whose_packets_may_be_those_of_other_epochs() {
    let mut paths = paths();
    take(&mut paths, probe(118, 0, 0, 2));
    take(&mut paths, probe(119, 0, 0, 170));
    take(&mut paths, probe(120, 0, 0, 3));
    let is_sound = |paths: &Paths, window| paths.problems_around(&window, names)[1].is_none();
    // The probe came in epoch 122, and packets in front of it may have come in any before.
    let windows = [(96..116, true), (97..117, false), (100..120, false), (124..144, false)];
    for (window, expected) in windows {
        assert_eq!(is_sound(&paths, window.clone()), expected, "{window:?}");
    }
    assert!(is_sound(&paths, 125..145));
    assert!(!is_sound(&paths, 0..1000));
    // By the time that a window of 1000 epochs is reported.
    take(&mut paths, probe(1110, 0, 0, 2));
    take(&mut paths, probe(1120, 0, 0, 600));
    assert!(!is_sound(&paths, 100..1100) && is_sound(&paths, 130..1100));
    let problem = paths.problems_around(&(100..1100), names)[1].clone().unwrap();
    assert!(problem.contains("packets from e1 take up to"), "{problem}");
}

#[test]
fn a_path_that_changes_often_is_known_for_each_epoch_that_may_be_reported() {
    let mut paths = paths();
    for (epoch, arrived) in [(100, 1), (102, 0), (104, 3), (110, 3), (112, 0), (114, 3)] {
        take(&mut paths, probe(epoch, 3, arrived, 1));
    }
    let trusted = |paths: &Paths, epoch| paths.problems(epoch, names)[1].is_none();
    let expected = [(99, true), (100, false), (104, false), (105, true), (112, false)];
    for (epoch, is_trusted) in expected {
        assert_eq!(trusted(&paths, epoch), is_trusted, "{epoch}");
    }
    take(&mut paths, probe(120, 3, 3, 600));
    assert!(!trusted(&paths, 100), "its report may still come");
}

#[test]
fn reports_of_epochs_before_an_edge_went_know_what_was_wrong_with_its_paths() {
    let mut paths = paths();
    take(&mut paths, probe(100, 5, 0, 1));
    paths.disconnected(0, 110);
    let problem = |paths: &Paths, epoch| paths.problems(epoch, names)[1].clone();
    assert!(problem(&paths, 105).unwrap().contains("101 arrives as 000"));
    assert_eq!((problem(&paths, 111), paths.status(105, names).len()), (None, 0));
    paths.connected(0, 120, true, 2);
    take(&mut paths, probe(121, 5, 5, 1));
    assert!(problem(&paths, 105).is_some());
    assert_eq!((problem(&paths, 121), paths.status(121, names)[0].probes), (None, 1));
    paths.disconnected(2, 110 + REMEMBERED + 100);
    take(&mut paths, probe(300, 5, 5, 1));
    paths.disconnected(0, 400);
    paths.connected(0, 401 + REMEMBERED, true, 2);
    assert_eq!(problem(&paths, 105), None, "forgotten");
}

#[test]
fn only_edges_with_packets_for_a_host_are_sent_where_it_is() {
    let ids = 1..=1000;
    let clock = EpochClock::new(LENGTH, Guards::default()).unwrap();
    let mut paths = Paths::new(clock, true, ids.clone());
    let host = |edge: u16| IpAddr::from([10, 1, (edge >> 8) as u8, edge as u8]);
    for id in ids.clone() {
        paths.connected(usize::from(id) - 1, 0, true, 2);
        let destinations = (1..=8).map(|further| host((id + further - 1) % 1000 + 1));
        let (hosts, destinations) = (vec![host(id)], destinations.collect());
        let seen = PathsSeen { hosts, destinations, probes: Vec::new() };
        paths.take(usize::from(id) - 1, seen, 0);
    }
    let first = paths.messages();
    assert_eq!(first.len(), 1000);
    assert!(first.iter().all(|(_, wanted)| wanted.on && wanted.hosts.len() == 8));
    paths.disconnected(499, 10);
    let next: Vec<_> = paths.messages().into_iter().map(|(at, _)| at).collect();
    assert_eq!(next, (491..499).collect::<Vec<_>>());
    assert_eq!(paths.senders.len(), 1000);
}

#[test]
fn a_mark_that_says_more_of_the_epoch_may_take_longer() {
    let mut paths = paths();
    paths.connected(1, 0, true, 8);
    take(&mut paths, probe(100, 0, 0, 300));
    assert_eq!(paths.problems(100, names)[1], None);
    take(&mut paths, probe(101, 3, NO_MARK, 500));
    let problem = paths.problems(101, names)[1].clone().unwrap();
    assert!(problem.contains("011 arrives without a valid mark"), "{problem}");
    assert!(problem.contains("beyond 348 ms"), "{problem}");
}

/// An edge may say what it likes: nothing grows without bound, and nothing overflows.
#[test]
fn probes_that_an_edge_makes_up_take_little_memory() {
    let mut paths = paths();
    let made_up = |number: u64, sent_ns| {
        let destination = [10, 1, (number >> 8) as u8, number as u8].into();
        ProbeSeen { destination, sent_ns, arrived: 9, ..probe(100, (number % 8) as u8, 0, 1) }
    };
    (0..8000).for_each(|number| take(&mut paths, made_up(number, 5_000_000_000 + number)));
    let status = paths.status(100, names);
    assert_eq!((status[0].probes, status[0].marks_changed.len()), (8000, 2048));
    assert_eq!(status[0].marks_tried, 8);
    (0..2).for_each(|number| take(&mut paths, made_up(number, u64::MAX)));
    let status = paths.status(100, names);
    assert_eq!((status[0].marks_tried, status[0].marks_changed.len()), (2, 2));
}

/// One that was sent before the slow one comes in time, after it.
#[test]
fn probes_out_of_order_take_no_doubt_back_and_add_few() {
    let mut paths = paths();
    for _ in 0..100 {
        take(&mut paths, probe(104, 0, 0, 600));
        take(&mut paths, probe(100, 0, 0, 2));
    }
    assert!(paths.problems(104, names)[1].is_some());
    assert_eq!(paths.problems(105, names)[1], None);
    assert!(format!("{:?}", paths.pairs).matches("since").count() < 4);
}
