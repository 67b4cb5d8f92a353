//! What networks do to packets, one after the other.

use std::net::IpAddr;
use std::sync::Arc;

use calumma_analysis::Unprobed;
use calumma_chamelemon::{Attention, Balance, Hierarchy, Layout, Partition, SampleRate};
use calumma_chamelemon_analysis::report::{
    CauseKind, Change, DecodeState, EpochReport, Flow, IndistinctFlows, LossClass, StrayKind,
};
use calumma_sketch::{FlowKey, Key};

use crate::world::{FIRST, Fate, World, analyser, healthy, layout};

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

/// A router's error with ToS 0 reads as hierarchy 0, which nothing carries where all packets are
/// encoded: it is known by flow, in time or late, and a neighbour's loss stays exact. Where light
/// losses are sampled, it may be any of the packets that carry it.
#[test]
fn a_stranger_of_hierarchy_0_costs_no_epoch_where_all_packets_are_encoded() {
    let partition = Partition { hh: 128, hl: 64, ll: 64 };
    let rate = SampleRate::new(0.01).unwrap();
    let sampled = Attention { t_h: 50, t_l: 2, sample_rate: rate, partition };
    for (attention, is_exact) in [(healthy(), true), (sampled, false)] {
        for is_late in [false, true] {
            let mut world = World::new(attention, 3);
            let flow = tcp(CLIENT, 40_000, SERVER, 443);
            let error = FlowKey::new([10, 9, 9, 9].into(), CLIENT.into(), 0, 0, 1).unwrap();
            match is_late {
                true => world.leave_late(FIRST, 0, error, Hierarchy::NonSampledLl),
                false => world.leave(FIRST, 0, error, Hierarchy::NonSampledLl),
            }
            for epoch in FIRST..FIRST + 3 {
                let fates = times(Fate::Arrived, 5).chain(times(Fate::Lost, 3));
                fates.for_each(|fate| world.send(epoch, [0, 1], flow, fate));
            }
            let reports = world.reports();
            assert_eq!(world.contradicts(&reports), None);
            let all: Vec<_> = reports.iter().flat_map(lost).collect();
            assert_eq!(all == [(Flow::from(&flow), 3, false); 3], is_exact, "{all:?}");
            let is_known = reports[0].strays.iter().any(|of| of.flows[0].flow == (&error).into());
            assert_eq!(is_known, is_exact);
        }
    }
}

/// A flow outside the sample is encoded from its T_l-th packet on: of what it lost before, and of
/// what smaller flows lost, nothing is known.
#[test]
fn what_a_flow_outside_the_sample_lost_is_a_lower_bound() {
    let partition = Partition { hh: 128, hl: 64, ll: 64 };
    let [all, few] = [1.0, 0.001].map(|rate| SampleRate::new(rate).unwrap());
    for (t_l, sample_rate, lost_at_least) in
        [(5, few, Some(6)), (5, all, None), (1, few, None), (11, few, Some(0))]
    {
        let mut world = World::new(Attention { t_h: 50, t_l, sample_rate, partition }, 1);
        let flow = tcp(CLIENT, 1, SERVER, 443);
        send(&mut world, flow, times(Fate::Lost, 10));
        let report = report(&world);
        let known = (lost_at_least.unwrap_or(10), lost_at_least.is_some());
        let expected = (known.0 > 0).then_some((Flow::from(&flow), known.0, known.1));
        assert_eq!(lost(&report), Vec::from_iter(expected), "T_l {t_l}");
        assert!(report.losses_are_decoded());
        assert_eq!(report.losses_are_exact(), lost_at_least.is_none(), "T_l {t_l}");
    }
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
    // The other entered at the same edge.
    assert_eq!(amended, [0, 0, 2, 0, 0, 0, 0, 0]);
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
    world.send(FIRST + 1, [2, 1], tcp(CLIENT, 2, SERVER, 443), Fate::Lost);
    let reports = world.reports();
    assert_eq!(world.contradicts(&reports), None);
    assert_eq!(lost(&reports[1]).len(), 1);
    assert_eq!(rewritten(&reports[1]), [(Flow::from(&flow), Some(Flow::from(&flow)), 2)]);
}

#[test]
fn late_packets_are_not_lost_and_spoil_no_epoch() {
    let mut world = World::new(healthy(), 3);
    let flow = |port| tcp(CLIENT, port, SERVER, 443);
    let (late, lost_too, other) = (flow(1), flow(2), flow(3));
    send(&mut world, late, [Fate::Late(0), Fate::Late(0), Fate::Arrived]);
    send(&mut world, lost_too, [Fate::Late(0), Fate::Lost, Fate::Lost, Fate::Arrived]);
    // At another edge.
    for fate in [Fate::Lost, Fate::Arrived] {
        world.send(FIRST, [2, 1], other, fate);
    }
    let reports = world.reports();
    assert_eq!(world.contradicts(&reports), None);
    assert!(reports.iter().all(EpochReport::losses_are_decoded), "{reports:#?}");
    assert_eq!(lost(&reports[0]), [(Flow::from(&other), 1, false)]);
    let doubts = [(&late, 2), (&lost_too, 1), (&lost_too, 2)].map(|(flow, packets)| {
        let flow = Flow::from(flow);
        (flow, Some(flow), packets)
    });
    // Others may have been so late that they are counted in another epoch.
    assert_eq!(rewritten(&reports[0]), doubts);
    // They may be early for the third epoch, and under another mark of the one in between.
    assert!(reports[1..].iter().all(|report| rewritten(report) == doubts[..2]));
    assert!(reports[0].rewritten.iter().all(|of| of.what == Change::Epoch));
    let strays = &reports[0].strays[0];
    assert_eq!((strays.edge.as_str(), strays.what, strays.packets), ("e2", StrayKind::Late, 3));
}

#[test]
fn late_packets_whose_marks_have_the_epochs_number_cost_no_loss_its_exactness() {
    let mut world = World::new(healthy(), 3);
    let (late, copied) = (tcp(CLIENT, 1, SERVER, 443), tcp(CLIENT, 2, SERVER, 443));
    send(&mut world, late, [Fate::Old(0), Fate::Old(0), Fate::Lost, Fate::Arrived]);
    send(&mut world, copied, [Fate::Copied(2), Fate::Old(0)]);
    let reports = world.reports();
    assert_eq!(world.contradicts(&reports), None);
    assert_eq!(lost(&reports[0]), [(Flow::from(&late), 1, false)]);
    assert_eq!(reports[0].surplus.len(), 1);
    assert!(reports.iter().all(|report| report.rewritten.is_empty()));
}

/// A policy sets a class whose mark has the other timestamp bit, when no epoch with that is open.
#[test]
fn packets_that_seem_late_for_the_epoch_before_are_not_lost() {
    let mut world = World::new(healthy(), 3);
    let flow = tcp(CLIENT, 1, SERVER, 443);
    for fate in [Fate::Late(-1), Fate::Late(-1), Fate::Lost, Fate::Arrived] {
        world.send(FIRST + 1, [0, 1], flow, fate);
    }
    let reports = world.reports();
    assert_eq!(world.contradicts(&reports), None);
    assert_eq!(lost(&reports[1]), [(Flow::from(&flow), 1, true)]);
}

/// An ingress edge's clock is ahead, by too little to be noticed: the first packet of an epoch
/// comes before the egress edge has armed it. Another flow's is late by more than an epoch.
#[test]
fn what_may_be_early_or_late_is_lost_in_neither_epoch() {
    let mut world = World::new(healthy(), 5);
    let (early, late) = (tcp(CLIENT, 1, SERVER, 443), tcp(CLIENT, 2, SERVER, 443));
    world.send(FIRST, [0, 1], early, Fate::Lost);
    world.send(FIRST + 2, [0, 1], early, Fate::Late(-2));
    world.send(FIRST, [0, 1], late, Fate::Late(2));
    for flow in [early, late] {
        for fate in [Fate::Lost, Fate::Lost, Fate::Copied(2)] {
            world.send(FIRST + 2, [0, 1], flow, fate);
        }
    }
    let reports = world.reports();
    assert_eq!(world.contradicts(&reports), None);
    assert!(reports.iter().all(EpochReport::losses_are_decoded));
    // For all that marks say, the early packet is the one that is missing in the first epoch, and
    // all that entered at the same edge may be late like that.
    assert_eq!(lost(&reports[0]), []);
    assert_eq!(lost(&reports[2]), []);
    let set_aside = rewritten(&reports[2]);
    assert!([early, late].iter().all(|flow| set_aside.iter().any(|of| of.0 == Flow::from(flow))));
    assert_eq!(rewritten(&reports[4]), [(Flow::from(&late), Some(Flow::from(&late)), 1)]);
}

#[test]
fn copies_of_a_flow_with_packets_that_may_be_early_are_a_lower_bound() {
    let mut world = World::new(healthy(), 3);
    let flow = tcp(CLIENT, 1, SERVER, 443);
    world.send(FIRST + 2, [0, 1], flow, Fate::Late(-2));
    world.send(FIRST + 2, [0, 1], flow, Fate::Copied(4));
    let reports = world.reports();
    assert_eq!(world.contradicts(&reports), None);
    let surplus = reports[2].surplus[0];
    assert_eq!((surplus.packets, surplus.partial, surplus.stranger), (2, true, false));
}

#[test]
fn a_packet_whose_mark_has_its_epoch_amends_that_one_exactly() {
    let mut world = World::new(healthy(), 8);
    let flow = tcp(CLIENT, 1, SERVER, 443);
    send(&mut world, flow, [Fate::Old(4), Fate::Lost, Fate::Arrived]);
    world.send(FIRST + 4, [0, 1], flow, Fate::Lost);
    let reports = world.reports();
    assert_eq!(world.contradicts(&reports), None);
    let amendment = &reports[4].amendments[0];
    assert_eq!((amendment.was, amendment.lost, amendment.late), (2, 1, Some(1)));
    assert_eq!(lost(&reports[4]), [(Flow::from(&flow), 1, false)]);
    assert!(reports.iter().all(|report| report.complete));
}

#[test]
fn packets_without_a_mark_that_fits_are_not_lost() {
    let mut world = World::new(healthy(), 2);
    let (marked, unmarked) = (tcp(CLIENT, 1, SERVER, 443), tcp(CLIENT, 2, SERVER, 443));
    let own = tcp(CLIENT, 3, SERVER, 443);
    send(&mut world, marked, times(Fate::Marked(Hierarchy::SampledLl), 4));
    send(&mut world, unmarked, times(Fate::Unmarked(0), 3));
    send(&mut world, own, [Fate::Lost, Fate::Arrived]);
    let reports = world.reports();
    assert_eq!(world.contradicts(&reports), None);
    assert_eq!(lost(&reports[0]), [(Flow::from(&own), 1, false)]);
    let named = |flow: &FlowKey, packets| (Flow::from(flow), Some(Flow::from(flow)), packets);
    assert_eq!(rewritten(&reports[0]), [named(&marked, 4), named(&unmarked, 3)]);
    let kinds: Vec<_> = reports[0].strays.iter().map(|of| of.what).collect();
    assert_eq!(kinds, [StrayKind::Misfit, StrayKind::Unmarked]);
}

/// A router sets the DSCP of all packets to 0.
#[test]
fn where_marks_are_wiped_the_epoch_is_incomplete_with_the_cause_and_a_remedy() {
    let mut world = World::new(healthy(), 2);
    for port in 1..20 {
        let flow = tcp(CLIENT, port, SERVER, 443);
        send(&mut world, flow, times(Fate::Marked(Hierarchy::NonSampledLl), 5));
    }
    send(&mut world, tcp(CLIENT, 99, SERVER, 443), [Fate::Lost]);
    let reports = world.reports();
    assert!(!reports[0].complete && reports[0].loss.is_empty());
    let cause = &reports[0].causes[0];
    assert_eq!((cause.edge.as_deref(), cause.kind), (Some("e2"), CauseKind::Mark));
    assert_eq!(cause.packets, 95);
    let reason = &reports[0].incomplete_because[0];
    assert!(reason.starts_with("e2: 100 % (95 of 95) of the packets"), "{reason}");
    assert!(reason.contains("use another carrier"), "{reason}");
}

#[test]
fn packets_of_unknown_flows_make_losses_lower_bounds() {
    let mut world = World::new(healthy(), 1).with_room(0);
    let flow = tcp(CLIENT, 1, SERVER, 443);
    send(&mut world, flow, times(Fate::Lost, 7));
    send(&mut world, tcp(CLIENT, 2, SERVER, 80), times(Fate::Unmarked(0), 2));
    let report = report(&world);
    assert_eq!(lost(&report), [(Flow::from(&flow), 5, true)]);
    assert_eq!(report.causes[0].kind, CauseKind::Mark);
    assert!(report.complete && !report.losses_are_exact());
}

#[test]
fn encoders_that_hold_other_packets_than_were_counted_are_not_believed() {
    let mut world = World::new(healthy(), 1);
    send(&mut world, tcp(CLIENT, 1, SERVER, 443), [Fate::Lost, Fate::Arrived]);
    let mut input = world.input(FIRST);
    let balance = &mut input.edges[0].ingress.as_mut().unwrap().balance;
    *balance = Some(Balance::new([0, 0, 0, 3]));
    let report = analyser(layout()).analyse(input);
    assert!(!report.complete && report.loss.is_empty());
    assert_eq!((report.causes[0].kind, report.causes[0].packets), (CauseKind::Balance, 1));
}

/// Two flows share a bucket in each array of the HL encoder, and lose packets both.
#[test]
fn flows_that_cannot_be_told_apart_are_set_aside_and_the_others_exact() {
    let partition = Partition { hh: 192, hl: 64, ll: 0 };
    let layout = Layout { downstream_buckets: 64, ..layout() };
    let attention = Attention { partition, ..Attention::healthy(&layout, 64) };
    let mut world = World::of(layout, attention, 1);
    let flow = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        tcp([10, 1, a, b], 1024 + u16::from(c), SERVER, 443)
    };
    let [one, victim] = [flow(0), tcp(CLIENT, 99, SERVER, 22)];
    let place = |key: &FlowKey| {
        let of = |part| world.place(&part, key);
        (of(partition.hl_part()), of(partition.hh_part()))
    };
    let (hl, hh) = place(&one);
    let alike = |key: &FlowKey| place(key).0 == hl && place(key).1 != hh;
    let other = (1..1 << 24).map(flow).find(alike).unwrap();
    send(&mut world, one, [Fate::Lost, Fate::Lost, Fate::Arrived]);
    send(&mut world, other, [Fate::Lost, Fate::Arrived]);
    send(&mut world, victim, [Fate::Lost, Fate::Lost, Fate::Arrived]);
    let report = report(&world);
    assert_eq!(lost(&report), [(Flow::from(&victim), 2, false)]);
    assert_eq!(report.indistinct, [IndistinctFlows { packets: 3, class: LossClass::Heavy }]);
    assert!(report.losses_are_decoded() && !report.losses_are_exact());
}

/// Two flows share a bucket in each array of the LL encoder, and one of them has packets in the HL
/// encoder as well.
#[test]
fn what_a_flow_lost_is_not_known_where_part_of_it_can_be_anothers() {
    let partition = Partition { hh: 128, hl: 64, ll: 64 };
    let attention = Attention { t_h: 50, t_l: 5, sample_rate: SampleRate::ALL, partition };
    let mut world = World::new(attention, 1);
    let flow = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        tcp([10, 1, a, b], 1024 + u16::from(c), SERVER, 443)
    };
    let [one, victim] = [flow(0), tcp(CLIENT, 99, SERVER, 22)];
    let place = |key: &FlowKey| world.place(&partition.ll_part(), key);
    let alike = |key: &FlowKey| place(key) == place(&one);
    let other = (1..1 << 24).map(flow).find(alike).unwrap();
    send(&mut world, one, times(Fate::Copied(3), 4).chain(times(Fate::Lost, 3)));
    send(&mut world, other, [Fate::Lost, Fate::Lost, Fate::Lost]);
    send(&mut world, victim, [Fate::Lost, Fate::Lost, Fate::Arrived]);
    let report = world.reports().remove(0);
    // The victim's may be in the set as another flow's.
    assert_eq!(lost(&report), []);
    assert_eq!(rewritten(&report), [(Flow::from(&victim), None, 2)]);
    let set = |packets, class| IndistinctFlows { packets, class };
    assert_eq!(report.indistinct, [set(-5, LossClass::Light), set(3, LossClass::Heavy)]);
    assert!(report.losses_are_decoded() && !report.losses_are_exact());
}

/// e1's HH encoder has too few buckets for its flows.
#[test]
fn an_hh_encoder_that_does_not_decode_leaves_what_others_lost() {
    let partition = Partition { hh: 8, hl: 112, ll: 136 };
    let layout = Layout { downstream_buckets: 248, ..layout() };
    let attention = Attention { partition, ..Attention::healthy(&layout, 112) };
    let mut world = World::of(layout, attention, 1);
    for port in 1..40 {
        let fate = if port % 3 == 0 { Fate::Lost } else { Fate::Arrived };
        world.send(FIRST, [0, 1], tcp(CLIENT, port, SERVER, 443), fate);
    }
    let mut victims = Vec::new();
    for port in 1..9 {
        let flow = tcp([10, 2, 0, 9], port, CLIENT, 22);
        world.send(FIRST, [1, 0], flow, Fate::Lost);
        world.send(FIRST, [1, 0], flow, Fate::Arrived);
        victims.push((Flow::from(&flow), 1, false));
    }
    let report = report(&world);
    assert_eq!(report.edges[0].hh_decode, DecodeState::Partial);
    assert_eq!(report.decode.hl, DecodeState::Blocked);
    assert!(report.complete && !report.losses_are_decoded());
    let of_others = |(flow, ..): &(Flow, u64, bool)| flow.sport < 9 && flow.dport == 22;
    let (mut others, own): (Vec<_>, Vec<_>) = lost(&report).into_iter().partition(of_others);
    others.sort();
    assert_eq!(others, victims);
    assert!(own.iter().all(|(flow, lost, _)| flow.sport % 3 == 0 && *lost == 1), "{own:?}");
}

#[test]
fn a_mirror_that_leads_to_an_edge_makes_copies_and_no_loss() {
    let mut world = World::new(healthy(), 1);
    let (mirrored, other) = (tcp(CLIENT, 1, SERVER, 443), tcp(CLIENT, 2, SERVER, 443));
    send(&mut world, mirrored, times(Fate::Arrived, 4));
    (0..4).for_each(|_| world.leave(FIRST, 0, mirrored, Hierarchy::HhCandidate));
    send(&mut world, other, [Fate::Arrived, Fate::Lost]);
    let mut reports = world.reports();
    let report = reports.remove(0);
    assert_eq!(lost(&report), [(Flow::from(&other), 1, false)]);
    let surplus = &report.surplus[0];
    assert_eq!((surplus.flow, surplus.packets), (Flow::from(&mirrored), 4));
    assert!(report.complete && !report.losses_are_exact());
}

#[test]
fn fragments_that_a_firewall_puts_together_are_missing_of_the_flow_without_ports() {
    let mut world = World::new(healthy(), 1);
    let (first, later) = (tcp(CLIENT, 1, SERVER, 443), tcp(CLIENT, 0, SERVER, 0));
    // Two packets, of which hosts had made three fragments each.
    send(&mut world, first, times(Fate::Arrived, 2));
    send(&mut world, later, times(Fate::Lost, 4));
    assert_eq!(lost(&report(&world)), [(Flow::from(&later), 4, false)]);
}

#[test]
fn no_loss_is_believed_on_ways_that_no_probe_has_come_through() {
    let [probed, unprobed] = [SERVER, SERVICE].map(|server| tcp(CLIENT, 1, server, 443));
    let report = |losing: &[_]| {
        let mut world = World::new(healthy(), 1);
        for key in losing {
            // The network sets the DSCP of all packets to 0: none of them is encoded.
            send(&mut world, *key, times(Fate::Lost, 3));
        }
        let mut input = world.input(FIRST);
        let hosts = [SERVER, SERVICE].map(IpAddr::from).into_iter().zip([1, 2]);
        input.edges[0].unprobed = Some(Unprobed {
            hosts: Arc::new(hosts.collect()),
            proven: Arc::new([(1, FIRST)].into()),
            epoch: FIRST,
            waiting: vec![2],
            ..Unprobed::default()
        });
        analyser(layout()).analyse(input)
    };
    let sound = report(&[probed]);
    assert!(sound.complete && sound.losses_are_exact());
    assert_eq!(lost(&sound), [(Flow::from(&probed), 3, false)]);

    let unsound = report(&[probed, unprobed]);
    assert!(!unsound.complete && lost(&unsound).is_empty());
    let [cause] = &unsound.causes[..] else { panic!("{:?}", unsound.causes) };
    assert_eq!(
        (cause.kind, cause.packets, cause.edge.as_deref()),
        (CauseKind::Mark, 3, Some("e1"))
    );
    assert!(cause.reason.contains("no probe with each mark"), "{}", cause.reason);
}
