//! What a network has done to some packets may have been done to others.

use calumma_chamelemon::{Attention, Hierarchy, Partition, SampleRate};
use calumma_chamelemon_analysis::report::{Amendment, CauseKind, Change, EpochReport, Flow};
use calumma_sketch::{FlowKey, Key};

use crate::world::{FIRST, Fate, World, analyser, healthy, layout};

/// A flow from the hosts of e1 to those of e2.
fn flow(port: u16) -> FlowKey {
    FlowKey::new([10, 1, 0, 2].into(), [10, 2, 0, 7].into(), port, 443, 6).unwrap()
}

/// A flow from the hosts of e3 to those of e2.
fn elsewhere(port: u16) -> FlowKey {
    FlowKey::new([10, 3, 0, 2].into(), [10, 2, 0, 7].into(), port, 443, 6).unwrap()
}

fn send(world: &mut World, epoch: u64, key: FlowKey, fates: &[Fate]) {
    let from = if key.addresses().0 == elsewhere(0).addresses().0 { 2 } else { 0 };
    fates.iter().for_each(|&fate| world.send(FIRST + epoch, [from, 1], key, fate));
}

/// The reports, which must not contradict what happened.
fn reports(world: &World) -> Vec<EpochReport> {
    let reports = world.reports();
    assert_eq!(world.contradicts(&reports), None, "{reports:#?}");
    reports
}

fn lost(report: &EpochReport) -> Vec<(Flow, u64, bool)> {
    report.loss.iter().map(|loss| (loss.flow, loss.lost, loss.at_least)).collect()
}

/// A packet is counted two epochs late, where another of its flow was lost: neither shows.
fn hidden(world: &mut World) {
    send(world, 0, flow(1), &[Fate::Elsewhere(2), Fate::Arrived]);
    send(world, 2, flow(1), &[Fate::Lost, Fate::Arrived]);
}

#[test]
fn a_loss_that_was_none_is_taken_back_once_a_packet_of_another_flow_is_late() {
    let mut world = World::new(healthy(), 6);
    hidden(&mut world);
    send(&mut world, 0, elsewhere(1), &[Fate::Lost, Fate::Arrived]);
    send(&mut world, 4, flow(2), &[Fate::Late(0), Fate::Arrived]);
    send(&mut world, 4, elsewhere(1), &[Fate::Arrived]);
    send(&mut world, 5, flow(2), &[Fate::Arrived]);
    send(&mut world, 5, flow(3), &[Fate::Lost, Fate::Arrived]);
    send(&mut world, 5, elsewhere(3), &[Fate::Lost, Fate::Arrived]);
    let reports = reports(&world);
    let [one, other] = [flow(1), elsewhere(1)].map(|key| (Flow::from(&key), 1, false));
    let mut said = lost(&reports[0]);
    said.sort();
    assert_eq!(said, [one, other], "nothing shows yet");
    // Flows that entered at another edge take other ways.
    let taken: Vec<_> = reports[4].amendments.iter().map(|of| (of.epoch, of.flow)).collect();
    assert_eq!(taken, [(FIRST, one.0)]);
    assert!(reports[4].amendments[0].why.contains("epoch 104 shows"));
    assert_eq!(lost(&reports[5]), [(Flow::from(&elsewhere(3)), 1, false)]);
    let in_doubt = &reports[5].rewritten.iter().find(|of| of.from == Flow::from(&flow(3)));
    assert_eq!(in_doubt.unwrap().what, Change::Epoch);
    let cause = &reports[5].causes[0];
    assert_eq!(
        (cause.edge.as_deref(), cause.kind, cause.packets),
        (Some("e1"), CauseKind::Late, 1)
    );
    assert_eq!(cause.flows, [Flow::from(&flow(2))]);
    assert!(reports[5].complete && !reports[5].losses_are_exact());
}

/// A policy sets a mark that has the other timestamp bit.
#[test]
fn a_loss_is_in_doubt_where_packets_of_other_flows_were_counted_in_the_epoch_before() {
    let mut world = World::new(healthy(), 4);
    send(&mut world, 2, flow(1), &[Fate::Elsewhere(-1), Fate::Arrived]);
    send(&mut world, 1, flow(1), &[Fate::Lost, Fate::Arrived]);
    send(&mut world, 2, flow(2), &[Fate::Elsewhere(-1), Fate::Arrived]);
    send(&mut world, 1, flow(2), &[Fate::Arrived]);
    let reports = reports(&world);
    assert_eq!(lost(&reports[2]), []);
    let mut set_aside: Vec<_> = reports[2].rewritten.iter().map(|of| of.from).collect();
    set_aside.sort();
    assert_eq!(set_aside, [flow(1), flow(2)].map(|key| Flow::from(&key)));
}

#[test]
fn where_most_copies_are_of_flows_that_lost_nothing_the_others_are_chance() {
    let mut world = World::new(healthy(), 3);
    send(&mut world, 0, flow(1), &[Fate::Lost, Fate::Arrived]);
    for port in 1..4 {
        send(&mut world, 2, flow(port), &[Fate::Copied(2)]);
    }
    send(&mut world, 2, flow(9), &[Fate::Lost, Fate::Arrived]);
    let reports = reports(&world);
    assert_eq!(lost(&reports[2]), [(Flow::from(&flow(9)), 1, false)]);
    let amended: Vec<_> = reports[2].amendments.iter().map(|of| of.flow).collect();
    assert_eq!(amended, [Flow::from(&flow(1))], "its own loss is in doubt all the same");
}

#[test]
fn a_strangers_late_packets_put_no_loss_in_doubt() {
    let mut world = World::new(healthy(), 2);
    let stranger = FlowKey::new([10, 9, 9, 9].into(), [10, 2, 0, 7].into(), 0, 0, 1).unwrap();
    world.leave_late(FIRST, 1, stranger, Hierarchy::HlCandidate);
    send(&mut world, 0, flow(1), &[Fate::Lost, Fate::Arrived]);
    send(&mut world, 1, flow(1), &[Fate::Lost, Fate::Arrived]);
    let named = [(Flow::from(&flow(1)), 1, false)];
    assert!(reports(&world).iter().all(|report| lost(report) == named));
}

#[test]
fn marks_that_have_the_epochs_number_leave_none_of_it_in_doubt() {
    let mut world = World::new(healthy(), 6).with_dated_marks();
    send(&mut world, 0, flow(1), &[Fate::Old(2), Fate::Lost, Fate::Arrived]);
    send(&mut world, 0, flow(2), &[Fate::Lost, Fate::Arrived]);
    // Copies, where packets were lost two epochs before.
    send(&mut world, 2, flow(2), &[Fate::Copied(2)]);
    send(&mut world, 3, flow(3), &[Fate::Unmarked(0), Fate::Lost]);
    send(&mut world, 3, flow(4), &[Fate::Lost, Fate::Arrived]);
    let reports = reports(&world);
    assert_eq!(lost(&reports[3]), [(Flow::from(&flow(4)), 1, false)]);
    let amended: Vec<_> = reports.iter().flat_map(|report| &report.amendments).collect();
    assert_eq!(amended.len(), 1);
    assert_eq!((amended[0].flow, amended[0].late), (Flow::from(&flow(1)), Some(1)));
    assert!(reports.iter().all(|report| report.causes.is_empty()));
}

#[test]
fn a_signed_mark_that_comes_when_its_pad_is_gone_takes_its_flows_loss_back() {
    let mut world = World::new(healthy(), 12).with_dated_marks();
    for (epoch, port, late) in [(0, 1, 9), (1, 2, 8)] {
        send(&mut world, epoch, flow(port), &[Fate::Unmarked(late), Fate::Arrived]);
    }
    send(&mut world, 0, flow(4), &[Fate::Lost, Fate::Arrived]);
    let reports = reports(&world);
    let amended = reports[9].amendments.iter().map(|of| (of.epoch - FIRST, of.flow));
    let late = [(0, flow(1)), (1, flow(2))].map(|(epoch, key)| (epoch, Flow::from(&key)));
    assert_eq!(amended.collect::<Vec<_>>(), late);
}

/// What it became says which epochs it may be of, and no others are in doubt.
#[test]
fn a_packet_that_was_translated_and_late_by_epochs_takes_its_flows_loss_back() {
    let became =
        |port| FlowKey::new([10, 1, 0, 2].into(), [10, 9, 0, 7].into(), port, 80, 6).unwrap();
    let mut world = World::new(healthy(), 14).with_dated_marks();
    for epoch in 0..3 {
        send(&mut world, epoch, flow(1), &[Fate::Lost, Fate::Arrived]);
    }
    send(&mut world, 1, flow(1), &[Fate::Translated(became(1), &[3, 4])]);
    send(&mut world, 2, flow(2), &[Fate::Translated(became(2), &[10]), Fate::Arrived]);
    // A stranger, which may be translated from flow 3 or not, says another epoch.
    send(&mut world, 0, flow(3), &[Fate::Lost, Fate::Arrived]);
    world.leave_unmarked(FIRST + 5, 1, became(3), 3);
    let reports = reports(&world);
    let amended = |by: &EpochReport| {
        let of = by.amendments.iter().map(|of| (of.epoch - FIRST, of.flow, of.was, of.lost));
        of.collect::<Vec<_>>()
    };
    assert_eq!(amended(&reports[5]), [(1, Flow::from(&flow(1)), 2, 1)]);
    assert_eq!(amended(&reports[12]), [(2, Flow::from(&flow(2)), 1, 0)]);
    assert!((0..14).all(|at| [5, 12].contains(&at) || reports[at].amendments.is_empty()));
    let mut exact = lost(&reports[0]);
    exact.sort();
    assert_eq!(exact, [1, 3].map(|port| (Flow::from(&flow(port)), 1, false)));
}

/// Where a packet that was translated is two epochs late, another that is lost makes up for it:
/// nothing is too many there.
#[test]
fn a_translated_packet_in_a_later_epoch_with_its_bit_takes_its_flows_loss_back() {
    let became =
        |port| FlowKey::new([10, 1, 0, 2].into(), [10, 9, 0, 7].into(), port, 80, 6).unwrap();
    let mut world = World::new(healthy(), 47);
    for epoch in [0, 1] {
        send(&mut world, epoch, flow(1), &[Fate::BecameElsewhere(became(1), 2), Fate::Arrived]);
    }
    send(&mut world, 2, flow(1), &[Fate::Became(became(1)), Fate::Lost]);
    // No epoch with its bit is open when this one comes.
    send(&mut world, 1, flow(2), &[Fate::BecameLate(became(2), 2), Fate::Arrived]);
    // All that there was of this one, and it has nothing in common with what it became.
    let outside =
        FlowKey::new([100, 64, 0, 1].into(), [10, 9, 9, 9].into(), 6000, 8443, 6).unwrap();
    send(&mut world, 6, elsewhere(3), &[Fate::BecameElsewhere(outside, 40)]);
    // These can't have become any of them.
    send(&mut world, 0, elsewhere(1), &[Fate::Lost, Fate::Arrived]);
    send(&mut world, 1, elsewhere(1), &[Fate::Lost, Fate::Arrived]);
    let reports = reports(&world);
    let amended = reports.iter().flat_map(|report| {
        let of = |of: &Amendment| (report.epoch - FIRST, of.epoch - FIRST, of.flow, of.lost);
        report.amendments.iter().map(of).collect::<Vec<_>>()
    });
    let [one, two, other] = [flow(1), flow(2), elsewhere(3)].map(|key| Flow::from(&key));
    let moved: Vec<_> = reports[2].rewritten.iter().map(|of| (of.from, of.packets)).collect();
    assert_eq!((lost(&reports[2]), moved), (vec![], vec![(one, 2)]));
    let taken = [(2, 0, one, 0), (3, 1, one, 0), (3, 1, two, 0), (46, 6, other, 0)];
    assert_eq!(amended.collect::<Vec<_>>(), taken);
    assert!(reports.iter().flat_map(|report| &report.amendments).all(|of| of.late.is_none()));
}

/// Three bits of the epoch's number are the same every eight epochs.
#[test]
fn what_is_late_by_eight_epochs_or_translated_takes_losses_back_where_marks_have_the_epochs_number()
{
    let became =
        |port| FlowKey::new([10, 1, 0, 2].into(), [10, 9, 0, 7].into(), port, 80, 6).unwrap();
    let mut world = World::new(healthy(), 12).with_dated_marks();
    send(&mut world, 0, flow(1), &[Fate::Elsewhere(8), Fate::Arrived]);
    send(&mut world, 8, flow(1), &[Fate::Arrived]);
    send(&mut world, 1, flow(2), &[Fate::BecameElsewhere(became(2), 8), Fate::Arrived]);
    send(&mut world, 3, flow(3), &[Fate::BecameOld(became(3), 4), Fate::Arrived]);
    // It may be of either epoch in which its flow lost one.
    send(&mut world, 0, flow(4), &[Fate::Old(10), Fate::Arrived]);
    send(&mut world, 8, flow(4), &[Fate::Lost, Fate::Arrived]);
    for epoch in 0..8 {
        send(&mut world, epoch, flow(5), &[Fate::Lost, Fate::Arrived]);
    }
    let reports = reports(&world);
    let amended = reports.iter().flat_map(|report| {
        let of = |of: &Amendment| (report.epoch - FIRST, of.epoch - FIRST, of.flow, of.lost);
        report.amendments.iter().map(of).collect::<Vec<_>>()
    });
    let [one, two, three, four] = [1, 2, 3, 4].map(|port| Flow::from(&flow(port)));
    let taken =
        [(7, 3, three, 0), (8, 0, one, 0), (9, 1, two, 0), (10, 0, four, 0), (10, 8, four, 0)];
    assert_eq!(amended.collect::<Vec<_>>(), taken);
    assert!(reports.iter().flat_map(|report| &report.amendments).all(|of| of.late.is_none()));
}

/// Of flows that are not sampled, some packets enter under hierarchy 0.
#[test]
fn a_packet_more_of_hierarchy_0_than_entered_is_no_copy_for_certain() {
    let partition = Partition { hh: 128, hl: 64, ll: 64 };
    let sample_rate = SampleRate::new(0.001).unwrap();
    let attention = Attention { t_h: 50, t_l: 5, sample_rate, partition };
    let mut world = World::new(attention, 2);
    for port in 1..10 {
        send(&mut world, 0, flow(port), &[Fate::Arrived; 4]);
    }
    let marked = [Fate::Marked(Hierarchy::NonSampledLl)];
    send(&mut world, 0, flow(1), &marked);
    send(&mut world, 1, elsewhere(1), &[Fate::Arrived; 4]);
    send(&mut world, 1, elsewhere(1), &[Fate::Lost; 2]);
    let reports = reports(&world);
    assert!(!reports[0].complete, "{:#?}", reports[0]);
    assert_eq!(reports[0].causes[0].kind, CauseKind::Mark);
    // What it is that does this is not known, nor where.
    assert!(reports[1].loss.is_empty() && !reports[1].losses_are_exact());
}

#[test]
fn flows_may_be_translated_at_both_ends_with_nothing_in_common() {
    let mut world = World::new(healthy(), 1);
    let became = FlowKey::new([100, 64, 0, 1].into(), [10, 9, 0, 7].into(), 6000, 8443, 6).unwrap();
    send(&mut world, 0, flow(1), &[Fate::Became(became); 6]);
    send(&mut world, 0, flow(1), &[Fate::Lost; 2]);
    // Some of this one left as it was, so none was translated.
    send(&mut world, 0, flow(2), &[Fate::Lost, Fate::Arrived]);
    // No NAT makes TCP of this one.
    let dns = FlowKey::new([10, 1, 0, 2].into(), [10, 2, 0, 7].into(), 5353, 53, 17).unwrap();
    send(&mut world, 0, dns, &[Fate::Lost]);
    let reports = reports(&world);
    let mut said = lost(&reports[0]);
    said.sort();
    let mut right = [(&flow(1), 2, true), (&flow(2), 1, false), (&dns, 1, false)]
        .map(|(key, packets, at_least)| (Flow::from(key), packets, at_least));
    right.sort();
    assert_eq!(said, right);
    let of = reports[0].rewritten[0];
    assert_eq!((of.to, of.packets), (Some(Flow::from(&became)), 6));
}

/// A controller that is started anew does not know what edges were late with before.
#[test]
fn where_an_edge_measured_before_the_controller_knew_it_two_epochs_are_in_doubt() {
    let mut world = World::new(healthy(), 4);
    for epoch in 0..4 {
        send(&mut world, epoch, flow(1), &[Fate::Lost, Fate::Arrived]);
    }
    let mut analyser = analyser(layout());
    let mut reports = (FIRST..FIRST + 4).map(|epoch| {
        let mut input = world.input(epoch);
        input.edges[1].measured_before = true;
        analyser.analyse(input)
    });
    for _ in 0..2 {
        let report = reports.next().unwrap();
        let [cause] = &report.causes[..] else { panic!("{report:#?}") };
        assert_eq!((cause.edge.as_deref(), cause.kind), (Some("e2"), CauseKind::Missing));
        assert!(!report.complete && report.loss.is_empty(), "{report:#?}");
    }
    for report in reports {
        assert_eq!(lost(&report), [(Flow::from(&flow(1)), 1, false)]);
    }
}
