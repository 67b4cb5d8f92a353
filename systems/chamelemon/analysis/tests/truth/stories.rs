//! What networks do to packets, one after the other.

use calumma_chamelemon::{Attention, Hierarchy, Partition, SampleRate};
use calumma_chamelemon_analysis::report::{Change, EpochReport, Flow, LossClass};
use calumma_sketch::{FlowKey, Key};

use crate::world::{FIRST, Fate, World, healthy};

const TCP: u8 = 6;
const UDP: u8 = 17;

fn tcp(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16) -> FlowKey {
    FlowKey::new(src.into(), dst.into(), sport, dport, TCP).unwrap()
}

const CLIENT: [u8; 4] = [10, 1, 0, 2];
const SERVICE: [u8; 4] = [10, 2, 0, 100];
const SERVER: [u8; 4] = [10, 2, 0, 7];

/// Sends packets of a flow from e1 to e2, one for each fate.
fn send(world: &mut World, key: FlowKey, fates: impl IntoIterator<Item = Fate>) {
    for fate in fates {
        world.send(FIRST, [0, 1], key, fate);
    }
}

fn times(fate: Fate, times: usize) -> impl Iterator<Item = Fate> {
    std::iter::repeat_n(fate, times)
}

/// The report on the only epoch, which must not contradict what happened.
fn report(world: &World) -> EpochReport {
    let mut reports = world.reports();
    assert_eq!(world.contradicts(&reports), None);
    reports.remove(0)
}

fn lost(report: &EpochReport) -> Vec<(Flow, u64, bool)> {
    report.loss.iter().map(|loss| (loss.flow, loss.lost, loss.at_least)).collect()
}

fn rewritten(report: &EpochReport) -> Vec<(Flow, Option<Flow>, u64)> {
    report.rewritten.iter().map(|of| (of.from, of.to, of.packets)).collect()
}

#[test]
fn a_strangers_packets_cost_no_loss_its_exactness() {
    let mut world = World::new(healthy(), 1);
    let flow = tcp(CLIENT, 40_000, SERVER, 443);
    send(&mut world, flow, times(Fate::Lost, 3).chain(times(Fate::Arrived, 5)));
    // An ICMP error of a router.
    let error = FlowKey::new([10, 9, 9, 9].into(), CLIENT.into(), 0, 0, 1).unwrap();
    world.leave(FIRST, 0, error, Hierarchy::HlCandidate);
    let report = report(&world);
    assert_eq!(lost(&report), [(Flow::from(&flow), 3, false)]);
    assert!(report.surplus.len() == 1 && report.surplus[0].stranger);
    assert!(report.losses_are_exact());
}

#[test]
fn copies_of_a_flow_leave_others_losses_exact_and_the_epochs_sum_a_bound() {
    let mut world = World::new(healthy(), 1);
    let (copied, other) = (tcp(CLIENT, 1, SERVER, 443), tcp(CLIENT, 2, SERVER, 443));
    send(&mut world, copied, [Fate::Copied(3), Fate::Lost, Fate::Arrived]);
    send(&mut world, other, [Fate::Arrived, Fate::Lost]);
    let report = report(&world);
    assert_eq!(lost(&report), [(Flow::from(&other), 1, false)]);
    assert_eq!((report.surplus[0].packets, report.surplus[0].stranger), (1, false));
    assert!(report.losses_are_decoded() && !report.losses_are_exact());
}

#[test]
fn a_loss_beside_copies_in_the_other_encoder_is_a_lower_bound() {
    let partition = Partition { hh: 128, hl: 64, ll: 64 };
    let attention = Attention { t_h: 50, t_l: 5, sample_rate: SampleRate::ALL, partition };
    let mut world = World::new(attention, 1);
    let flow = tcp(CLIENT, 1, SERVER, 443);
    // The first four are light, the others heavy.
    let light = [Fate::Copied(2), Fate::Copied(2), Fate::Arrived, Fate::Arrived];
    send(&mut world, flow, light.into_iter().chain(times(Fate::Lost, 5)));
    let report = report(&world);
    assert_eq!(lost(&report), [(Flow::from(&flow), 3, true)]);
    assert_eq!(report.loss[0].class, LossClass::Heavy);
    assert_eq!(rewritten(&report), [(Flow::from(&flow), Some(Flow::from(&flow)), 2)]);
}

#[test]
fn re_marked_packets_are_not_lost() {
    let partition = Partition { hh: 128, hl: 64, ll: 64 };
    let attention = Attention { t_h: 50, t_l: 5, sample_rate: SampleRate::ALL, partition };
    let mut world = World::new(attention, 1);
    let flow = tcp(CLIENT, 1, SERVER, 443);
    send(&mut world, flow, times(Fate::Marked(Hierarchy::HlCandidate), 4));
    let report = report(&world);
    assert_eq!(lost(&report), []);
    assert!(report.surplus.is_empty());
    assert_eq!(report.rewritten[0].what, Change::Mark);
    assert_eq!(report.rewritten[0].packets, 4);
}

/// A load balancer gives each of a service's flows to a server, and loses some packets of one.
#[test]
fn translated_flows_are_named_with_what_they_became_and_the_rest_was_lost() {
    let mut world = World::new(healthy(), 1);
    let became = |port| tcp(CLIENT, port, SERVER, 8443);
    for port in 1..30 {
        let fates = times(Fate::Became(became(port)), usize::from(port));
        send(&mut world, tcp(CLIENT, port, SERVICE, 443), fates);
    }
    let victim = tcp(CLIENT, 99, SERVICE, 443);
    let fates = times(Fate::Became(became(99)), 80).chain(times(Fate::Lost, 20));
    send(&mut world, victim, fates);
    let own = tcp(CLIENT, 1000, SERVER, 22);
    send(&mut world, own, [Fate::Lost, Fate::Arrived]);

    let report = report(&world);
    assert_eq!(lost(&report), [(Flow::from(&victim), 20, true), (Flow::from(&own), 1, false)]);
    assert_eq!(report.rewritten.len(), 30);
    for of in &report.rewritten {
        assert_eq!(of.to, Some(Flow::from(&became(of.from.sport))), "{of:?}");
        assert_eq!(of.what, Change::Address);
    }
}

/// Many hosts behind one address: who became whom shows by the number of packets only.
#[test]
fn a_translation_is_named_only_where_one_flow_fits() {
    let mut world = World::new(healthy(), 1);
    let outside = |port| tcp([192, 0, 2, 1], port, SERVICE, 443);
    for (host, packets) in [(1, 5), (2, 7), (3, 9), (4, 9)] {
        let fates = times(Fate::Became(outside(6000 + u16::from(host))), packets);
        send(&mut world, tcp([10, 1, 0, host], 40_000, SERVICE, 443), fates);
    }
    let report = report(&world);
    assert_eq!(lost(&report), []);
    let to: Vec<_> = report.rewritten.iter().map(|of| (of.packets, of.to)).collect();
    let named = |port| Some(Flow::from(&outside(port)));
    assert_eq!(to, [(9, None), (9, None), (7, named(6002)), (5, named(6001))]);
}

#[test]
fn both_ends_of_a_flow_may_be_translated_where_none_of_it_left() {
    let mut world = World::new(healthy(), 1);
    let (flow, inside) = (tcp(CLIENT, 4000, SERVICE, 443), tcp([10, 3, 0, 1], 1, SERVER, 443));
    send(&mut world, flow, times(Fate::Became(inside), 6));
    // This one has the same port, but some of it left as it was.
    let other = tcp(CLIENT, 4001, [10, 2, 0, 8], 443);
    send(&mut world, other, [Fate::Lost, Fate::Arrived]);
    let report = report(&world);
    assert_eq!(lost(&report), [(Flow::from(&other), 1, false)]);
    assert_eq!(rewritten(&report), [(Flow::from(&flow), Some(Flow::from(&inside)), 6)]);
}

#[test]
fn a_tunnel_may_carry_any_flow() {
    let mut world = World::new(healthy(), 1);
    let tunnel = FlowKey::new([10, 9, 0, 1].into(), [10, 9, 0, 2].into(), 0, 0, 47).unwrap();
    let dns = FlowKey::new(CLIENT.into(), SERVER.into(), 5353, 53, UDP).unwrap();
    send(&mut world, dns, times(Fate::Became(tunnel), 4));
    let flow = tcp(CLIENT, 4000, SERVER, 443);
    send(&mut world, flow, times(Fate::Lost, 7));
    let report = report(&world);
    assert_eq!(lost(&report), [(Flow::from(&flow), 3, true)]);
    let flows = [(Flow::from(&dns), None, 4), (Flow::from(&flow), None, 4)];
    let mut said = rewritten(&report);
    said.sort_by_key(|(from, ..)| from.sport == 4000);
    assert_eq!(said, flows);
}

/// A packet says only whether its epoch is even or odd.
#[test]
fn what_arrives_epochs_later_amends_the_report_that_had_it_lost() {
    let mut world = World::new(healthy(), 8);
    let (late, lost) = (tcp(CLIENT, 1, SERVER, 443), tcp(CLIENT, 2, SERVER, 443));
    send(&mut world, late, [Fate::Elsewhere(2), Fate::Elsewhere(6), Fate::Lost, Fate::Arrived]);
    send(&mut world, lost, [Fate::Lost, Fate::Arrived]);
    let reports = world.reports();
    assert_eq!(world.contradicts(&reports), None);
    let amended: Vec<_> = reports.iter().map(|report| report.amendments.len()).collect();
    assert_eq!(amended, [0, 0, 1, 0, 0, 0, 0, 0]);
    let amendment = &reports[2].amendments[0];
    assert_eq!((amendment.epoch, amendment.flow), (FIRST, Flow::from(&late)));
    assert_eq!((amendment.was, amendment.lost, amendment.at_most_late), (3, 0, Some(3)));
    assert!(amendment.why.contains("in epoch 102"), "{}", amendment.why);
}

#[test]
fn packets_with_the_other_timestamp_bit_are_not_lost() {
    let mut world = World::new(healthy(), 3);
    let flow = tcp(CLIENT, 1, SERVER, 443);
    world.send(FIRST + 1, [0, 1], flow, Fate::Elsewhere(-1));
    world.send(FIRST + 1, [0, 1], flow, Fate::Elsewhere(1));
    world.send(FIRST + 1, [0, 1], tcp(CLIENT, 2, SERVER, 443), Fate::Lost);
    let reports = world.reports();
    assert_eq!(world.contradicts(&reports), None);
    assert_eq!(lost(&reports[1]).len(), 1);
    assert_eq!(rewritten(&reports[1]), [(Flow::from(&flow), Some(Flow::from(&flow)), 2)]);
}
